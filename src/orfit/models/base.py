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

    def settings(self) -> dict[str, Any] | None:
        """The arguments to make the model again; None where it is code that the caller keeps."""
