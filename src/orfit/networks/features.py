"""What frozen code makes of inputs: the features that heads share."""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from orfit import validation
from orfit.validation import Array


class Given:
    """Features that are the inputs, or that a function makes of a batch of them."""

    fingerprint: str | None = None

    def __init__(self, function: Callable[[Any], Any] | None) -> None:
        self.function = function

    def many(self, X: Any) -> Any:
        return X if hasattr(X, "detach") else np.asarray(X)

    def one(self, x: Any) -> Any:
        """A batch of a single datapoint."""
        return self.many(x)[None]

    def of(self, X: Any) -> Array:
        """Features of many datapoints, (n, p)."""
        made = X if self.function is None else self.function(X)
        kind = str(getattr(made, "dtype", "")).removeprefix("torch.")
        wide = kind in ("float64", "") or "int" in kind or kind == "uint8"
        phi = validation.numbers("the features", made, np.float64 if wide else np.float32)
        return phi.reshape(len(phi), math.prod(phi.shape[1:]))


class Frozen:
    """Features of a torch module as it is now, or of one of its layers: nothing of it moves."""

    def __init__(self, module: Any, layer: str | None, batch_size: int) -> None:
        known = dict(module.named_modules())
        if layer is not None and layer not in known:
            names = ", ".join(name for name in known if name)
            raise ValueError(f"the backbone has no layer {layer!r}; it has {names}")
        self.module, self.layer, self.batch_size = module, layer, batch_size
        self._place = known[layer] if layer is not None else None
        tensors = [*module.parameters(), *module.buffers()]
        import torch

        like = [tensor for tensor in tensors if tensor.is_floating_point()]
        self._like = like[0] if like else torch.empty(0)

    @property
    def fingerprint(self) -> str:
        """Of the module's numbers: other ones make other features."""
        seen = hashlib.sha256()
        for name, values in self.module.state_dict().items():
            seen.update(name.encode())
            seen.update(np.ascontiguousarray(values.detach().cpu().float()).tobytes())
        return seen.hexdigest()

    def many(self, X: Any) -> Any:
        from orfit.networks import batch

        return batch.accept("X", X, self._like)

    def one(self, x: Any) -> Any:
        from orfit.networks import batch

        return batch.each(lambda tensor: tensor[None], self.many(x))

    def of(self, X: Any) -> Array:
        """Features of many datapoints, (n, p), a few at a time."""
        import torch

        from orfit.models.undisturbed import evaluated

        made = evaluated(self.module, torch.no_grad()(self._pieces), X)
        phi = np.concatenate(made) if made else np.empty((0, 0), np.float32)
        validation.check_finite("what the backbone made of X", phi)
        return phi

    def _pieces(self, X: Any) -> list[Array]:
        from orfit.networks import batch

        starts = range(0, batch.length("X", X), self.batch_size)
        return [self._features(batch.part(X, s, s + self.batch_size)) for s in starts]

    def _features(self, X: Any) -> Array:
        from orfit.networks import batch

        caught: list[Any] = []
        hook = None
        if self._place is not None:
            hook = self._place.register_forward_hook(lambda _, __, out: caught.append(out))
        try:
            returned = batch.call(self.module, X)
        finally:
            if hook is not None:
                hook.remove()
        if self._place is not None:
            if len(caught) != 1:
                raise ValueError(f"the layer {self.layer!r} ran {len(caught)} times, not once")
            returned = caught[0]
        remedy = "return a tensor, or name one of its layers that does, layer=…"
        phi = batch.tensor_of(returned, remedy).flatten(1)
        wide = str(phi.dtype) == "torch.float64"
        return np.asarray((phi if wide else phi.float()).cpu())


def features_of(backbone: Any, layer: str | None, batch_size: int) -> Given | Frozen:
    """What a user hands in as backbone: a module, a function of a batch, or nothing."""
    if hasattr(backbone, "named_modules"):
        return Frozen(backbone, layer, batch_size)
    if layer is not None:
        raise ValueError("layer names a part of a torch module; the backbone is none")
    if backbone is not None and not callable(backbone):
        raise ValueError(
            "backbone must be a torch module, a function from a batch of inputs to features, or "
            f"None where the inputs are features; it is {type(backbone).__name__}"
        )
    return Given(backbone)


class Expansion:
    """Random ReLU features, max(Ωφ, 0): more of them than φ has, so that more can be told apart.

    Ω comes from the seed and is in no file. It has no offset, so that the unit of φ does not
    matter; its scale keeps the length of φ on average.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self._omega: Array | None = None

    def of(self, phi: Array) -> Array:
        if self._omega is None or self._omega.shape[0] != phi.shape[1]:
            rng = np.random.default_rng(self.seed)
            drawn = rng.standard_normal((phi.shape[1], self.size), dtype=np.float32)
            self._omega = drawn * np.float32(np.sqrt(2 / self.size))
        made: Array = np.maximum(phi @ self._omega.astype(phi.dtype, copy=False), 0)
        return made

    def fingerprint(self, inputs: int) -> str:
        """Of some of Ω: NumPy does not promise the same numbers for ever."""
        self.of(np.zeros((1, inputs), np.float32))
        assert self._omega is not None
        return hashlib.sha256(np.ascontiguousarray(self._omega[0]).tobytes()).hexdigest()
