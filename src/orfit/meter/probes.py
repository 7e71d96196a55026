"""Random sums of all that was learned."""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from orfit import schema, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.meter.meter import Meter
from orfit.meter.reading import Reading, Readings
from orfit.meter.signs import signs
from orfit.schema import DOUBLE, Fields, Layout

WAITING = 16  # gradients that wait to be added together: Z is read and written once for them all
BLOCK = 256  # gradients that are added together at most
NOTHING = np.empty((0, 0))
LARGEST = 1e290  # larger numbers count as this: so can many of them be added up


class Probes:
    """Z (r columns), to which each gradient adds (g, Gᵀw, y − f) ω, the latter two after its step.

    Whatever the model's offset is, Gᵀw is what a prediction is but for a constant; so a change of
    the one is a change of the other. A column also has a last number, which tells whether what is
    to be added to Z (`adding`) has been.
    """

    def __init__(self, meter: Meter, size: int, heads: int) -> None:
        self.meter, self.size, self.heads = meter, size, heads
        length = size + 2 * heads + 1
        self.Z = np.zeros((length, meter.probes), order="F")
        self.waiting = np.zeros((length, WAITING), order="F")
        self.count = 0  # of those that wait
        self.gradients = 0  # that came, with those that wait
        self.seeds = frozenset([meter.seed])  # of all that is in Z
        self.adding: Array | None = None

    def take(self, G: Any, along: Array, left: Array) -> None:
        """Gradients (p×n) that were learned, Gᵀw after it, and y − f (n×q).

        Nothing is written to that somebody reads: `settle` does that.
        """
        G, n = tall.to_numpy(G), G.shape[1]
        if self.count + n <= WAITING:
            self._put(self.waiting[:, self.count : self.count + n], G, along, left)
            self.count += n
        else:
            self.adding = self._sum(G, along, left)
            self.count = 0
        self.gradients += n

    def settle(self) -> None:
        """Add what is to be added; where an exception cuts it short, doing it again does the rest.

        One call adds it all, with word of it.
        """
        if self.adding is not None:
            if not self.Z[-1, 0]:
                np.add(self.Z, self.adding, out=self.Z)
            self.adding = None

    def read(self, w: Any) -> Readings:
        """How far predictions have moved, and are off, with the parameters w, p×q, as carried."""
        change, error = self.sums(w)
        labels = self.gradients * self.heads
        return Readings(Reading.of(change, labels), Reading.of(error, labels))

    def sums(self, w: Any) -> tuple[Array, Array]:
        """Of each probe and head, r×q: Σ ω (f now − f then), and Σ ω (f now − y)."""
        p, q = self.size, self.heads
        V = np.zeros((len(self.Z), 2 * q), order="F")
        V[:p, :q] = V[:p, q:] = tall.to_numpy(w)
        V[range(p, p + q), range(q)] = -1  # Gᵀw now less Gᵀw then
        V[range(p, p + q), range(q, 2 * q)] = V[range(p + q, p + 2 * q), range(q, 2 * q)] = -1
        with np.errstate(over="ignore", invalid="ignore"):
            sums = tall.inner(self.Z, V)
            if self.count:
                waiting = tall.inner(_bounded(self.waiting[:, : self.count]), V)
                sums = sums + self._signs(self.gradients - self.count, self.count).T @ waiting
        return sums[:, :q], sums[:, q:]

    def _sum(self, G: Array, along: Array, left: Array) -> Array:
        """What these, and those that wait, add to Z."""
        total = None
        for first, columns in self._blocks(G, along, left):
            signs_of_them = self._signs(first, columns.shape[1])
            more = tall.combine(_bounded(columns), signs_of_them)
            total = more if total is None else np.add(total, more, out=total)
        assert total is not None
        self.Z[-1] = 0  # nobody reads it while nothing is to be added
        total[-1] = 1
        return np.asarray(total)

    def _blocks(self, G: Array, along: Array, left: Array) -> Iterator[tuple[int, Array]]:
        """Columns, and the number of the first of them."""
        if self.count:
            yield self.gradients - self.count, self.waiting[:, : self.count]
        for start in range(0, G.shape[1], BLOCK):
            part = slice(start, start + BLOCK)
            columns = np.zeros((len(self.Z), G[:, part].shape[1]), order="F")
            self._put(columns, G[:, part], along[part], left[part])
            yield self.gradients + start, columns

    def _put(self, columns: Array, G: Array, along: Array, left: Array) -> None:
        p, q = self.size, self.heads
        columns[:p] = G
        columns[p : p + q], columns[p + q : -1] = along.T, left.T

    def _signs(self, first: int, count: int) -> Array:
        return signs(self.meter.seed, first, count, self.meter.probes)

    def check_merge(self, other: "Probes") -> None:
        """Raise where sums with these signs cannot be added up."""
        if other.meter.probes != self.meter.probes:
            raise ValueError("their meters have different numbers of probes")
        if self.seeds & other.seeds:
            raise ValueError(
                "their meters draw the same signs, which then cancel no more: give each learner "
                "a meter with a seed of its own, orfit.Meter(32, seed=…)"
            )

    def merge(self, other: "Probes") -> None:
        """Add what another has summed, of gradients of its own."""
        self.Z, self.count = self._whole() + other._whole(), 0
        self.gradients, self.seeds = self.gradients + other.gradients, self.seeds | other.seeds

    def _whole(self) -> Array:
        """Z with those that wait, by itself."""
        Z = self.Z.copy(order="F")
        for first, columns in self._blocks(np.empty((self.size, 0)), NOTHING, NOTHING):
            Z += tall.combine(_bounded(columns), self._signs(first, columns.shape[1]))
        Z[-1] = 0
        return Z

    def grow(self, growth: Growth) -> None:
        """More features and heads, as if they had been there."""
        p, q = self.size, self.heads
        self.Z, self.waiting = (self._grown(A, growth) for A in (self.Z, self.waiting))
        self.size, self.heads = p + growth.features, q + growth.more_heads

    def _grown(self, A: Array, growth: Growth) -> Array:
        p, q = self.size, self.heads
        of_heads = (growth.wide(part, 0) for part in (A[p : p + q], A[p + q : -1]))
        return np.asfortranarray(np.vstack([growth.tall(A[:p]), *of_heads, A[-1:]]))

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and plain values to go on from, bit by bit."""
        waiting = _bounded(self.waiting[:-1, : self.count])
        values = {"gradients": self.gradients, "seeds": sorted(self.seeds)}
        return {"Z": self.Z[:-1], "waiting": waiting}, values

    fields: ClassVar[Fields] = {
        "gradients": schema.counter,
        "seeds": schema.listed(schema.counter, least=1),
    }

    @staticmethod
    def needs(meter: Meter, size: int, heads: int) -> tuple[int, int]:
        """The sides of Z in a file."""
        return size + 2 * heads, meter.probes

    def layout(self) -> Layout:
        length, probes = self.needs(self.meter, self.size, self.heads)
        return {"Z": (DOUBLE, length, probes), "waiting": (DOUBLE, length, "waiting")}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        waiting, count = arrays["waiting"], arrays["waiting"].shape[1]
        if not count <= min(WAITING, values["gradients"]):
            raise ValueError(f"{count} gradients cannot wait for the meter")
        self.Z[:-1], self.waiting[:-1, :count] = arrays["Z"], waiting
        self.count, self.gradients = count, values["gradients"]
        self.seeds = frozenset(values["seeds"])


def _bounded(columns: Array) -> Array:
    """The same, without numbers that are too large to be added up."""
    if -LARGEST < columns.min(initial=0.0) and columns.max(initial=0.0) < LARGEST:
        return columns
    return np.clip(columns, -LARGEST, LARGEST)
