"""`make bench-settings`: what m, noise, λ and features do, on nineteen real streams.

Every learner predicts each row, then learns it; the table, the picture and settings.json say how
large its errors were. The numbers of docs/settings.md, below its heading "All numbers", are
written here; what is above it is not.
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
from stream_data import STREAMS, fourier_features, standardised_so_far, stream
from stream_learners import FACES, HINDSIGHT, LINEAR, NONLINEAR, NOTHING

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
RESULTS = HERE / "settings.json"
HEADING = "## All numbers\n"
ORDERS = {"in order": False, "shuffled": True}
FEATURES = {
    "standardised": standardised_so_far,
    "Fourier": lambda X: fourier_features(standardised_so_far(X)),
    "as they are": lambda X: X,
}
TITLES = {
    "standardised": "Inputs, standardised",
    "Fourier": "300 Fourier features",
    "as they are": "Inputs as they are",
}
MOST = 10.0  # an error beyond so many times that of learning nothing counts as this in means
SHOWN = [  # in the tables of single streams
    "ORFit m=10", "ORFit m=30", "ORFit m=100", "ORFit m=30, λ auto", "ORFit m auto", "RLS",
    "RLS λ=0.99", "RLS λ auto", *FACES,
    "river linear", "river Bayes", "river PA", "sklearn SGD", *NONLINEAR, "ridge, all rows",
]  # fmt: skip
DRAWN = {
    "ORFit m=30": "C0s", "ORFit m=30, λ auto": "C0*", "RLS": "C1o", "RLS λ=0.99": "C1s",
    "river linear": "C2v", "sklearn SGD": "C2^", "river Bayes": "C2P", "river forest": "C3X",
    "river neighbours": "C3d", "ridge, all rows": "k|",
}  # fmt: skip
SETTINGS = [(order, features) for features in FEATURES for order in ORDERS]


def learners_of(features):
    """Trees, rules and neighbours find features of their own; orfit.river can, and has a scaler."""
    made = LINEAR | HINDSIGHT | NOTHING | (NONLINEAR if features == "standardised" else {})
    return made | (FACES if features != "Fourier" else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page-only", action="store_true",
                        help="page and picture from what was measured before")  # fmt: skip
    parser.add_argument("--learners", nargs="+", default=every_learner(), metavar="NAME",
                        help="measure these anew, and keep the others")  # fmt: skip
    arguments = parser.parse_args()
    if not arguments.page_only:
        made = measured(arguments.learners)
        RESULTS.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    results = json.loads(RESULTS.read_text())
    console = Console()
    console.print(summary_table(results))
    draw(results)
    write_page(results)
    console.print("written: benchmarks/settings.json, docs/settings.md, docs/images/settings.png")


def measured(wanted):
    """The errors of the learners that are wanted, beside those that were measured before."""
    warnings.simplefilter("ignore")  # of those that diverge, which the table shows
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    errors = json.loads(RESULTS.read_text())["streams"] if RESULTS.exists() else {}
    with Progress(*columns, transient=True) as progress:
        steps = sum(len(set(wanted) & set(learners_of(features))) for _, features in SETTINGS)
        task = progress.add_task("", total=len(STREAMS) * steps)
        for name in STREAMS:
            of_stream = errors.setdefault(name, {})
            for order, features in SETTINGS:
                X, y = stream(name, ORDERS[order])
                inputs = FEATURES[features](X)
                made = of_stream.setdefault(f"{order}, {features}", {})
                for learner, predictions in learners_of(features).items():
                    if learner not in wanted:
                        continue
                    progress.update(task, description=f"{name}: {learner}", advance=1)
                    made[learner] = errors_of(predictions(inputs, y), y)
            of_stream["rows"], of_stream["inputs"] = X.shape
    packages = ("river", "scikit-learn", "statsmodels", "vega_datasets")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return {
        "machine": machine,
        "versions": {package: version(package) for package in packages},
        "streams": errors,
    }


def errors_of(predicted, y):
    """Root mean squares: of the second half, and of all but the first row, which nobody can know.

    None where a prediction was not finite.
    """
    with np.errstate(over="ignore"):
        squares = (predicted - y) ** 2
    parts = {"second half": squares[len(y) // 2 :], "whole": squares[1:]}
    roots = {part: float(np.sqrt(np.mean(values))) for part, values in parts.items()}
    return {part: float(f"{x:.6g}") if np.isfinite(x) else None for part, x in roots.items()}


def relative(results, setting, learner, part="second half"):
    """For each stream the error over that of learning nothing, of the better way to do so."""
    order, features = setting
    made = []
    for of_stream in results["streams"].values():
        errors = of_stream[f"{order}, {features}"]
        if learner not in errors:
            return None
        error, nothing = errors[learner][part], min(errors[name][part] for name in NOTHING)
        made.append(np.inf if error is None else error / nothing)
    return np.array(made)


def summary(results, setting, learner):
    """The geometric mean over streams of the second half and of all; how often it is above 1."""
    ratios = relative(results, setting, learner)
    if ratios is None:
        return None
    whole = relative(results, setting, learner, "whole")
    means = [np.exp(np.log(np.minimum(part, MOST)).mean()) for part in (ratios, whole)]
    return *means, int((ratios > 1).sum())


def summary_cells(results, learner):
    cells = []
    for setting in SETTINGS:
        made = summary(results, setting, learner)
        cells.append("" if made is None else "{:.3f} · {:.3f} · {}".format(*made))
    return [learner, *cells]


def summary_head():
    return ["learner", *(f"{TITLES[features]}, {order}" for order, features in SETTINGS)]


def every_learner():
    return [*LINEAR, *FACES, *NONLINEAR, *NOTHING, *HINDSIGHT]


def summary_table(results):
    table = Table(title="Error, second half · whole · on how many streams worse than nothing")
    for name in summary_head():
        table.add_column(name)
    for learner in every_learner():
        table.add_row(*summary_cells(results, learner))
    return table


def draw(results):
    figure, axes = plt.subplots(1, 2, figsize=(13, 8), sharey=True, layout="constrained")
    places = np.arange(len(results["streams"]))[::-1]
    for axis, features in zip(axes, ("standardised", "Fourier"), strict=True):
        for i, (learner, style) in enumerate(DRAWN.items()):
            # Trees and neighbours see the inputs in both panels.
            seen = features if learner in learners_of(features) else "standardised"
            ratios = relative(results, ("in order", seen), learner)
            drop = 0.35 - 0.7 * i / (len(DRAWN) - 1)  # side by side, not on top of each other
            axis.plot(np.minimum(ratios, 3), places + drop, style, label=learner, markersize=6,
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
        axis.set_xlabel("error on the second half ÷ that of learning nothing")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(places, list(results["streams"]))
    axes[0].set_ylim(-0.6, len(places) - 0.4)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    (DOCS / "images").mkdir(exist_ok=True)
    figure.savefig(DOCS / "images" / "settings.png", dpi=110)


def shown_ratio(ratio):
    if not np.isfinite(ratio) or ratio > 1000:
        return "> 1000"
    return f"{ratio:.3g}" if ratio >= 100 else f"{ratio:.3f}" if ratio < 10 else f"{ratio:.1f}"


def table_of(results, setting):
    """Streams by learners; the smallest error shown, but for hindsight, is bold."""
    names = [name for name in SHOWN if name in learners_of(setting[1])]
    ratios = np.array([relative(results, setting, name) for name in names]).T
    online = np.array([name not in HINDSIGHT for name in names])
    lines = [
        "| stream | rows | inputs | " + " | ".join(names) + " |",
        "|---" * (len(names) + 3) + "|",
    ]
    for (name, of_stream), row in zip(results["streams"].items(), ratios, strict=True):
        cells = [shown_ratio(ratio) for ratio in row]
        best = cells[int(np.argmin(np.where(online, row, np.inf)))]
        cells = [f"**{c}**" if c == best and on else c for c, on in zip(cells, online, strict=True)]
        size = [f"{of_stream['rows']:,}", str(of_stream["inputs"])]
        lines.append("| " + " | ".join([name, *size, *cells]) + " |")
    return lines


def write_page(results):
    page = DOCS / "settings.md"
    by_hand = page.read_text().split(HEADING)[0]
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    lines = [
        "",
        f"Written by `make bench-settings` ({results['machine']}; {versions}).",
        "Root mean squared error relative to that of learning nothing: of the last value or the",
        "running mean, whichever is better on that stream. Above 1 is worse than learning nothing.",
        "",
        "Over all streams: the geometric mean for the second half · for the whole stream · on how",
        f"many of the {len(results['streams'])} streams the second half was worse than nothing.",
        f"In means an error counts as {MOST:g} at most.",
        "",
        "| " + " | ".join(summary_head()) + " |",
        "|---" * len(summary_head()) + "|",
        *("| " + " | ".join(summary_cells(results, name)) + " |" for name in every_learner()),
    ]
    for setting in SETTINGS:
        order, features = setting
        lines += ["", f"### {TITLES[features]}, {order}: the second half", ""]
        lines += table_of(results, setting)
    page.write_text(by_hand + HEADING + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
