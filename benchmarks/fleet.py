"""A row for each of many small learners: `orfit.Fleet`, compared with a loop over single learners.

Both are timed in alternation, in CPU time: python benchmarks/fleet.py
"""

import time

import numpy as np

import orfit

P, M, COUNT, LOOPED, ROUNDS = 100, 20, 1000, 100, 7


def measure_cpu_seconds(learn, rows):
    """Return the CPU seconds per row."""
    start = time.process_time()
    learn()
    return (time.process_time() - start) / rows


def main():
    rng, model = np.random.default_rng(0), orfit.Linear(P)
    fleet = orfit.Fleet(COUNT, model, M, noise=0.1)
    learners = [orfit.ORFit(model, M, noise=0.1) for _ in range(LOOPED)]

    def learn_by_fleet(X, y):
        fleet.learn(np.arange(COUNT), X, y)

    def learn_by_loop(X, y):
        for learner, x, label in zip(learners, X, y, strict=False):
            learner.learn(x, label)

    times = []
    for _ in range(M + 11 + ROUNDS):  # the memories are full in the last rounds
        X, y = rng.standard_normal((COUNT, P)), rng.standard_normal(COUNT)
        times.append([
            measure_cpu_seconds(lambda: learn_by_fleet(X, y), COUNT),
            measure_cpu_seconds(lambda: learn_by_loop(X, y), LOOPED),
        ])  # fmt: skip
    times = 1e6 * np.array(times[-ROUNDS:])
    by_fleet, by_loop = np.median(times, axis=0)
    ratio = np.median(times[:, 1] / times[:, 0])
    print(f"p = {P}, m = {M}, one row each, medians of {ROUNDS} rounds, µs of CPU time per row:")
    print(f"fleet {by_fleet:.1f}, loop of learn {by_loop:.1f}; loop ÷ fleet: {ratio:.1f}")


if __name__ == "__main__":
    main()
