"""The first rows, while they are too few to decide by: then they are decided by again."""

import json
from typing import Any

import numpy as np

from orfit import schema, validation
from orfit.faces.rows import Rows
from orfit.learners.update import Updates
from orfit.schema import DOUBLE, Fields, arranged
from orfit.sklearn.scaled import Scaled
from orfit.sklearn.setup import Setup
from orfit.validation import Array

FEW = 256  # rows, from which on a decision is the last one
NUMBERS = 1 << 22  # that are kept at most


class Learned:
    """A `Scaled` learner; and the first rows, until there are enough to trust what they tell.

    The first call decides. While rows are few they are kept, and whenever there are twice as many
    as decided last, all of them decide again, and are learned anew. So it hardly matters whether a
    stream begins with one row or with hundreds, and not at all how it goes on.
    """

    def __init__(
        self,
        scaled: Scaled,
        amounts: bool,
        first: Rows | None = None,
        names: Array | None = None,
    ) -> None:
        """amounts: whether targets have units. first: those that decided, where they are few.

        names: the class of each head, in the order in which they came.
        """
        self.scaled, self.amounts, self.names = scaled, amounts, names
        self.first, self.by = first, 0 if first is None else len(first)

    @classmethod
    def begun(
        cls,
        settings: Setup,
        rows: Rows,
        heads: int | None,
        amounts: bool,
        names: Array | None = None,
    ) -> tuple["Learned", Updates]:
        """With the first call's rows, which are learned, too."""
        scaled = Scaled.decided(settings, rows, heads, amounts)
        made = cls(scaled, amounts, _few(rows), names)
        return made, scaled.learn(rows)

    def learn(self, rows: Rows, names: Array | None = None) -> Updates:
        """Predict each row, then learn it. names: the classes, those before and maybe more.

        Where an exception ends it, the rows before have been learned, and classes stay.
        """
        self.scaled.check(rows)
        if rows.Y.shape[1] > self.scaled.outputs:
            self.scaled.grow(rows.Y.shape[1])
            self.names = names
        told, done = [], 0
        while self.first is not None and done < len(rows):
            wanted = 2 * self.by - len(self.first)
            part = rows[done : done + wanted]
            before = self.scaled.learner.seen
            try:
                told.append(self.scaled.learn(part))
            except BaseException:
                begun = part.begun(self.scaled.learner.seen - before)
                self.first = self.first.followed_by(begun)
                raise
            self.first, done = self.first.followed_by(part), done + len(part)
            if len(part) == wanted:
                self._decide_again(self.first)
        told.append(self.scaled.learn(rows[done:]))
        one = self.scaled.learner.model.heads is None
        return Updates.joined(told, rows.Y[:, 0] if one else rows.Y)

    def _decide_again(self, first: Rows) -> None:
        heads = self.scaled.learner.model.heads
        scaled = Scaled.decided(self.scaled.settings, first, heads, self.amounts)
        scaled.learn(first)
        self.scaled, self.first, self.by = scaled, _few(first), len(first)

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, header = self.scaled.state()
        if self.first is not None:
            arrays |= {"first.X": np.asarray(self.first.X, DOUBLE), "first.Y": self.first.Y}
            arrays["first.weight"] = self.first.counts
        return arrays, {"scaled": header, "amounts": self.amounts, "by": self.by}

    @classmethod
    def restored(cls, arrays: dict[str, Array], header: dict[str, Any]) -> "Learned":
        """What `state` gave; raises ValueError where it is no such thing."""
        values = schema.record(FIELDS)("header", header)
        own = {n: a for n, a in arrays.items() if n.startswith("first.")}
        scaled = Scaled.restored(
            {n: a for n, a in arrays.items() if n not in own}, values["scaled"]
        )
        made = cls(scaled, values["amounts"])
        if own:
            d, q = len(scaled.inputs.mean), scaled.outputs
            sides: schema.Layout = {
                "X": (DOUBLE, "n", d),
                "Y": (DOUBLE, "n", q),
                "weight": (DOUBLE, "n"),
            }
            arranged(own, {f"first.{name}": of_it for name, of_it in sides.items()})
            made.first = Rows(own["first.X"], own["first.Y"], own["first.weight"])
            made.by = values["by"]
            if not 0 < made.by <= len(made.first) <= 2 * made.by:
                raise ValueError(f"{len(made.first)} first rows were not decided by {made.by}")
            if made.first.counts.min() < 0:
                raise ValueError("a weight is negative")
        return made

    def __reduce__(self) -> Any:
        """A pickle, or a copy, has what a file has: no room to work in, and no features."""
        arrays, header = self.state()
        held = {name: np.array(array, order="K") for name, array in arrays.items()}
        return _unpickled, (held, json.dumps(header, allow_nan=False), self.names)


def _unpickled(arrays: dict[str, Array], header: str, names: Array | None) -> Learned:
    made = Learned.restored(arrays, json.loads(header))
    made.names = names
    return made


def _few(rows: Rows) -> Rows | None:
    """The rows, as long as they are to be kept."""
    if len(rows) >= FEW or rows.X.shape[0] * rows.X.shape[1] > NUMBERS:
        return None
    return rows.copied()


FIELDS: Fields = {
    "scaled": schema.mapping,
    "amounts": validation.flag,
    "by": schema.counter,
}
