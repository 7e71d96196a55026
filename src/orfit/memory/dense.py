"""Keep the whole P, p×p: what RLS, NTK-RLS and the Kalman filter do."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from orfit import door, small, tall
from orfit.door import Array, symmetric
from orfit.memory.base import Carried, Memory, taken

# How far back the cure of wind-up sets L, so that it is rarely needed.
WINDUP_SETBACK = 10.0


@dataclass(frozen=True)
class DenseSplit:
    """Lᵀ G = Q T, so P G = (L Q) T and Gᵀ P G = Tᵀ T."""

    L: Array
    Q: Array  # p×r orthonormal
    T: Array  # r×n
    blur: float  # how much the remainders magnify rounding
    fresh: bool  # whether G points, visibly, where P is widest
    total: float  # |G|, times what P₀ makes of it
    noise: float
    along_w: Array  # Gᵀ w

    @property
    def factor(self) -> Array:
        return self.T

    @property
    def novelty(self) -> float:
        # With forgetting, P grows beyond its prior; no gradient is newer than new.
        return min(1.0, small.frobenius(self.T) / self.total) if self.total > 0 else 0.0

    @cached_property
    def LQ(self) -> Array:
        return np.asarray(tall.combine(self.L, self.Q))

    def displacement(self, z: Array) -> Array:
        return np.asarray(tall.combine(self.LQ, z))

    def move(self, z: Array) -> tuple[tuple[Array, float], float]:
        displacement = self.displacement(z)
        length = small.frobenius(tall.norms(displacement))
        return (displacement, length), length


class Dense(Carried, Memory):
    """P = L Lᵀ, p×p, kept as its root L (Potter's square-root form), which keeps P ≥ 0.

        P ← P − P G (Gᵀ P G + R I)⁻¹ Gᵀ P          (eq:rls_update, eq:rls_update_general)

    O(p² n) a step, O(p²) memory. A `Basis` memory does the same in O(k n p).
    """

    def __init__(self, prior: object = 1.0) -> None:
        """prior: Π, so that P₀ = Π⁻¹: a positive number, p of them, or a p×p matrix."""
        super().__init__()
        self.prior = door.numbers("prior", prior)
        self._check_prior()
        self.L = np.empty((0, 0))
        self._scale = 0.0  # |L| at first
        self._blur = 1.0  # by how much rounding has been magnified
        self._fresh = 0  # how many blocks did point where P was widest

    def _check_prior(self) -> None:
        if self.prior.ndim > 2 or (self.prior.ndim == 2 and len(set(self.prior.shape)) != 1):
            raise ValueError(f"prior must be a number, p of them or p×p; it is {self.prior.shape}")
        if self.prior.ndim == 2:
            if not symmetric(self.prior):
                raise ValueError("prior must be symmetric")
            try:
                linalg.cholesky(self.prior)
            except linalg.LinAlgError:
                raise ValueError("prior must be positive definite") from None
        elif not (self.prior > 0).all():
            raise ValueError(f"prior must be positive; its least value is {self.prior.min():g}")

    def bind(self, like: Any) -> None:
        size, dtype = len(like), tall.numpy_dtype(like)
        self._check_size(size)
        if self.size is not None:
            return
        if self.prior.ndim and len(self.prior) != size:
            raise ValueError(f"prior is for {len(self.prior)} parameters, the model has {size}")
        if self.prior.ndim < 2:
            L = np.zeros((size, size), dtype, order="F")
            np.fill_diagonal(L, 1 / np.sqrt(self.prior))
            least = self.prior.min()
        else:
            # Π = A Aᵀ, so P₀ = A⁻ᵀ A⁻¹.
            A = linalg.cholesky(self.prior, lower=True)
            L = linalg.solve_triangular(A, np.eye(size), lower=True, trans="T")
            least = linalg.eigvalsh(self.prior, subset_by_index=[0, 0])[0]
        self.size, self.L = size, np.asarray(L, dtype, order="F")
        self._scale = float(1 / np.sqrt(least))

    @property
    def P(self) -> Array:
        """P = L Lᵀ, p×p."""
        return np.asarray(self.L @ self.L.T)

    @property
    def rank(self) -> int:
        return self.size or 0

    @property
    def numbers(self) -> int:
        return self.L.size

    def split(
        self, G: Any, noise: float = 0.0, forgetting: float = 1.0, drift: float = 0.0
    ) -> DenseSplit:
        along_w = self._along_w(G)
        G = tall.to_numpy(G)  # what is p×p stays with NumPy
        norms = tall.lengths(G)
        L, width = self._faded(forgetting)
        lengths_ = self._scale * norms
        # Without noise a remainder is divided by: it must be more than the rounding of all before.
        uncertainty = self._blur * lengths_ if noise == 0 else lengths_
        makers = small.Makers() if noise == 0 else None
        LG = np.asarray(tall.inner(L, G), L.dtype, order="F")
        Q, T, _ = tall.orthonormalise(LG, np.empty((0, G.shape[1])), uncertainty, makers)
        pivots = small.pivots(T)
        steps = np.abs(T[range(len(T)), pivots])
        blur = small.frobenius(lengths_[pivots] / steps) if noise == 0 else 0.0
        fresh = small.frobenius(T) > 1e-3 * width * small.frobenius(norms)
        return DenseSplit(L, Q, T, blur, fresh, small.frobenius(lengths_), noise, along_w)

    def variance(self, G: Any, noise: float, guess: int = 0) -> Array:
        return np.asarray(tall.lengths(tall.inner(self.L, tall.to_numpy(G))) ** 2)

    def fold(self, past: DenseSplit, move: tuple[Array, float] | None = None) -> None:
        if move is not None:
            self._move(move)
        self.L = past.L
        self._blur = float(np.hypot(self._blur, past.blur))
        self._fresh += past.fresh
        if len(past.T):
            # I − T (TᵀT + R I)⁻¹ Tᵀ has the root I − W diag(1 − sqrt(R / (s² + R))) Wᵀ.
            W, s, _ = linalg.svd(past.T, full_matrices=False)
            root = np.sqrt(past.noise)
            share = 1 - root / np.hypot(s, root) if root > 0 else np.ones(len(s))
            # In its place: another p×p would be written, and read, for nothing.
            K, LK = tall.combine(past.Q, W), tall.combine(past.LQ, W * share)
            gemm = tall.GEMM[self.L.dtype]
            self.L = np.asarray(gemm(-1.0, LK, K, trans_b=1, beta=1.0, c=self.L, overwrite_c=True))

    def _faded(self, forgetting: float) -> tuple[Array, float]:
        """L with P / forgetting, and how wide it is on average (zero where nobody need know).

        This is the normalised recursion, which never forms a power of `forgetting`.

        P grows so along directions that the stream has left, without end (wind-up), and rounding
        relative to those drowns the rest. So P is held below a limit: eps^(-3/4) times its prior,
        where L's rounding is still 2e-10 in float64. Where each block points in a direction never
        seen, as in an overparameterized model, it may grow as it must.
        """
        if forgetting == 1:
            return self.L, 0.0
        L = self.L / self.L.dtype.type(np.sqrt(forgetting))
        type_ = np.finfo(L.dtype)
        most = 0.4 * np.log(float(type_.max))  # of log L, so that squares are finite too
        needed = -0.5 * (self._fresh + 2) * np.log(forgetting)
        limit = self._scale * np.exp(min(most, max(-0.375 * np.log(float(type_.eps)), needed)))
        width = small.frobenius(L) / len(L) ** 0.5
        if width > limit:
            W, s, Vt = linalg.svd(L)
            L = np.asarray((W * np.minimum(s, limit / WINDUP_SETBACK)) @ Vt, L.dtype, order="F")
            width = small.frobenius(L) / len(L) ** 0.5
        return L, width

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"L": self.L, "prior": self.prior} | self._carried(), {
            "reach": self.reach,
            "scale": self._scale,
            "blur": self._blur,
            "fresh": self._fresh,
        }

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self.L = np.asfortranarray(taken(arrays, "L", self.L.dtype, self.size, self.size))
        self.prior = arrays["prior"]
        self._take_up(arrays, values)
        self._scale, self._blur = float(values["scale"]), float(values["blur"])
        self._fresh = int(values["fresh"])
