"""What was seen along the directions U of a memory, as triangular roots: A Aᵀ ≈ U Γ Γᵀ Uᵀ.

`Principal` keeps Γ as a diagonal instead, and U in principal axes.

A state has `roots` (f×k×k), upper triangular matrices H with HᵀH = Γ Γᵀ + κ I, and their floors κ.
The first floor is 0. A new gradient and a dropped direction each take O(k²).
"""

from collections.abc import Callable

import numpy as np
from scipy import linalg

from orfit import small_linalg
from orfit.state import State
from orfit.validation import Array

MOST_FLOORS = 32  # roots are kept for so many floors; each grows with every gradient


def clear(s: State) -> None:
    """No direction."""
    s.roots, s.floors = np.empty((1, 0, 0)), np.zeros(1)


def root_above(s: State, floor: float) -> Array:
    """H for κ = floor."""
    found = np.flatnonzero(s.floors == floor)
    if len(found):
        return np.asarray(s.roots[found[0]])
    if len(s.floors) > MOST_FLOORS:
        s.roots, s.floors = s.roots[:1], s.floors[:1]
    root = s.roots[0]
    H = small_linalg.grow(root, np.sqrt(floor) * np.eye(len(root)))
    s.roots, s.floors = np.concatenate([s.roots, H[None]]), np.append(s.floors, floor)
    return H


def solve(H: Array, B: Array, transposed: bool = False) -> Array:
    """H⁻¹ B or H⁻ᵀ B. SciPy 1.11 refuses matrices without rows."""
    if not len(H):
        return B
    return np.asarray(linalg.solve_triangular(H, B, trans="T" if transposed else "N"))


def change(s: State, update: Callable[[Array, float], Array]) -> None:
    """Replace each root by update(root, its floor)."""
    pairs = zip(s.roots, s.floors, strict=True)
    # In C order, as in a state that was loaded: BLAS rounds differently for other orders.
    s.roots = np.stack([np.array(update(H, floor), order="C") for H, floor in pairs])


def set_root(s: State, root: Array) -> None:
    """Γᵀ becomes this upper triangular matrix."""
    s.roots, s.floors = np.asarray(root)[None], np.zeros(1)


def grow(s: State, C: Array, T: Array) -> None:
    """Add gradients [U O] (C; T), for directions O that come last."""
    rows = np.vstack([C, T]).T
    change(s, lambda H, floor: small_linalg.grow(H, rows, np.sqrt(floor)))


def shrink(s: State, share: Callable[[Array], Array]) -> None:
    """Multiply each energy e along the principal axes by share(e)."""
    sigma, V = small_linalg.principal(s.roots[0])
    with np.errstate(over="ignore"):
        sigma = sigma * np.sqrt(share(sigma * sigma))
    set_root(s, small_linalg.triangle(sigma[:, None] * V.T))


def check(s: State) -> None:
    """Raise unless these are roots above different floors."""
    if len(np.unique(s.floors)) != len(s.roots) or s.floors[0] != 0:
        raise ValueError("each root needs a floor of its own, the first zero")
    if np.tril(s.roots, -1).any():
        raise ValueError("roots must be upper triangular")
    if not np.diagonal(s.roots[1:], axis1=1, axis2=2).all():
        raise ValueError("a root above a floor must not have a zero on its diagonal")
