"""Handwritten digits, one class after another, in one pass: who still knows the first ones?

scikit-learn's bundled digits (1,797 images of 8×8), 500 random ReLU features and ten heads, one
for each class, with one-hot labels. All zeros arrive first, then all ones, and so on; no image is
seen twice. After each class, accuracy on the test images of every class is measured.

Run it with `python -m orfit.experiments.digits`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import orfit
from orfit.door import Array

CLASSES = 10
FEATURES = 500
TEST_SHARE = 0.3
SEED = 0

NOISE = 3.0  # the variance of labels around a linear fit, against a prior of 1 on the weights
SGD_STEP = 1e-3  # 1e-5 to 3e-3 end alike; with 1e-2 it diverges

LEARNERS: dict[str, Callable[[orfit.Linear], Any]] = {
    "RLS": lambda model: orfit.RLS(model, prior=NOISE),
    "ORFit, m = 150": lambda model: orfit.ORFit(model, 150, noise=NOISE),
    "ORFit, m = 50": lambda model: orfit.ORFit(model, 50, noise=NOISE),
    "One-Step SGD": orfit.OneStepSGD,
    "SGD": lambda model: orfit.SGD(model, lr=SGD_STEP),
}


def random_features(inputs: int, size: int, seed: int) -> Callable[[Array], Array]:
    """X → relu(A x + b) with A and b drawn once."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((inputs, size)) / np.sqrt(inputs)
    b = rng.standard_normal(size) / np.sqrt(inputs)
    return lambda X: np.maximum(X @ A + b, 0)


def load_digits() -> tuple[Array, Array, Array, Array]:
    """Training images and classes, ordered by class, then test images and classes."""
    from sklearn.datasets import load_digits as bundled

    images, classes = bundled(return_X_y=True)
    images = (images - images.mean()) / images.std()
    order = np.random.default_rng(SEED).permutation(len(images))
    cut = int(TEST_SHARE * len(images))
    test, train = order[:cut], order[cut:]
    train = train[np.argsort(classes[train], kind="stable")]
    return images[train], classes[train], images[test], classes[test]


def learn_by_class(learner: Any, data: tuple[Array, Array, Array, Array], tick: Any) -> Array:
    """Accuracy after each class, on each class: (10, 10)."""
    X, classes, X_test, classes_test = data
    accuracy = np.empty((CLASSES, CLASSES))
    for stage in range(CLASSES):
        now = classes == stage
        learner.learn_each(X[now], np.eye(CLASSES)[classes[now]])
        guess = learner.predict(X_test).argmax(axis=1)
        for digit in range(CLASSES):
            accuracy[stage, digit] = (guess[classes_test == digit] == digit).mean()
        tick()
    return accuracy


def forgetting(accuracy: Array) -> float:
    """How far a class fell from its best, on average over the classes but the last."""
    return float((accuracy.max(axis=0) - accuracy[-1])[:-1].mean())


def show_table(results: dict[str, Array]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title="Accuracy on every class, after all ten were learned in one pass (%)",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("learner", no_wrap=True)
    for digit in range(CLASSES):
        table.add_column(str(digit), justify="right", no_wrap=True)
    table.add_column("all", justify="right", style="bold", no_wrap=True)
    table.add_column("lost", justify="right", style="bold", no_wrap=True)
    for name, accuracy in results.items():
        cells = [f"{100 * a:.0f}" for a in accuracy[-1]]
        total = f"{100 * accuracy[-1].mean():.1f}"
        table.add_row(name, *cells, total, f"{100 * forgetting(accuracy):.1f}")
    console = Console()
    console.print(table)
    console.print("lost: how far a class fell from its best accuracy, on average (points)")


def draw(results: dict[str, Array], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(results), figsize=(2.6 * len(results), 3.5), layout="constrained", sharey=True
    )
    for axis, (name, accuracy) in zip(axes, results.items(), strict=True):
        # Classes that have not arrived yet have nothing to forget: left white.
        known = np.where(np.tri(CLASSES, dtype=bool), 100 * accuracy, np.nan)
        image = axis.imshow(known, vmin=0, vmax=100, cmap="viridis")
        axis.set_title(f"{name}\n{100 * accuracy[-1].mean():.1f} % in the end")
        axis.set_xlabel("tested on class")
        axis.set_xticks(range(CLASSES))
        axis.set_yticks(range(CLASSES))
    axes[0].set_ylabel("after learning class")
    figure.colorbar(image, ax=axes, label="test accuracy (%)", shrink=0.8)
    figure.suptitle(
        "Digits learned one class after another, in one pass: a dark column is forgotten"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(out: Path = Path("results/digits")) -> dict[str, Array]:
    from rich.progress import track

    data = load_digits()
    features = random_features(data[0].shape[1], FEATURES, SEED)
    bar = iter(track(range(len(LEARNERS) * CLASSES), description="learning digits", transient=True))
    results = {
        name: learn_by_class(
            make(orfit.Linear(FEATURES, heads=CLASSES, features=features)), data, lambda: next(bar)
        )
        for name, make in LEARNERS.items()
    }
    next(bar, None)
    show_table(results)
    draw(results, out / "forgetting.png")
    print(f"picture: {out / 'forgetting.png'}")
    return results


if __name__ == "__main__":
    main()
