"""Learn classes one after another, and measure the accuracy on each after each."""

from typing import Any

import numpy as np

from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

CLASSES = 10


def learn_by_class(learn: Any, predict: Any, train: Any, test: Any, advance: Advance) -> Array:
    """Return the accuracy after each class on each class, (10, 10).

    Args:
        learn: called with the images and one-hot labels of each class.
        predict: called with the test images, returns scores (n, 10).
        train: images and classes.
        test: images and classes.
        advance: advances the progress bar.
    """
    (X, classes), (X_test, classes_test) = train, test
    accuracy = np.empty((CLASSES, CLASSES))
    for stage in range(CLASSES):
        chosen = classes == stage
        learn(X[chosen], np.eye(CLASSES)[classes[chosen]])
        predicted = predict(X_test).argmax(axis=1)
        for digit in range(CLASSES):
            accuracy[stage, digit] = (predicted[classes_test == digit] == digit).mean()
        advance()
    return accuracy


def add_accuracy(curves: Curves, method: str, accuracy: Array) -> None:
    """Store an accuracy matrix, and its columns as curves."""
    curves.extras[method] = accuracy
    for digit in range(CLASSES):
        stages = np.arange(1, CLASSES + 1)
        curves.add(method, f"accuracy_{digit}", stages, accuracy[None, :, digit])


def draw_matrices(axes: Any, accuracies: dict[str, Array], figure: Any) -> None:
    """Draw one panel for each title: stages down, classes across, classes not yet learned white."""
    panels = np.atleast_2d(axes)
    for axis, (title, accuracy) in zip(panels.flat, accuracies.items(), strict=True):
        learned = np.where(np.tri(CLASSES, dtype=bool), 100 * accuracy, np.nan)
        image = axis.imshow(learned, vmin=0, vmax=100, cmap="viridis")
        axis.set_title(title, fontsize=9)
        axis.set_xticks(range(CLASSES))
        axis.set_yticks(range(CLASSES))
    for axis in panels[-1]:
        axis.set_xlabel("tested on class")
    for axis in panels[:, 0]:
        axis.set_ylabel("after learning class")
    figure.colorbar(image, ax=axes, label="test accuracy (%)", shrink=0.8)
