"""The compiled row loop on the whole P."""

import functools
import math
from typing import Any

import numpy as np

from orfit import tall
from orfit.door import Array
from orfit.memory.loop import rows_of

# Lengths whose squares are numbers, and the share of a length that is no rounding.
SAFE = {dtype: (*lengths, tall.cutoff(dtype)) for dtype, lengths in tall.SAFE.items()}


@functools.cache
def kernel() -> Any:
    from orfit.kernels import whole  # with numba, when first needed

    return whole.walk


def walk(
    memory: Any,
    G: Any,
    F: Array,
    Y: Array,
    guesses: Any,
    *,
    forgetting: float,
    drift: Any,
    most: float,
) -> Array:
    """Learn G's columns one after another: n×(4 + 3q), see `kernels.whole`.

    F, Y: n×q. most: what a parameter may reach. Stops short, with fewer records, where the plain
    step is to decide.
    """
    X, noise, width = rows_of(G), guesses.noise, memory.width
    fade = 1 / math.sqrt(forgetting)
    limit = room = math.inf  # what does not fade does not wind up
    if forgetting < 1:
        limit = width.limit(noise, 0.0)
        room = math.inf if width.wound else width.room * math.sqrt(noise)
    scale, late = memory.late or (1.0, np.zeros((2, X.shape[1]), X.dtype))
    records = np.empty((len(X), 4 + 3 * Y.shape[1]))
    if not len(X):  # without a row, the kernel would settle what the last one has left
        return records
    learned, moved = kernel()(
        memory.root.T,
        late,
        scale,
        tall.shared(memory.w).T,
        X,
        F,
        Y,
        noise,
        fade,
        width.bound,
        width.prior,
        limit,
        room,
        SAFE[X.dtype],
        most - memory.reach,
        records,
    )
    if fade > 1:
        memory.width = width.faded(fade**learned)
    memory.reach += moved
    if learned == len(X):
        memory.late = fade, late
        return records
    memory.late = None
    return records[:learned]


def settle(memory: Any) -> None:
    """Change L by the row before, as the next row would."""
    (scale, late), columns, nothing = memory.late, memory.root.T, np.empty((0, 1))
    w, X, zeros = tall.shared(memory.w).T, columns[:0], [0.0] * 6
    kernel()(columns, late, scale, w, X, nothing, nothing, *zeros, SAFE[X.dtype], 0.0, nothing)
    memory.late = None
