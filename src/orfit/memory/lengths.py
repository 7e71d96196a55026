"""How long gradients are, as a rule."""

from typing import NamedTuple

import numpy as np

from orfit import door, schema
from orfit.door import Array
from orfit.schema import Fields


class Lengths(NamedTuple):
    """Of gradients that were not zero: how many, and their squared lengths as powers of ten, added.

    Their mean is that of the geometric mean, which a few that are far off do not move much.
    """

    gradients: int = 0
    powers: float = 0.0

    def after(self, norms: Array) -> "Lengths":
        """With gradients of these lengths."""
        told = norms[norms > 0]
        powers = self.powers
        for power in np.log10(told).tolist():  # one by one, as rows come: the same bits
            powers += 2 * power
        return Lengths(self.gradients + len(told), powers)

    def since(self, before: "Lengths") -> "Lengths":
        """Of those that came after `before`."""
        return Lengths(self.gradients - before.gradients, self.powers - before.powers)


FIELDS: Fields = {"gradients": schema.counter, "powers": door.scalar}
