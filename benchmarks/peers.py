"""Alternatives to orfit: time, memory, and the error on the first hundred rows.

Each learns a drifting stream of 1,000 rows in its own process, with a limit on memory and time; the
result says which one failed. `python peers.py NAME P` runs one of them.
"""

import json
import resource
import subprocess
import sys
import time
import warnings

import numpy as np

ROWS, FIRST = 1000, 100
MEMORY_LIMIT = 14 << 30
TIME_LIMIT = 30.0


def drifting_stream(p, seed=0):
    """Return rows in a rotating subspace, which has changed at the end, and exact labels."""
    rng = np.random.default_rng(seed)
    start, end = rng.standard_normal((2, 60, p)) / np.sqrt(60)
    share = np.linspace(0, 1, ROWS)[:, None]
    z = rng.standard_normal((ROWS, 60)) * np.geomspace(1, 0.05, 60)
    X = (1 - share) * (z @ start) + share * (z @ end)
    return X, X @ rng.standard_normal(p)


def orfit_limited(p):
    import orfit

    learner = orfit.ORFit(orfit.Linear(p), 100)
    return learner.learn, learner.predict


def orfit_rls(p):
    import orfit

    learner = orfit.RLS(orfit.Linear(p), prior=1e-3)
    return learner.learn, learner.predict


def padasip_filter(kind, **settings):
    def make(p):
        import padasip

        filter_ = getattr(padasip.filters, kind)(p, w="zeros", **settings)
        return lambda x, y: filter_.adapt(y, x), lambda X: X @ filter_.w

    return make


def river_model(make_model):
    def make(p):
        from river import linear_model, optim

        model = make_model(linear_model, optim)

        def predict(X):
            return np.array([model.predict_one(dict(enumerate(x))) for x in X])

        return lambda x, y: model.learn_one(dict(enumerate(x)), y), predict

    return make


def sklearn_sgd(p):
    from sklearn.linear_model import SGDRegressor

    model = SGDRegressor(alpha=0, eta0=1e-2, learning_rate="constant", fit_intercept=False)
    return lambda x, y: model.partial_fit(x[None], [y]), model.predict


def sklearn_pca(p):
    from sklearn.decomposition import IncrementalPCA

    model, held = IncrementalPCA(100), []

    def learn(x, y):
        held.append(x)
        if len(held) == 100:  # fewer rows than components raise an error
            model.partial_fit(np.array(held))
            held.clear()

    return learn, None


def kalman(p):
    from filterpy.kalman import KalmanFilter

    filter_ = KalmanFilter(dim_x=p, dim_z=1)
    filter_.P *= 1e3
    filter_.R *= 1.0

    def learn(x, y):
        filter_.update(y, H=x[None])

    return learn, lambda X: (X @ filter_.x)[:, 0]


PEERS = {
    "orfit ORFit, m=100": orfit_limited,
    "orfit RLS": orfit_rls,
    "padasip RLS": padasip_filter("FilterRLS", mu=1.0, eps=1e-3),
    "padasip NLMS": padasip_filter("FilterNLMS", mu=1.0),
    "river LinearRegression": river_model(
        lambda m, o: m.LinearRegression(optimizer=o.SGD(1e-2), intercept_lr=0)
    ),
    "river BayesianLinearRegression": river_model(lambda m, o: m.BayesianLinearRegression()),
    "scikit-learn SGDRegressor": sklearn_sgd,
    "scikit-learn IncrementalPCA, m=100": sklearn_pca,
    "filterpy KalmanFilter": kalman,
}


def reset_peak_memory():
    """Reset the peak memory of this process."""
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")


def peak_memory():
    """Return the peak memory since the reset. (ru_maxrss includes that of the parent.)"""
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


def run_here(name, p):
    """Run one peer in this process, and print its results."""
    warnings.simplefilter("ignore")
    X, y = drifting_stream(p)
    warm, _ = PEERS[name](8)  # imports are not measured
    for x in np.eye(8):
        warm(x, 1.0)
    reset_peak_memory()
    used = peak_memory()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    learn, predict = PEERS[name](p)
    start, done = time.perf_counter(), 0
    for x, label in zip(X, y, strict=True):
        learn(x, label)
        done += 1
        if time.perf_counter() - start > TIME_LIMIT:
            break
    spent = (time.perf_counter() - start) / done
    peak = peak_memory() - used
    result = {"seconds": spent, "bytes": peak, "rows": done, "rmse": None}
    if done == ROWS and predict is not None:
        error = np.asarray(predict(X[:FIRST])).reshape(-1) - y[:FIRST]
        result["rmse"] = float(np.sqrt(np.mean(error**2)) / np.std(y[:FIRST]))
    print(json.dumps(result))


def run_peer(name, p):
    """Run one peer in a new process; return a dict, with "failed" if it failed."""
    command = [sys.executable, __file__, name, str(p)]
    try:
        limit = TIME_LIMIT + 30
        out = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": "time: not one step in a minute"}
    if out.returncode != 0:
        last = (out.stderr.strip().splitlines() or ["killed"])[-1]
        return {"failed": "memory" if "Memory" in last or "allocate" in last else last[:80]}
    result = json.loads(out.stdout.splitlines()[-1])
    if result["rows"] < ROWS:
        result["failed"] = f"time: {result['seconds']:.2f} s a row"
    return result


if __name__ == "__main__":
    run_here(sys.argv[1], int(sys.argv[2]))
