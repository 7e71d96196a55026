"""The compiled row loop on the whole P."""

import math
from typing import Any

import numpy as np

from orfit import tall
from orfit.door import Array
from orfit.memory.loop import rows_of


def walk(memory: Any, G: Any, Y: Array, *, noise: float, forgetting: float, most: float) -> Array:
    """Learn G's columns one after another: n×(4 + 2q), see `kernels.whole`.

    Y: n×q. most: what a parameter may reach. Stops short, with fewer records, where the plain step
    is to decide.
    """
    from orfit.kernels import whole  # with numba, when first needed

    X, w = rows_of(G), tall.shared(memory.w)
    assert w is not None
    fade, width = 1 / math.sqrt(forgetting), memory.width
    limit = room = math.inf  # what does not fade does not wind up
    if forgetting < 1:
        limit = width.limit(noise, 0.0)
        room = math.inf if width.wound else width.room * math.sqrt(noise)
    records = np.empty((len(X), 4 + 2 * w.shape[1]))
    learned, moved = whole.walk(
        memory.L.T,
        w.T,
        X,
        np.ascontiguousarray(Y),
        noise,
        fade,
        width.bound,
        width.prior,
        limit,
        room,
        tall.cutoff(X.dtype),
        tall.SAFE[X.dtype],
        most - memory.reach,
        records,
    )
    if fade > 1:
        memory.width = width.faded(fade**learned)
    memory.reach += moved
    return records[:learned]
