"""One learner in several threads, and in forked and spawned processes."""

import asyncio
import copy
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import orfit
from interrupts import LEARNERS, at_opcodes, everything, stream

pytestmark = pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
P = 6
SUMS = {
    "ridge": lambda: orfit.ORFit(orfit.Linear(P), noise=1.0),
    "rls": lambda: orfit.RLS(orfit.Linear(P)),
    "rls large": lambda: orfit.RLS(orfit.Linear(300)),
    "principal": lambda: orfit.ORFit(orfit.Linear(P), P, noise=1.0),
}


@pytest.fixture
def switching():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("name", SUMS)
def test_threads_that_learn_with_one_learner(switching, name):
    """Whatever the order of rows, w is the same, unless one is lost or counted twice."""
    learner = SUMS[name]()
    X, Y = stream(learner.model.size, 400)
    parts = [slice(i, None, 4) for i in range(4)]

    def work(part):
        for i, (x, y) in enumerate(zip(X[part], Y[part], strict=True)):
            if i % 10:
                learner.learn(x, y)
            else:
                learner.learn_each(x[None], y[None])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, parts))
    assert learner.seen == len(X)
    w = np.linalg.solve(X.T @ X + np.eye(X.shape[1]), X.T @ Y)
    assert np.abs(learner.w - w).max() < 1e-9


@pytest.mark.parametrize("name", [name for name in LEARNERS if "advancing" not in name])
def test_readers_find_the_state_after_a_whole_call(switching, name):
    """Copies that are taken while another thread learns equal those of an undisturbed learner."""
    make, learn = LEARNERS[name]
    learner, twin, (X, Y) = make(P), make(P), stream(P, 84)
    rows = 1 if "one by one" in name else 7
    parts = [slice(start, start + rows) for start in range(0, len(X), rows)]
    over, found = threading.Event(), {}

    def read():
        while not over.is_set():
            made = copy.copy(learner)
            found[made.seen] = made
            assert np.isfinite(learner.predict(X[:2])).all()

    with ThreadPoolExecutor(1) as reader:
        result = reader.submit(read)
        for part in parts:
            learn(learner, X[part], Y[part])
            time.sleep(1e-5)  # locks are not fair
        over.set()
        result.result()
    expected = {0: everything(twin)}
    for part in parts:
        learn(twin, X[part], Y[part])
        expected[twin.seen] = everything(twin)
    assert found
    assert all(everything(made) == expected[seen] for seen, made in found.items())


@pytest.mark.parametrize("name", LEARNERS)
def test_a_copy_shares_nothing(name):
    make, learn = LEARNERS[name]
    learner, (X, Y) = make(P), stream(P, 40)
    learn(learner, X[:20], Y[:20])
    before = everything(learner)
    copies = [copy.copy(learner), copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
    for made in copies:
        assert everything(made) == before
        learn(made, X[20:], Y[20:])
        assert everything(learner) == before
    learn(learner, X[20:], Y[20:])
    assert all(everything(made) == everything(learner) for made in copies)


def model_that_calls(call):
    """A model whose features call a function once, after its name was put into the list."""
    results = []

    def features(X):
        if results and results[0] == "call":
            results[0] = "called"
            results.append(call())
        return X

    return orfit.Linear(P, features=features), results


def test_features_may_read_the_learner():
    """They find the state before the row."""
    model, results = model_that_calls(
        lambda: (learner.seen, learner.w, learner.predict(np.ones(P)), everything(learner))
    )
    learner, (X, Y) = orfit.ORFit(model, 2, noise=0.1), stream(P, 20)
    learner.learn_each(X, Y)
    seen, w, f, before = learner.seen, learner.w, learner.predict(np.ones(P)), everything(learner)
    results.append("call")
    learner.learn_each(X[:5], Y[:5])
    assert results[1][0] == seen
    assert (results[1][1] == w).all()
    assert results[1][2] == f
    assert results[1][3] == before
    assert learner.seen == seen + 5


def test_features_may_not_change_the_learner():
    model, results = model_that_calls(lambda: learner.learn(np.ones(P), 1.0))
    learner, (X, Y) = orfit.ORFit(model, 2, noise=0.1), stream(P, 20)
    learner.learn_each(X, Y)
    before = everything(learner)
    results.append("call")
    with pytest.raises(ValueError, match="RuntimeError: the learner cannot be changed from inside"):
        learner.learn(X[0], Y[0])
    assert everything(learner) == before


@pytest.mark.parametrize("name", ["principal", "noise auto", "rls", "ogd", "meter"])
def test_a_signal_handler_reads_and_saves_but_does_not_learn(name, tmp_path):
    """It finds a state after whole rows.

    A handler is called between two opcodes of Python: so it is here, at moments that are the same
    on every machine.
    """
    make, learn = LEARNERS[name]
    start, (X, Y) = make(P), stream(P, 18)
    learn(start, X[:12], Y[:12])
    states, twin = {12: everything(start)}, copy.copy(start)
    for i in range(12, len(X)):
        learn(twin, X[i : i + 1], Y[i : i + 1])
        states[i + 1] = everything(twin)
    count = at_opcodes(lambda: learn(copy.copy(start), X[12:], Y[12:]), lambda count: None)
    moments = {int(moment) for moment in np.random.default_rng(0).integers(1, count, 25)}
    learner, refused = copy.copy(start), []

    def handler(count):
        if count not in moments:
            return
        learner.save(tmp_path / "saved")
        found = everything(learner)
        assert found == states[learner.seen] == everything(orfit.load(tmp_path / "saved"))
        assert np.isfinite(learner.predict(X)).all()
        copy.copy(learner).learn(X[0], Y[0])
        if learner._lock.is_owned():
            with pytest.raises(RuntimeError, match="cannot be changed from inside its own step"):
                learner.learn(X[0], Y[0])
            refused.append(count)

    at_opcodes(lambda: learn(learner, X[12:], Y[12:]), handler)
    assert everything(learner) == states[len(X)]
    # Python 3.13 reports fewer opcodes after a profiler was set.
    assert refused or sys.version_info >= (3, 13)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_a_fork_in_the_middle_of_a_step():
    """Another thread holds the lock, and is not in the child."""
    inside, go_on = threading.Event(), threading.Event()

    def features(X):
        if not inside.is_set() and threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait(20)
        return X

    model, (X, Y) = orfit.Linear(P, features=features), stream(P, 20)
    learner = orfit.RLS(model)
    learner.learn_each(X[:10], Y[:10])
    twin, before = copy.deepcopy(learner), everything(learner)
    twin.learn_each(X[10:], Y[10:])
    writer = threading.Thread(target=learner.learn, args=(X[0], Y[0]))
    writer.start()
    assert inside.wait(20)

    def same():
        found = everything(learner) == before
        learner.learn_each(X[10:], Y[10:])
        return found and everything(learner) == everything(twin)

    assert in_child(same)
    go_on.set()
    writer.join()
    assert learner.seen == 11


def in_child(check):
    """Whether something is so in a forked process."""
    child = os.fork()
    if not child:
        found = False
        try:
            found = check()
        finally:
            os._exit(0 if found else 1)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def learned(learner, X, Y):
    learner.learn_each(X, Y)
    return learner


@pytest.mark.slow
def test_a_spawned_process():
    learner, (X, Y) = orfit.ORFit(orfit.Linear(P), 3, noise="auto"), stream(P, 40)
    learner.learn_each(X[:20], Y[:20])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        made = pool.apply(learned, (learner, X[20:], Y[20:]))
    learner.learn_each(X[20:], Y[20:])
    assert everything(made) == everything(learner)


def test_asyncio():
    learner, (X, Y) = orfit.RLS(orfit.Linear(P)), stream(P, 200)

    async def work():
        learning = [asyncio.to_thread(learner.learn, x, y) for x, y in zip(X, Y, strict=True)]
        asked = [asyncio.to_thread(learner.predict, X) for _ in range(50)]
        return await asyncio.gather(*learning, *asked)

    asyncio.run(work())
    assert learner.seen == len(X)
    w = np.linalg.solve(X.T @ X + np.eye(P), X.T @ Y)
    assert np.abs(learner.w - w).max() < 1e-9
