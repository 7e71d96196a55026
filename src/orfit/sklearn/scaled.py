"""A learner behind a scale and features: what an estimator is, but for scikit-learn's manners."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from orfit import door, schema
from orfit import features as kinds
from orfit.door import Array
from orfit.features import Features
from orfit.learners import RLS, ORFit, Updates
from orfit.learners.load import restored
from orfit.learners.onestep import OneStep
from orfit.schema import DOUBLE, Fields, arranged, mapping, record
from orfit.sklearn import setup
from orfit.sklearn.rows import Rows, dense, slices
from orfit.sklearn.scale import Scale
from orfit.sklearn.setup import Setup

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
        learner: OneStep,
        long: float,
    ) -> None:
        """long: what features are divided by."""
        self.settings, self.inputs, self.targets = settings, inputs, targets
        self.features, self.learner, self.long = kind, learner, long
        self.squares = np.zeros(len(targets.mean))  # Σ r² / (gᵀPg + R) of each target so far
        self.mass = 0.0  # of so many rows

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
                yield replace(part, X=kind.make(inputs.applied(part.X)))

        learner, long = settings.learner(size, heads, parts)
        return cls(settings, inputs, targets, kind, learner, long)

    def learn(self, rows: Rows) -> Updates:
        """Predict each row, then learn it. What is told is in the units of the targets."""
        one = self.learner.model.heads is None
        told = []
        for part in rows.blocks(self.learner.model.size):
            phi, Y = self._phi(part.X), self.targets.applied(part.Y)
            updates = self.learner.learn_each(phi, Y[:, 0] if one else Y, weight=part.weight)
            self._count(updates, part.counts)
            told.append(self._in_units(updates))
        return Updates.joined(told, rows.Y[:, 0] if one else rows.Y)

    def predict(self, X: Any, std: bool = False) -> tuple[Array, Array | None]:
        """f, n×q; and, where it is asked for, the standard deviation of a label there."""
        made: list[Array] = []
        spread: list[Array] = []
        for some in slices(X, self.learner.model.size):
            phi = self._phi(dense(X[some]))
            found = self.learner.predict(phi, std=std)
            F, s = found if std else (found, None)
            made.append(self.targets.undone(F.reshape(len(phi), -1)))
            if s is not None:
                spread.append(s.reshape(len(phi), -1) * self.targets.unit)
        return np.vstack(made), np.vstack(spread) if std else None

    def grow(self, heads: int) -> None:
        """More targets, which were 0 so far."""
        self.learner.grow(heads=heads)
        self.targets = self.targets.grown(heads)
        self.squares = np.append(self.squares, np.zeros(heads - len(self.squares)))

    @property
    def exact(self) -> bool:
        return isinstance(self.learner, RLS)

    @property
    def noise_variance(self) -> Array:
        """Of each target, in its units.

        Σ r² / (gᵀPg + R) does not depend on the order of rows, where nothing was dropped: it is
        yᵀ(K + R)⁻¹y. Else it is what was so lately.
        """
        unit = self.targets.unit**2
        if self.exact:
            return np.asarray(unit * self.squares / max(self.mass - 1, 1.0))
        return np.asarray(unit * self.learner.scale * self.learner.noise)

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

    def _count(self, updates: Updates, counts: Array) -> None:
        counted = (counts > 0) & (updates.variance > 0)
        residual = updates.residual.reshape(len(updates), -1)[counted]
        squares = residual**2 / updates.variance[counted, None]
        fading = self.learner.forgetting ** np.arange(len(squares))[::-1]
        faded = self.learner.forgetting ** len(squares)
        self.squares = faded * self.squares + fading @ squares
        self.mass = faded * self.mass + float(fading @ counts[counted])

    def _in_units(self, updates: Updates) -> Updates:
        """Predictions, residuals and conflicts so; and variances, where there is one target."""
        unit, mean = self.targets.unit, self.targets.mean
        one = self.learner.model.heads is None
        unit, mean = (unit[0], mean[0]) if one else (unit, mean)
        return replace(
            updates,
            prediction=updates.prediction * unit + mean,
            residual=updates.residual * unit,
            conflict=updates.conflict * unit,
            variance=updates.variance * unit**2 if one else updates.variance,
        )

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and plain values from which `restored` goes on bit-equally."""
        arrays, header = self.learner.state()
        arrays = {f"learner.{name}": array for name, array in arrays.items()}
        arrays |= {"inputs.mean": self.inputs.mean, "inputs.unit": self.inputs.unit}
        arrays |= {"targets.mean": self.targets.mean, "targets.unit": self.targets.unit}
        arrays["squares"] = self.squares
        return arrays, {
            "settings": asdict(self.settings),
            "features": {"kind": self.features.kind, "settings": self.features.settings()},
            "long": self.long,
            "mass": self.mass,
            "learner": header,
        }

    @classmethod
    def restored(cls, arrays: dict[str, Array], header: dict[str, Any]) -> "Scaled":
        """What `state` gave; raises ValueError where it is no such thing."""
        values = record(FIELDS)("header", header)
        own = {n: a for n, a in arrays.items() if not n.startswith("learner.")}
        arranged(own, LAYOUT)
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
        scaled = cls(settings, inputs, targets, made, learner, values["long"])
        scaled.squares, scaled.mass = arrays["squares"], values["mass"]
        return scaled


FIELDS: Fields = {
    "settings": record(setup.FIELDS),
    "features": record({"kind": schema.one_of(*kinds.KINDS), "settings": mapping}),
    "long": door.positive,
    "mass": door.nonnegative,
    "learner": mapping,
}
LAYOUT: schema.Layout = {
    "inputs.mean": (DOUBLE, "d"),
    "inputs.unit": (DOUBLE, "d"),
    "targets.mean": (DOUBLE, "q"),
    "targets.unit": (DOUBLE, "q"),
    "squares": (DOUBLE, "q"),
}
