"""As many principal directions as the stream is worth: `memory="auto"`."""

import functools
import math
from typing import Any

from orfit import door, schema
from orfit import tail as tails
from orfit.door import Array
from orfit.memory.basis import BasisSplit, JoinedSplit
from orfit.memory.known import Known
from orfit.memory.principal import Principal
from orfit.schema import Fields

FIRST = 10  # directions to begin with
MOST = 300  # where nobody says: beyond, a row's time grows like their cube
INTERVAL = 32  # rows between decisions to grow
SHARE = 0.5  # of what there are: so many more at a time
ROWS = 2  # for each direction, before there are more
DISTINCT = 1.5  # times what was seen along one that is not kept: more is more than chance
UNSURE = 0.05  # of the noise: what directions that are not kept may add to the variance of y


class Growing(Principal):
    """The principal directions, of which there may be more as the stream goes on, up to `most`.

    Every 32 rows there may be half as many more, while there are two rows for each, the least of
    them stands out from those that are not kept (`orfit.tail`), and those matter: they add more
    than a twentieth of the noise to the variance of a prediction. Without noise or tail nothing is
    known of them, and so they always do.

    Examples:
        >>> learner = orfit.ORFit(orfit.Linear(1000), orfit.memory.Growing(most=50), noise=1.0)
        >>> learner.memory.m, learner.memory.most
        (10, 50)
    """

    def __init__(self, most: int = MOST) -> None:
        super().__init__(min(FIRST, door.count("most", most)))
        self.limit = int(most)
        self._rows = 0

    @property
    def most(self) -> int:
        return self.limit

    @property
    def until_decision(self) -> int:
        return INTERVAL - self._rows % INTERVAL

    def _take_in(self, past: BasisSplit) -> None:
        super()._take_in(past)
        self._grow(past.arrived, past.guess, past.noise)

    def join(self, known: Known, moved: Any, noise: float) -> JoinedSplit:
        """With room for as many directions as the other has."""
        self._allow(max(self.m, min(self.limit, known.G.shape[1])))
        return super().join(known, moved, noise)

    def walked(self, rows: int, guesses: Any) -> None:
        self._grow(rows, guesses.chosen, guesses.noise)

    def _grow(self, rows: int, guess: int, noise: float) -> None:
        """Count rows that were learned; when it is time, let there be more directions."""
        time, self._rows = rows >= self.until_decision, self._rows + rows
        if not time or self.rank < self.m:
            return
        room = min(self.limit, self._rows // ROWS, self.size or 0)
        more = min(room, self.m + math.ceil(SHARE * self.m))
        if more > self.m and self._worth_more(guess, noise):
            self._allow(more)

    def _worth_more(self, guess: int, noise: float) -> bool:
        """Whether directions that are not kept are missed."""
        if noise == 0 or not self.tailed[guess]:
            return True
        level, dropping = self.tail.level[guess], self.tail.dropping
        energy = self.tail.dropped[guess] / dropping if dropping else 0.0  # of each row
        unsure = energy / (tails.floor(self.tail, noise) + level)  # in units of the noise
        return bool(self.seen.sigma[-1] > math.sqrt(DISTINCT * level) and unsure > UNSURE)

    def _allow(self, m: int) -> None:
        self.m = m
        self.frame.reserve(self.room(self.size or 0))

    def take_over(self, inside: Any, parts: Any) -> None:
        self._allow(inside.m)
        super().take_over(inside, parts)

    def settings(self) -> dict[str, Any]:
        return {"most": self.limit}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays, values = super().state()
        return arrays, values | {"m": self.m, "rows": self._rows}

    def fields(self) -> Fields:
        m = functools.partial(door.count, least=min(FIRST, self.limit), most=self.limit)
        return super().fields() | {"m": m, "rows": schema.counter}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self._allow(values["m"])
        super().restore(arrays, values)
        self._rows = values["rows"]
