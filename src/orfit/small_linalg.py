"""Small dense algebra: matrices with sides of the size k + n, always float64.

The past of a memory is kept as an upper triangular R, and every change of it keeps
it triangular in O(k²): new rows (`grow`), an unknown less (`delete`).
"""

import math

import numpy as np
import scipy

from orfit.validation import Array


def frobenius(A: Array) -> float:
    """The root of the sum of squares, also where the squares overflow."""
    if not A.size:
        return 0.0
    numbers = A.ravel(order="K")
    square = scipy.linalg.blas.ddot(numbers, numbers)
    # nrm2 is safe for all numbers, and ten times slower.
    return math.sqrt(square) if 1e-280 < square < 1e300 else float(scipy.linalg.blas.dnrm2(numbers))


def product(A: Array, B: Array) -> Array:
    """A B, by SciPy's BLAS as all that may be large (see `tall`)."""
    if B.ndim == 1 or len(A) == 1 or B.shape[1] == 1:  # too few for threads
        return np.asarray(A @ B)
    if not A.size or not B.size:
        return np.zeros((len(A), B.shape[1]))
    # Rows before rows: that is how small matrices lie, and dgemm would copy them.
    return np.asarray(scipy.linalg.blas.dgemm(1.0, B.T, A.T)).T


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
    T, info = scipy.linalg.lapack.dpotrf(S)
    if info == 0:
        inverse, info = scipy.linalg.lapack.dtrtri(T)
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
    return np.triu(scipy.linalg.lapack.dgeqrf(A)[0][:columns])


def grow(R: Array, rows: Array, diagonal: float = 0.0) -> Array:
    """Upper triangular R' with R'ᵀ R' = Rᵀ R + rowsᵀ rows. O(k² n).

    `rows` (n×k') may be wider than R (k×k): the new unknowns start with `diagonal` on R's diagonal.
    LAPACK's tpqrt is a QR for an upper block that is triangular already. In blocks of one:
    larger ones call trmv, which OpenBLAS runs on all threads from 20×20 on, and where a core is
    busy its threads wait for each other for 20 ms at a time.
    """
    k, n, wide = R.shape[0], rows.shape[0], rows.shape[1]
    start = np.zeros((wide, wide), order="F")
    start[:k, :k] = R
    start[range(k, wide), range(k, wide)] = diagonal
    if not n or not wide:
        return start
    return np.asarray(scipy.linalg.lapack.dtpqrt(0, 1, start, rows, overwrite_a=True)[0])


def delete(R: Array, j: int) -> Array:
    """Upper triangular R' with R'ᵀ R' = Rᵀ R less its j-th row and column. O(k²)."""
    identity = np.eye(len(R), order="F")
    return np.asarray(
        scipy.linalg.qr_delete(identity, R, j, which="col", check_finite=False)[1][:-1]
    )


# From this size on faster methods are tried first, as long as they lose few digits: with a ratio of
# the largest to the smallest singular value, R's own SVD loses so much, and RᵀR the square of it.
FAST_SIZE, MOST_LOST = 64, 1024.0


def principal(
    R: Array, count: int | None = None, diagonal: Array | None = None
) -> tuple[Array, Array]:
    """Singular values, falling, and the first `count` right singular vectors of R as columns.

    diagonal: those of [diag(diagonal); R]. Without it, R is at least as long as wide.

    By Jacobi's method, to which columns of very different scale do no harm (Drmač, Veselić 2008):
    what was seen along a direction must be known beside noise, not beside what was seen most.
    """
    width = R.shape[1]
    above = np.zeros(0) if diagonal is None else diagonal
    scale = max(np.abs(R).max(initial=0.0), above.max(initial=0.0))
    if scale == 0:
        return np.zeros(width), np.eye(width)[:, :count]
    if width >= FAST_SIZE:
        squares = scipy.linalg.blas.dsyrk(1.0, R / scale, trans=1)
        squares.flat[: len(above) * width : width + 1] += (above / scale) ** 2
        lengths = np.sqrt(squares.diagonal())
        for method, ratio in ((_by_squares, math.sqrt(MOST_LOST)), (_by_halves, MOST_LOST)):
            if lengths.max() < ratio * lengths.min():  # else the singular values are not so either
                sigma, V, info = method(squares, R / scale, above / scale)
                if info == 0 and sigma[0] < ratio * sigma[-1]:
                    return scale * sigma, V[:, :count]
    R = _stacked(R, above)
    sigma, _, V, factors, _, info = scipy.linalg.lapack.dgejsv(R, joba=0, jobu=3)
    if info != 0:  # rare, and gesvd converges then
        _, sigma, Vt = scipy.linalg.svd(R, lapack_driver="gesvd", full_matrices=False)
        return sigma, Vt[:count].T
    return sigma * (factors[0] / factors[1]), V[:, :count]


def _by_squares(squares: Array, *_: Array) -> tuple[Array, Array, int]:
    squares, V, info = scipy.linalg.lapack.dsyevd(squares)
    return np.sqrt(np.maximum(squares[::-1], 0.0)), V[:, ::-1], info


def _by_halves(_: Array, R: Array, above: Array) -> tuple[Array, Array, int]:
    _, sigma, Vt, info = scipy.linalg.lapack.dgesdd(_stacked(R, above), full_matrices=0)
    return sigma, Vt.T, info


def _stacked(R: Array, above: Array) -> Array:
    return np.vstack([np.diag(above), R]) if len(above) else R


# The rounding history of a frame is a lower triangular matrix H (s×s): row i holds the gradient
# that produced row i of Q as a combination of the rows of Q, as a unit vector. It distinguishes
# rounding from a new direction. A direction found as a short remainder of a long row is known no
# better than the rounding of that row, and a later row with a part along it leaves a remainder of
# that size, which is no new direction. So the later row is written as a combination of the rows
# that made the directions: each carries its own rounding, eps of its length, times its coefficient.


def uncertainty(history: Array, coordinates: Array, length: float) -> float:
    """The scale of rounding of a row: its length, and its coefficients in the history's rows."""
    if not coordinates.size:
        return length
    coefficients = scipy.linalg.blas.dtrsv(history, coordinates, lower=1, trans=1)
    return float(np.hypot(length, frobenius(coefficients)))


def extend_history(history: Array, count: int = 1) -> Array:
    """The history with further rows that are rows of the frame themselves."""
    k = len(history)
    H = np.eye(k + count, order="F")
    H[:k, :k] = history
    return H


def staircase(
    R: Array, C: Array, norms: Array, history: Array | None, cutoff: float
) -> tuple[Array | None, Array, Array | None]:
    """R = K T, K with orthonormal columns, T a staircase: one step for each column that is new.

    R: of a QR of what was left of columns with lengths `norms` and coordinates C (k×n) along the
    past. Gram–Schmidt, twice, in the order of the columns; a remainder up to cutoff times what
    `history` leaves uncertain (None: the column's length) is rounding and makes no step. K is
    None for the identity, where every column is new. The third result: the history, grown.
    """
    n = R.shape[1]
    most = min(R.shape)
    if history is None and most == n and (np.abs(np.diag(R)) > cutoff * norms).all():
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
        unsure = norms[j] if history is None else uncertainty(history, along, norms[j])
        if length > cutoff * unsure and r < most:
            K[:, r], T[r, j] = v / length, length
            if history is not None:
                k, history = len(history), extend_history(history)
                history[k, :k], history[k, k] = along / norms[j], length / norms[j]
            r += 1
        else:
            # What is rounding must not be fitted either.
            T[:r, j][np.abs(T[:r, j]) <= cutoff * unsure] = 0.0
    if r == n == len(R):
        return None, R, history
    return K[:, :r], T[:r], history


def left_vectors(T: Array) -> tuple[Array, Array]:
    """The left singular vectors of T (r×n), r ≤ n, and its singular values."""
    if len(T) == 0:  # which SciPy 1.11 refuses
        return np.empty((0, 0)), np.empty(0)
    if len(T) == 1:
        return np.ones((1, 1)), np.array([frobenius(T)])
    W, s, _ = scipy.linalg.svd(T, full_matrices=False)
    return W, s


def pivots(T: Array) -> Array:
    """The column at which each row of a staircase starts."""
    return np.asarray(np.argmax(T != 0, axis=1))
