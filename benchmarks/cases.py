"""The cases of run.py: what is timed for each, and in which process.

A case has `ways`: functions that learn rows, timed in alternation in bursts. `NUMBA` names the ways
that run in the process of the last version with numba; "learn" and "learn_each" are this version.
"""

import time
from dataclasses import dataclass

import numpy as np
import references
from references import DRIFT, R

import orfit

BURST = 0.03  # seconds, of which a burst takes about as many
BLOCK = 100  # rows of a batch
NUMBA = " (numba)"
OURS = ("learn", "learn_each")
PEERS = ("filterpy", "padasip", "river")


@dataclass(frozen=True)
class Case:
    """A learner and its size, and what is compared with it.

    kind: "ORFit" (noise R), "RLS", "drift" (EKF), "system" (EKF with A, B and Q), "model" (EKF of a
    nonlinear model), "batch", or one of `OPTIONS` of ORFit.
    """

    kind: str
    p: int
    m: int = 0
    ways: tuple[str, ...] = OURS
    least: int = 4  # rows of a burst: of a long row, as many as from one compaction to the next

    @property
    def name(self):
        size = f"p={self.p:,}" + (f", m={self.m}" if self.m else "")
        return f"{self.kind} {size}"


class Fleet:
    """A fleet that learns a row of each learner, or a loop over as many learners."""

    COUNT = 200

    def __init__(self, case, way):
        model = orfit.Linear(case.p)
        self.fleet = orfit.Fleet(self.COUNT, model, case.m, noise=R) if way == "learn" else None
        self.learners = [orfit.ORFit(model, case.m, noise=R) for _ in range(self.COUNT)]

    def learn_batch(self, X, y):
        owners = np.arange(len(y)) % self.COUNT
        if self.fleet is not None:
            self.fleet.learn(owners, X, y)
        else:
            for owner, x, label in zip(owners.tolist(), X, y.tolist(), strict=True):
                self.learners[owner].learn(x, label)


def with_numba(*ways):
    return (*ways, *(way + NUMBA for way in ways))


OPTIONS = ('noise="auto"', 'forgetting="auto"', "two outputs", "meter", "float32")
FILTERS = ("five lines", "SciPy BLAS", *PEERS)
CASES = [
    *(Case("ORFit", p, 10, (*with_numba(*OURS), "five lines", "two reads")) for p in (10, 50, 200)),
    Case("ORFit", 784, 10, (*with_numba(*OURS), "five lines", "two reads")),
    Case("ORFit", 20_000, 10, (*with_numba(*OURS), "two reads"), 32),
    Case("ORFit", 20_000, 100, (*with_numba(*OURS), "two reads"), 50),
    Case("ORFit", 100_000, 10, (*OURS, "two reads"), 32),
    Case("ORFit", 1_000_000, 10, (*OURS, "two reads"), 32),
    Case("ORFit", 100_000, 100, (*OURS, "two reads"), 50),
    *(Case("RLS", p, 0, (*with_numba(*OURS), *FILTERS)) for p in (10, 50, 200, 1000)),
    *(
        Case("drift", p, 0, (*with_numba(*OURS), "five lines", "five lines + Q", "filterpy"))
        for p in (10, 50, 200)
    ),
    *(
        Case("system", p, 0, ("learn", "learn" + NUMBA, "NumPy", "filterpy"))
        for p in (4, 10, 50, 200)
    ),
    Case("model", 4, 0, ("learn", "learn" + NUMBA, "NumPy")),
    *(
        Case("batch", p, m, (*with_numba("learn_batch"), "learn_each", "BLAS"), BLOCK)
        for p, m in ((784, 10), (20_000, 10), (784, 100), (20_000, 100))
    ),
    *(Case(kind, p, 10, (*OURS, "plain")) for kind in OPTIONS for p in (50, 20_000)),
    Case("fleet", 100, 20, ("learn", "loop"), 20 * Fleet.COUNT),
]


class TwoOutputs:
    """A linear model with two outputs that share their parameters."""

    heads, linear = None, True

    def __init__(self, p):
        self.size, self.input_shape = p, (p,)

    def initial(self):
        return np.zeros(self.size)

    def predict(self, w, X):
        return np.stack([X @ w, X[:, ::-1] @ w], axis=1)

    def linearize(self, w, X):
        return self.predict(w, X), np.stack([X, X[:, ::-1]], axis=1).reshape(-1, self.size).T

    def settings(self):
        return {}


def new_learner(case, is_plain=False):
    """Return a learner of orfit for this case; is_plain: ORFit with its size alone."""
    if case.kind in {"RLS", "drift", "system", "model"}:
        return new_filter(case)
    options = {
        'noise="auto"': {"noise": "auto"},
        'forgetting="auto"': {"forgetting": "auto"},
        "meter": {"meter": orfit.Meter(32)},
        "float32": {"w0": np.zeros(case.p, np.float32)},
    }
    chosen = {} if is_plain else options.get(case.kind, {})
    is_double = case.kind == "two outputs" and not is_plain
    model = TwoOutputs(case.p) if is_double else orfit.Linear(case.p)
    return orfit.ORFit(model, case.m, **{"noise": R} | chosen)


def new_filter(case):
    """Return a learner with a dense P."""
    if case.kind == "model":
        return orfit.EKF(references.Decay(), noise=R)
    model = orfit.Linear(case.p)
    if case.kind == "RLS":
        return orfit.RLS(model, prior=R)
    if case.kind == "drift":
        return orfit.EKF(model, noise=R, drift=DRIFT)
    system = references.System(case.p)
    matrices = {"dynamics": system.A, "control": system.B, "drift": system.Q}
    return orfit.EKF(model, noise=R, **matrices)


def new_reference(case, way):
    if way == "NumPy" and case.kind == "model":
        return references.ExtendedKalmanFilter(case.p)
    if way in {"two reads", "BLAS"}:
        name = {"two reads": references.TwoReads, "BLAS": references.LeastBatch}[way]
        return name(case.p, case.m)
    if way == "filterpy":
        return references.Filterpy(case.p, case.kind)
    names = {
        "five lines": references.FiveLines,
        "five lines + Q": references.DriftingRLS,
        "SciPy BLAS": references.BlasRLS,
        "NumPy": references.KalmanFilter,
        "padasip": references.Padasip,
        "river": references.River,
    }
    return names[way](case.p)


class Way:
    """A learner that goes on from burst to burst; each burst has new rows."""

    def __init__(self, case, way):
        self.case, self.name = case, way.removesuffix(NUMBA)
        self.learner, self.how = self.make()
        self.rng, self.rows = np.random.default_rng(0), case.least
        # Until memories are full, the first 100 rows have been compared, and code is compiled.
        for _ in range(7 if case.kind == "fleet" else 4):
            self.run_burst()

    def make(self):
        """Return the learner, and the name of the method that is timed."""
        case, name = self.case, self.name
        if case.kind == "fleet":
            return Fleet(case, name), "learn_batch"
        if name == "plain":
            return new_learner(case, True), "learn"
        if name in {*OURS, "learn_batch"}:
            return new_learner(case), name
        return new_reference(case, name), "learn_batch" if case.kind == "batch" else "learn"

    def draw(self, n):
        """Return n rows and labels with noise."""
        case = self.case
        if case.kind == "model":
            X = self.rng.uniform(0, 3, n)
            return X, 1 + np.exp(-X) + R**0.5 * self.rng.standard_normal(n)
        X = self.rng.standard_normal((n, case.p), np.float32)
        is_single = case.kind == "float32" and self.name != "plain"
        X = X if is_single else X.astype(float)
        y = X[:, 0] + R**0.5 * self.rng.standard_normal(n)
        is_double = case.kind == "two outputs" and self.name != "plain"
        return X, np.stack([y, y], axis=1) if is_double else y

    def run_burst(self):
        """Return the seconds of CPU time per row."""
        X, y = self.draw(self.rows)
        start = time.process_time()
        if self.how != "learn":
            getattr(self.learner, self.how)(X, y)
        else:
            # Labels of one output are Python's numbers, as in most loops over rows.
            rows = [dict(enumerate(x)) for x in X.tolist()] if self.name == "river" else list(X)
            labels = y.tolist() if y.ndim == 1 else list(y)
            learn, advance = self.learner.learn, getattr(self.learner, "advance", None)
            u = references.System(4).u
            start = time.process_time()
            if self.case.kind == "system" and advance is not None:
                for x, label in zip(rows, labels, strict=True):
                    advance(u)
                    learn(x, label)
            else:
                for x, label in zip(rows, labels, strict=True):
                    learn(x, label)
        each = (time.process_time() - start) / len(X)
        if self.case.kind not in {"batch", "fleet"}:
            # Longer bursts of short rows; a limit on the memory that rows take.
            most = max(self.case.least, min(4000, 4_000_000 // self.case.p))
            self.rows = int(np.clip(BURST / max(each, 1e-9), self.case.least, most))
        return each
