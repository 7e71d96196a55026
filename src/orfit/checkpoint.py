"""One learner, one file: arrays and a JSON header in safetensors, written atomically.

The format knows nothing of learners. Never pickle: a file from elsewhere can at worst be refused.
"""

import contextlib
import glob
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from orfit.door import Array

FORMAT = 5
KEY = "orfit"
SUFFIX = ".saving"
ABANDONED = 3600.0  # seconds after which an unfinished file belongs to a process that was killed


class CheckpointError(ValueError):
    """A file that cannot be restored; the message says why."""


def write(path: str | os.PathLike[str], arrays: dict[str, Array], header: dict[str, Any]) -> None:
    """Write the file, or leave the old one as it was: temporary file, fsync, rename."""
    target = Path(path).resolve()  # through a link, to the file it names
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to save to")
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give the name of a file to save to")
    _sweep(target)
    # BLAS rounds differently for rows and for columns, so the order of an array in memory is part
    # of a state that goes on bit-equally; safetensors keeps C order only.
    transposed = [name for name, array in arrays.items() if _by_columns(array)]
    tensors = {
        name: np.array(a.T if _by_columns(a) else a, order="C") for name, a in arrays.items()
    }
    metadata = {KEY: json.dumps({"format": FORMAT, "transposed": transposed} | header)}
    handle, temporary = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name}.", suffix=SUFFIX
    )
    try:
        os.close(handle)
        safetensors.numpy.save_file(tensors, temporary, metadata)
        _sync(temporary)
        # mkstemp makes private files; a checkpoint gets the rights of any other new file.
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync(target.parent)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays and the header that `write` was given."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no checkpoint at {os.fspath(path)}")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = _header((file.metadata() or {}).get(KEY), path)
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise CheckpointError(
            f"{os.fspath(path)} is truncated, or not an orfit checkpoint ({error})"
        ) from None
    return {n: a.T if n in header["transposed"] else a for n, a in arrays.items()}, header


def _header(text: str | None, path: str | os.PathLike[str]) -> dict[str, Any]:
    if text is None:
        raise CheckpointError(f"{os.fspath(path)} is a safetensors file, but not orfit's")
    try:
        header = json.loads(text)
        version, _ = int(header["format"]), list(header["transposed"])
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{os.fspath(path)} has a header that is not orfit's") from None
    if version != FORMAT:
        remedy = "upgrade it" if version > FORMAT else "load it with the orfit that wrote it"
        raise CheckpointError(
            f"{os.fspath(path)} has format {version}; this orfit reads {FORMAT}: {remedy}"
        )
    return dict(header)


def _sweep(target: Path) -> None:
    """Remove what killed processes left of this checkpoint, so that they do not fill the disk."""
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
