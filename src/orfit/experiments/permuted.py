"""Permuted MNIST (beyond the paper): ten tasks, one after another, in one pass.

Each task is MNIST with its pixels in another order. A network 784-100-100-10 without biases sees
every image of a task once, then the next task comes; only OGD is told when. After each task the
accuracy on the test images of every task is measured.

To fit classes by squares, the output of a class is what it would cost, f = sqrt(−2 log softmax),
and is fitted to 0: f² / 2 is the cross-entropy, so noise 1 would be Bayes' rule, and one gradient
for each image is enough. ORFit keeps m directions of all parameters, or a memory for each layer
(`layers`), which is cheap enough to see all images; the others see `few` of each task.

In curves.csv `step` is how many tasks have been learned.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

import orfit
from orfit import datasets
from orfit.door import Array
from orfit.experiments import report
from orfit.experiments.by_class import CLASSES
from orfit.experiments.report import Curves, Tick
from orfit.learners.onestep import OneStep
from orfit.measures import backward_transfer

TITLE = "Permuted MNIST, task after task, in one pass"


@dataclass(frozen=True)
class Settings:
    tasks: int = 10
    rows: int = 60_000  # training images of each task; all test images are used
    few: int = 2000  # training images of each task, for the learners that take longer
    bundled: bool = False  # take the sample of 1,500 that comes with the package
    width: int = 100  # of the two hidden layers
    block: int = 50  # images learned at once
    noise: float = 5.0  # R of ORFit with a memory for each layer
    every: int = 1000  # its axes are found anew after so many images
    m: int = 100  # directions of ORFit
    kept: int = 100  # images of each task whose gradients OGD keeps, all of them
    flat_noise: float = 250.0  # R of ORFit with m directions: larger, as they span less
    tangent_noise: float = 30.0
    lr: float = 0.001  # of SGD: larger ones forget more
    few_lr: float = 0.03  # of SGD and OGD on few images
    joint_lr: float = 0.05  # of SGD on all tasks mixed, falling to 0
    seed: int = 0


QUICK = {
    "tasks": 3, "rows": 1000, "few": 300, "bundled": True, "width": 30, "m": 30, "every": 200,
    "flat_noise": 30.0, "lr": 0.1, "few_lr": 0.1, "joint_lr": 0.2,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    name: str
    colour: str
    few: bool = False  # whether it sees but few images
    mixed: bool = False  # whether all tasks come at once


ENTRIES = {
    "sgd-few": Entry("SGD", "tab:brown", few=True),
    "ogd": Entry("OGD", "tab:orange", few=True),
    "tangent": Entry("ORFit, m directions, tangent", "tab:purple", few=True),
    "orfit": Entry("ORFit, m directions", "tab:cyan", few=True),
    "layers-few": Entry("ORFit, a memory for each layer", "tab:blue", few=True),
    "sgd": Entry("SGD", "tab:brown"),
    "sgd-mixed": Entry("SGD, all tasks mixed", "tab:gray", mixed=True),
    "layers": Entry("ORFit, a memory for each layer", "tab:blue"),
}
# Gradient Projection Memory (Saha, Garg and Roy, 2021): the same network and number of tasks, one
# epoch. Quoted, not measured here.
GPM = 91.7
SMALL = 10  # images in a batch of those that descend by small steps


class Permuted:
    """Images as rows, standardised, and the order of pixels in each task."""

    def __init__(self, settings: Settings) -> None:
        import torch

        data = datasets.mnist_sample() if settings.bundled else datasets.mnist()

        def rows(images: Array) -> Any:
            pixels = (images.reshape(len(images), -1) / 255 - 0.1307) / 0.3081
            return torch.tensor(pixels, dtype=torch.float32)

        self.X, self.X_test = rows(data.train_images), rows(data.test_images)
        self.classes = torch.tensor(data.train_labels.astype(int))
        self.classes_test = torch.tensor(data.test_labels.astype(int))
        rng = np.random.default_rng(settings.seed)
        orders = [rng.permutation(self.X.shape[1]) for _ in range(settings.tasks)]
        self.orders = torch.tensor(np.array(orders))

    def blocks(self, tasks: Array, rows: Array, size: int) -> Iterator[tuple[Any, Any]]:
        """Training images and their classes, so many at once, each as its task shows it."""
        for start in range(0, len(rows), size):
            now = rows[start : start + size]
            order = self.orders[tasks[start : start + size]]
            yield self.X[now].gather(1, order), self.classes[now]

    def accuracy(self, learner: Any) -> list[float]:
        """On the test images of every task."""
        guesses = [learner.guess(self.X_test[:, order]) for order in self.orders]
        return [float((guess == self.classes_test).float().mean()) for guess in guesses]


def stages(data: Permuted, settings: Settings, entry: Entry) -> list[tuple[Array, Array]]:
    """What comes before each measurement: tasks, and rows of training images."""
    rng = np.random.default_rng([settings.seed, 1])
    count = settings.few if entry.few else settings.rows
    rows = [rng.permutation(len(data.X))[:count] for _ in data.orders]
    tasks = np.repeat(np.arange(len(rows)), len(rows[0]))
    pairs = np.stack([tasks, np.concatenate(rows)])
    if entry.mixed:
        pairs = rng.permutation(pairs, axis=1)
    return [(part[0], part[1]) for part in np.split(pairs, len(rows), axis=1)]


def network(settings: Settings) -> Any:
    """784-w-w-10 with ReLU and no biases, as torch initialises it."""
    import torch
    from torch import nn

    torch.manual_seed(settings.seed)
    sizes = (784, settings.width, settings.width, CLASSES)
    first, second, last = (nn.Linear(a, b, bias=False) for a, b in pairwise(sizes))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)


class OnePass:
    """A learner of orfit on what each class would cost."""

    def __init__(self, settings: Settings, method: str) -> None:
        import torch
        from torch import nn

        from orfit.experiments.layers import Layers

        class Cost(nn.Module):
            def forward(self, outputs: Any) -> Any:
                # Where a class is certain the cost is 0, and there a root has no slope.
                return torch.sqrt(1e-6 - 2 * torch.log_softmax(outputs, dim=1))

        module = network(settings)
        shapes = [tuple(weights.shape) for weights in module.parameters()]
        model = orfit.TorchModel(
            nn.Sequential(module, Cost()), tangent=method == "tangent", outputs="label", target=0.0
        )
        self.batch = settings.block
        self.numbers = settings.m * model.size
        self.learner: Any
        if method.startswith("layers"):
            memory = Layers(shapes, settings.every)
            self.learner = OneStep(model, memory, noise=settings.noise)
            self.numbers = memory.numbers
        else:
            noise = settings.tangent_noise if model.tangent else settings.flat_noise
            self.learner = orfit.ORFit(model, settings.m, noise=noise)

    def learn(self, X: Any, classes: Any) -> None:
        self.learner.learn_batch(X, classes.numpy())

    def end_task(self) -> None:
        pass

    def guess(self, X: Any) -> Any:
        import torch

        return torch.as_tensor(self.learner.predict(X)).argmin(dim=1)


class Descent:
    """Plain SGD on the cross-entropy."""

    batch = SMALL
    numbers = 0

    def __init__(self, settings: Settings, method: str) -> None:
        import torch

        self.module = network(settings)
        self.falling = method == "sgd-mixed"
        rates = {"sgd": settings.lr, "sgd-mixed": settings.joint_lr}
        self.lr = rates.get(method, settings.few_lr)
        self.optimiser = torch.optim.SGD(self.module.parameters(), lr=self.lr)
        self.left = self.all = settings.tasks * settings.rows

    def learn(self, X: Any, classes: Any) -> None:
        from torch.nn.functional import cross_entropy

        if self.falling:
            self.optimiser.param_groups[0]["lr"] = self.lr * self.left / self.all
            self.left -= len(X)
        self.optimiser.zero_grad()
        loss: Any = cross_entropy(self.module(X), classes)
        loss.backward()
        self.project()
        self.optimiser.step()

    def project(self) -> None:
        pass

    def end_task(self) -> None:
        pass

    def guess(self, X: Any) -> Any:
        import torch

        with torch.no_grad():
            return self.module(X).argmax(dim=1)


class Projected(Descent):
    """OGD as published: SGD off the gradients of images that are kept of each task (OGD-GTL)."""

    def __init__(self, settings: Settings, method: str) -> None:
        super().__init__(settings, method)
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
        self.memory.fold(self.memory.split(self.model.observe(w, X, classes.numpy())[2]))
        self.numbers = self.memory.rank * self.model.size


def ticks(settings: Settings) -> int:
    return len(ENTRIES) * settings.tasks


def run(settings: Settings, tick: Tick) -> Curves:
    data, curves = Permuted(settings), Curves()
    settings = replace(settings, rows=min(settings.rows, len(data.X)))
    learned = np.arange(1, settings.tasks + 1)
    for method, entry in ENTRIES.items():
        kind = Projected if method == "ogd" else Descent if "sgd" in method else OnePass
        learner: Any = kind(settings, method)
        accuracy, seconds = [], 0.0
        for tasks, rows in stages(data, settings, entry):
            start = time.perf_counter()
            for X, classes in data.blocks(tasks, rows, learner.batch):
                learner.learn(X, classes)
            learner.end_task()
            seconds += time.perf_counter() - start
            accuracy.append(data.accuracy(learner))
            tick()
        table = np.array(accuracy)
        curves.facts[method] = table
        curves.facts[f"{method} costs"] = np.array([len(rows), seconds, learner.numbers])
        for task in range(settings.tasks):
            curves.add(method, f"accuracy_{task + 1}", learned, table[None, :, task])
    return curves


def tables(curves: Curves, settings: Settings) -> list[Any]:
    rows = []
    for method, entry in ENTRIES.items():
        accuracy = curves.facts[method]
        count, seconds, numbers = curves.facts[f"{method} costs"]
        told = settings.tasks > 1 and not entry.mixed
        transfer = f"{100 * backward_transfer(accuracy):.1f}" if told else ""
        cells = [f"{100 * accuracy[-1].mean():.1f}", transfer, f"{seconds:.0f}"]
        rows.append([_named(entry, settings), f"{count:.0f}", *cells, f"{numbers / 1e6:.1f}"])
    if _comparable(settings):
        rows.append(["GPM, one epoch, as published", "", f"{GPM}", "", "", ""])
    columns = ["learner", "images", "accuracy", "transfer", "s", "memory"]
    title = "In the end, on all tasks (%, points of backward transfer, 10⁶ numbers kept)"
    return [report.table(title, columns, rows)]


def _comparable(settings: Settings) -> bool:
    """Whether the published figure is of the same network and tasks."""
    return not settings.bundled and (settings.tasks, settings.width) == (10, 100)


def _named(entry: Entry, settings: Settings) -> str:
    return entry.name.replace("m directions", f"m = {settings.m}")


def figure(curves: Curves, settings: Settings) -> Any:
    made, axes = report.panels()
    learned = np.arange(1, settings.tasks + 1)
    for method, entry in ENTRIES.items():
        accuracy = 100 * curves.facts[method]
        count = curves.facts[f"{method} costs"][0]
        style = {"color": entry.colour, "linestyle": "--" if entry.few else "-", "marker": "."}
        label = f"{_named(entry, settings)}, {count:,.0f} images a task"
        if entry.mixed:  # it ends where the others can but come to
            for axis in axes:
                axis.axhline(accuracy[-1].mean(), color=entry.colour, label=label)
            continue
        so_far = [accuracy[i, : i + 1].mean() for i in range(settings.tasks)]
        axes[0].plot(learned, so_far, label=label, **style)
        axes[1].plot(learned, accuracy[:, 0], **style)
    if _comparable(settings):
        axes[0].plot(10, GPM, "k*", label="GPM, one epoch, as published")
    axes[0].set_title("All tasks so far")
    axes[1].set_title("The first task")
    for axis in axes:
        axis.set_xlabel("tasks learned")
        axis.set_ylabel("test accuracy (%)")
        axis.set_xticks(learned)
        axis.set_ylim(0, 100)
        axis.grid(alpha=0.3)
    handles = axes[0].get_legend_handles_labels()[0]
    made.legend(handles=handles, fontsize=7, ncols=3, handlelength=3.5, loc="outside upper center")
    return made
