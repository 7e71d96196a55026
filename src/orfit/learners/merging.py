"""Several learners as one, and one without some of its rows."""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orfit import door, tall
from orfit.door import Array
from orfit.learners.advice import InterpolationWarning, advise
from orfit.learners.base import described
from orfit.learners.guesses import Guesses
from orfit.learners.step import step
from orfit.learners.update import Update
from orfit.learners.weights import Weighted, weights
from orfit.memory.known import Known
from orfit.meter import Probes
from orfit.models import completed

if TYPE_CHECKING:
    from orfit.learners.onestep import OneStep

PROBED = 1e-4  # relatively: gradients of one model, on two machines, are not farther apart
CONTRADICTED = 100.0  # times the cutoff, of a label: what is left then is no rounding


@dataclass(frozen=True)
class Part:
    """What of a learner goes into another, by itself: that one may learn on meanwhile."""

    facts: dict[str, Any]  # by name, what must be the same
    model: Any
    shapes: tuple[Any, tuple[int, ...]]  # of one input and one label
    known: Known
    w0: Any
    seen: int
    guesses: Guesses
    probes: Probes | None


def merge(learners: Iterable[Any]) -> Any:
    """One learner that has learned what all of these have; they stay as they are.

    The first is copied, and the others are merged into it in their order (`learner.merge` says what
    that means, and what is refused). While nothing was dropped neither order nor grouping matters,
    up to rounding; so any engine can fold them as they come: `functools.reduce`, Dask, Spark.

    Examples:
        >>> X, y = np.random.default_rng(0).standard_normal((40, 5)), np.arange(40.0)
        >>> shards = [orfit.RLS(orfit.Linear(5)) for _ in range(4)]
        >>> updates = [s.learn_each(X[i::4], y[i::4]) for i, s in enumerate(shards)]
        >>> learner = orfit.merge(shards)
        >>> learner.seen
        40
    """
    try:
        given = list(learners)
    except TypeError:
        given = []
    if not given:
        raise ValueError("there is nothing to merge: give a list of learners, one at least")
    for one in given:
        _check_kind(one)
    made = copy.deepcopy(given[0])
    for other in given[1:]:
        made.merge(other)
    return made


def part_of(learner: Any) -> Part:
    """What of it travels."""
    _check_kind(learner)
    part: Part = learner._reading(_part, learner)
    return part


def _check_kind(learner: Any) -> None:
    if not hasattr(learner, "merge_obstacle"):
        raise ValueError(f"ORFit, RLS, NTKRLS and EKF can be merged; {learner!r:.200} cannot")


def _check(learner: "OneStep", doing: str) -> None:
    why = learner.merge_obstacle()
    if why is not None:
        raise ValueError(f"{type(learner).__name__} cannot {doing}: {why}")


def _part(learner: "OneStep") -> Part:
    _check(learner, "be merged")
    return Part(
        _facts(learner),
        learner.model,
        (learner._input_shape, learner._label_shape),
        learner.memory.known(learner._since_start, learner.guesses.noise),
        learner._w0,
        learner._seen,
        copy.deepcopy(learner.guesses),
        copy.deepcopy(learner._probes),
    )


def _facts(learner: "OneStep") -> dict[str, Any]:
    """What must be the same of learners that are merged, by the names that users know."""
    model, memory = learner.model, learner.memory
    return {
        "kind": type(learner).__name__,
        "model": described(model) | {"size": model.size, "heads": model.heads},
        "dtype": str(tall.numpy_dtype(learner._moved)),
        "memory": type(memory).__name__,
        "noise": learner.noise,
        "prior": getattr(memory, "prior", 1.0),
        "tail": bool(learner.guesses.tail),
        "meter": learner._probes is not None,
    }


def merge_part(learner: "OneStep", part: Part) -> Update:
    """Learn what a part knows, as a whole or not at all; within `_changing`."""
    _check(learner, "be merged")
    for name, mine in _facts(learner).items():
        theirs = part.facts[name]
        if not np.array_equal(mine, theirs):
            both = (learner.model, part.model) if name == "model" else (mine, theirs)
            raise ValueError(
                f"learners with different {name} cannot be merged: "
                f"{both[0]!s:.200}, and {both[1]!s:.200}"
            )
    if not _same(learner._w0, part.w0):
        raise ValueError("learners that began at different w0 cannot be merged")
    shapes = learner._input_shape, learner._label_shape
    if learner._seen and part.seen and shapes != part.shapes:
        raise ValueError(f"they learned other rows: {shapes} and {part.shapes}")
    if part.seen:
        _check_model(learner, part)
    if learner._probes is not None and part.probes is not None:
        learner._probes.check_merge(part.probes)
    update: Update = learner.undivided(_merge_now, learner, part)
    if learner.guesses.noise == 0:
        _look_for_conflict(learner, update)
    return update


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return bool((tall.to_numpy(a) == tall.to_numpy(b)).all())


def _check_model(learner: "OneStep", part: Part) -> None:
    """Raise where models that are made alike, of code, are not: by what they say of inputs."""
    if learner.model is part.model:
        return
    mine, theirs, (shape, of_label) = learner._model, completed(part.model), part.shapes
    pair = mine, theirs
    compared = [
        tuple(_of_input(model, X, of_label, learner._dtype) for model in pair)
        for X in _inputs(shape)
    ]
    if mine.origin is not None:
        compared.append(tuple((_sum(model.origin),) for model in pair))
    for first, second in compared:
        if first is None or second is None:  # inputs of such a model are not just any numbers
            continue
        for a, b in zip(first, second, strict=True):
            near = PROBED * np.abs(a[np.isfinite(a)]).max(initial=0.0)
            if not np.allclose(a, b, rtol=PROBED, atol=near, equal_nan=True):
                raise ValueError(
                    "learners with different models cannot be merged: for the same input theirs "
                    "have other features; make them once, with one seed, and give each worker a "
                    "copy"
                )


def _inputs(shape: tuple[int, ...]) -> Iterator[Array]:
    """Inputs of several sizes and signs, one at a time."""
    waves = np.cos(np.arange(2 * math.prod(shape))).reshape(2, 1, *shape)
    for size in (1.0, 10.0, 1000.0):
        yield from size * waves
        yield size * (1.5 + waves[0])


def _of_input(
    model: Any, X: Array, of_label: tuple[int, ...], dtype: Any
) -> tuple[Array, ...] | None:
    """What a model makes of one input."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            F, _, G = model.affine(model.accept("X", X, dtype), np.zeros((1, *of_label)))
        return np.asarray(F), tall.to_numpy(G)
    except Exception:
        return None


def _sum(w: Any) -> Array:
    return np.asarray(tall.norms(w.reshape(len(w), -1)))


def _merge_now(learner: "OneStep", part: Part) -> Update:
    memory, known, noise = learner.memory, part.known, learner.guesses.noise
    if not learner._seen and part.seen:
        learner._input_shape, learner._label_shape = part.shapes
        learner._began_ready = memory.loop_ready
    learner._seen += part.seen
    if known.G.shape[1] or known.rest is not None:
        update = _learn(learner, known, noise)
    else:
        nothing = np.zeros(_outputs(learner, 0))
        update = Update(nothing, nothing, 0.0, 0.0, nothing, memory.rank, np.zeros(0))
    learner.guesses.merge(part.guesses)
    if noise == 0:
        learner.guesses.contradicted(float(np.abs(update.conflict).max(initial=0.0)))
    if learner._probes is not None and part.probes is not None:
        learner._probes.merge(part.probes)
    learner._look_for_ways()
    return update


def _learn(learner: "OneStep", known: Known, noise: float) -> Update:
    """Learn the rows of another memory, as one block."""
    memory = learner.memory
    past: Any = memory.join(known, learner._since_start, noise)
    labels, along = known.wanted, past.along_w
    if learner._w0 is not None:
        labels = labels + tall.inner(known.G, learner._w0)
    wanted = labels - along
    came = step(memory, past, wanted, Guesses(past.noise, True, labels.shape[1]), learner.most)
    memory.finish_join(known, noise)
    shape = _outputs(learner, len(labels))
    prediction, residual, left = (A.reshape(shape) for A in (along, wanted, came.left))
    told = came.length, past.novelty, left, memory.rank, came.variance[:, 0]
    return Update(prediction, residual, *told)


def _outputs(learner: "OneStep", rows: int) -> tuple[int, ...]:
    heads = learner.model.heads
    return (rows,) if heads is None else (rows, heads)


def _look_for_conflict(learner: "OneStep", update: Update) -> None:
    labels = np.abs(update.prediction + update.residual).max(initial=0.0)
    left = np.abs(update.conflict).max(initial=0.0)
    if left > CONTRADICTED * tall.cutoff(tall.numpy_dtype(learner._moved)) * labels:
        advise(
            f"rows of the other learner contradict this one's, by up to {left:.1g}: with noise=0 "
            "what was learned here stays, and they are not fitted. With noise > 0 both count.",
            InterpolationWarning,
        )


def rows_of(learner: "OneStep") -> tuple[Array, Array]:
    """X̃ and ỹ."""
    _check(learner, "be told as rows")
    known = learner.memory.as_rows(learner._since_start, learner.guesses.noise)
    w0 = learner._w0
    if learner._origin is not None:
        start = learner._origin.reshape(len(learner._origin), -1)
        w0 = start if w0 is None else w0 + start
    y = known.wanted if w0 is None else known.wanted + tall.inner(known.G, w0)
    X = np.ascontiguousarray(tall.to_numpy(known.G).T)
    return X, y if learner.model.heads is not None else y[:, 0]


def unlearn(learner: "OneStep", X: object, Y: object, weight: object) -> None:
    """Take rows out again; within `_changing`."""
    _check(learner, "unlearn")
    if not learner.memory.exact:
        raise ValueError(
            f"{learner.memory!r} has dropped directions, and with them what these rows were part "
            "of; ORFit without m, RLS and EKF can unlearn, or train anew without these rows"
        )
    if learner._probes is not None:
        raise ValueError("a meter cannot unlearn: these rows are in its sums with random signs")
    if np.ndim(learner.noise):
        raise ValueError("where noise is a matrix, nothing can be unlearned: make it a number")
    inputs, labels = learner._many(X, Y)
    if not door.finite(labels):
        raise ValueError("Y has labels that are missing, which were not learned")
    rows: Any = inputs
    if weight is not None:
        v = weights(weight, len(inputs))
        rows, labels = Weighted(inputs[v > 0], np.sqrt(v[v > 0])), labels[v > 0]
    if not len(rows):
        return
    if len(rows) > learner._seen:
        raise ValueError(f"{len(rows)} rows cannot be unlearned: {learner._seen} were learned")
    offset, labels, G = learner.affine(rows, labels)
    if learner.guesses.noise == 0:
        _check_no_conflict(learner, labels)
    learner.undivided(_unlearn_now, learner, G, learner.tiled(labels - offset), len(rows))


def _check_no_conflict(learner: "OneStep", labels: Array) -> None:
    """Raise where rows contradicted others: those that came first are fitted, and may be these."""
    cutoff = CONTRADICTED * tall.cutoff(tall.numpy_dtype(learner._moved))
    largest = max(np.abs(labels).max(initial=0.0), tall.norms(learner._moved).max(initial=0.0))
    if learner.guesses.unfitted > cutoff * largest:
        raise ValueError(
            "rows have contradicted others, and without noise the first to come are fitted: what "
            "would be fitted without these is not known; train anew without them"
        )


def _unlearn_now(learner: "OneStep", G: Any, labels: Array, rows: int) -> None:
    residual = labels - tall.inner(G, learner._moved)
    others = (learner._seen - rows) * (G.shape[1] // rows)
    learner.memory.remove(G, residual, learner._since_start, learner.guesses.noise, others)
    learner._seen -= rows
    learner._look_for_ways()
