"""Regression, one target or several."""

from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin

from orfit import validation
from orfit.sklearn.base import Estimator
from orfit.validation import DTYPES, Array


class ORFitRegressor(MultiOutputMixin, RegressorMixin, Estimator):
    """Ridge regression in one pass, on the columns or on random features of them.

    memory: m, the directions that are kept. Up to 5 m parameters everything is kept, and this is
        recursive least squares: `make_pipeline(StandardScaler(), Ridge(noise))`, row by row.
    noise: R, which is Ridge's alpha on columns in units of the first rows. "auto": what makes the
        first rows most likely; with more than 5 m parameters, the best of eight so far.
    forgetting: λ in (0, 1], by which the past fades with each row, or "auto".
    features: None for the columns themselves; or "fourier", `n_components` random features of the
        kernel exp(−gamma |x − x'|²), or "relu", as many random hidden units. They are made from a
        seed, and stand beside the columns.
    gamma: of that kernel, on columns in units of the first rows; "median" takes the median distance
        of those rows for its width.
    fit_intercept: whether there is one; it has no shrinkage.
    dtype: float32 or float64; that of the first X unless given.
    random_state: of random features.

    Columns and targets are scaled by mean and standard deviation of the first call's rows; where
    these are fewer than 256, all rows so far decide again whenever their number has doubled.

    `updates_` are `orfit.Updates` of the last call: `updates_.prediction` is what was predicted for
    each row before it was learned. `coef_` and `intercept_` are in units of the columns; with
    random features, of those. `learner_` is the learner.

    Examples:
        >>> from orfit.sklearn import ORFitRegressor
        >>> X = np.random.default_rng(0).standard_normal((100, 2))
        >>> model = ORFitRegressor().fit(X[:50], 3 * X[:50, 0] + 1)
        >>> model = model.partial_fit(X[50:], 3 * X[50:, 0] + 1)
        >>> print(model.predict([[2.0, 5.0]]).round(3))
        [7.]
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ORFitRegressor":
        """Forget everything, and learn these rows.

        sample_weight: a row of weight v counts as v rows; one of weight 0 changes nothing.
        """
        return self._update(X, y, sample_weight, restart=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ORFitRegressor":
        """Learn these rows after those before, one after another."""
        return self._update(X, y, sample_weight, restart=not self._began)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The targets of rows; with `return_std` the pair of them and their standard deviations.

        With an intercept, one row says nothing of how far others lie from it: until there is a
        second one, the deviation is infinite.
        """
        F, std = self._predicted(X, return_std)
        return self._shaped(F) if std is None else (self._shaped(F), self._shaped(std))

    @property
    def coef_(self) -> Array:
        """(d,), or (q, d) for several targets."""
        slopes = self._linear()[0]
        return slopes[0] if self._single else slopes

    @property
    def intercept_(self) -> Any:
        """A number, or one for each target."""
        bias = self._linear()[1]
        return bias[0] if self._single else bias

    @property
    def _single(self) -> bool:
        return self._learned.scaled.learner.model.heads is None

    def _update(self, X: Any, y: Any, sample_weight: Any, restart: bool) -> "ORFitRegressor":
        if restart or not (self._is_common(X) and self._is_target(y, len(X))):
            X, y = self._inputs(X, y=y, reset=restart, multi_output=True, y_numeric=True)
        heads = None if y.ndim == 1 else y.shape[1]
        if not restart and heads != self._learned.scaled.learner.model.heads:
            before = "(n,)" if self._single else f"(n, {len(self.intercept_)})"
            raise ValueError(f"y must have shape {before}, as before; it has {y.shape}")
        Y = np.asarray(y, np.float64).reshape(len(y), -1)
        self._learn(X, Y, sample_weight, heads, restart)
        return self

    @staticmethod
    def _is_target(y: Any, rows: int) -> bool:
        """Whether these are targets of the common kind, which scikit-learn would not change."""
        return (
            type(y) is np.ndarray
            and y.ndim in (1, 2)
            and len(y) == rows
            and y.size > 0
            and y.dtype in DTYPES
            and validation.finite(y)
        )

    def _shaped(self, F: Array) -> Array:
        return F[:, 0] if self._single else F
