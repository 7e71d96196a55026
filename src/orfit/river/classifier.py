"""Classification: each class has a number that is 1 for its rows and 0 for the others."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from river import base, utils

from orfit.door import Array
from orfit.river.base import Estimator, many, table, weight

LEAST = 1e-3  # that a class is thought probable, before all are made to add up


class ORFitClassifier(Estimator, base.MiniBatchClassifier):
    """Least squares for classes."""

    _heads = 1

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn one row, which counts as w rows; a class that is new joins."""
        place = self._place(y)
        labels = np.zeros(len(self._names))
        labels[place] = 1.0
        self._engine.learn(x, labels, weight(w))

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """How probable each class is; nothing before the first row."""
        F = self._engine.predict(x)
        if F is None:
            return {}
        return dict(zip(self._names, probabilities(F[None])[0].tolist(), strict=True))

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """The class that is most probable; None before the first row."""
        F = self._engine.predict(x)
        return None if F is None else list(self._names)[int(F.argmax())]

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a frame, one after another."""
        _, names, numbers = table(X)
        places = [self._place(one) for one in utils.dataframe.into_series(y).to_list()]
        labels = np.eye(len(self._names))[places]
        self._engine.learn_rows(names, numbers, labels, many(w, len(numbers)))

    def predict_proba_many(self, X: Any) -> Any:
        """A frame with a column for each class."""
        frame, names, numbers = table(X)
        F = self._engine.predict_rows(names, numbers)
        made = np.zeros((len(numbers), 0)) if F is None else probabilities(F)
        columns = dict(zip(self._names, made.T, strict=True))
        return utils.dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """A series of classes."""
        frame, names, numbers = table(X)
        F = self._engine.predict_rows(names, numbers)
        classes = list(self._names)
        values = [None] * len(numbers) if F is None else [classes[i] for i in F.argmax(axis=1)]
        return utils.dataframe.to_native_series(values, name=None, like=frame)

    def _place(self, y: Any) -> int:
        place = self._names.get(y)
        if place is None:
            place = self._names[y] = len(self._names)
            if place:
                self._engine.add_head()
        return place


def probabilities(F: Array) -> Array:
    """Least squares estimates how probable each class is, but knows no bounds."""
    P = np.clip(F, LEAST, None)
    made: Array = P / P.sum(axis=1, keepdims=True)
    return made
