"""What was seen of a matrix of weights, on the side of its inputs alone.

P = I ⊗ P_A with P_A = R (A / outputs + R)⁻¹: errors are taken to come back alike along all outputs,
as in recursive least squares for each output. No axes are looked for, and P is never stale.
"""

from typing import Any

import torch

from orfit.networks.gradients import Matrices, Outer, gram
from orfit.networks.two_sided import Moved

Tensor = torch.Tensor


class InputSide:
    """A = Σ gᵀg over outputs, and P_A."""

    held = ("A", "P")

    def __init__(self, outputs: int, inputs: int, like: Tensor) -> None:
        self.outputs = outputs
        self.A = like.new_zeros(inputs, inputs)
        self.P = torch.eye(inputs, dtype=like.dtype, device=like.device)

    def sides(self, tag: str) -> dict[str, tuple[Any, ...]]:
        return {"A": tuple(self.A.shape), "P": tuple(self.P.shape)}

    @property
    def rank(self) -> int:
        return int(bool(self.A.any())) * len(self.A) * self.outputs

    def with_gradients(self, g: Matrices, R: float) -> dict[str, Any]:
        if isinstance(g, Outer) and g.single:
            # Few at a time: P ← P − P hᵀ (h P hᵀ + R)⁻¹ h P, which `look` frees of rounding.
            weight = (g.delta[:, 0].square().sum(1) / self.outputs).sqrt()
            h = weight[:, None] * g.x[:, 0]
            Ph = h @ self.P
            inner = Ph @ h.T
            inner.diagonal().add_(R)
            root = torch.linalg.cholesky(inner)
            B = torch.linalg.solve_triangular(root, Ph, upper=False)
            return {"A": torch.addmm(self.A, h.T, h), "P": torch.addmm(self.P, B.T, B, alpha=-1)}
        A = self.A + g.covariances()[0] / self.outputs
        return {"A": A, "P": _damped(A, R)}

    def look(self, R: float) -> dict[str, Any]:
        return {"P": _damped(self.A, R)}

    def against(self, g: Matrices, R: float) -> tuple[Tensor, Moved]:
        if isinstance(g, Outer):
            damped = Outer(g.x @ self.P, g.delta)
            if g.single:
                x, delta = g.x[:, 0], g.delta[:, 0]
                return (damped.x[:, 0] @ x.T) * (delta @ delta.T), damped.weighted
            return damped.matrices.flatten(1) @ g.matrices.flatten(1).T, damped.weighted
        root = torch.linalg.cholesky(self.P)
        return gram(g.matrices @ root), lambda z: g.weighted(z) @ self.P


def _damped(A: Tensor, R: float) -> Tensor:
    """R (A + R)⁻¹."""
    shifted = A.clone()
    shifted.diagonal().add_(R)
    return R * torch.cholesky_inverse(torch.linalg.cholesky(shifted))
