"""Checkpoint files: they can be read on any machine, and damaged ones are refused."""

import json
import logging
import math
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import crafted
import orfit
from orfit import state
from orfit.reproduce.tanh import TanhNetwork


@pytest.fixture
def learner(rng):
    made = orfit.ORFit(orfit.Linear(20), 4, noise=0.1, w0=rng.standard_normal(20))
    made.learn_each(rng.standard_normal((30, 20)), rng.standard_normal(30))
    return made


def rewrite(path, change):
    """Write the file again with `change(header, arrays)` applied, and a checksum that is right."""
    header, arrays = crafted.parts(path)
    change(header, arrays)
    crafted.write(path, json.dumps(header), arrays)


SKETCH = {"kind": "Sketch", "settings": {"m": 10**9}}


def change(arrays, name, values):
    """Set all numbers of a field of the state."""
    arrays[f"state.{name}"] = np.full_like(arrays[f"state.{name}"], values)


def resize(header, arrays, size, **more):
    """Change the header to a learner of so many parameters."""
    header["model"]["settings"]["size"] = header["model"]["size"] = size
    header.update(more)
    arrays["state.input_shape"] = np.array([size])
    if "kind" in more:
        header["settings"] = {}


def test_a_file_is_plain_safetensors_with_a_json_header(learner, tmp_path):
    learner.save(tmp_path / "a.safetensors")
    with safetensors.safe_open(tmp_path / "a.safetensors", framework="numpy") as file:
        header = json.loads(file.metadata()["orfit"])
        assert (file.get_tensor("w") == learner.w).all()
        assert file.get_tensor("state.seen") == 30
    assert header["kind"] == "ORFit"
    assert header["settings"]["noise"] == 0.1
    assert header["settings"]["memory"] == {"kind": "Principal", "settings": {"m": 4}}
    assert set(header["versions"]) == {"orfit", "numpy"}


def test_restored_in_another_process(learner, tmp_path, rng):
    X, y = rng.standard_normal((10, 20)), rng.standard_normal(10)
    learner.save(tmp_path / "before")
    np.savez(tmp_path / "data.npz", X=X, y=y)
    script = (
        "import numpy as np, orfit; data = np.load('data.npz');"
        "learner = orfit.load('before');"
        "learner.learn_each(data['X'], data['y']); learner.save('after')"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    learner.learn_each(X, y)
    after = orfit.load(tmp_path / "after")
    assert after.seen == learner.seen == 40
    assert (after.w == learner.w).all()
    assert (after.memory.U == learner.memory.U).all()


def test_truncated_files(learner, tmp_path):
    learner.save(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for size in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(orfit.CheckpointError, match=r"cut is truncated, or not an orfit"):
            orfit.load(tmp_path / "cut")


def test_a_flipped_bit_is_refused_wherever_it_is(learner, tmp_path):
    learner.save(tmp_path / "whole")
    whole = bytearray((tmp_path / "whole").read_bytes())
    for position in range(0, len(whole), 3):
        damaged = whole.copy()
        damaged[position] ^= 1 << position % 8
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(orfit.CheckpointError):
            orfit.load(tmp_path / "damaged")


def test_foreign_files(tmp_path):
    for name, content in {
        "text": b"hello, I am no checkpoint",
        "pickle": pickle.dumps({"w": [1.0]}),
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(orfit.CheckpointError, match="not an orfit checkpoint"):
            orfit.load(tmp_path / name)
    safetensors.numpy.save_file({"w": np.ones(3)}, tmp_path / "weights")
    with pytest.raises(orfit.CheckpointError, match="but not orfit's"):
        orfit.load(tmp_path / "weights")
    for text in ("not json", "[]", '{"format": "x"}', "{}"):
        safetensors.numpy.save_file({"w": np.ones(3)}, tmp_path / "header", {"orfit": text})
        with pytest.raises(orfit.CheckpointError, match="header that is not orfit's"):
            orfit.load(tmp_path / "header")
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        orfit.load(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match="is a folder; give the name of a saved file"):
        orfit.load(tmp_path)


@pytest.mark.parametrize("kind", ["ORFitRegressor", "ORFitClassifier"])
def test_the_file_of_an_estimator_is_refused_and_its_reader_named(kind, tmp_path):
    pytest.importorskip("sklearn")
    import orfit.sklearn

    model = getattr(orfit.sklearn, kind)().fit([[1.0], [2.0], [3.0]], [0, 1, 1])
    model.save(tmp_path / "model")
    with pytest.raises(orfit.CheckpointError, match=r"estimator .* orfit\.sklearn\.load reads it"):
        orfit.load(tmp_path / "model")
    assert type(orfit.sklearn.load(tmp_path / "model")) is type(model)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda h, a: h.update(format=99), "format 99; this orfit reads 12: upgrade"),
        (lambda h, a: h.update(format=1), "format 1; this orfit reads 12: load it with the orfit"),
        (lambda h, a: h.update(kind="Oracle"), "kind Oracle, unknown here"),
        (lambda h, a: h["settings"]["memory"].update(kind="Elephant"), "kind Elephant, unknown"),
        (lambda h, a: h.pop("versions"), "lacks fields, .*: versions"),
        (lambda h, a: h["settings"].update(noise=-1), "noise must not be negative"),
        (lambda h, a: a.pop("w"), r"no w of shape \(20,\)"),
        (lambda h, a: a.pop("state.rows"), "it has no array rows"),
        (lambda h, a: a.pop("state.seen"), "it has no array seen"),
        (lambda h, a: a.update(w=np.zeros(3)), r"no w of shape \(20,\)"),
        (lambda h, a: a.update({"state.rows": np.zeros((4, 3))}), "rows must have shape .*20"),
        (lambda h, a: a.update({"state.sigma": np.zeros(9)}), r"sigma must have shape .*\(9,\)"),
        (lambda h, a: h.update(format=math.inf), "header that is not orfit's"),
        (lambda h, a: h.update(transposed=7), "header that is not orfit's"),
        (lambda h, a: h.update(settings=None), "header.settings must have fields; it is None"),
        (lambda h, a: h["settings"].update(w=3), "such settings ORFit has not: .*'w'"),
        (lambda h, a: h["settings"]["memory"]["settings"].update(m=2**63), "m must be at most"),
        (lambda h, a: h["settings"]["memory"]["settings"].update(m=3), "4 directions are more"),
        (lambda h, a: h["model"]["settings"].update(size=10**12), "size 1000000000000, and"),
        (lambda h, a: resize(h, a, 10**12), r"no w of shape \(1000000000000,\)"),
        (lambda h, a: resize(h, a, 10**12, kind="RLS"), r"no w of shape \(1000000000000,\)"),
        (lambda h, a: h.update(kind="RLS", settings={}), r"no P of shape \(20, 20\)"),
        (
            lambda h, a: h["settings"].update(memory=SKETCH),
            r"no sketch of shape \(1000000000, 20\)",
        ),
        (lambda h, a: h["model"].update(heads=3), "its model has heads None, and heads 3"),
        (lambda h, a: change(a, "input_shape", 21), "does not take inputs .21,"),
        (lambda h, a: change(a, "seen", -1), "seen must be between 0 and"),
        (lambda h, a: h.update(other=1), "header lacks fields, or has .*: other"),
        (lambda h, a: a.pop("state.tail_level"), "it has no array tail_level"),
        (lambda h, a: a.update({"state.tail_level": np.ones(2)}), "tail_level must have shape"),
        (lambda h, a: change(a, "parameter_bound", math.nan), "parameter_bound must be finite"),
        (lambda h, a: change(a, "chosen", 1), "there are 1 candidates; 1 is none of them"),
        (lambda h, a: a.update({"state.unit": np.array([3, 3])}), "if the noise is given"),
        (lambda h, a: a.update(other=a["w"]), "it has unknown arrays: .*other"),
        (lambda h, a: a.update({"state.D": np.ones(20)}), "it has unknown arrays: .*D"),
        (lambda h, a: a.update(w=a["w"].astype("f")), "must be float32; it is float64"),
        (lambda h, a: change(a, "rows", a["state.rows"] * 2), "not orthonormal"),
        (lambda h, a: change(a, "W", a["state.W"] * 2), "not orthonormal"),
        (lambda h, a: change(a, "M", -a["state.M"]), "has length zero"),
        (lambda h, a: change(a, "sigma", a["state.sigma"][::-1]), "must be falling"),
        (lambda h, a: change(a, "sigma", -a["state.sigma"]), "sigma must be between 0 and"),
        (lambda h, a: change(a, "shift", np.inf), "shift must be finite"),
        (lambda h, a: a.update({"state.shift": a["state.shift"].astype(int)}), "must be float64"),
        (lambda h, a: a.update({"state.shift": a["state.shift"].astype("i4")}), "no state has"),
        (lambda h, a: change(a, "noises", 0.0), "noises must be .0.1.; they are .0"),
        (lambda h, a: change(a, "error", -1), "error must be between 0 and"),
    ],
)
def test_damaged_files_are_refused(learner, tmp_path, damage, message):
    learner.save(tmp_path / "file")
    rewrite(tmp_path / "file", damage)
    with pytest.raises(orfit.CheckpointError, match=message):
        orfit.load(tmp_path / "file")


def noisy(**settings):
    return orfit.ORFit(orfit.Linear(20), **({"noise": 0.1} | settings))


OTHERS = [
    (
        lambda: noisy(memory=3, noise="auto"),
        lambda h, a: change(a, "time_updated", 1),
        "time does not pass",
    ),
    (
        lambda: noisy(memory=3, noise="auto"),
        lambda h, a: change(a, "unit", [401, 3]),
        "unit must be between -290 and 290",
    ),
    (
        lambda: noisy(memory=3, noise="auto"),
        lambda h, a: change(a, "unit", [3, 4]),
        "two powers, the larger first",
    ),
    (noisy, lambda h, a: change(a, "floors", 0.0), "a floor of its own"),
    (noisy, lambda h, a: change(a, "floors", [0.1, 0.0]), "a floor of its own"),
    (noisy, lambda h, a: change(a, "roots", 1.0), "upper triangular"),
    (lambda: noisy(memory="auto"), lambda h, a: change(a, "max_rank", 9), "between 10 and 300"),
    (
        lambda: noisy(memory=orfit.memory.Random(3)),
        lambda h, a: change(a, "draws", -1),
        "draws must be between 0",
    ),
    (
        lambda: noisy(forgetting="auto"),
        lambda h, a: a.pop("state.3.rows"),
        r"it has no array 3\.rows",
    ),
    (
        lambda: noisy(forgetting="auto"),
        lambda h, a: a.update({"state.4.rows": a["state.3.rows"]}),
        r"it has unknown arrays: .*4\.rows",
    ),
    (
        lambda: orfit.RLS(orfit.Linear(20), prior=np.ones(20)),
        lambda h, a: a.update(prior=np.ones(19)),
        "prior is for 19 parameters, the model has 20",
    ),
    (
        lambda: orfit.RLS(orfit.Linear(20)),
        lambda h, a: a.update(prior=np.array(-1.0)),
        "prior must be positive",
    ),
    (
        lambda: orfit.RLS(orfit.Linear(20)),
        lambda h, a: change(a, "width", -1.0),
        "width must be between 0",
    ),
]


@pytest.mark.parametrize(("make", "damage", "message"), OTHERS)
def test_damaged_files_of_other_learners_are_refused(make, damage, message, tmp_path, rng):
    learner = make()
    learner.learn_each(rng.standard_normal((30, 20)), rng.standard_normal(30))
    learner.save(tmp_path / "file")
    rewrite(tmp_path / "file", damage)
    with pytest.raises(orfit.CheckpointError, match=message):
        orfit.load(tmp_path / "file")


def test_a_memory_without_room_for_a_row_is_refused(learner, tmp_path):
    """After each step there is room for one more row."""

    def fill(header, arrays):
        rows, capacity = arrays["state.rows"], learner._cell.state.store.capacity
        rows = np.concatenate([rows, np.eye(20)[: capacity - len(rows)]])
        more = [(0, 0), (0, capacity - arrays["state.W"].shape[1])]
        arrays["state.rows"], arrays["state.M"] = rows, rows @ rows.T
        for name in ("state.W", "state.shift"):
            arrays[name] = np.pad(arrays[name], more)

    learner.save(tmp_path / "file")
    rewrite(tmp_path / "file", fill)
    with pytest.raises(orfit.CheckpointError, match="do not fit into"):
        orfit.load(tmp_path / "file")


def test_a_model_of_python_code_is_an_argument_of_load(tmp_path):
    def features(X):
        return X[:, :1] ** np.arange(5)

    learner = orfit.ORFit(orfit.Linear(5, features=features))
    learner.learn([2.0], 3.0)
    learner.save(tmp_path / "file")
    with pytest.raises(orfit.CheckpointError, match=r"\(Linear\) is Python code.*pass the model"):
        orfit.load(tmp_path / "file")
    restored = orfit.load(tmp_path / "file", model=orfit.Linear(5, features=features))
    assert restored.predict([2.0]) == pytest.approx(3.0)
    for other, message in (
        (orfit.Linear(4, features=features), "size 5; the one passed has .*size 4"),
        (orfit.Linear(5, heads=5, features=features), "heads None; the one passed has .*heads 5"),
        (orfit.Linear(4, bias=True, features=features), "'bias': False.*'bias': True"),
        (orfit.Linear(5), "features"),
        (TanhNetwork(4, 1), "kind Linear.*kind TanhNetwork"),
    ):
        with pytest.raises(orfit.CheckpointError, match=message):
            orfit.load(tmp_path / "file", model=other)
    with pytest.raises(ValueError, match="model must be a model.*has no size"):
        orfit.load(tmp_path / "file", model=features)


class Large(orfit.memory.Bounded):
    """A memory that orfit does not know."""

    def keep(self, sigma, m):
        return np.flatnonzero(sigma > 0.1 * sigma[0])[:m]


def test_a_memory_of_ones_own_is_an_argument_of_load(tmp_path, rng):
    X, y = rng.standard_normal((20, 9)), rng.standard_normal(20)
    learner = orfit.ORFit(orfit.Linear(9), Large(3))
    learner.learn_each(X, y)
    learner.save(tmp_path / "file")
    with pytest.raises(orfit.CheckpointError, match="kind Large, unknown here; pass a new one"):
        orfit.load(tmp_path / "file")
    with pytest.raises(orfit.CheckpointError, match="memory Large .*not with Latest"):
        orfit.load(tmp_path / "file", memory=orfit.memory.Latest(3))
    restored = orfit.load(tmp_path / "file", memory=Large(3))
    for each in (learner, restored):
        each.learn_each(X, y)
    assert (restored.w == learner.w).all()


class Counting(Large):
    """With a field of its own in the state."""

    def new_state(self, ops, like, columns):
        s = super().new_state(ops, like, columns)
        s.blocks = 0
        return s

    def absorb_block(self, s, d, along=None):
        super().absorb_block(s, d, along)
        s.blocks += 1


def test_a_memory_of_ones_own_may_declare_a_field(tmp_path, rng, monkeypatch):
    monkeypatch.setitem(state.TABLE, "blocks", state.COUNT)
    learner = orfit.ORFit(orfit.Linear(9), Counting(3))
    learner.learn_each(rng.standard_normal((7, 9)), np.ones(7))
    learner.save(tmp_path / "file")
    restored = orfit.load(tmp_path / "file", memory=Counting(3))
    assert restored._cell.state.blocks == learner._cell.state.blocks == 7
    rewrite(tmp_path / "file", lambda h, a: change(a, "blocks", -1))
    with pytest.raises(orfit.CheckpointError, match="blocks must be between 0"):
        orfit.load(tmp_path / "file", memory=Counting(3))


def test_saving_through_a_link_and_to_nowhere(learner, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    learner.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert orfit.load(tmp_path / "target").seen == 30
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere to save to"):
        learner.save(tmp_path / "nowhere" / "file")


def test_files_of_killed_processes_are_removed(learner, tmp_path):
    fresh, old = tmp_path / ".file.abc.saving", tmp_path / ".file.def.saving"
    for left in (fresh, old):
        left.write_bytes(b"half of it")
    os.utime(old, (0, 0))
    learner.save(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == [".file.abc.saving", "file"]


def test_a_failed_save_leaves_the_old_file(learner, tmp_path, monkeypatch):
    path = tmp_path / "file"
    learner.save(path)
    before = path.read_bytes()

    def broken(tensors, name, metadata):
        Path(name).write_bytes(b"half of it")
        raise OSError("disk full")

    monkeypatch.setattr(safetensors.numpy, "save_file", broken)
    learner.learn(np.ones(20), 1.0)
    with pytest.raises(OSError, match="disk full"):
        learner.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.slow
def test_killed_while_saving(tmp_path):
    """After SIGKILL there is a whole checkpoint, no older than the last save that returned."""
    script = """
import numpy as np, orfit
learner = orfit.ORFit(orfit.Linear(2000), 20)
rng = np.random.default_rng(0)
while True:
    learner.learn(rng.standard_normal(2000), 1.0)
    learner.save("file")
    print(learner.seen, flush=True)
"""
    for delay in (0.05, 0.1, 0.13):
        process = subprocess.Popen(
            [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        saved = [1, *map(int, process.communicate()[0].split())]
        assert orfit.load(tmp_path / "file").seen >= saved[-1]


def test_a_checkpoint_has_the_rights_of_any_new_file(learner, tmp_path):
    learner.save(tmp_path / "checkpoint")
    (tmp_path / "other").write_text("")
    mode = stat.S_IMODE((tmp_path / "checkpoint").stat().st_mode)
    assert mode == stat.S_IMODE((tmp_path / "other").stat().st_mode)


def test_more_directions_are_another_learner(learner, tmp_path):
    """m changed: the memory has as much room as it needs."""
    learner.save(tmp_path / "file")
    rewrite(tmp_path / "file", lambda h, a: h["settings"]["memory"]["settings"].update(m=900))
    larger = orfit.load(tmp_path / "file")
    rng = np.random.default_rng(3)
    larger.learn_each(rng.standard_normal((50, 20)), rng.standard_normal(50))
    assert larger.memory.rank == 20


def test_a_model_of_any_size_takes_no_memory_if_its_parameters_are_not_used(tmp_path):
    orfit.Greedy(orfit.Linear(3)).save(tmp_path / "file")
    rewrite(tmp_path / "file", lambda h, a: resize(h, a, 10**12))
    assert orfit.load(tmp_path / "file").model.size == 10**12


def slowed(monkeypatch, what=lambda: None):
    """Let the first file take long to write."""
    usual, calls = safetensors.numpy.save_file, []

    def slow(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            time.sleep(0.2)
            what()
        usual(*arguments)

    monkeypatch.setattr(safetensors.numpy, "save_file", slow)


def test_saving_beside_learning(learner, tmp_path, rng, monkeypatch):
    learner.save(tmp_path / "before")
    slowed(monkeypatch)  # so that it is written after the learner has gone on
    saved = learner.save(tmp_path / "beside", wait=False)
    learner.learn_each(rng.standard_normal((50, 20)), rng.standard_normal(50))
    assert saved.result() is None
    (header, arrays), (same, copies) = map(crafted.parts, tmp_path.iterdir())
    assert header == same
    assert all((array == copies[name]).all() for name, array in arrays.items())
    with pytest.raises(ValueError, match="wait must be True or False"):
        learner.save(tmp_path / "beside", wait="no")
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere to save to"):
        learner.save(tmp_path / "nowhere" / "file", wait=False)


@pytest.mark.parametrize("wait", [True, False])
def test_a_save_does_not_overtake_another(learner, tmp_path, monkeypatch, wait):
    slowed(monkeypatch)
    handles = [learner.save(tmp_path / "file", wait=False)]
    learner.learn(np.ones(20), 1.0)
    handles.append(learner.save(tmp_path / "file", wait=wait))
    if not wait:
        handles[1].result()
    assert handles[0].done()
    assert orfit.load(tmp_path / "file").seen == 31


def test_a_failure_in_the_background_is_logged_and_raised(learner, tmp_path, monkeypatch, caplog):
    learner.save(tmp_path / "file")

    def fail():
        raise OSError("disk full")

    slowed(monkeypatch, fail)
    learner.learn(np.ones(20), 1.0)
    failed, later = (learner.save(tmp_path / "file", wait=False) for _ in range(2))
    with caplog.at_level(logging.ERROR), pytest.raises(OSError, match="disk full"):
        failed.result()
    assert "file was not saved: OSError('disk full')" in caplog.text
    assert later.result() is None  # which is not held up by it
    assert orfit.load(tmp_path / "file").seen == 31
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.slow
def test_a_process_does_not_end_before_it_has_saved(tmp_path):
    script = """
import os, time, orfit, safetensors.numpy
learner, usual = orfit.ORFit(orfit.Linear(3), 2), safetensors.numpy.save_file
safetensors.numpy.save_file = lambda *arguments: (time.sleep(0.3), usual(*arguments))
learner.save("file", wait=False)
if not os.fork():  # a child has nothing to wait for
    safetensors.numpy.save_file = usual
    learner.save("child")
    os._exit(0)
os.wait()
learner.learn([1, 2, 3], 1)
learner.save("file", wait=False)
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    assert orfit.load(tmp_path / "file").seen == 1
    assert orfit.load(tmp_path / "child").seen == 0
