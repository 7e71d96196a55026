"""Keep nothing."""

import numpy as np

from orfit.memory.basis import Basis

ROWS = 8  # stored gradients along which w has yet to move


class Nothing(Basis):
    """No past at all, P = I: with it ORFit is One-Step SGD (subsec:exp_limit).

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(3), orfit.memory.Nothing())
        >>> learner.learn([1.0, 0.0, 0.0], 2.0).rank
        0
    """

    def room(self, size: int) -> int:
        return ROWS

    def trim(self) -> None:
        self.keep(np.empty((self.rank, 0)))
