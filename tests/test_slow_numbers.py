"""Long streams, and rows that are hard, beside exact arithmetic: `make test-all`, some minutes.

Rows are whole numbers, or whole numbers times powers of two, so that what they add up to is exact;
what follows from it is computed by mpmath with fifty digits.
"""

import resource

import mpmath
import numpy as np
import pytest

import orfit
from test_degenerate import off_orthonormal

pytestmark = pytest.mark.slow

CHUNK = 10_000
ROWS = 20_000
P, RANK, M = 48, 12, 16
# In float64 this is what memory/frame.py tolerates: eps times the amplification of a direction that
# is known as a long combination of rows.
ORTHONORMAL = {np.float32: 1e-5, np.float64: 2e-12}
both = pytest.mark.parametrize("dtype", list(ORTHONORMAL), ids=lambda dtype: dtype.__name__)


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


exact = np.vectorize(mpmath.mpf, otypes=[object])


def solved(A, b):
    """A⁻¹ b of exact numbers."""
    return np.array([float(x) for x in mpmath.lu_solve(mpmath.matrix(A), mpmath.matrix(b))])


def ridge(X, y, noise, weights=1):
    """argmin Σ weights (y − X w)² + noise |w|² of the numbers as they are."""
    X, y = exact(X), exact(y)
    weighted = X.T * weights
    return solved(weighted @ X + mpmath.mpf(noise) * np.eye(X.shape[1], dtype=int), weighted @ y)


def error(w, expected):
    return np.linalg.norm(w - expected) / np.linalg.norm(expected)


def chunks(rng, n, dtype):
    """Rows of whole numbers that span RANK directions, and labels that are whole numbers."""
    B, true = rng.integers(-1, 2, (RANK, P)), rng.integers(-3, 4, P)
    for _ in range(n // CHUNK):
        X = rng.integers(-2, 3, (CHUNK, RANK)) @ B
        y = X @ true + rng.integers(-5, 6, CHUNK)
        yield X.astype(dtype), y.astype(dtype)


def grown(learner, stream):
    """Learn it; tells by how many MB the process grew after the first tenth."""
    sizes = []
    for X, y in stream:
        learner.learn_each(X, y)
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return sizes[-1] - sizes[len(sizes) // 10]


def sums(stream, into):
    """The same stream; what its products add up to is added to `into`, without rounding."""
    for X, y in stream:
        into["A"] += X.T.astype(np.float64) @ X
        into["b"] += X.T.astype(np.float64) @ y
        yield X, y


@both
def test_ridge_of_many_rows(dtype, rng):
    """All that the stream spans is kept, so w is that of ridge regression."""
    learner = orfit.ORFit(orfit.Linear(P), M, noise=1.0, w0=np.zeros(P, dtype))
    total = {"A": np.zeros((P, P)), "b": np.zeros(P)}
    more = grown(learner, sums(chunks(rng, ROWS, dtype), total))
    expected = solved(total["A"] + np.eye(P), total["b"])
    print(off_orthonormal(learner.memory.U), error(learner.w, expected), more)
    assert off_orthonormal(learner.memory.U) <= ORTHONORMAL[dtype]
    assert error(learner.w, expected) <= (1e-4 if dtype is np.float32 else 1e-10)
    assert more <= 20


@both
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_directions_that_are_replaced_many_times(mean, dtype, rng):
    """More directions than are kept, and rows of one sign, where rounding had gathered."""
    learner = orfit.ORFit(orfit.Linear(P), M, noise=1.0, w0=np.zeros(P, dtype))

    def stream():
        for _ in range(ROWS // CHUNK):
            X = (mean + rng.standard_normal((CHUNK, P))).astype(dtype)
            yield X, X[:, 0]

    more = grown(learner, stream())
    print(off_orthonormal(learner.memory.U), more)
    assert off_orthonormal(learner.memory.U) <= ORTHONORMAL[dtype]
    assert np.isfinite(learner.w).all()
    assert more <= 20


def test_rls_of_many_rows(rng):
    learner = orfit.RLS(orfit.Linear(P))
    total = {"A": np.zeros((P, P)), "b": np.zeros(P)}
    more = grown(learner, sums(chunks(rng, ROWS, float), total))
    expected = solved(total["A"] + np.eye(P), total["b"])
    print(error(learner.w, expected), more)
    # P is rounded at every row, twice, to one side, and w with it (a bounded memory is a thousand
    # times closer: what it has seen much of, it turns no more). Plain steps come to 1.03 eps a row.
    assert error(learner.w, expected) <= 2 * ROWS * np.finfo(float).eps
    assert more <= 20


def faded(rng, n, size):
    """Rows of whole numbers of both signs, and labels that no w explains."""
    X = rng.integers(-3, 4, (n, size))
    return X.astype(float), (X @ np.arange(1, size + 1) + rng.integers(-5, 6, n)).astype(float)


LAST = 1500  # rows at forgetting 0.9 after which what was before is 1e-68


def test_rls_forgets_for_many_steps(rng):
    X, y = faded(rng, ROWS, 8)
    learner = orfit.RLS(orfit.Linear(8), forgetting=0.9)
    learner.learn_each(X, y)
    weights = mpmath.mpf(0.9) ** np.arange(LAST)[::-1]
    expected = ridge(X[-LAST:], y[-LAST:], 0, weights)
    print(error(learner.w, expected))
    assert error(learner.w, expected) <= 1e-11


def test_orfit_forgets_for_many_steps(rng):
    """The prior keeps its weight: what is forgotten of the data goes to the present w."""
    X, y = faded(rng, ROWS, 8)
    learner = orfit.ORFit(orfit.Linear(8), 8, noise=1.0, forgetting=0.9)
    learner.learn_each(X, y)
    keep, w = mpmath.mpf(0.9), exact(np.zeros(8))
    seen = np.zeros((8, 8), int) * mpmath.mpf(0)
    for x, label in zip(exact(X[-LAST:]), exact(y[-LAST:]), strict=True):
        seen = keep * seen + np.outer(x, x)
        step = mpmath.lu_solve(
            mpmath.matrix(seen + np.eye(8, dtype=int)), mpmath.matrix(x * (label - x @ w))
        )
        w = w + np.array(list(step))
    expected = w.astype(float)
    print(error(learner.w, expected))
    assert error(learner.w, expected) <= 1e-11


@pytest.mark.parametrize("make", [orfit.RLS, orfit.ORFit])
def test_what_the_stream_has_left_for_many_steps(make, rng):
    """Half of the parameters are never seen again: they stay, and the others are still learned."""
    X, y = faded(rng, ROWS, 8)
    X[1000:, 4:] = 0
    y[1000:] = X[1000:] @ np.arange(1, 9) + rng.integers(-5, 6, len(y) - 1000)
    settings = {} if make is orfit.RLS else {"memory": 8, "noise": 1e-6}
    learner = make(orfit.Linear(8), forgetting=0.9, **settings)
    learner.learn_each(X[:1000], y[:1000])
    before, farthest = learner.w, 0.0
    for x, label in zip(X[1000:], y[1000:], strict=True):
        learner.learn(x, label)
        farthest = max(farthest, np.linalg.norm(learner.w[:4] - before[:4]))
    weights = mpmath.mpf(0.9) ** np.arange(LAST)[::-1]
    expected = ridge(X[-LAST:, :4], y[-LAST:], 0, weights)
    assert error(learner.w[:4], expected) <= 1e-6
    # The rows that determined w₂ determined it given w₁: where w₁ moves, least squares moves w₂ by
    # Δw₂ = −(X₂ᵀX₂)⁻¹ X₂ᵀX₁ Δw₁, with weighted rows. Restoring the prior only lessens it.
    root = np.sqrt(0.9 ** np.arange(1000)[::-1])[:, None]
    coupling = np.linalg.lstsq(root * X[:1000, 4:], root * X[:1000, :4], rcond=None)[0]
    moved = np.linalg.norm(learner.w[4:] - before[4:])
    print(error(learner.w[:4], expected), moved, np.linalg.norm(coupling, 2) * farthest)
    assert moved <= np.linalg.norm(coupling, 2) * farthest


@pytest.fixture(scope="module")
def alternating():
    """Rows of 1e8 and of 1e-8 in turn, without noise: the learner, and the w that they tell."""
    rng, large = np.random.default_rng(20), 2.0**27
    B, true = rng.integers(-1, 2, (RANK, P)), rng.integers(-3, 4, P)
    learner = orfit.ORFit(orfit.Linear(P), M)
    for _ in range(ROWS // CHUNK):
        Z = rng.integers(-2, 3, (CHUNK, RANK))
        Z[::2, RANK // 2 :] = 0  # large rows say nothing of half of the directions
        X = (Z @ B).astype(float)
        scale = np.where(np.arange(CHUNK) % 2, 1 / large, large)
        learner.learn_each(X * scale[:, None], (X @ true) * scale)
    space = exact(B)
    along = mpmath.lu_solve(mpmath.matrix(space @ space.T), mpmath.matrix(space @ true))
    return learner, (space.T @ np.array(list(along))).astype(float)


def test_scales_that_alternate(alternating):
    """Both count, however long it goes on."""
    learner, expected = alternating
    print(error(learner.w, expected))
    assert learner.memory.rank == RANK
    assert error(learner.w, expected) <= 1e-13


def test_directions_stay_orthonormal_while_scales_alternate(alternating):
    """Nothing is new after the first rows, so no compaction happens: only rotations round W."""
    learner, _ = alternating
    print(off_orthonormal(learner.memory.U), learner.memory.sigma)
    assert learner._cell.state.compactions == 0
    assert off_orthonormal(learner.memory.U) <= ORTHONORMAL[np.float64]
    # What large rows say of the other directions is rounding.
    assert learner.memory.sigma[RANK // 2] <= 100 * np.finfo(float).eps * learner.memory.sigma[0]


def krylov(size):
    """x, A x, A² x, …: each is closer to the eigenvector of most."""
    rows = [np.ones(size)]
    for _ in range(size - 1):
        rows.append(rows[-1] * np.arange(1, size + 1) / size)
    return np.array(rows)


def hilbert(size):
    return 1 / (np.arange(size)[:, None] + np.arange(size) + 1.0)


def nearly_parallel(size):
    return 1 + 2.0**-26 * np.random.default_rng(0).integers(-4, 5, (size, size))


HARD = [krylov, hilbert, nearly_parallel]


@pytest.mark.parametrize("noise", [1e-4, 1e-10])
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda noise: orfit.ORFit(orfit.Linear(12), noise=noise), id="unlimited"),
        pytest.param(lambda noise: orfit.ORFit(orfit.Linear(12), 12, noise=noise), id="m=12"),
        pytest.param(lambda noise: orfit.EKF(orfit.Linear(12), noise=noise), id="EKF"),
    ],
)
def test_rows_that_hardly_differ(make, kind, noise):
    """A hundred rounds of them; as far from the exact w as the condition of the problem allows."""
    X = np.tile(kind(12), (100, 1))
    y = np.tile(np.random.default_rng(1).integers(-9, 10, 12).astype(float), 100)
    learner = make(noise)
    learner.learn_each(X, y)
    expected = ridge(kind(12), y[:12], noise, 100)
    # Least squares of [X; √noise I]: its condition κ, and κ² times what is left of y (Wedin).
    sigma = np.linalg.norm(X, 2)
    kappa = np.sqrt((sigma**2 + noise) / noise)
    left = np.hypot(np.linalg.norm(y - X @ expected), np.sqrt(noise) * np.linalg.norm(expected))
    condition = kappa + kappa**2 * left / (sigma * np.linalg.norm(expected))
    off = error(learner.w, expected) / (condition * np.finfo(float).eps)
    print(f"{off:.1e} of what the condition {condition:.0e} allows")
    assert off <= 10
