"""The compiled row loop on the whole P."""

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from orfit import tall
from orfit.door import Array
from orfit.memory.loop import Counting, rows_of
from orfit.memory.windup import VISIBLE, WIDEST

# Lengths whose squares are numbers, and the share of a length that is no rounding.
SAFE = {dtype: (*lengths, tall.cutoff(dtype)) for dtype, lengths in tall.SAFE.items()}
UNLIMITED = math.inf, math.inf, math.inf, math.inf  # what does not fade does not wind up

READY: set[Any] = set()  # the dtypes for which it has run in this process


@functools.cache
def kernel() -> Any:
    from orfit.kernels import whole  # with numba, when first needed

    return whole.walk


class Walk(Counting):
    """`memory.Walk`, by `kernels.whole`: records of 4 + 3q numbers."""

    def __init__(
        self, memory: Any, guesses: Any, forgetting: float, drift: Any, most: float
    ) -> None:
        self.memory, self.noise, self.most = memory, guesses.noise, most
        self.fade = 1 / math.sqrt(forgetting)

    def begin(self, rows: int) -> None:
        memory, w = self.memory, tall.shared(self.memory.w).T
        self.records = np.empty((rows, 4 + 3 * len(w)))
        self.state = np.array([0.0, memory.reach, memory.width.bound])
        settings = np.array(
            [self.noise, self.fade, memory.width.prior, *self._limits(), self.most, *SAFE[w.dtype]]
        )
        arrays = memory.root.T, memory.late, memory.scale, w
        self.walk = functools.partial(kernel(), *arrays, settings, self.state, self.records)

    def _limits(self) -> tuple[float, ...]:
        """How wide L may be: whatever row comes; beside its length; what it must see; at most."""
        if self.fade == 1:
            return UNLIMITED
        width, widest = self.memory.width, WIDEST[self.memory.root.dtype]
        if width.wound:
            return width.limit(self.noise, 0.0), math.inf, math.inf, widest
        room = width.room * math.sqrt(self.noise)
        return width.limit(self.noise, 0.0), room, VISIBLE, widest

    def run(self, G: Any, F: Array, Y: Array) -> int:
        if len(Y):  # without a row, the kernel would settle what the last one has left
            self.walk(rows_of(G), F, Y)
        return self.learned

    @property
    def w(self) -> Any:
        return self.memory.w

    def note(self) -> Array:
        learned, reach, bound = self.state.tolist()
        READY.add(self.memory.root.dtype)
        if learned:
            self.memory.reach, self.memory.width = reach, replace(self.memory.width, bound=bound)
        return self.records[: int(learned)]


def settle(memory: Any) -> None:
    """Change L by the row before, as the next row would."""
    columns, w, none = memory.root.T, tall.shared(memory.w).T, np.empty((0, 1))
    arrays = columns, memory.late, memory.scale, w
    kernel()(*arrays, np.zeros(11), np.zeros(3), none, columns[:0], none, none)
