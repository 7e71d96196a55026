"""What was seen of a matrix of weights, on the side of its inputs alone.

P = I ⊗ P_A with P_A = R (A / outputs + R)⁻¹: errors are taken to come back alike along all outputs,
as in recursive least squares for each output. No axes are looked for, and P is never stale.
"""

from typing import Any

import torch

from orfit.networks.gradients import Matrices, Outer, gram
from orfit.networks.layout import aligned
from orfit.networks.two_sided import Changes, Moved, damped

Tensor = torch.Tensor


class InputSide:
    """A = Σ gᵀg over outputs, and P_A."""

    held = ("A", "P")

    def __init__(self, outputs: int, inputs: int, like: Tensor) -> None:
        self.outputs = outputs
        self.A = aligned(like.new_zeros(inputs, inputs))
        self.P = aligned(torch.eye(inputs, dtype=like.dtype, device=like.device))
        self._last: tuple[Outer, int, Tensor] | None = None

    def sides(self, tag: str) -> dict[str, tuple[Any, ...]]:
        return {"A": tuple(self.A.shape), "P": tuple(self.P.shape)}

    @property
    def rank(self) -> int:
        return int((self.A.diagonal() > 0).sum()) * self.outputs

    def changes(self, g: Matrices, R: float) -> Changes:
        if not (isinstance(g, Outer) and g.single):
            A = self.A.clone()
            g.add_inputs(A, 1 / self.outputs)
            return self._anew(A, R)
        # Few at a time: P ← P − P hᵀ (h P hᵀ + R)⁻¹ h P, which `look` frees of rounding.
        weight = (g.delta[:, 0].square().sum(1) / self.outputs).sqrt()
        h, Ph = weight[:, None] * g.x[:, 0], weight[:, None] * self._damped(g)[:, 0]
        inner = Ph @ h.T
        inner.diagonal().add_(R)
        root, failed = torch.linalg.cholesky_ex(inner)
        if int(failed):  # rounding in P is larger than R
            return self._anew(self.A.addmm(h.T, h), R)
        B = torch.linalg.solve_triangular(root, Ph, upper=False)
        return [
            (self.A, lambda held: held.addmm_(h.T, h)),
            (self.P, lambda held: held.addmm_(B.T, B, alpha=-1)),
        ]

    def _anew(self, A: Tensor, R: float) -> Changes:
        """Let A be this, and P what follows from it."""
        P = damped(A, R)
        return [(self.A, lambda held: held.copy_(A)), (self.P, lambda held: held.copy_(P))]

    def _damped(self, g: Outer) -> Tensor:
        """The inputs, by P; a step asks twice."""
        version = self.P._version
        if self._last is None or self._last[0] is not g or self._last[1] != version:
            self._last = g, version, g.x @ self.P
        return self._last[2]

    def look(self, R: float) -> dict[str, Any]:
        return {"P": damped(self.A, R)}

    def against(self, g: Matrices, R: float) -> tuple[Tensor, Moved]:
        if isinstance(g, Outer):
            less = Outer(self._damped(g), g.delta)
            if g.single:
                x, delta = g.x[:, 0], g.delta[:, 0]
                return (less.x[:, 0] @ x.T) * (delta @ delta.T), less.weighted
            return less.matrices.flatten(1) @ g.matrices.flatten(1).T, less.weighted
        root, failed = torch.linalg.cholesky_ex(self.P)
        if int(failed):
            K = (g.matrices @ self.P).flatten(1) @ g.matrices.flatten(1).T
            return K, lambda z: g.summed(z) @ self.P
        return gram(g.matrices @ root), lambda z: g.summed(z) @ self.P
