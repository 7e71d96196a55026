"""New classes: heads on the features of a frozen network, which share one memory."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from orfit import checkpoint, schema, validation
from orfit.checkpoint import CheckpointError
from orfit.learners.load import restored
from orfit.learners.orfit import ORFit, as_memory
from orfit.learners.update import Updates
from orfit.memory import Memory
from orfit.models import Linear
from orfit.networks.features import Expansion, features_of
from orfit.networks.temperature import STEEP, Temperature
from orfit.validation import Array

# R in units of E|φ|²: from 0.3 to 10 was as good on features of CIFAR-10, and 0 much worse.
NOISE = 1.0
MEASURED = 1000  # datapoints of which E|φ|² is the mean; later ones leave it alone
Label = int | str | bool


class Heads:
    """Classes, learned one pass and in any order: `ORFit(Linear(p, heads=…))` on frozen features.

    backbone: a torch module, which is used in eval mode and never moves; a function from a batch
        of inputs to features; or None, where the inputs are features.
    memory: as for `ORFit`: how many directions of the features are kept, or a memory.
    noise: R, the variance of the noise in one-hot labels. "auto" takes it from the size of the
        features, R = E|φ|² over the first 1,000 datapoints. (`ORFit`'s own "auto" compares how well
        candidates predicted recently. Where classes come one after another, that is always the last
        class, and the smallest candidate wins.)
    expand: so many random ReLU features instead of the backbone's: max(Ωφ, 0), Ω from `seed`.
    layer: the name of a layer of the backbone whose outputs are the features, such as "avgpool".
    batch_size: how many inputs go through the backbone at a time.

    A class that was not there before gets a head when it comes, as if it had been there from the
    start with labels 0 (`ORFit.grow`). Features and heads are NumPy's, on the CPU.

    Examples:
        >>> heads = orfit.Heads(memory=4)  # the inputs are features
        >>> X = np.array([[1.0, 0.1], [0.9, 0.0], [0.1, 1.0], [0.0, 0.8]])
        >>> updates = heads.learn(X, ["cat", "cat", "dog", "dog"])
        >>> print(heads.predict([[0.8, 0.1], [0.2, 0.9]]), heads.classes)
        ['cat' 'dog'] ('cat', 'dog')
    """

    def __init__(
        self,
        backbone: Any = None,
        memory: Memory | int | str | None = 200,
        *,
        noise: float | str = "auto",
        expand: int | None = None,
        layer: str | None = None,
        seed: int = 0,
        batch_size: int = 256,
    ) -> None:
        if isinstance(noise, str) and noise != "auto":
            raise ValueError(f'noise must be a number or "auto"; it is {noise!r}')
        self._noise = noise if isinstance(noise, str) else validation.nonnegative("noise", noise)
        self._memory = as_memory(memory)
        self._memory.check_free()
        self._batch_size = validation.count("batch_size", batch_size)
        self._source = features_of(backbone, layer, self._batch_size)
        self._layer, self._seed = layer, validation.count("seed", seed, least=0)
        self._expansion = None
        if expand is not None:
            self._expansion = Expansion(validation.count("expand", expand), self._seed)
        self.learner: ORFit | None = None  # once it is known how many features there are
        self.classes: tuple[Label, ...] = ()
        self._inputs = 0  # features before they are expanded
        self._ndim: int | None = None  # of a batch, where it is an array
        self._measured = (0, 0.0)  # datapoints, and the sum of their |φ|²
        self._judged = (0, 0)  # datapoints, and how many were predicted right before they came
        self._temperature = Temperature()

    def learn(self, X: Any, y: Any) -> Updates:
        """Learn datapoints one after another: X a batch, y their classes, whole numbers or strings.

        One datapoint is x and its class. What comes back tells of each row, as `learn_each` does.
        """
        one = isinstance(y, str) or np.ndim(y) == 0
        labels = _labels([y.item() if hasattr(y, "item") else y] if one else y)
        _check_alike([*self.classes[:1], *labels])
        batch = self._source.one(X) if one else self._source.many(X)
        raw = self._raw(batch)
        phi = self._expanded(raw)
        if len(phi) != len(labels):
            raise ValueError(f"X has {len(phi)} datapoints, but y has {len(labels)} classes")
        if not len(phi) and self.learner is None:
            raise ValueError("the first datapoints must be some: they tell how many features are")
        fresh = [label for label in dict.fromkeys(labels) if label not in self.classes]
        self._inputs = raw.shape[1]
        self._get_ready(phi, len(self.classes) + len(fresh))
        assert self.learner is not None
        self.classes += tuple(fresh)
        self._ndim = getattr(batch, "ndim", None)
        place = {label: i for i, label in enumerate(self.classes)}
        heads = np.array([place[label] for label in labels], int)
        updates = self.learner.learn_each(phi, np.eye(len(self.classes))[heads])
        known = len(self.classes) - len(fresh)
        right = _right(updates.prediction, heads, known)
        self._judged = self._judged[0] + len(heads), self._judged[1] + right
        self._temperature.see(updates.prediction[:, : len(self.classes)], heads)
        return updates

    def scores(self, X: Any) -> Array:
        """What each head says, (n, classes), in the order of `classes`: near 1 for its own."""
        batch, one = self._asked(X)
        made = self._known().predict(self._expanded(self._raw(batch)))[:, : len(self.classes)]
        return np.asarray(made[0] if one else made)

    def predict(self, X: Any) -> Any:
        """The class of one datapoint, or those of many."""
        best = self.scores(X).argmax(axis=-1)
        return self.classes[best] if best.ndim == 0 else np.array(self.classes)[best]

    def predict_proba(self, X: Any) -> Array:
        """How likely each class is, in the order of `classes`: softmax(t·scores).

        t is the temperature under which datapoints were likeliest, each as it was predicted just
        before it was learned; the first 20 of a class do not count. Where classes come one after
        another, what is said is on the cautious side.
        """
        return self._temperature.probabilities(self.scores(X))

    @property
    def seen(self) -> int:
        """How many datapoints have been learned."""
        return 0 if self.learner is None else self.learner.seen

    @property
    def accuracy(self) -> float:
        """The share of datapoints that were predicted right, each just before it was learned.

        The first one of a class is always wrong. NaN before there was any.
        """
        judged, right = self._judged
        return right / judged if judged else float("nan")

    @property
    def noise(self) -> float:
        """R, as it is used now."""
        return float(self._known().noise)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all but the backbone; `orfit.load(path, model=backbone)` reads it back."""
        arrays, learner = self._known().state()
        expand = self._expansion
        header = {
            "kind": "Heads",
            "learner": learner,
            "noise": self._noise,
            "expand": None if expand is None else expand.size,
            "expansion": None if expand is None else expand.fingerprint(self._inputs),
            "backbone": self._source.fingerprint,
            "classes": list(self.classes),
            "inputs": self._inputs,
            "ndim": self._ndim,
            "measured": list(self._measured),
            "judged": list(self._judged),
            "lost": self._temperature.lost.tolist(),
            "counts": self._temperature.counts.tolist(),
            "layer": self._layer,
            "seed": self._seed,
            "batch_size": self._batch_size,
        }
        checkpoint.writer.now(path, checkpoint.Content.of(arrays, header))

    def __repr__(self) -> str:
        count, seen = len(self.classes), self.seen
        return f"<Heads({self.learner or self._memory!r}), {count} classes, seen={seen}>"

    def _known(self) -> ORFit:
        if self.learner is None:
            raise ValueError("no class is known yet: learn some datapoints first")
        return self.learner

    def _asked(self, X: Any) -> tuple[Any, bool]:
        """A batch, and whether it is a single datapoint."""
        batch = self._source.many(X)
        one = self._ndim is not None and getattr(batch, "ndim", None) == self._ndim - 1
        return (self._source.one(X) if one else batch), one

    def _raw(self, batch: Any) -> Array:
        """What the backbone makes of a batch."""
        phi = self._source.of(batch)
        if self.learner is None:
            return phi
        if not len(phi):
            return phi.reshape(0, self._inputs)
        if phi.shape[1] != self._inputs:
            raise ValueError(f"there were {self._inputs} features; now there are {phi.shape[1]}")
        return phi

    def _expanded(self, phi: Array) -> Array:
        return phi if self._expansion is None else self._expansion.of(phi)

    def _get_ready(self, phi: Array, heads: int) -> None:
        """Let there be so many heads, and the noise that these features ask for."""
        seen, total = self._measured
        with np.errstate(over="ignore"):  # refused in the next lines
            measured = (seen + len(phi), total + float(np.square(phi, dtype=float).sum()))
        R = NOISE * measured[1] / max(1, measured[0]) or 1.0
        if not np.isfinite(R):
            raise ValueError("the features are so large that their squares overflow: scale X")
        noise = R if isinstance(self._noise, str) else self._noise
        if self.learner is None:
            model = _shared(phi.shape[1], heads)
            w0 = model.initial().astype(phi.dtype)
            self.learner = ORFit(model, self._memory, w0=w0, noise=noise)
        elif (self.learner.model.heads or 0) < heads:
            self.learner.grow(heads=heads)
        if seen < MEASURED and isinstance(self._noise, str):
            self.learner.noise = noise
            self._measured = measured


def _as_they_are(phi: Array) -> Array:
    return phi


def _shared(size: int, heads: int) -> Linear:
    # Features as code: nobody can scale the columns of a network that is frozen, so none is told.
    return Linear(size, heads=heads, bias=True, features=_as_they_are)


def _labels(y: Any) -> list[Label]:
    """Classes as plain values, or a sentence on what they should be."""
    if hasattr(y, "detach"):
        y = y.detach().cpu().numpy()
    if isinstance(y, list | tuple):
        _check_alike([label for label in y if isinstance(label, int | str)])
    given = np.asarray(y)
    if given.ndim == 1 and not len(given):
        return []
    if given.ndim != 1 or given.dtype.kind not in "iubUO":
        raise ValueError(
            "y must be the class of each datapoint, whole numbers or strings, (n,); it is "
            f"{given.dtype} of shape {given.shape}"
        )
    labels: list[Label] = given.tolist()
    if not all(isinstance(label, int | str) for label in labels):
        raise ValueError("y must hold whole numbers or strings alone")
    if not all(isinstance(label, str) or -(2**63) <= label < 2**63 for label in labels):
        raise ValueError("y must hold whole numbers below 2⁶³, or strings")
    return labels


def _check_alike(labels: Sequence[Label]) -> None:
    """Refuse numbers among strings, which no array of classes can hold apart."""
    if len({isinstance(label, str) for label in labels}) > 1:
        raise ValueError("classes must be whole numbers or strings, not both: take str of each")


def _right(prediction: Array, heads: Array, known: int) -> int:
    """How many rows were predicted right, by heads of classes that had come before."""
    rows = np.arange(len(heads))
    first = np.full(prediction.shape[1], len(heads))
    np.minimum.at(first, heads, rows)
    first[:known] = -1
    there = rows[:, None] > first
    best = np.where(there, prediction, -np.inf).argmax(axis=1)
    return int((there[rows, best] & (best == heads)).sum())


FIELDS: schema.Fields = {
    "kind": schema.text,
    "learner": schema.mapping,
    "noise": lambda name, value: value if value == "auto" else validation.nonnegative(name, value),
    "expand": schema.optional(validation.count),
    "expansion": schema.optional(schema.text),
    "backbone": schema.optional(schema.text),
    "classes": schema.listed(lambda _, value: value, least=1),
    "inputs": validation.count,
    "ndim": schema.optional(schema.counter),
    "measured": schema.listed(validation.nonnegative, 2, 2),
    "judged": schema.listed(schema.counter, 2, 2),
    "lost": schema.listed(validation.nonnegative, len(STEEP), len(STEEP)),
    "counts": schema.listed(schema.counter),
    "layer": schema.optional(schema.text),
    "seed": schema.counter,
    "batch_size": validation.count,  # rounding of a network's outputs depends on it
}


def load(arrays: dict[str, Array], header: dict[str, Any], backbone: Any, **_: Any) -> Heads:
    """The heads that `save` wrote."""
    known = schema.record(FIELDS)("header", header)
    described: dict[str, Any] = schema.mapping("model", known["learner"].get("model"))
    sides: Sequence[Any] = [described.get("size"), described.get("heads")]
    p, q = map(validation.count, ("size", "heads"), sides)
    labels = _labels(known["classes"])
    if len({*labels}) != len(labels) or len(labels) > q:
        raise ValueError("the classes are not those of the heads")
    plain = {name: known[name] for name in ("noise", "expand", "layer", "seed", "batch_size")}
    made = Heads(backbone, **plain)
    if made._source.fingerprint != known["backbone"]:
        raise CheckpointError(
            "it was saved with a backbone of other numbers; pass the same one to load, model=…"
        )
    expand, inputs = made._expansion, known["inputs"]
    if expand is not None and expand.fingerprint(inputs) != known["expansion"]:
        raise CheckpointError("this NumPy draws other random features than the one that saved it")
    learner = restored(arrays, known["learner"], model=_shared(p - 1, q))
    assert isinstance(learner, ORFit)
    made.learner, made._memory, made.classes = learner, learner.memory, tuple(labels)
    made._inputs, made._ndim = inputs, known["ndim"]
    made._measured = int(known["measured"][0]), known["measured"][1]
    made._judged = known["judged"][0], known["judged"][1]
    if len(known["counts"]) > len(labels):
        raise ValueError("the counts are not those of the classes")
    made._temperature = Temperature(known["lost"], known["counts"])
    return made
