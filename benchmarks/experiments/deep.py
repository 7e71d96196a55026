"""Networks (sec:deep): the tangent model, and gradients at the current parameters.

Networks 784-w-w-1 with ReLU and torch's initialisation, w = 100 and 400, learn the rotated images
of `full` in one pass: linearised once (tangent), or at the current parameters; with all directions,
or with m. SGD learns the same networks in many epochs, for comparison.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.reproduce import report, rotated
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Networks: gradients at the start (tangent), or at the current parameters"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    runs: int = 5
    narrow: int = 100  # hidden units of the first network, in each of two layers
    wide: int = 400  # and of the second network
    m: int = 10
    every: int = 5  # errors are measured after every so many steps
    lr: float = 1e-2  # of SGD, on batches of ten
    epochs: int = 300


QUICK = {"points": 30, "tests": 200, "runs": 2, "narrow": 20, "wide": 40, "epochs": 30}

KINDS = {
    "tangent": ("tangent, all directions", "tab:blue"),
    "tangent-limited": ("tangent, m directions", "tab:cyan"),
    "current": ("current gradients, all directions", "tab:red"),
    "current-limited": ("current gradients, m directions", "tab:orange"),
    "sgd": ("SGD, many epochs", "tab:brown"),
}


def make_network(width: int, seed: int) -> Any:
    """Return a network 784-w-w-1 with ReLU, initialised by torch."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    first, last = nn.Linear(rotated.PIXELS**2, width), nn.Linear(width, 1)
    return nn.Sequential(first, nn.ReLU(), nn.Linear(width, width), nn.ReLU(), last)


def list_widths(settings: Settings) -> list[int]:
    return sorted({settings.narrow, settings.wide})


def count_steps(settings: Settings) -> int:
    return settings.runs * len(list_widths(settings)) * len(KINDS)


def run(settings: Settings, advance: Advance) -> Curves:
    data = rotated.load_data(settings)
    errors: dict[tuple[str, str], list[Array]] = {}
    steps: dict[str, Array] = {}
    for number in range(settings.runs):
        for width in list_widths(settings):
            seed = 1000 * settings.seed + number
            for kind in KINDS:
                method = f"{kind}-{width}"
                module = make_network(width, seed)
                measure = _measure_sgd if kind == "sgd" else _measure_orfit
                measured = list(measure(settings, kind, module, data))
                steps[method] = np.array([step for step, *_ in measured])
                for column, quantity in ((1, "test_rmse"), (2, "train_rmse")):
                    values = np.array([row[column] for row in measured])
                    errors.setdefault((method, quantity), []).append(values)
                advance()
    curves = Curves()
    for (method, quantity), runs in errors.items():
        curves.add(method, quantity, steps[method], np.array(runs))
    return curves


def _measure_orfit(
    settings: Settings, kind: str, module: Any, data: rotated.Data
) -> Iterator[tuple[int, float, float]]:
    """Yield steps, and the errors on test and training images after them."""
    model = orfit.TorchModel(module, tangent=kind.startswith("tangent"))
    learner = orfit.ORFit(model, settings.m if kind.endswith("limited") else None)
    for start in range(0, settings.points, settings.every):
        block = slice(start, start + settings.every)
        learner.learn_each(data.X[block], data.y[block])
        test, train = (learner.predict(X) for X in (data.X_test, data.X))
        yield (
            learner.seen,
            float(rotated.compute_rmse(test, data.y_test)),
            float(rotated.compute_rmse(train, data.y)),
        )


def _measure_sgd(
    settings: Settings, kind: str, module: Any, data: rotated.Data
) -> Iterator[tuple[int, float, float]]:
    import torch

    X, y, X_test = (torch.tensor(a, dtype=torch.float32) for a in (data.X, data.y, data.X_test))
    optimiser = torch.optim.SGD(module.parameters(), lr=settings.lr)
    for epoch in range(1, settings.epochs + 1):
        for rows in torch.split(torch.randperm(len(X)), 10):
            optimiser.zero_grad()
            ((module(X[rows])[:, 0] - y[rows]) ** 2).mean().backward()
            optimiser.step()
        if epoch % max(1, settings.epochs // 20) == 0:
            with torch.no_grad():
                test, train = (module(inputs)[:, 0].double().numpy() for inputs in (X_test, X))
            yield (
                epoch * len(X),
                float(rotated.compute_rmse(test, data.y_test)),
                float(rotated.compute_rmse(train, data.y)),
            )


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    rows = []
    for kind, (name, _) in KINDS.items():
        for width in list_widths(settings):
            cells = []
            for quantity in ("train_rmse", "test_rmse"):
                curve = curves[f"{kind}-{width}", quantity]
                mean, std = curve.mean[-1], curve.std[-1]
                cells.append(f"{mean:.1f} ± {std:.1f}")
            named = name.replace("m directions", f"m = {settings.m}")
            rows.append([named, str(width), *cells])
    title = "Final errors (°, root mean square; mean ± std over runs)"
    return [report.make_table(title, ["", "width", "training", "test"], rows)]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, axes = report.make_panels()
    for axis, quantity, title in zip(
        axes, ("test_rmse", "train_rmse"), ("Test error", "Training error"), strict=True
    ):
        for kind, (name, colour) in KINDS.items():
            for width, style in zip(list_widths(settings), ("-", "--"), strict=False):
                curve = curves[f"{kind}-{width}", quantity]
                label = name.replace("m directions", f"m = {settings.m}") + f", width {width}"
                if kind == "sgd":  # its steps are epochs, so only the final error is comparable
                    axis.axhline(curve.mean[-1], color=colour, linestyle=style, label=label)
                else:
                    report.plot_band(axis, curve, color=colour, linestyle=style, label=label)
        axis.set_title(title)
        axis.set_xlabel("training images learned")
        axis.set_ylabel("root mean square error (°)")
        axis.set_ylim(bottom=-2)
        axis.grid(alpha=0.3)
    handles = axes[0].get_legend_handles_labels()[0]
    figure.legend(handles=handles, fontsize=7, ncols=4, loc="outside upper center")
    report.add_caption(figure, settings.runs)
    return figure
