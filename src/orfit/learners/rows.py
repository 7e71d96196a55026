"""How rows are learned one after another: always the same steps, in one of three ways.

Each way says why a learner cannot be learned with it (`obstacle`), and learns a block of rows.
`Auto` chooses among them, and has all the thresholds.
"""

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orfit import door, tall
from orfit.door import Array
from orfit.learners.step import step
from orfit.learners.update import Update, Updates
from orfit.learners.weights import roots_of
from orfit.memory.base import Walk
from orfit.memory.frame import decompose

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
        try:
            G, F, wanted = learner.numbers_of(X, Y)
        except ValueError:  # one of the rows is refused: which, is seen when they come one by one
            return learner.one_by_one(X, Y)
        G = learner.kept(G)
        pieces: list[Array] = []
        done, walk = 0, learner.walk(learner.memory)
        while done < len(X):
            rows = slice(done, done + until_decision(learner, learner.memory))
            numbers = G[:, rows], F[rows], wanted[rows]
            piece = learner.undivided(self._piece, learner, walk, X[rows], Y[rows], *numbers)
            pieces.append(piece)
            done += len(pieces[-1])
        records = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
        return Updates.of_records(records, Y.shape, learner.per_gradient(Y))

    def learn_one(self, learner: "OneStep", X: Any, Y: Array) -> Update:
        """The same for a single row: by a walk that goes on with the next one, where it can."""
        G, F, wanted = learner.numbers_of(X, Y)
        record = learner.walked_on(X, G, F, wanted)
        if record is None:
            learner.check_point(X)  # the loop may have stopped at that
            G, walk = learner.kept(G), learner.walk(learner.memory)
            record = learner.undivided(self._piece, learner, walk, X, Y, G, F, wanted)[0]
        return Update.of_record(record, Y.shape[1:], learner.model.heads)

    @staticmethod
    def _piece(
        learner: "OneStep", walk: Walk, X: Any, Y: Array, G: Any, F: Array, wanted: Array
    ) -> Array:
        """Learn the first of these rows, as many as the loop takes; the plain step, one at least.

        Where the loop has run, and an exception comes before that is noted, it is noted later.
        """
        learner.measure(G, X)
        walk.begin(len(X))

        def noted() -> Array:
            learner.measure(G, X)
            records = note(learner, walk, X)
            if len(records):
                learner.rows_learned(X, Y, len(records))
                learner.probe_rows(G, F, wanted, records)
            return records

        learner.redo(noted)
        walk.run(G, F, wanted)
        records = noted()
        if not len(records):
            one = slice(1)
            numbers = G[:, one], F[one], wanted[one]
            records = step_on(learner, learner.memory, *numbers, X[one])
            learner.rows_learned(X, Y, 1)
            learner.probe_rows(G, F, wanted, records)
        return records


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
        judged = memory.provenance(learner.noise) is not None  # each by itself
        # Where w may move as a whole; however many rows there are now, for fewer take the same way.
        moves = learner.guesses.until_look <= learner.most_rows
        if len(X) == 1 or judged or moves:
            return alone.learn(learner, X, Y)
        try:
            offset, labels, G = learner.affine(X, Y)
            parts = decompose(memory.frame, G, None)
            F = learner.tiled(offset) + parts.reading.along_w
            learner.check_finite(F, G)
        except ValueError:  # one of the rows is refused: which, is seen when they come one by one
            return alone.learn(learner, X, Y)
        if not len(parts.coordinates):  # there is nothing but zeros
            return alone.learn(learner, X, Y)
        walks = alone is COMPILED

        def learn() -> tuple[Array, ValueError | None]:
            inside = memory.inside(parts)
            Z = np.asfortranarray(parts.coordinates, inside.frame.rows.dtype)
            wanted = learner.tiled(labels)
            records, refused = rows_inside(learner, inside, Z, F, wanted, X, G, walks)
            memory.take_over(inside, parts)
            learner.rows_learned(X, Y, len(records))
            learner.probe_rows(G, learner.tiled(offset), wanted, records)
            return records, refused

        records, refused = learner.undivided(learn)
        if refused is not None:
            raise refused
        return Updates.of_records(records, labels.shape, learner.per_gradient(labels))


def rows_inside(
    learner: "OneStep", memory: Any, Z: Any, F: Array, wanted: Array, X: Any, G: Any, walks: bool
) -> tuple[Array, ValueError | None]:
    """Learn rows, each of as many columns of Z, on a memory in coordinates.

    Up to one that is refused: why it was; if that is the first, this raises. F: what w predicts for
    each column where this memory carries zero. wanted: the labels. G: the columns as they came.
    """
    F, wanted = ready(F), ready(wanted)
    pieces: list[Array] = []
    done, columns = 0, len(wanted) // len(X)
    while done < len(wanted):
        if walks:
            rows = slice(done, done + until_decision(learner, memory))
            learner.measure(G[:, rows], X[rows])
            walk, here = learner.walk(memory), X[rows]
            walk.begin(len(here))
            walk.run(Z[:, rows], F[rows], wanted[rows])
            records = note(learner, walk, here)
            if len(records):
                pieces.append(records)
                done += len(records)
                continue
        row = slice(done, done + columns)
        try:
            here = X[done // columns : done // columns + 1]
            learner.measure(G[:, row], here)
            numbers = Z[:, row], F[row], wanted[row]
            pieces.append(step_on(learner, memory, *numbers, here))
        except ValueError as refused:
            if not done:
                raise
            return np.concatenate(pieces), refused
        memory.settle()
        done += columns
    return np.concatenate(pieces), None


def step_on(learner: "OneStep", memory: Any, G: Any, F: Array, wanted: Array, X: Any) -> Array:
    """Learn columns of G as one row, by the plain step: its record."""
    guesses = learner.guesses
    past = learner.split(memory, G)
    predictions = F + past.along_w
    learner.check_finite(predictions, G)
    residual = wanted - predictions
    came = step(memory, past, residual, guesses, learner.most)
    row = [came.length, past.novelty, memory.rank, *came.variance[:, guesses.chosen]]
    told = residual[:, guesses.mine], predictions[:, guesses.mine], came.left
    roots = roots_of(X, len(residual))
    learner.counted(memory, 1, np.hstack([came.variance, residual]), came.whitened, roots)
    return np.array([[*row, *(number for part in told for number in part.ravel())]])


def until_decision(learner: "OneStep", memory: Any) -> int:
    """So many rows may be learned by one walk."""
    return min(learner.guesses.until_decision, int(memory.until_decision))


def note(learner: "OneStep", walk: Walk, X: Any = None) -> Array:
    """Take note of what has come of a walk: what is recorded of the chosen guess.

    X: its rows, which may have weights.
    """
    guesses, records = learner.guesses, walk.note()
    if not len(records):
        return records
    told, start = guesses.of_chosen(records), 3 + len(guesses.noises)
    roots = None if X is None else roots_of(X[: len(records)], len(records))
    counted = records[:, 3 : start + len(guesses.noises) * guesses.columns]
    learner.counted(walk.memory, len(records), counted, None, roots)  # may choose another
    return told


def ready(A: Array) -> Array:
    """A for compiled code, which would be compiled anew for arrays of another kind."""
    return A if A.dtype is DOUBLE and A.flags.carray else np.array(A, DOUBLE, order="C")


@dataclass(frozen=True)
class Auto:
    """Chooses the fastest way.

    The compiled loop takes up to a minute to compile when it is first used on a machine, and a
    second to load later: it is used by learners that have as many rows, or as much work; and
    `when_ready`, where nothing has to be loaded, by those that begin then. Work is
    rows × (parameters + m²/4): from some m on, what is small takes most of a plain step.
    Coordinates pay from some rows and parameters on; where there is a compiled loop, from a basis
    on that no cache holds. Rows are taken `most_rows` at a time.
    """

    compiled_rows: int = 2000
    compiled_work: int = 1 << 20
    most_rows: int = 1024
    coordinate_columns: int = 8
    coordinate_parameters: int = 1 << 12
    coordinate_numbers: int = 1 << 22
    when_ready: bool = True

    def __post_init__(self) -> None:
        numbers = asdict(self)
        door.flag("when_ready", numbers.pop("when_ready"))
        for name, value in numbers.items():
            door.count(name, value, least=1 if name == "most_rows" else 0)

    def alone(self, learner: "OneStep", rows: int, outputs: int) -> Way:
        """For a row by itself, as one of so many."""
        if outputs != 1 or not learner.can(COMPILED):
            return PLAIN
        if self.when_ready and learner.began_ready:
            return COMPILED
        seen, memory = learner._seen + rows, learner.memory
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
