"""Several λ side by side: a memory for each, of the same gradients."""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from orfit import door, schema, tall
from orfit.door import Array
from orfit.growth import Growth
from orfit.memory.base import Memory
from orfit.schema import Fields, Layout


@dataclass(frozen=True)
class SeveralSplit:
    """How gradients lie to each memory, seen under one of the guesses: those of one λ in a row."""

    splits: list[Any]
    each: int  # guesses of each memory
    guess: int = 0

    def under(self, guess: int) -> "SeveralSplit":
        return replace(self, guess=guess)

    @property
    def mine(self) -> Any:
        return self.of(self.guess // self.each)

    def of(self, which: int) -> Any:
        """How they lie to one of the memories."""
        split = self.splits[which]
        return split if self.each == 1 else split.under(self.guess % self.each)

    @property
    def factor(self) -> Array:
        return np.asarray(self.mine.factor)

    @property
    def novelty(self) -> float:
        return float(self.mine.novelty)

    @property
    def along_w(self) -> Array:
        return np.hstack([split.along_w for split in self.splits])

    def move(self, z: Array) -> tuple[Any, float]:
        moved: tuple[Any, float] = self.mine.move(z)
        return moved

    def joined(self, moves: list[Any]) -> list[Any]:
        """For each memory what it takes, from what each guess takes."""
        if self.each == 1:
            return moves
        starts = range(0, len(moves), self.each)
        groups = [moves[start : start + self.each] for start in starts]
        return [split.joined(group) for split, group in zip(self.splits, groups, strict=True)]


@dataclass(frozen=True)
class OfOne:
    """The guesses of one memory, as its `walk` needs to know them."""

    noises: Array
    chosen: int

    @property
    def noise(self) -> float:
        return float(self.noises[self.chosen])

    def __len__(self) -> int:
        return len(self.noises)


class Several(Memory):
    """A copy of one memory for each λ; w's columns are shared out among them.

    What it tells of itself (`rank`, `U`, ...) is told of the one that was best when it learned.
    """

    def __init__(self, memory: Memory, count: int) -> None:
        self.memories: list[Any] = [memory, *(copy.deepcopy(memory) for _ in range(count - 1))]
        self.each, self.best = 1, 0

    @property
    def given(self) -> Memory:
        return self.memories[0].given  # type: ignore[no-any-return]

    @property
    def compiled(self) -> bool:  # type: ignore[override]
        return bool(self.memories[0].compiled)

    @property
    def one_prior(self) -> bool:  # type: ignore[override]
        return bool(self.memories[0].one_prior)

    @property
    def chosen(self) -> Any:
        return self.memories[self.best]

    def bind(self, like: Any) -> None:
        for memory in self.memories:
            memory.bind(like)

    def carry(self, w: Any) -> None:
        for memory, part in zip(self.memories, self.shared_out(w), strict=True):
            memory.carry(part)
        self.size, self._carries = len(w), True

    def guess(self, tails: Array) -> None:
        self.each = len(tails) // len(self.memories)
        for i, memory in enumerate(self.memories):
            memory.guess(tails[i * self.each : (i + 1) * self.each])

    def accept_drift(self, drift: object, size: int) -> Any:
        return self.memories[0].accept_drift(drift, size)

    def loop_obstacle(self, noise: float, drift: Any) -> str | None:
        why: str | None = self.memories[0].loop_obstacle(noise, drift)
        return why

    @property
    def loop_ready(self) -> bool:
        return bool(self.memories[0].loop_ready)

    def split(self, G: Any, noise: Any = 0.0, forgetting: Any = 1.0, drift: Any = 0.0) -> Any:
        """noise: R of every guess. forgetting: λ of every memory."""
        noises = np.reshape(noise, (len(self.memories), self.each))
        splits = [
            memory.split(G, float(R[0]) if self.each == 1 else R, fade, drift)
            for memory, R, fade in zip(self.memories, noises, forgetting, strict=True)
        ]
        return SeveralSplit(splits, self.each)

    def remember(self, past: SeveralSplit, move: Any = None) -> None:
        moves = [None] * len(self.memories) if move is None else move
        for which, (memory, of_it) in enumerate(zip(self.memories, moves, strict=True)):
            memory.remember(past.of(which), of_it)
        self.best = past.guess // self.each

    def move_guesses(self, moved: Any, start: Any) -> None:
        # Copies: who does this again needs them as they were.
        memories = copy.deepcopy(self.memories)
        for i, memory in enumerate(memories):
            memory.move_guesses(moved.part(i * self.each, self.each), start)
        self.memories = memories

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self, *(part for memory in self.memories for part in memory.parts))

    def settle(self) -> None:
        for memory in self.memories:
            memory.settle()

    def grow(self, growth: Growth) -> None:
        for memory in self.memories:
            memory.grow(growth)
        self.size = self.memories[0].size

    @property
    def until_decision(self) -> int:
        return int(self.memories[0].until_decision)

    def walk(self, *settings: Any) -> "SeveralWalk":
        return SeveralWalk(self, *settings)

    def joined(self, told: list[Array], which: int, width: int) -> Array:
        """The records of the best, with the variances, residuals and predictions of all."""
        ends = np.cumsum([3, self.each, width, width])
        parts = [[t[:, a:b] for t in told] for a, b in pairwise(ends)]
        best = told[which]
        return np.hstack([best[:, :3], *(t for part in parts for t in part), best[:, ends[-1] :]])

    def variance(self, G: Any, noise: float, guess: int = 0) -> Array:
        which, within = divmod(guess, self.each)
        return np.asarray(self.memories[which].variance(G, noise, within))

    def shared_out(self, w: Any) -> list[Any]:
        """Columns of w, or of labels, for each memory."""
        width = w.shape[1] // len(self.memories)
        return [w[:, i * width : (i + 1) * width] for i in range(len(self.memories))]

    @property
    def w(self) -> Any:
        return tall.beside(*(memory.w for memory in self.memories))

    @w.setter
    def w(self, w: Any) -> None:
        for memory, part in zip(self.memories, self.shared_out(w), strict=True):
            memory.w = part

    @property
    def reach(self) -> float:
        return float(max(memory.reach for memory in self.memories))

    @reach.setter
    def reach(self, reach: float) -> None:
        for memory in self.memories:
            memory.reach = reach

    def largest(self) -> float:
        return float(max(memory.largest() for memory in self.memories))

    @property
    def lengths(self) -> Any:
        return self.memories[0].lengths

    @property
    def rank(self) -> int:
        return int(self.chosen.rank)

    @property
    def numbers(self) -> int:
        return sum(memory.numbers for memory in self.memories)

    @property
    def lost(self) -> float:
        return float(self.chosen.lost)

    @property
    def most(self) -> int | None:
        most: int | None = self.chosen.most
        return most

    @property
    def dropped_per_row(self) -> float:
        return float(self.chosen.dropped_per_row)

    @property
    def U(self) -> Any:
        return self.chosen.U

    @property
    def sigma(self) -> Array:
        return np.asarray(self.chosen.sigma)

    @property
    def P(self) -> Array:
        return np.asarray(self.chosen.P)

    def settings(self) -> dict[str, Any]:
        return {"memory": self.given, "count": len(self.memories)}

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays: dict[str, Array] = {}
        values: list[dict[str, Any]] = []
        for i, memory in enumerate(self.memories):
            of_it, more = memory.state()
            arrays |= {f"{i}.{name}": array for name, array in of_it.items()}
            values.append(more)
        return arrays, {"each": values, "best": self.best}

    def fields(self) -> Fields:
        count = len(self.memories)
        each = schema.listed(schema.record(self.memories[0].fields()), count, count)
        return {"each": each, "best": functools.partial(door.count, least=0, most=count - 1)}

    def layout(self) -> Layout:
        def own(side: Any, i: int) -> Any:  # letters of one stand for nothing in another
            return f"{i}.{side}" if isinstance(side, str) and side != schema.ANY else side

        return {
            f"{i}.{name}": (dtype, *(own(side, i) for side in sides))
            for i, memory in enumerate(self.memories)
            for name, (dtype, *sides) in memory.layout().items()
        }

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        for i, (memory, more) in enumerate(zip(self.memories, values["each"], strict=True)):
            start = f"{i}."
            of_it = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
            memory.restore(of_it, more)
        self.best = values["best"]


class SeveralWalk:
    """Each memory's copy walks by itself; where one stops short, the others walk no further."""

    goes_on = False  # they have to stop at the same row
    catch_up: Callable[[], None]

    def __init__(self, memory: Several, guesses: Any, fades: Any, *more: Any) -> None:
        self.memory, self.guesses, self.fades, self.more = memory, guesses, fades, more

    def begin(self, rows: int) -> None:
        self.ahead, self.records = self.memory.memories, np.empty((0, 0))

    def run(self, G: Any, F: Array, Y: Array) -> int:
        ahead, told = self._walked(G, F, Y)
        lengths = [len(records) for records in told]
        if min(lengths) < max(lengths):
            ahead, told = self._walked(G, F, Y[: min(lengths)])
        best, width = self.guesses.chosen // self.memory.each, Y.shape[1] // len(ahead)
        records = self.memory.joined(told, best, width)
        self.ahead, self.records = ahead, records  # this is the moment
        return self.learned

    def _walked(self, G: Any, F: Array, Y: Array) -> tuple[list[Any], list[Array]]:
        """The memories after the rows of Y, and their records."""
        several, ahead, told = self.memory, copy.deepcopy(self.memory.memories), []
        rows, each = len(Y), several.each
        F_each, Y_each = several.shared_out(F[:rows]), several.shared_out(Y)
        for i, memory in enumerate(ahead):
            noises = self.guesses.noises[i * each : (i + 1) * each]
            mine = OfOne(noises, self.guesses.chosen % each)
            walk = memory.walk(mine, self.fades[i], *self.more)
            walk.begin(rows)
            walk.run(G[:, :rows], *map(np.ascontiguousarray, (F_each[i], Y_each[i])))
            told.append(walk.note())
        return ahead, told

    @property
    def learned(self) -> int:
        return len(self.records)

    @property
    def w(self) -> Any:
        return tall.beside(*(memory.w for memory in self.ahead))

    def note(self) -> Array:
        if len(self.records):
            self.memory.memories = self.ahead
            self.memory.best = self.guesses.chosen // self.memory.each
        return self.records
