"""`make bench-last-numba`: time of a row, in this environment and at the last commit with numba.

The tag `last-numba` is checked out and installed below .cache/last-numba. One worker process runs
in each environment. Both time the same cases in alternating bursts, so that a change in the load of
the machine affects both. Where the system places arrays in memory differs between processes, so
several rounds have new processes. The table shows the medians over all bursts.

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
MODELS = [
    *((p, noise) for p in (10, 50, 784, 20_000) for noise in (0.1, "auto")),
    *((p, None) for p in (10, 50, 784)),  # None: RLS. At p = 20,000 its P takes 3.2 GB
]
CASES = [(p, noise, method) for p, noise in MODELS for method in ("learn", "learn_each")]


def install(folder=CACHE):
    """Check out the last commit with numba and install it; return its Python interpreter."""
    source, environment = folder / "source", folder / "venv"
    python, ready = environment / "bin" / "python", environment / "ready"
    git = ["git", "-C", str(ROOT)]
    if not source.exists():
        tag = subprocess.run([*git, "rev-parse", "--verify", "--quiet", TAG], check=False)
        commit = COMMIT if tag.returncode else TAG
        # --force: git still lists a worktree whose folder was deleted.
        add = [*git, "worktree", "add", "--force", "--detach", str(source), commit]
        subprocess.run(add, check=True)
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--editable", f"{source}[fast]"], check=True)
        ready.touch()
    return python


def work():
    """Read numbers of cases from stdin; time one burst for each, print the microseconds of a row.

    The learner of a case goes on from burst to burst. Each burst has new rows.
    """
    import orfit

    if hasattr(orfit, "warm_up"):
        orfit.warm_up("float64")
    print(json.dumps(orfit.__file__), flush=True)
    rng, learners = np.random.default_rng(0), {}
    for line in sys.stdin:
        p, noise, method = CASES[int(line)]
        if line not in learners:
            model = orfit.Linear(p)
            new = orfit.RLS(model) if noise is None else orfit.ORFit(model, M, noise=noise)
            learners[line] = new
        learner = learners[line]
        n = int(np.clip(2_000_000 // (p * p if noise is None else p * M), 60, 1000))
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

    def run_burst(self, case):
        self.process.stdin.write(f"{case}\n")
        return json.loads(self.process.stdout.readline())


def run_interleaved(python, bursts=9, rounds=3, threads=1):
    """Time every case in both environments; return microseconds (cases, 2, rounds · bursts).

    times[:, 0] is the environment of `python`, times[:, 1] that of this process. Their order
    is random. The first burst of a case in a round fills the memory and is not counted.
    """
    limits = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"), str(threads))
    environment = os.environ | limits | {"OPENBLAS_NUM_THREADS": "1"}
    installed = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    times = np.empty((len(CASES), 2, rounds, bursts + 1))
    rng = np.random.default_rng(0)
    for round_ in range(rounds):
        workers = Worker(python, installed), Worker(sys.executable, environment)
        for case, burst in np.ndindex(len(CASES), bursts + 1):
            for i in rng.permutation(2):
                times[case, i, round_, burst] = workers[i].run_burst(case)
        for worker in workers:
            worker.process.communicate()
    print(f"{TAG}: {workers[0].package}\nnow: {workers[1].package}\n")
    return times[..., 1:].reshape(len(CASES), 2, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help="used by this script")
    parser.add_argument("--bursts", type=int, default=9, help="for each case and round (9)")
    parser.add_argument("--rounds", type=int, default=3, help="with new processes (3)")
    parser.add_argument("--threads", type=int, default=1, help="of each worker (1)")
    arguments = parser.parse_args()
    if arguments.worker:
        work()
        return
    times = run_interleaved(install(), arguments.bursts, arguments.rounds, arguments.threads)
    print(f"{'µs per row, median':38}{TAG:>12}{'now':>10}{'ratio':>8}")
    for (p, noise, method), (before, now) in zip(CASES, np.median(times, axis=2), strict=True):
        name = f"RLS p={p}" if noise is None else f"ORFit p={p:,} noise={noise}"
        print(f"{name:26}{method:12}{before:12.2f}{now:10.2f}{now / before:8.2f}")


if __name__ == "__main__":
    main()
