"""A system that moves, with a P of m directions: ORFit in time."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import orfit

seeds = st.integers(0, 2**32 - 1)
P = 8


def orthogonal(rng, p=P):
    return np.linalg.qr(rng.standard_normal((p, p)))[0]


def whole(**settings):
    return orfit.EKF(orfit.Linear(P), noise=0.3, **settings)


def covariance(learner):
    """P of a memory of directions, from what it tells of single ones."""
    axes = np.eye(P)
    K = learner.memory.variance(axes, learner.noise)
    sums = learner.memory.variance((axes[:, :, None] + axes[:, None]).reshape(P, -1), learner.noise)
    return (sums.reshape(P, P) - K[:, None] - K[None]) / 2


def close(learner, dense, tolerance=1e-8):
    assert np.abs(learner.w - dense.w).max() <= tolerance * (1 + np.abs(dense.w).max())
    difference = np.abs(covariance(learner) - dense.memory.P).max()
    assert difference <= tolerance * (1 + np.abs(dense.memory.P).max())


@given(seeds, st.sampled_from([None, P]), st.sampled_from(["learn", "blocks", "gaps"]))
def test_an_orthogonal_motion_is_exact_while_nothing_is_dropped(seed, memory, how):
    rng = np.random.default_rng(seed)
    A, B = rng.uniform(0.5, 1.1) * orthogonal(rng), rng.standard_normal((P, 2))
    X, y, u = rng.standard_normal((30, P)), rng.standard_normal(30), rng.standard_normal((30, 2))
    settings = {"dynamics": A, "control": B, "drift": 0.05, "w0": rng.standard_normal(P)}
    few = orfit.ORFit(orfit.Linear(P), memory, noise=0.3, **settings)
    dense = whole(**settings)
    for i in range(0, 30, 3):
        for learner in (few, dense):
            if i % 2:
                learner.advance(u[i])
            if how == "blocks":
                learner.learn_batch(X[i : i + 3], y[i : i + 3])
            else:
                learner.learn(X[i], None if how == "gaps" and i % 4 == 0 else y[i])
    close(few, dense)


@given(seeds, st.booleans())
def test_any_motion_is_exact_with_all_directions(seed, as_sparse):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((P, P)) / np.sqrt(P)
    X, y = rng.standard_normal((40, P)), rng.standard_normal(40)
    few, dense = orfit.ORFit(orfit.Linear(P), P, noise=0.3), whole()
    for learner in (few, dense):
        learner.learn_batch(X[:20], y[:20])  # now all p directions are there
        for x, label in zip(X[20:], y[20:], strict=True):
            learner.advance(dynamics=sparse.csr_array(A) if as_sparse else A, drift=0.1)
            learner.learn(x, label)
    close(few, dense)


@given(seeds, st.floats(0.3, 1.2), st.sampled_from([0.0, 0.2]))
def test_a_number_is_exact_and_leaves_directions_alone(seed, gamma, drift):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((12, P)), rng.standard_normal(12)
    settings = {"dynamics": gamma, "drift": drift}
    few, dense = orfit.ORFit(orfit.Linear(P), noise=0.3, **settings), whole(**settings)
    for learner in (few, dense):
        learner.learn_each(X[:5], y[:5])
    U = few.memory.U
    few.advance()
    dense.advance()
    np.testing.assert_allclose(few.memory.U @ (few.memory.U.T @ U), U, atol=1e-12)
    close(few, dense)


@pytest.mark.parametrize("m", [2, 3, 5])
def test_what_is_exact_of_a_step_in_time(m, rng):
    """Along A U, P is A P Aᵀ; outside it has the same trace; P stays positive."""
    A = rng.standard_normal((P, P)) / np.sqrt(P)
    learner = orfit.ORFit(orfit.Linear(P), m, noise=0.3)
    learner.learn_each(rng.standard_normal((20, P)), rng.standard_normal(20))
    before, U = covariance(learner), learner.memory.U
    learner.advance(dynamics=A, drift=0.1)
    after, wanted = covariance(learner), A @ before @ A.T + 0.1 * np.eye(P)
    Q = np.linalg.qr(A @ U)[0]
    np.testing.assert_allclose(Q.T @ after @ Q, Q.T @ wanted @ Q, rtol=1e-9)
    assert np.trace(after) == pytest.approx(np.trace(wanted))
    assert np.linalg.eigvalsh(after).min() > 0


def test_more_directions_come_nearer_to_the_whole_filter():
    """Heat on a ring, with random sources, measured at eight places at a time."""
    p, rng = 60, np.random.default_rng(3)
    ring = sparse.csr_array(
        0.5 * np.eye(p) + 0.25 * np.roll(np.eye(p), 1, 0) + 0.25 * np.roll(np.eye(p), -1, 0)
    )
    settings = {"noise": 0.1, "dynamics": ring, "drift": 0.02}
    model = orfit.Linear(p)
    dense = orfit.EKF(model, **settings)
    few = [orfit.ORFit(model, m, **settings) for m in (5, 15, 30, 60)]
    w, errors = rng.standard_normal(p), np.zeros(4)
    for t in range(150):
        w = ring @ w + np.sqrt(0.02) * rng.standard_normal(p)
        X = np.eye(p)[rng.choice(p, 8, replace=False)]
        y = X @ w + np.sqrt(0.1) * rng.standard_normal(8)
        for learner in (dense, *few):
            learner.learn_batch(X, y)
        if t >= 50:
            errors += [np.mean((learner.w - dense.w) ** 2) for learner in few]
    assert (np.diff(errors) < 0).all()
    assert errors[-1] < 1e-3 * errors[0]


@pytest.mark.parametrize("memory", [None, 3, "auto"])
def test_saved_copied_and_refused_in_time(memory, rng, tmp_path):
    A = 0.9 * orthogonal(rng)
    X, y = rng.standard_normal((20, P)), rng.standard_normal(20)
    first = orfit.ORFit(orfit.Linear(P), memory, noise=0.3, dynamics=A, drift=0.1)
    first.learn_each(X[:10], y[:10])
    first.advance()
    first.save(tmp_path / "half")
    others = [orfit.load(tmp_path / "half"), copy.deepcopy(first)]
    others[1].learn_each(X[10:12], y[10:12])
    with pytest.raises(ValueError, match="shape"):
        others[1].learn(X[12], [1.0, 2.0])  # refused after time has made its step
    others[1].learn_each(X[12:], y[12:])
    first.learn_each(X[10:], y[10:])
    others[0].learn_each(X[10:], y[10:])
    for learner in others:
        np.testing.assert_array_equal(learner.w, first.w)
        np.testing.assert_array_equal(learner.memory.sigma, first.memory.sigma)


def test_a_sparse_matrix_is_passed_to_load(rng, tmp_path):
    A = sparse.diags_array(rng.uniform(0.5, 1, P))
    learner = orfit.ORFit(orfit.Linear(P), 3, noise=0.3, dynamics=A)
    learner.learn(rng.standard_normal(P), 1.0)
    learner.save(tmp_path / "file")
    with pytest.raises(orfit.CheckpointError, match="dynamics"):
        orfit.load(tmp_path / "file")
    again = orfit.load(tmp_path / "file", dynamics=A)
    for each in (learner, again):
        each.learn(np.ones(P), 2.0)
    np.testing.assert_array_equal(again.w, learner.w)


@pytest.mark.parametrize(
    ("memory", "settings", "message"),
    [
        (3, {"noise": 0.0}, "number > 0"),
        (3, {"noise": "auto"}, "number > 0"),
        (3, {"noise": 0.1, "forgetting": "auto"}, "stands still|number > 0"),
        (orfit.memory.Latest(3), {"noise": 0.1}, "stands still"),
        (orfit.memory.Sketch(3), {"noise": 0.1}, "stands still"),
    ],
)
def test_systems_that_cannot_move(memory, settings, message):
    with pytest.raises(ValueError, match=message):
        orfit.ORFit(orfit.Linear(P), memory, dynamics=0.9, **settings)


def test_without_time_nothing_may_be_missing():
    with pytest.raises(ValueError, match="NaN"):
        orfit.ORFit(orfit.Linear(2), noise=0.1).learn([1.0, 2.0], np.nan)
