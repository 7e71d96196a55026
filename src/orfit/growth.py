"""More features or heads, as if they had been there from the start, with zeros for data.

Gradients then have zeros at the new features, so arrays with p numbers get zeros there. Arrays with
one number for each head get zeros for the new heads.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from orfit.validation import Array


@dataclass(frozen=True)
class Growth:
    """The number of new features, whose parameters begin at `at`, and of new heads."""

    at: int
    features: int
    heads: int  # before
    more_heads: int

    def insert_features(self, A: Array, axis: int = 0) -> Array:
        """A with zeros for the new features along that axis, whose length is p."""
        return np.insert(A, np.full(self.features, self.at), 0, axis=axis)

    def insert_heads(self, A: Array, axis: int) -> Array:
        """A with zeros for the new heads along that axis, which has all heads of each candidate."""
        ends = np.arange(self.heads, A.shape[axis] + 1, self.heads)
        return np.insert(A, np.repeat(ends, self.more_heads), 0, axis=axis)

    def insert_both(self, w: Array) -> Array:
        """Parameters, p×q, with zeros for both, columns contiguous."""
        return np.asfortranarray(self.insert_heads(self.insert_features(w), 1))

    def places(self, size: int) -> Array:
        """The new positions of the old features, of which there were `size`."""
        return np.delete(np.arange(size + self.features), slice(self.at, self.at + self.features))

    @property
    def new(self) -> slice:
        """The positions of the new features."""
        return slice(self.at, self.at + self.features)


def refuse(part: Any, why: str) -> None:
    """Raise the error that a part of a learner cannot grow."""
    raise ValueError(f"{part!r} cannot grow: {why}")
