"""Ten heads on features that are spread over processes: torchrun --nproc-per-node 4 spread.py"""

import numpy as np

import orfit
import orfit.distributed

digits = orfit.datasets.mnist_sample()
train, test = (X.reshape(len(X), -1) / 255 for X in (digits.train_images, digits.test_images))
labels = np.eye(10)[digits.train_labels]

model = orfit.distributed.Linear(5000, heads=10)
A = np.random.default_rng(0).standard_normal((784, 5000))[:, model.here] / 10
train, test = (np.cos(X @ A) / 50 for X in (train, test))  # the features of this process
learner = orfit.distributed.ORFit(model, memory=50, noise=0.1)

learner.learn_each(train, labels)  # all processes make the same calls
right = np.mean(learner.predict(test).argmax(axis=1) == digits.test_labels)
if model.processes.rank == 0:
    sent = model.processes.messages
    print(f"{right:.3f} right; {sent} messages for {learner.seen} rows")
