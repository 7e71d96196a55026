"""What has been read of each file, so that a stream that is taken up again goes on where it was.

A file is known by how it begins, as far as it was read, not by its name: it may be moved, it may
have grown, and what was wrong behind what was read may be mended.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orfit import schema
from orfit.schema import Fields
from orfit.stream.block import Position

BEGINNING = 1 << 16  # bytes
PACKED = (b"\x1f\x8b", b"PAR1")  # gzip and parquet, where offsets are no bytes of the file


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
        if not beginning.startswith(PACKED):  # what is behind the position may be mended yet
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

    def of(self, path: str) -> int:
        """Which this file is; one that was never seen is added."""
        for i, known in enumerate(self.files):
            if known.is_in(path):
                return i
        self.files.append(Input.of(path, Position()))
        return len(self.files) - 1

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
    with Path(path).open("rb") as file:
        return file.read(length)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
