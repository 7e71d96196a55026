"""Keep the latest directions."""

from orfit.memory.basis import Bounded


class Latest(Bounded):
    """The m latest basis vectors: the paper's ORFit-latest (subsec:exp_limit)."""

    def trim(self) -> None:
        while self.rank > self.m:
            self.delete(0)
