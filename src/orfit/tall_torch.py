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


@tall.shared.register
def _(A: Tensor) -> Array | None:
    return A.detach().numpy() if A.device.type == "cpu" else None


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


@tall.finite.register
def _(A: Tensor) -> bool:
    return bool(torch.isfinite(A).all())


@tall.largest.register
def _(A: Tensor) -> float:
    return float(A.abs().max()) if A.numel() else 0.0


@tall.read.register
def _(rows: Tensor, base: Tensor, G: Tensor) -> tuple[Array, Array]:
    return np.hstack([_down(G.T @ rows.T), _down(G.T @ base.T)]), _down(G.T @ G)


@tall.written_out.register
def _(base: Tensor, rows: Tensor, shift: Array) -> Tensor:
    return torch.addmm(base, _up(base, shift), rows)


@tall.store.register
def _(rows: Tensor, start: int, N: Tensor, lengths: Array) -> None:
    torch.div(N.T, _up(N, lengths)[:, None], out=rows[start : start + len(lengths)])


@tall.fold.register
def _(
    rows: Tensor, stored: int, more: Any, stay: Any, gone: Any, Y: Array, base: Tensor, shift: Array
) -> None:
    k, kept = len(stay), len(stay) and stay[0] >= 0
    shares, moves = _up(rows, Y), _up(base, shift)
    length = max(1 << 12, tall.BLOCK // max(1, shift.shape[1]))
    for start in range(0, rows.shape[1], length):
        part = slice(start, start + length)
        Q = (
            rows[:stored, part].clone()
            if more is None
            else torch.cat([rows[:stored, part], more[part].T])
        )
        base[:, part].addmm_(moves, Q)
        folded = shares @ Q[gone]
        rows[:k, part] = folded + Q[stay] if kept else folded
