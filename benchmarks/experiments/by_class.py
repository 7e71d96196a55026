"""Classes that arrive one after another: learn them, and show what is left of each."""

from typing import Any

import numpy as np

from orfit.door import Array
from orfit.reproduce.report import Advance, Curves

CLASSES = 10


def learn_by_class(learn: Any, predict: Any, train: Any, test: Any, advance: Advance) -> Array:
    """Accuracy after each class, on each class: (10, 10).

    learn(X, Y) is given all of a class, with one-hot labels; train and test: images and classes.
    """
    (X, classes), (X_test, classes_test) = train, test
    accuracy = np.empty((CLASSES, CLASSES))
    for stage in range(CLASSES):
        now = classes == stage
        learn(X[now], np.eye(CLASSES)[classes[now]])
        guess = predict(X_test).argmax(axis=1)
        for digit in range(CLASSES):
            accuracy[stage, digit] = (guess[classes_test == digit] == digit).mean()
        advance()
    return accuracy


def note(curves: Curves, method: str, accuracy: Array) -> None:
    """Keep what was measured, as a fact and as curves over the stages."""
    curves.extras[method] = accuracy
    for digit in range(CLASSES):
        stages = np.arange(1, CLASSES + 1)
        curves.add(method, f"accuracy_{digit}", stages, accuracy[None, :, digit])


def draw(axes: Any, accuracies: dict[str, Array], figure: Any) -> None:
    """One panel for each title: stages down, classes across; what has not arrived yet is white."""
    panels = np.atleast_2d(axes)
    for axis, (title, accuracy) in zip(panels.flat, accuracies.items(), strict=True):
        known = np.where(np.tri(CLASSES, dtype=bool), 100 * accuracy, np.nan)
        image = axis.imshow(known, vmin=0, vmax=100, cmap="viridis")
        axis.set_title(title, fontsize=9)
        axis.set_xticks(range(CLASSES))
        axis.set_yticks(range(CLASSES))
    for axis in panels[-1]:
        axis.set_xlabel("tested on class")
    for axis in panels[:, 0]:
        axis.set_ylabel("after learning class")
    figure.colorbar(image, ax=axes, label="test accuracy (%)", shrink=0.8)
