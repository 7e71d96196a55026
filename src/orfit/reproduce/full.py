"""Learning without memory restriction (subsec:no_memory, fig:full).

ORFit and One-Step SGD learn 100 rotated images once. Vanilla SGD with a fixed step size passes over
them for 1000 epochs, first in the order of arrival, then shuffled. ORFit fits all of them after one
pass, and SGD converges to the parameters of ORFit (thm:implicit_bias).

In curves.csv `step` counts datapoints learned: 1 to 100 for ORFit and One-Step SGD; 100, 200, … for
SGD, which is measured after each epoch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.reproduce import limited, report, rotated
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Unlimited memory: one pass of ORFit, many epochs of SGD (fig:full)"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    sample: int = 11  # the training image of fig:full (b), counted from 1
    lr: float = 1e-5  # of vanilla SGD on the squared error, whose gradient is 2 (f − y) x
    epochs: int = 1000
    shuffle: bool = True  # from the second epoch on; the order is the same in every run


QUICK = {"points": 40, "tests": 200, "runs": 3, "epochs": 50}


def make_learners(settings: Settings, run: int, w0: Array) -> dict[str, Any]:
    model = rotated.make_model(settings)
    return {"orfit": orfit.ORFit(model, w0=w0), "one-step-sgd": orfit.OneStepSGD(model, w0=w0)}


def count_steps(settings: Settings) -> int:
    return settings.runs * settings.points + settings.epochs


def run(settings: Settings, advance: Advance) -> Curves:
    curves = limited.run_one_pass(settings, make_learners, advance)
    _run_sgd(settings, curves, advance)
    return curves


def _run_sgd(settings: Settings, curves: Curves, advance: Advance) -> None:
    """Run vanilla SGD. The runs differ in w0 alone, so each run is a head of one model."""
    data = rotated.load_data(settings)
    n, sample = settings.points, settings.sample - 1
    rng = np.random.default_rng([settings.data_seed, 1])
    W0 = np.array([w0 for _, w0 in rotated.draw_starts(settings)]).T
    learner = orfit.SGD(rotated.make_model(settings, heads=settings.runs), lr=settings.lr, w0=W0)
    Y = np.repeat(data.y[:, None], settings.runs, axis=1)
    errors: dict[str, list[Array]] = {q: [] for q in ("test_rmse", "train_rmse", "sample_error")}
    for epoch in range(settings.epochs):
        order = rng.permutation(n) if settings.shuffle and epoch else np.arange(n)
        learner.learn_each(data.X[order], Y[order])
        F = learner.predict(data.X)
        F_test = learner.predict(data.X_test)
        errors["test_rmse"].append(rotated.compute_rmse(F_test, data.y_test))
        errors["train_rmse"].append(rotated.compute_rmse(F, data.y))
        errors["sample_error"].append(np.degrees(abs(F[sample] - data.y[sample])))
        advance()
    steps = n * np.arange(1, settings.epochs + 1)
    for quantity, values in errors.items():
        curves.add("sgd", quantity, steps, np.transpose(values))
    distances = []
    for number, w0 in rotated.draw_starts(settings):
        fitted = make_learners(settings, number, w0)["orfit"]
        fitted.learn_each(data.X, data.y)
        distance = np.linalg.norm(learner.w[:, number] - fitted.w)
        distances.append(distance / np.linalg.norm(fitted.w - w0))
    curves.extras["distance"] = np.array(distances)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    n, epochs = settings.points, settings.epochs
    rows = []
    for method in ("orfit", "one-step-sgd", "sgd"):
        step = epochs * n if method == "sgd" else n
        errors = [curves[method, q].at(step) for q in ("train_rmse", "test_rmse", "sample_error")]
        cells = [f"{mean:.2g} ± {std:.1g}" if mean < 1 else f"{mean:.1f} ± {std:.1f}"
                 for mean, std in errors]  # fmt: skip
        passes = f"{epochs} epochs" if method == "sgd" else "one pass"
        rows.append([report.LABELS[method], passes, *cells])
    sample = f"image {settings.sample} (°)"
    title = "Final errors (root mean square, mean ± std over runs)"
    columns = ["method", "", "training (°)", "test (°)", sample]
    return [report.make_table(title, columns, rows), _make_distance_table(curves, settings)]


def compute_distance_left(settings: Settings, w0: Array, epochs: int) -> float:
    """Return |w − w∞| / |w0 − w∞| of gradient descent, where w∞ are the parameters of ORFit.

    Gradient descent on the squared error multiplies the component along a singular vector of the
    data by 1 − 2 lr σ² in each epoch.
    """
    data = rotated.load_data(settings)
    Phi = rotated.make_model(settings).phi(data.X, np.float64)
    U, sigma, _ = np.linalg.svd(Phi, full_matrices=False)
    components = (U.T @ (data.y - Phi @ w0)) / sigma
    left = np.abs(1 - 2 * settings.lr * sigma**2) ** epochs * components
    return float(np.linalg.norm(left) / np.linalg.norm(components))


def _make_distance_table(curves: Curves, settings: Settings) -> Any:
    _, w0 = next(rotated.draw_starts(settings))
    distance = curves.extras["distance"]
    measured = f"{distance.mean():.3f} ± {distance.std():.3f}"
    rows = [[f"SGD after {settings.epochs:,} epochs, measured", measured]]
    for epochs in (settings.epochs, 10 * settings.epochs, 100 * settings.epochs):
        share = compute_distance_left(settings, w0, epochs)
        rows.append([f"gradient descent after {epochs:,} epochs, computed", f"{share:.2g}"])
    title = "Distance of w to the w of ORFit ÷ distance of w0 to it"
    return report.make_table(title, ["", "distance"], rows)


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, (left, right) = report.make_panels(width=5.6)
    for axis in (left, right):
        axis.epochs = axis.twiny()
        axis.epochs.set_xlabel("epochs of SGD")
        axis.set_xlabel("training images learned (ORFit, One-Step SGD)")
        axis.grid(alpha=0.3)
    for method in ("orfit", "one-step-sgd", "sgd"):
        for quantity, axis, line, suffix in (
            ("test_rmse", left, "-", ", test"),
            ("train_rmse", left, ":", ", training"),
            ("sample_error", right, "-", ""),
        ):
            curve, target = curves[method, quantity], axis
            if method == "sgd":
                target, epochs = axis.epochs, curve.steps / settings.points
                curve = report.Curve(method, quantity, epochs, curve.values)
            report.plot_band(target, curve, linestyle=line, label=report.LABELS[method] + suffix)
    for axis in (left, right):  # both x scales of a panel share its y axis
        axis.set_ylim(bottom=-3)  # keeps a line at zero above the frame
    report.mark_step(right, settings.sample)
    left.set_title("Training and test errors")
    left.set_ylabel("root mean square error (°)")
    right.set_title(f"Error on training image {settings.sample}")
    right.set_ylabel("error (°)")
    handles = [h for axis in (left, left.epochs) for h in axis.get_legend_handles_labels()[0]]
    left.legend(handles=handles, fontsize=8, loc="upper right")
    left.set_ylim(top=170)
    right.legend(handles=right.get_legend_handles_labels()[0][-1:], loc="upper left")
    report.add_caption(figure, settings.runs)
    return figure
