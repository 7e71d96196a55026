"""Ten classes, one after another, each image seen once: heads on features that never move."""

import numpy as np

import orfit

digits = orfit.datasets.mnist_sample()
train, test = (X.reshape(len(X), -1) / 255 for X in (digits.train_images, digits.test_images))

heads = orfit.Heads(memory=200, expand=1000)  # the first argument would be a network of yours
for digit in range(10):
    these = digits.train_labels == digit
    heads.learn(train[these], digits.train_labels[these])

print(f"{np.mean(heads.predict(test) == digits.test_labels):.3f} of {len(heads.classes)} classes")
