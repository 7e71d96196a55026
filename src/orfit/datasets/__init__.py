"""What the experiments learn from.

Examples:
    >>> train, test = orfit.datasets.twos()
    >>> train.shape
    (400, 28, 28)
"""

from orfit.datasets.bundled import mnist_sample, twos
from orfit.datasets.full_mnist import Mnist, MnistNotFoundError, mnist

__all__ = ["Mnist", "MnistNotFoundError", "mnist", "mnist_sample", "twos"]
