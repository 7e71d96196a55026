"""Memories that keep directions: an orthonormal U and how much was seen along it.

    A Aᵀ ≈ U Γ Γᵀ Uᵀ    for all past gradients A,    Γᵀ = `root`, upper triangular, k×k

and with observation noise R they stand for

    P = I − U D Uᵀ,     I − D = R (Γ Γᵀ + R I)⁻¹       R = 0: D = I, P is a projector

Nothing in a step needs Γ to be diagonal, so no SVD is done to take a gradient in; `U` and `sigma`
are brought to principal axes when somebody asks. What sets the memories apart is one method,
`trim`: which directions go.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from orfit import door, small, tall
from orfit.door import Array
from orfit.memory.base import Memory, lengths, taken
from orfit.memory.frame import Frame, Parts, split


@dataclass(frozen=True)
class BasisSplit:
    """G = U C + O T, so P G = [U E, O] B with B = [EᵀC; T] and E Eᵀ = I − D."""

    parts: Parts
    norms: Array  # n, the lengths of G's columns
    gamma: Array  # Γᵀ, the memory's root, faded
    noise: float
    damped: Array | None  # H with Hᵀ H = Γ Γᵀ + R I, so E = sqrt(R) H⁻¹; None: R = 0, so E = 0

    @property
    def root(self) -> Array:
        if self.damped is None:
            return self.parts.T
        C = np.sqrt(self.noise) * self.parts.C
        return np.vstack([linalg.solve_triangular(self.damped, C, trans="T"), self.parts.T])

    @property
    def novelty(self) -> float:
        total = small.frobenius(self.norms)
        return small.frobenius(self.parts.T) / total if total > 0 else 0.0

    def displacement(self, z: Array) -> tuple[Any, float]:
        k = len(self.parts.C)
        if self.damped is None:
            still = np.zeros((k, *z.shape[1:]))
            return self.parts.move(still, z), small.frobenius(z)
        Ez = linalg.solve_triangular(self.damped, np.sqrt(self.noise) * z[:k])
        length = float(np.hypot(small.frobenius(Ez), small.frobenius(z[k:])))
        return self.parts.move(Ez, z[k:]), length


class Basis(Memory):
    """The common part: take gradients in, then `trim`."""

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._root = np.empty((0, 0))
        self._damped: tuple[float, Array] | None = None  # for which noise, H

    def trim(self) -> None:
        """Drop the directions that are too many, by `_delete`, `_reflect` or `_keep`.

        `_root` (k×k, A Aᵀ ≈ U rootᵀ root Uᵀ) tells what was seen along them; the newest are last.
        """

    def room(self, size: int) -> int | None:
        """How many columns are stored before they are rotated; None where nothing is dropped."""
        return None

    def bind(self, like: Any) -> None:
        self._check_size(len(like))
        if self._frame is None:
            self.size = len(like)
            self._frame = Frame(like, self.room(self.size))
            return
        held = self._frame.rows
        if (type(held), held.dtype) != (type(like), like.dtype):
            raise ValueError(
                f"this memory holds {held.dtype} directions as {type(held).__name__}, "
                f"not {like.dtype} as {type(like).__name__}"
            )

    @property
    def frame(self) -> Frame:
        assert self._frame is not None, "a memory is bound before it is used"
        return self._frame

    @property
    def rank(self) -> int:
        return len(self._root)

    @property
    def U(self) -> Any:
        """The remembered directions, p×k orthonormal, in the order of `sigma`."""
        if self._frame is None:
            return np.empty((0, 0))
        return self._frame.combine(small.principal(self._root)[1])

    @property
    def sigma(self) -> Array:
        """How much was seen along the columns of `U`: singular values, falling."""
        return small.principal(self._root)[0]

    def absorb(self, G: object) -> None:
        """Fold the columns of G (p×n, or one of p) into the memory (eq:svd_update).

            [A G] = [U O] [[Γ, C], [0, T]]

        A column that is already spanned adds no direction but still raises `sigma`.
        This is all that is needed to use a memory by itself, as an incremental, uncentred
        principal component analysis of a stream of columns.
        """
        columns = door.numbers("G", G, self.frame.rows.dtype if self._frame else _float_type(G))
        if columns.ndim not in (1, 2):
            raise ValueError(f"G must be p×n, or one column of p; it has shape {columns.shape}")
        columns = columns.reshape(len(columns), -1)
        self.bind(columns)
        if columns.shape[1]:
            self.fold(self.split(columns))

    def project(self, G: Any) -> Any:
        """G − U (UᵀG), tall: what of G does not touch the past (eq:ogd_projection)."""
        G_perp = self.frame.subtract(G, self.frame.coordinates(G))
        return self.frame.subtract(G_perp, self.frame.coordinates(G_perp))

    def split(self, G: Any, noise: float = 0.0, forgetting: float = 1.0) -> BasisSplit:
        norms = lengths(G)
        # With noise nothing is divided by a remainder, and no doubt is needed.
        parts = split(self.frame, G, norms, self.frame.makers if noise == 0 else None)
        gamma, damped = self._root, self._damped
        if forgetting != 1:
            gamma, damped = gamma * np.sqrt(forgetting), None
        if noise == 0:
            return BasisSplit(parts, norms, gamma, noise, None)
        if damped is None or damped[0] != noise:
            damped = noise, small.grow(gamma, np.sqrt(noise) * np.eye(len(gamma)))
        return BasisSplit(parts, norms, gamma, noise, damped[1])

    def fold(self, past: BasisSplit) -> None:
        self.frame.append(past.parts)  # first, since it may fail for want of memory
        self.frame.makers = past.parts.makers
        rows = np.vstack([past.parts.C, past.parts.T]).T
        self._root = small.grow(past.gamma, rows)
        if past.damped is None:
            self._damped = None
        else:
            H = small.grow(past.damped, rows, diagonal=np.sqrt(past.noise))
            self._damped = past.noise, H
        self.trim()
        self.frame.settle()

    def _delete(self, j: int) -> None:
        """Drop the j-th basis vector. O(k²)."""
        self.frame.delete(j)
        self._change_roots(lambda R: small.delete(R, j))

    def _reflect(self, v: Array) -> None:
        """Drop the direction U v, for a unit vector v. O(k²)."""
        # The reflection that takes v to ± the last axis, which then goes.
        u = v.copy()
        u[-1] += np.copysign(1.0, v[-1])
        u /= np.linalg.norm(u)
        self.frame.reflect(u)
        self._change_roots(lambda R: small.reflect(R, u))

    def _keep(self, K: Array) -> None:
        """Keep the directions U K, for K (k×k') with orthonormal columns. O(k³)."""
        self.frame.turn(K)
        self._change_roots(lambda R: small.triangle(R @ K))

    def _keep_axes(self, K: Array, sigma: Array) -> None:
        """Keep the directions U K, along which `sigma` was seen, one by one."""
        self.frame.turn(K)
        self._set_axes(sigma)

    def _set_axes(self, sigma: Array) -> None:
        """Say that U is in principal axes, along which `sigma` was seen."""
        self._root = np.diag(sigma)
        if self._damped is not None:
            noise = self._damped[0]
            self._damped = noise, np.diag(np.hypot(sigma, np.sqrt(noise)))

    def _change_roots(self, change: Callable[[Array], Array]) -> None:
        self._root = change(self._root)
        if self._damped is not None:  # Kᵀ (Γ Γᵀ + R I) K = (KᵀΓ) (KᵀΓ)ᵀ + R I
            self._damped = self._damped[0], change(self._damped[1])

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        frame = self.frame
        rows = tall.to_numpy(frame.rows[: frame.stored])
        arrays = {"rows": rows, "root": self._root}
        if frame.makers is not None:
            arrays["makers"] = frame.makers.rows
        values: dict[str, Any] = {"capacity": len(frame.rows), "rotations": frame.rotations}
        if frame.W is not None:
            arrays["W"] = frame.W
        if self._damped is not None:
            values["noise"], arrays["damped"] = self._damped
        return arrays, values

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        frame = self.frame
        dtype = tall.numpy_dtype(frame.rows)
        rows = taken(arrays, "rows", dtype, None, self.size)
        stored = len(rows)
        W = taken(arrays, "W", np.float64, stored, None) if "W" in arrays else None
        k = stored if W is None else W.shape[1]
        self._root = taken(arrays, "root", np.float64, k, k)
        if "damped" in arrays:
            self._damped = float(values["noise"]), taken(arrays, "damped", np.float64, k, k)
        frame.rows = tall.empty(frame.rows, max(int(values["capacity"]), stored), rows.shape[1])
        frame.rows[:stored] = tall.convert(frame.rows, rows)
        frame.stored, frame.W, frame.rotations = stored, W, int(values["rotations"])
        made = "makers" in arrays
        frame.makers = small.Makers(taken(arrays, "makers", np.float64, k, k)) if made else None


class Bounded(Basis, ABC):
    """A memory of at most m directions: a subclass says in `trim` which go."""

    def __init__(self, m: int) -> None:
        super().__init__()
        self.m = door.count("m", m)

    def room(self, size: int) -> int:
        # The more room, the rarer columns are folded, and the more there is to read at every step.
        # What fits the first cache nobody counts.
        return self.m + max(4, min(24, self.m // 8), min(16, (1 << 15) // size))

    @abstractmethod
    def trim(self) -> None: ...

    def settings(self) -> dict[str, Any]:
        return {"m": self.m}


def _float_type(G: object) -> npt.DTypeLike:
    return np.float32 if getattr(G, "dtype", None) == np.float32 else np.float64
