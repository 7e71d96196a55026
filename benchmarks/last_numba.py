"""`make bench-last-numba`: time of a row, in this environment and at the last commit with numba.

The tag `last-numba` is checked out and installed below .cache/last-numba. One worker process runs
in each environment. Both time the same cases in alternating bursts, so that a change in the load of
the machine affects both. The table shows the medians over the bursts.

Each worker has one thread unless --threads gives another number: idle threads of OpenMP wait
actively and slow down the other worker.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "last-numba"
TAG, COMMIT = "last-numba", "d285ef7"
M = 10  # directions in the memory of ORFit
CASES = [
    *((f"ORFit p={p:,} noise={noise}", p, noise) for p in (10, 50, 784, 20_000)
      for noise in (0.1, "auto")),
    *((f"RLS p={p:,}", p, None) for p in (10, 50, 784)),  # at 20,000, P takes 3.2 GB
]  # fmt: skip
METHODS = "learn", "learn_each"


def install(folder=CACHE):
    """Check out the last commit with numba and install it; return its Python interpreter."""
    source, environment = folder / "source", folder / "venv"
    python, ready = environment / "bin" / "python", environment / "ready"
    git = ["git", "-C", str(ROOT)]
    if not source.exists():
        tag = [*git, "rev-parse", "--verify", "--quiet", f"{TAG}^{{commit}}"]
        found = subprocess.run(tag, capture_output=True, check=False).returncode == 0
        # --force: `make clean` deletes the folder, and git still lists the worktree.
        add = [
            *git,
            "worktree",
            "add",
            "--force",
            "--detach",
            str(source),
            TAG if found else COMMIT,
        ]
        subprocess.run(add, check=True)
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--editable", f"{source}[fast]"], check=True)
        ready.touch()
    return python


def work():
    """Time one burst for each line on stdin, (case, method), and print the microseconds of a row.

    The learner of a case goes on from burst to burst; each burst has new rows.
    """
    import orfit

    if hasattr(orfit, "warm_up"):
        orfit.warm_up("float64")
    print(json.dumps(orfit.__file__), flush=True)
    rng, learners = np.random.default_rng(0), {}
    for line in sys.stdin:
        case, method = json.loads(line)
        _, p, noise = CASES[case]
        if (case, method) not in learners:
            model = orfit.Linear(p)
            new = orfit.RLS(model) if noise is None else orfit.ORFit(model, M, noise=noise)
            learners[case, method] = new
        learner = learners[case, method]
        numbers = p * p if noise is None else p * M  # in the memory
        n = int(np.clip(2_000_000 // numbers, 20, 1000))
        X = rng.standard_normal((n, p))
        y = X[:, 0] + 0.3 * rng.standard_normal(n)
        start = perf_counter()
        if method == "learn":
            for x, label in zip(X, y, strict=True):
                learner.learn(x, label)
        else:
            learner.learn_each(X, y)
        print(json.dumps(1e6 * (perf_counter() - start) / n), flush=True)


class Worker:
    """A process that runs `work` with the given interpreter."""

    def __init__(self, python, environment):
        command = [python, __file__, "--worker"]
        pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.process = subprocess.Popen(command, env=environment, **pipe)
        self.package = json.loads(self.process.stdout.readline())  # after the warm-up

    def burst(self, case, method):
        self.process.stdin.write(json.dumps([case, method]) + "\n")
        return json.loads(self.process.stdout.readline())


def run_interleaved(python, bursts=21, threads=1):
    """Time every case in both environments; return {(case, method): (2, bursts)} in microseconds.

    Row 0 is the environment of `python`, row 1 the environment of this process. The order of the
    two alternates. The first burst of each case fills the memory and is not counted.
    """
    limits = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))
    environment = os.environ | limits | {"OPENBLAS_NUM_THREADS": "1"}
    installed = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    workers = Worker(python, installed), Worker(sys.executable, environment)
    print(f"{TAG}: {workers[0].package}\nnow: {workers[1].package}", flush=True)
    times = {}
    for case, method in ((case, method) for case in range(len(CASES)) for method in METHODS):
        measured = np.empty((2, bursts + 1))
        for burst in range(bursts + 1):
            for i in (0, 1) if burst % 2 else (1, 0):
                measured[i, burst] = workers[i].burst(case, method)
        times[CASES[case][0], method] = measured[:, 1:]
    for worker in workers:
        worker.process.stdin.close()
        worker.process.wait()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help="used by this script")
    parser.add_argument("--bursts", type=int, default=21, help="for each case (21)")
    parser.add_argument("--threads", type=int, default=1, help="of each worker (1)")
    arguments = parser.parse_args()
    if arguments.worker:
        work()
        return
    times = run_interleaved(install(), arguments.bursts, arguments.threads)
    print(f"\n{'µs per row, median':28}{'':12}{TAG:>12}{'now':>12}{'ratio':>8}")
    for (case, method), measured in times.items():
        before, now = np.median(measured, axis=1)
        print(f"{case:28}{method:12}{before:12.2f}{now:12.2f}{now / before:8.2f}")


if __name__ == "__main__":
    main()
