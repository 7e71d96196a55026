"""What a kind of input has to do, and what all kinds of text do alike."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from orfit.stream.block import Block, Columns, Malformed, Position, StreamError
from orfit.stream.endings import Grammar
from orfit.stream.inputs import Bytes, File, Gzip, Pipe
from orfit.stream.pieces import Piece, pieces, shorter

CHUNK = 1 << 20  # bytes of text that are read at once
ROWS = 8192  # that come together


@dataclass(frozen=True)
class Limits:
    """How much of an input is in memory at once."""

    chunk: int = CHUNK
    rows: int = ROWS


class Reader(Protocol):
    """One input, as rows."""

    name: str
    names: list[str]

    @property
    def rows(self) -> int | None:
        """How many in all, if that is known without reading them."""

    def blocks(
        self, start: Position, columns: Sequence[str], numeric: Collection[str]
    ) -> Iterator[Block]:
        """From a position in it on."""

    def share(self, position: Position) -> float:
        """How much of it, from 0 to 1, stands before a position in it."""


class Text(ABC):
    """A text: what is read before its rows says the names, and is read again to see that it is so.

    A text from a pipe is kept, as it cannot be opened again.
    """

    grammar: Grammar
    names: list[str]
    rows: int | None = None

    def __init__(
        self, name: str, path: str, size: int | None, pipe: Pipe | None, limits: Limits
    ) -> None:
        self.name, self.limits = name, limits
        self._path, self._size, self._pipe = path, size, pipe
        self._packed = 1.0  # bytes of the file for a byte of the text, as far as it was read
        with self._open() as stream:
            self._begin = self.head(stream)

    @abstractmethod
    def head(self, stream: Bytes) -> tuple[int, int]:
        """Find the names, and at which offset and line the rows begin; all is unread."""

    @abstractmethod
    def parse(
        self, piece: Piece, columns: Sequence[str], numeric: Collection[str]
    ) -> tuple[dict[str, Any], dict[int, str]]:
        """The columns of a piece, and why a record of it is no row, by its number."""

    def blocks(
        self, start: Position, columns: Sequence[str], numeric: Collection[str]
    ) -> Iterator[Block]:
        """From a position in it on, a piece a block."""
        if self._pipe:
            self._pipe.take()
        with self._open() as stream:
            line = self._goto(stream, start)
            limits = self.limits
            for piece in pieces(stream, self.grammar, line, limits.chunk, limits.rows):
                self._packed = stream.packed() / stream.at
                found, why = self.parse(piece, columns, numeric)
                records = np.arange(len(piece.starts))
                if why:
                    records = np.delete(records, list(why))
                yield Block(
                    columns=Columns({column: found[column] for column in columns}),
                    name=self.name,
                    unit="line",
                    lines=piece.lines[records],
                    offsets=piece.offset + piece.starts[records],
                    records=records,
                    start=Position(start.file, piece.offset, piece.line),
                    end=Position(start.file, piece.end, piece.end_line),
                    malformed=tuple(
                        Malformed(record, int(piece.lines[record]), why[record])
                        for record in sorted(why)
                    ),
                )

    def share(self, position: Position) -> float:
        """By bytes; of gzip, by those that were needed so far."""
        return min(1.0, position.offset * self._packed / self._size) if self._size else 1.0

    def _open(self) -> Bytes:
        if self._pipe:
            return self._pipe
        return (Gzip if self._path.lower().endswith(".gz") else File)(self.name, self._path)

    def _goto(self, stream: Bytes, start: Position) -> int:
        """The line where reading goes on; a file that is another one now is not read."""
        names = self.names
        begin, line = self.head(stream)
        changed = f"{self.name} has changed: "
        if names != self.names or (begin, line) != self._begin:
            raise StreamError(f"{changed}its first line is another than before")
        if start.offset == 0:
            stream.goto(begin)
            return line
        if start.offset < begin:
            raise StreamError(f"{changed}reading stopped where its header is now")
        stream.goto(max(start.offset - 1, begin))
        before = stream.read(start.offset - stream.at) if stream.at < start.offset else b"\n"
        if not before:
            raise StreamError(shorter(self.name))
        if before not in b"\r\n":  # the last line had no end yet, and still is the last, or has one
            after = stream.read(1)
            if after not in b"\r\n":
                raise StreamError(f"{changed}no line ends where reading stopped")
            stream.unread(after)
        return start.line


def check_names(name: str, names: Sequence[str]) -> None:
    """Columns are found by their names."""
    seen: set[str] = set()
    for number, column in enumerate(names, 1):
        if not column:
            raise StreamError(f"{name}: column {number} has no name; every column needs one")
        if column in seen:
            raise StreamError(f"{name}: two columns are named {column!r}; names must be unique")
        seen.add(column)
