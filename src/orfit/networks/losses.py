"""The numbers that are fitted: half of their squares is the loss of a datapoint."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from orfit.networks import batch

Tensor = torch.Tensor
FLOOR = 1e-6  # beside 2ℓ, since the root has no slope at 0


@dataclass(frozen=True)
class Fitted:
    """f, n or n×c numbers that depend on the network, and their targets."""

    f: Tensor
    target: Tensor


class Squares:
    """Outputs are fitted to y."""

    def __call__(self, outputs: Tensor, y: Any) -> Fitted:
        outputs = flat(outputs)
        if y is None:
            return Fitted(outputs, outputs.detach())
        target = batch.accept("y", y, outputs)
        target = flat(target) if target.ndim == 2 else target
        if target.shape != outputs.shape:
            raise ValueError(
                f"y must have the shape of the outputs, {tuple(outputs.shape)}; it has "
                f"{tuple(target.shape)}"
            )
        return Fitted(outputs, target.to(outputs))


class Root:
    """f = sqrt(2ℓ), fitted to 0: f²/2 is ℓ, and a datapoint has one gradient."""

    def __init__(self, loss: Callable[[Tensor, Any], Any]) -> None:
        self.loss = loss

    def __call__(self, outputs: Tensor, y: Any) -> Fitted:
        if y is None:
            raise ValueError("a loss of your own needs y, also to remember")
        lost = self.loss(outputs, batch.accept("y", y, outputs))
        if not isinstance(lost, Tensor) or lost.shape != (len(outputs),):
            found = tuple(lost.shape) if isinstance(lost, Tensor) else type(lost).__name__
            raise ValueError(
                f"loss must return one number for each datapoint, ({len(outputs)},), as with "
                f'reduction="none"; it returned {found}'
            )
        if bool((lost < 0).any()):
            raise ValueError("loss must not be negative: its root is fitted to 0")
        f = (FLOOR + 2 * lost).sqrt()
        return Fitted(f, torch.zeros_like(f))


def _entropies(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, y, reduction="none")


class CrossEntropy(Root):
    """The cross-entropy of classes y, whole numbers; without y, of the predicted class."""

    def __init__(self) -> None:
        super().__init__(_entropies)

    def __call__(self, outputs: Tensor, y: Any) -> Fitted:
        if outputs.ndim != 2:
            raise ValueError(
                f"for classes the network must return (n, classes), not {tuple(outputs.shape)}; "
                "otherwise give a loss of your own, loss=f(outputs, y)"
            )
        classes = outputs.detach().argmax(1) if y is None else batch.accept("y", y, outputs)
        if classes.is_floating_point() or classes.shape != (len(outputs),):
            raise ValueError(
                f"y must be the class of each datapoint, {len(outputs)} whole numbers; it is "
                f"{classes.dtype} of shape {tuple(classes.shape)}"
            )
        if len(classes) and not 0 <= int(classes.min()) <= int(classes.max()) < outputs.shape[1]:
            raise ValueError(f"the network has {outputs.shape[1]} outputs; y has other classes")
        return super().__call__(outputs, classes.long())


def flat(outputs: Tensor) -> Tensor:
    """(n,) or (n, c)."""
    if outputs.ndim not in (1, 2):
        raise ValueError(f"the network must return (n,) or (n, c), not {tuple(outputs.shape)}")
    return outputs[:, 0] if outputs.ndim == 2 and outputs.shape[1] == 1 else outputs


def loss_of(loss: Any) -> Callable[[Tensor, Any], Fitted]:
    """The function for the argument `loss`."""
    if loss == "cross_entropy":
        return CrossEntropy()
    if loss == "squares":
        return Squares()
    if not callable(loss):
        raise ValueError(
            'loss must be "cross_entropy", "squares", or a function of the outputs and y that '
            f"returns one number for each datapoint; it is {loss!r}"
        )
    return Root(loss)
