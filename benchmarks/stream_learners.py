"""Learners of the comparison.

Each takes inputs (n, d) and labels, in order, and returns what it predicted of each label before it
learned it. All are as their provenance left them: no setting is tuned.
"""

import warnings

import numpy as np


def noises(X):
    """What noise="auto" tries: powers of ten, in units of the squared length of the first gradient.

    That is (x, 1), with the bias.
    """
    unit = round(np.log10(X[0] @ X[0] + 1))
    return [float(f"1e{unit + power}") for power in range(-6, 2)]


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


def river_predictions(model, rows, y):
    """What a model of river predicts of rows, which are dictionaries."""
    made = np.full(len(y), np.nan)
    for i, (row, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        try:
            made[i] = model.predict_one(row)
            model.learn_one(row, label)
        except ArithmeticError:  # it has left the finite numbers
            break
    return made


def river_model(make, bias=False):
    """bias: whether it needs a 1 among its inputs, for want of an intercept of its own."""

    def predictions(X, y):
        rows = (dict(enumerate(x + [1.0] * bias)) for x in X.tolist())
        return river_predictions(make(), rows, y)

    return predictions


def orfit_in_river():
    from orfit.river import ORFitRegressor

    return ORFitRegressor()


def orfit_in_scikit_learn(X, y):
    """`partial_fit`, which tells in `updates_` what it predicted of each row before it learned it.

    The first row comes alone: that others follow in one call changes nothing.
    """
    from orfit.sklearn import ORFitRegressor

    model = ORFitRegressor().partial_fit(X[:1], y[:1])
    first = model.updates_.prediction
    return np.append(first, model.partial_fit(X[1:], y[1:]).updates_.prediction)


def river_linear():
    from river import linear_model

    return linear_model.LinearRegression()


def river_pipeline():
    """Numbers are scaled by what came so far, of each text there is a column."""
    from river import compose, preprocessing

    numbers = compose.SelectType(float) | preprocessing.StandardScaler()
    texts = compose.SelectType(str) | preprocessing.OneHotEncoder()
    return (numbers + texts) | river_linear()


def river_bayes():
    from river import linear_model

    return linear_model.BayesianLinearRegression()


def river_passive_aggressive():
    from river import linear_model

    return linear_model.PARegressor()


def river_tree():
    from river import tree

    return tree.HoeffdingAdaptiveTreeRegressor(seed=0)


def river_rules():
    from river import rules

    return rules.AMRules()


def river_neighbours():
    from river import neighbors

    return neighbors.KNNRegressor()


def river_forest():
    from river import forest

    return forest.ARFRegressor(seed=0)


def scikit_learn_sgd(X, y):
    from sklearn.linear_model import SGDRegressor

    model, made = SGDRegressor(random_state=0), np.full(len(y), np.nan)
    made[0] = 0.0  # it predicts nothing before it has learned
    for i in range(len(y)):
        try:
            if i:
                made[i] = model.predict(X[i : i + 1])[0]
            model.partial_fit(X[i : i + 1], y[i : i + 1])
        except ValueError:  # it has left the finite numbers
            break
    return made


def last_value(X, y):
    return np.concatenate([[0.0], y[:-1]])


def running_mean(X, y):
    return np.concatenate([[0.0], np.cumsum(y)[:-1] / np.arange(1, len(y))])


def ridge_in_hindsight(X, y):
    """Of each row the prediction by all others, those behind it too, with the best alpha of all."""
    from sklearn.linear_model import RidgeCV

    alphas = np.logspace(-6, 4, 21)
    model = RidgeCV(alphas, store_cv_results=True).fit(X, y)
    return y - np.sqrt(model.cv_results_[:, list(alphas).index(model.alpha_)])


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
    "river linear": river_model(river_linear),
    "river Bayes": river_model(river_bayes, bias=True),
    "river PA": river_model(river_passive_aggressive),
    "sklearn SGD": scikit_learn_sgd,
}
NONLINEAR = {
    "river tree": river_model(river_tree),
    "river rules": river_model(river_rules),
    "river neighbours": river_model(river_neighbours),
    "river forest": river_model(river_forest),
}
FACES = {
    "ORFit in river": river_model(orfit_in_river),
    "ORFit in scikit-learn": orfit_in_scikit_learn,
}
NOTHING = {"last value": last_value, "running mean": running_mean}
HINDSIGHT = {
    "ORFit m=10, best noise": best_in_hindsight(lambda noise: orfit_limited(10, noise=noise)),
    "ORFit m=30, best noise": best_in_hindsight(lambda noise: orfit_limited(30, noise=noise)),
    "RLS, best prior": best_in_hindsight(lambda noise: orfit_rls(prior=noise)),
    "ridge, all rows": ridge_in_hindsight,
}
