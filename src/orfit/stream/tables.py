"""What people see of a session: tables for the terminal."""

import math
from typing import Any

import numpy as np

from orfit import terminal
from orfit.meter.reading import Reading
from orfit.stream.session import Session

TITLES = {
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "accuracy": "accuracy",
    "kappa": "kappa",
}
LABELS = {"orfit": "orfit", "sgd": "SGD", "rls": "RLS", "one-step": "One-Step SGD"}


def console(stderr: bool = False) -> Any:
    """A terminal that shows names as they are: [red] is no colour, :smile: no face."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False)


def number(value: Any, form: str = ".4g") -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:{form}}"


def scores(session: Session) -> Any:
    """How well rows were predicted before they were learned, beside others."""
    board = session.scores
    overall, lately = board.read(), board.read(lately=True)
    window = min(board.window, board.rows)
    table = terminal.table("Each row was predicted, then learned")
    table.add_column("", no_wrap=True)
    targets = [] if session.classify else list(session.encoding.choice.targets)
    several = len(targets) > 1
    if several:
        table.add_column("target", no_wrap=True)
    for name in board.measures:
        table.add_column(f"{TITLES[name]}", justify="right")
        table.add_column(f"last {window}", justify="right", style="dim")
    for method in board.methods:
        for i, target in enumerate(targets if several else [""]):
            label = LABELS.get(method, method)
            if method in session.out:
                label += f" (diverged at row {session.out[method]})"
            cells = [label if i == 0 else "", *([target] if several else [])]
            for name in board.measures:
                for told in (overall, lately):
                    cells.append(number(told[method][name][i]))
            table.add_row(*cells, style="bold" if method == "orfit" else None)
    return table


def facts(session: Session) -> list[tuple[str, str]]:
    """What else is to be known of it, as names and values."""
    learner, health = session.learner, session.learner.health()
    rows, aside = session.rows, session.held.count
    parts = f": {rows - aside:,} learned, {aside:,} held out" if aside else ""
    told = [("rows", f"{rows:,}{parts}")]
    if session.skipped:
        told.append(("skipped", f"{session.skipped:,}"))
    if session.classify:
        told.append(("classes", f"{session.encoding.target.count}"))
    else:
        inside = session.scores.read()["orfit"]["inside"]
        told.append(("inside 95 % intervals", " ".join(f"{share:.1%}" for share in inside)))
    told.append(("features", f"{session.features}, {learner.model.size} parameters"))
    told.append(("learner", f"{kind_of(session)}, {memory(session)}"))
    told.append(("forgetting", f"{learner.forgetting:g}"))
    told.append(("S/R", f"{number(health.surprise, '.3g')} (1: as sure as noise lets it be)"))
    if health.crowded and learner.memory.rank < learner.model.size:
        more = f"what is dropped of a row is {health.dropped:.1f} times the noise"
        told.append(("", f"more directions may help: {more}; see --memory and --budget"))
    if (meter := learner.meter) is not None and session.scores.rows:
        change, error = meter.change.rms, meter.error.rms
        told.append(("forgotten", f"past predictions moved by {_reading(session, change)}"))
        told.append(("error on all of the past", _reading(session, error)))
    return told


def _reading(session: Session, of_it: Reading) -> str:
    times = session.unit
    value, low, high = (number(times * each) for each in (of_it.value, of_it.low, of_it.high))
    several = " standard deviations" if len(session.encoding.choice.targets) > 1 else ""
    return f"{value} ({low} to {high}){several} RMS"


def kind_of(session: Session) -> str:
    """Which learner it is, with what was chosen."""
    learner = session.learner
    if learner.memory.most is None:
        return f"exact RLS, prior {float(learner.memory.prior):.3g}"
    tail = "with a tail" if learner.tail else "without a tail"
    kept = f"{learner.memory.rank} directions of at most {learner.memory.most}"
    return f"ORFit, {kept}, noise {learner.noise:.3g}, {tail}"


def memory(session: Session) -> str:
    """What the learner takes, for people."""
    learner = session.learner
    columns = len(learner.candidates) * max(1, learner.model.heads or 1) + session.options.probes
    numbers = learner.memory.numbers + learner.model.size * columns
    return f"{8 * numbers / 1e6:.3g} MB"


def facts_table(told: list[tuple[str, str]]) -> Any:
    table = terminal.table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in told:
        table.add_row(name, value)
    return table


def held(session: Session) -> Any:
    """On rows that were set aside."""
    told = session.on_held()
    measures = list(session.scores.measures)
    shown = len(session.held.X)
    of = "" if shown == session.held.count else f" of {session.held.count:,}"
    table = terminal.table(f"On {shown:,}{of} rows that were never learned")
    table.add_column("", no_wrap=True)
    for name in measures:
        table.add_column(TITLES[name], justify="right")
    for method, found in told.items():
        cells = [number(float(np.mean(found[name]))) for name in measures]
        table.add_row(LABELS.get(method, method), *cells)
    return table


def columns(session: Session) -> Any:
    """What was made of each column."""
    table = terminal.table("Columns")
    table.add_column("column", no_wrap=True)
    table.add_column("is")
    for name, kind in session.encoding.kinds.items():
        table.add_row(name, str(kind))
    for i, name in enumerate(session.encoding.choice.targets):
        target = session.encoding.target
        classes = target.classes
        if classes is None:
            table.add_row(name, f"target, {target.mean[i]:.4g} ± {target.scale[i]:.4g}")
        else:
            shown = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
            table.add_row(name, f"target, {len(classes)} classes: {shown}")
    return table


def files(session: Session) -> Any:
    """How far each input was read."""
    table = terminal.table("Read")
    table.add_column("file", overflow="fold")
    table.add_column("lines or rows", justify="right")
    for known in session.bookmarks.files:
        table.add_row(known.name, f"{known.position.line - 1:,}")
    return table
