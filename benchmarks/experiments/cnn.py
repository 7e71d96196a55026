"""A convolutional network with batch norm on rotated digits, in one pass.

The network has convolutions, batch norm, ReLU and a linear layer. It learns five tasks of rotated
digits. `orfit.PerLayer` uses fixed running statistics for batch norm, computed without labels from
the first images of the first task. SGD is measured with the same statistics, and in training mode,
where each batch is normalised by its own statistics and the running statistics are updated.

In curves.csv `step` is how many tasks have been learned.
"""

from dataclasses import dataclass
from typing import Any

import tasks
from class_incremental import CLASSES
from rotated20 import Rotated
from tasks import Entry, PerLayerLearner, SgdLearner, TaskData, Tasks

from orfit.reproduce.report import Advance, Curves

TITLE = "A CNN with batch norm on rotated digits, task after task, in one pass"


@dataclass(frozen=True)
class Settings(Tasks):
    tasks: int = 5
    rows: int = 2000
    block: int = 10
    channels: int = 16  # of the first layer; the next two have twice as many
    settling: int = 500  # images from which the statistics of batch norm are computed
    lr: float = 0.01  # of SGD


QUICK = {
    "tasks": 3, "rows": 300, "bundled": True, "channels": 8, "lr": 0.03, "runs": 1,
}  # fmt: skip

ENTRIES = {
    "sgd": Entry("SGD, statistics of the batch", "tab:brown"),
    "sgd-fixed": Entry("SGD, fixed statistics", "tab:orange"),
    "layers": Entry("a memory for each layer", "tab:blue"),
}


def make_network(settings: Settings, data: TaskData) -> Any:
    """Return three convolutions with stride 2 and batch norm, and a linear layer."""
    import torch
    from torch import nn

    torch.manual_seed(settings.seed)
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 28, 28))]
    before = 1
    for channels in (settings.channels, 2 * settings.channels, 2 * settings.channels):
        convolution = nn.Conv2d(before, channels, 3, stride=2, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
        before = channels
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * before, CLASSES))
    norms = [layer for layer in module if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0  # the running statistics become those of the next batch
    with torch.no_grad():
        module.train()(data.make_inputs(data.images[: settings.settling], 0))
    for norm in norms:
        norm.momentum = 0.1
    return module


def make_learner(method: str, settings: Settings, data: TaskData) -> Any:
    module = make_network(settings, data)
    if method.startswith("sgd"):
        return SgdLearner(module, settings.lr, training=method == "sgd")
    return PerLayerLearner(module, settings)


def count_steps(settings: Settings) -> int:
    return tasks.count_steps(ENTRIES, settings)


def run(settings: Settings, advance: Advance) -> Curves:
    return tasks.run_methods(ENTRIES, settings, Rotated, make_learner, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [tasks.make_table(curves, ENTRIES, _get_name, [])]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return tasks.draw_figure(curves, ENTRIES, _get_name, [])


def _get_name(entry: Entry) -> str:
    return entry.name
