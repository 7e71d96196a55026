"""Regression, of one number."""

from collections.abc import Mapping
from typing import Any

from river import base, proba, utils

from orfit import door
from orfit.river.base import Estimator, label, many, table, weight


class ORFitRegressor(Estimator, base.MiniBatchRegressor):
    __doc__ = f"""Least squares in one pass, without forgetting, untuned.

    {Estimator.__doc__ or ""}
    """

    _centred = True

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts as w rows."""
        self._engine.learn(x, label(y), weight(w))

    def predict_one(self, x: Mapping[Any, Any], with_dist: bool = False) -> Any:
        """The label that is expected; or with_dist its distribution, a `proba.Gaussian`."""
        if not with_dist:
            f = self._engine.predict(x)
            return 0.0 if f is None else float(f[0])
        told = self._engine.predict_std(x)
        mean, std = (0.0, 1.0) if told is None else (float(told[0][0]), float(told[1][0]))
        return proba.Gaussian._from_state(n=1, m=mean, var=std * std, ddof=0)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a frame, one after another."""
        _, names, numbers = table(X)
        labels = door.numbers("y", utils.dataframe.into_series(y).to_numpy())
        self._engine.learn_rows(names, numbers, labels, many(w, len(numbers)))

    def predict_many(self, X: Any) -> Any:
        """A series of labels that are expected."""
        frame, names, numbers = table(X)
        F = self._engine.predict_rows(names, numbers)
        values = [0.0] * len(numbers) if F is None else F[:, 0]
        return utils.dataframe.to_native_series(values, name=None, like=frame)
