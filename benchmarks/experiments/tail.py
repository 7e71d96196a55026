"""A bounded memory, compared with exact ridge regression.

ORFit stores m directions, and one number for all dropped ones, the tail (`orfit.tail`). Three
variants are compared with ridge regression with the same R: ORFit with the tail, without it
(`tail=False`), and with noise="auto".

The simulated streams are white, with a spectrum 1/i, of rank 20 plus noise, and `regimes`, four
spectra one after another, all with one w. Labels have noise of variance 1 and w a prior of variance
1, so R = 1 is correct. Rows have a mean squared length of p. The real streams come with
scikit-learn and have random Fourier features of that length and targets of variance p: diabetes,
shuffled and ordered by age, and the value of a digit, shuffled and ordered by class. In a last
stream, which is white, w jumps in the middle.

An error is the root mean square over held-out rows, compared with the labels without noise where
they are known, divided by the standard deviation of the target. In curves.csv `step` is R, m, the
block length, or the number of rows learned, as the quantity says. A method without R has the same
value for each R.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import orfit
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves
from orfit.validation import Array

TITLE = "A bounded memory, compared with exact ridge regression"


@dataclass(frozen=True)
class Settings:
    p: int = 100  # inputs of the simulated streams
    rows: int = 2000  # of each of them
    tests: int = 500  # rows held out of each of them
    rank: int = 20  # of the stream of low rank
    features: int = 200  # random Fourier features of the data
    max_rows: int = 2000  # of the data, including held-out rows
    test_share: float = 0.3  # of the data
    m: int = 20  # directions kept
    decades: int = 4  # R is 10 to the power −decades, …, decades
    longest: int = 8000  # rows of the white stream, for errors against rows
    block_rows: int = 900  # rows learned in blocks, in one run; large blocks are slow
    runs: int = 3  # of everything else
    seed: int = 0


QUICK = {
    "p": 30, "rows": 300, "tests": 200, "rank": 10, "features": 40, "max_rows": 300, "m": 6,
    "decades": 1, "longest": 1280, "block_rows": 120, "runs": 1,
}  # fmt: skip

DRAWN = {
    "white": "white",
    "1/i": "spectrum 1/i",
    "rank": "low rank + noise",
    "regimes": "four regimes",
}
REAL = {
    "diabetes": "diabetes, shuffled",
    "diabetes-ordered": "diabetes, by age",
    "digits": "digits, shuffled",
    "digits-ordered": "digits, by class",
}
STREAMS = DRAWN | REAL
NAMES = {"ridge": "ridge", "tail": "tail", "no-tail": "no tail", "auto": 'noise="auto"'}
COLOURS = {"ridge": "black", "tail": "tab:blue", "no-tail": "tab:orange", "auto": "tab:green"}
BLOCKS = [1, 30, 300]
IN_BLOCKS = {"white": "-", "1/i": "--", "rank": ":"}  # line styles
FORGETTING = [1.0, 0.99]  # λ, for the jump of w
REGIMES = 4
ONES, CLOSE = (1, 2, 5), (1, 1.5, 2, 3, 5, 7)  # count_steps


@dataclass(frozen=True)
class Stream:
    X: Array
    y: Array
    X_test: Array
    truth: Array
    scale: float  # the standard deviation of the target

    def error(self, w: Array) -> float:
        return float(np.sqrt(np.mean((self.X_test @ w - self.truth) ** 2)) / self.scale)


def list_noises(settings: Settings) -> Array:
    """Return the values of R."""
    return np.asarray(10.0 ** np.arange(-settings.decades, settings.decades + 1))


def list_sizes(settings: Settings) -> list[int]:
    """Return the values of m."""
    return sorted({max(1, settings.m // 4), settings.m, min(settings.p, 5 * settings.m // 2)})


def list_lengths(settings: Settings) -> Array:
    """Return the numbers of rows after which errors are measured."""
    halves = [settings.longest // 2**i for i in range(6)]
    return np.array(sorted({n for n in halves if n}))


def count_steps(settings: Settings) -> int:
    return settings.runs * (len(STREAMS) + 2) + len(IN_BLOCKS)


Errors = tuple[str, Any, Any]  # method, steps, errors


def run(settings: Settings, advance: Advance) -> Curves:
    results: dict[tuple[str, str], tuple[Array, list[Array]]] = {}

    def add_errors(quantity: str, measured: Iterator[Errors]) -> None:
        for method, steps, errors in measured:
            _, runs = results.setdefault((method, quantity), (np.asarray(steps), []))
            runs.append(np.broadcast_to(errors, np.shape(steps)))

    for number in range(settings.runs):
        for name in STREAMS:
            stream = make_stream(name, settings, number)
            add_errors(f"error {name} by R", _measure_by_noise(stream, settings))
            if name in DRAWN:
                add_errors(f"error {name} by m", _measure_by_size(stream, settings))
            advance()
        add_errors("error white by rows", _measure_by_rows(settings, number))
        advance()
        for forgetting in FORGETTING:
            add_errors(
                f"error jump λ={forgetting:g} by rows", _measure_jump(settings, number, forgetting)
            )
        advance()
    for name in IN_BLOCKS:
        few = replace(settings, rows=settings.block_rows)
        add_errors(f"error {name} by block", _measure_by_block(make_stream(name, few, 0), few))
        advance()
    curves = Curves()
    for (method, quantity), (steps, runs) in results.items():
        curves.add(method, quantity, steps, np.array(runs))
    return curves


def make_stream(name: str, settings: Settings, number: int) -> Stream:
    """Return a stream of a run. An ordered stream has the rows of the shuffled one."""
    data, _, ordered = name.partition("-")
    rng = np.random.default_rng([settings.seed, number, list(STREAMS).index(data)])
    if name in DRAWN:
        return _simulate(name, settings, rng)
    return _load(data, bool(ordered), settings, rng)


def _simulate(name: str, settings: Settings, rng: np.random.Generator) -> Stream:
    p, total = settings.p, settings.rows + settings.tests
    white, w = rng.standard_normal((total, p)), rng.standard_normal(p)
    if name == "white":
        X = white
    elif name == "1/i":
        X = _scale_spectrum(white, rng)
    elif name == "rank":
        X = white[:, : settings.rank] @ rng.standard_normal((settings.rank, p))
        X += 0.1 * np.sqrt(settings.rank) * rng.standard_normal((total, p))
    else:
        X = np.concatenate([_scale_spectrum(part, rng) for part in np.array_split(white, REGIMES)])
    X *= np.sqrt(p / np.mean(np.sum(X**2, axis=1)))
    truth = X @ w
    y = truth + rng.standard_normal(total)
    test = np.zeros(total, dtype=bool)
    test[rng.choice(total, settings.tests, replace=False)] = True
    return Stream(X[~test], y[~test], X[test], truth[test], float(truth.std()))


def _scale_spectrum(white: Array, rng: np.random.Generator) -> Array:
    """Return rows with standard deviations 1, 1/2, 1/3, … along random axes."""
    p = white.shape[1]
    axes, _ = np.linalg.qr(rng.standard_normal((p, p)))
    return np.asarray(white / np.arange(1, p + 1) @ axes)


def _load(name: str, ordered: bool, settings: Settings, rng: np.random.Generator) -> Stream:
    from sklearn import datasets

    inputs, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    p, order = settings.features, rng.permutation(len(target))[: settings.max_rows]
    test, train = np.split(order, [int(settings.test_share * len(order))])
    spread = inputs[train].std(axis=0)
    inputs = (inputs - inputs[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    A = rng.standard_normal((inputs.shape[1], p)) / np.sqrt(inputs.shape[1])
    X = np.sqrt(2) * np.cos(inputs @ A + rng.uniform(0, 2 * np.pi, p))
    y = (target - target[train].mean()) / target[train].std() * np.sqrt(p)
    if ordered:
        key = inputs[:, 0] if name == "diabetes" else target
        train = train[np.argsort(key[train], kind="stable")]
    return Stream(X[train], y[train], X[test], y[test], float(np.sqrt(p)))


def compute_ridge(stream: Stream, R: Any) -> Array:
    """Return w of ridge regression, a column for each R. ORFit with all directions equals it."""
    U, sigma, Vt = np.linalg.svd(stream.X, full_matrices=False)
    shrunk = sigma[:, None] / (sigma[:, None] ** 2 + np.atleast_1d(R))
    return np.asarray(Vt.T @ (shrunk * (U.T @ stream.y)[:, None]))


def make_learner(p: int, m: int, **more: Any) -> orfit.ORFit:
    return orfit.ORFit(orfit.Linear(p), m, **more)


def make_methods(p: int, m: int, R: float) -> dict[str, orfit.ORFit]:
    return {
        "tail": make_learner(p, m, noise=R),
        "no-tail": make_learner(p, m, noise=R, tail=False),
        "auto": make_learner(p, m, noise="auto"),
    }


def _measure_final(learner: orfit.ORFit, stream: Stream, block: int = 1) -> float:
    """Learn the stream and return the final error."""
    if block == 1:
        learner.learn_each(stream.X, stream.y)
    else:
        for i in range(0, len(stream.y), block):
            learner.learn_batch(stream.X[i : i + block], stream.y[i : i + block])
    return stream.error(learner.w)


def _measure_by_noise(stream: Stream, settings: Settings) -> Iterator[Errors]:
    R, p = list_noises(settings), stream.X.shape[1]
    yield "ridge", R, [stream.error(w) for w in compute_ridge(stream, R).T]
    for method in ("tail", "no-tail"):
        learners = (make_methods(p, settings.m, noise)[method] for noise in R)
        yield method, R, [_measure_final(learner, stream) for learner in learners]
    yield "auto", R, _measure_final(make_methods(p, settings.m, 1.0)["auto"], stream)


def _measure_by_size(stream: Stream, settings: Settings) -> Iterator[Errors]:
    ms, p = list_sizes(settings), stream.X.shape[1]
    yield "ridge", ms, stream.error(compute_ridge(stream, 1.0)[:, 0])
    for method in ("tail", "no-tail", "auto"):
        learners = (make_methods(p, m, 1.0)[method] for m in ms)
        yield method, ms, [_measure_final(learner, stream) for learner in learners]


def _measure_by_block(stream: Stream, settings: Settings) -> Iterator[Errors]:
    p = stream.X.shape[1]
    yield "ridge", BLOCKS, stream.error(compute_ridge(stream, 1.0)[:, 0])
    for method in ("tail", "no-tail", "auto"):
        learners = (make_methods(p, settings.m, 1.0)[method] for _ in BLOCKS)
        pairs = zip(learners, BLOCKS, strict=True)
        yield method, BLOCKS, [_measure_final(learner, stream, block) for learner, block in pairs]


def _measure_by_rows(settings: Settings, number: int) -> Iterator[Errors]:
    stream = make_stream("white", replace(settings, rows=settings.longest), number)
    steps = list_lengths(settings)
    parts = [replace(stream, X=stream.X[:n], y=stream.y[:n]) for n in steps]
    yield "ridge", steps, [stream.error(compute_ridge(part, 1.0)[:, 0]) for part in parts]
    for method, learner in make_methods(settings.p, settings.m, 1.0).items():
        yield method, steps, _measure_at(learner, stream, steps)


def _measure_at(learner: orfit.ORFit, stream: Stream, steps: Array) -> list[float]:
    """Return the errors after the given numbers of rows."""
    errors, before = [], 0
    for n in steps:
        learner.learn_each(stream.X[before:n], stream.y[before:n])
        errors.append(stream.error(learner.w))
        before = n
    return errors


def _measure_jump(settings: Settings, number: int, forgetting: float) -> Iterator[Errors]:
    """Measure the errors after a jump of w in the middle of a white stream."""
    before, after = (
        make_stream("white", settings, settings.runs * part + number) for part in (0, 1)
    )
    half = settings.rows // 2
    X = np.concatenate([before.X[:half], after.X[:half]])
    y = np.concatenate([before.y[:half], after.y[:half]])
    stream = replace(after, X=X, y=y)
    steps = np.unique(np.linspace(half, 2 * half, 11).astype(int))
    learners = make_methods(settings.p, settings.m, 1.0)
    learners["ridge"] = make_learner(settings.p, settings.p, noise=1.0)  # drops nothing
    for method, learner in learners.items():
        learner.forgetting = forgetting
        yield method, steps - half, _measure_at(learner, stream, steps)


def compute_ratio(curves: Curves, method: str, quantity: str) -> Array:
    """Return the mean error of a method, divided by that of ridge regression."""
    return np.asarray(curves[method, quantity].mean / curves["ridge", quantity].mean)


def _format_cells(curves: Curves, quantity: str, *compared: str) -> list[str]:
    """Return the ratios of the methods, for every step."""
    ratios = (compute_ratio(curves, method, quantity) for method in compared)
    return ["/".join(f"{ratio:.2f}" for ratio in step) for step in zip(*ratios, strict=True)]


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    every = 2 if settings.decades > 2 else 1
    rows = [
        [title, *_format_cells(curves, f"error {name} by R", "tail", "no-tail")[::every]]
        for name, title in STREAMS.items()
    ]
    columns = ["tail / no tail", *[f"R = {R:g}" for R in list_noises(settings)[::every]]]
    title = f"Error ÷ ridge's at the same R, row by row, m = {settings.m}"
    tables = [report.make_table(title, columns, rows), _make_best_table(curves, settings)]
    compared = "tail", "no-tail", "auto"
    for step, values, names in (("m", list_sizes(settings), DRAWN), ("block", BLOCKS, IN_BLOCKS)):
        rows = [
            [
                STREAMS[name],
                *_format_cells(curves, f"error {name} by {step}", *compared),
            ]
            for name in names
        ]
        columns = ["tail / no / auto", *[f"{step} = {value}" for value in values]]
        title = f"Error ÷ ridge's, against {step}; R = 1"
        tables.append(report.make_table(title, columns, rows))
    steps = list_lengths(settings)[-4:]
    titles = {"error white by rows": ("Error (%) after so many white rows", steps)}
    for forgetting in FORGETTING:
        jumped = curves["tail", f"error jump λ={forgetting:g} by rows"].steps
        title = f"Error (%) so long after a jump, λ = {forgetting:g}"
        titles[f"error jump λ={forgetting:g} by rows"] = title, jumped[[1, 2, 5, 10]]
    for quantity, (title, steps) in titles.items():
        rows = [
            [name, *[f"{100 * curves[method, quantity].at(n)[0]:.2f}" for n in steps]]
            for method, name in NAMES.items()
        ]
        tables.append(report.make_table(title, ["", *map(str, steps)], rows))
    return tables


def _make_best_table(curves: Curves, settings: Settings) -> Any:
    rows = []
    for name, title in STREAMS.items():
        quantity = f"error {name} by R"
        means = {method: curves[method, quantity].mean for method in NAMES}
        best = means["ridge"].min()
        cells = [f"{means[method].min() / best:.2f}" for method in ("tail", "no-tail", "auto")]
        R = list_noises(settings)[means["ridge"].argmin()]
        rows.append([title, f"{100 * best:.2f} %", f"{R:g}", *cells])
    columns = ["each with its best R", "ridge", "its R", "tail", "no tail", "auto"]
    return report.make_table("Least error over R, ÷ the least of ridge", columns, rows)


def draw_figure(curves: Curves, settings: Settings) -> Any:
    figure, axes = report.make_panels(3, 4.4, 3.4, rows=3)
    for axis, name in zip(axes.flat, [*DRAWN, "diabetes", "digits"], strict=False):
        _draw_by_noise(axis, curves, name, twin=name not in DRAWN)
    _draw_by_rows(axes[2, 0], curves)
    _draw_by_block(axes[2, 1], curves)
    _draw_jump(axes[2, 2], curves)
    for axis in axes.flat:
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    _draw_legend(figure)
    return figure


def _draw_by_noise(axis: Any, curves: Curves, name: str, twin: bool) -> None:
    for suffix, dashes in (("", "-"), ("-ordered", "--"))[: 1 + twin]:
        for method in ("tail", "no-tail"):
            quantity = f"error {name}{suffix} by R"
            ratio = compute_ratio(curves, method, quantity)
            style = {"color": COLOURS[method], "linestyle": dashes, "marker": "o", "markersize": 3}
            axis.loglog(curves[method, quantity].steps, ratio, **style)
    axis.axhline(1, color="black", linewidth=1)
    orders = STREAMS[f"{name}-ordered"].split(", ")[1] if twin else ""
    axis.set_title(f"{name} (dashed: {orders})" if twin else STREAMS[name])
    axis.set_xlabel("R (y has noise of variance 1)" if not twin else "R (y has variance p)")
    axis.set_ylabel("error ÷ ridge's at that R")
    _set_ticks(axis, CLOSE)


def _set_ticks(axis: Any, multiples: tuple[float, ...]) -> None:
    """Label the y axis with numbers in place of powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.yaxis.set_major_locator(LogLocator(subs=multiples))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw_by_rows(axis: Any, curves: Curves) -> None:
    for curve in curves.select("error white by rows"):
        style = {"color": COLOURS[curve.method], "marker": "o", "ms": 3}
        dashes = "--" if curve.method == "auto" else "-"  # its line hides another one
        axis.loglog(curve.steps, 100 * curve.mean, linestyle=dashes, **style)
    axis.set_xticks(curve.steps, map(str, curve.steps))
    _set_ticks(axis, ONES)
    axis.set_title("white, R = 1")
    axis.set_xlabel("rows learned")
    axis.set_ylabel("error (% of the target's std)")


def _draw_by_block(axis: Any, curves: Curves) -> None:
    for name, dashes in IN_BLOCKS.items():
        quantity = f"error {name} by block"
        for method in ("tail", "no-tail"):
            ratio = compute_ratio(curves, method, quantity)
            style = {"color": COLOURS[method], "linestyle": dashes, "marker": "o", "ms": 3}
            axis.loglog(BLOCKS, ratio, **style)
    axis.axhline(1, color="black", linewidth=1)
    axis.set_xticks(BLOCKS, map(str, BLOCKS))
    axis.set_title("white (dashed: 1/i, dotted: low rank), R = 1")
    axis.set_xlabel("rows in a block")
    axis.set_ylabel("error ÷ ridge's")
    _set_ticks(axis, CLOSE)


def _draw_jump(axis: Any, curves: Curves) -> None:
    for forgetting, dashes in zip(FORGETTING, ("-", "--"), strict=True):
        for curve in curves.select(f"error jump λ={forgetting:g} by rows"):
            style = {"color": COLOURS[curve.method], "linestyle": dashes}
            axis.semilogy(curve.steps, 100 * curve.mean, **style)
    _set_ticks(axis, ONES)
    axis.set_title(f"w has jumped (dashed: λ = {FORGETTING[1]:g})")
    axis.set_xlabel("rows since the jump")
    axis.set_ylabel("error (% of the target's std)")


def _draw_legend(figure: Any) -> None:
    """Draw the legend below the panels."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=COLOURS[key], label=name) for key, name in NAMES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
