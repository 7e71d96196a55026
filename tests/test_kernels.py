"""What is compiled, against LAPACK and against the same functions uncompiled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from orfit import gram, tall

njit = pytest.importorskip("numba").njit
from orfit import kernels
from orfit.kernels import sharing
from orfit.kernels.long import gram_of

pytestmark = pytest.mark.slow

MOST = gram.most_lost(np.dtype(np.float64))
seeds = st.integers(0, 2**32 - 1)


@njit
def rank_one(s, z):
    return kernels.rank_one(s, z, 1)


@njit
def compiled_read(rows, stored, base, X, scale, A, threads):
    return kernels.read(rows, stored, base, X, scale, A, threads)


@njit
def compiled_gram(rows, stored):
    return gram_of(rows, stored)


@njit
def compiled_rows_fold(rows, stay, gone, Y, base, shift, threads):
    leaving = np.empty((threads, len(gone), kernels.FOLDED), rows.dtype)
    grams = kernels.room_for_gram(rows.shape[1], len(Y))
    kernels.fold(rows, stay, gone, Y, base, shift, leaving, grams)
    return kernels.whole_gram(grams)


@given(seeds, st.integers(1, 14), st.sampled_from(["wide", "plain", "equal", "zeros", "close"]))
def test_rank_one_eigenproblem(seed, n, kind):
    """diag(s²) + z zᵀ: roots as LAPACK's singular values, vectors orthogonal to rounding."""
    rng = np.random.default_rng(seed)
    s = np.sort(rng.uniform(1, 10, n))
    z = rng.standard_normal(n) * 10.0 ** rng.uniform(-10, 4)
    if kind == "wide":
        s = np.sort(10.0 ** rng.uniform(-8, 3, n))
    elif kind == "equal":
        s = np.sort(rng.integers(0, 3, n).astype(float))
    elif kind == "zeros":
        z[rng.integers(0, n, 3)] = 0
    elif kind == "close":
        s = np.sort(1 + 1e-14 * rng.integers(0, 5, n) + rng.integers(0, 2, n))
        z *= 10.0 ** rng.uniform(-15, 2, n)
    s[0] = rng.choice([0.0, s[0]])
    s = s[::-1].copy()
    values, rows = rank_one(s, z)
    vectors = rows.T
    A = np.column_stack([np.diag(s), z])
    expected = np.linalg.svd(A, compute_uv=False)
    scale = expected.max() or 1.0
    assert np.abs(values - expected).max() <= 1e-13 * scale
    assert np.abs(vectors.T @ vectors - np.eye(n)).max() <= 1e-14
    square = vectors.T @ (A @ A.T / scale**2) @ vectors
    assert np.abs(square - np.diag((values / scale) ** 2)).max() <= 1e-13


@given(seeds, st.integers(2, 9), st.floats(0, 15))
def test_rank_one_of_very_different_scales(seed, n, digits):
    """What was seen little is known as well as what was seen much: as by Jacobi's method."""
    rng = np.random.default_rng(seed)
    s = np.sort(10.0 ** rng.uniform(0, digits, n))[::-1].copy()
    z = s * rng.standard_normal(n)
    values, vectors = rank_one(s, z)
    expected, turn = orfit.small.principal(np.vstack([np.diag(s), z]))
    assert values == pytest.approx(expected, rel=1e-12)
    graded = s[:, None] * s  # each entry beside the scales of its row and its column
    square, by_jacobi = (V.T @ np.diag(values**2) @ V for V in (vectors, turn.T))
    assert (np.abs(square - (np.diag(s**2) + np.outer(z, z))) <= 1e-11 * graded * (1 + n)).all()
    assert (np.abs(square - by_jacobi) <= 1e-11 * graded * (1 + n)).all()


@given(seeds, st.integers(2, 6), st.integers(0, 300))
def test_rank_one_beyond_the_range_of_squares(seed, n, digits):
    rng = np.random.default_rng(seed)
    s = np.sort(10.0 ** rng.uniform(-digits, 0, n))[::-1].copy()
    s[rng.integers(n) :] *= rng.integers(2)
    z = 10.0 ** rng.uniform(-digits, 0, n) * rng.standard_normal(n)
    values, vectors = rank_one(s, z)
    assert np.abs(vectors @ vectors.T - np.eye(n)).max() <= 1e-14
    assert values[0] == pytest.approx(np.linalg.norm(np.vstack([np.diag(s), z]), 2), rel=1e-13)
    assert (values[:-1] >= values[1:]).all()


@njit
def compiled_project(W, M, raw, square):
    return gram.project(W, M, raw, square)


@njit
def compiled_fold(W, M):
    return gram.fold(W, M, MOST)


@njit
def compiled_rest(W, M, A, K):
    return gram.extended(W, A, K), gram.cured(W, M), gram.written_out(W, M)[4]


@given(seeds, st.integers(1, 9), st.integers(1, 9), st.integers(1, 3))
def test_what_is_compiled_is_what_is_written(seed, k, extra, n):
    """The functions of `gram`, with the loops that stand for NumPy's products."""
    rng = np.random.default_rng(seed)
    s = k + extra
    Q = rng.standard_normal((s, 30))
    M = np.full((s + 2, s + 2), np.nan)
    M[:s, :s] = Q @ Q.T
    W = np.linalg.solve(np.linalg.cholesky(M[:s, :s]), np.eye(s))[rng.permutation(s)[:k]].copy()
    G = rng.standard_normal((n, 30))
    raw, square = G @ Q.T, G @ G.T
    ours, theirs = gram.project(W, M, raw, square), compiled_project(W, M, raw, square)
    for one, other in zip(ours, theirs, strict=True):
        assert np.abs(one - other).max() <= 1e-11
    A, K = ours[1], np.tril(rng.standard_normal((n, n)))
    rest = (gram.extended(W, A, K), gram.cured(W, M), gram.written_out(W, M)[4])
    for one, other in zip(rest, compiled_rest(W, M, A, K), strict=True):
        assert np.abs(one - other).max() <= 1e-11
    for one, other in zip(gram.fold(W, M, MOST), compiled_fold(W, M), strict=True):
        assert np.abs(one - other).max() <= 1e-9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seeds, st.integers(1, 12), st.integers(1, 12), st.integers(1, 2000))
def test_folding_is_that_of_the_plain_path(dtype, seed, k, extra, p):
    """Up to rounding; and the same to the last bit on however many threads."""
    rng = np.random.default_rng(seed)
    s, q, eps = k + extra, 1 + seed % 2, np.finfo(dtype).eps
    rows, base = (rng.standard_normal((n, p)).astype(dtype) for n in (s + 1, q))
    W = np.linalg.qr(rng.standard_normal((s, k)))[0].T.copy()
    shift = rng.standard_normal((q, s))
    for stay, gone, Y, _, _ in (gram.fold(W, np.eye(s), MOST), gram.written_out(W, np.eye(s))):
        theirs = rows.copy(), base + (shift @ rows[:s]).astype(dtype)
        tall.Fold(theirs[0], s, None, stay, gone, Y).finish()
        each = []
        for threads in (1, 2, 3):
            ours = rows.copy(), base.copy()
            measured = compiled_rows_fold(ours[0], stay, gone, Y, ours[1], shift, threads)
            each.append((ours[0][:k], ours[1], measured))
            known = np.float64(ours[0][:k])
            assert np.abs(measured - known @ known.T).max() <= p * eps * np.square(known).max()
        for other in each[1:]:
            assert all(map(np.array_equal, each[0], other))
        assert np.abs(ours[0][:k] - theirs[0][:k]).max() <= 100 * eps * (1 + np.abs(Y).max())
        assert np.abs(ours[1] - theirs[1]).max() <= 200 * eps


@pytest.mark.parametrize("threads", [1, 2, 3])
@given(seeds, st.integers(0, 9), st.integers(1, 9), st.integers(1, 20_000))
def test_rows_meet_all_that_is_stored(threads, seed, s, n, p):
    """One pass: what is left of X is written behind the rows, and multiplied with all."""
    rng = np.random.default_rng(seed)
    rows, base, X = (rng.standard_normal((count, p)) for count in (s + n, 2, n))
    for A in (np.empty(0), rng.standard_normal(s)):
        expected = 0.5 * X + A @ rows[: len(A)]
        out = compiled_read(rows, s, base, X, 0.5, A, threads)
        assert np.abs(rows[s:] - expected).max() <= 1e-13
        products = np.hstack([np.tril(expected @ rows.T, s), expected @ base.T])
        seen = np.hstack([np.tril(out[:, : s + n], s), out[:, s + n :]])  # others may be there
        assert np.abs(seen - products).max() <= 1e-12 * p
    assert np.abs(compiled_gram(rows, s) - rows[:s] @ rows[:s].T).max(initial=0) <= 1e-12 * p


@given(seeds, st.integers(0, 40), st.integers(1, 9), st.integers(1, 20_000), st.integers(1, 6))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products_are_the_same_to_the_last_bit(dtype, seed, s, n, p, q):
    """However many rows are read for at once, and whoever shares the work."""
    rng = np.random.default_rng(seed)
    rows, base, X = (rng.standard_normal((count, p)).astype(dtype) for count in (s + 9, q, n))
    together = compiled_read(rows, s, base, X, 1.0, np.empty(0), 1)
    on_threads = compiled_read(rows, s, base, X, 1.0, np.empty(0), 3)
    known = np.tri(n, s + n + q, s, dtype=bool)
    known[:, s + n :] = True
    assert np.array_equal(together[known], on_threads[known])
    for i in range(n):
        alone = compiled_read(rows, s + i, base, X[i : i + 1], 1.0, np.empty(0), 2)[0]
        assert np.array_equal(alone, together[i][known[i]])


@njit
def compiled_turned(V, W, threads):
    return kernels.turned(V, W, threads)


@given(seeds, st.integers(64, 140), st.integers(0, 30))
def test_turning_is_the_same_to_the_last_bit(seed, k, extra):
    """However many threads share the rows."""
    rng = np.random.default_rng(seed)
    V, W = rng.standard_normal((k, k + 1)), rng.standard_normal((k + 1, k + extra))
    alone = compiled_turned(V, W, 1)
    assert np.abs(alone - V @ W).max() <= 1e-12 * k
    for threads in (2, 3, 17, 32, 100):
        assert np.array_equal(compiled_turned(V, W, threads), alone)


def test_many_parameters_are_shared_among_threads(rng):
    p = sharing.PARALLEL + 100
    X, y = rng.standard_normal((30, p)), rng.standard_normal(30)
    ours, theirs = (orfit.ORFit(orfit.Linear(p), 5, rows=rows) for rows in ("compiled", "plain"))
    assert sharing.threads(p, 30) == sharing.get_num_threads()
    for learner in (ours, theirs):
        learner.learn_each(X, y)
    assert np.abs(ours.w - theirs.w).max() <= 1e-13
    assert ours.memory.sigma == pytest.approx(theirs.memory.sigma)
