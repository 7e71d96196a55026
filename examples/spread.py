"""Ten heads on features that are spread over processes: torchrun --nproc-per-node 4 spread.py"""

import numpy as np

import orfit
import orfit.distributed

digits = orfit.datasets.mnist_sample()
train, test = (X.reshape(len(X), -1) / 255 for X in (digits.train_images, digits.test_images))
labels = np.eye(10)[digits.train_labels]

here = orfit.distributed.Linear(5000).here  # which of 5,000 features this process has
A = np.random.default_rng(0).standard_normal((784, 5000))[:, here] / 10
model = orfit.distributed.Linear(5000, heads=10, features=lambda X: np.cos(X @ A) / 50)
learner = orfit.distributed.ORFit(model, memory=50, noise=0.1)

for start in range(0, len(train), 250):  # all processes make the same calls
    rows = slice(start, start + 250)
    learner.learn_each(train[rows], labels[rows])

right = np.mean(learner.predict(test).argmax(axis=1) == digits.test_labels)
if model.processes.rank == 0:
    sent = model.processes.exchanges
    print(f"{right:.3f} right; {sent} messages for {learner.seen} rows")
