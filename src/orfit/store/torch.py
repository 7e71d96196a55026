"""The store for torch tensors, on any device.

Only small matrices leave the device, as float64 NumPy arrays.
"""

from typing import Any

import numpy as np
import torch

from orfit import validation
from orfit.store.host import SAFE, Arithmetic, numpy_dtype
from orfit.validation import Array

Tensor = torch.Tensor


def _to_host(values: Tensor) -> Array:
    return np.asarray(values.detach().cpu(), dtype=np.float64)


def _to_device(like: Tensor, values: Array) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(values), dtype=like.dtype, device=like.device)


class TorchArithmetic(Arithmetic):
    """Operations on p-sized tensors."""

    @staticmethod
    def empty(like: Tensor, rows: int, size: int) -> Tensor:
        return torch.empty((rows, size), dtype=like.dtype, device=like.device)

    @staticmethod
    def copy(A: Tensor) -> Tensor:
        return A.detach().clone()

    @staticmethod
    def side_by_side(parts: Any) -> Tensor:
        return torch.hstack(list(parts))

    @staticmethod
    def convert(like: Tensor, values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=like.dtype, device=like.device)

    @staticmethod
    def to_numpy(A: Tensor) -> Array:
        return np.asarray(A.detach().cpu())

    def inner(self, A: Tensor, B: Tensor) -> Array:
        return _to_host(A.T @ B)

    def gram(self, A: Tensor) -> Array:
        return _to_host(A.T @ A)

    @staticmethod
    def multiply(A: Tensor, c: Array, keep: float, out: Tensor) -> None:
        out.addmm_(A, _to_device(A, c), beta=keep)

    def combine(self, A: Tensor, c: Array) -> Tensor:
        return A @ _to_device(A, c)

    def subtract(self, G: Tensor, A: Tensor, c: Array) -> Tensor:
        if G.ndim == 1:
            return torch.addmv(G, A, _to_device(A, c), alpha=-1.0)
        # By rows, so that the columns of the result are contiguous.
        return torch.addmm(G.T, _to_device(A, c).T, A.T, alpha=-1.0).T

    def norms(self, G: Tensor) -> Array:
        lengths = _to_host(torch.linalg.vector_norm(G, dim=0))
        least, most = SAFE[numpy_dtype(G)]
        outside = ~((lengths > least) & (lengths < most))
        if outside.any() and len(G):  # squares leave the range of the dtype before lengths do
            scale = G.abs().amax(dim=0)
            unit = G / torch.where(scale > 0, scale, torch.ones_like(scale))
            scaled = _to_host(torch.linalg.vector_norm(unit, dim=0)) * _to_host(scale)
            lengths[outside] = scaled[outside]
        return lengths

    def _qr(self, G: Tensor) -> tuple[Tensor, Array]:
        Q, R = torch.linalg.qr(G)
        return Q, _to_host(R)

    @staticmethod
    def finite(A: Tensor) -> bool:
        return bool(torch.isfinite(A).all())

    def largest(self, A: Tensor) -> float:
        return float(A.abs().max()) if A.numel() else 0.0


TORCH = TorchArithmetic()


def finite_tensor(name: str, value: object, like: Tensor | None) -> Tensor:
    """The argument `name` as a finite tensor of the kind of `like`, or of its own kind."""
    if isinstance(value, Tensor):
        given = value.detach()
    else:
        given = torch.as_tensor(validation.numbers(name, value))
    kept = given.dtype if given.dtype in (torch.float32, torch.float64) else torch.float64
    made = given.to(kept) if like is None else given.to(like)
    if not TORCH.finite(made):
        raise ValueError(f"{name} must be finite in {made.dtype}")
    return made
