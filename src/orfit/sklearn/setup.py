"""What a user may say of an estimator, and what is chosen where nothing is said."""

import math
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from orfit import faces, schema, validation
from orfit.faces.evidence import most_likely_noise
from orfit.faces.rows import Rows
from orfit.features import Features, Fourier, Raw, ReLU
from orfit.learners.gain import GainLearner
from orfit.schema import Fields

# The constant of the intercept is so many times as long as a unit of a feature, and its prior as
# much wider: it has no shrinkage that could be seen. Beyond, rounding would be.
FREE = {"float64": 2.0**16, "float32": 2.0**6}
FREE_IN_TIME = 2.0**6  # where the past fades, P may grow no farther than rounding lets it
FREE_AMONG_GUESSES = 10.0  # times a row's squared length, in which noise="auto" counts


@dataclass(frozen=True)
class Setup:
    """The arguments of an estimator, checked; and the seed that `random_state` gave."""

    memory: int
    noise: float | str
    forgetting: float | str
    features: str | None
    n_components: int
    gamma: float | str
    fit_intercept: bool
    dtype: str
    seed: int

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Setup":
        """Raise where a user has said something that cannot be."""
        return cls(**{name: check(name, plain[name]) for name, check in FIELDS.items()})

    def kind(self) -> Features:
        """The features, of which nothing is known yet."""
        if self.features is None:
            return Raw()
        if self.features == "relu":
            return ReLU(self.n_components, self.seed)
        width = None if isinstance(self.gamma, str) else 1 / math.sqrt(2 * self.gamma)
        return Fourier(self.n_components, self.seed, width)

    def learner(
        self, size: int, heads: int | None, parts: Callable[[], Iterable[Rows]]
    ) -> tuple[GainLearner, float]:
        """For so many features; and by what to divide them, beside which the intercept is free.

        parts: the first rows, X being their features.
        """
        parameters, noise = size + self.fit_intercept, self.noise
        if faces.exact(parameters, self.memory) and isinstance(noise, str):
            noise = most_likely_noise(parts(), self.fit_intercept)
        long = self._long(parts, noise)
        if not isinstance(noise, str):
            noise = noise / long**2
        made = faces.learner_for(
            size,
            heads,
            self.memory,
            noise=noise,
            forgetting=self.forgetting,
            bias=self.fit_intercept,
            dtype=np.dtype(self.dtype),
        )
        return made, long

    def _long(self, parts: Callable[[], Iterable[Rows]], noise: float | str) -> float:
        if not self.fit_intercept:
            return 1.0
        if isinstance(noise, str):
            some = next(iter(parts()))
            square = some.counts @ np.sum(some.X**2, axis=1) / some.mass
            return math.sqrt(FREE_AMONG_GUESSES * square) or 1.0
        return FREE[self.dtype] if noise and self.forgetting == 1 else FREE_IN_TIME


def _word_or(word: str, check: Any) -> Any:
    def checked(name: str, value: Any) -> Any:
        if isinstance(value, str) and value == word:
            return value
        if isinstance(value, bool) or not isinstance(value, Real | np.ndarray):
            raise ValueError(f'{name} must be a number or "{word}"; it is {reprlib.repr(value)}')
        return check(name, value)

    return checked


def _none_or(*words: str) -> Any:
    def checked(name: str, value: Any) -> Any:
        if value is not None and not (isinstance(value, str) and value in words):
            known = " or ".join(f'"{word}"' for word in words)
            raise ValueError(f"{name} must be None, {known}; it is {reprlib.repr(value)}")
        return value

    return checked


FIELDS: Fields = {
    "memory": validation.count,
    "noise": _word_or("auto", validation.nonnegative),
    "forgetting": _word_or("auto", validation.fraction),
    "features": _none_or("fourier", "relu"),
    "n_components": validation.count,
    "gamma": _word_or("median", validation.positive),
    "fit_intercept": validation.flag,
    "dtype": schema.one_of(*FREE),
    "seed": schema.counter,
}
