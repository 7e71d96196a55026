"""Memories that keep orthonormal directions U, and what was seen along them.

With observation noise R,

    P = U E Eᵀ Uᵀ + ρ (I − U Uᵀ),     E Eᵀ = R (Γ Γᵀ + κ I)⁻¹,     κ = R / prior variance

where A Aᵀ ≈ U Γ Γᵀ Uᵀ for all past gradients A. R = 0: E = 0 and ρ = 1, P is a projector.

If a dropped direction counted as never seen, w would move along it as on the first day. So the
tail τ is the energy that was seen along each direction that is not kept, the same for all of them,
and ρ = R / (κ + τ). The prior variance is 1 and grows where w drifts: P ← P + q I turns Γ Γᵀ, τ and
the prior each into another of its kind, exactly.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from orfit import small_linalg, validation
from orfit.growth import Growth
from orfit.memory import frame
from orfit.memory.base import Memory, StepSettings, plain_settings
from orfit.memory.frame import Projection
from orfit.memory.removal import NEVER_LEARNED, without
from orfit.memory.sufficient_rows import SufficientRows, as_rows, merged_tail, pull, scaled
from orfit.small_linalg import product
from orfit.state import State
from orfit.store import arithmetic, cutoff, largest_allowed, numpy_dtype
from orfit.validation import Array

FAR = 1e-6  # of the largest number: the coefficients of a longer step are checked one by one
NEGLIGIBLE = 1e-14  # of τ: a noise below this is zero if something was dropped
ROUNDING = 1e-9  # by which sigma may rise where it should fall
SPANNED = 100.0  # times the cutoff: the new part of a gradient that was learned is shorter
FITTED = 1e-8  # of a label: the residual of a label that was interpolated is smaller
LARGEST_ENERGY = 1e300  # larger energies overflow when they are added
LEAST_VARIANCE = 1e-150  # P is never less, so that its inverse and its square are finite
ONLY_A_NUMBER = (
    "dynamics must be a number γ: ORFit does not move P by a matrix exactly; "
    "use orfit.EKF(model, noise=R, dynamics=A)"
)
BLOCK = 16  # the least number of rows between compactions, if they fit into the first cache
L1_NUMBERS = 1 << 15


class Tail(NamedTuple):
    """The tail's fields of a state."""

    level: Array  # τ of each candidate
    dropped: Array  # the dropped energy, less what was known of it
    rows: float  # gradients seen
    dropping: float  # gradients at which something was dropped


class BasisDecomposition(NamedTuple):
    """G = U C + O T, so P G = [U E, √ρ O] B with B = [EᵀC; √ρ T]."""

    projection: Projection
    settings: StepSettings
    floor: Array  # κ of each candidate
    share: Array  # ρ of each candidate
    arrived: int  # how many gradients arrived
    start: float = 0.0  # the energy with which new directions start
    joined: Tail | None = None  # the tail of two merged streams, which replaces the state's

    @property
    def novelty(self) -> float:
        total = small_linalg.frobenius(self.projection.gradients.norms)
        return small_linalg.frobenius(self.projection.T) / total if total > 0 else 0.0

    @property
    def prediction(self) -> Array:
        return self.projection.gradients.prediction


class Basis(Memory):
    """The common part of memories of directions: U in principal axes, and the singular values.

    Each gradient rotates U to the axes of what was seen. `BasisVectors` keeps U as it is.

    Examples:
        >>> memory = orfit.memory.Unlimited()  # one of them
        >>> memory.absorb([[3.0], [4.0]])
        >>> print(memory.rank, memory.sigma.round(6))
        1 [5.]
    """

    drifts = shares_candidates = True
    drops_the_least = True  # whether the directions along which least was seen are dropped

    def __init__(self, m: int | None = None) -> None:
        super().__init__()
        self.m: Any = m  # how many directions may be kept; None: no limit

    def room(self, size: int) -> int | None:
        """How many rows are stored before a compaction; None if nothing is ever dropped."""
        return None if self.m is None else room_for(self.m, size)

    def settings(self) -> dict[str, Any]:
        return {} if self.m is None else {"m": self.m}

    # The spectrum, which `BasisVectors` keeps in another form.

    def _clear_spectrum(self, s: State) -> None:
        """No direction."""
        s.sigma = np.empty(0)

    def _shrink(self, s: State, share: Callable[[Array], Array]) -> None:
        """Multiply each energy e along the principal axes by share(e)."""
        with np.errstate(over="ignore"):  # of an energy that overflows, nothing remains
            s.sigma = s.sigma * np.sqrt(share(s.sigma * s.sigma))

    def _fade(self, s: State, forgetting: float) -> None:
        """Multiply all energies by `forgetting`."""
        s.sigma = s.sigma * math.sqrt(forgetting)

    def _damp(self, s: State, noises: Array, floors: Array, C: Array) -> Array:
        """EᵀC of each candidate, e×k×n."""
        return _shares(s, noises, floors) * C

    def _undamp(self, s: State, noises: Array, floors: Array, Z: Array) -> Array:
        """E z of each candidate, for Z e×k×q."""
        return _shares(s, noises, floors) * Z

    def _axes(self, s: State) -> tuple[Array, Array]:
        """The singular values of Γ, falling, and the rotation of U to its principal axes."""
        return s.sigma, np.eye(len(s.sigma))

    def _set_axes(self, s: State, sigma: Array) -> None:
        """U is in principal axes, with these singular values."""
        s.sigma = sigma

    def _grow_spectrum(self, s: State, d: BasisDecomposition) -> None:
        """Rotate U to the axes of [[diag(sigma), C], [0, T]] (eq:svd_update).

        The frame has the new directions. Each starts with the energy of the tail. Axes that
        `_drop` will drop have a number in sigma, but no direction.
        """
        C, T = d.projection.C, d.projection.T
        diagonal = np.append(s.sigma, np.full(len(T), math.sqrt(d.start)))
        s.sigma, turn = small_linalg.principal(np.vstack([C, T]).T, self._rotated(s), diagonal)
        frame.rotate(s, turn)
        s.dropped_energy -= d.start * len(T)  # this energy counts as kept again

    def _rotated(self, s: State) -> int | None:
        """How many of the axes along which most was seen `_drop` may keep; None for any of them."""
        return None

    def _check_spectrum(self, s: State) -> None:
        """Raise ValueError if its fields do not fit together."""
        if (s.sigma[1:] > (1 + ROUNDING) * s.sigma[:-1]).any():
            raise ValueError("sigma must be falling")

    def _drop(self, s: State, d: BasisDecomposition) -> None:
        """Drop the directions that are too many, after a block was added."""

    # What a learner calls.

    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        s, size = State(), self.size or len(like)
        room = self.room(size)
        frame.initialize(s, ops, like, 8 if room is None else capacity_of(room, size), columns)
        self._clear_spectrum(s)
        s.dropped_energy, s.prior_variance = 0.0, 1.0
        self.set_candidates(s, 1)
        return s

    def _of_kind(self, s: State, like: Any) -> State:
        if isinstance(like, np.ndarray):
            s.store = s.store.on_host()
        held = s.store.rows
        if (type(held), held.dtype) != (type(like), like.dtype):
            raise ValueError(
                f"this memory holds {held.dtype} directions as {type(held).__name__}, "
                f"not {like.dtype} as {type(like).__name__}"
            )
        return s

    def set_candidates(self, s: State, count: int) -> None:
        s.tail_level, s.tail_dropped = np.zeros(count), np.zeros(count)
        s.tail_rows = s.tail_dropping = 0.0

    def parameters(self, s: State) -> Any:
        return frame.parameters(s)

    def set_parameters(self, s: State, w: Any) -> None:
        frame.set_parameters(s, w)

    def largest_parameter(self, s: State) -> float:
        return float(s.store.ops.largest(frame.parameters(s)))

    def decompose(self, s: State, G: Any, settings: StepSettings) -> BasisDecomposition:
        history = s.history if settings.noises[0] == 0 or not self.drops_the_least else None
        projection = frame.project(s, G, history)
        self._age(s, settings, G.shape[1])
        return self._decomposition(s, projection, settings, G.shape[1])

    def _decomposition(
        self, s: State, projection: Projection, settings: StepSettings, arrived: int
    ) -> BasisDecomposition:
        floor, start = settings.noises / s.prior_variance, 0.0
        if settings.noises[0] == 0:
            return BasisDecomposition(projection, settings, floor, np.ones(len(floor)), arrived)
        if settings.tailed[settings.chosen]:
            start = s.tail_level[settings.chosen]
        share = settings.noises / (floor + s.tail_level * settings.tailed)
        return BasisDecomposition(projection, settings, floor, share, arrived, start)

    def _age(self, s: State, settings: StepSettings, rows: int) -> None:
        """Let the past fade, w drift, and so many gradients arrive."""
        left, drift = settings.forgetting, settings.drift
        if left != 1:
            self._fade(s, left)
            s.dropped_energy = left * s.dropped_energy
        if drift > 0:
            floor = settings.noise / s.prior_variance
            drifted = settings.noise / (settings.noise + drift * floor)

            def share(energy: Any) -> Any:
                return drifted * settings.noise / (settings.noise + drift * (energy + floor))

            self._shrink(s, share)
            left *= float(share(left * s.tail_level[0]))
            s.prior_variance += drift
        if left != 1:
            s.tail_level, s.tail_dropped = left * s.tail_level, left * s.tail_dropped
            s.tail_dropping *= left
        s.tail_rows = left * s.tail_rows + rows

    def factors(self, s: State, d: BasisDecomposition) -> Array:
        noises, T = d.settings.noises, d.projection.T
        if noises[0] == 0:
            return np.repeat(T[None], len(noises), axis=0)
        fresh = np.sqrt(d.share)[:, None, None] * T
        return np.concatenate([self._damp(s, noises, d.floor, d.projection.C), fresh], axis=1)

    def direction(self, s: State, d: BasisDecomposition, Z: Array) -> tuple[Array, Array]:
        """D z in coordinates along [U O], (k+r)×eq."""
        k, noises = len(d.projection.C), d.settings.noises
        if noises[0] == 0:
            old, fresh = np.zeros((len(Z), k, Z.shape[2])), Z
        else:
            old = self._undamp(s, noises, d.floor, Z[:, :k])
            fresh = np.sqrt(d.share)[:, None, None] * Z[:, k:]
        along = np.concatenate([old, fresh], axis=1)
        lengths = np.hypot.reduce(along.reshape(len(noises), -1), axis=1)
        along = along.transpose(1, 0, 2).reshape(along.shape[1], len(noises) * Z.shape[2])
        most = largest_allowed(numpy_dtype(s.store.rows))
        far = lengths.max(initial=0.0) > FAR * most
        if far and not frame.largest_coefficient(s, d.projection, along) < most:
            lengths[:] = np.inf
        return along, lengths

    def absorb_block(self, s: State, d: BasisDecomposition, along: Array | None = None) -> None:
        frame.append(s, d.projection, self._capacity(s, self.size or 0))
        if along is not None:
            frame.move(s, along)
        self._grow_spectrum(s, d)
        self._drop(s, d)
        self._make_room(s)

    def _make_room(self, s: State) -> None:
        """Compact the rows unless there is room for one more."""
        capacity = self._capacity(s, self.size or 0)
        if capacity is not None and s.store.stored >= capacity:
            frame.compact(s, capacity)

    def _limit(self, s: State) -> int:
        """How many directions may be kept now."""
        return int(self.m)

    def _capacity(self, s: State, size: int) -> int | None:
        """How many rows the buffer has; None if it grows with the rows."""
        room = self.room(size)
        return None if room is None else capacity_of(room, size)

    def rescale_candidates(self, s: State, moved: Any, start: Any) -> None:
        """Change w to ridge regression at other noises.

        Along an energy e, ridge regression at R is that at R' times (e + R') / (e + R). Exact while
        nothing was dropped or has faded; what was dropped is known on average.
        """
        (sigma, turn), source = self._axes(s), moved.source
        each = len(s.store.base) // len(source)
        before, after = (R / s.prior_variance for R in (moved.before[source], moved.after))
        energies = np.minimum(sigma, math.sqrt(LARGEST_ENERGY))[:, None] ** 2
        # More would magnify the rounding of a w that was nearly zero.
        most = 1 / math.sqrt(np.finfo(numpy_dtype(s.store.rows)).eps)
        level = self._mean_energy(s)
        with np.errstate(over="ignore"):
            along = np.minimum(most, (energies + before) / (energies + after))
            # At a lower noise, what is known on average only is not magnified.
            beyond = np.minimum(1.0, (level + before) / (level + after))
        shares = (along.repeat(each, axis=1), beyond.repeat(each))
        if start is not None:
            start = s.store.ops.side_by_side([start] * len(source))
        frame.rescale(s, moved.columns(each), turn, *shares, start)
        s.tail_level, s.tail_dropped = s.tail_level[source], s.tail_dropped[source]

    def variance(self, s: State, G: Any, settings: StepSettings) -> Array:
        C = frame.coordinates(s, G)
        rest = frame.subtract(s, G, C)
        D = frame.coordinates(s, rest)
        beyond = s.store.ops.finite_norms(frame.subtract(s, rest, D)) ** 2
        if settings.noise == 0:
            return np.asarray(beyond)
        one = settings._replace(
            noises=settings.noises[settings.chosen : settings.chosen + 1], chosen=0
        )
        floor = one.noises / s.prior_variance
        level = s.tail_level[settings.chosen] if settings.tailed[settings.chosen] else 0.0
        inside = self._damp(s, one.noises, floor, C + D)[0]
        return np.asarray((inside * inside).sum(axis=0) + one.noise / (floor + level) * beyond)

    def check_dynamics(self, by_matrix: bool) -> None:
        if not self.drifts:
            super().check_dynamics(by_matrix)
        if by_matrix:
            raise ValueError(ONLY_A_NUMBER)

    def time_update(self, s: State, w: Any, A: Any, drift: Any, noise: Any) -> None:
        """w as given, P ← γ² P + q I."""
        gamma, drift = float(A), max(drift, LEAST_VARIANCE)
        floor = noise / s.prior_variance
        prior = gamma * gamma * s.prior_variance + drift
        validation.check_finite("P after a step in time", np.array(prior))
        before = gamma**2 * noise
        unseen = before / floor + drift

        def share(energy: Any) -> Any:
            now = before / (floor + energy) + drift
            return (before / floor / unseen) * (noise / ((floor + energy) * now))

        left = float(share(s.tail_level[0]))
        self._shrink(s, share)
        s.dropped_energy = left * s.dropped_energy
        s.tail_level, s.tail_dropped = left * s.tail_level, left * s.tail_dropped
        s.tail_rows, s.tail_dropping = left * s.tail_rows, left * s.tail_dropping
        s.prior_variance = prior
        self.set_parameters(s, w)

    def grow(self, s: State, growth: Growth) -> None:
        store = s.store
        capacity = self._capacity(s, (self.size or 0) + growth.features) or store.capacity
        if s.W.shape[1] >= capacity:
            frame.compact(s, capacity)
            store = s.store
        rows = growth.insert_features(store.rows[: store.stored], 1)
        base = growth.insert_heads(growth.insert_features(store.base, 1), 0)
        made = type(store).new(store.ops, rows.T, capacity, len(base))
        s.store = made.append(rows.T).with_base(base.T)
        M = np.empty((s.store.capacity, s.store.capacity))
        M[: store.stored, : store.stored] = s.M[: store.stored, : store.stored]
        s.M, s.shift, s._w = M, growth.insert_heads(s.shift, 0), None

    def check_state(self, s: State) -> None:
        k, stored = s.W.shape
        capacity = self._capacity(s, self.size or 0) or stored + 1
        if not k <= stored < capacity:
            raise ValueError(f"{k} directions of {stored} rows do not fit into {capacity} rows")
        if self.m is not None and k > self._limit(s):
            raise ValueError(f"{k} directions are more than m={self.m}")
        frame.check(s)
        self._check_spectrum(s)

    # Merging.

    def nothing_dropped(self, s: State) -> bool:
        sigma = self._axes(s)[0]
        rounding = (cutoff(s.store.rows.dtype) * small_linalg.frobenius(sigma)) ** 2
        return bool(abs(s.dropped_energy) <= rounding and s.tail_level.max(initial=0.0) <= rounding)

    def _mean_energy(self, s: State) -> float:
        """τ as the mean energy along directions that are not kept.

        The tail's level is of the mean variance; here energies have to add up.
        """
        if self.nothing_dropped(s):
            return 0.0
        free = max(1, (self.size or 0) - len(s.W))
        return float(min(max(0.0, s.dropped_energy) / free, self._axes(s)[0][-1] ** 2))

    def as_rows(self, s: State, moved: Any, noise: float) -> SufficientRows:
        sigma, turn = self._axes(s)
        c = product(turn.T, frame.coordinates(s, moved))
        return as_rows(s.store.ops, frame.combine(s, turn), sigma, c, noise)

    def sufficient_rows(self, s: State, moved: Any, noise: float) -> SufficientRows:
        if self.nothing_dropped(s):
            return self.as_rows(s, moved, noise)._replace(tail=_tail(s))
        sigma, turn = self._axes(s)
        level, U = self._mean_energy(s), frame.combine(s, turn)
        c = product(turn.T, frame.coordinates(s, moved))
        more = np.sqrt(np.maximum((sigma - level**0.5) * (sigma + level**0.5), 0.0))
        rows = np.flatnonzero(more)
        G = scaled(s.store.ops, U, rows, more[rows])
        labels = more[rows, None] * c[rows]
        return SufficientRows(G, labels, moved, level, _tail(s), s.dropped_energy)

    def join(self, s: State, known: SufficientRows, moved: Any, noise: float) -> Any:
        """R P⁻¹ − κ I, and that times w − w₀, add up.

        First the energy that another memory has along every direction, κ + τ: w is pulled along,
        and the energy along each direction grows by τ. Its rows are then learned as any others.
        """
        assert known.tail is not None
        mine, floor = self._mean_energy(s), noise / s.prior_variance
        level = mine + known.level
        if noise == 0 and level > 0:
            noise = NEGLIGIBLE * level
        if known.rest is not None:
            sigma, turn = self._axes(s)
            pulled = pull(s.store.ops, moved, known, floor)
            less = (sigma * sigma - mine) / (sigma * sigma + floor + known.level)
            along = product(turn.T, frame.coordinates(s, pulled))
            along = product(turn, less[:, None] * along)
            shift = frame.subtract(s, pulled, along)
            shift = shift / s.store.ops.convert(shift, floor + level)
            self.set_parameters(s, self.parameters(s) + shift)
            self._set_axes(s, np.hypot(sigma, np.sqrt(known.level)))
        settings = StepSettings(np.array([noise]), np.array([True]), 0, 1.0, 0.0)
        history = s.history if noise == 0 or not self.drops_the_least else None
        projection = frame.project(s, known.G, history)
        both = merged_tail(_tail(s), known.tail)
        s.tail_level = np.array([level])
        arrived = max(0, round(both.rows - both.dropping))
        return self._decomposition(s, projection, settings, arrived)._replace(joined=both)

    def finish_join(self, s: State, known: SufficientRows, noise: float) -> None:
        s.dropped_energy += known.dropped_energy
        if noise == 0:
            s.tail_level = np.zeros(1)

    def remove(
        self, s: State, G: Any, residual: Array, moved: Any, noise: float, others: int
    ) -> None:
        projection = frame.project(s, G, None)
        norms, rounding = projection.gradients.norms, cutoff(s.store.rows.dtype)
        new = np.sqrt((projection.T * projection.T).sum(axis=0))
        if (new > SPANNED * rounding * norms).any():
            raise ValueError(NEVER_LEARNED)
        if noise == 0:
            labels = np.abs(projection.gradients.prediction + residual).max(initial=0.0)
            if np.abs(residual).max(initial=0.0) > max(FITTED, SPANNED * rounding) * labels:
                raise ValueError(
                    "y is not what was learned for x, or others contradicted it: with noise=0 it "
                    "would be fitted"
                )
            residual = np.zeros_like(residual)
        sigma, turn = self._axes(s)
        Z = product(turn.T, projection.C)
        c = product(turn.T, frame.coordinates(s, moved))
        eps = float(np.finfo(numpy_dtype(G)).eps)
        left = without(sigma, Z, noise, small_linalg.frobenius(norms), others, eps)
        E, kept = left.E, len(left.sigma)
        after = product(E.T, c) - product(E.T, product(Z, residual)) / left.squares[:, None]
        after[np.isinf(left.squares)] = 0.0
        frame.move(s, product(turn, product(E, after) - c))
        frame.rotate(s, product(turn, E[:, :kept]))
        self._set_axes(s, left.sigma)
        s.tail_rows = max(0.0, s.tail_rows - G.shape[1])
        self._make_room(s)

    # What users call.

    def absorb(self, G: object) -> None:
        """Add the columns of G (p×n, or one of p) to the memory (eq:svd_update).

            [A G] = [U O] [[Γ, C], [0, T]]

        A column that is already spanned adds no direction but still raises `sigma`.
        This is all that is needed to use a memory by itself, as an incremental, uncentred
        principal component analysis of a stream of columns.
        """
        self.check_free()
        columns = self._columns(G)
        s = self.state_for(columns, len(columns), 0)
        if columns.shape[1]:
            self.absorb_block(s, self.decompose(s, columns, plain_settings()))
        self._cell.state = s

    def _columns(self, G: Any) -> Any:
        """The argument G, checked, as this memory holds directions."""
        s = self._cell.state
        like = None if s is None else s.store.rows
        tensors = hasattr(G, "detach") if like is None else not isinstance(like, np.ndarray)
        if tensors:
            from orfit.store.torch import finite_tensor  # torch is optional

            columns: Any = finite_tensor("G", G, like)
        else:
            single = getattr(G, "dtype", None) == np.float32
            kind = (np.float32 if single else np.float64) if like is None else like.dtype
            columns = validation.numbers("G", G, kind)
        if columns.ndim not in (1, 2):
            shape = tuple(columns.shape)
            raise ValueError(f"G must be p×n, or one column of p; it has shape {shape}")
        columns = columns.reshape(len(columns), -1)
        return columns.T.contiguous().T if tensors else np.asfortranarray(columns)

    def project(self, G: Any) -> Any:
        """G − U (UᵀG), p-sized: the part of G that does not touch the past (eq:ogd_projection)."""
        s = self._cell.state
        if s is None:
            return arithmetic(G).copy(G)
        if not isinstance(G, np.ndarray) and isinstance(s.store.rows, np.ndarray):
            return self._cell.public(self.project(np.asarray(G)))
        rest = frame.subtract(s, G, frame.coordinates(s, G))
        return frame.subtract(s, rest, frame.coordinates(s, rest))

    def rank_in(self, s: State) -> int:
        return len(s.W)

    def norms(self, d: Any) -> Array:
        return np.asarray(d.projection.gradients.norms)

    def numbers_in(self, s: State) -> int:
        rows, size = s.store.rows.shape
        return int(rows * size + s.W.size + s.store.stored**2 + s.shift.size)

    @property
    def lost(self) -> float:
        s = self._current
        return 0.0 if s is None else float(s.dropped_energy)

    @property
    def most(self) -> int | None:
        return None if self.m is None else int(self.m)

    @property
    def dropped_per_row(self) -> float:
        s = self._current
        return max(0.0, s.dropped_energy) / s.tail_rows if s is not None and s.tail_rows else 0.0

    @property
    def U(self) -> Any:
        """The remembered directions, p×k orthonormal, in the order of `sigma`."""
        s = self._current
        if s is None:
            return np.empty((0, 0))
        return self._cell.public(frame.combine(s, self._axes(s)[1]))

    @property
    def sigma(self) -> Array:
        """How much was seen along the columns of `U`: singular values, falling."""
        s = self._current
        return np.empty(0) if s is None else np.array(self._axes(s)[0])


class Bounded(Basis, ABC):
    """A memory of at most m directions: a subclass decides in `keep` which ones.

    Examples:
        >>> class Large(orfit.memory.Bounded):
        ...     '''The directions above a tenth of the largest.'''
        ...
        ...     def keep(self, sigma, m):
        ...         return np.flatnonzero(sigma > 0.1 * sigma[0])[:m]
        >>> memory = Large(2)
        >>> memory.absorb(np.diag([5.0, 0.1, 0.2]))
        >>> print(memory.sigma)
        [5.]
    """

    drops_the_least = False

    def __init__(self, m: int) -> None:
        super().__init__(validation.count("m", m))

    @abstractmethod
    def keep(self, sigma: Array, m: int) -> Any:
        """Decide which directions are kept. It is called when there are more than m.

        sigma: how much was seen along each of them: singular values, falling.

        Returns: an array of at most m whole numbers, the indices of the directions to keep. Or an
            array of len(sigma) floats, the numbers ≥ 0 by which the singular values are
            multiplied; at most m of them are not 0, and 0 drops the direction.
        """

    def numbers_within(self, size: int) -> int:
        """How many numbers it stores at most, for gradients of that size.

        The rows, W, M and the rounding history.
        """
        rows = capacity_of(room_for(self.m, size), size)
        return int(rows * (size + min(self.m, rows) + 2 * rows))

    def _drop(self, s: State, d: BasisDecomposition) -> None:
        sigma, m = s.sigma, self._limit(s)
        if len(sigma) <= m:
            return
        weights = checked_weights(type(self).__name__, self.keep(sigma.copy(), m), sigma, m)
        left, changed = weights * sigma, weights != 1
        kept = np.flatnonzero(weights)
        kept = kept[np.argsort(-left[kept], kind="stable")]
        with np.errstate(over="ignore"):
            s.dropped_energy += float(((sigma - left)[changed] * (sigma + left)[changed]).sum())
        s.sigma = left[kept]
        frame.drop(s, s.W[kept])


def checked_weights(name: str, returned: Any, sigma: Array, m: int) -> Array:
    """What the method `keep` of this memory returned, as weights; at most m of them are not 0."""
    made, count, weights = np.asarray(returned), len(sigma), np.zeros(len(sigma))
    if made.ndim == 1 and (made.dtype.kind in "iu" or not made.size):
        inside = made[(made >= 0) & (made < count)].astype(int)
        weights[inside] = 1.0
        if np.count_nonzero(weights) < len(made):
            raise ValueError(f"{name}.keep must return different indices below {count}, not {made}")
    elif made.shape == (count,) and made.dtype.kind == "f":
        weights[:] = made
        with np.errstate(over="ignore", invalid="ignore"):
            if not ((weights >= 0) & np.isfinite(weights * sigma)).all():
                raise ValueError(f"{name}.keep must return finite weights ≥ 0, not {made}")
    else:
        raise ValueError(
            f"{name}.keep must return indices (whole numbers) or {count} weights (floats), not an "
            f"array of {made.dtype} with shape {made.shape}; numpy.flatnonzero turns a mask of "
            "bools into indices"
        )
    kept = np.count_nonzero(weights)
    if kept > m:
        raise ValueError(f"{name}.keep must keep at most {m} directions, not {kept}")
    return weights


@functools.cache
def room_for(m: int, size: int) -> int:
    """How many rows to store for m directions.

    More rows make compactions rarer, and each step reads more.
    """
    return int(m + max(8, int(2.5 * m**0.5), min(BLOCK, L1_NUMBERS // max(1, size))))


@functools.cache
def capacity_of(room: int, size: int) -> int:
    """There are never many more rows than dimensions."""
    return min(room, size + 8)


def energy(A: Array) -> float:
    """The sum of squares; it may overflow."""
    with np.errstate(over="ignore"):
        return float(np.sum(A * A))


def _shares(s: State, noises: Array, floors: Array) -> Array:
    """E, which is diagonal, of each candidate: e×k×1. sigma² may overflow."""
    return np.asarray(
        np.sqrt(noises)[:, None, None] / np.hypot(s.sigma[:, None], np.sqrt(floors)[:, None, None])
    )


def _tail(s: State) -> Tail:
    return Tail(s.tail_level, s.tail_dropped, s.tail_rows, s.tail_dropping)
