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


def given(folder):
    """Save what one process has learned, for several to go on with."""
    half = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    X, y = shards.white(shards.STREAM)
    half.learn_each(X[:30], y[:30])
    half.save(folder / "given-alone.safetensors")
    for name in ("R, m", "tangent, outputs"):
        learner = shards.network_learner(name, spread=False)
        shards.network_learned(name, learner, slice(20))
        learner.save(folder / f"network-{name}-1.safetensors")


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What two processes have found, of which one is killed in the end."""
    folder = tmp_path_factory.mktemp("two")
    given(folder)
    ended = started(2, folder, "kill")
    return {2: told_by(folder, 2), "folder": folder, "ended": ended}


@pytest.fixture(scope="module")
def four(two, tmp_path_factory):
    """The same of four processes, which go on with what two have saved."""
    folder = tmp_path_factory.mktemp("four")
    for file in (*two["folder"].glob("given-*"), *two["folder"].glob("network-*")):
        (folder / file.name).write_bytes(file.read_bytes())
    ended = started(4, folder, "kill")
    return {4: told_by(folder, 4), "folder": folder, "ended": ended}


@pytest.fixture(params=[2, pytest.param(4, marks=pytest.mark.slow)])
def count(request):
    return request.param


@pytest.fixture
def runs(request, count):
    """What so many processes have found; four are started only where a test asks for them."""
    return request.getfixturevalue({2: "two", 4: "four"}[count])


def told_by(folder, count):
    """What each says, and their parts put together."""
    told = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
    parts = [np.load(folder / f"{rank}.npz") for rank in range(count)]

    def whole(name):
        many = [part[name] for part in parts]
        if ": all of " in name:
            assert all(np.array_equal(part, many[0]) for part in many), name
        return np.concatenate(many) if name.endswith(": w") else many[0]

    return told, {name: whole(name) for name in parts[0].files}


@pytest.fixture
def told(runs, count):
    return runs[count][0]


@functools.cache
def alone(name):
    learner = shards.learner_of(name, spread=False)
    told = shards.learned(name, learner, slice(None))
    return learner.w, *told


@pytest.mark.parametrize("name", shards.CASES)
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
    assert [one["divergence"] for one in told] == [["DivergedError"] * 2] * len(told)


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


def test_another_number_of_processes_goes_on(runs, count):
    expected = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    expected.learn_each(*shards.white(shards.STREAM))
    told, whole = runs[count]
    for name in ("alone",) if count == 2 else ("alone", "killed"):  # "killed" is of two processes
        assert all(one[f"given-{name}.safetensors"] == shards.STREAM for one in told)
        assert np.abs(whole[f"given-{name}.safetensors: w"] - expected.w).max() < 1e-10


@pytest.mark.slow
def test_the_example_runs():
    path = Path(__file__).parents[1] / "examples" / "spread.py"
    printed = subprocess.run([sys.executable, path], check=True, capture_output=True, text=True)
    right, messages, rows = re.findall(r"[\d.]+", printed.stdout)
    assert float(right) > 0.8
    assert int(messages) < int(rows) / 10


def test_one_process_goes_on_by_itself(runs):
    learner = orfit.distributed.load(runs["folder"] / "given-killed.safetensors", whole=True)
    assert type(learner) is orfit.ORFit
    assert learner.seen == 30
    X, y = shards.white(shards.STREAM)
    learner.learn_each(X[30:], y[30:])
    expected = orfit.ORFit(orfit.Linear(shards.P), 8, noise=0.1, rows="plain")
    expected.learn_each(X, y)
    assert np.abs(learner.w - expected.w).max() < 1e-10


@functools.cache
def network_alone(name):
    return shards.network_learned(name, shards.network_learner(name, spread=False))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in shards.ON_FOUR_ONLY else [])
        for name in shards.NETWORKS
    ],
)
def test_a_network_as_one_process_has_it(runs, count, name):
    if count == 2 and name in shards.ON_FOUR_ONLY:
        pytest.skip("four processes learn this network")
    tolerance = 1e-5 if "float32" in name else 1e-10
    for expected, what in zip(network_alone(name), ("w", "f", "std"), strict=True):
        got = runs[count][1][f"network, {name}: all of {what}"]
        assert got.dtype == np.asarray(expected).dtype
        largest = max(1.0 if what == "std" else 0.0, float(np.abs(expected).max()))
        assert np.abs(got - expected).max() <= tolerance * largest, what


def test_messages_of_a_network(told):
    for one in told:
        for name, (sums, gathers) in one["network_counts"].items():
            assert sums <= 2, name
            assert gathers == (0 if "tangent" in name else 1), name


def test_what_a_network_refuses_on_one_process_all_refuse(told):
    for name in told[0]["network_refusals"]:
        for rank, one in enumerate(told):
            error, untouched = one["network_refusals"][name]
            assert untouched, (name, rank)
            if name.startswith("after"):
                continue
            assert error is not None, (name, rank)
            if name.startswith(("gradient", "unlike")):  # of which all know alike
                assert error[0] == "ValueError", (name, rank)
            elif rank == 1:
                expected = "RuntimeError" if name.startswith("fails") else "ValueError"
                assert error[0] == expected, (name, rank)
            else:
                assert error[0] == "RefusedElsewhereError", (name, rank)


def test_a_network_that_was_saved_goes_on(runs, count, told):
    for one in told:
        assert all(one["network_saved"].values())
    whole = runs[count][1]
    names = [name for name in whole if name.startswith("network-")]
    assert {name.rpartition("-")[2][0] for name in names} >= {"1", "2"}
    for name in names:
        expected = network_alone(name.split("-")[1])[0]
        assert np.abs(whole[name] - expected).max() < 1e-10, name


def test_one_process_goes_on_with_a_network(runs, count):
    path = runs["folder"] / f"network-R, m-{count}.safetensors"
    model = orfit.TorchModel(shards.network())
    learner = orfit.distributed.load(path, model=model, whole=True)
    assert type(learner) is orfit.ORFit
    w = shards.network_learned("R, m", learner, slice(20, shards.ROWS))[0]
    assert np.abs(w - network_alone("R, m")[0]).max() < 1e-10
    learner.sync()
    assert np.array_equal(model.vector(model.module.state_dict()), w)
