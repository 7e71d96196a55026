"""Permuted MNIST: ten tasks, one after another, in one pass.

Each task is MNIST with its pixels in another order. A network 784-100-100-10 without biases learns
every image of a task once. Only OGD uses the boundaries between tasks. After each task the accuracy
on the test images of every task is measured.

To fit classes by least squares, the output of the label's class, f = sqrt(−2 log softmax), is
fitted to 0. Then f² / 2 is the cross-entropy, and each image has one gradient. ORFit has m
directions of all parameters, or a memory for each layer (`orfit.PerLayer`), which is fast enough
for all images; the other learners learn `few` images of each task.

In curves.csv `step` is how many tasks have been learned.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import tasks
from class_incremental import CLASSES
from tasks import SGD_BATCH, Entry, PerLayerLearner, SgdLearner, TaskData, Tasks

import orfit
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Permuted MNIST, task after task, in one pass"


@dataclass(frozen=True)
class Settings(Tasks):
    width: int = 100  # of the two hidden layers
    m: int = 100  # directions of ORFit
    stored: int = 100  # images of each task whose gradients OGD stores
    flat_noise: float = 250.0  # R of ORFit with m directions
    tangent_noise: float = 30.0
    lr: float = 0.001  # of SGD: larger ones forget more
    few_lr: float = 0.03  # of SGD and OGD on few images
    joint_lr: float = 0.05  # of SGD on all tasks mixed, decaying to 0


QUICK = {
    "tasks": 3, "rows": 1000, "few": 300, "bundled": True, "width": 30, "m": 30,
    "flat_noise": 30.0, "lr": 0.1, "few_lr": 0.1, "joint_lr": 0.2, "runs": 1,
}  # fmt: skip

ENTRIES = {
    "sgd-few": Entry("SGD", "tab:brown", few=True),
    "ogd": Entry("OGD", "tab:orange", few=True, single_run=True),
    "tangent": Entry("ORFit, m directions, tangent", "tab:purple", few=True, single_run=True),
    "orfit": Entry("ORFit, m directions", "tab:cyan", few=True, single_run=True),
    "layers-few": Entry("a memory for each layer", "tab:blue", few=True),
    "sgd": Entry("SGD", "tab:brown"),
    "sgd-mixed": Entry("SGD, all tasks mixed", "tab:gray", mixed=True),
    "layers": Entry("a memory for each layer", "tab:blue"),
}
# Gradient Projection Memory (Saha, Garg and Roy, 2021): the same network and number of tasks, one
# epoch. Quoted, not measured here.
GPM = ("GPM, one epoch, as published", 91.7)


class Permuted(TaskData):
    """MNIST with its pixels in another order in each task."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        rng = np.random.default_rng(settings.seed)
        self.permutations = [rng.permutation(784) for _ in range(settings.tasks)]

    def transform(self, images: Array, task: int) -> Array:
        return images[:, self.permutations[task]]


def make_network(settings: Settings) -> Any:
    """Return a network 784-w-w-10 with ReLU and no biases, initialised by torch."""
    import torch
    from torch import nn

    torch.manual_seed(settings.seed)
    sizes = (784, settings.width, settings.width, CLASSES)
    first, second, last = (nn.Linear(a, b, bias=False) for a, b in pairwise(sizes))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


class OrfitLearner:
    """ORFit with m directions of all parameters, on the root of twice the cross-entropy."""

    def __init__(self, settings: Settings, tangent: bool) -> None:
        import torch
        from torch import nn

        class Cost(nn.Module):
            def forward(self, outputs: Any) -> Any:
                # 1e-6: the derivative of the root is infinite at 0.
                return torch.sqrt(1e-6 - 2 * torch.log_softmax(outputs, dim=1))

        costs = nn.Sequential(make_network(settings), Cost())
        model = orfit.TorchModel(costs, tangent=tangent, outputs="label", target=0.0)
        self.batch, self.numbers = settings.block, settings.m * model.size
        noise = settings.tangent_noise if tangent else settings.flat_noise
        self.learner = orfit.ORFit(model, settings.m, noise=noise)

    def learn(self, X: Any, classes: Any) -> None:
        self.learner.learn_batch(X, classes.numpy())

    def finish_task(self) -> None:
        """Called after each task. Only OGD uses it."""

    def predict_classes(self, X: Any) -> Any:
        import torch

        return torch.as_tensor(self.learner.predict(X)).argmin(dim=1)


class OgdLearner(SgdLearner):
    """OGD-GTL as published: SGD orthogonal to the gradients of stored images of each task."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(make_network(settings), settings.few_lr)
        self.model = orfit.TorchModel(self.module, outputs="label")
        self.memory = orfit.memory.Unlimited()
        self.stored = settings.stored
        self.latest: list[tuple[Any, Any]] = []

    def learn(self, X: Any, classes: Any) -> None:
        super().learn(X, classes)
        self.latest = [*self.latest, (X, classes)][-(self.stored // SGD_BATCH) :]

    def project(self) -> None:
        import torch

        gradients = [weights.grad for weights in self.module.parameters()]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        free = self.memory.project(flat[:, None])[:, 0]
        parts = torch.split(free, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def finish_task(self) -> None:
        import torch

        X, classes = (torch.cat(parts) for parts in zip(*self.latest, strict=True))
        w = self.model.vector(self.module.state_dict())
        self.memory.absorb(self.model.observe(w, X, classes.numpy())[2])
        self.numbers = self.memory.rank * self.model.size


def make_learner(method: str, settings: Settings, data: TaskData) -> Any:
    if method == "ogd":
        return OgdLearner(settings)
    if method in ("tangent", "orfit"):
        return OrfitLearner(settings, tangent=method == "tangent")
    if method.startswith("layers"):
        return PerLayerLearner(make_network(settings), settings)
    if method == "sgd-mixed":
        return SgdLearner(make_network(settings), settings.joint_lr, settings.tasks * settings.rows)
    return SgdLearner(make_network(settings), settings.lr if method == "sgd" else settings.few_lr)


def count_steps(settings: Settings) -> int:
    return tasks.count_steps(ENTRIES, settings)


def run(settings: Settings, advance: Advance) -> Curves:
    return tasks.run_methods(ENTRIES, settings, Permuted, make_learner, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [tasks.make_table(curves, ENTRIES, _make_names(settings), _list_published(settings))]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return tasks.draw_figure(curves, ENTRIES, _make_names(settings), _list_published(settings))


def _make_names(settings: Settings) -> Any:
    return lambda entry: entry.name.replace("m directions", f"m = {settings.m}")


def _list_published(settings: Settings) -> list[tuple[str, float]]:
    """Return the published accuracy, where network and tasks are the same."""
    same = not settings.bundled and (settings.tasks, settings.width) == (10, 100)
    return [GPM] if same else []
