"""What has been read of each file, so that a stream that is taken up again goes on where it was.

A file is known by how it begins, not by its name: it may be moved, and it may have grown.
"""

import hashlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from orfit import schema
from orfit.schema import Fields
from orfit.stream.block import Position

BEGINNING = 1 << 16  # bytes


@dataclass(frozen=True)
class Input:
    """A file, and where reading goes on in it."""

    name: str
    length: int
    digest: str
    position: Position = field(default_factory=Position)

    @classmethod
    def of(cls, path: str) -> "Input":
        beginning = _begins(path, BEGINNING)
        return cls(path, len(beginning), _digest(beginning))

    def is_in(self, path: str) -> bool:
        """Whether that is this file, or one that it has become."""
        return _digest(_begins(path, self.length)) == self.digest


class Bookmarks:
    """Of all files that were read, in their order."""

    def __init__(self) -> None:
        self.files: list[Input] = []

    def of(self, path: str) -> int:
        """Which this file is; one that was never seen is added."""
        for i, known in enumerate(self.files):
            if known.is_in(path):
                return i
        self.files.append(Input.of(path))
        return len(self.files) - 1

    def put(self, file: int, position: Position) -> None:
        """All before this has been learned."""
        self.files[file] = replace(self.files[file], position=position)

    def state(self) -> list[dict[str, Any]]:
        return [asdict(known) for known in self.files]

    def restore(self, state: list[dict[str, Any]]) -> None:
        self.files = [Input(**each | {"position": Position(**each["position"])}) for each in state]


FIELDS: Fields = {
    "name": schema.text,
    "length": schema.counter,
    "digest": schema.text,
    "position": schema.record(dict.fromkeys(("file", "offset", "records", "line"), schema.counter)),
}


def _begins(path: str, length: int) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(length)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
