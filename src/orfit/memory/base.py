"""What a learner requires of a memory: P, which determines where the parameters may still move.

A memory is a rule. Its numbers are fields of a `State`, which a learner and its memory share; each
method takes the state as its argument `s`.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from orfit import validation
from orfit.core._core import Rows
from orfit.growth import Growth, refuse
from orfit.memory.sufficient_rows import SufficientRows
from orfit.state import State
from orfit.store import arithmetic
from orfit.validation import Array


class StepSettings(NamedTuple):
    """What is assumed at a step: of each candidate the noise R, and whether it uses the tail."""

    noises: Array
    tailed: Array
    chosen: int  # the candidate that predicts
    forgetting: float
    drift: Any

    @property
    def noise(self) -> float:
        """R of the chosen candidate."""
        return float(self.noises[self.chosen])


def plain_settings(noise: float = 0.0) -> StepSettings:
    """One candidate, without tail, forgetting and drift."""
    return StepSettings(np.array([noise]), np.zeros(1, bool), 0, 1.0, 0.0)


class Decomposition(Protocol):
    """How a block of gradients G (p×n) relates to the past: P G = D B and GᵀPG = BᵀB."""

    @property
    def novelty(self) -> float:
        """|G̃| / |G|, the share of G that the memory does not span."""

    @property
    def prediction(self) -> Array:
        """Gᵀw (n×q): the prediction of a linear model, up to its offset."""


class Cell:
    """Holds the current state. A learner and its memory share one cell.

    held: a `State`, or `Rows` of the core, which hold the same numbers in another form; None until
        a memory is used.
    to_user: converts p-sized arrays to those that a user of the model has; None if they are.
    """

    def __init__(self, state: Any = None, to_user: Callable[[Any], Any] | None = None) -> None:
        self.held, self.to_user = state, to_user

    def public(self, array: Any) -> Any:
        """A p-sized array as a user of the model has it."""
        return array if self.to_user is None else self.to_user(array)

    @property
    def state(self) -> Any:
        """The state as a `State`. It is valid until the next row."""
        held = self.held
        return held.state() if isinstance(held, Rows) else held

    @state.setter
    def state(self, state: State) -> None:
        self.held = state


class Memory(ABC):
    """The rule by which a learner remembers. See `docs/extending.md` to add one.

    The properties of a learner's memory are read without the learner's lock: read them in the
    thread that learns.

    Examples:
        >>> orfit.memory.Dense().drifts, orfit.memory.Nothing().merges
        (True, False)
    """

    size: int | None = None  # p, known when the memory is first used
    drifts = False  # whether P can grow between rows
    shares_candidates = False  # whether several noises can share this memory
    merges = False  # whether its content can be expressed as rows, and can take in such rows
    one_prior = True  # whether all parameters have the same prior
    has_tail = False  # whether it keeps the mean energy of dropped directions
    _owned = False  # whether it belongs to a learner

    def __init__(self) -> None:
        self._cell = Cell()

    # What a learner calls.

    @abstractmethod
    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        """The state before the first row, for gradients like this one (p×n) and w (p×columns)."""

    @abstractmethod
    def set_candidates(self, s: State, count: int) -> None:
        """Prepare for so many candidates of the noise."""

    @abstractmethod
    def decompose(self, s: State, G: Any, settings: StepSettings) -> Any:
        """Relate G to the past. `s` is a draft: time passes in it, G is not added yet.

        Before G arrives, the past is multiplied by `forgetting` (in squares), and P grows by
        `drift`.
        """

    @abstractmethod
    def factors(self, s: State, d: Any) -> Array:
        """B of each candidate, e×b×n. With noise 0 it has full row rank and is a staircase."""

    @abstractmethod
    def direction(self, s: State, d: Any, Z: Array) -> tuple[Any, Array]:
        """D z of each candidate (Z is e×b×q) as `absorb_block` takes it, and their lengths (e)."""

    @abstractmethod
    def absorb_block(self, s: State, d: Any, along: Any = None) -> None:
        """Add G to the memory, and move w."""

    @abstractmethod
    def parameters(self, s: State) -> Any:
        """w, p×q. Callers do not write into it."""

    @abstractmethod
    def set_parameters(self, s: State, w: Any) -> None:
        """Replace w, p×q."""

    def largest_parameter(self, s: State) -> float:
        """The largest absolute value in w."""
        w = self.parameters(s)
        return arithmetic(w).largest(w)

    def norms(self, d: Any) -> Array | None:
        """The lengths of the gradients of a decomposition; None if they are not known."""
        return None

    def variance(self, s: State, G: Any, settings: StepSettings) -> Array:
        """gᵀPg for each column of G (p×n), of the chosen candidate."""
        raise NotImplementedError

    def time_update(self, s: State, w: Any, A: Any, drift: Any, noise: Any) -> None:
        """One step in time: w as given, P ← A P Aᵀ + Q. A: a number, or p×p for some memories."""
        raise NotImplementedError

    def check_dynamics(self, by_matrix: bool) -> None:
        """Raise if P cannot be moved by a number, or by a matrix."""
        raise ValueError(f"{self!r} does not support dynamics; ORFit's memories and EKF do")

    def check_drift(self, drift: object, size: int) -> Any:
        """The argument `drift`, checked, for so many parameters."""
        number = validation.nonnegative("drift", drift)
        if number and not self.drifts:
            raise ValueError(f"{self!r} does not support drift: its P does not grow between rows")
        return number

    def rescale_candidates(self, s: State, moved: Any, start: Any) -> None:
        """Change w to what it would be if other noises had been assumed from the start."""
        raise NotImplementedError

    def grow(self, s: State, growth: Growth) -> None:
        """Add features and heads, as if they had been there with zeros. `size` is set later."""
        refuse(self, "its content is for a fixed number of parameters")

    def check_state(self, s: State) -> None:  # noqa: B027
        """Raise ValueError if the fields, each within its limits, do not fit together."""

    def constants(self) -> dict[str, Array]:
        """Arguments that are arrays, to be saved next to the state."""
        return {}

    def needs(self, size: int) -> dict[str, tuple[int, ...]]:
        """Large arrays that a file must contain before a state of this size is allocated."""
        return {}

    # Merging.

    def merge_obstacle(self, noise: float) -> str | None:
        """Why its content cannot be expressed as rows; None if it can."""
        if self.merges:
            return None
        return f"{self!r} does not know what it saw; Principal, Unlimited and Dense do"

    def nothing_dropped(self, s: State) -> bool:
        """Whether nothing but rounding was dropped."""
        return True

    def as_rows(self, s: State, moved: Any, noise: float) -> SufficientRows:
        """The content along the kept directions as rows. moved: w − w₀, p×q."""
        raise NotImplementedError

    def sufficient_rows(self, s: State, moved: Any, noise: float) -> SufficientRows:
        """The whole content, for another memory of this kind."""
        return self.as_rows(s, moved, noise)

    def join(self, s: State, known: SufficientRows, moved: Any, noise: float) -> Any:
        """Decompose the rows of another memory. What is not in its rows is added at once."""
        return self.decompose(s, known.G, plain_settings(noise))

    def finish_join(self, s: State, known: SufficientRows, noise: float) -> None:  # noqa: B027
        """Finish what `join` began, after its rows were absorbed."""

    def remove(
        self, s: State, G: Any, residual: Array, moved: Any, noise: float, others: int
    ) -> None:
        """Remove the gradients G, as if they had never been learned, and change w accordingly.

        residual: y − f, n×q. moved: w − w₀. others: how many gradients remain. Raises if that is
        not possible exactly.
        """
        raise NotImplementedError

    # What users see.

    @property
    def _current(self) -> Any:
        """The state that properties describe; with several forgettings, that of the best one."""
        s = self._cell.state
        if s is None or not hasattr(s, "parts"):
            return s
        return s.parts[s.chosen * len(s.parts) // len(s.noises)]

    @abstractmethod
    def rank_in(self, s: State) -> int:
        """How many directions this state keeps."""

    @property
    def rank(self) -> int:
        """How many directions are kept."""
        s = self._current
        return 0 if s is None else self.rank_in(s)

    @abstractmethod
    def numbers_in(self, s: State) -> int:
        """How many numbers this state stores."""

    @property
    def numbers(self) -> int:
        """How many numbers are stored, for all forgettings that are compared."""
        s = self._cell.state
        return 0 if s is None else sum(map(self.numbers_in, getattr(s, "parts", (s,))))

    @property
    def w(self) -> Any:
        """The parameters of its learner, p×q."""
        s = self._current
        assert s is not None, "the memory is not in use yet"
        return self._cell.public(self.parameters(s))

    @property
    def lost(self) -> float:
        """The energy (squared length) of gradients that was dropped, faded as the rest is."""
        return 0.0

    @property
    def most(self) -> int | None:
        """How many directions may be kept; None: no limit."""
        return None

    @property
    def dropped_per_row(self) -> float:
        """The dropped energy per gradient."""
        return 0.0

    def settings(self) -> dict[str, Any]:
        """The arguments to make this memory again, as plain values."""
        return {}

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.settings().items())
        return f"{type(self).__name__}({settings})"

    def __copy__(self) -> "Memory":
        return copy.deepcopy(self)  # two memories cannot share buffers to which rows are appended

    def check_free(self) -> None:
        """Raise if this memory belongs to a learner."""
        if self._owned:
            raise ValueError("this memory belongs to another learner; give each one of its own")

    def state_for(self, like: Any, size: int, columns: int, ops: Any = None) -> State:
        """A state with what this memory has absorbed so far, or an empty one."""
        self._check_size(size)
        s = self._cell.state
        if s is None:
            self.size = size
            return self.new_state(ops or arithmetic(like), like, columns)
        return self._of_kind(State(**vars(s)), like)

    def belong_to(self, cell: Cell) -> None:
        """Share the state of a learner."""
        self._cell, self._owned = cell, True

    def _of_kind(self, s: State, like: Any) -> State:
        """The draft for arrays of this kind; raises if it is for another."""
        return s

    def _check_size(self, size: int) -> None:
        if self.size is not None and self.size != size:
            raise ValueError(
                f"this memory holds directions of {self.size} parameters, not {size}; "
                "give each learner a memory of its own"
            )
