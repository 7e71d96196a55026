"""One learner, one file: arrays and a JSON header in safetensors, written atomically.

The format does not depend on the kind of learner. There is no pickle, so a file cannot run code.

A checksum over all content detects damage, also a flipped bit. It is blake2b of the standard
library: about as fast as a disk writes, and so long that damage does not pass by chance. (xxhash
is faster, but one more package.) The author of a crafted file can compute it, too, so `state` and
`schema` check the content.
"""

import concurrent.futures
import contextlib
import glob
import hashlib
import json
import logging
import os
import re
import secrets
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from orfit import schema
from orfit.validation import Array

FORMAT = 12
KEY = "orfit"  # one, in the metadata, since safetensors does not keep the order of several
SEAL = ', "checksum": "{}"}}'  # how a header ends
DIGEST = 16  # bytes of the checksum
DTYPES = ("F32", "F64", "I64")
LONGEST = 1 << 40  # a side of an array; if another is 0, the file's length does not limit it
SUFFIX = ".saving"
ABANDONED = 3600.0  # seconds after which an unfinished file belongs to a process that was killed


class CheckpointError(ValueError):
    """The error for a file that cannot be restored; the message gives the reason.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("notes.txt").write_text("no learner")
        >>> try:
        ...     orfit.load("notes.txt")
        ... except orfit.CheckpointError as error:
        ...     print(str(error)[:50])
        notes.txt is truncated, or not an orfit checkpoint
    """


@dataclass(frozen=True)
class Content:
    """The content of a file."""

    tensors: dict[str, Array]  # in C order
    header: str  # JSON

    @classmethod
    def of(cls, arrays: dict[str, Array], header: dict[str, Any]) -> "Content":
        """With copies of the arrays, which may change before they are written."""
        # BLAS rounds differently for rows and for columns, so the order of an array in memory is
        # part of a state that continues bit for bit; safetensors keeps C order only.
        transposed = [name for name, array in arrays.items() if _by_columns(array)]
        tensors = {n: np.array(a.T if _by_columns(a) else a, order="C") for n, a in arrays.items()}
        text = json.dumps({"format": FORMAT, "transposed": transposed} | header, allow_nan=False)
        return cls(tensors, text)

    @property
    def sealed(self) -> str:
        """The header with a checksum of itself and of names, dtypes, shapes and numbers."""
        digest = hashlib.blake2b(digest_size=DIGEST)
        for name, array in sorted(self.tensors.items()):
            digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
            digest.update(np.ascontiguousarray(array).data)
        digest.update(self.header.encode())
        return self.header[:-1] + SEAL.format(digest.hexdigest())


class Writer:
    """Writes files in the order of the calls."""

    def __init__(self) -> None:
        self.forget()
        # A forked process does not have the threads of its parent, and nothing to wait for.
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self._last: Future[None] | None = None
        self._lock = threading.Lock()  # several threads may save

    def now(self, path: str | os.PathLike[str], content: Content) -> None:
        """Write after the pending writes, which would otherwise replace this file later."""
        target, done = target_of(path), Future[None]()
        with self._lock:
            before, self._last = self._last, done
        try:
            if before is not None:
                concurrent.futures.wait([before])
            write(target, content)
        finally:
            done.set_result(None)

    def later(self, path: str | os.PathLike[str], content: Content) -> "Future[None]":
        """Write in a thread; the process does not end before all files are written."""
        target, done = target_of(path), Future[None]()
        done.set_running_or_notify_cancel()  # it cannot be cancelled
        with self._lock:
            before, self._last = self._last, done
        try:
            threading.Thread(target=_write_after, args=(before, done, target, content)).start()
        except BaseException as error:  # the next write must not wait for this one
            done.set_exception(error)
            raise
        return done


def _write_after(
    before: "Future[None] | None",
    done: "Future[None]",
    target: Path,
    content: Content,
) -> None:
    if before is not None:
        concurrent.futures.wait([before])
    try:
        write(target, content)
    except BaseException as error:
        # Logged, because the caller may never read the result.
        logging.getLogger("orfit").error("%s was not saved: %r", target, error)
        done.set_exception(error)
    else:
        done.set_result(None)


writer = Writer()


def target_of(path: str | os.PathLike[str]) -> Path:
    """The file to write; raises if it cannot exist."""
    target = Path(path).resolve()  # follows a link
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to save to")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give the name of a file to save to")
    return target


def write(target: Path, content: Content) -> None:
    """Write the file or keep the old one: temporary file, fsync, rename."""
    _sweep(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{SUFFIX}")
    # A checkpoint gets the permissions of any other new file. The umask cannot be read without
    # changing it for all threads, and safetensors creates private files.
    try:
        with open(temporary, "xb") as made:
            rights = os.fstat(made.fileno()).st_mode
        _fill(temporary, content)
        os.chmod(temporary, rights)
        _sync(temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync(target.parent)


def _fill(path: Path, content: Content) -> None:
    """Write the content to an existing file; a full disk raises an OSError, as for any other file.

    safetensors raises an exception of its own then, with the system's number in its text.
    """
    try:
        safetensors.numpy.save_file(content.tensors, path, {KEY: content.sealed})
    except safetensors.SafetensorError as error:
        number_in_text = re.search(r"os error (\d+)|Os \{ code: (\d+)", str(error))
        if number_in_text is None:
            raise
        number = int(number_in_text[1] or number_in_text[2])
        raise OSError(number, os.strerror(number), os.fspath(path)) from None


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the header that a `Content` was made of.

    safetensors compares the declared sizes with the length of the file before it reads.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(f"{os.fspath(path)} is a folder; give the name of a saved file")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint at {os.fspath(path)}")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(KEY, "")
            header = _header(text, path)
            tensors = {name: _tensor(file, name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise CheckpointError(
            f"{os.fspath(path)} is truncated, or not an orfit checkpoint ({error})"
        ) from None
    if Content(tensors, text[: -len(SEAL.format("00" * DIGEST))] + "}").sealed != text:
        raise CheckpointError(
            f"{os.fspath(path)} is damaged: its checksum is not that of what it holds"
        )
    transposed = {*header.pop("transposed")}
    return {n: a.T if n in transposed else a for n, a in tensors.items()}, header


def _tensor(file: Any, name: str) -> Array:
    found = file.get_slice(name)
    dtype, sides = found.get_dtype(), found.get_shape()
    if dtype not in DTYPES or max(sides, default=0) > LONGEST:
        raise CheckpointError(f"{name:.200} is {dtype} of shape {sides}, which no state has")
    return np.array(file.get_tensor(name))


def _header(text: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    if not text:
        raise CheckpointError(f"{os.fspath(path)} is a safetensors file, but not orfit's")
    try:
        header = schema.mapping("header", json.loads(text))
        version = schema.counter("format", header.pop("format", None))
        header.pop("checksum", None)
        if version == FORMAT:
            schema.listed(schema.text)("transposed", header.get("transposed"))
    except (ValueError, RecursionError):
        raise CheckpointError(f"{os.fspath(path)} has a header that is not orfit's") from None
    if version != FORMAT:
        remedy = "upgrade it" if version > FORMAT else "load it with the orfit that wrote it"
        raise CheckpointError(
            f"{os.fspath(path)} has format {version}; this orfit reads {FORMAT}: {remedy}"
        )
    return header


def _sweep(target: Path) -> None:
    """Remove unfinished files of killed processes, so that they do not fill the disk."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()


def _by_columns(array: Array) -> bool:
    return array.flags.f_contiguous and not array.flags.c_contiguous


def _sync(path: str | os.PathLike[str]) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
