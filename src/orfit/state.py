"""The state of a learner: one set of named arrays and numbers, declared in one table.

A `State` is a namespace. A step works on a shallow copy (`draft = State(**vars(state))`) and
replaces attributes of the draft; it writes into no array that the state before uses. The commit is
one assignment of the draft. Attributes whose names begin with an underscore are caches and are not
saved.

`TABLE` declares every field: checkpoints, copies and merges use it.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from orfit import validation
from orfit.store import Store, arithmetic, numpy_dtype
from orfit.validation import Array


class State(SimpleNamespace):
    """The fields of one learner, or of one part of it."""


@dataclass(frozen=True)
class Field:
    """What a field holds.

    kind: "real" (the learner's dtype), "double", "count" (whole numbers) or "flag".
    sides: letters for the sides of an array, none for a number, or ... for any shape. Capital
        letters have the size that they have in a new learner; the others only have to agree.
    low, high: limits of all numbers.
    sequence: whether it is a tuple of whole numbers in memory.
    optional: whether it may be None.
    """

    kind: str
    sides: Any = ()
    low: float = -np.inf
    high: float = np.inf
    sequence: bool = False
    optional: bool = False


def number(low: float = -np.inf, high: float = np.inf) -> Field:
    """A single number."""
    return Field("double", (), low, high)


MOST = validation.MOST
COUNT = Field("count", (), 0, MOST)
# A variance whose inverse is finite, too.
VARIANCE = number(1e-300, 1e300)

TABLE: dict[str, Field] = {
    # Learner
    "seen": COUNT,
    "input_shape": Field("count", ("i",), 0, MOST, sequence=True, optional=True),
    "label_shape": Field("count", ("l",), 0, MOST, sequence=True),
    "settings_changed": Field("flag"),
    "time_updated": Field("flag"),
    "w": Field("real", ...),
    "start": Field("real", ("P", "h"), optional=True),
    # Frame: see memory/frame.py
    "rows": Field("real", ("s", "P")),
    "base": Field("real", ("Q", "P")),
    "W": Field("double", ("k", "s")),
    "M": Field("double", ("s", "s")),
    "shift": Field("double", ("Q", "s")),
    "history": Field("double", ("s", "s"), optional=True),
    "compactions": COUNT,
    "parameter_bound": number(0),
    # Spectrum: what was seen along the directions
    "sigma": Field("double", ("k",), 0),
    "roots": Field("double", ("f", "k", "k")),
    "floors": Field("double", ("f",), 0),
    "dropped_energy": number(),
    # Tail: what was seen along directions that are not kept
    "tail_level": Field("double", ("E",), 0),
    "tail_dropped": Field("double", ("E",), 0),
    "tail_rows": number(0),
    "tail_dropping": number(0),
    "prior_variance": VARIANCE,
    # Single memories
    "draws": COUNT,
    "max_rank": COUNT,
    "rows_absorbed": COUNT,
    "sketch": Field("real", ("A", "P")),
    "core": Field("real", ("B", "P")),
    "total_energy": number(0),
    # Dense P
    "P": Field("double", ("P", "P")),
    "D": Field("double", ("P",), 0),
    "is_root": Field("flag"),
    "amplification": number(0),
    "width": number(0),
    "wound_up": Field("flag"),
    # Candidates of the noise and their scores
    "noises": Field("double", ("E",), 0),
    "chosen": COUNT,
    "unit": Field("count", ("u",), -290, 290, sequence=True, optional=True),
    "least_unit": Field("count", (), -290, 290),
    "length_count": COUNT,
    "length_count_reviewed": COUNT,
    "length_sum": number(),
    "error_rows": COUNT,
    "scale_rows": COUNT,
    "error": Field("double", ("E",), 0),
    "surprise": Field("double", ("E",), 0),
    "scale": Field("double", ("D",), 0),
    "recent_scale": Field("double", ("D",), 0),
    "neighbours": Field("double", ("D",)),
    "last": Field("double", ("D",)),
    "unfitted": number(0),
    # Networks: see networks/per_layer.py
    "remembered": COUNT,
    "since_refresh": COUNT,
    "checked": Field("flag"),
    # Meter
    "meter_sums": Field("double", ("R", "C")),
    "meter_waiting": Field("double", ("R", "t")),
    "meter_gradients": COUNT,
    "meter_seeds": Field("count", ("g",), 0, MOST, sequence=True),
}
DTYPES = {"double": np.dtype(np.float64), "count": np.dtype(np.int64), "flag": np.dtype(np.int64)}


def to_arrays(s: State) -> dict[str, Array]:
    """All fields as arrays: a store as `rows` and `base`, parts with a prefix, None left out.

    The arrays may be the state's own.
    """
    arrays: dict[str, Array] = {}
    for name, value in vars(s).items():
        if name.startswith("_") or value is None:
            continue
        if name == "parts":
            for i, part in enumerate(value):
                arrays |= {f"{i}.{n}": a for n, a in to_arrays(part).items()}
        elif name == "store":
            arrays["rows"] = value.ops.to_numpy(value.rows[: value.stored])
            arrays["base"] = value.ops.to_numpy(value.base)
        elif name == "M":
            stored = s.store.stored
            arrays[name] = value[:stored, :stored]
        elif TABLE[name].kind in DTYPES:
            arrays[name] = np.asarray(value, DTYPES[TABLE[name].kind])
        else:
            arrays[name] = arithmetic(value).to_numpy(value)
    return arrays


def from_arrays(new: State, arrays: dict[str, Array]) -> State:
    """The state with these arrays, for a learner whose state is `new` before its first row.

    Raises ValueError unless the arrays are those of the table, for a learner of these sizes.
    """
    left = dict(arrays)
    made = _from_arrays(new, left)
    if left:
        raise ValueError(f"it has unknown arrays: {sorted(left)!s:.200}")
    return made


def _from_arrays(new: State, arrays: dict[str, Array], prefix: str = "") -> State:
    made, sizes = State(), _sizes(new)
    for name, value in vars(new).items():
        if name.startswith("_"):
            setattr(made, name, None)
        elif name == "parts":
            parts = [_from_arrays(part, arrays, f"{i}.") for i, part in enumerate(value)]
            made.parts = tuple(parts)
        elif name == "store":
            rows, base = (_checked(n, arrays, value.rows, sizes, prefix) for n in ("rows", "base"))
            made.store = _store(value, rows, base)
        else:
            absent = value is None and TABLE[name].kind == "real"
            like = _real_array(new) if absent else value
            setattr(made, name, _checked(name, arrays, like, sizes, prefix))
    if hasattr(made, "M"):
        capacity, stored = made.store.capacity, made.store.stored
        M = np.empty((capacity, capacity))
        M[:stored, :stored] = made.M
        made.M = M
    return made


def _real_array(s: State) -> Any:
    """An array of the learner's dtype and kind."""
    part = s.parts[0] if hasattr(s, "parts") else s
    return part.store.rows if hasattr(part, "store") else part.w


def _sizes(new: State) -> dict[str, int]:
    """The sizes of the capital letters."""
    sizes: dict[str, int] = {}
    values = dict(vars(new))
    if "store" in values:
        values["base"] = values["store"].base
    for name, value in values.items():
        field = TABLE.get(name)
        if field is not None and value is not None and field.sides is not ... and field.sides:
            pairs = zip(field.sides, np.shape(value), strict=True)
            sizes |= {letter: n for letter, n in pairs if letter.isupper()}
    return sizes


def _checked(
    name: str, arrays: dict[str, Array], like: Any, sizes: dict[str, int], prefix: str
) -> Any:
    """The field as the state holds it."""
    field, array = TABLE[name], arrays.pop(prefix + name, None)
    if array is None:
        if not field.optional:
            raise ValueError(f"it has no array {prefix}{name}")
        return None
    dtype = DTYPES.get(field.kind)
    if dtype is None:  # "real"
        dtype = numpy_dtype(like)
    if array.dtype != dtype:
        raise ValueError(f"{name} must be {dtype}; it is {array.dtype}")
    if field.sides is ...:
        if array.shape != np.shape(like):
            raise ValueError(f"{name} must have shape {np.shape(like)}; it has {array.shape}")
    else:
        expected = tuple(sizes.get(side, side) for side in field.sides)
        sizes |= {s: n for s, n in zip(expected, array.shape, strict=False) if isinstance(s, str)}
        if array.shape != tuple(sizes.get(side, side) for side in field.sides):
            raise ValueError(f"{name} must have shape {expected}; it has {array.shape}")
    validation.check_finite(name, array)
    if array.size and not (field.low <= array.min() and array.max() <= field.high):
        raise ValueError(f"{name} must be between {field.low:g} and {field.high:g}")
    if field.sequence:
        return tuple(array.tolist())
    if not field.sides:
        return bool(array) if field.kind == "flag" else array.item()
    if hasattr(like, "detach"):
        return like.new_tensor(np.ascontiguousarray(array))
    return array


def _store(like: Store, rows: Array, base: Array) -> Store:
    """A store of the kind of `like`."""
    convert = like.ops.convert
    buffer = like.ops.empty(like.rows, like.capacity, like.rows.shape[1])
    made = Store(like.ops, buffer, 0, like.ops.copy(convert(like.rows, base).T).T)
    return made.append(convert(like.rows, rows).T)
