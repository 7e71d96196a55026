"""The compiled row loop on a memory in principal axes."""

import functools
import math
from typing import Any

import numpy as np

from orfit import gram, small, tall
from orfit.door import Array
from orfit.memory.seen import Axes
from orfit.tail import Tail

# Lengths of rows that are stored as they are: along others w's coefficients would be too large.
SCALES = {np.dtype(np.float64): (1e-30, 1e30), np.dtype(np.float32): (1e-2, 1e5)}


@functools.cache
def compiled() -> Any:
    from orfit import kernels  # with numba, when first needed

    return kernels


def rows_of(G: Any) -> Array:
    """G's columns as rows for compiled code, which would be compiled anew for read-only ones."""
    rows: Array = tall.shared(G).T
    return rows if rows.flags.writeable else rows.copy()


def walk(
    memory: Any,
    G: Any,
    F: Array,
    Y: Array,
    guesses: Any,
    *,
    forgetting: float,
    drift: float,
    most: float,
) -> Array:
    """`Memory.walk`: see `kernels.walk`, whose records these are.

    F, Y: n×b. most: what a parameter may reach. Stops short, with fewer records, where a step might
    overflow.
    """
    kernels, frame = compiled(), memory.frame
    X, rows, base = rows_of(G), tall.shared(frame.rows), tall.shared(frame.base)
    exact = memory.makers(guesses.noise) is not None
    makers = np.zeros(frame.M.shape if exact else (0, 0))
    if exact:
        makers[: frame.stored, : frame.stored] = frame.makers.rows
    count = len(guesses)
    records = np.empty((len(X), 3 + count + 2 * len(base) + len(base) // count))
    # Its coefficients along rows are larger than a step, by what they are shorter.
    most = most * SCALES[X.dtype][0] / math.sqrt(gram.most_lost(X.dtype)) - frame.reach
    stored, W, exact, sigma, tail, shift, folds, lost, moved, learned = kernels.walk(
        rows,
        frame.stored,
        np.ascontiguousarray(frame.W),
        frame.M,
        makers,
        exact,
        memory.seen.sigma,
        memory.m,
        memory.shrinks,
        memory.tail,
        memory.size - memory.m if memory.tailed.any() else 0,
        base,
        frame.shift,
        frame.folds,
        X,
        F,
        Y,
        guesses.noises,
        memory.tailed,
        guesses.chosen,
        math.sqrt(forgetting),
        drift,
        tall.cutoff(X.dtype),
        SCALES[X.dtype],
        gram.most_lost(X.dtype),
        most,
        records,
        kernels.threads(len(G), len(X)),
    )
    makers = np.asfortranarray(makers[:stored, :stored])
    frame.advance(stored, W, shift, folds, small.Makers(makers) if exact else None)
    frame.reach += moved
    memory.seen = Axes(sigma)
    memory.tail = Tail(*tail)
    memory._lost = memory._lost * forgetting**learned + lost
    return records[:learned]
