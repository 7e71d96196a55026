"""The parts of MNIST that come with the package: what the experiments need."""

from importlib.resources import files

import numpy as np

from orfit.datasets.full_mnist import Mnist
from orfit.validation import Array


def twos() -> tuple[Array, Array]:
    """Training images (400, 28, 28) and test images (1032, 28, 28), uint8, in MNIST's order.

    All twos of the test set, the first 400 of the training set. `bundled.md` names their source and
    licence, `make_bundled.py` made the file.

    Examples:
        >>> train, test = orfit.datasets.twos()
        >>> train.shape, test.shape
        ((400, 28, 28), (1032, 28, 28))
    """
    arrays = _read("twos")
    return arrays["train"], arrays["test"]


def mnist_sample() -> Mnist:
    """A small part of MNIST: the first 150 training and 50 test images of each class.

    Examples:
        >>> orfit.datasets.mnist_sample().train_images.shape
        (1500, 28, 28)
    """
    return Mnist(**_read("sample"))


def _read(name: str) -> dict[str, Array]:
    with (files("orfit.datasets") / f"{name}.npz").open("rb") as file, np.load(file) as arrays:
        return dict(arrays)
