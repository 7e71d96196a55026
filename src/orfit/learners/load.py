"""Bring a saved learner back."""

import os
from typing import Any

from orfit import checkpoint, models
from orfit import memory as memories
from orfit.checkpoint import CheckpointError
from orfit.door import Array
from orfit.learners.base import Learner, described
from orfit.learners.ekf import EKF
from orfit.learners.greedy import Greedy
from orfit.learners.ogd import OGD
from orfit.learners.orfit import OneStepSGD, ORFit, as_memory
from orfit.learners.rls import NTKRLS, RLS
from orfit.learners.rows import Auto, WayError
from orfit.learners.sgd import SGD
from orfit.memory import Memory
from orfit.models import Model, completed

KINDS: dict[str, type[Learner]] = {
    kind.__name__: kind for kind in (ORFit, OneStepSGD, NTKRLS, RLS, EKF, OGD, SGD, Greedy)
}


def load(
    path: str | os.PathLike[str],
    model: Model | None = None,
    memory: Memory | None = None,
    rows: str | Auto | None = None,
    dynamics: Any = None,
) -> Any:
    """The learner that `save` wrote to `path`; it goes on bit-equally to one never saved.

    model: needed where the saved learner's model is Python code (a feature map, a network), which
        no file holds; it must be like the saved one.
    memory: likewise for a memory of a class of your own: a new one, made as the saved one was.
    rows: how to learn rows from now on; as before, unless given.
    dynamics: needed where those of the saved learner are a function, or a sparse matrix.
    """
    if model is not None:
        completed(model)
    if memory is not None:
        memory = as_memory(memory)
        memory.check_free()
    arrays, header = checkpoint.read(path)
    try:
        return _restore(arrays, header, model, memory, rows, dynamics)
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, MemoryError) as error:
        raise CheckpointError(f"{os.fspath(path)} is damaged ({error})") from None


def _restore(
    arrays: dict[str, Array],
    header: dict[str, Any],
    model: Model | None,
    memory: Memory | None,
    rows: str | Auto | None,
    dynamics: Any,
) -> Learner:
    if header["kind"] not in KINDS:
        raise CheckpointError(f"it holds a learner of the kind {header['kind']}, unknown here")
    model = _model(header["model"], model)
    settings = header["settings"]
    if "memory" in settings:
        settings = settings | {"memory": _memory(settings["memory"], memory)}
    if rows is not None:
        settings = settings | {"rows": rows}
    if dynamics is not None:
        settings = settings | {"dynamics": dynamics}
    if isinstance(settings.get("dynamics"), str):
        raise CheckpointError(
            "its dynamics are Python code or a sparse matrix, which the file does not hold; "
            "pass them to load, dynamics=…"
        )
    try:
        learner = KINDS[header["kind"]](model, w0=arrays["w"], **settings)
    except WayError as error:
        raise CheckpointError(f"{error}; or pass another rows=… to load") from None
    learner.restore(arrays, header)
    return learner


def _memory(saved: dict[str, Any], given: Memory | None) -> Memory:
    if given is None:
        if saved["kind"] not in memories.__all__:
            raise CheckpointError(
                f"it holds a memory of the kind {saved['kind']}, unknown here; "
                "pass a new one of that kind to load, memory=…"
            )
        made: Memory = getattr(memories, saved["kind"])(**saved["settings"])
        return made
    if described(given) != saved:
        raise CheckpointError(
            f"it was saved with the memory {saved['kind']} {saved['settings']}, not with {given!r}"
        )
    return given


def _model(saved: dict[str, Any], given: Model | None) -> Model:
    if given is None:
        if "code" in saved["settings"].values() or saved["kind"] not in models.__all__:
            raise CheckpointError(
                f"its model ({saved['kind']}) is Python code, which a file cannot hold; "
                "pass the model to load, model=…"
            )
        made: Model = getattr(models, saved["kind"])(**saved["settings"])
        return made
    like = described(given) | {"size": given.size, "heads": given.heads}
    if like != saved:
        differs = [name for name in saved if saved[name] != like[name]]
        was = ", ".join(f"{name} {saved[name]}" for name in differs)
        is_ = ", ".join(f"{name} {like[name]}" for name in differs)
        raise CheckpointError(f"it was saved with a model of {was}; the one passed has {is_}")
    return given
