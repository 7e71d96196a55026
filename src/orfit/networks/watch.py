"""What goes into each layer, by hooks, and the error that comes back, by one backward pass."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from orfit.models.undisturbed import evaluating
from orfit.networks import attention, batch
from orfit.networks.losses import Fitted
from orfit.networks.units import Place, Plan, Unit

Tensor = torch.Tensor
AS_TORCH = 1e-3  # a gradient that is farther from torch's, relatively, is not it
ROUGHLY = 0.1  # where the network computes in half precision


@dataclass(frozen=True)
class Caught:
    """One use of a layer."""

    layer: nn.Module
    x: Any
    version: int | None  # of x, which must not be written to before it is used
    edge: Any  # where the error comes back; the output itself may be written over in place


@dataclass(frozen=True)
class Observed:
    """What one look at a batch tells."""

    outputs: Tensor
    f: Tensor  # n or n×c
    residual: Tensor
    gradients: list[Any]  # of each unit, n c of them, or None where it was not used


@contextlib.contextmanager
def watching(module: nn.Module, places: dict[int, Place]) -> Iterator[list[Caught]]:
    """Whatever the layers at these places, by their ids, are given, while it lasts."""
    caught: list[Caught] = []

    def record(layer: nn.Module, x: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.requires_grad:
            version = x._version if isinstance(x, Tensor) else None
            caught.append(Caught(layer, x, version, get_gradient_edge(out)))

    def hook(layer: nn.Module, args: Any, options: Any, out: Any) -> None:
        inputs = batch.each(lambda t: t.detach(), (*args, *options.values()))
        record(layer, inputs[0] if len(inputs) == 1 else inputs, out)

    undo: list[Callable[[], Any]] = []
    try:
        for layer in module.modules():
            if isinstance(layer, nn.MultiheadAttention):
                if {id(layer), id(layer.out_proj)} & places.keys():  # one that `forward` knows
                    undo.append(functools.partial(layer.__dict__.pop, "forward", None))
                    layer.forward = functools.partial(  # type: ignore[method-assign]
                        attention.forward, layer, record if id(layer) in places else _ignored
                    )
            elif id(layer) in places:
                undo.append(layer.register_forward_hook(hook, with_kwargs=True).remove)
        yield caught
    finally:
        for back in undo:
            back()


def _ignored(layer: nn.Module, x: Any, out: Tensor) -> None:
    """Nobody asks."""


def outputs_of(module: nn.Module, inputs: Any, n: int) -> Tensor:
    """What the network says, at least in single precision."""
    outputs = batch.tensor_of(batch.call(module, inputs))
    if not outputs.ndim or len(outputs) != n:
        raise ValueError(f"for {n} inputs the network returned shape {tuple(outputs.shape)}")
    half = outputs.dtype in (torch.float16, torch.bfloat16)
    return outputs.float() if half else outputs


def observe(
    module: nn.Module, plan: Plan, inputs: Any, fit: Callable[[Tensor], Fitted], check: bool
) -> Observed:
    """What is fitted, and its gradients, held against torch's own where `check` says so."""
    n = batch.length("X", inputs)
    with torch.enable_grad(), evaluating(module), _plainly(module):
        places = {id(place.layer): place for place in plan.places}
        with watching(module, places) as caught:
            outputs = outputs_of(module, inputs, n)
        fitted = fit(outputs)
        f = fitted.f.reshape(n, -1)
        if not bool(torch.isfinite(f).all()):
            raise ValueError("the network's outputs, or what they cost, are not finite")
        rows = f.flatten()
        found = _one_by_one(rows, [u for u in plan.units if u.kind == "jacobian"])
        z, expected = None, None
        if check:  # with no two datapoints alike, so that it shows where they mix, too
            z = torch.linspace(1, 2, len(rows), dtype=rows.dtype, device=rows.device)
            expected = _row(z @ rows, plan.units, graph=True)
        edges = [use.edge for use in caught]
        errors = [
            torch.autograd.grad(f[:, k].sum(), edges, retain_graph=True, allow_unused=True)
            for k in range(f.shape[1] if edges else 0)
        ]
    parts: dict[int, list[Any]] = {}
    for i, use in enumerate(caught):
        of_it = [error[i] for error in errors]
        if any(error is None for error in of_it):
            continue  # nothing comes back to it
        unit, made = _made(use, places[id(use.layer)], of_it, n)
        parts.setdefault(id(unit), []).append(made)
    gradients = [found.get(id(u)) for u in plan.units]
    for i, unit in enumerate(plan.units):
        if id(unit) in parts:
            gradients[i] = unit.joined(parts[id(unit)])
    if z is not None and expected is not None:
        loose = ROUGHLY if torch.is_autocast_enabled(f.device.type) else AS_TORCH
        pairs = zip(plan.units, gradients, strict=True)
        ours = [None if g is None else unit.summed(g, z) for unit, g in pairs]
        _compare(plan.units, ours, expected, loose)
    residual = (fitted.target - fitted.f).detach()
    return Observed(outputs.detach(), fitted.f.detach(), residual, gradients)


def _made(use: Caught, place: Place, errors: list[Tensor], n: int) -> tuple[Unit, Any]:
    """The gradients of one use of a layer: c for each datapoint, one after another."""
    x = use.x.x if isinstance(use.x, attention.Share) else use.x
    if isinstance(x, Tensor) and use.version is not None and x._version != use.version:
        raise ValueError(
            f"the input of {place.unit.names[0]} was written over in place after it was used"
        )
    lengths = {len(error) for error in errors}
    batch.each(lambda t: lengths.add(len(t)), x)
    if lengths != {n}:
        raise ValueError(
            f"the layer of {place.unit.names[0]} does not have the {n} datapoints along its first "
            "axis, inputs and outputs: let the network be batch first, and expand what is the same "
            "for all datapoints, such as positions, to all; or leave it out by parameters=…"
        )
    c = len(errors)
    error = errors[0] if c == 1 else torch.stack(errors, 1).flatten(0, 1)
    x = x if c == 1 else batch.each(lambda t: t.repeat_interleave(c, 0), x)
    if isinstance(use.x, attention.Share):
        x = attention.Share(x, use.x.first, use.x.last)
    made = place.rule.factors(place.layer, x, error)
    return place.unit, place.unit.gradient(made, place.given)


def _row(f: Tensor, units: list[Unit], graph: bool) -> list[Tensor | None]:
    """Torch's own gradient of one number, for each unit as its parameters lie."""
    parameters = [p for unit in units for p in unit.parameters]
    found = iter(torch.autograd.grad(f, parameters, retain_graph=graph, allow_unused=True))
    rows: list[Tensor | None] = []
    for unit in units:
        lead = (unit.rows,) if unit.kind in ("matrix", "rows") else ()
        of_each = [next(found) for _ in unit.parameters]
        if all(g is None for g in of_each):
            rows.append(None)
            continue
        whole = [
            _plain(p, g).reshape(*lead, -1) * root
            for g, (p, _, root) in zip(of_each, unit.places(), strict=True)
        ]
        rows.append(torch.cat(whole, -1))
    return rows


def _plain(parameter: Tensor, g: Tensor | None) -> Tensor:
    """A gradient as a tensor: nothing is zeros, and a sparse one is written out."""
    if g is None:
        return torch.zeros_like(parameter).detach()
    return g.detach().to_dense() if g.is_sparse else g.detach()


def _one_by_one(rows: Tensor, units: list[Unit]) -> dict[int, Tensor]:
    """The gradients of parameters that no rule knows, by a backward pass for each."""
    if not units:
        return {}
    found = [_row(f, units, graph=True) for f in rows]
    made = {}
    for i, unit in enumerate(units):
        empty = rows.new_zeros(unit.size)
        of_it = [row[i] for row in found]
        made[id(unit)] = torch.stack([empty if g is None else g for g in of_it])
    return made


def _compare(
    units: list[Unit], found: list[Tensor | None], expected: list[Tensor | None], loose: float
) -> None:
    """Raise where a sum of gradients is not what torch says that it is."""
    for unit, own, torchs in zip(units, found, expected, strict=True):
        if own is None and torchs is None:
            continue
        ours = 0.0 if own is None else own
        theirs = torch.zeros(()) if torchs is None else torchs
        size = max(float(theirs.norm()), torch.finfo(theirs.dtype).tiny ** 0.5)
        off = float((ours - theirs).norm()) / size
        if not off <= loose:
            raise ValueError(
                f"the gradient of {unit.names[0]} is not what its layer lets expect: it is used "
                "elsewhere than in the layer's own forward, or the first axis is not that of the "
                'datapoints; leave it out by parameters=…, or take unsupported="jacobian" for '
                "a class that is not known"
            )


@contextlib.contextmanager
def _plainly(module: nn.Module) -> Iterator[None]:
    """Compiled parts run as they were written: hooks see nothing of what is compiled."""
    if any(hasattr(part, "_orig_mod") for part in module.modules()):
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        yield
