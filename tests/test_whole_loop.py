"""The compiled loop on the whole P: the same steps and decisions as the plain one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from conftest import needs_numba
from orfit.learners.onestep import OneStep
from orfit.learners.rows import Auto
from orfit.memory import Dense

pytestmark = pytest.mark.slow

seeds = st.integers(0, 2**32 - 1)
KINDS = ["full", "low rank", "repeating", "zeros", "short"]


def rows_of(kind, n, p, rng):
    X = rng.standard_normal((n, p))
    if kind == "low rank":
        X = rng.standard_normal((n, 1)) @ rng.standard_normal((1, p))
    elif kind == "repeating":
        X = X[rng.integers(0, 2, n)]
    elif kind == "zeros":
        X[rng.random(n) < 0.3] = 0
    elif kind == "short":
        X[n // 2 :: 5] *= 1e-170
    return X


@needs_numba
@given(
    seeds,
    st.integers(1, 13),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([1.0, 0.9, 0.5]),
    st.sampled_from(KINDS),
    st.sampled_from([1.0, 1e-3, 1e3]),
)
def test_compiled_is_plain(seed, p, heads, forgetting, kind, noise):
    rng = np.random.default_rng(seed)
    X = rows_of(kind, 90, p, rng)
    Y = rng.standard_normal(90 if heads is None else (90, heads))
    told, learners = [], []
    for rows in ("plain", "compiled"):
        model, memory = orfit.Linear(p, heads=heads), Dense(0.7)
        learner = OneStep(model, memory, noise=noise, forgetting=forgetting, rows=rows)
        with np.errstate(all="ignore"):
            told.append(learner.learn_each(X[:60], Y[:60]))
            learner.learn(X[60], Y[60])
            learner.learn_batch(X[61:64], Y[61:64])
            learner.learn_each(X[64:], Y[64:])
        learners.append(learner)
    plain, compiled = learners
    # Along what the stream leaves P winds up to 5e11: w is then known to rounding times that.
    tolerance = 1e-8 if forgetting == 1 or kind == "full" else 1e-3
    scale = 1 + np.abs(plain.w).max() + told[0].step.max()
    assert np.abs(compiled.w - plain.w).max() <= tolerance * scale
    P = plain.memory.P
    assert np.abs(compiled.memory.P - P).max() <= tolerance * np.abs(P).max()
    for field in ("prediction", "residual", "conflict", "step", "novelty"):
        one, other = (getattr(updates, field) for updates in told)
        assert np.abs(one - other).max() <= tolerance * scale * (1 + np.abs(one).max())
    assert (told[1].rank == p).all()


def test_rows_whose_squares_are_no_numbers_are_left_to_the_plain_step(rng):
    X, y = rng.standard_normal((40, 6)), rng.standard_normal(40)
    X[20] *= 1e170
    plain, compiled = (orfit.RLS(orfit.Linear(6), rows=rows) for rows in ("plain", "compiled"))
    for learner in (plain, compiled):
        learner.learn_each(X, y)
    assert compiled.w == pytest.approx(plain.w, rel=1e-9)


@pytest.mark.parametrize("rows", ["plain", "compiled"])
@pytest.mark.parametrize("forgetting", [1.0, 0.7])
def test_a_refused_row_leaves_everything_as_before(rows, forgetting, rng):
    learner = orfit.RLS(orfit.Linear(9), prior=1e-6, forgetting=forgetting, rows=rows)
    learner.learn_each(rng.standard_normal((3, 9)), rng.standard_normal(3))
    L, w, seen = learner.memory.L.copy(), learner.w, learner.seen
    with pytest.raises(ValueError, match="overflows"), np.errstate(all="ignore"):
        learner.learn(0.1 * rng.standard_normal(9), 1.7e308)
    X, y = rng.standard_normal((3, 9)), np.array([1.0, 1.7e308, 1.0])
    assert (learner.memory.L == L).all()
    assert (learner.w == w).all()
    with pytest.raises(ValueError, match="overflows"), np.errstate(all="ignore"):
        learner.learn_each(X * 0.1, y)
    assert learner.seen == seen + 1  # the row before it has been learned


def test_a_copy_of_w_is_left_alone(rng):
    """The loop changes w in place; what was given away stays."""
    learner = orfit.RLS(orfit.Linear(4), rows="compiled")
    X, y = rng.standard_normal((2, 4)), np.ones(2)
    learner.learn(X[0], y[0])
    w = learner.w
    kept = w.copy()
    learner.learn(X[1], y[1])
    assert (w == kept).all()


def test_who_is_not_compiled_says_why():
    for make, why in (
        (lambda: orfit.EKF(orfit.Linear(3), noise=0, rows="compiled"), "without noise"),
        (lambda: orfit.EKF(orfit.Linear(3), noise=[[1.0]], rows="compiled"), "is a matrix"),
        (lambda: orfit.RLS(orfit.Linear(3), drift=1, rows="compiled"), "with drift"),
        (
            lambda: orfit.EKF(orfit.Linear(3), noise=1, dynamics=np.eye(3), rows="compiled"),
            "w moves by itself",
        ),
    ):
        with pytest.raises(ValueError, match=f"not possible here: .*{why}"):
            make()


def test_rows_go_on_by_the_loop_after_a_while():
    pytest.importorskip("numba")
    patient = Auto(when_ready=False)
    assert orfit.RLS(orfit.Linear(8), rows=patient).way(1999) == "plain"
    assert orfit.RLS(orfit.Linear(8), rows=patient).way(2000) == "compiled"
    assert orfit.EKF(orfit.Linear(8), noise=1.0).way(2000) == "compiled"
    assert orfit.RLS(orfit.Linear(8), forgetting=0).way(2000) == "plain"


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_reading_P_between_rows_changes_no_bit(forgetting, rng):
    """A row changes L when the next one reads it, or whoever asks for L."""
    X, y = rng.standard_normal((20, 7)), rng.standard_normal(20)
    made = (orfit.RLS(orfit.Linear(7), forgetting=forgetting, rows="compiled") for _ in range(3))
    read, unread, together = made
    together.learn_each(X, y)
    for x, label in zip(X, y, strict=True):
        read.learn(x, label)
        unread.learn(x, label)
        read.memory.P  # noqa: B018
    for learner in (read, unread):
        assert (learner.w == together.w).all()
        assert (learner.memory.L == together.memory.L).all()


@pytest.mark.parametrize("forgetting", [1.0, 0.9])
def test_no_rows_change_nothing(forgetting, rng):
    X, y = rng.standard_normal((6, 4)), rng.standard_normal(6)
    learner, other = (
        orfit.RLS(orfit.Linear(4), forgetting=forgetting, rows="compiled") for _ in range(2)
    )
    for row, label in zip(X, y, strict=True):
        for each in (learner, other):
            each.learn(row, label)
        learner.learn_each(X[:0], y[:0])
        nothing = np.empty((0, 1))
        walk = learner.memory.walk(learner.guesses, forgetting, 0.0, learner.most)
        walk.begin(0)
        walk.run(X[:0].T, nothing, nothing)
    np.testing.assert_array_equal(learner.memory.P, other.memory.P)
