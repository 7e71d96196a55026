"""Errors against the size m of the memory, and the minimax bound.

The data of `limited` are learned with m = 1 … 100 directions, chosen in four ways: the incremental
principal directions (ORFit), the latest, random ones, and the exact principal directions of all
gradients so far. The last one stores every gradient and is a reference. A fifth method is ORFit
with noise R > 0.

Another result is the largest change of past predictions, in radians, by a step of length 1
orthogonal to the memory: the root of max Σ (f_k(w + Δw) − f_k(w))². prop:pca_analysis states that
no choice of m directions has a smaller one than σ_(m+1), the next singular value of all gradients.

In curves.csv `step` is m.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.reproduce import report, rotated
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "Size of the memory: 100 rotated images in one pass, against m"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    runs: int = 3
    largest_m: int = 100
    every: int = 3  # m = 1, 1 + every, … and largest_m
    noise: float = 100.0  # R of ORFit with noise, relative to a prior of 1 on w


QUICK = {"points": 40, "tests": 200, "runs": 2, "largest_m": 40, "every": 8}

NAMES = {
    "orfit": "ORFit (principal)",
    "orfit-latest": "ORFit-latest",
    "orfit-random": "ORFit-random",
    "orfit-noise": "ORFit with noise",
    "orfit-pca": "exact PCA",
    "bound": "minimax bound σₘ₊₁",
}
COLOURS = report.COLOURS | {"orfit-noise": "tab:cyan", "orfit-pca": "black", "bound": "red"}


def list_sizes(settings: Settings) -> list[int]:
    """Return the values of m."""
    largest = min(settings.largest_m, settings.points)
    return sorted({*range(1, largest, settings.every), largest})


def count_steps(settings: Settings) -> int:
    return len(list_sizes(settings)) * settings.runs


def make_memories(settings: Settings, m: int, run: int) -> dict[str, tuple[Any, float]]:
    """Return memory and noise of each method."""
    seed = 1000 * settings.seed + run
    return {
        "orfit": (orfit.memory.Principal(m), 0.0),
        "orfit-latest": (orfit.memory.Latest(m), 0.0),
        "orfit-random": (orfit.memory.Random(m, seed=seed), 0.0),
        "orfit-noise": (orfit.memory.Principal(m), settings.noise),
    }


def run(settings: Settings, advance: Advance) -> Curves:
    data = rotated.load_data(settings)
    model = rotated.make_model(settings)
    Phi, Phi_test = (model.phi(X, np.float64) for X in (data.X, data.X_test))
    sigma = np.linalg.svd(Phi, compute_uv=False)
    axes = [np.linalg.svd(Phi[:i].T, full_matrices=False)[0] for i in range(len(Phi) + 1)]
    ms = list_sizes(settings)
    results: dict[tuple[str, str], Array] = {}

    def measure(method: str, number: int, m: int, w: Array, U: Array) -> None:
        residual = Phi.T - U @ (U.T @ Phi.T)
        measured = {
            "test_rmse": rotated.compute_rmse(Phi_test @ w, data.y_test),
            "train_rmse": rotated.compute_rmse(Phi @ w, data.y),
        }
        if method != "orfit-noise":  # its steps are not orthogonal to the memory
            measured["worst_change"] = np.asarray(np.linalg.norm(residual, 2))
        for quantity, value in measured.items():
            row = results.setdefault((method, quantity), np.empty((settings.runs, len(ms))))
            row[number, ms.index(m)] = value

    for number, w0 in rotated.draw_starts(settings):
        for m in ms:
            for method, (memory, noise) in make_memories(settings, m, number).items():
                learner = orfit.ORFit(model, memory, w0=w0, noise=noise)
                learner.learn_each(data.X, data.y)
                measure(method, number, m, learner.w, memory.U)
            measure("orfit-pca", number, m, *learn_with_exact_pca(Phi, data.y, w0, axes, m))
            advance()
    curves = Curves()
    for (method, quantity), values in results.items():
        curves.add(method, quantity, np.array(ms), values)
    bound = [sigma[m] if m < len(sigma) else 0.0 for m in ms]
    curves.add("bound", "worst_change", np.array(ms), np.array([bound]))
    return curves


def learn_with_exact_pca(
    Phi: Array, y: Array, w0: Array, axes: list[Array], m: int
) -> tuple[Array, Array]:
    """Learn with the projection off the m principal directions of all gradients so far.

    axes[i]: the principal directions of the first i gradients.  Return w and the last directions.
    """
    w = w0.copy()
    for x, label, directions in zip(Phi, y, axes[:-1], strict=True):
        U = directions[:, :m]
        g = x - U @ (U.T @ x)
        g -= U @ (U.T @ g)
        w += g * (label - x @ w) / (g @ g)
    return w, axes[-1][:, :m]


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    ms = list_sizes(settings)
    chosen = sorted({min(ms, key=lambda m: abs(m - target)) for target in (1, 10, 40, 100)})
    columns = ["memory", *[f"m = {m}" for m in chosen]]
    titles = {
        "test_rmse": "Test error (°, root mean square, mean ± std over runs)",
        "train_rmse": "Training error (°)",
        "worst_change": "Worst change of past predictions by a step of length 1 (radians)",
    }
    tables = []
    for quantity, title in titles.items():
        rows = report.format_rows(curves.select(quantity), chosen)
        for row, curve in zip(rows, curves.select(quantity), strict=True):
            row[0] = NAMES[curve.method]
        tables.append(report.make_table(title, columns, rows))
    return tables


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, axes = report.make_panels(3, 4.6)
    titles = {
        "test_rmse": ("Test error", "root mean square error (°)"),
        "train_rmse": ("Training error", "root mean square error (°)"),
        "worst_change": (
            "Worst change by a step of length 1",
            "change of past predictions (radians)",
        ),
    }
    for axis, (quantity, (title, label)) in zip(axes, titles.items(), strict=True):
        for curve in curves.select(quantity):
            dashes = {"bound": "--", "orfit-pca": ":", "orfit-noise": "-."}.get(curve.method, "-")
            colour, name = COLOURS[curve.method], NAMES[curve.method]
            report.plot_band(axis, curve, color=colour, label=name, linestyle=dashes)
        axis.set_title(title)
        axis.set_ylabel(label)
        axis.set_xlabel("directions kept, m")
        axis.grid(alpha=0.3)
    for axis in axes:
        axis.set_ylim(bottom=0)
    handles = axes[0].get_legend_handles_labels()[0] + axes[2].get_legend_handles_labels()[0][-1:]
    axes[0].legend(fontsize=8, handles=handles, loc="upper right")
    report.add_caption(figure, settings.runs)
    return figure
