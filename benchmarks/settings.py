"""`make bench-settings`: the effect of m, noise, forgetting and features on nineteen real streams.

Every learner predicts each row, then learns it. The errors are written to settings.json, the
figure to docs/images/settings.png, and the tables to docs/settings.md below its heading "Tables".
"""

import argparse
import json
import os
import platform
import warnings
from importlib.metadata import version
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from stream_data import STREAMS, compute_fourier_features, standardise_so_far, stream
from stream_learners import FACES, HINDSIGHT, LINEAR, NONLINEAR, NOTHING

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
RESULTS = HERE / "settings.json"
HEADING = "## Tables\n"
ORDERS = {"in order": False, "shuffled": True}
FEATURES = {
    "standardised": standardise_so_far,
    "Fourier": lambda X: compute_fourier_features(standardise_so_far(X)),
    "as they are": lambda X: X,
}
TITLES = {
    "standardised": "Inputs, standardised",
    "Fourier": "300 Fourier features",
    "as they are": "Inputs as they are",
}
SETTINGS = [(order, features) for features in FEATURES for order in ORDERS]
ALL_LEARNERS = [*LINEAR, *FACES, *NONLINEAR, *NOTHING, *HINDSIGHT]
LARGEST_RATIO = 10.0  # larger ratios enter the means as this
BY_STREAM = [  # columns of the table of single streams, rows in the order of the file
    ("ORFit m=30", "as they are"),
    ("ORFit m=30, λ auto", "as they are"),
    ("ORFit m=30, λ auto", "standardised"),
    ("ORFit m=30, λ auto", "Fourier"),
    ("RLS", "as they are"),
]
OTHERS = ["river linear", "river PA", "sklearn SGD", *NONLINEAR, *NOTHING]
STYLES = {
    "ORFit m=30": "C0s", "ORFit m=30, λ auto": "C0*", "RLS": "C1o", "RLS λ=0.99": "C1s",
    "river linear": "C2v", "sklearn SGD": "C2^", "river Bayes": "C2P", "river forest": "C3X",
    "river neighbours": "C3d", "ridge, all rows": "k|",
}  # fmt: skip


def select_learners(features):
    """Return the learners measured on these inputs.

    Nonlinear learners get the inputs and no Fourier features; the river and scikit-learn estimators
    of orfit scale their inputs, so they get no Fourier features either.
    """
    selected = LINEAR | HINDSIGHT | NOTHING
    if features == "standardised":
        selected |= NONLINEAR
    return selected if features == "Fourier" else selected | FACES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page-only", action="store_true",
                        help="write page and figure from the stored results")  # fmt: skip
    parser.add_argument("--learners", nargs="+", default=ALL_LEARNERS, metavar="NAME",
                        help="measure these, and keep the results of the others")  # fmt: skip
    arguments = parser.parse_args()
    if not arguments.page_only:
        results = measure(arguments.learners)
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    results = json.loads(RESULTS.read_text())
    table = Table(title="Error relative to the trivial prediction · streams above 1")
    for name in summary_head():
        table.add_column(name)
    for learner in ALL_LEARNERS:
        table.add_row(*summary_cells(results, learner))
    console = Console()
    console.print(table)
    draw(results)
    write_page(results)
    console.print("written: benchmarks/settings.json, docs/settings.md, docs/images/settings.png")


def measure(names):
    """Return the errors of the learners named, and the stored errors of the others."""
    warnings.simplefilter("ignore")  # the table shows which learners diverge
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    streams = json.loads(RESULTS.read_text())["streams"] if RESULTS.exists() else {}
    with Progress(*columns, transient=True) as progress:
        steps = sum(len(set(names) & set(select_learners(features))) for _, features in SETTINGS)
        task = progress.add_task("", total=len(STREAMS) * steps)
        for name in STREAMS:
            of_stream = streams.setdefault(name, {})
            for order, features in SETTINGS:
                X, y = stream(name, ORDERS[order])
                inputs = FEATURES[features](X)
                errors = of_stream.setdefault(f"{order}, {features}", {})
                for learner, predict in select_learners(features).items():
                    if learner in names:
                        progress.update(task, description=f"{name}: {learner}", advance=1)
                        errors[learner] = compute_error(predict(inputs, y), y)
            of_stream["rows"], of_stream["inputs"] = X.shape
    packages = ("river", "scikit-learn", "statsmodels", "vega_datasets")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    versions = {package: version(package) for package in packages}
    return {"machine": machine, "versions": versions, "streams": streams}


def compute_error(predicted, y):
    """Return the root mean square over the second half, or None where it is not finite."""
    half = len(y) // 2
    with np.errstate(over="ignore"):
        error = float(np.sqrt(np.mean((predicted - y)[half:] ** 2)))
    return float(f"{error:.6g}") if np.isfinite(error) else None


def compute_ratio(of_stream, setting, learner):
    """Return the error relative to the better of last value and running mean."""
    order, features = setting
    errors = of_stream[f"{order}, {features}"]
    if learner not in errors:
        return np.nan
    error, trivial = errors[learner], min(errors[name] for name in NOTHING)
    return np.inf if error is None else error / trivial


def compute_ratios(results, setting, learner):
    """Return `compute_ratio` for each stream."""
    streams = results["streams"].values()
    return np.array([compute_ratio(of_stream, setting, learner) for of_stream in streams])


def summary_cells(results, learner):
    """Return the geometric mean over streams, and the number of streams with a ratio above 1."""
    cells = [learner]
    for setting in SETTINGS:
        ratios = compute_ratios(results, setting, learner)
        mean = np.exp(np.log(np.minimum(ratios, LARGEST_RATIO)).mean())
        cells.append("" if np.isnan(mean) else f"{mean:.3f} · {(ratios > 1).sum()}")
    return cells


def summary_head():
    return ["learner", *(f"{TITLES[features]}, {order}" for order, features in SETTINGS)]


def stream_cells(name, of_stream):
    """Return a row of the table of single streams."""
    ratios = [compute_ratio(of_stream, ("in order", features), learner)
              for learner, features in BY_STREAM]  # fmt: skip
    others = {
        (learner, features): compute_ratio(of_stream, ("in order", features), learner)
        for features in FEATURES
        for learner in OTHERS
        if learner in select_learners(features)
    }
    learner, features = min(others, key=others.get)
    suffix = "" if learner in NOTHING else f", {features}"
    best = f"{others[learner, features]:.3f}: {learner}{suffix}"
    rows, inputs = f"{of_stream['rows']:,}", str(of_stream["inputs"])
    return [name, rows, inputs, *(f"{ratio:.3f}" for ratio in ratios), best]


def draw(results):
    figure, axes = plt.subplots(1, 2, figsize=(13, 8), sharey=True, layout="constrained")
    places = np.arange(len(results["streams"]))[::-1]
    for axis, features in zip(axes, ("standardised", "Fourier"), strict=True):
        for i, (learner, style) in enumerate(STYLES.items()):
            # Nonlinear learners get the standardised inputs in both panels.
            inputs = features if learner in select_learners(features) else "standardised"
            ratios = compute_ratios(results, ("in order", inputs), learner)
            shift = 0.35 - 0.7 * i / (len(STYLES) - 1)  # markers of a stream do not overlap
            axis.plot(np.minimum(ratios, 3), places + shift, style, label=learner, markersize=6,
                      alpha=0.85, clip_on=False)  # fmt: skip
        axis.axvline(1, color="k", linestyle=":", linewidth=1)
        for place in places[:-1]:
            axis.axhline(place - 0.5, color="0.9", linewidth=1, zorder=0)
        axis.set_xscale("log")
        axis.set_xlim(0.07, 3)
        ticks = [0.1, 0.3, 1, 3]
        axis.set_xticks(ticks, [*map(str, ticks[:-1]), "≥ 3"])
        axis.minorticks_off()
        axis.set_title(f"{TITLES[features]}, in order")
        axis.set_xlabel("error on the second half ÷ error of the trivial prediction")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(places, list(results["streams"]))
    axes[0].set_ylim(-0.6, len(places) - 0.4)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(DOCS / "images" / "settings.png", dpi=110)


def make_markdown_table(head, rows):
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *rows)]
    return [f"| {line} |" for line in lines]


def write_page(results):
    page = DOCS / "settings.md"
    text = page.read_text().split(HEADING)[0]
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    streams = results["streams"]
    by_stream = [f"{learner}, {features}" for learner, features in BY_STREAM]
    lines = [
        "",
        f"Written by `make bench-settings` ({results['machine']}; {versions}).",
        "",
        "### Means over the streams",
        "",
        f"Geometric mean of the ratios · on how many of the {len(streams)} streams the ratio is",
        f"above 1. A ratio above {LARGEST_RATIO:g} enters the mean as {LARGEST_RATIO:g}.",
        "",
        *make_markdown_table(
            summary_head(), [summary_cells(results, learner) for learner in ALL_LEARNERS]
        ),
        "",
        "### Single streams, in order",
        "",
        "The last column is the best learner in hindsight among the last value, the running mean,",
        "and those of river and scikit-learn but `BayesianLinearRegression`, which is exact RLS.",
        "",
        *make_markdown_table(
            ["stream", "rows", "inputs", *by_stream, "best other learner"],
            [stream_cells(name, of_stream) for name, of_stream in streams.items()],
        ),
    ]
    page.write_text(text + HEADING + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
