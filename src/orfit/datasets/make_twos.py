"""Make twos.npz from the whole of MNIST: `python -m orfit.datasets.make_twos`.

Needs a copy of MNIST that `orfit.datasets.mnist` finds. The same copy gives the same file.
"""

from pathlib import Path

import numpy as np

from orfit.datasets.full_mnist import mnist

TRAINING = 400  # the experiments draw 100 of them


def main() -> None:
    data, path = mnist(), Path(__file__).with_name("twos.npz")
    train = data.train_images[data.train_labels == 2][:TRAINING]
    test = data.test_images[data.test_labels == 2]
    np.savez_compressed(path, train=train, test=test)
    print(f"{path}: {len(train)} training and {len(test)} test images, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
