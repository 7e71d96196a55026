"""Bring a saved learner back."""

import inspect
import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from orfit import checkpoint, validation
from orfit import memory as memories
from orfit.checkpoint import CheckpointError
from orfit.learners.ekf import EKF
from orfit.learners.fleet import Fleet
from orfit.learners.greedy import Greedy
from orfit.learners.learner import Learner, described
from orfit.learners.ogd import OGD
from orfit.learners.orfit import OneStepSGD, ORFit, as_memory
from orfit.learners.rls import NTKRLS, RLS
from orfit.learners.sgd import SGD
from orfit.memory import Dense, Memory
from orfit.meter import Meter, Probes
from orfit.models import Linear, Model, completed
from orfit.schema import Check, made, mapping, optional, record, text
from orfit.state import from_arrays
from orfit.validation import Array

KINDS: dict[str, type[Learner]] = {
    kind.__name__: kind for kind in (ORFit, OneStepSGD, NTKRLS, RLS, EKF, OGD, SGD, Greedy)
}
MEMORIES: dict[str, type] = {
    name: kind
    for name, kind in vars(memories).items()
    if name in memories.__all__ and issubclass(kind, Memory) and not inspect.isabstract(kind)
}
MODELS: dict[str, type] = {"Linear": Linear}
# What is saved in the same form, but made of more than a learner and a model, and imported late.
READERS: dict[str, Callable[[], Callable[..., Any]]] = {}
# What is saved in the same form by parts that are built on this one: what it is, who reads it.
ESTIMATOR = "an estimator of orfit.sklearn, not a learner by itself; orfit.sklearn.load reads it"
ELSEWHERE = {
    "ORFitRegressor": ESTIMATOR,
    "ORFitClassifier": ESTIMATOR,
    "Stream": "a stream that `orfit learn` has begun, not a learner by itself; `orfit predict`, "
    "`orfit inspect` and `orfit learn` read it",
}


def load(
    path: str | os.PathLike[str],
    model: Model | None = None,
    memory: Memory | None = None,
    dynamics: Any = None,
    loss: Any = None,
) -> Any:
    """The learner, or `Fleet`, that `save` wrote to `path`: it continues bit for bit as before.

    model: needed where the saved learner's model is Python code (a feature map, a network), which
        no file holds; it must be like the saved one. Of `Heads` the backbone, of `PerLayer` the
        network, into which its parameters are written.
    memory: likewise for a memory of a class of your own: a new one, made as the saved one was.
    dynamics: needed where those of the saved learner are a function, or a sparse matrix.
    loss: needed where that of a saved `PerLayer` is a function.

    Examples:
        >>> learner = orfit.RLS(orfit.Linear(2))
        >>> update = learner.learn([1.0, 0.0], 2.0)
        >>> learner.save("learner.safetensors")
        >>> print(orfit.load("learner.safetensors").w == learner.w)
        [ True  True]
    """
    if memory is not None:
        memory = as_memory(memory)
        memory.check_free()
    arrays, header = checkpoint.read(path)
    kind = str(header.get("kind"))
    if kind in ELSEWHERE:
        raise CheckpointError(f"{os.fspath(path)} holds {ELSEWHERE[kind]}")
    reader = READERS.get(kind)
    if reader is None and model is not None:
        completed(model)
    try:
        if reader is not None:
            return reader()(arrays, header, model, loss=loss)
        if kind == Fleet.__name__:
            return _fleet(arrays, header, model)
        return restored(arrays, header, model, memory, dynamics)
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from None
    except ValueError as error:
        raise CheckpointError(f"{os.fspath(path)} is damaged ({error})") from None
    except MemoryError as error:
        raise CheckpointError(f"{os.fspath(path)} asks for more memory ({error})") from None


# What says how to make a part again: its kind by name, and the arguments.
PART: dict[str, Check] = {"kind": text, "settings": mapping}
HEADER: dict[str, Check] = {
    **PART,
    "versions": record({"orfit": text, "numpy": text}),
    "model": record({**PART, "size": validation.count, "heads": optional(validation.count)}),
}


def restored(
    arrays: dict[str, Array],
    header: dict[str, Any],
    model: Model | None = None,
    memory: Memory | None = None,
    dynamics: Any = None,
    kind: type[Learner] | None = None,
    cut: Callable[[dict[str, Array]], dict[str, Array]] | None = None,
) -> Learner:
    """The learner whose `state` this is; raises ValueError where it is none.

    kind: a class that is made instead of the one that the header names.
    cut: returns the part of the arrays that this learner holds, if it does not hold all.
    """
    known = {name: header.pop(name) for name in HEADER if name in header}
    known = record(HEADER)("header", known)
    if known["kind"] not in KINDS:
        raise CheckpointError(f"it holds a learner of the kind {known['kind']:.200}, unknown here")
    kind, settings = kind or KINDS[known["kind"]], known["settings"]
    model = _model(known["model"], model)
    if "memory" in settings:
        memory = _memory(record(PART)("memory", settings["memory"]), memory, arrays)
        settings = settings | {"memory": memory}
    if "meter" in settings:
        meter = made(Meter, mapping("meter", settings["meter"]))
        settings = settings | {"meter": meter}
        _check_meter(arrays, model, meter)
    if dynamics is not None:
        settings = settings | {"dynamics": dynamics}
    if isinstance(settings.get("dynamics"), str):
        raise CheckpointError(
            "its dynamics are Python code or a sparse matrix, which the file does not hold; "
            "pass them to load, dynamics=…"
        )
    record({})("header", header)
    dense = kind in (NTKRLS, RLS, EKF)
    _check_sizes(arrays, model, kind, Dense() if dense else memory)
    if cut is not None:
        arrays = cut(arrays)
    if dense:  # the prior may be a matrix, so it is an array
        settings = settings | {"prior": _array(arrays, "prior")}
    w = arrays.pop("w")
    learner: Learner = made(kind, settings | {"w0": w}, model)
    fields = {name.removeprefix("state."): array for name, array in arrays.items()}
    if learner.memory is None:
        fields["w"] = w
    learner.restore(from_arrays(learner._cell.state, fields))
    return learner


def _array(arrays: dict[str, Array], name: str) -> Array:
    if name not in arrays:
        raise ValueError(f"it has no array {name}")
    return arrays.pop(name)


def _fleet(arrays: dict[str, Array], header: dict[str, Any], model: Model | None) -> Fleet:
    known = record(HEADER)("header", {name: header.pop(name, None) for name in HEADER})
    record({})("header", header)
    settings, model = known["settings"], _model(known["model"], model)
    count = validation.count("count", settings.get("count"))
    if arrays.get("learned", np.empty(0)).shape != (count,):  # before anything is made
        raise ValueError(f"there are no {count} learners")
    fleet: Fleet = made(Fleet, settings | {"w0": _array(arrays, "w"), "model": model})
    fleet.restore(arrays)
    return fleet


def _check_sizes(
    arrays: dict[str, Array], model: Model, kind: type[Learner], memory: Memory | None
) -> None:
    """Raise unless what a learner will make room for is there: before anything is made."""
    shape = (model.size,) if model.heads is None else (model.size, model.heads)
    if "w" not in arrays or (kind.has_parameters and arrays["w"].shape != shape):
        raise ValueError(f"there is no w of shape {shape}")
    for name, sides in ({} if memory is None else memory.needs(model.size)).items():
        found = [arrays[n] for n in (f"state.{name}", f"state.0.{name}") if n in arrays]
        if not found or found[0].shape != sides:
            raise ValueError(f"there is no {name} of shape {sides}")


def _check_meter(arrays: dict[str, Array], model: Model, meter: Meter) -> None:
    sides = Probes.needs(meter, model.size, model.heads or 1)
    if "state.meter_sums" not in arrays or arrays["state.meter_sums"].shape != sides:
        raise ValueError(f"there is no meter_sums of shape {sides}")


def _memory(saved: dict[str, Any], given: Memory | None, arrays: dict[str, Array]) -> Memory:
    if saved["kind"] == Dense.__name__:
        return Dense(_array(arrays, "prior"))
    if given is None:
        if saved["kind"] not in MEMORIES:
            raise CheckpointError(
                f"it holds a memory of the kind {saved['kind']:.200}, unknown here; "
                "pass a new one of that kind to load, memory=…"
            )
        memory: Memory = made(MEMORIES[saved["kind"]], saved["settings"])
        return memory
    if described(given) != saved:
        raise CheckpointError(
            f"it was saved with the memory {saved['kind']} {saved['settings']}, not with {given!r}"
        )
    return given


def _model(saved: dict[str, Any], given: Model | None) -> Model:
    model = given
    if model is None:
        if saved["kind"] not in MODELS or "code" in saved["settings"].values():
            raise CheckpointError(
                f"its model ({saved['kind']:.200}) is Python code, which a file cannot hold; "
                "pass the model to load, model=…"
            )
        model = cast(Model, made(MODELS[saved["kind"]], saved["settings"]))
    like = described(model) | {"size": model.size, "heads": model.heads}
    for name in getattr(model, "may_differ", ()):
        like["settings"] |= {name: saved["settings"].get(name)}
    if like != saved:
        differs = [name for name in saved if saved[name] != like[name]]
        was = ", ".join(f"{name} {saved[name]}" for name in differs)
        is_ = ", ".join(f"{name} {like[name]}" for name in differs)
        raise CheckpointError(
            f"it was saved with a model of {was}; the one passed has {is_}"
            if given is not None
            else f"its model has {is_}, and {was}"
        )
    return model
