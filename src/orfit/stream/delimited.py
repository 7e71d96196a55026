"""Tables as text: csv and its kin. pyarrow makes the values; where records end is found here."""

import csv
import io
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv

from orfit.stream.block import StreamError
from orfit.stream.endings import Quoted
from orfit.stream.inputs import Bytes, Pipe
from orfit.stream.pieces import Piece, first
from orfit.stream.reader import Limits, Text, check_names
from orfit.stream.values import MISSING, parsed, without_nan

DELIMITERS = ",;\t|"


class Delimited(Text):
    """A table with a header. delimiter: between values; None is found from the header."""

    def __init__(
        self,
        name: str,
        path: str,
        size: int | None,
        pipe: Pipe | None,
        limits: Limits,
        delimiter: str | None,
    ) -> None:
        self._given = delimiter
        super().__init__(name, path, size, pipe, limits)

    def head(self, stream: Bytes) -> tuple[int, int]:
        """The names stand in the first line."""
        self.delimiter = self._given or self._find(stream)
        self.grammar = Quoted(self.delimiter.encode())
        header = first(stream, self.grammar, self.limits.chunk)
        try:
            self.names = [name.strip() for name in _fields(header.text, self.delimiter)]
        except csv.Error as error:
            raise StreamError(f"{self.name}: the header cannot be read: {error}") from None
        check_names(f"{self.name}, line {header.line}", self.names)
        return header.end, header.end_line

    def parse(
        self, piece: Piece, columns: Sequence[str], numeric: Collection[str]
    ) -> tuple[dict[str, Any], dict[int, str]]:
        """Numbers where they are expected, if all are; else texts."""
        data = piece.data
        if piece.unclosed:
            data = data[: int(piece.starts[-1])]
        texts = dict.fromkeys(columns, pa.string())
        types = texts | dict.fromkeys((name for name in columns if name in numeric), pa.float64())
        try:
            found, why = self._values(data, types)
        except pa.ArrowInvalid:  # a text among the numbers
            try:
                found, why = self._values(data, texts)
            except pa.ArrowException as error:
                raise StreamError(
                    f"{self.name}, from line {piece.line} on: this cannot be read as csv ({error})"
                ) from None
            for name in columns:
                if name in numeric:
                    numbers, right = parsed(found[name])
                    found[name] = numbers if right else found[name]
        count = len(piece.starts) - piece.unclosed
        if columns and len(found[columns[0]]) + len(why) != count:  # never seen
            raise StreamError(
                f"{self.name}, from line {piece.line} on: pyarrow finds other rows than the "
                f"{count} that are there"
            )
        if piece.unclosed:
            why[len(piece.starts) - 1] = "a quote that opens here is never closed"
        return found, why

    def _values(self, data: bytes, types: dict[str, Any]) -> tuple[dict[str, Any], dict[int, str]]:
        if not data.strip(b"\r\n"):
            return {name: pa.array([], kind) for name, kind in types.items()}, {}
        why: dict[int, str] = {}

        def malformed(row: Any) -> str:
            values = "1 value" if row.actual_columns == 1 else f"{row.actual_columns} values"
            why[row.number - 1] = f"{values}, where the header has {row.expected_columns}"
            return "skip"

        quotes = b'"' in data
        table = pyarrow.csv.read_csv(
            pa.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False,  # else rows have no numbers
                block_size=len(data) + 1,
                column_names=self.names,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.delimiter,
                quote_char='"' if quotes else False,
                newlines_in_values=quotes,
                invalid_row_handler=malformed,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                check_utf8=False,  # done, to say the line
                column_types=types,
                include_columns=list(types) or self.names[:1],  # an empty list would mean all
                null_values=MISSING,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        found = {name: _whole(table.column(name)) for name in types}
        for name, kind in types.items():
            if kind == pa.float64():
                found[name] = without_nan(found[name])
        return found, why

    def _find(self, stream: Bytes) -> str:
        """The delimiter that is most often in the header; a comma if there is none."""
        any_of_them = Quoted(DELIMITERS.encode())
        header = first(stream, any_of_them, self.limits.chunk).text
        return max(DELIMITERS, key=any_of_them.without_quoted(header.encode()).decode().count)


def _fields(header: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(header.rstrip("\r\n"), newline=""), delimiter=delimiter))


def _whole(column: Any) -> Any:
    """One array of a column that is in chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
