"""Learners of settings.py.

Each takes inputs (n, d) and labels, in order, and returns what it predicted of each label before it
learned it. All are as their provenance left them: no setting is tuned.
"""

import warnings

import numpy as np
from entrants import NUMBERS, Entrant, Partial, in_turn, leave_one_out, river
from river import forest, linear_model, neighbors, rules, tree
from sklearn.linear_model import SGDRegressor


def noises(X):
    """What noise="auto" compares, once the first rows have said in what unit."""
    import orfit

    learner = orfit.ORFit(orfit.Linear(X.shape[1], bias=True), 1, noise="auto", rows="plain")
    learner.learn_each(X[:64], np.zeros(len(X[:64])))
    return learner.guesses.noises.tolist()


def orfit_limited(m, **settings):
    def predictions(X, y):
        import orfit

        model = orfit.Linear(X.shape[1], bias=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that noise=0 does not suit the stream is shown
            learner = orfit.ORFit(model, m, rows="compiled", **settings)
            return learner.learn_each(X, y).prediction

    return predictions


def orfit_rls(**settings):
    def predictions(X, y):
        import orfit

        model = orfit.Linear(X.shape[1], bias=True)
        warnings.simplefilter("ignore", orfit.ScaleWarning)  # inputs as they are
        return orfit.RLS(model, rows="compiled", **settings).learn_each(X, y).prediction

    return predictions


def predictions_of(entrant):
    return lambda X, y: entrant.run(X, y)[0]


def running_mean(X, y):
    return np.concatenate([[0.0], np.cumsum(y)[:-1] / np.arange(1, len(y))])


def best_in_hindsight(make):
    """The learner with that noise, of those that "auto" chooses among, that turned out best."""

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
    # Without a scaler of their own: inputs are standardised, or as they are.
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
