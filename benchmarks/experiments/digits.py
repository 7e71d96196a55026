"""Handwritten digits, one class after another, in one pass.

The digits of scikit-learn (1,797 images of 8×8 pixels) with 500 random ReLU features and ten heads,
one for each class, with one-hot labels. All zeros arrive first, then all ones, and so on. Each
image is learned once. After each class the accuracy on every class is measured.

In curves.csv `step` is the number of classes learned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from class_incremental import CLASSES, add_accuracy, draw_matrices, learn_by_class

import orfit
from orfit.measures import forgetting
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Digits, one class after another, in one pass"


@dataclass(frozen=True)
class Settings:
    features: int = 500
    test_share: float = 0.3
    seed: int = 0  # of the features and the choice of test images
    noise: float = 3.0  # the variance of labels around a linear fit; the prior on the weights is 1
    lr: float = 1e-3  # of SGD; 1e-5 to 3e-3 give the same result, with 1e-2 it diverges


QUICK = {"features": 200}

NAMES = {
    "rls": "RLS",
    "orfit-150": "ORFit, m = 150",
    "orfit-50": "ORFit, m = 50",
    "one-step-sgd": "One-Step SGD",
    "sgd": "SGD",
}


def make_learners(settings: Settings, model: orfit.Linear) -> dict[str, Any]:
    return {
        "rls": orfit.RLS(model, prior=settings.noise),
        "orfit-150": orfit.ORFit(model, 150, noise=settings.noise),
        "orfit-50": orfit.ORFit(model, 50, noise=settings.noise),
        "one-step-sgd": orfit.OneStepSGD(model),
        "sgd": orfit.SGD(model, lr=settings.lr),
    }


def make_random_features(inputs: int, size: int, seed: int) -> Callable[[Array], Array]:
    """Return the map X → relu(A x + b) with random A and b."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((inputs, size)) / np.sqrt(inputs)
    b = rng.standard_normal(size) / np.sqrt(inputs)
    return lambda X: np.maximum(X @ A + b, 0)


def load_digits(settings: Settings) -> tuple[Array, Array, Array, Array]:
    """Return training images and classes, ordered by class, then test images and classes."""
    from sklearn.datasets import load_digits as bundled

    images, classes = bundled(return_X_y=True)
    images = (images - images.mean()) / images.std()
    order = np.random.default_rng(settings.seed).permutation(len(images))
    cut = int(settings.test_share * len(images))
    test, train = order[:cut], order[cut:]
    train = train[np.argsort(classes[train], kind="stable")]
    return images[train], classes[train], images[test], classes[test]


def count_steps(settings: Settings) -> int:
    return len(NAMES) * CLASSES


def run(settings: Settings, advance: Advance) -> Curves:
    data = load_digits(settings)
    features = make_random_features(data[0].shape[1], settings.features, settings.seed)
    model = orfit.Linear(settings.features, heads=CLASSES, features=features)
    curves = Curves()
    for method, learner in make_learners(settings, model).items():
        accuracy = learn_by_class(learner.learn_each, learner.predict, data[:2], data[2:], advance)
        add_accuracy(curves, method, accuracy)
    return curves


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    rows = []
    for method, accuracy in curves.extras.items():
        cells = [f"{100 * a:.0f}" for a in accuracy[-1]]
        total = f"{100 * accuracy[-1].mean():.1f}"
        rows.append([NAMES[method], *cells, total, f"{100 * forgetting(accuracy):.1f}"])
    columns = ["learner", *map(str, range(CLASSES)), "all", "forgotten"]
    title = (
        "Accuracy on every class after all ten were learned in one pass (%)\n"
        "forgotten: mean decrease of the accuracy on a class (points)"
    )
    return [report.make_table(title, columns, rows)]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, axes = report.make_panels(len(NAMES), 2.6, 3.5)
    titles = {
        f"{NAMES[method]}\n{100 * accuracy[-1].mean():.1f} % at the end": accuracy
        for method, accuracy in curves.extras.items()
    }
    draw_matrices(axes, titles, figure)
    figure.suptitle(
        "Digits learned class after class, in one pass (dark: forgotten; white: not yet learned)"
    )
    return figure
