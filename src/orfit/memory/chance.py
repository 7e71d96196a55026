"""Random numbers that can be drawn again, by whoever goes back to before they were drawn."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import door
from orfit.schema import one_of, record

# The state of NumPy's PCG64.
LARGE = functools.partial(door.count, least=0, most=(1 << 128) - 1)
GENERATOR = record(
    {
        "bit_generator": one_of("PCG64"),
        "state": record({"state": LARGE, "inc": LARGE}),
        "has_uint32": functools.partial(door.count, least=0, most=1),
        "uinteger": functools.partial(door.count, least=0, most=(1 << 32) - 1),
    }
)


@dataclass(frozen=True)
class Chance:
    """Where in its sequence a generator is."""

    generator: np.random.Generator  # is wherever it was last used
    state: Any

    @classmethod
    def of(cls, seed: int) -> "Chance":
        generator = np.random.Generator(np.random.PCG64(seed))
        return cls(generator, generator.bit_generator.state)

    def drawn(self, draw: Callable[[np.random.Generator], Any]) -> tuple[Any, "Chance"]:
        """Numbers, and where the generator is after them."""
        bits = self.generator.bit_generator
        bits.state = self.state
        return draw(self.generator), Chance(self.generator, bits.state)

    def at(self, state: Any) -> "Chance":
        """The same, where it was in a state that was saved."""
        self.generator.bit_generator.state = state
        return Chance(self.generator, state)
