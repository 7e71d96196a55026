"""How large residuals are beside what is expected of them: means over a long and a short time.

    u = r / sqrt(gᵀPg + R),     scale = the mean of u²,     variance of y = scale (gᵀPg + R)

In these means no u² counts for more than FAR times the scale so far: one bad reading, or a jump
that is soon learned, would else widen every interval for thousands of rows. Where most of a group
of u² is that large, it is noise that has grown, and counts.
"""

import functools
from dataclasses import dataclass

import numpy as np

from orfit.door import Array
from orfit.growth import Growth

RECENCY = 3.0  # a mean weighs row i of n by about (i/n)^(RECENCY − 1)
WINDOW = 1000  # rows: never longer than that, so that a stream may change
LATELY = 100  # rows, of what is compared with all that
GROUP = 64  # gradients whose u² are held against the same scale
FAR = 25.0  # five standard deviations: of noise that is normal, nothing is lost
LARGEST = 1e300  # means beyond are no numbers when they are added up
MEDIAN = 0.455  # of u², where noise is normal: the first group has nothing else to be held against


@dataclass(frozen=True, slots=True)
class Means:
    """Of e guesses, with b columns of residuals in all."""

    known: int  # gradients that are in them
    table: Array  # 2×(e + 2b): over WINDOW and LATELY; of S/R, of u², and of u u' of neighbours
    last: Array  # u of the last gradient

    @classmethod
    def none(cls, guesses: int, columns: int) -> "Means":
        return cls(0, np.zeros((2, guesses + 2 * columns)), np.zeros(columns))

    @property
    def excess(self) -> Array:
        """(gᵀPg + R) / R, lately, of each guess."""
        return self.table[1, : self._squares]

    @property
    def scale(self) -> Array:
        """u² of each column."""
        return self.table[0, self._squares : self._products]

    @property
    def lately(self) -> Array:
        return self.table[1, self._squares : self._products]

    @property
    def neighbours(self) -> Array:
        """Of neighbouring u, lately, the product."""
        return self.table[1, self._products :]

    @property
    def _squares(self) -> int:
        return int(self.table.shape[1]) - 2 * len(self.last)

    @property
    def _products(self) -> int:
        return int(self.table.shape[1]) - len(self.last)

    def with_rows(self, excess: Array, u: Array) -> "Means":
        """With gradients, of which these are S/R (n×e) and u (n×b), in groups from the first on."""
        whole = len(u) // GROUP * GROUP
        made = self
        for rows, size in ((slice(whole), GROUP), (slice(whole, None), len(u) - whole)):
            if len(u[rows]):
                parts = (A[rows].reshape(-1, size, A.shape[1]) for A in (excess, u))
                made = made._with_groups(*parts)
        return made

    def _with_groups(self, excess: Array, u: Array) -> "Means":
        """With groups of as many gradients each, g×n×e and g×n×b."""
        groups, n, _ = u.shape
        known, table, last, clipped = self.known, self.table, self.last, False
        scale, squares = slice(self._squares, self._products), u * u
        usual, largest = median(squares) / MEDIAN, squares.max(axis=1)
        before = np.concatenate([last[None], u.reshape(groups * n, -1)[:-1]]).reshape(u.shape)
        weights, kept = group_weights(known, groups, n)
        # All at once, as if nothing were far: what is, and what follows it, is made again.
        sums = weights @ np.concatenate([excess, squares, u * before], axis=2)
        for group in range(groups):
            most, mine = usual[group], u[group]
            if known:  # where most of a whole group is large, that is no outlier
                most = np.maximum(table[0, scale], most) if n == GROUP else table[0, scale]
            far = (largest[group] > FAR * most) & (most > 0)
            if clipped or far.any():
                most, clipped = np.sqrt(FAR * np.where(most > 0, most, np.inf)), bool(far.any())
                mine = np.minimum(np.maximum(mine, -most), most)
                follows = np.concatenate([last[None], mine[:-1]])
                each = np.concatenate([excess[group], mine * mine, mine * follows], axis=1)
                sums[group] = weights[group] @ each
            table, last, known = kept[group] * table + sums[group], mine[-1], known + n
        return Means(known, table, last)

    def merged(self, other: "Means") -> "Means":
        """With those of another stream."""
        table = np.empty_like(self.table)
        for mean, window in enumerate((WINDOW, LATELY)):
            table[mean] = mean_of_both(
                self.table[mean], other.table[mean], self.known, other.known, window
            )
        last = self.last if self.known else other.last
        return Means(self.known + other.known, table, last)

    def of(self, guesses: Array, columns: Array, ratio: Array) -> "Means":
        """Those of these guesses and columns, where u² of each guess is `ratio` times as large."""
        excess, squares, products = np.split(self.table, [self._squares, self._products], axis=1)
        each = ratio.repeat(len(columns) // len(guesses))
        with np.errstate(over="ignore"):
            parts = excess[:, guesses], each * squares[:, columns], each * products[:, columns]
            table = np.clip(np.hstack(parts), -LARGEST, LARGEST)
            return Means(self.known, table, np.sqrt(each) * self.last[columns])

    def grown(self, growth: Growth) -> "Means":
        """With more heads, whose residuals were zero."""
        parts = np.split(self.table, [self._squares, self._products], axis=1)
        wide = [parts[0], *(growth.wide(part, 1) for part in parts[1:])]
        return Means(self.known, np.hstack(wide), growth.wide(self.last, 0))


def mean_of_both(mine: Array, theirs: Array, before: int, more: int, window: int) -> Array:
    """The mean of so many values each, of which no more than a window count."""
    a, b = min(before, window), min(more, window)
    return np.asarray((a * mine + b * theirs) / max(1, a + b))


def median(A: Array) -> Array:
    """Along the last axis but one, as `np.median`, which takes longer where there are few."""
    A, n = np.sort(A, axis=-2), A.shape[-2]
    return np.asarray((A[..., (n - 1) // 2, :] + A[..., n // 2, :]) / 2)


def weights(before: int, count: int) -> tuple[Array, float]:
    """The weights of so many new values in a mean of those `before`, and what is left of that."""
    return _weights(min(before, int(RECENCY * WINDOW)), count, WINDOW)  # alike from there on


def group_weights(before: int, groups: int, count: int) -> tuple[Array, Array]:
    """The same for groups of so many: g×2×n and g×2×1, over WINDOW and LATELY."""
    return _group_weights(min(before, int(RECENCY * WINDOW)), groups, count)


@functools.lru_cache(256)
def _group_weights(before: int, groups: int, count: int) -> tuple[Array, Array]:
    starts = before + count * np.arange(groups)
    found = [[_weights(int(start), count, w) for w in (WINDOW, LATELY)] for start in starts]
    weights = np.array([[new for new, _ in both] for both in found])
    return weights, np.array([[[kept] for _, kept in both] for both in found])


@functools.lru_cache(256)
def _weights(before: int, count: int, window: int) -> tuple[Array, float]:
    rates = RECENCY / (before + np.arange(1.0, count + 1))
    rates = np.minimum(1.0, np.maximum(rates, 1 / window))
    kept = np.cumprod(np.concatenate([[1.0], 1 - rates[::-1]]))
    return rates * kept[:-1][::-1], float(kept[-1])
