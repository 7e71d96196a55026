"""Learners of new classes on fixed features: `orfit.Heads` and learners to compare it with.

All learn the same features in the same order, each datapoint once, and store no datapoint.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from tasks import format_mean

import orfit
from orfit.networks.features import Expansion
from orfit.networks.heads import MEASURED
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

BLOCK = 500  # rows whose random features are computed at once


@dataclass(frozen=True)
class ClassSettings:
    """Settings common to these experiments."""

    m: int = 200  # directions of the heads
    expand: int = 3000  # random ReLU features
    few: int = 50  # m of a second learner with random features
    held_out: int = 0  # test on so many training images, to choose settings
    lr: float = 0.1  # of SGD, divided by the mean squared length of the features
    bundled: bool = False  # use the sample of MNIST in the package
    runs: int = 3  # with different random features, and images in a different order
    seed: int = 0


@dataclass(frozen=True)
class Data:
    X: Array
    y: Array
    X_test: Array
    y_test: Array

    def hold_out(self, count: int, seed: int) -> "Data":
        """Return the data with `count` training rows in place of the test data."""
        if not count:
            return self
        order = np.random.default_rng(seed).permutation(len(self.X))
        test, rest = np.split(order, [count])
        return Data(self.X[rest], self.y[rest], self.X[test], self.y[test])


class ExactRls:
    """RLS on random features by its normal equations, with the R of `orfit.Heads`."""

    def __init__(self, expand: int, seed: int) -> None:
        self.features = Expansion(expand, seed)
        self.R = 0.0

    def learn(self, X: Array, y: Array) -> None:
        for start in range(0, len(X), BLOCK):
            Phi = self.features.of(X[start : start + BLOCK])
            if not self.R:
                p = Phi.shape[1] + 1
                self.R = float(np.square(self.features.of(X[:MEASURED])).sum(axis=1).mean())
                self.A, self.B = np.zeros((p, p), Phi.dtype), np.zeros((p, 10), Phi.dtype)
            Phi = np.hstack([Phi, np.ones((len(Phi), 1), Phi.dtype)])
            self.A += Phi.T @ Phi
            self.B += Phi.T @ np.eye(10, dtype=Phi.dtype)[y[start : start + BLOCK]]

    def predict(self, X: Array) -> Array:
        A = self.A.astype(float)
        A[np.diag_indices_from(A)] += self.R
        w = np.linalg.solve(A, self.B).astype(self.B.dtype)
        parts = [self.features.of(X[i : i + BLOCK]) for i in range(0, len(X), BLOCK)]
        return np.concatenate([(Phi @ w[:-1] + w[-1]).argmax(axis=1) for Phi in parts])

    @property
    def megabytes(self) -> float:
        return (self.A.nbytes + self.B.nbytes) / 1e6


class NearestMean:
    """Nearest class mean."""

    def __init__(self) -> None:
        self.counts = np.zeros(10)

    def learn(self, X: Array, y: Array) -> None:
        if not self.counts.any():
            self.means = np.zeros((10, X.shape[1]))
        for label in np.unique(y):
            self.add(X[y == label].astype(float), label)

    def add(self, X: Array, label: int) -> None:
        self.counts[label] += len(X)
        self.means[label] += (X - self.means[label]).sum(axis=0) / self.counts[label]

    def predict(self, X: Array) -> Array:
        known = np.flatnonzero(self.counts)
        means = self.means[known]
        best = (X @ means.T - np.square(means).sum(axis=1) / 2).argmax(axis=1)
        return np.asarray(known[best])

    @property
    def megabytes(self) -> float:
        return self.means.nbytes / 1e6


class StreamingLda(NearestMean):
    """Class means and one covariance matrix within classes (Hayes and Kanan, 2020)."""

    SHRINKAGE = 1e-4  # as published

    def add(self, X: Array, label: int) -> None:
        if not self.counts.any():
            self.scatter = np.zeros((X.shape[1], X.shape[1]))
        before, n = self.means[label].copy(), self.counts[label]
        super().add(X, label)
        centred = X - X.mean(axis=0)
        self.scatter += centred.T @ centred
        shift = X.mean(axis=0) - before
        self.scatter += n * len(X) / (n + len(X)) * np.outer(shift, shift)

    def predict(self, X: Array) -> Array:
        known = np.flatnonzero(self.counts)
        means = self.means[known]
        covariance = (1 - self.SHRINKAGE) * self.scatter / self.counts.sum()
        covariance[np.diag_indices_from(covariance)] += self.SHRINKAGE
        w = np.linalg.solve(covariance, means.T)
        return np.asarray(known[(X @ w - (means * w.T).sum(axis=1) / 2).argmax(axis=1)])

    @property
    def megabytes(self) -> float:
        return (self.means.nbytes + self.scatter.nbytes) / 1e6


class SgdLearner:
    """SGD on the cross-entropy of a linear layer."""

    BATCH = 10

    def __init__(self, lr: float) -> None:
        self.lr, self.w = lr, np.zeros((0, 10))

    def learn(self, X: Array, y: Array) -> None:
        if not len(self.w):
            self.w = np.zeros((X.shape[1] + 1, 10))
            self.step = self.lr / np.square(X[:1000], dtype=float).sum(axis=1).mean()
        for start in range(0, len(X), self.BATCH):
            batch = X[start : start + self.BATCH].astype(float)
            residual = _compute_softmax(batch @ self.w[:-1] + self.w[-1])
            residual[np.arange(len(batch)), y[start : start + self.BATCH]] -= 1
            self.w[:-1] -= self.step * (batch.T @ residual)
            self.w[-1] -= self.step * residual.sum(axis=0)

    def predict(self, X: Array) -> Array:
        return np.asarray((X @ self.w[:-1] + self.w[-1]).argmax(axis=1))

    @property
    def megabytes(self) -> float:
        return self.w.nbytes / 1e6


def _compute_softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))


class HeadsLearner:
    """`orfit.Heads` with its defaults."""

    def __init__(self, m: int, expand: int | None, seed: int) -> None:
        self.heads = orfit.Heads(memory=m, expand=expand, seed=seed)

    def learn(self, X: Array, y: Array) -> None:
        for start in range(0, len(X), BLOCK):
            self.heads.learn(X[start : start + BLOCK], y[start : start + BLOCK])

    def predict(self, X: Array) -> Array:
        parts = [self.heads.predict(X[i : i + BLOCK]) for i in range(0, len(X), BLOCK)]
        return np.concatenate(parts)

    @property
    def megabytes(self) -> float:
        assert self.heads.learner is not None
        arrays, _ = self.heads.learner.state()
        return float(sum(array.nbytes for array in arrays.values()) / 1e6)


NAMES = {
    "sgd": "SGD",
    "means": "nearest class mean",
    "lda": "streaming LDA",
    "heads-plain": "heads, m = {m}",
    "heads-few": "heads, m = {few}, {expand} random features",
    "heads": "heads, m = {m}, {expand} random features",
    "exact": "RLS, exact, {expand} random features",
}
COLOURS = dict(
    zip(NAMES, ("brown", "gray", "green", "purple", "cyan", "blue", "orange"), strict=True)
)


def iterate_learners(settings: ClassSettings, seed: int) -> Iterator[tuple[str, Any]]:
    yield "sgd", SgdLearner(settings.lr)
    yield "means", NearestMean()
    yield "lda", StreamingLda()
    yield "heads-plain", HeadsLearner(settings.m, None, seed)
    yield "heads-few", HeadsLearner(settings.few, settings.expand, seed)
    yield "heads", HeadsLearner(settings.m, settings.expand, seed)
    yield "exact", ExactRls(settings.expand, seed)


def run_learners(
    settings: ClassSettings, data: Data, stages: list[list[int]], advance: Advance
) -> Curves:
    """Run every learner. A stage is a list of classes, whose datapoints arrive in random order."""
    curves = Curves()
    accuracy: dict[str, list[Any]] = {name: [] for name in NAMES}
    costs: dict[str, list[Any]] = {name: [] for name in NAMES}
    for run in range(settings.runs):
        seed = settings.seed + run
        split = data.hold_out(settings.held_out, seed)
        for name, learner in iterate_learners(settings, seed):
            rng = np.random.default_rng([seed, 1])
            measured, seconds, known = [], 0.0, np.zeros(10, bool)
            for classes in stages:
                rows = rng.permutation(np.flatnonzero(np.isin(split.y, classes)))
                start = time.perf_counter()
                learner.learn(split.X[rows], split.y[rows])
                seconds += time.perf_counter() - start
                known[classes] = True
                tested = known[split.y_test]
                correct = learner.predict(split.X_test[tested]) == split.y_test[tested]
                measured.append(correct.mean())
                advance()
            accuracy[name].append(measured)
            costs[name].append([seconds, learner.megabytes])
    for name, values in accuracy.items():
        curves.add(name, "accuracy", np.arange(1, len(stages) + 1), np.array(values))
        curves.extras[name] = np.mean(costs[name], axis=0)
    return curves


def count_steps(settings: ClassSettings, stages: int) -> int:
    return len(NAMES) * settings.runs * stages


def format_name(name: str, settings: ClassSettings) -> str:
    return NAMES[name].format(m=settings.m, few=settings.few, expand=f"{settings.expand:,}")


def make_table(curves: Curves, settings: ClassSettings) -> Any:
    rows = []
    for name in NAMES:
        seconds, megabytes = curves.extras[name]
        final = format_mean(100 * curves[name, "accuracy"].values[:, -1])
        rows.append([format_name(name, settings), final, f"{seconds:.0f}", f"{megabytes:.2f}"])
    columns = ["learner", "accuracy", "s", "MB"]
    return report.make_table("Final accuracy on all ten classes (%)", columns, rows)


def draw_figure(curves: Curves, settings: ClassSettings, label: str) -> Any:
    figure, axis = report.make_panels(1, 7.0, 4.4)
    for name in NAMES:
        curve = curves[name, "accuracy"]
        report.plot_band(
            axis,
            report.Curve(name, "accuracy", curve.steps, 100 * curve.values),
            color=f"tab:{COLOURS[name]}",
            label=format_name(name, settings),
            marker=".",
        )
    axis.set_xlabel(label)
    axis.set_ylabel("accuracy on all classes so far (%)")
    axis.set_xticks(curves["heads", "accuracy"].steps)
    axis.set_ylim(0, 102)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    return figure
