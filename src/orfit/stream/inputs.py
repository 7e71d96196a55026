"""The bytes of an input: a file, a gzip file or a pipe, read from the beginning on."""

import errno
import gzip
import os
import select
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from orfit.stream.block import StreamError

STDIN = "-"
STEP = 1 << 20  # bytes that are read at once where they are only passed over


class Bytes:
    """Bytes in their order. `at` is how many have been read; what was read too far can go back."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.at = 0
        self._back = b""

    def read(self, most: int) -> bytes:
        """Up to `most` bytes, and at least one, until the end."""
        if self._back:
            data, self._back = self._back[:most], self._back[most:]
        else:
            with told(self.name):
                data = self._more(most)
        self.at += len(data)
        return data

    def unread(self, data: bytes) -> None:
        """The next read begins with `data`, which was read last."""
        self._back = data + self._back
        self.at -= len(data)

    def goto(self, offset: int) -> None:
        """The next read begins at `offset`, or at the end if that comes first."""
        while self.at < offset and self.read(min(STEP, offset - self.at)):
            pass

    def packed(self) -> int:
        """How many bytes of the file stand behind those that were read."""
        return self.at

    def close(self) -> None:
        """Nothing to close, unless a kind of input says so."""

    def _more(self, most: int) -> bytes:
        raise NotImplementedError

    def __enter__(self) -> "Bytes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class File(Bytes):
    """A file, which can be read from anywhere."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        with told(name):
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115, closed by close()

    def goto(self, offset: int) -> None:
        """As of any input, but at once."""
        self._back = b""
        self.at = self._file.seek(offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _more(self, most: int) -> bytes:
        return self._file.read(most)


class Gzip(File):
    """A gzip file: what is before a place must be read to come there."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, path)
        self._unzipped = gzip.GzipFile(fileobj=self._file, mode="rb")

    def goto(self, offset: int) -> None:
        """As of any input."""
        Bytes.goto(self, offset)

    def packed(self) -> int:
        """How many bytes of the file, which it reads some ahead, have been read."""
        return self._file.tell()

    def _more(self, most: int) -> bytes:
        return self._unzipped.read(most)


class Pipe(Bytes):
    """A pipe or a terminal: bytes are handed on when they come, and come only once."""

    def __init__(self, name: str, descriptor: int) -> None:
        super().__init__(name)
        self._descriptor = descriptor
        self._ended = False
        self._taken = False

    def take(self) -> None:
        """Once: what has been read from a pipe is gone."""
        if self._taken:
            raise StreamError(f"{self.name} is a pipe, which can be read only once")
        self._taken = True

    def _more(self, most: int) -> bytes:
        """What is there, or what comes first if nothing is: it never waits for more."""
        data = self._some(most)
        while data and len(data) < most and self._ready():
            some = self._some(most - len(data))
            if not some:
                break
            data += some
        return data

    def _some(self, most: int) -> bytes:
        while not self._ended:
            try:
                data = os.read(self._descriptor, most)
            except BlockingIOError:  # whoever shares it has set it so
                select.select([self._descriptor], [], [])
                continue
            self._ended = not data  # a terminal would ask again
            return data
        return b""

    def _ready(self) -> bool:
        try:
            return bool(select.select([self._descriptor], [], [], 0)[0])
        except (OSError, ValueError):  # where only sockets can be asked
            return False


class Borrowed(Pipe):
    """A standard input that is no file of the system, as a program puts there for another."""

    def __init__(self, name: str, stream: Any) -> None:
        super().__init__(name, -1)
        self._stream = stream

    def _more(self, most: int) -> bytes:
        data = self._stream.read(most)
        return data if isinstance(data, bytes) else str(data).encode()


def standard_input() -> Pipe:
    """What comes from the program before."""
    stream: Any = sys.stdin
    if stream is None:
        raise StreamError("stdin is closed: there is nothing to read from")
    try:
        return Pipe("stdin", stream.fileno())
    except (OSError, ValueError, AttributeError):
        return Borrowed("stdin", getattr(stream, "buffer", stream))


def is_stream(path: str) -> bool:
    """Whether rows of it come when they come: a pipe, a terminal, a device; not a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if path == STDIN else os.stat(path).st_mode
    except (OSError, ValueError, AttributeError):
        return path == STDIN
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def told(name: str) -> Iterator[None]:
    """What the system or gzip says of an input, in a sentence that names it."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise StreamError(f"{name}: {gzip_sentence(error)}") from None
    except OSError as error:
        raise StreamError(f"{name}: {system_sentence(error)}") from None
    except ValueError as error:  # a path with a NUL in it
        if isinstance(error, StreamError):
            raise
        raise StreamError(f"{name!r} is no path: {error}") from None


def gzip_sentence(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the gzip data is cut short, the file is not complete"
    if "Not a gzipped file" in str(error):
        return "this is not gzip, though its name ends in .gz, or something follows the gzip data"
    return f"the gzip data is damaged ({error})"


def system_sentence(error: OSError) -> str:
    sentences = {
        errno.ENOENT: "there is no such file",
        errno.EISDIR: "this is a folder; name the files in it",
        errno.EACCES: "there is no permission to read it",
    }
    return sentences.get(error.errno or 0, f"it cannot be read: {error.strerror or error}")


def check_file(name: str, path: str) -> int:
    """The size of a file that is there and can be read."""
    with told(name):
        if os.path.isdir(path):  # not every system says so when it is opened
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_size
