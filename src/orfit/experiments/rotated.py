"""Rotated MNIST, as the paper's experiments use it: how far was this two turned?"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import ndimage

import orfit
from orfit import datasets
from orfit.door import Array

PIXELS = 28


@dataclass(frozen=True)
class Setup:
    """What the paper says of its data and model, and what fits it best where it says nothing.

    The paper: 28×28 images of the digit 2, each turned by an angle uniform in [0, π], which is to
    be found; 100 of them for training (`points`), ordered by angle (`ascending`); the 1,032 twos of
    MNIST's test set for testing (`tests`); 10 runs (`runs`) from different initial parameters.

    Not in the paper: the model is affine (`bias`), and weights and bias start uniform in ±1/28, as
    a torch linear layer does (`initial_bound`). Pixels are scaled to [0, 1], then 0.1307 is
    subtracted (`pixel_mean`) and they are divided by 0.3081 (`pixel_std`). Images are turned
    counter-clockwise (`clockwise`) by the nearest neighbour (`interpolation`), with zeros outside.
    Targets are in radians, errors are told in degrees. The data are the same in every run
    (`data_seed`); only the initial parameters differ (`seed`).
    """

    points: int = 100  # training images, drawn from the bundled ones
    tests: int = 1032  # test images: all twos of MNIST's test set
    runs: int = 10
    seed: int = 0  # of the initial parameters, and of ORFit-random's choices
    data_seed: int = 0  # of the training images drawn, and of all angles
    largest_angle: float = 180.0  # angles are uniform in [0, largest_angle], in degrees
    clockwise: bool = False
    interpolation: int = 0  # order of the spline: 0 is the nearest neighbour; outside is zero
    ascending: bool = True  # training images arrive ordered by their angle
    pixel_mean: float = 0.1307  # subtracted from pixels in [0, 1],
    pixel_std: float = 0.3081  # then they are divided by this
    bias: bool = True  # the model is affine
    initial_bound: float = 1 / PIXELS  # weights and bias start uniform in ± this, as in torch


@dataclass(frozen=True)
class Data:
    """Images as rows, angles in radians: training data in the order of arrival, and test data."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def rotated_twos(setup: Setup) -> Data:
    """The data of `setup`."""
    train, test = datasets.twos()
    for name, given, there in (
        ("points", setup.points, len(train)),
        ("tests", setup.tests, len(test)),
    ):
        if not 0 < given <= there:
            raise ValueError(f"{name} must be at most {there}, the images there are; it is {given}")
    rng = np.random.default_rng(setup.data_seed)
    chosen = np.sort(rng.choice(len(train), setup.points, replace=False))
    angles = rng.uniform(0, setup.largest_angle, setup.points)
    if setup.ascending:
        angles.sort()
    test_angles = rng.uniform(0, setup.largest_angle, setup.tests)
    return Data(
        _turned(train[chosen], angles, setup),
        np.radians(angles),
        _turned(test[: setup.tests], test_angles, setup),
        np.radians(test_angles),
    )


def _turned(images: Array, angles: Array, setup: Setup) -> Array:
    sign = -1 if setup.clockwise else 1
    how: dict[str, Any] = {"reshape": False, "order": setup.interpolation, "cval": 0}
    turned = [
        ndimage.rotate(image, sign * angle, **how)
        for image, angle in zip(images, angles, strict=True)
    ]
    pixels = np.array(turned, float).reshape(len(images), -1) / 255
    return (pixels - setup.pixel_mean) / setup.pixel_std


def model_of(setup: Setup, heads: int | None = None) -> orfit.Linear:
    """f(x; w) = wᵀ x + b."""
    return orfit.Linear(PIXELS**2, bias=setup.bias, heads=heads)


def starts(setup: Setup) -> Iterator[tuple[int, Array]]:
    """The runs, and the parameters that each starts with."""
    for run in range(setup.runs):
        rng = np.random.default_rng([setup.seed, run])
        bound = setup.initial_bound
        yield run, rng.uniform(-bound, bound, PIXELS**2 + setup.bias)


def rmse(prediction: Array, angle: Array) -> Array:
    """The root of the mean squared error over the first axis, in degrees."""
    error = np.degrees(prediction - angle.reshape(-1, *[1] * (prediction.ndim - 1)))
    return np.asarray(np.sqrt(np.mean(error**2, axis=0)))
