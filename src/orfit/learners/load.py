"""Bring a saved learner back."""

import os
from typing import Any

from orfit import checkpoint, memory, models
from orfit.checkpoint import CheckpointError
from orfit.door import Array
from orfit.learners.base import Learner
from orfit.learners.ekf import EKF
from orfit.learners.greedy import Greedy
from orfit.learners.ogd import OGD
from orfit.learners.orfit import OneStepSGD, ORFit
from orfit.learners.rls import NTKRLS, RLS
from orfit.learners.sgd import SGD
from orfit.models import Model

KINDS: dict[str, type[Learner]] = {
    kind.__name__: kind for kind in (ORFit, OneStepSGD, NTKRLS, RLS, EKF, OGD, SGD, Greedy)
}


def load(path: str | os.PathLike[str], model: Model | None = None) -> Any:
    """The learner that `save` wrote to `path`; it goes on bit-equally to one never saved.

    model: needed where the saved learner's model is Python code (a feature map, a network), which
        no file holds; it must have the shape of the saved one.
    """
    arrays, header = checkpoint.read(path)
    try:
        return _restore(arrays, header, model)
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError, MemoryError) as error:
        raise CheckpointError(f"{os.fspath(path)} is damaged ({error})") from None


def _restore(arrays: dict[str, Array], header: dict[str, Any], model: Model | None) -> Learner:
    if header["kind"] not in KINDS:
        raise CheckpointError(f"it holds a learner of the kind {header['kind']}, unknown here")
    model = _model(header["model"], model)
    settings = header["settings"]
    if "memory" in settings:
        settings = settings | {"memory": _memory(settings["memory"])}
    learner = KINDS[header["kind"]](model, w0=arrays["w"], **settings)
    if learner.memory is not None:
        of_memory = {name: array for name, array in arrays.items() if name.startswith("memory.")}
        state = {name.removeprefix("memory."): array for name, array in of_memory.items()}
        learner.memory.restore(state, header["memory"])
    learner._seen = int(header["seen"])
    learner._label_shape = tuple(header["label_shape"])
    if header["input_shape"] is not None:
        learner._input_shape = tuple(header["input_shape"])
    return learner


def _memory(kept: dict[str, Any]) -> memory.Memory:
    if kept["kind"] not in memory.__all__:
        raise CheckpointError(f"it holds a memory of the kind {kept['kind']}, unknown here")
    kind = getattr(memory, kept["kind"])
    made: memory.Memory = kind(**kept["settings"])
    return made


def _model(saved: dict[str, Any], given: Model | None) -> Model:
    if given is None:
        if saved["settings"] is None or saved["kind"] not in models.__all__:
            raise CheckpointError(
                f"its model ({saved['kind']}) is Python code, which a file cannot hold; "
                "pass the model to load"
            )
        kind = getattr(models, saved["kind"])
        made: Model = kind(**saved["settings"])
        return made
    if (given.size, given.heads) != (saved["size"], saved["heads"]):
        raise CheckpointError(
            f"it was saved with a model of {saved['size']} parameters and heads={saved['heads']}; "
            f"the model passed to load has {given.size} and heads={given.heads}"
        )
    return given
