"""Classification: each class has a number that is 1 for its rows and 0 for all others."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from river import base
from river.utils import dataframe
from scipy.special import softmax

from orfit.river.base import Estimator
from orfit.river.values import labels, named, table, weight, weights
from orfit.validation import Array


class ORFitClassifier(Estimator, base.MiniBatchClassifier):
    """Least squares for classes, in one pass, without forgetting: a class may be new at any time.

    It has the parameters of `ORFitRegressor`, and takes features as that does. Classes share what
    is remembered, so that many cost little more than two. What the regression predicts is taken to
    be normal within each class: so it is linear discriminant analysis, and no class is masked.

    Examples:
        >>> from orfit.river import ORFitClassifier
        >>> model = ORFitClassifier()
        >>> for i in range(30):
        ...     model.learn_one({"length": i}, "short" if i < 15 else "long")
        >>> print(model.predict_one({"length": 2}), list(model.predict_proba_one({"length": 2})))
        short ['short', 'long']
    """

    _heads = 1
    _classified = True

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn a row, which counts as w rows, or not at all; a class that is new joins."""
        one, counts = named(y), weight(w)
        row = self._engine.read(x, counts)
        if not counts:
            return
        head = self._head(one)
        ones = np.zeros(len(self._names))
        ones[head] = 1.0
        self._engine.learn(row, ones, counts)

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """How probable each class is; nothing before the first row."""
        F = self._scores(self._engine.predict(x))
        return {} if F is None else dict(zip(self._names, softmax(F).tolist(), strict=True))

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """The class that is most probable; None before the first row."""
        F = self._scores(self._engine.predict(x))
        return None if F is None else list(self._names)[int(F.argmax())]

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a frame, one after another."""
        _, names, numbers = table(X)
        given, counts = labels(y, len(numbers)), weights(w, len(numbers))
        given = [named(one) for one in given]
        rows = range(len(given)) if counts is None else np.flatnonzero(counts)
        Y = np.zeros((len(given), len({*self._names, *(given[row] for row in rows)})))
        for row in rows:
            Y[row, self._head(given[row])] = 1.0
        self._engine.learn_rows(names, numbers, Y, counts)

    def predict_proba_many(self, X: Any) -> Any:
        """A frame with a column for each class."""
        frame, names, numbers = table(X)
        F = self._scores(self._engine.predict_rows(names, numbers))
        P = np.zeros((len(numbers), 0)) if F is None else softmax(F, axis=1)
        return dataframe.to_native_frame(dict(zip(self._names, P.T, strict=True)), like=frame)

    def predict_many(self, X: Any) -> Any:
        """A series of the most probable classes."""
        frame, names, numbers = table(X)
        F = self._scores(self._engine.predict_rows(names, numbers))
        classes = list(self._names)
        values = [None] * len(numbers) if F is None else [classes[i] for i in F.argmax(axis=1)]
        return dataframe.to_native_series(values, name=None, like=frame)

    def _scores(self, F: Array | None) -> Array | None:
        """The logarithm of how likely each class is, but for a constant, of what is predicted."""
        if F is None:
            return None
        A, b = self._engine.rule()
        return np.asarray(F @ A + b)

    def _head(self, y: Any) -> int:
        head = self._names.get(y)
        if head is None:
            head = self._names[y] = len(self._names)
            if head:
                self._engine.add_head()
        return head
