"""`make bench`: the time of a row, in docs/benchmarks.md, its figure, and results.json.

All ways of a case are timed in alternation, in bursts, by the CPU time of one thread. Several
rounds have new processes, since where arrays lie in memory differs between them. Ratios are medians
over bursts of the same round, so a change in the load of the machine affects both sides.
"""

import argparse
import json
import os
import platform
import re
import sys
from datetime import date
from pathlib import Path

import matplotlib as mpl
import numpy as np
import processes
from cases import CASES, NUMBA, OPTIONS
from rich.console import Console
from rich.progress import track
from rich.table import Table
from workers import Worker, install

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
# A name, the way that is the numerator, the denominator, the limit, and whether it is a minimum.
LIMITS = [
    *(
        (f"{kind} p={p}{', m=10' * (kind == 'ORFit')}", "learn", "five lines", most, False)
        for kind, most in (("ORFit", 0.5), ("RLS", 0.35), ("drift", 0.6))
        for p in (10, 50, 200)
    ),
    ("RLS p=10", "learn_each", "five lines", 0.1, False),
    *(
        (f"ORFit {size}", "learn_each (numba)", "learn_each", least, True)
        for size, least in (
            ("p=10, m=10", 4),
            ("p=50, m=10", 3.5),
            ("p=784, m=10", 2.2),
            ("p=20,000, m=10", 1.25),
            ("p=20,000, m=100", 1.2),
        )
    ),
    ("ORFit p=1,000,000, m=10", "two reads", "learn", 0.9, True),
    ("ORFit p=100,000, m=100", "two reads", "learn", 1.4, True),
]
LONGEST, IMPORT, PEAK = 0.02, 0.2, 1.45  # seconds, seconds, in units of m·p numbers
TITLES = {"drift": "EKF, drift", "system": "EKF, A, B, Q", "model": "EKF, nonlinear model"}


def measure(rounds, bursts, without_numba):
    """Return the seconds per row of each case and way, for each burst, or an error's message."""
    times = {case.name: {} for case in CASES}
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        workers = {False: Worker(sys.executable)}
        if not without_numba:
            workers[True] = Worker(install(), is_last=True)
        for i, case in track(list(enumerate(CASES)), transient=True):
            ways = [way for way in case.ways if way.endswith(NUMBA) in workers]
            for _ in range(bursts):
                for way in rng.permutation(ways).tolist():
                    seconds = workers[way.endswith(NUMBA)].run_burst(i, way)
                    times[case.name].setdefault(way, []).append(seconds)
        for worker in workers.values():
            worker.close()
    return times


def median(times, name, way):
    """The median seconds of a row; None if there was an error."""
    found = times[name].get(way)
    return None if not found or isinstance(found[-1], str) else float(np.median(found))


def ratio(times, name, above, below):
    """The median of the ratio of two ways over bursts; None if there was an error."""
    if median(times, name, above) is None or median(times, name, below) is None:
        return None
    return float(np.median(np.divide(times[name][above], times[name][below])))


def base_of(case, way):
    """The way of orfit with which another way is compared."""
    if way.endswith(NUMBA):
        return way.removesuffix(NUMBA)
    return case.ways[0] if way not in {"learn", "learn_each"} else None


def cell(times, case, way):
    """µs per row, and in parentheses the ratio to the way of orfit."""
    seconds, base = median(times, case.name, way), base_of(case, way)
    if seconds is None:
        return "–"
    shown = three_digits(1e6 * seconds)
    if base is None or base == way:
        return shown
    return f"{shown} ({three_digits(ratio(times, case.name, way, base), 2)})"


def three_digits(number, digits=3):
    """A number with so many digits, without an exponent."""
    places = max(0, digits - 1 - int(np.floor(np.log10(number))))
    return f"{number:,.{places}f}"


def rows_table(times, kinds):
    """A table in Markdown with a row for each case and a column for each way."""
    cases = [case for case in CASES if case.kind in kinds]
    ways = list(dict.fromkeys(way for case in cases for way in case.ways))
    first = ["case"] if len(kinds) > 1 else []
    sizes = ["p", "m"] if any(case.m for case in cases) else ["p"]
    lines = [[*first, *sizes, *ways], ["---"] * len(first + sizes + ways)]
    for case in cases:
        size = [f"{case.p:,}", str(case.m)][: len(sizes)]
        cells = [cell(times, case, way) if way in case.ways else "" for way in ways]
        lines.append([*([TITLES.get(case.kind, case.kind)] if first else []), *size, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def first_table(first):
    """A table of single calls."""
    lines = [["learner", "median µs", "99.9 % µs", "longest ms", "longest ms of CPU time"]]
    lines.append(["---"] * len(lines[0]))
    for name, found in first.items():
        usual, high, longest, processor = found.values()
        micro = [three_digits(1e6 * usual), three_digits(1e6 * high)]
        lines.append([name, *micro, f"{1e3 * longest:.1f}", f"{1e3 * processor:.1f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def limits(results):
    """Yield what is required: the name, the value, the limit, and whether it is met."""
    times = results["times"]
    for name, above, below, bound, is_least in LIMITS:
        value = ratio(times, name, above, below)
        if value is not None:
            met = value >= bound if is_least else value <= bound
            yield f"{name}: {above} ÷ {below}", value, f"{'≥' if is_least else '≤'} {bound}", met
    for name, found in results["first"].items():
        value = found["longest"]
        yield f"{name}: longest learn, s", value, f"≤ {LONGEST}", value <= LONGEST
    for name, bound in (("import", IMPORT), ("peak", PEAK)):
        yield name, results[name], f"≤ {bound}", results[name] <= bound


def print_limits(results):
    table = Table("required", "measured", "limit", "met")
    for name, value, bound, met in limits(results):
        table.add_row(name, f"{value:.3g}", bound, "yes" if met else "[bold red]no")
    Console(width=110).print(table)


def replace(text, mark, new):
    """Replace what is between the two comments of this mark."""
    pattern = rf"(<!-- {mark} -->\n).*?(<!-- end of {mark} -->)"
    made, count = re.subn(pattern, lambda m: m[1] + new + "\n" + m[2], text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"docs/benchmarks.md has no place for {mark}")
    return made


def process_lines(results):
    return (
        f"`import orfit` takes {results['import']:.2f} s of CPU time, NumPy included.\n"
        f"With p = 10⁶ and m = 50 the peak memory is {results['peak']:.2f} m·p numbers."
    )


def write_page(results):
    path, times = DOCS / "benchmarks.md", results["times"]
    text = path.read_text()
    tables = {
        "machine": results["machine"],
        "orfit": rows_table(times, ("ORFit",)),
        "rls": rows_table(times, ("RLS",)),
        "drift": rows_table(times, ("drift",)),
        "system": rows_table(times, ("system", "model")),
        "batch": rows_table(times, ("batch",)),
        "options": rows_table(times, OPTIONS),
        "fleet": rows_table(times, ("fleet",)),
        "first": first_table(results["first"]),
        "process": process_lines(results),
    }
    for mark, table in tables.items():
        text = replace(text, mark, table)
    path.write_text(text)


def draw(times):
    """Draw the time of a row against p."""
    figure, axis = plt.subplots(figsize=(7.5, 5), layout="constrained")
    lines = [
        ("ORFit", 10, "learn_each", "ORFit, m = 10", "C0o-"),
        ("ORFit", 10, "learn_each (numba)", "ORFit, m = 10, last version with numba", "C0o:"),
        ("RLS", 0, "learn_each", "RLS", "C1s-"),
        ("RLS", 0, "learn_each (numba)", "RLS, last version with numba", "C1s:"),
        ("drift", 0, "learn_each", "EKF with drift", "C2^-"),
        ("RLS", 0, "five lines", "RLS in five lines of NumPy", "k--"),
        ("ORFit", 10, "two reads", "two products with m = 10 directions, NumPy", "C7--"),
    ]
    for kind, m, way, label, style in lines:
        points = [
            (case.p, 1e6 * median(times, case.name, way))
            for case in CASES
            if case.kind == kind and case.m == m and median(times, case.name, way) is not None
        ]
        if points:
            axis.loglog(*np.transpose(points), style, label=label)
    axis.set_xlabel("parameters p")
    axis.set_ylabel("one row, µs")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=9)
    figure.savefig(DOCS / "images" / "benchmarks.png", dpi=130)


def describe_machine(before):
    """The machine and the load averages at the beginning and the end."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = re.findall(r"model name\s*: (.*)", info)
    model = models[0] if models else platform.machine()
    loads = f"{before:.1f} at the start and {os.getloadavg()[0]:.1f} at the end"
    return (
        f"Measured on {date.today():%d %B %Y} with {model}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, NumPy {np.__version__}.\nThe load average was {loads}; the "
        "benchmark itself adds 1."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="with new processes (3)")
    parser.add_argument("--bursts", type=int, default=5, help="of each way and round (5)")
    parser.add_argument("--without-numba", action="store_true", help="leave out the old version")
    parser.add_argument("--write", action="store_true", help="write the page from results.json")
    options = parser.parse_args()
    path = HERE / "results.json"
    if options.write:
        results = json.loads(path.read_text())
    else:
        before = os.getloadavg()[0]
        results = {
            "times": measure(options.rounds, options.bursts, options.without_numba),
            "first": {name: processes.first_rows(name) for name in processes.LEARNERS},
            "import": processes.import_seconds(),
            "peak": processes.peak_memory(),
        }
        results["machine"] = describe_machine(before)
        path.write_text(json.dumps(results, indent=1) + "\n")
    write_page(results)
    draw(results["times"])
    print_limits(results)


if __name__ == "__main__":
    main()
