"""The inputs of `orfit learn`, in their order, as one stream of rows."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePath

from orfit.stream.block import Block, Position, StreamError
from orfit.stream.inputs import STDIN, Pipe, check_file, is_stream, standard_input, told
from orfit.stream.reader import CHUNK, ROWS, Limits, Reader

DELIMITED, JSON, PARQUET = ("csv", "tsv"), ("jsonl", "ndjson"), ("parquet",)
FORMATS = (*DELIMITED, *JSON, *PARQUET)


@dataclass(frozen=True)
class Input:
    """What is known of an input before it is opened. size: its bytes, if it is a file."""

    path: str
    format: str
    stream: bool
    size: int | None

    @property
    def name(self) -> str:
        """For messages."""
        return "stdin" if self.path == STDIN else self.path


class Source:
    """Rows of some inputs, by the names of columns, which all of them must have.

    names: the columns, as the first input has them.
    live: rows of an input come when they come: it is a pipe or a terminal.
    size: of all inputs, in bytes as they are stored, or in rows if all are parquet; None if there
        is an input that is not a file.

    Files are opened once at first, to find names that do not fit before anything is learned.
    """

    def __init__(self, inputs: Sequence[Input], delimiter: str | None, limits: Limits) -> None:
        self._inputs, self._delimiter, self._limits = inputs, delimiter, limits
        self._readers: list[Reader | None] = [None] * len(inputs)
        self.live = any(one.stream for one in inputs)
        self.names = list(self._reader(0).names)
        for index, one in enumerate(inputs):
            if one.size is not None:
                self._reader(index)
        self.size = self._total()

    @classmethod
    def of(
        cls,
        paths: Sequence[str],
        format: str | None = None,
        delimiter: str | None = None,
        *,
        chunk: int = CHUNK,
        rows: int = ROWS,
    ) -> "Source":
        """The inputs at some paths; "-" is stdin.

        format: csv, tsv, jsonl, ndjson or parquet, of all of them; or it follows from their names.
        delimiter: between the values of a csv; or it is found from the header.
        chunk, rows: how many bytes of text, and how many rows, are in memory at once.
        """
        if find_spec("pyarrow") is None:
            raise StreamError("reading streams needs pyarrow: pip install '.[cli]'")
        if not paths:
            raise StreamError("there is no input; name files, or - for stdin")
        if paths.count(STDIN) > 1:
            raise StreamError("stdin is given twice; it can be read only once")
        if format is not None and format not in FORMATS:
            raise StreamError(f"--format must be one of {', '.join(FORMATS)}; it is {format!r}")
        inputs = [_input(path, format) for path in paths]
        if delimiter is not None:
            delimiter = _delimiter(delimiter)
            if not any(one.format in DELIMITED for one in inputs):
                raise StreamError("a delimiter is given, but no input is a csv or tsv")
        return cls(inputs, delimiter, Limits(chunk, rows))

    def blocks(
        self,
        start: Position = Position(),  # noqa: B008, it is frozen
        numeric: Collection[str] = (),
        columns: Collection[str] | None = None,
    ) -> Iterator[Block]:
        """The rows from a position on, some at a time, in bounded memory.

        numeric: columns that should hold numbers. They come as float64; of text, in a block where
            one is no number, as texts. All other columns of a csv come as texts.
        columns: which are wanted; None is all.
        """
        for column in (*numeric, *(columns or ())):
            if column not in self.names:
                raise StreamError(
                    f"{self._inputs[0].name}: there is no column {column!r}; the columns are "
                    f"{', '.join(map(repr, self.names))}"
                )
        wanted = [name for name in self.names if columns is None or name in columns]
        if not 0 <= start.file < len(self._inputs):
            raise StreamError(
                f"reading stopped in input {start.file + 1}, and there are {len(self._inputs)} now"
            )
        return self._blocks(start, wanted, frozenset(numeric))

    def progress(self, position: Position) -> float | None:
        """How much of all, from 0 to 1, stands before a position; None if that is not known."""
        sizes = [one.size for one in self._inputs]
        if None in sizes or not 0 <= position.file < len(sizes):
            return None
        known = [size or 0 for size in sizes]
        here = self._reader(position.file).share(position) * known[position.file]
        return (sum(known[: position.file]) + here) / max(1, sum(known))

    def _blocks(
        self, start: Position, wanted: Sequence[str], numeric: Collection[str]
    ) -> Iterator[Block]:
        for index in range(start.file, len(self._inputs)):
            here = start if index == start.file else Position(file=index)
            yield from self._reader(index).blocks(here, wanted, numeric)

    def _reader(self, index: int) -> Reader:
        found = self._readers[index]
        if found is None:
            found = self._readers[index] = self._open(self._inputs[index])
            if index:
                _check_same(found, self.names, self._inputs[0].name)
        return found

    def _open(self, one: Input) -> Reader:
        # Here, as they need pyarrow.
        from orfit.stream.delimited import Delimited
        from orfit.stream.jsonlines import JsonLines
        from orfit.stream.parquet import Parquet

        if one.format in PARQUET:
            return Parquet(one.name, one.path, self._limits)
        pipe = _pipe(one) if one.size is None else None
        if one.format in JSON:
            return JsonLines(one.name, one.path, one.size, pipe, self._limits)
        delimiter = self._delimiter or ("\t" if one.format == "tsv" else None)
        return Delimited(one.name, one.path, one.size, pipe, self._limits, delimiter)

    def _total(self) -> int | None:
        if all(one.format in PARQUET for one in self._inputs):
            return sum(reader.rows or 0 for reader in self._readers if reader)
        sizes = [one.size for one in self._inputs]
        return None if None in sizes else sum(size or 0 for size in sizes)


def _input(path: str, format: str | None) -> Input:
    name = "stdin" if path == STDIN else path
    found = format or ("csv" if path == STDIN else _format(path))
    stream = is_stream(path)
    size = None if stream or path == STDIN else check_file(name, path)
    if found in PARQUET and size is None:
        raise StreamError(f"{name}: parquet cannot come from a pipe, its end must be read first")
    if found in PARQUET and path.lower().endswith(".gz"):
        raise StreamError(f"{name}: parquet is compressed by itself; unpack it with gunzip")
    return Input(path, found, stream, size)


def _format(path: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    last = suffixes[-2:-1] if suffixes[-1:] == [".gz"] else suffixes[-1:]
    if last and last[0][1:] in FORMATS:
        return last[0][1:]
    raise StreamError(
        f"{path}: its name does not say what it is, as .csv or .jsonl.gz would; --format can be "
        f"one of {', '.join(FORMATS)}"
    )


def _delimiter(given: str) -> str:
    delimiter = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise StreamError(
            f"the delimiter must be a single character of ASCII, no quote and no line end; it is "
            f"{given!r}"
        )
    return delimiter


def _pipe(one: Input) -> Pipe:
    if one.path == STDIN:
        return standard_input()
    with told(one.name):
        return Pipe(one.name, os.open(one.path, os.O_RDONLY))


def _check_same(reader: Reader, names: Sequence[str], first: str) -> None:
    lacks = [name for name in names if name not in reader.names]
    more = [name for name in reader.names if name not in names]
    if lacks or more:
        said = [f"it lacks {', '.join(map(repr, lacks))}"] if lacks else []
        said += [f"it has {', '.join(map(repr, more))}, which is new"] if more else []
        raise StreamError(f"{reader.name} has other columns than {first}: {'; '.join(said)}")
