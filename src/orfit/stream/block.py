"""What travels from a reader to the learner: some rows of an input, by columns, as they came."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orfit.validation import Array


class StreamError(ValueError):
    """An input, an option or a checkpoint is not what it should be; the sentence says where."""


def one_line(text: str) -> str:
    """As a terminal shows it, on one line: names and values of a file may hold anything."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True)
class Position:
    """Where reading goes on: all before it has been read.

    file: which of the inputs. offset: bytes of it, uncompressed; of parquet, rows. line: the number
    of the line (of parquet, the row) there.
    """

    file: int = 0
    offset: int = 0
    line: int = 1


@dataclass(frozen=True)
class Malformed:
    """A record that could not be made a row: where it stands, as in `Block`, and why."""

    record: int
    line: int
    why: str


class Columns(Mapping[str, Any]):
    """Columns by name, or some rows of them, which are cut out when somebody looks.

    Blocks are cut into small ones, and what is made of all rows at once serves each of those.
    """

    def __init__(self, whole: Mapping[str, Any], start: int = 0, stop: int | None = None) -> None:
        self._whole, self._start, self._stop = whole, start, stop
        self._made: dict[Any, Array] = {}

    def cut(self, start: int, stop: int) -> "Columns":
        """Rows of these rows."""
        part = Columns(self._whole, self._start + start, self._start + stop)
        part._made = self._made
        return part

    def made(self, make: Callable[[Any], Array], names: tuple[str, ...]) -> Array:
        """What `make` makes of some columns, each row by itself: n×k, one for each column.

        It is made of the whole once; nobody may write to it.
        """
        key = make, names
        if key not in self._made:
            columns = [make(self._whole[name]) for name in names]
            self._made[key] = np.column_stack(columns)
        return self._made[key][self._start : self._stop]

    def __getitem__(self, name: str) -> Any:
        column = self._whole[name]
        return column if self._stop is None else column[self._start : self._stop]

    def __contains__(self, name: object) -> bool:
        return name in self._whole

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


@dataclass(frozen=True)
class Block:
    """Rows that came together, all of one input.

    columns: by name, pyarrow arrays of one length: numbers, texts, dates or truths, null where a
        value is missing.
    name: of the input. unit: what `lines` counts, "line" or "row".
    lines: for each row, where it stands. offsets: where it begins, as in `Position`.
    records: for each row, which it is, counted from `start`.
    malformed: what could not be made a row, among them or after them.
    start: where `records` are counted from. end: where reading goes on after all of this.
    """

    columns: Columns
    name: str
    unit: str
    lines: Array
    offsets: Array
    records: Array
    start: Position
    end: Position
    malformed: tuple[Malformed, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, row: int) -> str:
        """For messages: the file and the line of a row."""
        return f"{self.name}, {self.unit} {int(self.lines[row])}"

    def split(self, rows: int) -> tuple["Block", "Block"]:
        """The first rows, fewer than all, and the others, with what is malformed of each."""
        next_record = int(self.records[rows])
        first = replace(
            self._rows(0, rows),
            end=Position(self.start.file, int(self.offsets[rows]), int(self.lines[rows])),
            malformed=tuple(one for one in self.malformed if one.record < next_record),
        )
        others = tuple(one for one in self.malformed if one.record > next_record)
        return first, replace(self._rows(rows, len(self)), malformed=others)

    def _rows(self, start: int, stop: int) -> "Block":
        rows = slice(start, stop)
        of_rows = {name: getattr(self, name)[rows] for name in ("lines", "offsets", "records")}
        return replace(self, columns=self.columns.cut(start, stop), **of_rows)
