"""A page of HTML that shows how learning went: one file, which loads nothing."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from orfit.stream import figures, markup, tables
from orfit.stream.figures import column, rows
from orfit.stream.markup import Html, say, section, table
from orfit.stream.session import Session
from orfit.stream.tables import LABELS, TITLES, number
from orfit.version import __version__

TARGETS = 6  # of which there are figures
LINES = 200  # of a table
CLASSES = 20  # in a table
LEVELS = 12  # values of a setting that a figure can tell apart
MEASURES = {
    "rmse": "RMSE is the size of a typical error, in the units of the target; large errors count "
    "for more.",
    "mae": "MAE is the mean size of an error.",
    "r2": "R² is 1 where predictions are perfect, and 0 where they are no better than the mean of "
    "all rows.",
    "accuracy": "Accuracy is the share of rows whose class was predicted.",
    "kappa": "Kappa is the same without what luck would get right: 1 is perfect, 0 is luck.",
}


def html(session: Session, name: str) -> str:
    """The page. name: of the checkpoint."""
    targets = ", ".join(session.encoding.choice.targets)
    below = (
        f"orfit {__version__} has read {session.rows:,} rows once, in their order. Each was "
        "predicted, then learned, and was not kept."
    )
    parts = {
        "How well rows were predicted": _predicted(session),
        "How it is doing": _doing(session),
        "How sure it was": _sure(session),
        "What was forgotten": _forgotten(session),
        "What is kept in memory": _memory(session),
        "Which settings were chosen": _chosen(session),
        "What became of each column": _columns(session),
        "Where this comes from": _sources(session),
    }
    made = ((title, list(part)) for title, part in parts.items())
    sections = [section(title, part) for title, part in made if part]
    return markup.page(f"{name}: {targets}", below, sections)


def _drawn(found: Iterable[Html | None]) -> Html:
    """Those figures for which there is something to draw."""
    made = [figure for figure in found if figure is not None]
    if made:
        return markup.figures(made)
    return say("There is nothing to draw yet: figures begin after 100 rows.", kind="soft")


def _shown(session: Session) -> range:
    """The targets of which there are figures."""
    return range(min(TARGETS, len(session.encoding.choice.targets)))


def _predicted(session: Session) -> Iterator[Html]:
    board = session.scores
    yield say(
        "Every row was predicted before it was learned, so this is how well rows were predicted "
        "that were never seen.",
        *(MEASURES[name] for name in board.measures),
    )
    own = " and ".join(each.name for each in session.baselines)
    yield say(f"Beside it stand {own}, which learn nothing: who learns should beat both.")
    overall, lately = board.read(), board.read(lately=True)
    window = f"last {min(board.window, board.rows):,}"
    told = [_scores(session, "Over all rows, and lately", {"": overall, window: lately})]
    if session.held.count:
        kept = len(session.held.X)
        of = "" if kept == session.held.count else f" (a random choice of {session.held.count:,})"
        caption = (
            f"On {kept:,} rows{of} that were set aside and never learned, by what is known now"
        )
        told.append(_scores(session, caption, {"": session.on_held()}))
        told.append(
            say(
                "They are of the whole stream, its beginning too: where it has moved, who follows "
                "it is worse on them.",
                kind="soft",
            )
        )
    drawn = [figures.scores(session, i) for i in _shown(session)]
    if len(drawn) == 1 and drawn[0] is not None:
        yield markup.beside(told, drawn[0])
    else:
        yield from (*told, _drawn(drawn))
    more = len(session.encoding.choice.targets) - TARGETS
    if more > 0:
        yield say(f"There are {more} more targets, which have no figures.", kind="soft")


def _scores(session: Session, caption: str, boards: dict[str, dict[str, Any]]) -> Html:
    """A row for each method and target, a column for each measure and board, by its name."""
    targets = session.encoding.choice.targets
    measures = session.scores.measures
    head = ["method", *(["target"] if len(targets) > 1 else [])]
    for measure in measures:
        head += [name or TITLES[measure] for name in boards]
    lines = []
    for method in next(iter(boards.values())):
        label = LABELS.get(method, method)
        if method in session.out:
            label += f" (diverged at row {session.out[method]:,})"
        for i, target in enumerate(targets):
            cells = [label, *([target] if len(targets) > 1 else [])]
            for measure in measures:
                cells += [_score(measure, told[method][measure][i]) for told in boards.values()]
            lines.append(cells)
    names = len(head) - len(measures) * len(boards)
    return table(caption, head, lines[:LINES], names=names, marked=len(targets))


def _score(measure: str, value: float) -> str:
    """Four digits of an amount; four decimals of what is at most 1, unless it is far below."""
    return number(value, ".4g" if measure in ("rmse", "mae") or value < -10 else "z.4f")


def _doing(session: Session) -> Iterator[Html]:
    yield say("What the learner's own numbers say:")
    yield say(session.learner.health().advice, kind="advice")
    yield table("At the end", ["what", "is"], tables.facts(session), numbers=False)
    if session.classify:
        yield from _classes(session)


def _classes(session: Session) -> Iterator[Html]:
    counts, names = session.scores.state()[0]["counts"], session.encoding.target.classes or []
    predicted, came = counts[0], counts[-1]
    total = max(1.0, float(came.sum()))
    order = np.argsort(-came, kind="stable")[:CLASSES]
    lines = [
        [names[i], f"{came[i] / total:.1%}", f"{predicted[i] / total:.1%}"]
        for i in order.tolist()
        if i < len(names)
    ]
    caption = "How often each class came, and was predicted"
    if len(names) > len(lines):
        caption += f": the {len(lines)} most frequent of {len(names):,}"
    yield table(caption, ["class", "of rows", "of predictions"], lines)


def _sure(session: Session) -> Iterator[Html]:
    if session.classify:
        return
    yield say(
        "With each prediction comes an interval that should hold the target in 95 of 100 cases. "
        "It does if about 95 % of rows are inside, and then the width of an interval tells how far "
        "a prediction can be trusted."
    )
    drawn = [figures.latest(session), *(figures.inside(session, i) for i in _shown(session))]
    yield _drawn(drawn)


def _forgotten(session: Session) -> Iterator[Html]:
    if session.learner.meter is None:
        return
    if session.classify:
        unit = "in units of a class's score, which is 1 for the class that came and 0 for others"
    elif len(session.encoding.choice.targets) > 1:
        unit = "in standard deviations of each target, as the first rows had them"
    else:
        unit = "in the units of the target"
    yield say(
        "Learning a row changes what is said of all rows before. Here is by how much, over all "
        f"that were ever learned, {unit}. No row was kept for this: random sums tell it, and the "
        "shade holds the truth in 95 of 100 cases."
    )
    yield say(
        "A change that stays small beside the error means that the past is kept. Some change is "
        "right: later rows tell more about earlier ones, too. Where the error on the past rises "
        "and that on new rows does not, the stream has moved, and the past was given up for it."
    )
    yield _drawn(
        [
            figures.metered(
                session,
                "change",
                "How far past predictions have moved",
                "What is predicted of a past row now, minus what was predicted when it had just "
                "been learned.",
            ),
            figures.metered(
                session,
                "error",
                "Error on all of the past",
                "What is predicted of a past row now, minus its target.",
            ),
        ]
    )


def _memory(session: Session) -> Iterator[Html]:
    memory = session.learner.memory
    if memory.most is None:
        told = "The learner is exact: it keeps what is known of all parameters, and drops nothing."
        if session.learner.model.size > figures.LARGEST:
            told += " They are too many to show along each direction what is known."
    else:
        told = (
            f"The learner keeps at most {memory.most} directions, those along which rows differ "
            "most, and drops the rest."
        )
    yield say(
        told,
        "S/R is how uncertain a prediction is, beside the noise alone: near 1 there is little "
        "left to learn.",
    )
    found = [figures.spectrum(session)]
    if memory.most is not None:
        found += [
            figures.course(
                session,
                "directions",
                "Directions held",
                "They are added where they tell something new, or as the first rows come.",
                (memory.most, "the most there may be"),
                whole=True,
            ),
            figures.course(
                session,
                "dropped",
                "Dropped energy",
                "What is dropped of a row, beside the noise. Above 1, more directions may help.",
                (1.0, "as much as the noise"),
            ),
        ]
    line = (1.0, "as sure as noise lets it be")
    found.append(figures.course(session, "surprise", "S/R", "The mean of recent rows.", line))
    yield _drawn(found)


def _chosen(session: Session) -> Iterator[Html]:
    exact = session.learner.memory.most is None
    means = {
        "noise": "Noise is how much of a row is taken to be chance: the more, the slower it learns",
        "forgetting": "Forgetting is the weight that the past keeps with each row: 1 keeps all, "
        "0.99 about the last 100 rows",
        "tail": "The tail is what is known, on average, of dropped directions",
    }
    if exact:  # it counts in units of the noise, and drops nothing
        means = {"forgetting": means["forgetting"]}
    yield say(". ".join(means.values()) + ".", "Where several were tried, the best lately is used.")
    words = {0.0: "off", 1.0: "on"}
    lines, drawn, x = [], [], rows(session)
    for name in means:
        y = column(session, name)
        known = np.isfinite(x * y)
        x_known, y_known = x[known], y[known]
        now = float(getattr(session.learner, name))
        said = {v: words[v] if name == "tail" else number(v) for v in sorted({*y_known.tolist()})}
        now_said = words[now] if name == "tail" else number(now)
        given = getattr(session.options, name) != "auto"
        how = "given" if given else "chosen"
        turns = np.flatnonzero(np.diff(y_known)) + 1
        since = f"row {x_known[turns[-1]]:,.0f}" if len(turns) else "the beginning"
        seen = [since, f"{len(turns)}"] if len(y_known) else ["–", "–"]
        lines.append([name, now_said, how, *seen])
        if 1 < len(said) <= LEVELS:
            drawn.append(figures.choices(session, name, name.capitalize(), said))
        elif len(said) > LEVELS:
            drawn.append(
                figures.course(session, name, name.capitalize(), "Which value was in use.")
            )
    yield table(
        "Now", ["setting", "is", "how", "since", "changes seen"], lines, names=1, numbers=False
    )
    if drawn:
        yield _drawn(drawn)
    yield say(f"Features: {session.why}.", kind="soft")


def _columns(session: Session) -> Iterator[Html]:
    encoding = session.encoding
    yield say(
        "Numbers are counted in standard deviations from the mean, both of the first rows; dates "
        "become times of day, week and year; texts become one of a few places."
    )
    lines = [
        [name, f"{kind}{'; has left the scale of the first rows' * (name in encoding.far)}"]
        for name, kind in encoding.kinds.items()
    ]
    lines += [[name, "left out, as asked for"] for name in encoding.choice.ignore]
    left = len(lines) - LINES
    lines = [*_of_targets(session), *lines[:LINES]]
    yield table("Columns", ["column", "is"], lines, numbers=False)
    if left > 0:
        yield say(f"There are {left:,} more columns.", kind="soft")


def _of_targets(session: Session) -> Iterator[list[str]]:
    target = session.encoding.target
    for i, name in enumerate(session.encoding.choice.targets[:LINES]):
        if target.classes is None:
            yield [name, f"target: number, {target.mean[i]:.4g} ± {target.scale[i]:.4g}"]
        else:
            shown = ", ".join(target.classes[:10]) + (", …" if len(target.classes) > 10 else "")
            yield [name, f"target: {len(target.classes):,} classes, {shown}"]


def _sources(session: Session) -> Iterator[Html]:
    yield say(
        "The settings and the files below, in this order and with this version, give this result "
        "again."
    )
    files = [[each.name, f"{each.position.line - 1:,}"] for each in session.bookmarks.files]
    yield table("Files, and how far they were read", ["file", "lines or rows"], files[:LINES])
    choice = session.encoding.choice
    given = {name: value for name, value in vars(choice).items() if name != "targets"}
    settings = {"target": choice.targets} | given | vars(session.options)
    lines = [[name, _value(name, value)] for name, value in settings.items()]
    lines += [["saved by", f"orfit {session.version}"], ["shown by", f"orfit {__version__}"]]
    yield table("Settings and versions", ["setting", "is"], lines, numbers=False)


def _value(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "budget":
        return f"{value / 1e6:g} MB"
    return f"{value:,}" if isinstance(value, int) else str(value)
