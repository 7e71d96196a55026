"""The frame: one read a gradient, against two explicit projections."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from orfit.memory import Principal, frame
from orfit.memory.base import plain_settings
from orfit.state import State
from orfit.store import HOST
from orfit.store.host import Arithmetic

seeds = st.integers(0, 2**32 - 1)


def empty_frame(size, capacity, columns=0, dtype=float):
    """The state of a frame without directions."""
    s = State()
    frame.initialize(s, HOST, np.empty((size, 1), dtype), capacity, columns)
    return s


def frame_of_rows(Q, W, capacity):
    """The state with these stored rows, and the directions W Q."""
    s = empty_frame(Q.shape[1], capacity)
    s.store, k = s.store.append(Q.T), len(Q)
    s.W, s.shift = W, np.zeros((0, k))
    s.M[:k, :k] = Q @ Q.T
    return s


def directions(s):
    """U, p×k."""
    return frame.combine(s, np.eye(len(s.W)))


class Explicit:
    """alg:orfit_ipca with every gradient projected twice, in the open."""

    def __init__(self, p, m):
        self.U, self.sigma, self.w, self.m = np.zeros((p, 0)), np.zeros(0), np.zeros(p), m

    def learn(self, x, y):
        U, k = self.U, len(self.sigma)
        c = U.T @ x
        g = x - U @ c
        again = U.T @ g
        g, c = g - U @ again, c + again
        t = np.linalg.norm(g)
        self.w = self.w + g * ((y - x @ self.w) / t**2)
        bordered = np.zeros((k + 1, k + 1))
        bordered[:k, :k], bordered[:k, k], bordered[k, k] = np.diag(self.sigma), c, t
        turn, sigma, _ = np.linalg.svd(bordered)
        self.U = (np.column_stack([U, g / t]) @ turn)[:, : self.m]
        self.sigma = sigma[: self.m]


def mixed(rng, U, digits):
    """A row of which about 10^-digits is new, along U for the rest."""
    new = rng.standard_normal(len(U))
    new -= U @ (U.T @ new)
    along = U @ rng.standard_normal(U.shape[1]) if U.shape[1] else 0 * new
    return along + 10.0**-digits * new / np.linalg.norm(new) * max(np.linalg.norm(along), 1.0)


@given(seeds, st.integers(1, 8), st.integers(30, 120), st.floats(0, 9))
def test_streams_with_every_share_of_news(seed, m, p, digits):
    """t/|g| from 1 down to 1e-9, in every mix, and labels that the past almost knows."""
    rng = np.random.default_rng(seed)
    learner, oracle = orfit.ORFit(orfit.Linear(p), m), Explicit(p, m)
    true = rng.standard_normal(p)
    X = []
    for i in range(60):
        # White rows first: while nothing was dropped, a row along a direction of few digits may
        # be rounding; `small_linalg.uncertainty` decides, which is tested elsewhere.
        row = mixed(rng, oracle.U, 0 if i < m + 2 else digits * rng.random())
        X.append(row * 10.0 ** rng.uniform(-2, 2))
        oracle.learn(X[-1], X[-1] @ true)
    learner.learn_each(X[:20], X[:20] @ true)
    for x in X[20:40]:
        learner.learn(x, x @ true)
    learner.learn_each(X[40:], X[40:] @ true)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(m)).max() <= 1e-11
    state = learner._cell.state
    stored = state.store.stored
    Q = state.store.rows[:stored]
    lengths = np.linalg.norm(Q, axis=1)
    drift = np.abs(Q @ Q.T - state.M[:stored, :stored])
    assert (drift <= 1e-12 * np.outer(lengths, lengths)).all(), "M is the Gram matrix of the rows"
    # As near as the oracle is to itself, when the last digits of its rows are others: the largest
    # of eight perturbations, since of three the largest is too small by a factor now and then.
    moved, turned = 0.0, 0.0
    for _ in range(8):
        other = Explicit(p, m)
        for x in X:
            other.learn(x * (1 + 1e-15 * rng.standard_normal(p)), x @ true)
        moved = max(moved, np.linalg.norm(other.w - oracle.w))
        turned = max(turned, np.abs(other.sigma - oracle.sigma).max())
    assert np.linalg.norm(learner.w - oracle.w) <= 30 * moved + 1e-11 * np.linalg.norm(oracle.w)
    assert (
        np.abs(learner.memory.sigma - oracle.sigma).max() <= 30 * turned + 1e-11 * oracle.sigma[0]
    )


@pytest.mark.filterwarnings("ignore::orfit.InterpolationWarning")  # so it should, of such rows
@given(seeds, st.floats(10, 12.5))
def test_news_of_hardly_any_digits(seed, digits):
    """Down to 1e-12 of a row: orthonormal all the same, and finite."""
    rng = np.random.default_rng(seed)
    learner = orfit.ORFit(orfit.Linear(40), 5)
    learner.learn_each(rng.standard_normal((8, 40)), rng.standard_normal(8))
    for _ in range(20):
        x = mixed(rng, learner.memory.U, digits)
        learner.learn(x, rng.standard_normal())
        U = learner.memory.U
        assert np.abs(U.T @ U - np.eye(5)).max() <= 1e-11
        assert np.isfinite(learner.w).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seeds, st.floats(0, 9), st.integers(1, 6), st.integers(0, 5), st.integers(0, 4))
def test_a_block_is_decomposed(dtype, seed, digits, n, k, dropped):
    """G = U C + O T with O orthonormal, whether G is nearly in U's span, or nearly dependent."""
    rng = np.random.default_rng(seed)
    eps = np.finfo(dtype).eps
    s = empty_frame(60, k + 8, 2, dtype)
    frame.replace(s, np.linalg.qr(rng.standard_normal((60, k)))[0].astype(dtype))
    if 0 < dropped < k:
        frame.rotate(s, np.linalg.qr(rng.standard_normal((k, k - dropped)))[0])
    frame.set_parameters(s, rng.standard_normal((60, 2)).astype(dtype))
    U, rank = directions(s), len(s.W)
    spread = rng.standard_normal((60, n)) * 10.0**-digits
    G = spread + U @ rng.standard_normal((rank, n)) + rng.standard_normal((60, 1))
    G = np.asfortranarray(G * 10.0 ** rng.uniform(-3, 3, n), dtype)
    norms = np.linalg.norm(G, axis=0)
    parts = frame.project(s, G, None)
    new = len(parts.T)
    O = frame.displacement(s, parts, np.vstack([np.zeros((rank, new)), np.eye(new)]))
    bound = 10 * frame.ORTHONORMAL[np.dtype(dtype)]
    assert np.abs(O.T @ O - np.eye(new)).max() <= bound
    assert np.abs(U.T @ O).max(initial=0) <= bound
    assert (np.abs(U @ parts.C + O @ parts.T - G).max(axis=0) <= 1000 * eps * norms).all()
    assert (np.tril(parts.T[:, :new], -1) == 0).all()
    prediction = G.T.astype(float) @ frame.parameters(s)
    accuracy = float(1e4 * eps * norms.max())
    assert parts.gradients.prediction == pytest.approx(prediction, abs=accuracy)
    a = rng.standard_normal((rank, 3))
    b = rng.standard_normal((new, 3))
    moved = frame.displacement(s, parts, np.vstack([a, b]))
    assert np.abs(moved - U @ a - O @ b).max() <= 10 * bound


@given(seeds, st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_a_compaction_keeps_the_directions(seed, k, extra, crooked):
    """U stays, and M' = Q' Q'ᵀ."""
    rng = np.random.default_rng(seed)
    stored = k + extra
    Q = rng.standard_normal((stored, 40)) * 10.0 ** rng.uniform(-2, 2, (stored, 1))
    along = np.linalg.qr(rng.standard_normal((40, k)))[0].T
    Q[:k] = along if crooked else Q[:k]
    Q[k:] = 1e3 * along[0] + Q[k:] if crooked else Q[k:]
    L = np.linalg.cholesky(Q @ Q.T)
    W = np.linalg.solve(L, np.eye(stored))[rng.permutation(stored)[:k]]
    s = frame_of_rows(Q, W, 30)
    before, size = directions(s), np.linalg.norm(W, axis=1).max() * np.abs(Q).max()
    frame.compact(s, 30)
    assert (s.store.stored, s.compactions) == (k, 1)
    assert np.abs(directions(s) - before).max() <= 1e-12 * size
    rows = s.store.rows[:k]
    # Row i is Q[kept[i]] + Y[i] Q[removed], or a direction: sums of parts of about this length.
    parts = np.linalg.norm(Q, axis=1).max() + np.linalg.norm(rows, axis=1).max()
    assert np.abs(s.M[:k, :k] - rows @ rows.T).max() <= 1e-13 * parts**2
    amplification = np.sqrt((s.W**2 * np.diag(s.M)[:k]).sum(axis=1)).max()
    assert amplification <= 1.01 * np.sqrt(frame.largest_amplification(rows.dtype))


def test_a_direction_that_is_a_long_combination_is_written_out():
    """Of rows that are nearly parallel, whichever are kept."""
    Q = np.eye(4)[[0, 0, 2, 3]]
    Q[1, 1] = 1e-3
    s = frame_of_rows(Q, np.array([[-1e3, 1e3, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]), 6)
    frame.compact(s, 6)
    assert (s.W == np.eye(3)).all()
    assert np.abs(s.store.rows[:3] - np.eye(4)[[1, 2, 0]]).max() <= 1e-12


def test_what_was_dropped_is_known(rng):
    """Of a linear model's gradients all energy is in sigma², or lost."""
    X, y = rng.standard_normal((70, 30)), rng.standard_normal(70)
    for memory in (4, orfit.memory.Latest(4), orfit.memory.Random(4), orfit.memory.Nothing(), None):
        learner = orfit.ORFit(orfit.Linear(30), memory, noise=1.0)
        learner.learn_each(X[:50], y[:50])
        learner.learn_batch(X[50:], y[50:])
        kept = np.sum(learner.memory.sigma**2)
        assert kept + learner.memory.lost == pytest.approx(np.sum(X**2))
        assert (learner.memory.lost == 0) == (memory is None)
        assert learner.memory.numbers >= 30 * learner.memory.rank


@given(seeds, st.booleans())
def test_nothing_is_lost_of_a_block_with_repeats(seed, fresh):
    """A column that is spanned up to rounding begins no direction; later ones keep their part."""
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal((33, 30))
    memory = Principal(20)
    for i in rng.integers(0, 33, 60):
        memory.absorb(pool[i])
    rows = [*pool[rng.integers(0, 33, 20 if fresh else 29)]]
    rows += [*rng.standard_normal((5, 30))] if fresh else []
    G = np.asfortranarray(np.array(rows).T)
    s = State(**vars(memory._cell.state))
    parts = memory.decompose(s, G, plain_settings()).projection
    C = np.vstack([parts.C, parts.T])
    O = frame.displacement(s, parts, np.eye(len(C)))
    lost = np.linalg.norm(O @ C - G, axis=0) / np.linalg.norm(G, axis=0)
    assert lost.max() <= 1e-8
    assert np.abs(O.T @ O - np.eye(O.shape[1])).max() <= 1e-8


def test_a_step_whose_parts_are_no_numbers_is_refused_or_learned():
    """Nearly parallel rows of float32, and labels near its end: w is finite, or was not moved."""
    refused = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        learner = orfit.ORFit(orfit.Linear(60), 2, w0=np.zeros(60, np.float32))
        X = rng.standard_normal(60) + 0.15 * rng.standard_normal((30, 60))
        y = 10 ** rng.uniform(35, 39) * rng.standard_normal(30)
        try:
            learner.learn_batch(X, y)
        except ValueError:  # the step overflows
            assert learner.seen == 0
            refused += 1
        assert np.isfinite(learner.w).all()
    assert 0 < refused < 40


def test_a_failed_allocation_changes_nothing(rng, monkeypatch):
    learner = orfit.ORFit(orfit.Linear(40))
    X, y = rng.standard_normal((20, 40)), rng.standard_normal(20)
    learner.learn_each(X[:8], y[:8])  # as many as there is room for
    untroubled = copy.deepcopy(learner)

    def none_left(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Arithmetic, "empty", staticmethod(none_left))
        with pytest.raises(MemoryError):
            learner.learn(X[8], y[8])
        assert learner.seen == 8
    for each in (learner, untroubled):
        each.learn_each(X[8:], y[8:])
        each.learn(2 * X[3], 2 * y[3])
    assert np.abs(learner.w - untroubled.w).max() <= 1e-13


def test_parameters_are_written_out_where_their_coefficients_overflow():
    s = empty_frame(4, 8, 1, np.float32)
    frame.set_parameters(s, np.full((4, 1), 8e37, np.float32))
    frame.append(s, frame.project(s, np.ones((4, 1), np.float32), None))
    s.store.rows[:1] *= np.float32(1e-3)  # such a short row has large coefficients
    s.W, s.M[:1, :1] = 1e3 * s.W, 1e-6 * s.M[:1, :1]
    for _ in range(2):  # the sum of the two coefficients overflows
        frame.move(s, np.full((1, 1), 5e34))
    assert s.shift.max() == 0
    assert s.parameter_bound == pytest.approx(8e37 + 1e35, rel=1e-6)
    assert frame.parameters(s) == pytest.approx(np.full((4, 1), 8e37 + 5e34), rel=1e-6)


def test_a_large_block_leaves_no_large_gram_matrix(rng):
    learner = orfit.ORFit(orfit.Linear(500), 5)
    learner.learn_batch(rng.standard_normal((300, 500)), np.zeros(300))
    s = learner._cell.state
    assert s.M.shape == (s.store.capacity,) * 2
    assert s.store.capacity < 30


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 2e-4), (np.float64, 1e-11)])
def test_directions_stay_orthonormal_where_numbers_have_one_sign(dtype, most, rng):
    """What differs between such rows is a small part of them, and is known by long combinations."""
    learner = orfit.ORFit(orfit.Linear(200), 5, w0=np.zeros(200, dtype))
    for _ in range(40):
        learner.learn_each(rng.random((50, 200)), rng.standard_normal(50))
        U = np.asarray(learner.memory.U, float)
        assert np.abs(U.T @ U - np.eye(5)).max() <= most


def test_directions_that_are_no_longer_orthonormal_are_corrected(rng):
    """As a million rotations leave them where nothing is new, so that no compaction happens."""
    learner, X = orfit.ORFit(orfit.Linear(30), 8), rng.standard_normal((6, 30))
    learner.learn_each(X, X[:, 0])
    s = learner._cell.state
    s.W = s.W + 1e-11 * rng.standard_normal(s.W.shape)
    again = rng.standard_normal((10, 6)) @ X
    learner.learn_each(again, again[:, 0])
    U = learner.memory.U
    assert (learner.memory.rank, learner._cell.state.compactions) == (6, 0)
    assert np.abs(U.T @ U - np.eye(6)).max() <= 4e-13


def test_directions_seen_most_are_corrected_without_the_others(rng):
    """Or a row of 1e8 would find a share in a direction of which only rows of 1e-8 determined."""
    Q = rng.standard_normal((7, 30))
    M = Q @ Q.T
    W = np.linalg.inv(np.linalg.cholesky(M)) + 1e-9 * rng.standard_normal((7, 7))
    corrected = frame.corrected(W, M)
    assert np.abs(corrected @ M @ corrected.T - np.eye(7)).max() <= 1e-13
    for k in range(1, 7):
        inside = np.linalg.lstsq(W[:k].T, corrected[:k].T, rcond=None)[0]
        assert np.abs(W[:k].T @ inside - corrected[:k].T).max() <= 1e-14
