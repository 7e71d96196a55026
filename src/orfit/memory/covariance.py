"""P = U D Uᵀ, p×p, with a unit upper triangular U and D ≥ 0 (Bierman, 1977).

As in the core (`core/covariance.c`), row j of an array is column j of U, so U is `rows.T`. An
update is as accurate as that of a square root, D stays ≥ 0, and R = 0 is allowed.
"""

import math

import numpy as np
import scipy

from orfit.validation import Array

NEGLIGIBLE = float(np.finfo(float).eps) ** 4  # of squares
VANISHING = 1e-140  # its square is a number, next to one


def root(rows: Array, D: Array) -> Array:
    """L = U D^½, p×p: P = L Lᵀ."""
    return np.asarray(rows.T * np.sqrt(D))


def updated(rows: Array, D: Array, g: Array, noise: float) -> tuple[Array, Array]:
    """The factors of P − P g (gᵀPg + R)⁻¹ gᵀP.

    With f = Uᵀg, v = D f and a_j = R + v₁f₁ + … + v_j f_j:
        U_j ← U_j − (f_j / a_{j−1}) (v₁U₁ + … + v_{j−1}U_{j−1}),  D_j ← D_j a_{j−1} / a_j
    """
    f = rows @ g
    parts = np.sqrt(D) * f
    largest = max(float(np.abs(parts).max(initial=0.0)), math.sqrt(noise))
    if largest == 0:
        return rows, D
    # Divided by a power of two, so that no square overflows.
    unit = math.ldexp(1.0, min(1000, max(-1000, math.frexp(largest)[1])))
    f, squares, noise = f / unit, (parts / unit) ** 2, noise / unit / unit
    least = NEGLIGIBLE * (squares.sum() + noise)
    # What is negligible in S would be divided by.
    f, squares = np.where(squares < least, 0.0, f), np.where(squares < least, 0.0, squares)
    after = np.cumsum(np.append(0.0 if noise < least else noise, squares))
    before, after = after[:-1], after[1:]
    sums = np.cumsum((D * f)[:, None] * rows, axis=0)
    factors = np.divide(-f, before, out=np.zeros_like(f), where=before > 0)
    made = rows.copy()
    made[1:] += factors[1:, None] * sums[:-1]
    return made, D * np.divide(before, after, out=np.ones_like(f), where=after > 0)


def factored(L: Array) -> tuple[Array, Array]:
    """The factors of L Lᵀ, for L (p×m), which may be singular. O(p² m)."""
    p = len(L)
    triangle = scipy.linalg.qr(L[::-1].T, mode="r", check_finite=False)[0][:p]
    rows, D = np.zeros((p, p)), np.zeros(p)
    rows[p - len(triangle) :] = triangle[::-1, ::-1]
    pivots = np.diagonal(rows).copy()
    singular = np.abs(pivots) <= VANISHING * np.abs(rows).max(axis=1)
    columns = rows[singular]
    rows[~singular] /= pivots[~singular, None]
    rows[singular] = 0.0
    np.fill_diagonal(rows, 1.0)
    D[~singular] = pivots[~singular] ** 2
    for a in columns:  # each belongs to the rows before its own
        _add(rows, D, a)
    return rows, D


def _add(rows: Array, D: Array, a: Array) -> None:
    """P ← P + a aᵀ (Agee and Turner, 1972); overwrites all arguments."""
    weight = 1.0
    for j in range(len(a))[::-1]:
        at = a[j]
        total = D[j] + weight * at * at
        if weight * at * at > 0:
            kept = D[j] / total
            before = rows[j, :j].copy()
            rows[j, :j] = kept * before + (weight * at / total) * a[:j]
            a[:j] -= at * before
            D[j], weight = total, weight * kept


def factored_covariance(P: Array) -> tuple[Array, Array]:
    """The factors of P, whose lower triangle counts, by Cholesky with pivots."""
    deviations = np.sqrt(np.diagonal(P))
    scale = np.where(deviations > 0, deviations, 1.0)
    L, pivots, rank, _ = scipy.linalg.lapack.dpstrf(P / np.outer(scale, scale), lower=1)
    made = np.zeros((len(P), rank))
    made[pivots - 1] = np.tril(L)[:, :rank]
    return factored(scale[:, None] * made)
