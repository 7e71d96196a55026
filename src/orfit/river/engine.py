"""What stands behind each estimator: rows wait in a buffer until somebody asks, then are learned.

Rows that nobody has asked about are learned together, which takes a fraction of the time, and is
the same (`learn_each`). The first rows are kept, and give the scale (`scale`): of n of them the
first 2^k ≤ n do, so that what is predicted does not depend on when somebody asked. Once there are
FIRST, the scale is frozen, and they are let go.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from orfit.faces import exact, grown, learner_for
from orfit.faces.discriminant import Discriminant
from orfit.faces.evidence import most_likely_noise
from orfit.faces.rows import Rows
from orfit.learners.gain import GainLearner
from orfit.river.columns import Columns
from orfit.river.inputs import Inputs
from orfit.river.settings import Settings
from orfit.validation import Array

FIRST = 256  # rows, a power of two, after which the scale stays
BLOCK = 64  # rows that wait at most, later


class Engine:
    """Features by name in, labels as numbers; predictions out."""

    def __init__(
        self, settings: Settings, heads: int | None, centred: bool = False, classes: bool = False
    ) -> None:
        """centred: whether labels are learned from the mean of the first ones on.

        classes: whether each is 1 for one head, and 0 for all others.
        """
        self.settings, self.heads = settings, heads
        self.columns = Columns()
        self._centred = centred and settings.scaling and settings.fit_intercept
        self._frozen = not settings.scaling
        self._basis = 0  # rows that gave the scale
        self._offset = np.zeros(heads or 1)  # of labels
        self._inputs: Inputs | None = None
        self._learner: GainLearner | None = None
        self._w: Any = None  # the learner's, since somebody asked
        self._classified = classes
        self._classes: Discriminant | None = None
        self._rule: Any = None  # of the classes, since somebody asked
        rows = BLOCK if self._frozen else FIRST
        self._X, self._Y = np.zeros((rows, 0)), np.zeros((rows, heads or 1))
        self._weights: Array | None = None  # of the rows, where one was given
        self._rows = self._learned = 0  # in the buffer, and of these

    def read(self, x: Mapping[Any, Any], weight: float) -> tuple[Any, Any]:
        """Where the features of a row belong, new ones too if it has a weight, and their values."""
        return self.columns.read(x, new=weight > 0)

    def learn(self, x: tuple[Any, Any], y: Any, weight: float) -> None:
        """Take a row, as `read` gives it, of a weight > 0; y a number, or one for each head."""
        places, values = x
        if self._rows == len(self._X):  # they still wait, since learning them was interrupted
            self.settle()
        if len(self.columns) > self._X.shape[1]:
            self._widen()
        row = self._rows
        if places is not ... or len(values) < self._X.shape[1]:
            self._X[row] = math.nan
            places = slice(len(values)) if places is ... else places
        self._X[row, places] = values
        self._Y[row] = y
        if weight != 1.0 or self._weights is not None:
            self._weigh(row, weight)
        self._rows = row + 1
        if self._rows == len(self._X):
            self.settle()

    def learn_rows(self, names: list[Any], X: Array, Y: Array, weights: Array | None) -> None:
        """Take many rows, the columns of which have names; those of weight 0 change nothing."""
        if weights is not None:
            some = weights > 0
            X, Y, weights = X[some], Y[some], weights[some]
        places = np.array(self.columns.join(names, X), int)
        if len(self.columns) > self._X.shape[1]:
            self._widen()
        known = places >= 0
        X, places, Y = X[:, known], places[known], Y.reshape(len(Y), -1)
        done, refused = 0, None
        while done < len(X):
            n = min(len(X) - done, len(self._X) - self._rows)
            rows, taken = slice(self._rows, self._rows + n), slice(done, done + n)
            self._X[rows] = math.nan
            self._X[rows, places], self._Y[rows] = X[taken], Y[taken]
            if weights is not None:
                self._weigh(rows, weights[taken])
            self._rows, done = self._rows + n, done + n
            if self._rows == len(self._X):
                try:
                    self.settle()
                except ValueError as error:  # of a row before: the rest is learned all the same
                    refused = refused or error
        if refused is not None:
            raise refused

    def predict(self, x: Mapping[Any, Any]) -> Any:
        """f(x) for each head, of which there is at least one; None before the first row."""
        learner = self.learner
        if learner is None:
            return None
        if len(learner.candidates) == 1:  # then the learner is fast, and w need not be copied
            return learner.predict(self._phi(x)) + self._offset
        return self._phi(x) @ self._parameters() + self._offset

    def predict_std(self, x: Mapping[Any, Any]) -> Any:
        """The same, and the standard deviations of labels there."""
        learner = self.learner
        if learner is None:
            return None
        f, s = learner.predict(self._phi(x), std=True)
        # A scale of 0: each label was what was expected, as it is of one that is its own mean.
        return f + self._offset, np.where(np.atleast_1d(s) > 0, s, math.inf)

    def rule(self) -> tuple[Array, Array]:
        """A, b so that of predictions f, f A + b are the logarithms of classes."""
        if self._rule is None:
            assert self._classes is not None
            assert self._learner is not None
            self._rule = self._classes.rule_beside(self._learner)
        return self._rule  # type: ignore[no-any-return]

    def predict_rows(self, names: list[Any], X: Array) -> Any:
        """Of many rows the same, (n, heads); None before the first row was learned."""
        if self.learner is None:
            return None
        places = np.array([self.columns.places.get(name, -1) for name in names], int)
        rows = np.full((len(X), len(self.columns)), math.nan)
        rows[:, places[places >= 0]] = X[:, places >= 0]
        assert self._inputs is not None
        return self._inputs.make(rows) @ self._parameters() + self._offset

    @property
    def learner(self) -> GainLearner | None:
        """The learner, with all rows learned; None before the first."""
        if self._rows > self._learned:
            self.settle()
        return self._learner

    def add_head(self) -> None:
        """One more head, whose labels so far were all 0."""
        assert self.heads is not None
        self.heads += 1
        self._offset = np.append(self._offset, 0.0)
        self._Y = np.pad(self._Y, ((0, 0), (0, 1)))

    def settle(self) -> None:
        """Learn what waits; of rows that are refused, because numbers overflow, raise the first.

        These are let go, and all others are learned. What is interrupted goes on waiting.
        """
        rows, self._w, self._rule = self._rows, None, None
        if self._frozen:
            if self._learner is None:
                self._make(1)
        else:
            basis = 1 << (rows.bit_length() - 1)
            if basis > self._basis:
                self._make(basis)
        refused = None
        try:
            self._learn(rows)
        except ValueError as error:
            refused = error
            while self._learned < self._rows:  # one at a time tells which row it is
                try:
                    self._learn(self._learned + 1)
                except ValueError:
                    self._drop(self._learned)
        if self._frozen or self._rows == FIRST:
            self._empty()
        if refused is not None:
            raise refused

    def _learn(self, end: int) -> None:
        """Learn those up to there that wait, and count the ones that were, whatever happens."""
        learner, rows = self._learner, slice(self._learned, end)
        assert learner is not None
        assert self._inputs is not None
        if len(self.columns) > self._inputs.columns:
            self._inputs.grow(self.columns.first)
        if (self._inputs.size, self.heads) != (learner.model.size, learner.model.heads):
            learner = self._grow(learner)
        before = learner.seen
        try:
            self._learn_rows(learner, rows)
        finally:
            self._learned += learner.seen - before

    def _drop(self, row: int) -> None:
        """Let one row go, and have those behind it move up."""
        for rows in (self._X, self._Y, self._weights):
            if rows is not None:
                rows[row : self._rows - 1] = rows[row + 1 : self._rows]
        self._rows -= 1

    def _grow(self, learner: GainLearner) -> GainLearner:
        assert self._inputs is not None
        size, heads = self._inputs.size, self.heads
        self._learner = learner = grown(learner, size, heads, self.settings.memory)
        if self._classes is not None:
            self._classes = self._classes.grown(heads or 1)
        return learner

    def _learn_rows(self, learner: GainLearner, rows: slice) -> None:
        inputs, classes = self._inputs, self._classes
        assert inputs is not None
        X, Y = self._X[rows, : inputs.columns], self._Y[rows] - self._offset
        if self.heads is None:
            Y = Y[:, 0]
        weight = None if self._weights is None else self._weights[rows]
        if classes is not None:
            counts, before = np.ones(len(Y)) if weight is None else weight, learner.seen
            try:
                updates = learner.learn_each(inputs.make(X), Y, weight)
            except BaseException:  # those before have been learned, and nothing is told of them
                n = learner.seen - before
                classes.count(Y[:n], counts[:n], learner.forgetting)
                raise
            classes.see(updates, Y, counts, learner.forgetting, before)
        elif len(X) == 1:
            learner.learn(inputs.make_one(X[0]), Y[0], None if weight is None else weight[0])
        else:
            learner.learn_each(inputs.make(X), Y, weight)

    def _make(self, basis: int) -> None:
        """Begin anew, with the scale of the first so many rows."""
        settings = self.settings
        self._X = np.ascontiguousarray(self._X[:, : len(self.columns)])
        few = basis < FIRST
        counts = np.ones(basis) if self._weights is None else self._weights[:basis]
        share = counts / counts.max()  # whose sum is no overflow
        share /= share.sum()
        self._inputs = Inputs(self._X[:basis], share, self.columns, settings, few)
        if self._centred:
            self._offset = share @ self._Y[:basis]
        self._learner = learner_for(
            self._inputs.size,
            self.heads,
            settings.memory,
            noise=self._noise(self._inputs, basis, counts),
            forgetting=settings.forgetting,
            bias=False,
            growing=True,
        )
        if self._classified:
            self._classes = Discriminant.of(self.heads or 1, self._learner)
        self._basis, self._learned = basis, 0

    def _noise(self, inputs: Inputs, basis: int, counts: Array) -> float | str:
        """What was said; or what the first rows say, where all that they say is kept."""
        settings = self.settings
        if not isinstance(settings.noise, str) or not settings.scaling or settings.forgetting != 1:
            return settings.noise
        if not exact(inputs.size, settings.memory):
            return settings.noise
        rows = Rows(inputs.make(self._X[:basis]), self._Y[:basis] - self._offset, counts)
        return most_likely_noise([rows], settings.fit_intercept)

    def _phi(self, x: Mapping[Any, Any]) -> Array:
        assert self._inputs is not None
        places, values = self.columns.read(x, new=False)
        if places is ...:
            return self._inputs.make_one(np.array(values, float))
        row = np.full(len(self.columns), math.nan)
        row[places] = values
        return self._inputs.make_one(row)

    def _parameters(self) -> Any:
        """w, (p, heads)."""
        if self._w is None:
            assert self._learner is not None
            self._w = self._learner.w.reshape(self._learner.model.size, -1)
        return self._w

    def _empty(self) -> None:
        """Let the rows go, which have been learned."""
        self._rows = self._learned = 0
        self._weights = None
        if not self._frozen:
            self._X, self._Y = self._X[:BLOCK].copy(), self._Y[:BLOCK].copy()
            self._frozen = True

    def _widen(self) -> None:
        """Room for the features that there are, and some more."""
        n = len(self.columns)
        room = n + n // 2 if self._X.shape[1] else n
        self._X = np.pad(self._X, ((0, 0), (0, room - self._X.shape[1])), constant_values=math.nan)

    def _weigh(self, rows: Any, weights: Any) -> None:
        if self._weights is None:
            self._weights = np.ones(len(self._X))
        self._weights[rows] = weights
