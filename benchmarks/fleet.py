"""A row for each of many small learners: `orfit.Fleet` beside a loop over single ones, in CPU time.

python benchmarks/fleet.py
"""

import time

import numpy as np

import orfit

P, M, COUNT, LOOPED, ROUNDS = 100, 20, 1000, 100, 7


def seconds(learn, rows):
    """Of a processor, for each of so many rows."""
    start = time.process_time()
    learn()
    return (time.process_time() - start) / rows


def main():
    orfit.warm_up("float64")
    rng, model = np.random.default_rng(0), orfit.Linear(P)
    fleet = orfit.Fleet(COUNT, model, M, noise=0.1)
    single = {
        way: [orfit.ORFit(model, M, noise=0.1, rows=way) for _ in range(LOOPED)]
        for way in ("compiled", "plain")
    }
    for _ in range(31):
        X, y = rng.standard_normal((COUNT, P)), rng.standard_normal(COUNT)
        fleet.learn(np.arange(COUNT), X, y)
        for learners in single.values():
            for i, learner in enumerate(learners):
                learner.learn(X[i], y[i])
    timed = []
    for _ in range(ROUNDS):
        X, y = rng.standard_normal((COUNT, P)), rng.standard_normal(COUNT)

        def loop(learners, X=X, y=y):
            for i, learner in enumerate(learners):
                learner.learn(X[i], y[i])

        times = [seconds(lambda X=X, y=y: fleet.learn(np.arange(COUNT), X, y), COUNT)]
        times += [seconds(lambda of=of: loop(of), LOOPED) for of in single.values()]
        timed.append(times)
    timed = 1e6 * np.array(timed)
    fleet_, compiled, plain = np.median(timed, axis=0)
    print(f"p = {P}, m = {M}, one row each, medians of {ROUNDS} rounds, µs of a processor a row:")
    print(f"fleet {fleet_:.1f}, loop of learn, compiled {compiled:.1f}, plain {plain:.1f}")
    ratios = np.median(timed[:, 1:] / timed[:, :1], axis=0)
    print(f"loop ÷ fleet: compiled {ratios[0]:.1f}, plain {ratios[1]:.1f}")


if __name__ == "__main__":
    main()
