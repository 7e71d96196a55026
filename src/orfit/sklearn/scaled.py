"""A learner behind a scale and features: what an estimator is, but for scikit-learn's manners."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from orfit import features as kinds
from orfit import schema, validation
from orfit.faces import discriminant
from orfit.faces.discriminant import Discriminant
from orfit.faces.rows import Rows, dense, slices
from orfit.features import Features
from orfit.learners.gain import GainLearner
from orfit.learners.load import restored
from orfit.learners.orfit import ORFit
from orfit.learners.rls import RLS
from orfit.learners.update import Updates
from orfit.schema import DOUBLE, Fields, arranged, mapping, record
from orfit.sklearn import setup
from orfit.sklearn.scale import Scale
from orfit.sklearn.setup import Setup
from orfit.validation import Array

FIRST = 2000  # rows at most, of which features may see how far apart they are


class Scaled:
    """f(x) = φ((x − mean) / unit)ᵀ w, in the units of the targets.

    Scale, features and noise are decided once, by the first rows.
    """

    def __init__(
        self,
        settings: Setup,
        inputs: Scale,
        targets: Scale,
        kind: Features,
        learner: GainLearner,
        long: float,
        classes: Discriminant | None = None,
    ) -> None:
        """long: what features are divided by. classes: of which targets say that a row has them."""
        self.settings, self.inputs, self.targets = settings, inputs, targets
        self.features, self.learner, self.long = kind, learner, long
        self.classes = classes

    @classmethod
    def decided(cls, settings: Setup, rows: Rows, heads: int | None, amounts: bool) -> "Scaled":
        """By these rows, which are not learned yet. amounts: whether targets have units."""
        counts = rows.counts > 0
        if not counts.any():
            raise ValueError("sample_weight is zero for every row: there is nothing to learn from")
        if not counts.all():
            rows = rows[counts]
        centred = settings.fit_intercept
        inputs = Scale.of(rows, centred)
        targets = Scale.of(rows, centred, targets=True) if amounts else Scale.none(rows.Y.shape[1])
        kind = settings.kind()
        kind.learn(inputs.applied(dense(rows.X[:FIRST])))
        size = kind.size(rows.X.shape[1])

        def parts() -> Iterator[Rows]:
            for part in rows.blocks(size):
                Y = targets.applied(part.Y)
                yield replace(part, X=kind.make(inputs.applied(part.X)), Y=Y)

        learner, long = settings.learner(size, heads, parts)
        classes = None if amounts else Discriminant.of(rows.Y.shape[1], learner)
        return cls(settings, inputs, targets, kind, learner, long, classes)

    def check(self, rows: Rows) -> None:
        """Raise where a number of these rows, scaled, is none: before anything has changed."""
        for part in rows.blocks():
            with np.errstate(over="ignore"):  # found as inf
                X = self.inputs.applied(part.X).astype(self.settings.dtype)
                Y = (part.Y[:, : self.outputs] - self.targets.mean) / self.targets.unit
                Y = Y.astype(self.settings.dtype)
            validation.check_finite("X, in units of the first rows,", X)
            validation.check_finite("y, in units of the first rows,", Y)

    def learn(self, rows: Rows) -> Updates:
        """Predict each row, then learn it. What is told is in the units of the targets."""
        one = self.learner.model.heads is None
        told = []
        for part in rows.blocks(self.learner.model.size):
            phi, Y = self._phi(part.X), self.targets.applied(part.Y)
            before = self.learner.seen
            try:
                updates = self.learner.learn_each(phi, Y[:, 0] if one else Y, weight=part.weight)
            except BaseException:  # those before have been learned, and nothing is told of them
                if self.classes is not None:
                    begun = part.begun(self.learner.seen - before)
                    self.classes.count(begun.Y, begun.counts, self.learner.forgetting)
                raise
            if self.classes is not None:
                self.classes.see(updates, Y, part.counts, self.learner.forgetting, before)
            told.append(self._in_units(updates))
        return Updates.joined(told, rows.Y[:, 0] if one else rows.Y)

    def predict(self, X: Any, std: bool = False) -> tuple[Array, Array | None]:
        """f, n×q; and, where it is asked for, the standard deviation of a label there.

        That is infinite while a single row is all the intercept has come from: it tells none.
        """
        known = self.learner.seen > self.settings.fit_intercept
        made: list[Array] = []
        spread: list[Array] = []
        for some in slices(X, self.learner.model.size):
            phi = self._phi(dense(X[some]))
            found = self.learner.predict(phi, std=std)
            F, s = found if std else (found, None)
            made.append(self.targets.undone(F.reshape(len(phi), -1)))
            if s is not None:
                s = s.reshape(len(phi), -1) * self.targets.unit
                spread.append(s if known else np.full_like(s, np.inf))
        return np.vstack(made), np.vstack(spread) if std else None

    def grow(self, heads: int) -> None:
        """More targets, which were 0 so far."""
        targets = self.targets.grown(heads)
        classes = None if self.classes is None else self.classes.grown(heads)
        self.learner.grow(heads=heads)
        self.targets, self.classes = targets, classes

    @property
    def outputs(self) -> int:
        return len(self.targets.mean)

    def rule(self) -> tuple[Array, Array]:
        """A, b so that of predictions f, f A + b are the logarithms of classes (`Discriminant`)."""
        assert self.classes is not None
        return self.classes.rule_beside(self.learner)

    def linear(self) -> tuple[Array, Array]:
        """Coefficients, q×features, and q intercepts: in the units of x where features are x."""
        w = np.asarray(self.learner.w, np.float64).reshape(self.learner.model.size, -1)
        bias = w[-1] if self.settings.fit_intercept else np.zeros(w.shape[1])
        slopes = (w[:-1] if self.settings.fit_intercept else w).T * self.targets.unit[:, None]
        slopes, bias = slopes / self.long, self.targets.undone(bias)
        if self.settings.features is None:
            slopes = slopes / self.inputs.unit
            bias = bias - slopes @ self.inputs.mean
        return slopes, bias

    def _phi(self, X: Array) -> Array:
        scaled = self.inputs.applied(X).astype(self.settings.dtype, copy=False)
        return np.asarray(self.features.make(scaled) / self.long)

    def _in_units(self, updates: Updates) -> Updates:
        """Predictions, residuals and conflicts so; and variances, where there is one target."""
        unit, mean = self.targets.unit, self.targets.mean
        one = self.learner.model.heads is None
        unit, mean = (unit[0], mean[0]) if one else (unit, mean)
        with np.errstate(over="ignore"):  # of labels beyond 1e154 the variance is infinite
            variance = updates.variance * unit**2 if one else updates.variance
        return replace(
            updates,
            prediction=updates.prediction * unit + mean,
            residual=updates.residual * unit,
            conflict=updates.conflict * unit,
            variance=variance,
        )

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and plain values from which `restored` goes on bit-equally."""
        arrays, header = self.learner.state()
        arrays = {f"learner.{name}": array for name, array in arrays.items()}
        arrays |= {"inputs.mean": self.inputs.mean, "inputs.unit": self.inputs.unit}
        arrays |= {"targets.mean": self.targets.mean, "targets.unit": self.targets.unit}
        of_classes, classes = ({}, None) if self.classes is None else self.classes.state()
        return arrays | of_classes, {
            "settings": asdict(self.settings),
            "features": {"kind": self.features.kind, "settings": self.features.settings()},
            "long": self.long,
            "classes": classes,
            "learner": header,
        }

    @classmethod
    def restored(cls, arrays: dict[str, Array], header: dict[str, Any]) -> "Scaled":
        """What `state` gave; raises ValueError where it is no such thing."""
        values = record(FIELDS)("header", header)
        own = {n: a for n, a in arrays.items() if not n.startswith("learner.")}
        arranged(own, LAYOUT | ({} if values["classes"] is None else discriminant.LAYOUT))
        inputs = Scale(arrays["inputs.mean"], arrays["inputs.unit"])
        targets = Scale(arrays["targets.mean"], arrays["targets.unit"])
        if not (inputs.unit > 0).all() or not (targets.unit > 0).all():
            raise ValueError("a unit is not positive")
        settings, found = Setup.of(values["settings"]), values["features"]
        kind = kinds.KINDS[found["kind"]]
        made = kind(**record(kind.fields)("features", found["settings"]))
        if made.kind != settings.kind().kind:
            raise ValueError(f"features are {made.kind}, the settings say {settings.features}")
        start = "learner."
        state = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
        learner = restored(state, values["learner"])
        parameters = made.size(len(inputs.mean)) + settings.fit_intercept
        if not isinstance(learner, RLS | ORFit):
            raise ValueError(f"a {type(learner).__name__} is no estimator's learner")
        if (learner.model.size, learner.model.heads or 1) != (parameters, len(targets.mean)):
            raise ValueError("the learner is not for these features and targets")
        classes = None
        if values["classes"] is not None:
            classes = Discriminant.of(len(targets.mean), learner)
            classes.restore(own, values["classes"])
        return cls(settings, inputs, targets, made, learner, values["long"], classes)


FIELDS: Fields = {
    "settings": record(setup.FIELDS),
    "features": record({"kind": schema.one_of(*kinds.KINDS), "settings": mapping}),
    "long": validation.positive,
    "classes": schema.optional(record(discriminant.FIELDS)),
    "learner": mapping,
}
LAYOUT: schema.Layout = {
    "inputs.mean": (DOUBLE, "d"),
    "inputs.unit": (DOUBLE, "d"),
    "targets.mean": (DOUBLE, "q"),
    "targets.unit": (DOUBLE, "q"),
}
