"""What a session predicts of rows that it does not learn."""

import copy
from dataclasses import dataclass

import numpy as np

from orfit.stream.block import Block
from orfit.stream.session import Session
from orfit.validation import Array


@dataclass(frozen=True)
class Predictions:
    """Of some rows, in the units of the targets: n×q; of classes, the score of each, n×k.

    std: n×q. rows: which of the block they are.
    """

    made: Array
    std: Array
    rows: Array


class Forecast:
    """Rows that are predicted, one block after another; the session stays as it is.

    With lags they follow what came last in the stream, and each is the past of the next. Where
    there is no target, what is predicted stands for it.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lags = copy.copy(session.lags)  # which replaces its past, and never writes to it

    def predict(self, block: Block) -> Predictions:
        """The next rows; their targets need not be there."""
        encoding, lags = self.session.encoding, self._lags
        targets = all(name in block.columns for name in encoding.choice.targets)
        encoded = encoding.encode(block, targets=targets and lags is not None)
        X, rows, filled = encoded.X, encoded.rows, encoded.filled
        if lags is None:
            return Predictions(*self._predicted(X, filled), rows)
        if targets:
            return Predictions(*self._predicted(lags.make(X, encoded.Y), filled), rows)
        empty, target = np.empty((0, len(encoding.choice.targets))), encoding.target
        parts = [(empty, empty)]
        for i, x in enumerate(X):
            made, std = self._predicted(lags.present(x)[None], filled[i : i + 1])
            lags.see(x, ((made - target.mean) / target.scale)[0])
            parts.append((made, std))
        made, std = (np.vstack(each) for each in zip(*parts, strict=True))
        return Predictions(made, std, rows)

    def _predicted(self, X: Array, filled: Array) -> tuple[Array, Array]:
        """Predictions, and how sure they are, which they are less where a value was filled in.

        By as much as they would differ if it were a standard deviation of its column more, or less:
        exactly for raw columns that vary by themselves, to first order for others.
        """
        made, std = self.session.predicted(X)
        if self.session.classify or not filled.any():
            return made, std
        variance, unknown = std**2, self.session.encoding.unknown
        for place in np.flatnonzero(filled.any(axis=0)):
            rows = np.flatnonzero(filled[:, place])
            for step in (-unknown[place], unknown[place]):
                other = X[rows]
                other[:, place] += step
                variance[rows] += (self.session.predicted(other)[0] - made[rows]) ** 2 / 2
        return made, np.sqrt(variance)
