"""What the noise is taken to be: one guess, or several, of which the best so far is used.

What a memory holds depends little on the noise, and the gradients not at all; so w has a column
for each guess, all of them learn from every row on one memory, and the guess whose predictions were
best lately is the learner's. Each also keeps how large its residuals were beside what it expected:

    u = r / sqrt(gᵀPg + R),     scale = the mean of u²,     variance of y = scale (gᵀPg + R)

In that mean no u² counts for more than FAR times the scale so far: one bad reading, or a jump that
is soon learned, would else widen every interval for thousands of rows. Where most of a group of u²
is that large, it is noise that has grown, and counts.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from orfit import door, schema, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.schema import DOUBLE, Fields, Layout

# Of R, as powers of ten, in units of the squared length of the first gradient.
GRID = range(-6, 2)
FARTHEST = 290  # the grid is moved no farther than by so many powers of ten
APART = 4  # powers of ten between squared lengths: then the small numbers have a grid of their own
STRETCHED = 3  # guesses that reach down to its end: of a little noise, powers matter less
RECENCY = 3.0  # the mean weighs row i of n by about (i/n)^(RECENCY − 1)
WINDOW = 1000  # rows: never longer than that, so that a stream may change
LATELY = 100  # rows, of what is compared with all that
AS_GOOD = 0.01  # a mean squared error that is larger by so much, relatively: no more is known
MOST = 1e300  # beyond, squares count as this
LARGEST = 1e140  # residuals count as this at most: of many, squares can be added up
FIRST = 32  # rows, after each of which another guess may be chosen
INTERVAL = 16  # rows between decisions later
LONG, SELDOM = 1024, 64  # after so many rows the means hardly move in so many
GROUP = 64  # gradients whose u² are held against the same scale
WAITING = 4 * GROUP  # gradients that wait to be counted together
FAR = 25.0  # five standard deviations: of noise that is normal, nothing is lost
MEDIAN = 0.455  # of u², where noise is normal: the first group has nothing else to be held against


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
        if self.grid:
            self._measured((0, 0))
        self.columns, self.chosen, self.rows = columns, len(GRID) // 2 if self.grid else 0, 0
        count = len(self.noises)
        self.error = np.zeros(count)
        self.spread = np.zeros((4, count * columns))  # mean u²; lately; and u u' of neighbours, u
        self.excess = np.zeros(count)  # mean (gᵀPg + R) / R, lately
        self._unfitted = 0.0  # the largest residual where none was expected, of those in `error`
        self._known = 0  # gradients that tell a scale
        self._gradients = 0  # counted in `error`
        # Of gradients that wait to be counted, variances and residuals: those of the first so many
        # rows. What is behind is of a step that was cut short, or nothing.
        self._waiting, self._wait = np.empty((WAITING, count + count * columns)), 0
        self._scored = 0  # of them, those that are in `error` already
        self._together: tuple[tuple[int, Array], ...] = ()  # where they start, and u
        self._read: tuple[Array, int, tuple[Array, Array, int]] | None = None  # see `_present`

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

        Where some of its numbers are small beside others, as columns in other units are, what they
        say is noise to an R that suits the large ones: a few guesses are for the small.
        """
        if self.settled:
            return
        lengths, self.unit = tall.lengths(G), None
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

    def take(
        self, rows: int, told: Array, whitened: Array | None = None, roots: Array | None = None
    ) -> None:
        """See what the guesses made of so many rows.

        told: one line for each gradient; the variance, one for each guess, and the residual, one
        for each column of w. Where a variance is zero, nothing is expected, and nothing learned of
        the scale. whitened: u, where gradients came together, and each tells something of those
        behind it. roots: √v of rows that count as v: their residuals are √v times as large, which
        their noise is not, so for the scale they are looked at as they came.
        """
        if roots is not None:
            told, whitened = self._as_they_came(told, whitened, roots[:, None])
        decide = len(self.noises) > 1 and rows >= self.until_decision
        self.rows += rows
        if not self.settled:
            self.settled = self.unit is not None  # now that it was learned
            if not self.settled:  # there were nothing but zeros
                return
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

    def _as_they_came(
        self, told: Array, whitened: Array | None, roots: Array
    ) -> tuple[Array, Array]:
        """`told` with the variances of rows that count as one, and u."""
        variance, residual = np.split(told, [len(self)], axis=1)
        with np.errstate(over="ignore"):
            variance = np.maximum(variance - self.noises, 0.0) / roots**2 + self.noises
        if whitened is not None:
            return np.hstack([variance, residual]), whitened / roots
        expected = np.repeat(np.where(variance > 0, variance, np.inf), self.columns, axis=1)
        return np.hstack([variance, residual]), residual / roots / np.sqrt(expected)

    def _best(self) -> int:
        """Of those that are as good as the best, the calmest: the largest λ, the most noise."""
        good = np.flatnonzero(self.error <= (1 + AS_GOOD) * self.error.min())
        if len(good) == len(self):  # as long as nothing tells them apart
            return self.chosen
        good = good[good // self.per_fading == good[0] // self.per_fading]
        return int(good[np.argmax(self.noises[good])])

    def of_chosen(self, records: Array) -> Array:
        """What a walk recorded, of the chosen one alone (`Updates.of_records`)."""
        count = len(self.noises)
        return records if count == 1 else records[:, _places(count, self.columns, self.chosen)]

    def set_noise(self, noises: Array) -> None:
        """Take R to be another from now on."""
        self._count(whole=True)
        self.noises = noises

    def _score(self) -> None:
        """Take into `error` what is not yet in it: all that a decision needs."""
        if self._scored == self._wait:
            return
        self._unfitted = self.unfitted
        residual = self._waiting[self._scored : self._wait, len(self.noises) :]
        residual = _within(residual, LARGEST)
        weights, old = _weights(self._gradients, len(residual))
        squares = (residual * residual).reshape(len(residual), len(self), self.columns)
        self.error = old * self.error + weights @ squares.sum(axis=2)
        self._gradients, self._scored = self._gradients + len(residual), self._wait

    @property
    def unfitted(self) -> float:
        """The largest residual of a row that expected none: without noise it contradicts others."""
        if self.noises.all():
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
        self.excess, self.spread, self._known = self._counted(variance[:n], u[:n])
        self._put(residual[n:], variance[n:], u[n:])

    def _put(self, residual: Array, variance: Array, u: Array, unscored: int = 0) -> None:
        """Let these be what waits to be counted, of which the last are not yet in `error`."""
        n = len(u)
        waiting = np.empty((max(n, WAITING), len(self) * (1 + self.columns)))
        waiting[:n, : len(self.noises)], waiting[:n, len(self.noises) :] = variance, residual
        self._waiting, self._wait, self._scored = waiting, n, n - unscored
        self._together = ((0, u),) if n else ()
        self._read = None

    def _counted(self, variance: Array, whitened: Array) -> tuple[Array, Array, int]:
        """What `excess`, `spread` and `_known` are with these gradients, too."""
        excess, spread, known = self.excess, self.spread, self._known
        with np.errstate(over="ignore"):
            ratios = np.minimum(variance / np.where(self.noises > 0, self.noises, 1.0), MOST)
        for group, median in enumerate(_medians(whitened)):
            rows = slice(group * GROUP, (group + 1) * GROUP)
            S, u, usual = ratios[rows], whitened[rows], median / MEDIAN
            if known:  # where most of a group is large, that is no outlier
                usual = np.maximum(spread[0], usual) if len(u) == GROUP else spread[0]
            most = np.sqrt(FAR * np.where(usual > 0, usual, np.inf))
            u = np.minimum(np.maximum(u, -most), most)
            weights, old = _weights(known, len(u))
            recent, faded = _weights(known, len(u), LATELY)
            excess = faded * excess + recent @ S
            squares, products = u * u, np.empty_like(u)
            products[0], products[1:] = u[0] * spread[3], u[1:] * u[:-1]
            before, spread = spread, np.empty_like(spread)
            spread[0] = old * before[0] + weights @ squares
            spread[1] = faded * before[1] + recent @ squares
            spread[2] = faded * before[2] + recent @ products
            spread[3] = u[-1]
            known += len(u)
        return excess, spread, known

    def _told(self) -> tuple[Array, Array, Array]:
        """Of what waits, that which tells a scale."""
        residual, variance, u = everything = self._everything_waiting()
        tells = variance > 0
        if tells.all():
            return everything
        told = tells.all(axis=1)
        return residual[told], variance[told], u[told]

    def _everything_waiting(self) -> tuple[Array, Array, Array]:
        """Residuals, variances and u."""
        waiting, count = self._waiting[: self._wait], len(self.noises)
        variance, residual = waiting[:, :count], waiting[:, count:]
        expected = np.repeat(np.where(variance > 0, variance, np.inf), self.columns, axis=1)
        with np.errstate(over="ignore"):
            whitened = residual / np.sqrt(expected)
        for start, u in self._together:
            whitened[start : start + len(u)] = u
        return _within(residual, LARGEST), np.minimum(variance, MOST), _within(whitened, LARGEST)

    def _present(self) -> tuple[Array, Array, int]:
        """`excess`, `spread` and `_known` with what waits; asked again, the same without work.

        What waits only grows until it is counted.
        """
        if self._read is None or self._read[0] is not self.spread or self._read[1] != self._wait:
            self._read = self.spread, self._wait, self._counted(*self._told()[1:])
        return self._read[2]

    @property
    def scale(self) -> Array:
        """Of the chosen one, for each column; 1 while nothing tells."""
        _, spread, known = self._present()
        return spread[0, self.mine] if known else np.ones(self.columns)

    def lately(self) -> tuple[float, float, float]:
        """Of the chosen one, over all columns: S/R, u² lately, and whiteness.

        Whiteness: the correlation of neighbouring u.
        """
        excess, spread, known = self._present()
        if not known:
            return np.nan, np.nan, np.nan
        mean, recent, lag = spread[:3, self.mine].mean(axis=1)
        if not (mean > 0 and recent > 0):
            return float(excess[self.chosen]), 0.0, 0.0
        return float(excess[self.chosen]), float(recent), float(lag / recent)

    def merge(self, other: "Guesses") -> None:
        """Take in what another single guess of the same R has come to know."""
        for one in (self, other):
            one._count(whole=True)

        def mean(mine: Array, theirs: Array, before: int, more: int, window: int) -> Array:
            a, b = min(before, window), min(more, window)
            return np.asarray((a * mine + b * theirs) / max(1, a + b))

        last = self.spread[3] if self._known else other.spread[3]
        known = self._known, other._known
        spread = mean(self.spread, other.spread, *known, WINDOW)
        spread[1:3] = mean(self.spread[1:3], other.spread[1:3], *known, LATELY)
        spread[3] = last
        self.spread = spread
        self.excess = mean(self.excess, other.excess, *known, LATELY)
        self.error = mean(self.error, other.error, self._gradients, other._gradients, WINDOW)
        self._known, self._gradients = (
            self._known + other._known,
            self._gradients + other._gradients,
        )
        self._unfitted = max(self._unfitted, other._unfitted)
        self.rows += other.rows

    def grow(self, growth: Growth) -> None:
        """More heads, as if all their labels so far had been zero."""
        residual, variance, u = self._everything_waiting()
        unscored = self._wait - self._scored
        self.columns, self.spread = self.columns + growth.more_heads, growth.wide(self.spread, 1)
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
        arrays |= {"guesses.error": self.error, "guesses.excess": self.excess}
        arrays["guesses.spread"] = self.spread
        unit = list(self.unit) if self.unit and self.settled else None
        values: dict[str, Any] = {"unit": unit, "chosen": self.chosen, "rows": self.rows}
        values |= {"known": self._known, "gradients": self._gradients}
        values |= {"unscored": self._wait - self._scored, "unfitted": self._unfitted}
        return arrays, values

    def fields(self) -> Fields:
        """What `state` gives: values."""
        counters = dict.fromkeys(("rows", "known", "gradients", "unscored"), schema.counter)
        power = functools.partial(door.count, least=-FARTHEST, most=FARTHEST)
        unit = schema.listed(power, 2, 2)
        chosen = functools.partial(door.count, least=0, most=len(self) - 1)
        told: Fields = {"unit": schema.optional(unit), "chosen": chosen}
        return {**counters, **told, "unfitted": door.nonnegative}

    def layout(self) -> Layout:
        """Arrays."""
        count, width = len(self), len(self) * self.columns
        sides: Layout = {
            "residual": ("n", width),
            "variance": ("n", count),
            "whitened": ("n", width),
        }
        sides |= {"error": (count,), "excess": (count,), "spread": (4, width)}
        return {f"guesses.{name}": (DOUBLE, *of_it) for name, of_it in sides.items()}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        residual, variance, whitened, self.error, self.excess, self.spread = (
            arrays[name] for name in self.layout()
        )
        unscored, unit, self.chosen = values["unscored"], values["unit"], values["chosen"]
        if unscored > len(residual):
            raise ValueError(f"{unscored} residuals cannot be counted yet: {len(residual)} wait")
        if any((A < 0).any() for A in (variance, self.error, self.excess, self.spread[:2])):
            raise ValueError("a mean of squares is negative")
        if unit is not None:
            usual, small = unit
            if not self.grid:
                raise ValueError("a unit has no meaning where the noise is given")
            if small > usual:
                raise ValueError(f"small numbers are larger than usual ones: {unit}")
            self.unit, self.settled = (usual, small), True
            self._measured(self.unit)
        self._put(residual, variance, whitened, unscored)
        self.rows, self._known = values["rows"], values["known"]
        self._gradients, self._unfitted = values["gradients"], values["unfitted"]


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


def _median(A: Array) -> Array:
    """Along the last axis but one, as `np.median`, which takes longer where there are few."""
    A, n = np.sort(A, axis=-2), A.shape[-2]
    return np.asarray((A[..., (n - 1) // 2, :] + A[..., n // 2, :]) / 2)


def _medians(u: Array) -> list[Array]:
    """Of u², in each group."""
    whole, squares = len(u) // GROUP, u * u
    groups = squares[: whole * GROUP].reshape(whole, GROUP, u.shape[1])
    rest = squares[whole * GROUP :]
    return [*_median(groups), *([_median(rest)] if len(rest) else [])]


def _weights(before: int, count: int, window: int = WINDOW) -> tuple[Array, float]:
    """The weights of so many new values in a mean of those `before`, and what is left of that."""
    return _weights_of(min(before, int(RECENCY * window)), count, window)  # alike from there on


@functools.lru_cache(256)
def _weights_of(before: int, count: int, window: int) -> tuple[Array, float]:
    rates = RECENCY / (before + np.arange(1.0, count + 1))
    rates = np.minimum(1.0, np.maximum(rates, 1 / window))
    kept = np.cumprod(np.concatenate([[1.0], 1 - rates[::-1]]))
    return rates * kept[:-1][::-1], float(kept[-1])
