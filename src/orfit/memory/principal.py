"""Keep the principal directions: incremental PCA."""

import math
from functools import cache
from types import ModuleType

import numpy as np

from orfit import small, tall
from orfit.door import Array
from orfit.memory.basis import Bounded
from orfit.memory.frame import ROTATIONS_BETWEEN_CURES


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

    def trim(self) -> None:
        excess = self.rank - self.m
        if excess == 1:
            self._reflect(small.least(self._root))
        elif excess > 1:
            # A = U rootᵀ(…), so its left singular vectors are the right ones of root.
            self._keep(small.principal(self._root)[1][:, : self.m])

    def walk(self, w: Array, G: Array, Y: Array, noise: float, forgetting: float) -> Array | None:
        """Learn G's columns one after another, compiled: n×(3 + 2q), see `kernels.walk`.

        w: p×q, moved. Y: n×q. Stops short, with fewer rows told, where a step would overflow. None,
        and nothing done, where numbers are so large or small that squares of squares are not.
        """
        frame, compiled = self.frame, kernels()
        assert compiled is not None
        rows = G.T if G.flags.writeable else G.T.copy()  # numba compiles anew for read-only arrays
        norms = compiled.norms(rows)
        least, most = (limit**0.5 for limit in tall.SAFE[G.dtype])
        for row, length in enumerate(norms.tolist()):
            if not least < length < most and (length or rows[row].any()):
                return None
        told = np.empty((len(rows), 3 + 2 * w.shape[1]))
        room, k = len(frame.rows), self.rank
        sigma, made, W = np.empty(room), np.empty((room, room)), np.empty((room, room))
        sigma[:k] = self._in_principal_axes()
        exact = frame.makers is not None and noise == 0
        if frame.makers is not None:
            made[:k, :k] = frame.makers.rows
        W[:k, : frame.stored] = np.eye(k) if frame.W is None else frame.W.T
        frame.stored, frame.rotations, k, exact, learned = compiled.walk(
            frame.rows,
            frame.stored,
            frame.rotations,
            ROTATIONS_BETWEEN_CURES,
            W,
            sigma,
            made,
            exact,
            k,
            self.m,
            w.T,
            rows,
            norms,
            Y,
            noise,
            math.sqrt(forgetting),
            tall.cutoff(G.dtype),
            told,
            frame.scratch,
            compiled.threads(self.size, len(rows)),
        )
        frame.W = np.ascontiguousarray(W[:k, : frame.stored].T)
        frame.makers = small.Makers(np.asfortranarray(np.tril(made[:k, :k]))) if exact else None
        self._root, self._damped = np.diag(sigma[:k]), None
        self._axes = self._root
        return told if learned >= 0 else told[: -1 - learned]

    def _in_principal_axes(self) -> Array:
        """Turn U so that root is diagonal; what was seen along it."""
        diagonal = self._root.diagonal()
        if self._root is self._axes:  # it has not changed since it was made diagonal
            return diagonal
        falling = (diagonal[:-1] >= diagonal[1:]).all() and (diagonal >= 0).all()
        if falling and np.count_nonzero(self._root) == np.count_nonzero(diagonal):
            return diagonal
        sigma, V = small.principal(self._root)
        self.frame.turn(V)
        self._root = np.diag(sigma)
        return sigma


@cache
def kernels() -> ModuleType | None:
    """The compiled row loop, where numba is installed; imported when first needed."""
    try:
        from orfit import kernels as compiled
    except ImportError:
        return None
    return compiled
