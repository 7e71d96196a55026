"""How sure heads may be: the temperature at which their scores have told labels best.

Regression on one-hot labels is shrunk, so that the scores of classes are nearer to each other than
probabilities are. softmax(t f) is a probability for each t; t is the one under which datapoints
were likeliest, each as it was predicted just before it was learned.
"""

from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from orfit.validation import Array

STEEP = 2.0 ** np.arange(-1, 7.25, 0.25)  # the t that are compared
USUAL = 10.0  # about what is found where the noise is the mean squared length of the features
NEW = 20  # datapoints of a class, before which its head is not judged: it is only coming up


class Temperature:
    """What each t has lost, in nats, and how many datapoints of each class there were."""

    def __init__(self, lost: Any = None, counts: Any = ()) -> None:
        self.lost = np.zeros(len(STEEP)) if lost is None else np.array(lost, float)
        self.counts = np.array(counts, int)

    def see(self, scores: Array, heads: Array) -> None:
        """Take note of datapoints of these classes, and of what was said of them before."""
        counts = np.pad(self.counts, (0, scores.shape[1] - len(self.counts)))
        mine = np.eye(len(counts), dtype=int)[heads]
        before = counts + np.cumsum(mine, axis=0) - mine
        rows = np.flatnonzero(before[np.arange(len(heads)), heads] >= NEW)
        f = np.where(before[rows] > 0, scores[rows].astype(float), -np.inf)
        right = f[np.arange(len(rows)), heads[rows]]
        self.lost = self.lost + [(logsumexp(t * f, axis=1) - t * right).sum() for t in STEEP]
        self.counts = counts + mine.sum(axis=0)

    @property
    def t(self) -> float:
        return float(STEEP[self.lost.argmin()]) if self.lost.any() else USUAL

    def probabilities(self, scores: Array) -> Array:
        return np.asarray(softmax(self.t * scores.astype(float), axis=-1))
