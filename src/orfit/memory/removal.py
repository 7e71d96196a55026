"""What was seen, without some of it: as far as rounding lets that be known.

With Γ Γᵀ = diag(σ²) in principal axes and Z the gradients that go, S' = diag(σ²) − Z Zᵀ. From the
squares themselves half of the digits would be lost. So the root H of diag(σ²) + κ, which is
diagonal, becomes (I − A Aᵀ)^½ H, A = H⁻¹ Z: where a singular value of A is far from one, its
rounding matters little; where it is one, to rounding, the direction goes with the gradients.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from orfit import small_linalg
from orfit.validation import Array

SLACK = 4.0  # of rounding, in units of eps: a few products
CERTAIN = 100.0  # times that: more than rounding ever is
NEVER_LEARNED = "it is not among what was learned: rows come out as they went in, with their weight"


@dataclass(frozen=True)
class Left:
    """What is left, along U E."""

    E: Array  # k×k, orthonormal
    squares: Array  # k, what w is known by along them: σ'² + R; infinite where nothing is left
    sigma: Array  # of those that stay, which come first, falling


def accuracy(eps: float) -> float:
    """What the numbers that are left may lack, relatively: 4e-11 in float64, 2e-5 in float32."""
    return float(eps ** (2 / 3))


def without(sigma: Array, Z: Array, noise: float, length: float, others: int, eps: float) -> Left:
    """sigma, falling, without Z (k×n): coordinates of gradients that have that length together.

    others: how many gradients are left; so many directions may be, at most. Raises where what is
    left cannot be known, or such gradients were never seen.
    """
    for floor in (noise, 0.0):  # which is one and the same without noise
        left = _above(floor, sigma, Z, noise, length, others, eps)
        if left is not None:
            return left
    raise ValueError(
        "what would be left is drowned in rounding: beside these rows too little was seen along "
        "their directions; train anew without them"
    )


def _above(
    floor: float, sigma: Array, Z: Array, noise: float, length: float, others: int, eps: float
) -> Left | None:
    """By the root of diag(σ²) + floor; None where that is not accurate."""
    h = np.hypot(sigma, np.sqrt(floor))
    if not (h > 0).all():
        return None
    W, a, _ = scipy.linalg.svd(Z / h[:, None], full_matrices=False)
    gap = (1 - a) * (1 + a)
    error = SLACK * eps * (1 + length * (np.abs(W) / h[:, None]).sum(axis=0))
    gone = np.abs(gap) <= CERTAIN * error if floor == 0 else np.zeros(len(gap), bool)
    if (gap < -CERTAIN * error).any():
        raise ValueError(NEVER_LEARNED)
    if (error[~gone] > accuracy(eps) * gap[~gone]).any():
        return None
    # Along directions that go, rounding may hide so much that others had left there.
    hidden = (error * np.square(W * h[:, None]).sum(axis=0)).max(where=gone, initial=0.0)
    if gone.sum() > len(h) - others and noise > 0 and hidden > accuracy(eps) * noise:
        return None
    shorter = 1 - np.sqrt(np.where(gone, 0.0, gap))
    values, E = small_linalg.principal(np.diag(h) - (W * shorter) @ (W.T * h))
    stay = len(h) - int(gone.sum())
    if stay and hidden > accuracy(eps) * (values[stay - 1] ** 2 + noise):  # of what stays, too
        return None
    squares = (values - np.sqrt(floor)) * (values + np.sqrt(floor))
    if floor > 0:
        rounding = CERTAIN * eps * h.max() * values + accuracy(eps) * floor
        if (squares < -rounding).any():
            raise ValueError(NEVER_LEARNED)
        stay = int((squares > CERTAIN * eps * h.max() * values).sum())
        return Left(E, values**2, np.sqrt(squares[:stay]))
    known = np.where(np.arange(len(h)) < stay, squares + noise, np.inf)
    return Left(E, known, values[:stay])
