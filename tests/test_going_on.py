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
from orfit.memory import loop, whole_loop

pytestmark = [pytest.mark.slow, needs_numba]

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
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_though_nobody_looks_for_it_beforehand(make, wrong):
    learner, other = make(), make()
    X, Y = stream(learner, 80)
    X = X.astype(learner.w.dtype)  # then it is read where it is
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        learner.learn(x, y)
        other.learn(x, y)
        if i % 9 == 5:
            bad = x.copy()
            bad[i % P] = wrong
            with pytest.raises(ValueError, match=rf"x must be finite.* at index {i % P}$"):
                learner.learn(bad, y)
    assert learner.seen == other.seen == 80
    np.testing.assert_array_equal(learner.w, other.w)


@pytest.mark.parametrize("kind", ["ekf", "drifting"])
def test_where_a_label_is_missing_too(kind):
    learner = LEARNERS[kind]()
    X, y = stream(learner, 20)
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
    with pytest.raises(ValueError, match="x must be finite"):
        learner.learn(np.full(P, np.nan), None)


class Filled(orfit.Linear):
    """Which learns something of what is missing."""

    def phi(self, X, dtype):
        return np.nan_to_num(super().phi(X, dtype))

    def affine(self, X, Y):
        shape, G = self._gradients(X, X.dtype)
        return np.zeros(shape), Y, G


def test_a_model_made_of_linear_need_not_show_what_is_no_number():
    learner = orfit.ORFit(Filled(P), 3, noise=0.1, rows="compiled")
    X, y = stream(learner, 20)
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
    with pytest.raises(ValueError, match="x must be finite"):
        learner.learn(np.full(P, np.nan), 1.0)


def test_rows_of_next_to_no_length_are_saved(tmp_path):
    learner, plain = (
        orfit.ORFit(orfit.Linear(P), 3, noise="auto", rows=way) for way in ("compiled", "plain")
    )
    for one in (learner, plain):
        for i in range(5):
            one.learn(np.eye(P)[i], 1.0)
        for _ in range(3):
            one.learn(np.full(P, 1e-300), 1.0)
    learner.save(tmp_path / "file")
    assert orfit.load(tmp_path / "file").seen == 8
    assert learner.scale == pytest.approx(plain.scale, rel=1e-9)


def test_features_may_make_numbers_of_what_is_none_but_x_is_refused_all_the_same():
    model = orfit.Linear(P, features=np.nan_to_num)
    learner = orfit.ORFit(model, 3, noise=0.1, rows="compiled")
    X, y = stream(learner, 20)
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
    with pytest.raises(ValueError, match="x must be finite"):
        learner.learn(np.full(P, np.nan), 1.0)


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


class Interruption(BaseException):
    """What a signal handler raises."""


def raising_once(monkeypatch, place, name):
    """Let what is called by this name raise, the first time."""
    real = getattr(place, name)

    def raising(*args, **settings):
        monkeypatch.setattr(place, name, real)
        raise Interruption

    gc.collect()  # or a learner of another test that goes only now would have it
    monkeypatch.setattr(place, name, raising)


def filled(make, room):
    """A learner whose walk has room for so many more rows, its twin, and the next rows."""
    learner, other = make(), make()
    X, Y = stream(learner)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        change = learner._now.change
        if (
            i > 110
            and change is not None
            and len(change.walk.records) - change.walk.learned == room
        ):
            return learner, other, X[i:], Y[i:]
        learner.learn(x, y)
        other.learn(x, y)
    raise AssertionError("it is never so full")


@quiet
@every_learner
def test_an_exception_before_a_full_walk_is_noted(make, monkeypatch):
    learner, other, X, Y = filled(make, room=1)
    raising_once(monkeypatch, type(learner), "_finish")
    with pytest.raises(Interruption):
        learner.learn(X[0], Y[0])
    other.learn(X[0], Y[0])
    for x, y in zip(X[1:], Y[1:], strict=True):
        learner.learn(x, y)
        other.learn(x, y)
    assert everything(learner) == everything(other)


@quiet
@every_learner
@pytest.mark.parametrize("gone", [False, True], ids=["held", "gone"])
def test_an_exception_while_rows_are_noted_leaves_a_memory_that_can_be_asked(
    make, gone, monkeypatch
):
    learner, other, _, _ = filled(make, room=2)
    memory = learner.memory
    raising_once(monkeypatch, type(learner.guesses), "take")
    with pytest.raises(Interruption):
        learner.seen  # noqa: B018
    if gone:
        del learner
    np.testing.assert_array_equal(memory.w, copy.deepcopy(other).memory.w)
    if hasattr(memory, "U"):
        U = np.asarray(memory.U, float)
        np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-5)
        np.testing.assert_array_equal(memory.sigma, other.memory.sigma)


@quiet
@pytest.mark.parametrize("name", ["principal", "rls"])
def test_a_handler_that_reads_w_in_the_middle_of_a_row(name, monkeypatch):
    """It finds the w of before, and nobody finds that one afterwards."""
    learner, other, X, Y = filled(LEARNERS[name], room=5)
    found = []

    def asking(G, real=loop.rows_of):
        found.append((learner.w, learner.predict(np.ones(P))))
        return real(G)

    for place in (loop, whole_loop):
        monkeypatch.setattr(place, "rows_of", asking)
    learner.learn(X[0], Y[0])
    monkeypatch.undo()
    np.testing.assert_array_equal(found[0][0], other.w)
    other.learn(X[0], Y[0])
    np.testing.assert_array_equal(learner.w, other.w)
    assert learner.predict(np.ones(P)) == other.predict(np.ones(P))


def test_features_may_ask_their_learner():
    asked = []

    def features(X):
        asked.append((learner.seen, learner.memory.rank))
        return X

    learner = orfit.ORFit(orfit.Linear(P, features=features), 3, noise=0.1, rows="compiled")
    X, y = stream(learner, 9)
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
    assert asked == [(i, min(i, 3)) for i in range(9)]
    learner.predict(X[0])
    assert asked[-1] == (9, 3)


@quiet
@every_learner
def test_state_and_memory_tell_of_the_same_rows(make):
    learner, other, _, _ = filled(make, room=3)
    expected = everything(other)  # which has it noted
    memory = pickle.loads(pickle.dumps(learner.memory))
    np.testing.assert_array_equal(memory.w, copy.deepcopy(other).memory.w)
    learner, other, _, _ = filled(make, room=3)
    assert learner.state()[1] == other._reading(other.state)[1]
    assert everything(learner) == expected


def test_a_p_that_is_set_between_rows():
    learner, other, X, Y = filled(LEARNERS["rls fading"], room=3)
    assert other.seen  # noted
    for each in (learner, other):
        each.memory.L = np.asfortranarray(10 * np.eye(P))
        each.memory.w = np.zeros((P, 1))
        each.learn(X[0], Y[0])
    assert learner.memory.width == other.memory.width
    np.testing.assert_array_equal(learner.w, other.w)
    np.testing.assert_array_equal(learner.memory.P, other.memory.P)


def test_a_memory_may_be_allowed_more_than_there_is(rng):
    """What a walk keeps is made for what there may be, not for what is allowed."""
    learner = orfit.ORFit(orfit.Linear(4), 10**12, noise=1.0, rows="compiled")
    twin = orfit.ORFit(orfit.Linear(4), 10**12, noise=1.0, rows="plain")
    X, y = rng.standard_normal((20, 4)), rng.standard_normal(20)
    for each in (learner, twin):
        for x, label in zip(X, y, strict=True):
            each.learn(x, label)
    np.testing.assert_allclose(learner.w, twin.w, rtol=1e-12)
