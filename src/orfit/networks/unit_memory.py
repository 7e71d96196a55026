"""What the memory of a unit provides: P of its parameters, and the tensors that determine P."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch

from orfit.networks.gradients import Product
from orfit.validation import Array

Tensor = torch.Tensor
Direction = Callable[[Tensor], Tensor | Product]  # computes P G z from z
Operation = tuple[Tensor, Callable[[Tensor], Any]]  # a tensor, and one change of it in place

ALIGNMENT = 16  # numbers: the rows of wide matrices begin at multiples of it
WIDE = 128  # columns


@dataclass(frozen=True, eq=False)
class UnitMemory(ABC):
    """The fields of a subclass are tensors.

    Sums over gradients change in place (`accumulate`). All others are replaced: `refresh` returns a
    new memory, which shares the sums.
    """

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def layout(self, tag: str) -> dict[str, tuple[Any, ...]]:
        """The sides of the tensors for `schema.arranged`. Letters are unique by their tag."""
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def restored(self, arrays: Mapping[str, Array]) -> Self:
        """The memory with these arrays as its tensors."""
        pairs = [(name, t, torch.tensor(arrays[name])) for name, t in self.tensors.items()]
        return replace(self, **{name: align(saved.to(like)) for name, like, saved in pairs})

    @property
    @abstractmethod
    def rank(self) -> int:
        """The number of directions along which P is not 1."""

    @abstractmethod
    def project(self, g: Any, R: float) -> tuple[Tensor, Direction]:
        """Return GᵀPG and the function that computes P G z."""

    @abstractmethod
    def accumulate(self, g: Any) -> list[Operation]:
        """Return the changes in place that add gradients to the sums."""

    @abstractmethod
    def refresh(self, R: float) -> Self:
        """Recompute what P needs from the sums."""


def align(tensor: Tensor) -> Tensor:
    """Copy a wide matrix so that its rows begin at multiples of 16 numbers.

    An addition in place to rows of 785 contiguous numbers takes two to five times as long as one to
    rows that are 800 apart. A restored memory has the same layout, so that it rounds equally.
    """
    if tensor.ndim != 2 or tensor.shape[1] < WIDE or not tensor.shape[1] % ALIGNMENT:
        return tensor.contiguous()
    rows, columns = tensor.shape
    padded = tensor.new_zeros(rows, -(-columns // ALIGNMENT) * ALIGNMENT)
    return padded[:, :columns].copy_(tensor)


def principal_axes(A: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of a covariance, not negative, and its eigenvectors."""
    try:
        a, U = torch.linalg.eigh(A)
    except RuntimeError:  # no convergence, which happens in single precision if rows are few
        a, U = (part.to(A) for part in torch.linalg.eigh(A.double()))
    return a.clamp(min=0), U
