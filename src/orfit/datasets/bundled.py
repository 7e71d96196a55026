"""The twos of MNIST that come with the package: what the paper's experiments need."""

from importlib.resources import files

import numpy as np

from orfit.door import Array


def twos() -> tuple[Array, Array]:
    """Training images (400, 28, 28) and test images (1032, 28, 28), uint8, in MNIST's order.

    All twos of the test set, the first 400 of the training set. `twos.md` names their source and
    licence, `make_twos.py` made the file.
    """
    with (files("orfit.datasets") / "twos.npz").open("rb") as file, np.load(file) as arrays:
        return arrays["train"], arrays["test"]
