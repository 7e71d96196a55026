"""An orthonormal frame U = Q W whose rotation is put off."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orfit import small, tall
from orfit.door import Array

# Rotating rounds: UᵀU drifts from I by about eps each time. Every so many rotations the drift is
# measured and taken out by the rotation itself.
ROTATIONS_BETWEEN_CURES = 32


class Frame:
    """U (p×k) with orthonormal columns, kept as Q W: Q tall and rarely written, W small.

    Adding directions appends columns to Q; turning and dropping directions multiplies W. Only
    when Q has no more room is Q W written out, so that the O(k² p) rotation is paid once in many
    steps (the update U ← [U O] Ũ of alg:orfit_ipca pays it every step). The numbers are the same.
    """

    def __init__(self, size: int, dtype: npt.DTypeLike, room: int | None) -> None:
        """`room`: how many columns Q may have before it is rotated; None: it never is."""
        capacity = 8 if room is None else min(room, size + 8)
        # Basis vectors are rows, so that each is contiguous. Untouched rows cost no memory.
        self.rows = np.empty((capacity, size), dtype)
        self.scratch = np.empty((2, size), dtype)  # for one gradient: a new one faults its pages in
        self.stored = 0
        self.W: Array | None = None  # (stored, k); None stands for the identity
        # Which rows made the columns of Q; None once a direction was dropped: then what arrives is
        # compared with what is left, and its length alone tells rounding.
        self.makers: small.Makers | None = small.Makers()
        self.rotations = 0

    @property
    def rank(self) -> int:
        return self.stored if self.W is None else self.W.shape[1]

    @property
    def Q(self) -> Array:
        return self.rows[: self.stored].T

    def coordinates(self, G: Array) -> Array:
        """Uᵀ G."""
        C = tall.inner(self.Q, G)
        return C if self.W is None else self.W.T @ C

    def combine(self, C: Array) -> Array:
        """U C."""
        return tall.combine(self.Q, C if self.W is None else self.W @ C)

    def subtract(self, G: Array, C: Array) -> Array:
        """G − U C."""
        return tall.subtract(G, self.Q, C if self.W is None else self.W @ C)

    def append(self, O: Array) -> None:
        """U ← [U O]."""
        r = O.shape[1]
        if r == 0:
            return
        if self.stored + r > len(self.rows):
            if self.rank < self.stored:
                self.make_room()
            if self.stored + r > len(self.rows):
                self._widen(self.stored + r)
        self.rows[self.stored : self.stored + r] = O.T
        if self.W is not None:
            k = self.W.shape[1]
            W = np.zeros((self.stored + r, k + r))
            W[: self.stored, :k] = self.W
            W[self.stored :, k:] = np.eye(r)
            self.W = W
        self.stored += r

    def turn(self, K: Array) -> None:
        """U ← U K, for K (k×k') with orthonormal columns."""
        self.W = self._turned() @ K
        if K.shape[1] < K.shape[0]:
            self.makers = None

    def reflect(self, u: Array) -> None:
        """U ← U (I − 2 u uᵀ) less its last column: one reflection drops one direction."""
        W = self._turned()
        self.W = np.ascontiguousarray((W - np.outer(2 * (W @ u), u))[:, :-1])
        self.makers = None

    def delete(self, j: int) -> None:
        """U ← U less its j-th column."""
        self.W = np.ascontiguousarray(np.delete(self._turned(), j, axis=1))
        self.makers = None

    def _turned(self) -> Array:
        return np.eye(self.stored) if self.W is None else self.W

    def make_room(self) -> None:
        """Write Q W out, which leaves as many columns as there are directions."""
        assert self.W is not None
        self.rotations += 1
        if self.rotations % ROTATIONS_BETWEEN_CURES == 0:
            # The nearest orthonormal frame to U is U (UᵀU)^(-1/2); near I that is (3 I − UᵀU) / 2.
            gram = self.W.T @ tall.inner(self.Q, self.Q) @ self.W
            self.W = self.W @ (1.5 * np.eye(self.rank) - 0.5 * gram)
        tall.rotate(self.rows, self.W)
        self.stored, self.W = self.W.shape[1], None

    def _widen(self, capacity: int) -> None:
        rows = np.empty(
            (max(capacity, 3 * len(self.rows) // 2), self.rows.shape[1]), self.rows.dtype
        )
        rows[: self.stored] = self.rows[: self.stored]
        self.rows = rows


@dataclass(frozen=True)
class Parts:
    """G = U C + O T with O orthonormal and orthogonal to U."""

    C: Array  # k×n, along what is remembered
    O: Array  # p×r, new directions, r ≤ n
    T: Array  # r×n, a staircase
    makers: small.Makers | None  # of [U O]


def split(frame: Frame, G: Array, norms: Array, makers: small.Makers | None) -> Parts:
    """Take G (p×n) apart into what the frame spans and what is new.

    Where projecting took away most of a column, what is left carries the rounding of what was
    taken, so O is projected once more; twice is enough (Kahan, Parlett). A direction that the
    second projection takes away too was rounding from the start.
    """
    if frame.rank == 0:
        none = np.empty((0, G.shape[1]))
        return Parts(none, *tall.orthonormalise(G, none, norms, makers))
    C = frame.coordinates(G)
    G_perp = frame.subtract(G, C)
    # Makers are in coordinates of Q; while they are kept, W is square and only turns.
    along = C if frame.W is None or makers is None else frame.W @ C
    O, T, grown = tall.orthonormalise(G_perp, along, norms, makers)
    pivots = small.pivots(T)
    if (np.abs(T[range(len(T)), pivots]) < 0.5 * norms[pivots]).any():
        E = frame.coordinates(O)
        ones = np.full(len(T), 0.5 / tall.cutoff(G.dtype))
        O, F, _ = tall.orthonormalise(frame.subtract(O, E), E[:0], ones, None)
        if len(F) < len(T):  # rounding after all: it made nothing
            grown = None if len(F) else makers
        C, T = C + E @ T, F @ T
    return Parts(C, O, T, grown)
