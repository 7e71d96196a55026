"""How rows are learned one after another: always the same steps, in one of three ways.

Each way says why a learner cannot be learned with it (`obstacle`), and learns a block of rows.
`Auto` chooses among them, and has all the thresholds.
"""

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orfit import tall
from orfit.door import Array
from orfit.learners.step import step
from orfit.learners.update import Update, Updates
from orfit.memory.frame import split

if TYPE_CHECKING:
    from orfit.learners.onestep import OneStep


class WayError(ValueError):
    """Rows cannot be learned in the way that was asked for; the message says why."""


class Way(Protocol):
    """One way to learn rows."""

    name: str

    def obstacle(self, learner: "OneStep") -> str | None:
        """Why this way is not for that learner; None: it is."""

    def learn(self, learner: "OneStep", X: Any, Y: Array) -> Updates:
        """Learn the rows of X, which are as many as fit into memory at once."""


class Plain:
    """One step after another."""

    name = "plain"

    def obstacle(self, learner: "OneStep") -> str | None:
        return None

    def learn(self, learner: "OneStep", X: Any, Y: Array) -> Updates:
        return learner.one_by_one(X, Y)


class Compiled:
    """The same, compiled (`kernels.walk`), where a row has one gradient."""

    name = "compiled"

    def obstacle(self, learner: "OneStep") -> str | None:
        memory = learner.memory
        if not learner.model.linear:
            return "the model is not linear in w"
        missing = learner.loop_obstacle()
        if missing is not None:
            return missing
        if tall.shared(memory.w) is None:
            return "its numbers are on another device"
        return None if find_spec("numba") else "numba is not installed: pip install '.[fast]'"

    def learn(self, learner: "OneStep", X: Any, Y: Array) -> Updates:
        return Updates.of_records(*self._records(learner, X, Y))

    def learn_one(self, learner: "OneStep", X: Any, Y: Array) -> Update:
        """The same for a single row, with less around it."""
        records, labels = self._records(learner, X, Y)
        return Update.of_record(records[0], labels[0])

    def _records(self, learner: "OneStep", X: Any, Y: Array) -> tuple[Array, Array]:
        """What is told of each row (`kernels.walk`), and the labels."""
        offset, labels, G = learner.affine(X, Y)
        q = math.prod(offset.shape[1:])
        records, refused = walk_on(learner, learner.memory, G, (labels - offset).reshape(len(X), q))
        records[:, 3 : 3 + q] += offset[: len(records)].reshape(-1, q)
        learner.count_recorded(records, X, Y, refused)
        return records, labels


class Coordinates:
    """The same by matrix products: gradients that are known beforehand need no p in the loop.

    G = U C + O T, so everything that happens happens in the coordinates along [U O]. There the
    rows are learned, by the same steps, and what has become of the memory is written back.
    """

    name = "coordinates"

    def obstacle(self, learner: "OneStep") -> str | None:
        if not learner.model.linear:
            return "the model is not linear in w"
        if not learner.memory.coordinates:
            return f"{learner.memory!r} keeps no directions, or wants gradients whole"
        return None

    def learn(self, learner: "OneStep", X: Any, Y: Array) -> Updates:
        memory = learner.memory
        alone = learner.alone(len(X), learner.outputs(Y))
        if len(X) == 1 or memory.makers(learner.noise) is not None:  # each is judged by itself
            return alone.learn(learner, X, Y)
        offset, labels, G = learner.affine(X, Y)
        try:
            parts = split(memory.frame, G, None)
            F = offset + parts.reading.along_w.reshape(offset.shape)
            learner.check_finite(F, G)
        except ValueError:  # one of the rows is refused: which, is seen when they come one by one
            return alone.learn(learner, X, Y)
        if not len(parts.coordinates):  # there is nothing but zeros
            return alone.learn(learner, X, Y)
        inside = memory.inside(parts)
        Z = np.asfortranarray(parts.coordinates, inside.frame.rows.dtype)
        learn, targets = walk_on if alone is COMPILED else each_on, labels - F
        columns = Z.shape[1] // len(X)
        records, refused = learn(learner, inside, Z, targets.reshape(Z.shape[1], -1), columns)
        memory.take_over(inside, parts)
        q = math.prod(F.shape[1:])
        records[:, 3 : 3 + q] += F[: len(records)].reshape(-1, q)
        learner.count_recorded(records, X, Y, refused)
        return Updates.of_records(records, labels)


def each_on(
    learner: "OneStep", memory: Any, G: Any, Y: Array, columns: int = 1
) -> tuple[Array, ValueError | None]:
    """Learn blocks of G's columns one after another, up to one that is refused: why it was."""
    records: list[list[float]] = []
    for start in range(0, G.shape[1], columns):
        block = slice(start, start + columns)
        try:
            past = memory.split(G[:, block], learner.noise, learner.fading, learner.drift)
            learner.check_finite(past.along_w, G)
            wanted = Y[block] - past.along_w
            length, left = step(memory, past, wanted, learner.noise, learner.most)
        except ValueError as error:
            return np.array(records).reshape(len(records), 3 + 2 * columns * Y.shape[1]), error
        row = [length, past.novelty, memory.rank, *past.along_w.ravel(), *left.ravel()]
        records.append(row)
    return np.array(records), None


def walk_on(
    learner: "OneStep", memory: Any, G: Any, Y: Array, columns: int = 1
) -> tuple[Array, ValueError | None]:
    """The same by the compiled loop; where it stops, the plain step decides on the next row."""
    parts: list[Array] = []
    done, refused = 0, None
    while done < len(Y) and refused is None:
        settings = {"noise": learner.noise, "forgetting": learner.fading, "most": learner.most}
        parts.append(memory.walk(G[:, done:], Y[done:], **settings))
        done += len(parts[-1])
        if done < len(Y):
            row, refused = each_on(learner, memory, G[:, done : done + 1], Y[done : done + 1])
            parts.append(row)
            done += len(row)
    return np.concatenate(parts) if len(parts) > 1 else parts[0], refused


@dataclass(frozen=True)
class Auto:
    """Chooses the fastest way.

    The compiled loop takes about a minute to compile when it is first used on a machine, and a
    second to load later: it is used by learners that have as many rows, or rows × parameters.
    Coordinates pay from some rows and parameters on; where there is a compiled loop, from a basis
    on that no cache holds. Rows are taken `most_rows` at a time.
    """

    compiled_rows: int = 2000
    compiled_work: int = 1 << 20
    most_rows: int = 256
    coordinate_columns: int = 8
    coordinate_parameters: int = 1 << 12
    coordinate_numbers: int = 1 << 22

    def alone(self, learner: "OneStep", rows: int, outputs: int) -> Way:
        """For a row by itself, as one of so many."""
        seen = learner.seen + rows
        worth = seen >= self.compiled_rows or seen * learner.model.size >= self.compiled_work
        return COMPILED if worth and outputs == 1 and learner.can(COMPILED) else PLAIN

    def choose(self, learner: "OneStep", rows: int, outputs: int) -> Way:
        """For so many rows, with so many gradients each."""
        alone, size = self.alone(learner, rows, outputs), learner.model.size
        if (
            rows < 2
            or rows * outputs < self.coordinate_columns
            or size < self.coordinate_parameters
            or not learner.can(COORDINATES)
            or (alone is COMPILED and learner.memory.rank * size < self.coordinate_numbers)
        ):
            return alone
        return COORDINATES


PLAIN, COMPILED, COORDINATES = Plain(), Compiled(), Coordinates()
WAYS: dict[str, Way] = {way.name: way for way in (PLAIN, COMPILED, COORDINATES)}
