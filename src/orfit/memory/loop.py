"""The compiled row loop on a memory in principal axes."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from orfit import gram, small, tall
from orfit.door import Array
from orfit.memory.lengths import Lengths
from orfit.memory.seen import Axes
from orfit.tail import Tail

NUMBERS = 12  # of a state, before its arrays

# Lengths of rows that are stored as they are: along others w's coefficients would be too large.
SCALES = {np.dtype(np.float64): (1e-30, 1e30), np.dtype(np.float32): (1e-2, 1e5)}


READY: set[Any] = set()  # the dtypes for which it has run in this process
NOTHING = np.empty((0, 0))


@functools.cache
def compiled() -> Any:
    from orfit import kernels  # with numba, when first needed

    return kernels


def rows_of(G: Any) -> Array:
    """G's columns as rows for compiled code, which would be compiled anew for other ones."""
    rows: Array = (G if isinstance(G, np.ndarray) else tall.shared(G)).T
    return rows if rows.flags.carray else rows.copy()


def packed(memory: Any, guesses: int, exact: bool) -> Array:
    """What `kernels.walk` goes on from: numbers, sigma, the tail, shift and W, one after another.

    With room for as much as there may be.
    """
    frame, tail, room = memory.frame, memory.tail, len(memory.frame.rows)
    k, stored, columns = len(frame.W), frame.stored, len(frame.base)
    most = min(memory.m, room)  # a memory may be allowed more than gradients have dimensions
    state = np.empty(NUMBERS + (most + columns + 1) * room + 2 * guesses)
    numbers = stored, k, exact, frame.folds, memory._lost, frame.reach
    state[:NUMBERS] = 0, *numbers, tail.rows, tail.dropping, tail.prior, *memory.lengths
    place = NUMBERS
    for part in (memory.seen.sigma, tail.level, tail.dropped, frame.shift, frame.W):
        state[place : place + part.size] = part.ravel()
        place += part.size
    return state


class Counting:
    """A walk that goes on; compiled code counts its rows, in the first number of its state."""

    goes_on = True
    catch_up: Callable[[], None]
    records: Array
    state: Array

    @property
    def learned(self) -> int:
        return int(self.state.item(0))


class Walk(Counting):
    """`memory.Walk`, by `kernels.walk`, whose records these are."""

    def __init__(
        self, memory: Any, guesses: Any, forgetting: float, drift: float, most: float
    ) -> None:
        self.memory, self.guesses, self.drift = memory, guesses, drift
        dtype, tailed = tall.numpy_dtype(memory.frame.base), bool(memory.tailed.any())
        self.dtype, self.tailed, self.fading = dtype, tailed, math.sqrt(forgetting)
        # Its coefficients along rows are larger than a step, by what they are shorter.
        most *= SCALES[dtype][0] / math.sqrt(gram.most_lost(dtype))
        self.limits = tall.cutoff(dtype), SCALES[dtype], gram.most_lost(dtype), most

    def begin(self, rows: int) -> None:
        memory, guesses, frame = self.memory, self.guesses, self.memory.frame
        self.frame, self._w = frame, None if frame._w is None else (0, frame._w)
        count, columns = len(guesses.noises), len(frame.base)
        self.records = np.empty((rows, 3 + count + 2 * columns + columns // count))
        exact = memory.provenance(guesses.noise) is not None
        self.state, self.provenance = packed(memory, count, exact), NOTHING
        if exact:
            self.provenance = np.zeros(frame.M.shape)
            self.provenance[: frame.stored, : frame.stored] = frame.provenance.rows
        free = memory.size - memory.m if self.tailed else 0
        self.threads = compiled().threads
        self.walk = functools.partial(
            compiled().walk,
            tall.shared(frame.rows),
            frame.M,
            self.provenance,
            tall.shared(frame.base),
            self.state,
            memory.m,
            memory.shrinks,
            free,
            guesses.noises,
            memory.tailed,
            guesses.chosen,
            self.fading,
            self.drift,
            *self.limits,
            self.records,
        )

    def run(self, G: Any, F: Array, Y: Array) -> int:
        X = rows_of(G)
        self.walk(self.threads(X.shape[1], len(X)), X, F, Y)
        return self.learned

    @property
    def w(self) -> Any:
        made, learned = self._w, self.learned
        if made is None or made[0] != learned:  # of so many rows
            frame, (stored, _, _, shift, _) = self.frame, self._arrays()
            made = learned, frame.base.T + tall.combine(frame.rows[:stored].T, shift.T)
            self._w = made
        return made[1]

    def _arrays(self) -> tuple[int, Array, Array, Array, Array]:
        """Of the state: how many rows are stored, sigma, two of the tail's arrays, shift and W."""
        state, count, columns = self.state, len(self.guesses.noises), len(self.frame.base)
        stored, k = int(state[1]), int(state[2])
        of_tail = NUMBERS + k
        of_shift = of_tail + 2 * count
        of_W = of_shift + columns * stored
        return (
            stored,
            state[NUMBERS:of_tail],
            state[of_tail:of_shift].reshape(2, count),
            state[of_shift:of_W].reshape(columns, stored),
            state[of_W : of_W + k * stored].reshape(k, stored),
        )

    def note(self) -> Array:
        READY.add(self.dtype)
        memory, frame, learned = self.memory, self.frame, self.learned
        if not learned:
            return self.records[:0]
        exact, folds, lost, reach, *tail, gradients, powers = self.state[3:NUMBERS].tolist()
        stored, sigma, (level, dropped), shift, W = self._arrays()
        made_by = np.asfortranarray(self.provenance[:stored, :stored]) if exact else None
        provenance = None if made_by is None else small.Provenance(made_by)
        w = None if self._w is None or self._w[0] != learned else self._w[1]
        frame.advance(stored, W, shift, int(folds), provenance, w)
        frame.reach, memory._lost = reach, lost
        memory.seen = Axes(sigma)
        memory.tail, memory.lengths = Tail(level, dropped, *tail), Lengths(int(gradients), powers)
        memory.walked(learned, self.guesses)
        return self.records[:learned]
