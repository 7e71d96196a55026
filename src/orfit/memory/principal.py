"""Keep the principal directions: incremental PCA."""

import math

import numpy as np

from orfit import tail as tails
from orfit.door import Array
from orfit.memory.basis import BasisSplit, Bounded, energy
from orfit.memory.loop import walk
from orfit.memory.seen import Axes
from orfit.tail import Tail


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

    form = Axes
    shrinks = False  # whether the first square that is dropped is taken off those that stay
    compiled = drops_the_least = has_tail = True

    def __init_subclass__(cls) -> None:
        """A subclass that trims in another way is not what the compiled loop does."""
        if "trim" in vars(cls):
            cls.compiled = False

    walk = walk

    def trim(self) -> None:
        """U is in principal axes, falling: the last go."""
        sigma, m = self.seen.sigma, self.m
        if len(sigma) <= m:
            return
        kept, self._lost = sigma[:m], self._lost + energy(sigma[m:])
        if self.shrinks:
            kept = np.sqrt(np.maximum((kept - sigma[m]) * (kept + sigma[m]), 0.0))
            self._lost += m * energy(sigma[m])
        self.frame.drop(self.frame.W[:m])
        self.seen = Axes(kept)

    def _take_in(self, past: BasisSplit) -> None:
        used = past.noise > 0 and past.tailed[past.guess]
        start = past.tail.level[past.guess] if used else 0.0
        sigma, turn = past.seen.grown(past.parts.C, past.parts.T, math.sqrt(start))
        self._lost -= start * len(past.parts.T)  # of which so much counts as kept again
        self.frame.turn(turn)
        self.seen = Axes(sigma)
        self.trim()
        self.tail = self._lengthened(past, sigma)

    def _lengthened(self, past: BasisSplit, sigma: Array) -> Tail:
        """The tail, where directions were dropped of those along which sigma was seen."""
        if self.rank == len(sigma) or not self.tailed.any():
            return past.tail
        with np.errstate(over="ignore"):  # the tail has a limit of its own
            energies = sigma * sigma
        rows, free = past.parts.C.shape[1], (self.size or 0) - self.m
        dropped, least = energies[self.rank :], energies[self.rank - 1]
        return tails.lengthened(past.tail, dropped, least, past.noises, rows, free)
