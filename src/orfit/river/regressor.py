"""Regression, of one number."""

import math
from collections.abc import Mapping
from typing import Any

from river import base, proba
from river.utils import dataframe

from orfit import validation
from orfit.river.base import Estimator
from orfit.river.values import label, labels, table, weight, weights


class ORFitRegressor(Estimator, base.MiniBatchRegressor):
    """Least squares in one pass, without forgetting, for streams as they come.

    Features need no scaler, and may come and go: an absent one, or None, is its mean where it was
    in all of the first rows, else 0; one that is new joins, as if it had been 0 before. Text is
    refused: `compose.Select("city") | preprocessing.OneHotEncoder()` makes numbers of it.

    memory: m, the directions that are kept. Up to 5 m features all of them are, which is recursive
        least squares; with more from the start, the principal m. Where they become more later, the
        principal 5 m are kept.
    noise: the variance of the noise in y, against a prior of variance 1 on the weight of each
        scaled feature; "auto" is what makes the first rows most likely. With more than 5 m
        features, forgetting < 1 or scaling=False it tries eight powers of ten side by side and
        uses what predicted best lately.
    forgetting: λ in (0, 1]: before each row, the past counts λ times less. "auto" tries four λ, for
        streams that move: classes that have not come for long may then be forgotten.
    scaling: whether each feature is learned in units of its first 256 values. Until then these rows
        are kept, and learned again whenever their number has doubled.
    features: None: a model linear in x. "fourier" or "relu": also in n_components random features
        of x, which come near to a kernel method, or to a network.
    fit_intercept: whether there is a constant beside the features. Without, neither features nor
        labels are centred: a row of zeros is predicted to be 0.
    seed: of the random features.

    Rows that nobody asked about are learned together, 64 at most, when somebody does.

    Examples:
        >>> from orfit.river import ORFitRegressor
        >>> model = ORFitRegressor()
        >>> for i in range(20):
        ...     model.learn_one({"metres": i, "seconds": i % 3}, 2.0 * i - i % 3)
        >>> print(f"{model.predict_one({'metres': 50, 'seconds': 1}):.2f}")
        99.00
        >>> print(f"{model.predict_one({'metres': 50, 'seconds': 1}, with_dist=True).mu:.2f}")
        99.00
    """

    _centred = True

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: float = 1.0) -> None:
        """Learn a row, which counts as w rows; one of weight 0 changes nothing."""
        number, counts = label(y), weight(w)
        row = self._engine.read(x, counts)
        if counts:
            self._engine.learn(row, number, counts)

    def predict_one(self, x: Mapping[Any, Any], with_dist: bool = False) -> Any:
        """The label that is expected; with_dist: its distribution, a `proba.Gaussian`.

        Its sigma is infinite as long as nothing tells how labels vary: before the second row, and
        where all of them have been the same.
        """
        if not with_dist:
            f = self._engine.predict(x)
            return 0.0 if f is None else float(f[0])
        told = self._engine.predict_std(x)
        mean, std = (0.0, math.inf) if told is None else (float(told[0][0]), float(told[1][0]))
        return proba.Gaussian._from_state(n=1, m=mean, var=std * std, ddof=0)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learn the rows of a frame, one after another."""
        _, names, numbers = table(X)
        Y = validation.numbers("y", labels(y, len(numbers)))
        self._engine.learn_rows(names, numbers, Y, weights(w, len(numbers)))

    def predict_many(self, X: Any) -> Any:
        """A series of the labels that are expected."""
        frame, names, numbers = table(X)
        F = self._engine.predict_rows(names, numbers)
        values = [0.0] * len(numbers) if F is None else F[:, 0]
        return dataframe.to_native_series(values, name=None, like=frame)
