"""Learning with restrictions on memory size (subsec:exp_limit, fig:limited).

100 rotated images arrive ordered by angle. Each is learned once, with a memory of 10 directions.
After each step two errors are measured: on all test images, and on the 16th training image.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.reproduce import report, rotated
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Limited memory: 100 rotated images in one pass (fig:limited)"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    m: int = 10  # size of the memory
    sample: int = 16  # the training image of fig:limited (b), counted from 1


QUICK = {"points": 40, "tests": 200, "runs": 3}


def make_learners(settings: Settings, run: int, w0: Array) -> dict[str, Any]:
    """Return ORFit and the paper's four baselines."""
    m, model = settings.m, rotated.make_model(settings)
    random = orfit.memory.Random(m, seed=1000 * settings.seed + run)
    return {
        "orfit": orfit.ORFit(model, m, w0=w0),
        "orfit-random": orfit.ORFit(model, random, w0=w0),
        "orfit-latest": orfit.ORFit(model, orfit.memory.Latest(m), w0=w0),
        "one-step-sgd": orfit.OneStepSGD(model, w0=w0),
        "greedy": orfit.Greedy(model),
    }


def count_steps(settings: Settings) -> int:
    return settings.runs * settings.points


def run(settings: Settings, advance: Advance) -> Curves:
    return run_one_pass(settings, make_learners, advance)


def run_one_pass(
    settings: Any, make_learners: Callable[[Any, int, Array], dict[str, Any]], advance: Advance
) -> Curves:
    """Learn the training data once with every learner, in every run; measure after every step."""
    n, sample = settings.points, settings.sample
    if not 0 < sample <= n:
        raise ValueError(f"sample must be one of the {n} training images; it is {sample}")
    data = rotated.load_data(settings)
    X = np.vstack([data.X, data.X_test])
    errors: dict[tuple[str, str], list[Array]] = {}
    for number, w0 in rotated.draw_starts(settings):
        learners = make_learners(settings, number, w0)
        parameters: dict[str, list[Array]] = {method: [] for method in learners}
        for x, y in zip(data.X, data.y, strict=True):
            for method, learner in learners.items():
                learner.learn(x, y)
                parameters[method].append(learner.w)
            advance()
        for method, W in parameters.items():
            F = _predict(settings, np.array(W), X)
            measured = {
                "test_rmse": rotated.compute_rmse(F[n:], data.y_test),
                "train_rmse": rotated.compute_rmse(F[:n], data.y),
                "sample_error": np.degrees(abs(F[sample - 1] - data.y[sample - 1])),
            }
            for quantity, values in measured.items():
                errors.setdefault((method, quantity), []).append(values)
    curves = Curves()
    for (method, quantity), runs in errors.items():
        curves.add(method, quantity, np.arange(1, n + 1), np.array(runs))
    return curves


def _predict(settings: Any, W: Array, X: Array) -> Array:
    """Return the predictions of X with the parameters W after each step: (inputs, steps)."""
    if W.ndim == 1:  # Greedy has one parameter, the latest label
        return np.tile(W, (len(X), 1))
    return rotated.make_model(settings, heads=len(W)).predict(W.T, X)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    n = settings.points
    steps = sorted({settings.sample, n // 2, 3 * n // 4, n})
    columns = ["method", *[f"step {step}" for step in steps]]
    titles = {
        "test_rmse": "Test error (°, root mean square; mean ± std over runs)",
        "sample_error": f"Error on training image {settings.sample} (°)",
    }
    return [
        report.make_table(title, columns, report.format_rows(curves.select(quantity), steps))
        for quantity, title in titles.items()
    ]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, (left, right) = report.make_panels()
    for curve in curves.select("test_rmse"):
        report.plot_band(left, curve)
    for curve in curves.select("sample_error"):
        report.plot_band(right, curve)
    report.mark_step(right, settings.sample)
    left.set_title(f"Test error, m = {settings.m}")
    left.set_ylabel("root mean square error (°)")
    right.set_title(f"Error on training image {settings.sample}")
    right.set_ylabel("error (°)")
    for axis in (left, right):
        axis.set_xlabel("training images learned")
        axis.set_ylim(bottom=-2)  # keeps a line at zero above the frame
        axis.grid(alpha=0.3)
    left.legend()
    right.legend(handles=right.get_legend_handles_labels()[0][-1:], loc="upper left")
    report.add_caption(figure, settings.runs)
    return figure
