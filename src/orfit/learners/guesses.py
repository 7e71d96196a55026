"""What the noise is taken to be: one guess, or several, of which the best so far is used.

What a memory holds depends little on the noise, and the gradients not at all; so w has a column
for each guess, all of them learn from every row on one memory, and the guess whose predictions were
best lately is the learner's. Each also keeps how large its residuals were beside what it expected
(`Means`).
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import door, schema, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.learners.means import GROUP, WINDOW, Means, mean_of_both, weights
from orfit.memory.lengths import FIELDS as LENGTHS
from orfit.memory.lengths import Lengths
from orfit.schema import DOUBLE, Fields, Layout

# Of R, as powers of ten, in units of the squared length of the first gradient.
GRID = range(-6, 2)
FARTHEST = 290  # the grid is moved no farther than by so many powers of ten
APART = 4  # powers of ten between squared lengths: then the small numbers have a grid of their own
STRETCHED = 3  # guesses that reach down to its end: of a little noise, powers matter less
LOOKS = 2  # when there are so many times as many gradients, it is looked at how long they are
UNUSUAL = 2  # powers of ten that the usual squared length is from the one that is guessed by
START = 64  # gradients: less noise than after them is guessed no more, for a system may rest later
AS_GOOD = 0.01  # a mean squared error that is larger by so much, relatively: no more is known
MOST = 1e300  # beyond, squares count as this
UNSURE = 1e3  # and S/R as this: one row of another world would else be all that its mean tells
LARGEST = 1e140  # residuals count as this at most: of many, squares can be added up
FIRST = 32  # rows, after each of which another guess may be chosen
INTERVAL = 16  # rows between decisions later
LONG, SELDOM = 1024, 64  # after so many rows the means hardly move in so many
WAITING = 4 * GROUP  # gradients that wait to be counted together


@dataclass(frozen=True)
class Moved:
    """How guesses have changed places: each now goes on from what one of those before has."""

    source: Array
    before: Array  # R of each
    after: Array

    def part(self, first: int, count: int) -> "Moved":
        """How some of them have, which went on from each other."""
        some = slice(first, first + count)
        return Moved(self.source[some] - first, self.before[some], self.after[some])

    def columns(self, each: int) -> Array:
        """The same of the columns that belong to them."""
        return np.asarray((self.source[:, None] * each + np.arange(each)).ravel())


class Guesses:
    """Guesses (e), each with the q columns of w and of the residuals that belong to it."""

    def __init__(self, noise: object, tail: object, columns: int, fadings: int = 1) -> None:
        """noise: R, or "auto". tail: whether P knows what was dropped, or "auto".

        fadings: how many λ there are, falling, each of which has all these guesses.
        """
        self.grid = isinstance(noise, str)  # whether R is among several
        if self.grid and noise != "auto":
            raise ValueError(f'noise must be a number or "auto"; it is {noise!r}')
        single = 0.0 if self.grid else door.nonnegative("noise", noise)
        both = isinstance(tail, str)
        if both and tail != "auto":
            raise ValueError(f'tail must be True, False or "auto"; it is {tail!r}')
        kinds = [True, False] if both else [door.flag("tail", tail)]
        self.noises = np.array([single] * len(kinds) * fadings)  # R of each
        self.tails = np.tile(np.repeat(kinds, len(GRID) if self.grid else 1), fadings)
        self.per_fading = len(self.tails) // fadings  # guesses for each λ
        # The power of ten that the grid is in units of, once known, and that of its small numbers.
        self.unit: tuple[int, int] | None = None
        self.settled = not self.grid
        # What they were when last looked at, how many there are now, and what weights of rows have
        # made of them since; the unit that they had after the start.
        self._lengths, self._gradients_seen, self._weighed = Lengths(), 0, 0.0
        self._least = -FARTHEST
        if self.grid:
            self._measured((0, 0))
        self.columns, self.chosen, self.rows = columns, len(GRID) // 2 if self.grid else 0, 0
        count = len(self.noises)
        self.error = np.zeros(count)  # mean squared residual, where there is a choice
        self.means = Means.none(count, count * columns)
        self._unfitted = 0.0  # the largest residual where none was expected, of those in `error`
        self._gradients = 0  # counted in `error`
        # Of gradients that wait to be counted, variances and residuals: those of the first so many
        # rows. What is behind is of a step that was cut short, or nothing.
        self._waiting, self._wait = np.empty((WAITING, count + count * columns)), 0
        self._scored = 0  # of them, those that are in `error` already
        self._together: tuple[tuple[int, Array], ...] = ()  # where they start, and u
        self._read: tuple[Means, int, Means] | None = None  # see `_present`

    def __len__(self) -> int:
        return len(self.noises)

    @property
    def noise(self) -> float:
        """R of the chosen one."""
        if not self.settled:  # a row that was refused may have been measured
            return float(f"1e{GRID[self.chosen % len(GRID)]}")
        return float(self.noises[self.chosen])

    @property
    def lowest(self) -> bool:
        """Whether that is the lowest of several."""
        return self.grid and self.noise == float(self.noises[0])

    @property
    def tail(self) -> bool:
        return bool(self.tails[self.chosen])

    @property
    def fading(self) -> int:
        """Which λ the chosen one has."""
        return self.chosen // self.per_fading

    @property
    def mine(self) -> slice:
        """The columns of the chosen one."""
        return slice(self.chosen * self.columns, (self.chosen + 1) * self.columns)

    def each(self) -> Iterator[tuple[float, slice]]:
        """R of each, and its columns."""
        for i, noise in enumerate(self.noises):
            yield float(noise), slice(i * self.columns, (i + 1) * self.columns)

    def measure(self, G: Any) -> None:
        """Let the first gradient that is learned and not zero say in what unit R is guessed.

        If others turn out to be far from it, guesses move (`_look`). Where
        some of its numbers are small beside others, as columns in other units are, what they say is
        noise to an R that suits the large ones: a few guesses are for the small.
        """
        if self.settled:
            return
        self.unit, lengths = None, tall.lengths(G)
        if lengths.any():
            first = int(np.flatnonzero(lengths)[0])
            length = 2 * math.log10(lengths[first])
            usual, small = round(length), 2 * tall.small_length(G[:, first : first + 1])
            if length - small < APART:
                small = usual
            self.unit = (_within_reach(usual), _within_reach(round(small)))
        self._measured(self.unit or (0, 0))

    def _measured(self, unit: tuple[int, int]) -> None:
        usual, small = unit
        powers = [usual + power for power in GRID]
        least, above = small + GRID[0], powers[STRETCHED]
        powers[:STRETCHED] = np.rint(np.linspace(least, above, STRETCHED, endpoint=False)).tolist()
        noises = [float(f"1e{power:.0f}") for power in powers]
        self.noises = np.tile(noises, len(self.tails) // len(noises))

    @property
    def until_count(self) -> int:
        """After so many gradients those that wait are counted, or another guess is chosen."""
        return min(self.until_decision, WAITING - self._wait)

    @property
    def until_decision(self) -> int:
        """After so many rows another guess may be chosen."""
        if len(self.noises) == 1:
            return 1 << 30
        if not self.settled:  # whoever comes first says in what unit to guess
            return 1
        if self.rows < FIRST:
            return 1
        interval = INTERVAL if self.rows < LONG else SELDOM
        return interval - self.rows % interval

    @property
    def until_look(self) -> int:
        """After so many gradients guesses may move."""
        if not self.grid:
            return 1 << 30
        return LOOKS * max(1, self._lengths.gradients) - self._gradients_seen

    def take(
        self,
        rows: int,
        told: Array,
        whitened: Array | None = None,
        roots: Array | None = None,
        lengths: Lengths | None = None,
    ) -> "Moved | None":
        """See what the guesses made of so many rows; how they have moved, if they have.

        told: one line for each gradient; the variance, one for each guess, and the residual, one
        for each column of w. Where a variance is zero, nothing is expected, and nothing learned of
        the scale. whitened: u, where gradients came together, and each tells something of those
        behind it. roots: √v of rows that count as v: their residuals are √v times as large, which
        their noise is not, so for the scale they are looked at as they came. lengths: of all
        gradients so far, where there is a grid.
        """
        if lengths is not None:
            self._weigh(told, roots, lengths.gradients - self._gradients_seen)
            self._gradients_seen = lengths.gradients
        if roots is not None:
            told, whitened = self._as_they_came(told, whitened, roots[:, None])
        decide = len(self.noises) > 1 and rows >= self.until_decision
        self.rows += rows
        if not self.settled:
            self.settled = self.unit is not None  # now that it was learned
            if not self.settled:  # there were nothing but zeros
                return None
        start, stop = self._wait, self._wait + len(told)
        if stop > len(self._waiting):
            self._waiting = np.resize(self._waiting, (stop, self._waiting.shape[1]))
        self._waiting[start:stop] = told
        if whitened is not None:
            self._together = *self._together, (start, whitened)
        self._wait = stop
        if stop >= WAITING:
            self._count()
        if decide:
            self._score()
            self.chosen = self._best()
        if lengths is None or not decide or self.until_look > 0:
            return None
        return self._look(lengths)

    def _weigh(self, told: Array, roots: Array | None, count: int) -> None:
        """Take note of what weights make of the lengths of so many gradients that are not zero."""
        if roots is not None and count:
            news = told[:, 0] - self.noises[0]  # 0 where a gradient is
            self._weighed += 2 * float(np.log10(roots[np.argsort(news)[-count:]]).sum())

    def _look(self, lengths: Lengths) -> "Moved | None":
        """Let another noise be guessed, where gradients have turned out to be of another length."""
        before, since = self._lengths, lengths.since(self._lengths)
        mean = (since.powers - self._weighed) / max(1, since.gradients)
        self._lengths, self._weighed = lengths, 0.0
        if self.unit is None:
            return None
        usual = round(min(FARTHEST, max(self._least, mean)))
        moves = abs(usual - self.unit[0]) >= UNUSUAL
        moved = self._move(usual - self.unit[0]) if moves else None
        if before.gradients < START <= lengths.gradients:
            self._least = self.unit[0]
        return moved

    def _move(self, higher: int) -> "Moved":
        """Guess so many powers of ten higher; each goes on from the nearest of those that were."""
        self._count(whole=True)
        before, (usual, small) = self.noises, self.unit or (0, 0)
        self.unit = _within_reach(usual + higher), _within_reach(small + higher)
        self._measured(self.unit)
        kinds = np.arange(len(self)) // len(GRID)  # of the same λ and tail
        apart = np.abs(np.log(before) - np.log(self.noises)[:, None])
        apart[kinds != kinds[:, None]] = np.inf
        self.chosen = int(apart[:, self.chosen].argmin())
        moved = Moved(apart.argmin(axis=1), before, self.noises)
        self.error = self.error[moved.source]
        # Of those that have not been tried yet it is not known whether they are as good.
        self.error[self.noises != before[moved.source]] *= (1 + AS_GOOD) ** 2
        with np.errstate(over="ignore"):  # u² beside another R
            ratio = np.minimum(before[moved.source] / self.noises, MOST)
        self.means = self.means.of(moved.source, moved.columns(self.columns), ratio)
        return moved

    def _as_they_came(
        self, told: Array, whitened: Array | None, roots: Array
    ) -> tuple[Array, Array]:
        """`told` with the variances of rows that count as one, and u."""
        variance, residual = np.split(told, [len(self)], axis=1)
        with np.errstate(over="ignore"):
            variance = np.maximum(variance - self.noises, 0.0) / roots**2 + self.noises
        if whitened is not None and len(told) > 1:
            return np.hstack([variance, residual]), whitened / roots
        return np.hstack([variance, residual]), self._whitened(variance, residual / roots)

    def _whitened(self, variance: Array, residual: Array) -> Array:
        """The u of residuals, each by itself; 0 where nothing is expected."""
        expected = variance
        if variance.min(initial=1.0) <= 0:
            expected = np.where(variance > 0, variance, np.inf)
        if self.columns > 1:
            expected = expected.repeat(self.columns, axis=1)
        with np.errstate(over="ignore"):
            return np.asarray(residual / np.sqrt(expected))

    def _best(self) -> int:
        """Of those that are as good as the best, the calmest: the largest λ, the most noise."""
        good = np.flatnonzero(self.error <= (1 + AS_GOOD) * self.error.min())
        if len(good) == len(self):  # as long as nothing tells them apart
            return self.chosen
        good = good[good // self.per_fading == good[0] // self.per_fading]
        return int(good[np.argmax(self.noises[good])])

    def of_chosen(self, records: Array) -> Array:
        """What a walk recorded, of one row or more, of the chosen one (`Updates.of_records`)."""
        count = len(self.noises)
        return records if count == 1 else records[..., _places(count, self.columns, self.chosen)]

    def set_noise(self, noises: Array) -> None:
        """Take R to be another from now on."""
        self._count(whole=True)
        self.noises = noises

    def _score(self) -> None:
        """Take into `error` what is not yet in it: all that a decision needs."""
        if self._scored == self._wait:
            return
        self._unfitted, n = self.unfitted, self._wait - self._scored
        if len(self.noises) > 1:
            residual = self._waiting[self._scored : self._wait, len(self.noises) :]
            residual = _within(residual, LARGEST)
            new, old = weights(self._gradients, n)
            squares = (residual * residual).reshape(n, len(self), self.columns)
            self.error = old * self.error + new @ squares.sum(axis=2)
        self._gradients, self._scored = self._gradients + n, self._wait

    @property
    def unfitted(self) -> float:
        """The largest residual of a row that expected none: without noise it contradicts others."""
        if self.noises[0] > 0:  # and then all
            return self._unfitted
        told = self._waiting[self._scored : self._wait]
        variance, residual = told[:, : len(self)], np.abs(told[:, len(self) :])
        spanned = (variance == 0).any(axis=1)
        return max(self._unfitted, min(LARGEST, float(residual[spanned].max(initial=0.0))))

    def contradicted(self, by: float) -> None:
        """Take note of rows that could not be fitted, by so much."""
        self._unfitted = max(self._unfitted, min(LARGEST, by))

    def _count(self, whole: bool = False) -> None:
        """Take what waits into the means: full groups of it, or the whole."""
        self._score()
        residual, variance, u = self._told()
        n = len(u) if whole else len(u) // GROUP * GROUP
        self.means = self.means.with_rows(self._excess(variance[:n]), u[:n])
        self._put(residual[n:], variance[n:], u[n:])

    def _excess(self, variance: Array) -> Array:
        """S/R."""
        if not self.noises[0] > 0:
            return variance
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum(variance / self.noises, UNSURE))

    def _put(self, residual: Array, variance: Array, u: Array, unscored: int = 0) -> None:
        """Let these be what waits to be counted, of which the last are not yet in `error`."""
        n = len(u)
        waiting = np.empty((max(n, WAITING), len(self) * (1 + self.columns)))
        waiting[:n, : len(self.noises)], waiting[:n, len(self.noises) :] = variance, residual
        self._waiting, self._wait, self._scored = waiting, n, n - unscored
        self._together = ((0, u),) if n else ()
        self._read = None

    def _told(self) -> tuple[Array, Array, Array]:
        """Of what waits, that which tells a scale."""
        residual, variance, u = everything = self._everything_waiting()
        if variance.min(initial=1.0) > 0:
            return everything
        told = (variance > 0).all(axis=1)
        return residual[told], variance[told], u[told]

    def _everything_waiting(self) -> tuple[Array, Array, Array]:
        """Residuals, variances and u."""
        waiting, count = self._waiting[: self._wait], len(self.noises)
        variance, residual = waiting[:, :count], waiting[:, count:]
        whitened = self._whitened(variance, residual)
        for start, u in self._together:
            whitened[start : start + len(u)] = u
        return _within(residual, LARGEST), np.minimum(variance, MOST), _within(whitened, LARGEST)

    def _present(self) -> Means:
        """`means` with what waits; asked again, the same without work.

        What waits only grows until it is counted.
        """
        if self._read is None or self._read[0] is not self.means or self._read[1] != self._wait:
            _, variance, u = self._told()
            now = self.means.with_rows(self._excess(variance), u)
            self._read = self.means, self._wait, now
        return self._read[2]

    @property
    def scale(self) -> Array:
        """Of the chosen one, for each column; 1 while nothing tells."""
        means = self._present()
        return means.scale[self.mine] if means.known else np.ones(self.columns)

    def lately(self) -> tuple[float, float, float]:
        """Of the chosen one, over all columns: S/R, u² lately, and whiteness.

        Whiteness: the correlation of neighbouring u.
        """
        means = self._present()
        if not means.known:
            return np.nan, np.nan, np.nan
        excess = float(means.excess[self.chosen])
        each = means.scale, means.lately, means.neighbours
        mean, recent, lag = (float(of_column[self.mine].mean()) for of_column in each)
        return (excess, recent, lag / recent) if mean > 0 and recent > 0 else (excess, 0.0, 0.0)

    def merge(self, other: "Guesses") -> None:
        """Take in what another single guess of the same R has come to know."""
        for one in (self, other):
            one._count(whole=True)

        self.means = self.means.merged(other.means)
        counts = self._gradients, other._gradients
        self.error = mean_of_both(self.error, other.error, *counts, WINDOW)
        self._gradients = sum(counts)
        self._unfitted = max(self._unfitted, other._unfitted)
        self.rows += other.rows

    def grow(self, growth: Growth) -> None:
        """More heads, as if all their labels so far had been zero."""
        residual, variance, u = self._everything_waiting()
        unscored = self._wait - self._scored
        self.columns, self.means = self.columns + growth.more_heads, self.means.grown(growth)
        self._put(growth.wide(residual, 1), variance, growth.wide(u, 1), unscored)

    def settings(self) -> dict[str, Any]:
        """The arguments to make these again."""
        noise = {"noise": "auto" if self.grid else self.noise}
        if self.tails.all():
            return noise
        return noise | {"tail": "auto" if self.tails.any() else False}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        names = ("residual", "variance", "whitened")
        waiting = self._everything_waiting()
        arrays = {f"guesses.{name}": made for name, made in zip(names, waiting, strict=True)}
        arrays |= {"guesses.error": self.error, "guesses.means": self.means.table}
        arrays["guesses.last"] = self.means.last
        unit = list(self.unit) if self.unit and self.settled else None
        values: dict[str, Any] = {"unit": unit, "chosen": self.chosen, "rows": self.rows}
        values["lengths"] = self._lengths._asdict() | {
            "seen": self._gradients_seen,
            "weighed": self._weighed,
            "least": self._least,
        }
        values |= {"known": self.means.known, "gradients": self._gradients}
        values |= {"unscored": self._wait - self._scored, "unfitted": self._unfitted}
        return arrays, values

    def fields(self) -> Fields:
        """What `state` gives: values."""
        counters = dict.fromkeys(("rows", "known", "gradients", "unscored"), schema.counter)
        power = functools.partial(door.count, least=-FARTHEST, most=FARTHEST)
        unit = schema.listed(power, 2, 2)
        own: Fields = {"seen": schema.counter, "weighed": door.scalar, "least": power}
        lengths = schema.record(LENGTHS | own)
        chosen = functools.partial(door.count, least=0, most=len(self) - 1)
        told: Fields = {"unit": schema.optional(unit), "chosen": chosen, "lengths": lengths}
        return {**counters, **told, "unfitted": door.nonnegative}

    def layout(self) -> Layout:
        """Arrays."""
        count, width = len(self), len(self) * self.columns
        sides: Layout = {
            "residual": ("n", width),
            "variance": ("n", count),
            "whitened": ("n", width),
        }
        sides |= {"error": (count,), "means": (2, count + 2 * width), "last": (width,)}
        return {f"guesses.{name}": (DOUBLE, *of_it) for name, of_it in sides.items()}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        residual, variance, whitened, self.error, table, last = (
            arrays[name] for name in self.layout()
        )
        unscored, unit, self.chosen = values["unscored"], values["unit"], values["chosen"]
        if unscored > len(residual):
            raise ValueError(f"{unscored} residuals cannot be counted yet: {len(residual)} wait")
        self.means = Means(values["known"], table, last)
        squares = table[:, : len(self) + len(last)]
        if any((A < 0).any() for A in (variance, self.error, squares)):
            raise ValueError("a mean of squares is negative")
        if unit is not None:
            usual, small = unit
            if not self.grid:
                raise ValueError("a unit has no meaning where the noise is given")
            if small > usual:
                raise ValueError(f"small numbers are larger than usual ones: {unit}")
            self.unit, self.settled = (usual, small), True
            self._measured(self.unit)
        lengths = values["lengths"]
        self._lengths = Lengths(lengths["gradients"], lengths["powers"])
        self._gradients_seen, self._weighed = lengths["seen"], lengths["weighed"]
        self._least = lengths["least"]
        self._put(residual, variance, whitened, unscored)
        self.rows, self._gradients = values["rows"], values["gradients"]
        self._unfitted = values["unfitted"]


def _within_reach(power: int) -> int:
    return min(FARTHEST, max(-FARTHEST, power))


@functools.cache
def _places(guesses: int, columns: int, chosen: int) -> Array:
    """Where, of all that is recorded of a row, the numbers of one guess are."""
    all_columns, mine = guesses * columns, chosen * columns + np.arange(columns)
    residuals, conflicts = 3 + guesses, 3 + guesses + 2 * all_columns
    parts = residuals + mine, residuals + all_columns + mine, conflicts + np.arange(columns)
    return np.concatenate([[0, 1, 2, 3 + chosen], *parts])


def _within(numbers: Array, most: float) -> Array:
    """`np.clip`, which takes longer where there are few."""
    return np.minimum(np.maximum(numbers, -most), most)
