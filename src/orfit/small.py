"""Small dense algebra: matrices with sides of the size k + n, always float64.

What the memory knows of the past is kept as an upper triangular R, and every change of it keeps
it triangular in O(k²): new rows (`grow`), a direction less (`delete`, `reflect`).
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import blas, lapack

from orfit.door import Array

# What must be left of a gradient for one projection to be enough. A direction inherits
# what its predecessors lack of being orthogonal, times |c| / t: up to 1 that adds up slowly, beyond
# it grows like a power.
MUCH = 0.5**0.5


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
    if B.ndim == 1:
        return np.asarray(A @ B)
    if not A.size or not B.size:
        return np.zeros((len(A), B.shape[1]))
    return np.asarray(blas.dgemm(1.0, A, B))


def cholesky(S: Array, norms: Array) -> tuple[Array, Array, float]:
    """Upper triangular T with TᵀT = S, its inverse, and how much that magnifies columns of `norms`.

    Of S the upper triangle is read. Infinity stands for a matrix that is not positive definite.
    """
    T, info = lapack.dpotrf(S)
    if info == 0:
        inverse, info = lapack.dtrtri(T)
    if info != 0:
        return S, S, np.inf
    magnified = np.linalg.norm(norms[:, None] * inverse, axis=0).max(initial=0.0)
    return T, inverse, float(magnified)


# How much longer than others the vectors that `spare` keeps may make some: rounding, too, grows by
# as much. A 1-norm is up to the root of k larger.
CROOKED = 30.0


def spare(C: Array, stored: int) -> tuple[NDArray[np.intp], Array] | None:
    """Which k rows of C (s×k) all are combinations of: C = (E + Y) C[stay], Y zero where they are.

    E has a one for each of `stay`. Of the first `stored` rows, one that stays among the first k
    keeps its place. Found by elimination with pivots, which keeps Y small: it hardly ever exceeds
    5. None where C[stay] is so crooked all the same that it would magnify rounding.
    """
    k = C.shape[1]
    factors, swaps, info = lapack.dgetrf(C)
    if info != 0:
        return None
    order = list(range(len(C)))
    for i, j in enumerate(swaps):
        order[i], order[j] = order[j], order[i]
    kept, gone = order[:k], order[k:]
    reciprocal, _ = lapack.dgecon(factors[:k], np.abs(C[kept]).sum(axis=0).max())
    if not reciprocal * CROOKED * k**0.5 > 1:
        return None
    settled = {j for j in kept if j < min(k, stored)}
    free = iter(sorted(set(range(k)) - settled))
    place = [j if j in settled else next(free) for j in kept]
    stay, Y = np.empty(k, np.intp), np.zeros(C.shape)
    stay[place] = kept
    shares = blas.dtrsm(1.0, factors[:k], factors[k:], side=1, lower=1, diag=1)
    Y[np.ix_(gone, place)] = shares
    return stay, Y


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


def least(R: Array) -> Array:
    """The right singular vector of R for its smallest singular value.

    It is the top eigenvector of (RᵀR)⁻¹, which shows it as sharply as an SVD of R does and costs
    a tenth of it; RᵀR itself would blur it by the square of R's condition number.
    """
    # Not potri: OpenBLAS runs it on all threads at any size, milliseconds where a core is busy.
    inverse, info = lapack.dtrtri(R / np.abs(R).max())
    if info == 0:
        k = len(R)
        with np.errstate(over="ignore"):
            squared = blas.dsyrk(1.0, inverse)
        if np.isfinite(np.diag(squared)).all():
            _, vectors, _, _, info = lapack.dsyevr(squared, range="I", il=k, iu=k)
            if info == 0:
                return np.asarray(vectors[:, 0])
    return np.asarray(principal(R)[1][:, -1])


# From this size on RᵀR is tried first, in half the time; it loses as many digits as the ratio of
# the largest to the smallest singular value has, so that ratio is limited.
LARGE, NARROW = 64, 32.0


def principal(R: Array) -> tuple[Array, Array]:
    """Singular values, falling, and the right singular vectors of R as columns."""
    if not len(R):
        return np.empty(0), np.empty((0, 0))
    scale = np.abs(R).max()
    if len(R) >= LARGE and scale > 0:
        squares, V, info = lapack.dsyevd(blas.dsyrk(1.0, R / scale, trans=1))
        if info == 0 and squares[0] > squares[-1] / NARROW**2:
            return scale * np.sqrt(squares[::-1]), V[:, ::-1]
    _, sigma, Vt, info = lapack.dgesdd(R)
    if info != 0:  # rare, and gesvd converges then
        _, sigma, Vt = linalg.svd(R, lapack_driver="gesvd")
    return sigma, Vt.T


class Makers:
    """The rows that made the directions, each divided by its length: what tells rounding from news.

    A direction found as a short remainder of a long row is known no better than that. A later row
    with a part along it leaves a remainder of that uncertainty, which is no new direction. How much
    of it is told by writing the row as a combination of the rows that made the directions: each
    carries its own rounding, eps of its length, times its coefficient.

    rows: k×k lower triangular, the makers in coordinates of the directions.
    """

    def __init__(self, rows: Array | None = None) -> None:
        self.rows = np.empty((0, 0), order="F") if rows is None else rows

    def doubt(self, coordinates: Array, length: float) -> float:
        """What rounding is measured by: a row's length, and its coefficients in the makers."""
        if not coordinates.size:
            return length
        coefficients = blas.dtrsv(self.rows, coordinates, lower=1, trans=1)
        return float(np.hypot(length, frobenius(coefficients)))

    def grown(self, coordinates: Array, remainder: float, length: float) -> "Makers":
        """With one more maker: a row of that length, its coordinates, and what was new of it."""
        k = len(self.rows)
        rows = np.zeros((k + 1, k + 1), order="F")
        rows[:k, :k] = self.rows
        rows[k, :k], rows[k, k] = coordinates / length, remainder / length
        return Makers(rows)


def staircase(
    R: Array, C: Array, norms: Array, makers: Makers | None, cutoff: float
) -> tuple[Array | None, Array, Makers | None]:
    """R = K T, K with orthonormal columns, T a staircase: one step for each column that is new.

    R: of a QR of what was left of columns with lengths `norms` and coordinates C (k×n) along the
    past. Gram–Schmidt, twice, in the order of the columns; a remainder up to cutoff times what
    `makers` doubt (None: the column's length alone) is rounding and makes no step. K is None for
    the identity, where every column is new. The third result: the makers, grown.
    """
    n = R.shape[1]
    most = min(R.shape)
    if makers is None and most == n and (np.abs(np.diag(R)) > cutoff * norms).all():
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
        doubt = norms[j] if makers is None else makers.doubt(along, norms[j])
        if length > cutoff * doubt and r < most:
            K[:, r], T[r, j] = v / length, length
            makers = None if makers is None else makers.grown(along, length, norms[j])
            r += 1
        else:
            # What is rounding must not be fitted either.
            T[:r, j][np.abs(T[:r, j]) <= cutoff * doubt] = 0.0
    if r == n == len(R):
        return None, R, makers
    return K[:, :r], T[:r], makers


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


def _damping(s: float, noise: float) -> tuple[float, float]:
    """What is s / (s² + noise), and noise / (s² + noise), also where s² is no number."""
    if s == 0:
        return 0.0, 1.0
    ratio = noise / s
    return 1 / (s + ratio), ratio / (s + ratio)
