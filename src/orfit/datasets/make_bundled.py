"""Make twos.npz and sample.npz from the whole of MNIST: `python -m orfit.datasets.make_bundled`.

Needs a copy of MNIST that `orfit.datasets.mnist` finds. The same copy gives the same files.
"""

from pathlib import Path

import numpy as np

from orfit.datasets.full_mnist import mnist
from orfit.validation import Array

TWOS = 400  # training twos: the paper's experiments draw 100 of them
TRAIN, TEST = 150, 50  # images of each class in the sample


def first(labels: Array, count: int) -> Array:
    """Where the first so many of each class are, in order."""
    of_class = [np.flatnonzero(labels == digit)[:count] for digit in range(10)]
    return np.sort(np.concatenate(of_class))


def main() -> None:
    data, folder = mnist(), Path(__file__).parent
    train = data.train_images[data.train_labels == 2][:TWOS]
    test = data.test_images[data.test_labels == 2]
    np.savez_compressed(folder / "twos.npz", train=train, test=test)
    train, test = first(data.train_labels, TRAIN), first(data.test_labels, TEST)
    np.savez_compressed(
        folder / "sample.npz",
        train_images=data.train_images[train],
        train_labels=data.train_labels[train],
        test_images=data.test_images[test],
        test_labels=data.test_labels[test],
    )
    for path in sorted(folder.glob("*.npz")):
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
