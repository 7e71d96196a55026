"""What every memory is to the learner: a P that says where the parameters may still move."""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from orfit import door, small, tall
from orfit.door import Array
from orfit.growth import Growth, refuse
from orfit.memory.known import Known
from orfit.schema import Fields, Layout


class Split(Protocol):
    """How a block of gradients G (p×n) lies to the past: P G = D B and Gᵀ P G = Bᵀ B.

    D (p×b) is never formed where it need not be.

    Examples:
        >>> memory = orfit.memory.Unlimited()
        >>> memory.absorb([[1.0], [0.0]])
        >>> past = memory.split(np.array([[3.0], [4.0]]))
        >>> print(past.factor, past.novelty)  # 4 of 5 is new
        [[4.]] 0.8
    """

    @property
    def factor(self) -> Array:
        """B (b×n), small. With noise = 0 it has full row rank and is a staircase."""

    @property
    def novelty(self) -> float:
        """How much of G is new, |G̃| / |G|: 0 where it is all spanned, 1 where nothing is."""

    @property
    def along_w(self) -> Array:
        """Gᵀ w, n×q: the prediction of a linear model, up to its offset."""

    def move(self, z: Array) -> tuple[Any, float]:
        """D z, as `remember` takes it, and its length. z: b×q."""

    def displacement(self, z: Array) -> Any:
        """D z, tall."""


class Walk(Protocol):
    """Rows on their way through compiled code, which nothing interrupts.

    It works in place, and leaves word of what it has done: the memory knows of it from `note` on,
    which can be done again where it was cut short. Then it can begin with other rows.
    """

    memory: Any  # that learns them
    goes_on: bool  # whether it can be run several times before `note`
    catch_up: Callable[[], None]  # how to have it noted, where it goes on
    records: Array  # of rows that were learned, one line for each

    def begin(self, rows: int) -> None:
        """Get ready to learn so many rows, from what the memory is now."""

    def run(self, G: Any, F: Array, Y: Array) -> int:
        """Learn G's columns one after another, up to one that is not for compiled code: `learned`.

        F: what is predicted where w = 0. Y: the labels.
        """

    @property
    def learned(self) -> int:
        """How many rows were learned since it began."""

    @property
    def w(self) -> Any:
        """The parameters, p×q, as they are now: to be read, not written to."""

    def note(self) -> Array:
        """Let the memory know what came of it, if anything: the records."""


class Noted:
    """What compiled code leaves behind: who asks for it has it noted first (`Memory.walking`)."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, memory: Any, owner: type) -> Any:
        if memory is None:
            return self
        if memory.walking is not None:
            memory.catch_up()
        try:
            return memory.__dict__[self.name]
        except KeyError:
            raise AttributeError(f"{type(memory).__name__} has no {self.name} yet") from None

    def __set__(self, memory: Any, value: Any) -> None:
        if memory.walking is not None:
            memory.catch_up()
        memory.__dict__[self.name] = value


class Memory(ABC):
    """What is kept of the past gradients, and the parameters, which it carries for its learner.

    See `docs/extending.md` to add one.

    Examples:
        >>> orfit.memory.Dense().compiled, orfit.memory.Latest(5).compiled
        (True, False)
    """

    size: int | None = None  # p, known when the memory is first used
    compiled = False  # whether it has a compiled row loop, `walk`
    coordinates = False  # whether rows can be learned in coordinates along its directions
    drifts = False  # whether P can grow between gradients
    moves = False  # whether P can take a step in time, `advance`
    merges = False  # whether what it knows can be told as rows, `known`, and be taken in, `join`
    one_prior = True  # whether all parameters have the same
    has_tail = False  # whether it can tell what it dropped
    tailed = np.zeros(1, bool)  # whether it does, for each guess of R; otherwise: as never seen
    _carries = False  # whether it is a learner's
    # Where rows go on being learned, of which it does not know yet.
    walking: "weakref.ref[Any] | None" = None

    @abstractmethod
    def bind(self, like: Any) -> None:
        """Get ready for gradients of this kind and length; a memory of another size objects."""

    @property
    def given(self) -> "Memory":
        """The memory as a user hands it in."""
        return self

    def accept_drift(self, drift: object, size: int) -> Any:
        """What a user hands in as drift of so many parameters, checked, as `split` takes it."""
        number = door.nonnegative("drift", drift)
        if number and not self.drifts:
            raise ValueError(f"{self!r} cannot drift: its P does not grow between rows")
        return number

    def loop_obstacle(self, noise: float, drift: Any) -> str | None:
        """Why rows with such settings are not for the compiled loop; None: they are."""
        if self.compiled:
            return None
        return f"{self!r} has no compiled loop; Principal, FrequentDirections and Dense have"

    @property
    def loop_ready(self) -> bool:
        """Whether the compiled loop has run here already: then there is nothing to wait for."""
        return False

    def walk(self, guesses: Any, forgetting: float, drift: Any, most: float) -> Walk:
        """The compiled loop, for rows that are learned with these settings."""
        raise NotImplementedError

    @abstractmethod
    def split(self, G: Any, noise: Any = 0.0, forgetting: float = 1.0, drift: Any = 0.0) -> Split:
        """See how G lies to the past. Changes nothing.

        Before G arrives the past is faded by `forgetting` (in squares), and P grows by `drift`.
        """

    def advance(self, w: Any, A: Any, drift: Any, noise: Any) -> None:
        """A step in time: w as given, P ← A P Aᵀ + Q. A: p×p, dense or sparse, or a number."""
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Any, ...]:
        """The objects whose attributes a step replaces: to go back is to put back what they were.

        So a step writes into no array that there was before it, but where nobody reads; that waits
        until `settle`.
        """
        return (self,)

    def settle(self) -> None:  # noqa: B027
        """Change in place what the steps so far have left to be changed.

        It may be cut short by an exception at any moment: the next call does the rest.
        """

    def grow(self, growth: Growth) -> None:
        """Let there be more features and heads, as if they had been there with zeros."""
        refuse(self, "what it holds is for as many parameters as there are")

    def merge_obstacle(self, noise: float) -> str | None:
        """Why what it knows cannot be told as rows; None: it can."""
        if self.merges:
            return None
        return f"{self!r} does not know what it saw; Principal, Unlimited and Dense do"

    @property
    def exact(self) -> bool:
        """Whether nothing was dropped, but rounding."""
        return True

    def as_rows(self, moved: Any, noise: float) -> Known:
        """What is known along the directions that are kept, as rows. moved: w − w₀, p×q."""
        raise NotImplementedError

    def known(self, moved: Any, noise: float) -> Known:
        """All that is known, for another memory of this kind."""
        return self.as_rows(moved, noise)

    def join(self, known: Known, moved: Any, noise: float) -> Split:
        """See how the rows of another memory lie to the past, which is then to be folded in.

        What they do not tell is taken in at once.
        """
        return self.split(known.G, noise)

    def finish_join(self, known: Known, noise: float) -> None:  # noqa: B027
        """Take note that what `join` gave has been folded in."""

    def remove(self, G: Any, residual: Array, moved: Any, noise: float, others: int) -> None:
        """Be as if these gradients had never been learned, w as well.

        residual: y − f, n×q, as w is. moved: w − w₀. others: how many gradients are left. Raises
        where that is not possible exactly.
        """
        raise NotImplementedError

    @property
    def until_decision(self) -> int:
        """So many rows may be learned by one `walk`."""
        return 1 << 30

    def __getstate__(self) -> dict[str, Any]:
        self.catch_up()
        return vars(self) | {"walking": None}

    def catch_up(self) -> None:
        """Let it know of rows that go on being learned."""
        walk = None if self.walking is None else self.walking()
        if walk is not None:
            walk.catch_up()

    def guess(self, tails: Array) -> None:
        """Get ready for guesses of R, and whether each is to know what was dropped."""
        self.tailed = tails & self.has_tail

    def move_guesses(self, moved: Any, start: Any) -> None:
        """Let w be what it would be, had other R been guessed from the start (w₀, p×q; None: 0)."""
        raise NotImplementedError

    def variance(self, G: Any, noise: float, guess: int = 0) -> Array:
        """gᵀPg for each column of G (p×n): how far a prediction may still move."""
        columns = [self.split(G[:, j : j + 1], noise).factor for j in range(G.shape[1])]
        return np.array([small.frobenius(B) ** 2 for B in columns])

    @abstractmethod
    def remember(self, past: Any, move: Any = None) -> None:
        """Take the G of that `Split` into the memory, and let w move; `settle` comes after it."""

    @property
    @abstractmethod
    def w(self) -> Any:
        """The parameters, p×q: to be read, not written to."""

    @w.setter
    @abstractmethod
    def w(self, w: Any) -> None: ...

    reach: float  # no parameter is larger than this

    def largest(self) -> float:
        """How large the largest parameter is: what `reach` would be if it were found anew."""
        return tall.largest(self.w)

    @property
    @abstractmethod
    def rank(self) -> int:
        """How many directions are held."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """How many numbers are kept of the past."""

    @property
    def lost(self) -> float:
        """The energy (squared length) of gradients that was dropped, faded as the rest is."""
        return 0.0

    @property
    def most(self) -> int | None:
        """How many directions may be held; None: as many as come."""
        return None

    @property
    def dropped_per_row(self) -> float:
        """The energy that was dropped, over the gradients it was dropped of."""
        return 0.0

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
    def fields(self) -> Fields:
        """The plain values of `state`, and what each must be: see `schema`."""

    @abstractmethod
    def layout(self) -> Layout:
        """The arrays of `state`: dtype and sides of each."""

    def needs(self, size: int) -> dict[str, tuple[int, ...]]:
        """The arrays of `state` that are as large as what `bind` makes for so many parameters.

        A file without them makes nobody allocate that.
        """
        return {}

    @abstractmethod
    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        """Take up a state that `state` gave, after `carry`.

        It is what `fields` and `layout` say; raises where its parts do not fit together.
        """

    def carry(self, w: Any) -> None:
        """Bind, and carry these parameters, p×q, for one learner alone."""
        self.check_free()
        self.bind(w)
        self.w = w
        self._carries = True

    def check_free(self) -> None:
        """Raise where this memory is a learner's."""
        if self._carries:
            raise ValueError("this memory belongs to another learner; give each one of its own")

    def _check_size(self, size: int) -> None:
        if self.size is not None and self.size != size:
            raise ValueError(
                f"this memory holds directions of {self.size} parameters, not {size}; "
                "give each learner a memory of its own"
            )


class Carried:
    """Parameters as they are, for memories that keep nothing along which they could be put off."""

    catch_up: Callable[[], None]  # of `Memory`

    def __init__(self) -> None:
        self._w: Any = None
        self.reach = 0.0

    @property
    def w(self) -> Any:
        return self._w

    @w.setter
    def w(self, w: Any) -> None:
        self.catch_up()
        self._w, self.reach = tall.copy(w), tall.largest(w)

    def _along_w(self, G: Any) -> Array:
        """Gᵀ w, n×q."""
        return np.empty((G.shape[1], 0)) if self._w is None else tall.inner(G, self._w)

    def _move(self, move: tuple[Any, float]) -> None:
        displacement, length = move
        self._w = self._w + tall.convert(self._w, displacement)
        self.reach += length

    def _grow(self, growth: Growth) -> None:
        self._w = growth.both(self._w)

    def _take_up(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self._w = tall.copy(tall.convert(self._w, arrays["w"]))
        self.reach = values["reach"]
