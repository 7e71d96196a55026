"""How much was seen along the directions U of a memory: A Aᵀ ≈ U Γ Γᵀ Uᵀ for all past gradients A.

With observation noise R that says where the parameters may still move,

    P = I − U D Uᵀ,     E Eᵀ = I − D = R (Γ Γᵀ + R I)⁻¹       R = 0: D = I, P is a projector

Γ is kept in one of two forms: as a triangle, which takes in a gradient and drops a direction in
O(k²) and leaves U as it is; or as a diagonal, for which U turns to the principal axes each time.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy import linalg

from orfit import small
from orfit.door import Array
from orfit.memory.base import taken


class Seen(Protocol):
    """What a step asks of either form."""

    def faded(self, forgetting: float) -> "Seen":
        """Γ with squares `forgetting` times as large."""

    def damped(self, C: Array, noise: float) -> Array:
        """Eᵀ C."""

    def undamped(self, z: Array, noise: float) -> Array:
        """E z."""

    def axes(self) -> tuple[Array, Array]:
        """The singular values of Γ, falling, and the turn of U to its principal axes."""

    def state(self) -> tuple[dict[str, Array], dict[str, float]]:
        """The numbers that make it."""


@dataclass(frozen=True)
class Triangle:
    """Γᵀ = `root`, upper triangular."""

    root: Array
    # H with Hᵀ H = Γ Γᵀ + R I, for the R that was last asked for: it changes along with the root.
    _with: dict[float, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.root)

    def faded(self, forgetting: float) -> "Triangle":
        return self if forgetting == 1 else Triangle(self.root * np.sqrt(forgetting))

    def damped(self, C: Array, noise: float) -> Array:
        root = self._with_noise(noise)
        return np.asarray(linalg.solve_triangular(root, np.sqrt(noise) * C, trans="T"))

    def undamped(self, z: Array, noise: float) -> Array:
        return np.asarray(linalg.solve_triangular(self._with_noise(noise), np.sqrt(noise) * z))

    def _with_noise(self, noise: float) -> Array:
        if noise not in self._with:
            self._with.clear()
            self._with[noise] = small.grow(self.root, np.sqrt(noise) * np.eye(len(self)))
        return self._with[noise]

    def grown(self, C: Array, T: Array) -> "Triangle":
        """With gradients [U O] (C; T), for directions O that come last."""
        rows = np.vstack([C, T]).T
        roots = {R: small.grow(H, rows, np.sqrt(R)) for R, H in self._with.items()}
        return Triangle(small.grow(self.root, rows), roots)

    def deleted(self, j: int) -> "Triangle":
        """Without the j-th direction."""
        roots = {R: small.delete(H, j) for R, H in self._with.items()}
        return Triangle(small.delete(self.root, j), roots)

    def reflected(self, u: Array) -> "Triangle":
        """For U (I − 2 u uᵀ), without its last direction."""
        roots = {R: small.reflect(H, u) for R, H in self._with.items()}
        return Triangle(small.reflect(self.root, u), roots)

    def turned(self, K: Array) -> "Triangle":
        """For U K, K with orthonormal columns."""
        roots = {R: small.triangle(H @ K) for R, H in self._with.items()}
        return Triangle(small.triangle(self.root @ K), roots)

    def axes(self) -> tuple[Array, Array]:
        return small.principal(self.root)

    def state(self) -> tuple[dict[str, Array], dict[str, float]]:
        arrays, values = {"root": self.root}, {}
        for values["noise"], arrays["root_with_noise"] in self._with.items():
            pass
        return arrays, values

    @classmethod
    def restored(cls, arrays: dict[str, Array], values: dict[str, float], rank: int) -> "Triangle":
        roots = {}
        if "root_with_noise" in arrays:
            kept = taken(arrays, "root_with_noise", np.float64, rank, rank)
            roots[float(values["noise"])] = kept
        return cls(taken(arrays, "root", np.float64, rank, rank), roots)


@dataclass(frozen=True)
class Axes:
    """Γ = diag(sigma), falling: U are principal axes."""

    sigma: Array

    def __len__(self) -> int:
        return len(self.sigma)

    def faded(self, forgetting: float) -> "Axes":
        return self if forgetting == 1 else Axes(self.sigma * np.sqrt(forgetting))

    def damped(self, C: Array, noise: float) -> Array:
        # sigma² may be no number where sigma is.
        share = np.sqrt(noise) / np.hypot(self.sigma, np.sqrt(noise))
        return np.asarray(share[:, None] * C)

    def undamped(self, z: Array, noise: float) -> Array:
        return self.damped(z, noise)

    def axes(self) -> tuple[Array, Array]:
        return self.sigma, np.eye(len(self))

    def grown(self, C: Array, T: Array) -> tuple[Array, Array]:
        """With gradients [U O] (C; T): new singular values, and the turn of [U O] to their axes."""
        k, r = len(self), len(T)
        bordered = np.zeros((k + r, k + C.shape[1]))
        bordered[range(k), range(k)] = self.sigma
        bordered[:k, k:], bordered[k:, k:] = C, T  # (eq:svd_update)
        return small.principal(bordered.T)

    def state(self) -> tuple[dict[str, Array], dict[str, float]]:
        return {"sigma": self.sigma}, {}

    @classmethod
    def restored(cls, arrays: dict[str, Array], values: dict[str, float], rank: int) -> "Axes":
        return cls(taken(arrays, "sigma", np.float64, rank))
