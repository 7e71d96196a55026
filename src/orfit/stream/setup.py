"""How a stream is learned: what a user may say, what is chosen where nothing is said."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import schema, validation
from orfit.features import Features, Fourier, Raw
from orfit.learners.gain import GainLearner
from orfit.learners.learner import Learner
from orfit.learners.orfit import OneStepSGD, ORFit
from orfit.learners.rls import RLS
from orfit.learners.sgd import SGD
from orfit.memory import Growing, Principal
from orfit.memory.growing import FIRST, MOST
from orfit.meter import Meter
from orfit.models import Linear
from orfit.schema import Fields
from orfit.stream.block import StreamError
from orfit.stream.features import leave_one_out, parse
from orfit.validation import Array

WAVES = 300  # Fourier features, where nobody says how many
LARGEST_EXACT = 2000  # parameters, up to which the whole P takes less time than `MOST` directions
TELLING = 1000  # rows, from which features are chosen
GRID = range(-6, 2)  # powers of ten: of the noise, beside a row's squared length
RATE = 0.1  # of plain SGD, beside the length of a row: the step that would fit it whole is 1
MOST_HELD = 0.9  # of all rows
LARGEST_RLS = 3000  # parameters: beyond, P alone has 72 MB, and a row takes seconds


@dataclass(frozen=True)
class Setup:
    """Settings of learning, as given on the command line; they are part of a checkpoint.

    features: "auto", or what `features.parse` takes. memory: "auto", "exact" for the whole P, or m.
    budget: bytes that it may take. noise, tail, forgetting: as for `ORFit`; with the whole P the
    noise is what was best for the first rows. probes: of the meter; 0 for none.
    versus: others that learn the same rows. holdout: the share of rows that is never learned.
    window: rows that "lately" means. warmup: rows from which scales and features are chosen.
    """

    features: str = "auto"
    memory: int | str = "auto"
    budget: int = 500_000_000
    noise: float | str = "auto"
    tail: bool | str = "auto"
    forgetting: float | str = 1.0
    probes: int = 32
    versus: tuple[str, ...] = ()
    holdout: float = 0.0
    window: int = 1000
    warmup: int = 1000
    seed: int = 0

    def check(self) -> None:
        """Raise where a user has said something that cannot be."""
        for name, check in FIELDS.items():
            try:
                check(f"--{name}", self.plain()[name])
            except ValueError as error:
                raise StreamError(str(error)) from None
        if self.holdout > MOST_HELD:
            raise StreamError(f"--holdout must be at most {MOST_HELD:g}: the rest is learned")
        unknown = [name for name in self.versus if name not in RIVALS]
        if unknown:
            raise StreamError(f"--versus knows {', '.join(RIVALS)}, not {unknown[0]}")
        parse(self.features, self.seed)

    def plain(self) -> dict[str, Any]:
        """As JSON holds it; `FIELDS` checks that, and `of` reads it."""
        return vars(self) | {"versus": [*self.versus]}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Setup":
        return cls(**plain | {"versus": tuple(plain["versus"])})


def _either(check: Any, *words: str) -> Any:
    """One of these words, or what passes that check."""

    def checked(name: str, value: Any) -> Any:
        return value if isinstance(value, str) and value in words else check(name, value)

    return checked


FIELDS: Fields = {
    "features": schema.text,
    "memory": _either(validation.count, "auto", "exact"),
    "budget": validation.count,
    "noise": _either(validation.nonnegative, "auto"),
    "tail": _either(validation.flag, "auto"),
    "forgetting": _either(validation.fraction, "auto"),
    "probes": schema.counter,
    "versus": schema.listed(schema.text),
    "holdout": lambda name, value: validation.fraction(name, value, zero=True),
    "window": validation.count,
    "warmup": validation.count,
    "seed": schema.counter,
}


@dataclass(frozen=True)
class Fit:
    """How well features predict each of the first rows by the others, with the best noise."""

    features: Features
    noise: float
    error: float

    @classmethod
    def of(cls, features: Features, X: Array, Y: Array) -> "Fit":
        """In closed form, of at most `TELLING` rows. Y: n×q."""
        features.learn(X)
        few = np.linspace(0, len(X) - 1, min(TELLING, len(X))).astype(int)
        phi = features.make(X[few])
        unit = float(np.mean(np.sum(phi * phi, axis=1))) or 1.0
        noises = unit * np.array([10.0**power for power in GRID])
        errors = leave_one_out(phi, Y[few], noises)
        best = int(np.argmin(errors))
        return cls(features, float(noises[best]), float(errors[best]))


def fitted(given: Features | None, X: Array, Y: Array, seed: int) -> tuple[Fit, str]:
    """The features that are given, or else the better of raw and Fourier ones; and why."""
    if given is not None:
        return Fit.of(given, X, Y), f"{given}, as given"
    fits = [Fit.of(features, X, Y) for features in (Raw(), Fourier(WAVES, seed))]
    best = min(fits, key=lambda fit: fit.error)
    spread = float(np.mean((Y - Y.mean(axis=0)) ** 2)) or 1.0
    shares = ", ".join(f"{fit.features} {fit.error / spread:.3f}" for fit in fits)
    return best, (
        f"{best.features}; error² on each of the first rows by the others, beside that of their "
        f"mean: {shares}"
    )


def make_learner(setup: Setup, fit: Fit, size: int, heads: int | None) -> GainLearner:
    """The learner for so many features: exact, or on as many directions as are worth it."""
    memories = 8 if setup.forgetting == "auto" else 1  # four λ, and a draft of each
    model = Linear(size, heads=heads, bias=True)
    settings: dict[str, Any] = {"forgetting": setup.forgetting}
    settings["meter"] = Meter(setup.probes, setup.seed) if setup.probes else None
    whole = 8 * memories * model.size**2
    exact = setup.memory == "exact"
    if setup.memory == "auto":
        exact = model.size <= LARGEST_EXACT and whole <= setup.budget and setup.noise != 0
    if not exact:
        memory = _memory(setup, memories, model.size, heads or 1)
        settings |= {"noise": setup.noise, "tail": setup.tail}
        return ORFit(model, memory, **settings)
    if whole > setup.budget:
        raise StreamError(
            f"--memory exact takes {_megabytes(whole)} with {model.size} parameters, more than "
            "--budget allows; --memory auto keeps directions instead"
        )
    prior = fit.noise if isinstance(setup.noise, str) else setup.noise
    if not prior:
        raise StreamError("--memory exact needs --noise above 0")
    return RLS(model, prior=prior, **settings)


def _memory(setup: Setup, memories: int, parameters: int, heads: int) -> Principal:
    """Directions, as many as are wanted and the budget allows."""
    noises, tails = 8 if setup.noise == "auto" else 1, 2 if setup.tail == "auto" else 1
    fixed = parameters * (memories * noises * tails * heads + setup.probes)

    def bytes_of(m: int) -> int:
        return 8 * (fixed + memories * Principal(m).numbers_within(parameters))

    wanted = min(MOST, parameters) if setup.memory == "auto" else int(setup.memory)
    afforded = bisect_right(range(1, wanted + 1), setup.budget, key=bytes_of)
    least = min(wanted, FIRST) if setup.memory == "auto" else wanted
    if afforded < least:
        raise StreamError(
            f"{least} directions of {parameters} parameters take {_megabytes(bytes_of(least))}, "
            "more than --budget allows: take fewer features, directions or --probes, or allow more"
        )
    return Growing(afforded) if setup.memory == "auto" else Principal(wanted)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:.3g} MB"


LEARNERS = ("ORFit", "RLS")
RIVALS = {"sgd": "SGD", "rls": "RLS", "one-step": "OneStepSGD"}  # and their classes


def make_rival(name: str, size: int, heads: int | None, phi: Array) -> Learner:
    """Another learner of the same rows. phi: features of the first ones."""
    model = Linear(size, heads=heads, bias=True)
    if name == "one-step":
        return OneStepSGD(model)
    if name == "sgd":
        return SGD(model, lr=RATE / (1.0 + float(np.mean(np.sum(phi * phi, axis=1)))))
    if size + 1 > LARGEST_RLS:
        raise StreamError(
            f"--versus rls keeps {size + 1}² numbers, and takes seconds for a row: leave it out"
        )
    return RLS(model)
