"""Keep frequent directions: a sketch with a guarantee."""

import numpy as np

from orfit.memory.principal import Principal
from orfit.validation import Array


class FrequentDirections(Principal):
    """Frequent Directions (Liberty 2013; Ghashami et al. 2016): principal directions, shrunk.

    When there are too many, the m principal ones stay, and the square of the first one dropped is
    taken off all squares; a direction of which nothing is left goes, too. What is remembered is
    then never too much, and never too little by more than that:

        0 ≤ |Aᵀv|² − |Bᵀv|² ≤ |A|²_F / (m + 1)    for every unit v, B Bᵀ = U diag(sigma²) Uᵀ

    where A is all that was absorbed. `Principal`, which does not shrink, has no such guarantee, and
    favours early directions over frequent ones.

    Examples:
        >>> sketch = orfit.memory.FrequentDirections(2)
        >>> sketch.absorb(np.diag([3.0, 2.0, 1.0]))
        >>> print((sketch.sigma**2).round(6))  # 9 and 4, less the 1 that went
        [8. 3.]
    """

    def keep(self, sigma: Array, m: int) -> Array:
        """Weights (1 − (sigma[m] / sigma)²)^½, without cancellation."""
        first = sigma[m]
        large = sigma > first  # nothing is left of the others
        weights = np.zeros(len(sigma))
        weights[large] = np.sqrt((sigma[large] - first) / sigma[large] * (1 + first / sigma[large]))
        return weights
