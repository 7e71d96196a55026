"""An orthonormal frame that is read once a step, and the parameters that move along it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import gram, small, tall
from orfit.door import Array
from orfit.memory.base import taken

# By its Gram matrix a block may be made orthonormal up to this; what is lost then is put right by
# projecting it once more.
NEARLY_ORTHONORMAL = 1e-5


class Frame:
    """U = (W Q)ᵀ, p×k and orthonormal, and w = base + shift Q: Q tall, W and shift small.

    The rows of Q are gradients as they came, mostly. Adding directions appends rows to Q, turning
    and dropping them multiplies W, and a step changes `shift`: nothing tall is computed. With the
    Gram matrix M = Q Qᵀ, which grows by what a step needs anyway, all there is to know of a
    gradient is its products with the rows: one read of Q (`split`). Only when Q has no more room,
    the rows that can best be spared are folded into the others (`gram.fold`), and what `shift`
    stands for into `base`. The update U ← [U O] Ũ of alg:orfit_ipca costs (k + 1) k p at every
    step. The numbers are the same.
    """

    def __init__(self, like: Any, room: int | None) -> None:
        """For gradients of the kind and length of `like`.

        room: how many rows Q may have before some are folded; None: none ever are.
        """
        size = len(like)
        capacity = 8 if room is None else min(room, size + 8)
        self.growing = room is None
        self.rows = tall.empty(like, capacity, size)  # those not yet used cost no memory
        self.stored = 0
        self.waiting: Any = None  # p×r, further rows of Q, between `append` and `make_room`
        self.W = np.empty((0, 0))
        self.M = np.empty((capacity, capacity))
        self.folds = 0
        # Which unit gradients made the rows; None once a direction was dropped: then what arrives
        # is compared with what is left, and its length alone tells rounding.
        self.makers: small.Makers | None = small.Makers()
        self.carry(tall.empty(like, 0, size))

    def carry(self, base: Any) -> None:
        """Take over parameters, q×p, in place of those that were carried."""
        self.base = base
        self.shift = np.zeros((len(base), self.stored))
        self.elsewhere = 0.0  # how large parameters are that these are to be added to
        self.reach = tall.largest(base)  # no parameter is larger than this
        self._w: Any = None  # once somebody has asked, until the next step

    @property
    def w(self) -> Any:
        """The parameters, p×q."""
        if self._w is None:
            self._w = tall.written_out(self.base, self.rows[: self.stored], self.shift).T
        return self._w

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
        r, s = len(parts.T), self.stored
        self.makers = parts.makers
        if not r:
            return
        self._w = None
        if self.growing and s + r > len(self.rows):
            self._widen(s + r)
        self._enlarge(s + r)
        self.M[s : s + r, :s], self.M[:s, s : s + r] = parts.raw, parts.raw.T
        self.M[s : s + r, s : s + r] = parts.gram
        self.W = gram.extended(self.W, parts.A, parts.K)
        self.shift = np.hstack([self.shift, np.zeros((len(self.shift), r))])
        if s + r <= len(self.rows):
            tall.store(self.rows, s, parts.N, parts.lengths)
            self.stored += r
        else:
            self.waiting = parts.N / tall.convert(parts.N, parts.lengths)

    def move(self, along: Array) -> None:
        """Move w by U along, for `along` k×q."""
        shift = self.shift + small.product(along.T, self.W)
        reach = self.reach + small.frobenius(along)
        largest = np.finfo(tall.numpy_dtype(self.rows)).max / 4
        if self.waiting is None and not np.abs(shift).max(initial=0.0) < largest:
            # Along rows that are so short: w is a number where its coefficients are none.
            self.carry(tall.copy(self.w + self.combine(along)).T)
            return
        self.shift, self.reach, self._w = shift, reach, None

    def make_room(self) -> None:
        """Fold rows where some wait, or there is no room for one more."""
        if self.waiting is None and (self.growing or self.stored < len(self.rows)):
            return
        self.folds += 1
        stay, gone, Y, self.W, M = gram.fold(self.W, self.M)
        tall.fold(self.rows, self.stored, self.waiting, stay, gone, Y, self.base, self.shift)
        self.stored, self.waiting, self._w = len(stay), None, None
        if gram.measure_now(self.folds, self.stored):
            M = tall.gram(self.Q)
            self.W = gram.cured(self.W, M)
        self.M[: self.stored, : self.stored] = M
        self.shift = np.zeros((len(self.base), self.stored))

    def advance(
        self, stored: int, W: Array, shift: Array, folds: int, makers: small.Makers | None
    ) -> None:
        """Go on from where the compiled loop stopped, which has changed rows, M and base."""
        self.stored, self.W, self.shift, self.folds = stored, W, shift, folds
        self.makers, self._w = makers, None

    def turn(self, K: Array) -> None:
        """U ← U K, for K (k×k') with orthonormal columns."""
        self.W = np.ascontiguousarray(small.product(K.T, self.W))
        if K.shape[1] < K.shape[0]:
            self.makers = None

    def keep_first(self, count: int) -> None:
        """U ← so many of its columns."""
        self.W = self.W[:count]
        self.makers = None

    def reflect(self, u: Array) -> None:
        """U ← U (I − 2 u uᵀ) less its last column: one reflection drops one direction."""
        self.W = np.ascontiguousarray((self.W - np.outer(u, 2 * (u @ self.W)))[:-1])
        self.makers = None

    def delete(self, j: int) -> None:
        """U ← U less its j-th column."""
        self.W = np.delete(self.W, j, axis=0)
        self.makers = None

    def replace(self, U: Any) -> None:
        """Let U be this orthonormal matrix, p×k."""
        w = self.w
        if U.shape[1] > len(self.rows):
            self._widen(U.shape[1])
        self._enlarge(U.shape[1])
        self.stored = U.shape[1]
        tall.store(self.rows, 0, U, np.ones(self.stored))
        self.W = np.eye(self.stored)
        self.M[: self.stored, : self.stored] = self.W
        self.makers = None
        self.carry(tall.copy(w).T)

    def inside(self, parts: "Parts", room: int | None) -> "Frame":
        """The same in the coordinates along [U O], and with w = 0 there."""
        k, size = len(parts.C), len(parts.C) + len(parts.T)
        # In the same dtype: what is rounding there is rounding here.
        like = np.empty((size, 1), tall.numpy_dtype(self.rows))
        made = Frame(like, room)
        made.replace(np.eye(size, k, dtype=like.dtype))
        made.carry(np.zeros((len(self.base), size), like.dtype))
        made.elsewhere = made.reach = tall.largest(self.w)
        return made

    def _enlarge(self, capacity: int) -> None:
        """Room in M for so many rows."""
        if capacity > len(self.M):
            M, s = np.empty((capacity, capacity)), self.stored
            M[:s, :s] = self.M[:s, :s]
            self.M = M

    def _widen(self, capacity: int) -> None:
        """Room for so many rows, and more."""
        wider = max(capacity, 3 * len(self.rows) // 2)
        rows = tall.empty(self.rows, wider, self.rows.shape[1])
        rows[: self.stored] = self.rows[: self.stored]
        self.rows = rows

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
        if self.makers is not None:
            arrays["makers"] = self.makers.rows
        values = {"capacity": len(self.rows), "folds": self.folds, "reach": self.reach}
        return arrays, values

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        size, dtype = self.rows.shape[1], tall.numpy_dtype(self.rows)
        rows = taken(arrays, "rows", dtype, None, size)
        s = len(rows)
        W = taken(arrays, "W", np.float64, None, s)
        M = taken(arrays, "M", np.float64, s, s)
        base = taken(arrays, "base", dtype, len(self.base), size)
        shift = taken(arrays, "shift", np.float64, len(base), s)
        made = "makers" in arrays
        self.makers = small.Makers(taken(arrays, "makers", np.float64, s, s)) if made else None
        capacity = max(int(values["capacity"]), s)
        self.rows, self.M = tall.empty(self.rows, capacity, size), np.empty((capacity, capacity))
        self.rows[:s], self.M[:s, :s] = tall.convert(self.rows, rows), M
        self.stored, self.W, self.folds = s, W, int(values["folds"])
        self.base[:], self.shift, self._w = tall.convert(self.base, base), shift, None
        self.reach = float(values["reach"])


@dataclass(frozen=True)
class Parts:
    """G = U C + O T, O orthonormal and orthogonal to U, known by rows N that are to be stored.

    O = (K (N − A Q))ᵀ, for N's columns divided by their lengths.
    """

    frame: Frame
    norms: Array  # n, the lengths of G's columns
    along_w: Array  # n×q, Gᵀ w
    C: Array  # k×n, along what is remembered
    T: Array  # r×n, a staircase
    N: Any  # p×r
    lengths: Array  # r, of N's columns
    A: Array  # r×s
    K: Array  # r×r
    raw: Array  # r×s, the products of N with Q
    gram: Array  # r×r, with itself
    makers: small.Makers | None  # of Q and N

    def combine(self, along: Array) -> Any:
        """[U O] along, tall."""
        k = len(self.C)
        new = small.product(self.K.T, along[k:])
        old = small.product(self.frame.W.T, along[:k]) - small.product(self.A.T, new)
        scale = self.lengths.reshape(-1, *[1] * (along.ndim - 1))
        moved = tall.combine(self.N, new / scale)
        return moved + tall.combine(self.frame.Q, old) if old.any() else moved


def split(frame: Frame, G: Any, makers: small.Makers | None) -> Parts:
    """Take G (p×n) apart into what the frame spans and what is new: one read of Q.

    What is new of G is G − QᵀAᵀ, made orthonormal by the Cholesky factor TᵀT of its Gram matrix.
    All of that is small, and G itself is stored. Rounding grows as G gets shorter by it. Where it
    would grow too much, G − QᵀAᵀ is formed, made orthonormal, and taken apart in turn: twice is
    enough (Kahan, Parlett). What the second projection takes away too was rounding from the start.
    """
    reading = read(frame, G)
    C, A, left, rounding = gram.project(frame.W, frame.M, reading.rows, reading.square)
    T, inverse, lost = small.cholesky(left, rounding)
    C, dtype = (C * reading.norms[:, None]).T, tall.numpy_dtype(G)
    if gram.trusted(lost, rounding, gram.most_lost(dtype)):
        grown = None if makers is None else makers.with_rows(len(T))
        return Parts(frame, reading.norms, reading.along_w, C, T * reading.norms, reading.G,
                     reading.lengths, A, inverse.T, reading.rows, reading.square,
                     grown)  # fmt: skip
    A = (A * reading.lengths[:, None]).T
    rest = tall.subtract(reading.G, frame.Q, A)
    if makers is None and len(T) > 1 and lost * np.finfo(dtype).eps < NEARLY_ORTHONORMAL:
        N, T, grown = (
            tall.combine(rest, inverse / reading.lengths[:, None]),
            T * reading.norms,
            None,
        )
    else:
        N, T, grown = tall.orthonormalise(rest, A, reading.lengths, makers)
        T = T * (reading.norms / reading.lengths)
    again = read(frame, N)
    D, A, left, rounding = gram.project(frame.W, frame.M, again.rows, again.square)
    C = C + small.product((D * again.norms[:, None]).T, T)
    new = np.diag(left) > 0.25  # in squares: of a unit vector more than half is left
    if not new.all():
        grown = None if new.any() else makers
    F, inverse, _ = small.cholesky(left[np.ix_(new, new)], rounding[new])
    T = small.product(F * again.norms[new], T[new])
    return Parts(frame, reading.norms, reading.along_w, C, T, N[:, new], again.lengths[new], A[new],
                 inverse.T, again.rows[new], again.square[np.ix_(new, new)], grown)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What the p dimension is read for: the products of n gradients, made unit vectors."""

    G: Any  # p×n, divided by its lengths where their squares are no numbers
    lengths: Array  # n, of these columns
    norms: Array  # n, the lengths of the gradients
    rows: Array  # n×s, with the rows of Q
    square: Array  # n×n, with each other
    along_w: Array  # n×q, of the gradients with w


def read(frame: Frame, G: Any) -> Reading:
    """Read G, the rows and the parameters, once."""
    rows, s = frame.rows[: frame.stored], frame.stored
    products, square = tall.read(rows, frame.base, G)
    norms = lengths = np.sqrt(np.diagonal(square))
    least, most = tall.SAFE[tall.numpy_dtype(G)]
    if not (norms.min(initial=1.0) > least and norms.max(initial=1.0) < most):
        norms = tall.lengths(G)
        scale = np.where(norms > 0, norms, 1.0)
        G, lengths = G / tall.convert(G, scale), np.ones(len(norms))
        products, square = tall.read(rows, frame.base, G)
        with np.errstate(over="ignore", invalid="ignore"):  # such a prediction is refused later
            along_w = (products[:, s:] + products[:, :s] @ frame.shift.T) * scale[:, None]
        return Reading(G, lengths, norms, products[:, :s], square, along_w)
    with np.errstate(over="ignore", invalid="ignore"):
        along_w = products[:, s:] + products[:, :s] @ frame.shift.T
    unit = square / np.outer(lengths, lengths)
    return Reading(G, lengths, norms, products[:, :s] / lengths[:, None], unit, along_w)
