"""What the experiments learn from.

Examples:
    >>> train, test = orfit.datasets.twos()
    >>> train.shape
    (400, 28, 28)
"""

from orfit.datasets.bundled import mnist_sample, twos
from orfit.datasets.full_cifar10 import Cifar10, Cifar10NotFoundError, cifar10
from orfit.datasets.full_mnist import Mnist, MnistNotFoundError, mnist

__all__ = [
    "Cifar10",
    "Cifar10NotFoundError",
    "Mnist",
    "MnistNotFoundError",
    "cifar10",
    "mnist",
    "mnist_sample",
    "twos",
]
