"""`make bench`: targets, curves and peers, as tables, as results.json and as docs/benchmarks.md."""

import argparse
import json
import os
import platform
from pathlib import Path

import matplotlib as mpl
import numpy as np
from cases import KINDS, all_cases, curves, plan, worst_cases
from peers import PEERS, run_peer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
SIZES = (784, 20_000)
OLDER = "The figure and the peers below are of an earlier run, as `--cases-only` omits them."
STEPS = sum(len(kinds) for _, _, kinds in plan()) + 6 + 8 + len(SIZES) * len(PEERS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases-only", action="store_true",
                        help="keep curves and peers as they were measured before")  # fmt: skip
    kept = None
    if parser.parse_args().cases_only:
        kept = json.loads((HERE / "results.json").read_text())
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("", total=STEPS)

        def tick(name):
            progress.update(task, description=name, advance=1)

        cases = list(all_cases(tick))
        worst = worst_cases(tick)
        if kept is None:
            (against_p, against_m), peers = curves(tick), {}
            for p in SIZES:
                for name in PEERS:
                    tick(f"{name}, p={p:,}")
                    peers[f"{name}|{p}"] = run_peer(name, p)
        else:
            against_p, against_m, peers = kept["against_p"], kept["against_m"], kept["peers"]
    console = Console()
    console.print(targets_table(cases))
    console.print(worst_table(worst))
    console.print(peers_table(peers))
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    results = {
        "machine": machine,
        "cases": [
            {"case": c.name, "target": c.target, "ratios": c.ratios, "met": c.verdict,
             "detail": c.detail}
            for c in cases
        ],
        "worst": worst,
        "against_p": against_p,
        "against_m": against_m,
        "peers": peers,
    }  # fmt: skip
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(against_p, against_m)
    (DOCS / "benchmarks.md").write_text(page(cases, worst, peers, machine, kept is not None))
    console.print(
        "written: benchmarks/results.json, docs/benchmarks.md, docs/images/benchmarks.png"
    )


def cells(case):
    """Return name, target, the median and quartiles for each kind of stream, and the times."""
    shown = []
    for kind in KINDS:
        if kind in case.ratios:
            low, high = np.percentile(case.ratios[kind], [25, 75])
            shown.append(f"{case.median(kind):.2f} ({low:.2f} … {high:.2f})")
        else:
            shown.append("")
    return [case.name, case.target, *shown], case.detail[KINDS[-1] if len(shown[-1]) else KINDS[0]]


def targets_table(cases):
    table = Table(title="Ratios: the median of interleaved repeats, and the quartiles")
    for name in ("case", "target", *KINDS, "met", "times on the last"):
        table.add_column(name)
    for case in cases:
        met = {"yes": "yes", "no": "[bold red]no"}.get(case.verdict, "")
        row, detail = cells(case)
        table.add_row(*row, met, detail)
    return table


def worst_cells(row):
    numbers = [f"{value:,.1f}" for key, value in row.items() if key not in ("p", "stream")]
    return [f"{row['p']:,}", row["stream"], *numbers]


def worst_table(worst):
    table = Table(title="Single calls of learn, m=10, 20,000 of them, in units of the median")
    for name in worst[0]:
        table.add_column(name)
    for row in worst:
        table.add_row(*worst_cells(row))
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


def page(cases, worst, peers, machine, older_rest):
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench` ({machine}). The machine is shared, so compare ratios of times",
        "that were measured in alternation, and no single times. `verbatim` is the paper's",
        "alg:orfit_ipca, line by line in NumPy (`benchmarks/verbatim.py`). [Speed](speed.md)",
        "explains the implementation.",
        "",
        "Every case runs on three streams: white noise, for which a bounded memory is of no use;",
        "15 directions and noise of a tenth of their length; and 300 directions whose spectrum",
        "falls like 1/i. The table shows the median of interleaved repeats, and the quartiles.",
        "",
        "| case | target | " + " | ".join(KINDS) + " | met on each | times on the last |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in cases:
        row, detail = cells(case)
        met = "**no**" if case.verdict == "no" else case.verdict
        lines.append("| " + " | ".join([*row, met, detail]) + " |")
    lines += [
        "",
        "The floor is the time of two reads of U, as for one projection and nothing else. With",
        "m=400 all 300 directions of the stream 1/i are kept: almost nothing of later rows is new,",
        "and such rows are projected explicitly a second time, which takes three times as long.",
        "",
        "## The longest steps",
        "",
        "20,000 single calls of `learn`, m=10, in units of the median. The longest includes",
        "interruptions by other processes; an empty loop shows how long these are. The longest",
        "between two compactions, median over all, shows the time of a compaction.",
        "",
        "| " + " | ".join(worst[0]) + " |",
        "|" + "---|" * len(worst[0]),
        *("| " + " | ".join(worst_cells(row)) + " |" for row in worst),
        "",
        *([OLDER, ""] if older_rest else []),
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
