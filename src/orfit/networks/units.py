"""The units of a network: groups of parameters that share one memory, and their layers."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from orfit.networks import attention  # noqa: F401  (its rule is registered)
from orfit.networks.diagonal import Diagonal
from orfit.networks.embedding import Embedding
from orfit.networks.gradients import Dense, Gradients, Outer, Product, Rows
from orfit.networks.rules import Rule, rule_of
from orfit.networks.two_sided import TwoSided
from orfit.networks.unit_memory import Operation, UnitMemory

Tensor = torch.Tensor
FEW = 600  # parameters of a vector: of more, only variances are kept
WIDEST = 20_000  # outputs: the covariances of more take too much memory for one layer
REMEDY = (
    'leave it out (unsupported="freeze", or parameters=…), take one backward pass for each '
    'datapoint (unsupported="jacobian"), or register it by orfit.register_layer'
)


@dataclass
class Unit:
    """Parameters that share one memory, side by side, in units of their prior.

    kind: "matrix", the columns of each parameter side by side; "vector", one after the other, a
        matrix of one row if it is short; "rows", a table; or "jacobian", a vector whose gradients
        torch computes one by one.
    """

    kind: str
    names: list[str]
    parameters: list[nn.Parameter]
    roots: list[float]  # 1 / sqrt(Π) of each

    @property
    def rows(self) -> int:
        return len(self.parameters[0]) if self.kind in ("matrix", "rows") else 1

    def width(self, parameter: nn.Parameter) -> int:
        return parameter.numel() // self.rows

    @property
    def size(self) -> int:
        return sum(self.width(parameter) for parameter in self.parameters)

    def places(self) -> Iterator[tuple[nn.Parameter, slice, float]]:
        start = 0
        for parameter, root in zip(self.parameters, self.roots, strict=True):
            stop = start + self.width(parameter)
            yield parameter, slice(start, stop), root
            start = stop

    @property
    def is_long(self) -> bool:
        """Whether it is a vector of which only variances are kept."""
        return self.kind in ("vector", "jacobian") and self.size > FEW

    def select(self, values: Tensor, given: list[nn.Parameter]) -> Tensor:
        """The unit's columns of values whose columns belong to the parameters `given`."""
        plain = all(root == 1 for root in self.roots)
        if plain and [id(p) for p in given] == [id(p) for p in self.parameters]:
            return values
        made = values.new_zeros(*values.shape[:-1], self.size)
        places = {id(p): (place, root) for p, place, root in self.places()}
        start = 0
        for parameter in given:
            stop = start + self.width(parameter)
            if id(parameter) in places:
                place, root = places[id(parameter)]
                made[..., place] = values[..., start:stop] * root
            start = stop
        return made

    def gradient(self, made: Any, given: list[nn.Parameter]) -> Gradients:
        """The result of a rule, in the unit's columns and in the dtype of its parameters."""
        dtype = self.parameters[0].dtype
        if isinstance(made, tuple):  # of a registered rule
            x, delta = (part if part.ndim == 3 else part[:, None] for part in made)
            made = Outer(x, delta)
        if isinstance(made, Outer):
            return Outer(self.select(made.x.to(dtype), given), made.delta.to(dtype))
        if isinstance(made, Dense):
            return Dense(self.select(made.matrices.to(dtype), given))
        if isinstance(made, Rows):
            delta = self.select(made.delta.to(dtype), given)
            if self.kind == "rows":
                return Rows(made.ids, delta, made.count)
            return Outer(delta, functional.one_hot(made.ids, self.rows).to(dtype))
        return self.vectors(self.select(made.to(dtype), given))

    def vectors(self, g: Tensor) -> Gradients:
        """Gradients of a vector, n×size, in the form that its memory takes."""
        return g if self.is_long else Outer(g[:, None], g.new_ones(len(g), 1, 1))

    def displace(self, step: Tensor | Product) -> Iterator[Operation]:
        """The change in place of each parameter by a step."""
        for parameter, place, root in self.places():
            if isinstance(step, Product) and parameter.is_contiguous():
                columns = Product(root * step.left, step.right[:, place], step.squared)
                yield parameter, columns.add_to
            else:
                whole = step.matrix if isinstance(step, Product) else step
                part = root * whole[..., place].reshape(parameter.shape)
                yield parameter, functools.partial(Tensor.add_, other=part)

    def empty_memory(self) -> UnitMemory:
        """The memory before the first gradient."""
        like = self.parameters[0].detach()
        if self.is_long:
            return Diagonal(like.new_zeros(self.size))
        if self.kind == "rows":
            return Embedding.empty(self.rows, self.size, like)
        if self.rows > WIDEST:
            raise ValueError(
                f"{self.names[0]} has {self.rows} outputs, whose covariances would take "
                f"{self.rows**2 * 4e-9:.0f} GB: leave it out by parameters=…"
            )
        return TwoSided.empty(self.rows, self.size, like)


@dataclass(frozen=True)
class Place:
    """A layer, and the unit that its parameters are in."""

    layer: nn.Module
    rule: Rule
    unit: Unit
    given: list[nn.Parameter]  # all parameters of the rule, learned or not


@dataclass
class Plan:
    """All units of a network, and where their parameters are used."""

    units: list[Unit] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)


def plan_of(
    module: nn.Module,
    learned: dict[str, nn.Parameter],
    stiffness: dict[str, float],
    unsupported: str,
) -> Plan:
    """The units of these parameters. See `PerLayer` for `unsupported`."""
    names = {id(parameter): name for name, parameter in learned.items()}
    plan = Plan()
    unknown: dict[str, str] = {}
    inner: dict[int, str] = {}  # layers whose own forward is not called, and why
    for path, layer in module.named_modules():
        own = [p for p in layer.parameters(recurse=False) if id(p) in names]
        if not own:
            continue
        rule = rule_of(layer)
        why = inner.get(id(layer)) or _obstacle(layer, rule)
        if why is not None and isinstance(layer, nn.MultiheadAttention):
            inner[id(layer.out_proj)] = why
        known: list[nn.Parameter] = []
        if rule is not None and why is None:
            all_of_it = [getattr(layer, name, None) for name in rule.names]
            known = [p for p in all_of_it if isinstance(p, nn.Parameter)]
            why = "not all of its parameters are the rule's"
            place = _placed(plan, layer, rule, known, names, stiffness)
            if place is None:
                known, why = [], "its parameters are shared with a layer of another kind"
            else:
                plan.places.append(place)
        missing = [names[id(p)] for p in own if not any(p is k for k in known)]
        unknown |= dict.fromkeys(missing, f"{path or 'the network itself'}: {why}")
    shared = {id(p) for unit in plan.units for p in unit.parameters}
    unknown = {name: why for name, why in unknown.items() if id(learned[name]) not in shared}
    if unknown and unsupported == "error":
        name, why = next(iter(unknown.items()))
        raise ValueError(f"no memory for {name} ({why}): {REMEDY}")
    if unsupported == "jacobian":
        for name in unknown:
            root = stiffness[name] ** -0.5
            plan.units.append(Unit("jacobian", [name], [learned[name]], [root]))
    else:
        plan.frozen = list(unknown)
    if not plan.units:
        raise ValueError("no parameter is left to be learned: all are of layers that are not known")
    return plan


def _obstacle(layer: nn.Module, rule: Rule | None) -> str | None:
    """Why no rule applies to a layer; None if one does."""
    if rule is None:
        return f"{type(layer).__name__} is not known"
    for name in rule.names:
        made = getattr(layer, name, None)
        if isinstance(made, Tensor) and not isinstance(made, nn.Parameter):
            return f"its {name} is computed from other parameters"
    return rule.obstacle(layer)


def _placed(
    plan: Plan,
    layer: nn.Module,
    rule: Rule,
    known: list[nn.Parameter],
    names: dict[int, str],
    stiffness: dict[str, float],
) -> Place | None:
    """The layer's place, in the unit with which it shares a parameter, or else in a new one."""
    learned = [p for p in known if id(p) in names]
    sharing = [u for u in plan.units if any(p is q for p in u.parameters for q in learned)]
    if len(sharing) > 1:
        return None
    if not sharing:
        sharing = [Unit(rule.kind, [], [], [])]
        plan.units += sharing
    unit = sharing[0]
    if unit.parameters and unit.kind != rule.kind:
        if {unit.kind, rule.kind} != {"matrix", "rows"} or len(known[0]) != unit.rows:
            return None
        unit.kind = "matrix"
    for parameter in learned:
        if not any(parameter is p for p in unit.parameters):
            name = names[id(parameter)]
            unit.names.append(name)
            unit.parameters.append(parameter)
            unit.roots.append(stiffness[name] ** -0.5)
    return Place(layer, rule, unit, known)
