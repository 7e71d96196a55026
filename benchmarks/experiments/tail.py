"""What does a bounded memory lose against exact ridge regression?

ORFit keeps m directions and, of all it has dropped, one number, the tail (`orfit.tail`). Ridge
regression with the same R, which forgets nothing, is the yardstick. Beside it: ORFit with the tail,
without it (`tail=False`), and with noise="auto", which is told no R.

Streams are white, with a spectrum that falls like 1/i, and of rank 20 with a little noise around
it, all with one w; and `regimes`, four spectra one after another. Labels have noise of variance 1
and w a prior of variance 1, so R = 1 is right. Rows have a mean squared length of p. Then data that
come with scikit-learn, through random Fourier features of that length, with targets of variance p:
diabetes, shuffled and ordered by age, and the number that a digit shows, shuffled and class after
class. And a w that jumps in the midst of a white stream, where the tail is a burden.

An error is the root mean square over held-out rows, against the truth without noise where it is
known, as a share of the target's standard deviation. In curves.csv `step` is R, m, rows at once
(`block`), or rows learned, as the quantity says; what has no R is written for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

import orfit
from orfit.door import Array
from orfit.reproduce import report
from orfit.reproduce.report import Advance, Curves

TITLE = "What a bounded memory loses against exact ridge regression"


@dataclass(frozen=True)
class Settings:
    p: int = 100  # inputs of the streams that are drawn
    rows: int = 2000  # of each of them
    tests: int = 500  # rows held out of each of them
    rank: int = 20  # of the stream that has one
    features: int = 200  # random Fourier features of the data
    most: int = 2000  # rows of the data at most, held-out ones among them
    test_share: float = 0.3  # of the data
    m: int = 20  # directions kept
    decades: int = 4  # R is 10 to the power −decades, …, decades
    longest: int = 8000  # rows of the white stream on which errors are watched
    block_rows: int = 900  # rows learned in blocks, in one run: large blocks take long
    runs: int = 3  # of all the rest
    seed: int = 0


QUICK = {
    "p": 30, "rows": 300, "tests": 200, "rank": 10, "features": 40, "most": 300, "m": 6,
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
IN_BLOCKS = {"white": "-", "1/i": "--", "rank": ":"}  # how each is drawn
FADING = [1.0, 0.99]  # λ, where w jumps
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


def noises(settings: Settings) -> Array:
    """The values of R."""
    return np.asarray(10.0 ** np.arange(-settings.decades, settings.decades + 1))


def sizes(settings: Settings) -> list[int]:
    """The values of m."""
    return sorted({max(1, settings.m // 4), settings.m, min(settings.p, 5 * settings.m // 2)})


def lengths(settings: Settings) -> Array:
    """After so many rows errors are watched."""
    halves = [settings.longest // 2**i for i in range(6)]
    return np.array(sorted({n for n in halves if n}))


def count_steps(settings: Settings) -> int:
    return settings.runs * (len(STREAMS) + 2) + len(IN_BLOCKS)


Told = tuple[str, Any, Any]  # a method, the steps, and its errors there


def run(settings: Settings, advance: Advance) -> Curves:
    found: dict[tuple[str, str], tuple[Array, list[Array]]] = {}

    def note(quantity: str, told: Iterator[Told]) -> None:
        for method, steps, errors in told:
            _, runs = found.setdefault((method, quantity), (np.asarray(steps), []))
            runs.append(np.broadcast_to(errors, np.shape(steps)))

    for number in range(settings.runs):
        for name in STREAMS:
            stream = made(name, settings, number)
            note(f"error {name} by R", _by_noise(stream, settings))
            if name in DRAWN:
                note(f"error {name} by m", _by_size(stream, settings))
            advance()
        note("error white by rows", _by_rows(settings, number))
        advance()
        for fading in FADING:
            note(f"error jump λ={fading:g} by rows", _after_jump(settings, number, fading))
        advance()
    for name in IN_BLOCKS:
        few = replace(settings, rows=settings.block_rows)
        note(f"error {name} by block", _by_block(made(name, few, 0), few))
        advance()
    curves = Curves()
    for (method, quantity), (steps, runs) in found.items():
        curves.add(method, quantity, steps, np.array(runs))
    return curves


def made(name: str, settings: Settings, number: int) -> Stream:
    """A stream of a run; an ordered one has the rows of its shuffled twin."""
    data, _, ordered = name.partition("-")
    rng = np.random.default_rng([settings.seed, number, list(STREAMS).index(data)])
    if name in DRAWN:
        return _drawn(name, settings, rng)
    return _real(data, bool(ordered), settings, rng)


def _drawn(name: str, settings: Settings, rng: np.random.Generator) -> Stream:
    p, total = settings.p, settings.rows + settings.tests
    white, w = rng.standard_normal((total, p)), rng.standard_normal(p)
    if name == "white":
        X = white
    elif name == "1/i":
        X = _falling(white, rng)
    elif name == "rank":
        X = white[:, : settings.rank] @ rng.standard_normal((settings.rank, p))
        X += 0.1 * np.sqrt(settings.rank) * rng.standard_normal((total, p))
    else:
        X = np.concatenate([_falling(part, rng) for part in np.array_split(white, REGIMES)])
    X *= np.sqrt(p / np.mean(np.sum(X**2, axis=1)))
    truth = X @ w
    y = truth + rng.standard_normal(total)
    test = np.zeros(total, dtype=bool)
    test[rng.choice(total, settings.tests, replace=False)] = True
    return Stream(X[~test], y[~test], X[test], truth[test], float(truth.std()))


def _falling(white: Array, rng: np.random.Generator) -> Array:
    """Standard deviations 1, 1/2, 1/3, … along axes that are drawn."""
    p = white.shape[1]
    axes, _ = np.linalg.qr(rng.standard_normal((p, p)))
    return np.asarray(white / np.arange(1, p + 1) @ axes)


def _real(name: str, ordered: bool, settings: Settings, rng: np.random.Generator) -> Stream:
    from sklearn import datasets

    inputs, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    p, order = settings.features, rng.permutation(len(target))[: settings.most]
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


def ridge(stream: Stream, R: Any) -> Array:
    """Ridge regression, w as a column for each R: what ORFit is that keeps every direction."""
    U, sigma, Vt = np.linalg.svd(stream.X, full_matrices=False)
    shrunk = sigma[:, None] / (sigma[:, None] ** 2 + np.atleast_1d(R))
    return np.asarray(Vt.T @ (shrunk * (U.T @ stream.y)[:, None]))


def learner(p: int, m: int, **more: Any) -> orfit.ORFit:
    way = "auto" if find_spec("numba") is None else "compiled"
    return orfit.ORFit(orfit.Linear(p), m, rows=way, **more)


def methods(p: int, m: int, R: float) -> dict[str, orfit.ORFit]:
    return {
        "tail": learner(p, m, noise=R),
        "no-tail": learner(p, m, noise=R, tail=False),
        "auto": learner(p, m, noise="auto"),
    }


def _learned(one: orfit.ORFit, stream: Stream, block: int = 1) -> float:
    """The error in the end."""
    if block == 1:
        one.learn_each(stream.X, stream.y)
    else:
        for i in range(0, len(stream.y), block):
            one.learn_batch(stream.X[i : i + block], stream.y[i : i + block])
    return stream.error(one.w)


def _by_noise(stream: Stream, settings: Settings) -> Iterator[Told]:
    R, p = noises(settings), stream.X.shape[1]
    yield "ridge", R, [stream.error(w) for w in ridge(stream, R).T]
    for method in ("tail", "no-tail"):
        made_of = (methods(p, settings.m, noise)[method] for noise in R)
        yield method, R, [_learned(one, stream) for one in made_of]
    yield "auto", R, _learned(methods(p, settings.m, 1.0)["auto"], stream)


def _by_size(stream: Stream, settings: Settings) -> Iterator[Told]:
    ms, p = sizes(settings), stream.X.shape[1]
    yield "ridge", ms, stream.error(ridge(stream, 1.0)[:, 0])
    for method in ("tail", "no-tail", "auto"):
        made_of = (methods(p, m, 1.0)[method] for m in ms)
        yield method, ms, [_learned(one, stream) for one in made_of]


def _by_block(stream: Stream, settings: Settings) -> Iterator[Told]:
    p = stream.X.shape[1]
    yield "ridge", BLOCKS, stream.error(ridge(stream, 1.0)[:, 0])
    for method in ("tail", "no-tail", "auto"):
        made_of = (methods(p, settings.m, 1.0)[method] for _ in BLOCKS)
        pairs = zip(made_of, BLOCKS, strict=True)
        yield method, BLOCKS, [_learned(one, stream, block) for one, block in pairs]


def _by_rows(settings: Settings, number: int) -> Iterator[Told]:
    stream = made("white", replace(settings, rows=settings.longest), number)
    steps = lengths(settings)
    parts = [replace(stream, X=stream.X[:n], y=stream.y[:n]) for n in steps]
    yield "ridge", steps, [stream.error(ridge(part, 1.0)[:, 0]) for part in parts]
    for method, one in methods(settings.p, settings.m, 1.0).items():
        yield method, steps, _watched(one, stream, steps)


def _watched(one: orfit.ORFit, stream: Stream, steps: Array) -> list[float]:
    """The error after so many rows."""
    errors, before = [], 0
    for n in steps:
        one.learn_each(stream.X[before:n], stream.y[before:n])
        errors.append(stream.error(one.w))
        before = n
    return errors


def _after_jump(settings: Settings, number: int, fading: float) -> Iterator[Told]:
    """White rows; from the half on, w is another one, against which errors are measured."""
    before, after = (made("white", settings, settings.runs * part + number) for part in (0, 1))
    half = settings.rows // 2
    X = np.concatenate([before.X[:half], after.X[:half]])
    y = np.concatenate([before.y[:half], after.y[:half]])
    stream = replace(after, X=X, y=y)
    steps = np.unique(np.linspace(half, 2 * half, 11).astype(int))
    made_of = methods(settings.p, settings.m, 1.0)
    made_of["ridge"] = learner(settings.p, settings.p, noise=1.0)  # which drops nothing
    for method, one in made_of.items():
        one.forgetting = fading
        yield method, steps - half, _watched(one, stream, steps)


def over_ridge(curves: Curves, method: str, quantity: str) -> Array:
    """How many times ridge's mean error a method's is."""
    return np.asarray(curves[method, quantity].mean / curves["ridge", quantity].mean)


def _cells(curves: Curves, quantity: str, *compared: str) -> list[str]:
    """The ratios of some methods, for every step."""
    ratios = (over_ridge(curves, method, quantity) for method in compared)
    return ["/".join(f"{ratio:.2f}" for ratio in step) for step in zip(*ratios, strict=True)]


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    every = 2 if settings.decades > 2 else 1
    rows = [
        [title, *_cells(curves, f"error {name} by R", "tail", "no-tail")[::every]]
        for name, title in STREAMS.items()
    ]
    columns = ["tail / no tail", *[f"R = {R:g}" for R in noises(settings)[::every]]]
    title = f"Error ÷ ridge's at the same R; row by row, m = {settings.m}"
    made_of = [report.make_table(title, columns, rows), _best(curves, settings)]
    for step, values, names in (("m", sizes(settings), DRAWN), ("block", BLOCKS, IN_BLOCKS)):
        rows = [
            [STREAMS[name], *_cells(curves, f"error {name} by {step}", "tail", "no-tail", "auto")]
            for name in names
        ]
        columns = ["tail / no / auto", *[f"{step} = {value}" for value in values]]
        title = f"Error ÷ ridge's, against {step}; R = 1"
        made_of.append(report.make_table(title, columns, rows))
    steps = lengths(settings)[-4:]
    titles = {"error white by rows": ("Error (%) after so many white rows", steps)}
    for fading in FADING:
        jumped = curves["tail", f"error jump λ={fading:g} by rows"].steps
        title = f"Error (%) so long after a jump, λ = {fading:g}"
        titles[f"error jump λ={fading:g} by rows"] = title, jumped[[1, 2, 5, 10]]
    for quantity, (title, steps) in titles.items():
        rows = [
            [name, *[f"{100 * curves[method, quantity].at(n)[0]:.2f}" for n in steps]]
            for method, name in NAMES.items()
        ]
        made_of.append(report.make_table(title, ["", *map(str, steps)], rows))
    return made_of


def _best(curves: Curves, settings: Settings) -> Any:
    rows = []
    for name, title in STREAMS.items():
        quantity = f"error {name} by R"
        means = {method: curves[method, quantity].mean for method in NAMES}
        best = means["ridge"].min()
        cells = [f"{means[method].min() / best:.2f}" for method in ("tail", "no-tail", "auto")]
        R = noises(settings)[means["ridge"].argmin()]
        rows.append([title, f"{100 * best:.2f} %", f"{R:g}", *cells])
    columns = ["each with its best R", "ridge", "its R", "tail", "no tail", "auto"]
    return report.make_table("Least error over R, ÷ the least of ridge", columns, rows)


def draw_figure(curves: Curves, settings: Settings) -> Any:
    made_of, axes = report.make_panels(3, 4.4, 3.4, rows=3)
    for axis, name in zip(axes.flat, [*DRAWN, "diabetes", "digits"], strict=False):
        _panel_by_noise(axis, curves, name, twin=name not in DRAWN)
    _panel_by_rows(axes[2, 0], curves)
    _panel_by_block(axes[2, 1], curves)
    _panel_of_jump(axes[2, 2], curves)
    for axis in axes.flat:
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    _legend(made_of)
    return made_of


def _panel_by_noise(axis: Any, curves: Curves, name: str, twin: bool) -> None:
    for suffix, dashes in (("", "-"), ("-ordered", "--"))[: 1 + twin]:
        for method in ("tail", "no-tail"):
            quantity = f"error {name}{suffix} by R"
            ratio = over_ridge(curves, method, quantity)
            style = {"color": COLOURS[method], "linestyle": dashes, "marker": "o", "markersize": 3}
            axis.loglog(curves[method, quantity].steps, ratio, **style)
    axis.axhline(1, color="black", linewidth=1)
    orders = STREAMS[f"{name}-ordered"].split(", ")[1] if twin else ""
    axis.set_title(f"{name} (dashed: {orders})" if twin else STREAMS[name])
    axis.set_xlabel("R (y has noise of variance 1)" if not twin else "R (y has variance p)")
    axis.set_ylabel("error ÷ ridge's at that R")
    _plain_ticks(axis, CLOSE)


def _plain_ticks(axis: Any, multiples: tuple[float, ...]) -> None:
    """Numbers in place of powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.yaxis.set_major_locator(LogLocator(subs=multiples))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _panel_by_rows(axis: Any, curves: Curves) -> None:
    for curve in curves.select("error white by rows"):
        style = {"color": COLOURS[curve.method], "marker": "o", "ms": 3}
        dashes = "--" if curve.method == "auto" else "-"  # where it hides another line
        axis.loglog(curve.steps, 100 * curve.mean, linestyle=dashes, **style)
    axis.set_xticks(curve.steps, map(str, curve.steps))
    _plain_ticks(axis, ONES)
    axis.set_title("white, R = 1")
    axis.set_xlabel("rows learned")
    axis.set_ylabel("error (% of the target's std)")


def _panel_by_block(axis: Any, curves: Curves) -> None:
    for name, dashes in IN_BLOCKS.items():
        quantity = f"error {name} by block"
        for method in ("tail", "no-tail"):
            ratio = over_ridge(curves, method, quantity)
            style = {"color": COLOURS[method], "linestyle": dashes, "marker": "o", "ms": 3}
            axis.loglog(BLOCKS, ratio, **style)
    axis.axhline(1, color="black", linewidth=1)
    axis.set_xticks(BLOCKS, map(str, BLOCKS))
    axis.set_title("white (dashed: 1/i, dotted: low rank), R = 1")
    axis.set_xlabel("rows in a block")
    axis.set_ylabel("error ÷ ridge's")
    _plain_ticks(axis, CLOSE)


def _panel_of_jump(axis: Any, curves: Curves) -> None:
    for fading, dashes in zip(FADING, ("-", "--"), strict=True):
        for curve in curves.select(f"error jump λ={fading:g} by rows"):
            style = {"color": COLOURS[curve.method], "linestyle": dashes}
            axis.semilogy(curve.steps, 100 * curve.mean, **style)
    _plain_ticks(axis, ONES)
    axis.set_title(f"w has jumped (dashed: λ = {FADING[1]:g})")
    axis.set_xlabel("rows since the jump")
    axis.set_ylabel("error (% of the target's std)")


def _legend(made_of: Any) -> None:
    """Below the panels, for all of them."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=COLOURS[key], label=name) for key, name in NAMES.items()]
    made_of.legend(handles=handles, loc="outside lower center", ncols=len(handles))
