"""How rows are learned one after another: always the same steps, in one of three ways.

Each way says why a learner cannot be learned with it (`obstacle`), and learns a block of rows.
`Auto` chooses among them, and has all the thresholds.
"""

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


DOUBLE = np.dtype(np.float64)


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

    def __reduce__(self) -> str:
        return "PLAIN"  # a copy of a learner, and one from a pickle, have this very one

    def obstacle(self, learner: "OneStep") -> str | None:
        return None

    def learn(self, learner: "OneStep", X: Any, Y: Array) -> Updates:
        return learner.one_by_one(X, Y)


class Compiled:
    """The same, compiled (`kernels.walk`), where a row has one gradient."""

    name = "compiled"

    def __reduce__(self) -> str:
        return "COMPILED"  # a copy of a learner, and one from a pickle, have this very one

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
        offset, labels, G = learner.affine(X, Y)
        F, wanted = learner.tiled(offset), learner.tiled(labels)
        records, refused = walk_on(learner, learner.memory, G, F, wanted)
        learner.count_recorded(records, X, Y, refused)
        return Updates.of_records(records, labels.shape, learner.per_gradient(labels))

    def learn_one(self, learner: "OneStep", X: Any, Y: Array) -> Update:
        """The same for a single row, of which there is one piece."""
        offset, labels, G = learner.affine(X, Y)
        F, wanted = ready(learner.tiled(offset)), ready(learner.tiled(labels))
        records, refused = walk_piece(learner, learner.memory, G, F, wanted), None
        if not len(records):
            records, refused = each_on(learner, learner.memory, G, F, wanted)
        learner.count_recorded(records, X, Y, refused)
        return Update.of_record(records[0], labels.shape[1:], learner.model.heads)


class Coordinates:
    """The same by matrix products: gradients that are known beforehand need no p in the loop.

    G = U C + O T, so everything that happens happens in the coordinates along [U O]. There the
    rows are learned, by the same steps, and what has become of the memory is written back.
    """

    name = "coordinates"

    def __reduce__(self) -> str:
        return "COORDINATES"  # a copy of a learner, and one from a pickle, have this very one

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
            F = learner.tiled(offset) + parts.reading.along_w
            learner.check_finite(F, G)
        except ValueError:  # one of the rows is refused: which, is seen when they come one by one
            return alone.learn(learner, X, Y)
        if not len(parts.coordinates):  # there is nothing but zeros
            return alone.learn(learner, X, Y)
        inside = memory.inside(parts)
        Z = np.asfortranarray(parts.coordinates, inside.frame.rows.dtype)
        learn, wanted = walk_on if alone is COMPILED else each_on, learner.tiled(labels)
        records, refused = learn(learner, inside, Z, F, wanted, Z.shape[1] // len(X))
        memory.take_over(inside, parts)
        learner.count_recorded(records, X, Y, refused)
        return Updates.of_records(records, labels.shape, learner.per_gradient(labels))


def each_on(
    learner: "OneStep", memory: Any, G: Any, F: Array, wanted: Array, columns: int = 1
) -> tuple[Array, ValueError | None]:
    """Learn blocks of G's columns one after another, up to one that is refused: why it was.

    F: what w predicts for each column where this memory carries zero. wanted: the labels.
    """
    records: list[list[float]] = []
    guesses = learner.guesses
    for start in range(0, G.shape[1], columns):
        block = slice(start, start + columns)
        try:
            past = learner.split(memory, G[:, block])
            predictions = F[block] + past.along_w
            learner.check_finite(predictions, G)
            residual = wanted[block] - predictions
            came = step(memory, past, residual, guesses, learner.most)
        except ValueError as error:
            width = 3 + columns + 3 * columns * guesses.columns
            return np.array(records).reshape(len(records), width), error
        row = [came.length, past.novelty, memory.rank, *came.variance[:, guesses.chosen]]
        told = predictions[:, guesses.mine], residual[:, guesses.mine], came.left
        records.append([*row, *(number for part in told for number in part.ravel())])
        guesses.take(1, residual, came.variance, came.whitened)
    return np.array(records), None


def walk_on(
    learner: "OneStep", memory: Any, G: Any, F: Array, wanted: Array, columns: int = 1
) -> tuple[Array, ValueError | None]:
    """The same by the compiled loop; where it stops, the plain step decides on the next row."""
    F, wanted = ready(F), ready(wanted)
    pieces: list[Array] = []
    done, refused = 0, None
    while done < len(wanted) and refused is None:
        piece = slice(done, min(len(wanted), done + learner.guesses.until_decision))
        records = walk_piece(learner, memory, G[:, piece], F[piece], wanted[piece])
        pieces.append(records)
        done += len(records)
        if done < piece.stop:
            one = slice(done, done + 1)
            row, refused = each_on(learner, memory, G[:, one], F[one], wanted[one])
            pieces.append(row)
            done += len(row)
    return np.concatenate(pieces) if len(pieces) > 1 else pieces[0], refused


def ready(A: Array) -> Array:
    """A for compiled code, which would be compiled anew for arrays of another kind."""
    return A if A.dtype == DOUBLE and A.flags.carray else np.array(A, DOUBLE, order="C")


def walk_piece(learner: "OneStep", memory: Any, G: Any, F: Array, wanted: Array) -> Array:
    """Learn rows up to which nothing is decided: what is recorded of the chosen guess."""
    guesses = learner.guesses
    guesses.measure(G)
    fading, drift, most = learner.fading, learner.drift, learner.most
    records: Array = memory.walk(G, F, wanted, guesses, forgetting=fading, drift=drift, most=most)
    rows, width, chosen = len(records), wanted.shape[1], guesses.chosen
    start = 3 + len(guesses.noises)
    variance, residual = records[:, 3:start], records[:, start + width : start + 2 * width]
    if rows:
        guesses.take(rows, residual, variance)  # which may choose another
    if start == 4:
        return records
    mine = slice(chosen * guesses.columns, (chosen + 1) * guesses.columns)
    prediction, left = records[:, start : start + width], records[:, start + 2 * width :]
    told = records[:, :3], variance[:, [chosen]], prediction[:, mine], residual[:, mine], left
    return np.hstack(told)


@dataclass(frozen=True)
class Auto:
    """Chooses the fastest way.

    The compiled loop takes about a minute to compile when it is first used on a machine, and a
    second to load later: it is used by learners that have as many rows, or as much work. Work is
    rows × (parameters + m²/4): from some m on, what is small takes most of a plain step.
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
        if outputs != 1 or not learner.can(COMPILED):
            return PLAIN
        seen, memory = learner.seen + rows, learner.memory
        turned = 0 if memory.most is None else memory.rank**2 // 4  # beside what is read of p
        work = seen * (learner.model.size + turned)
        return COMPILED if seen >= self.compiled_rows or work >= self.compiled_work else PLAIN

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
