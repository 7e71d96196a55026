"""The input of each layer, by hooks, and the error at its output, by one backward pass."""

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
from orfit.networks.gradients import Gradients, add_up
from orfit.networks.losses import Fitted
from orfit.networks.units import Place, Plan, Unit
from orfit.validation import Array

Tensor = torch.Tensor
TOLERANCE = 1e-3  # the largest relative difference from torch's gradient
HALF_TOLERANCE = 0.1  # the same if the network computes in half precision


@dataclass(frozen=True)
class Caught:
    """One use of a layer."""

    layer: nn.Module
    x: Any
    version: int | None  # of x, which must not change in place before it is used
    edge: Any  # of the graph, at the output; the output itself may change in place


@dataclass(frozen=True)
class Observed:
    """The outputs for a batch, what is fitted, and its gradients."""

    outputs: Tensor
    f: Array  # n or n×c
    residual: Array
    gradients: list[Gradients | None]  # of each unit, n c of them, or None if it was not used


@contextlib.contextmanager
def watching(module: nn.Module, places: dict[int, Place]) -> Iterator[list[Caught]]:
    """Record the inputs of the layers at these places, by their ids."""
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
                if {id(layer), id(layer.out_proj)} & places.keys():
                    undo.append(functools.partial(layer.__dict__.pop, "forward", None))
                    layer.forward = functools.partial(  # type: ignore[method-assign]
                        attention.forward, layer, record if id(layer) in places else _ignore
                    )
            elif id(layer) in places:
                undo.append(layer.register_forward_hook(hook, with_kwargs=True).remove)
        yield caught
    finally:
        for back in undo:
            back()


def _ignore(layer: nn.Module, x: Any, out: Tensor) -> None:
    """Record nothing."""


def outputs_of(module: nn.Module, inputs: Any, n: int) -> Tensor:
    """The network's outputs, at least in single precision."""
    outputs = batch.tensor_of(batch.call(module, inputs))
    if not outputs.ndim or len(outputs) != n:
        raise ValueError(f"for {n} inputs the network returned shape {tuple(outputs.shape)}")
    half = outputs.dtype in (torch.float16, torch.bfloat16)
    return outputs.float() if half else outputs


def observe(
    module: nn.Module, plan: Plan, inputs: Any, fit: Callable[[Tensor], Fitted], check: bool
) -> Observed:
    """Compute what is fitted and its gradients; compare their sum with torch's if `check`."""
    n = batch.length("X", inputs)
    with torch.enable_grad(), evaluating(module), _eager(module):
        places = {id(place.layer): place for place in plan.places}
        with watching(module, places) as caught:
            outputs = outputs_of(module, inputs, n)
        fitted = fit(outputs)
        f = fitted.f.reshape(n, -1)
        if not bool(torch.isfinite(f).all()):
            raise ValueError("the network's outputs, or what they cost, are not finite")
        rows = f.flatten()
        jacobian = [unit for unit in plan.units if unit.kind == "jacobian"]
        by_row = [_torch_gradients(row, jacobian) for row in rows if jacobian]
        gradients: dict[int, Any] = {
            id(u): u.vectors(torch.cat(g)) for u, *g in zip(jacobian, *by_row, strict=True)
        }
        # With different weights, so that a mix of datapoints shows.
        z = torch.linspace(1, 2, len(rows), dtype=rows.dtype, device=rows.device)
        expected = _torch_gradients(z @ rows, plan.units) if check else []
        edges = [use.edge for use in caught]
        errors = [
            torch.autograd.grad(f[:, k].sum(), edges, retain_graph=True, allow_unused=True)
            for k in range(f.shape[1] if edges else 0)
        ]
    parts: dict[int, list[Gradients]] = {}
    for use, *of_it in zip(caught, *errors, strict=True):
        if all(error is not None for error in of_it):  # None: the outputs do not depend on it
            place = places[id(use.layer)]
            parts.setdefault(id(place.unit), []).append(_gradient(use, place, of_it, n))
    added = {unit: add_up(of_unit) for unit, of_unit in parts.items()}
    found = [(gradients | added).get(id(unit)) for unit in plan.units]
    if check:
        _compare(plan.units, found, z, expected)
    numbers, residual = (
        t.detach().double().cpu().numpy() for t in (fitted.f, fitted.target - fitted.f)
    )
    return Observed(outputs.detach(), numbers, residual, found)


def _gradient(use: Caught, place: Place, errors: list[Tensor], n: int) -> Gradients:
    """The gradients of one use of a layer: c consecutive ones for each datapoint."""
    x = use.x
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
    return place.unit.gradient(place.rule.factors(place.layer, x, error), place.given)


def _torch_gradients(f: Tensor, units: list[Unit]) -> list[Tensor]:
    """Torch's gradient of one number, in the columns of each unit."""
    parameters = [p for unit in units for p in unit.parameters]
    found = iter(torch.autograd.grad(f, parameters, retain_graph=True, materialize_grads=True))
    made = []
    for unit in units:
        columns = [next(found).detach().to_dense().reshape(unit.rows, -1) for _ in unit.parameters]
        made.append(torch.cat([g * root for g, root in zip(columns, unit.roots, strict=True)], 1))
    return made


def _compare(
    units: list[Unit], gradients: list[Gradients | None], z: Tensor, expected: list[Tensor]
) -> None:
    """Raise unless Σ z_i g_i of each unit is torch's gradient."""
    half = torch.is_autocast_enabled(z.device.type)
    tolerance = HALF_TOLERANCE if half else TOLERANCE
    for unit, g, theirs in zip(units, gradients, expected, strict=True):
        weights = z.to(theirs.dtype)
        ours = 0.0 if g is None else weights @ g if isinstance(g, Tensor) else g.summed(weights)
        size = max(float(theirs.norm()), torch.finfo(theirs.dtype).tiny ** 0.5)
        if not float((ours - theirs).norm()) <= tolerance * size:
            raise ValueError(
                f"the gradient of {unit.names[0]} is not what its layer lets expect: it is used "
                "elsewhere than in the layer's own forward, or the first axis is not that of the "
                'datapoints; leave it out by parameters=…, or take unsupported="jacobian" for '
                "a class that is not known"
            )


@contextlib.contextmanager
def _eager(module: nn.Module) -> Iterator[None]:
    """Run compiled parts eagerly, since compiled code calls no hooks."""
    if any(hasattr(part, "_orig_mod") for part in module.modules()):
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        yield
