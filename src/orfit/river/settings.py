"""The parameters of an estimator, checked together: what is refused says so before any row."""

from dataclasses import dataclass
from typing import Any

from orfit import door
from orfit.stream.features import KINDS

DRAWN = ("fourier",)  # features that are made from a seed
COUNT = 300  # of them, unless told


@dataclass(frozen=True)
class Settings:
    """What an `Engine` is made from."""

    memory: int
    noise: float | str
    forgetting: float | str
    scaling: bool
    features: str | None
    fit_intercept: bool
    seed: int | None

    def check(self) -> None:
        """Raise where a parameter is none; noise and forgetting are the learner's to check."""
        door.count("memory", self.memory)
        door.flag("scaling", self.scaling)
        door.flag("fit_intercept", self.fit_intercept)
        if self.seed is not None:
            door.count("seed", self.seed, least=0)
        self.map()

    def map(self) -> Any:
        """The map that makes features of a row's columns; None: they are the features."""
        if self.features is None:
            return None
        name, _, count = str(self.features).partition(":")
        if name not in DRAWN or not (count or "1").isdecimal():
            raise ValueError(
                f'features must be None, "fourier", or "fourier:N" with a number N of them; it is '
                f"{self.features!r}"
            )
        return KINDS[name](int(count or COUNT), self.seed or 0)
