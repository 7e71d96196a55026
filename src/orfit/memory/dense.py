"""Keep the whole P, p×p: what RLS, NTK-RLS and the Kalman filter do."""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from orfit import door, schema, small, tall
from orfit.door import Array, check_finite, symmetric
from orfit.growth import Growth, refuse
from orfit.memory.base import Carried, Memory, Noted
from orfit.memory.drift import added, checked, drifts, widened
from orfit.memory.known import Known, as_rows
from orfit.memory.motion import times
from orfit.memory.removal import CERTAIN, NEVER, SLACK, accuracy
from orfit.memory.whole_loop import READY, Walk, settle
from orfit.memory.windup import Width, cured
from orfit.schema import Fields, Layout

SMALL = 256  # parameters up to which another P costs next to nothing


@dataclass(frozen=True)
class DenseSplit:
    """Lᵀ G = Q T, so P G = (L Q) T and Gᵀ P G = Tᵀ T, where P = L Lᵀ with L = fade · root."""

    root: Array
    fade: float
    Q: Array  # p×r orthonormal
    T: Array  # r×n
    blur: float  # how much the remainders magnify rounding
    total: float  # |G|, times what P₀ makes of it
    noise: float
    along_w: Array  # Gᵀ w
    width: Width

    @property
    def factor(self) -> Array:
        return self.T

    @property
    def novelty(self) -> float:
        # With forgetting, P grows beyond its prior; no gradient is newer than new.
        return min(1.0, small.frobenius(self.T) / self.total) if self.total > 0 else 0.0

    @cached_property
    def LQ(self) -> Array:
        return self.fade * np.asarray(tall.combine(self.root, self.Q))

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

    Examples:
        >>> learner = orfit.RLS(orfit.Linear(2), prior=4.0)
        >>> print(learner.memory.P)
        [[0.25 0.  ]
         [0.   0.25]]
    """

    compiled = drifts = moves = merges = True
    width, reach = Noted(), Noted()

    def __init__(self, prior: object = 1.0) -> None:
        """prior: Π, so that P₀ = Π⁻¹: a positive number, p of them, or a p×p matrix."""
        super().__init__()
        self.prior = door.numbers("prior", prior)
        self._check_prior()
        self.L = np.empty((0, 0))
        self.width = Width(0.0, 0.0, 0.0)
        self._blur = 1.0  # by how much rounding has been magnified

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

    def _check_prior_size(self, size: int) -> None:
        if self.prior.ndim and len(self.prior) != size:
            raise ValueError(f"prior is for {len(self.prior)} parameters, the model has {size}")

    def bind(self, like: Any) -> None:
        size, dtype = len(like), tall.numpy_dtype(like)
        self._check_size(size)
        if self.size is not None:
            return
        self._check_prior_size(size)
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
        self.width = Width.of_prior(float(1 / np.sqrt(least)), dtype)

    @property
    def L(self) -> Array:
        """L: `root`, with the changes that are left to whoever reads it next."""
        self.settle()
        if self.scale[0]:
            settle(self)
        return self.root

    @L.setter
    def L(self, L: Array) -> None:
        self.catch_up()
        self.root = L
        self.rewriting: tall.OuterProduct | None = None  # of `root`, by a step
        # Of `root` by the compiled loop: scale (root − u vᵀ), where the scale is not zero.
        self.late, self.scale = np.zeros((2, len(L)), L.dtype), np.zeros(1)

    def settle(self) -> None:
        if self.rewriting is not None:
            self.rewriting.finish()
            self.rewriting = None

    def grow(self, growth: Growth) -> None:
        if growth.features:
            if self.prior.ndim:
                refuse(self, "its prior is given for each parameter")
            size, kept = len(self.root), growth.places(len(self.root))
            L = np.zeros((size + growth.features,) * 2, self.root.dtype, order="F")
            L[np.ix_(kept, kept)] = self.L
            L[growth.new, growth.new] = np.eye(growth.features) / np.sqrt(self.prior)
            self.L, self.size = L, len(L)
            self.width = replace(self.width, bound=max(self.width.bound, self.width.prior))
        self._grow(growth)

    @property
    def P(self) -> Array:
        """P = L Lᵀ, p×p."""
        return np.asarray(self.L @ self.L.T)

    @property
    def one_prior(self) -> bool:  # type: ignore[override]
        return self.prior.ndim == 0

    @property
    def rank(self) -> int:
        return self.size or 0

    @property
    def numbers(self) -> int:
        return self.root.size

    def accept_drift(self, drift: object, size: int) -> Any:
        return checked(drift, size)

    def loop_obstacle(self, noise: float, drift: Any) -> str | None:
        if drifts(drift):
            return "with drift each row takes a QR, which LAPACK does"
        return None if noise > 0 else "without noise, what is rounding is told by the plain step"

    def walk(self, *settings: Any) -> Walk:
        return Walk(self, *settings)

    @property
    def loop_ready(self) -> bool:
        return self.root.dtype in READY

    def split(
        self, G: Any, noise: float = 0.0, forgetting: float = 1.0, drift: Any = 0.0
    ) -> DenseSplit:
        along_w = self._along_w(G)
        G = tall.to_numpy(G)  # what is p×p stays with NumPy
        norms = tall.lengths(G)
        L, fade, width = self._faded(G, norms, noise, forgetting, drift)
        lengths_ = width.prior * norms
        # Without noise a remainder is divided by: it must be more than the rounding of all before.
        uncertainty = self._blur * lengths_ if noise == 0 else lengths_
        provenance = small.Provenance() if noise == 0 else None
        LG = np.asarray(fade * tall.inner(L, G), L.dtype, order="F")
        Q, T, _ = tall.orthonormalise(LG, np.empty((0, G.shape[1])), uncertainty, provenance)
        blur = 0.0
        if noise == 0:
            pivots = small.pivots(T)
            blur = small.frobenius(lengths_[pivots] / np.abs(T[range(len(T)), pivots]))
        total = small.frobenius(lengths_)
        return DenseSplit(L, fade, Q, T, blur, total, noise, along_w, width)

    def advance(self, w: Any, A: Any, drift: Any = 0.0, noise: Any = 0.0) -> None:
        L = np.asarray(times(A, self.L), self.L.dtype, order="F")
        if drifts(drift):
            L = added(L, drift)
        check_finite("P after a step in time", L)
        self.w, self.L = w, L
        self.width = self.width.measured(L)

    def variance(self, G: Any, noise: float, guess: int = 0) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(tall.lengths(tall.inner(self.L, tall.to_numpy(G))) ** 2)

    def merge_obstacle(self, noise: float) -> str | None:
        return None if noise > 0 else "a P that has no inverse tells no rows: take ORFit(noise=0)"

    def as_rows(self, moved: Any, noise: float) -> Known:
        """With Π = A Aᵀ, P = A⁻ᵀ K Kᵀ A⁻¹, K = W diag(g) Zᵀ: gradients A W diag(R (g⁻² − 1))^½."""
        A = self._root_of_prior()
        W, g, _ = linalg.svd(A.T @ self.L)
        with np.errstate(divide="ignore"):
            gamma = np.sqrt(noise * np.maximum((1 - g) * (1 + g), 0.0)) / g
        check_finite("what was seen, beside the prior,", gamma)
        c = W.T @ (A.T @ tall.to_numpy(moved))
        return as_rows(tall.convert(self._w, A @ W), gamma, c, noise)

    def _root_of_prior(self) -> Array:
        """A, p×p, with Π = A Aᵀ."""
        if self.prior.ndim == 2:
            return np.asarray(linalg.cholesky(self.prior, lower=True))
        return np.asarray(np.sqrt(self.prior) * np.eye(self.size or 0))

    def remove(self, G: Any, residual: Array, moved: Any, noise: float, others: int) -> None:
        """P + P G (R I − GᵀPG)⁻¹ GᵀP: a step with the noise's sign turned round.

        GᵀPG is known up to what rounding makes of L's widest direction.
        """
        past, eps = self.split(G, noise), float(np.finfo(self.root.dtype).eps)
        if not len(past.T):  # there are nothing but zeros
            return
        W, s, Vt = linalg.svd(past.T, full_matrices=False)
        a = s / math.sqrt(noise)
        gap = (1 - a) * (1 + a)
        widest = small.frobenius(past.root) * small.frobenius(tall.norms(tall.to_numpy(G)))
        error = SLACK * eps * (1 + widest / math.sqrt(noise))
        if (gap < -CERTAIN * error).any():
            raise ValueError(NEVER)
        if (error > accuracy(eps) * gap).any():
            raise ValueError(
                "what would be left is drowned in rounding: beside these rows too little was seen "
                "along their directions; train anew without them"
            )
        z = W @ (-(a / gap)[:, None] * (Vt @ residual)) / math.sqrt(noise)
        self._move(past.move(z)[0])
        K, LK = tall.combine(past.Q, W), tall.combine(past.LQ, W * (1 - 1 / np.sqrt(gap)))
        self.L = np.asfortranarray(tall.subtract_outer(past.root, past.fade, LK, K))
        self.width = self.width.measured(self.root)

    def remember(self, past: DenseSplit, move: tuple[Array, float] | None = None) -> None:
        if move is not None:
            self._move(move)
        self._blur = float(np.hypot(self._blur, past.blur))
        self.width = past.width
        # I − T (TᵀT + R I)⁻¹ Tᵀ has the root I − W diag(1 − sqrt(R / (s² + R))) Wᵀ.
        W, s = small.left_vectors(past.T)
        root = np.sqrt(past.noise)
        share = 1 - root / np.hypot(s, root) if root > 0 else np.ones(len(s))
        K, LK = tall.combine(past.Q, W), tall.combine(past.LQ, W * share)
        if len(K) <= SMALL or not LK[:, :1].any():
            self.root = tall.subtract_outer(past.root, past.fade, LK, K)
        else:  # in its place: another p×p would be written, and read, for nothing
            self.root = tall.with_word(past.root)
            self.rewriting = tall.OuterProduct(self.root, past.fade, LK, K)

    def _faded(
        self, G: Array, norms: Array, noise: float, forgetting: float, drift: Any
    ) -> tuple[Array, float, Width]:
        """The root of P / forgetting + Q, as an array and a factor, and how wide it is.

        This is the normalised recursion, which never forms a power of `forgetting`.
        """
        L, fade = self.L, 1 / math.sqrt(forgetting)
        width = self.width.faded(fade)
        if forgetting < 1 and width.bound > width.limit(noise, norms.max()):
            L, width = cured(L, fade, width, G, norms, noise)
            fade = 1.0
        if drifts(drift):
            L, fade = added(fade * L, drift), 1.0
            width = replace(width, bound=widened(width.bound, drift, len(L)))
        return L, fade, width

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        return {"L": self.L, "prior": self.prior, "w": tall.to_numpy(self._w)}, {
            "reach": self.reach,
            "blur": self._blur,
            "width": asdict(self.width),
        }

    def fields(self) -> Fields:
        return {
            "reach": door.nonnegative,
            "blur": door.nonnegative,
            "width": schema.record(Width.fields),
        }

    def layout(self) -> Layout:
        w, size = self._w, self.size
        return {
            "L": (self.root.dtype, size, size),
            "prior": (schema.DOUBLE, schema.ANY),
            "w": (tall.numpy_dtype(w), *w.shape),
        }

    def needs(self, size: int) -> dict[str, tuple[int, ...]]:
        return {"L": (size, size)}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self.prior = arrays["prior"]
        self._check_prior()
        self._check_prior_size(self.size or 0)
        self.L = np.asfortranarray(arrays["L"])
        self._take_up(arrays, values)
        self._blur = values["blur"]
        self.width = Width(**values["width"])
