"""Rows that are learned one by one, by a walk of which nobody has taken note yet."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

import orfit
from conftest import needs_numba
from interrupts import everything

pytestmark = needs_numba

P, ROWS = 6, 400

LEARNERS = {
    "principal": lambda: orfit.ORFit(orfit.Linear(P), 3, noise=0.1, rows="compiled"),
    "without noise": lambda: orfit.ORFit(orfit.Linear(P), 3, rows="compiled"),
    "nothing dropped": lambda: orfit.ORFit(orfit.Linear(P), P, rows="compiled"),
    "fading": lambda: orfit.ORFit(orfit.Linear(P), 3, noise=0.1, forgetting=0.97, rows="compiled"),
    "drifting": lambda: orfit.ORFit(orfit.Linear(P), 3, noise=0.1, drift=1e-3, rows="compiled"),
    "noise auto": lambda: orfit.ORFit(orfit.Linear(P), 3, noise="auto", rows="compiled"),
    "heads": lambda: orfit.ORFit(orfit.Linear(P, heads=2), 3, noise=0.1, rows="compiled"),
    "frequent": lambda: orfit.ORFit(
        orfit.Linear(P), orfit.memory.FrequentDirections(3), noise=0.1, rows="compiled"
    ),
    "growing": lambda: orfit.ORFit(
        orfit.Linear(P), orfit.memory.Growing(5), noise=1e-3, rows="compiled"
    ),
    "single": lambda: orfit.ORFit(
        orfit.Linear(P), 3, noise=0.1, w0=np.zeros(P, np.float32), rows="compiled"
    ),
    "rls": lambda: orfit.RLS(orfit.Linear(P), rows="compiled"),
    "rls fading": lambda: orfit.RLS(orfit.Linear(P), forgetting=0.97, rows="compiled"),
    "ekf": lambda: orfit.EKF(orfit.Linear(P), noise=0.3, rows="compiled"),
}
every_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)
quiet = pytest.mark.filterwarnings(
    "ignore::orfit.SaturationWarning", "ignore::orfit.InterpolationWarning"
)


def stream(learner, rows=ROWS):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, P))
    y = X @ rng.standard_normal(P) + 0.1 * rng.standard_normal(rows)
    return X, (y if learner.model.heads is None else np.stack([y, -y], axis=1))


LOOKS = {
    "seen": lambda learner: learner.seen,
    "w": lambda learner: learner.w,
    "predict": lambda learner: learner.predict(np.ones(P)),
    "std": lambda learner: learner.predict(np.ones(P), std=True),
    "health": lambda learner: learner.health(),
    "scale": lambda learner: learner.scale,
    "way": lambda learner: learner.way(3),
    "copy": copy.deepcopy,
    "pickle": pickle.dumps,
    "repr": repr,
    "rank": lambda learner: learner.memory.rank,
    "copy of the memory": lambda learner: copy.deepcopy(learner.memory),
    "weight 0": lambda learner: learner.learn(np.ones(P), np.zeros(learner._label_shape), weight=0),
}


@quiet
@every_learner
def test_whoever_looks_between_rows_changes_no_bit(make):
    """And finds what a learner is that has learned as many rows at once."""
    alone, looked_at = make(), make()
    X, Y = stream(alone)
    told = [alone.learn(x, y) for x, y in zip(X, Y, strict=True)]
    rng, looks = np.random.default_rng(4), list(LOOKS.values())
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        update = looked_at.learn(x, y)
        np.testing.assert_array_equal(update.prediction, told[i].prediction)
        assert (update.step, update.novelty, update.rank) == (
            told[i].step,
            told[i].novelty,
            told[i].rank,
        )
        if rng.random() < 0.1:
            looks[rng.integers(len(looks))](looked_at)
    assert everything(looked_at) == everything(alone)


@quiet
@every_learner
def test_rows_one_by_one_are_rows_at_once(make):
    one_by_one, at_once = make(), make()
    X, Y = stream(at_once)
    for x, y in zip(X, Y, strict=True):
        one_by_one.learn(x, y)
    at_once.learn_each(X, Y)
    assert one_by_one.seen == at_once.seen == ROWS
    np.testing.assert_array_equal(one_by_one.w, at_once.w)


@quiet
@every_learner
def test_a_memory_that_somebody_holds_is_what_it_is_now(make):
    """Its rows have changed in their places, when nobody has noted which ones they are."""
    learner, other = make(), make()
    X, Y = stream(learner)
    memory = learner.memory
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        learner.learn(x, y)
        other.learn(x, y)
        if i % 37 == 36:
            np.testing.assert_array_equal(memory.w, copy.deepcopy(other).memory.w)
            if hasattr(memory, "U"):
                U = np.asarray(memory.U, float)
                tolerance = 1e-11 if memory.U.dtype == np.float64 else 1e-5
                np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=tolerance)
                np.testing.assert_array_equal(memory.sigma, copy.deepcopy(learner).memory.sigma)
            else:
                np.testing.assert_array_equal(memory.P, other.memory.P)


@quiet
@every_learner
def test_a_learner_that_is_left_leaves_its_memory_whole(make):
    """At once: it stands in no circle, which somebody would have to find first."""
    learner, other = make(), make()
    X, Y = stream(learner, 130)
    for x, y in zip(X, Y, strict=True):
        learner.learn(x, y)
        other.learn(x, y)
    memory, gone = learner.memory, weakref.ref(learner)
    gc.disable()
    try:
        del learner
        assert gone() is None
    finally:
        gc.enable()
    np.testing.assert_array_equal(memory.w, copy.deepcopy(other).memory.w)
    if hasattr(memory, "sigma"):
        np.testing.assert_array_equal(memory.sigma, other.memory.sigma)
    size, kept = memory.size, weakref.ref(memory)
    del memory
    assert size == P
    assert kept() is None


def test_a_row_that_is_refused_leaves_the_walk_as_it_was():
    learner, other = (LEARNERS["principal"]() for _ in range(2))
    X, y = stream(learner)
    for i, (row, label) in enumerate(zip(X, y, strict=True)):
        learner.learn(row, label)
        other.learn(row, label)
        if i % 50 == 40:
            for wrong, why in ((row * np.nan, "finite"), (row[:3], "shape")):
                with pytest.raises(ValueError, match=why):
                    learner.learn(wrong, label)
            with pytest.raises(ValueError, match="single number"):
                learner.learn(row, [label, label])
    assert learner.seen == other.seen == ROWS
    np.testing.assert_array_equal(learner.w, other.w)


@every_learner
@quiet
def test_rows_that_are_not_for_compiled_code_come_in_between(make):
    one_by_one, at_once = make(), make()
    X, Y = stream(at_once, 60)
    X[30], X[45] = 1e-200, 0.0
    for x, y in zip(X, Y, strict=True):
        one_by_one.learn(x, y)
    at_once.learn_each(X, Y)
    assert one_by_one.seen == 60
    np.testing.assert_array_equal(one_by_one.w, at_once.w)


def test_settings_change_between_rows():
    """What comes after is learned with the new ones, as by rows at once."""
    one_by_one, at_once = (LEARNERS["principal"]() for _ in range(2))
    X, y = stream(at_once)
    for noise, rows in ((0.1, slice(100)), (2.0, slice(100, 200)), (0.5, slice(200, None))):
        one_by_one.noise = at_once.noise = noise
        for x, label in zip(X[rows], y[rows], strict=True):
            one_by_one.learn(x, label)
        at_once.learn_each(X[rows], y[rows])
    np.testing.assert_array_equal(one_by_one.w, at_once.w)


def test_others_may_look_while_rows_go_on():
    """Threads that ask between rows have them noted, and change nothing."""
    learner = LEARNERS["principal"]()
    X, y = stream(learner, 3000)
    over = threading.Event()

    def look():
        while not over.is_set():
            learner.predict(X[0])
            learner.health()

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
    over.set()
    for watcher in watchers:
        watcher.join()
    assert learner.seen == 3000
    alone = LEARNERS["principal"]()
    alone.learn_each(X, y)
    np.testing.assert_array_equal(learner.w, alone.w)
