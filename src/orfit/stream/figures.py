"""What a page shows of a session: each figure with a title, and what it means in a sentence."""

import math
from typing import Any

import numpy as np

from orfit.stream import drawing, markup
from orfit.stream.markup import Html
from orfit.stream.session import SIGMAS, Session
from orfit.stream.tables import LABELS, TITLES, number
from orfit.validation import Array

BLUE, RED, GREY = "#0072b2", "#c1440e", "#7a828c"
STYLES: dict[str, dict[str, Any]] = {
    "orfit": {"color": BLUE, "linewidth": 2.2, "zorder": 3},
    "sgd": {"color": "#d55e00", "linestyle": "-."},
    "rls": {"color": "#009e73", "linestyle": (0, (5, 1))},
    "one-step": {"color": "#cc79a7"},
    "running mean": {"color": GREY, "linestyle": "--"},
    "majority": {"color": GREY, "linestyle": "--"},
    "last value": {"color": "#b58900", "linestyle": ":"},
}
FAR = 5.0  # times the error of orfit and of baselines, beyond which a rival is cut off
SHOWN = 80  # latest rows: more would run together
LARGEST = 2000  # parameters up to which the axes of a whole P are found


def column(session: Session, name: str, place: int | None = None) -> Array:
    """What the history knows by this name, NaN where it knows nothing. place: in a list of some."""
    return drawing.finite([_number(found, place) for found in session.history.column(name)])


def _number(found: Any, place: int | None) -> float:
    if place is not None:
        found = found[place] if isinstance(found, list) and place < len(found) else None
    return math.nan if found is None or isinstance(found, list) else float(found)


def rows(session: Session) -> Array:
    return column(session, "rows")


def _is_there(x: Array, *curves: Array) -> bool:
    return any(bool(np.isfinite(x * curve).any()) for curve in curves)


def _last(curve: Array) -> str:
    told = curve[np.isfinite(curve)]
    return number(told[-1] if len(told) else None)


def scores(session: Session, target: int) -> Html | None:
    """The error, or of classes the accuracy, of all methods over time."""
    x, measure = rows(session), session.scores.measures[0]
    methods = session.scores.methods
    curves = {name: column(session, f"{measure}.{name}", target) for name in methods}
    if not _is_there(x, *curves.values()):
        return None
    curves, cut = _cut_off(session, curves, x)
    shares = session.classify

    def paint(figure: Any, axis: Any) -> None:
        for name, y in curves.items():
            mark = {"marker": drawing.marker(y), "markersize": 3}
            axis.plot(x, y, label=LABELS.get(name, name), **mark | STYLES[name])
        axis.set_ylabel(TITLES[measure])
        drawing.over_rows(axis, x)
        if shares:
            drawing.percent(axis)
        else:
            drawing.scaled(axis, np.concatenate([*curves.values()]))
        drawing.legend(figure)

    window = session.scores.window
    lasts = [f"{LABELS.get(name, name)} {_last(y)}" for name, y in curves.items()]
    better = "Higher is better." if shares else "In the units of the target; lower is better."
    title = f"{TITLES[measure][0].upper()}{TITLES[measure][1:]} over time" + _of(session, target)
    svg = drawing.drawn(f"scores{target}", f"{title}, at the end: {', '.join(lasts)}", paint)
    means = f"Each point: of up to {window:,} rows before it. {better}"
    return markup.figure(svg, title + ".", " ".join([means, *cut]))


def _of(session: Session, target: int) -> str:
    """Which target it is, where there are several."""
    names = session.encoding.choice.targets
    return f": {names[target]}" if len(names) > 1 else ""


def _cut_off(
    session: Session, curves: dict[str, Array], x: Array
) -> tuple[dict[str, Array], list[str]]:
    """Curves without what is so far off that nothing else could be seen, and who that was."""
    own = [curve for name, curve in curves.items() if name not in session.rivals]
    told = np.concatenate(own)
    told = told[np.isfinite(told)]
    top = math.inf if session.classify or not len(told) else FAR * float(told.max())
    made, cut = {}, []
    for name, curve in curves.items():
        label, kept = LABELS.get(name, name), curve
        if name in session.rivals:
            left = session.out.get(name)
            kept = np.where(curve <= top, curve, np.nan)
            if left is not None:
                kept = np.where(x < left, kept, np.nan)
                cut.append(f"{label} diverged at row {left:,}, and is cut off.")
            elif (far := np.flatnonzero(curve > top)).size:
                cut.append(f"{label} is far off from row {x[far[0]]:,.0f} on, and is cut off.")
        made[name] = kept
    return made, cut


def latest(session: Session) -> Html | None:
    """Predictions and intervals of the last rows, of the first target."""
    found = drawing.finite(session.latest[-SHOWN:])
    found = found[np.isfinite(found).all(axis=1)]
    if not len(found):
        return None
    truth, made, std = found.T
    x, wide = np.arange(1 - len(found), 1), SIGMAS * std
    outside = np.abs(truth - made) > wide

    def paint(figure: Any, axis: Any) -> None:
        band = {"color": BLUE, "alpha": 0.25, "linewidth": 2.5}
        axis.vlines(x, made - wide, made + wide, label="95 % interval", **band)
        axis.plot(x, made, "_", color=BLUE, markersize=4, label="predicted")
        axis.plot(x[~outside], truth[~outside], ".", color="#22272c", markersize=4, label="came")
        axis.plot(x[outside], truth[outside], "x", color=RED, markersize=4.5, label="came, outside")
        ends = np.quantile(np.concatenate([made - wide, made + wide]), [0.05, 0.95])
        low, high = min(ends[0], truth.min()), max(ends[1], truth.max())
        room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
        axis.set_ylim(low - room, high + room)
        axis.set_xlabel("rows, of which 0 is the last")
        axis.set_ylabel("target")
        drawing.legend(figure, 4)

    count = int(outside.sum())
    title = "The latest rows" + _of(session, 0)
    told = f"{count} of {len(found)} lie outside their interval; about 1 in 20 should."
    svg = drawing.drawn("latest", f"{title}, predicted before they were learned: {told}", paint)
    means = "Bars: where the learner expected the target, before it saw it; dots: what came."
    return markup.figure(svg, title + ".", f"{means} {told}")


def inside(session: Session, target: int) -> Html | None:
    """The share of rows inside their intervals over time."""
    x, y = rows(session), column(session, "inside", target)
    if not _is_there(x, y):
        return None
    count = np.maximum(1.0, np.minimum(x, session.scores.window))
    chance = SIGMAS * np.sqrt(0.95 * 0.05 / count)

    def paint(figure: Any, axis: Any) -> None:
        low, high = 0.95 - chance, np.minimum(1.0, 0.95 + chance)
        shade = {"color": GREY, "alpha": 0.25, "linewidth": 0}
        axis.fill_between(x, low, high, label="chance", **shade)
        axis.axhline(0.95, color=GREY, linestyle="--", label="95 %")
        axis.plot(x, y, color=BLUE, marker=drawing.marker(y), markersize=3, label="inside")
        least = min(float(np.nanmin(y)), float(np.nanmin(low)))
        axis.set_ylim(least - 0.02, 1.005)
        axis.set_ylabel("share of rows")
        drawing.over_rows(axis, x)
        drawing.percent(axis)
        drawing.legend(figure)

    title = "Inside 95 % intervals" + _of(session, target)
    svg = drawing.drawn(f"inside{target}", f"{title}, over time; at the end {_last(y)}", paint)
    means = (
        f"Of up to {session.scores.window:,} rows before each point. Below the shade intervals are "
        "too narrow, above it too wide."
    )
    return markup.figure(svg, title + ".", means)


def metered(session: Session, name: str, title: str, means: str) -> Html | None:
    """A reading of the meter over time: value, low and high."""
    x = rows(session)
    value, low, high = (column(session, name, i) for i in range(3))
    if not _is_there(x, value):
        return None

    def paint(figure: Any, axis: Any) -> None:
        shade = {"color": BLUE, "alpha": 0.2, "linewidth": 0}
        axis.fill_between(x, low, high, label="95 % interval", **shade)
        mark = drawing.marker(value)
        axis.plot(x, value, color=BLUE, marker=mark, markersize=3, label="estimate")
        axis.set_ylabel("root mean square")
        drawing.over_rows(axis, x)
        drawing.scaled(axis, np.concatenate([low, value, high]))
        if axis.get_yscale() == "linear":
            axis.set_ylim(bottom=0)
        drawing.legend(figure)

    told = f"{title}, over time; at the end {_last(value)}, from {_last(low)} to {_last(high)}"
    return markup.figure(drawing.drawn(name, told, paint), title + ".", means)


def spectrum(session: Session) -> Html | None:
    """How much is known along each direction: of a whole P, how little is left to know."""
    memory = session.learner.memory
    if memory.most is not None:
        return _bars(
            "Directions and what was seen along them",
            "seen along it",
            np.asarray(memory.sigma, float),
            "The largest first, each the root of the summed squares of features along it. Where "
            "they fall steeply, a few directions tell nearly all.",
        )
    if session.learner.model.size > LARGEST:
        return None
    root = getattr(memory, "chosen", memory).L
    left = np.linalg.svd(root, compute_uv=False) * math.sqrt(float(memory.prior))
    return _bars(
        "What is left to know",
        "left (1: all)",
        left[::-1],
        "Along each direction, the best known first: by how much the parameters may still be off, "
        "beside 1, where nothing was known.",
    )


def _bars(title: str, label: str, values: Array, means: str) -> Html | None:
    values = drawing.finite(values)
    values = values[values > 0]  # which NaN is not
    if not len(values):
        return None

    def paint(figure: Any, axis: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        x = np.arange(1, len(values) + 1)
        axis.plot(x, values, color=BLUE, marker=drawing.marker(values), markersize=3)
        axis.set_xlabel("direction")
        axis.set_ylabel(label)
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        drawing.scaled(axis, values, always=True)

    largest, least = number(float(values.max())), number(float(values.min()))
    told = f"{title}: {len(values)} of them, from {least} to {largest}"
    return markup.figure(drawing.drawn("spectrum", told, paint), title + ".", means)


def course(
    session: Session,
    name: str,
    title: str,
    means: str,
    line: tuple[float, str] | None = None,
    *,
    whole: bool = False,
) -> Html | None:
    """One number of the history over time.

    line: a height to compare with, and what it is. whole: whether it counts something.
    """
    x, y = rows(session), column(session, name)
    if not _is_there(x, y):
        return None

    def paint(figure: Any, axis: Any) -> None:
        axis.plot(x, y, color=BLUE, marker=drawing.marker(y), markersize=3, label=title)
        if line is not None:
            axis.axhline(line[0], color=GREY, linestyle="--", label=line[1])
            drawing.legend(figure, 2)
        axis.set_ylabel(title)
        drawing.over_rows(axis, x)
        if whole:
            axis.set_ylim(bottom=0)
            axis.yaxis.get_major_locator().set_params(integer=True)
        else:
            drawing.scaled(axis, y)

    svg = drawing.drawn(name, f"{title}, over time; at the end {_last(y)}", paint)
    return markup.figure(svg, title + ".", means)


def choices(session: Session, name: str, title: str, levels: dict[float, str]) -> Html | None:
    """Which of a few values a setting had when. levels: what they are called, from below."""
    x, y = rows(session), column(session, name)
    if not _is_there(x, y):
        return None
    places = {value: i for i, value in enumerate(levels)}
    heights = np.array([places.get(value, math.nan) for value in y.tolist()])

    def paint(figure: Any, axis: Any) -> None:
        style = {"drawstyle": "steps-post", "marker": drawing.marker(y), "markersize": 3}
        axis.plot(x, heights, color=BLUE, **style)
        axis.set_yticks(range(len(levels)), [*levels.values()])
        axis.set_ylim(-0.5, len(levels) - 0.5)
        axis.set_ylabel(title)
        drawing.over_rows(axis, x)

    last = y[np.isfinite(y)][-1]
    svg = drawing.drawn(f"{name}-chosen", f"{title}, over time; at the end {levels[last]}", paint)
    return markup.figure(svg, title + ".", "Which value was in use.")
