"""Random sums of all that was learned."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from orfit.growth import Growth
from orfit.meter.meter import Meter
from orfit.meter.reading import Reading, Readings
from orfit.meter.signs import signs
from orfit.state import State
from orfit.store import HOST, arithmetic
from orfit.validation import Array

WAITING = 16  # gradients that are added to the sums together, by one read and write of them
BLOCK = 256  # gradients that are added together at most
NOTHING = np.empty((0, 0))
LARGEST = 1e290  # larger numbers count as this, so that many of them can be added


class Probes:
    """Sums Z (r columns); each gradient adds (g, Gᵀw, y − f) ω, the latter two after its step.

    Whatever the model's offset is, Gᵀw is a prediction up to a constant; so a change of the one is
    a change of the other. The state has meter_sums (Z), and meter_waiting (the columns of gradients
    that are not added yet).
    """

    def __init__(self, meter: Meter, size: int, heads: int) -> None:
        self.meter, self.size, self.heads = meter, size, heads

    def initialize(self, s: State) -> None:
        """Set the fields before the first row."""
        length = self.size + 2 * self.heads
        s.meter_sums = np.zeros((length, self.meter.probes), order="F")
        s.meter_waiting = np.zeros((length, 0), order="F")
        s._meter_buffer = None
        s.meter_gradients, s.meter_seeds = 0, (self.meter.seed,)

    def add(self, s: State, G: Any, along: Array, left: Array) -> None:
        """Add gradients (p×n) that were learned, Gᵀw after it, and y − f (n×q)."""
        G = arithmetic(G).to_numpy(G)
        count, n = s.meter_waiting.shape[1], G.shape[1]
        if count + n > WAITING >= n:
            self._add_waiting(s)
            count = 0
        if n <= WAITING:
            if s._meter_buffer is None:
                s._meter_buffer = np.zeros((len(s.meter_sums), WAITING), order="F")
                s._meter_buffer[:, :count] = s.meter_waiting
            # Behind the columns that the state before uses.
            self._put(s._meter_buffer[:, count : count + n], G, along, left)
            s.meter_waiting = s._meter_buffer[:, : count + n]
        else:
            s.meter_sums = self._whole(s, G, along, left)
            s.meter_waiting, s._meter_buffer = s.meter_waiting[:, :0], None
        s.meter_gradients += n

    def add_each(self, s: State, G: Array, along: Array, left: Array) -> None:
        """Add gradients one after another: the sums are as if each had come alone."""
        count, n = s.meter_waiting.shape[1], G.shape[1]
        if count + n <= WAITING:
            self.add(s, G, along, left)
            return
        columns = np.zeros((len(s.meter_sums), count + n), order="F")
        columns[:, :count] = s.meter_waiting
        self._put(columns[:, count:], G, along, left)
        bounded, Z, added = _bounded(columns), s.meter_sums, (count + n - 1) // WAITING * WAITING
        signs_of_them = self._signs(s.meter_gradients - count, added)
        for start in range(0, added, WAITING):
            some = slice(start, start + WAITING)
            Z = Z + HOST.combine(bounded[:, some], signs_of_them[some])
        s.meter_sums, s.meter_waiting = Z, columns[:, added:].copy(order="F")
        s._meter_buffer = None
        s.meter_gradients += n

    def _add_waiting(self, s: State) -> None:
        """Add what waits to the sums."""
        s.meter_sums = self._whole(s, np.empty((self.size, 0)), NOTHING, NOTHING)
        s.meter_waiting, s._meter_buffer = s.meter_waiting[:, :0], None

    def read(self, s: State, w: Any) -> Readings:
        """How far predictions have moved, and are off, with the parameters w, p×q, as carried."""
        change, error = self.sums(s, w)
        labels = s.meter_gradients * self.heads
        return Readings(Reading.of(change, labels), Reading.of(error, labels))

    def sums(self, s: State, w: Any) -> tuple[Array, Array]:
        """Of each probe and head, r×q: Σ ω (f now − f then), and Σ ω (f now − y)."""
        p, q, waiting = self.size, self.heads, s.meter_waiting
        V = np.zeros((len(s.meter_sums), 2 * q), order="F")
        V[:p, :q] = V[:p, q:] = arithmetic(w).to_numpy(w)
        V[range(p, p + q), range(q)] = -1  # Gᵀw now less Gᵀw then
        V[range(p, p + q), range(q, 2 * q)] = V[range(p + q, p + 2 * q), range(q, 2 * q)] = -1
        with np.errstate(over="ignore", invalid="ignore"):
            sums, count = HOST.inner(s.meter_sums, V), waiting.shape[1]
            if count:
                signs_of_them = self._signs(s.meter_gradients - count, count)
                sums = sums + signs_of_them.T @ HOST.inner(_bounded(waiting), V)
        return sums[:, :q], sums[:, q:]

    def _whole(self, s: State, G: Array, along: Array, left: Array) -> Array:
        """The sums with all that waits, and with these gradients."""
        Z = s.meter_sums
        for first, columns in self._blocks(s, G, along, left):
            signs_of_them = self._signs(first, columns.shape[1])
            Z = Z + HOST.combine(_bounded(columns), signs_of_them)
        return np.asarray(Z)

    def _blocks(self, s: State, G: Array, along: Array, left: Array) -> Iterator[tuple[int, Array]]:
        """Columns, and the number of the first of them."""
        waiting = s.meter_waiting.shape[1]
        if waiting:
            yield s.meter_gradients - waiting, s.meter_waiting
        for start in range(0, G.shape[1], BLOCK):
            part = slice(start, start + BLOCK)
            columns = np.zeros((len(s.meter_sums), G[:, part].shape[1]), order="F")
            self._put(columns, G[:, part], along[part], left[part])
            yield s.meter_gradients + start, columns

    def _put(self, columns: Array, G: Array, along: Array, left: Array) -> None:
        p, q = self.size, self.heads
        columns[:p] = G
        columns[p : p + q], columns[p + q :] = along.T, left.T

    def _signs(self, first: int, count: int) -> Array:
        return signs(self.meter.seed, first, count, self.meter.probes)

    def check_merge(self, s: State, other: "Probes", theirs: State) -> None:
        """Raise if sums with these signs cannot be added up."""
        if other.meter.probes != self.meter.probes:
            raise ValueError("their meters have different numbers of probes")
        if {*s.meter_seeds} & {*theirs.meter_seeds}:
            raise ValueError(
                "their meters draw the same signs, which then cancel no more: give each learner "
                "a meter with a seed of its own, orfit.Meter(32, seed=…)"
            )

    def merge(self, s: State, other: "Probes", theirs: State) -> None:
        """Add what another has summed, of gradients of its own."""
        nothing = np.empty((self.size, 0)), NOTHING, NOTHING
        self._add_waiting(s)
        s.meter_sums = s.meter_sums + other._whole(theirs, *nothing)
        s.meter_gradients += theirs.meter_gradients
        s.meter_seeds = tuple(sorted({*s.meter_seeds, *theirs.meter_seeds}))

    def grow(self, s: State, growth: Growth) -> dict[str, Any]:
        """Add features and heads, as if they had been there; returns the new attributes."""
        s.meter_sums, s.meter_waiting = (
            self._grown(A, growth) for A in (s.meter_sums, s.meter_waiting)
        )
        s._meter_buffer = None
        return {"size": self.size + growth.features, "heads": self.heads + growth.more_heads}

    def _grown(self, A: Array, growth: Growth) -> Array:
        p, q = self.size, self.heads
        of_heads = (growth.insert_heads(part, 0) for part in (A[p : p + q], A[p + q :]))
        return np.asfortranarray(np.vstack([growth.insert_features(A[:p]), *of_heads]))

    @staticmethod
    def needs(meter: Meter, size: int, heads: int) -> tuple[int, int]:
        """The shape of the sums in a file."""
        return size + 2 * heads, meter.probes

    def check_state(self, s: State) -> None:
        """Raise if the fields do not fit together."""
        count = s.meter_waiting.shape[1]
        if not count <= min(WAITING, s.meter_gradients):
            raise ValueError(f"{count} gradients cannot wait for the meter")


def _bounded(columns: Array) -> Array:
    """The same, with numbers that are too large to be added limited."""
    if -LARGEST < columns.min(initial=0.0) and columns.max(initial=0.0) < LARGEST:
        return columns
    return np.clip(columns, -LARGEST, LARGEST)
