"""The numbers of a learner in the form in which the core learns rows."""

import copy
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np

from orfit.core._core import Rows
from orfit.state import State
from orfit.store.host import padded
from orfit.validation import Array

SCORES = ("scale", "recent_scale", "neighbours", "last")


class Settings(NamedTuple):
    """What a state does not determine."""

    linear: bool
    bias: bool  # whether the core appends the constant 1 to each gradient
    has_heads: bool
    tails: Array  # of each candidate, whether it uses the tail
    forgetting: float
    drift: Any
    A: Any = None  # of steps in time: a number or a matrix; None if there are none
    makes_steps: bool = False  # whether each row makes such a step before it


def block_of(size: int) -> Array:
    """So many bytes of zeros, which begin at a cache line."""
    block: Array = padded(1, size // 8, np.float64)[0]
    block[:] = 0
    return block


class Metered(NamedTuple):
    """Rows for the meter.

    G: p×n. outputs: prediction, residual, and what was left of it. seen: rows learned before these.
    """

    probes: Any  # orfit.meter.Probes
    G: Array
    outputs: list[Array]
    seen: int


class CoreRows(Rows):
    """A struct of core.h and the blocks to which it points.

    template: the state from which the struct was made; the meter's numbers are there. shapes: of an
    input and of a label. metered: rows that the meter has not got yet, as far as they are learned.
    """

    block: Array
    template: State
    shapes: tuple[Any, Any]
    metered: Metered | None = None

    @property
    def input_shape(self) -> Any:
        """The shape of an input, known from the first row on."""
        return self.shapes[0] if self.seen else self.template.input_shape

    def _array(self, name: str, count: int, group: str | None = None) -> Array:
        """An array of the struct."""
        struct = self.struct if group is None else self.struct[group]
        start = (int(struct[name]) - self.block.ctypes.data) // 8
        return self.block[start : start + count]

    def _copy_scores_in(self, s: State) -> None:
        scores, columns = self.struct["scores"], len(s.scale)
        scores["rows"], scores["unfitted"] = s.scale_rows, s.unfitted
        self._array("surprise", len(s.noises), "scores")[:] = s.surprise
        for name in SCORES:
            self._array(name, columns, "scores")[:] = getattr(s, name)

    def _copy_scores_out(self, s: State) -> None:
        scores, columns = self.struct["scores"], len(s.scale)
        s.scale_rows, s.unfitted = int(scores["rows"]), float(scores["unfitted"])
        s.surprise = self._array("surprise", len(s.noises), "scores").copy()
        for name in SCORES:
            setattr(s, name, self._array(name, columns, "scores").copy())

    def state(self) -> State:
        """The numbers as a state. Its p-sized arrays are valid until the next row."""
        with self.lock:  # rows may run in another thread
            self.add_to_meter()
            if self.exported is None:
                s = State(**vars(self.template))
                s.seen = self.seen
                if s.seen:
                    s.input_shape, s.label_shape = self.shapes
                self._copy_out(s)
                self._copy_scores_out(s)
                self.exported = s
            made: State = self.exported
        return made

    def add_to_meter(self) -> None:
        """Add the rows of `metered` that were learned to the meter; the others stay there."""
        if self.metered is None:
            return
        probes, G, outputs, before = self.metered
        n, s = self.seen - before, State(**vars(self.template))
        if not n:
            return
        prediction, residual, left = (A[:n].reshape(n, probes.heads) for A in outputs)
        probes.add_each(s, G[:, :n], prediction + residual - left, left)
        rest = Metered(probes, G[:, n:], [A[n:] for A in outputs], before + n)
        vars(self).update(template=s, metered=rest)

    @abstractmethod
    def parameters(self) -> Array:
        """w, p×columns, as a new array."""

    @abstractmethod
    def _copy_out(self, s: State) -> None:
        """Replace the fields of `s` by the numbers of the struct."""

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        """A copy continues from a state."""
        return copy.deepcopy(self.state(), memo)
