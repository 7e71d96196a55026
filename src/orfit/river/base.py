"""What the estimators share: their parameters, and frames as they come."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from river import utils

from orfit import door
from orfit.door import Array
from orfit.learners.onestep import OneStep
from orfit.river.engine import Engine
from orfit.river.settings import Settings


class Estimator:
    """Parameters as river reads them from the signature, and the engine that they make.

    memory: m, the directions that are kept. Up to 5 m features all of them are, which is recursive
        least squares; with more, the principal m.
    noise: the variance of the noise in y, against a prior of variance 1 on each weight of a scaled
        feature; "auto" tries eight powers of ten side by side and uses what predicted best lately.
    forgetting: λ: before each row, the past counts λ times less; "auto" tries four of them.
    scaling: whether each feature is learned in units of its first 256 values, which are kept until
        then. Turn it off only where features are all of a size.
    features: None: a model linear in x. "fourier", or "fourier:500" for so many: also in random
        waves of x, which come near to a kernel method.
    fit_intercept: whether there is a constant beside the features.
    seed: of the waves.
    """

    _heads: int | None = None
    _centred = False  # whether labels are learned from the mean of the first ones on

    def __init__(
        self,
        memory: int = 50,
        noise: float | str = "auto",
        forgetting: float | str = 1.0,
        scaling: bool = True,
        features: str | None = None,
        fit_intercept: bool = True,
        seed: int | None = None,
    ) -> None:
        self.memory = memory
        self.noise = noise
        self.forgetting = forgetting
        self.scaling = scaling
        self.features = features
        self.fit_intercept = fit_intercept
        self.seed = seed
        settings = Settings(memory, noise, forgetting, scaling, features, fit_intercept, seed)
        settings.check()
        self._engine = Engine(settings, self._heads, self._centred)
        self._names: dict[Any, int] = {}  # of heads, and which it is

    @property
    def learner(self) -> OneStep | None:
        """The learner behind it, with all rows learned; None before the first.

        Its inputs are scaled; its `health` and `memory` tell how it is doing.
        """
        return self._engine.learner

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"scaling": False}
        yield {"memory": 2, "noise": 1.0, "forgetting": 0.99}
        yield {"features": "fourier:50", "seed": 1}


def table(X: Any) -> tuple[Any, list[Any], Array]:
    """A frame of pandas, polars or another that narwhals knows: wrapped, its names, its numbers."""
    frame = utils.dataframe.into_frame(X)
    names = list(frame.columns)
    try:
        numbers = utils.dataframe.to_numpy(frame)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X must hold numbers ({error}): put river.preprocessing.OneHotEncoder() before the "
            "model, or leave columns of text out"
        ) from None
    if np.isinf(numbers).any():
        raise ValueError("X must be finite: some of its values are infinite")
    return frame, names, numbers


def many(w: Any, rows: int) -> Array | None:
    """Weights of so many rows, checked; None where all count the same."""
    if isinstance(w, int | float) and w == 1:
        return None
    given = w if isinstance(w, int | float) else utils.dataframe.into_series(w).to_numpy()
    weights = np.broadcast_to(door.numbers("w", given), (rows,))
    if (weights < 0).any():
        raise ValueError("w must not be negative")
    return weights


def weight(w: Any) -> float:
    """How many rows a row counts as."""
    return 1.0 if type(w) is float and w == 1.0 else door.nonnegative("w", w)


def label(y: Any) -> float:
    """A label that is a number."""
    if type(y) is float and math.isfinite(y):
        return y
    return door.scalar("y", float(y) if isinstance(y, bool | np.bool_) else y)
