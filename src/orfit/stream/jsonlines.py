"""Objects of JSON, one a line.

The parser is Python's, not the faster one of pyarrow: that one says neither which line is wrong nor
goes on after it, and guesses types anew for every block.
"""

import json
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from orfit.stream.block import StreamError
from orfit.stream.endings import Lines
from orfit.stream.inputs import Bytes
from orfit.stream.pieces import Piece, first
from orfit.stream.reader import Text, check_names

BLANK = ("", "\r")  # lines that are no records
_decode = json.JSONDecoder().decode


class JsonLines(Text):
    """Lines of JSON: the columns are the keys of the first object."""

    grammar = Lines()

    def head(self, stream: Bytes) -> tuple[int, int]:
        """The first line is a row, too."""
        line = first(stream, self.grammar, self.limits.chunk)
        found = _object(line.text)
        where = f"{self.name}, line {line.line}"
        if isinstance(found, str):
            raise StreamError(f"{where}: {found}")
        if not found:
            raise StreamError(f"{where}: the first object has no keys, so there are no columns")
        self.names = list(found)
        check_names(where, self.names)
        return line.offset, 1

    def parse(
        self, piece: Piece, columns: Sequence[str], numeric: Collection[str]
    ) -> tuple[dict[str, Any], dict[int, str]]:
        """What a line lacks is null."""
        known = set(self.names)
        rows: list[dict[str, Any]] = []
        why: dict[int, str] = {}
        lines = (line for line in piece.data.decode().split("\n") if line not in BLANK)
        for record, line in enumerate(lines):
            row = _object(line)
            if isinstance(row, str):
                why[record] = row
                continue
            if not row.keys() <= known:
                unknown = next(key for key in row if key not in known)
                raise StreamError(
                    f"{self.name}, line {piece.lines[record]}: the key {unknown!r} is new; the "
                    f"first object has only {', '.join(map(repr, self.names))}"
                )
            nested = _nested(row, columns) if "[" in line or "{" in line[1:] else None
            if nested is None:
                rows.append(row)
            else:
                why[record] = f"the value of {nested!r} is not a single one"
        return {
            name: _column([row.get(name) for row in rows], name in numeric) for name in columns
        }, why


def _object(line: str) -> dict[str, Any] | str:
    """The object on a line, or why there is none."""
    try:
        found = _decode(line)
        if "\\u" in line:
            json.dumps(found, ensure_ascii=False).encode()  # fails on half a character
    except RecursionError:
        return "this is nested too deeply"
    except UnicodeEncodeError:
        return "a text holds half a character, a surrogate without the other"
    except json.JSONDecodeError as error:
        return f"this is not JSON: {error.msg} at character {error.pos + 1}"
    except ValueError:  # thousands of digits
        return "a number is too long"
    return found if isinstance(found, dict) else "this is not an object of JSON, {...}"


def _nested(row: dict[str, Any], columns: Sequence[str]) -> str | None:
    """A column whose value is an object or a list."""
    return next((name for name in columns if isinstance(row.get(name), dict | list)), None)


def _column(values: list[Any], numeric: bool) -> Any:
    """Numbers, truths or texts, if all are; else texts. Without any value it has no type."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {int, float} and (kinds or numeric):
        return pa.array(_numbers(values), from_pandas=True)  # NaN is null
    if len(kinds) == 1 or not kinds:
        return pa.array(values)
    return pa.array([_text(value) for value in values])


def _text(value: Any) -> str | None:
    """As JSON writes it; NaN is null here, too."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _numbers(values: list[Any]) -> Any:
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # a whole number may have hundreds of digits: infinite, as 1e999 is
        return np.array([_number(value) for value in values], dtype=np.float64)


def _number(value: Any) -> float | None:
    try:
        return None if value is None else float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
