"""Keep the whole P, p×p: what RLS, NTK-RLS and the Kalman filter do."""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy

from orfit import small_linalg, validation
from orfit.growth import Growth, refuse
from orfit.memory import covariance, windup
from orfit.memory.base import Memory, StepSettings, plain_settings
from orfit.memory.drift import checked_drift, drift_root, drifts, widened
from orfit.memory.frame import orthonormalize
from orfit.memory.removal import CERTAIN, NEVER_LEARNED, SLACK, accuracy
from orfit.memory.sufficient_rows import SufficientRows, as_rows
from orfit.state import State
from orfit.store import HOST, arithmetic, cutoff, numpy_dtype
from orfit.validation import Array, check_finite, symmetric


class DenseDecomposition(NamedTuple):
    """Lᵀ G = Q T, so P G = (L Q) T and Gᵀ P G = Tᵀ T, where P = L Lᵀ."""

    settings: StepSettings
    G: Array  # p×n
    Q: Array  # p×r orthonormal
    T: Array  # r×n
    LQ: Array  # p×r
    amplification: float  # by how much the remainders magnify rounding
    total: float  # |G|, times the prior's width
    prediction: Array  # Gᵀ w

    @property
    def novelty(self) -> float:
        # With forgetting, P may exceed its prior; the novelty is 1 at most.
        return min(1.0, small_linalg.frobenius(self.T) / self.total) if self.total > 0 else 0.0


class Dense(Memory):
    """The whole P, p×p, as P = L Lᵀ with L = U D^½ (Bierman's form), which keeps P ≥ 0.

        P ← P − P G (Gᵀ P G + R I)⁻¹ Gᵀ P          (eq:rls_update, eq:rls_update_general)

    O(p² n) a step, O(p²) memory, in float64 for any model. A `Basis` memory does the same in
    O(k n p). The core keeps a P that drifts as it is, `is_root` false; then the lower triangle of
    the field P counts, and the next block makes it a root again.

    Examples:
        >>> learner = orfit.RLS(orfit.Linear(2), prior=4.0)
        >>> print(learner.memory.P)
        [[0.25 0.  ]
         [0.   0.25]]
    """

    drifts = merges = True

    def __init__(self, prior: object = 1.0) -> None:
        """prior: Π, so that P₀ = Π⁻¹: a positive number, p of them, or a p×p matrix."""
        super().__init__()
        self.prior = validation.numbers("prior", prior)
        if self.prior.ndim > 2 or (self.prior.ndim == 2 and len(set(self.prior.shape)) != 1):
            raise ValueError(f"prior must be a number, p of them or p×p; it is {self.prior.shape}")
        if self.prior.ndim == 2:
            if not symmetric(self.prior):
                raise ValueError("prior must be symmetric")
            try:
                scipy.linalg.cholesky(self.prior)
            except scipy.linalg.LinAlgError:
                raise ValueError("prior must be positive definite") from None
        elif not (self.prior > 0).all():
            raise ValueError(f"prior must be positive; its least value is {self.prior.min():g}")

    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        size = len(like)
        if self.prior.ndim and len(self.prior) != size:
            raise ValueError(f"prior is for {len(self.prior)} parameters, the model has {size}")
        if self.prior.ndim < 2:
            rows, D = np.eye(size), np.ones(size) / self.prior
            least = self.prior.min()
        else:
            # Π = A Aᵀ, so P₀ = A⁻ᵀ A⁻¹.
            A = scipy.linalg.cholesky(self.prior, lower=True)
            L = scipy.linalg.solve_triangular(A, np.eye(size), lower=True, trans="T")
            rows, D = covariance.factored(L)
            least = scipy.linalg.eigvalsh(self.prior, subset_by_index=[0, 0])[0]
        self._prior_width = float(1 / np.sqrt(least))
        w = ops.convert(like, np.zeros((size, columns)))
        s = State(w=w, parameter_bound=0.0, P=rows, D=D, is_root=True)
        s.amplification, s.width, s.wound_up = 1.0, self._prior_width, False
        return s

    def set_candidates(self, s: State, count: int) -> None:
        if count > 1:
            raise ValueError(f'"auto" needs a memory of directions; {self!r} is none')

    def parameters(self, s: State) -> Any:
        return s.w

    def set_parameters(self, s: State, w: Any) -> None:
        ops = arithmetic(w)
        s.w, s.parameter_bound = ops.copy(w), ops.largest(w)

    @property
    def P(self) -> Array:
        """P = L Lᵀ, p×p."""
        s = self._current
        if s is not None and not s.is_root:
            return np.asarray(np.tril(s.P) + np.tril(s.P, -1).T)
        L = self.L
        return np.asarray(L @ L.T)

    @property
    def L(self) -> Array:
        """The root of P, upper triangular."""
        s = self._current
        return np.empty((0, 0)) if s is None else self._root(s)

    @staticmethod
    def _root(s: State) -> Array:
        """L, for a P in either form."""
        factors = (s.P, s.D) if s.is_root else covariance.factored_covariance(s.P)
        return covariance.root(*factors)

    @staticmethod
    def _set_root(s: State, L: Array) -> None:
        """P = L Lᵀ, for L (p×m)."""
        s.P, s.D = covariance.factored(L)
        s.is_root = True

    @property
    def one_prior(self) -> bool:  # type: ignore[override]
        return self.prior.ndim == 0

    def rank_in(self, s: State) -> int:
        return len(s.P)

    def numbers_in(self, s: State) -> int:
        return int(s.P.size)

    def check_drift(self, drift: object, size: int) -> Any:
        return checked_drift(drift, size)

    def check_dynamics(self, by_matrix: bool) -> None:
        """Any A is possible."""

    def decompose(self, s: State, G: Any, settings: StepSettings) -> DenseDecomposition:
        ops = arithmetic(s.w)
        prediction = np.empty((G.shape[1], 0)) if not s.w.shape[1] else ops.inner(G, s.w)
        rounding = cutoff(numpy_dtype(s.w)) / cutoff(
            np.dtype(np.float64)
        )  # of w, which residuals show
        G = np.asarray(ops.to_numpy(G), np.float64, order="F")  # P stays a NumPy array
        norms, noise = HOST.finite_norms(G), settings.noise
        L = self._age(s, G, norms, settings)
        lengths = self._prior_width * norms
        # Without noise a remainder is divided by: it must exceed the rounding of all before.
        uncertain = s.amplification * rounding * lengths if noise == 0 else lengths
        history = np.empty((0, 0), order="F") if noise == 0 else None
        LG = np.asarray(HOST.inner(L, G), order="F")
        Q, T, _ = orthonormalize(HOST, LG, np.empty((0, G.shape[1])), uncertain, history)
        amplification = 0.0
        if noise == 0:
            pivots = small_linalg.pivots(T)
            remainders = np.abs(T[range(len(T)), pivots])
            amplification = small_linalg.frobenius(lengths[pivots] / remainders)
        total = small_linalg.frobenius(lengths)
        LQ = np.asarray(HOST.combine(L, Q))
        return DenseDecomposition(settings, G, Q, T, LQ, amplification, total, prediction)

    def _age(self, s: State, G: Array, norms: Array, settings: StepSettings) -> Array:
        """P becomes P / forgetting + Q; returns its root.

        This is the normalised recursion, which never forms a power of `forgetting`.
        """
        if not s.is_root:
            s.P, s.D = covariance.factored_covariance(s.P)
            s.is_root = True
        if settings.forgetting < 1:
            s.D, s.width = s.D / settings.forgetting, s.width / math.sqrt(settings.forgetting)
            prior, longest = self._prior_width, norms.max()
            limit = windup.width_limit(s.wound_up, prior, settings.noise, longest)
            if s.width > limit:
                L = windup.limited(s, self._root(s), G, norms, prior, limit)
                if L is not None:
                    self._set_root(s, L)
        if drifts(settings.drift):
            self._set_root(s, np.hstack([self._root(s), drift_root(settings.drift, len(s.P))]))
            s.width = widened(s.width, settings.drift, len(s.P))
        return self._root(s)

    def factors(self, s: State, d: DenseDecomposition) -> Array:
        return d.T[None]

    def direction(self, s: State, d: DenseDecomposition, Z: Array) -> tuple[Array, Array]:
        displacement = np.asarray(HOST.combine(d.LQ, Z[0]))
        return displacement, np.array([small_linalg.frobenius(HOST.norms(displacement))])

    def absorb_block(self, s: State, d: DenseDecomposition, along: Any = None) -> None:
        if along is not None:
            s.w = s.w + arithmetic(s.w).convert(s.w, along)
            s.parameter_bound += small_linalg.frobenius(HOST.norms(along))
        s.amplification = float(np.hypot(s.amplification, d.amplification))
        noise = d.settings.noise
        # A block is as its rows. Without noise a column that starts no step is spanned by others.
        for j in range(d.G.shape[1]) if noise > 0 else small_linalg.pivots(d.T):
            s.P, s.D = covariance.updated(s.P, s.D, d.G[:, j], noise)

    def variance(self, s: State, G: Any, settings: StepSettings) -> Array:
        with np.errstate(over="ignore"):
            G = np.asarray(arithmetic(G).to_numpy(G), np.float64, order="F")
            LG = HOST.inner(self._root(s), G)
            return np.asarray(HOST.finite_norms(LG) ** 2)

    def time_update(self, s: State, w: Any, A: Any, drift: Any, noise: Any) -> None:
        L = self._root(s)
        L = A * L if np.ndim(A) == 0 else A @ L
        if drifts(drift):
            L = np.hstack([L, drift_root(drift, len(L))])
        check_finite("P after a step in time", L)
        with np.errstate(over="ignore"):
            self._set_root(s, L)
        check_finite("P after a step in time", s.D)
        self.set_parameters(s, w)
        s.width = windup.measured_width(L)

    def grow(self, s: State, growth: Growth) -> None:
        if growth.features:
            if self.prior.ndim:
                refuse(self, "its prior is given for each parameter")
            size, kept = len(s.P), growth.places(len(s.P))
            P, D = np.eye(size + growth.features), np.full(size + growth.features, 1 / self.prior)
            P[np.ix_(kept, kept)], D[kept] = s.P, s.D
            if not s.is_root:
                P[growth.new, growth.new] /= self.prior
            s.P, s.D = P, D
            s.width = max(s.width, self._prior_width)
        s.w = growth.insert_both(s.w)

    # Merging.

    def merge_obstacle(self, noise: float) -> str | None:
        return None if noise > 0 else "a P that has no inverse gives no rows: use ORFit(noise=0)"

    def as_rows(self, s: State, moved: Any, noise: float) -> SufficientRows:
        """With Π = A Aᵀ, P = A⁻ᵀ K Kᵀ A⁻¹, K = W diag(g) Zᵀ: gradients A W diag(R (g⁻² − 1))^½."""
        ops, A = arithmetic(s.w), self._root_of_prior()
        W, g, _ = scipy.linalg.svd(A.T @ self._root(s))
        with np.errstate(divide="ignore"):
            gamma = np.sqrt(noise * np.maximum((1 - g) * (1 + g), 0.0)) / g
        check_finite("what was seen, relative to the prior,", gamma)
        c = W.T @ (A.T @ ops.to_numpy(moved))
        return as_rows(ops, ops.convert(s.w, A @ W), gamma, c, noise)

    def _root_of_prior(self) -> Array:
        """A, p×p, with Π = A Aᵀ."""
        if self.prior.ndim == 2:
            return np.asarray(scipy.linalg.cholesky(self.prior, lower=True))
        return np.asarray(np.sqrt(self.prior) * np.eye(self.size or 0))

    def remove(
        self, s: State, G: Any, residual: Array, moved: Any, noise: float, others: int
    ) -> None:
        """P + P G (R I − GᵀPG)⁻¹ GᵀP: a step with negative noise.

        GᵀPG is known up to the rounding of L's widest direction.
        """
        d, eps = self.decompose(s, G, plain_settings(noise)), float(np.finfo(numpy_dtype(s.w)).eps)
        if not len(d.T):  # all gradients are zero
            return
        W, singular, Vt = scipy.linalg.svd(d.T, full_matrices=False)
        a = singular / math.sqrt(noise)
        gap = (1 - a) * (1 + a)
        L = self._root(s)
        widest = small_linalg.frobenius(L) * small_linalg.frobenius(HOST.norms(d.G))
        error = SLACK * eps * (1 + widest / math.sqrt(noise))
        if (gap < -CERTAIN * error).any():
            raise ValueError(NEVER_LEARNED)
        if (error > accuracy(eps) * gap).any():
            raise ValueError(
                "what would be left is lost in rounding: apart from these rows, too little was "
                "seen along their directions; train anew without them"
            )
        z = W @ (-(a / gap)[:, None] * (Vt @ residual)) / math.sqrt(noise)
        along = self.direction(s, d, z[None])[0]
        s.w = s.w + arithmetic(s.w).convert(s.w, along)
        s.parameter_bound += small_linalg.frobenius(HOST.norms(along))
        LK = HOST.combine(d.LQ, W * (1 - 1 / np.sqrt(gap)))
        L = L - LK @ HOST.combine(d.Q, W).T
        self._set_root(s, L)
        s.width = windup.measured_width(L)

    def constants(self) -> dict[str, Array]:
        return {"prior": self.prior}

    def needs(self, size: int) -> dict[str, tuple[int, ...]]:
        return {"P": (size, size)}

    def check_state(self, s: State) -> None:
        if s.is_root and not (np.triu(s.P) == np.eye(len(s.P))).all():
            raise ValueError("P must be a triangle with a unit diagonal")
        if not s.is_root and (np.diagonal(s.P) < 0).any():
            raise ValueError("P has a negative variance")
