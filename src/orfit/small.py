"""Small dense algebra: matrices with sides of the size k + n, always float64.

What the memory knows of the past is kept as an upper triangular R, and every change of it keeps
it triangular in O(k²): new rows (`grow`), a direction less (`delete`, `reflect`).
"""

import math

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack

from orfit.door import Array


def frobenius(A: Array) -> float:
    """The root of the sum of squares, also where the squares overflow."""
    if not A.size:
        return 0.0
    numbers = A.ravel(order="K")
    square = blas.ddot(numbers, numbers)
    # nrm2 is safe for all numbers, and ten times slower.
    return math.sqrt(square) if 1e-280 < square < 1e300 else float(blas.dnrm2(numbers))


def product(A: Array, B: Array) -> Array:
    """A B, by SciPy's BLAS as all that may be large (see `tall`)."""
    if B.ndim == 1 or len(A) == 1 or B.shape[1] == 1:  # too few for threads
        return np.asarray(A @ B)
    if not A.size or not B.size:
        return np.zeros((len(A), B.shape[1]))
    # Rows before rows: that is how small matrices lie, and dgemm would copy them.
    return np.asarray(blas.dgemm(1.0, B.T, A.T)).T


def cholesky(S: Array, rounding: Array) -> tuple[Array, Array, float]:
    """Upper triangular T with TᵀT = S, its inverse, and what is lost of orthonormality by it.

    An error in S of eps times rounding roundingᵀ becomes one of eps times that in T⁻ᵀ S T⁻¹ = I.
    Infinity stands for a matrix that is not positive definite.
    """
    if len(S) == 1:
        if not S[0, 0] > 0:
            return S, S, np.inf
        T = np.sqrt(S)
        return T, 1 / T, float(rounding[0] ** 2 / S[0, 0])
    if not len(S):
        return S, S, 0.0
    T, info = lapack.dpotrf(S)
    if info == 0:
        inverse, info = lapack.dtrtri(T)
    if info != 0:
        return S, S, np.inf
    return T, inverse, float((rounding**2 @ inverse**2).max(initial=0.0))


def triangle(A: Array) -> Array:
    """An upper triangular, square R with Rᵀ R = Aᵀ A (the R of a QR)."""
    rows, columns = A.shape
    if not columns:
        return np.empty((0, 0))
    if rows < columns:
        A = np.vstack([A, np.zeros((columns - rows, columns))])
    return np.triu(lapack.dgeqrf(A)[0][:columns])


def grow(R: Array, rows: Array, diagonal: float = 0.0) -> Array:
    """Upper triangular R' with R'ᵀ R' = Rᵀ R + rowsᵀ rows. O(k² n).

    `rows` (n×k') may be wider than R (k×k): the new unknowns start with `diagonal` on R's diagonal.
    LAPACK's tpqrt is a QR that knows that the upper block is triangular already. In blocks of one:
    larger ones call trmv, which OpenBLAS runs on all threads from 20×20 on, and where a core is
    busy its threads wait for each other for 20 ms at a time.
    """
    k, n, wide = R.shape[0], rows.shape[0], rows.shape[1]
    start = np.zeros((wide, wide), order="F")
    start[:k, :k] = R
    start[range(k, wide), range(k, wide)] = diagonal
    if not n or not wide:
        return start
    return np.asarray(lapack.dtpqrt(0, 1, start, rows, overwrite_a=True)[0])


def delete(R: Array, j: int) -> Array:
    """Upper triangular R' with R'ᵀ R' = Rᵀ R less its j-th row and column. O(k²)."""
    identity = np.eye(len(R), order="F")
    return np.asarray(linalg.qr_delete(identity, R, j, which="col", check_finite=False)[1][:-1])


def reflect(R: Array, u: Array) -> Array:
    """Upper triangular R' with R'ᵀ R' = Hᵀ Rᵀ R H less the last row and column. O(k²).

    H = I − 2 u uᵀ, so R H is R with a change of rank one.
    """
    identity = np.eye(len(R), order="F")
    change = -2 * blas.dgemv(1.0, R, u)  # not trmv: see `grow`
    return np.asarray(linalg.qr_update(identity, R, change, u, check_finite=False)[1][:-1, :-1])


# From this size on faster methods are tried first, as long as they lose few digits: with a ratio of
# the largest to the smallest singular value, R's own SVD loses so much, and RᵀR the square of it.
FAST_SIZE, MOST_LOST = 64, 1024.0


def principal(R: Array) -> tuple[Array, Array]:
    """Singular values, falling, and the right singular vectors of R (as long as wide) as columns.

    By Jacobi's method, to which columns of very different scale do no harm (Drmač, Veselić 2008):
    what was seen along a direction must be known beside noise, not beside what was seen most.
    """
    if not R.shape[1]:
        return np.empty(0), np.empty((0, 0))
    scale = np.abs(R).max()
    if scale == 0:
        return np.zeros(R.shape[1]), np.eye(R.shape[1])
    if R.shape[1] >= FAST_SIZE:
        near_one = R / scale
        lengths = np.sqrt((near_one * near_one).sum(axis=0))
        for method, ratio in ((_by_squares, math.sqrt(MOST_LOST)), (_by_halves, MOST_LOST)):
            if lengths.max() < ratio * lengths.min():  # else the singular values are not so either
                sigma, V, info = method(near_one)
                if info == 0 and sigma[0] < ratio * sigma[-1]:
                    return scale * sigma, V
    sigma, _, V, factors, _, info = lapack.dgejsv(R, joba=0, jobu=3)
    if info != 0:  # rare, and gesvd converges then
        _, sigma, Vt = linalg.svd(R, lapack_driver="gesvd", full_matrices=False)
        return sigma, Vt.T
    return sigma * (factors[0] / factors[1]), V


def _by_squares(R: Array) -> tuple[Array, Array, int]:
    squares, V, info = lapack.dsyevd(blas.dsyrk(1.0, R, trans=1))
    return np.sqrt(np.maximum(squares[::-1], 0.0)), V[:, ::-1], info


def _by_halves(R: Array) -> tuple[Array, Array, int]:
    _, sigma, Vt, info = lapack.dgesdd(R, full_matrices=0)
    return sigma, Vt.T, info


class Provenance:
    """The gradients that made a frame's rows, as unit vectors: what tells rounding from news.

    A direction found as a short remainder of a long row is known no better than that. A later row
    with a part along it leaves a remainder of that uncertainty, which is no new direction. How much
    of it is told by writing the row as a combination of the rows that made the directions: each
    carries its own rounding, eps of its length, times its coefficient.

    rows: s×s lower triangular, those gradients as combinations of the frame's rows.
    """

    def __init__(self, rows: Array | None = None) -> None:
        self.rows = np.empty((0, 0), order="F") if rows is None else rows

    def uncertainty(self, coordinates: Array, length: float) -> float:
        """What rounding is measured by: a row's length, and its coefficients in these gradients."""
        if not coordinates.size:
            return length
        coefficients = blas.dtrsv(self.rows, coordinates, lower=1, trans=1)
        return float(np.hypot(length, frobenius(coefficients)))

    def grown(self, coordinates: Array, remainder: float, length: float) -> "Provenance":
        """With one more maker: a row of that length, its coordinates, and what was new of it."""
        k, made = len(self.rows), self.with_rows(1)
        made.rows[k, :k], made.rows[k, k] = coordinates / length, remainder / length
        return made

    def with_rows(self, count: int) -> "Provenance":
        """With gradients that are rows of the frame themselves."""
        k = len(self.rows)
        rows = np.eye(k + count, order="F")
        rows[:k, :k] = self.rows
        return Provenance(rows)


def staircase(
    R: Array, C: Array, norms: Array, provenance: Provenance | None, cutoff: float
) -> tuple[Array | None, Array, Provenance | None]:
    """R = K T, K with orthonormal columns, T a staircase: one step for each column that is new.

    R: of a QR of what was left of columns with lengths `norms` and coordinates C (k×n) along the
    past. Gram–Schmidt, twice, in the order of the columns; a remainder up to cutoff times what
    `provenance` leaves uncertain (None: the column's length) is rounding and makes no step. K is
    None for the identity, where every column is new. The third result: the provenance, grown.
    """
    n = R.shape[1]
    most = min(R.shape)
    if provenance is None and most == n and (np.abs(np.diag(R)) > cutoff * norms).all():
        return None, R, None
    K, T = np.empty((R.shape[0], most), order="F"), np.zeros((most, n))
    r = 0
    for j in range(n):
        v = R[:, j].copy()
        for _ in range(2):
            c = K[:, :r].T @ v
            v -= K[:, :r] @ c
            T[:r, j] += c
        length = frobenius(v)
        along = np.concatenate([C[:, j], T[:r, j]])
        uncertainty = norms[j] if provenance is None else provenance.uncertainty(along, norms[j])
        if length > cutoff * uncertainty and r < most:
            K[:, r], T[r, j] = v / length, length
            provenance = None if provenance is None else provenance.grown(along, length, norms[j])
            r += 1
        else:
            # What is rounding must not be fitted either.
            T[:r, j][np.abs(T[:r, j]) <= cutoff * uncertainty] = 0.0
    if r == n == len(R):
        return None, R, provenance
    return K[:, :r], T[:r], provenance


def left_vectors(T: Array) -> tuple[Array, Array]:
    """The left singular vectors of T (r×n), r ≤ n, and its singular values."""
    if len(T) == 0:  # which SciPy 1.11 refuses
        return np.empty((0, 0)), np.empty(0)
    if len(T) == 1:
        return np.ones((1, 1)), np.array([frobenius(T)])
    W, s, _ = linalg.svd(T, full_matrices=False)
    return W, s


def pivots(T: Array) -> Array:
    """The column at which each row of a staircase starts."""
    return np.asarray(np.argmax(T != 0, axis=1))


def fit(B: Array, noise: float, residual: Array) -> tuple[Array, Array]:
    """The step in coordinates: z = B (Bᵀ B + noise I)⁺ residual, and what it leaves unfitted.

    That is the minimiser of |Bᵀ z − residual|² + noise |z|², found from B itself: Bᵀ B would
    square its condition number. With noise = 0, B is a staircase of full row rank (`staircase`);
    then a square B is forward substitution, which is learning one by one, and a wide one least
    squares.
    """
    steps, n = B.shape
    if steps == 0:
        return np.zeros((0, *residual.shape[1:])), residual
    if noise > 0:
        if n == 1:
            length = frobenius(B)
            gain, left = _damping(length, noise)
            return (B / length if length else B) @ (gain * residual), left * residual
        W, s, Vt = linalg.svd(B, full_matrices=False, check_finite=False)
        along = Vt @ residual
        gain, left = np.transpose([_damping(length, noise) for length in s])
        return W @ (gain * along.T).T, residual - Vt.T @ ((1 - left) * along.T).T
    if steps == n:
        return linalg.solve_triangular(B, residual, trans="T"), np.zeros_like(residual)
    # Long rows first, then pivoted Householder: stable row by row, so that rows of very
    # different scale in one block all count (Cox and Higham, 1998).
    order = np.argsort(-np.abs(B).max(axis=0), kind="stable")
    Q, R, pivot = linalg.qr(B.T[order], mode="economic", pivoting=True)
    z = np.empty((steps, *residual.shape[1:]))
    z[pivot] = linalg.solve_triangular(R, Q.T @ residual[order])
    return z, residual - B.T @ z


def innovations(B: Array, noise: float, residual: Array, z: Array) -> tuple[Array, Array]:
    """The residual, each line beside what those before it let expect, and its variance.

    u = L⁻¹ residual for L Lᵀ = S = Bᵀ B + noise I, and the diagonal of S. z: the step (`fit`).
    Without noise S may be singular: then z is u, at the columns at which B's stairs begin; at the
    others nothing is expected, and the variance is zero.
    """
    with np.errstate(over="ignore"):  # such a step is refused, or tells nothing
        variance = (B * B).sum(axis=0) + noise
    u = np.zeros_like(residual)
    if noise == 0:
        news = pivots(B) if len(B) else np.empty(0, int)
        u[news] = z
        expected = np.zeros(len(variance), bool)
        expected[news] = True
        return u, np.where(expected, variance, 0.0)
    if len(residual) == 1:
        with np.errstate(over="ignore"):
            return residual / np.sqrt(variance), variance
    S = product(B.T, B)
    S[range(len(S)), range(len(S))] += noise
    L, info = lapack.dpotrf(S, lower=1)
    if info != 0 or not np.isfinite(variance).all():
        return u, np.zeros(len(variance))
    return linalg.solve_triangular(L, residual, lower=True), variance


def _damping(s: float, noise: float) -> tuple[float, float]:
    """What is s / (s² + noise), and noise / (s² + noise), also where s² is no number."""
    if s == 0:
        return 0.0, 1.0
    ratio = noise / s
    return 1 / (s + ratio), ratio / (s + ratio)
