"""Keep random directions."""

from typing import Any

from orfit import door
from orfit.door import Array
from orfit.memory.basis import Bounded
from orfit.memory.chance import GENERATOR, Chance
from orfit.schema import Fields


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
        self.seed = door.count("seed", seed, least=0)
        self._chance = Chance.of(self.seed)

    def trim(self) -> None:
        while self.rank > self.m:
            j, self._chance = self._chance.drawn(lambda random: random.integers(self.rank))
            self.delete(int(j))

    def settings(self) -> dict[str, Any]:
        return {"m": self.m, "seed": self.seed}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().state()
        return arrays, values | {"generator": self._chance.state}

    def fields(self) -> Fields:
        return super().fields() | {"generator": GENERATOR}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        super().restore(arrays, values)
        self._chance = self._chance.at(values["generator"])
