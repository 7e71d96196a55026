"""The compiled row loop on the whole P."""

import functools
import math
from typing import Any

import numpy as np

from orfit import tall
from orfit.door import Array
from orfit.memory.loop import NOTHING, rows_of
from orfit.memory.windup import VISIBLE, WIDEST

# Lengths whose squares are numbers, and the share of a length that is no rounding.
SAFE = {dtype: (*lengths, tall.cutoff(dtype)) for dtype, lengths in tall.SAFE.items()}

READY: set[Any] = set()  # the dtypes for which it has run in this process


@functools.cache
def kernel() -> Any:
    from orfit.kernels import whole  # with numba, when first needed

    return whole.walk


class Walk:
    """`memory.Walk`, by `kernels.whole`: records n×(4 + 3q).

    F, Y: n×q. most: what a parameter may reach. Stops short, with fewer records, where the plain
    step is to decide.
    """

    __slots__ = ("F", "X", "Y", "fade", "memory", "most", "noise", "outcome", "records")

    def __init__(
        self, memory: Any, guesses: Any, forgetting: float, drift: Any, most: float
    ) -> None:
        self.memory, self.noise, self.most = memory, guesses.noise, most
        self.fade, self.outcome, self.records = 1 / math.sqrt(forgetting), np.zeros(2), NOTHING

    def begin(self, G: Any, F: Array, Y: Array) -> None:
        self.outcome[0] = 0.0
        self.X, self.F, self.Y = rows_of(G), F, Y
        if len(self.records) != len(Y):
            self.records = np.empty((len(Y), 4 + 3 * Y.shape[1]))

    def run(self) -> None:
        memory, noise, X = self.memory, self.noise, self.X
        width, shared = memory.width, tall.shared(memory.w)
        if not len(X):  # without a row, the kernel would settle what the last one has left
            return
        limit = room = widest = math.inf  # what does not fade does not wind up
        visible = math.inf
        if self.fade > 1:
            limit, widest = width.limit(noise, 0.0), WIDEST[X.dtype]
            if not width.wound:
                room, visible = width.room * math.sqrt(noise), VISIBLE
        kernel()(
            memory.root.T,
            memory.late,
            memory.scale,
            shared.T,
            X,
            self.F,
            self.Y,
            noise,
            self.fade,
            width.bound,
            width.prior,
            limit,
            room,
            visible,
            widest,
            SAFE[X.dtype],
            self.most - memory.reach,
            self.records,
            self.outcome,
        )
        READY.add(X.dtype)

    def note(self) -> Array:
        learned, moved = self.outcome.tolist()
        if not learned:
            return self.records[:0]
        if self.fade > 1:
            self.memory.width = self.memory.width.faded(self.fade**learned)
        self.memory.reach += moved
        return self.records if learned == len(self.records) else self.records[: int(learned)]


def settle(memory: Any) -> None:
    """Change L by the row before, as the next row would."""
    columns, nothing, zeros = memory.root.T, np.empty((0, 1)), [0.0] * 8
    w, safe = tall.shared(memory.w).T, SAFE[columns.dtype]
    late, scale, rows = memory.late, memory.scale, columns[:0]
    kernel()(
        columns, late, scale, w, rows, nothing, nothing, *zeros, safe, 0.0, nothing, np.empty(2)
    )
