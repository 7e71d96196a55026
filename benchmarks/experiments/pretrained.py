"""New classes on a pretrained network: CIFAR-10, class after class.

The network is EfficientNet-lite0, trained on ImageNet and then frozen. `orfit.Heads` with its
defaults, and other learners that store no images, learn its 1,280 features. Each image is learned
once, first all of the first class, then all of the second. A quick run has the bundled digits, and
a small network trained on five of the ten classes.

In curves.csv `step` is how many classes have been learned.
"""

from dataclasses import dataclass
from typing import Any

import class_learners
from class_learners import ClassSettings, Data
from pretrained_features import cache_features, compute_features, load_lite0
from split import load_digits

from orfit.datasets.full_cifar10 import cifar10
from orfit.reproduce.report import Advance, Curves

TITLE = "New classes on a pretrained network, in one pass"
ONE_BY_ONE = [[label] for label in range(10)]


@dataclass(frozen=True)
class Settings(ClassSettings):
    expand: int = 5000
    images: int = 50_000  # training images; all test images are used
    side: int = 96  # images of 32×32 are enlarged to this


QUICK = {"images": 1500, "bundled": True, "m": 60, "few": 20, "expand": 300, "runs": 1}


def load_cifar10_features(settings: Settings) -> Data:
    """Return CIFAR-10 as features of EfficientNet-lite0. The first call computes them."""
    data, network, n = cifar10(), load_lite0(), settings.images

    def load(part: str, images: Any) -> Any:
        name = f"lite0-cifar10-{part}-{len(images)}-{settings.side}"
        return cache_features(name, lambda: compute_features(network, images, settings.side))

    X, X_test = load("train", data.train_images[:n]), load("test", data.test_images)
    return Data(X, data.train_labels[:n].astype(int), X_test, data.test_labels.astype(int))


def load_digit_features(settings: Settings) -> Data:
    """Return digits as features of a small network trained on the first five classes."""
    import torch
    from torch import nn

    data = load_digits(settings)
    torch.manual_seed(settings.seed)
    body = nn.Sequential(
        *(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 8, 5, stride=2), nn.ReLU()),
        *(nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), nn.Flatten()),
    )
    head = nn.Linear(256, 5)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.003)
    early = data.y < len(head.bias)
    X, y = torch.from_numpy(data.X[early]), torch.from_numpy(data.y[early])
    for _ in range(2):
        order = torch.randperm(len(X))
        for start in range(0, len(X), 20):
            rows = order[start : start + 20]
            optimiser.zero_grad()
            loss: Any = nn.functional.cross_entropy(head(body(X[rows])), y[rows])
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        features = [body(torch.from_numpy(images)).numpy() for images in (data.X, data.X_test)]
    return Data(features[0], data.y, features[1], data.y_test)


def count_steps(settings: Settings) -> int:
    return class_learners.count_steps(settings, len(ONE_BY_ONE))


def run(settings: Settings, advance: Advance) -> Curves:
    data = load_digit_features(settings) if settings.bundled else load_cifar10_features(settings)
    return class_learners.run_learners(settings, data, ONE_BY_ONE, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [class_learners.make_table(curves, settings)]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return class_learners.draw_figure(curves, settings, "classes learned")
