"""The factors of a dense P against explicit matrices, and learners with both forms of P."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from orfit.memory import covariance
from orfit.state import State

seeds, sizes = st.integers(0, 2**32 - 1), st.integers(1, 12)
EPS = np.finfo(float).eps


def product(rows, D):
    """U D Uᵀ, after a check of the form."""
    assert (np.triu(rows) == np.eye(len(rows))).all()
    assert (D >= 0).all()
    return (rows.T * D) @ rows


def drawn(rng, p, rank=None):
    """L (p×rank) with rows of different sizes, of which some are zero or repeat."""
    L = rng.standard_normal((p, p if rank is None else rank)) * 10.0 ** rng.uniform(-3, 3, (p, 1))
    if rank is not None:
        L[rng.random(p) < 0.3] = 0
        L[rng.random(p) < 0.3] = L[0]
    return L


def close(found, expected, tolerance):
    """Errors in units of the deviations."""
    unit = np.sqrt(np.diag(expected))
    unit[unit == 0] = 1
    assert np.abs((found - expected) / np.outer(unit, unit)).max() <= tolerance


@given(seeds, sizes, st.one_of(st.none(), st.integers(1, 14)))
def test_factors_of_a_root(seed, p, rank):
    L = drawn(np.random.default_rng(seed), p, rank)
    close(product(*covariance.factored(L)), L @ L.T, 20 * p * EPS)
    close(product(*covariance.factored_covariance(L @ L.T)), L @ L.T, 100 * p**2 * EPS)
    rows, D = covariance.factored(L)
    assert covariance.root(rows, D) @ covariance.root(rows, D).T == pytest.approx(product(rows, D))


def test_factors_of_a_root_with_exact_zeros():
    """A column without a variance of its own belongs to the rows before it."""
    L = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 2.0, 0.0], [1.0, 1.0, 1.0]])
    np.testing.assert_allclose(product(*covariance.factored(L)), L @ L.T, atol=1e-15)


@given(seeds, sizes, st.sampled_from([0.0, 1e-8, 1.0]), st.floats(-120, 120))
def test_update_by_a_row(seed, p, noise, power):
    """Also if gᵀPg would overflow: scaling g is scaling R."""
    rng = np.random.default_rng(seed)
    rows, D = covariance.factored(drawn(rng, p))
    P, g = product(rows, D), rng.standard_normal(p)
    S = g @ P @ g + noise
    unit = 2.0 ** round(power)
    made = covariance.updated(rows, D, unit * g, noise * unit * unit)
    kept = np.eye(p) - np.outer(P @ g, g) / S
    expected = kept @ P @ kept.T + noise * np.outer(P @ g, P @ g) / S**2
    unit = np.sqrt(np.diag(P))
    error = np.abs((product(*made) - expected) / np.outer(unit, unit)).max()
    assert error <= 100 * p**2 * EPS * max(1, np.linalg.cond(P) ** 0.5)


def test_update_without_noise_projects():
    rows, D = np.eye(3), np.ones(3)
    for g in np.eye(3)[[1, 1, 2]] + np.eye(3)[[0, 0, 0]]:
        rows, D = covariance.updated(rows, D, g, 0.0)
    kernel = np.array([1.0, -1.0, -1.0]) / np.sqrt(3)
    np.testing.assert_allclose(product(rows, D), np.outer(kernel, kernel), atol=1e-15)


def with_plain_covariance(learner):
    """The learner, whose state holds P itself, as the core may leave it."""
    s = State(**vars(learner._cell.state))
    s.P, s.is_root = np.tril(learner.memory.P), False
    learner._cell.state = s
    return learner


def test_both_forms_of_the_state_are_one_learner(rng, tmp_path):
    X, y = rng.standard_normal((30, 5)), rng.standard_normal(30)
    root, plain = (orfit.EKF(orfit.Linear(5), noise=0.1, drift=0.01) for _ in range(2))
    for learner in (root, plain):
        learner.learn_each(X[:20], y[:20])
    with_plain_covariance(plain)
    np.testing.assert_allclose(plain.memory.P, root.memory.P, rtol=1e-12)
    np.testing.assert_allclose(plain.memory.L, root.memory.L, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(
        plain.predict(X, std=True)[1], root.predict(X, std=True)[1], rtol=1e-12
    )
    plain.save(tmp_path / "filter")
    for learner in (root, plain, orfit.load(tmp_path / "filter")):
        learner.learn_batch(X[20:], y[20:])
        np.testing.assert_allclose(learner.w, root.w, rtol=1e-10)
        np.testing.assert_allclose(learner.memory.P, root.memory.P, rtol=1e-10, atol=1e-13)
        assert learner._cell.state.is_root


def test_a_plain_covariance_grows(rng):
    learners = [orfit.RLS(orfit.Linear(3), prior=0.5) for _ in range(2)]
    for learner in learners:
        learner.learn_each(rng.standard_normal((4, 3)), np.ones(4))
    learners[1].restore(learners[0]._cell.state)
    with_plain_covariance(learners[1])
    for learner in learners:
        learner.grow(5)
    np.testing.assert_allclose(learners[1].memory.P, learners[0].memory.P, atol=1e-15)


def test_damaged_factors_are_refused(rng):
    learner = orfit.RLS(orfit.Linear(3))
    for s in (
        State(P=np.ones((3, 3)), D=np.ones(3), is_root=True),
        State(P=-np.eye(3), D=np.ones(3), is_root=False),
    ):
        with pytest.raises(ValueError, match="P must be a triangle|negative variance"):
            learner.memory.check_state(s)
