"""A learner that is spread over processes, in files: one for each, and one for what all have.

That one, `path`, is written last and names the others, so what it names is there. A process reads
the parts of p that it has now out of the files of those who had them.
"""

import os
import secrets
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from orfit import checkpoint, door, learners, schema
from orfit.checkpoint import CheckpointError, Content
from orfit.distributed.linear import Linear
from orfit.distributed.model import SpreadModel
from orfit.distributed.processes import Processes, current
from orfit.distributed.whole import spread_out
from orfit.door import Array
from orfit.learners.load import restored
from orfit.schema import Fields
from orfit.tall_shards import Shard

KIND = "Shards"
SHARD = "Shard"
SUFFIX = ".shard"
FIELDS: Fields = {
    "kind": schema.one_of(KIND),
    "learner": schema.mapping,
    "token": schema.counter,
    "bounds": schema.listed(schema.counter, least=2),
    "axes": schema.mapping,
}


def save(
    path: str | os.PathLike[str],
    arrays: dict[str, Any],
    header: dict[str, Any],
    processes: Processes,
) -> None:
    """Write the state of a learner: all processes together."""
    parts = {name: array for name, array in arrays.items() if isinstance(array, Shard)}
    digest = 0  # of what all must have alike, since the last row that was learned, too
    for name in sorted(arrays.keys() - parts.keys()):
        digest = zlib.crc32(np.ascontiguousarray(arrays[name]).data, digest)
    drawn = np.array([float(secrets.randbits(52))]) * (processes.rank == 0)
    token = int(processes.sum(drawn, digest)[0])
    bounds = next(iter(parts.values())).spread.bounds
    error: Exception | None = None
    try:
        target = Path(path).resolve()
        mine = Content.of(
            {name: part.local for name, part in parts.items()}, {"kind": SHARD, "token": token}
        )
        checkpoint.writer.now(_name(target, token, processes.rank), mine)
    except Exception as why:
        error = why
    processes.together(error)
    try:
        if processes.rank == 0:
            said = {
                "kind": KIND,
                "learner": header,
                "token": token,
                "bounds": list(bounds),
                "axes": {name: part.axis for name, part in parts.items()},
            }
            small = {name: array for name, array in arrays.items() if name not in parts}
            checkpoint.writer.now(target, Content.of(small, said))
            _sweep(target, token)
    except Exception as why:
        error = why
    processes.together(error)


def load(
    path: str | os.PathLike[str],
    model: Any = None,
    memory: Any = None,
    rows: Any = None,
    whole: bool = False,
) -> Any:
    """The learner that `ORFit.save` wrote, on as many processes as there are now.

    On as many as it was saved by, with the same shares, it goes on bit by bit as before; on others
    up to the rounding of sums. A file of an `orfit.ORFit`, saved by one process, is read too.

    model: needed where the saved one is a network or has features of its own, where every process
        has it whole, or for other shares.
    memory, rows: as for `orfit.load`.
    whole: True gives an `orfit.ORFit` that has all of p in this process, and needs no other.

    Examples:
        >>> import orfit.distributed
        >>> learner = orfit.distributed.ORFit(orfit.distributed.Linear(3), noise=0.1)
        >>> update = learner.learn([1.0, 0.0, 0.0], 2.0)
        >>> learner.save("wide.safetensors")
        >>> print(orfit.distributed.load("wide.safetensors").w == learner.w)
        [ True  True  True]
        >>> print(orfit.distributed.load("wide.safetensors", whole=True))
        <ORFit(Linear(3), Unlimited(), noise=0.1), seen=1>
    """
    whole = door.flag("whole", whole)
    if whole:
        arrays, header = _assembled(Path(path), None)
        return _restored(path, arrays, header, model, memory, rows)
    error: Exception | None = None
    processes = current()
    model = None if model is None else spread_out(model)
    try:
        said = checkpoint.read(path)[1]
        known = said.get("learner", said).get("model", {})
        if model is None:
            if "code" in known.get("settings", {}).values():
                raise CheckpointError(
                    f"{os.fspath(path)}: its model is Python code, or has features, which are; "
                    "pass the model to load, model=…"
                )
            model = Linear(known.get("size"), heads=known.get("heads"))
        arrays, header = _assembled(Path(path), model)
    except Exception as why:
        error = why
    processes.together(error)
    return _restored(path, arrays, header, model, memory, rows)


def _restored(
    path: Any, arrays: Any, header: dict[str, Any], model: Any, memory: Any, rows: Any
) -> Any:
    from orfit.distributed.learner import ORFit

    if header.get("kind") != ORFit.__name__:
        raise CheckpointError(f"{os.fspath(path)} holds no ORFit, which alone can be spread")
    try:
        kind = ORFit if isinstance(model, SpreadModel) else learners.ORFit
        return restored(arrays, header, model, memory, rows, kind=kind)
    except CheckpointError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error}") from None
    except ValueError as error:
        raise CheckpointError(f"{os.fspath(path)} is damaged ({error})") from None


def _assembled(path: Path, model: SpreadModel | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state as a learner in one process has it, but for what is another process' own."""
    small, header = checkpoint.read(path)
    arrays: dict[str, Any] = {**small}
    if header.get("kind") != KIND:  # of one process
        return _cut(arrays, header, model), header
    said = schema.record(FIELDS)("header", header)
    bounds, size = said["bounds"], said["bounds"][-1]
    if model is not None and model.size != size:
        raise CheckpointError(f"{path} has {size} parameters, not {model.size}")
    here = slice(0, size) if model is None else model.here
    found: dict[str, list[Any]] = {name: [] for name in said["axes"]}
    for rank in range(len(bounds) - 1):
        first, last = max(bounds[rank], here.start), min(bounds[rank + 1], here.stop)
        if first >= last:
            continue
        file = _name(path.resolve(), said["token"], rank)
        parts, of_it = checkpoint.read(file)
        if of_it.get("token") != said["token"] or parts.keys() != found.keys():
            raise CheckpointError(f"{file} does not belong to {path}")
        for name, part in parts.items():
            axis = _axis(said["axes"][name], part, bounds[rank + 1] - bounds[rank])
            cut = slice(first - bounds[rank], last - bounds[rank])
            found[name].append(part[cut] if axis == 0 else part[:, cut])
    for name, pieces in found.items():
        axis = said["axes"][name]
        joined: Any = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis)
        # The order in memory is part of the state: BLAS rounds differently for rows and columns.
        joined = np.asarray(joined, order=_order(pieces[0]))
        arrays[name] = joined if model is None else Shard(joined, model.spread, axis)
    return arrays, said["learner"]


def _cut(
    arrays: dict[str, Any], header: dict[str, Any], model: SpreadModel | None
) -> dict[str, Any]:
    """Of a state that one process had, what is here."""
    if model is None:
        return dict(arrays)
    made: dict[str, Any] = dict(arrays)
    for name, array in arrays.items():
        axis = AXES.get(name.rpartition(".")[2])
        if axis is not None and array.shape[axis] == model.size:
            part = array[model.here] if axis == 0 else array[:, model.here]
            made[name] = Shard(np.array(part, order=_order(array)), model.spread, axis)
    return made


# Where p is in the arrays of a state, by the last part of their names.
AXES = {"w": 0, "w0": 0, "rows": 1, "base": 1, "sketch": 1, "core": 1}


def _order(array: Array) -> Any:
    return "C" if array.flags.c_contiguous or not array.flags.f_contiguous else "F"


def _axis(axis: Any, part: Array, length: int) -> int:
    if axis not in (0, 1) or axis >= part.ndim or part.shape[axis] != length:
        raise CheckpointError("a part of p is not as long as it should be")
    return int(axis)


def _name(target: Path, token: int, rank: int) -> Path:
    return target.with_name(f"{target.name}.{token:013x}.{rank}{SUFFIX}")


def _sweep(target: Path, token: int) -> None:
    """Remove the parts that `target` named before."""
    mine = f"{target.name}.{token:013x}."
    for left in target.parent.glob(f"{target.name}.*{SUFFIX}"):
        if not left.name.startswith(mine):
            left.unlink(missing_ok=True)
