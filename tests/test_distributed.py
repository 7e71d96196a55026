"""p over two processes, of uneven parts, compared with one process."""

import functools
import json
import os
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import orfit
import orfit.distributed
import shards


def started(count, *arguments):
    """So many processes, with the variables that torchrun sets: their codes and what they print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    processes = [
        subprocess.Popen(
            [sys.executable, shards.__file__, *map(str, arguments)],
            env={**os.environ, **threads, **where, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    printed = [process.communicate(timeout=300)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, printed, strict=True)]


def whole_model(name):
    return orfit.Linear(shards.P, heads=shards.CASES[name]["heads"])


@functools.cache
def alone(name):
    """What one process finds."""
    with warnings.catch_warnings(action="ignore"):
        return shards.learn(name, shards.learner_of(name, whole_model(name)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The results of two processes, the second of which is killed in the end."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("two")
    for name in shards.SAVED:
        learner = shards.learner_of(name, whole_model(name))
        shards.learn(name, learner, slice(shards.HALF))
        learner.save(folder / f"one, {name}.safetensors")
    ended = started(2, folder)
    if not (folder / "0.json").exists():
        pytest.fail("\n".join(text for _, text in ended))
    parts = [np.load(folder / f"{rank}.npz") for rank in range(2)]
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return {"folder": folder, "ended": ended, "parts": parts, "found": found}


def check(expected, found, tolerance):
    """found: by process, each result of a learner."""
    assert expected.keys() == found[0].keys()
    for what in expected:
        right, parts = np.asarray(expected[what]), [one[what] for one in found]
        if what != "w":
            assert all(np.array_equal(parts[0], part, equal_nan=True) for part in parts), what
        got = np.concatenate(parts) if what == "w" else parts[0]
        assert got.shape == right.shape, what
        assert got.dtype == right.dtype, what
        # Where all is spanned, a standard deviation is rounding of |x|.
        largest = max(1.0 if what == "std" else 0.0, float(np.abs(right).max(initial=0.0)))
        assert np.array_equal(np.isnan(got), np.isnan(right)), what
        error = float(np.nan_to_num(np.abs(got - right)).max(initial=0.0))
        assert error <= tolerance * largest, what


def of_case(runs, name):
    """What each process found of a case."""
    return [
        {n.removeprefix(f"{name}: "): part[n] for n in part.files if n.startswith(f"{name}: ")}
        for part in runs["parts"]
    ]


@pytest.mark.parametrize("name", shards.CASES)
def test_two_processes_find_what_one_finds(runs, name):
    check(alone(name), of_case(runs, name), 1e-5 if "float32" in name else 1e-10)


@pytest.mark.parametrize("name", shards.CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_process_holds_everything(name):
    """No torch is needed."""
    model = orfit.distributed.Linear(shards.P, heads=shards.CASES[name]["heads"])
    found = shards.learn(name, shards.learner_of(name, model))
    check(alone(name), [{n: np.asarray(a) for n, a in found.items()}],
          1e-5 if "float32" in name else 1e-10)  # fmt: skip


@pytest.mark.parametrize("name", shards.SAVED)
@pytest.mark.parametrize("how", ["kept", "loaded", "of one"])
def test_a_checkpoint_continues_on_two_processes(runs, name, how):
    check(alone(name), of_case(runs, f"{name}, {how}"), 1e-10)


@pytest.mark.parametrize("name", shards.SAVED)
@pytest.mark.parametrize("load", [orfit.load, orfit.distributed.load])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_checkpoint_of_two_processes_continues_on_one(runs, name, load):
    learner = load(runs["folder"] / f"two, {name}.safetensors")
    assert isinstance(learner, orfit.ORFit)
    assert learner.seen == shards.HALF
    assert learner.model.input_shape == (shards.P,)
    found = shards.learn(name, learner, slice(shards.HALF, None))
    check(alone(name), [{n: np.asarray(a) for n, a in found.items()}], 1e-10)


def test_all_processes_refuse_what_is_not_finite_on_one(runs):
    of_0, of_1 = (one["refusals"] for one in runs["found"])
    assert len(of_0) == 3 * 2 * (2 * 7 + 1)
    for name in of_0:
        (error, unchanged), (other, unchanged_1) = of_0[name], of_1[name]
        assert unchanged, name
        assert unchanged_1, name
        assert error == other, name
        if name.startswith("seen"):
            assert error == 40, name
        else:
            assert error[0] == "ValueError", name


def test_errors_of_files_are_raised_by_all(runs):
    of_0, of_1 = (one["files"] for one in runs["found"])
    assert of_0["save"][0] == "FileNotFoundError"
    assert of_1["save"] == ["RuntimeError", "process 0 failed; it raises the reason"]
    assert of_0["load"] == of_1["load"]
    assert of_0["load"][0] == "FileNotFoundError"
    assert "Sketch" in of_0["memory"][1]
    assert "orfit.load" in of_0["rows"][1]


def test_a_killed_process_ends_the_other_with_a_message(runs):
    (code, text), (killed, _) = runs["ended"]
    assert killed == -9
    assert code == 1
    assert "ProcessLostError" in text
    assert "start all processes again from the last checkpoint" in text


@pytest.mark.parametrize(
    ("make", "most", "mean"),
    [(shards.white, 2, 1.2), (shards.decaying, 2, 1.2), (shards.few, 3, 2.5)],
)
@pytest.mark.parametrize("block", [1, 6])
def test_messages_of_a_step(make, most, mean, block):
    """One, but for compactions, and for rows that are nearly spanned.

    A process that is alone counts the messages that it would send.
    """
    model = orfit.distributed.Linear(shards.P)
    learner, (X, y), each = orfit.distributed.ORFit(model, 10, noise=0.1), make(60), []
    for start in range(0, 60, block):
        before, rows = model.processes.messages, slice(start, start + block)
        learner.learn_batch(X[rows], y[rows])
        each.append(model.processes.messages - before)
    assert max(each) <= most
    assert 1 <= np.mean(each) <= mean


def test_torch_is_not_imported_by_one_process():
    script = """
import sys, orfit.distributed
learner = orfit.distributed.ORFit(orfit.distributed.Linear(3), noise=0.1)
learner.learn([1.0, 2.0, 3.0], 1.0)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shares": [2, 1]}, "1 numbers, one for each process, whose sum is 3"),
        ({"shares": [2]}, "1 numbers, one for each process, whose sum is 3"),
        ({"shares": [0]}, "at least 1"),
    ],
)
def test_shares_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        orfit.distributed.Linear(3, **arguments)


def test_what_cannot_be_divided_is_refused(tmp_path):
    model = orfit.distributed.Linear(3)
    with pytest.raises(ValueError, match="must be an orfit.distributed.Linear"):
        orfit.distributed.ORFit(orfit.Linear(3))
    for memory in (orfit.memory.Dense(), orfit.memory.Sketch(2)):
        with pytest.raises(ValueError, match="cannot be divided"):
            orfit.distributed.ORFit(model, memory)
    used = orfit.memory.Principal(2)
    used.absorb(np.eye(3)[:1].T)
    with pytest.raises(ValueError, match="give this learner a new one"):
        orfit.distributed.ORFit(model, used)
    learner = orfit.distributed.ORFit(model, noise=0.1)
    with pytest.raises(ValueError, match="cannot grow"):
        learner.grow(4)
    with pytest.raises(ValueError, match="divided among processes"):
        orfit.merge([learner, learner])
    with pytest.raises(ValueError, match="wait must be True"):
        learner.save(tmp_path / "learner.safetensors", wait=False)
    with pytest.raises(ValueError, match="w0 must have shape"):
        orfit.distributed.ORFit(model, w0=np.zeros(2))


@pytest.mark.parametrize(
    "learner",
    [
        lambda: orfit.RLS(orfit.Linear(3)),
        lambda: orfit.ORFit(orfit.Linear(3, bias=True)),
        lambda: orfit.ORFit(orfit.Linear(1, features=lambda X: X)),
        lambda: orfit.ORFit(orfit.Linear(3), orfit.memory.Sketch(2)),
        lambda: orfit.ORFit(orfit.Linear(3), meter=orfit.Meter(2)),
        lambda: orfit.ORFit(orfit.Linear(3), noise=0.1, dynamics=0.9),
        lambda: orfit.Fleet(2, orfit.Linear(3), 2, noise=0.1),
    ],
)
def test_other_checkpoints_are_refused(learner, tmp_path):
    learner().save(tmp_path / "learner.safetensors")
    with pytest.raises(orfit.CheckpointError):
        orfit.distributed.load(tmp_path / "learner.safetensors")


@pytest.mark.slow
def test_the_example_runs():
    path = Path(__file__).parents[1] / "examples" / "spread.py"
    printed = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
    right, messages, rows = re.findall(r"[\d.]+", printed.stdout)
    assert float(right) > 0.8
    assert int(messages) < 1.2 * int(rows)
