"""Memories that keep basis vectors as they are, and what was seen along them as triangular roots.

A state has `roots` (f×k×k), upper triangular matrices H with HᵀH = Γ Γᵀ + κ I, and their floors κ.
The first floor is 0. A new gradient and a dropped vector each take O(k²).
"""

from collections.abc import Callable

import numpy as np
import scipy

from orfit import small_linalg
from orfit.memory import frame
from orfit.memory.basis import Basis, BasisDecomposition, energy
from orfit.state import State
from orfit.validation import Array

MOST_FLOORS = 32  # roots are kept for so many floors; each grows with every gradient


class BasisVectors(Basis):
    """The common part of memories of basis vectors: the newest are last, and none is rotated.

    Examples:
        >>> memory = orfit.memory.Latest(1)  # one of them
        >>> memory.absorb([[3.0, 1.0], [0.0, 2.0]])
        >>> print(memory.rank, memory.sigma.round(6), abs(memory.U[:, 0]))
        1 [2.] [0. 1.]
    """

    def _clear_spectrum(self, s: State) -> None:
        s.roots, s.floors = np.empty((1, 0, 0)), np.zeros(1)

    def _shrink(self, s: State, share: Callable[[Array], Array]) -> None:
        sigma, V = small_linalg.principal(s.roots[0])
        with np.errstate(over="ignore"):
            sigma = sigma * np.sqrt(share(sigma * sigma))
        set_root(s, small_linalg.triangle(sigma[:, None] * V.T))

    def _fade(self, s: State, forgetting: float) -> None:
        set_root(s, s.roots[0] * np.sqrt(forgetting))

    def _damp(self, s: State, noises: Array, floors: Array, C: Array) -> Array:
        pairs = zip(noises, floors, strict=True)
        return np.stack([solve(root_above(s, k), np.sqrt(R) * C, True) for R, k in pairs])

    def _undamp(self, s: State, noises: Array, floors: Array, Z: Array) -> Array:
        each = zip(noises, floors, Z, strict=True)
        return np.stack([solve(root_above(s, k), np.sqrt(R) * z) for R, k, z in each])

    def _axes(self, s: State) -> tuple[Array, Array]:
        return small_linalg.principal(s.roots[0])

    def _set_axes(self, s: State, sigma: Array) -> None:
        set_root(s, np.diag(sigma))

    def _grow_spectrum(self, s: State, d: BasisDecomposition) -> None:
        rows = np.vstack([d.projection.C, d.projection.T]).T
        change(s, lambda H, floor: small_linalg.grow(H, rows, np.sqrt(floor)))

    def _check_spectrum(self, s: State) -> None:
        if len(np.unique(s.floors)) != len(s.roots) or s.floors[0] != 0:
            raise ValueError("each root needs a floor of its own, the first zero")
        if np.tril(s.roots, -1).any():
            raise ValueError("roots must be upper triangular")
        if not np.diagonal(s.roots[1:], axis1=1, axis2=2).all():
            raise ValueError("a root above a floor must not have a zero on its diagonal")


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
    return np.asarray(scipy.linalg.solve_triangular(H, B, trans="T" if transposed else "N"))


def change(s: State, update: Callable[[Array, float], Array]) -> None:
    """Replace each root by update(root, its floor)."""
    pairs = zip(s.roots, s.floors, strict=True)
    # In C order, as in a state that was loaded: BLAS rounds differently for other orders.
    s.roots = np.stack([np.array(update(H, floor), order="C") for H, floor in pairs])


def set_root(s: State, root: Array) -> None:
    """Γᵀ becomes this upper triangular matrix."""
    s.roots, s.floors = np.asarray(root)[None], np.zeros(1)


def drop_vector(s: State, j: int) -> None:
    """Drop the j-th basis vector. O(k²)."""
    s.dropped_energy += energy(s.roots[0][:, j])
    frame.drop(s, np.delete(s.W, j, axis=0))
    change(s, lambda H, _: small_linalg.delete(H, j))
