"""Ten classes, one after another, in one pass: who still knows the first ones?

MNIST, all zeros first, then all ones, and so on, in small blocks that are seen once. Random ReLU
features with ten heads, learned by ORFit with m directions and by others with the same memory; and
a network 784-100-100-10 on its tangent. Labels are one-hot, noise R lets them be fitted softly.
After each class the accuracy on every class is measured. Ridge regression on all data at once,
which exact RLS equals, is what can be had at best with these features.

In curves.csv `step` is how many classes have been learned.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from by_class import CLASSES, draw, learn_by_class, note
from digits import random_features

import orfit
from orfit import datasets
from orfit.door import Array
from orfit.measures import backward_transfer, forgetting
from orfit.memory import FrequentDirections, Principal, Sketch
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves

TITLE = "Ten classes of MNIST, one after another, in one pass"


@dataclass(frozen=True)
class Settings:
    images: int = 10_000  # training images, drawn at random; all test images are used
    bundled: bool = False  # take the sample of 1,500 that comes with the package
    features: int = 2000
    m: int = 300
    few: int = 100  # the m of one more ORFit
    noise: float = 1000.0  # R, against a prior of 1 on the weights
    block: int = 100  # images learned at once
    lr: float = 1e-5  # of SGD on each block: larger ones forget more
    ogd_lr: float = 1e-3  # of OGD: with 2e-3 it diverges
    steps: int = 50  # of OGD on each block: fewer fit less
    width: int = 100  # of the network's two hidden layers
    tangent_images: int = 2000  # training images for the network, which takes longer
    tangent_noise: float = 10.0
    tangent_block: int = 20
    seed: int = 0


QUICK = {
    "images": 600, "bundled": True, "features": 300, "m": 60, "few": 20, "noise": 30.0,
    "tangent_images": 200, "width": 20, "steps": 10,
}  # fmt: skip

NAMES = {
    "rls": "RLS, exact",
    "orfit": "ORFit",
    "orfit-few": "ORFit, few",
    "orfit-frequent": "ORFit, frequent directions",
    "orfit-sketch": "ORFit, sketch",
    "ogd": "OGD",
    "sgd": "SGD",
    "tangent": "ORFit, tangent network",
}


@dataclass(frozen=True)
class Data:
    X: Array
    classes: Array
    X_test: Array
    classes_test: Array

    def part(self, count: int) -> "Data":
        """So many of the training images, in order."""
        chosen = np.linspace(0, len(self.X) - 1, min(count, len(self.X))).astype(int)
        return Data(self.X[chosen], self.classes[chosen], self.X_test, self.classes_test)


def ordered_mnist(settings: Settings) -> Data:
    """Images as rows, standardised; training images ordered by class."""
    data = datasets.mnist_sample() if settings.bundled else datasets.mnist()
    rng = np.random.default_rng(settings.seed)
    chosen = rng.permutation(len(data.train_images))[: settings.images]
    chosen = chosen[np.argsort(data.train_labels[chosen], kind="stable")]

    def rows(images: Array) -> Array:
        return np.asarray((images.reshape(len(images), -1) / 255 - 0.1307) / 0.3081)

    labels = data.train_labels[chosen].astype(int), data.test_labels.astype(int)
    return Data(rows(data.train_images[chosen]), labels[0], rows(data.test_images), labels[1])


def learners(settings: Settings) -> dict[str, Any]:
    """Those that learn ten heads on random features."""
    model = orfit.Linear(settings.features, heads=CLASSES)
    m, noise = settings.m, settings.noise
    return {
        "rls": orfit.RLS(model, prior=noise),
        "orfit": orfit.ORFit(model, Principal(m), noise=noise),
        "orfit-few": orfit.ORFit(model, settings.few, noise=noise),
        "orfit-frequent": orfit.ORFit(model, FrequentDirections(m), noise=noise),
        "orfit-sketch": orfit.ORFit(model, Sketch(m), noise=noise),
        "ogd": orfit.OGD(model, m, lr=settings.ogd_lr, steps=settings.steps),
        "sgd": orfit.SGD(model, lr=settings.lr),
    }


def tangent_network(settings: Settings) -> Any:
    """ORFit on the tangent of a network, all ten outputs."""
    import torch
    from torch import nn

    torch.manual_seed(settings.seed)
    w = settings.width
    layers = nn.Linear(784, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, CLASSES)
    model = orfit.TorchModel(nn.Sequential(*layers), tangent=True)
    return orfit.ORFit(model, settings.m, noise=settings.tangent_noise)


def count_steps(settings: Settings) -> int:
    return len(NAMES) * CLASSES


def run(settings: Settings, advance: Advance) -> Curves:
    data = ordered_mnist(settings)
    features = random_features(data.X.shape[1], settings.features, settings.seed)
    curves = Curves()
    featured = Data(features(data.X), data.classes, features(data.X_test), data.classes_test)
    for method, learner in learners(settings).items():
        note(curves, method, learned_by_class(learner, featured, settings.block, advance))
    few = data.part(settings.tangent_images)
    network = tangent_network(settings)
    note(curves, "tangent", learned_by_class(network, few, settings.tangent_block, advance))
    curves.extras["ridge"] = np.array([ridge(featured, R) for R in (settings.noise, *RIDGES)])
    return curves


RIDGES = (0.1, 1.0, 10.0, 100.0)  # among which the best is looked for, on the test images


def ridge(data: Data, noise: float) -> float:
    """The accuracy of ridge regression on all data at once."""
    gram = data.X.T @ data.X + noise * np.eye(data.X.shape[1])
    w = np.linalg.solve(gram, data.X.T @ np.eye(CLASSES)[data.classes])
    return float(((data.X_test @ w).argmax(axis=1) == data.classes_test).mean())


def learned_by_class(learner: Any, data: Data, block: int, advance: Advance) -> Array:
    """Accuracy after each class, learned in blocks, on each class: (10, 10)."""

    def learn(X: Array, Y: Array) -> None:
        for start in range(0, len(X), block):
            learner.learn_batch(X[start : start + block], Y[start : start + block])

    train, test = (data.X, data.classes), (data.X_test, data.classes_test)
    return learn_by_class(learn, learner.predict, train, test, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    rows = []
    for method, name in NAMES.items():
        accuracy = curves.extras[method]
        numbers = accuracy[-1].mean(), backward_transfer(accuracy), forgetting(accuracy)
        rows.append([_named(name, method, settings), *[f"{100 * x:.1f}" for x in numbers]])
    same, *others = curves.extras["ridge"]
    best = int(np.argmax(others))
    rows.append(["ridge on all data at once, same R", f"{100 * same:.1f}", "", ""])
    rows.append([f"the same, R = {RIDGES[best]:g}", f"{100 * others[best]:.1f}", "", ""])
    columns = ["learner", "accuracy", "backward transfer", "forgotten"]
    return [report.make_table("In the end, on all classes (%, and points)", columns, rows)]


def _named(name: str, method: str, settings: Settings) -> str:
    if method in ("rls", "sgd"):
        return name
    return f"{name}, m = {settings.few if method == 'orfit-few' else settings.m}"


def draw_figure(curves: Curves, settings: Settings) -> Any:
    made, axes = report.make_panels(len(NAMES) // 2, 2.9, 3.3, rows=2)
    titles = {}
    for method, name in NAMES.items():
        accuracy = curves.extras[method]
        title = _named(name, method, settings).replace(", ", "\n", 1)
        titles[f"{title}\n{100 * accuracy[-1].mean():.1f} %"] = accuracy
    draw(axes, titles, made)
    return made
