"""ORFit, with p divided among processes."""

import os
from concurrent.futures import Future
from typing import Any

import numpy as np

from orfit import checkpoint, schema, validation
from orfit.checkpoint import CheckpointError, Content
from orfit.distributed.linear import Linear
from orfit.distributed.processes import current
from orfit.learners import orfit as orfit_learner
from orfit.learners.load import restored
from orfit.learners.orfit import as_memory
from orfit.memory import Basis, Memory, Sketch
from orfit.state import TABLE
from orfit.validation import Array


class ORFit(orfit_learner.ORFit):
    """`orfit.ORFit`, where each process holds its parameters and their part of every direction.

    All processes make the same calls in the same order, with their own part of x and the same y,
    weights and settings. If a part of x is not finite, all processes raise ValueError and learn
    nothing. If a process ends, the others raise `ProcessLostError`.

    model: an `orfit.distributed.Linear`.
    memory: as for `orfit.ORFit`, except `Sketch`, which draws p random numbers for each direction.
    w0: the part of this process; float32 makes a learner float32.
    noise, forgetting, tail, drift: as for `orfit.ORFit`.

    A step sends one message of (s + q + n) n numbers, for a block of n rows, s stored directions
    and q heads. A second one follows if the rows are nearly spanned.

    Examples:
        >>> import orfit.distributed  # torchrun --nproc-per-node 4 this.py
        >>> model = orfit.distributed.Linear(1000)
        >>> learner = orfit.distributed.ORFit(model, memory=10, noise=0.1)
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(20):
        ...     x = rng.standard_normal(1000)[model.here]  # the part of this process
        ...     update = learner.learn(x, 1.0)
        >>> learner.seen, learner.w.shape
        (20, (1000,))
    """

    model: Linear

    def __init__(
        self,
        model: Linear,
        memory: Memory | int | str | None = None,
        *,
        w0: object = None,
        noise: float | str = 0.0,
        forgetting: float | str = 1.0,
        tail: bool | str = True,
        drift: float = 0.0,
    ) -> None:
        if not isinstance(model, Linear):
            raise ValueError(f"model must be an orfit.distributed.Linear; it is {model!r}")
        directions = as_memory(memory)
        if not isinstance(directions, Basis) or isinstance(directions, Sketch):
            raise ValueError(f"{directions!r} cannot be divided among processes")
        if directions.numbers:
            raise ValueError("the memory is in use already; give this learner a new one")
        super().__init__(
            model, directions, w0=w0, noise=noise, forgetting=forgetting, tail=tail, drift=drift
        )

    def _arithmetic(self, array: Any) -> Any:
        return self.model.ops

    def _initial(self) -> Any:
        return self.model.initial()[self.model.here]

    def merge_obstacle(self) -> str | None:
        return "it is divided among processes; save it, and load it with orfit.load"

    def save(self, path: str | os.PathLike[str], wait: bool = True) -> "Future[None] | None":
        """Write one checkpoint that `orfit.distributed.load` and `orfit.load` can read.

        Process 0 collects all parts and writes the file, so it needs memory for the whole state.
        wait: must be True.
        """
        if not validation.flag("wait", wait):
            raise ValueError("processes save together: wait must be True")
        self._read(self._save, path)
        return None

    def _save(self, path: str | os.PathLike[str]) -> None:
        processes, (arrays, header) = self.model.processes, self._state()
        arrays["state.input_shape"] = np.array([self.model.size])
        divided = [name for name in arrays if _parameter_axis(name) is not None]
        parts = {name: processes.collect(arrays[name]) for name in divided}
        error = None
        if processes.rank == 0:
            try:
                whole = {n: np.concatenate(p, _parameter_axis(n)) for n, p in parts.items()}
                checkpoint.writer.now(path, Content.of(arrays | whole, header))
            except Exception as failure:
                error = failure
        processes.check(error)


def load(path: str | os.PathLike[str], *, shares: Any = None) -> ORFit:
    """The learner that `ORFit.save` wrote, divided among the present processes.

    It also reads the file of an `orfit.ORFit` on an `orfit.Linear` without bias and features. Each
    process reads the whole file and keeps its part. `orfit.load` makes an `orfit.ORFit` of it.

    shares: as for `Linear`.

    Examples:
        >>> import orfit.distributed
        >>> learner = orfit.distributed.ORFit(orfit.distributed.Linear(3), noise=0.1)
        >>> update = learner.learn([1.0, 0.0, 0.0], 2.0)
        >>> learner.save("wide.safetensors")
        >>> print(orfit.distributed.load("wide.safetensors").w == learner.w)
        [ True  True  True]
        >>> print(orfit.load("wide.safetensors"))
        <ORFit(Linear(3), Unlimited(), noise=0.1), seen=1>
    """
    arrays: dict[str, Array] = {}
    header: dict[str, Any] = {}
    error = None
    try:
        arrays, header = checkpoint.read(path)
    except Exception as failure:
        error = failure
    current().check(error)
    try:
        if header.get("kind") != ORFit.__name__:
            raise CheckpointError("it holds no ORFit")
        saved = schema.mapping("model", header.get("model"))
        size, heads = validation.count("size", saved.get("size")), saved.get("heads")
    except ValueError as failure:
        raise CheckpointError(f"{os.fspath(path)}: {failure}") from None
    model = Linear(size, heads=heads, shares=shares)
    try:
        learner = restored(arrays, header, model, kind=ORFit, cut=lambda whole: _cut(whole, model))
    except ValueError as failure:
        raise CheckpointError(f"{os.fspath(path)}: {failure}") from None
    assert isinstance(learner, ORFit)
    return learner


def _cut(arrays: dict[str, Array], model: Linear) -> dict[str, Array]:
    """The part of the arrays that this process holds."""
    part = dict(arrays)
    for name, array in arrays.items():
        axis = _parameter_axis(name)
        if axis is not None and array.shape[axis : axis + 1] == (model.size,):
            here = (slice(None),) * axis + (model.here,)
            part[name] = array[here].copy(order="K")
    if np.array_equal(part.get("state.input_shape", ()), [model.size]):
        part["state.input_shape"] = np.array([model.held])
    return part


def _parameter_axis(name: str) -> int | None:
    """The axis of p in an array of a state; None if it has none."""
    if name == "w":
        return 0
    field = TABLE.get(name.rpartition(".")[2])
    return field.sides.index("P") if field is not None and "P" in field.sides else None
