"""Batches as networks take them: a tensor, tensors by keyword, or a tuple of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from orfit import validation

Tensor = torch.Tensor


def accept(name: str, inputs: Any, like: Tensor) -> Any:
    """A user's batch as tensors on the device of `like`, real numbers in its dtype."""
    if isinstance(inputs, Mapping):
        return {key: accept(f"{name}[{key!r}]", value, like) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(accept(f"{name}[{i}]", value, like) for i, value in enumerate(inputs))
    if inputs is None or isinstance(inputs, bool):  # an option of the module
        return inputs
    if isinstance(inputs, Tensor):
        given = inputs.detach()
    else:
        array = np.asarray(inputs)
        kept = array.dtype.kind in "iub"  # such as tokens
        given = torch.as_tensor(array if kept else validation.numbers(name, inputs))
    given = given.clone() if given.is_inference() else given
    if not given.is_floating_point():
        return given.to(like.device)
    given = given.to(like)
    if not bool(torch.isfinite(given).all()):
        raise ValueError(f"{name} must be finite in {given.dtype}")
    return given


def each(use: Callable[[Tensor], Any], inputs: Any) -> Any:
    """Apply `use` to every tensor."""
    if isinstance(inputs, dict):
        return {key: each(use, value) for key, value in inputs.items()}
    if isinstance(inputs, tuple):
        return tuple(each(use, value) for value in inputs)
    return use(inputs) if isinstance(inputs, Tensor) else inputs


def part(inputs: Any, start: int, stop: int) -> Any:
    """Some of the datapoints."""
    return each(lambda tensor: tensor[start:stop], inputs)


def length(name: str, inputs: Any) -> int:
    """The number of datapoints: every tensor has them along its first axis."""
    sides: set[int | None] = set()
    each(lambda tensor: sides.add(len(tensor) if tensor.ndim else None), inputs)
    if len(sides) != 1 or None in sides:
        raise ValueError(f"{name} must hold many datapoints, one for each index of the first axis")
    n = sides.pop()
    assert n is not None
    return n


def pair(item: Any) -> tuple[Any, Any]:
    """The inputs and labels in an item of a loader; labels are None if there are none."""
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    if isinstance(item, list) and len(item) == 1:
        return item[0], None
    if isinstance(item, Mapping) and "labels" in item:
        return {name: value for name, value in item.items() if name != "labels"}, item["labels"]
    return item, None


def call(module: nn.Module, inputs: Any) -> Any:
    """Call the module with inputs by position or by keyword."""
    try:
        if isinstance(inputs, dict):
            return module(**inputs)
        return module(*inputs) if isinstance(inputs, tuple) else module(inputs)
    except (RuntimeError, TypeError, IndexError) as error:
        raise ValueError(f"the network failed on {_described(inputs)}: {error}") from error


def tensor_of(
    returned: Any, remedy: str = "return a tensor, or something that has .logits"
) -> Tensor:
    """The tensor in the result of a module."""
    if isinstance(returned, Mapping) and "logits" in returned:
        returned = returned["logits"]
    returned = getattr(returned, "logits", returned)
    if not isinstance(returned, Tensor):
        raise ValueError(f"the network must {remedy}; it returned {type(returned).__name__}")
    return returned


def _described(inputs: Any) -> str:
    shapes: list[str] = []
    each(lambda tensor: shapes.append(f"{tensor.dtype} {tuple(tensor.shape)}"), inputs)
    return f"inputs {', '.join(shapes)}"
