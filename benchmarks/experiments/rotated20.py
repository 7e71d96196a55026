"""Rotated MNIST: twenty tasks, one after another, in one pass.

Each task is MNIST rotated by an angle of its own, drawn from 0 to 180 degrees. A network
784-100-100-10 with biases learns every image of a task once. No learner uses the boundaries between
tasks or stores images.

In curves.csv `step` is how many tasks have been learned.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tasks
from class_incremental import CLASSES
from scipy import ndimage, sparse
from tasks import Entry, PerLayerLearner, SgdLearner, TaskData, Tasks

from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Rotated MNIST in twenty tasks, one after another, in one pass"


@dataclass(frozen=True)
class Settings(Tasks):
    tasks: int = 20
    rows: int = 10_000
    width: int = 100  # of the two hidden layers
    lr: float = 0.01  # of SGD
    joint_lr: float = 0.05  # of SGD on all tasks mixed, decaying to 0


QUICK = {
    "tasks": 4, "rows": 500, "bundled": True, "width": 30, "lr": 0.1,
    "joint_lr": 0.2, "runs": 1,
}  # fmt: skip

ENTRIES = {
    "sgd": Entry("SGD", "tab:brown"),
    "layers": Entry("a memory for each layer", "tab:blue"),
    "sgd-mixed": Entry("SGD, all tasks mixed", "tab:gray", mixed=True),
}
# Dark Experience Replay++ (Buzzega et al., 2020): 20 tasks of 60,000 images, one epoch, a network
# of this size, and 200 images stored and replayed. Quoted, not measured here.
REPLAY = ("DER++, 200 images stored (published)", 90.4)


class Rotated(TaskData):
    """MNIST rotated by another angle in each task. A rotation is a sparse matrix."""

    def __init__(self, settings: Tasks) -> None:
        super().__init__(settings)
        angles = np.random.default_rng(settings.seed).uniform(0, 180, settings.tasks)
        self.maps = [make_rotation(angle) for angle in angles]

    def transform(self, images: Array, task: int) -> Array:
        rotated = (self.maps[task] @ images.T.astype(np.float32)).T
        return np.asarray(np.rint(rotated), np.uint8)


def make_rotation(angle: float) -> Any:
    """Return the matrix that rotates 28×28 pixels counter-clockwise, with zeros outside."""
    units = np.eye(784, dtype=np.float32).reshape(-1, 28, 28)
    rotated = [ndimage.rotate(unit, angle, reshape=False, order=1) for unit in units]
    return sparse.csr_array(np.reshape(rotated, (784, 784)).T)


def make_network(settings: Settings) -> Any:
    """Return a network 784-w-w-10 with ReLU, initialised by torch."""
    import torch
    from torch import nn

    torch.manual_seed(settings.seed)
    sizes = (784, settings.width, settings.width, CLASSES)
    first, second, last = (nn.Linear(a, b) for a, b in pairwise(sizes))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


def make_learner(method: str, settings: Settings, data: TaskData) -> Any:
    module = make_network(settings)
    if method == "sgd-mixed":
        return SgdLearner(module, settings.joint_lr, settings.tasks * settings.rows)
    if method == "sgd":
        return SgdLearner(module, settings.lr)
    return PerLayerLearner(module, settings)


def count_steps(settings: Settings) -> int:
    return tasks.count_steps(ENTRIES, settings)


def run(settings: Settings, advance: Advance) -> Curves:
    return tasks.run_methods(ENTRIES, settings, Rotated, make_learner, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [tasks.make_table(curves, ENTRIES, _get_name, _list_published(settings))]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return tasks.draw_figure(curves, ENTRIES, _get_name, _list_published(settings))


def _get_name(entry: Entry) -> str:
    return entry.name


def _list_published(settings: Settings) -> list[tuple[str, float]]:
    """Return the published accuracy, where network and tasks are the same."""
    same = not settings.bundled and (settings.tasks, settings.width) == (20, 100)
    return [REPLAY] if same else []
