"""What is measured in new processes: the import, the first rows, the peak memory.

`python processes.py NAME` measures it in this process and prints the result.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from workers import ONE_THREAD

ROWS = 4000
IMPORT = "import time; t = time.process_time(); import orfit; print(time.process_time() - t)"


def run_new(*arguments):
    """Return the numbers that a new Python process prints."""
    command = [sys.executable, *map(str, arguments)]
    out = subprocess.check_output(command, env=os.environ | ONE_THREAD, text=True)
    return json.loads(out)


def import_seconds(repeats=9):
    """Return the median CPU time of `import orfit`, NumPy included."""
    return float(np.median([run_new("-c", IMPORT) for _ in range(repeats)]))


def first_rows(name, repeats=3):
    """Return the times of single calls of `learn` from the first row on, in seconds.

    Other processes interrupt calls, so the longest call is that of the best of several processes.
    """
    runs = [run_new(__file__, name) for _ in range(repeats)]
    return {key: min(run[key] for run in runs) for key in runs[0]}


def peak_memory():
    """Return the peak memory of ORFit with p = 10⁶ and m = 50, divided by that of m·p numbers."""
    return run_new(__file__, "peak memory")


def make_learner(name):
    import orfit

    learners = {
        "ORFit p=50, m=10": lambda: orfit.ORFit(orfit.Linear(50), 10, noise=0.1),
        "ORFit p=20,000, m=10": lambda: orfit.ORFit(orfit.Linear(20_000), 10, noise=0.1),
        "RLS p=50": lambda: orfit.RLS(orfit.Linear(50)),
        "EKF p=50 with drift": lambda: orfit.EKF(orfit.Linear(50), noise=0.1, drift=1e-4),
        'ORFit p=50, noise="auto"': lambda: orfit.ORFit(orfit.Linear(50), 10, noise="auto"),
    }
    return learners[name]()


LEARNERS = (
    "ORFit p=50, m=10",
    "ORFit p=20,000, m=10",
    "RLS p=50",
    "EKF p=50 with drift",
    'ORFit p=50, noise="auto"',
)


def measure_first_rows(name):
    """Return the median, the 99.9th percentile and the longest call, by two clocks."""
    learner, rng, times = make_learner(name), np.random.default_rng(0), np.empty((ROWS, 2))
    for i in range(ROWS):
        x = rng.standard_normal(learner.model.size)
        y = x[0] + 0.3 * rng.standard_normal()
        processor, start = time.thread_time(), time.perf_counter()
        learner.learn(x, y)
        times[i] = time.perf_counter() - start, time.thread_time() - processor
    usual, high, longest = np.quantile(times[:, 0], [0.5, 0.999, 1])
    return {"median": usual, "99.9 %": high, "longest": longest, "longest CPU": times[:, 1].max()}


def measure_peak_memory(p=10**6, m=50):
    import orfit

    def peak():
        status = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    x, rng = np.ones(p), np.random.default_rng(0)
    learner = orfit.ORFit(orfit.Linear(20), 3, noise=0.1)  # the code is loaded
    learner.learn(x[:20], 1.0)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = peak()
    learner = orfit.ORFit(orfit.Linear(p), m, noise=0.1)
    for _ in range(m + 60):
        rng.standard_normal(out=x)
        learner.learn(x, 1.0)
    return (peak() - before) / (m * p * 8)


if __name__ == "__main__":
    name = sys.argv[1]
    print(json.dumps(measure_peak_memory() if name == "peak memory" else measure_first_rows(name)))
