"""As many principal directions as the stream is worth: `memory="auto"`."""

import math
from typing import Any

from orfit import validation
from orfit.memory.basis import BasisDecomposition, capacity_of, room_for
from orfit.memory.principal import Principal
from orfit.memory.sufficient_rows import SufficientRows
from orfit.state import State

FIRST = 10  # directions to begin with
MOST = 300  # the default limit: beyond, a row's time grows like the cube of the directions
INTERVAL = 32  # rows between decisions to grow
SHARE = 0.5  # by which the number of directions grows at a time
ROWS = 2  # for each direction, before there are more
DISTINCT = 1.5  # times the tail: a direction with more energy is distinct from chance
UNSURE = 0.05  # of the noise: what directions that are not kept may add to the variance of y


class Growing(Principal):
    """The principal directions, whose number may grow with the stream, up to `most`.

    Every 32 rows there may be half as many more, while there are two rows for each, the least of
    them is distinct from those that are not kept, and those matter: they add more than a twentieth
    of the noise to the variance of a prediction. Without noise or tail nothing is known of them,
    and so they always matter.

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(1000), orfit.memory.Growing(most=50), noise=1.0)
        >>> learner.memory.m, learner.memory.most
        (10, 50)
    """

    def __init__(self, most: int = MOST) -> None:
        self.limit = validation.count("most", most)
        super().__init__(min(FIRST, self.limit))

    @property
    def m(self) -> int:
        s = self._current
        return self._first if s is None else int(s.max_rank)

    @m.setter
    def m(self, m: int) -> None:
        self._first = m

    @property
    def most(self) -> int:
        return self.limit

    def new_state(self, ops: Any, like: Any, columns: int) -> State:
        s = super().new_state(ops, like, columns)
        s.max_rank, s.rows_absorbed = self._first, 0
        return s

    def _limit(self, s: State) -> int:
        return int(s.max_rank)

    def _capacity(self, s: State, size: int) -> int:
        return capacity_of(room_for(s.max_rank, size), size)

    def _drop(self, s: State, d: BasisDecomposition) -> None:
        super()._drop(s, d)
        due = d.arrived >= INTERVAL - s.rows_absorbed % INTERVAL
        s.rows_absorbed += d.arrived
        if due:
            self._grow_limit(s, d)

    def _grow_limit(self, s: State, d: BasisDecomposition) -> None:
        """Allow more directions if that is worth it."""
        if len(s.W) < s.max_rank:
            return
        room = min(self.limit, s.rows_absorbed // ROWS, self.size or 0)
        more = min(room, s.max_rank + math.ceil(SHARE * s.max_rank))
        if more > s.max_rank and self._worth_more(s, d):
            self._allow(s, more)

    def _worth_more(self, s: State, d: BasisDecomposition) -> bool:
        chosen = d.settings.chosen
        if d.settings.noise == 0 or not d.settings.tailed[chosen]:
            return True
        level, dropping = s.tail_level[chosen], s.tail_dropping
        energy = s.tail_dropped[chosen] / dropping if dropping else 0.0  # of each row
        unsure = energy / (d.floor[chosen] + level)  # in units of the noise
        return bool(s.sigma[-1] > math.sqrt(DISTINCT * level) and unsure > UNSURE)

    def _allow(self, s: State, m: int) -> None:
        s.max_rank = m
        s.store = s.store.resized(self._capacity(s, self.size or 0))

    def join(self, s: State, known: SufficientRows, moved: Any, noise: float) -> Any:
        """Allow as many directions as the other memory has, then join."""
        self._allow(s, max(s.max_rank, min(self.limit, known.G.shape[1])))
        return super().join(s, known, moved, noise)

    def check_state(self, s: State) -> None:
        if not self._first <= s.max_rank <= self.limit:
            raise ValueError(f"m must be between {self._first} and {self.limit}")
        super().check_state(s)

    def settings(self) -> dict[str, Any]:
        return {"most": self.limit}
