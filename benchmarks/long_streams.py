"""`orfit learn` on three long real streams, beside what one would take instead.

Each row is predicted, then learned, in the order of the file; nothing is tuned. The table and the
picture of docs/streams.md come from here. `--data` names a folder, to which the files are fetched
where they are not there (long_data.py). Times are of the processor, on one core.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as `orfit learn` has it, for all

import argparse
import json
import platform
import re
import time
import warnings
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import repeat
from pathlib import Path

import matplotlib as mpl
import numpy as np
from command import Silent
from long_data import fetched
from stream_learners import (
    last_value,
    river_forest,
    river_model,
    river_pipeline,
    river_predictions,
    river_tree,
    running_mean,
    scikit_learn_sgd,
)

import orfit
from orfit.stream.encoding import Choice
from orfit.stream.figures import STYLES
from orfit.stream.lags import Lags
from orfit.stream.run import Run
from orfit.stream.setup import Setup
from orfit.stream.source import Source

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
RESULTS = HERE / "long_streams.json"
WRITTEN = re.compile(r"(<!-- written by long_streams.py -->\n).*?(<!-- to here -->)", re.DOTALL)
KNOWN = 1000  # first rows, of which `orfit learn` has seen the scales: they count for nobody
FIRST = 20_000  # rows for those that take milliseconds a row
POINTS = 80  # of a curve


@dataclass(frozen=True)
class Stream:
    """What is said on the command line, and what the picture says."""

    choice: Choice
    options: Setup
    title: str
    unit: str


STREAMS = {
    "turbines": Stream(
        Choice(("P_avg",), missing="skip"), Setup(), "Wind turbines: power of ten minutes", "kW"
    ),
    "flights": Stream(
        Choice(
            ("arr_delay",),
            only=("dep_delay", "sched_dep_time", "sched_arr_time", "distance", "carrier",
                  "origin", "dest", "time_hour"),
            missing="skip",
        ),
        Setup(),
        "Flights: delay at arrival",
        "minutes",
    ),
    "power": Stream(
        Choice(("power",), missing="skip"),
        Setup(features="lags:10"),
        "Household: power of the next minute",
        "kW",
    ),
}  # fmt: skip
NOTHING = {"last value": last_value, "running mean": running_mean}
SLOW = {
    "sklearn SGD": scikit_learn_sgd,
    "river tree": river_model(river_tree),
    "river forest": river_model(river_forest),
}
PIPELINE = 500_000  # rows that there is time for: of a longer stream, the first ones
DRAWN = {
    "orfit": STYLES["orfit"],
    "orfit, raw": STYLES["rls"],
    "last value": STYLES["last value"],
}


@dataclass
class Watch(Silent):
    """Takes down the sums of squared and absolute errors as rows are learned."""

    rows: list[int] = field(default_factory=lambda: [0])
    sums: list = field(default_factory=lambda: [np.zeros(2)])

    def learned(self, session, share):
        self.rows.append(session.scores.rows)
        self.sums.append(session.scores.sums[:, 0, 0].copy())


def command(path, choice, options):
    """`orfit learn`, with all that it does: where blocks end, summed errors there, time a row."""
    watch, start = Watch(), time.process_time()
    session = Run([str(path)], watch).learn(None, choice, options)
    spent = (time.process_time() - start) / watch.rows[-1]
    return np.array(watch.rows), np.array(watch.sums), spent, session


@dataclass(frozen=True)
class Table:
    """The rows that orfit learned, before features are made of them.

    X: n×d, as orfit has them, texts hashed. y: targets in their own units. numbers: which columns
    of X are not of texts. texts: the others, as they were.
    """

    X: np.ndarray
    y: np.ndarray
    numbers: list[int]
    texts: dict[str, list[str]]

    @classmethod
    def of(cls, path, session):
        encoding = session.encoding
        hints = {"numeric": encoding.numeric, "columns": encoding.reads}
        blocks = list(Source.of([str(path)]).blocks(**hints))
        made = [encoding.encode(block) for block in blocks]
        X, Y = np.vstack([each.X for each in made]), np.vstack([each.Y for each in made])
        numbers, texts, at = [], {}, 0
        for name, kind in encoding.kinds.items():
            if kind.kind == "category":
                found = zip(blocks, made, strict=True)
                texts[name] = [
                    t for b, m in found for t in b.columns[name].take(m.rows).to_pylist()
                ]
            else:
                numbers += range(at, at + kind.width)
            at += kind.width
        if session.lags:  # of streams that have no texts
            X = Lags(session.lags.count, X.shape[1], 1).make(X, Y)
            numbers = list(range(X.shape[1]))
        return cls(X, (Y * encoding.target.scale + encoding.target.mean)[:, 0], numbers, texts)

    def rows(self, most):
        """As river takes them: numbers and texts by name."""
        texts = zip(*self.texts.values(), strict=True) if self.texts else repeat(())
        for x, words in zip(self.X[:most], texts, strict=False):
            yield dict(zip(self.numbers, x[self.numbers].tolist(), strict=True)) | dict(
                zip(self.texts, words, strict=True)
            )


def summed(predictions, y, ends):
    """The same of another method: predictions() of y, in order."""
    start = time.process_time()
    made = predictions()
    spent = (time.process_time() - start) / len(y)
    with np.errstate(over="ignore"):
        errors = np.abs(made - y)
    sums = np.cumsum(np.column_stack([errors**2, errors]), axis=0)
    return np.vstack([np.zeros(2), sums])[ends[ends <= len(y)]], spent


def told(rows, sums, first, last):
    """RMSE and MAE between two ends of blocks; None where they are not known, or not finite."""
    if len(sums) <= last:
        return None
    square, absolute = (sums[last] - sums[first]) / (rows[last] - rows[first])
    made = float(np.sqrt(square)), float(absolute)
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in made]


def measured(name, path):
    stream, methods = STREAMS[name], {}
    rows, sums, spent, session = command(path, stream.choice, stream.options)
    known, few, last = (int(np.searchsorted(rows, end)) for end in (KNOWN, FIRST, rows[-1]))
    points = np.linspace(0, last, POINTS + 1).astype(int)

    def note(method, sums, spent):
        made = {"first": told(rows, sums, known, few), "all": told(rows, sums, known, last)}
        of_points = points[points < len(sums)]
        squares = np.diff(sums[of_points, 0]) / np.diff(rows[of_points])
        made["curve"] = [float(f"{x:.4g}") if x < np.inf else None for x in np.sqrt(squares)]
        methods[method] = made | {"microseconds": float(f"{1e6 * spent:.3g}")}
        print(f"  {method}: {made['first']}, {made['all']}, {1e6 * spent:.3g} µs", flush=True)

    table = Table.of(path, session)
    print(f"{name}: {len(table.y):,} rows, {table.X.shape[1]} numbers; {session.why}", flush=True)
    note("orfit", sums, spent)
    if str(session.features) != "raw":
        given = "+".join([stream.options.features, "raw"] if session.lags else ["raw"])
        _, sums, spent, _ = command(path, stream.choice, replace(stream.options, features=given))
        note("orfit, raw", sums, spent)
    for method, predictions in NOTHING.items():
        note(method, *summed(lambda: predictions(table.X, table.y), table.y, rows))
    y = table.y[: rows[last] if rows[last] <= PIPELINE else rows[few]]
    pipeline = river_pipeline()
    made = summed(lambda: river_predictions(pipeline, table.rows(len(y)), y), y, rows)
    note("river linear", *made)
    X, y = table.X[: rows[few]], table.y[: rows[few]]
    for method, predictions in SLOW.items():
        note(method, *summed(lambda: predictions(X, y), y, rows))
    return {
        "rows": len(table.y), "numbers": table.X.shape[1], "features": str(session.features),
        "first": int(rows[few]), "ends": rows[points[1:]].tolist(), "methods": methods,
    }  # fmt: skip


def cells(found):
    if found is None:
        return ["–", "–"]
    return ["diverged" if x is None or x > 1e6 else f"{x:.4g}" for x in found]


def table_of(results):
    lines = [
        "| stream | method | first rows: RMSE | MAE | all rows: RMSE | MAE | µs a row |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, of_stream in results["streams"].items():
        for method, found in of_stream["methods"].items():
            said = f"{name}, {STREAMS[name].unit}" if method == "orfit" else ""
            spent = found["microseconds"]
            row = [said, method, *cells(found["first"]), *cells(found["all"])]
            lines.append("| " + " | ".join([*row, f"{spent:,.0f}" if spent >= 1 else "–"]) + " |")
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    counted = [f"{of['first']:,} of {of['rows']:,}" for of in results["streams"].values()]
    return [
        *lines, "",
        f"The first rows are {', '.join(counted)}; the very first {KNOWN:,} count for nobody.",
        f"Written by `make bench-long` ({results['machine']}; {versions}).",
    ]  # fmt: skip


def draw(results):
    count = len(results["streams"])
    figure, axes = plt.subplots(
        count, 1, figsize=(8, 2.8 * count), squeeze=False, layout="constrained"
    )
    for axis, (name, of_stream) in zip(axes[:, 0], results["streams"].items(), strict=True):
        stream = STREAMS[name]
        ends, highest = np.array(of_stream["ends"]), 0.0
        for method, style in DRAWN.items():
            if method not in of_stream["methods"]:  # raw columns are what was chosen
                continue
            y = np.array(of_stream["methods"][method]["curve"], float)
            axis.plot(ends[: len(y)], y, label=method, **{"linewidth": 1.3} | style)
            highest = max(highest, float(y.max()))
        axis.set_ylim(0, 1.08 * highest)
        axis.set_xlim(0, ends[-1])
        axis.set_title(f"{stream.title}, {of_stream['rows']:,} rows", loc="left", fontsize=11)
        axis.set_ylabel(f"RMSE, {stream.unit}")
        axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel(f"rows; each point is the error of one of {POINTS} stretches")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(DOCS / "images" / "streams.png", dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="results/long", help="the folder of the files")
    parser.add_argument("--streams", nargs="*", default=list(STREAMS), choices=list(STREAMS),
                        help="measure these anew, keep the others; none: page alone")  # fmt: skip
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"streams": {}}
    if arguments.streams:
        warnings.simplefilter("ignore")  # of those that diverge, which the table shows
        orfit.warm_up()
        paths = fetched(arguments.data)
        cores = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        results["machine"] = cores
        results["versions"] = {name: version(name) for name in ("river", "scikit-learn")}
    for name in arguments.streams:
        results["streams"][name] = measured(name, paths[name])
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    measured_ones = [name for name in STREAMS if name in results["streams"]]
    results["streams"] = {name: results["streams"][name] for name in measured_ones}
    page = DOCS / "streams.md"
    made = "\n".join(["", *table_of(results), "", ""])
    page.write_text(WRITTEN.sub(lambda found: found[1] + made + found[2], page.read_text()))
    draw(results)
    print("\n".join(table_of(results)))


if __name__ == "__main__":
    main()
