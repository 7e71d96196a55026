"""Split MNIST, class-incremental: two new classes at a time, in one pass.

First zeros and ones, then twos and threes, and so on. Each image is learned once, and the test has
all classes learned so far. `orfit.Heads` on pixels with its defaults, with and without random
features, is compared with other learners that store no images.

In curves.csv `step` is how many pairs of classes have been learned.
"""

from dataclasses import dataclass
from typing import Any

import class_learners
import numpy as np
from class_learners import ClassSettings, Data

from orfit import datasets
from orfit.reproduce.report import Advance, Curves

TITLE = "Split MNIST, two new classes at a time, in one pass"
PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


@dataclass(frozen=True)
class Settings(ClassSettings):
    images: int = 60_000  # training images; all test images are used


QUICK = {"images": 1500, "bundled": True, "m": 60, "few": 20, "expand": 300, "runs": 1}


def load_digits(settings: Any) -> Data:
    """Return images as rows of pixels in [0, 1]."""
    data = datasets.mnist_sample() if settings.bundled else datasets.mnist()

    def flatten(images: Any) -> Any:
        return images.reshape(len(images), -1).astype(np.float32) / 255

    chosen = np.random.default_rng(settings.seed).permutation(len(data.train_labels))
    chosen = chosen[: settings.images]
    labels = data.train_labels[chosen].astype(int), data.test_labels.astype(int)
    return Data(flatten(data.train_images[chosen]), labels[0], flatten(data.test_images), labels[1])


def count_steps(settings: Settings) -> int:
    return class_learners.count_steps(settings, len(PAIRS))


def run(settings: Settings, advance: Advance) -> Curves:
    return class_learners.run_learners(settings, load_digits(settings), PAIRS, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [class_learners.make_table(curves, settings)]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return class_learners.draw_figure(curves, settings, "pairs of classes learned")
