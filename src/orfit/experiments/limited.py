"""Little memory (subsec:exp_limit, fig:limited): who still knows the 16th image?

100 rotated twos arrive ordered by angle and are learned one by one, in one pass, with room for 10
directions. After each step the error on all test images is measured, and that on the 16th training
image, before and after it was learned. What the paper leaves unsaid is in `rotated.Setup`, each
choice by its name; what is special here is in `Settings`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.door import Array
from orfit.experiments import report, rotated
from orfit.experiments.report import Curves, Tick

TITLE = "Little memory: rotated twos in one pass"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    m: int = 10  # directions that may be kept
    sample: int = 16  # the training image that is watched, counted from 1


QUICK = {"points": 40, "tests": 200, "runs": 3}


def learners(settings: Settings, run: int, w0: Array) -> dict[str, Any]:
    """The method and its baselines, each at the start of a run."""
    m, model = settings.m, rotated.model_of(settings)
    choice = orfit.memory.Random(m, seed=1000 * settings.seed + run)
    return {
        "orfit": orfit.ORFit(model, m, w0=w0),
        "orfit-random": orfit.ORFit(model, choice, w0=w0),
        "orfit-latest": orfit.ORFit(model, orfit.memory.Latest(m), w0=w0),
        "one-step-sgd": orfit.OneStepSGD(model, w0=w0),
        "greedy": orfit.Greedy(model),
    }


def ticks(settings: Settings) -> int:
    return settings.runs * settings.points


def run(settings: Settings, tick: Tick) -> Curves:
    return one_pass(settings, settings.sample, learners, tick)


def one_pass(
    settings: Any, sample: int, learners: Callable[[Any, int, Array], dict[str, Any]], tick: Tick
) -> Curves:
    """Learn the data once with every learner, in every run; errors after every step."""
    if not 0 < sample <= settings.points:
        raise ValueError(
            f"sample must be one of the {settings.points} training images; it is {sample}"
        )
    data = rotated.rotated_twos(settings)
    everything, n = np.vstack([data.X, data.X_test]), settings.points
    errors: dict[tuple[str, str], list[Array]] = {}
    for number, w0 in rotated.starts(settings):
        methods = learners(settings, number, w0)
        passed: dict[str, list[Array]] = {method: [] for method in methods}
        for x, y in zip(data.X, data.y, strict=True):
            for method, learner in methods.items():
                learner.learn(x, y)
                passed[method].append(learner.w)
            tick()
        for method, parameters in passed.items():
            F = _predictions(settings, np.array(parameters), everything)
            told = {
                "test_rmse": rotated.rmse(F[n:], data.y_test),
                "train_rmse": rotated.rmse(F[:n], data.y),
                "sample_error": np.degrees(abs(F[sample - 1] - data.y[sample - 1])),
            }
            for quantity, values in told.items():
                errors.setdefault((method, quantity), []).append(values)
    curves = Curves()
    for (method, quantity), runs in errors.items():
        curves.add(method, quantity, np.arange(1, n + 1), np.array(runs))
    return curves


def _predictions(settings: Any, parameters: Array, X: Array) -> Array:
    """Of every input (rows) with the parameters after every step (columns), all at once."""
    if parameters.ndim == 1:  # Greedy's are the label that it remembers
        return np.tile(parameters, (len(X), 1))
    return rotated.model_of(settings, heads=len(parameters)).predict(parameters.T, X)


def tables(curves: Curves, settings: Settings) -> list[Any]:
    n = settings.points
    steps = sorted({settings.sample, n // 2, 3 * n // 4, n})
    columns = ["method", *[f"step {step}" for step in steps]]
    titles = {
        "test_rmse": "Test error (°, root mean square; mean ± std over runs)",
        "sample_error": f"Error on training image {settings.sample} (°)",
    }
    return [
        report.table(title, columns, report.at_steps(curves.of(quantity), steps))
        for quantity, title in titles.items()
    ]


def figure(curves: Curves, settings: Settings) -> Any:
    made, (left, right) = report.panels()
    for curve in curves.of("test_rmse"):
        report.shaded(left, curve)
    for curve in curves.of("sample_error"):
        report.shaded(right, curve)
    report.mark(right, settings.sample)
    left.set_title(f"Test error, m = {settings.m}")
    left.set_ylabel("root mean square error (°)")
    right.set_title(f"Error on training image {settings.sample}")
    right.set_ylabel("error (°)")
    for axis in (left, right):
        axis.set_xlabel("training images learned")
        axis.set_ylim(bottom=-2)  # so that zero is seen
        axis.grid(alpha=0.3)
    left.legend()
    right.legend(handles=right.get_legend_handles_labels()[0][-1:], loc="upper left")
    report.say_runs(made, settings.runs)
    return made
