"""Digits upright, then turned: one pass over each, by one network that keeps both."""

import numpy as np
import torch
from scipy.ndimage import rotate

import orfit


def turned(images, angle):
    return rotate(images[:, ::2, ::2] / 255, angle, (2, 1), reshape=False, order=1)


digits = orfit.datasets.mnist_sample()
order = np.random.default_rng(0).permutation(len(digits.train_labels))
y = digits.train_labels[order].astype(int)

torch.manual_seed(0)
layers = torch.nn.Linear(196, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
network = torch.nn.Sequential(torch.nn.Flatten(), *layers)

learner = orfit.PerLayer(network, noise=2.0, block=10)
for angle in (0, 45):
    learner.learn(turned(digits.train_images[order], angle), y)

for angle in (0, 45):
    outputs = learner.predict(turned(digits.test_images, angle))
    print(f"{angle} degrees: {np.mean(outputs.argmax(axis=1) == digits.test_labels):.3f}")
