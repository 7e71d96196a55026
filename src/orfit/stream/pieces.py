"""A text in pieces of whole records, however long it is, with the line of each record."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from orfit.stream.block import StreamError
from orfit.stream.endings import Grammar, starts
from orfit.stream.inputs import Bytes
from orfit.validation import Array

LONGEST = 64 << 20  # bytes of a record: a file without line ends must not fill the memory
BOM = b"\xef\xbb\xbf"
OTHERS = {
    b"\x1f\x8b": "this is gzip: its name should end in .gz, and a pipe goes through gzip -dc",
    b"PAR1": "this is parquet: its name should end in .parquet, or --format say so",
    b"\xff\xfe": "this is UTF-16: write it as UTF-8",
    b"\xfe\xff": "this is UTF-16: write it as UTF-8",
}


@dataclass(frozen=True)
class Piece:
    """Whole records: `data`, which stands at `offset`, where line `line` begins.

    starts: where in data each record begins. lines: on which line.
    end, end_line: where what follows stands. unclosed: the last record ends inside of quotes.
    """

    data: bytes
    offset: int
    line: int
    starts: Array
    lines: Array
    end: int
    end_line: int
    unclosed: bool


@dataclass(frozen=True)
class First:
    """The first record of a text, and where it, and what follows it, stands."""

    text: str
    offset: int
    line: int
    end: int
    end_line: int


def first(stream: Bytes, grammar: Grammar, chunk: int) -> First:
    """The first record; the stream is at its beginning before and after."""
    data = b""
    while True:
        more = _read(stream, grammar, data, 1, chunk)
        data += more
        body = data.removeprefix(BOM)
        ends = grammar.ends(body, not more)
        begins, _ = starts(body, ends, not more)
        if len(begins) or not more:
            break
    if not len(begins):
        raise StreamError(f"{stream.name} is empty")
    begin = int(begins[0])
    line = 1 + int(np.searchsorted(ends.lines, begin))
    after = ends.records[ends.records >= begin]
    if not len(after) and ends.unclosed:
        raise StreamError(f"{stream.name}, line {line}: a quote in the header is never closed")
    stop = int(after[0]) + 1 if len(after) else len(body)
    end_line = 1 + int(np.searchsorted(ends.lines, stop))
    offset = len(data) - len(body)
    text = _text(stream.name, grammar, body[begin:stop], line)
    stream.unread(data)
    return First(text, offset, line, offset + stop, end_line)


def pieces(stream: Bytes, grammar: Grammar, line: int, chunk: int, rows: int) -> Iterator[Piece]:
    """From where the stream stands, at the beginning of line `line`.

    About `chunk` bytes are in memory, or one record if that is longer; at most `rows` records come
    together. What a pipe has, comes at once.
    """
    data, more = b"", b"more"
    while more:
        more = _read(stream, grammar, data, line, chunk)
        data += more
        ends = grammar.ends(data, not more)
        begins, cut = starts(data, ends, not more)
        if not cut:
            continue
        offset = stream.at - len(data)
        lines = line + np.searchsorted(ends.lines, begins)
        next_line = line + int(np.searchsorted(ends.lines, cut))
        for at in range(0, len(begins), rows):
            last = at + rows >= len(begins)
            begin, begin_line = (int(begins[at]), int(lines[at])) if at else (0, line)
            end = cut if last else int(begins[at + rows])
            whole = data[begin:end]
            if not whole.isascii():
                _text(stream.name, grammar, whole, begin_line)
            yield Piece(
                data=whole,
                offset=offset + begin,
                line=begin_line,
                starts=begins[at : at + rows] - begin,
                lines=lines[at : at + rows],
                end=offset + end,
                end_line=next_line if last else int(lines[at + rows]),
                unclosed=last and not more and ends.unclosed,
            )
        data, line = data[cut:], next_line


def shorter(name: str) -> str:
    return f"{name} is shorter than it was: reading stopped behind its end"


def _read(stream: Bytes, grammar: Grammar, before: bytes, line: int, chunk: int) -> bytes:
    """More, after what is no whole record yet: as much again, not to look at it too often."""
    if len(before) > LONGEST:
        raise StreamError(
            f"{stream.name}, line {line}: what begins here is longer than {LONGEST >> 20} MB; "
            f"a quote may not be closed, or the file may be of another kind"
        )
    more = stream.read(min(max(chunk, len(before)), LONGEST + 1 - len(before)))
    if stream.at == len(before) + len(more):  # all that was read so far is here
        _check_kind(stream.name, before + more)
    if b"\0" in more:
        line += _lines(grammar, before + more[: more.index(0)])
        raise StreamError(
            f"{stream.name}, line {line}: there is a NUL byte, so this is binary data or UTF-16, "
            f"not text in UTF-8"
        )
    return more


def _check_kind(name: str, begin: bytes) -> None:
    for sign, sentence in OTHERS.items():
        if begin.startswith(sign):
            raise StreamError(f"{name}: {sentence}")


def _text(name: str, grammar: Grammar, data: bytes, line: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line += _lines(grammar, data[: error.start])
        raise StreamError(
            f"{name}, line {line}: byte {data[error.start]:#04x} is not UTF-8; write the file as "
            f"UTF-8, as iconv does"
        ) from None


def _lines(grammar: Grammar, before: bytes) -> int:
    return len(grammar.ends(before, final=True).lines)
