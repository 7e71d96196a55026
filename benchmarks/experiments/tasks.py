"""One-pass learning of a sequence of tasks, each with another transformation of the same digits.

A learner learns every training image of a task once, then those of the next task. After each task,
the accuracy on the test images of every task is measured.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import orfit
from orfit import datasets
from orfit.measures import backward_transfer
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

SGD_BATCH = 10  # images


@dataclass(frozen=True)
class Tasks:
    """Settings common to these experiments."""

    tasks: int = 10
    rows: int = 60_000  # training images of each task; all test images are used
    few: int = 2000  # training images of each task, for slow learners
    bundled: bool = False  # use the sample of 1,500 images in the package
    held_out: int = 0  # test on so many training images, to choose settings
    block: int = 50  # images in a block
    noise: float = 5.0  # R of PerLayer
    runs: int = 3  # with different initial parameters and tasks
    seed: int = 0


@dataclass(frozen=True)
class Entry:
    """One method of an experiment."""

    name: str
    colour: str
    few: bool = False  # it learns `few` images of each task
    mixed: bool = False  # images of all tasks arrive in random order
    single_run: bool = False  # a slow method


class TaskData:
    """Images as rows of bytes, and their transformation in each task."""

    def __init__(self, settings: Tasks) -> None:
        data = datasets.mnist_sample() if settings.bundled else datasets.mnist()
        images, labels = data.train_images.reshape(-1, 784), data.train_labels.astype(int)
        self.images, self.labels = images, labels
        self.test_images = data.test_images.reshape(-1, 784)
        self.test_labels = data.test_labels.astype(int)
        self.test_inputs: list[Array] = []  # transformed test images of each task
        if settings.held_out:
            order = np.random.default_rng(settings.seed).permutation(len(images))
            test, rest = np.split(order, [settings.held_out])
            self.test_images, self.test_labels = images[test], labels[test]
            self.images, self.labels = images[rest], labels[rest]

    def transform(self, images: Array, task: int) -> Array:
        """Return the images, as bytes, as they are in a task."""
        raise NotImplementedError

    def make_inputs(self, images: Array, task: int) -> Any:
        """Return the standardised pixels of the transformed images, a tensor."""
        return _standardise(self.transform(images, task))

    def iterate_blocks(self, tasks: Array, rows: Array, size: int) -> Iterator[tuple[Any, Any]]:
        """Yield blocks of inputs and classes. Training image rows[i] is part of tasks[i]."""
        import torch

        for start in range(0, len(rows), size):
            block, of_block = rows[start : start + size], tasks[start : start + size]
            parts = [(task, block[of_block == task]) for task in dict.fromkeys(of_block.tolist())]
            X = [self.make_inputs(self.images[part], task) for task, part in parts]
            classes = self.labels[np.concatenate([part for _, part in parts])]
            yield torch.cat(X), torch.from_numpy(classes)

    def measure_accuracy(self, learner: Any, tasks: int) -> list[float]:
        """Return the accuracy on the test images of every task."""
        if not self.test_inputs:
            self.test_inputs = [self.transform(self.test_images, task) for task in range(tasks)]
        predicted = [learner.predict_classes(_standardise(X)).numpy() for X in self.test_inputs]
        return [float((classes == self.test_labels).mean()) for classes in predicted]


def _standardise(images: Array) -> Any:
    import torch

    pixels = torch.from_numpy(np.ascontiguousarray(images))
    return pixels.float().div_(255).sub_(0.1307).div_(0.3081)


class PerLayerLearner:
    """`orfit.PerLayer`, a memory for each layer of a network."""

    def __init__(self, module: Any, settings: Tasks) -> None:
        self.batch = settings.block
        self.learner = orfit.PerLayer(module, settings.noise, block=settings.block)

    @property
    def numbers(self) -> int:
        return int(self.learner.numbers)

    def learn(self, X: Any, classes: Any) -> None:
        self.learner.learn(X, classes)

    def finish_task(self) -> None:
        """Called after each task. Only OGD uses it."""

    def predict_classes(self, X: Any) -> Any:
        import torch

        return torch.as_tensor(self.learner.predict(X)).argmax(dim=1)


class SgdLearner:
    """SGD on the cross-entropy. The step size decays to 0 over `decay` images, if given."""

    batch = SGD_BATCH
    numbers = 0

    def __init__(self, module: Any, lr: float, decay: int = 0, training: bool = True) -> None:
        import torch

        self.module, self.lr, self.training = module, lr, training
        self.optimiser = torch.optim.SGD(module.parameters(), lr=lr)
        self.left = self.decay = decay

    def learn(self, X: Any, classes: Any) -> None:
        from torch.nn.functional import cross_entropy

        if self.decay:
            self.optimiser.param_groups[0]["lr"] = self.lr * self.left / self.decay
            self.left -= len(X)
        self.optimiser.zero_grad()
        loss: Any = cross_entropy(self.module.train(self.training)(X), classes)
        loss.backward()
        self.project()
        self.optimiser.step()

    def project(self) -> None:
        """Change the gradients before a step. SGD does not."""

    def finish_task(self) -> None:
        """Called after each task. Only OGD uses it."""

    def predict_classes(self, X: Any) -> Any:
        import torch

        with torch.no_grad():
            return self.module.eval()(X).argmax(dim=1)


def plan_stages(data: TaskData, settings: Tasks, entry: Entry) -> list[tuple[Array, Array]]:
    """Return the tasks and rows of the training images before each measurement."""
    rng = np.random.default_rng([settings.seed, 1])
    count = settings.few if entry.few else settings.rows
    rows = [rng.permutation(len(data.images))[:count] for _ in range(settings.tasks)]
    tasks = np.repeat(np.arange(len(rows)), len(rows[0]))
    pairs = np.stack([tasks, np.concatenate(rows)])
    if entry.mixed:
        pairs = rng.permutation(pairs, axis=1)
    return [(part[0], part[1]) for part in np.split(pairs, len(rows), axis=1)]


def count_steps(entries: dict[str, Entry], settings: Tasks) -> int:
    runs = sum(1 if entry.single_run else settings.runs for entry in entries.values())
    return runs * settings.tasks


def run_methods(
    entries: dict[str, Entry], settings: Any, load_data: Any, make_learner: Any, advance: Advance
) -> Curves:
    """Learn the tasks with every method, in each run.

    Args:
        entries: the methods.
        settings: the settings of the experiment.
        load_data: called with the settings, returns a TaskData.
        make_learner: called with method, settings and data, returns a learner.
        advance: advances the progress bar.
    """
    curves = Curves()
    measured: dict[str, list[Array]] = {method: [] for method in entries}
    costs: dict[str, list[Any]] = {method: [] for method in entries}
    for run in range(settings.runs):
        run_settings = replace(settings, seed=settings.seed + run)
        data = load_data(run_settings)
        run_settings = replace(run_settings, rows=min(settings.rows, len(data.images)))
        for method, entry in entries.items():
            if run and entry.single_run:
                continue
            learner, accuracy, seconds = make_learner(method, run_settings, data), [], 0.0
            for tasks, rows in plan_stages(data, run_settings, entry):
                start = time.perf_counter()
                for X, classes in data.iterate_blocks(tasks, rows, learner.batch):
                    learner.learn(X, classes)
                learner.finish_task()
                seconds += time.perf_counter() - start
                accuracy.append(data.measure_accuracy(learner, settings.tasks))
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


def format_mean(values: Array) -> str:
    """Return the mean, with the standard deviation over several runs."""
    mean = f"{values.mean():.1f}"
    return mean if len(values) == 1 else f"{mean} ± {values.std():.1f}"


def make_table(
    curves: Curves, entries: dict[str, Entry], names: Any, published: list[tuple[str, float]]
) -> Any:
    """Return the final accuracies. published: names and accuracies quoted from the literature."""
    rows = []
    for method, entry in entries.items():
        accuracy = curves.extras[method]
        count, seconds, numbers = curves.extras[f"{method} costs"]
        transfer = ""
        if accuracy.shape[1] > 1 and not entry.mixed:
            transfer = format_mean(100 * np.array([backward_transfer(run) for run in accuracy]))
        cells = [format_mean(100 * accuracy[:, -1].mean(axis=1)), transfer, f"{seconds:.0f}"]
        rows.append([names(entry), f"{count:.0f}", *cells, f"{numbers / 1e6:.1f}"])
    rows += [[name, "", f"{value}", "", "", ""] for name, value in published]
    columns = ["learner", "images", "accuracy", "transfer", "s", "memory"]
    title = "Final accuracy on all tasks (%), backward transfer (points), memory (10⁶ numbers)"
    return report.make_table(title, columns, rows)


def draw_figure(
    curves: Curves, entries: dict[str, Entry], names: Any, published: list[tuple[str, float]]
) -> Any:
    """Plot the accuracy on all tasks so far, and on the first task, against tasks learned."""
    figure, axes = report.make_panels()
    tasks = 0
    for method, entry in entries.items():
        accuracy = 100 * curves.extras[method].mean(axis=0)
        tasks = len(accuracy)
        learned = np.arange(1, tasks + 1)
        count = curves.extras[f"{method} costs"][0]
        style = {"color": entry.colour, "linestyle": "--" if entry.few else "-", "marker": "."}
        label = f"{names(entry)}, {count:,.0f} images per task"
        if entry.mixed:  # only its final accuracy is comparable
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
    figure.legend(
        handles=handles, fontsize=7, ncols=3, handlelength=3.5, loc="outside upper center"
    )
    return figure
