"""Where rounding decides: what is a direction, what is lost, what is bounded."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import orfit
from orfit import small_linalg
from orfit.memory import Principal, Unlimited, frame
from orfit.memory.base import plain_settings
from orfit.state import State
from orfit.step import interpolate
from orfit.store import HOST
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
        s = State(**vars(memory._cell.state))
        past = memory.decompose(s, G, plain_settings(noise))
        B = memory.factors(s, past)[0]
        assert B.T @ B == pytest.approx(G.T @ P @ G)
        memory.absorb_block(s, past)
        memory._cell.state = s


def frame_of(O, capacity):
    """The state of a frame with these directions."""
    s = State()
    frame.initialize(s, HOST, np.empty((len(O), 1)), capacity, 0)
    frame.replace(s, O)
    return s


def directions(s):
    return frame.combine(s, np.eye(len(s.W)))


@given(seeds, st.integers(2, 8))
def test_a_frame_rotates_and_drops(seed, k):
    rng = np.random.default_rng(seed)
    O = np.linalg.qr(rng.standard_normal((20, k)))[0]
    u = rng.standard_normal(k)
    u /= np.linalg.norm(u)
    H = np.eye(k) - 2 * np.outer(u, u)
    rotated, deleted = frame_of(O, k + 4), frame_of(O, k + 4)
    frame.rotate(rotated, H[:, :-1])
    frame.drop(deleted, np.delete(deleted.W, 1, axis=0))
    assert np.abs(directions(rotated) - O @ H[:, :-1]).max() <= 1e-14
    assert (directions(deleted) == np.delete(O, 1, axis=1)).all()


def lagged(rng, n, p, pole):
    """Rows of the last p values of a signal that starts from rest: what an FIR filter sees."""
    rows, state = [], np.zeros(p)
    for _ in range(n):
        state = np.append(state[1:], pole * state[-1] + rng.standard_normal())
        rows.append(state)
    return np.array(rows)


@pytest.mark.parametrize("pole", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_identifying_a_filter_from_rest(pole, dtype, rng):
    """The textbook use of RLS: every direction is found as a short remainder of a long row."""
    p = 60
    X = lagged(rng, 1000, p, pole)
    y = X @ rng.standard_normal(p) + 0.1 * rng.standard_normal(1000)
    expected = oracles.ridge(X, y, np.zeros(p), 0.01)
    learner = orfit.ORFit(orfit.Linear(p), noise=0.01, w0=np.zeros(p, dtype))
    learner.learn_each(X, y)
    assert learner.memory.rank == p
    error = np.linalg.norm(learner.w - expected) / np.linalg.norm(expected)
    assert error <= (1e-12 if dtype == np.float64 else 1e-2)


@pytest.mark.parametrize("pole", [0.0, 0.9])
def test_lags_are_interpolated_until_the_parameters_run_out(pole, rng):
    X = lagged(rng, 16, 16, pole)  # triangular: its condition grows like 2^p
    y = rng.standard_normal(16)
    learner = orfit.ORFit(orfit.Linear(16))
    with pytest.warns(orfit.SaturationWarning):
        updates = learner.learn_each(X, y)
    assert (updates.rank == np.arange(1, 17)).all()
    assert np.abs(X @ learner.w - y).max() <= 1e-7 * np.abs(learner.w).max()


@pytest.mark.parametrize("settings", [{}, {"noise": 0.1, "forgetting": 0.99}, {"forgetting": 0.9}])
@pytest.mark.parametrize(
    "memory", [orfit.memory.Principal, orfit.memory.Latest, orfit.memory.Random]
)
def test_a_limited_memory_learns_to_the_end(memory, settings, rng):
    """Rows with a mean, or lags of a signal: none of very many counts as rounding."""
    n = 600
    for X in (3.0 + rng.standard_normal((n, 50)), lagged(rng, n, 50, 0.95)):
        learner = orfit.ORFit(orfit.Linear(50), memory(10), **settings)
        updates = learner.learn_each(X, X @ np.ones(50) + rng.standard_normal(n))
        assert (updates.step[100:] > 0).all()
        assert (updates.novelty[100:] > 0).all()
        if not settings:
            assert np.abs(updates.conflict).max() == 0


def test_a_dense_projector_learns_to_the_end(rng):
    """prop:compare_RLS on ordinary rows, nearly as many as there are parameters."""
    p = 200
    X = rng.standard_normal((p - 5, p))
    y = X @ rng.standard_normal(p)
    learner = orfit.RLS(orfit.Linear(p), forgetting=0)
    updates = learner.learn_each(X, y)
    assert (updates.step > 0).all()
    assert np.abs(X @ learner.w - y).max() <= 1e-9
    stiff = orfit.EKF(orfit.Linear(20), noise=0, prior=[1.0] + 19 * [1e4])
    updates = stiff.learn_each(X[:15, :20], y[:15])
    assert (updates.step > 0).all()


def test_what_lies_off_the_stream_stays_put(rng):
    """Exponential forgetting of a stream of low rank: w leaves its span by rounding alone."""
    for p, forgetting in ((100, 0.5), (60, 0.9), (30, 0.98)):
        basis = np.linalg.qr(rng.standard_normal((p, 5)))[0]
        learner = orfit.RLS(orfit.Linear(p), forgetting=forgetting)
        for _ in range(1000):
            x = basis @ rng.standard_normal(5)
            learner.learn(x, x.sum() + 0.1 * rng.standard_normal())
        off = learner.w - basis @ (basis.T @ learner.w)
        assert np.linalg.norm(off) <= 0.05, (p, forgetting)


@pytest.mark.filterwarnings("ignore::orfit.InterpolationWarning")
def test_rounding_in_a_spanned_row_is_not_fitted(rng):
    """A long row, spanned by the past and contradicted, beside a short new one, in one block."""
    x, z = rng.standard_normal((2, 20))
    learner = orfit.ORFit(orfit.Linear(20))
    learner.learn(1e8 * x, 1e8)
    learner.learn_batch([z, 1e8 * x], [1.0, 2e8])
    assert learner.predict(z) == pytest.approx(1.0, rel=1e-9)
    assert learner.predict(x) == pytest.approx(1.0, rel=1e-9)


def test_rotations_beyond_the_first_block_of_p(rng):
    """The verbatim algorithm where the basis is folded in several blocks."""
    X, y = rng.standard_normal((60, 20_000)), rng.standard_normal(60)
    blocks = [(X[i : i + 1], y[i : i + 1]) for i in range(60)]
    w, U, _ = oracles.batch_orfit_limited(blocks, np.zeros(20_000), 4)
    learner = orfit.ORFit(orfit.Linear(20_000), 4)
    learner.learn_each(X, y)
    assert np.abs(learner.w - w).max() <= 1e-12
    cosines = np.linalg.svd(learner.memory.U.T @ U, compute_uv=False)
    assert cosines.min() >= 1 - 1e-10


def test_no_step_leaves_the_finite_numbers_unsaid():
    """Refused, or finite: never inf or NaN without an error."""
    for dtype in (np.float32, np.float64):
        big = 1e20 if dtype == np.float32 else 1e170
        for settings in ({}, {"noise": 1.0}, {"memory": 1}, {"memory": 1, "noise": 1.0}):
            for x, y in ((1 / big, big), (big, big), (big, 1.0), (1 / big, 1.0)):
                learner = orfit.ORFit(orfit.Linear(2), w0=np.zeros(2, dtype), **settings)
                with np.errstate(all="ignore"), contextlib.suppress(ValueError):
                    learner.learn([x, 0], y)
                assert np.isfinite(learner.w).all()


def test_float32_stays_float32_when_windup_is_limited(rng):
    learner = orfit.RLS(orfit.Linear(20), forgetting=0.5, w0=np.zeros(20, np.float32))
    learner.learn_each(rng.standard_normal((60, 20)), rng.standard_normal(60))
    assert learner.w.dtype == np.float32
    assert learner.memory.P.dtype == np.float64


def test_two_datapoints_are_not_two_outputs():
    learner = orfit.EKF(orfit.Linear(3), noise=[[1.0, 0.9], [0.9, 1.0]])
    with pytest.raises(ValueError, match="noise is 2×2, but y has shape"):
        learner.learn_batch(np.eye(3)[:2], [1.0, 1.0])


@given(seeds, st.lists(st.integers(1, 4), min_size=1, max_size=5), st.floats(0, 8))
def test_rounding_history_holds_the_rows_that_determined_the_directions(seed, blocks, digits):
    """Also of blocks that depend on each other, nearly: Householder's signs must not show."""
    rng = np.random.default_rng(seed)
    n = sum(blocks)
    X = rng.standard_normal((n, 25))
    for i in range(1, n):
        X[i] = X[i] * 10.0 ** -rng.uniform(0, digits) + rng.standard_normal(i) @ X[:i]
    learner = orfit.ORFit(orfit.Linear(25), 25)
    start = 0
    for size in blocks:
        learner.learn_batch(X[start : start + size], np.zeros(size))
        start += size
    s = learner._cell.state
    assert len(s.W) == n
    made = s.store.Q @ s.history.T
    assert np.abs(made - (X / np.linalg.norm(X, axis=1)[:, None]).T).max() <= 1e-6


def test_a_row_nearly_in_the_span_of_two_blocks_is_learned():
    rng = np.random.default_rng(1096)
    d = 10 ** rng.uniform(-13, -1, 6)
    X = [rng.standard_normal(8)]
    for i in range(1, 5):
        X.append(rng.standard_normal(i) @ np.array(X) + d[i] * rng.standard_normal(8))
    learner = orfit.ORFit(orfit.Linear(8), 20)
    learner.learn_batch(X[:2], [1.0, 2.0])
    learner.learn_batch(X[2:4], [3.0, 4.0])
    update = learner.learn(X[4], 5.0)
    assert 1e-7 < update.novelty < 1e-5
    assert update.rank == 5
    assert update.conflict == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("share", [1.0, 2.0, 3.6])
@pytest.mark.parametrize("m", [12, 40])
def test_a_chain_of_blocks_each_mostly_along_its_predecessor(m, share, dtype, rng):
    """A block's directions must not magnify what those before lack of being orthogonal."""
    Q = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    memory = Principal(m)
    first = 1e-3 * Q[:, : m + 1]
    first[:, 0] = Q[:, 0]
    memory.absorb(first.astype(dtype))
    previous, rest = Q[:, 0], iter(Q[:, m + 2 :].T)
    for _ in range(30):
        new = next(rest)
        memory.absorb(np.column_stack([new + share * previous, 1e-3 * next(rest)]).astype(dtype))
        previous = new
    U = memory.U.astype(float)
    assert np.abs(U.T @ U - np.eye(m)).max() <= 2000 * np.finfo(dtype).eps


def test_a_compaction_corrects_directions(rng):
    """After every second compaction M is computed anew, and W is corrected."""
    s = frame_of(np.linalg.qr(rng.standard_normal((50, 6)))[0], 14)
    frame.append(s, frame.project(s, np.asfortranarray(rng.standard_normal((50, 7))), None))
    frame.drop(s, s.W[:4] + 1e-6 * rng.standard_normal((4, 13)))
    s.compactions = 1
    assert np.abs(directions(s).T @ directions(s) - np.eye(4)).max() >= 1e-7
    frame.compact(s, 14)
    assert s.compactions == 2
    assert np.abs(directions(s).T @ directions(s) - np.eye(4)).max() <= 1e-10


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
    _, B, _ = small_linalg.staircase(R, np.empty((0, n)), scales, None, 1e-14)
    expected = rng.standard_normal(len(B))
    z, left, *_ = interpolate(B, (B.T @ expected)[:, None])
    condition = conditioning(B.T)
    assert np.abs(z[:, 0] - expected).max() <= 1e-13 * condition**2
    assert (np.abs(left[:, 0]) <= 1e-12 * condition * scales * n).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_lengths_of_whatever_is_a_number(dtype):
    kind = np.finfo(dtype)
    for value in (kind.max / 4, kind.tiny, 8 * kind.smallest_subnormal, 0.0, 1.0):
        G = np.array([[value], [value], [-value / 2]], dtype, order="F")
        exact = 1.5 * float(value)
        assert HOST.norms(G)[0] == pytest.approx(exact, rel=4 * float(kind.eps), abs=0)
    for value in (kind.max, np.inf):
        length = HOST.norms(np.full((8, 1), value, dtype))
        assert length[0] > kind.max
    assert np.isnan(HOST.norms(np.full((2, 1), np.nan, dtype))[0])
