"""A figure as a piece of a page: SVG without a word of the stream's own, the same bytes each time.

Names of columns and classes stand in the page around it, which sets them in any script.
"""

import html
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from orfit.stream.markup import Html
from orfit.validation import Array

SIZE = 5.0, 2.9  # inches: at the width of a phone its letters can still be read
FEW = 30  # points up to which each is marked
ORDERS = 30.0  # the largest over the least, from which an axis is logarithmic
LEAST = 0.02  # of an axis of shares, or so much is added to either end
MOST = 1e100  # beyond, a number is not drawn
SETTINGS: Any = {
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",  # which comes with matplotlib
    "font.size": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "axes.formatter.useoffset": False,
}


def drawn(name: str, label: str, paint: Callable[[Any, Any], None]) -> Html:
    """The figure that `paint` makes of a figure and its axes.

    name: one of its own in the page. label: for those who cannot see it.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context():
        mpl.rcdefaults()  # whatever a user has set elsewhere
        mpl.rcParams.update(SETTINGS | {"svg.hashsalt": name})
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axis = figure.subplots()
        paint(figure, axis)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _inline(file.getvalue(), name, label)


def _inline(svg: str, name: str, label: str) -> Html:
    """As HTML takes it in: without what a file of its own needs, each id the figure's own."""
    width, height = (72 * side for side in SIZE)
    svg = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", body)
    opened = f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {width:g} {height:g}"'
    return Html(f"{opened}>{body.strip()}")


def finite(values: Any) -> Array:
    """As an array, NaN where there is nothing to draw."""
    made = np.asarray(values, float)
    return np.where(np.abs(made) < MOST, made, np.nan)  # which NaN is not


def marker(points: Array) -> str:
    """Of a line: a few points are marked, one alone would not be seen."""
    return "o" if np.isfinite(points).sum() <= FEW else ""


def over_rows(axis: Any, rows: Array) -> None:
    """Let x be rows of the stream."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_xlabel("rows of the stream")
    axis.set_xlim(0, 1.02 * float(np.nanmax(rows)))
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: counted(x)))


def counted(x: float) -> str:
    """A number of rows, short: 1,200, 50k or 3M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= 10 * unit or (abs(x) >= unit >= 1e6):
            return f"{x / unit:.4g}{letter}"
    return f"{x:,.0f}"


def scaled(axis: Any, values: Array, *, always: bool = False) -> None:
    """Let y be logarithmic where positive values span orders of magnitude. always: in any case."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    told = values[np.isfinite(values)]
    if not len(told) or told.min() <= 0 or not (always or told.max() > ORDERS * told.min()):
        return
    axis.set_yscale("log")
    orders = float(np.log10(told.max() / told.min()))
    parts = (1.0, 2.0, 5.0) if orders < 2 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(subs=parts, numticks=8))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    if orders < 0.3:
        axis.set_ylim(told.min() / 1.6, told.max() * 1.6)


def percent(axis: Any) -> None:
    """Let y be shares."""
    from matplotlib.ticker import FuncFormatter

    low, high = axis.get_ylim()
    if high - low < LEAST:
        low, high = low - LEAST, high + LEAST
    axis.set_ylim(max(-0.01, low), min(1.01, high))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _share(y)))


def _share(y: float) -> str:
    return f"{100 * y:.4g} %" if -1e-9 < y < 1 + 1e-9 else ""


def legend(figure: Any, columns: int = 3) -> None:
    """Below the axes, where it hides nothing."""
    figure.legend(loc="outside lower center", ncols=columns)
