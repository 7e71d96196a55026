"""The compiled row loop on a memory in principal axes."""

import functools
import math
from typing import Any

import numpy as np

from orfit import gram, small, tall
from orfit.door import Array
from orfit.memory.seen import Axes
from orfit.tail import Tail

NUMBERS = 10  # of an outcome, before its arrays

# Lengths of rows that are stored as they are: along others w's coefficients would be too large.
SCALES = {np.dtype(np.float64): (1e-30, 1e30), np.dtype(np.float32): (1e-2, 1e5)}


READY: set[Any] = set()  # the dtypes for which it has run in this process
NOTHING = np.empty((0, 0))


@functools.cache
def compiled() -> Any:
    from orfit import kernels  # with numba, when first needed

    return kernels


def rows_of(G: Any) -> Array:
    """G's columns as rows for compiled code, which would be compiled anew for read-only ones."""
    rows: Array = (G if isinstance(G, np.ndarray) else tall.shared(G)).T
    return rows if rows.flags.writeable else rows.copy()


class Walk:
    """`memory.Walk`, by `kernels.walk`, whose records these are.

    F, Y: n×b. most: what a parameter may reach. Stops short, with fewer records, where a step might
    overflow.
    """

    def __init__(
        self, memory: Any, guesses: Any, forgetting: float, drift: float, most: float
    ) -> None:
        self.memory, self.guesses, self.forgetting, self.drift = memory, guesses, forgetting, drift
        dtype, tailed = tall.numpy_dtype(memory.frame.base), bool(memory.tailed.any())
        self.dtype, self.tailed, self.fading = dtype, tailed, math.sqrt(forgetting)
        self.limits = tall.cutoff(dtype), SCALES[dtype], gram.most_lost(dtype)
        # Its coefficients along rows are larger than a step, by what they are shorter.
        self.most = most * (SCALES[dtype][0] / math.sqrt(gram.most_lost(dtype)))

    def begin(self, G: Any, F: Array, Y: Array) -> None:
        memory, guesses, frame = self.memory, self.guesses, self.memory.frame
        self.X, self.F, self.Y = rows_of(G), F, Y
        self.exact = memory.makers(guesses.noise) is not None
        self.makers = np.zeros(frame.M.shape) if self.exact else NOTHING
        if self.exact:
            self.makers[: frame.stored, : frame.stored] = frame.makers.rows
        count, columns, room = len(guesses.noises), len(frame.base), len(frame.rows)
        self.records = np.empty((len(Y), 3 + count + 2 * columns + columns // count))
        # Where the kernel writes what came of it (`kernels.tell`).
        self.outcome = np.empty(NUMBERS + (memory.m + columns + 1) * room + 2 * count)
        self.outcome[0] = 0.0

    def run(self) -> None:
        kernels, memory, guesses, X = compiled(), self.memory, self.guesses, self.X
        frame = memory.frame
        kernels.walk(
            tall.shared(frame.rows),
            frame.stored,
            np.ascontiguousarray(frame.W),
            frame.M,
            self.makers,
            self.exact,
            memory.seen.sigma,
            memory.m,
            memory.shrinks,
            memory.tail,
            memory.size - memory.m if self.tailed else 0,
            tall.shared(frame.base),
            np.ascontiguousarray(frame.shift),
            frame.folds,
            X,
            self.F,
            self.Y,
            guesses.noises,
            memory.tailed,
            guesses.chosen,
            self.fading,
            self.drift,
            *self.limits,
            self.most - frame.reach,
            self.records,
            self.outcome,
            kernels.threads(X.shape[1], len(X)),
        )
        READY.add(self.dtype)

    def note(self) -> Array:
        memory, frame, outcome = self.memory, self.memory.frame, self.outcome
        if not outcome[0]:
            return self.records[:0]
        learned, stored, k, exact, folds, lost, moved, *tail = outcome[:NUMBERS].tolist()
        learned, stored, k, count = int(learned), int(stored), int(k), len(self.guesses.noises)
        of_tail = NUMBERS + k
        of_shift = of_tail + 2 * count
        of_W = of_shift + len(frame.base) * stored
        level, dropped = outcome[of_tail:of_shift].reshape(2, count)
        frame.advance(
            stored,
            outcome[of_W : of_W + k * stored].reshape(k, stored),
            outcome[of_shift:of_W].reshape(len(frame.base), stored),
            int(folds),
            small.Makers(np.asfortranarray(self.makers[:stored, :stored])) if exact else None,
        )
        frame.reach += moved
        memory.seen = Axes(outcome[NUMBERS:of_tail])
        memory.tail = Tail(level, dropped, *tail)
        memory._lost = memory._lost * self.forgetting**learned + lost
        memory.walked(learned, self.guesses)
        return self.records[:learned]
