"""Keep the principal directions: incremental PCA."""

from functools import cache
from types import ModuleType

import numpy as np

from orfit import small, tall
from orfit.door import Array
from orfit.memory.base import lengths
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
        frame = self.frame
        rows = G.T if G.flags.writeable else G.T.copy()  # numba compiles anew for read-only arrays
        norms = lengths(G)
        range_ = np.finfo(G.dtype)
        least, most = float(range_.tiny) ** 0.25, float(range_.max) ** 0.25
        if not ((norms == 0) | ((norms > least) & (norms < most))).all():
            return None
        told = np.empty((len(rows), 3 + 2 * w.shape[1]))
        done = 0
        while done < len(rows):
            if frame.stored == len(frame.rows):
                frame.make_room()
            room, k = len(frame.rows), self.rank
            sigma, blur, W = np.zeros(room), np.zeros(room), np.zeros((room, room))
            sigma[:k] = self._in_principal_axes()
            blur[:k] = frame.blur
            W[:k, : frame.stored] = np.eye(k) if frame.W is None else frame.W.T
            frame.stored, frame.rotations, k, learned = kernels().walk(  # type: ignore[union-attr]
                frame.rows,
                frame.stored,
                frame.rotations,
                ROTATIONS_BETWEEN_CURES,
                W,
                sigma,
                blur,
                k,
                self.m,
                w.T,
                rows[done:],
                norms[done:],
                norms[done:],
                Y[done:],
                noise,
                np.sqrt(forgetting),
                tall.cutoff(frame.rows.dtype),
                told[done:],
            )
            frame.W, frame.blur = np.ascontiguousarray(W[:k, : frame.stored].T), blur[:k].copy()
            self._root, self._damped = np.diag(sigma[:k]), None
            if learned < 0:
                return told[: done - 1 - learned]
            done += learned
        return told

    def _in_principal_axes(self) -> Array:
        """Turn U so that root is diagonal; what was seen along it."""
        diagonal = np.diag(self._root)
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
