"""The memory of a matrix of weights: the covariances of its inputs and of its errors.

If x and δ are independent (the assumption of K-FAC; Martens and Grosse, 2015), the sum over all
gradients of a layer is a Kronecker product,

    Σ vec(g) vec(g)ᵀ ≈ S ⊗ A / N,    A = Σ gᵀg,   S = Σ g gᵀ,   N = Σ |g|²

so P is diagonal in the principal axes V of S and U of A: I − P is D = s a / (s a + N R) at each
pair of axes. Pairs along which hardly anything was seen are left out, D = 0. D is smooth in both,
so that a few products of functions of s and of a represent it: D ≈ Σ_r left_r right_rᵀ. With these,
GᵀPG of outer products needs no array of the size of G.

For a matrix of one row S = N, and P = R (A + R)⁻¹ takes all covariances of the parameters.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from orfit.networks.gradients import Matrices, Outer, Product, gram
from orfit.networks.unit_memory import Direction, Operation, UnitMemory, align, principal_axes

Tensor = torch.Tensor
CUT = 0.05  # of R: P is taken to be 1 along pairs of axes on which less was seen
TERMS = 24  # of D, at most


@dataclass(frozen=True, eq=False)
class TwoSided(UnitMemory):
    """The covariances of both sides, and their axes at the last refresh."""

    A: Tensor
    S: Tensor
    U: Tensor
    V: Tensor
    a: Tensor
    s: Tensor  # over N R
    left: Tensor  # terms of D
    right: Tensor

    @classmethod
    def empty(cls, outputs: int, inputs: int, like: Tensor) -> "TwoSided":
        A, S = (align(like.new_zeros(n, n)) for n in (inputs, outputs))
        U, V = (like.new_zeros(n, 0) for n in (inputs, outputs))
        no_values, no_terms = like.new_zeros(0), like.new_zeros(0, 0)
        return cls(A, S, U, V, no_values, no_values, no_terms, no_terms)

    def layout(self, tag: str) -> dict[str, tuple[Any, ...]]:
        outputs, inputs, along, across = len(self.S), len(self.A), f"k{tag}", f"l{tag}"
        axes = {"U": (inputs, along), "V": (outputs, across), "a": (along,), "s": (across,)}
        terms = {"left": (f"r{tag}", across), "right": (f"r{tag}", along)}
        return {"A": (inputs, inputs), "S": (outputs, outputs)} | axes | terms

    @property
    def rank(self) -> int:
        return len(self.a) * len(self.s)

    @cached_property
    def D(self) -> Tensor:
        """I − P along each pair of axes."""
        return saturate(torch.outer(self.s, self.a))

    def accumulate(self, g: Matrices) -> list[Operation]:
        return [(self.A, g.add_inputs), (self.S, g.add_outputs)]

    def refresh(self, R: float) -> "TwoSided":
        N = self.A.trace()
        if not N > 0:
            return self
        (a, U), (s, V) = principal_axes(self.A), principal_axes(self.S)
        s = s / (N * R)
        least = max(CUT, torch.finfo(a.dtype).eps)
        along, across = a * s.max() > least, s * a.max() > least
        a, s, U, V = a[along], s[across], align(U[:, along]), align(V[:, across])
        left, right = map(align, _factor(s, a))
        return replace(self, U=U, V=V, a=a, s=s, left=left, right=right)

    def project(self, g: Matrices, R: float) -> tuple[Tensor, Direction]:
        if isinstance(g, Outer) and g.single:
            return self._project_single(g)
        K = gram(g.matrices)
        if not self.rank:
            return K, g.weighted
        if isinstance(g, Outer):
            along = (g.delta @ self.V).mT @ (g.x @ self.U)
        else:
            along = self.V.T @ g.matrices @ self.U

        def direction(z: Tensor) -> Tensor:
            return self._subtract(g.summed(z), self.D * torch.tensordot(z, along, 1))

        return K - gram(along * self.D.sqrt()), direction

    def _project_single(self, g: Outer) -> tuple[Tensor, Direction]:
        """The same if each gradient is one outer product."""
        x, delta = g.x[:, 0], g.delta[:, 0]
        K = (x @ x.T) * (delta @ delta.T)
        if not self.rank:
            return K, g.weighted
        xa, da = x @ self.U, delta @ self.V
        left, right = self._terms()
        for u, v in zip(left, right, strict=True):
            K = K - ((da * u) @ da.T) * ((xa * v) @ xa.T)

        def direction(z: Tensor) -> Product:
            back, along = z[:, None] * delta, z[:, None] * da
            T = along.T @ xa  # P subtracts V C Uᵀ, C = D T
            C, plain = self.D * T, Product.of(back, x)
            squared = plain.squared - (C * (2 * T - C)).sum(dtype=torch.float64)
            if len(left) * len(z) < min(C.shape):  # a row for each term and datapoint
                outer = (left[:, None] * -along).flatten(0, 1) @ self.V.T
                inner = (right[:, None] * xa).flatten(0, 1) @ self.U.T
            elif len(self.a) <= len(self.s):  # or one for each axis of a side
                outer, inner = (self.V @ -C).T, self.U.T
            else:
                outer, inner = self.V.T, -C @ self.U.T
            both = torch.cat([back, outer]), torch.cat([x, inner])
            if squared <= torch.finfo(x.dtype).eps ** 0.5 * plain.squared:  # digits were lost
                squared = (both[0].T @ both[1]).square().sum(dtype=torch.float64)
            return Product(*both, squared.clamp(min=0))

        return K, direction

    def _terms(self) -> tuple[Tensor, Tensor]:
        """D as a sum of products: the stored terms, or the rows or columns of D if they are few."""
        if len(self.left):
            return self.left, self.right
        identity = torch.eye(min(self.D.shape), dtype=self.D.dtype, device=self.D.device)
        return (identity, self.D) if len(self.s) <= len(self.a) else (self.D.T, identity)

    def _subtract(self, M: Tensor, C: Tensor) -> Tensor:
        """M − V C Uᵀ, in place, in the order that takes less work."""
        first_outputs = C.shape[1] * (self.V.numel() + M.numel())
        first_inputs = C.shape[0] * (self.U.numel() + M.numel())
        if first_outputs <= first_inputs:
            return M.addmm_(self.V @ C, self.U.T, alpha=-1)
        return M.addmm_(self.V, C @ self.U.T, alpha=-1)


def saturate(seen: Tensor) -> Tensor:
    """Compute x / (1 + x)."""
    return seen / (1 + seen)


def _factor(s: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """D as a sum of products, up to half of the digits of its dtype.

    Its columns are one function, x / (1 + x), of s a. It is smooth in log a, so its values at a few
    nodes between the least a and the largest span all columns. If D has few rows or columns, there
    are no terms.
    """
    if min(len(s), len(a)) <= TERMS:
        return s.new_zeros(0, len(s)), s.new_zeros(0, len(a))
    ends = a.min().log(), a.max().log()
    angles = torch.linspace(0, torch.pi, TERMS, dtype=a.dtype, device=a.device)
    nodes = (ends[0] + (ends[1] - ends[0]) * (1 - angles.cos()) / 2).exp()
    Q, _ = torch.linalg.qr(saturate(torch.outer(s, nodes)))
    D = saturate(torch.outer(s, a))
    W, sizes, Z = torch.linalg.svd(Q.T @ D, full_matrices=False)
    some = sizes > torch.finfo(a.dtype).eps ** 0.5
    return (Q @ W[:, some]).T, sizes[some, None] * Z[some]
