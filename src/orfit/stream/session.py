"""A stream under way: columns, features, the learner and others, how well they do."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from orfit import validation
from orfit.features import Features
from orfit.learners.gain import GainLearner
from orfit.learners.learner import Learner
from orfit.stream import features, setup
from orfit.stream.baselines import baselines
from orfit.stream.block import Block, StreamError
from orfit.stream.bookmarks import Bookmarks
from orfit.stream.encoding import Choice, Classes, Encoding
from orfit.stream.held import Held
from orfit.stream.history import History
from orfit.stream.lags import Lags
from orfit.stream.scores import AmountScores, ClassScores
from orfit.stream.setup import Setup
from orfit.validation import Array
from orfit.version import __version__

SIGMAS = 1.959964  # an interval of so many standard deviations to each side holds 95 %
LATEST = 200  # rows that a report shows as they are
DIVERGED = 1e30  # standard deviations of the first rows: a rival that predicts so much is out
LARGEST = 1e150  # that a rival's prediction, or a standard deviation, counts as
AT_ONCE = 1 << 18  # features of rows that are learned together: these take a fraction of a second
LEAST = 256  # such rows, however many features they have


class Session:
    """All that a checkpoint of a stream holds."""

    def __init__(
        self,
        options: Setup,
        encoding: Encoding,
        kind: Features,
        learner: GainLearner,
        rivals: dict[str, Learner],
        why: str,
    ) -> None:
        """kind: of features. rivals: others that learn the same. why: how features were chosen."""
        self.options, self.encoding, self.features, self.why = options, encoding, kind, why
        self.learner, self.rivals = learner, rivals
        targets = len(encoding.choice.targets)
        self.lags = _lags(options, encoding)
        width = self.lags.size if self.lags else encoding.width
        self.held = Held(options.holdout, options.seed, width, targets)
        self.baselines = baselines(self.classify, targets)
        methods = ["orfit", *rivals, *(each.name for each in self.baselines)]
        board = ClassScores if self.classify else AmountScores
        self.scores = board(methods, targets, options.window)
        self.history, self.bookmarks = History(), Bookmarks()
        self.rows, self.skipped = 0, 0
        self.version = __version__  # of the orfit that saved it, where it was
        self.out: dict[str, int] = {}  # rivals that left the finite numbers, and at which row
        self.whole = True  # not in the midst of a block, which an error has ended
        self.latest = np.zeros((0, 3))  # label, prediction and standard deviation, of one target

    @property
    def classify(self) -> bool:
        return self.encoding.choice.classify

    @classmethod
    def begun(cls, choice: Choice, options: Setup, blocks: Sequence[Block]) -> "Session":
        """From the first rows, of which none is learned yet."""
        encoding = Encoding.learned(choice, blocks)
        first = [encoding.encode(block) for block in blocks]
        encoding.far, encoding.odd = [], set()  # to be told when they are learned
        X, Y = np.vstack([each.X for each in first]), np.vstack([each.Y for each in first])
        if not len(X):
            raise StreamError(f"{blocks[0].name}: of the first rows none is whole")
        lags = _lags(options, encoding)
        X = lags.make(X, Y) if lags else X
        if not X.shape[1]:
            raise StreamError(
                f"{blocks[0].name} has no column to learn from beside the target; --features "
                "lags:N predicts a series from its own past"
            )
        if choice.classify:
            Y = one_hot(Y, encoding.target.count)
        given = features.parse(options.features, options.seed)[1]
        size = 0 if given is None else given.size(X.shape[1])
        if size > features.MOST:
            raise StreamError(f"these are {size} features, more than {features.MOST}")
        fit, why = setup.fitted(given, X, Y, options.seed)
        phi = fit.features.make(X)
        size, heads = phi.shape[1], Y.shape[1] if choice.classify or Y.shape[1] > 1 else None
        learner = setup.make_learner(options, fit, size, heads)
        rivals = {name: setup.make_rival(name, size, heads, phi) for name in options.versus}
        return cls(options, encoding, fit.features, learner, rivals, why)

    @property
    def piece(self) -> int:
        """How many rows of a file to learn together: the longer the stream, the more.

        What is learned is saved, shown and can be stopped after each.
        """
        rows = self.history.every
        while rows > LEAST and rows * self.learner.model.size > AT_ONCE:
            rows //= 2  # so that a line of the history is still due at the end of some
        return rows

    def learn(self, blocks: Sequence[Block]) -> list[str]:
        """Predict each row, then learn it; what a user would want to know of it.

        Where something of the rows is not as it should be, nothing has changed.
        """
        classes, far = self.encoding.target.classes, [*self.encoding.far]
        try:
            encoded = [self.encoding.encode(block) for block in blocks]
        except StreamError:  # what was new in rows before the one that is wrong comes again
            self.encoding.far = far
            if classes is not None:
                self.encoding.target = Classes(classes)
            raise
        self.skipped += sum(each.skipped for each in encoded)
        self.skipped += sum(len(block.malformed) for block in blocks)
        notices = [text for each in encoded for text in each.notices]
        if not any(len(each.rows) for each in encoded):
            return notices

        done = 0

        def where(row: int) -> str:
            found = [(b, i) for b, e in zip(blocks, encoded, strict=True) for i in e.rows]
            block, of_it = found[done + row]
            return block.where(of_it)

        X, Y = np.vstack([each.X for each in encoded]), np.vstack([each.Y for each in encoded])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            self.whole = False
            while done < len(X):  # lines of the history do not depend on what comes together
                rows = slice(done, done + self.history.left(self.rows))
                self._learn(X[rows], Y[rows], where)
                if self.history.left(self.rows) == self.history.every:
                    self.history.add(self.line())
                done = rows.stop
            self.whole = True
        advice = [str(w.message) for w in told if w.category.__module__.startswith("orfit.")]
        return notices + advice

    def _learn(self, X: Array, Y: Array, where: Callable[[int], str]) -> None:
        aside = self.held.chosen(self.rows, len(X))
        self.rows += len(X)
        if self.lags:
            X = self.lags.make(X, Y)
        kept = np.flatnonzero(~aside)
        if len(kept) < len(X):
            self.held.keep(X[aside], Y[aside])
            X, Y = X[kept], Y[kept]
        if not len(X):
            return
        phi, labels, seen = self.features.make(X), self._labels_of(Y), self.learner.seen
        try:
            made, std = self._learned(phi, labels)
        except ValueError as error:
            row = int(kept[self.learner.seen - seen])
            raise StreamError(f"{where(row)}: {error}") from None
        results = [made, *(self._of_rival(name, phi, labels) for name in self.rivals)]
        results += [self._in_units(each.made(Y)) for each in self.baselines]
        truth = self._in_units(Y)
        self.scores.add(truth, results, (np.abs(truth - made) <= SIGMAS * std).astype(float))
        latest = np.column_stack([each[-LATEST:, 0] for each in (truth, made, std)])
        latest[:, 2] = np.fmin(latest[:, 2], LARGEST)
        self.latest = np.vstack([self.latest, latest])[-LATEST:]

    def _labels_of(self, Y: Array) -> Array:
        """Labels as the learners take them; of a class that was never seen, all were 0 so far."""
        if not self.classify:
            return Y[:, 0] if self.learner.model.heads is None else Y
        count = self.encoding.target.count
        for learner in (self.learner, *self.rivals.values()):
            if count > (learner.model.heads or 0):
                learner.grow(heads=count)
        return one_hot(Y, count)

    def _learned(self, phi: Array, labels: Array) -> tuple[Array, Array]:
        """What was predicted of each row before it was learned, and the standard deviation."""
        learner = self.learner
        if len(learner.candidates) == 1 and validation.finite(phi):  # else a row is refused
            updates, scales = learner.learn_each_with_scale(phi, labels)
            made = updates.prediction.reshape(len(phi), -1)
            std = np.sqrt(scales * updates.variance[:, None])
        else:
            made, std = self._learned_one_by_one(phi, labels)
        if self.classify:
            return _decided(made), std
        return self._in_units(made), std * self.encoding.target.scale

    def _learned_one_by_one(self, phi: Array, labels: Array) -> tuple[Array, Array]:
        """The same in what the learner takes, where candidates are compared."""
        learner, predictions, deviations = self.learner, [], []
        for x, y in zip(phi, labels, strict=True):
            scale = learner.scale  # before the row: a scale belongs to the candidate in use
            update = learner.learn(x, y)
            predictions.append(update.prediction)
            deviations.append(np.sqrt(scale * update.variance))
        made, std = (np.reshape(rows, (len(phi), -1)) for rows in (predictions, deviations))
        return made, std

    def _of_rival(self, name: str, phi: Array, labels: Array) -> Array:
        """The same of another; one that has left the finite numbers predicts the mean."""
        made = np.zeros((len(phi), labels.shape[1] if labels.ndim > 1 else 1))
        if name not in self.out:
            try:
                made = self.rivals[name].learn_each(phi, labels).prediction.reshape(made.shape)
            except ValueError:
                self.out[name] = self.rows
            if np.abs(made).max(initial=0.0) > DIVERGED:
                self.out[name] = self.rows
        made = np.clip(made, -LARGEST, LARGEST)
        return _decided(made) if self.classify else self._in_units(made)

    def _in_units(self, Y: Array) -> Array:
        """From what the learner takes, in units of the first rows, to those of the targets."""
        return np.asarray(Y * self.encoding.target.scale + self.encoding.target.mean)

    @property
    def unit(self) -> float:
        """What the meter's readings are times: a single target's own unit.

        Several may have as many units: there, readings are in standard deviations of the first
        rows.
        """
        scale = self.encoding.target.scale
        return float(scale[0]) if len(scale) == 1 else 1.0

    def line(self) -> dict[str, Any]:
        """What is known now, for the history and for machines: numbers, or None."""
        health, learner = self.learner.health(), self.learner
        lately = self.scores.read(lately=True)
        measure = self.scores.measures[0]
        made: dict[str, Any] = {"rows": self.rows, "skipped": self.skipped}
        made |= {f"{measure}.{name}": told[measure].tolist() for name, told in lately.items()}
        if "inside" in lately["orfit"]:
            made["inside"] = lately["orfit"]["inside"].tolist()
        made |= {
            "noise": learner.noise,
            "forgetting": learner.forgetting,
            "tail": float(learner.tail),
            "directions": health.rank,
            "surprise": health.surprise,
            "dropped": health.dropped,
        }
        if (meter := learner.meter) is not None:
            for name, reading in (("change", meter.change.rms), ("error", meter.error.rms)):
                made[name] = [self.unit * x for x in (reading.value, reading.low, reading.high)]
        return {name: _plain(value) for name, value in made.items()}

    def predicted(self, X: Array) -> tuple[Array, Array]:
        """Of rows as numbers, with their past, in the units of the targets: n×q, and std.

        Of classes, the score of each, n×k.
        """
        made, std = self.learner.predict(self.features.make(X), std=True)
        made, std = made.reshape(len(X), -1), std.reshape(len(X), -1)
        if self.classify:
            return made, std
        return self._in_units(made), std * self.encoding.target.scale

    def on_held(self) -> dict[str, dict[str, Array]]:
        """How well rows are predicted that were set aside, now that all others are learned."""
        X, Y = self.held.X, self.held.Y
        methods = ["orfit", *self.rivals]
        board = type(self.scores)(methods, Y.shape[1], max(1, len(Y)))
        if not len(X):
            return board.read()
        made, std = self.predicted(X)
        truth = Y if self.classify else self._in_units(Y)
        inside = np.zeros_like(truth) if self.classify else np.abs(truth - made) <= SIGMAS * std
        told = [_decided(made) if self.classify else made]
        phi = self.features.make(X)
        for name, rival in self.rivals.items():
            of_it = np.zeros_like(made)
            if name not in self.out:
                of_it = rival.predict(phi).reshape(made.shape)
            of_it = np.clip(of_it, -LARGEST, LARGEST)
            told.append(_decided(of_it) if self.classify else self._in_units(of_it))
        board.add(truth, told, inside.astype(float))
        return board.read()


def one_hot(Y: Array, classes: int) -> Array:
    """n×1 indices as n×classes of 0 and 1."""
    return np.asarray(np.eye(classes)[Y[:, 0].astype(int)])


def _decided(scores: Array) -> Array:
    """The most likely class of each row, n×1."""
    return np.asarray(np.argmax(scores, axis=1)[:, None], float)


def _lags(options: Setup, encoding: Encoding) -> Lags | None:
    count = features.parse(options.features, options.seed)[0]
    if count and encoding.choice.classify:
        raise StreamError("lags are for numbers: with --classify there are none")
    return Lags(count, encoding.width, len(encoding.choice.targets)) if count else None


def _plain(value: Any) -> Any:
    """As JSON holds it, with None for what is no number."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, int) or math.isfinite(value) else None
