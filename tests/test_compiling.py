"""The compiled loop as a user meets it: whatever the folders are like, it works, and says so."""

import copy
import itertools
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import orfit

pytest.importorskip("numba")
from orfit import kernels
from orfit.kernels import cache, fleet, whole
from orfit.learners.rows import Auto

pytestmark = pytest.mark.slow

PACKAGE = Path(orfit.__file__).parent
LINE = "orfit compiles a loop over rows"
NOT_KEPT = "what orfit compiles is not kept for the next process"
# `RLS`, whose loop is compiled in seconds; all is the same for the other.
REAL = """
import numpy as np, orfit
rng = np.random.default_rng(0)
X, y = rng.standard_normal((40, 3)), rng.standard_normal(40)
loop, plain = (orfit.RLS(orfit.Linear(3), rows=rows) for rows in ("compiled", "plain"))
for learner in (loop, plain):
    learner.learn_each(X, y)
assert np.abs(loop.w - plain.w).max() < 1e-12
print(orfit.__file__)
"""
# What becomes of files and folders is the same for any loop that is kept: one of a line, beside
# the others, is compiled at once.
LINE_LONG = """
from numba import njit
from orfit.kernels import FINGERPRINT
from orfit.kernels.cache import kept


def row_loop(fingerprint):
    @kept
    @njit
    def walk(x):
        fingerprint
        x[0] = x.sum()

    return walk


walk = row_loop(FINGERPRINT)
"""
SHORT = """
import numpy as np, orfit
from orfit.kernels import line_long
x = np.ones(3)
line_long.walk(x)
assert x[0] == 3
print(orfit.__file__)
"""


def run(path, script=SHORT, **variables):
    """A script, with the package that lies there."""
    place = {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"} | variables
    settings = {name: value for name, value in (os.environ | place).items() if value is not None}
    command = [sys.executable, "-W", "error", "-c", script]
    return subprocess.Popen(
        command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def told(process):
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    return out, errors


def copied(tmp_path):
    """The package and a short loop, with nothing in any cache."""
    place = tmp_path / "lib"
    shutil.copytree(PACKAGE, place / "orfit", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "orfit" / "kernels" / "line_long.py").write_text(LINE_LONG)
    return place


@pytest.fixture
def package(tmp_path):
    return copied(tmp_path)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The package, after the short loop was compiled."""
    place = copied(tmp_path_factory.mktemp("compiled"))
    told(run(place))
    return place


@pytest.fixture
def kept(compiled, tmp_path):
    """A copy of it, with its cache."""
    shutil.copytree(compiled, tmp_path / "lib")
    return tmp_path / "lib"


@pytest.mark.parametrize("script", [REAL, SHORT], ids=["RLS", "short"])
def test_it_is_compiled_with_a_word_and_loaded_without(package, script):
    _, said = told(run(package, script))
    assert said.count(LINE) == 1
    assert "once on this machine" in said
    assert told(run(package, script))[1] == ""


def test_all_loops_are_kept_in_that_way():
    for loop in (kernels.walk, whole.walk, fleet.learn):
        assert isinstance(loop._cache, cache.Kept)


def test_where_no_folder_can_be_written(package):
    (package / "orfit" / "kernels" / "__pycache__").touch()  # a file: no folder can be made there
    nowhere = "/dev/null/nowhere"
    homes = {"HOME": nowhere, "XDG_CACHE_HOME": None}, {"HOME": None, "XDG_CACHE_HOME": nowhere}
    for process in [run(package, NUMBA_CACHE_DIR=nowhere, **home) for home in homes]:
        _, errors = told(process)
        assert errors.count(LINE) == errors.count(NOT_KEPT) == 1
        assert "in every process" in errors
        assert "NUMBA_CACHE_DIR" in errors


def test_where_the_folder_is_gone_when_it_is_needed(package):
    script = "import shutil, orfit.kernels.line_long as line_long\n"
    script += "shutil.rmtree(line_long.walk._cache.cache_path)\n"
    script += "open(line_long.walk._cache.cache_path, 'w').close()\n"
    _, errors = told(run(package, script + SHORT))
    assert errors.count(LINE) == errors.count(NOT_KEPT) == 1


def test_several_processes_at_once(package):
    for process in [run(package) for _ in range(4)]:
        told(process)
    assert told(run(package))[1] == ""
    assert not list((package / "orfit" / "kernels" / "__pycache__").glob("*.tmp.*"))


@pytest.mark.parametrize(
    ("name", "home", "script"),
    [("a.zip", "/dev/null/nowhere", REAL), ("a.whl", "home", SHORT)],
    ids=["zip", "wheel"],
)
def test_an_install_that_is_zipped(package, name, home, script, tmp_path):
    archive = tmp_path / name
    with zipfile.ZipFile(archive, "w") as zipped:
        for file in (package / "orfit").rglob("*.*"):
            zipped.write(file, file.relative_to(package))
    shutil.rmtree(package)
    place = str(tmp_path / home)  # an absolute one stays
    out, errors = told(run(archive, script, HOME=place, XDG_CACHE_HOME=place))
    assert out.startswith(str(archive))
    assert errors.count(LINE) == errors.count(NOT_KEPT) == 1


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_file_that_was_cut_short_is_written_anew(kept, kind):
    for file in (kept / "orfit" / "kernels" / "__pycache__").glob(f"*.{kind}"):
        data = file.read_bytes()
        file.write_bytes(data[: len(data) // 2])
    assert told(run(kept))[1].count(LINE) == 1
    assert told(run(kept))[1] == ""


def test_code_for_other_types_is_not_taken(monkeypatch):
    """As where two processes that compile at once have given their files the same name."""
    double, single = (np.zeros(3, dtype) for dtype in (np.float64, np.float32))
    for w0 in (double, single):
        orfit.RLS(orfit.Linear(3), w0=w0, rows="compiled").learn_each(np.eye(3), np.zeros(3))
    one, other = whole.walk.signatures[:2]
    wrong = whole.walk.overloads[other]
    monkeypatch.setattr(cache.FunctionCache, "load_overload", lambda *_: wrong)
    found = whole.walk._cache.load_overload
    assert found(other, None) is wrong
    assert found(one, None) is None


def test_what_is_kept_belongs_to_the_sources_that_are_there(kept):
    """They are part of its key, all of them."""
    with (kept / "orfit" / "gram.py").open("a") as source:
        source.write("# changed")
    assert told(run(kept))[1].count(LINE) == 1
    for walk in (kernels.walk, whole.walk):
        assert cache.fingerprint() in [c.cell_contents for c in walk.py_func.__closure__]


def test_after_warming_up_every_learner_is_compiled_from_its_first_row():
    fresh = orfit.ORFit(orfit.Linear(3), 2)
    for wanted in ("float32", None):
        orfit.warm_up(wanted)
    with pytest.raises(ValueError, match="dtype must be float64, float32 or None; it is 'int'"):
        orfit.warm_up("int")
    for dtype in (np.float64, np.float32):
        w0 = np.zeros(3, dtype)
        assert orfit.ORFit(orfit.Linear(3), 2, w0=w0).way() == "compiled"
        assert orfit.RLS(orfit.Linear(3), w0=w0).way() == "compiled"
    assert fresh.way() == "compiled"
    assert orfit.ORFit(orfit.Linear(3), 2, forgetting="auto").way() == "compiled"
    assert orfit.ORFit(orfit.Linear(3), 2, rows=Auto(when_ready=False)).way() == "plain"


def arranged(X, how):
    """The same numbers in another order in memory, or not to be written to."""
    if how == "read-only":
        X = X.copy()
        X.flags.writeable = False
    return {"columns": np.asfortranarray, "parts": lambda X: X.repeat(2, 1)[:, ::2]}.get(
        how, lambda X: X
    )(X)


@pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
@pytest.mark.parametrize("how", ["rows", "columns", "parts", "read-only"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_after_warming_up_nothing_more_is_compiled(dtype, how, rng, tmp_path):
    """Whatever the settings are, and however numbers lie in memory."""
    torch = pytest.importorskip("torch")
    orfit.warm_up()
    before = len(kernels.walk.signatures), len(whole.walk.signatures)
    X, Y = arranged(rng.standard_normal((30, 6)), how), rng.standard_normal((30, 2))
    ways = "compiled", Auto(0, most_rows=5, coordinate_columns=2, coordinate_parameters=1,
                            coordinate_numbers=0)  # fmt: skip
    settings = [
        {},
        {"noise": 1, "tail": False},
        {"noise": 0.1, "drift": 1e-3},
        {"noise": "auto", "tail": "auto", "forgetting": 0.9},
        {"noise": np.float32(0.1), "forgetting": "auto"},
    ]
    memories = orfit.memory.Principal, orfit.memory.FrequentDirections
    for kind, heads, given, rows in itertools.product(memories, (None, 2), settings, ways):
        if kind is not orfit.memory.Principal and given.get("tail") == "auto":
            continue
        w0 = np.zeros(6 if heads is None else (6, heads), dtype)
        model = orfit.Linear(6, heads=heads)
        learner = orfit.ORFit(model, kind(3), w0=w0, rows=rows, **given)
        y = Y[:, 0] if heads is None else Y
        learner.learn_each(X[:20], y[:20])
        learner.learn_batch(X[20:23], y[20:23])
        learner.save(tmp_path / "learner")
        learner = copy.deepcopy(orfit.load(tmp_path / "learner"))
        learner.learn_each(X[23:], y[23:])
        learner.learn(X[0], y[0])
    for heads, forgetting in itertools.product((None, 2), (1, 0.9)):
        w0 = np.zeros(6 if heads is None else (6, heads), dtype)
        model = orfit.Linear(6, heads=heads)
        learner = orfit.RLS(model, w0=w0, rows="compiled", forgetting=forgetting)
        learner.learn_each(X, Y[:, 0] if heads is None else Y)
        assert learner.memory.P.shape == (6, 6)
    module = torch.nn.Linear(6, 1).to(torch.float32 if dtype is np.float32 else torch.float64)
    tangent = orfit.TorchModel(module, tangent=True)
    for learner in (
        orfit.ORFit(tangent, 3, rows="compiled"),
        orfit.RLS(tangent, rows="compiled"),
        orfit.ORFit(tangent, 3, noise=0.1, rows="compiled"),
    ):
        learner.learn_each(torch.tensor(X.astype(dtype)), Y[:, 0])
    assert (len(kernels.walk.signatures), len(whole.walk.signatures)) == before == (2, 2)


def test_a_learner_goes_on_as_it_began(tmp_path, rng):
    """Whatever has run since, here or where it is loaded: else it would not go on bit-equally."""
    orfit.warm_up()
    X, y = rng.standard_normal((9, 5)), rng.standard_normal(9)
    began = orfit.ORFit(orfit.Linear(5), 3)
    began.learn_each(X, y)
    assert began.way() == "compiled"
    began.save(tmp_path / "ready")
    script = (
        "import sys, orfit\n"
        "learner = orfit.load(sys.argv[1])\n"
        "print(learner.way(), orfit.ORFit(orfit.Linear(5), 3).way())\n"
        "late = orfit.RLS(orfit.Linear(2))\n"
        "late.learn([1.0, 2.0], 1.0); late.save(sys.argv[2])\n"
    )
    files = [str(tmp_path / name) for name in ("ready", "late")]
    command = [sys.executable, "-c", script, *files]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "compiled plain\n"
    late = orfit.load(tmp_path / "late")
    assert late.way() == "plain"
    assert late.way(2000) == "compiled"


@pytest.mark.parametrize("wrong", [3, "x", "int8"])
def test_what_is_no_dtype_is_told(wrong):
    with pytest.raises(ValueError, match="dtype must be float64, float32 or None; it is"):
        orfit.warm_up(wrong)
