"""A session in one file, and back: it goes on as if it had never stopped, bit for bit."""

import os
from typing import Any

from orfit import checkpoint, features, schema, validation
from orfit.checkpoint import CheckpointError
from orfit.learners.learner import Learner
from orfit.learners.load import restored
from orfit.schema import DOUBLE, Fields, Layout, arranged, listed, mapping, record, text
from orfit.stream import bookmarks, history, setup
from orfit.stream.encoding import Encoding
from orfit.stream.session import Session
from orfit.stream.setup import Setup
from orfit.validation import Array
from orfit.version import __version__

KIND = "Stream"  # where a learner's file has its own


def save(session: Session, path: str | os.PathLike[str]) -> None:
    """Write everything, atomically."""
    checkpoint.writer.now(path, checkpoint.Content.of(*_state(session)))


def _state(session: Session) -> tuple[dict[str, Array], dict[str, Any]]:
    arrays = {"latest": session.latest}
    learners, headers = {"orfit": session.learner, **session.rivals}, {}
    for name, learner in learners.items():
        own, headers[name] = learner.state()
        arrays |= _named(f"learner.{name}", own)
    if session.lags:
        arrays["lags"] = session.lags.past
    of_scores, scores = session.scores.state()
    of_held, held = session.held.state()
    arrays |= _named("scores", of_scores) | _named("held", of_held)
    kind = session.features
    return arrays, {
        "kind": KIND,
        "version": __version__,
        "setup": session.options.plain(),
        "encoding": session.encoding.state(),
        "features": {"kind": kind.kind, "settings": kind.settings(), "why": session.why},
        "learners": headers,
        "scores": scores,
        "held": held["count"],
        "baselines": [each.state() for each in session.baselines],
        "history": session.history.state(),
        "inputs": session.bookmarks.state(),
        "rows": session.rows,
        "skipped": session.skipped,
        "out": session.out,
    }


FIELDS: Fields = {
    "kind": text,
    "version": text,
    "setup": record(setup.FIELDS),
    "encoding": record(Encoding.fields),
    "features": record({"kind": schema.one_of(*features.KINDS), "settings": mapping, "why": text}),
    "learners": mapping,
    "scores": mapping,
    "held": schema.counter,
    "baselines": listed(listed(validation.scalar, least=1), least=2, most=2),
    "history": record(history.FIELDS),
    "inputs": listed(record(bookmarks.FIELDS)),
    "rows": schema.counter,
    "skipped": schema.counter,
    "out": mapping,
}


def load(path: str | os.PathLike[str]) -> Session:
    """The session that `save` wrote."""
    arrays, header = checkpoint.read(path)
    name = os.fspath(path)
    if header.get("kind") != KIND:
        raise CheckpointError(
            f"{name} holds a learner by itself, not a stream that `orfit learn` has begun; "
            "orfit.load reads it"
        )
    try:
        return _restored(arrays, record(FIELDS)("header", header))
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from None
    except (ValueError, OverflowError) as error:
        raise CheckpointError(f"{name} is damaged ({error})") from None
    except MemoryError as error:
        raise CheckpointError(f"{name} asks for more memory ({error})") from None


def _restored(arrays: dict[str, Array], header: dict[str, Any]) -> Session:
    options = Setup.of(header["setup"])
    encoding = Encoding.restored(header["encoding"])
    found = header["features"]
    kind = features.KINDS[found["kind"]]
    made = kind(**record(kind.fields)("features", found["settings"]))
    learners = _learners(arrays, header["learners"], options)
    session = Session(options, encoding, made, learners.pop("orfit"), learners, found["why"])
    _check_sizes(session)
    own: Layout = {"latest": (DOUBLE, "latest", 3)}
    if session.lags:
        own["lags"] = (DOUBLE, *session.lags.past.shape)
    rest = {name: array for name, array in arrays.items() if not name.startswith("learner.")}
    layout = own | _named("scores", session.scores.layout()) | _named("held", session.held.layout())
    arranged(rest, layout)
    session.latest = arrays["latest"]
    if session.lags:
        session.lags.past = arrays["lags"]
    scores = record(session.scores.fields)("scores", header["scores"])
    session.scores.restore(_of("scores", arrays), scores)
    session.held.restore(_of("held", arrays), header["held"])
    for each, numbers in zip(session.baselines, header["baselines"], strict=True):
        each.restore(numbers)
    session.history.restore(header["history"])
    session.bookmarks.restore(header["inputs"])
    session.rows, session.skipped = header["rows"], header["skipped"]
    session.version = header["version"]
    session.out = {n: schema.counter("out", v) for n, v in header["out"].items()}
    return session


def _learners(arrays: dict[str, Array], headers: dict[str, Any], options: Setup) -> dict[str, Any]:
    if headers.keys() != {"orfit", *options.versus}:
        raise ValueError("the learners are not those that the settings name")
    made: dict[str, Learner] = {}
    for name in ("orfit", *options.versus):
        learner = restored(_of(f"learner.{name}", arrays), mapping(name, headers[name]))
        wanted = setup.LEARNERS if name == "orfit" else (setup.RIVALS[name],)
        if type(learner).__name__ not in wanted:
            raise ValueError(f"{name} is a {type(learner).__name__}")
        made[name] = learner
    return made


def _check_sizes(session: Session) -> None:
    """Raise where the parts do not fit together."""
    width = session.lags.size if session.lags else session.encoding.width
    size = session.features.size(width) + 1
    targets = session.encoding.target.count
    for name, learner in {"orfit": session.learner, **session.rivals}.items():
        heads = learner.model.heads
        if session.classify:  # a class may be known of which no row was learned
            fits = heads is not None and heads <= targets
        else:
            fits = heads == (targets if targets > 1 else None)
        if learner.model.size != size or not fits:
            raise ValueError(f"{name} is not for {size} features and {targets} targets")


def _named(prefix: str, parts: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": part for name, part in parts.items()}


def _of(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    start = f"{prefix}."
    return {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
