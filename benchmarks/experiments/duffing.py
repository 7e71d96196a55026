"""A Duffing oscillator, identified in one pass: ORFit beside RLS and ridge.

A mass on a spring that stiffens, as in the Silverbox benchmark; here it is simulated, by RK4:

    m ẍ + d ẋ + k x + k₃ x³ = u(t),     m = 1 kg, d = 2 N s/m, k = 400 N/m, k₃ = 2e4 N/m³

The force u is random, has no frequencies above 5 Hz (the spring's own is 3.2 Hz, and higher where x
is large), is held between samples, and grows over the record from a tenth to the whole of its
amplitude. x is sampled at 25 Hz, with noise. The test record is another draw of force and noise.

The model is nominal plus random, as a comment in the paper's source proposes for system
identification: y = zᵀ w_n + Φ_r(z)ᵀ w_r, where z are the latest samples of x and u, in units of
their standard deviations in the first rows. w_n starts at least squares on those rows, where the
force is weak and the spring all but linear; Φ_r are random Fourier features, w_r starts at zero.
R is the variance that the nominal model leaves in those rows, or `auto`.

In curves.csv `step` is m, and p for what keeps all: RLS, and ridge on all rows. Errors are in mm.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import orfit
from orfit.door import Array
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curve, Curves

TITLE = "A simulated Duffing oscillator, identified in one pass"

MASS, DAMPING, SPRING, CUBIC = 1.0, 2.0, 400.0, 2e4  # kg, N s/m, N/m, N/m³
SAMPLE = 0.04  # s
SUBSTEPS = 8  # of RK4 in a sample
BAND = 5.0  # Hz
WEAKEST = 0.1  # of the amplitude, where a record begins
SIZES = (10, 30, 100, 200)
WIDTH = 1.96  # standard deviations, of 95 % intervals
DIVERGED = 1e3  # in units of the first rows
SHOWN = 75  # samples in the figure


@dataclass(frozen=True)
class Settings:
    rows: int = 3000  # of the record that is learned
    tests: int = 2000  # of the other one
    start: int = 500  # rows for the units and the nominal model
    lags: int = 3  # samples of x, and as many of u
    features: int = 1000
    length: float = 5.0  # over which random features vary, in the units of z
    spread: float = 10.0  # the prior's standard deviation of what they add, in the same units
    amplitude: float = 10.0  # of the force in the end (N, root mean square)
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
    """Two records in lags, Z (n, 2 lags) and y (n,), in units of the first rows."""

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
        """What z is, and random features of it."""
        waves = np.cos(Z @ self.frequencies + self.phases)
        return np.hstack([Z, self.spread * np.sqrt(2 / waves.shape[1]) * waves])


def force(rng: np.random.Generator, samples: int, amplitude: float) -> Array:
    """Random, of no frequency above BAND, and growing."""
    spectrum = np.fft.rfft(rng.standard_normal(samples))
    spectrum[np.fft.rfftfreq(samples, SAMPLE) > BAND] = 0.0
    u = np.fft.irfft(spectrum, samples)
    return np.asarray(np.linspace(WEAKEST, 1.0, samples) * amplitude * u / u.std())


def simulate(u: Array) -> Array:
    """Where a mass at rest is moved to by the force u (N), x (m) at each sample: RK4."""
    h, x, v = SAMPLE / SUBSTEPS, 0.0, 0.0
    places = np.empty(len(u))

    def pull(x: float, v: float, push: float) -> float:
        return (push - DAMPING * v - SPRING * x - CUBIC * x**3) / MASS

    for i, push in enumerate(u.tolist()):
        places[i] = x
        for _ in range(SUBSTEPS):
            v1, a1 = v, pull(x, v, push)
            v2, a2 = v + h / 2 * a1, pull(x + h / 2 * v1, v + h / 2 * a1, push)
            v3, a3 = v + h / 2 * a2, pull(x + h / 2 * v2, v + h / 2 * a2, push)
            v4, a4 = v + h * a3, pull(x + h * v3, v + h * a3, push)
            x += h / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
            v += h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    return places


def lagged(u: Array, y: Array, lags: int) -> tuple[Array, Array]:
    """Z, in each row the latest y and then the latest u, the last first; and what y was next."""
    ends = range(lags - 1, -1, -1)
    last = len(y) - lags
    return np.column_stack([s[i : i + last] for s in (y, u) for i in ends]), y[lags:]


def problem(settings: Settings) -> Problem:
    rng = np.random.default_rng(settings.seed)
    records = []
    for samples in (settings.rows, settings.tests):
        u = force(rng, samples + settings.lags, settings.amplitude)
        y = 1e3 * simulate(u) + settings.noise * rng.standard_normal(len(u))
        records.append((u, y))
    in_u, in_y = (s[: settings.start].std() for s in records[0])
    (Z, y), (Z_test, y_test) = (lagged(u / in_u, y / in_y, settings.lags) for u, y in records)
    early, label = Z[: settings.start], y[: settings.start]
    nominal = np.linalg.lstsq(early, label, rcond=None)[0]
    frequencies = rng.standard_normal((Z.shape[1], settings.features))
    frequencies /= settings.length * np.sqrt(Z.shape[1])
    phases = rng.uniform(0, 2 * np.pi, settings.features)
    w0 = np.concatenate([nominal, np.zeros(settings.features)])
    R = float(np.var(label - early @ nominal))
    unit = float(in_y)
    return Problem(Z, y, Z_test, y_test, unit, w0, R, frequencies, phases, spread=settings.spread)


def sizes(settings: Settings) -> list[int]:
    return [m for m in SIZES if m <= settings.largest_m] or [settings.largest_m]


def count_steps(settings: Settings) -> int:
    return 2 * len(sizes(settings)) + 1


def run(settings: Settings, advance: Advance) -> Curves:
    given, curves = problem(settings), Curves()
    Phi, Phi_test = given.features(given.Z), given.features(given.Z_test)
    model, ms = orfit.Linear(Phi.shape[1]), sizes(settings)
    parameters: dict[tuple[str, int], Array] = {}
    told: dict[tuple[str, int], dict[str, float]] = {}

    def learn(name: str, size: int, learner: Any) -> None:
        learner.learn_each(Phi, given.y)
        parameters[name, size], health = learner.w, learner.health()
        f, std = learner.predict(Phi_test, std=True)
        inside = np.abs(given.y_test - f) < WIDTH * std
        told[name, size] = {
            "megabytes": sum(array.nbytes for array in learner.state()[0].values()) / 1e6,
            "R": learner.noise if name != "rls" else given.R,
            "S/R": health.surprise,
            "dropped": health.dropped,
            "coverage": 100 * float(inside.mean()),
            "coverage_strong": 100 * float(inside[-(len(inside) // 4) :].mean()),
        }
        curves.extras[f"{name} {size}"] = given.unit * np.array([f, std])
        advance()

    for m in ms:
        learn("orfit", m, orfit.ORFit(model, m, w0=given.w0, noise=given.R))
        learn("orfit-auto", m, orfit.ORFit(model, m, w0=given.w0, noise="auto"))
    learn("rls", model.size, orfit.RLS(model, w0=given.w0, prior=given.R))
    parameters |= _yardsticks(given, Phi)
    free = free_run(given, np.array(list(parameters.values())))
    for (name, size), w, simulated in zip(parameters, parameters.values(), free, strict=True):
        told.setdefault((name, size), {})
        told[name, size]["one_step"] = _rmse(given, Phi_test @ w)
        told[name, size]["free_run"] = _rmse(given, simulated)
    for name in NAMES:
        steps = [size for method, size in told if method == name]
        for quantity in told[name, steps[0]]:
            values = np.array([[told[name, size][quantity] for size in steps]])
            curves.add(name, quantity, np.array(steps), values)
    curves.extras["test"] = given.unit * given.y_test
    return curves


def _yardsticks(given: Problem, Phi: Array) -> dict[tuple[str, int], Array]:
    """Ridge on all rows at once, with the same R and w0; and what the linear part does alone."""
    size, linear = Phi.shape[1], given.Z.shape[1]
    precision = Phi.T @ Phi + given.R * np.eye(size)
    ridge = given.w0 + np.linalg.solve(precision, Phi.T @ (given.y - Phi @ given.w0))
    arx = orfit.RLS(orfit.Linear(linear), w0=given.w0[:linear], prior=given.R)
    arx.learn_each(given.Z, given.y)
    alone = np.concatenate([arx.w, np.zeros(size - linear)])
    return {("ridge", size): ridge, ("arx", linear): alone, ("nominal", linear): given.w0}


def free_run(given: Problem, W: Array) -> Array:
    """Simulate the test record with each w, a row of W, fed with its own outputs and u alone.

    (models, tests); infinite from where a model leaves all bounds.
    """
    lags = given.Z.shape[1] // 2
    past = np.repeat(given.Z_test[:1, :lags], len(W), axis=0)
    outputs = np.empty((len(W), len(given.Z_test)))
    for i, z in enumerate(given.Z_test):
        pushes = np.repeat(z[None, lags:], len(W), axis=0)
        y = np.einsum("ij,ij->i", given.features(np.hstack([past, pushes])), W)
        outputs[:, i] = y
        past = np.clip(np.column_stack([y, past[:, :-1]]), -DIVERGED, DIVERGED)
    lost = np.maximum.accumulate(np.abs(outputs) >= DIVERGED, axis=1)
    return np.where(lost, np.inf, outputs)


def _rmse(given: Problem, prediction: Array) -> float:
    """In mm, against the record as it was measured."""
    return given.unit * float(np.sqrt(np.mean((prediction - given.y_test) ** 2)))


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
        report.make_table("What the learners hold and tell", columns, learners),
    ]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    made, axes = report.make_panels(2, 5.6, 3.6, rows=2)
    titles = {"one_step": "One step ahead", "free_run": "Free run: fed with its own outputs"}
    for axis, (quantity, title) in zip(axes[0], titles.items(), strict=True):
        for curve in curves.select(quantity):
            _against_m(axis, curve)
        axis.set(title=title, ylabel="test error (mm, rms)", xlabel="directions kept, m")
        ms = sizes(settings)
        axis.set_xticks(ms, [str(m) for m in ms])
        axis.minorticks_off()
        heights = [h for h in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if _within(axis, h)]
        axis.set_yticks(heights, [f"{h:g}" for h in heights])
    axes[0, 0].legend(fontsize=8)
    _stretch(axes[1], curves, sizes(settings)[:3:2])
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    return made


def _within(axis: Any, height: float) -> bool:
    low, high = axis.get_ylim()
    return bool(low <= height <= high)


def _against_m(axis: Any, curve: Curve) -> None:
    style: dict[str, Any] = {"color": COLOURS[curve.method], "label": NAMES[curve.method]}
    if curve.method.startswith("orfit"):
        axis.loglog(curve.steps, curve.mean, marker="o", **style)
    elif np.isfinite(curve.mean[0]):
        dashes = {"ridge": ":", "rls": "-"}.get(curve.method, "--")
        axis.axhline(curve.mean[0], linestyle=dashes, **style)


def _stretch(axes: Any, curves: Curves, ms: list[int]) -> None:
    """Some of the test record near its end, and the errors there with their intervals."""
    y = curves.extras["test"]
    here = slice(max(0, len(y) - 2 * SHOWN), len(y) - SHOWN)
    seconds = SAMPLE * np.arange(here.start, here.stop)
    axes[0].plot(seconds, y[here], ".", color="black", label="measured")
    for m, colour in zip(ms, ("tab:orange", "tab:blue"), strict=False):
        f, std = (row[here] for row in curves.extras[f"orfit {m}"])
        label = f"ORFit, m = {m}"
        axes[0].plot(seconds, f, color=colour, linewidth=1, label=label)
        axes[1].plot(seconds, y[here] - f, ".", color=colour, label=label)
        interval = {"color": colour, "alpha": 0.25, "linewidth": 0}
        axes[1].fill_between(seconds, -WIDTH * std, WIDTH * std, **interval)
    axes[0].set(title="Predicted one step ahead", ylabel="place x (mm)")
    axes[1].set(title="Errors there, and 95 % intervals", ylabel="measured − predicted (mm)")
    for axis in axes:
        axis.set_xlabel("time in the test record (s)")
        low, high = axis.get_ylim()
        axis.set_ylim(low, high + 0.15 * (high - low))  # room for the legend
        axis.legend(fontsize=8, loc="upper center", ncols=3)
