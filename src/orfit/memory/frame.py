"""An orthonormal frame U = Q W whose rotation is put off."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orfit import small, tall
from orfit.door import Array

# Rotating rounds: UᵀU drifts from I by about eps each time. Every so many rotations the drift is
# measured and taken out by the rotation itself.
ROTATIONS_BETWEEN_CURES = 8


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
        self.blur = np.empty(0)  # how well each direction is known: see `small.staircase`
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

    def append(self, O: Array, blur: Array) -> None:
        """U ← [U O]."""
        r = O.shape[1]
        if r == 0:
            return
        if self.stored + r > len(self.rows):
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
        self.blur = np.concatenate([self.blur, blur])

    def turn(self, K: Array) -> None:
        """U ← U K, for K (k×k') with orthonormal columns."""
        self.W = self._turned() @ K
        self.blur = np.sqrt(self.blur**2 @ K**2)

    def reflect(self, u: Array) -> None:
        """U ← U (I − 2 u uᵀ) less its last column: one reflection drops one direction."""
        W = self._turned()
        self.W = np.ascontiguousarray((W - np.outer(2 * (W @ u), u))[:, :-1])
        H = np.eye(len(u)) - np.outer(2 * u, u)
        self.blur = np.sqrt(self.blur**2 @ H**2)[:-1]

    def delete(self, j: int) -> None:
        """U ← U less its j-th column."""
        self.W = np.ascontiguousarray(np.delete(self._turned(), j, axis=1))
        self.blur = np.delete(self.blur, j)

    def _turned(self) -> Array:
        return np.eye(self.stored) if self.W is None else self.W

    def make_room(self) -> None:
        """Write Q W out, which leaves as many columns as there are directions."""
        if self.W is None:
            return
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
    blur: Array  # r, how well each new direction is known


def split(frame: Frame, G: Array, norms: Array) -> Parts:
    """Take G (p×n) apart into what the frame spans and what is new.

    Where projecting took away most of a column, what is left carries the rounding of what was
    taken, so O is projected once more; twice is enough (Kahan, Parlett). A direction that the
    second projection takes away too was rounding from the start.
    """
    if frame.rank == 0:
        return Parts(np.empty((0, G.shape[1])), *tall.orthonormalise(G, norms))
    C = frame.coordinates(G)
    doubt = np.hypot(norms, [small.frobenius(c * frame.blur) for c in C.T])
    O, T, blur = tall.orthonormalise(frame.subtract(G, C), doubt)
    pivots = small.pivots(T)
    if (np.abs(T[range(len(T)), pivots]) < 0.5 * norms[pivots]).any():
        E = frame.coordinates(O)
        half = np.full(len(T), 0.5 / tall.cutoff(G.dtype))
        O, F, _ = tall.orthonormalise(frame.subtract(O, E), half)
        C, T, blur = C + E @ T, F @ T, blur[small.pivots(F)]
    return Parts(C, O, T, blur)
