"""ORFit and its relatives: where they meet, and what each costs (beyond the paper).

prop:compare_RLS and the appendix on the extended Kalman filter say that ORFit is the limit of
exponentially weighted RLS for λ → 0, of NTK-RLS likewise, and of the EKF for R → 0. Here the limits
are walked: rotated twos are learned, with the linear model by RLS and EKF, with a small tanh
network by NTK-RLS, and the distance of their parameters to ORFit's is measured, as a share of the
way from w0. Then the cost of a step against p: ORFit with m = 10 is linear, the others are
quadratic.

In curves.csv `step` is λ, or R, or p; the quantity is `distance`, or `numbers` for how many the
memory holds. Times are never the same twice: they are in the table and in the figure alone.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.door import Array
from orfit.experiments import report, rotated
from orfit.experiments.report import Curves, Tick
from orfit.experiments.tanh import TanhNetwork

TITLE = "ORFit and its relatives: RLS, NTK-RLS and the Kalman filter"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    points: int = 30  # λ to this power must be a number
    runs: int = 3
    limits: int = 9  # λ and R are 10⁰, 10⁻¹, … so many of them
    hidden: int = 8  # units of the network, on images shrunk to 7×7
    largest_p: int = 3200  # for the cost: 100, 200, … up to this
    m: int = 10


QUICK = {"points": 20, "tests": 100, "runs": 1, "limits": 5, "largest_p": 400}

NAMES = {
    "rls": "RLS, λ → 0",
    "ekf": "EKF, R → 0",
    "ntk-rls": "NTK-RLS on a network, λ → 0",
    "orfit": "ORFit, m = 10",
}
COLOURS = {"rls": "tab:red", "ekf": "tab:olive", "ntk-rls": "tab:pink", "orfit": "tab:blue"}


def limits(settings: Settings) -> Array:
    return np.asarray(10.0 ** -np.arange(settings.limits))


def dimensions(settings: Settings) -> list[int]:
    return [p for p in (100 * 2**i for i in range(12)) if p <= settings.largest_p]


def ticks(settings: Settings) -> int:
    return settings.runs * settings.limits + len(dimensions(settings))


def run(settings: Settings, tick: Tick) -> Curves:
    curves = Curves()
    _distances(settings, curves, tick)
    _costs(settings, curves, tick)
    return curves


def _distances(settings: Settings, curves: Curves, tick: Tick) -> None:
    data = rotated.rotated_twos(settings)
    model, small = rotated.model_of(settings), _shrunk(data.X)
    shape = settings.runs, settings.limits
    found = {method: np.empty(shape) for method in ("rls", "ekf", "ntk-rls")}
    for number, w0 in rotated.starts(settings):
        network = TanhNetwork(small.shape[1], settings.hidden, seed=1000 * settings.seed + number)
        for column, limit in enumerate(limits(settings)):
            pairs = {
                "rls": (orfit.RLS(model, w0=w0, forgetting=limit), orfit.ORFit(model, w0=w0)),
                "ekf": (orfit.EKF(model, w0=w0, noise=limit), orfit.ORFit(model, w0=w0)),
                "ntk-rls": (orfit.NTKRLS(network, forgetting=limit), orfit.ORFit(network)),
            }
            for method, learners in pairs.items():
                X = small if method == "ntk-rls" else data.X
                start = learners[1].w
                for learner in learners:
                    learner.learn_each(X, data.y)
                theirs, ours = (learner.w for learner in learners)
                way = np.linalg.norm(ours - start)
                found[method][number, column] = np.linalg.norm(theirs - ours) / way
            tick()
    for method, values in found.items():
        curves.add(method, "distance", limits(settings), values)


def _shrunk(X: Array) -> Array:
    """Images averaged over squares of 4×4 pixels."""
    side = rotated.PIXELS // 4
    return np.asarray(X.reshape(-1, side, 4, side, 4).mean(axis=(2, 4)).reshape(len(X), -1))


def _costs(settings: Settings, curves: Curves, tick: Tick) -> None:
    ps = dimensions(settings)
    rng = np.random.default_rng(settings.data_seed)
    seconds: dict[str, list[float]] = {}
    numbers: dict[str, list[float]] = {}
    for p in ps:
        model = orfit.Linear(p)
        X, y = rng.standard_normal((settings.m + 20, p)), rng.standard_normal(settings.m + 20)
        learners: dict[str, Any] = {
            "orfit": orfit.ORFit(model, settings.m),
            "rls": orfit.RLS(model),
            "ntk-rls": orfit.NTKRLS(model),
            "ekf": orfit.EKF(model, noise=1.0),
        }
        for method, learner in learners.items():
            times = []
            for x, label in zip(X, y, strict=True):
                start = time.perf_counter()
                learner.learn(x, label)
                times.append(time.perf_counter() - start)
            seconds.setdefault(method, []).append(float(np.median(times[settings.m :])))
            held = learner.memory.frame.rows.size if method == "orfit" else p * p
            numbers.setdefault(method, []).append(held)
        tick()
    for method, kept in numbers.items():
        curves.add(method, "numbers", np.array(ps), np.array([kept]))
        curves.facts[f"seconds {method}"] = np.array(seconds[method])


def tables(curves: Curves, settings: Settings) -> list[Any]:
    steps = limits(settings)[::2]
    rows = []
    for curve in curves.of("distance"):
        means = dict(zip(curve.steps, curve.mean, strict=True))
        rows.append([NAMES[curve.method], *[f"{means[step]:.1e}" for step in steps]])
    columns = ["", *[f"{step:.0e}" for step in steps]]
    title = "Distance to ORFit's w, as a share of its way, for λ or R (mean over runs)"
    distances = report.table(title, columns, rows)
    ps = dimensions(settings)
    rows = [
        [name.split(",")[0].split(" on")[0], *[f"{1e3 * s:.3f}" for s in curves.facts[key]]]
        for name, key in ((NAMES[m], f"seconds {m}") for m in ("orfit", "rls", "ntk-rls", "ekf"))
    ]
    costs = report.table("Time of a step (ms) against p", ["", *map(str, ps)], rows)
    return [distances, costs]


def figure(curves: Curves, settings: Settings) -> Any:
    made, (left, right) = report.panels()
    for curve in curves.of("distance"):
        style = {"color": COLOURS[curve.method], "label": NAMES[curve.method], "marker": "o"}
        left.loglog(curve.steps, curve.mean, **style)
    left.invert_xaxis()
    left.set_xlabel("λ, or R (falling)")
    left.set_ylabel("distance to ORFit's w ÷ |w − w₀|")
    left.set_title("They meet in the limit")
    left.legend()
    for curve in curves.of("numbers"):
        name = NAMES[curve.method].split(",")[0].split(" on")[0]
        times = 1e3 * curves.facts[f"seconds {curve.method}"]
        label = name + (f", m = {settings.m}" if curve.method == "orfit" else "")
        right.loglog(curve.steps, times, marker="o", color=COLOURS[curve.method], label=label)
    right.set_xlabel("parameters p")
    right.set_ylabel("time of a step (ms)")
    right.set_title("What a step costs")
    right.legend()
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return made
