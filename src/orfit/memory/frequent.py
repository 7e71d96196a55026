"""Keep frequent directions: a sketch with a guarantee."""

import numpy as np

from orfit import small
from orfit.memory.basis import Bounded


class FrequentDirections(Bounded):
    """Frequent Directions (Liberty 2013; Ghashami et al. 2016): principal directions, shrunk.

    When there are too many, the m principal ones stay, and the square of the first one dropped is
    taken off all squares. What is remembered is then never too much, and never by more than that:

        0 ≤ |Aᵀv|² − |Bᵀv|² ≤ |A|²_F / (m + 1)    for every unit v, B Bᵀ = U diag(sigma²) Uᵀ

    where A is all that was absorbed. `Principal`, which does not shrink, has no such guarantee, and
    holds on to what came first more than to what comes often.
    """

    def trim(self) -> None:
        if self.rank > self.m:
            sigma, V = small.principal(self._root)
            last = sigma[self.m]
            shrunk = np.sqrt(np.maximum((sigma[: self.m] - last) * (sigma[: self.m] + last), 0.0))
            self._keep_axes(V[:, : self.m], shrunk)
