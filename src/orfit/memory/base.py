"""What every memory is to the learner: a P that says where the parameters may still move."""

import math
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy.typing as npt

from orfit import door, tall
from orfit.door import Array


class Split(Protocol):
    """How a block of gradients G (p×n) lies to the past: P G = D B and Gᵀ P G = Bᵀ B.

    D (p×b) is never formed where it need not be: it shows through `displacement` alone.
    """

    @property
    def root(self) -> Array:
        """B (b×n), small. With noise = 0 it has full row rank and is a staircase."""

    @property
    def novelty(self) -> float:
        """How much of G is new, |G̃| / |G|: 0 where it is all spanned, 1 where nothing is."""

    def displacement(self, z: Array) -> tuple[Any, float]:
        """D z, tall, and its length."""


class Memory(ABC):
    """What is kept of the past gradients. See `docs/extending.md` to add one."""

    size: int | None = None  # p, known when the memory is first used
    _owned = False  # whether a learner has it

    @abstractmethod
    def bind(self, like: Any) -> None:
        """Get ready for gradients of this kind and length; a memory of another size objects."""

    @abstractmethod
    def split(self, G: Any, noise: float = 0.0, forgetting: float = 1.0) -> Split:
        """See how G lies to the past, faded by `forgetting` (in squares). Changes nothing."""

    @abstractmethod
    def fold(self, past: Any) -> None:
        """Take the G of that `Split` into the memory. Cannot fail."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """How many directions are held."""

    def settings(self) -> dict[str, Any]:
        """The arguments to make this memory again, as plain values."""
        return {}

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings().items())
        return f"{type(self).__name__}({settings})"

    @abstractmethod
    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and plain values that `restore` needs to go on bit-equally.

        Arrays may be the memory's own, which the next step changes.
        """

    @abstractmethod
    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        """Take up a state that `state` gave, after `bind`."""

    def owed(self) -> Any:
        """What past steps have still to add to w, p×q; None: nothing. Only a `walk` puts it off."""
        return None

    def forgive(self) -> None:  # noqa: B027 — most memories never owe anything
        """It has been added."""

    def claim(self, like: Any) -> None:
        """Bind, for one learner alone."""
        if self._owned:
            raise ValueError("this memory belongs to another learner; give each one of its own")
        self.bind(like)
        self._owned = True

    def _check_size(self, size: int) -> None:
        if self.size is not None and self.size != size:
            raise ValueError(
                f"this memory holds directions of {self.size} parameters, not {size}; "
                "give each learner a memory of its own"
            )


def taken(arrays: dict[str, Array], name: str, dtype: npt.DTypeLike, *shape: int | None) -> Array:
    """An array of a saved state, where it is what it should be; None stands for any size."""
    array = door.numbers(name, arrays[name], dtype)
    if array.ndim != len(shape) or any(
        expected not in (None, found) for expected, found in zip(shape, array.shape, strict=True)
    ):
        raise ValueError(f"{name} has shape {array.shape}")
    return array


def lengths(G: Any) -> Array:
    """The lengths of G's columns, which are finite or the model gave no usable gradient."""
    norms = tall.norms(G)
    if not all(map(math.isfinite, norms)):
        raise ValueError("the model's gradient is not finite at this datapoint")
    return norms
