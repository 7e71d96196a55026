"""Several learners as one, and one without some of its rows."""

import copy
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit import validation
from orfit.learners.advice import InterpolationWarning, advise
from orfit.learners.gain import GainLearner
from orfit.learners.learner import described, weighted
from orfit.learners.update import Update
from orfit.memory.sufficient_rows import SufficientRows
from orfit.meter import Probes
from orfit.models import check_labels, completed
from orfit.state import State
from orfit.step import step
from orfit.store import arithmetic, cutoff, numpy_dtype
from orfit.validation import Array

PROBED = 1e-4  # relatively: gradients of one model, on two machines, are not farther apart
CONTRADICTED = 100.0  # times the cutoff, of a label: what is left then is no rounding


@dataclass(frozen=True)
class Part:
    """What one learner gives to another. It is a copy, so the learner may go on meanwhile."""

    facts: dict[str, Any]  # by name, what must be the same
    model: Any
    shapes: tuple[Any, tuple[int, ...]]  # of one input and one label
    known: SufficientRows
    state: State
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
    part: Part = learner._read(_part, learner)
    return part


def _check_kind(learner: Any) -> None:
    if not hasattr(learner, "merge_obstacle"):
        raise ValueError(f"ORFit, RLS, NTKRLS and EKF can be merged; {learner!r:.200} cannot")


def _check(learner: GainLearner, doing: str) -> None:
    why = learner.merge_obstacle()
    if why is not None:
        raise ValueError(f"{type(learner).__name__} cannot {doing}: {why}")


def _part(learner: GainLearner) -> Part:
    _check(learner, "be merged")
    s = copy.deepcopy(learner._cell.state)
    known = learner.memory.sufficient_rows(s, _since_start(learner, s), learner.candidates.noise(s))
    shapes = s.input_shape, s.label_shape
    return Part(_facts(learner), learner.model, shapes, known, s, learner._probes)


def _since_start(learner: GainLearner, s: State) -> Any:
    """Return w − w₀ as it is carried, p×q, as a new array."""
    w = learner.memory.parameters(s)
    return arithmetic(w).copy(w if s.start is None else w - s.start)


def _facts(learner: GainLearner) -> dict[str, Any]:
    """What must be the same of learners that are merged, by the names that users know."""
    model, memory = learner.model, learner.memory
    return {
        "kind": type(learner).__name__,
        "model": described(model) | {"size": model.size, "heads": model.heads},
        "dtype": str(numpy_dtype(learner.memory.parameters(learner._cell.state))),
        "memory": type(memory).__name__,
        "noise": learner.noise,
        "prior": getattr(memory, "prior", 1.0),
        "tail": learner.tail,
        "meter": learner._probes is not None,
    }


def merge_part(learner: GainLearner, part: Part) -> Update:
    """Learn the rows of a part, and commit."""
    _check(learner, "be merged")
    for name, mine in _facts(learner).items():
        theirs = part.facts[name]
        if not np.array_equal(mine, theirs):
            both = (learner.model, part.model) if name == "model" else (mine, theirs)
            raise ValueError(
                f"learners with different {name} cannot be merged: "
                f"{both[0]!s:.200}, and {both[1]!s:.200}"
            )
    s = State(**vars(learner._cell.state))
    if not _same(s.start, part.state.start):
        raise ValueError("learners that began at different w0 cannot be merged")
    shapes = s.input_shape, s.label_shape
    if s.seen and part.state.seen and shapes != part.shapes:
        raise ValueError(f"they learned other rows: {shapes} and {part.shapes}")
    if part.state.seen:
        _check_model(learner, part)
    mine, other = learner._probes, part.probes
    if mine is not None and other is not None:
        mine.check_merge(s, other, part.state)
    update = _merge_states(learner, s, part)
    if mine is not None and other is not None:
        mine.merge(s, other, part.state)
    learner._cell.state = s
    if learner.candidates.noise(s) == 0:  # of EKF, `noise` may be a matrix
        _warn_of_conflict(learner, s, update)
    return update


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return bool((arithmetic(a).to_numpy(a) == arithmetic(b).to_numpy(b)).all())


def _check_model(learner: GainLearner, part: Part) -> None:
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
        return np.asarray(F), arithmetic(G).to_numpy(G)
    except Exception:
        return None


def _sum(w: Any) -> Array:
    return np.asarray(arithmetic(w).norms(w.reshape(len(w), -1)))


def _merge_states(learner: GainLearner, s: State, part: Part) -> Update:
    """Learn the rows of a part, in the draft `s`."""
    memory, known, noise = learner.memory, part.known, learner.candidates.noise(s)
    if not s.seen and part.state.seen:
        s.input_shape, s.label_shape = part.shapes
    s.seen += part.state.seen
    if known.G.shape[1] or known.rest is not None:
        update = _learn_rows(learner, s, known, noise)
    else:
        nothing = np.zeros(_outputs(learner, 0))
        update = Update(nothing, nothing, 0.0, 0.0, nothing, memory.rank_in(s), np.zeros(0))
    learner.candidates.merge(s, part.state)
    if noise == 0:
        s.unfitted = max(s.unfitted, float(np.abs(update.conflict).max(initial=0.0)))
    return update


def _learn_rows(learner: GainLearner, s: State, known: SufficientRows, noise: float) -> Update:
    """Learn the rows of another memory, as one block."""
    memory, labels = learner.memory, known.labels
    d = memory.join(s, known, _since_start(learner, s), noise)
    if s.start is not None:
        labels = labels + arithmetic(known.G).inner(known.G, s.start)
    residual = labels - d.prediction
    result = step(memory, s, d, d.settings.noises, residual[None], learner._limit)
    memory.finish_join(s, known, noise)
    shape = _outputs(learner, len(labels))
    prediction, residual, left = (A.reshape(shape) for A in (d.prediction, residual, result.left))
    how = float(result.lengths[0]), d.novelty, left, memory.rank_in(s), result.variance[0]
    return Update(prediction, residual, *how)


def _outputs(learner: GainLearner, rows: int) -> tuple[int, ...]:
    heads = learner.model.heads
    return (rows,) if heads is None else (rows, heads)


def _warn_of_conflict(learner: GainLearner, s: State, update: Update) -> None:
    labels = np.abs(update.prediction + update.residual).max(initial=0.0)
    left = np.abs(update.conflict).max(initial=0.0)
    dtype = numpy_dtype(learner.memory.parameters(s))
    if left > CONTRADICTED * cutoff(dtype) * labels:
        advise(
            f"rows of the other learner contradict this one's, by up to {left:.1g}: with noise=0 "
            "what was learned here stays, and they are not fitted. With noise > 0 both count.",
            InterpolationWarning,
        )


def rows_of(learner: GainLearner) -> tuple[Array, Array]:
    """X̃ and ỹ."""
    _check(learner, "be expressed as rows")
    s = State(**vars(learner._cell.state))
    known = learner.memory.as_rows(s, _since_start(learner, s), learner.candidates.noise(s))
    ops, w0 = arithmetic(known.G), s.start
    if learner._origin is not None:
        start = learner._origin.reshape(len(learner._origin), -1)
        w0 = start if w0 is None else w0 + start
    y = known.labels if w0 is None else known.labels + ops.inner(known.G, w0)
    X = np.ascontiguousarray(ops.to_numpy(known.G).T)
    return X, y if learner.model.heads is not None else y[:, 0]


def unlearn(learner: GainLearner, X: object, Y: object, weight: object) -> None:
    """Remove rows; within `_change`."""
    _check(learner, "unlearn")
    s = State(**vars(learner._cell.state))
    if not learner.memory.nothing_dropped(s):
        raise ValueError(
            f"{learner.memory!r} has dropped directions, and with them what these rows were part "
            "of; ORFit without m, RLS and EKF can unlearn, or train anew without these rows"
        )
    if learner._probes is not None:
        raise ValueError("a meter cannot unlearn: these rows are in its sums with random signs")
    if np.ndim(learner.noise):
        raise ValueError("where noise is a matrix, nothing can be unlearned: make it a number")
    inputs, labels = learner._many(X, Y)
    if not validation.finite(labels):
        raise ValueError("Y has labels that are missing, which were not learned")
    roots = None
    if weight is not None:
        v = validation.weights(weight, len(inputs))
        inputs, labels, roots = inputs[v > 0], labels[v > 0], np.sqrt(v[v > 0])
    if not len(inputs):
        return
    if len(inputs) > s.seen:
        raise ValueError(f"{len(inputs)} rows cannot be unlearned: {s.seen} were learned")
    outputs, labels, G = learner._model.affine(inputs, labels)
    if labels.shape != outputs.shape:
        check_labels(labels, outputs)
    if roots is not None:
        outputs, labels, G = weighted(arithmetic(G), roots, outputs, labels, G)
    noise, w = learner.candidates.noise(s), learner.memory.parameters(s)
    if noise == 0:
        _check_no_conflict(s, w, labels)
    residual = (labels - outputs).reshape(G.shape[1], -1) - arithmetic(G).inner(G, w)
    others = (s.seen - len(inputs)) * (G.shape[1] // len(inputs))
    learner.memory.remove(s, G, residual, _since_start(learner, s), noise, others)
    s.seen -= len(inputs)
    learner._cell.state = s


def _check_no_conflict(s: State, w: Any, labels: Array) -> None:
    """Raise if rows contradicted others: the first ones are fitted, and may be these."""
    ops, rounding = arithmetic(w), CONTRADICTED * cutoff(numpy_dtype(w))
    largest = max(np.abs(labels).max(initial=0.0), ops.norms(w).max(initial=0.0))
    if s.unfitted > rounding * largest:
        raise ValueError(
            "rows have contradicted others, and without noise the first to come are fitted: what "
            "would be fitted without these is not known; train anew without them"
        )
