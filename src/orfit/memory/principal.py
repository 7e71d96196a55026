"""Keep the principal directions: incremental PCA."""

import math
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from orfit import small, tall
from orfit.door import Array
from orfit.memory.base import taken
from orfit.memory.basis import BasisSplit, Bounded
from orfit.memory.frame import ROTATIONS_BETWEEN_CURES, Parts

EPS = float(np.finfo(np.float64).eps)


class Principal(Bounded):
    """The top m principal directions of all past gradients: alg:orfit_ipca, alg:borfit_ipca.

    Sequential Karhunen–Loève: after each block the m directions along which most was seen stay.
    Of all summaries of that size, exact principal directions make the worst-case forgetting
    smallest (prop:pca_analysis); this recursion comes close to them, since what it drops once
    it cannot weigh again.

    By itself it is an incremental, uncentred PCA of any stream of columns::

        pca = orfit.memory.Principal(10)
        pca.absorb(columns)          # p×n, again and again
        pca.U, pca.sigma
    """

    _axes: Array | None = None  # the root that is known to be diagonal
    _work: Array | None = None  # for the compiled loop: new memory faults its pages in
    _owed: Array | None = None  # q×room, what steps have still to add to w, along the frame's Q
    _moved: Array | None = None  # p×q, the same, written out since Q changed
    _added: Any = None  # both of them, once somebody has asked, until the next step

    def trim(self) -> None:
        excess = self.rank - self.m
        if excess == 1:
            self._reflect(small.least(self._root))
        elif excess > 1:
            self._turn_to_principal_axes()

    def fold(self, past: BasisSplit) -> None:
        self._moved, self._owed, self._added = self.owed(), None, None
        super().fold(past)

    def owed(self) -> Any:
        if self._owed is None:
            return self._moved
        if self._added is None:
            self._added = self._add_up()
        return self._added

    def _add_up(self) -> Any:
        assert self._owed is not None
        rows, stored = self.frame.rows, self.frame.stored
        compiled, size = kernels(), rows.shape[1]
        if compiled is None:  # what is owed was loaded
            move = tall.combine(self.frame.Q, self._owed[:, :stored].T)
            return move if self._moved is None else self._moved + move
        # Not by BLAS: its threads and those of the loop would get into each other's way.
        heads = np.zeros((len(self._owed), size), rows.dtype)
        if self._moved is not None:
            heads += self._moved.T
        compiled.settle(rows, stored, self._owed, heads, compiled.threads(size, 1))
        return heads.T

    def forgive(self) -> None:
        self._owed = self._moved = self._added = None

    def walk(
        self, w: Array, G: Array, Y: Array, *, noise: float, forgetting: float, reach: float
    ) -> Array | None:
        """Learn G's columns one after another, compiled: n×(3 + 2q), see `kernels.walk`.

        w: p×q; what it moves by may be `owed`; with that, none is larger than `reach`. Y: n×q.
        Stops short, with fewer rows told, where a step might overflow. None, and nothing learned,
        where numbers are so large or small that plain squares, or what is left of them beside the
        largest, will not do.
        """
        if self._moved is not None:
            w += self.owed()
            self.forgive()
        compiled = kernels()
        assert compiled is not None
        rows = G.T if G.flags.writeable else G.T.copy()  # numba compiles anew for read-only arrays
        norms = compiled.norms(rows)
        shortest, longest = (limit**0.5 for limit in tall.SAFE[G.dtype])
        for row, length in enumerate(norms.tolist()):
            if not shortest < length < longest and (length or rows[row].any()):
                return None
        # The eigenproblem is solved up to eps of its largest number: that must be nothing to noise.
        if noise > 0:
            largest = max(norms.max(), small.frobenius(self._root))
            if (8 * EPS * largest) ** 2 > 1e-12 * noise:
                return None
        most = float(np.finfo(w.dtype).max) / 4 - reach
        stream = Stream(rows, norms, Y, noise, forgetting, tall.cutoff(G.dtype), most)
        return self._walk(w, stream)

    def exact(self, noise: float) -> bool:
        """Whether rounding is told by more than a gradient's length: then it must come alone."""
        return self.frame.makers is not None and noise == 0

    def inside(self, parts: Parts) -> "Principal":
        """The same memory in the coordinates along [U O]."""
        k, size = len(parts.C), len(parts.C) + len(parts.T)
        inside = Principal(self.m)
        # In the same dtype: what is rounding there is rounding here.
        inside.bind(np.empty((size, 1), tall.numpy_dtype(self.frame.rows)))
        inside.frame.rows[:k] = np.eye(k, size)
        inside.frame.stored, inside.frame.makers = k, None
        inside._root, inside._axes, inside._damped = self._root, self._axes, self._damped
        return inside

    def become(self, inside: "Principal", parts: Parts) -> None:
        """Take over what a memory has seen in the coordinates along [U O]."""
        self.frame.append(parts)  # first, since it may fail for want of memory
        self.frame.turn(inside.frame.combine(np.eye(inside.rank)).astype(np.float64))
        self.frame.settle()
        self.frame.makers = None
        self._root, self._axes, self._damped = inside._root, inside._axes, inside._damped

    def _walk(self, w: Array, stream: "Stream") -> Array:
        frame, compiled = self.frame, kernels()
        assert compiled is not None
        told = np.empty((len(stream.rows), 3 + 2 * w.shape[1]))
        if not self._in_principal_axes():
            self._turn_to_principal_axes()
        room, k = len(frame.rows), self.rank
        if self._work is None or self._work.shape[2] != room:
            self._work = np.empty((4, room + 6, room))
        sigma, W, stored = np.empty(room), self._work[0], frame.stored
        sigma[:k] = self._root.diagonal()
        exact = self.exact(stream.noise)
        made = np.empty((room, room) if exact else (0, 0))
        if frame.makers is not None and exact:
            made[:k, :k] = frame.makers.rows
        W[:k, :stored] = np.eye(k) if frame.W is None else frame.W.T
        if self._owed is None:
            self._owed = np.zeros((w.shape[1], room))
        self._added = None
        stored, frame.rotations, k, exact, learned = compiled.walk(
            frame.rows,
            stored,
            frame.rotations,
            ROTATIONS_BETWEEN_CURES,
            self._work,
            sigma,
            made,
            exact,
            k,
            self.m,
            w.T,
            self._owed,
            stream.rows,
            stream.norms,
            stream.labels,
            stream.noise,
            math.sqrt(stream.forgetting),
            stream.cutoff,
            stream.most,
            told,
            compiled.threads(frame.rows.shape[1], len(stream.rows)),
        )
        frame.stored, frame.W = stored, W[:k, :stored].copy().T
        frame.makers = small.Makers(np.asfortranarray(np.tril(made[:k, :k]))) if exact else None
        self._set_axes(sigma[:k])
        return told if learned >= 0 else told[: -1 - learned]

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().state()
        for name, array in (("owed", self._owed), ("moved", self._moved)):
            if array is not None:
                arrays[name] = array
        return arrays, values

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        super().restore(arrays, values)
        self.forgive()
        if "owed" in arrays:
            self._owed = taken(arrays, "owed", np.float64, None, len(self.frame.rows))
        if "moved" in arrays:
            self._moved = taken(arrays, "moved", self.frame.rows.dtype, self.size, None)

    def _in_principal_axes(self) -> bool:
        if self._root is self._axes:  # it has not changed since it was made diagonal
            return True
        diagonal = self._root.diagonal()
        falling = (diagonal[:-1] >= diagonal[1:]).all() and (diagonal >= 0).all()
        return bool(falling and np.count_nonzero(self._root) == np.count_nonzero(diagonal))

    def _turn_to_principal_axes(self) -> None:
        """Turn U so that the root is diagonal, and keep m directions."""
        # A = U rootᵀ(…), so its left singular vectors are the right ones of root.
        sigma, V = small.principal(self._root)
        self._keep_axes(V[:, : self.m], sigma[: self.m])

    def _set_axes(self, sigma: Array) -> None:
        super()._set_axes(sigma)
        self._axes = self._root


@dataclass(frozen=True)
class Stream:
    """Rows to be learned one after another."""

    rows: Array  # n×p, the gradients
    norms: Array  # n, their lengths
    labels: Array  # n×q
    noise: float
    forgetting: float
    cutoff: float  # the share of a row that is rounding
    most: float  # what all steps together may reach


@cache
def kernels() -> ModuleType | None:
    """The compiled row loop, where numba is installed; imported when first needed."""
    try:
        from orfit import kernels as compiled
    except ImportError:
        return None
    return compiled
