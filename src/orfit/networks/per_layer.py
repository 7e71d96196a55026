"""New domains: a network that continues to learn, with a memory for each of its layers."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from orfit import checkpoint, schema, validation
from orfit.checkpoint import CheckpointError
from orfit.learners.advice import ScaleWarning, advise
from orfit.learners.candidates import Candidates
from orfit.learners.learner import Stateful
from orfit.learners.update import Update
from orfit.memory.base import Cell
from orfit.models.torch_model import Parameters, chosen, fingerprint, stiffness
from orfit.models.undisturbed import evaluating, undisturbed
from orfit.networks import batch
from orfit.networks.losses import Squares, flat, loss_of
from orfit.networks.memory import (
    Decomposition,
    Steps,
    apply_pending,
    decompose,
    largest_parameter,
    plan_changes,
)
from orfit.networks.threads import one_thread
from orfit.networks.units import plan_of
from orfit.networks.watch import Observed, observe, outputs_of
from orfit.state import TABLE, State, from_arrays, to_arrays
from orfit.step import check_step, fit
from orfit.store import largest_allowed, numpy_dtype
from orfit.store.torch import TORCH
from orfit.validation import Array
from orfit.version import __version__

Tensor = torch.Tensor
T = TypeVar("T")
UNSUPPORTED = schema.one_of("error", "freeze", "jacobian")
# Axes are recomputed after 1,000 datapoints: O(inputs³) is then small beside their gradients.
REFRESH_AFTER = 1000
FIRST_REFRESH = 50  # At the beginning axes change faster: after 50, and after twice as many each.
FEWEST_DIGITS = 100  # of a number's rounding: if less of |g|² is new, no digits of it are left


class PerLayer(Stateful):
    """ORFit's step on a network, with the past of each layer kept as covariances (K-FAC's).

    At one datapoint the gradient of a layer is an outer product of its input and the error at its
    output. Their covariances determine P of all parameters in the space of a few matrices: P is a
    Kronecker product for each layer. Gradients are never written out. The network itself moves. It
    is used in eval mode, and its own mode is restored.

    network: a torch module. Dictionaries are passed to it by keyword, tuples by position. It
        returns a tensor or an object with .logits. Linear, Conv1d and Conv2d, Embedding,
        LayerNorm, GroupNorm, BatchNorm (by its running statistics, which do not change) and
        MultiheadAttention are supported, and layers that `orfit.register_layer` has added.
    noise: R > 0, the variance of the noise in what is fitted, relative to a prior of variance 1 on
        each parameter: the larger, the shorter are steps. For cross-entropy, from 2 to 10 is good.
    loss: "cross_entropy", y are classes; "squares", outputs are fitted to y; or a function of
        outputs and y that returns the loss of each datapoint, (n,), not negative. Losses are fitted
        as f = sqrt(2ℓ), to 0, so that f²/2 is the loss and a datapoint has one gradient.
    parameters: which to learn: patterns such as ["layer4.*", "fc.*"], or a function of the name.
    prior: Π for each pattern of names, 1 for the rest: the larger, the less those move.
    unsupported: how parameters of other layers are treated: "error", "freeze", or "jacobian", by a
        backward pass for each datapoint.
    block: the largest number of datapoints in one step; longer batches are cut.

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
        unsupported: str = "error",
        block: int = 50,
    ) -> None:
        super().__init__()
        if not isinstance(network, nn.Module):
            raise ValueError(f"network must be a torch.nn.Module; it is {type(network).__name__}")
        self.network = unwrapped(network)
        self._noise = validation.positive("noise", noise)
        self._fit, self._loss = loss_of(loss), loss
        self._block = validation.count("block", block)
        self._unsupported = UNSUPPORTED("unsupported", unsupported)
        # Compiled modules add a prefix to names.
        named = {n.replace("_orig_mod.", ""): p for n, p in self.network.named_parameters()}
        learned = chosen(named, parameters)
        patterns = prior if isinstance(prior, Mapping) else {"*": prior}
        self._stiffness = stiffness(patterns, learned)
        self._plan = plan_of(self.network, learned, self._stiffness, self._unsupported)
        self.frozen = self._plan.frozen
        self._like = self._plan.units[0].parameters[0]
        self._dtype, self._limit = self._like.dtype, largest_allowed(numpy_dtype(self._like))
        self._candidates, self._warned = Candidates(self._noise, True, 1), False
        s = self._candidates.new_state()
        s.seen = s.remembered = s.since_refresh = 0
        s.checked, s.parameter_bound = False, largest_parameter(self._plan.units)
        with torch.inference_mode(False):
            s.memories = tuple(unit.empty_memory() for unit in self._plan.units)
        s.pending = []
        self._cell = Cell(s)

    # One step.

    def _begin(self, inputs: Any, y: Any) -> tuple[State, Observed, Decomposition]:
        """A draft of the next state, and the gradients of a block."""
        s = State(**vars(self._cell.state))
        at_refresh = s.remembered - s.since_refresh
        if s.since_refresh >= min(REFRESH_AFTER, max(FIRST_REFRESH, at_refresh)):
            self._refresh(s)
        self._check_network()
        observed = observe(
            self.network, self._plan, inputs, lambda outputs: self._fit(outputs, y), not s.checked
        )
        s.checked = s.checked or len(observed.f) > 1  # one datapoint cannot show that rows mix
        return s, observed, decompose(s.memories, observed.gradients, self._noise)

    def _step(self, inputs: Any, y: Any) -> Update:
        s, observed, d = self._begin(inputs, y)
        self._warn(d.novelty)
        f, residual = observed.f, observed.residual
        n, shape = len(f), residual.shape
        each = residual.reshape(1, -1, 1)
        Z, left, variance, innovation, _ = fit(d.B[None], s.noises, each)
        check_step(Z)
        steps, length = d.step(Z[0])
        if not s.parameter_bound + length < self._limit:
            # The bound adds up steps that may cancel: compute the largest parameter.
            s.parameter_bound = largest_parameter(self._plan.units)
            check_step(length if s.parameter_bound + length < self._limit else np.inf)
        s.parameter_bound += length
        self._candidates.observe(s, variance, each, innovation)
        s.seen += n
        self._commit(s, n, observed, steps)
        left, variance = left.reshape(shape), variance.reshape(shape)
        return Update(f, residual, length, d.novelty, left, self._rank(s), variance)

    def _remember_block(self, inputs: Any, y: Any) -> None:
        s, observed, _ = self._begin(inputs, y)
        self._commit(s, len(observed.f), observed, [None] * len(s.memories))

    def _commit(self, s: State, n: int, observed: Observed, steps: Steps) -> None:
        """Commit a draft that includes n more datapoints, then change tensors in place."""
        s.remembered += n
        s.since_refresh += n
        s.pending = plan_changes(self._plan.units, s.memories, observed.gradients, steps)
        self._cell.state = s
        apply_pending(s)

    def _refresh(self, s: State) -> None:
        """Recompute all axes."""
        s.since_refresh = 0
        s.memories = tuple(memory.refresh(self._noise) for memory in s.memories)

    def _warn(self, novelty: float) -> None:
        """Warn once if most of what is left of gradients is rounding."""
        if not self._warned and novelty**2 < FEWEST_DIGITS * torch.finfo(self._dtype).eps:
            self._warned = True
            advise(
                f"only {novelty:.0e} of these gradients is new, beside a noise of {self._noise:g}: "
                f"squares of that are rounding in {self._dtype}. Scale the inputs, take a "
                "larger noise, or float64, network.double()",
                ScaleWarning,
            )

    def _check_network(self) -> None:
        """Raise if the network's parameters are no longer those that were learned so far."""
        present = {id(p) for p in self.network.parameters()}
        remake = "make a PerLayer of the network as it is now"
        for name, p in self._learned().items():
            if id(p) not in present:
                raise ValueError(f"{name} is no longer a parameter of the network: {remake}")
            if not p.requires_grad:
                raise ValueError(
                    f"{name} no longer requires gradients: {remake}, or leave it out by "
                    "parameters=…"
                )
            if p.dtype != self._dtype:
                raise ValueError(
                    f"{name} was {self._dtype} and is {p.dtype}: change the dtype before the "
                    "PerLayer is made"
                )

    # Access by one thread at a time.

    def _read(self, use: Callable[..., T], *args: Any) -> T:
        inside = self._lock.is_owned()
        with self._lock:
            if not inside:
                self._finish()
            elif self._cell.state.pending:
                raise RuntimeError(
                    "the network is in the middle of a step, and cannot be read from inside it: "
                    "let a signal handler raise an exception, or set a flag"
                )
            return use(*args)

    def _change(self, use: Callable[..., T], *args: Any) -> T:
        def change() -> T:
            self._finish()
            return self._in_torch(use, *args)

        with one_thread:
            return super()._change(change)

    def _finish(self) -> None:
        """Finish a step that an exception interrupted after its commit."""
        if self._cell.state.pending:
            self._in_torch(apply_pending, self._cell.state)

    def _in_torch(self, use: Callable[..., T], *args: Any) -> T:
        """Call `use` without graphs; the network and torch keep their modes after any exception."""
        made: T = undisturbed(self.network, _without_graphs, use, *args)
        return made

    # Learning.

    def learn(self, X: Any, y: Any) -> Update:
        """Learn a batch in blocks, each in one step, and move the network.

        The result has a row for each datapoint. `prediction` is what is fitted, outputs or
        sqrt(2ℓ), before its block was learned. If an exception occurs, each block was learned
        fully or not at all, and `seen` counts those that were.
        """
        return self._change(self._learn, X, y)

    def _learn(self, X: Any, y: Any) -> Update:
        inputs = batch.accept("X", X, self._like)
        n = batch.length("X", inputs)
        labels = batch.accept("y", y, self._like)
        if batch.length("y", labels) != n:
            raise ValueError(f"X has {n} datapoints, but y has {batch.length('y', labels)}")
        if not n:
            empty = np.empty(0)
            return Update(empty, empty, 0.0, 0.0, empty, self._rank(self._cell.state), empty)
        updates = [self._step(*block) for block in self._blocks(inputs, labels, n)]
        return updates[0] if len(updates) == 1 else _combined(updates)

    def remember(self, loader: Iterable[Any]) -> None:
        """Protect what the network has learned elsewhere: add gradients, and move nothing.

        loader: batches of (x, y), or of x alone. Without y, the predicted classes are used.
        """
        self._change(self._remember, loader)

    def _remember(self, loader: Iterable[Any]) -> None:
        for item in loader:
            X, y = batch.pair(item)
            inputs = batch.accept("X", X, self._like)
            labels = None if y is None else batch.accept("y", y, self._like)
            for block in self._blocks(inputs, labels, batch.length("X", inputs)):
                self._remember_block(*block)
        s = State(**vars(self._cell.state))
        self._refresh(s)
        self._cell.state = s

    def _blocks(self, inputs: Any, y: Any, n: int) -> Iterator[tuple[Any, Any]]:
        for start in range(0, n, self._block):
            stop = start + self._block
            yield batch.part(inputs, start, stop), batch.part(y, start, stop)

    # Results.

    @property
    def noise(self) -> float:
        """R."""
        return self._noise

    @property
    def seen(self) -> int:
        """How many datapoints have been learned, without those that were only remembered."""
        return self._read(lambda: int(self._cell.state.seen))

    @property
    def scale(self) -> float:
        """s², by which what is fitted varies more than noise says."""
        return self._read(lambda: float(self._candidates.scale_of(self._cell.state)[0]))

    @property
    def numbers(self) -> int:
        """How many numbers are kept of the past."""
        memories = self._read(lambda: self._cell.state.memories)
        return sum(t.numel() for memory in memories for t in memory.tensors.values())

    def _rank(self, s: State) -> int:
        return sum(memory.rank for memory in s.memories)

    def predict(self, X: Any, std: bool | str = False) -> Any:
        """The network's outputs for many datapoints, as NumPy arrays.

        std: True returns the pair (outputs, their standard deviation), which takes a backward pass
            for each output. For fitted outputs (loss="squares") it is that of a label, with
            its noise, and "mean" is without it.
        """
        if not isinstance(std, bool | np.bool_) and std != "mean":
            raise ValueError(f'std must be True, False or "mean"; it is {std!r}')
        return self._read(self._in_torch, self._predict, X, std)

    def _predict(self, X: Any, std: bool | str) -> Any:
        inputs = batch.accept("X", X, self._like)
        n = batch.length("X", inputs)
        if not std or not n:
            with evaluating(self.network):
                all_outputs = _to_numpy(outputs_of(self.network, inputs, n))
            return (all_outputs, all_outputs.copy()) if std else all_outputs
        self._check_network()
        s = self._cell.state
        scale = self._candidates.scale_of(s)[0]
        noise = self._noise if std is True and isinstance(self._fit, Squares) else 0.0
        outputs, spreads = [], []
        for part, _ in self._blocks(inputs, None, n):
            made = observe(self.network, self._plan, part, lambda o: Squares()(o, None), False)
            B = decompose(s.memories, made.gradients, self._noise).B
            outputs.append(_to_numpy(made.outputs))
            spreads.append(np.sqrt(scale * ((B * B).sum(axis=0) + noise)).reshape(made.f.shape))
        return np.concatenate(outputs), np.concatenate(spreads)

    def __repr__(self) -> str:
        size = sum(unit.rows * unit.size for unit in self._plan.units)
        kind = type(self.network).__name__
        return f"<PerLayer({kind}, {size} parameters, noise={self._noise:g}), seen={self.seen}>"

    # Saving.

    def state_dict(self) -> dict[str, Tensor]:
        """The past as tensors, without the parameters: the network has its own state_dict."""
        return self._read(lambda: {n: torch.tensor(a) for n, a in self._arrays().items()})

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of `state_dict` of a learner with the same arguments."""
        arrays = {name: TORCH.to_numpy(tensor) for name, tensor in state.items()}
        self._change(self._restore, arrays, {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the past and the learned parameters; `orfit.load(path, model=network)` reads them.

        A file cannot hold the network's code: pass a network of the same architecture, with the
        same parameters where they are not learned. Buffers, such as batch norm's statistics, are
        not saved.
        """
        checkpoint.writer.now(path, self._read(self._content))

    def _content(self) -> checkpoint.Content:
        w = {f"w.{name}": TORCH.to_numpy(p) for name, p in self._learned().items()}
        settings = {
            "noise": self._noise,
            "loss": self._loss if isinstance(self._loss, str) else "code",
            "unsupported": self._unsupported,
            "block": self._block,
        }
        header = {
            "kind": "PerLayer",
            "versions": {"orfit": __version__, "torch": str(torch.__version__)},
            "settings": settings,
            "stiffness": self._stiffness,
            "fixed": self._fixed(),
        }
        return checkpoint.Content.of(self._arrays() | w, header)

    def _learned(self) -> dict[str, nn.Parameter]:
        units = self._plan.units
        return {n: p for u in units for n, p in zip(u.names, u.parameters, strict=True)}

    def _fixed(self) -> str:
        """A fingerprint of parameters that are not learned."""
        learned = {id(p) for p in self._learned().values()}
        return fingerprint(p for p in self.network.parameters() if id(p) not in learned)

    def _arrays(self) -> dict[str, Array]:
        """The fields of the state as arrays; they may be the state's own."""
        s = self._cell.state
        made = {f"state.{name}": array for name, array in to_arrays(_in_table(s)).items()}
        for unit, memory in zip(self._plan.units, s.memories, strict=True):
            prefix = f"memory.{unit.names[0]}."
            made |= {prefix + name: TORCH.to_numpy(t) for name, t in memory.tensors.items()}
        return made

    def _restore(self, arrays: dict[str, Array], w: dict[str, Array]) -> None:
        """Take these arrays and parameters. Raises ValueError unless they fit this network."""
        saved = {n: a for n, a in arrays.items() if n.startswith("memory.")}
        numbers = {n.removeprefix("state."): a for n, a in arrays.items() if n not in saved}
        now, dtype, learned = self._cell.state, numpy_dtype(self._like), self._learned()
        s = from_arrays(_in_table(now), numbers)
        if s.noises[0] != self._noise:
            raise ValueError(f"it was saved with a noise of {s.noises[0]:g}, not {self._noise:g}")
        prefixes = [f"memory.{unit.names[0]}." for unit in self._plan.units]
        own = dict(zip(prefixes, now.memories, strict=True))
        layout = {p + n: sides for p, m in own.items() for n, sides in m.layout(p).items()}
        schema.arranged(saved, {name: (dtype, *sides) for name, sides in layout.items()})
        schema.arranged(w, {name: (dtype, *learned[name].shape) for name in w})
        s.memories = tuple(
            memory.restored({name: saved[prefix + name] for name in memory.tensors})
            for prefix, memory in own.items()
        )
        for name, array in w.items():
            learned[name].copy_(torch.tensor(array))
        s.parameter_bound, s.pending = largest_parameter(self._plan.units), []
        self._cell.state = s


def _in_table(s: State) -> State:
    """The fields without memories and pending changes."""
    return State(**{name: value for name, value in vars(s).items() if name in TABLE})


def _without_graphs(use: Callable[..., T], *args: Any) -> T:
    """Call `use` without graphs and without inference tensors, in any mode of the caller."""
    with torch.inference_mode(False), torch.no_grad():
        return use(*args)


def unwrapped(network: nn.Module) -> nn.Module:
    """The network inside of a compiled or distributed one."""
    while True:
        inside = getattr(network, "_orig_mod", None)
        if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inside = network.module
        if not isinstance(inside, nn.Module):
            return network
        network = inside


def _to_numpy(outputs: Tensor) -> Array:
    outputs = flat(outputs) if outputs.ndim < 3 else outputs
    return np.asarray(outputs.detach().double().cpu())


def _combined(updates: list[Update]) -> Update:
    """The updates of several blocks as one. The length of the step adds up squares."""
    names = "prediction", "residual", "conflict", "variance"
    f, residual, left, variance = (np.concatenate([getattr(u, n) for u in updates]) for n in names)
    length = float(np.linalg.norm([u.step for u in updates]))
    novelty = float(np.mean([u.novelty for u in updates]))
    return Update(f, residual, length, novelty, left, updates[-1].rank, variance)


HEADER: schema.Fields = {
    "kind": schema.text,
    "versions": schema.record({"orfit": schema.text, "torch": schema.text}),
    "settings": schema.mapping,
    "stiffness": schema.mapping,
    "fixed": schema.text,
}


def load(
    arrays: dict[str, Array], header: dict[str, Any], network: Any, loss: Any = None
) -> PerLayer:
    """The learner that `save` wrote; the network gets its parameters."""
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
    w = {n.removeprefix("w."): a for n, a in arrays.items() if n.startswith("w.")}
    if w.keys() != learner._learned().keys() or learner._fixed() != known["fixed"]:
        raise CheckpointError(
            "it was saved with a network of other parameters, or other fixed ones"
        )
    past = {n: a for n, a in arrays.items() if not n.startswith("w.")}
    learner._change(learner._restore, past, w)
    return learner
