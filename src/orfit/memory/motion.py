"""A step in time on a low-rank P: w ← A w, so P ← A P Aᵀ + q I.

    P = U K Uᵀ + ρ (I − U Uᵀ)

With an orthonormal Q that spans A U and more, Z = Aᵀ Q and W = (I − U Uᵀ) Z,

    along Q             (Qᵀ A U) K (Qᵀ A U)ᵀ + ρ Wᵀ W
    outside, on average ρ (‖A‖² − ‖Z‖²) / (p − k)

What is left out is between Q and the rest, ρ (I − Q Qᵀ) A W; so Q also takes in where that points,
A W, through which a state shows itself that is never measured. Of all those directions the m stay
whose variance differs most from ρ, and ρ is the mean of the others: the trace of P is kept. Nothing
is lost where A is a number times an orthogonal matrix, and with all p directions.
"""

from typing import Any

import numpy as np
from scipy import linalg

from orfit.door import Array
from orfit.tail import Tail

LEAST = 1e-150  # P is never less, so that its inverse, and the square of that, are numbers
ROUNDING = 1e-12  # of A W: a direction with less than that is rounding


def times(A: Any, B: Any) -> Any:
    """A B, for an A that may be a number."""
    return A * B if np.ndim(A) == 0 else A @ B


def squared_norm(A: Any) -> float:
    """‖A‖², the sum of all squares, of an array or a sparse matrix."""
    numbers = A.data if hasattr(A, "nnz") else A
    return float(np.sum(np.square(numbers)))


def moved(U: Array, variances: Array, rho: float, A: Any) -> tuple[Array, Array, float]:
    """Directions, their variances and ρ after the step. U: p×k. variances: along U."""
    p, k = U.shape
    if not k:
        return U, variances, rho * squared_norm(A) / p
    Q, T = linalg.qr(A @ U, mode="economic", check_finite=False)
    ahead = A @ _off(U, A.T @ Q)  # A W
    new, strength = linalg.svd(_off(Q, ahead), full_matrices=False, check_finite=False)[:2]
    new = new[:, strength > ROUNDING * max(np.linalg.norm(ahead), np.linalg.norm(T))]
    Q = linalg.qr(np.hstack([Q, new[:, : p - k]]), mode="economic", check_finite=False)[0]
    T, Z = Q.T @ (A @ U), A.T @ Q
    W = linalg.qr(_off(U, Z), mode="r", check_finite=False)[0]
    # A root of what P is along Q: its squares are variances, and so none of them is negative.
    root = np.vstack([np.sqrt(variances)[:, None] * T.T, np.sqrt(rho) * W])
    sigma, turn = linalg.svd(root, full_matrices=False, check_finite=False)[1:]
    rest = p - Q.shape[1]
    outside = max(0.0, squared_norm(A) - float(np.sum(Z * Z))) / rest if rest else 1.0
    return Q @ turn.T, sigma**2, rho * outside


def _off(U: Array, Z: Array) -> Array:
    """(I − U Uᵀ) Z, twice, so that rounding is off U too."""
    Z = Z - U @ (U.T @ Z)
    return np.asarray(Z - U @ (U.T @ Z))


def kept(variances: Array, rho: float, m: int, size: int) -> tuple[Array, float]:
    """Which m of the directions stay, and ρ when the others are outside too."""
    k = len(variances)
    if k <= m:
        return np.arange(k), rho
    distance = np.abs(np.log(variances / rho))
    order = np.argsort(-distance, kind="stable")
    others = variances[order[m:]].sum()
    return np.sort(order[:m]), float((rho * (size - k) + others) / (size - m))


def known(tail: Tail, variances: Array, rho: float, noise: float) -> tuple[Array, Tail]:
    """Energies and the tail, for a P of such variances along U, and ρ outside.

    A direction may be less certain than one never seen was: that of the least is the prior.
    """
    prior = max(rho, float(variances.max(initial=0.0)))
    energies, level = noise / variances - noise / prior, noise / rho - noise / prior
    return energies, Tail(
        np.full_like(tail.level, level), tail.dropped, tail.rows, tail.dropping, prior
    )


def shrunk(energy: Any, tail: Tail, noise: float, gamma: float, drift: float) -> Any:
    """How much is left of an energy e when w ← γ w + N(0, q): R / (κ + e) and R / κ alike."""
    floor = noise / tail.prior
    before = gamma**2 * noise
    now, unseen = before / (floor + energy) + drift, before / floor + drift
    return (before / floor / unseen) * (noise / ((floor + energy) * now))
