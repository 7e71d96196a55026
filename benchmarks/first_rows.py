"""The first rows in a new process: the longest single `learn`, and the usual one (a median).

The usual time is divided by that of RLS in five lines of NumPy, measured in the same process.
"""

import json
import os
import subprocess
import sys
from time import perf_counter

import numpy as np

import orfit

P, ROWS, R = 50, 2000, 0.1
LEARNERS = {
    "ORFit": lambda model: orfit.ORFit(model, 10, noise=R),
    "auto": lambda model: orfit.ORFit(model, 10, noise="auto"),
    "RLS": orfit.RLS,
    "EKF": lambda model: orfit.EKF(model, noise=R),
    "drift": lambda model: orfit.EKF(model, noise=R, drift=1e-4),
}


class FiveLines:
    P, w = np.eye(P), np.zeros(P)

    def learn(self, x, y):
        k = self.P @ x
        k = k / (R + x @ k)
        self.w = self.w + k * (y - x @ self.w)
        self.P = self.P - np.outer(k, x @ self.P)


def measure(learner):
    """Return the longest time of a row, its index, and the usual time."""
    rng, times = np.random.default_rng(0), np.empty(ROWS)
    for i, x in enumerate(rng.standard_normal((ROWS, P))):
        y = x.sum() + R**0.5 * rng.standard_normal()
        start = perf_counter()
        learner.learn(x, y)
        times[i] = perf_counter() - start
    return times.max(), int(times.argmax()), np.median(times[ROWS // 2 :])


def main():
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    print(f"The first {ROWS:,} rows, p = {P}\n{'':8}longest      at row    usual   ÷ five lines")
    for name in LEARNERS:
        output = subprocess.check_output([sys.executable, __file__, name], env=environment)
        (longest, row, usual), (*_, five) = json.loads(output)
        print(f"{name:8}{1e3 * longest:7.2f} ms{row:9}{1e6 * usual:7.1f} µs{usual / five:12.1f}")


if __name__ == "__main__":
    names = sys.argv[1:]  # a name: measure it in this process
    made = [LEARNERS[name](orfit.Linear(P)) for name in names]
    print(json.dumps([measure(learner) for learner in [*made, FiveLines()]])) if names else main()
