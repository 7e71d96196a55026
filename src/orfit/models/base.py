"""What a learner asks of a model: predictions and their gradients."""

from typing import Any, Protocol

from orfit.door import Array


class Model(Protocol):
    """f(x; w) for parameters w of shape (size,), or (size, heads) with q heads on shared features.

    Anything with these members is a model; `docs/extending.md` writes a nonlinear one in NumPy.
    X always holds many datapoints, first axis first.
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


MEMBERS = ("size", "heads", "input_shape", "linear", "initial", "predict", "linearize", "settings")


def check_model(model: Model) -> None:
    """Raise where `model` is none."""
    missing = [name for name in MEMBERS if not hasattr(model, name)]
    if isinstance(model, type):
        raise ValueError(f"model must be a model, such as orfit.Linear(10), not a class: {model}")
    if missing:
        lacks = ", no ".join(missing)
        raise ValueError(f"model must be a model, such as orfit.Linear(10); this has no {lacks}")
    shape = (model.size,) if model.heads is None else (model.size, model.heads)
    if model.initial().shape != shape:
        raise ValueError(
            f"the model has size={model.size} and heads={model.heads}, so initial() must have "
            f"shape {shape}; it has {model.initial().shape}"
        )
