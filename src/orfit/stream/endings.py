"""Where lines and records of a text end; a quoted value may go over several lines."""

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from orfit.validation import Array

LF, CR, QUOTE = b"\n"[0], b"\r"[0], b'"'[0]


@dataclass(frozen=True)
class Ends:
    """Where in some bytes the last byte of each line stands, and of each record.

    unclosed: the bytes end inside of quotes.
    """

    lines: Array
    records: Array
    unclosed: bool = False


class Grammar(Protocol):
    """How a kind of text is cut."""

    def ends(self, data: bytes, final: bool) -> Ends:
        """Of bytes that begin with a record. final: nothing follows."""


class Lines:
    """A record is a line, as JSON never writes a line end as such within a text."""

    def ends(self, data: bytes, final: bool) -> Ends:
        """Only a line feed ends a line: a carriage return is a blank of JSON."""
        lines = np.flatnonzero(np.frombuffer(data, np.uint8) == LF)
        return Ends(lines, lines)


class Quoted:
    """Values between delimiters, some of them in quotes, with a quote in them doubled.

    A quote opens only where a value begins, as pyarrow and most readers have it: 5" is five inches.
    """

    def __init__(self, delimiters: bytes) -> None:
        around = re.escape(delimiters) + rb"\r\n"
        # From a quote that opens to the one that closes, or to the end of all.
        self._value = re.compile(rb'(?<![^%b])"[^"]*+(?:""[^"]*+)*+("?)' % around)
        self._around = np.zeros(256, dtype=bool)
        self._around[list(delimiters + b'\r\n"')] = True

    def ends(self, data: bytes, final: bool) -> Ends:
        """Line feeds, carriage returns, or both together, end a line; outside of quotes, a record.

        A carriage return at the end is none before it is known what follows.
        """
        codes = np.frombuffer(data, np.uint8)
        lines = np.flatnonzero(codes == LF)
        if b"\r" in data:
            returns = np.flatnonzero(codes == CR)
            follows = np.append(codes, 0 if final else LF)[returns + 1]
            lines = np.sort(np.concatenate([lines, returns[follows != LF]]))
        if b'"' not in data:
            return Ends(lines, lines)
        quotes = np.flatnonzero(codes == QUOTE)
        if self._regular(codes, quotes):  # a doubled quote closes and opens: counting is enough
            inside = np.searchsorted(quotes, lines) % 2 == 1
            return Ends(lines, lines[~inside], bool(len(quotes) % 2))
        spans = [(*value.span(), value[1]) for value in self._value.finditer(data)]
        bounds = np.array([span[:2] for span in spans], dtype=np.int64).ravel()
        unclosed = bool(spans) and not spans[-1][2]
        inside = np.searchsorted(bounds, lines, side="right") % 2 == 1
        return Ends(lines, lines[~inside], unclosed)

    def without_quoted(self, data: bytes) -> bytes:
        """What stands outside of quotes."""
        return self._value.sub(b"", data)

    def _regular(self, codes: Array, quotes: Array) -> bool:
        """Whether quotes only stand around whole values, and doubled within them."""
        opening, closing = quotes[::2], quotes[1::2]
        before = codes[opening - 1][int(opening[0] == 0) :]
        after = codes[closing[closing < len(codes) - 1] + 1]
        return bool(self._around[before].all() and self._around[after].all())


def starts(data: bytes, ends: Ends, final: bool) -> tuple[Array, int]:
    """Where each whole record begins, without blank lines, and where the last one ends.

    final: what stands after the last end is a record, too.
    """
    stops = ends.records
    if final and len(data) > (stops[-1] + 1 if len(stops) else 0):
        stops = np.append(stops, len(data))
    begins = np.append(0, stops + 1)[:-1]
    codes = np.frombuffer(data, np.uint8)
    blank = stops == begins
    blank |= (stops == begins + 1) & (codes[np.minimum(begins, len(data) - 1)] == CR)
    cut = min(int(stops[-1]) + 1, len(data)) if len(stops) else 0
    return begins[~blank], cut
