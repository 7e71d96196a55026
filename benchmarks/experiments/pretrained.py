"""New classes on a network that was trained before: CIFAR-10, class after class.

The network is EfficientNet-lite0 as it was trained on ImageNet; it stays as it is, and its 1,280
features of an image are learned by `orfit.Heads`, untuned, and by learners that keep no images
either. Each image is seen once, first all of the first class, then all of the second. A quick run
has the bundled digits, and a small network that was trained on five of the ten.

In curves.csv `step` is how many classes have been learned.
"""

from dataclasses import dataclass
from typing import Any

import heads_beside
from frozen import features_of, kept, lite0
from heads_beside import Beside, Data
from split import digits

from orfit.datasets.full_cifar10 import cifar10
from orfit.reproduce.report import Advance, Curves

TITLE = "New classes on a network that was trained before, in one pass"
ONE_BY_ONE = [[label] for label in range(10)]


@dataclass(frozen=True)
class Settings(Beside):
    expand: int = 5000
    images: int = 50_000  # training images; all test images are used
    side: int = 96  # to which images of 32×32 are enlarged


QUICK = {"images": 1500, "bundled": True, "m": 60, "few": 20, "expand": 300, "runs": 1}


def images_by_lite0(settings: Settings) -> Data:
    """CIFAR-10 as the network's features, which take long the first time."""
    data, network, n = cifar10(), lite0(), settings.images

    def made(part: str, images: Any) -> Any:
        name = f"lite0-cifar10-{part}-{len(images)}-{settings.side}"
        return kept(name, lambda: features_of(network, images, settings.side))

    X, X_test = made("train", data.train_images[:n]), made("test", data.test_images)
    return Data(X, data.train_labels[:n].astype(int), X_test, data.test_labels.astype(int))


def digits_by_a_network(settings: Settings) -> Data:
    """Digits as the features of a small network that was trained on the first five classes."""
    import torch
    from torch import nn

    data = digits(settings)
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
        made = [body(torch.from_numpy(images)).numpy() for images in (data.X, data.X_test)]
    return Data(made[0], data.y, made[1], data.y_test)


def count_steps(settings: Settings) -> int:
    return heads_beside.count_steps(settings, len(ONE_BY_ONE))


def run(settings: Settings, advance: Advance) -> Curves:
    data = digits_by_a_network(settings) if settings.bundled else images_by_lite0(settings)
    return heads_beside.run_all(settings, data, ONE_BY_ONE, advance)


def make_tables(curves: Curves, settings: Settings) -> list[Any]:
    return [heads_beside.make_table(curves, settings)]


def draw_figure(curves: Curves, settings: Settings) -> Any:
    return heads_beside.draw_figure(curves, settings, "classes learned")
