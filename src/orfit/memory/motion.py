"""A step in time on a low-rank P: w ← A w, so P ← A P Aᵀ.

    P = U K Uᵀ + ρ (I − U Uᵀ),     A U = Q T,     Z = Aᵀ Q

    Qᵀ A P Aᵀ Q = T K Tᵀ + ρ (Zᵀ Z − T Tᵀ)     and outside, on average, ρ (‖A‖² − ‖Z‖²) / (p − k)

What is between Q and the rest, ρ (I − Q Qᵀ) A Z, is left out, and the rest is taken to be the same
in all directions. Nothing is lost where A is a number times an orthogonal matrix, and where U has
all p directions.
"""

from typing import Any

import numpy as np

from orfit import tall
from orfit.door import Array
from orfit.tail import Tail

LEAST = 1e-30  # of the prior: a variance below is rounding


def times(A: Any, B: Any) -> Any:
    """A B, for an A that may be a number."""
    return A * B if np.ndim(A) == 0 else A @ B


def squared_norm(A: Any) -> float:
    """‖A‖², the sum of all squares, of an array or a sparse matrix."""
    numbers = A.data if hasattr(A, "nnz") else A
    return float(np.sum(np.square(numbers)))


def moved(U: Any, K: Array, rho: float, A: Any) -> tuple[Any, Array, float]:
    """Q, its K and ρ, after the step. U: p×k. K: k×k. A: p×p, or a number."""
    if np.ndim(A) == 0:
        return U, A * A * K, A * A * rho
    p, k = U.shape
    if not k:
        return U, K, rho * squared_norm(A) / p
    Q, T = tall.qr(tall.convert(U, A @ tall.to_numpy(U)))
    Z = A.T @ np.asarray(tall.to_numpy(Q), np.float64)
    inside = T @ K @ T.T + rho * (Z.T @ Z - T @ T.T)
    outside = max(0.0, squared_norm(A) - float(np.sum(Z * Z))) / (p - k) if k < p else 1.0
    return Q, (inside + inside.T) / 2, rho * outside


def known(
    tail: Tail, variances: Array, rho: float, prior: float, noise: float
) -> tuple[Array, Tail]:
    """Energies and the tail, for a P of such variances along U, ρ outside, and of the unseen.

    A direction may have become less certain than one never seen was: then that is the prior.
    """
    prior = max(prior, rho, float(variances.max(initial=0.0)))
    least, floor = LEAST * prior, noise / prior
    energies = np.maximum(noise / np.maximum(variances, least) - floor, 0.0)
    level = max(noise / max(rho, least) - floor, 0.0)
    left = min(1.0, level / tail.level[0]) if tail.level[0] > 0 else 1.0
    counts = (left * tail.dropped, left * tail.rows, left * tail.dropping)
    return energies, Tail(np.full_like(tail.level, level), *counts, prior)
