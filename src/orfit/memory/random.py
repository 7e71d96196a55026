"""Keep random directions."""

from typing import Any

import numpy as np

from orfit import door
from orfit.door import Array
from orfit.memory.basis import Bounded


class Random(Bounded):
    """Any m of the basis vectors, chosen after each block: the paper's ORFit-random."""

    def __init__(self, m: int, seed: int = 0) -> None:
        super().__init__(m)
        self.seed = door.count("seed", seed, least=0)
        self._generator = np.random.Generator(np.random.PCG64(self.seed))

    def trim(self) -> None:
        while self.rank > self.m:
            self.delete(int(self._generator.integers(self.rank)))

    def settings(self) -> dict[str, Any]:
        return {"m": self.m, "seed": self.seed}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().state()
        return arrays, values | {"generator": self._generator.bit_generator.state}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        super().restore(arrays, values)
        self._generator.bit_generator.state = values["generator"]
