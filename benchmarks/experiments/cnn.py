"""A convolutional network with batch norm on rotated digits, in one pass.

As networks come: convolutions, batch norm, ReLU, a linear layer. Five tasks of turned digits come
one after another. A memory for each layer uses batch norm by its running statistics;
they are taken, without labels, from the first images of the first task, and stay. SGD is shown with
the same statistics, and in training mode, where each batch is normalised by itself and the running
statistics follow.

In curves.csv `step` is how many tasks have been learned.
"""

from dataclasses import dataclass
from typing import Any

import tasks
from by_class import CLASSES
from rotated20 import Rotated
from tasks import Descent, EachLayer, Entry, Shown, Tasks

from orfit.reproduce.report import Advance, Curves

TITLE = "A CNN with batch norm on rotated digits, task after task, in one pass"


@dataclass(frozen=True)
class Settings(Tasks):
    tasks: int = 5
    rows: int = 2000
    block: int = 10
    channels: int = 16  # of the first layer; the next two have twice as many
    settling: int = 500  # images from which batch norm's statistics are taken
    lr: float = 0.01  # of SGD


QUICK = {
    "tasks": 3, "rows": 300, "bundled": True, "channels": 8, "every": 200, "lr": 0.03, "runs": 1,
}  # fmt: skip

ENTRIES = {
    "sgd": Entry("SGD, statistics that follow", "tab:brown"),
    "sgd-fixed": Entry("SGD, statistics that stay", "tab:orange"),
    "input": Entry("a memory for each layer, input side", "tab:cyan"),
    "layers": Entry("a memory for each layer", "tab:blue"),
}


def network(settings: Settings, shown: Shown) -> Any:
    """Three convolutions with batch norm, each halving the sides, and a linear layer."""
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
        norm.momentum = 1.0  # take the statistics as they are
    with torch.no_grad():
        module.train()(shown.show(shown.images[: settings.settling], 0))
    for norm in norms:
        norm.momentum = 0.1
    return module


def learner(method: str, settings: Settings, shown: Shown) -> Any:
    module = network(settings, shown)
    if method.startswith("sgd"):
        return Descent(module, settings.lr, training=method == "sgd")
    return EachLayer(module, settings, "input" if method == "input" else "both")


def count_steps(settings: Settings) -> int:
    return tasks.count_steps(ENTRIES, settings)


def run(settings: Settings, advance: Advance) -> Curves:
    return tasks.run_all(ENTRIES, settings, Rotated, learner, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [tasks.make_table(curves, ENTRIES, _name, [])]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return tasks.draw_figure(curves, ENTRIES, _name, [])


def _name(entry: Entry) -> str:
    return entry.name
