"""What has been read of each file, so that a stream that is taken up again goes on where it was.

A file is known by how it begins, as far as it was read, not by its name: it may be moved, it may
have grown, and what was wrong behind what was read may be mended. Of gzip that is what is packed in
it, as positions are: a file that was packed since is the same one. Where several begin alike, the
name decides.
"""

import hashlib
import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orfit import schema
from orfit.schema import Fields
from orfit.stream.block import Position

BEGINNING = 1 << 16  # bytes
STEP = 1 << 14  # bytes of gzip that are unpacked at once
GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"  # where offsets are no bytes


@dataclass(frozen=True)
class Input:
    """A file, where reading goes on in it, and how it begins: so many bytes, and their digest."""

    name: str
    position: Position
    length: int
    digest: str

    @classmethod
    def of(cls, path: str, position: Position) -> "Input":
        """As the file is now, of which all before a position was read."""
        beginning = _begins(path, BEGINNING)
        if not beginning.startswith(PARQUET):  # what is behind the position may be mended yet
            beginning = beginning[: position.offset]
        return cls(path, position, len(beginning), _digest(beginning))

    def is_in(self, path: str) -> bool:
        """Whether that is this file, or one that it has become."""
        if not self.length:  # of which nothing was read
            return path == self.name
        return _digest(_begins(path, self.length)) == self.digest


class Bookmarks:
    """Of all files that were read, in their order."""

    def __init__(self) -> None:
        self.files: list[Input] = []
        self._moved: set[int] = set()  # those that are to be looked at again
        self._taken: dict[int, str] = {}  # by a file of this run: no other one is the same

    def expect(self, paths: Sequence[str]) -> None:
        """These will be asked for: what one of them is by its name, too, no other one has become.

        Else a file that begins with all of another would be taken for that one, grown.
        """
        for path in paths:
            found = [i for i in self._like(path) if self.files[i].name == path]
            if found:
                self._taken[self._best(found, path)] = path

    def of(self, path: str) -> int:
        """Which this file is; one that was never seen is added."""
        found = [i for i in self._like(path) if self._taken.get(i, path) == path]
        if not found:
            found = [len(self.files)]
            self.files.append(Input.of(path, Position()))
        file = self._best(found, path)
        self._taken[file] = path
        return file

    def _like(self, path: str) -> list[int]:
        return [i for i, known in enumerate(self.files) if known.is_in(path)]

    def _best(self, found: list[int], path: str) -> int:
        """By name, then by how long they are alike, then by how much of it was read, if it can be.

        Files may be alike for as long as is looked at, and differ behind that.
        """
        packed = _bytes(path, len(GZIP)) == GZIP
        size = math.inf if packed else Path(path).stat().st_size

        def likeness(file: int) -> tuple[bool, int, int]:
            known = self.files[file]
            read = known.position.offset
            return known.name == path, known.length, read if read <= size else 0

        return max(found, key=likeness)

    def named(self, path: str) -> bool:
        """Whether a file of this name was read."""
        return any(known.name == path and known.length for known in self.files)

    def put(self, file: int, path: str, position: Position) -> None:
        """All before this has been learned, of a file that is there now."""
        self.files[file] = replace(self.files[file], name=path, position=position)
        self._moved.add(file)

    def state(self) -> list[dict[str, Any]]:
        for file in self._moved:
            known = self.files[file]
            if known.length < BEGINNING:
                self.files[file] = Input.of(known.name, known.position)
        self._moved.clear()
        return [asdict(known) for known in self.files]

    def restore(self, state: list[dict[str, Any]]) -> None:
        self.files = [Input(**each | {"position": Position(**each["position"])}) for each in state]


FIELDS: Fields = {
    "name": schema.text,
    "length": schema.counter,
    "digest": schema.text,
    "position": schema.record(dict.fromkeys(("file", "offset", "line"), schema.counter)),
}


def _begins(path: str, length: int) -> bytes:
    """How its content begins."""
    packed = _bytes(path, len(GZIP)) == GZIP
    return _unpacked(path, length) if packed else _bytes(path, length)


def _bytes(path: str, length: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(length)


def _unpacked(path: str, length: int) -> bytes:
    """As far as it can be unpacked: whoever reads the rows says what is wrong behind that."""
    made, gzip = b"", zlib.decompressobj(wbits=31)
    with Path(path).open("rb") as file:
        try:
            while len(made) < length:
                data = gzip.unconsumed_tail or gzip.unused_data or file.read(STEP)
                if not data:
                    break
                if gzip.eof:  # and another part follows
                    gzip = zlib.decompressobj(wbits=31)
                made += gzip.decompress(data, length - len(made))
        except zlib.error:
            pass
    return made


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
