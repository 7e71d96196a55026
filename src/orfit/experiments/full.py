"""No limit on memory (subsec:no_memory, fig:full): one pass against a thousand.

ORFit and One-Step SGD learn 100 rotated twos once; vanilla SGD with a fixed step size goes over
them for 1000 epochs, first in the order of arrival, then shuffled. ORFit has learned them all when
it has seen them once, and ends where SGD is heading (thm:implicit_bias). What the paper leaves
unsaid is in `rotated.Setup` and `Settings`, each choice by its name.

In curves.csv `step` counts datapoints learned: 1 to 100 for the one pass of ORFit and One-Step SGD,
100, 200, … for SGD, which is measured after each epoch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.door import Array
from orfit.experiments import limited, report, rotated
from orfit.experiments.report import Curves, Tick

TITLE = "No limit on memory: one pass of ORFit against many epochs of SGD"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    sample: int = 11  # the training image that is watched, counted from 1
    lr: float = 1e-5  # of vanilla SGD on the squared error, whose gradient is 2 (f − y) x
    epochs: int = 1000
    shuffle: bool = True  # from the second epoch on; the order is the same in every run


QUICK = {"points": 40, "tests": 200, "runs": 3, "epochs": 50}


def learners(settings: Settings, run: int, w0: Array) -> dict[str, Any]:
    return {
        "orfit": orfit.ORFit(rotated.model_of(settings), w0=w0),
        "one-step-sgd": orfit.OneStepSGD(rotated.model_of(settings), w0=w0),
    }


def ticks(settings: Settings) -> int:
    return settings.runs * settings.points + settings.epochs


def run(settings: Settings, tick: Tick) -> Curves:
    curves = limited.one_pass(settings, settings.sample, learners, tick)
    _many_passes(settings, curves, tick)
    return curves


def _many_passes(settings: Settings, curves: Curves, tick: Tick) -> None:
    """SGD, all runs at once: they differ in where they start, so each is a head of one model."""
    data = rotated.rotated_twos(settings)
    n, index = settings.points, settings.sample - 1
    order = np.random.default_rng([settings.data_seed, 1])
    W0 = np.array([w0 for _, w0 in rotated.starts(settings)]).T
    learner = orfit.SGD(rotated.model_of(settings, heads=settings.runs), lr=settings.lr, w0=W0)
    labels = np.repeat(data.y[:, None], settings.runs, axis=1)
    errors: dict[str, list[Array]] = {q: [] for q in ("test_rmse", "train_rmse", "sample_error")}
    for epoch in range(settings.epochs):
        rows = order.permutation(n) if settings.shuffle and epoch else np.arange(n)
        learner.learn_each(data.X[rows], labels[rows])
        f = learner.predict(data.X)
        errors["test_rmse"].append(rotated.rmse(learner.predict(data.X_test), data.y_test))
        errors["train_rmse"].append(rotated.rmse(f, data.y))
        errors["sample_error"].append(np.degrees(abs(f[index] - data.y[index])))
        tick()
    steps = n * np.arange(1, settings.epochs + 1)
    for quantity, values in errors.items():
        curves.add("sgd", quantity, steps, np.transpose(values))
    found = []
    for number, w0 in rotated.starts(settings):
        orfits = learners(settings, number, w0)["orfit"]
        orfits.learn_each(data.X, data.y)
        way = np.linalg.norm(orfits.w - w0)
        found.append(np.linalg.norm(learner.w[:, number] - orfits.w) / way)
    curves.facts["distance"] = np.array(found)


def tables(curves: Curves, settings: Settings) -> list[Any]:
    n, epochs = settings.points, settings.epochs
    rows = []
    for method in ("orfit", "one-step-sgd", "sgd"):
        step = epochs * n if method == "sgd" else n
        cells = [curves[method, q].at(step) for q in ("train_rmse", "test_rmse", "sample_error")]
        seen = f"{epochs} epochs" if method == "sgd" else "one pass"
        written = [f"{mean:.2g} ± {std:.1g}" if mean < 1 else f"{mean:.1f} ± {std:.1f}"
                   for mean, std in cells]  # fmt: skip
        rows.append([report.LABELS[method], seen, *written])
    sample = f"image {settings.sample} (°)"
    title = "Errors in the end (root mean square, mean ± std over runs)"
    errors = report.table(title, ["method", "", "training (°)", "test (°)", sample], rows)
    return [errors, _agreement(curves, settings)]


def _agreement(curves: Curves, settings: Settings) -> Any:
    """How far SGD still is from ORFit, and how long it would take."""
    data = rotated.rotated_twos(settings)
    _, w0 = next(rotated.starts(settings))
    Phi = rotated.model_of(settings).phi(data.X, np.float64)
    U, sigma, _ = np.linalg.svd(Phi, full_matrices=False)
    # Gradient descent shrinks the residual along a singular vector by 1 − 2 lr σ² in an epoch.
    left = (U.T @ (data.y - Phi @ w0)) / sigma
    distance = curves.facts["distance"]
    measured = f"{distance.mean():.3f} ± {distance.std():.3f}"
    rows = [[f"SGD after {settings.epochs:,} epochs, measured", measured]]
    for epochs in (settings.epochs, 10 * settings.epochs, 100 * settings.epochs):
        shrunk = np.abs(1 - 2 * settings.lr * sigma**2) ** epochs * left
        share = np.linalg.norm(shrunk) / np.linalg.norm(left)
        rows.append([f"gradient descent after {epochs:,} epochs, by its formula", f"{share:.2g}"])
    title = "Distance between SGD's w and ORFit's, as a share of ORFit's way from w0"
    return report.table(title, ["", "distance"], rows)


def figure(curves: Curves, settings: Settings) -> Any:
    made, (left, right) = report.panels(width=5.6)
    for axis in (left, right):
        axis.epochs = axis.twiny()
        axis.epochs.set_xlabel("epochs of SGD")
        axis.set_xlabel("training images learned (ORFit, One-Step SGD)")
        axis.grid(alpha=0.3)
    for method in ("orfit", "one-step-sgd", "sgd"):
        for quantity, axis, style in (
            ("test_rmse", left, "-"),
            ("train_rmse", left, ":"),
            ("sample_error", right, "-"),
        ):
            curve = curves[method, quantity]
            target = axis
            if method == "sgd":
                target, steps = axis.epochs, curve.steps / settings.points
                curve = report.Curve(method, quantity, steps, curve.values)
            kind = {"test_rmse": ", test", "train_rmse": ", training", "sample_error": ""}[quantity]
            label = report.LABELS[method] + kind
            report.shaded(target, curve, linestyle=style, label=label)
    for axis in (left, right):  # both scales of a panel share their y axis
        axis.set_ylim(bottom=-3)  # so that zero is seen
    report.mark(right, settings.sample)
    left.set_title("Training and test errors")
    left.set_ylabel("root mean square error (°)")
    right.set_title(f"Error on training image {settings.sample}")
    right.set_ylabel("error (°)")
    handles = [h for axis in (left, left.epochs) for h in axis.get_legend_handles_labels()[0]]
    left.legend(handles=handles, fontsize=8, loc="upper right")
    left.set_ylim(top=170)
    right.legend(handles=right.get_legend_handles_labels()[0][-1:], loc="upper left")
    report.say_runs(made, settings.runs)
    return made
