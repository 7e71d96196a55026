"""p over 2 and 4 processes, of uneven parts: what one process does, with one sum a step."""

import functools
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import orfit
import orfit.distributed
import shards

COUNTS = [2, 4]


def started(count, *arguments):
    """So many processes, as torchrun starts them: what each returned and said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    command = [sys.executable, shards.__file__, *map(str, arguments)]
    processes = [
        subprocess.Popen(
            command,
            env={**os.environ, **threads, **where, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    said = [process.communicate(timeout=300)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What four processes have found, of which one is killed in the end, and then two."""
    four, two = tmp_path_factory.mktemp("four"), tmp_path_factory.mktemp("two")
    half = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    X, y = shards.white(shards.STREAM)
    half.learn_each(X[:30], y[:30])
    half.save(four / "given-alone.safetensors")
    ended = started(4, four, "kill")
    for file in four.glob("given-*"):
        (two / file.name).write_bytes(file.read_bytes())
    for returned, said in started(2, two):
        assert returned == 0, said
    return {4: told_by(four, 4), 2: told_by(two, 2), "four": four, "ended": ended}


def told_by(folder, count):
    """What each says, and their parts put together."""
    told = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
    parts = [np.load(folder / f"{rank}.npz") for rank in range(count)]

    def whole(name):
        many = [part[name] for part in parts]
        return np.concatenate(many) if name.endswith(": w") else many[0]

    return told, {name: whole(name) for name in parts[0].files}


@pytest.fixture(params=[2, 4])
def told(request, runs):
    return runs[request.param][0]


@functools.cache
def alone(name):
    learner = shards.learner_of(name, spread=False)
    told = shards.learned(name, learner, slice(None))
    return learner.w, *told


@pytest.mark.parametrize(
    ("count", "name"), [(count, name) for count in (2, 4) for name in shards.cases(count)]
)
def test_as_one_process_does(runs, count, name):
    tolerance = 1e-5 if "float32" in name else 1e-10
    for expected, what in zip(alone(name), ("w", "f", "std"), strict=True):
        got = runs[count][1][f"{name}: {what}"]
        assert got.dtype == np.asarray(expected).dtype
        least = 1.0 if what == "std" else 0.0  # where all is spanned, it is rounding of |x|
        largest = max(least, float(np.abs(expected).max()))
        assert np.abs(got - expected).max() <= tolerance * largest, what


def test_messages_between_processes(told):
    for stream, of_steps in told[0]["counts"].items():
        assert of_steps["most"] <= 2, stream
        assert stream == "nearly" or 1.0 <= of_steps["mean"] <= 1.1, stream


@pytest.mark.parametrize("settings", shards.COUNTED)
@pytest.mark.filterwarnings("ignore::orfit.InterpolationWarning")
def test_messages_of_a_step(settings):
    """A process that is alone counts those that it would send."""
    for stream in shards.STREAMS:
        for block in (1, 6):
            of_steps = shards.messages(stream, settings, 60, block)
            assert of_steps["most"] <= 2, (stream, block)
            if block == 1 and stream in {"white", "1/i"} and "m" in settings:
                assert 1.0 <= of_steps["mean"] <= 1.1, stream


def test_what_one_refuses_all_refuse_and_nothing_has_changed(told):
    for name in told[0]["refusals"]:
        for rank, one in enumerate(told):
            error, untouched = one["refusals"][name]
            assert untouched, (name, rank)
            if name.startswith("after"):
                continue
            refuses = rank == (0 if name.startswith("y") else 1)
            assert error[0] == ("ValueError" if refuses else "RefusedElsewhereError"), (name, rank)


def test_different_labels_are_noticed_by_all(told):
    assert [one["divergence"][0] for one in told] == ["DivergedError"] * len(told)


def test_saved_in_the_middle_it_goes_on_bit_by_bit(told):
    for one in told:
        for name, (same, files) in one["saved"].items():
            assert same, name
            assert files == len(told), name  # those of the first time were removed


def test_a_killed_process_ends_the_others_with_a_message(runs):
    for rank, (returned, said) in enumerate(runs["ended"]):
        if rank == 1:
            assert returned == -9, said
            continue
        assert returned == 1
        assert "ProcessLostError" in said
        assert "start all processes anew from the last checkpoint" in said


def test_another_number_of_processes_goes_on(runs):
    expected = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    expected.learn_each(*shards.white(shards.STREAM))
    for count, name in ((2, "killed"), (2, "alone"), (4, "alone")):
        told, whole = runs[count]
        assert all(one[f"given-{name}.safetensors"] == shards.STREAM for one in told)
        assert np.abs(whole[f"given-{name}.safetensors: w"] - expected.w).max() < 1e-10


def test_the_example_runs():
    path = Path(__file__).parents[1] / "examples" / "spread.py"
    printed = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
    right, messages, rows = re.findall(r"[\d.]+", printed.stdout)
    assert float(right) > 0.8
    assert int(messages) < int(rows) / 10


def test_one_process_goes_on_by_itself(runs):
    learner = orfit.distributed.load(runs["four"] / "given-killed.safetensors", whole=True)
    assert type(learner) is orfit.ORFit
    assert learner.seen == 30
    X, y = shards.white(shards.STREAM)
    learner.learn_each(X[30:], y[30:])
    expected = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    expected.learn_each(X, y)
    assert np.abs(learner.w - expected.w).max() < 1e-10
