"""Learners of streams.py: orfit's estimators for river and scikit-learn, and alternatives.

All have their default settings. Learners that need scaled inputs have a running scaler.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from river import forest, linear_model, multiclass, tree
from river.preprocessing import StandardScaler
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import RidgeClassifierCV, RidgeCV, SGDClassifier, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler as SklearnScaler

import orfit
from orfit import river as in_river
from orfit import sklearn as in_sklearn

SLOW = 5000  # rows, for learners that take milliseconds per row
SLOWER = 10_000  # rows, for learners that compare candidates


@dataclass(frozen=True)
class Entrant:
    """A learner of the comparison.

    run: called with X and y, returns the prediction of each label before its row is learned, and
        the model. For classes, `model.ask(X)` predicts the classes of other rows.
    most: the largest number of rows; None: no limit.
    """

    run: Callable[[Any, Any], tuple[Any, Any]]
    most: int | None = None


class River:
    """A model of river, row by row. bias: whether it needs a 1 among its inputs."""

    def __init__(self, model, bias=False):
        self.model, self.bias = model, bias

    def row(self, x):
        return dict(enumerate([*x, 1.0] if self.bias else x))

    def learn(self, x, y):
        self.model.learn_one(self.row(x), y)

    def predict(self, x):
        return self.model.predict_one(self.row(x))

    def ask(self, X):
        return [self.predict(x) for x in X.tolist()]


class Partial:
    """An estimator of scikit-learn, with `partial_fit` of one row."""

    def __init__(self, model, **first):
        self.model, self.first = model, first

    def learn(self, x, y):
        self.model.partial_fit([x], [y], **self.first)

    def predict(self, x):
        try:
            return self.model.predict([x])[0]
        except NotFittedError:
            return 0.0

    def ask(self, X):
        return self.model.predict(X)


def in_turn(make, most=None):
    """Learn row by row. After an error, such as an overflow, predictions are NaN."""

    def run(X, y):
        model, made = make(y), np.full(len(y), np.nan)
        for i, (x, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
            try:
                predicted = model.predict(x)
                made[i] = np.nan if predicted is None else predicted
                model.learn(x, label)
            except (ArithmeticError, ValueError):
                break
        return made, model

    return Entrant(run, most)


def river(make, most=None, bias=False):
    return in_turn(lambda y: River(make(), bias), most)


class Scaled:
    """A learner with river's scaler of the rows so far."""

    def __init__(self, inner):
        self.scaler, self.inner = StandardScaler(), inner

    def scaled(self, x):
        return [*self.scaler.transform_one(dict(enumerate(x))).values()]

    def learn(self, x, y):
        self.scaler.learn_one(dict(enumerate(x)))
        self.inner.learn(self.scaled(x), y)

    def predict(self, x):
        return self.inner.predict(self.scaled(x))

    def ask(self, X):
        return [self.predict(x) for x in X.tolist()]


def sklearn_regressor(X, y):
    """`updates_` has the prediction of each row before it is learned."""
    model = in_sklearn.ORFitRegressor().partial_fit(X[:1], y[:1])
    first = model.updates_.prediction
    return np.append(first, model.partial_fit(X[1:], y[1:]).updates_.prediction), model


@dataclass
class Last:
    label: float

    def ask(self, X):
        return [self.label] * len(X)


def last_value(X, y):
    return np.concatenate([[0.0], y[:-1]]), Last(y[-1])


def exact_rls(X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", orfit.ScaleWarning)  # columns as they are
        learner = orfit.RLS(orfit.Linear(X.shape[1], bias=True))
        return learner.learn_each(X, y).prediction, learner


@dataclass
class Heads:
    """RLS on one-hot labels. The first 256 rows, read in advance, determine the scaling."""

    mean: Any
    unit: Any
    learner: Any = None

    @classmethod
    def of(cls, X):
        unit, largest = X[:256].std(axis=0), np.abs(X[:256]).max(axis=0)
        return cls(X[:256].mean(axis=0), np.where(unit > 1e-9 * largest, unit, 1.0))

    def scaled(self, X):
        return (X - self.mean) / self.unit

    def ask(self, X):
        return self.learner.predict(self.scaled(X)).argmax(axis=1)


def exact_classes(forgetting=1.0):
    def run(X, y):
        made, heads = Heads.of(X), int(y.max()) + 1
        made.learner = orfit.RLS(
            orfit.Linear(X.shape[1], heads=heads, bias=True), forgetting=forgetting
        )
        Y = np.eye(heads)[y.astype(int)]
        return made.learner.learn_each(made.scaled(X), Y).prediction.argmax(axis=1), made

    return Entrant(run)


def leave_one_out(X, y):
    """Ridge: the prediction of each row by all others, with the best alpha. Later rows count."""
    alphas = np.logspace(-6, 4, 21)
    model = RidgeCV(alphas, store_cv_results=True).fit(X, y)
    return y - np.sqrt(model.cv_results_[:, list(alphas).index(model.alpha_)]), model


def ridge(X, y):
    return leave_one_out(SklearnScaler().fit_transform(X), y)


def ridge_classes(X, y):
    """Learn all rows at once; only the final accuracy is measured."""
    model = make_pipeline(SklearnScaler(), RidgeClassifierCV(np.logspace(-6, 4, 21))).fit(X, y)
    return np.full(len(y), np.nan), Whole(model)


@dataclass
class Whole:
    model: Any

    def ask(self, X):
        return self.model.predict(X)


def river_face(make=in_river.ORFitRegressor, most=None, **settings):
    return river(lambda: make(**settings), most)


def river_classes(most=None, **settings):
    return river_face(in_river.ORFitClassifier, most, **settings)


def sklearn_classes(**settings):
    return in_turn(lambda y: Partial(in_sklearn.ORFitClassifier(**settings)), SLOW)


def logistic():
    return StandardScaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())


def sgd_classes(y):
    return Scaled(Partial(SGDClassifier(random_state=0), classes=np.unique(y)))


NUMBERS = {
    "orfit.river": river_face(),
    "orfit.sklearn": Entrant(sklearn_regressor),
    "orfit.river, λ auto": river_face(most=SLOWER, forgetting="auto"),
    "orfit.river, fourier": river_face(most=SLOWER, features="fourier", seed=0),
    "river linear": river(lambda: StandardScaler() | linear_model.LinearRegression()),
    "river Bayes": river(linear_model.BayesianLinearRegression, SLOWER, bias=True),
    "river tree": river(
        lambda: StandardScaler() | tree.HoeffdingAdaptiveTreeRegressor(seed=0), SLOWER
    ),
    "river forest": river(lambda: StandardScaler() | forest.ARFRegressor(seed=0), SLOW),
    "sklearn SGD": in_turn(lambda y: Scaled(Partial(SGDRegressor(random_state=0))), SLOW),
    "exact RLS": Entrant(exact_rls),
    "last value": Entrant(last_value),
    "ridge, all rows": Entrant(ridge),
}
CLASSES = {
    "orfit.river": river_classes(),
    "orfit.sklearn": sklearn_classes(),
    "orfit.river, λ auto": river_classes(SLOW, forgetting="auto"),
    "orfit.river, fourier": river_classes(SLOW, features="fourier", seed=0),
    "river linear": river(logistic),
    "river tree": river(lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0)),
    "river forest": river(lambda: forest.ARFClassifier(seed=0), SLOW),
    "sklearn SGD": in_turn(sgd_classes, SLOW),
    "exact RLS": exact_classes(),
    "last value": Entrant(last_value),
    "ridge, all rows": Entrant(ridge_classes),
}
HINDSIGHT = ("ridge, all rows",)  # it uses later rows

FORGETTINGS = (0.999, 0.99, 0.97, 0.95, 0.9)
GIVEN = {f"exact RLS, λ={one}": exact_classes(one) for one in FORGETTINGS}
MORE = {  # learners with one argument more than the defaults
    "turbines": {
        "orfit.river, λ=0.99": river_face(most=SLOWER, forgetting=0.99),
    },
    "Elec2": {
        "orfit.river, λ=0.9": river_classes(SLOW, forgetting=0.9),
        **GIVEN,
    },
    "weather": {
        "orfit.river, fourier, λ=0.999": river_classes(
            SLOWER, features="fourier", forgetting=0.999, seed=0
        ),
        **GIVEN,
    },
    "digits, sorted": {
        "orfit.river, fourier, memory=100": river_classes(features="fourier", memory=100, seed=0),
        "orfit.river, relu": river_classes(features="relu", seed=0),
        "orfit.river, relu, 2,000 of them": river_classes(
            features="relu", n_components=2000, seed=0
        ),
        "orfit.river, relu, 1,000 of them, memory=250": river_classes(
            features="relu", n_components=1000, memory=250, seed=0
        ),
    },
}
