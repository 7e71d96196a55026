"""A memory for each layer: against explicit Jacobians and explicit Kronecker products."""

import copy

import numpy as np
import pytest

import orfit

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional

from orfit.networks.gradients import Dense, Outer
from orfit.networks.two_sided import TwoSided


class Block(nn.Module):
    """A transformer: words, attention with its fused weights, norms, a tied head."""

    def __init__(self, classes=3, size=8, tied=False):
        super().__init__()
        self.words = nn.Embedding(classes if tied else 11, size, padding_idx=0)
        layer = nn.TransformerEncoderLayer(size, 2, 12, dropout=0.1, batch_first=True)
        self.body, self.head = layer, nn.Linear(size, classes)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, ids):
        return self.head(self.body(self.words(ids)).mean(dim=1))


class Crossed(nn.Module):
    """Queries of one input, keys and values of another, which is padded; batch second inside."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.batch_first = batch_first
        self.mix = nn.MultiheadAttention(6, 3, batch_first=batch_first, bias=batch_first)
        self.head = nn.Linear(6, 3)

    def forward(self, query, memory, padding):
        if not self.batch_first:
            query, memory = query.transpose(0, 1), memory.transpose(0, 1)
        mixed, _ = self.mix(query, memory, memory, key_padding_mask=padding)
        mixed = mixed if self.batch_first else mixed.transpose(0, 1)
        return {"logits": self.head(mixed.mean(dim=1))}


class Residual(nn.Module):
    """A small CNN as they are written: in-place ReLU, batch norm, a depthwise and a grouped layer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.depthwise = nn.Conv2d(4, 4, 3, padding="same", groups=4)
        self.grouped = nn.Conv2d(4, 6, (3, 2), stride=2, dilation=(1, 2), groups=2)
        self.group_norm, self.act = nn.GroupNorm(3, 6), nn.ReLU(inplace=True)
        self.line = nn.Conv1d(6, 5, 2, padding=1, padding_mode="circular")
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        x = self.act(self.norm(self.first(x)))
        out = self.depthwise(x)
        out += x
        out = self.act(self.group_norm(self.grouped(self.act(out))))
        return self.head(self.line(out.flatten(2)).mean(dim=2))


def twice():
    layer = nn.Linear(5, 5)
    return nn.Sequential(layer, nn.Tanh(), nn.LayerNorm(5), layer, nn.Tanh(), nn.Linear(5, 3))


def networks():
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    images, ids = normal(7, 2, 6, 7), torch.randint(0, 11, (7, 4), generator=generator)
    padding = torch.zeros(7, 5, dtype=torch.bool)
    padding[:, 4] = True
    pair = {"query": normal(7, 4, 6), "memory": normal(7, 5, 6), "padding": padding}
    yield "mlp", nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3)), normal(7, 5)
    yield "one layer twice", twice(), normal(7, 5)
    yield "transformer", Block(), ids
    yield "tied", Block(tied=True), ids % 3
    yield "cross attention", Crossed(), pair
    yield "batch second", Crossed(batch_first=False), tuple(pair.values())
    cnn = Residual()
    cnn.norm.running_mean += 0.2
    yield "cnn", cnn, images


NETWORKS = [(name, network.double(), X) for name, network, X in networks()]
every_network = pytest.mark.parametrize(
    ("name", "network", "X"), NETWORKS, ids=[name for name, _, _ in NETWORKS]
)
CLASSES = torch.tensor([0, 1, 2, 1, 0, 2, 2])


def eye(n):
    return torch.eye(n, dtype=torch.float64)


def called(network, X):
    out = network(**X) if isinstance(X, dict) else network(*X if isinstance(X, tuple) else (X,))
    return out["logits"] if isinstance(out, dict) else out


def explicit(network, X, fit, names=None):
    """F's numbers and their whole Jacobian, (rows, p), by torch alone."""
    network = copy.deepcopy(network).eval()
    learned = [p for n, p in network.named_parameters() if names is None or n in names]
    f = fit(called(network, X)).flatten()
    rows = []
    for each in f:
        g = torch.autograd.grad(each, learned, retain_graph=True, allow_unused=True)
        parts = [torch.zeros_like(p) if d is None else d for p, d in zip(learned, g, strict=True)]
        rows.append(torch.cat([part.flatten() for part in parts]))
    return f.detach(), torch.stack(rows)


def cost(outputs):
    lost = functional.cross_entropy(outputs, CLASSES, reduction="none")
    return torch.sqrt(1e-6 + 2 * lost)


def parameters(network, names=None):
    named = network.named_parameters()
    return torch.cat([p.detach().flatten() for n, p in named if names is None or n in names])


@pytest.mark.parametrize("sides", ["both", "input"])
@every_network
def test_the_first_step_is_that_of_explicit_jacobians(name, network, X, sides):
    R, network = 0.7, copy.deepcopy(network).train()
    f, J = explicit(network, X, cost)
    before = parameters(network)
    learner = orfit.PerLayer(network, noise=R, sides=sides)
    update = learner.learn(X, CLASSES)
    K = J @ J.T
    step = J.T @ torch.linalg.solve(K + R * eye(7), -f)
    assert (parameters(network) - before - step).abs().max() < 1e-10
    assert update.prediction == pytest.approx(f.numpy())
    assert update.variance == pytest.approx((K.diagonal() + R).numpy())
    assert update.novelty == pytest.approx(1)
    assert update.step == pytest.approx(float(step.norm()))
    assert learner.seen == 7
    assert network.training
    assert not any(m._forward_hooks or "forward" in vars(m) for m in network.modules())


@pytest.mark.parametrize("sides", ["both", "input"])
@every_network
def test_squares_fit_every_output(name, network, X, sides):
    network = copy.deepcopy(network)
    f, J = explicit(network, X, lambda outputs: outputs)
    y = torch.ones(7, 3)
    before = parameters(network)
    orfit.PerLayer(network, noise=0.3, loss="squares", sides=sides).learn(X, y)
    step = J.T @ torch.linalg.solve(J @ J.T + 0.3 * eye(21), 1 - f)
    assert (parameters(network) - before - step).abs().max() < 1e-10


def test_a_prior_and_a_choice_of_parameters():
    _, network, X = NETWORKS[0]
    network = copy.deepcopy(network)
    names = ["0.bias", "2.weight", "2.bias"]
    f, J = explicit(network, X, cost, names)
    before, others = parameters(network, names), network[0].weight.detach().clone()
    learner = orfit.PerLayer(
        network, noise=1.0, parameters=["0.bias", "2.*"], prior={"2.*": 4.0, "2.bias": 0.5}
    )
    learner.learn(X, CLASSES)
    Pi = torch.cat([torch.ones(9), torch.full((27,), 4.0), torch.full((3,), 0.5)])
    step = (J / Pi).T @ torch.linalg.solve((J / Pi) @ J.T + eye(7), -f)
    assert (parameters(network, names) - before - step).abs().max() < 1e-10
    assert (network[0].weight == others).all()
    with pytest.raises(ValueError, match="which no learned parameter matches"):
        orfit.PerLayer(network, prior={"9.*": 2.0})


def random_gradients(rng, n, T, outputs, inputs):
    def normal(*shape):
        return torch.tensor(rng.standard_normal(shape))

    made = Outer(normal(n, T, inputs), normal(n, T, outputs))
    return made if T else Dense(normal(n, outputs, inputs))


@pytest.mark.parametrize("T", [1, 2, 0])
@pytest.mark.parametrize(("outputs", "inputs"), [(4, 6), (40, 30), (30, 50)])
def test_two_sides_are_a_kronecker_product(T, outputs, inputs, rng):
    R, n = 2.0, 5
    memory = TwoSided(outputs, inputs, torch.zeros(1, dtype=torch.float64), cut=0.0)
    seen = random_gradients(rng, 60, T, outputs, inputs)
    vars(memory).update(memory.with_gradients(seen, R))
    vars(memory).update(memory.look(R))
    g = seen.matrices
    A, S = torch.einsum("noi,noj->ij", g, g), torch.einsum("noi,npi->op", g, g)
    seen_along = torch.kron(S, A) / g.square().sum()
    P = R * torch.linalg.inv(seen_along + R * eye(outputs * inputs))
    G = random_gradients(rng, n, T, outputs, inputs)
    rows = G.matrices.flatten(1)
    K, moved = memory.against(G, R)
    size = float((rows @ rows.T).abs().max())
    assert (K - rows @ P @ rows.T).abs().max() < 1e-7 * size
    z = torch.tensor(rng.standard_normal(n))
    assert (moved(z).flatten() - P @ (rows.T @ z)).abs().max() < 1e-6 * size**0.5


@pytest.mark.parametrize("T", [1, 2, 0])
def test_inputs_alone_are_recursive_least_squares(T, rng):
    from orfit.networks.input_side import InputSide

    R, outputs, inputs = 2.0, 4, 6
    memory = InputSide(outputs, inputs, torch.zeros(1, dtype=torch.float64))
    A = torch.zeros(inputs, inputs, dtype=torch.float64)
    for _ in range(4):
        seen = random_gradients(rng, 7, T, outputs, inputs)
        vars(memory).update(memory.with_gradients(seen, R))
        A += torch.einsum("noi,noj->ij", seen.matrices, seen.matrices) / outputs
    P = torch.kron(eye(outputs), R * torch.linalg.inv(A + R * eye(inputs)))
    G = random_gradients(rng, 5, T, outputs, inputs)
    K, moved = memory.against(G, R)
    rows, z = G.matrices.flatten(1), torch.tensor(rng.standard_normal(5))
    assert (K - rows @ P @ rows.T).abs().max() < 1e-10
    assert (moved(z).flatten() - P @ (rows.T @ z)).abs().max() < 1e-10
    recursive = memory.P
    vars(memory).update(memory.look(R))
    assert (memory.P - recursive).abs().max() < 1e-12


@pytest.mark.parametrize("sides", ["both", "input"])
@every_network
def test_later_steps_are_along_one_p(name, network, X, sides):
    """GᵀPG, P G z and what std says come from the same P, whatever the layer."""
    network = copy.deepcopy(network)
    learner = orfit.PerLayer(network, noise=0.5, sides=sides, every=1)
    learner.remember([(X, CLASSES)])
    rank = learner.memory.rank
    assert rank > 0
    f, J = explicit(network, X, cost)
    before = parameters(network)
    update = learner.learn(X, CLASSES)
    moved = J @ (parameters(network) - before)  # = K (K + R)⁻¹ r, and that is r − what is left
    assert moved.numpy() == pytest.approx(update.residual - update.conflict, rel=0.02, abs=0.02)
    assert (update.variance - 0.5 < (J @ J.T).diagonal().numpy()).all(), "the past is damped"
    outputs, std = learner.predict(X, std=True)
    assert std.shape == outputs.shape == (7, 3)
    assert (std > 0).all()
