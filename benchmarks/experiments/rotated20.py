"""Rotated MNIST: twenty tasks, one after another, in one pass.

Each task is MNIST turned by an angle of its own, drawn from 0 to 180 degrees. A network
784-100-100-10 with biases sees every image of a task once. Nobody is told where a task ends, and no
image is kept.

In curves.csv `step` is how many tasks have been learned.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tasks
from by_class import CLASSES
from scipy import ndimage, sparse
from tasks import Descent, EachLayer, Entry, Shown, Tasks

from orfit.door import Array
from orfit.reproduce.report import Advance, Curves

TITLE = "Rotated MNIST in twenty tasks, one after another, in one pass"


@dataclass(frozen=True)
class Settings(Tasks):
    tasks: int = 20
    rows: int = 10_000
    width: int = 100  # of the two hidden layers
    lr: float = 0.01  # of SGD
    joint_lr: float = 0.05  # of SGD on all tasks mixed, falling to 0


QUICK = {
    "tasks": 4, "rows": 500, "bundled": True, "width": 30, "every": 200, "lr": 0.1,
    "joint_lr": 0.2, "runs": 1,
}  # fmt: skip

ENTRIES = {
    "sgd": Entry("SGD", "tab:brown"),
    "input": Entry("a memory for each layer, input side", "tab:cyan"),
    "layers": Entry("a memory for each layer", "tab:blue"),
    "sgd-mixed": Entry("SGD, all tasks mixed", "tab:gray", mixed=True),
}
# Dark Experience Replay++ (Buzzega et al., 2020): 20 tasks of 60,000 images, one epoch, a network
# of this size, and 200 images that are kept and learned again. Quoted, not measured here.
REPLAY = ("DER++, 200 images kept (published)", 90.4)


class Rotated(Shown):
    """The angle of each task. To turn an image is linear in its pixels, a sparse matrix."""

    def __init__(self, settings: Tasks) -> None:
        super().__init__(settings)
        angles = np.random.default_rng(settings.seed).uniform(0, 180, settings.tasks)
        self.maps = [turning(angle) for angle in angles]

    def turn(self, images: Array, task: int) -> Array:
        turned = (self.maps[task] @ images.T.astype(np.float32)).T
        return np.asarray(np.rint(turned), np.uint8)


def turning(angle: float) -> Any:
    """The matrix that turns 28×28 pixels counter-clockwise, with zeros outside."""
    one_each = np.eye(784, dtype=np.float32).reshape(-1, 28, 28)
    turned = [ndimage.rotate(one, angle, reshape=False, order=1) for one in one_each]
    return sparse.csr_array(np.reshape(turned, (784, 784)).T)


def network(settings: Settings) -> Any:
    """784-w-w-10 with ReLU, as torch initialises it."""
    import torch
    from torch import nn

    torch.manual_seed(settings.seed)
    sizes = (784, settings.width, settings.width, CLASSES)
    first, second, last = (nn.Linear(a, b) for a, b in pairwise(sizes))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


def learner(method: str, settings: Settings, shown: Shown) -> Any:
    module = network(settings)
    if method == "sgd-mixed":
        return Descent(module, settings.joint_lr, settings.tasks * settings.rows)
    if method == "sgd":
        return Descent(module, settings.lr)
    return EachLayer(module, settings, "input" if method == "input" else "both")


def count_steps(settings: Settings) -> int:
    return tasks.count_steps(ENTRIES, settings)


def run(settings: Settings, advance: Advance) -> Curves:
    return tasks.run_all(ENTRIES, settings, Rotated, learner, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [tasks.make_table(curves, ENTRIES, _name, _published(settings))]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return tasks.draw_figure(curves, ENTRIES, _name, _published(settings))


def _name(entry: Entry) -> str:
    return entry.name


def _published(settings: Settings) -> list[tuple[str, float]]:
    """The published figure, where it is of the same network and tasks."""
    same = not settings.bundled and (settings.tasks, settings.width) == (20, 100)
    return [REPLAY] if same else []
