"""The supported layers: the gradients of each kind from its input and its error."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from orfit.networks.gradients import Dense, Outer, Rows

Tensor = torch.Tensor
Factors = Callable[[Any, Any, Tensor], Any]
Convolution = nn.Conv1d | nn.Conv2d
Norm = nn.LayerNorm | nn.GroupNorm | nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def _none(layer: Any) -> None:
    """No obstacle for any layer of the class."""


@dataclass(frozen=True)
class Rule:
    """How a layer's gradients are computed.

    factors: a function of the layer, its input, and the error at its output, for many datapoints.
    names: the parameters, columns side by side.
    kind: "matrix", "vector" or "rows".
    obstacle: returns why the rule does not apply to a layer of the class, or None if it does.
    """

    factors: Factors
    names: tuple[str, ...]
    kind: str
    obstacle: Callable[[Any], str | None] = _none


RULES: dict[type, Rule] = {}


def register_layer(
    layer: type, factors: Factors, names: Sequence[str] = ("weight", "bias"), kind: str = "matrix"
) -> None:
    """Let `PerLayer` learn a class of layers of your own.

    factors: a function of the layer, its input and the error, the gradient at its output, both with
        the datapoints first. For a "matrix" it returns (x, δ), n×inputs and n×outputs, or with
        positions between, n×T×…: the gradient of the weights, outputs×inputs, is Σ δ xᵀ. For a
        "vector", the gradients themselves, n×p.
    names: the parameters, side by side: each has `outputs` rows in a matrix, so that a bias is one
        more column, whose x is 1; in a vector, one follows the other.

    Before the first step the sum of the gradients is compared with torch's own.

    Examples:
        >>> import torch
        >>> class Gain(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.gain = torch.nn.Parameter(torch.ones(3))
        ...     def forward(self, x):
        ...         return self.gain * x
        >>> orfit.register_layer(Gain, lambda layer, x, error: x * error, ["gain"], "vector")
        >>> learner = orfit.PerLayer(torch.nn.Sequential(Gain(), torch.nn.Linear(3, 2)))
        >>> learner.learn(torch.eye(3), [0, 1, 1]).residual.shape
        (3,)
    """
    if not isinstance(layer, type) or not issubclass(layer, nn.Module):
        raise ValueError(f"layer must be a class of torch modules; it is {layer!r}")
    if kind not in ("matrix", "vector"):
        raise ValueError(f'kind must be "matrix" or "vector"; it is {kind!r}')
    RULES[layer] = Rule(factors, tuple(names), kind)


def rule_of(layer: nn.Module) -> Rule | None:
    """The rule of the layer's class, or of its nearest base class."""
    return next((RULES[kind] for kind in type(layer).__mro__ if kind in RULES), None)


def linear(layer: nn.Linear, x: Tensor, error: Tensor) -> Outer:
    return outer(x, error, layer.bias is not None)


def outer(x: Tensor, error: Tensor, bias: bool) -> Outer:
    """Inputs (n, …, inputs) and errors (n, …, outputs); a bias is a weight whose input is 1."""
    x = x.reshape(len(x), -1, x.shape[-1])
    x = functional.pad(x, (0, 1), value=1.0) if bias else x
    return Outer(x, error.reshape(len(error), -1, error.shape[-1]))


def convolution(layer: Convolution, x: Tensor, error: Tensor) -> Outer | Dense:
    """Each position is an outer product of a patch and an error, or of their parts by group."""
    flat = isinstance(layer, nn.Conv1d)
    sides = [(1,) * flat + tuple(s) for s in (layer.kernel_size, layer.dilation, layer.stride)]
    ends = list(layer._reversed_padding_repeated_twice)
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    x = functional.pad(x, ends, mode=mode)
    x, error = (x[:, :, None], error[:, :, None]) if flat else (x, error)
    kernel, dilation, stride = sides
    patches = functional.unfold(x, kernel, dilation=dilation, stride=stride).mT  # n×T×(c k k)
    delta = error.flatten(2).mT
    if layer.groups == 1:
        return outer(patches, delta, layer.bias is not None)
    n, T, groups = len(x), patches.shape[1], layer.groups
    by_group = patches.reshape(n, T, groups, -1).permute(0, 2, 1, 3)
    errors = delta.reshape(n, T, groups, -1).permute(0, 2, 3, 1)
    made = (errors @ by_group).flatten(1, 2)  # n×outputs×columns
    if layer.bias is not None:
        made = torch.cat([made, delta.sum(1)[:, :, None]], 2)
    return Dense(made)


def embedding(layer: nn.Embedding, x: Tensor, error: Tensor) -> Rows:
    delta = error.reshape(len(x), -1, error.shape[-1])
    ids = x.reshape(len(x), -1)
    if layer.padding_idx is not None:
        delta = delta * (ids != layer.padding_idx)[..., None]
    return Rows(ids, delta, layer.num_embeddings)


def norm(layer: Norm, x: Tensor, error: Tensor) -> Tensor:
    """The gradients of the weights, then those of the biases."""
    if isinstance(layer, nn.LayerNorm):
        normal = functional.layer_norm(x, layer.normalized_shape, None, None, layer.eps)
        over = tuple(range(1, x.ndim - len(layer.normalized_shape)))
    else:
        over = tuple(range(2, x.ndim))
        if isinstance(layer, nn.GroupNorm):
            normal = functional.group_norm(x, layer.num_groups, None, None, layer.eps)
        else:
            moments = layer.running_mean, layer.running_var
            normal = functional.batch_norm(x, *moments, None, None, False, 0.0, layer.eps)
    both = [error * normal] + ([error] if layer.bias is not None else [])
    return torch.cat([(g.sum(over) if over else g).flatten(1) for g in both], 1)


def _without_tables(layer: nn.Embedding) -> str | None:
    if layer.sparse:
        return "its gradients are sparse"
    return "max_norm changes it when it is used" if layer.max_norm is not None else None


def _with_moments(layer: Any) -> str | None:
    return None if layer.track_running_stats else "without running statistics datapoints mix"


BOTH = ("weight", "bias")
RULES |= {
    nn.Linear: Rule(linear, BOTH, "matrix"),
    nn.Conv1d: Rule(convolution, BOTH, "matrix"),
    nn.Conv2d: Rule(convolution, BOTH, "matrix"),
    nn.Embedding: Rule(embedding, ("weight",), "rows", _without_tables),
    nn.LayerNorm: Rule(norm, BOTH, "vector"),
    nn.GroupNorm: Rule(norm, BOTH, "vector"),
    nn.modules.batchnorm._BatchNorm: Rule(norm, BOTH, "vector", _with_moments),
}
