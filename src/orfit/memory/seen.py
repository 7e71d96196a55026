"""How much was seen along the directions U of a memory: A Aᵀ ≈ U Γ Γᵀ Uᵀ for all past gradients A.

With observation noise R that says where the parameters may still move,

    P = U E Eᵀ Uᵀ + ρ (I − U Uᵀ),     E Eᵀ = R (Γ Γᵀ + κ I)⁻¹     R = 0: E = 0, P is a projector

(ρ and κ, which mostly are 1 and R, are those of `tail`.)

Γ is kept in one of two forms: as a triangle, which takes in a gradient and drops a direction in
O(k²) and leaves U as it is; or as a diagonal, for which U turns to the principal axes each time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy import linalg

from orfit import door, schema, small
from orfit.door import Array
from orfit.schema import DOUBLE, Fields, Layout

ROUNDING = 1e-9  # by which sigma may rise where it should fall
MOST_FLOORS = 32  # for which a root is kept, each of which grows with every gradient


class Seen(Protocol):
    """What a step asks of either form."""

    def faded(self, forgetting: float) -> "Seen":
        """Γ with squares `forgetting` times as large."""

    def shrunk(self, share: Callable[[Array], Array]) -> "Seen":
        """Γ with energies e, along its principal axes, made share(e) times as large."""

    def damped(self, C: Array, noise: float, floor: float) -> Array:
        """Eᵀ C, for κ = floor."""

    def undamped(self, z: Array, noise: float, floor: float) -> Array:
        """E z."""

    def axes(self) -> tuple[Array, Array]:
        """The singular values of Γ, falling, and the turn of U to its principal axes."""

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The numbers that make it."""


@dataclass(frozen=True)
class Triangle:
    """H (k×k), upper triangular, with Hᵀ H = Γ Γᵀ + κ I: for κ = 0, `root`, and each κ in use."""

    roots: dict[float, Array] = field(default_factory=lambda: {0.0: np.empty((0, 0))})

    @property
    def root(self) -> Array:
        """Γᵀ."""
        return self.roots[0.0]

    def __len__(self) -> int:
        return len(self.root)

    def faded(self, forgetting: float) -> "Triangle":
        return self if forgetting == 1 else Triangle({0.0: self.root * np.sqrt(forgetting)})

    def shrunk(self, share: Callable[[Array], Array]) -> "Triangle":
        sigma, V = self.axes()
        with np.errstate(over="ignore"):
            sigma = sigma * np.sqrt(share(sigma * sigma))
        return Triangle({0.0: small.triangle(sigma[:, None] * V.T)})

    def damped(self, C: Array, noise: float, floor: float) -> Array:
        return _solved(self._above(floor), np.sqrt(noise) * C, trans="T")

    def undamped(self, z: Array, noise: float, floor: float) -> Array:
        return _solved(self._above(floor), np.sqrt(noise) * z)

    def _above(self, floor: float) -> Array:
        if floor not in self.roots:
            root = self.root
            if len(self.roots) > MOST_FLOORS:
                for another in [kept for kept in self.roots if kept]:
                    del self.roots[another]
            self.roots[floor] = small.grow(root, np.sqrt(floor) * np.eye(len(root)))
        return self.roots[floor]

    @classmethod
    def of_axes(cls, sigma: Array) -> "Triangle":
        """Where U are principal axes."""
        return cls({0.0: np.asfortranarray(np.diag(sigma))})

    def grown(self, C: Array, T: Array) -> "Triangle":
        """With gradients [U O] (C; T), for directions O that come last."""
        rows = np.vstack([C, T]).T
        return Triangle({R: small.grow(H, rows, np.sqrt(R)) for R, H in self.roots.items()})

    def deleted(self, j: int) -> "Triangle":
        """Without the j-th direction."""
        return Triangle({R: small.delete(H, j) for R, H in self.roots.items()})

    def reflected(self, u: Array) -> "Triangle":
        """For U (I − 2 u uᵀ), without its last direction."""
        return Triangle({R: small.reflect(H, u) for R, H in self.roots.items()})

    def turned(self, K: Array) -> "Triangle":
        """For U K, K with orthonormal columns."""
        return Triangle({R: small.triangle(H @ K) for R, H in self.roots.items()})

    def axes(self) -> tuple[Array, Array]:
        return small.principal(self.root)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"roots": np.stack([*self.roots.values()])}, {"floors": [*self.roots]}

    fields: ClassVar[Fields] = {"floors": schema.listed(door.nonnegative)}
    layout: ClassVar[Layout] = {"roots": (DOUBLE, "floors", "k", "k")}

    @classmethod
    def restored(cls, arrays: dict[str, Array], values: dict[str, Any]) -> "Triangle":
        floors, roots = values["floors"], arrays["roots"]
        if len({*floors}) != len(roots) or len(floors) != len(roots) or floors[:1] != [0]:
            raise ValueError("each root needs a floor of its own, the first zero")
        if np.tril(roots, -1).any():
            raise ValueError("roots must be upper triangular")
        if not np.diagonal(roots[1:], axis1=1, axis2=2).all():
            raise ValueError("a root above a floor has no zero on its diagonal")
        return cls({floor: np.asfortranarray(H) for floor, H in zip(floors, roots, strict=True)})


@dataclass(frozen=True)
class Axes:
    """Γ = diag(sigma), falling: U are principal axes."""

    sigma: Array = field(default_factory=lambda: np.empty(0))

    def __len__(self) -> int:
        return len(self.sigma)

    def faded(self, forgetting: float) -> "Axes":
        return self if forgetting == 1 else Axes(self.sigma * np.sqrt(forgetting))

    def shrunk(self, share: Callable[[Array], Array]) -> "Axes":
        with np.errstate(over="ignore"):  # of an energy that is no number, nothing is left
            return Axes(self.sigma * np.sqrt(share(self.sigma * self.sigma)))

    def damped(self, C: Array, noise: float, floor: float) -> Array:
        # sigma² may be no number where sigma is.
        share = np.sqrt(noise) / np.hypot(self.sigma, np.sqrt(floor))
        return np.asarray(share[:, None] * C)

    def undamped(self, z: Array, noise: float, floor: float) -> Array:
        return self.damped(z, noise, floor)

    def axes(self) -> tuple[Array, Array]:
        return self.sigma, np.eye(len(self))

    @classmethod
    def of_axes(cls, sigma: Array) -> "Axes":
        return cls(sigma)

    def lifted(self, energy: float) -> "Axes":
        """With so much more seen along every direction."""
        return Axes(np.hypot(self.sigma, np.sqrt(energy)))

    def grown(self, C: Array, T: Array, start: float = 0.0) -> tuple[Array, Array]:
        """With gradients [U O] (C; T): new singular values, and the turn of [U O] to their axes.

        start: the singular value with which O starts.
        """
        k, r = len(self), len(T)
        known = k + r if start > 0 else k
        bordered = np.zeros((k + r, known + C.shape[1]))
        bordered[range(k), range(k)] = self.sigma
        bordered[range(k, known), range(k, known)] = start
        bordered[:k, known:], bordered[k:, known:] = C, T  # (eq:svd_update)
        return small.principal(bordered.T)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"sigma": self.sigma}, {}

    fields: ClassVar[Fields] = {}
    layout: ClassVar[Layout] = {"sigma": (DOUBLE, "k")}

    @classmethod
    def restored(cls, arrays: dict[str, Array], values: dict[str, Any]) -> "Axes":
        sigma = arrays["sigma"]
        if (sigma < 0).any() or (sigma[1:] > (1 + ROUNDING) * sigma[:-1]).any():
            raise ValueError("sigma must be falling, and not negative")
        return cls(sigma)


def _solved(root: Array, b: Array, **how: Any) -> Array:
    """root⁻¹ b for a triangle; SciPy 1.11 refuses one of no directions, whose answer is b."""
    return np.asarray(linalg.solve_triangular(root, b, **how)) if len(root) else b
