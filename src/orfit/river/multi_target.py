"""Regression of several numbers, which share what is remembered."""

from collections.abc import Mapping
from typing import Any

from river import base

from orfit.river.base import Estimator
from orfit.river.engine import Engine
from orfit.river.values import label, weight


class ORFitMultiTargetRegressor(Estimator, base.MultiTargetRegressor):
    """Least squares for several labels at once, in one pass, without forgetting.

    It has the parameters of `ORFitRegressor`, and takes features as that does. The targets are
    those of the first row; they share what is remembered, so that many cost little more than one.

    Examples:
        >>> from orfit.river import ORFitMultiTargetRegressor
        >>> model = ORFitMultiTargetRegressor()
        >>> for i in range(20):
        ...     model.learn_one({"i": i}, {"twice": 2.0 * i, "less": i - 1.0})
        >>> print({name: round(f, 2) for name, f in model.predict_one({"i": 30}).items()})
        {'twice': 60.0, 'less': 29.0}
    """

    _heads = 1
    _centred = True

    def learn_one(self, x: Mapping[Any, Any], y: Mapping[Any, Any], w: float = 1.0) -> None:
        """Learn a row, which counts as w rows, or not at all, with a label for each target."""
        names = self._names or {name: head for head, name in enumerate(y)}
        if len(y) != len(names) or not all(name in y for name in names):
            raise ValueError(
                f"y must have a number for each of {list(names)}, as the first row had; it has "
                f"{list(y)}"
            )
        numbers, counts = [label(y[name]) for name in names], weight(w)
        engine = self._engine
        if not self._names:  # now it is known how many there are
            engine = Engine(engine.settings, len(names), self._centred)
        row = engine.read(x, counts)
        if not counts:
            return
        self._names, self._engine = names, engine
        engine.learn(row, numbers, counts)

    def predict_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """The labels that are expected; nothing before the first row."""
        F = self._engine.predict(x)
        return {} if F is None else dict(zip(self._names, F.tolist(), strict=True))
