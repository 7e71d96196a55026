"""A Duffing oscillator, identified in one pass by ORFit, RLS and ridge regression.

The system is a mass on a stiffening spring, as in the Silverbox benchmark, simulated by RK4:

    m ẍ + d ẋ + k x + k₃ x³ = u(t),     m = 1 kg, d = 2 N s/m, k = 400 N/m, k₃ = 2e4 N/m³

The force u is random, has no frequencies above 5 Hz (the natural frequency is 3.2 Hz, and higher
where x is large), is constant between samples, and grows over the record from a tenth of its
amplitude to all of it. x is sampled at 25 Hz, with noise. The test record has another force and
noise.

The model is nominal plus random, as a comment in the paper's source proposes for system
identification: y = zᵀ w_n + Φ_r(z)ᵀ w_r, where z are the latest samples of x and u, in units of
their standard deviations in the first rows. w_n starts at the least squares solution of those
rows, where the force is weak and the spring almost linear; Φ_r are random Fourier features, and w_r
starts at zero. R is the residual variance of the nominal model in those rows, or `auto`.

In curves.csv `step` is m, or p for RLS and ridge regression on all rows. Errors are in mm.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curve, Curves
from orfit.validation import Array

TITLE = "A simulated Duffing oscillator, identified in one pass"

MASS, DAMPING, SPRING, CUBIC = 1.0, 2.0, 400.0, 2e4  # kg, N s/m, N/m, N/m³
SAMPLE = 0.04  # s
SUBSTEPS = 8  # of RK4 in a sample
BAND = 5.0  # Hz
WEAKEST = 0.1  # of the amplitude, at the start of a record
SIZES = (10, 30, 100, 200)
WIDTH = 1.96  # standard deviations, of 95 % intervals
DIVERGED = 1e3  # in units of the first rows
SECTION = 75  # samples in the figure


@dataclass(frozen=True)
class Settings:
    rows: int = 3000  # of the record that is learned
    tests: int = 2000  # rows of the test record
    start: int = 500  # rows for the units and the nominal model
    lags: int = 3  # samples of x, and as many of u
    features: int = 1000
    length: float = 5.0  # length scale of the random features, in the units of z
    spread: float = 10.0  # prior standard deviation of their sum, in the same units
    amplitude: float = 10.0  # of the force at the end (N, root mean square)
    noise: float = 0.1  # of the sensor (mm, standard deviation)
    largest_m: int = 200  # m = 10, 30, 100, 200 up to this
    seed: int = 0


QUICK = {"rows": 1000, "tests": 600, "start": 200, "features": 200, "largest_m": 30}

NAMES = {
    "orfit": "ORFit, R fixed",
    "orfit-auto": "ORFit, R auto",
    "rls": "RLS",
    "ridge": "ridge, all rows",
    "arx": "linear part alone, RLS",
    "nominal": "nominal, not learned",
}
COLOURS = {"orfit": "tab:blue", "orfit-auto": "tab:cyan", "rls": "tab:red", "ridge": "black"}
COLOURS |= {"arx": "tab:gray", "nominal": "tab:brown"}


@dataclass(frozen=True)
class Problem:
    """Training and test record as lags Z (n, 2 lags) and y (n,), in units of the first rows."""

    Z: Array
    y: Array
    Z_test: Array
    y_test: Array
    unit: float  # of y, in mm
    w0: Array
    R: float
    frequencies: Array
    phases: Array
    spread: float

    def features(self, Z: Array) -> Array:
        """Return Z and its random features, side by side."""
        waves = np.cos(Z @ self.frequencies + self.phases)
        return np.hstack([Z, self.spread * np.sqrt(2 / waves.shape[1]) * waves])


def make_force(rng: np.random.Generator, samples: int, amplitude: float) -> Array:
    """Return a random force without frequencies above BAND, whose amplitude grows."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    spectrum[np.fft.rfftfreq(samples, SAMPLE) > BAND] = 0.0
    u = np.fft.irfft(spectrum, samples)
    return np.asarray(np.linspace(WEAKEST, 1.0, samples) * amplitude * u / u.std())


def simulate(u: Array) -> Array:
    """Return the position x (m) at each sample under the force u (N), from rest, by RK4."""
    h, x, v = SAMPLE / SUBSTEPS, 0.0, 0.0
    positions = np.empty(len(u))

    def compute_acceleration(x: float, v: float, push: float) -> float:
        return (push - DAMPING * v - SPRING * x - CUBIC * x**3) / MASS

    for i, push in enumerate(u.tolist()):
        positions[i] = x
        for _ in range(SUBSTEPS):
            v1, a1 = v, compute_acceleration(x, v, push)
            v2, a2 = v + h / 2 * a1, compute_acceleration(x + h / 2 * v1, v + h / 2 * a1, push)
            v3, a3 = v + h / 2 * a2, compute_acceleration(x + h / 2 * v2, v + h / 2 * a2, push)
            v4, a4 = v + h * a3, compute_acceleration(x + h * v3, v + h * a3, push)
            x += h / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
            v += h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    return positions


def make_lags(u: Array, y: Array, lags: int) -> tuple[Array, Array]:
    """Return Z, whose rows hold the latest y, then the latest u, newest first; and the next y."""
    ends = range(lags - 1, -1, -1)
    last = len(y) - lags
    return np.column_stack([s[i : i + last] for s in (y, u) for i in ends]), y[lags:]


def make_problem(settings: Settings) -> Problem:
    rng = np.random.default_rng(settings.seed)
    records = []
    for samples in (settings.rows, settings.tests):
        u = make_force(rng, samples + settings.lags, settings.amplitude)
        y = 1e3 * simulate(u) + settings.noise * rng.standard_normal(len(u))
        records.append((u, y))
    in_u, in_y = (s[: settings.start].std() for s in records[0])
    (Z, y), (Z_test, y_test) = (make_lags(u / in_u, y / in_y, settings.lags) for u, y in records)
    early, label = Z[: settings.start], y[: settings.start]
    nominal = np.linalg.lstsq(early, label, rcond=None)[0]
    frequencies = rng.standard_normal((Z.shape[1], settings.features))
    frequencies /= settings.length * np.sqrt(Z.shape[1])
    phases = rng.uniform(0, 2 * np.pi, settings.features)
    w0 = np.concatenate([nominal, np.zeros(settings.features)])
    R = float(np.var(label - early @ nominal))
    unit = float(in_y)
    return Problem(Z, y, Z_test, y_test, unit, w0, R, frequencies, phases, spread=settings.spread)


def list_sizes(settings: Settings) -> list[int]:
    return [m for m in SIZES if m <= settings.largest_m] or [settings.largest_m]


def count_steps(settings: Settings) -> int:
    return 2 * len(list_sizes(settings)) + 1


def run(settings: Settings, advance: Advance) -> Curves:
    problem, curves = make_problem(settings), Curves()
    Phi, Phi_test = problem.features(problem.Z), problem.features(problem.Z_test)
    model, ms = orfit.Linear(Phi.shape[1]), list_sizes(settings)
    parameters: dict[tuple[str, int], Array] = {}
    measured: dict[tuple[str, int], dict[str, float]] = {}

    def learn(name: str, size: int, learner: Any) -> None:
        learner.learn_each(Phi, problem.y)
        parameters[name, size], health = learner.w, learner.health()
        f, std = learner.predict(Phi_test, std=True)
        inside = np.abs(problem.y_test - f) < WIDTH * std
        measured[name, size] = {
            "megabytes": sum(array.nbytes for array in learner.state()[0].values()) / 1e6,
            "R": learner.noise if name != "rls" else problem.R,
            "S/R": health.surprise,
            "dropped": health.dropped,
            "coverage": 100 * float(inside.mean()),
            "coverage_strong": 100 * float(inside[-(len(inside) // 4) :].mean()),
        }
        curves.extras[f"{name} {size}"] = problem.unit * np.array([f, std])
        advance()

    for m in ms:
        learn("orfit", m, orfit.ORFit(model, m, w0=problem.w0, noise=problem.R))
        learn("orfit-auto", m, orfit.ORFit(model, m, w0=problem.w0, noise="auto"))
    learn("rls", model.size, orfit.RLS(model, w0=problem.w0, prior=problem.R))
    parameters |= _compute_references(problem, Phi)
    free = simulate_free_run(problem, np.array(list(parameters.values())))
    for (name, size), w, simulated in zip(parameters, parameters.values(), free, strict=True):
        measured.setdefault((name, size), {})
        measured[name, size]["one_step"] = _compute_rmse(problem, Phi_test @ w)
        measured[name, size]["free_run"] = _compute_rmse(problem, simulated)
    for name in NAMES:
        steps = [size for method, size in measured if method == name]
        for quantity in measured[name, steps[0]]:
            values = np.array([[measured[name, size][quantity] for size in steps]])
            curves.add(name, quantity, np.array(steps), values)
    curves.extras["test"] = problem.unit * problem.y_test
    return curves


def _compute_references(problem: Problem, Phi: Array) -> dict[tuple[str, int], Array]:
    """Return w of ridge regression with the same R and w0, and of the linear part alone."""
    size, linear = Phi.shape[1], problem.Z.shape[1]
    precision = Phi.T @ Phi + problem.R * np.eye(size)
    ridge = problem.w0 + np.linalg.solve(precision, Phi.T @ (problem.y - Phi @ problem.w0))
    arx = orfit.RLS(orfit.Linear(linear), w0=problem.w0[:linear], prior=problem.R)
    arx.learn_each(problem.Z, problem.y)
    alone = np.concatenate([arx.w, np.zeros(size - linear)])
    return {("ridge", size): ridge, ("arx", linear): alone, ("nominal", linear): problem.w0}


def simulate_free_run(problem: Problem, W: Array) -> Array:
    """Simulate the test record with each row w of W, from its own outputs and u: (models, tests).

    The result is infinite from the step on at which a model diverges.
    """
    lags = problem.Z.shape[1] // 2
    past = np.repeat(problem.Z_test[:1, :lags], len(W), axis=0)
    outputs = np.empty((len(W), len(problem.Z_test)))
    for i, z in enumerate(problem.Z_test):
        pushes = np.repeat(z[None, lags:], len(W), axis=0)
        y = np.einsum("ij,ij->i", problem.features(np.hstack([past, pushes])), W)
        outputs[:, i] = y
        past = np.clip(np.column_stack([y, past[:, :-1]]), -DIVERGED, DIVERGED)
    lost = np.maximum.accumulate(np.abs(outputs) >= DIVERGED, axis=1)
    return np.where(lost, np.inf, outputs)


def _compute_rmse(problem: Problem, prediction: Array) -> float:
    """In mm, against the record as it was measured."""
    return problem.unit * float(np.sqrt(np.mean((prediction - problem.y_test) ** 2)))


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    errors, learners = [], []
    for curve in curves.select("one_step"):
        name = curve.method
        for size in map(int, curve.steps):
            label = NAMES[name] + (f", m = {size}" if name.startswith("orfit") else "")
            one_step, free = (curves[name, q].at(size)[0] for q in ("one_step", "free_run"))
            simulated = f"{free:.2f}" if np.isfinite(free) else "diverges"
            errors.append([label, f"{one_step:.3f}", simulated])
            if name in {"orfit", "orfit-auto", "rls"}:
                forms = {"megabytes": ".2f", "R": ".0e", "S/R": ".2f", "dropped": ".2g"}
                forms |= {"coverage": ".1f", "coverage_strong": ".1f"}
                cells = [f"{curves[name, q].at(size)[0]:{form}}" for q, form in forms.items()]
                learners.append([label, *cells])
    title = f"Errors on the test record (mm, root mean square; sensor noise {settings.noise:g})"
    columns = ["", "MB", "R", "S/R", "dropped", "in 95 %", "last quarter"]
    return [
        report.make_table(title, ["", "one step ahead", "free run"], errors),
        report.make_table("Memory and diagnostics of the learners", columns, learners),
    ]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, axes = report.make_panels(2, 5.6, 3.6, rows=2)
    titles = {"one_step": "One step ahead", "free_run": "Free run on its own outputs"}
    for axis, (quantity, title) in zip(axes[0], titles.items(), strict=True):
        for curve in curves.select(quantity):
            _plot_against_m(axis, curve)
        axis.set(title=title, ylabel="test error (mm, rms)", xlabel="directions kept, m")
        ms = list_sizes(settings)
        axis.set_xticks(ms, [str(m) for m in ms])
        axis.minorticks_off()
        heights = [h for h in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if _is_visible(axis, h)]
        axis.set_yticks(heights, [f"{h:g}" for h in heights])
    axes[0, 0].legend(fontsize=8)
    _plot_section(axes[1], curves, list_sizes(settings)[:3:2])
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    return figure


def _is_visible(axis: Any, height: float) -> bool:
    low, high = axis.get_ylim()
    return bool(low <= height <= high)


def _plot_against_m(axis: Any, curve: Curve) -> None:
    style: dict[str, Any] = {"color": COLOURS[curve.method], "label": NAMES[curve.method]}
    if curve.method.startswith("orfit"):
        axis.loglog(curve.steps, curve.mean, marker="o", **style)
    elif np.isfinite(curve.mean[0]):
        dashes = {"ridge": ":", "rls": "-"}.get(curve.method, "--")
        axis.axhline(curve.mean[0], linestyle=dashes, **style)


def _plot_section(axes: Any, curves: Curves, ms: list[int]) -> None:
    """Plot a part of the test record near its end, and the errors there with their intervals."""
    y = curves.extras["test"]
    here = slice(max(0, len(y) - 2 * SECTION), len(y) - SECTION)
    seconds = SAMPLE * np.arange(here.start, here.stop)
    axes[0].plot(seconds, y[here], ".", color="black", label="measured")
    for m, colour in zip(ms, ("tab:orange", "tab:blue"), strict=False):
        f, std = (row[here] for row in curves.extras[f"orfit {m}"])
        label = f"ORFit, m = {m}"
        axes[0].plot(seconds, f, color=colour, linewidth=1, label=label)
        axes[1].plot(seconds, y[here] - f, ".", color=colour, label=label)
        interval = {"color": colour, "alpha": 0.25, "linewidth": 0}
        axes[1].fill_between(seconds, -WIDTH * std, WIDTH * std, **interval)
    axes[0].set(title="Predicted one step ahead", ylabel="position x (mm)")
    axes[1].set(title="Errors there, and 95 % intervals", ylabel="measured − predicted (mm)")
    for axis in axes:
        axis.set_xlabel("time in the test record (s)")
        low, high = axis.get_ylim()
        axis.set_ylim(low, high + 0.15 * (high - low))  # space for the legend
        axis.legend(fontsize=8, loc="upper center", ncols=3)
