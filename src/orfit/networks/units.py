"""From a network to its units: parameters that one memory is kept for, and their layers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from orfit.networks import attention  # noqa: F401  (its rule is registered)
from orfit.networks.gradients import Dense, Outer, Product, Rows, together
from orfit.networks.input_side import InputSide
from orfit.networks.rules import Rule, rule_of
from orfit.networks.two_sided import TwoSided
from orfit.networks.vector import Vector
from orfit.networks.words import Words

Tensor = torch.Tensor
WIDEST = 20_000  # outputs: the square of more is no memory for one layer
REMEDY = (
    'leave it out (unsupported="freeze", or parameters=…), take one backward pass for each '
    'datapoint (unsupported="jacobian"), or teach it by orfit.register_layer'
)


Change = Callable[[Tensor], Any]


@dataclass
class Unit:
    """Parameters that one memory is kept for: side by side, in units of their prior.

    kind: "matrix", the columns of each parameter side by side; "vector", one after the other;
        "rows", a table; or "jacobian", a vector whose gradients torch has to find one by one.
    """

    kind: str
    names: list[str]
    parameters: list[nn.Parameter]
    roots: list[float]  # 1 / sqrt(Π) of each
    memory: Any = None

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

    def arranged(self, values: Tensor, given: list[nn.Parameter]) -> Tensor:
        """Columns of these parameters, of which some may not be learned, as the unit has them."""
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

    def gradient(self, made: Any, given: list[nn.Parameter]) -> Any:
        """What a rule made, in the unit's own terms and in the precision of its parameters."""
        dtype = self.parameters[0].dtype
        if isinstance(made, tuple):  # of a rule that users wrote
            x, delta = (part if part.ndim == 3 else part[:, None] for part in made)
            made = Outer(x, delta)
        if isinstance(made, Outer):
            x = self.arranged(made.x.to(dtype), given)
            return Outer(x, made.delta.to(dtype))
        if isinstance(made, Dense):
            return Dense(self.arranged(made.matrices.to(dtype), given))
        if isinstance(made, Rows):
            delta = self.arranged(made.delta.to(dtype), given)
            if self.kind == "rows":
                return Rows(made.ids, delta)
            return Outer(delta, functional.one_hot(made.ids, self.rows).to(dtype))
        return self.arranged(made.to(dtype), given)

    def joined(self, parts: list[Any]) -> Any:
        """The sum of gradients from all places where the parameters are used."""
        if self.kind == "matrix":
            return together(parts)
        if self.kind == "rows":
            ids, delta = (torch.cat([getattr(p, n) for p in parts], 1) for n in ("ids", "delta"))
            return Rows(ids, delta)
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]

    def summed(self, g: Any, z: Tensor) -> Tensor:
        """Σ z_i g_i, written out as the unit's parameters lie."""
        dtype = self.parameters[0].dtype
        z = z.to(dtype)
        if isinstance(g, Outer | Dense):
            return g.summed(z)
        if isinstance(g, Rows):
            table = g.delta.new_zeros(self.rows, self.size)
            weighted = z[:, None, None] * g.delta
            return table.index_add_(0, g.ids.flatten(), weighted.flatten(0, 1))
        return z @ torch.as_tensor(g).to(dtype)

    def displaced(self, M: Tensor | Product) -> Iterator[tuple[nn.Parameter, Change]]:
        """What a step in the unit's own terms does to each parameter, in one operation."""
        for parameter, place, root in self.places():
            if isinstance(M, Product) and parameter.is_contiguous():
                yield parameter, _adding_product(M.left, M.right[:, place], root)
            else:
                whole = M.matrix if isinstance(M, Product) else M
                yield parameter, _adding(root * whole[..., place].reshape(parameter.shape))

    def remembering(self, sides: str) -> None:
        """Get a memory."""
        like = self.parameters[0].detach()
        if self.kind == "matrix" and sides == "both" and self.rows > WIDEST:
            raise ValueError(
                f"{self.names[0]} has {self.rows} outputs, whose covariances would take "
                f'{self.rows**2 * 4e-9:.0f} GB: leave it out by parameters=…, or take sides="input"'
            )
        if self.kind == "matrix":
            kind = TwoSided if sides == "both" else InputSide
            self.memory = kind(self.rows, self.size, like)
        elif self.kind == "rows":
            self.memory = Words(self.rows, self.size, like, sides)
        else:
            self.memory = Vector(self.size, like)


def _adding(way: Tensor) -> Change:
    return lambda held: held.add_(way)


def _adding_product(left: Tensor, right: Tensor, root: float) -> Change:
    def change(held: Tensor) -> None:
        held.view(left.shape[1], right.shape[1]).addmm_(left.T, right, alpha=root)

    return change


@dataclass(frozen=True)
class Place:
    """A layer, and the unit that its parameters are in."""

    layer: nn.Module
    rule: Rule
    unit: Unit
    given: list[nn.Parameter]  # all that the rule speaks of, learned or not


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
    sides: str,
    unsupported: str,
) -> Plan:
    """The units of these parameters; `unsupported` tells what becomes of those no rule knows."""
    names = {id(parameter): name for name, parameter in learned.items()}
    plan = Plan()
    unknown: dict[str, str] = {}
    inner: dict[int, str] = {}  # layers that are used by no forward of their own, and why
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
    for unit in plan.units:
        unit.remembering(sides)
    return plan


def _obstacle(layer: nn.Module, rule: Rule | None) -> str | None:
    """Why no rule speaks of a layer; None: it does."""
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
    """The layer's place, in a unit with which it shares a parameter, or in one of its own."""
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
