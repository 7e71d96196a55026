"""A memory for each layer: against explicit Jacobians and explicit Kronecker products."""

import copy

import numpy as np
import pytest

import orfit

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional

from orfit.networks import per_layer, two_sided, units
from orfit.networks.gradients import Dense, Outer, Product, length


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
    """A small CNN as they are written: in-place ReLU, batch norm, depthwise, grouped layers."""

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


@every_network
def test_the_first_step_is_that_of_explicit_jacobians(name, network, X):
    R, network = 0.7, copy.deepcopy(network).train()
    f, J = explicit(network, X, cost)
    before = parameters(network)
    learner = orfit.PerLayer(network, noise=R)
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


@every_network
def test_squares_fit_every_output(name, network, X):
    network = copy.deepcopy(network)
    f, J = explicit(network, X, lambda outputs: outputs)
    y = torch.ones(7, 3)
    before = parameters(network)
    orfit.PerLayer(network, noise=0.3, loss="squares").learn(X, y)
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


def written(way):
    """A step written out."""
    return (way.matrix if isinstance(way, Product) else way).flatten()


@pytest.mark.parametrize("T", [1, 2, 0])
@pytest.mark.parametrize(("outputs", "inputs"), [(4, 6), (40, 30), (30, 50)])
def test_two_sides_are_a_kronecker_product(T, outputs, inputs, rng, monkeypatch):
    monkeypatch.setattr(two_sided, "CUT", 0.0)
    R, n = 2.0, 5
    empty = two_sided.TwoSided.empty(outputs, inputs, torch.zeros(1, dtype=torch.float64))
    seen = random_gradients(rng, 60, T, outputs, inputs)
    for tensor, change in empty.accumulate(seen):
        change(tensor)
    memory = empty.refresh(R)
    g = seen.matrices
    A, S = torch.einsum("noi,noj->ij", g, g), torch.einsum("noi,npi->op", g, g)
    seen_along = torch.kron(S, A) / g.square().sum()
    P = R * torch.linalg.inv(seen_along + R * eye(outputs * inputs))
    G = random_gradients(rng, n, T, outputs, inputs)
    rows = G.matrices.flatten(1)
    K, direction = memory.project(G, R)
    size = float((rows @ rows.T).abs().max())
    assert (K - rows @ P @ rows.T).abs().max() < 1e-7 * size
    z = torch.tensor(rng.standard_normal(n))
    way = P @ (rows.T @ z)
    assert (written(direction(z)) - way).abs().max() < 1e-6 * size**0.5
    assert float(length(direction(z))) == pytest.approx(float(way.norm()), rel=1e-6)


@pytest.mark.parametrize("few", [600, 0])
@every_network
def test_later_steps_use_one_P(name, network, X, few, monkeypatch):
    """GᵀPG, P G z and std use the same P in all layers, also if vectors have variances only."""
    monkeypatch.setattr(units, "FEW", few)
    monkeypatch.setattr(per_layer, "REFRESH_AFTER", 1)
    network = copy.deepcopy(network)
    learner = orfit.PerLayer(network, noise=0.5)
    learner.remember([(X, CLASSES)])
    _, J = explicit(network, X, cost)
    before = parameters(network)
    update = learner.learn(X, CLASSES)
    assert update.rank > 0
    moved = J @ (parameters(network) - before)  # = K (K + R)⁻¹ r, and that is r − what is left
    assert moved.numpy() == pytest.approx(update.residual - update.conflict, rel=0.02, abs=0.02)
    assert (update.variance - 0.5 < (J @ J.T).diagonal().numpy()).all(), "the past is damped"
    outputs, std = learner.predict(X, std=True)
    assert std.shape == outputs.shape == (7, 3)
    assert (std > 0).all()


@every_network
def test_memory_stays_within_its_bound(name, network, X, monkeypatch):
    monkeypatch.setattr(per_layer, "REFRESH_AFTER", 1)
    learner = orfit.PerLayer(copy.deepcopy(network), noise=1e-3)
    for _ in range(3):
        learner.learn(X, CLASSES)
    sides_of = [(u.rows, u.size) for u in learner._plan.units]
    parameters_of = sum(rows * size for rows, size in sides_of)
    squares = sum(rows**2 + size**2 for rows, size in sides_of)
    assert learner.numbers <= 2 * squares + 2 * parameters_of


def test_remembering_moves_nothing_and_protects():
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3)).double()
    X, others = rng.standard_normal((2, 40, 6))
    X[:, 3:], others[:, :3] = 0.0, 0.0  # another part of the inputs, but the same hidden units
    y = rng.integers(0, 3, 40)
    far = []
    for protect in (True, False):
        mine = copy.deepcopy(network)
        learner = orfit.PerLayer(mine, noise=1.0, block=10)
        before = mine.state_dict()["0.weight"].clone()
        if protect:
            learner.remember([(X[:20], y[:20]), X[20:]])  # labelled, and not
        assert (mine.state_dict()["0.weight"] == before).all()
        assert learner.seen == 0
        outputs = learner.predict(X)
        learner.learn(others, y)
        far.append(np.linalg.norm(learner.predict(X) - outputs))
    assert far[0] < 0.75 * far[1]


def rotated(images, degrees):
    from scipy.ndimage import rotate

    small = images.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255
    turned = rotate(small, degrees, axes=(2, 1), reshape=False, order=1) if degrees else small
    return torch.tensor(turned.reshape(len(small), -1), dtype=torch.float32)


def test_a_second_domain_leaves_more_of_the_first_than_sgd_does():
    """Digits turned by 60 degrees, one pass; with whichever of two step sizes SGD does better."""
    digits = orfit.datasets.mnist_sample()
    order = np.random.default_rng(0).permutation(1500)
    domains = [rotated(digits.train_images[order], angle) for angle in (0, 60)]
    tests = [rotated(digits.test_images, angle) for angle in (0, 60)]
    y, wanted = torch.as_tensor(digits.train_labels[order]).long(), digits.test_labels

    def network():
        torch.manual_seed(0)
        hidden = nn.Linear(196, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
        return nn.Sequential(*hidden, nn.Linear(64, 10))

    def known(network):
        with torch.no_grad():
            return [np.mean(network(X).argmax(1).numpy() == wanted) for X in tests]

    ours = network()
    learner = orfit.PerLayer(ours, noise=2.0, block=10)
    for X in domains:
        learner.learn(X, y)
    others = []
    for lr in (0.2, 0.4):
        theirs = network()
        optimizer = torch.optim.SGD(theirs.parameters(), lr=lr)
        for X in domains:
            for rows in torch.arange(1500).split(10):
                optimizer.zero_grad()
                functional.cross_entropy(theirs(X[rows]), y[rows]).backward()
                optimizer.step()
        others.append(known(theirs))
    first, second = known(ours)
    assert first > max(kept for kept, _ in others) + 0.05
    assert second > max(learned for _, learned in others)


@every_network
def test_saved_it_goes_on_as_if_never_saved(name, network, X, tmp_path, monkeypatch):
    monkeypatch.setattr(per_layer, "REFRESH_AFTER", 10)
    one, other = copy.deepcopy(network), copy.deepcopy(network)
    learner = orfit.PerLayer(one, noise=0.5, prior={"*bias": 2.0})
    learner.learn(X, CLASSES)
    learner.learn(X, CLASSES.flip(0))
    learner.save(tmp_path / "learner")
    again = orfit.load(tmp_path / "learner", model=other)
    assert all((one.state_dict()[n] == v).all() for n, v in other.state_dict().items())
    state = copy.deepcopy(learner.state_dict())
    third = orfit.PerLayer(copy.deepcopy(one), noise=0.5, prior={"*bias": 2.0})
    third.load_state_dict(state)
    for each in (learner, again, third):
        each.learn(X, CLASSES)
    outputs = learner.predict(X)
    assert (again.predict(X) == outputs).all()
    assert (third.predict(X) == outputs).all()
    assert again.seen == third.seen == learner.seen == 21
    assert again.scale == learner.scale


def test_what_a_file_does_not_fit_is_refused(tmp_path):
    network = NETWORKS[0][1]
    learner = orfit.PerLayer(
        copy.deepcopy(network), loss=lambda outputs, y: (outputs[:, 0] - y).square()
    )
    learner.learn(NETWORKS[0][2], torch.zeros(7))
    learner.save(tmp_path / "learner")
    with pytest.raises(orfit.CheckpointError, match="loss=…"):
        orfit.load(tmp_path / "learner", model=network)
    with pytest.raises(orfit.CheckpointError, match="model=…"):
        orfit.load(tmp_path / "learner", loss=lambda outputs, y: outputs[:, 0])
    for wrong in (NETWORKS[1][1], nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3))):
        with pytest.raises(orfit.CheckpointError):
            orfit.load(tmp_path / "learner", model=wrong, loss=lambda outputs, y: outputs[:, 0])


class Own(nn.Module):
    """A parameter that belongs to no layer, and a layer that nobody knows."""

    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(5, dtype=torch.float64))
        self.scale = nn.Bilinear(5, 5, 4).double()
        self.head = nn.Linear(4, 3).double()

    def forward(self, x):
        return self.head(torch.tanh(self.scale(x + self.shift, x)))


def test_layers_that_are_not_known(monkeypatch):
    monkeypatch.setattr(per_layer, "REFRESH_AFTER", 1)
    X = NETWORKS[0][2]
    with pytest.raises(ValueError, match=r"no memory for shift .*register_layer"):
        orfit.PerLayer(Own())
    network = Own()
    frozen = orfit.PerLayer(network, noise=1.0, unsupported="freeze")
    assert frozen.frozen == ["shift", "scale.weight", "scale.bias"]
    before = parameters(network)
    frozen.learn(X, CLASSES)
    assert (parameters(network) == before).sum() == 5 + 100 + 4
    network = Own()
    f, J = explicit(network, X, cost)
    before = parameters(network)
    learner = orfit.PerLayer(network, noise=1.0, unsupported="jacobian")
    learner.learn(X, CLASSES)
    step = J.T @ torch.linalg.solve(J @ J.T + eye(7), -f)
    assert (parameters(network) - before - step).abs().max() < 1e-10
    assert learner.learn(X, CLASSES).novelty < 1


def test_a_layer_of_ones_own_is_held_against_torch():
    class Scaled(nn.Linear):
        def forward(self, x):
            return super().forward(2 * x)

    class Mine(Scaled):
        pass

    X = NETWORKS[0][2]
    network = nn.Sequential(Scaled(5, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    with pytest.raises(ValueError, match=r"the gradient of 0.weight is not what its layer"):
        orfit.PerLayer(network).learn(X, CLASSES)
    orfit.register_layer(Mine, lambda layer, x, e: (functional.pad(2 * x, (0, 1), value=1.0), e))
    network = nn.Sequential(Mine(5, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    f, J = explicit(network, X, cost)
    before = parameters(network)
    orfit.PerLayer(network, noise=1.0).learn(X, CLASSES)
    step = J.T @ torch.linalg.solve(J @ J.T + eye(7), -f)
    assert (parameters(network) - before - step).abs().max() < 1e-10
    for wrong in ({"layer": "Mine", "factors": len}, {"layer": Mine, "factors": len, "kind": "x"}):
        with pytest.raises(ValueError):
            orfit.register_layer(**wrong)


def test_datapoints_that_mix_are_found_out():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Linear(5, 5).double(), nn.Linear(5, 3).double()

        def forward(self, x):  # 7 datapoints of 7 positions: sizes do not tell
            return self.head(self.inner(x.transpose(0, 1)).tanh().transpose(0, 1).mean(dim=1))

    X = torch.randn(7, 7, 5, dtype=torch.float64)
    network = Transposed()
    with pytest.raises(ValueError, match="first axis is not that of the datapoints"):
        orfit.PerLayer(network).learn(X, CLASSES)
    with pytest.raises(ValueError, match="let the network be batch first"):
        orfit.PerLayer(network).learn(X[:, :6], CLASSES)


def test_a_block_that_fails_leaves_all_as_it_was(monkeypatch):
    _, network, X = NETWORKS[0]
    network = copy.deepcopy(network)
    learner = orfit.PerLayer(network, noise=1.0)
    learner.learn(X, CLASSES)
    before, kept = parameters(network), copy.deepcopy(learner.state_dict())
    for x, y, sentence in (
        (X * torch.nan, CLASSES, "X must be finite"),
        (X, CLASSES[:3], "7 datapoints, but y has 3"),
        (X, CLASSES + 1, "y has other classes"),
        (X, CLASSES / 2, "y must be the class of each datapoint"),
        (X[:, :4], CLASSES, "the network failed"),
    ):
        with pytest.raises(ValueError, match=sentence):
            learner.learn(x, y)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(per_layer, "plan_changes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(X, CLASSES)
    assert (parameters(network) == before).all()
    now = learner.state_dict()
    assert now.keys() == kept.keys()
    assert all((now[name] == tensor).all() for name, tensor in kept.items())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch.compile imports
def test_half_precision_compiled_and_wrapped():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 3))
    X = NETWORKS[0][2].float()
    f, J = explicit(network, X, cost)
    before = parameters(network)
    step = J.T @ torch.linalg.solve(J @ J.T + torch.eye(7), -f)
    learner = orfit.PerLayer(nn.DataParallel(torch.compile(network)), noise=1.0)
    assert learner.network is network
    with torch.autocast("cpu", torch.bfloat16):
        learner.learn(X, CLASSES)
    assert network[0].weight.dtype == learner._cell.state.memories[0].A.dtype == torch.float32
    assert float((parameters(network) - before - step).norm() / step.norm()) < 0.05
    inside = nn.Sequential(torch.compile(nn.Linear(5, 9)), nn.Tanh(), nn.Linear(9, 3))
    learner = orfit.PerLayer(inside, noise=1.0, parameters=["0.weight", "2.*"])
    assert learner.learn(X, CLASSES).residual.shape == (7,)


def test_a_loss_of_ones_own_and_arguments():
    _, network, X = NETWORKS[0]
    network = copy.deepcopy(network)
    own = copy.deepcopy(network)
    orfit.PerLayer(network, noise=1.0).learn(X, CLASSES)
    mine = orfit.PerLayer(
        own, noise=1.0, loss=lambda o, y: functional.cross_entropy(o, y, reduction="none")
    )
    with torch.inference_mode():
        mine.learn(X + 0, CLASSES)
    assert (parameters(own) == parameters(network)).all()
    with pytest.raises(ValueError, match='reduction="none"'):
        orfit.PerLayer(own, loss=functional.cross_entropy).learn(X, CLASSES)
    for wrong in ({"loss": "hinge"}, {"unsupported": "x"}, {"noise": 0.0},
                  {"block": 0}, {"parameters": ["9.*"]}):  # fmt: skip
        with pytest.raises(ValueError):
            orfit.PerLayer(own, **wrong)
    with pytest.raises(ValueError, match="must be a torch.nn.Module"):
        orfit.PerLayer(len)
    lines = nn.Sequential(nn.Linear(5, 1)).double()
    learner = orfit.PerLayer(lines, noise=0.1, loss="squares")
    for _ in range(3):
        learner.learn(X, X[:, 0])
    outputs, std = learner.predict(X, std=True)
    _, of_mean = learner.predict(X, std="mean")
    assert outputs.shape == (7,)
    assert (std > of_mean).all()
