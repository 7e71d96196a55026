"""The operations of `tall` for torch tensors, on whatever device they are.

Only what is small leaves the device: coefficients and lengths, as float64 for NumPy.
"""

from typing import Any

import numpy as np
import torch

from orfit import door, tall
from orfit.door import Array

Tensor = torch.Tensor


def _down(values: Tensor) -> Array:
    """Small numbers, to NumPy."""
    return np.asarray(values.detach().cpu(), dtype=np.float64)


def _up(like: Tensor, values: Array) -> Tensor:
    """Small numbers, to the device."""
    return torch.as_tensor(np.ascontiguousarray(values), dtype=like.dtype, device=like.device)


def numbers(name: str, value: object, like: Tensor | None) -> Tensor:
    """What a user hands in, as finite numbers: of the kind of `like`, or of its own."""
    given = (
        value.detach() if isinstance(value, Tensor) else torch.as_tensor(door.numbers(name, value))
    )
    kept = given.dtype if given.dtype in (torch.float32, torch.float64) else torch.float64
    made = given.to(kept) if like is None else given.to(like)
    if not tall.finite(made):
        raise ValueError(f"{name} must be finite in {made.dtype}")
    return made


@tall.empty.register
def _(like: Tensor, rows: int, size: int) -> Tensor:
    return torch.empty((rows, size), dtype=like.dtype, device=like.device)


@tall.copy.register
def _(A: Tensor) -> Tensor:
    return A.detach().clone()


@tall.beside.register
def _(A: Tensor, *others: Tensor) -> Tensor:
    return torch.hstack([A, *others])


@tall.convert.register
def _(like: Tensor, values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)


@tall.to_numpy.register
def _(A: Tensor) -> Array:
    return np.asarray(A.detach().cpu())


@tall.shared_of_another.register
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


@tall.qr.register
def _(G: Tensor) -> tuple[Tensor, Array]:
    Q, R = torch.linalg.qr(G)
    return Q, _down(R)


@tall.exponents.register
def _(G: Tensor) -> Array:
    powers = torch.frexp(G[G != 0]).exponent - tall.LOWEST
    return np.asarray(torch.bincount(powers, minlength=tall.POWERS).cpu())


@tall.finite.register
def _(A: Tensor) -> bool:
    return bool(torch.isfinite(A).all())


@tall.largest.register
def _(A: Tensor) -> float:
    return float(A.abs().max()) if A.numel() else 0.0
