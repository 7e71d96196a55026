"""Regression of several numbers, which share what is remembered."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from river import base

from orfit.river.base import Estimator, label, weight
from orfit.river.engine import Engine


class ORFitMultiTargetRegressor(Estimator, base.MultiTargetRegressor):
    """Least squares for several labels at once."""

    _heads = 1
    _centred = True

    def learn_one(self, x: Mapping[Any, Any], y: Mapping[Any, Any], w: float = 1.0) -> None:
        """Learn one row, which counts as w rows: a label for each target."""
        if not self._names:
            self._names = {name: head for head, name in enumerate(y)}
            self._engine = Engine(self._engine.settings, len(y), self._centred)
        if len(y) != len(self._names) or not all(name in y for name in self._names):
            raise ValueError(
                f"y must have a number for each of {list(self._names)}, as the first row had; it has "
                f"{list(y)}"
            )
        self._engine.learn(x, [label(y[name]) for name in self._names], weight(w))

    def predict_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """The labels that are expected; nothing before the first row."""
        F = self._engine.predict(x)
        return {} if F is None else dict(zip(self._names, F.tolist(), strict=True))
