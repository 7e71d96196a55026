"""Any torch module as a model: predictions, and their gradients as tensors on its device."""

import fnmatch
import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, jacrev, jvp, vmap

from orfit import validation
from orfit.models.base import Defaults, residual
from orfit.models.undisturbed import evaluated
from orfit.store.torch import TORCH
from orfit.validation import Array

Tensor = torch.Tensor
Parameters = Callable[[str], bool] | Sequence[str] | None
Prior = float | Mapping[str, float] | Any


class TorchModel(Defaults):
    """f(x; w) = module(x), w all its trainable parameters in one vector (sec:deep).

    module: takes a batch, returns (n,), (n, 1) or (n, c). It is used in eval mode; parameters that
        do not require gradients stay as they are.
    tangent: linearise once, at the parameters that the module has now:
        f(x; w) = f(x; w₀) + ∇f(x; w₀)ᵀ (w − w₀). The model is then linear in w, and all that holds
        for linear models holds: nothing is forgotten while the memory has room. Otherwise gradients
        are taken at the present parameters (eq:NTK), and those remembered go stale.
    parameters: which to learn: a function of the name, or patterns such as ["head.*"].
    outputs: "all", labels are (c,) numbers, such as one-hot classes; or "label", y is a class, and
        only that class' output is fitted, to `target`: c gradients become one.
    prior: Π, how stiff parameters are: a number, a number for each pattern of names (1 for the
        rest), or p of them. Learned in w·sqrt(Π), so that `ORFit` moves stiff ones less.
    chunk_size: how many gradients are computed at a time; fewer take less memory.
    refreshed: the module's buffers, such as batch norm's statistics, may be others than those
        that a learner was saved with, where `orfit.load` is given this model.

    On `learner.w`, see `sync`, `state_dict` and `vector`.

    Examples:
        >>> import torch
        >>> model = orfit.TorchModel(torch.nn.Linear(2, 1).double())
        >>> learner = orfit.ORFit(model)
        >>> update = learner.learn([1.0, 2.0], 3.0)
        >>> round(float(learner.predict([1.0, 2.0])), 6)
        3.0
    """

    heads = None
    input_shape = None

    def __init__(
        self,
        module: nn.Module,
        *,
        tangent: bool = False,
        parameters: Parameters = None,
        outputs: str = "all",
        target: float = 1.0,
        prior: Prior = 1.0,
        chunk_size: int = 64,
        refreshed: bool = False,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise ValueError(f"module must be a torch.nn.Module; it is {type(module).__name__}")
        if outputs not in ("all", "label"):
            raise ValueError(f'outputs must be "all" or "label"; it is {outputs!r}')
        if validation.flag("refreshed", refreshed) and tangent:
            raise ValueError(
                "a tangent is bound to the statistics that it was taken with: refreshed=True is "
                "for tangent=False"
            )
        _refuse_dropout(module)
        self.module = module
        self.may_differ = ("buffers",) if refreshed else ()  # of `settings`, when it is loaded
        self.linear = self.tangent = bool(tangent)
        self.outputs = outputs
        self.target = validation.scalar("target", target)
        self.chunk_size = validation.count("chunk_size", chunk_size)
        self._learned = chosen(dict(module.named_parameters()), parameters)
        self._sizes = [parameter.numel() for parameter in self._learned.values()]
        every = dict(module.named_parameters(remove_duplicate=False))
        # All names of each: tied ones have several.
        self._names = {
            name: [alias for alias, one in every.items() if one is parameter]
            for name, parameter in self._learned.items()
        }
        self.size = sum(self._sizes)
        self._scale = self._scales(prior)
        self._start = self.vector(module.state_dict())
        if self.tangent:
            _warn_of_zeros(self._learned)
        self._outputs: int | None = None  # how many the module has, known when first needed

    # What a learner asks of a model.

    def on_host(self) -> "OnHost | None":
        """The same model of NumPy arrays; None if its parameters are not on the CPU."""
        return OnHost(self) if self._start.device.type == "cpu" else None

    def initial(self) -> Tensor:
        return self._start

    def accept(self, name: str, X: object, dtype: Any) -> Tensor:
        """Inputs as a tensor on the module's device; floating point ones in its dtype, finite."""
        if isinstance(X, torch.Tensor):
            inputs = X.detach()
        else:
            given = np.asarray(X)
            if given.dtype.kind not in "iub":  # such as tokens
                numbers = type(X) is np.ndarray and given.dtype in validation.DTYPES
                given = given if numbers else validation.numbers(name, X, np.float64)
            inputs = torch.as_tensor(given if given.flags.carray else given.copy())
        if inputs.is_floating_point():
            inputs = inputs.to(self._start)
            if not TORCH.finite(inputs):
                validation.check_finite(name, TORCH.to_numpy(inputs))
            return inputs
        return inputs.to(self._start.device)

    def predict(self, w: Tensor, X: Tensor) -> Array:
        """F, for NumPy. Of many outputs all, also where outputs="label"."""
        call = self._along_tangent if self.tangent else self._call
        return self._for_numpy(evaluated(self.module, torch.no_grad()(call), w, X))

    def linearize(self, w: Tensor, X: Tensor) -> tuple[Array, Tensor]:
        F, G = self._at(w, X, None)
        return self._at_parameters(F, G, w), G

    def observe(self, w: Tensor, X: Tensor, Y: Array) -> tuple[Array, Array, Tensor]:
        classes, Y = self._wanted(w, X, Y)
        F_at, G = self._at(w, X, classes)
        F = self._at_parameters(F_at, G, w)
        return F, residual(Y, F), G

    @property
    def origin(self) -> Tensor | None:
        """Where the tangent touches."""
        return self._start if self.tangent else None

    def affine(self, X: Tensor, Y: Array) -> tuple[Array, Array, Tensor]:
        classes, Y = self._wanted(self._start, X, Y)
        F, G = self._at(self._start, X, classes)
        return self._for_numpy(F), Y, G

    def _wanted(self, w: Tensor, X: Tensor, Y: Array) -> tuple[Tensor | None, Array]:
        """Which outputs Y speaks of (None: all), and what they should be."""
        if self.outputs == "all":
            return None, Y
        return self._classes(w, X, Y), np.full(len(Y), self.target)

    def _at(self, w: Tensor, X: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """F and G where gradients are taken: at w, or where the tangent touches."""
        at = self._start if self.tangent else w
        F, rows = evaluated(self.module, self._gradients, at, X, classes)
        return F, rows.T

    def settings(self) -> dict[str, Any]:
        """What can be compared; the module itself is code. A tangent is bound to where it began."""
        plain = {
            "module": "code",
            "tangent": self.tangent,
            "outputs": self.outputs,
            "target": self.target,
            "parameters": list(self._learned),
            "prior": None if self._scale is None else fingerprint([self._scale]),
        }
        state = self.module.state_dict()
        learned = {alias for names in self._names.values() for alias in names}
        buffers = {name for name, _ in self.module.named_buffers(remove_duplicate=False)}
        frozen = [values for name, values in state.items() if name not in learned | buffers]
        plain["fixed"] = fingerprint(frozen) if frozen else None
        kept = [values for name, values in state.items() if name in buffers]
        plain["buffers"] = fingerprint(kept) if kept else None
        return plain | {"started_at": fingerprint(state.values())} if self.tangent else plain

    def __repr__(self) -> str:
        tangent = ", tangent=True" if self.tangent else ""
        return f"TorchModel({type(self.module).__name__}, {self.size} parameters{tangent})"

    # From w to the module and back.

    def sync(self, w: Tensor) -> None:
        """Write the parameters `w` into the module."""
        if self.tangent:
            raise ValueError(
                "a tangent model is not its module with other parameters; predict with the learner"
            )
        with torch.no_grad():
            named = self._named(w)
            for name, parameter in self._learned.items():
                parameter.copy_(named[name])

    def state_dict(self, w: Tensor) -> dict[str, Tensor]:
        """The module's state with the parameters `w`."""
        return {**self.module.state_dict(), **self._named(w)}

    def vector(self, state: Mapping[str, Tensor]) -> Tensor:
        """w, from a state of the module."""
        parts = [state[name].detach().reshape(-1) for name in self._learned]
        w = torch.cat(parts)
        return w if self._scale is None else w / self._scale

    def _named(self, w: Tensor) -> dict[str, Tensor]:
        """The learned parameters, by all their names."""
        w = w if self._scale is None else w * self._scale
        parts = zip(self._learned.items(), torch.split(w, self._sizes), strict=True)
        named = {name: part.view(parameter.shape) for (name, parameter), part in parts}
        return {alias: part for name, part in named.items() for alias in self._names[name]}

    # Predictions and gradients.

    def _call(self, w: Tensor, X: Tensor) -> Tensor:
        try:
            F = functional_call(self.module, self._named(w), (X,), tie_weights=False)
        except (RuntimeError, TypeError, IndexError) as error:
            raise ValueError(
                f"the module failed on {X.dtype} inputs of shape {tuple(X.shape)}: {error}"
            ) from error
        if not isinstance(F, torch.Tensor) or F.ndim not in (1, 2) or len(F) != len(X):
            shape = tuple(F.shape) if isinstance(F, torch.Tensor) else type(F).__name__
            raise ValueError(
                f"the module must return (n,) or (n, c) for n inputs; for {len(X)} inputs it "
                f"returned {shape}"
            )
        return F

    def _along_tangent(self, w: Tensor, X: Tensor) -> Tensor:
        """f(x; w₀) + ∇f(x; w₀)ᵀ (w − w₀), by one forward-mode product."""
        way = w - self._start
        with warnings.catch_warnings():  # torch warns of its own use of torch.jit
            warnings.simplefilter("ignore", DeprecationWarning)
            F, moved, *_ = jvp(lambda v: self._call(v, X), (self._start,), (way,))
        return torch.add(F, moved)

    def _one(self, w: Tensor, x: Tensor) -> Tensor:
        """The outputs for a single input, (c,)."""
        return self._call(w, x[None]).reshape(-1)

    def _gradients(self, w: Tensor, X: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """F (n,) or (n, c), and its gradients as rows, (n c, p).

        Neither knows how it was made: parameters that are not learned may want gradients, too, and
        w and the memory would hold on to the graphs of all steps.
        """
        w = w.detach()
        if len(X) == 1:
            return self._one_by_one(w, X, classes)
        with torch.no_grad():  # which the transforms within do not heed, but what is around them
            return self._all_at_once(w, X, classes)

    def _all_at_once(self, w: Tensor, X: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same for many inputs, vectorised."""

        def outputs(v: Tensor, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
            F = self._one(v, x)
            F = F if classes is None else F.gather(0, label[None])
            return F, F

        labels = torch.zeros(len(X), dtype=torch.long) if classes is None else classes
        count = 1 if classes is not None else self._call(w, X[:1]).numel()
        chunk = max(1, self.chunk_size // count)
        rows, values = vmap(
            jacrev(outputs, has_aux=True, chunk_size=_chunks(count, self.chunk_size)),
            in_dims=(None, 0, 0),
            chunk_size=_chunks(len(X), chunk),
        )(w, X, labels.to(X.device))
        flat = rows.reshape(-1, self.size)
        return (values[:, 0] if values.shape[1] == 1 else values), flat

    def _one_by_one(self, w: Tensor, X: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
        """The same for one input, by plain backward passes."""
        with torch.inference_mode(False), torch.enable_grad():  # wherever the caller is
            w = w.clone() if w.is_inference() else w
            w.requires_grad_()
            F = self._one(w, X[0].clone() if X.is_inference() else X[0])
            F = F if classes is None else F[classes]
            last = len(F) - 1
            rows = [torch.autograd.grad(F[i], w, retain_graph=i < last)[0] for i in range(len(F))]
            w.requires_grad_(False)
        G = torch.stack(rows) if last else rows[0][None]
        return (F.detach() if len(F) == 1 else F.detach()[None]), G

    def _at_parameters(self, F: Tensor, G: Tensor, w: Tensor) -> Array:
        """F at w, for NumPy: on the tangent that is on from the start along the gradients."""
        outputs = self._for_numpy(F)
        if not self.tangent:
            return outputs
        return outputs + TORCH.inner(G, w - self._start).reshape(outputs.shape)

    def _for_numpy(self, F: Tensor) -> Array:
        F = F[:, 0] if F.ndim == 2 and F.shape[1] == 1 else F
        return np.asarray(F.detach().cpu(), dtype=np.float64)

    def _classes(self, w: Tensor, X: Tensor, Y: Array) -> Tensor:
        if Y.ndim != 1 or (Y != np.floor(Y)).any() or (Y < 0).any():
            raise ValueError('with outputs="label", y must be a class: a whole number from 0 on')
        if self._outputs is None:
            call = torch.no_grad()(self._call)
            self._outputs = evaluated(self.module, call, w, X[:1]).numel()
        if (Y >= self._outputs).any():
            raise ValueError(
                f"the module has {self._outputs} outputs, so a class is at most "
                f"{self._outputs - 1}; y has {Y.max():.0f}"
            )
        return torch.as_tensor(Y.astype(np.int64), device=self._start.device)

    def _scales(self, prior: Prior) -> Tensor | None:
        """1 / sqrt(Π) for every parameter; None where all are 1."""
        like = next(iter(self._learned.values()))
        if isinstance(prior, Mapping):
            of_each = stiffness(prior, self._learned).values()
            values = np.repeat([*of_each], self._sizes)
        else:
            values = validation.numbers("prior", prior)
            if values.shape not in ((), (self.size,)) or not (values > 0).all():
                raise ValueError(
                    f"prior must be positive: a number, {self.size} of them, or a number for each "
                    "pattern of names"
                )
            values = np.broadcast_to(values, (self.size,))
        if (values == 1).all():
            return None
        return torch.as_tensor(1 / np.sqrt(values), dtype=like.dtype, device=like.device)


class OnHost(Defaults):
    """A `TorchModel` on the CPU, with w and gradients as NumPy arrays that share its memory."""

    def __init__(self, model: TorchModel) -> None:
        self.accept, self.settings = model.accept, model.settings
        self.linear, self.heads, self.input_shape = model.linear, None, None
        self.model, self.size = model, model.size
        self.origin = None if model.origin is None else model.origin.numpy()

    def public(self, w: Array) -> Tensor:
        return torch.from_numpy(w)

    def initial(self) -> Array:
        return self.model.initial().numpy()

    def predict(self, w: Array, X: Tensor) -> Array:
        return self.model.predict(self.public(w), X)

    def linearize(self, w: Array, X: Tensor) -> tuple[Array, Array]:
        F, G = self.model.linearize(self.public(w), X)
        return F, G.numpy()

    def observe(self, w: Array, X: Tensor, Y: Array) -> tuple[Array, Array, Array]:
        F, residual, G = self.model.observe(self.public(w), X, Y)
        return F, residual, G.numpy()

    def affine(self, X: Tensor, Y: Array) -> tuple[Array, Array, Array]:
        F, labels, G = self.model.affine(X, Y)
        return F, labels, G.numpy()

    def sync(self, w: Array) -> None:
        self.model.sync(self.public(w))

    def __repr__(self) -> str:
        return repr(self.model)


def _chunks(count: int, most: int) -> int | None:
    """How many at a time; None: all at once, since of chunks even a single one is copied."""
    return most if count > most else None


def fingerprint(tensors: Iterable[Tensor]) -> str:
    seen = hashlib.sha256()
    for values in tensors:
        seen.update(np.ascontiguousarray(values.detach().cpu()).tobytes())
    return seen.hexdigest()


def _refuse_dropout(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.training and part.p > 0:
            raise ValueError(
                f"the module is in training mode and {name or type(part).__name__} drops out; "
                "call module.eval() first"
            )


def stiffness(prior: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """Π of each name: that of the last pattern which matches it, or 1."""
    names = list(names)
    unused = [p for p in prior if not any(fnmatch.fnmatch(n, p) for n in names)]
    if unused:
        raise ValueError(f"prior names {unused[0]!r}, which no learned parameter matches")
    checked = {pattern: validation.positive("prior", value) for pattern, value in prior.items()}
    matching = {n: [v for p, v in checked.items() if fnmatch.fnmatch(n, p)] for n in names}
    return {name: (values or [1.0])[-1] for name, values in matching.items()}


def _warn_of_zeros(learned: dict[str, nn.Parameter]) -> None:
    """Warn where the last layer is zero: on the tangent all before it never gets a gradient."""
    matrices = [name for name, parameter in learned.items() if parameter.ndim > 1]
    if len(matrices) > 1 and not learned[matrices[-1]].any():
        warnings.warn(
            f"{matrices[-1]} is all zero, and a tangent stays where it is taken: where that is "
            f"the last layer, {matrices[0]} and all others before it have no gradient, and never "
            "learn. Start from numbers that are not zero.",
            UserWarning,
            stacklevel=3,
        )


def chosen(every: dict[str, nn.Parameter], parameters: Parameters) -> dict[str, nn.Parameter]:
    """The parameters to learn, by name."""
    if parameters is None:
        wanted: Callable[[str], bool] = lambda name: True  # noqa: E731
    elif callable(parameters):
        wanted = parameters
    else:
        patterns = [parameters] if isinstance(parameters, str) else list(parameters)
        wanted = lambda name: any(fnmatch.fnmatch(name, p) for p in patterns)  # noqa: E731
    learned = {n: p for n, p in every.items() if p.requires_grad and wanted(n)}
    if not learned:
        trainable = [name for name, p in every.items() if p.requires_grad]
        having = f"; it has {', '.join(trainable)}" if trainable else ""
        raise ValueError(f"no parameter of the module is to be learned{having}")
    kinds = {(p.dtype, p.device) for p in learned.values()}
    if len(kinds) > 1 or next(iter(kinds))[0] not in (torch.float32, torch.float64):
        found = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        raise ValueError(
            f"learned parameters must be float32, or all float64, on one device; they are {found}"
        )
    return learned
