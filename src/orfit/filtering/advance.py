"""Steps in time between blocks."""

from typing import Any


class Advancing:
    """A learner with a public `advance`."""

    _change: Any
    _advance: Any

    def advance(
        self,
        u: object = None,
        *,
        dynamics: Any = None,
        control: object = None,
        drift: object = None,
    ) -> None:
        """One step in time: w ← A w + B u, P ← A P Aᵀ + Q.

        `learn` makes this step before each block, without an input u. If there is an input, or
        another A, B or Q, `advance` makes it, and the next block does not repeat it. The arguments
        replace those of the constructor, this once.
        """
        self._change(self._advance, u, dynamics, control, drift)
