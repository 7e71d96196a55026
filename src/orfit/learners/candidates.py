"""Candidates of the noise, the tail and the forgetting, of which the best so far predicts.

What a memory holds depends little on the noise, and the gradients not at all. So w has columns for
each candidate, all of them learn from every row, and the candidate whose predictions were best
recently is the learner's. Each also has running means of its innovations u:

    u = r / sqrt(gᵀPg + R),     scale = the mean of u²,     variance of y = scale (gᵀPg + R)

In these means (core/candidates.c) no u² counts more than 25 times the scale so far. Otherwise one
bad reading would widen every interval for a thousand rows. A scale that is too small still grows by
that factor.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from orfit import validation
from orfit.core._core import update_scores
from orfit.growth import Growth
from orfit.learners.update import Updates
from orfit.memory.base import StepSettings
from orfit.state import State
from orfit.store import LEAST_EXPONENT
from orfit.validation import Array

# The values of R, as powers of ten, in units of the squared length of the first gradient.
GRID = range(-6, 2)
FARTHEST = 290  # the grid is moved by at most this many powers of ten
# If squared lengths of a row's large and small numbers differ by this many powers of ten, as with
# columns in raw units, the STRETCHED lowest values reach down to what suits the small ones.
APART = 4
STRETCHED = 3
RELATIVE_LENGTHS = 2  # the grid is reviewed whenever there are this many times as many gradients
UNUSUAL = 2  # powers of ten by which the usual squared length must differ from the grid's unit
START = 64  # gradients, after which the grid does not move below its unit: a system may rest later
AS_GOOD = 0.01  # a mean squared error that is larger by this share is as good
LARGEST = 1e140  # a larger residual counts as this, so that squares can be added
LARGEST_SQUARE = 1e300
RECENCY = 3.0  # a mean weighs row i of n by about (i/n)^(RECENCY − 1)
WINDOW = 1000  # rows; never longer than that, so that a stream may change
RECENT = 100  # rows, of the means that are compared with those

# Of the binary exponents of a gradient: smaller numbers than 2^-NEGLIGIBLE of the largest are
# rounding; SMALL_SHARE of all numbers count as the small ones.
NEGLIGIBLE = 40
SMALL_SHARE = 0.1

MEANS = ("scale", "recent_scale", "neighbours", "last", "surprise")  # that the core updates


class Moved(NamedTuple):
    """How candidates have changed places: each continues from the candidate `source`."""

    source: Array
    before: Array  # R of each
    after: Array

    def part(self, first: int, count: int) -> "Moved":
        """The same of some that go on from each other."""
        some = slice(first, first + count)
        return Moved(self.source[some] - first, self.before[some], self.after[some])

    def columns(self, each: int) -> Array:
        """The source columns, with `each` columns for each candidate."""
        return np.asarray((self.source[:, None] * each + np.arange(each)).ravel())


class Candidates:
    """The rule: which candidates there are. Their numbers are fields of a `State`."""

    def __init__(
        self, noise: object, tail: object, columns: int, forgettings: Any = (1.0,)
    ) -> None:
        """noise: R or "auto". tail: whether P uses what was dropped, or "auto".

        columns: of w, for each candidate. forgettings: each λ, falling, which has all the others.
        """
        self.grid = isinstance(noise, str)  # whether R is chosen
        if self.grid and noise != "auto":
            raise ValueError(f'noise must be a number or "auto"; it is {noise!r}')
        self._single = 0.0 if self.grid else validation.nonnegative("noise", noise)
        both = isinstance(tail, str)
        if both and tail != "auto":
            raise ValueError(f'tail must be True, False or "auto"; it is {tail!r}')
        kinds = [True, False] if both else [validation.flag("tail", tail)]
        self.forgettings, self.columns = tuple(forgettings), columns
        self.tails = np.tile(np.repeat(kinds, len(GRID) if self.grid else 1), len(self.forgettings))
        self.per_forgetting = len(self.tails) // len(self.forgettings)

    def __len__(self) -> int:
        return len(self.tails)

    def new_state(self) -> State:
        """The fields before the first row."""
        e, q = len(self), len(self) * self.columns
        s = State(noises=np.full(e, self._single), chosen=len(GRID) // 2 if self.grid else 0)
        s.unit, s.least_unit = None, -FARTHEST
        s.length_count = s.length_count_reviewed = s.error_rows = s.scale_rows = 0
        s.length_sum = s.unfitted = 0.0
        s.error, s.surprise = np.zeros(e), np.zeros(e)
        s.scale, s.recent_scale, s.neighbours, s.last = (np.zeros(q) for _ in range(4))
        if self.grid:
            self._set_grid(s, (0, 0))
        return s

    def settings(self, s: State) -> dict[str, Any]:
        """The arguments to make these again."""
        noise = {"noise": "auto" if self.grid else self.noise(s)}
        if self.tails.all():
            return noise
        return noise | {"tail": "auto" if self.tails.any() else False}

    # The candidate that predicts.

    def noise(self, s: State) -> float:
        """R."""
        return float(s.noises[s.chosen])

    def lowest(self, s: State) -> bool:
        """Whether it is the lowest of several noises."""
        return self.grid and self.noise(s) == float(s.noises[0])

    def forgetting(self, s: State) -> int:
        """The index of its λ."""
        return int(s.chosen) // self.per_forgetting

    def chosen_columns(self, s: State) -> slice:
        """Its columns."""
        return slice(s.chosen * self.columns, (s.chosen + 1) * self.columns)

    def step_settings(self, s: State, drift: Any, part: int = 0) -> StepSettings:
        """What is assumed at a step, by the candidates of one λ."""
        forgetting = self.forgettings[part] or 1.0  # λ → 0: see `NTKRLS`
        if len(self.forgettings) == 1:
            return StepSettings(s.noises, self.tails, s.chosen, forgetting, drift)
        each = self.per_forgetting
        some = slice(part * each, (part + 1) * each)
        return StepSettings(s.noises[some], self.tails[some], s.chosen % each, forgetting, drift)

    # The grid.

    def set_unit(self, s: State, ops: Any, G: Any) -> None:
        """Let the first gradient that is not zero determine the unit of the grid."""
        if not self.grid or s.unit is not None:
            return
        lengths = ops.finite_norms(G)
        if lengths.any():
            first = int(np.flatnonzero(lengths)[0])
            usual = 2 * math.log10(lengths[first])
            small = 2 * _log_small_length(ops.exponents(G[:, first]))
            small = usual if usual - small < APART else small
            s.unit = _within_reach(round(usual)), _within_reach(round(small))
            self._set_grid(s, s.unit)

    def _set_grid(self, s: State, unit: tuple[int, int]) -> None:
        usual, small = unit
        powers = [usual + power for power in GRID]
        lowest, above = small + GRID[0], powers[STRETCHED]
        stretched = np.linspace(lowest, above, STRETCHED, endpoint=False)
        powers[:STRETCHED] = np.rint(stretched).astype(int).tolist()
        noises = [float(f"1e{power}") for power in powers]
        s.noises = np.tile(noises, len(self.tails) // len(noises))

    # Scores.

    def observe(
        self,
        s: State,
        variance: Array,
        residual: Array,
        innovation: Array,
        roots: Array | None = None,
        sequential: Array | None = None,
    ) -> None:
        """Update scores and means by n gradients.

        variance: e×n. residual, innovation: e×n×q. Where a variance is zero, nothing was expected,
        and the scale does not change. roots: √v of rows that count as v, whose residuals are √v
        times as large, and their noise is not. For the scale they count once: u² is in units of
        S − R + v R, where S (sequential, e×n) is the variance of a row given those before it.
        """
        count = len(s.noises)
        if roots is not None:
            R, S = s.noises[:, None], variance if sequential is None else sequential
            with np.errstate(over="ignore"):
                variance = np.maximum(variance - R, 0.0) / roots**2 + R
            deviation = np.hypot(np.sqrt(np.maximum(S - R, 0.0)), roots * np.sqrt(R))
            share = np.divide(np.sqrt(S), deviation, out=np.ones_like(S), where=deviation > 0)
            innovation = innovation * share[:, :, None]
        if count > 1:
            self._update_errors(s, residual)
        expected = (variance > 0).all(axis=0)
        if s.noises[0] == 0 and not expected.all():
            largest = float(np.abs(residual[:, ~expected]).max())
            s.unfitted = max(s.unfitted, min(LARGEST, largest))
        means = [getattr(s, name).copy() for name in MEANS]
        s.scale_rows = update_scores(
            s.scale_rows,
            s.noises,
            np.ascontiguousarray(variance[:, expected].T, float),
            np.ascontiguousarray(innovation[:, expected].transpose(1, 0, 2), float),
            *means,
        )
        vars(s).update(zip(MEANS, means, strict=True))
        if count > 1:
            s.chosen = self._best(s)

    @staticmethod
    def _update_errors(s: State, residual: Array) -> None:
        squares = (np.minimum(np.abs(residual), LARGEST) ** 2).sum(axis=2)
        for square in squares.T:
            s.error_rows += 1
            rate = min(1.0, max(RECENCY / s.error_rows, 1 / WINDOW))
            s.error = s.error + rate * (square - s.error)

    def _best(self, s: State) -> int:
        """Of those that are as good as the best: the largest λ, then the most noise."""
        good = np.flatnonzero(s.error <= (1 + AS_GOOD) * s.error.min())
        if len(good) == len(self):  # as long as nothing distinguishes them
            return int(s.chosen)
        good = good[good // self.per_forgetting == good[0] // self.per_forgetting]
        return int(good[np.argmax(s.noises[good])])

    def review_grid(self, s: State, norms: Array, roots: Array | None) -> Moved | None:
        """Move the grid if gradients have turned out to be of another length.

        norms: of the gradients of this step.
        """
        if not self.grid or s.unit is None:
            return None
        norms = norms if roots is None else norms / roots
        norms = norms[norms > 0]
        s.length_count += len(norms)
        s.length_sum += 2 * float(np.log10(norms).sum())
        since = s.length_count - s.length_count_reviewed
        if since < max(1, s.length_count_reviewed * (RELATIVE_LENGTHS - 1)):
            return None
        usual = round(min(FARTHEST, max(s.least_unit, s.length_sum / since)))
        moves = abs(usual - s.unit[0]) >= UNUSUAL
        moved = self._move(s, usual - s.unit[0]) if moves else None
        if s.length_count_reviewed < START <= s.length_count:
            s.least_unit = s.unit[0]
        s.length_count_reviewed, s.length_sum = s.length_count, 0.0
        return moved

    def _move(self, s: State, higher: int) -> Moved:
        """Shift the grid; each candidate continues from the nearest of those before."""
        before, (usual, small) = s.noises, s.unit
        s.unit = _within_reach(usual + higher), _within_reach(small + higher)
        self._set_grid(s, s.unit)
        kinds = np.arange(len(self)) // len(GRID)  # of the same λ and tail
        apart = np.abs(np.log(before) - np.log(s.noises)[:, None])
        apart[kinds != kinds[:, None]] = np.inf
        source = apart.argmin(axis=1)
        s.chosen = int(apart[:, s.chosen].argmin())
        s.error = s.error[source]
        # Whether a candidate that has not been tried yet is as good is not known.
        s.error[s.noises != before[source]] *= (1 + AS_GOOD) ** 2
        moved = Moved(source, before, s.noises)
        with np.errstate(over="ignore"):  # u² is in units of R
            ratio = np.minimum(before[source] / s.noises, LARGEST_SQUARE)
            each, columns = ratio.repeat(self.columns), moved.columns(self.columns)
            s.surprise = s.surprise[source]
            for name in ("scale", "recent_scale", "neighbours"):
                values = each * getattr(s, name)[columns]
                setattr(s, name, np.clip(values, -LARGEST_SQUARE, LARGEST_SQUARE))
            s.last = np.sqrt(each) * s.last[columns]
        return moved

    # What is known of the noise.

    def scale_of(self, s: State) -> Array:
        """The scale of each column of the chosen candidate; 1 while nothing is known."""
        if not s.scale_rows:
            return np.ones(self.columns)
        return np.asarray(s.scale[self.chosen_columns(s)])

    def scales_before(self, s: State, updates: Updates) -> Array:
        """The scale before each of these rows, which were learned from this state on."""
        made, noises, rows = np.ones((len(updates), self.columns)), s.noises, s.scale_rows
        means = [getattr(s, name).copy() for name in MEANS]
        variance = updates.variance.reshape(-1, 1)
        roots = np.sqrt(np.where(variance > 0, variance, 1.0))
        innovation = updates.residual.reshape(made.shape) / roots
        for i in range(len(made)):
            if rows:
                made[i] = means[0]
            if variance[i] > 0:
                some = slice(i, i + 1)
                rows = update_scores(rows, noises, variance[some], innovation[some], *means)
        return made

    def recent(self, s: State) -> tuple[float, float, float]:
        """Of the chosen candidate: S/R, the recent mean of u², the correlation of neighbours."""
        if not s.scale_rows:
            return np.nan, np.nan, np.nan
        columns = self.chosen_columns(s)
        scale, recent, lag = (
            float(a[columns].mean()) for a in (s.scale, s.recent_scale, s.neighbours)
        )
        surprise = float(s.surprise[s.chosen])
        return (
            (surprise, recent, lag / recent) if scale > 0 and recent > 0 else (surprise, 0.0, 0.0)
        )

    def merge(self, s: State, other: State) -> None:
        """Combine the means of two learners with one candidate of the same R."""
        rows, more = s.scale_rows, other.scale_rows
        for names, window in (
            (("scale",), WINDOW),
            (("surprise", "recent_scale", "neighbours"), RECENT),
        ):
            a, b = min(rows, window), min(more, window)
            for name in names:
                both = a * getattr(s, name) + b * getattr(other, name)
                setattr(s, name, both / max(1, a + b))
        s.last = s.last if rows else other.last
        s.scale_rows = rows + more
        s.unfitted = max(s.unfitted, other.unfitted)

    def grow(self, s: State, growth: Growth) -> int:
        """Add heads, as if all their labels so far had been zero; returns the new `columns`."""
        for name in ("scale", "recent_scale", "neighbours", "last"):
            setattr(s, name, growth.insert_heads(getattr(s, name), 0))
        return self.columns + growth.more_heads

    def check_state(self, s: State) -> None:
        """Raise if the fields do not fit together."""
        if s.chosen >= len(self):
            raise ValueError(f"there are {len(self)} candidates; {s.chosen} is none of them")
        if s.unit is not None and not self.grid:
            raise ValueError("a unit has no meaning if the noise is given")
        if s.unit is not None and (len(s.unit) != 2 or s.unit[1] > s.unit[0]):
            raise ValueError(f"the unit must be two powers, the larger first; it is {s.unit}")
        like = State(noises=np.full(len(self), self._single))
        if self.grid:
            self._set_grid(like, s.unit or (0, 0))
        if not np.array_equal(s.noises, like.noises):
            raise ValueError(f"noises must be {like.noises}; they are {s.noises}")


def _within_reach(power: int) -> int:
    return min(FARTHEST, max(-FARTHEST, power))


def _log_small_length(counts: Array) -> float:
    """log₁₀ of the length that g would have if all its numbers were as its small ones.

    counts: of the numbers of g, by binary exponent (`Arithmetic.exponents`). Zeros, and what is
    rounding next to the largest, do not count. One number is not zero.
    """
    exponents = np.flatnonzero(counts)
    exponents = exponents[exponents >= exponents[-1] - NEGLIGIBLE]
    below = np.cumsum(counts[exponents])
    small = exponents[np.searchsorted(below, math.ceil(SMALL_SHARE * below[-1]))] + LEAST_EXPONENT
    return float((small - 0.5) * math.log10(2) + math.log10(below[-1]) / 2)
