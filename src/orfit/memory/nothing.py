"""Keep nothing."""

from orfit.memory.basis import Basis, BasisSplit


class Nothing(Basis):
    """No past at all, P = I: with it ORFit is One-Step SGD (subsec:exp_limit)."""

    def fold(self, past: BasisSplit) -> None:
        pass
