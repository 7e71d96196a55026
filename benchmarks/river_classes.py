"""The classes of docs/river.md: orfit beside what river and scikit-learn have, as they come.

Of each five rows four are predicted, then learned; the fifth is asked about at the end. `--data`
names the folder of long_data.py, where Elec2 and the weather are; without it they are left out.
`--learners` and `--streams` choose some.
"""

import argparse
import pickle
import time
import warnings

import numpy as np
from long_data import LABELS, fetched
from river import datasets, forest, linear_model, multiclass, naive_bayes, neighbors, tree
from river.preprocessing import StandardScaler
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import orfit
from orfit.river import ORFitClassifier
from orfit.sklearn import ORFitClassifier as SklearnClassifier

RELU = {"features": "relu", "n_components": 1000}
LEARNERS = {
    "ORFit": ORFitClassifier,
    "ORFit, relu, 1,000": lambda: ORFitClassifier(**RELU),
    "ORFit, relu, 1,000, memory=200": lambda: ORFitClassifier(memory=200, **RELU),
    "ORFit, fourier": lambda: ORFitClassifier(features="fourier"),
    "ORFit, λ auto": lambda: ORFitClassifier(forgetting="auto"),
    "linear": lambda: (
        StandardScaler() | multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    ),
    "GaussianNB": naive_bayes.GaussianNB,
    "HoeffdingAdaptiveTree": lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0),
    "KNN, with a scaler": lambda: StandardScaler() | neighbors.KNNClassifier(),
    "ARF": lambda: forest.ARFClassifier(seed=0),
}


class Partial:
    """An estimator of scikit-learn in river's form: `partial_fit` of one row."""

    def __init__(self, model):
        self.model = model

    def learn_one(self, x, y):
        self.model.partial_fit([[*x.values()]], [y])

    def predict_one(self, x):
        try:
            return self.model.predict([[*x.values()]])[0]
        except NotFittedError:
            return None

    @property
    def _raw_memory_usage(self):
        return len(pickle.dumps(self.model))


LEARNERS |= {
    "ORFit in scikit-learn": lambda: Partial(SklearnClassifier()),
}


def streams(data=None):
    if data is not None:
        for name, path in fetched(data, LABELS).items():
            table = np.loadtxt(path, delimiter=",", skiprows=1)
            X, y = table[:, :-1].tolist(), table[:, -1].astype(int).tolist()
            yield name, [(dict(enumerate(x)), one) for x, one in zip(X, y, strict=True)]
    yield "Phishing", list(datasets.Phishing())
    yield "ImageSegments", list(datasets.ImageSegments())
    X, y = load_digits(return_X_y=True)
    orders = np.random.default_rng(0).permutation(len(y)), np.argsort(y, kind="stable")
    for name, order in zip(("digits, shuffled", "digits, sorted by class"), orders, strict=True):
        yield name, [(dict(enumerate(X[i].tolist())), int(y[i])) for i in order]


def main():
    warnings.simplefilter("ignore")
    orfit.warm_up()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--learners", nargs="+", default=[*LEARNERS], choices=[*LEARNERS])
    parser.add_argument("--streams", nargs="+")
    told = parser.parse_args()
    for stream, rows in streams(told.data):
        if told.streams and stream not in told.streams:
            continue
        asked = rows[::5]
        learned = [row for i, row in enumerate(rows) if i % 5]
        for name in told.learners:
            make = LEARNERS[name]
            model, right, start = make(), 0, time.process_time()
            for x, y in learned:
                right += model.predict_one(x) == y
                model.learn_one(x, y)
            a_row = 1e6 * (time.process_time() - start) / len(learned)
            at_the_end = np.mean([model.predict_one(x) == y for x, y in asked])
            shares = f"{100 * right / len(learned):5.1f} · {100 * at_the_end:5.1f} %"
            size = f"{model._raw_memory_usage / 1e3:7.0f} kB"
            print(f"{stream:24} {name:31} {shares} {a_row:7.0f} µs {size}", flush=True)


if __name__ == "__main__":
    main()
