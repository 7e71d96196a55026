"""Learners of settings.py.

Each is a function of inputs (n, d) and labels, in order, that returns the prediction of each label
before the row is learned. Settings are the defaults.
"""

import warnings

import numpy as np
from entrants import NUMBERS, Entrant, Partial, in_turn, leave_one_out, river
from river import forest, linear_model, neighbors, rules, tree
from sklearn.linear_model import SGDRegressor


def noises(X):
    """Return the values that noise="auto" compares, in the unit of the first rows."""
    import orfit

    learner = orfit.ORFit(orfit.Linear(X.shape[1], bias=True), 1, noise="auto")
    learner.learn_each(X[:64], np.zeros(len(X[:64])))
    return learner.state()[0]["state.noises"].tolist()


def orfit_limited(m, **settings):
    def predictions(X, y):
        import orfit

        model = orfit.Linear(X.shape[1], bias=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the table shows where noise=0 is unsuitable
            return orfit.ORFit(model, m, **settings).learn_each(X, y).prediction

    return predictions


def orfit_rls(**settings):
    def predictions(X, y):
        import orfit

        model = orfit.Linear(X.shape[1], bias=True)
        warnings.simplefilter("ignore", orfit.ScaleWarning)  # inputs as they are
        return orfit.RLS(model, **settings).learn_each(X, y).prediction

    return predictions


def predictions_of(entrant):
    return lambda X, y: entrant.run(X, y)[0]


def running_mean(X, y):
    return np.concatenate([[0.0], np.cumsum(y)[:-1] / np.arange(1, len(y))])


def best_in_hindsight(make):
    """Return predictions with the noise that is best in the end, of those that "auto" compares."""

    def predictions(X, y):
        made = [make(noise)(X, y) for noise in noises(X)]
        half = len(y) // 2
        return min(made, key=lambda prediction: np.sum((prediction - y)[half:] ** 2))

    return predictions


LINEAR = {
    "ORFit m=10": orfit_limited(10, noise="auto"),
    "ORFit m=30": orfit_limited(30, noise="auto"),
    "ORFit m=100": orfit_limited(100, noise="auto"),
    "ORFit m=10, tail auto": orfit_limited(10, noise="auto", tail="auto"),
    "ORFit m=30, tail auto": orfit_limited(30, noise="auto", tail="auto"),
    "ORFit m=30, λ auto": orfit_limited(30, noise="auto", forgetting="auto"),
    "ORFit m auto": orfit_limited("auto", noise="auto"),
    "ORFit m=10, noise 0": orfit_limited(10),
    "ORFit m=100, noise 0": orfit_limited(100),
    "RLS": orfit_rls(),
    "RLS λ=0.99": orfit_rls(forgetting=0.99),
    "RLS λ auto": orfit_rls(forgetting="auto"),
    # Without scalers: inputs are standardised, or as they are.
    "river linear": predictions_of(river(linear_model.LinearRegression)),
    "river Bayes": predictions_of(NUMBERS["river Bayes"]),
    "river PA": predictions_of(river(linear_model.PARegressor)),
    "sklearn SGD": predictions_of(in_turn(lambda y: Partial(SGDRegressor(random_state=0)))),
}
NONLINEAR = {
    "river tree": predictions_of(river(lambda: tree.HoeffdingAdaptiveTreeRegressor(seed=0))),
    "river rules": predictions_of(river(rules.AMRules)),
    "river neighbours": predictions_of(river(neighbors.KNNRegressor)),
    "river forest": predictions_of(river(lambda: forest.ARFRegressor(seed=0))),
}
FACES = {
    "ORFit in river": predictions_of(NUMBERS["orfit.river"]),
    "ORFit in scikit-learn": predictions_of(NUMBERS["orfit.sklearn"]),
}
NOTHING = {"last value": predictions_of(NUMBERS["last value"]), "running mean": running_mean}
HINDSIGHT = {
    "ORFit m=10, best noise": best_in_hindsight(lambda noise: orfit_limited(10, noise=noise)),
    "ORFit m=30, best noise": best_in_hindsight(lambda noise: orfit_limited(30, noise=noise)),
    "RLS, best prior": best_in_hindsight(lambda noise: orfit_rls(prior=noise)),
    "ridge, all rows": predictions_of(Entrant(leave_one_out)),
}
