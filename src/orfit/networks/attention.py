"""The computation of nn.MultiheadAttention in products whose inputs can be recorded.

Its own forward multiplies by fused weights inside of one function, where no hook sees it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from orfit.networks.gradients import Outer
from orfit.networks.rules import RULES, Rule, outer

Tensor = torch.Tensor
Record = Callable[[nn.Module, Any, Tensor], None]
# An input, and the part of the fused weights that multiplies it: 0 queries, 1 keys, 2 values.
Share = tuple[Tensor, int, int]


def fused(layer: nn.MultiheadAttention, share: Share, error: Tensor) -> Outer:
    """The gradients of a share of the fused weights, zero for the others."""
    x, first, last = share
    made = outer(x, error, layer.in_proj_bias is not None)
    around = (first * layer.embed_dim, (3 - last) * layer.embed_dim)
    return Outer(made.x, functional.pad(made.delta, around))


def _obstacle(layer: nn.MultiheadAttention) -> str | None:
    if layer.in_proj_weight is None:
        return "keys and values of other sizes have weights of their own"
    if layer.bias_k is not None or layer.add_zero_attn:
        return "add_bias_kv and add_zero_attn are not known"
    return None


RULES[nn.MultiheadAttention] = Rule(fused, ("in_proj_weight", "in_proj_bias"), "matrix", _obstacle)


def forward(
    layer: nn.MultiheadAttention,
    record: Record,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The layer's result; `record` is called for each product with the fused weights."""
    if query.ndim != 3:
        raise ValueError("attention must get many datapoints: (n, positions, size)")
    same = query is key and key is value
    if not layer.batch_first:
        query, key, value = (part.transpose(0, 1) for part in (query, key, value))
    W, b, size = layer.in_proj_weight, layer.in_proj_bias, layer.embed_dim

    def product(x: Tensor, first: int, last: int) -> Tensor:
        rows = slice(first * size, last * size)
        out = functional.linear(x, W[rows], None if b is None else b[rows])
        record(layer, (x.detach(), first, last), out)
        return out

    if same:
        q, k, v = product(query, 0, 3).chunk(3, dim=-1)
    else:
        q, k, v = (product(x, i, i + 1) for i, x in enumerate((query, key, value)))
    q, k, v = (
        part.reshape(*part.shape[:2], layer.num_heads, -1).transpose(1, 2) for part in (q, k, v)
    )
    scores = q @ k.mT / layer.head_dim**0.5
    for mask in (_spread(attn_mask, layer.num_heads), _spread(key_padding_mask, None)):
        if mask is not None:
            added = mask.dtype != torch.bool
            scores = scores + mask if added else scores.masked_fill(mask, -torch.inf)
    weights = scores.softmax(dim=-1)
    out = layer.out_proj((weights @ v).transpose(1, 2).flatten(2))
    out = out if layer.batch_first else out.transpose(0, 1)
    told = weights.mean(dim=1) if average_attn_weights else weights
    return out, told if need_weights else None


def _spread(mask: Tensor | None, heads: int | None) -> Tensor | None:
    """A mask in the shape of the scores: datapoints, heads, queries, keys."""
    if mask is None or (mask.ndim == 2 and heads is not None):
        return mask
    return mask[:, None, None] if heads is None else mask.reshape(-1, heads, *mask.shape[1:])
