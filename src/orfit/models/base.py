"""What a learner asks of a model: predictions and their gradients."""

from typing import Any, Protocol

import numpy as np

from orfit import validation
from orfit.validation import Array


class Model(Protocol):
    """f(x; w) for parameters w of shape (size,), or (size, heads) with q heads on shared features.

    Anything with these members is a model; `docs/extending.md` writes a nonlinear one in NumPy. It
    may have those of `CompleteModel` too. X always holds many datapoints, first axis first.
    """

    @property
    def size(self) -> int:
        """p, the number of parameters (of each head)."""

    @property
    def heads(self) -> int | None:
        """q, or None where w is a vector."""

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of one datapoint, where the model knows it."""

    @property
    def linear(self) -> bool:
        """Whether the gradients do not depend on w."""

    def initial(self) -> Array:
        """The parameters to start from where the caller gives none."""

    def predict(self, w: Array, X: Array) -> Array:
        """F: (n,) for one output, (n, c) for c outputs or heads."""

    def linearize(self, w: Array, X: Array) -> tuple[Array, Array]:
        """F, and G = (∂F/∂w)ᵀ, p×nc, columns contiguous, the outputs of one datapoint adjacent.

        With heads every output has its own w, so G is p×n: the features.
        """

    def settings(self) -> dict[str, Any]:
        """The arguments to make the model again, as plain values.

        {"…": "code"} where one is code, and {} in a class of one's own: the caller keeps those and
        passes the model to `orfit.load`, which compares what is here.
        """


class CompleteModel(Model, Protocol):
    """What a learner asks; for members that a model leaves out, `Defaults` answers."""

    def accept(self, name: str, X: object, dtype: Any) -> Any:
        """What a user hands in as argument `name`, checked, as the model takes it."""

    def observe(self, w: Any, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        """F, the residual and G, of the outputs that the labels Y speak of."""

    @property
    def origin(self) -> Any:
        """For linear models: the parameters w₀ that `affine` starts from; None: zero."""

    def affine(self, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        """For linear models: F(w₀), what Y says F should be, and G: F(w) = F(w₀) + Gᵀ (w − w₀)."""

    @property
    def own_gradient(self) -> bool:
        """Whether x is its own gradient: f(x; w) = xᵀ w."""

    def sync(self, w: Any) -> None:
        """Write w into the module that the model is made of."""

    def on_host(self) -> Any:
        """For models of other arrays: the same of NumPy arrays that share their memory, or None."""

    def public(self, w: Any) -> Any:
        """p-sized arrays as a user of the model has them."""


class Defaults:
    """The members that most models need not think about."""

    origin: Any = None
    own_gradient = False

    accept: Any = staticmethod(validation.numbers)

    def observe(self: Any, w: Any, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        F, G = self.linearize(w, X)
        return F, residual(Y, F), G

    def affine(self: Any, X: Any, Y: Array) -> tuple[Array, Array, Any]:
        F, G = self.linearize(0 * self.initial() if self.origin is None else self.origin, X)
        return F, Y, G

    def sync(self, w: Any) -> None:
        raise ValueError(f"{self!r} has no module to write w into; w is learner.w")

    def on_host(self) -> Any:
        return None

    def public(self, w: Any) -> Any:
        return w


MEMBERS = ("size", "heads", "input_shape", "linear", "initial", "predict", "linearize", "settings")
MODULE = "torch.nn.modules.module.Module"
OPTIONAL = ("accept", "observe", "origin", "affine", "own_gradient", "sync", "on_host", "public")


class Completed(Defaults):
    """A model, and what `Defaults` says of members that it leaves out."""

    def __init__(self, model: Any) -> None:
        for name in OPTIONAL:
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        self._model = model

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # not yet there, while it is being copied
            raise AttributeError(name)
        return getattr(self._model, name)

    def __repr__(self) -> str:
        return repr(self._model)


def completed(model: Any) -> CompleteModel:
    """The model, with all members that `Model` has; raises where it is none."""
    missing = [name for name in MEMBERS if not hasattr(model, name)]
    if isinstance(model, type):
        raise ValueError(f"model must be a model, such as orfit.Linear(10), not a class: {model}")
    if missing and _is_module(model):
        raise ValueError(
            f"model must be a model; a network becomes one as orfit.TorchModel(network), of this "
            f"{type(model).__name__} too"
        )
    if missing:
        lacks = ", no ".join(missing)
        raise ValueError(f"model must be a model, such as orfit.Linear(10); this has no {lacks}")
    shape = (model.size,) if model.heads is None else (model.size, model.heads)
    if model.initial().shape != shape:
        raise ValueError(
            f"the model has size={model.size} and heads={model.heads}, so initial() must have "
            f"shape {shape}; it has {model.initial().shape}"
        )
    whole = all(hasattr(model, name) for name in OPTIONAL)
    complete: CompleteModel = model if whole else Completed(model)
    return complete


def _is_module(model: Any) -> bool:
    """Whether it is a torch.nn.Module, asked without torch."""
    return any(f"{k.__module__}.{k.__name__}" == MODULE for k in type(model).__mro__)


def residual(Y: Array, F: Array) -> Array:
    """Y − F, where labels have the shape of predictions."""
    check_labels(Y, F)
    return np.asarray(Y - F)


def check_labels(Y: Array, F: Array) -> None:
    """Refuse labels that have not the shape of predictions."""
    if Y.shape != F.shape:
        each, given = F.shape[1:], Y.shape[1:]
        wanted = f"have shape {each}" if each else "be a single number"
        hint = ": take Y[:, 0], or y[0] of one" if not each and given == (1,) else ""
        if len(each) == 1 and not given and (Y == np.floor(Y)).all() and (Y >= 0).all():
            hint = (
                f"; a class is given as np.eye({each[0]})[y], or as it is where the model is "
                'TorchModel(…, outputs="label")'
            )
        raise ValueError(f"y must {wanted} for each datapoint; it has shape {given}{hint}")
