"""The classes of docs/river.md: orfit.river beside what river has, as they come, on four streams.

Of each five rows four are predicted, then learned; the fifth is asked about at the end.
"""

import time
import warnings

import numpy as np
from river import datasets, forest, linear_model, multiclass, naive_bayes, neighbors, tree
from river.preprocessing import StandardScaler
from sklearn.datasets import load_digits

import orfit
from orfit.river import ORFitClassifier

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


def streams():
    yield "Phishing", list(datasets.Phishing())
    yield "ImageSegments", list(datasets.ImageSegments())
    X, y = load_digits(return_X_y=True)
    orders = np.random.default_rng(0).permutation(len(y)), np.argsort(y, kind="stable")
    for name, order in zip(("digits, shuffled", "digits, sorted by class"), orders, strict=True):
        yield name, [(dict(enumerate(X[i].tolist())), int(y[i])) for i in order]


def main():
    warnings.simplefilter("ignore")
    orfit.warm_up()
    for stream, rows in streams():
        asked = rows[::5]
        learned = [row for i, row in enumerate(rows) if i % 5]
        for name, make in LEARNERS.items():
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
