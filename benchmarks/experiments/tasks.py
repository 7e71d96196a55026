"""Digits in tasks that come one after another, in one pass: who still knows the first ones?

Each task shows the same digits in its own way. A learner sees every training image of a task once,
then the next task comes; after each one, accuracy on the test images of every task is measured.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import orfit
from orfit import datasets
from orfit.door import Array
from orfit.measures import backward_transfer
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves

SMALL = 10  # images in a batch of those that descend by small steps


@dataclass(frozen=True)
class Tasks:
    """Settings that all of these experiments have."""

    tasks: int = 10
    rows: int = 60_000  # training images of each task; all test images are used
    few: int = 2000  # training images of each task, for learners that take longer
    bundled: bool = False  # take the sample of 1,500 that comes with the package
    held_out: int = 0  # so many training images instead of the test images: to choose settings by
    block: int = 50  # images learned at once
    noise: float = 5.0  # R of a memory for each layer
    every: int = 1000  # its axes are found anew after so many images
    runs: int = 3  # from other initial parameters, and with other tasks
    seed: int = 0


@dataclass(frozen=True)
class Entry:
    name: str
    colour: str
    few: bool = False  # whether it sees but few images
    mixed: bool = False  # whether all tasks come at once
    once: bool = False  # whether one run must do, as it takes long


class Shown:
    """Images as rows of bytes, and how each task shows them."""

    def __init__(self, settings: Tasks) -> None:
        data = datasets.mnist_sample() if settings.bundled else datasets.mnist()
        images, labels = data.train_images.reshape(-1, 784), data.train_labels.astype(int)
        self.images, self.labels = images, labels
        self.test_images = data.test_images.reshape(-1, 784)
        self.test_labels = data.test_labels.astype(int)
        self.shown: list[Array] = []  # test images as each task shows them
        if settings.held_out:
            order = np.random.default_rng(settings.seed).permutation(len(images))
            apart, rest = np.split(order, [settings.held_out])
            self.test_images, self.test_labels = images[apart], labels[apart]
            self.images, self.labels = images[rest], labels[rest]

    def turn(self, images: Array, task: int) -> Array:
        """Bytes as a task shows them."""
        raise NotImplementedError

    def show(self, images: Array, task: int) -> Any:
        """What a network is given: pixels, standardised."""
        return _standardised(self.turn(images, task))

    def blocks(self, tasks: Array, rows: Array, size: int) -> Iterator[tuple[Any, Any]]:
        """Training images and their classes, so many at once, each as its task shows it."""
        import torch

        for start in range(0, len(rows), size):
            now, of_task = rows[start : start + size], tasks[start : start + size]
            parts = [(task, now[of_task == task]) for task in dict.fromkeys(of_task.tolist())]
            X = [self.show(self.images[part], task) for task, part in parts]
            classes = self.labels[np.concatenate([part for _, part in parts])]
            yield torch.cat(X), torch.from_numpy(classes)

    def accuracy(self, learner: Any, tasks: int) -> list[float]:
        """On the test images of every task."""
        if not self.shown:
            self.shown = [self.turn(self.test_images, task) for task in range(tasks)]
        guesses = [learner.guess(_standardised(images)).numpy() for images in self.shown]
        return [float((guess == self.test_labels).mean()) for guess in guesses]


def _standardised(images: Array) -> Any:
    import torch

    pixels = torch.from_numpy(np.ascontiguousarray(images))
    return pixels.float().div_(255).sub_(0.1307).div_(0.3081)


class EachLayer:
    """A memory for each layer of a network."""

    def __init__(self, module: Any, settings: Tasks, sides: str = "both") -> None:
        self.batch = settings.block
        self.learner = orfit.PerLayer(
            module, settings.noise, sides=sides, block=settings.block, every=settings.every
        )

    @property
    def numbers(self) -> int:
        return int(self.learner.numbers)

    def learn(self, X: Any, classes: Any) -> None:
        self.learner.learn(X, classes)

    def end_task(self) -> None:
        """Nobody tells it."""

    def guess(self, X: Any) -> Any:
        import torch

        return torch.as_tensor(self.learner.predict(X)).argmax(dim=1)


class Descent:
    """Plain SGD on the cross-entropy, with a step size that may fall to 0 over so many images."""

    batch = SMALL
    numbers = 0

    def __init__(self, module: Any, lr: float, falling: int = 0, training: bool = True) -> None:
        import torch

        self.module, self.lr, self.training = module, lr, training
        self.optimiser = torch.optim.SGD(module.parameters(), lr=lr)
        self.left = self.all = falling

    def learn(self, X: Any, classes: Any) -> None:
        from torch.nn.functional import cross_entropy

        if self.all:
            self.optimiser.param_groups[0]["lr"] = self.lr * self.left / self.all
            self.left -= len(X)
        self.optimiser.zero_grad()
        loss: Any = cross_entropy(self.module.train(self.training)(X), classes)
        loss.backward()
        self.project()
        self.optimiser.step()

    def project(self) -> None:
        """Plain SGD goes where the gradient points."""

    def end_task(self) -> None:
        """Nobody tells it."""

    def guess(self, X: Any) -> Any:
        import torch

        with torch.no_grad():
            return self.module.eval()(X).argmax(dim=1)


def stages(shown: Shown, settings: Tasks, entry: Entry) -> list[tuple[Array, Array]]:
    """What comes before each measurement: tasks, and rows of training images."""
    rng = np.random.default_rng([settings.seed, 1])
    count = settings.few if entry.few else settings.rows
    rows = [rng.permutation(len(shown.images))[:count] for _ in range(settings.tasks)]
    tasks = np.repeat(np.arange(len(rows)), len(rows[0]))
    pairs = np.stack([tasks, np.concatenate(rows)])
    if entry.mixed:
        pairs = rng.permutation(pairs, axis=1)
    return [(part[0], part[1]) for part in np.split(pairs, len(rows), axis=1)]


def count_steps(entries: dict[str, Entry], settings: Tasks) -> int:
    runs = sum(1 if entry.once else settings.runs for entry in entries.values())
    return runs * settings.tasks


def run_all(
    entries: dict[str, Entry], settings: Any, shown_by: Any, make: Any, advance: Advance
) -> Curves:
    """Every learner on every task, in each run.

    shown_by(settings): the images; make(method, settings, shown): a learner.
    """
    curves = Curves()
    measured: dict[str, list[Array]] = {method: [] for method in entries}
    costs: dict[str, list[Any]] = {method: [] for method in entries}
    for run in range(settings.runs):
        of_run = replace(settings, seed=settings.seed + run)
        shown = shown_by(of_run)
        of_run = replace(of_run, rows=min(settings.rows, len(shown.images)))
        for method, entry in entries.items():
            if run and entry.once:
                continue
            learner, accuracy, seconds = make(method, of_run, shown), [], 0.0
            for tasks, rows in stages(shown, of_run, entry):
                start = time.perf_counter()
                for X, classes in shown.blocks(tasks, rows, learner.batch):
                    learner.learn(X, classes)
                learner.end_task()
                seconds += time.perf_counter() - start
                accuracy.append(shown.accuracy(learner, settings.tasks))
                advance()
            measured[method].append(np.array(accuracy))
            costs[method].append([len(rows), seconds, learner.numbers])
    for method, tables in measured.items():
        curves.extras[method] = np.array(tables)
        curves.extras[f"{method} costs"] = np.mean(costs[method], axis=0)
        for task in range(settings.tasks):
            values = curves.extras[method][:, :, task]
            curves.add(method, f"accuracy_{task + 1}", np.arange(1, settings.tasks + 1), values)
    return curves


def spread(values: Array) -> str:
    """Mean and standard deviation over the runs, if there are several."""
    told = f"{values.mean():.1f}"
    return told if len(values) == 1 else f"{told} ± {values.std():.1f}"


def make_table(
    curves: Curves, entries: dict[str, Entry], names: Any, published: list[tuple[str, float]]
) -> Any:
    """What is known in the end. published: what others report, quoted."""
    rows = []
    for method, entry in entries.items():
        accuracy = curves.extras[method]
        count, seconds, numbers = curves.extras[f"{method} costs"]
        told = accuracy.shape[1] > 1 and not entry.mixed
        transfer = np.array([backward_transfer(table) for table in accuracy]) if told else None
        cells = [spread(100 * accuracy[:, -1].mean(axis=1))]
        cells += ["" if transfer is None else spread(100 * transfer), f"{seconds:.0f}"]
        rows.append([names(entry), f"{count:.0f}", *cells, f"{numbers / 1e6:.1f}"])
    rows += [[name, "", f"{value}", "", "", ""] for name, value in published]
    columns = ["learner", "images", "accuracy", "transfer", "s", "memory"]
    title = "In the end, on all tasks (%, points of backward transfer, 10⁶ numbers kept)"
    return report.make_table(title, columns, rows)


def draw_figure(
    curves: Curves, entries: dict[str, Entry], names: Any, published: list[tuple[str, float]]
) -> Any:
    """Accuracy on all tasks so far, and on the first, as tasks arrive."""
    made, axes = report.make_panels()
    tasks = 0
    for method, entry in entries.items():
        accuracy = 100 * curves.extras[method].mean(axis=0)
        tasks = len(accuracy)
        learned = np.arange(1, tasks + 1)
        count = curves.extras[f"{method} costs"][0]
        style = {"color": entry.colour, "linestyle": "--" if entry.few else "-", "marker": "."}
        label = f"{names(entry)}, {count:,.0f} images a task"
        if entry.mixed:  # it ends where the others can but come to
            for axis in axes:
                axis.axhline(accuracy[-1].mean(), color=entry.colour, label=label)
            continue
        so_far = [accuracy[i, : i + 1].mean() for i in range(tasks)]
        axes[0].plot(learned, so_far, label=label, **style)
        axes[1].plot(learned, accuracy[:, 0], **style)
    for name, value in published:
        axes[0].plot(tasks, value, "k*", label=name)
    axes[0].set_title("All tasks so far")
    axes[1].set_title("The first task")
    for axis in axes:
        axis.set_xlabel("tasks learned")
        axis.set_ylabel("test accuracy (%)")
        axis.set_xticks(np.arange(1, tasks + 1))
        axis.set_ylim(0, 100)
        axis.grid(alpha=0.3)
    handles = axes[0].get_legend_handles_labels()[0]
    made.legend(handles=handles, fontsize=7, ncols=3, handlelength=3.5, loc="outside upper center")
    return made
