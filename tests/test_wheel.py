"""What a user installs: a wheel and a source distribution, tried in an empty environment."""

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

import orfit

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
TRY = """
import sys, numpy as np, orfit
assert "site-packages" in orfit.__file__, orfit.__file__
for extra in ("torch", "sklearn", "rich", "matplotlib"):
    assert extra not in sys.modules, extra
X = np.random.default_rng(0).standard_normal((50, 20))
learner = orfit.ORFit(orfit.Linear(20), 5, noise=0.1)
learner.learn_each(X, X @ np.ones(20))
learner.save("learner.safetensors")
again = orfit.load("learner.safetensors")
assert (again.predict(X) == learner.predict(X)).all()
import orfit.core._core as core
assert "site-packages" in core.__file__, core.__file__
assert orfit.datasets.twos()[0].shape == (400, 28, 28)  # data files are in the wheel
print(orfit.__version__)
"""


def pip(*arguments):
    """Run pip; where it cannot reach packages, there is nothing to test."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "No module named pip" in done.stderr:
        pytest.skip("this environment has no pip")
    if "NewConnectionError" in done.stderr or "Could not find a version" in done.stderr:
        pytest.skip(f"pip cannot reach packages here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def test_a_wheel_in_an_empty_environment(tmp_path):
    folder = Path(os.environ.get("ORFIT_WHEELS", tmp_path))  # where `make wheel` put a wheel
    if folder == tmp_path:
        pip("wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"orfit-{orfit.__version__}-cp311-abi3-")
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    pip("--python", python, "install", wheel)
    run = [python, "-c", TRY]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env={}, check=False)
    assert done.stdout.split() == [orfit.__version__], done.stderr
    orfit_ = subprocess.run(
        [python.parent / "orfit", "--version"], capture_output=True, text=True, check=True, env={}
    )
    assert orfit_.stdout.split() == ["orfit", orfit.__version__]
    done = subprocess.run(
        [python.parent / "orfit", "reproduce", "limited"],
        capture_output=True,
        text=True,
        check=False,
        env={},
    )
    assert "pip install" in done.stderr  # without the extra it says what to do


def test_the_source_distribution_contains_what_the_build_needs(tmp_path):
    pytest.importorskip("setuptools")
    code = "import sys, build_backend; build_backend.build_sdist(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    build = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(build, cwd=ROOT, env=environment, check=True, capture_output=True)
    (archive,) = tmp_path.glob("orfit-*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for path in (ROOT / "src" / "orfit" / "core").glob("*.[ch]"):
        assert path.relative_to(ROOT).as_posix() in names
    assert not [name for name in names if name.endswith((".so", "_core.c"))]
    pip("wheel", "--no-deps", "--wheel-dir", tmp_path, archive)
    assert list(tmp_path.glob("*.whl"))
