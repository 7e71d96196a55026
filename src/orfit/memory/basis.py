"""Memories that keep directions: an orthonormal U, and how much was `Seen` along it.

What sets them apart is one method, `trim`: which directions go.
"""

import copy
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from orfit import door, schema, small, tall
from orfit import tail as tails
from orfit.door import Array
from orfit.growth import Growth
from orfit.memory.base import Memory, Noted
from orfit.memory.frame import Frame, Parts, capacity_of, decompose
from orfit.memory.known import Known, as_rows, pull, scaled, together
from orfit.memory.lengths import FIELDS as LENGTHS
from orfit.memory.lengths import Lengths
from orfit.memory.motion import LEAST, shrunk
from orfit.memory.removal import NEVER, without
from orfit.memory.seen import Triangle
from orfit.schema import Fields, Layout
from orfit.tail import Tail

FAR = 1e-6  # of the largest number: a step beyond is looked at more closely
NEGLIGIBLE = 1e-14  # of τ: so little noise is none where something was dropped
SPANNED = 100.0  # times the cutoff: what is new of a gradient that was learned is less
FITTED = 1e-8  # of a label: what is left of one that was interpolated is less


@dataclass(frozen=True)
class BasisSplit:
    """G = U C + O T, so P G = [U E, √ρ O] B with B = [EᵀC; √ρ T], E Eᵀ of `Seen` and ρ of `tail`.

    Without noise E is nothing, and ρ one.
    """

    parts: Parts
    seen: Any  # Seen, aged
    tail: Tail  # aged
    noises: Array  # R of each guess
    tailed: Array  # whether each uses the tail
    forgetting: float
    guess: int = 0  # that it is seen under

    def under(self, guess: int) -> "BasisSplit":
        """The same as another guess sees it."""
        return replace(self, guess=guess)

    @property
    def noise(self) -> float:
        return float(self.noises[self.guess])

    @property
    def arrived(self) -> int:
        """How many gradients came."""
        return int(self.parts.C.shape[1])

    @property
    def goes_on(self) -> Tail:
        """The tail from which it goes on."""
        return self.tail

    @property
    def factor(self) -> Array:
        if self.noise == 0:
            return self.parts.T
        fresh = self.loose * self.parts.T
        return np.vstack([self.seen.damped(self.parts.C, self.noise, self.floor), fresh])

    @property
    def floor(self) -> float:
        return tails.floor(self.tail, self.noise)

    @property
    def loose(self) -> float:
        """√ρ."""
        used = bool(self.tailed[self.guess])
        return math.sqrt(tails.share(self.tail, self.guess, self.noise, used))

    @property
    def novelty(self) -> float:
        total = small.frobenius(self.parts.reading.norms)
        return small.frobenius(self.parts.T) / total if total > 0 else 0.0

    @property
    def along_w(self) -> Array:
        return self.parts.reading.along_w

    def move(self, z: Array) -> tuple[Array, float]:
        """D z in coordinates along [U O], and its length."""
        k = len(self.parts.C)
        if self.noise == 0:
            along = np.vstack([np.zeros((k, z.shape[1])), z])
        else:
            old = self.seen.undamped(z[:k], self.noise, self.floor)
            along = np.vstack([old, self.loose * z[k:]])
        length = small.frobenius(along)
        most = tall.most(tall.numpy_dtype(self.parts.new.G))
        if length > FAR * most and not self.parts.longest(along) < most:
            length = np.inf  # the parts of the step are no numbers where the step is one
        return along, length

    def displacement(self, z: Array) -> Any:
        return self.parts.combine(self.move(z)[0])

    def joined(self, moves: list[Array]) -> Array:
        """The moves of several guesses as one."""
        return np.hstack(moves)


@dataclass(frozen=True)
class JoinedSplit(BasisSplit):
    """The rows of another memory, which stand for as many gradients as that has seen.

    Of what is dropped then, all of these gradients had a part. `tail` is of mean energies, to weigh
    what the two know.
    """

    both: Any = None  # the tail of the two

    @property
    def arrived(self) -> int:
        return max(0, round(float(self.both.rows - self.both.dropping)))

    @property
    def goes_on(self) -> Tail:
        made: Tail = self.both
        return made


class Basis(Memory):
    """The common part: take gradients in, then `trim`.

    This one keeps Γ as a triangle; `Principal` keeps it in principal axes.

    Examples:
        >>> memory = orfit.memory.Unlimited()  # one of them
        >>> memory.absorb([[3.0], [4.0]])
        >>> print(memory.rank, memory.sigma.round(6))
        1 [5.]
    """

    coordinates = drifts = True
    _frame, seen, tail, _lost, lengths = Noted(), Noted(), Noted(), Noted(), Noted()
    form: Any = Triangle  # of Γ: a kind of `Seen`
    drops_the_least = True  # whether what goes is what was seen least
    m: Any = None  # how many directions there may be; None: as many as come

    def __init__(self) -> None:
        self._frame = None
        self.seen = self.form()  # how much, along the frame's directions
        self.tail = tails.unseen(1)
        self._lost = 0.0
        self.lengths = Lengths()  # of gradients

    def trim(self) -> None:
        """Drop the directions that are too many, by `delete`, `reflect` or `keep`.

        `root` (k×k, A Aᵀ ≈ U rootᵀ root Uᵀ) tells what was seen along them, column j along basis
        vector j; the newest are last.
        """

    def room(self, size: int) -> int | None:
        """How many rows are stored before some are folded; None where nothing is dropped."""
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
        frame: Frame | None = self._frame
        assert frame is not None, "a memory is bound before it is used"
        return frame

    @property
    def w(self) -> Any:
        walk = None if self.walking is None else self.walking()
        return self.frame.w if walk is None else walk.w

    @w.setter
    def w(self, w: Any) -> None:
        self.frame.carry(tall.copy(w).T)

    @property
    def reach(self) -> float:
        return self.frame.reach

    @reach.setter
    def reach(self, reach: float) -> None:
        self.frame.reach = reach

    def largest(self) -> float:
        return self.frame.largest()

    @property
    def rank(self) -> int:
        return len(self.seen)

    @property
    def numbers(self) -> int:
        if self._frame is None:
            return 0
        frame = self._frame
        rows, size = frame.rows.shape
        return int(rows * size + frame.W.size + frame.stored**2 + frame.shift.size)

    @property
    def lost(self) -> float:
        return float(self._lost)

    @property
    def most(self) -> int | None:
        return None if self.m is None else int(self.m)

    @property
    def dropped_per_row(self) -> float:
        return max(0.0, self._lost) / self.tail.rows if self.tail.rows > 0 else 0.0

    @property
    def U(self) -> Any:
        """The remembered directions, p×k orthonormal, in the order of `sigma`."""
        if self._frame is None:
            return np.empty((0, 0))
        return self._frame.combine(self.seen.axes()[1])

    @property
    def sigma(self) -> Array:
        """How much was seen along the columns of `U`: singular values, falling."""
        return np.array(self.seen.axes()[0])

    @property
    def root(self) -> Array:
        """Γᵀ, upper triangular, in the order of the basis vectors: for `trim`."""
        return np.asarray(self.seen.root)

    def provenance(self, noise: float) -> small.Provenance | None:
        """What tells rounding from news, while nothing was dropped, where that must be told.

        Without noise a remainder is divided by; and where not the least goes, a direction that is
        nothing but rounding would displace one that is not.
        """
        return self.frame.provenance if noise == 0 or not self.drops_the_least else None

    def absorb(self, G: object) -> None:
        """Fold the columns of G (p×n, or one of p) into the memory (eq:svd_update).

            [A G] = [U O] [[Γ, C], [0, T]]

        A column that is already spanned adds no direction but still raises `sigma`.
        This is all that is needed to use a memory by itself, as an incremental, uncentred
        principal component analysis of a stream of columns.
        """
        columns = self._columns(G)
        self.bind(columns)
        if columns.shape[1]:
            self.settle()
            self.remember(self.split(columns))
            self.settle()

    def _columns(self, G: Any) -> Any:
        """What a user hands in as G, checked, as this memory holds directions."""
        like = self.frame.rows if self._frame else None
        tensors = hasattr(G, "detach") if like is None else not isinstance(like, np.ndarray)
        if tensors:
            from orfit import tall_torch  # torch is imported by those who use it

            columns: Any = tall_torch.numbers("G", G, like)
        else:
            columns = door.numbers("G", G, _float_type(G) if like is None else like.dtype)
        if columns.ndim not in (1, 2):
            shape = tuple(columns.shape)
            raise ValueError(f"G must be p×n, or one column of p; it has shape {shape}")
        columns = columns.reshape(len(columns), -1)
        return columns.T.contiguous().T if tensors else np.asfortranarray(columns)

    def project(self, G: Any) -> Any:
        """G − U (UᵀG), tall: what of G does not touch the past (eq:ogd_projection)."""
        G_perp = self.frame.subtract(G, self.frame.coordinates(G))
        return self.frame.subtract(G_perp, self.frame.coordinates(G_perp))

    def split(
        self,
        G: Any,
        noise: float | Array = 0.0,
        forgetting: float = 1.0,
        drift: float = 0.0,
    ) -> BasisSplit:
        noises = np.atleast_1d(noise)
        noise = float(noises[0])
        parts = decompose(self.frame, G, self.provenance(noise))
        seen = self.seen.faded(forgetting)
        if drift > 0:
            seen = seen.shrunk(lambda e: tails.drift_share(e, self.tail, noise, drift))
        tail = tails.aged(self.tail, noise, forgetting, drift, G.shape[1])
        return BasisSplit(parts, seen, tail, noises, self.tailed, forgetting)

    def guess(self, tails_: Array) -> None:
        super().guess(tails_)
        self.tail = tails.unseen(len(tails_))

    def move_guesses(self, moved: Any, start: Any) -> None:
        """Ridge regression at R is that at R' times (e + R') / (e + R), along an energy e.

        Exact while nothing was dropped or has faded; what was dropped is known on average.
        """
        tail, (sigma, turn), which = self.tail, self.seen.axes(), moved.source
        each = len(self.frame.base) // len(which)
        before, after = (R / tail.prior for R in (moved.before[which], moved.after))
        energies = np.minimum(sigma, math.sqrt(tails.LARGEST))[:, None] ** 2
        # More would be rounding made large, of a w that was next to nothing.
        most, level = 1 / math.sqrt(np.finfo(tall.numpy_dtype(self.frame.rows)).eps), self._level
        with np.errstate(over="ignore"):
            along = np.minimum(most, (energies + before) / (energies + after))
            # Where less noise is guessed, not more is made of what is known on average only.
            beyond = np.minimum(1.0, (level + before) / (level + after))
        shares = (along.repeat(each, axis=1), beyond.repeat(each))
        if start is not None:
            start = tall.beside(*[start] * len(which))
        self.frame.reweigh(moved.columns(each), turn, *shares, start)
        self.tail = tail._replace(level=tail.level[which], dropped=tail.dropped[which])

    def variance(self, G: Any, noise: float, guess: int = 0) -> Array:
        C = self.frame.coordinates(G)
        rest = self.frame.subtract(G, C)
        D = self.frame.coordinates(rest)
        beyond = tall.lengths(self.frame.subtract(rest, D)) ** 2
        beyond = tails.share(self.tail, guess, noise, bool(self.tailed[guess])) * beyond
        if noise == 0:
            return np.asarray(beyond)
        inside = self.seen.damped(C + D, noise, tails.floor(self.tail, noise))
        return np.asarray((inside * inside).sum(axis=0) + beyond)

    def advance(self, w: Any, A: Any, drift: Any, noise: Any) -> None:
        """By a number: any other A is for memories that `moves`."""
        tail, gamma, drift = self.tail, float(A), max(drift, LEAST)
        prior = gamma * gamma * tail.prior + drift
        door.check_finite("P after a step in time", np.array(prior))

        def left(energy: Any) -> Any:
            return shrunk(energy, tail, noise, gamma, drift)

        share = float(left(tail.level[0]))
        self.seen, self._lost = self.seen.shrunk(left), share * self._lost
        level, dropped = share * tail.level, share * tail.dropped
        self.tail = Tail(level, dropped, share * tail.rows, share * tail.dropping, prior)
        self.w = w

    def remember(self, past: BasisSplit, move: Array | None = None) -> None:
        self.frame.append(past.parts)
        if move is not None:
            self.frame.move(move)
        self._lost *= past.forgetting
        self.lengths = self.lengths.after(past.parts.reading.norms)
        self._take_in(past)
        if self.m is not None and self.rank > self.m:
            raise ValueError(f"{self!r}.trim left {self.rank} directions, more than m={self.m}")

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self, self.__dict__["_frame"])  # noted or not

    def settle(self) -> None:
        self.frame.make_room()

    def grow(self, growth: Growth) -> None:
        self.size = (self.size or 0) + growth.features
        self.frame.grow(growth, self.room(self.size))

    @property
    def exact(self) -> bool:
        rounding = (tall.cutoff(self.frame.rows.dtype) * small.frobenius(self.sigma)) ** 2
        return bool(abs(self._lost) <= rounding and self.tail.level.max(initial=0.0) <= rounding)

    @property
    def _level(self) -> float:
        """τ, the mean energy along directions that are not kept.

        Not the tail's level, which is of the mean variance: here it is information that adds up.
        """
        if self.exact:
            return 0.0
        free = max(1, (self.size or 0) - self.rank)
        return float(min(max(0.0, self._lost) / free, self.sigma[-1] ** 2))

    def as_rows(self, moved: Any, noise: float) -> Known:
        sigma, turn = self.seen.axes()
        c = small.product(turn.T, self.frame.coordinates(moved))
        return as_rows(self.frame.combine(turn), sigma, c, noise)

    def known(self, moved: Any, noise: float) -> Known:
        if self.exact:
            return replace(self.as_rows(moved, noise), tail=self.tail)
        sigma, turn = self.seen.axes()
        level, U = self._level, self.frame.combine(turn)
        c = small.product(turn.T, self.frame.coordinates(moved))
        more = np.sqrt(np.maximum((sigma - level**0.5) * (sigma + level**0.5), 0.0))
        rows = np.flatnonzero(more)
        wanted = more[rows, None] * c[rows]
        return Known(scaled(U, rows, more[rows]), wanted, moved, level, self.tail, self._lost)

    def join(self, known: Known, moved: Any, noise: float) -> JoinedSplit:
        """R P⁻¹ − κ I, and that times w − w₀, add up.

        First what another memory knows of every direction (κ + τ): w is pulled along, and as much
        more was seen along each. Its rows then are learned as any others.
        """
        assert known.tail is not None
        mine = self._level
        level, seen = mine + known.level, self.seen
        if noise == 0 and level > 0:
            noise = NEGLIGIBLE * level
        if known.rest is not None:
            sigma, turn = seen.axes()
            floor = tails.floor(self.tail, noise)
            pulled = pull(moved, known, floor)
            less = (sigma * sigma - mine) / (sigma * sigma + floor + known.level)
            along = small.product(turn.T, self.frame.coordinates(pulled))
            along = small.product(turn, less[:, None] * along)
            shift = self.frame.subtract(pulled, along) / tall.convert(moved, floor + level)
            self.w = self.w + shift
            seen = seen.lifted(known.level)
        parts = decompose(self.frame, known.G, self.provenance(noise))
        both = together(self.tail, known.tail)
        weighs = both._replace(level=np.array([level]))
        one = np.array([noise]), np.array([True])
        return JoinedSplit(parts, seen, weighs, *one, 1.0, both=both)

    def finish_join(self, known: Known, noise: float) -> None:
        self._lost += known.lost
        if noise == 0:
            self.tail = self.tail._replace(level=np.zeros(1))

    def remove(self, G: Any, residual: Array, moved: Any, noise: float, others: int) -> None:
        past = self.split(G, noise)
        parts, norms = past.parts, past.parts.reading.norms
        cutoff = tall.cutoff(self.frame.rows.dtype)
        if (np.sqrt((parts.T * parts.T).sum(axis=0)) > SPANNED * cutoff * norms).any():
            raise ValueError(NEVER)
        if noise == 0:
            labels = np.abs(past.along_w + residual).max(initial=0.0)
            if np.abs(residual).max(initial=0.0) > max(FITTED, SPANNED * cutoff) * labels:
                raise ValueError(
                    "y is not what was learned for x, or others contradicted it: with noise=0 it "
                    "would be fitted"
                )
            residual = np.zeros_like(residual)
        sigma, turn = self.seen.axes()
        Z, c = small.product(turn.T, parts.C), small.product(turn.T, self.frame.coordinates(moved))
        eps = float(np.finfo(tall.numpy_dtype(G)).eps)
        left = without(sigma, Z, noise, small.frobenius(norms), others, eps)
        E, stay = left.E, len(left.sigma)
        after = (
            small.product(E.T, c)
            - small.product(E.T, small.product(Z, residual)) / (left.squares[:, None])
        )
        after[np.isinf(left.squares)] = 0.0
        self.frame.move(small.product(turn, small.product(E, after) - c))
        self.frame.turn(small.product(turn, E[:, :stay]))
        self.seen = self.form.of_axes(left.sigma)
        self.tail = self.tail._replace(rows=max(0.0, self.tail.rows - G.shape[1]))

    def _take_in(self, past: BasisSplit) -> None:
        """Let `seen` grow by the G of a split whose new directions the frame has, and trim."""
        self.seen = past.seen.grown(past.parts.C, past.parts.T)
        self.tail = past.goes_on
        self.trim()

    def delete(self, j: int) -> None:
        """Drop the j-th basis vector. O(k²)."""
        self._lost += energy(self.root[:, j])
        self.frame.drop(np.delete(self.frame.W, j, axis=0))
        self.seen = self.seen.deleted(j)

    def reflect(self, v: Array) -> None:
        """Drop the direction U v, for a unit vector v. O(k²)."""
        _check_orthonormal("v", v[:, None])
        self._lost += energy(self.root @ v)
        # The reflection that takes v to ± the last axis, which then goes.
        u = v.copy()
        u[-1] += np.copysign(1.0, v[-1])
        u /= np.linalg.norm(u)
        W = self.frame.W
        self.frame.drop((W - np.outer(u, 2 * (u @ W)))[:-1])
        self.seen = self.seen.reflected(u)

    def keep(self, K: Array) -> None:
        """Keep the directions U K, for K (k×k') with orthonormal columns. O(k³)."""
        _check_orthonormal("K", K)
        self._lost += energy(self.root - (self.root @ K) @ K.T)
        self.frame.turn(K)
        self.seen = self.seen.turned(K)

    def inside(self, parts: Parts) -> "Basis":
        """The same memory in the coordinates along [U O], to learn rows there."""
        made = copy.copy(self)
        made._frame = self.frame.inside(parts, self.room(len(parts.C) + len(parts.T)))
        return made

    def take_over(self, inside: "Basis", parts: Parts) -> None:
        """Be what the memory in coordinates along [U O] has become, and move w as it did."""
        within = inside.frame
        self.frame.append(parts)
        self.frame.move(np.asarray(within.w, np.float64))
        self.frame.reach = within.reach
        rows = np.asarray(within.rows[: within.stored], np.float64)
        self.frame.turn(small.product(within.W, rows).T)
        self.frame.provenance = None
        vars(self).update(vars(inside), _frame=self.frame)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = self.frame.state()
        seen, more = self.seen.state()
        tail, lists = self.tail, {"level": self.tail.level.tolist()}
        lists["dropped"] = tail.dropped.tolist()
        return arrays | seen, values | more | {
            "lost": float(np.nan_to_num(self._lost)),  # it may be too large for a number
            "tail": tail._asdict() | lists,
            "lengths": self.lengths._asdict(),
        }

    def fields(self) -> Fields:
        each = schema.listed(door.nonnegative, len(self.tailed), len(self.tailed))
        numbers = dict.fromkeys(("rows", "dropping"), door.nonnegative)
        tail = schema.record({"level": each, "dropped": each, **numbers, "prior": _prior})
        own = {"lost": door.scalar, "tail": tail, "lengths": schema.record(LENGTHS)}
        return {**self.frame.fields, **self.form.fields, **own}

    def layout(self) -> Layout:
        return {**self.frame.layout(), **self.form.layout}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self.frame.restore(arrays, values)
        self.seen = self.form.restored(arrays, values)
        if self.m is not None and self.rank > self.m:
            raise ValueError(f"{self.rank} directions are more than m={self.m}")
        self._lost = values["lost"]
        arrays_of_tail = {n: np.array(values["tail"][n]) for n in ("level", "dropped")}
        self.tail = Tail(**values["tail"] | arrays_of_tail)
        self.lengths = Lengths(**values["lengths"])


class Bounded(Basis, ABC):
    """A memory of at most m directions: a subclass says in `trim` which go.

    Examples:
        >>> class Oldest(orfit.memory.Bounded):
        ...     def trim(self):
        ...         while self.rank > self.m:
        ...             self.delete(self.rank - 1)  # the newest is last
        >>> memory = Oldest(2)
        >>> memory.absorb(np.eye(5))
        >>> memory.rank
        2
    """

    drops_the_least = False

    def __init__(self, m: int) -> None:
        super().__init__()
        self.m = door.count("m", m)

    def room(self, size: int) -> int:
        # The more room, the rarer rows are folded, and the more there are to read at every step.
        # What fits the first cache nobody counts.
        more = max(8, int(2.5 * self.m**0.5), min(16, (1 << 15) // max(1, size)))
        return int(self.m + more)

    def numbers_within(self, size: int) -> int:
        """How many numbers it keeps at most, of gradients of that size: Q, W, M and provenance."""
        rows = capacity_of(self.room(size), size)
        return int(rows * (size + min(self.m, rows) + 2 * rows))

    @abstractmethod
    def trim(self) -> None: ...

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        super().restore(arrays, values)
        if self.frame.stored == len(self.frame.rows):
            raise ValueError("there is no room for one more row, which every step leaves")

    def settings(self) -> dict[str, Any]:
        return {"m": self.m}


def _check_orthonormal(name: str, K: Array) -> None:
    if not np.allclose(small.product(K.T, K), np.eye(K.shape[1]), rtol=0, atol=1e-8):
        raise ValueError(f"the columns of {name} must be orthonormal, or U would no longer be")


def energy(A: Array) -> float:
    """The sum of squares; it may be too large for a number."""
    with np.errstate(over="ignore"):
        return float(np.sum(A * A))


def _float_type(G: object) -> npt.DTypeLike:
    return np.float32 if getattr(G, "dtype", None) == np.float32 else np.float64


def _prior(name: str, value: object) -> float:
    """A positive number whose inverse is one, too."""
    prior = door.positive(name, value)
    door.scalar(f"the inverse of {name}", 1 / prior)
    return prior
