"""New domains: a network that goes on learning, with a memory for each of its layers."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from orfit import checkpoint, door, schema, tall
from orfit import tall_torch as _tall_torch  # noqa: F401  (registers the operations on tensors)
from orfit.checkpoint import CheckpointError
from orfit.door import Array
from orfit.learners.advice import ScaleWarning, advise
from orfit.learners.atomic import Atomic
from orfit.learners.guesses import Guesses
from orfit.learners.step import step
from orfit.learners.update import Update
from orfit.models.torch_model import Parameters, chosen, fingerprint, stiffness
from orfit.models.undisturbed import evaluating, undisturbed
from orfit.networks import batch
from orfit.networks.layout import aligned
from orfit.networks.losses import Fitted, Squares, flat, loss_of
from orfit.networks.memory import LayerMemory
from orfit.networks.threads import small_alone
from orfit.networks.units import plan_of
from orfit.networks.watch import Observed, observe, outputs_of
from orfit.version import __version__

Tensor = torch.Tensor
T = TypeVar("T")
SIDES = schema.one_of("both", "input")
LEAST_NEW = 100  # of a number's rounding: squares of what is new that are less have no digits left
UNSUPPORTED = schema.one_of("error", "freeze", "jacobian")


class PerLayer(Atomic):
    """ORFit's step on a network, with what was seen of each layer kept as covariances (K-FAC's).

    At one datapoint the gradient of a layer is an outer product of what goes in and the error that
    comes back. Their covariances tell for all parameters, in the room of a few matrices, along
    which of them the past would notice a step: P is a Kronecker product for each layer. Gradients
    are never written out. The network itself moves; it is used in eval mode, and left in its own.

    network: a torch module; dictionaries and tuples of tensors go in by keyword and by position; it
        returns a tensor or something that has .logits. Linear, Conv1d and Conv2d, Embedding,
        LayerNorm, GroupNorm, BatchNorm (by its running statistics, which stay) and
        MultiheadAttention are known, and what `orfit.register_layer` was told of.
    noise: R > 0, the variance of the noise in what is fitted, against a prior of variance 1 on
        each parameter: the larger, the shorter are steps. With cross-entropy from 2 to 10 is good.
    loss: "cross_entropy", y are classes; "squares", outputs are fitted to y; or a function of
        outputs and y that gives what each datapoint loses, (n,), not negative. Losses are fitted
        as f = sqrt(2ℓ), to 0, so that f²/2 is what is lost and a datapoint has one gradient.
    parameters: which to learn: patterns such as ["layer4.*", "fc.*"], or a function of the name.
    prior: Π for each pattern of names, 1 for the rest: the larger, the less those move.
    sides: "both", or "input": then the errors' covariances are left out, which takes less time.
    unsupported: what becomes of parameters in layers that are not known: "error", "freeze", or
        "jacobian", by a backward pass for each datapoint.
    block: so many datapoints are learned in one step at most; more are cut into several.
    every: after so many datapoints the axes of "both" are found anew; in the beginning more often.

    Examples:
        >>> import torch
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <...>
        >>> network = torch.nn.Sequential(
        ...     torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> X = np.random.default_rng(0).standard_normal((200, 2))
        >>> learner = orfit.PerLayer(network, noise=1.0, block=10)
        >>> update = learner.learn(X, (X[:, 0] > 0).astype(int))
        >>> bool(np.mean(learner.predict(X).argmax(axis=1) == (X[:, 0] > 0)) > 0.9)
        True
    """

    def __init__(
        self,
        network: nn.Module,
        noise: float = 5.0,
        *,
        loss: str | Callable[[Tensor, Any], Tensor] = "cross_entropy",
        parameters: Parameters = None,
        prior: Mapping[str, float] | float = 1.0,
        sides: str = "both",
        unsupported: str = "error",
        block: int = 50,
        every: int = 1000,
    ) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise ValueError(f"network must be a torch.nn.Module; it is {type(network).__name__}")
        self.network = unwrapped(network)
        self._noise = door.positive("noise", noise)
        self._fit, self._loss = loss_of(loss), loss
        self._block = door.count("block", block)
        named = self.network.named_parameters()
        learned = chosen({_plain(name): p for name, p in named}, parameters)
        patterns = prior if isinstance(prior, Mapping) else {"*": prior}
        self._stiffness = stiffness(patterns, learned)
        self._sides, self._unsupported = (
            SIDES("sides", sides),
            UNSUPPORTED("unsupported", unsupported),
        )
        with torch.inference_mode(False):
            plan = plan_of(self.network, learned, self._stiffness, self._sides, self._unsupported)
            self.memory = LayerMemory(plan, self._noise, door.count("every", every))
        self.frozen = plan.frozen
        self.guesses = Guesses(self._noise, True, 1)
        self._like = plan.units[0].parameters[0]
        self._seen, self._checked, self._warned = 0, False, False

    # Learning.

    def learn(self, X: Any, y: Any) -> Update:
        """Learn a batch in blocks, each in one step, and move the network.

        What comes back has a row for each datapoint: `prediction` is what is fitted, outputs or
        sqrt(2ℓ), before its block was learned. Whatever exception comes, each block was learned or
        was not, as `seen` tells.
        """
        with small_alone:
            update: Update = self._changing(self._in_torch, self._learn, X, y)
        return update

    def remember(self, loader: Iterable[Any]) -> None:
        """Protect what the network knows already: take gradients in, and move nothing.

        loader: batches of (x, y), or of x alone; then classes count as the network predicts them.
        """
        with small_alone:
            self._changing(self._in_torch, self._remember, loader)

    def _learn(self, X: Any, y: Any) -> Update:
        inputs = batch.accept("X", X, self._like)
        n = batch.length("X", inputs)
        labels = batch.accept("y", y, self._like)
        if batch.length("y", labels) != n:
            raise ValueError(f"X has {n} datapoints, but y has {batch.length('y', labels)}")
        if not n:
            none = np.empty(0)
            return Update(none, none, 0.0, 0.0, none, self.memory.rank, none)
        told = [self.undivided(self._step, *pair) for pair in self._blocks(inputs, labels, n)]
        return told[0] if len(told) == 1 else _joined(told)

    def _step(self, inputs: Any, y: Any) -> Update:
        self.memory.look_if_due()
        seen = self._observed(inputs, lambda outputs: self._fit(outputs, y))
        past = self.memory.split(seen.gradients)
        self._watch(past.novelty)
        residual = seen.residual.double().cpu().numpy()
        wanted = residual.reshape(-1, 1)
        most = tall.most(tall.numpy_dtype(self._like))
        came = step(self.memory, past, wanted, self.guesses, most)  # type: ignore[arg-type]
        n = len(residual)
        self.guesses.take(n, np.hstack([came.variance, wanted]), came.whitened)
        self._count(n)
        f, left = seen.f.double().cpu().numpy(), came.left.reshape(residual.shape)
        variance = came.variance.reshape(residual.shape)
        return Update(f, residual, came.length, past.novelty, left, self.memory.rank, variance)

    def _remember(self, loader: Iterable[Any]) -> None:
        for item in loader:
            X, y = _pair(item)
            inputs = batch.accept("X", X, self._like)
            labels = None if y is None else batch.accept("y", y, self._like)
            n = batch.length("X", inputs)
            for part, label in self._blocks(inputs, labels, n):
                self.undivided(self._take_in, part, label)
        self.undivided(self.memory.look)

    def _take_in(self, inputs: Any, y: Any) -> None:
        self.memory.look_if_due()
        seen = self._observed(inputs, lambda outputs: self._fit(outputs, y))
        self.memory.remember(self.memory.split(seen.gradients))
        self.memory.count(len(seen.f))

    def _count(self, n: int) -> None:
        self.memory.count(n)
        self._seen += n

    def _observed(self, inputs: Any, fit: Callable[[Tensor], Fitted]) -> Observed:
        self._check_network()
        made = observe(self.network, self.memory.plan, inputs, fit, not self._checked)
        self._checked = self._checked or len(made.f) > 1  # of one alone, mixing does not show
        return made

    def _watch(self, novelty: float) -> None:
        """Warn once where rounding is most of what is left of gradients."""
        digits = torch.finfo(self.memory.dtype).eps
        if not self._warned and novelty**2 < LEAST_NEW * digits:
            self._warned = True
            advise(
                f"only {novelty:.0e} of these gradients is new, beside a noise of {self._noise:g}: "
                f"squares of that are rounding in {self.memory.dtype}. Scale the inputs, take a "
                "larger noise, or float64, network.double()",
                ScaleWarning,
            )

    def _check_network(self) -> None:
        """Raise where the network is no longer the one that this was made for."""
        there = {id(p) for p in self.network.parameters()}
        for name, parameter in self._learned().items():
            if id(parameter) not in there:
                raise ValueError(
                    f"{name} is no longer a parameter of the network: make a PerLayer of the "
                    "network as it is now"
                )
            if not parameter.requires_grad:
                raise ValueError(
                    f"{name} no longer requires gradients: make a PerLayer of the network as it is "
                    "now, or leave it out by parameters=…"
                )
            if parameter.dtype != self.memory.dtype:
                raise ValueError(
                    f"{name} was {self.memory.dtype} and is {parameter.dtype}: change the dtype "
                    "before the PerLayer is made"
                )

    def _blocks(self, inputs: Any, y: Any, n: int) -> Iterator[tuple[Any, Any]]:
        for start in range(0, n, self._block):
            stop = start + self._block
            yield batch.part(inputs, start, stop), batch.part(y, start, stop)

    def _parts(self) -> Iterable[Any]:
        return (self, self.guesses, *self.memory.parts)

    def _settle(self) -> None:
        self.memory.settle()

    # What it knows.

    @property
    def noise(self) -> float:
        """R."""
        return self._noise

    @property
    def seen(self) -> int:
        """How many datapoints have been learned; those remembered alone do not count."""
        return self._reading(lambda: self._seen)

    @property
    def scale(self) -> float:
        """s², by which what is fitted varies more than noise says."""
        return self._reading(lambda: float(self.guesses.scale[0]))

    @property
    def numbers(self) -> int:
        """How many numbers are kept of the past."""
        return self._reading(lambda: self.memory.numbers)

    def predict(self, X: Any, std: bool | str = False) -> Any:
        """The network's outputs for many datapoints, for NumPy.

        std: True gives the pair (outputs, their standard deviation), which takes a backward pass
            for each output; of fitted outputs (loss="squares") it is that of a label, with
            its noise, and "mean" is without it.
        """
        if not isinstance(std, bool | np.bool_) and std != "mean":
            raise ValueError(f'std must be True, False or "mean"; it is {std!r}')
        return self._reading(self._in_torch, self._predicted, X, std)

    def _predicted(self, X: Any, std: bool | str) -> Any:
        inputs = batch.accept("X", X, self._like)
        n = batch.length("X", inputs)
        if not std:
            with evaluating(self.network):
                return _for_numpy(outputs_of(self.network, inputs, n))
        noisy = std is True and isinstance(self._fit, Squares)
        if not n:
            with evaluating(self.network):
                nothing = _for_numpy(outputs_of(self.network, inputs, n))
            return nothing, nothing.copy()
        self._check_network()
        outputs, spreads = [], []
        for part, _ in self._blocks(inputs, None, n):
            made = observe(
                self.network, self.memory.plan, part, lambda o: Squares()(o, None), check=False
            )
            past = self.memory.split(made.gradients)
            variance = np.square(past.factor).sum(axis=0).reshape(made.f.shape)
            outputs.append(_for_numpy(made.outputs))
            spreads.append(np.sqrt(self.scale * (variance + noisy * self._noise)))
        return np.concatenate(outputs), np.concatenate(spreads)

    def _in_torch(self, use: Callable[..., T], *args: Any) -> T:
        """What `use` returns, wherever the caller is, and whatever comes."""
        made: T = undisturbed(self.network, _without_graphs, use, *args)
        return made

    def __repr__(self) -> str:
        size = sum(unit.rows * unit.size for unit in self.memory.plan.units)
        kind = type(self.network).__name__
        return f"<PerLayer({kind}, {size} parameters, noise={self._noise:g}), seen={self.seen}>"

    # Saving.

    def state_dict(self) -> dict[str, Any]:
        """What is kept of the past, as tensors and plain values; the network has its own."""
        return self._reading(
            lambda: {
                "tensors": {name: t.detach().clone() for name, t in self._tensors().items()},
                "values": self._values(),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave, of a learner that was made as this one."""
        tensors = {name: tall.to_numpy(t) for name, t in state["tensors"].items()}
        schema.arranged(tensors, self._layout())
        values = schema.record(self._fields())("values", state["values"])
        self._changing(self._in_torch, self.undivided, self._take_up, tensors, values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the past and the learned parameters; `orfit.load(path, model=network)` reads them.

        The network is code: pass one that is made as this one was, with what is not learned as it
        is. Buffers, such as batch norm's statistics, are the network's own affair.
        """
        content = self._reading(lambda: checkpoint.Content.of(*self._state()))
        checkpoint.writer.now(path, content)

    def _state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {f"memory.{name}": tall.to_numpy(t) for name, t in self._tensors().items()}
        arrays |= {f"w.{name}": tall.to_numpy(p) for name, p in self._learned().items()}
        settings = {
            "noise": self._noise,
            "loss": self._loss if isinstance(self._loss, str) else "code",
            "sides": self._sides,
            "unsupported": self._unsupported,
            "block": self._block,
            "every": self.memory.every,
        }
        header = {
            "kind": "PerLayer",
            "versions": {"orfit": __version__, "torch": str(torch.__version__)},
            "settings": settings,
            "stiffness": self._stiffness,
            "fixed": self._fixed(),
            "values": self._values(),
        }
        return arrays, header

    def _learned(self) -> dict[str, nn.Parameter]:
        units = self.memory.plan.units
        return {n: p for u in units for n, p in zip(u.names, u.parameters, strict=True)}

    def _fixed(self) -> str:
        """A fingerprint of parameters that are not learned."""
        learned = {id(p) for p in self._learned().values()}
        return fingerprint(p for p in self.network.parameters() if id(p) not in learned)

    def _tensors(self) -> dict[str, Tensor]:
        made: dict[str, Tensor] = {}
        for unit in self.memory.plan.units:
            made |= {f"{unit.names[0]}.{n}": getattr(unit.memory, n) for n in unit.memory.held}
        of_guesses, _ = self.guesses.state()
        return made | {f"guesses.{n}": torch.as_tensor(a) for n, a in of_guesses.items()}

    def _values(self) -> dict[str, Any]:
        counts = {"seen": self._seen, "remembered": self.memory.seen, "since": self.memory._since}
        return counts | {"checked": self._checked, "guesses": self.guesses.state()[1]}

    def _fields(self) -> schema.Fields:
        counts = dict.fromkeys(("seen", "remembered", "since"), schema.counter)
        return counts | {"checked": door.flag, "guesses": schema.record(self.guesses.fields())}

    def _layout(self) -> schema.Layout:
        dtype = tall.numpy_dtype(self._like)
        made: schema.Layout = {}
        for i, unit in enumerate(self.memory.plan.units):
            sides = unit.memory.sides(str(i)).items()
            made |= {f"{unit.names[0]}.{name}": (dtype, *of_it) for name, of_it in sides}
        return made | {f"guesses.{n}": sides for n, sides in self.guesses.layout().items()}

    def _take_up(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        for unit in self.memory.plan.units:
            for name in unit.memory.held:
                given = torch.tensor(arrays[f"{unit.names[0]}.{name}"])
                vars(unit.memory)[name] = aligned(given.to(getattr(unit.memory, name)))
        start = "guesses."
        mine = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
        self.guesses.restore(mine, values["guesses"])
        self._seen, self._checked = values["seen"], values["checked"]
        self.memory.seen, self.memory._since = values["remembered"], values["since"]
        self.memory.reach = self.memory.largest()


def _without_graphs(use: Callable[..., T], *args: Any) -> T:
    """What `use` returns, wherever the caller is: no graph is kept, and tensors are plain ones."""
    with torch.inference_mode(False), torch.no_grad():
        return use(*args)


def unwrapped(network: nn.Module) -> nn.Module:
    """The network itself, of one that is compiled, or spread over processes."""
    while True:
        inside = getattr(network, "_orig_mod", None)
        if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inside = network.module
        if not isinstance(inside, nn.Module):
            return network
        network = inside


def _plain(name: str) -> str:
    """A parameter's name, wherever compiling put it."""
    return name.replace("_orig_mod.", "")


def _pair(item: Any) -> tuple[Any, Any]:
    """Inputs and labels, of what a loader gives."""
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    if isinstance(item, list) and len(item) == 1:  # as a loader gives inputs without labels
        return item[0], None
    if isinstance(item, Mapping) and "labels" in item:
        return {name: value for name, value in item.items() if name != "labels"}, item["labels"]
    return item, None


def _for_numpy(outputs: Tensor) -> Array:
    outputs = flat(outputs) if outputs.ndim < 3 else outputs
    return np.asarray(outputs.detach().double().cpu())


def _joined(told: list[Update]) -> Update:
    """What came of several blocks, as of one batch: steps as far as they went together."""
    names = "prediction", "residual", "conflict", "variance"
    f, residual, left, variance = (np.concatenate([getattr(u, n) for u in told]) for n in names)
    length = float(np.linalg.norm([u.step for u in told]))
    novelty = float(np.mean([u.novelty for u in told]))
    return Update(f, residual, length, novelty, left, told[-1].rank, variance)


HEADER: schema.Fields = {
    "kind": schema.text,
    "versions": schema.record({"orfit": schema.text, "torch": schema.text}),
    "settings": schema.mapping,
    "stiffness": schema.mapping,
    "fixed": schema.text,
    "values": schema.mapping,
}


def load(
    arrays: dict[str, Array], header: dict[str, Any], network: Any, loss: Any = None
) -> PerLayer:
    """The learner that `save` wrote; the parameters go into the network."""
    known = schema.record(HEADER)("header", header)
    if network is None:
        raise CheckpointError("the network is code, which a file cannot hold: pass it, model=…")
    settings, names = known["settings"], known["stiffness"]
    if settings.get("loss") == "code":
        if loss is None:
            raise CheckpointError(
                "its loss is a function, which a file cannot hold: pass it, loss=…"
            )
        settings = settings | {"loss": loss}
    try:
        prior = {"parameters": names.__contains__, "prior": names}
        learner: PerLayer = schema.made(PerLayer, settings | prior, network)
    except ValueError as error:
        raise CheckpointError(f"it was not saved with such a network: {error}") from None
    learned = learner._learned()
    fits = {f"w.{name}" for name in learned} == {n for n in arrays if n.startswith("w.")}
    if not fits or learner._fixed() != known["fixed"]:
        raise CheckpointError(
            "it was saved with a network of other parameters, or other fixed ones"
        )
    dtype = tall.numpy_dtype(learner._like)
    own = {f"memory.{name}": sides for name, sides in learner._layout().items()}
    own |= {f"w.{name}": (dtype, *p.shape) for name, p in learned.items()}
    schema.arranged(arrays, own)
    start = "memory."
    kept = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
    values = schema.record(learner._fields())("values", known["values"])
    with torch.no_grad():
        for name, parameter in learned.items():
            parameter.copy_(torch.tensor(arrays[f"w.{name}"]))
    learner._changing(learner._in_torch, learner.undivided, learner._take_up, kept, values)
    return learner
