"""RLS, NTK-RLS and the EKF approach ORFit in the limit λ → 0 or R → 0.

prop:compare_RLS states that exponentially weighted RLS with λ → 0 equals ORFit,
thm:implicit_bias_ntk states the same of NTK-RLS, and the appendix "Connection to EKF" of the
extended Kalman filter with R → 0. Rotated images are learned with decreasing λ or R: by RLS and the
EKF with the linear model, by NTK-RLS with a small tanh network. The result is the distance between
the parameters and those of ORFit, divided by the distance of ORFit's parameters from w0.

In curves.csv `step` is λ or R.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.reproduce import report, rotated
from orfit.reproduce.report import Advance, Curves
from orfit.reproduce.tanh import TanhNetwork
from orfit.validation import Array

TITLE = "RLS, NTK-RLS and EKF in the limit (prop:compare_RLS, thm:implicit_bias_ntk)"


@dataclass(frozen=True)
class Settings(rotated.Setup):
    points: int = 30  # λ to the power of `points` must not underflow
    runs: int = 3
    limits: int = 9  # how many values of λ and R: 10⁰, 10⁻¹, …
    hidden: int = 8  # units of the network, whose inputs are images of 7×7 pixels


QUICK = {"points": 20, "tests": 100, "runs": 1, "limits": 5}

NAMES = {"rls": "RLS, λ → 0", "ekf": "EKF, R → 0", "ntk-rls": "NTK-RLS on a network, λ → 0"}
COLOURS = {"rls": "tab:red", "ekf": "tab:olive", "ntk-rls": "tab:pink"}


def compute_limits(settings: Settings) -> Array:
    """Return the values of λ and R."""
    return np.asarray(10.0 ** -np.arange(settings.limits))


def count_steps(settings: Settings) -> int:
    return settings.runs * settings.limits


def run(settings: Settings, advance: Advance) -> Curves:
    data = rotated.load_data(settings)
    model, small = rotated.make_model(settings), _shrink(data.X)
    limits = compute_limits(settings)
    distances = {method: np.empty((settings.runs, len(limits))) for method in NAMES}
    for number, w0 in rotated.draw_starts(settings):
        network = TanhNetwork(small.shape[1], settings.hidden, seed=1000 * settings.seed + number)
        for column, limit in enumerate(limits):
            pairs = {
                "rls": (orfit.RLS(model, w0=w0, forgetting=limit), orfit.ORFit(model, w0=w0)),
                "ekf": (orfit.EKF(model, w0=w0, noise=limit), orfit.ORFit(model, w0=w0)),
                "ntk-rls": (orfit.NTKRLS(network, forgetting=limit), orfit.ORFit(network)),
            }
            for method, learners in pairs.items():
                start = learners[1].w
                for learner in learners:
                    learner.learn_each(small if method == "ntk-rls" else data.X, data.y)
                w, w_orfit = (learner.w for learner in learners)
                distance = np.linalg.norm(w - w_orfit) / np.linalg.norm(w_orfit - start)
                distances[method][number, column] = distance
            advance()
    curves = Curves()
    for method, values in distances.items():
        curves.add(method, "distance", limits, values)
    return curves


def _shrink(X: Array) -> Array:
    """Return images averaged over squares of 4×4 pixels, as rows."""
    side = rotated.PIXELS // 4
    return np.asarray(X.reshape(-1, side, 4, side, 4).mean(axis=(2, 4)).reshape(len(X), -1))


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    rows = [
        [NAMES[curve.method], *[f"{mean:.1e}" for mean in curve.mean[::2]]]
        for curve in curves.select("distance")
    ]
    columns = ["", *[f"{limit:.0e}" for limit in compute_limits(settings)[::2]]]
    title = "Distance to w of ORFit ÷ its distance from w0, for λ or R (mean over runs)"
    return [report.make_table(title, columns, rows)]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, axis = report.make_panels(1, 6.0)
    for curve in curves.select("distance"):
        style = {"color": COLOURS[curve.method], "label": NAMES[curve.method], "marker": "o"}
        axis.loglog(curve.steps, curve.mean, **style)
    axis.invert_xaxis()
    axis.set_xlabel("λ or R (decreasing)")
    axis.set_ylabel("distance to w of ORFit ÷ |w of ORFit − w₀|")
    axis.set_title("Distance to ORFit")
    axis.legend()
    axis.grid(alpha=0.3)
    return figure
