"""p over 2 and 4 processes, of uneven parts: what one process does, with one sum a step."""

import functools
import json
import os
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
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    return folder, started(4, "killed", folder)


@pytest.fixture(scope="module", params=COUNTS)
def found(request, tmp_path_factory, killed):
    """What so many processes have found: their parts put together, and what each says."""
    folder, count = tmp_path_factory.mktemp("found"), request.param
    for file in killed[0].glob("given-*"):
        (folder / file.name).write_bytes(file.read_bytes())
    half = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    X, y = shards.white(120)
    half.learn_each(X[:60], y[:60])
    half.save(folder / "given-alone.safetensors")
    for returned, said in started(count, "main", folder):
        assert returned == 0, said
    told = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
    parts = [np.load(folder / f"{rank}.npz") for rank in range(count)]
    whole = {
        name: np.concatenate([part[name] for part in parts])
        if name.endswith(": w")
        else parts[0][name]
        for name in parts[0].files
    }
    return folder, told, whole


@functools.cache
def alone(name):
    learner = shards.learner_of(name, spread=False)
    told = shards.learned(name, learner, slice(None))
    return learner.w, *told


@pytest.mark.parametrize("name", shards.CASES)
def test_as_one_process_does(found, name):
    _, _, whole = found
    tolerance = 1e-5 if "float32" in name else 1e-10
    for expected, what in zip(alone(name), ("w", "f", "std"), strict=True):
        got = whole[f"{name}: {what}"]
        assert got.dtype == expected.dtype
        largest = max(1.0, float(np.abs(expected).max()))
        assert np.abs(got - expected).max() <= tolerance * largest, what


def test_messages(found):
    for each, told in found[1][0]["counts"].items():
        assert told["most"] <= 2, (each, told)
        if each.startswith(("white", "1/i")) and "m=" in each:
            assert 1.0 <= told["mean"] <= 1.1, (each, told)


def test_what_one_refuses_all_refuse_and_nothing_has_changed(found):
    who = {"y": 0}
    for name in found[1][0]["refusals"]:
        for rank, told in enumerate(found[1]):
            error, untouched = told["refusals"][name]
            assert untouched, (name, rank)
            if name.startswith("after"):
                continue
            if rank == who.get(name.split(",")[0], 1):
                assert error[0] == "ValueError", (name, rank, error)
            else:
                assert error[0] == "RefusedElsewhereError", (name, rank, error)


def test_different_labels_are_noticed_by_all(found):
    for told in found[1]:
        assert told["divergence"][0] == "DivergedError"


def test_saved_in_the_middle_it_goes_on_bit_by_bit(found):
    for told in found[1]:
        for name, (same, files) in told["saved"].items():
            assert same, name
            assert files == len(found[1]), name  # those of the first were removed


def test_a_killed_process_ends_the_others_with_a_message(killed):
    _, ended = killed
    assert ended[1][0] == -9
    for rank in (0, 2, 3):
        returned, said = ended[rank]
        assert returned == 1
        assert "ProcessLostError" in said
        assert "start all processes anew from the last checkpoint" in said


def test_another_number_of_processes_goes_on(found):
    expected = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    expected.learn_each(*shards.white(120))
    for name in ("given-killed.safetensors", "given-alone.safetensors"):
        assert all(told[name] == 120 for told in found[1])
        assert np.abs(found[2][f"{name}: w"] - expected.w).max() < 1e-10


def test_one_process_goes_on_by_itself(killed):
    learner = orfit.distributed.load(killed[0] / "given-killed.safetensors", whole=True)
    assert type(learner) is orfit.ORFit
    assert learner.seen == 50
    X, y = shards.white(120)
    learner.learn_each(X[50:], y[50:])
    expected = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    expected.learn_each(X, y)
    assert np.abs(learner.w - expected.w).max() < 1e-10
