"""Rotated MNIST, the data and model of the paper's experiments (sec:exp).

The input is an image of the digit 2, rotated; the target is the angle of rotation.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

import orfit
from orfit import datasets
from orfit.validation import Array

PIXELS = 28


@dataclass(frozen=True)
class Setup:
    """Data and model: what the paper states, and a choice where it states nothing.

    The paper states: images of 28×28 pixels of the digit 2, each rotated by an angle uniform in
    [0, π], the target; 100 training images (`points`), ordered by angle (`ascending`); the 1,032
    images of the digit 2 in MNIST's test set (`tests`); 10 runs (`runs`) with different initial
    parameters.

    The paper does not state, and these defaults fit its figures best: the model is affine (`bias`);
    weights and bias start uniform in ±1/28, as in a torch linear layer (`initial_bound`); pixels
    are scaled to [0, 1], then 0.1307 is subtracted (`pixel_mean`) and the result is divided by
    0.3081 (`pixel_std`); images are rotated counter-clockwise (`clockwise`) with the nearest
    neighbour (`interpolation`) and zeros outside; targets are in radians, errors in degrees; the
    data are the same in every run (`data_seed`), and only the initial parameters differ (`seed`).
    """

    points: int = 100  # training images, drawn from the bundled ones
    tests: int = 1032  # test images: every 2 in MNIST's test set
    runs: int = 10
    seed: int = 0  # of the initial parameters, and of the choices of ORFit-random
    data_seed: int = 0  # of the training images drawn, and of all angles
    largest_angle: float = 180.0  # angles are uniform in [0, largest_angle], in degrees
    clockwise: bool = False
    interpolation: int = 0  # order of the spline; 0 is the nearest neighbour
    ascending: bool = True  # training images arrive ordered by their angle
    pixel_mean: float = 0.1307  # subtracted from pixels in [0, 1]
    pixel_std: float = 0.3081  # then pixels are divided by this
    bias: bool = True  # the model is affine
    initial_bound: float = 1 / PIXELS  # weights and bias start uniform in ± this


@dataclass(frozen=True)
class Data:
    """Images as rows and angles in radians. Training data are in the order of arrival."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def load_data(setup: Setup) -> Data:
    """Return the rotated images of `setup`."""
    train, test = datasets.twos()
    for name, count, available in (
        ("points", setup.points, len(train)),
        ("tests", setup.tests, len(test)),
    ):
        if not 0 < count <= available:
            raise ValueError(f"{name} must be from 1 to {available}; it is {count}")
    rng = np.random.default_rng(setup.data_seed)
    chosen = np.sort(rng.choice(len(train), setup.points, replace=False))
    angles = rng.uniform(0, setup.largest_angle, setup.points)
    if setup.ascending:
        angles.sort()
    test_angles = rng.uniform(0, setup.largest_angle, setup.tests)
    return Data(
        _rotate(train[chosen], angles, setup),
        np.radians(angles),
        _rotate(test[: setup.tests], test_angles, setup),
        np.radians(test_angles),
    )


def _rotate(images: Array, angles: Array, setup: Setup) -> Array:
    """Rotate each image by its angle, in degrees, and standardise the pixels: (n, 784)."""
    sign = -1 if setup.clockwise else 1
    options: dict[str, Any] = {"reshape": False, "order": setup.interpolation, "cval": 0}
    rotated = [
        ndimage.rotate(image, sign * angle, **options)
        for image, angle in zip(images, angles, strict=True)
    ]
    pixels = np.array(rotated, float).reshape(len(images), -1) / 255
    return (pixels - setup.pixel_mean) / setup.pixel_std


def make_model(setup: Setup, heads: int | None = None) -> orfit.Linear:
    """Return f(x; w) = wᵀ x + b."""
    return orfit.Linear(PIXELS**2, bias=setup.bias, heads=heads)


def draw_starts(setup: Setup) -> Iterator[tuple[int, Array]]:
    """Yield the number of each run and its initial parameters."""
    for run in range(setup.runs):
        rng = np.random.default_rng([setup.seed, run])
        bound = setup.initial_bound
        yield run, rng.uniform(-bound, bound, PIXELS**2 + setup.bias)


def compute_rmse(prediction: Array, angle: Array) -> Array:
    """Return the root mean squared error over the first axis, in degrees."""
    error = np.degrees(prediction - angle.reshape(-1, *[1] * (prediction.ndim - 1)))
    return np.asarray(np.sqrt(np.mean(error**2, axis=0)))
