"""More features or heads, as if they had been there from the start, with zeros for data.

A gradient then has zeros where the new features are, so all that is tall gets rows of zeros; and
what there is one of for each head gets zeros, too.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit.door import Array


@dataclass(frozen=True)
class Growth:
    """So many more features, whose parameters begin at `at`, and more heads than there were."""

    at: int
    features: int
    heads: int  # before
    more_heads: int

    def tall(self, A: Array, axis: int = 0) -> Array:
        """A with zeros for the new features along that axis, which has p."""
        return np.insert(A, np.full(self.features, self.at), 0, axis=axis)

    def wide(self, A: Array, axis: int) -> Array:
        """A with zeros for the new heads along that axis, which has all heads of each guess."""
        ends = np.arange(self.heads, A.shape[axis] + 1, self.heads)
        return np.insert(A, np.repeat(ends, self.more_heads), 0, axis=axis)

    def both(self, w: Array) -> Array:
        """Parameters, p×q, with zeros for both, columns contiguous."""
        return np.asfortranarray(self.wide(self.tall(w), 1))

    def places(self, size: int) -> Array:
        """Where the features are now that there were, of so many."""
        return np.delete(np.arange(size + self.features), slice(self.at, self.at + self.features))

    @property
    def new(self) -> slice:
        """Where the new ones are."""
        return slice(self.at, self.at + self.features)


def refuse(part: Any, why: str) -> None:
    """Say that a part of a learner cannot grow."""
    raise ValueError(f"{part!r} cannot grow: {why}")
