"""Keep nothing."""

from orfit.memory import frame
from orfit.memory.basis import Basis, BasisDecomposition, energy
from orfit.state import State

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

    def _grow_spectrum(self, s: State, d: BasisDecomposition) -> None:
        s.dropped_energy += energy(d.projection.T)
        frame.drop(s, s.W[:0])
