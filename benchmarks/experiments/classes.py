"""Ten classes of MNIST, one after another, in one pass.

All zeros arrive first, then all ones, and so on, in small blocks that are learned once. ORFit with
m directions, and other learners with the same memory, learn random ReLU features with ten heads;
ORFit also learns the tangent model of a network 784-100-100-10. Labels are one-hot. After each
class the accuracy on every class is measured. The reference is ridge regression on all data, which
equals exact RLS.

In curves.csv `step` is the number of classes learned.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from class_incremental import CLASSES, add_accuracy, draw_matrices, learn_by_class
from digits import make_random_features

import orfit
from orfit import datasets
from orfit.measures import backward_transfer, forgetting
from orfit.memory import FrequentDirections, Principal, Sketch
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Ten classes of MNIST, one after another, in one pass"


@dataclass(frozen=True)
class Settings:
    images: int = 10_000  # training images, drawn at random; all test images are used
    bundled: bool = False  # use the sample of 1,500 images in the package
    features: int = 2000
    m: int = 300
    few: int = 100  # m of a second ORFit
    noise: float = 1000.0  # R, against a prior of 1 on the weights
    block: int = 100  # images in a block
    lr: float = 1e-5  # of SGD on each block; with larger ones it forgets more
    ogd_lr: float = 1e-3  # of OGD; with 2e-3 it diverges
    steps: int = 50  # of OGD on each block; with fewer it fits less
    width: int = 100  # of the network's two hidden layers
    tangent_images: int = 2000  # training images for the network, which is slow
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

    def select(self, count: int) -> "Data":
        """Return the data with `count` training images, evenly spaced and in order."""
        chosen = np.linspace(0, len(self.X) - 1, min(count, len(self.X))).astype(int)
        return Data(self.X[chosen], self.classes[chosen], self.X_test, self.classes_test)


def load_ordered_mnist(settings: Settings) -> Data:
    """Return standardised images as rows; training images are ordered by class."""
    data = datasets.mnist_sample() if settings.bundled else datasets.mnist()
    rng = np.random.default_rng(settings.seed)
    chosen = rng.permutation(len(data.train_images))[: settings.images]
    chosen = chosen[np.argsort(data.train_labels[chosen], kind="stable")]

    def standardise(images: Array) -> Array:
        return np.asarray((images.reshape(len(images), -1) / 255 - 0.1307) / 0.3081)

    labels = data.train_labels[chosen].astype(int), data.test_labels.astype(int)
    return Data(
        standardise(data.train_images[chosen]), labels[0], standardise(data.test_images), labels[1]
    )


def make_learners(settings: Settings) -> dict[str, Any]:
    """Return the learners of ten heads on random features."""
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


def make_tangent_learner(settings: Settings) -> Any:
    """Return ORFit on the tangent model of a network with ten outputs."""
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
    data = load_ordered_mnist(settings)
    features = make_random_features(data.X.shape[1], settings.features, settings.seed)
    curves = Curves()
    featured = Data(features(data.X), data.classes, features(data.X_test), data.classes_test)
    for method, learner in make_learners(settings).items():
        add_accuracy(curves, method, measure_learner(learner, featured, settings.block, advance))
    few = data.select(settings.tangent_images)
    network = make_tangent_learner(settings)
    add_accuracy(curves, "tangent", measure_learner(network, few, settings.tangent_block, advance))
    curves.extras["ridge"] = np.array(
        [measure_ridge(featured, R) for R in (settings.noise, *RIDGES)]
    )
    return curves


RIDGES = (0.1, 1.0, 10.0, 100.0)  # the best of these is chosen on the test images


def measure_ridge(data: Data, noise: float) -> float:
    """Return the accuracy of ridge regression on all data."""
    gram = data.X.T @ data.X + noise * np.eye(data.X.shape[1])
    w = np.linalg.solve(gram, data.X.T @ np.eye(CLASSES)[data.classes])
    return float(((data.X_test @ w).argmax(axis=1) == data.classes_test).mean())


def measure_learner(learner: Any, data: Data, block: int, advance: Advance) -> Array:
    """Return the accuracy after each class, learned in blocks, on each class: (10, 10)."""

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
        rows.append([_format_name(name, method, settings), *[f"{100 * x:.1f}" for x in numbers]])
    same, *others = curves.extras["ridge"]
    best = int(np.argmax(others))
    rows.append(["ridge on all data, same R", f"{100 * same:.1f}", "", ""])
    rows.append([f"the same, R = {RIDGES[best]:g}", f"{100 * others[best]:.1f}", "", ""])
    columns = ["learner", "accuracy", "backward transfer", "forgotten"]
    return [
        report.make_table(
            "Final accuracy on all classes (%), backward transfer and forgetting (points)",
            columns,
            rows,
        )
    ]


def _format_name(name: str, method: str, settings: Settings) -> str:
    if method in ("rls", "sgd"):
        return name
    return f"{name}, m = {settings.few if method == 'orfit-few' else settings.m}"


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, axes = report.make_panels(len(NAMES) // 2, 2.9, 3.3, rows=2)
    titles = {}
    for method, name in NAMES.items():
        accuracy = curves.extras[method]
        title = _format_name(name, method, settings).replace(", ", "\n", 1)
        titles[f"{title}\n{100 * accuracy[-1].mean():.1f} %"] = accuracy
    draw_matrices(axes, titles, figure)
    return figure
