"""An orthonormal frame that is read once a step, and the parameters that move along it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from orfit import door, gram, schema, small, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.schema import DOUBLE, Fields, Layout

# By its Gram matrix a block may be made orthonormal up to this; what is lost then is put right by
# projecting it once more.
NEARLY_ORTHONORMAL = 1e-5

DAMAGED = 0.01  # what directions never lack of being orthonormal, by rounding


class Frame:
    """U = (W Q)ᵀ, p×k and orthonormal, and w = base + shift Q: Q tall, W and shift small.

    The rows of Q are gradients as they came, mostly. Adding directions appends rows to Q, turning
    and dropping them multiplies W, and a step changes `shift`: nothing tall is computed. With the
    Gram matrix M = Q Qᵀ, which grows by what a step needs anyway, all there is to know of a
    gradient is its products with the rows: one read of Q (`decompose`). Only when Q has no more
    room, the rows that can best be spared are folded into the others (`gram.fold`), and what
    `shift` stands for into `base`. The update U ← [U O] Ũ of alg:orfit_ipca costs (k + 1) k p at
    every step. The numbers are the same.
    """

    def __init__(self, like: Any, room: int | None) -> None:
        """For gradients of the kind and length of `like`.

        room: how many rows Q may have before some are folded; None: none ever are.
        """
        size = len(like)
        capacity = 8 if room is None else capacity_of(room, size)
        self.growing = room is None
        self.rows = tall.empty(like, capacity, size)  # those not yet used cost no memory
        self.stored = 0
        self.waiting: Any = None  # p×r, further rows of Q, between `append` and `make_room`
        self.folding: Any = None  # where `make_room` was cut short: how to go on
        self.W = np.empty((0, 0))
        self.M = np.empty((capacity, capacity))
        self.folds = 0
        # Which unit gradients made the rows; None once a direction was dropped: then what arrives
        # is compared with what is left, and its length alone tells rounding.
        self.provenance: small.Provenance | None = small.Provenance()
        self.carry(tall.empty(like, 0, size))

    def carry(self, base: Any) -> None:
        """Take over parameters, q×p, in place of those that were carried."""
        self.base = base
        self.shift = np.zeros((len(base), self.stored))
        self.outer: Frame | None = None  # whose parameters these are to be added to
        self.reach = tall.largest(base)  # no parameter is larger than this
        self._w: Any = None  # once somebody has asked, until the next step

    @property
    def w(self) -> Any:
        """The parameters, p×q."""
        if self._w is None:
            self._w = self.base.T + tall.combine(self.Q, self.shift.T)
        return self._w

    def largest(self) -> float:
        """What `reach` would be if it were found anew."""
        return tall.largest(self.w) + (0.0 if self.outer is None else self.outer.largest())

    @property
    def rank(self) -> int:
        return len(self.W)

    @property
    def Q(self) -> Any:
        """The stored rows as columns, p×s."""
        return self.rows[: self.stored].T

    def coordinates(self, G: Any) -> Array:
        """Uᵀ G."""
        return small.product(self.W, tall.inner(self.Q, G))

    def combine(self, C: Array) -> Any:
        """U C."""
        return tall.combine(self.Q, small.product(self.W.T, C))

    def subtract(self, G: Any, C: Array) -> Any:
        """G − U C."""
        return tall.subtract(G, self.Q, small.product(self.W.T, C))

    def append(self, parts: "Parts") -> None:
        """U ← [U O]. Rows for which there is no room wait for `make_room`."""
        r, s, new = len(parts.T), self.stored, parts.new
        if parts.reading.measured is not None:
            M = self.M.copy()
            M[:s, :s] = parts.reading.measured
            self.M, self.W = M, gram.cured(self.W, M)
        elif parts.astray:
            self.W = gram.cured(self.W, self.M)
        if not r:
            self.provenance = parts.provenance
            return
        unit = new.G / tall.convert(new.G, new.lengths)
        W = gram.extended(self.W, parts.A, parts.K)
        shift = np.hstack([self.shift, np.zeros((len(self.shift), r))])
        if self.growing and s + r > len(self.rows):
            self._widen(s + r)
        self._enlarge(s + r)
        self.M[s : s + r, :s], self.M[:s, s : s + r] = new.rows, new.rows.T
        self.M[s : s + r, s : s + r] = new.square
        self.W, self.shift, self.provenance, self._w = W, shift, parts.provenance, None
        if s + r <= len(self.rows):
            self.rows[s : s + r] = unit.T
            self.stored += r
        else:
            self.waiting = unit

    def move(self, along: Array) -> None:
        """Move w by U along, for `along` k×q."""
        shift = self.shift + small.product(along.T, self.W)
        reach = self.reach + small.frobenius(along)
        most = tall.most(tall.numpy_dtype(self.rows))
        if self.waiting is None and not np.abs(shift).max(initial=0.0) < most:
            # Along rows that are so short: w is a number where its coefficients are none.
            outer = self.outer
            self.carry(tall.copy(self.w + self.combine(along)).T)
            self.outer, self.reach = outer, reach
            return
        self.shift, self.reach, self._w = shift, reach, None

    def reweigh(
        self, columns: Array, turn: Array, along: Array, beyond: Array, start: Any = None
    ) -> None:
        """Let column j of w be `start` + what column columns[j] is beyond that, weighed.

        Along U turn by along[:, j], along all else by beyond[j].
        """
        base = self.base.T if start is None else self.base.T - start
        raw = tall.inner(self.Q, base)
        if self.waiting is not None:
            raw = np.vstack([raw, tall.inner(self.waiting, base)])
        raw += gram.times_gram(self.shift, self.M).T
        U = small.product(turn.T, self.W)
        C = (along - beyond) * small.product(U, raw)[:, columns]
        picked = np.zeros((len(self.base), len(columns)))
        picked[columns, range(len(columns))] = beyond
        made = tall.combine(base, picked)
        self.base = (made if start is None else tall.copy(made + start)).T
        self.shift = beyond[:, None] * self.shift[columns] + small.product(C.T, U)
        self._w = None
        self.reach = tall.largest(self._folded_base())

    def make_room(self) -> None:
        """Fold rows where some wait, or there is no room for one more.

        Where an exception cuts it short, doing it again does the rest.
        """
        if self.folding is None:
            if self.waiting is None and (self.growing or self.stored < len(self.rows)):
                return
            most = gram.most_lost(tall.numpy_dtype(self.rows))
            stay, gone, Y, W, M = gram.fold(self.W, self.M, most)
            fold = tall.Fold(self.rows, self.stored, self.waiting, stay, gone, Y)
            self.folding = fold, W, M, self._folded_base()
        fold, W, M, base = self.folding
        fold.finish()
        stored, folds = len(fold.stay), self.folds + 1
        if gram.measure_now(folds, stored) and not tall.travels(self.rows):
            M = tall.gram(self.rows[:stored].T)
            W = gram.cured(W, M)
        large = len(self.M) > len(self.rows)  # a large block was waiting
        whole = np.empty((len(self.rows), len(self.rows))) if large else self.M
        whole[:stored, :stored] = M
        shift = np.zeros((len(base), stored))
        made = {"stored": stored, "folds": folds, "W": W, "M": whole, "base": base, "shift": shift}
        vars(self).update(made, folding=None, waiting=None, _w=None)  # all at once

    @property
    def unmeasured(self) -> bool:
        """Whether M is to be measured by the next read: a fold did not, and nothing came since."""
        s, folds = self.stored, self.folds
        return (
            folds > 0
            and s == len(self.W)
            and gram.measure_now(folds, s)
            and tall.travels(self.rows)
        )

    def _folded_base(self) -> Any:
        """What the base is when `shift` has been folded into it."""
        base, s = self.base, self.stored
        if len(base):
            base = base + tall.combine(self.Q, self.shift[:, :s].T).T
            if self.waiting is not None:
                base = base + tall.combine(self.waiting, self.shift[:, s:].T).T
        return base

    def advance(
        self,
        stored: int,
        W: Array,
        shift: Array,
        folds: int,
        provenance: small.Provenance | None,
        w: Any,
    ) -> None:
        """Go on from where the compiled loop stopped, which has changed rows, M and base.

        w: what the parameters are, where somebody has asked.
        """
        self.stored, self.W, self.shift, self.folds = stored, W, shift, folds
        self.provenance, self._w = provenance, w

    def turn(self, K: Array) -> None:
        """U ← U K, for K (k×k') with orthonormal columns."""
        W = np.ascontiguousarray(small.product(K.T, self.W))
        self.W, self.provenance = W, self.provenance if len(W) == len(self.W) else None

    def drop(self, W: Array) -> None:
        """Let the directions be these, fewer than before."""
        self.W, self.provenance = np.ascontiguousarray(W), None

    def replace(self, U: Any) -> None:
        """Let U be this orthonormal matrix, p×k."""
        w, k = self.w, U.shape[1]
        # Not in their place: who goes back needs the rows that were.
        rows = tall.empty(self.rows, max(k, len(self.rows)), self.rows.shape[1])
        rows[:k] = U.T
        self.rows, self.stored, self.W = rows, k, np.eye(k)
        self.M = np.empty((len(rows), len(rows)))
        self.M[:k, :k] = self.W
        self.provenance = None
        self.carry(tall.copy(w).T)

    def inside(self, parts: "Parts", room: int | None) -> "Frame":
        """The same in the coordinates along [U O], and with w = 0 there."""
        k, size = len(parts.C), len(parts.C) + len(parts.T)
        # In the same dtype: what is rounding there is rounding here.
        like = np.empty((size, 1), tall.numpy_dtype(self.rows))
        made = Frame(like, room)
        made.replace(np.eye(size, k, dtype=like.dtype))
        made.carry(np.zeros((len(self.base), size), like.dtype))
        made.outer, made.reach = self, self.reach
        return made

    def _enlarge(self, capacity: int) -> None:
        """Room in M for so many rows."""
        if capacity > len(self.M):
            M, s = np.empty((capacity, capacity)), self.W.shape[1]  # with rows that wait
            M[:s, :s] = self.M[:s, :s]
            self.M = M

    def _widen(self, capacity: int) -> None:
        """Room for so many rows, and more."""
        self.reserve(max(capacity, 3 * len(self.rows) // 2))

    def reserve(self, capacity: int) -> None:
        """Room for so many rows, of which there are never many more than dimensions."""
        capacity = min(capacity, self.rows.shape[1] + 8)
        if capacity <= len(self.rows):
            return
        rows = tall.empty(self.rows, capacity, self.rows.shape[1])
        rows[: self.stored] = self.rows[: self.stored]
        self.rows = rows
        self._enlarge(capacity)

    def grow(self, growth: Growth, room: int | None) -> None:
        """More dimensions, in which all rows are zero, and more parameters, which are."""
        s, W, M, base, shift, folds = self.stored, self.W, self.M, self.base, self.shift, self.folds
        rows, size = self.rows[:s], self.rows.shape[1] + growth.features
        capacity = len(self.rows) if room is None else capacity_of(room, size)
        if s >= capacity and room is not None:  # of longer rows fewer are kept
            rows, base = rows.copy(), self._folded_base()
            stay, gone, Y, W, M = gram.fold(W, M, gram.most_lost(rows.dtype))
            tall.Fold(rows, s, None, stay, gone, Y).finish()
            s, folds = len(stay), folds + 1
            shift = np.zeros((len(base), s))
        made = tall.empty(self.rows, capacity, size)
        made[:s] = growth.tall(rows[:s], 1)
        self.rows, self.stored, self.W, self.folds = made, s, W, folds
        self.M = np.empty((capacity, capacity))
        self.M[:s, :s] = M[:s, :s]
        self.base = np.ascontiguousarray(growth.wide(growth.tall(base, 1), 0))
        self.shift, self._w = growth.wide(shift, 0), None

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and plain values to go on from, bit by bit."""
        s = self.stored
        arrays = {
            "rows": tall.to_numpy(self.rows[:s]),
            "W": self.W,
            "M": self.M[:s, :s],
            "base": tall.to_numpy(self.base),
            "shift": self.shift,
        }
        if self.provenance is not None:
            arrays["provenance"] = self.provenance.rows
        return arrays, {"folds": self.folds, "reach": self.reach}

    fields: ClassVar[Fields] = {"folds": schema.counter, "reach": door.nonnegative}

    def layout(self) -> Layout:
        """Of those arrays: s rows are stored, k directions known."""
        (q, p), dtype = self.base.shape, tall.numpy_dtype(self.rows)
        return {
            "rows": (dtype, "s", p),
            "W": (DOUBLE, "k", "s"),
            "M": (DOUBLE, "s", "s"),
            "base": (dtype, q, p),
            "shift": (DOUBLE, q, "s"),
            "provenance?": (DOUBLE, "s", "s"),
        }

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        rows, W, M = arrays["rows"], arrays["W"], arrays["M"]
        s = len(rows)
        if self.growing:
            self.reserve(s)
        if not len(W) <= s <= len(self.rows):
            raise ValueError(f"{len(W)} directions of {s} rows do not go into {len(self.rows)}")
        self.rows[:s], self.M[:s, :s] = tall.convert(self.rows, rows), M
        self.stored, self.W, self.folds = s, W, values["folds"]
        self._check_orthonormal()
        self.provenance = small.Provenance(arrays["provenance"]) if "provenance" in arrays else None
        self.base[:], self.shift, self._w = (
            tall.convert(self.base, arrays["base"]),
            arrays["shift"],
            None,
        )
        self.reach = values["reach"]

    def _check_orthonormal(self) -> None:
        """Raise unless M is Q Qᵀ, along a combination of all rows, and W M Wᵀ the identity."""
        M = self.M[: self.stored, : self.stored]
        squares = np.diag(M)
        if not (squares > 0).all():
            raise ValueError("rows of a memory have no length")
        unit = 1 / np.sqrt(squares)
        c = unit * np.where(np.arange(self.stored) % 3, 1.0, -1.0)
        measured = tall.inner(self.Q, tall.combine(self.Q, c))
        known, identity = M @ c, gram.products(gram.times_gram(self.W, M), self.W)
        apart = np.abs(unit * (measured - known)).max(initial=0.0)
        apart = max(apart, np.abs(identity - np.eye(len(self.W))).max(initial=0.0))
        if not apart < DAMAGED:
            raise ValueError("the directions of a memory are not orthonormal")


def capacity_of(room: int, size: int) -> int:
    """Of rows: there are never many more than dimensions."""
    return min(room, size + 8)


@dataclass(frozen=True)
class Reading:
    """What the p dimension is read for: the products of n gradients, made unit vectors."""

    G: Any  # p×n, divided by its lengths where their squares are no numbers
    lengths: Array  # n, of these columns
    norms: Array  # n, the lengths of the gradients
    rows: Array  # n×s, with the rows of Q
    square: Array  # n×n, with each other
    along_w: Array  # n×q, of the gradients with w
    measured: Array | None  # s×s, M, where it was to be measured


def read(frame: Frame, G: Any, beside: tuple[Any, Any], measure: bool = False) -> Reading:
    """Read G, the rows and the parameters, once. beside: these two."""
    s, known = frame.stored, (frame.W, frame.shift)
    products, square, M = tall.read(*beside, G, known, measure)
    norms = lengths = np.sqrt(np.diagonal(square))
    least, most = tall.SAFE[tall.numpy_dtype(G)]
    if not (norms.min(initial=1.0) > least and norms.max(initial=1.0) < most):
        norms, lengths = tall.lengths(G), np.ones(len(norms))
        if norms.any():
            with np.errstate(over="ignore"):  # NumPy 1.26 divides 1, too, where it has a lane free
                G = G / tall.convert(G, np.where(norms > 0, norms, 1.0))
            products, square, _ = tall.read(*beside, G, known)
    with np.errstate(over="ignore", invalid="ignore"):  # such a prediction is refused later
        along_w = (products[:, s:] + products[:, :s] @ frame.shift.T) * (norms / lengths)[:, None]
    square = square / np.outer(lengths, lengths)
    return Reading(G, lengths, norms, products[:, :s] / lengths[:, None], square, along_w, M)


@dataclass(frozen=True)
class Parts:
    """G = U C + O T, O orthonormal and orthogonal to U, known by rows N that are to be stored.

    O = (K (N − A Q))ᵀ, for N's columns divided by their lengths.
    """

    frame: Frame
    reading: Reading  # of G
    C: Array  # k×n, along what is remembered
    T: Array  # r×n, a staircase
    new: Reading  # of N, p×r
    A: Array  # r×s
    K: Array  # r×r
    provenance: small.Provenance | None  # of Q and N
    astray: bool  # whether W is to be put right, as G sees it

    @property
    def coordinates(self) -> Array:
        """Those of G along [U O]."""
        return np.vstack([self.C, self.T])

    def coefficients(self, along: Array) -> tuple[Array, Array]:
        """Those of [U O] along in the rows of Q, and in the columns of N."""
        k = len(self.C)
        new = small.product(self.K.T, along[k:])
        old = small.product(self.frame.W.T, along[:k]) - small.product(self.A.T, new)
        return old, new / self.new.lengths.reshape(-1, *[1] * (along.ndim - 1))

    def longest(self, along: Array) -> float:
        """No coefficient and no partial sum of [U O] along is larger, once N is stored."""
        old, new = self.coefficients(along)
        rows = np.sqrt(np.diag(self.frame.M)[: len(old)])
        parts = np.maximum(rows, 1) @ np.abs(old) + self.new.lengths @ np.abs(new)
        return float(parts.max(initial=0.0))

    def combine(self, along: Array) -> Any:
        """[U O] along, tall."""
        old, new = self.coefficients(along)
        moved = tall.combine(self.new.G, new)
        return moved + tall.combine(self.frame.Q, old) if old.any() else moved


def decompose(frame: Frame, G: Any, provenance: small.Provenance | None) -> Parts:
    """Take G (p×n) apart into what the frame spans and what is new: one read of Q.

    What is new of G is G − QᵀAᵀ, made orthonormal by the Cholesky factor TᵀT of its Gram matrix.
    All of that is small, and G itself is stored. Rounding grows as G gets shorter by it. Where it
    would grow too much, G − QᵀAᵀ is formed, made orthonormal, and taken apart in turn: twice is
    enough (Kahan, Parlett). Where the second projection takes most of a direction away too, the
    column that it began with had nothing new but rounding, and begins none: later columns may have
    a true part there, which then is their own.
    """
    beside, dtype = (frame.rows[: frame.stored], frame.base), tall.numpy_dtype(G)
    first = read(frame, G, beside, frame.unmeasured)
    C, A, left, rounding, lacking = gram.project(frame.W, frame.M, first.rows, first.square)
    most, eps = gram.most_lost(dtype), float(np.finfo(dtype).eps)
    astray = gram.lacks(frame.W, frame.M, lacking, rounding, most, eps)
    T, inverse, lost = small.cholesky(left, rounding)
    C = (C * first.norms[:, None]).T
    if gram.trusted(lost, rounding, most):
        grown = None if provenance is None else provenance.with_rows(len(T))
        return Parts(frame, first, C, T * first.norms, first, A, inverse.T, grown, astray)
    along, grown, doubtful = (A * first.lengths[:, None]).T, None, first.lengths.copy()
    rest = tall.subtract(first.G, frame.Q, along)
    if provenance is None and len(T) > 1 and lost * np.finfo(dtype).eps < NEARLY_ORTHONORMAL:
        N, T = tall.combine(rest, inverse / first.lengths[:, None]), T * first.lengths
    else:
        N, T, grown = tall.orthonormalise(rest, along, doubtful, provenance, beside)
    while True:
        again = read(frame, N, beside)
        D, A, left, rounding, _ = gram.project(frame.W, frame.M, again.rows, again.square)
        taken_away = np.flatnonzero(np.diag(left) <= 0.25)  # in squares, of unit vectors
        if not len(taken_away):
            break
        step = taken_away[0]
        column = small.pivots(T)[step]
        doubtful[column] = 1.01 * abs(T[step, column]) / tall.cutoff(dtype)
        N, T, grown = tall.orthonormalise(rest, along, doubtful, provenance, beside)
    T = T * (first.norms / first.lengths)
    C = C + small.product((D * again.norms[:, None]).T, T)
    F, inverse, _ = small.cholesky(left, rounding)
    T = small.product(F * again.norms, T)
    return Parts(frame, first, C, T, again, A, inverse.T, grown, astray)
