"""One learner in several threads, and in processes that are forked and spawned."""

import asyncio
import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import orfit
from interrupts import LEARNERS, LOOPS, PATHS, WAYS, at_opcodes, everything, stream

pytestmark = pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
P = 6
SUMS = {
    "ridge": lambda rows: orfit.ORFit(orfit.Linear(P), noise=1.0, rows=rows),
    "rls": lambda rows: orfit.RLS(orfit.Linear(P), rows=rows),
    "rls large": lambda rows: orfit.RLS(orfit.Linear(300), rows=rows),
    "principal": lambda rows: orfit.ORFit(orfit.Linear(P), P, noise=1.0, rows=rows),
}


@pytest.fixture
def switching():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("way", LOOPS)
@pytest.mark.parametrize("name", SUMS)
def test_threads_that_learn_with_one_learner(switching, name, way):
    """Whatever the order of rows, w is the same, unless one is lost or counted twice."""
    if (name, way) == ("ridge", "compiled"):
        pytest.skip("has no compiled loop")
    learner = SUMS[name](WAYS[way])
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


WHOLE_CALLS = [(name, way) for name, way in PATHS if "advancing" not in name]


@pytest.mark.parametrize(("name", "way"), WHOLE_CALLS)
def test_readers_find_what_calls_before_have_made(switching, name, way):
    """Copies that are taken while another thread learns are those of clean learners."""
    make, learn, _ = LEARNERS[name]
    learner, twin, (X, Y) = make(P, WAYS[way]), make(P, WAYS[way]), stream(P, 84)
    rows = 1 if "one by one" in name else 7
    parts = [slice(start, start + rows) for start in range(0, len(X), rows)]
    over, found = threading.Event(), {}

    def read():
        while not over.is_set():
            made = copy.copy(learner)
            found[made.seen] = made
            assert np.isfinite(learner.predict(X[:2])).all()

    with ThreadPoolExecutor(1) as reader:
        told = reader.submit(read)
        for part in parts:
            learn(learner, X[part], Y[part])
            time.sleep(1e-5)  # locks are not fair
        over.set()
        told.result()
    expected = {0: everything(twin)}
    for part in parts:
        learn(twin, X[part], Y[part])
        expected[twin.seen] = everything(twin)
    assert found
    assert all(everything(made) == expected[seen] for seen, made in found.items())


@pytest.mark.parametrize(("name", "way"), PATHS)
def test_a_copy_is_by_itself(name, way):
    make, learn, _ = LEARNERS[name]
    learner, (X, Y) = make(P, WAYS[way]), stream(P, 40)
    learn(learner, X[:20], Y[:20])
    before = everything(learner)
    copies = [copy.copy(learner), copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))]
    for made in copies:
        assert everything(made) == before
        learn(made, X[20:], Y[20:])
        assert everything(learner) == before
    learn(learner, X[20:], Y[20:])
    assert all(everything(made) == everything(learner) for made in copies)


def asking(ask):
    """A model whose features ask something at the third row, and what they were told."""
    told = []

    def features(X):
        if told and told[0] == "ask":
            told[0] = "asks"
            told.append(ask())
        return X

    return orfit.Linear(P, features=features), told


@pytest.mark.parametrize("way", WAYS)
def test_features_may_ask_the_learner(way):
    model, told = asking(lambda: (learner.seen, learner.w, learner.predict(np.ones(P))))
    learner, (X, Y) = orfit.ORFit(model, 2, noise=0.1, rows=WAYS[way]), stream(P, 20)
    learner.learn_each(X, Y)
    w, seen = learner.w, learner.seen
    told.append("ask")
    learner.learn_each(X[:5], Y[:5])
    assert told[1][0] == seen
    assert (told[1][1] == w).all()
    assert learner.seen == seen + 5


def test_features_may_not_change_the_learner():
    model, told = asking(lambda: learner.learn(np.ones(P), 1.0))
    learner, (X, Y) = orfit.ORFit(model, 2, noise=0.1, rows="plain"), stream(P, 20)
    learner.learn_each(X, Y)
    before = everything(learner)
    told.append("ask")
    with pytest.raises(ValueError, match="RuntimeError: the learner cannot be changed from inside"):
        learner.learn(X[0], Y[0])
    assert everything(learner) == before


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_signal_handler_that_saves(way, tmp_path):
    """It saves what some rows have made, or is told that it cannot.

    A handler is called between two opcodes of Python: so it is here, at moments that are the same
    on every machine.
    """
    start, (X, Y) = orfit.ORFit(orfit.Linear(P), 2, noise=0.1, rows=WAYS[way]), stream(P, 30)
    start.learn_each(X[:12], Y[:12])
    path, saved, over, refused = tmp_path / "saved", 0, 0, []
    count = at_opcodes(lambda: copy.copy(start).learn_each(X[12:], Y[12:]), lambda count: None)
    moments = np.random.default_rng(0).integers(1, count, 40)
    for moment in moments:
        learner = copy.copy(start)

        def handler(count, moment=moment, learner=learner):
            nonlocal saved
            if count != moment:
                return
            try:
                learner.save(path)
                saved += 1
            except RuntimeError as error:
                refused.append(str(error))

        told = at_opcodes(lambda learner=learner: learner.learn_each(X[12:], Y[12:]), handler)
        over += told < moment
        if path.exists():
            made, clean = orfit.load(path), copy.copy(start)
            clean.learn_each(X[12 : made.seen], Y[12 : made.seen])
            assert everything(made) == everything(clean)
            path.unlink()
    # Python 3.13 tells of fewer opcodes once there was a profiler: then it was over before.
    assert saved + len(refused) + over == len(moments)
    assert not over or sys.version_info >= (3, 13)
    assert all("in the middle of a step" in reason for reason in refused)
    assert saved > 5


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
    learner = orfit.RLS(model, rows="plain")
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


FORK = """
    import os, threading, numpy as np, numba, orfit
    p = 100_000
    X, Y = np.random.default_rng(0).standard_normal((20, p)), np.ones(20)
    make = lambda: orfit.ORFit(orfit.Linear(p), 3, noise=1.0, rows="compiled")
    learners = [make() for _ in range(2)]
    workers = [threading.Thread(target=each.learn_each, args=(X, Y)) for each in learners]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert (learners[0].w == learners[1].w).all()
    assert numba.threading_layer()
    child = os.fork()
    learners[0].learn_each(X, 2 * Y)
    if child == 0:
        np.save(f"{os.environ['FOUND']}", learners[0].w)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.abs(np.load(os.environ["FOUND"]) - learners[0].w).max() < 1e-12
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_compiled_threads_and_a_fork(tmp_path):
    pytest.importorskip("numba")
    more = {"NUMBA_NUM_THREADS": "2", "FOUND": str(tmp_path / "found.npy")}
    command = [sys.executable, "-c", textwrap.dedent(FORK)]
    subprocess.run(command, check=True, timeout=300, env=os.environ | more)


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
