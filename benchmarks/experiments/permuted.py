"""Permuted MNIST: ten tasks, one after another, in one pass.

Each task is MNIST with its pixels in another order. A network 784-100-100-10 without biases sees
every image of a task once, then the next task comes; only OGD is told when. After each task the
accuracy on the test images of every task is measured.

To fit classes by squares, the output of a class is what it would cost, f = sqrt(−2 log softmax),
and is fitted to 0: f² / 2 is the cross-entropy, so noise 1 would be Bayes' rule, and one gradient
for each image is enough. ORFit keeps m directions of all parameters, or a memory for each layer
(`orfit.PerLayer`), which is cheap enough to see all images; the others see `few` of each task.

In curves.csv `step` is how many tasks have been learned.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tasks
from by_class import CLASSES
from tasks import SMALL, Descent, EachLayer, Entry, Shown, Tasks

import orfit
from orfit.door import Array
from orfit.reproduce.report import Advance, Curves

TITLE = "Permuted MNIST, task after task, in one pass"


@dataclass(frozen=True)
class Settings(Tasks):
    width: int = 100  # of the two hidden layers
    m: int = 100  # directions of ORFit
    kept: int = 100  # images of each task whose gradients OGD keeps, all of them
    flat_noise: float = 250.0  # R of ORFit with m directions: larger, as they span less
    tangent_noise: float = 30.0
    lr: float = 0.001  # of SGD: larger ones forget more
    few_lr: float = 0.03  # of SGD and OGD on few images
    joint_lr: float = 0.05  # of SGD on all tasks mixed, falling to 0


QUICK = {
    "tasks": 3, "rows": 1000, "few": 300, "bundled": True, "width": 30, "m": 30, "every": 200,
    "flat_noise": 30.0, "lr": 0.1, "few_lr": 0.1, "joint_lr": 0.2, "runs": 1,
}  # fmt: skip

ENTRIES = {
    "sgd-few": Entry("SGD", "tab:brown", few=True),
    "ogd": Entry("OGD", "tab:orange", few=True, once=True),
    "tangent": Entry("ORFit, m directions, tangent", "tab:purple", few=True, once=True),
    "orfit": Entry("ORFit, m directions", "tab:cyan", few=True, once=True),
    "layers-few": Entry("a memory for each layer", "tab:blue", few=True),
    "sgd": Entry("SGD", "tab:brown"),
    "sgd-mixed": Entry("SGD, all tasks mixed", "tab:gray", mixed=True),
    "layers": Entry("a memory for each layer", "tab:blue"),
}
# Gradient Projection Memory (Saha, Garg and Roy, 2021): the same network and number of tasks, one
# epoch. Quoted, not measured here.
GPM = ("GPM, one epoch, as published", 91.7)


class Permuted(Shown):
    """The order of pixels in each task."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        rng = np.random.default_rng(settings.seed)
        self.orders = [rng.permutation(784) for _ in range(settings.tasks)]

    def turn(self, images: Array, task: int) -> Array:
        return images[:, self.orders[task]]


def network(settings: Settings) -> Any:
    """784-w-w-10 with ReLU and no biases, as torch initialises it."""
    import torch
    from torch import nn

    torch.manual_seed(settings.seed)
    sizes = (784, settings.width, settings.width, CLASSES)
    first, second, last = (nn.Linear(a, b, bias=False) for a, b in pairwise(sizes))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


class AllTogether:
    """ORFit with m directions of all parameters, on what each class would cost."""

    def __init__(self, settings: Settings, tangent: bool) -> None:
        import torch
        from torch import nn

        class Cost(nn.Module):
            def forward(self, outputs: Any) -> Any:
                # Where a class is certain the cost is 0, and there a root has no slope.
                return torch.sqrt(1e-6 - 2 * torch.log_softmax(outputs, dim=1))

        costs = nn.Sequential(network(settings), Cost())
        model = orfit.TorchModel(costs, tangent=tangent, outputs="label", target=0.0)
        self.batch, self.numbers = settings.block, settings.m * model.size
        noise = settings.tangent_noise if tangent else settings.flat_noise
        self.learner = orfit.ORFit(model, settings.m, noise=noise)

    def learn(self, X: Any, classes: Any) -> None:
        self.learner.learn_batch(X, classes.numpy())

    def end_task(self) -> None:
        """Nobody tells it."""

    def guess(self, X: Any) -> Any:
        import torch

        return torch.as_tensor(self.learner.predict(X)).argmin(dim=1)


class Projected(Descent):
    """OGD as published: SGD off the gradients of images that are kept of each task (OGD-GTL)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(network(settings), settings.few_lr)
        self.model = orfit.TorchModel(self.module, outputs="label")
        self.memory = orfit.memory.Unlimited()
        self.memory.bind(self.model.initial())
        self.kept = settings.kept
        self.latest: list[tuple[Any, Any]] = []

    def learn(self, X: Any, classes: Any) -> None:
        super().learn(X, classes)
        self.latest = [*self.latest, (X, classes)][-(self.kept // SMALL) :]

    def project(self) -> None:
        import torch

        gradients = [weights.grad for weights in self.module.parameters()]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        free = self.memory.project(flat[:, None])[:, 0]
        parts = torch.split(free, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def end_task(self) -> None:
        import torch

        X, classes = (torch.cat(parts) for parts in zip(*self.latest, strict=True))
        w = self.model.vector(self.module.state_dict())
        self.memory.remember(self.memory.split(self.model.observe(w, X, classes.numpy())[2]))
        self.numbers = self.memory.rank * self.model.size


def learner(method: str, settings: Settings, shown: Shown) -> Any:
    if method == "ogd":
        return Projected(settings)
    if method in ("tangent", "orfit"):
        return AllTogether(settings, tangent=method == "tangent")
    if method.startswith("layers"):
        return EachLayer(network(settings), settings)
    if method == "sgd-mixed":
        return Descent(network(settings), settings.joint_lr, settings.tasks * settings.rows)
    return Descent(network(settings), settings.lr if method == "sgd" else settings.few_lr)


def count_steps(settings: Settings) -> int:
    return tasks.count_steps(ENTRIES, settings)


def run(settings: Settings, advance: Advance) -> Curves:
    return tasks.run_all(ENTRIES, settings, Permuted, learner, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [tasks.make_table(curves, ENTRIES, _names(settings), _published(settings))]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return tasks.draw_figure(curves, ENTRIES, _names(settings), _published(settings))


def _names(settings: Settings) -> Any:
    return lambda entry: entry.name.replace("m directions", f"m = {settings.m}")


def _published(settings: Settings) -> list[tuple[str, float]]:
    """The published figure, where it is of the same network and tasks."""
    same = not settings.bundled and (settings.tasks, settings.width) == (10, 100)
    return [GPM] if same else []
