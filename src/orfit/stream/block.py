"""What travels from a reader to the learner: some rows of an input, by columns, as they came."""

from dataclasses import dataclass, replace
from typing import Any

from orfit.door import Array


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

    columns: dict[str, Any]
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
        columns = {name: each.slice(start, stop - start) for name, each in self.columns.items()}
        rows = slice(start, stop)
        of_rows = {name: getattr(self, name)[rows] for name in ("lines", "offsets", "records")}
        return replace(self, columns=columns, **of_rows)
