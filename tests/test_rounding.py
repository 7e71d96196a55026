"""Where rounding decides: what is a direction, what is lost, what is bounded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import orfit
from orfit import small
from orfit.memory import Principal, Unlimited
from orfit.memory.frame import ROTATIONS_BETWEEN_CURES, Frame
from problems import assert_close, conditioning, problems

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(3, 10))
def test_a_direction_of_few_digits_is_still_fitted(seed, digits):
    """x and x + 10^-digits d are two datapoints, down to ten digits."""
    rng = np.random.default_rng(seed)
    x, d = rng.standard_normal((2, 30))
    other = x + 10.0**-digits * d
    learner = orfit.ORFit(orfit.Linear(30))
    learner.learn(x, 1.0)
    update = learner.learn(other, 1.0 + 10.0**-digits)
    assert update.rank == 2
    assert learner.predict(other) - learner.predict(x) == pytest.approx(10.0**-digits, rel=1e-3)


@given(problems(degenerate=True, outputs=(None, 2)))
def test_a_dense_projector_grows_no_direction_from_rounding(problem):
    """thm:implicit_bias for NTK-RLS at λ = 0, where rows depend on each other."""
    learner = orfit.NTKRLS(problem.model, w0=problem.w0, forgetting=0)
    for x, y in zip(problem.X, problem.y, strict=True):
        learner.learn(x, y)
    expected = oracles.nearest_interpolator(problem.A, problem.labels, problem.w0)
    assert_close(learner.w, expected, condition=10 * conditioning(problem.A), start=problem.w0)


def test_a_dense_projector_in_the_metric_of_its_prior(rng):
    """A prior that scales P far from 1 changes nothing of what counts as rounding."""
    X = rng.standard_normal((12, 3)) @ rng.standard_normal((3, 10))
    y = X @ rng.standard_normal(10)
    for prior in (1e-12, 1e12):
        learner = orfit.EKF(orfit.Linear(10), noise=0, prior=prior)
        updates = learner.learn_each(X, y)
        assert (updates.novelty[:3] > 0.01).all()
        assert (updates.novelty[3:] == 0).all()
        assert np.abs(learner.predict(X) - y).max() <= 1e-10


@given(seeds, st.integers(2, 12))
def test_the_least_direction_of_a_wide_spectrum(seed, k):
    """As sharp as an SVD's, where RᵀR would have lost it: singular values from 1 to 1e-10."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((k, k)))[0]
    R = np.linalg.qr(np.geomspace(1, 1e-10, k)[:, None] * turn.T)[1]
    v = small.least(np.asfortranarray(R))
    assert abs(v @ turn[:, -1]) >= 1 - 1e-9
    assert np.linalg.norm(R @ v) <= 1.001e-10


def test_the_least_direction_of_a_singular_triangle():
    R = np.asfortranarray(np.triu(np.ones((4, 4))))
    R[2, 2] = 0.0
    v = small.least(R)
    assert np.linalg.norm(R @ v) <= 1e-15


@given(seeds, st.integers(2, 5))
def test_ridge_of_nearly_equal_rows_in_one_block(seed, digits):
    """Little noise, rows that share most digits: BᵀB would lose them."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal(20)
    X = base + 10.0**-digits * rng.standard_normal((4, 20))
    y, noise = rng.standard_normal(4), 1e-14
    learner = orfit.ORFit(orfit.Linear(20), noise=noise)
    learner.learn_batch(X, y)
    expected = oracles.ridge(X, y, np.zeros(20), noise)
    sigma = np.linalg.svd(X, compute_uv=False)
    tolerance = 1e-14 * sigma[0] / sigma[-1]
    assert np.linalg.norm(learner.w - expected) <= 100 * tolerance * np.linalg.norm(expected)


def test_another_noise_on_the_same_memory(rng):
    memory = Unlimited()
    memory.absorb(rng.standard_normal((8, 3)))
    G = np.asfortranarray(rng.standard_normal((8, 1)))
    for noise in (1.0, 4.0, 1.0):
        U, sigma = memory.U, memory.sigma
        P = np.eye(8) - (U * (sigma**2 / (sigma**2 + noise))) @ U.T
        past = memory.split(G, noise)
        assert past.root.T @ past.root == pytest.approx(G.T @ P @ G)
        memory.fold(past)


@given(seeds, st.integers(2, 8))
def test_blur_goes_along_with_the_directions(seed, k):
    """U ← U K mixes what is known of the directions as it mixes them."""
    rng = np.random.default_rng(seed)

    def frame():
        made = Frame(20, np.float64, k + 4)
        O = np.linalg.qr(np.random.default_rng(seed).standard_normal((20, k)))[0]
        made.append(O, 1.0 + np.arange(k))
        return made

    u = rng.standard_normal(k)
    u /= np.linalg.norm(u)
    H = np.eye(k) - 2 * np.outer(u, u)
    reflected, turned, deleted = frame(), frame(), frame()
    reflected.reflect(u)
    turned.turn(H[:, :-1])
    deleted.delete(1)
    expected = np.sqrt((1.0 + np.arange(k)) ** 2 @ H[:, :-1] ** 2)
    assert reflected.blur == pytest.approx(expected)
    assert turned.blur == pytest.approx(expected)
    assert deleted.blur == pytest.approx(np.delete(1.0 + np.arange(k), 1))
    U = frame().combine(np.eye(k))
    assert np.abs(reflected.combine(np.eye(k - 1)) - U @ H[:, :-1]).max() <= 1e-14
    assert np.abs(turned.combine(np.eye(k - 1)) - U @ H[:, :-1]).max() <= 1e-14
    assert (deleted.combine(np.eye(k - 1)) == np.delete(U, 1, axis=1)).all()


def test_a_frame_that_has_drifted_is_cured(rng):
    frame = Frame(50, np.float64, 10)
    O = np.linalg.qr(rng.standard_normal((50, 6)))[0]
    frame.append(O + 1e-6 * rng.standard_normal((50, 6)), np.ones(6))
    frame.turn(np.linalg.qr(rng.standard_normal((6, 4)))[0])
    frame.rotations = ROTATIONS_BETWEEN_CURES - 1
    frame.make_room()
    U = frame.combine(np.eye(4))
    assert np.abs(U.T @ U - np.eye(4)).max() <= 1e-10


@given(seeds, st.integers(1, 10), st.integers(2, 5))
def test_novelty_is_the_share_outside(seed, n, m):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 12))
    learner = orfit.ORFit(orfit.Linear(12), Principal(m))
    for x in X:
        U = learner.memory.U
        expected = np.linalg.norm(x - U @ (U.T @ x)) / np.linalg.norm(x)
        assert learner.learn(x, 1.0).novelty == pytest.approx(expected, abs=1e-12)


def test_extreme_forgetting_stays_finite(rng):
    """λ^i is far below the least number there is, for directions seen and unseen."""
    for dtype, forgetting in ((np.float32, 0.8), (np.float64, 1e-4)):
        learner = orfit.RLS(orfit.Linear(40), forgetting=forgetting, w0=np.zeros(40, dtype))
        X = rng.standard_normal((300, 40))
        X[100:200] = X[99]
        learner.learn_each(X, X[:, 0])
        assert np.isfinite(learner.w).all()
        assert np.isfinite(learner.memory.P).all()
        assert learner.predict(X[-1]) == pytest.approx(X[-1, 0], abs=0.01)


def test_a_filter_whose_second_block_fails_has_not_moved():
    """The noiseless channel is learned first; where the noisy one overflows, both are undone."""
    phi = np.zeros((4, 2))
    phi[0, 0], phi[1, 1] = 1.0, 1e-200
    model = orfit.Linear(4, features=lambda X: X.reshape(-1, 4, 2))
    learner = orfit.EKF(model, noise=np.diag([0.0, 1e-300]))
    P = learner.memory.P
    with pytest.raises(ValueError, match="overflows"), np.errstate(all="ignore"):
        learner.learn(phi.ravel(), [1.0, 1e308])
    assert (learner.w == 0).all()
    assert (learner.memory.P == P).all()
    assert learner.seen == 0


@given(seeds, st.integers(3, 8))
def test_least_squares_of_rows_of_very_different_scale(seed, n):
    """A rank-deficient block, consistent, rows from 1e-6 to 1e6: every row counts."""
    rng = np.random.default_rng(seed)
    r = int(rng.integers(1, n))
    scales = 10.0 ** rng.uniform(-6, 6, n)
    R = np.zeros((n, n))
    R[:r] = rng.standard_normal((r, n)) * scales
    _, B, _ = small.staircase(R, scales, 1e-14)
    expected = rng.standard_normal(len(B))
    z, left = small.fit(B, 0.0, B.T @ expected)
    condition = conditioning(B.T)
    assert np.abs(z - expected).max() <= 1e-13 * condition**2
    assert (np.abs(left) <= 1e-12 * condition * scales * n).all()
