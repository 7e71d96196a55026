"""The operations of `tall` for torch tensors, on whatever device they are.

Only what is small leaves the device: coefficients and lengths, as float64 for NumPy.
"""

from typing import Any

import numpy as np
import torch

from orfit import small, tall
from orfit.door import Array

Tensor = torch.Tensor


def _down(values: Tensor) -> Array:
    """Small numbers, to NumPy."""
    return np.asarray(values.detach().cpu(), dtype=np.float64)


def _up(like: Tensor, values: Array) -> Tensor:
    """Small numbers, to the device."""
    return torch.as_tensor(np.ascontiguousarray(values), dtype=like.dtype, device=like.device)


@tall.empty.register
def _(like: Tensor, rows: int, size: int) -> Tensor:
    return torch.empty((rows, size), dtype=like.dtype, device=like.device)


@tall.copy.register
def _(A: Tensor) -> Tensor:
    return A.detach().clone()


@tall.convert.register
def _(like: Tensor, values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)


@tall.to_numpy.register
def _(A: Tensor) -> Array:
    return np.asarray(A.detach().cpu())


@tall.inner.register
def _(A: Tensor, B: Tensor) -> Array:
    return _down(A.T @ B)


@tall.gram.register
def _(A: Tensor) -> Array:
    return _down(A.T @ A)


@tall.combine.register
def _(A: Tensor, c: Array) -> Tensor:
    return A @ _up(A, c)


@tall.subtract.register
def _(G: Tensor, A: Tensor, c: Array) -> Tensor:
    if G.ndim == 1:
        return torch.addmv(G, A, _up(A, c), alpha=-1.0)
    # By rows, so that the columns of the result are contiguous.
    return torch.addmm(G.T, _up(A, c).T, A.T, alpha=-1.0).T


@tall.norms.register
def _(G: Tensor) -> Array:
    lengths = _down(torch.linalg.vector_norm(G, dim=0))
    least, most = tall.SAFE[tall.numpy_dtype(G)]
    outside = ~((lengths > least) & (lengths < most))
    if outside.any() and len(G):  # squares leave the range of the dtype before lengths do
        scale = G.abs().amax(dim=0)
        unit = G / torch.where(scale > 0, scale, torch.ones_like(scale))
        scaled = _down(torch.linalg.vector_norm(unit, dim=0)) * _down(scale)
        lengths[outside] = scaled[outside]
    return lengths


@tall.norm.register
def _(g: Tensor) -> float:
    return float(tall.norms(g[:, None])[0])


@tall.orthonormalise.register
def _(
    G: Tensor, C: Array, norms: Array, makers: small.Makers | None
) -> tuple[Tensor, Array, small.Makers | None]:
    if G.shape[1] == 1:
        return tall.one_direction(G, C, norms, makers)
    Q, R = torch.linalg.qr(G)
    return tall.staircase(Q, _down(R), C, norms, makers)


# So many at a time that what is written has just been computed, and is in the cache.
BLOCK = 1 << 14


@tall.rotate.register
def _(rows: Tensor, W: Array, more: Tensor, V: Array) -> None:
    k, kept = W.shape
    turn, add = _up(rows, W.T), _up(rows, V.T)
    for start in range(0, rows.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        rows[:kept, part] = turn @ rows[:k, part] + add @ more[part].T


@tall.exchange.register
def _(rows: Tensor, stay: Any, Y: Array, more: Tensor, lengths: Array) -> None:
    k, stored, shares = len(stay), len(Y) - len(lengths), _up(rows, Y.T)
    arrivals, leaving = tall.moves(stay, stored)
    for start in range(0, rows.shape[1], BLOCK):
        part = slice(start, start + BLOCK)
        left = rows[leaving, part]  # a copy
        for place, j in arrivals:
            new = rows[j, part] if j < stored else more[part, j - stored] / lengths[j - stored]
            rows[place, part] = new
        rows[:k, part] += (
            shares[:, leaving] @ left
            + shares[:, k:stored] @ rows[k:stored, part]
            + shares[:, stored:] @ more[part].T
        )
