"""Classification, by regression on what is 1 for a row's class and 0 for others."""

from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from orfit.sklearn.base import Estimator
from orfit.validation import Array


class ORFitClassifier(ClassifierMixin, Estimator):
    """Discriminant analysis in one pass: ridge regression on 1 for a row's class and 0 for others.

    The parameters are those of `ORFitRegressor`; `classes_` are in order. A class may appear at any
    time: it is as if it had been known from the start.

    What the regression predicts is taken to be normal within each class, and equally wide in all of
    them; `predict_proba` follows from that, from how frequent classes are, and from what the
    regression leaves of labels it has not learned. With few shrunken columns that is linear
    discriminant analysis. `decision_function` is the logarithm of it, `predict` its largest.

    Examples:
        >>> from orfit.sklearn import ORFitClassifier
        >>> X = np.array([[0.0], [0.1], [0.9], [1.0]])
        >>> model = ORFitClassifier().partial_fit(X, ["low", "low", "high", "high"])
        >>> print(model.predict([[0.2], [0.8]]))
        ['low' 'high']
        >>> model = model.partial_fit([[5.0], [5.1]], ["far", "far"])
        >>> print(model.classes_)
        ['far' 'high' 'low']
    """

    _amounts = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ORFitClassifier":
        """Forget everything, and learn these rows.

        sample_weight: a row of weight v counts as v rows; one of weight 0 changes nothing.
        """
        return self._update(X, y, None, sample_weight, restart=True)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "ORFitClassifier":
        """Learn these rows after those before, one after another.

        classes: those that `classes_` is to have, whether or not one has been seen; none are
        needed.
        """
        return self._update(X, y, classes, sample_weight, restart=not self._began)

    def decision_function(self, X: Any) -> Array:
        """The logarithm of how likely each class is, but for a constant, (n, k), in the order of
        `classes_`; of two classes the odds of the second, (n,).
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> Array:
        """The most likely class of each row."""
        scores = self._scores(X)
        return np.asarray(self.classes_[np.argmax(scores, axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """How likely each class is, (n, k)."""
        return np.asarray(softmax(self._scores(X), axis=1))

    @property
    def classes_(self) -> Array:
        """The classes, in order."""
        if not self._began:
            raise AttributeError("this ORFitClassifier has not learned anything yet")
        return np.sort(self._heads)

    @property
    def coef_(self) -> Array:
        """(k, d), as `decision_function` tells; of two classes (1, d)."""
        slopes, _ = self._linear()
        return self._by_class((self._rule[0].T @ slopes).astype(slopes.dtype))

    @property
    def intercept_(self) -> Array:
        """(k,); of two classes (1,)."""
        _, bias = self._linear()
        A, b = self._rule
        return self._by_class((bias @ A + b).astype(bias.dtype))

    @property
    def _heads(self) -> Array:
        """The class of each head, in the order in which they came."""
        names = self._learned.names
        assert names is not None
        return names

    @property
    def _rule(self) -> tuple[Array, Array]:
        return self._learned.scaled.rule()

    def _scores(self, X: Any) -> Array:
        F, _ = self._predicted(X)
        A, b = self._rule
        return (F @ A + b).astype(F.dtype)[:, np.argsort(self._heads)]

    def _by_class(self, heads: Array) -> Array:
        ordered = heads[np.argsort(self._heads)]
        return ordered[1:] - ordered[:1] if len(ordered) == 2 else ordered

    def _known(self, y: Any) -> Array | None:
        """1 for the class of each row, 0 for others; None unless all are known, in an array."""
        heads = self._heads
        if type(y) is not np.ndarray or y.ndim != 1 or y.dtype.kind != heads.dtype.kind:
            return None
        found = y[:, None] == heads
        return found.astype(np.float64) if found.any(axis=1).all() else None

    def _update(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, restart: bool
    ) -> "ORFitClassifier":
        if not restart and classes is None and self._is_common(X):
            known = self._known(y)
            if known is not None and len(known) == len(X):
                self._learn(X, known, sample_weight, len(self._heads), restart, self._heads)
                return self
        X, y = self._inputs(X, y=y, reset=restart)
        check_classification_targets(y)
        heads = np.array([], np.asarray(y).dtype) if restart else self._heads
        for more in (y,) if classes is None else (classes, y):
            heads = _with(heads, np.unique(np.asarray(more)))
        Y = (y[:, None] == heads).astype(np.float64)
        self._learn(X, Y, sample_weight, len(heads), restart, heads)
        return self


def _with(heads: Array, classes: Array) -> Array:
    """The classes of heads, with those that are not among them."""
    kinds = {array.dtype.kind in "OSU" for array in (heads, classes) if len(array)}
    if len(kinds) > 1:
        raise ValueError(f"classes are text and numbers: {heads} and {classes}")
    return np.append(heads, classes[~np.isin(classes, heads)])
