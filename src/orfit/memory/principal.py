"""Keep the principal directions: incremental PCA."""

import math

import numpy as np

from orfit.core._core import extend_tail
from orfit.memory.basis import LARGEST_ENERGY, BasisDecomposition, Bounded
from orfit.state import State
from orfit.validation import Array


class Principal(Bounded):
    """The top m principal directions of all past gradients: alg:orfit_ipca, alg:borfit_ipca.

    Sequential Karhunen–Loève: after each block the m directions along which most was seen stay.
    Of all summaries of that size, exact principal directions make the worst-case forgetting
    smallest (prop:pca_analysis); this recursion comes close to them, since what it drops once
    it cannot weigh again.

    By itself it is an incremental, uncentred PCA of any stream of columns, p×n.

    The state keeps `sigma`, the singular values, falling; U is in principal axes.

    Examples:
        >>> pca = orfit.memory.Principal(2)
        >>> pca.absorb(np.diag([3.0, 1.0, 2.0]))  # columns, again and again
        >>> print(pca.sigma, np.abs(pca.U[:, 0]))
        [3. 2.] [1. 0. 0.]
    """

    drops_the_least = has_tail = merges = True

    def __init_subclass__(cls) -> None:
        """A subclass with another `keep` has no tail and cannot be merged."""
        if "keep" in vars(cls):
            cls.has_tail = cls.merges = False

    def keep(self, sigma: Array, m: int) -> Array:
        """The m directions along which most was seen."""
        return np.arange(m)

    def _rotated(self, s: State) -> int | None:
        return self._limit(s) if self.has_tail else None

    def _drop(self, s: State, d: BasisDecomposition) -> None:
        sigma = s.sigma
        super()._drop(s, d)
        if d.joined is not None:
            s.tail_level, s.tail_dropped, s.tail_rows, s.tail_dropping = d.joined
        if self.has_tail and len(s.sigma) < len(sigma) and d.settings.tailed.any():
            self._extend_tail(s, sigma, d)

    def _extend_tail(self, s: State, sigma: Array, d: BasisDecomposition) -> None:
        """Update the tail after directions were dropped (core/tail.c)."""
        kept = len(s.sigma)
        energies = np.minimum(sigma, math.sqrt(LARGEST_ENERGY)) ** 2
        least = energies[kept - 1]
        if not (d.settings.noises[0] > 0 and least > 0):
            return
        s.tail_dropping += d.arrived
        s.tail_level, s.tail_dropped = s.tail_level.copy(), s.tail_dropped.copy()
        unkept = (self.size or 0) - self._limit(s)
        extend_tail(
            d.floor,
            s.tail_level,
            s.tail_dropped,
            s.tail_rows,
            s.tail_dropping,
            energies[kept:],
            least,
            unkept,
        )
