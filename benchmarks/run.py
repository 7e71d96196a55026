"""`make bench`: targets, curves and peers, as a table, as results.json and as a page in docs/."""

import argparse
import json
import os
import platform
from pathlib import Path

import matplotlib as mpl
import numpy as np
from cases import all_cases, curves
from peers import PEERS, run
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
SIZES = (784, 20_000)
STEPS = 15 + 8 + len(SIZES) * len(PEERS)


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=STEPS)

        def tick(name):
            progress.update(task, description=name, advance=1)

        cases = list(all_cases(tick))
        against_p, against_m = curves(tick)
        peers = {}
        for p in SIZES:
            for name in PEERS:
                tick(f"{name}, p={p:,}")
                peers[f"{name}|{p}"] = run(name, p)
    console = Console()
    console.print(targets_table(cases))
    console.print(peers_table(peers))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    results = {
        "machine": machine,
        "cases": [
            {"case": c.name, "target": c.target, "median": c.median, "ratios": c.ratios,
             "met": c.verdict, "detail": c.detail}
            for c in cases
        ],
        "against_p": against_p,
        "against_m": against_m,
        "peers": peers,
    }  # fmt: skip
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(against_p, against_m)
    (DOCS / "benchmarks.md").write_text(page(cases, peers, machine))
    console.print(
        "written: benchmarks/results.json, docs/benchmarks.md, docs/images/benchmarks.png"
    )


def spread(case):
    low, high = np.percentile(case.ratios, [25, 75])
    return f"{case.median:.2f}", f"{low:.2f} … {high:.2f}"


def targets_table(cases):
    table = Table(title="Ratios: the median of interleaved repeats, and the middle half of them")
    for name in ("case", "target", "measured", "middle half", "met", "times"):
        table.add_column(name)
    for case in cases:
        met = {"yes": "yes", "no": "[bold red]no"}.get(case.verdict, "")
        table.add_row(case.name, case.target, *spread(case), met, case.detail)
    return table


def peer_cells(result):
    if "failed" in result:
        return "—", "—", "—", result["failed"]
    rmse = "—" if result["rmse"] is None else f"{result['rmse']:.1e}"
    return f"{1e6 * result['seconds']:,.0f}", f"{result['bytes'] / 1e6:,.0f}", rmse, ""


def peers_table(peers):
    table = Table(title="Peers: 1,000 rows of a drifting stream")
    for name in ("p", "learner", "µs a row", "MB", "error on the first 100", "failed"):
        table.add_column(name)
    for key, result in peers.items():
        name, p = key.split("|")
        table.add_row(f"{int(p):,}", name, *peer_cells(result))
    return table


def draw(against_p, against_m):
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    series = (("verbatim", 2, "s--"), ("orfit", 1, "o-"), ("two reads of U", 3, "k:"))
    for axis, data, label in ((axes[0], against_p, "parameters p (m = 10)"),
                              (axes[1], against_m, "directions m (p = 100,000)")):  # fmt: skip
        array = np.array(data)
        for name, column, style in series:
            axis.loglog(array[:, 0], array[:, column], style, label=name)
        axis.set_xlabel(label)
        axis.set_ylabel("one learn (ms)")
        axis.grid(alpha=0.3, which="both")
        axis.legend()
    for data, label in ((against_p, "p (m = 10)"), (against_m, "m (p = 100,000)")):
        array = np.array(data)
        axes[2].semilogx(array[:, 0], array[:, 3] / array[:, 1], "o-", label=f"against {label}")
    axes[2].axhline(1, color="k", linestyle=":", label="two reads of U, nothing else")
    axes[2].set_xlabel("p, or m")
    axes[2].set_ylabel("two reads of U ÷ one learn")
    axes[2].set_ylim(0, 2)
    axes[2].grid(alpha=0.3)
    axes[2].legend(loc="upper center")
    (DOCS / "images").mkdir(exist_ok=True)
    figure.savefig(DOCS / "images" / "benchmarks.png", dpi=130)


def page(cases, peers, machine):
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` ({machine}). Times mean little on a shared machine; ratios, of",
        "two things timed in turn, mean something. `verbatim` is the paper's alg:orfit_ipca typed",
        "line by line in NumPy (`benchmarks/verbatim.py`). How it is done: [speed](speed.md).",
        "",
        "| case | target | median | middle half | met | times |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        median, middle = spread(case)
        met = "**no**" if case.verdict == "no" else case.verdict
        cells = (case.name, case.target, median, middle, met, case.detail)
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "![Time of a step against p and m, and the share of the bandwidth floor]"
        "(images/benchmarks.png)",
        "",
        "## What a user would pick instead",
        "",
        "1,000 rows of a drifting stream with exact labels, one by one. The error is that on the",
        "first 100 rows, after the last, relative to their labels' spread: 1 means forgotten.",
        "",
        "| p | learner | µs a row | MB | error on the first 100 | failed |",
        "|---|---|---|---|---|---|",
    ]
    for key, result in peers.items():
        name, p = key.split("|")
        lines.append("| " + " | ".join((f"{int(p):,}", name, *peer_cells(result))) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
