"""Files: what is written can be read anywhere, what cannot be read is refused in a sentence."""

import contextlib
import json
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

import orfit
from orfit.experiments.tanh import TanhNetwork


@pytest.fixture
def learner(rng):
    made = orfit.ORFit(orfit.Linear(20), 4, noise=0.1, w0=rng.standard_normal(20))
    made.learn_each(rng.standard_normal((30, 20)), rng.standard_normal(30))
    return made


def rewrite(path, change):
    """Write the file again with `change(header, arrays)` applied."""
    with safetensors.safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["orfit"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(header, arrays)
    safetensors.numpy.save_file(arrays, path, {"orfit": json.dumps(header)})


def test_a_file_is_plain_safetensors_with_a_json_header(learner, tmp_path):
    learner.save(tmp_path / "a.safetensors")
    with safetensors.safe_open(tmp_path / "a.safetensors", framework="numpy") as file:
        header = json.loads(file.metadata()["orfit"])
        assert (file.get_tensor("w") == learner.w).all()
    assert header["kind"] == "ORFit"
    assert header["seen"] == 30
    assert header["settings"]["noise"] == 0.1
    assert header["settings"]["memory"] == {"kind": "Principal", "settings": {"m": 4}}
    assert set(header["versions"]) == {"orfit", "numpy"}


def test_restored_in_another_process(learner, tmp_path, rng):
    X, y = rng.standard_normal((10, 20)), rng.standard_normal(10)
    learner.save(tmp_path / "before")
    np.savez(tmp_path / "data.npz", X=X, y=y)
    script = (
        "import numpy as np, orfit; data = np.load('data.npz'); learner = orfit.load('before');"
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


def test_flipped_bytes_are_refused_or_are_numbers(learner, tmp_path):
    """Whatever a damaged header says, the answer is a learner or a CheckpointError."""
    learner.save(tmp_path / "whole")
    whole = bytearray((tmp_path / "whole").read_bytes())
    start = int.from_bytes(whole[:8], "little") + 8
    for position in range(0, start, 7):
        damaged = whole.copy()
        damaged[position] ^= 0x15
        (tmp_path / "damaged").write_bytes(damaged)
        with contextlib.suppress(orfit.CheckpointError):
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, a: h.update(format=99), "format 99; this orfit reads 5: upgrade"),
        (lambda h, a: h.update(format=1), "format 1; this orfit reads 5: load it with the orfit"),
        (lambda h, a: h.update(kind="Oracle"), "kind Oracle, unknown here"),
        (lambda h, a: h["settings"]["memory"].update(kind="Elephant"), "kind Elephant, unknown"),
        (lambda h, a: h.pop("seen"), "damaged"),
        (lambda h, a: h["settings"].update(noise=-1), "damaged"),
        (lambda h, a: a.pop("w"), "damaged"),
        (lambda h, a: a.pop("memory.rows"), "damaged"),
        (lambda h, a: a.update(w=np.zeros(3)), "damaged"),
        (lambda h, a: a.update({"memory.rows": np.zeros((4, 3))}), "damaged"),
        (lambda h, a: a.update({"memory.sigma": np.zeros(9)}), "damaged"),
    ],
)
def test_files_that_say_something_else(learner, tmp_path, change, message):
    learner.save(tmp_path / "file")
    rewrite(tmp_path / "file", change)
    with pytest.raises(orfit.CheckpointError, match=message):
        orfit.load(tmp_path / "file")


def test_the_model_is_passed_back_by_the_caller(tmp_path):
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


class Heaviest(orfit.memory.Bounded):
    """A memory that orfit does not know."""

    def trim(self):
        while self.rank > self.m:
            self.delete(int(np.argmin(np.linalg.norm(self.root, axis=0))))


def test_a_memory_of_ones_own_is_passed_back_too(tmp_path, rng):
    X, y = rng.standard_normal((20, 9)), rng.standard_normal(20)
    learner = orfit.ORFit(orfit.Linear(9), Heaviest(3))
    learner.learn_each(X, y)
    learner.save(tmp_path / "file")
    with pytest.raises(orfit.CheckpointError, match="kind Heaviest, unknown here; pass a new one"):
        orfit.load(tmp_path / "file")
    with pytest.raises(orfit.CheckpointError, match="memory Heaviest .*not with Latest"):
        orfit.load(tmp_path / "file", memory=orfit.memory.Latest(3))
    restored = orfit.load(tmp_path / "file", memory=Heaviest(3))
    for each in (learner, restored):
        each.learn_each(X, y)
    assert (restored.w == learner.w).all()


def test_saving_through_a_link_and_to_nowhere(learner, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    learner.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert orfit.load(tmp_path / "target").seen == 30
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere to save to"):
        learner.save(tmp_path / "nowhere" / "file")


def test_what_a_killed_process_left_is_swept_up(learner, tmp_path):
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


def test_killed_while_saving(tmp_path):
    """SIGKILL at any moment leaves a whole checkpoint, never older than what was told."""
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
        told = [1, *map(int, process.communicate()[0].split())]
        assert orfit.load(tmp_path / "file").seen >= told[-1]


def test_a_checkpoint_has_the_rights_of_any_new_file(learner, tmp_path):
    learner.save(tmp_path / "checkpoint")
    (tmp_path / "other").write_text("")
    mode = stat.S_IMODE((tmp_path / "checkpoint").stat().st_mode)
    assert mode == stat.S_IMODE((tmp_path / "other").stat().st_mode)
