"""Keep random directions."""

from typing import Any

import numpy as np

from orfit import validation
from orfit.memory.basis import Bounded
from orfit.state import State


class Random(Bounded):
    """Any m of the basis vectors, chosen after each block: the paper's ORFit-random.

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(9), orfit.memory.Random(3, seed=1))
        >>> updates = learner.learn_each(np.eye(9), np.ones(9))
        >>> learner.memory.rank
        3
    """

    def __init__(self, m: int, seed: int = 0) -> None:
        super().__init__(m)
        self.seed = validation.count("seed", seed, least=0)

    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        s = super().new_state(ops, like, columns)
        s.draws = 0
        return s

    def trim(self) -> None:
        while self.rank > self.m:
            random = generator(self.seed, self._edited())
            self.delete(int(random.integers(self.rank)))

    def settings(self) -> dict[str, Any]:
        return {"m": self.m, "seed": self.seed}


def generator(seed: int, s: State) -> np.random.Generator:
    """The generator for the next draw, which is determined by the seed and the number of draws."""
    s.draws += 1
    return np.random.Generator(np.random.PCG64([seed, s.draws]))
