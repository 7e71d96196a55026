"""An orthonormal frame U = Q W whose Q is rarely written, and how gradients lie to it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import small, tall
from orfit.door import Array

# Rotating rounds: UᵀU drifts from I by about eps each time. Every so many rotations the drift is
# measured and taken out.
ROTATIONS_BETWEEN_CURES = 32


class Frame:
    """U (p×k) with orthonormal columns, kept as Q W: Q tall and rarely written, W small.

    The columns of Q are any that span U: directions, gradients as they came, combinations of them.
    Adding directions appends columns to Q; turning and dropping directions multiplies W. Only when
    Q has no more room, those of its columns that can best be spared are folded into the others
    (`settle`), which costs k p for each. The update U ← [U O] Ũ of alg:orfit_ipca pays (k + 1) k p
    at every step. The numbers are the same.
    """

    def __init__(self, like: Any, room: int | None) -> None:
        """For gradients of the kind and length of `like`.

        room: how many columns Q may have before some are folded; None: none ever are.
        """
        size = len(like)
        capacity = 8 if room is None else min(room, size + 8)
        self.growing = room is None
        # Basis vectors are rows, so that each is contiguous. Untouched rows cost no memory.
        self.rows = tall.empty(like, capacity, size)
        self.stored = 0
        self.waiting: Any = None  # further columns of Q, until `settle`
        self.W: Array | None = None  # (stored and waiting, k); None stands for the identity
        # Which rows made the columns of Q; None once a direction was dropped: then what arrives is
        # compared with what is left, and its length alone tells rounding.
        self.makers: small.Makers | None = small.Makers()
        self.rotations = 0

    @property
    def rank(self) -> int:
        return self.stored if self.W is None else self.W.shape[1]

    @property
    def Q(self) -> Any:
        return self.rows[: self.stored].T

    def coordinates(self, G: Any) -> Array:
        """Uᵀ G."""
        C = tall.inner(self.Q, G)
        return C if self.W is None else small.product(self.W.T, C)

    def combine(self, C: Array) -> Any:
        """U C."""
        return tall.combine(self.Q, C if self.W is None else small.product(self.W, C))

    def subtract(self, G: Any, C: Array) -> Any:
        """G − U C."""
        return tall.subtract(G, self.Q, C if self.W is None else small.product(self.W, C))

    def append(self, parts: "Parts") -> None:
        """U ← [U O], and what finds no room waits for `settle`."""
        r, k, stored = len(parts.T), self.rank, self.stored
        if not r:
            return
        if self.growing and stored + r > len(self.rows):
            self._widen(stored + r)
        fits = stored + r <= len(self.rows)
        if fits and self.W is None:  # all are directions: these, too
            self.rows[stored : stored + r] = parts.directions().T
            self.stored += r
            return
        W = np.zeros((stored + r, k + r))
        W[:stored, :k] = self._turned()
        W[:stored, k:], W[stored:, k:] = parts.along(W[:stored, :k])
        if fits:  # a gradient is as good as its direction
            self.rows[stored : stored + r] = parts.unit()
            self.stored += r
        else:
            self.waiting = parts
        self.W = W

    def settle(self) -> None:
        """Make room where columns wait: as many columns remain as there are directions."""
        if self.waiting is None:
            return
        assert self.W is not None
        N, lengths, spare = self.waiting.N, self.waiting.lengths, small.spare(self.W, self.stored)
        if spare is None:
            V = self.W[self.stored :] / lengths[:, None]
            tall.rotate(self.rows, self.W[: self.stored], N, V)
            self.stored, self.W = self.rank, None
        else:
            stay, Y = spare
            Y[self.stored :] /= lengths[:, None]
            tall.exchange(self.rows, stay, Y, N, lengths)
            self.stored, self.W = self.rank, self.W[stay]
        self.waiting = None
        self.rotations += 1
        if self.rotations % ROTATIONS_BETWEEN_CURES == 0:
            self.cure()

    def cure(self) -> None:
        """Make U orthonormal again, where nothing waits."""
        # The nearest orthonormal frame to U is U (UᵀU)^(-1/2); near I that is (3 I − UᵀU) / 2.
        W = self._turned()
        square = small.product(W.T, small.product(tall.inner(self.Q, self.Q), W))
        self.W = small.product(W, 1.5 * np.eye(len(square)) - 0.5 * square)

    def turn(self, K: Array) -> None:
        """U ← U K, for K (k×k') with orthonormal columns."""
        self.W = small.product(self._turned(), K)
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

    def _widen(self, capacity: int) -> None:
        wider = max(capacity, 3 * len(self.rows) // 2)
        rows = tall.empty(self.rows, wider, self.rows.shape[1])
        rows[: self.stored] = self.rows[: self.stored]
        self.rows = rows


@dataclass(frozen=True)
class Parts:
    """G = U C + O T with O orthonormal and orthogonal to U.

    O = N S − U E, and is formed where it must be.
    """

    frame: Frame
    C: Array  # k×n, along what is remembered
    T: Array  # r×n, a staircase
    makers: small.Makers | None  # of [U O]
    N: Any  # p×r
    lengths: Array  # r, of N's columns
    implicit: tuple[Array, Array] | None = None  # S (r×r) and E (k×r); None: O is N

    def directions(self) -> Any:
        """O, tall."""
        if self.implicit is None:
            return self.N
        S, E = self.implicit
        return self.frame.subtract(tall.combine(self.N, S), E)

    def unit(self) -> Any:
        """N with columns of length one, transposed."""
        return self.N.T / tall.convert(self.N, self.lengths[:, None])

    def along(self, W: Array) -> tuple[Array, Array]:
        """O in the columns of Q, of which U is Q W, and in those of N, made of length one."""
        if self.implicit is None:
            return np.zeros((len(W), len(self.T))), np.eye(len(self.T))
        S, E = self.implicit
        return -small.product(W, E), self.lengths[:, None] * S

    def move(self, a: Array, b: Array) -> Any:
        """U a + O b, tall."""
        if self.implicit is not None:
            S, E = self.implicit
            a, b = a - E @ b, S @ b
        along_new = tall.combine(self.N, b)
        return self.frame.combine(a) + along_new if a.any() else along_new


def split(frame: Frame, G: Any, norms: Array, makers: small.Makers | None) -> Parts:
    """Take G (p×n) apart into what the frame spans and what is new."""
    # With makers each column is judged by itself, and a Gram matrix would be too coarse.
    if makers is None and G.shape[1] > 1:
        parts = split_by_gram(frame, G, norms)
        if parts is not None:
            return parts
    return split_by_columns(frame, G, norms, makers)


def split_by_gram(frame: Frame, G: Any, norms: Array) -> Parts | None:
    """The same by a Cholesky factor TᵀT = GᵀG − CᵀC, at the speed of matrix products.

    O = (G − U C) T⁻¹ is orthonormal up to eps times the square of what T⁻¹ magnifies, and to U as
    much as U is, times C T⁻¹. Where that is too much it is nearly so, and done a second time it is;
    where it is much too much, None.
    """
    least, most = tall.SAFE[tall.numpy_dtype(G)]
    if not (least < norms.min() and norms.max() < most):  # squares that are no numbers
        return None
    C = frame.coordinates(G)
    T, S, magnified = small.cholesky(tall.gram(G) - small.product(C.T, C), norms)
    if not magnified < GRAM_TWICE:
        return None
    E = small.product(C, S)
    if magnified < GRAM_ONCE and np.linalg.norm(E, axis=0).max() <= 1:  # see `small.MUCH`
        return Parts(frame, C, T, None, G, norms, (S, E))
    O = frame.subtract(tall.combine(G, S), E)
    D = frame.coordinates(O)
    ones = np.ones(len(T))
    F, S, _ = small.cholesky(tall.gram(O) - small.product(D.T, D), ones)
    C, T = C + small.product(D, T), small.product(F, T)
    return Parts(frame, C, T, None, O, ones, (S, small.product(D, S)))


# What T⁻¹ may magnify: the square of the first, and the second, is what is lost of eps.
GRAM_ONCE, GRAM_TWICE = 4.0, 100.0


def split_by_columns(frame: Frame, G: Any, norms: Array, makers: small.Makers | None) -> Parts:
    """The same for any G, also where columns depend on each other or on U.

    Where projecting took away most of a column, what is left carries the rounding of what was
    taken, so O is projected once more; twice is enough (Kahan, Parlett). A direction that the
    second projection takes away too was rounding from the start.
    """
    if frame.rank == 0:
        none = np.empty((0, G.shape[1]))
        O, T, grown = tall.orthonormalise(G, none, norms, makers)
        return Parts(frame, none, T, grown, O, np.ones(len(T)))
    C = frame.coordinates(G)
    G_perp = frame.subtract(G, C)
    # Makers are in coordinates of Q; while they are kept, W is square.
    along = C if frame.W is None or makers is None else frame.W @ C
    O, T, grown = tall.orthonormalise(G_perp, along, norms, makers)
    pivots = small.pivots(T)
    if (np.abs(T[range(len(T)), pivots]) < small.MUCH * norms[pivots]).any():
        E = frame.coordinates(O)
        ones = np.full(len(T), 0.5 / tall.cutoff(G.dtype))
        O, F, _ = tall.orthonormalise(frame.subtract(O, E), E[:0], ones, None)
        if len(F) < len(T):  # rounding after all: it made nothing
            grown = None if len(F) else makers
        C, T = C + E @ T, F @ T
    return Parts(frame, C, T, grown, O, np.ones(len(T)))
