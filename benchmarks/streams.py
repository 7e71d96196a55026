"""`make bench-streams`: orfit's estimators and alternatives on real streams.

Every learner has its default settings; it predicts each row, then learns it, once. The figure and
the tables of docs/comparison.md below its heading "All numbers" are written here.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # all times are those of one core

import argparse
import json
import pickle
import platform
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import matplotlib as mpl
import numpy as np
from entrants import CLASSES, HINDSIGHT, MORE, NUMBERS, SLOW
from stream_data import classes, numbers

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
RESULTS = HERE / "streams.json"
HEADING = "## All numbers\n"
FIRST = SLOW  # rows that every learner gets, even a slow one
FACES = ("orfit.river", "orfit.sklearn")
COSTS = ("turbines", "flights", "digits, shuffled")  # streams of which time and size are shown


def measure(stream, entrants, score, made):
    """Add the score, microseconds per row and final kB of each learner to `made`; yield lines."""
    for name, entrant in entrants.items():
        if name in made:
            continue
        X, y = (part[: entrant.most] for part in stream)
        start = time.process_time()
        predicted, model = entrant.run(X, y)
        spent = (time.process_time() - start) / len(y)
        made[name] = score(predicted, y, model) | {
            "rows": len(y),
            "microseconds": float(f"{1e6 * spent:.3g}"),
            "kB": round(len(pickle.dumps(model)) / 1e3, 1),
        }
        yield f"  {name}: {made[name]}"


def score_numbers(predicted, y, model):
    """Return the root mean square error ÷ standard deviation of y, of the first and all rows."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (predicted - y) ** 2
        ratios = {
            part: float(np.sqrt(squares[1:end].mean()) / y[1:end].std())
            for part, end in (("first", FIRST), ("all", len(y)))
        }
    return {part: float(f"{r:.4g}") if np.isfinite(r) else None for part, r in ratios.items()}


def make_class_score(asked):
    """Return a score: the accuracy (%) row by row, and that on held-out rows at the end."""

    def score(predicted, y, model):
        X, labels = asked
        made = {"end": np.mean(np.asarray(model.ask(X)) == labels)}
        if not np.isnan(predicted).all():  # ridge learns all rows at once
            made |= {"first": (predicted == y)[:FIRST].mean(), "all": np.mean(predicted == y)}
        return {part: round(100 * float(share), 2) for part, share in made.items()}

    return score


def measure_all(data, wanted):
    """Measure the streams; results are stored at once, so the next run continues a stopped one."""
    warnings.simplefilter("ignore")  # the table shows which learners diverge
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["machine"] = (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    )
    results["versions"] = {name: version(name) for name in ("river", "scikit-learn", "numpy")}
    kinds = ("numbers", numbers(data), NUMBERS), ("classes", classes(data), CLASSES)
    for kind, streams, entrants in kinds:
        of_kind = results.setdefault(kind, {})
        for name in [name for name in streams if not wanted or name in wanted]:
            print(name, flush=True)
            X, y, *asked = streams[name]()
            score = make_class_score(asked) if asked else score_numbers
            made = of_kind.setdefault(name, {"learners": {}})
            made |= {"rows": len(y), "inputs": X.shape[1]}
            for line in measure((X, y), entrants | MORE.get(name, {}), score, made["learners"]):
                print(line, flush=True)
                RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    return results


def format_cell(found, part, kind):
    """Return a cell of a table; it is empty without a result."""
    if found is None or part not in found:
        return ""
    value = found[part]
    if kind == "classes":
        return "" if value is None else f"{value:.1f}"
    return "> 100" if value is None or value > 100 else f"{value:.3f}"


def mark_best(cells, learners, kind):
    """Make the best cell bold, except for learners in hindsight."""
    values = {
        name: float(cell)
        for name, cell in zip(learners, cells, strict=True)
        if cell and cell[0] != ">" and name not in HINDSIGHT
    }
    if not values:
        return cells
    most = (max if kind == "classes" else min)(values.values())
    return [
        f"**{cell}**" if values.get(name) == most else cell
        for name, cell in zip(learners, cells, strict=True)
    ]


def make_table(results, kind, part, names=None):
    """Return a table with a row for each learner and a column for each stream."""
    streams = {n: s for n, s in results[kind].items() if names is None or n in names}
    learners = list(NUMBERS if kind == "numbers" else CLASSES)
    columns = []
    for of_stream in streams.values():
        found = of_stream["learners"]
        whole = of_stream["rows"]
        cells = [
            ""
            if part == "all" and name in found and found[name]["rows"] < whole
            else format_cell(found.get(name), part, kind)
            for name in learners
        ]
        columns.append(mark_best(cells, learners, kind))
    if kind == "numbers" and part == "first":  # an error beyond 10 counts as 10
        found = [[s["learners"][name][part] or 10.0 for s in streams.values()] for name in learners]
        means = np.exp(np.log(np.minimum(found, 10.0)).mean(axis=1))
        columns.append(mark_best([f"{mean:.3f}" for mean in means], learners, kind))
        streams = streams | {"geometric mean": None}
    size = {"first": lambda s: min(s["rows"], FIRST), "all": lambda s: s["rows"]}.get(part)
    heads = [f"{n}, {size(s):,}" if size and s else n for n, s in streams.items()]
    return format_table(
        ["learner", *heads], [[n, *c] for n, *c in zip(learners, *columns, strict=True)]
    )


def make_cost_table(results):
    found = {
        name: (results["numbers"] | results["classes"])[name]["learners"]
        for name in COSTS
        if name in results["numbers"] | results["classes"]
    }
    names = list(dict.fromkeys([*NUMBERS, *CLASSES]))
    lines = []
    for learner in names:
        if learner in HINDSIGHT:
            continue
        cells = [
            f"{made[learner]['microseconds']:,.0f} µs, {made[learner]['kB']:,.0f} kB"
            if learner in made
            else ""
            for made in found.values()
        ]
        if any(cells):
            lines.append([learner, *cells])
    return format_table(["learner", *found], lines)


def make_extra_table(results):
    lines = []
    for stream, entrants in MORE.items():
        of_stream = results["classes"].get(stream) or results["numbers"].get(stream)
        if of_stream is None:
            continue
        kind = "classes" if stream in results["classes"] else "numbers"
        for name in (*FACES, *entrants):
            made = of_stream["learners"][name]
            cells = [format_cell(made, part, kind) for part in ("all", "end")]
            cost = [f"{made['microseconds']:,.0f}", f"{made['kB']:,.0f}"]
            lines.append([stream, name, f"{made['rows']:,}", *cells, *cost])
    return format_table(
        ["stream", "learner", "rows", "in turn", "at the end", "µs a row", "kB"], lines
    )


def format_table(head, lines):
    rows = [head, ["---"] * len(head), *lines]
    return ["| " + " | ".join(row) + " |" for row in rows]


DRAWN = {
    "orfit.river": "C0o", "orfit.sklearn": "C0x", "orfit.river, λ auto": "C0*",
    "river linear": "C2v", "river Bayes": "C2P", "river tree": "C3d", "river forest": "C3X",
    "sklearn SGD": "C1^", "last value": "k|",
}  # fmt: skip
MOST = 3.0  # an error is drawn there where it is larger


def draw(results):
    kinds = {
        "numbers": ("first", "RMSE ÷ standard deviation of the labels"),
        "classes": ("end", "wrong at the end, %"),
    }
    counts = [len(results[kind]) for kind in kinds]
    figure, axes = plt.subplots(
        2, 1, figsize=(10, 0.62 * sum(counts) + 3), layout="constrained",
        height_ratios=counts,
    )  # fmt: skip
    for axis, (kind, (part, label)) in zip(axes, kinds.items(), strict=True):
        places = np.arange(len(results[kind]))[::-1]
        for i, (learner, style) in enumerate(DRAWN.items()):
            values = []
            for of_stream in results[kind].values():
                value = of_stream["learners"].get(learner, {}).get(part)
                if kind == "classes":
                    value = None if value is None else max(100 - value, 0.5)
                elif learner in of_stream["learners"]:
                    value = MOST if value is None else min(value, MOST)
                values.append(np.nan if value is None else value)
            drop = 0.35 - 0.7 * i / (len(DRAWN) - 1)  # side by side, not on top of each other
            axis.plot(values, places + drop, style, label=learner, markersize=7, clip_on=False)
        for place in places[:-1]:
            axis.axhline(place - 0.5, color="0.9", linewidth=1, zorder=0)
        axis.set_xscale("log")
        axis.set_yticks(places, list(results[kind]))
        axis.set_ylim(-0.6, len(places) - 0.4)
        axis.set_xlabel(label)
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_title(
        f"Numbers: the first {FIRST:,} rows, each predicted, then learned", loc="left"
    )
    ticks = [0.03, 0.1, 0.3, 1, MOST]
    axes[0].set_xticks(ticks, [*map(str, ticks[:-1]), f"≥ {MOST:g}"])
    axes[0].minorticks_off()
    axes[1].set_title("Classes: rows that were not learned, asked about at the end", loc="left")
    ticks = [0.5, 1, 3, 10, 30, 100]
    axes[1].set_xticks(ticks, ["≤ 0.5", *map(str, ticks[1:])])
    axes[1].minorticks_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(DOCS / "images" / "comparison.png", dpi=110)


def make_page(results):
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    long = [n for n, s in results["numbers"].items() if s["rows"] > FIRST]
    long_classes = [n for n, s in results["classes"].items() if s["rows"] > FIRST]
    lines = [
        "", f"Written by `make bench-streams` ({results['machine']}; {versions}).",
        f"Slow learners have a limit of rows; the tables of the first {FIRST:,} have all learners.",
        "", f"### Numbers, in order: the first {FIRST:,} rows at most", "",
        "Root mean squared error ÷ standard deviation of the labels.", "",
        *make_table(results, "numbers", "first"),
        "", "### Numbers, in order: all rows of the longer ones", "",
        *make_table(results, "numbers", "all", long),
        "", f"### Classes: right in turn, %, the first {FIRST:,} rows at most", "",
        *make_table(results, "classes", "first"),
        "", "### Classes: right in turn, %, all rows of the longer ones", "",
        *make_table(results, "classes", "all", long_classes),
        "", "### Classes: right at the end, %, of rows that were not learned", "",
        "Slow learners have learned fewer rows before (Elec2, weather).", "",
        *make_table(results, "classes", "end"),
        "", "### One argument more", "", *make_extra_table(results),
        "", "### Time a row and memory", "",
        "CPU time of predicting and learning in turn; the size of the pickled learner.", "",
        *make_cost_table(results),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="results/long", help="the folder of the files")
    parser.add_argument("--streams", nargs="*", help="these alone; none: the page")
    arguments = parser.parse_args()
    if arguments.streams == []:
        results = json.loads(RESULTS.read_text())
    else:
        results = measure_all(arguments.data, arguments.streams)
    draw(results)
    path = DOCS / "comparison.md"
    path.write_text(path.read_text().split(HEADING)[0] + HEADING + make_page(results))


if __name__ == "__main__":
    main()
