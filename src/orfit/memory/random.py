"""Keep random directions."""

from typing import Any

from orfit import validation
from orfit.core._core import draw
from orfit.memory.basis import BasisDecomposition
from orfit.memory.vectors import BasisVectors, drop_vector
from orfit.state import State


class Random(BasisVectors):
    """Any m of the basis vectors, chosen after each block: the paper's ORFit-random.

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(9), orfit.memory.Random(3, seed=1))
        >>> updates = learner.learn_each(np.eye(9), np.ones(9))
        >>> learner.memory.rank
        3
    """

    drops_the_least = False

    def __init__(self, m: int, seed: int = 0) -> None:
        super().__init__(validation.count("m", m))
        self.seed = validation.count("seed", seed, least=0)

    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        s = super().new_state(ops, like, columns)
        s.draws = 0
        return s

    def _drop(self, s: State, d: BasisDecomposition) -> None:
        while len(s.W) > self.m:
            s.draws += 1
            drop_vector(s, draw(self.seed, s.draws, len(s.W)))

    def settings(self) -> dict[str, Any]:
        return {"m": self.m, "seed": self.seed}
