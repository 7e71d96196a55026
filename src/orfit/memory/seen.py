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
    """H (k×k), upper triangular, with Hᵀ H = Γ Γᵀ + R I: for R = 0, `root`, and the R in use."""

    roots: dict[float, Array] = field(default_factory=lambda: {0.0: np.empty((0, 0))})

    @property
    def root(self) -> Array:
        """Γᵀ."""
        return self.roots[0.0]

    def __len__(self) -> int:
        return len(self.root)

    def faded(self, forgetting: float) -> "Triangle":
        return self if forgetting == 1 else Triangle({0.0: self.root * np.sqrt(forgetting)})

    def damped(self, C: Array, noise: float) -> Array:
        root = self._with_noise(noise)
        return np.asarray(linalg.solve_triangular(root, np.sqrt(noise) * C, trans="T"))

    def undamped(self, z: Array, noise: float) -> Array:
        return np.asarray(linalg.solve_triangular(self._with_noise(noise), np.sqrt(noise) * z))

    def _with_noise(self, noise: float) -> Array:
        if noise not in self.roots:
            root = self.root
            self.roots.clear()  # of another R
            self.roots[0.0] = root
            self.roots[noise] = small.grow(root, np.sqrt(noise) * np.eye(len(root)))
        return self.roots[noise]

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

    def state(self) -> tuple[dict[str, Array], dict[str, float]]:
        noise = max(self.roots)
        arrays = {"root": self.root}
        return arrays | ({"root_with_noise": self.roots[noise]} if noise else {}), {"noise": noise}

    @classmethod
    def restored(cls, arrays: dict[str, Array], values: dict[str, float], rank: int) -> "Triangle":
        names = {0.0: "root"}
        if "root_with_noise" in arrays:
            names[float(values["noise"])] = "root_with_noise"
        return cls({R: taken(arrays, n, np.float64, rank, rank) for R, n in names.items()})


@dataclass(frozen=True)
class Axes:
    """Γ = diag(sigma), falling: U are principal axes."""

    sigma: Array = field(default_factory=lambda: np.empty(0))

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
