"""A memory for each layer where networks, data and users are not as one expects."""

import copy
import pickle
import threading

import numpy as np
import pytest

import orfit
from interrupts import Interruption, alarmed

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from orfit.networks import per_layer
from orfit.networks.embedding import Embedding


def parameters(network):
    return nn.utils.parameters_to_vector(network.parameters()).detach().clone()


def explicit_step(network, X, y, R, learned=None):
    """P G (GᵀPG + R)⁻¹ r for P = 1, by autograd, on cross-entropy's root."""
    learned = [*network.parameters()] if learned is None else learned
    f = (1e-6 + 2 * functional.cross_entropy(network(X), y, reduction="none")).sqrt()
    rows = [torch.autograd.grad(each, learned, retain_graph=True) for each in f]
    J = torch.stack([torch.cat([g.to_dense().flatten() for g in row]) for row in rows])
    n = len(f)
    return J.T @ torch.linalg.solve(J @ J.T + R * torch.eye(n, dtype=J.dtype), -f.detach())


class Attentive(nn.Module):
    def __init__(self, **kind):
        super().__init__()
        self.mix = nn.MultiheadAttention(6, 2, batch_first=True, **kind)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        key = x[..., :4] if self.mix.kdim == 4 else x
        return self.head(self.mix(x, key, x)[0].mean(dim=1))


@pytest.mark.parametrize(
    "kind", [{"add_zero_attn": True}, {"add_bias_kv": True}, {"kdim": 4}], ids=str
)
@pytest.mark.parametrize("unsupported", ["freeze", "jacobian"])
def test_attention_of_an_unknown_kind_is_left_as_it_is(kind, unsupported):
    torch.manual_seed(0)
    network = Attentive(**kind).double().eval()
    X, y = torch.randn(5, 4, 6, dtype=torch.float64), torch.arange(5) % 3
    expected = network(X).detach().numpy()
    learned = [*network.head.parameters()] if unsupported == "freeze" else None
    step = explicit_step(network, X, y, 2.0, learned)
    learner = orfit.PerLayer(network, 2.0, unsupported=unsupported)
    assert np.abs(learner.predict(X) - expected).max() < 1e-12
    assert np.abs(learner.predict(X, std=True)[0] - expected).max() < 1e-12
    moving = network.head if unsupported == "freeze" else network
    before = parameters(moving)
    learner.learn(X, y)
    assert (parameters(moving) - before - step).abs().max() < 1e-12


class Plain(nn.Sequential):
    def __init__(self, size=6, hidden=9, classes=3):
        super().__init__(nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, classes))


def pickled(learner):
    return pickle.loads(pickle.dumps(learner))


def data(n=60, size=6, seed=0):
    rng = torch.Generator().manual_seed(seed)
    X = torch.randn(n, size, generator=rng)
    return X, (X[:, 0] > 0).long() + (X[:, 1] > 0).long()


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_a_copy_goes_on_by_itself(copied):
    torch.manual_seed(0)
    learner, (X, y) = orfit.PerLayer(Plain(), 1.0, block=10), data()
    learner.learn(X, y)
    twin = copied(learner)
    before = parameters(learner.network)
    told = twin.learn(X, y)
    assert torch.equal(parameters(learner.network), before)
    assert (learner.learn(X, y).prediction == told.prediction).all()
    assert torch.equal(parameters(learner.network), parameters(twin.network))
    for one, other in zip(learner.predict(X, std=True), twin.predict(X, std=True), strict=True):
        assert (one == other).all()


def test_a_state_stays_what_it_was():
    torch.manual_seed(0)
    network = Plain()
    learner, (X, y) = orfit.PerLayer(network, 1.0, block=10), data()
    learner.learn(X, y)
    state, w = learner.state_dict(), copy.deepcopy(network.state_dict())
    first = learner.learn(X, y).prediction
    network.load_state_dict(w)
    learner.load_state_dict(state)
    assert (learner.learn(X, y).prediction == first).all()


def test_a_state_that_does_not_fit_is_refused():
    learner, (X, y) = orfit.PerLayer(Plain(), 1.0), data()
    learner.learn(X, y)
    state = learner.state_dict()
    with pytest.raises(ValueError, match=r"noise of 1, not 2"):
        orfit.PerLayer(Plain(), 2.0).load_state_dict(state)
    with pytest.raises(ValueError, match="must have shape"):
        orfit.PerLayer(Plain(hidden=8), 1.0).load_state_dict(state)
    for name, tensor in state.items():
        lacking = {n: t for n, t in state.items() if n != name}
        for wrong in (lacking, state | {name + "x": tensor}, state | {name: tensor.to(torch.int8)}):
            with pytest.raises(ValueError):
                learner.load_state_dict(wrong)
    assert all((learner.state_dict()[name] == tensor).all() for name, tensor in state.items())


class Bag(nn.Module):
    def __init__(self, **kind):
        super().__init__()
        self.words, self.head = nn.Embedding(7, 4, **kind), nn.Linear(4, 3)

    def forward(self, ids):
        return self.head(self.words(ids).sum(dim=1) * 0.3)


def test_a_word_that_comes_often_counts_by_its_whole_gradient():
    torch.manual_seed(0)
    network = Bag().double()
    ids, y = torch.randint(0, 7, (20, 9)), torch.arange(20) % 3
    ids[:, 3:] = 0
    learner = orfit.PerLayer(network, 5.0)
    learner.remember([(ids, y)])
    table = next(m for m in learner._cell.state.memories if isinstance(m, Embedding))
    f = (1e-6 + 2 * functional.cross_entropy(network(ids), y, reduction="none")).sqrt()
    G = [torch.autograd.grad(each, network.words.weight, retain_graph=True)[0] for each in f]
    squares = sum(g.square().sum(dim=1) for g in G)
    assert torch.allclose(table.a, squares, rtol=1e-12, atol=0)
    assert torch.allclose(table.S, sum(g.T @ g for g in G), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "network",
    [Bag(sparse=True), nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 3)))],
    ids=["sparse", "weight norm"],
)
def test_parameters_that_no_rule_speaks_of_take_a_pass_each(network):
    torch.manual_seed(0)
    network = copy.deepcopy(network).double()
    bag = isinstance(network, Bag)
    X = torch.randint(0, 7, (5, 4)) if bag else torch.randn(5, 6, dtype=torch.float64)
    y = torch.arange(5) % 3
    step = explicit_step(network, X, y, 2.0)
    with pytest.raises(ValueError, match="sparse" if bag else "computed from other parameters"):
        orfit.PerLayer(network, 2.0)
    before = parameters(network)
    orfit.PerLayer(network, 2.0, unsupported="jacobian").learn(X, y)
    assert (parameters(network) - before - step).abs().max() < 1e-12


def test_a_use_that_shows_at_some_datapoints_alone_is_found_out():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(6, 3)

        def forward(self, x):
            some = (torch.arange(len(x)) > 0)[:, None]
            return self.line(x) + some * functional.linear(x, self.line.weight)

    X, y = data(10)
    with pytest.raises(ValueError, match="used elsewhere"):
        orfit.PerLayer(Twice()).learn(X, y)


def test_positions_that_are_the_same_for_all():
    class Placed(nn.Module):
        def __init__(self, expand):
            super().__init__()
            self.expand, self.words, self.places = expand, nn.Embedding(7, 4), nn.Embedding(5, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, ids):
            places = torch.arange(ids.shape[1])[None]
            places = places.expand(len(ids), -1) if self.expand else places
            return self.head((self.words(ids) + self.places(places)).tanh().mean(dim=1))

    ids, y = torch.randint(0, 7, (6, 5)), torch.arange(6) % 3
    with pytest.raises(ValueError, match="expand what is the same"):
        orfit.PerLayer(Placed(False)).learn(ids, y)
    assert orfit.PerLayer(Placed(True)).learn(ids, y).residual.shape == (6,)
    left_out = orfit.PerLayer(Placed(False), parameters=lambda name: not name.startswith("places"))
    assert left_out.learn(ids, y).residual.shape == (6,)


def test_a_network_that_was_changed_since_is_refused():
    X, y = data()
    network = Plain()
    learner = orfit.PerLayer(network)
    learner.learn(X, y)
    network[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match="no longer requires gradients"):
        learner.learn(X, y)
    network[0].weight.requires_grad_(True)
    learner.learn(X, y)
    network.double()
    with pytest.raises(ValueError, match="change the dtype before"):
        learner.learn(X, y)
    network.float()
    network[2] = nn.Linear(9, 4)
    with pytest.raises(ValueError, match="no longer a parameter"):
        learner.learn(X, y)
    assert learner.seen == 120


def test_one_that_is_made_in_inference_mode_learns():
    X, y = data()
    network = Plain()
    with torch.inference_mode():
        learner = orfit.PerLayer(network)
    learner.learn(X, y)
    learner.learn(X, y)
    assert learner.seen == 120


def test_columns_of_one_output_and_loaders_without_labels():
    torch.manual_seed(0)
    X, _ = data()
    y = X[:, :1] * 2
    pair = [nn.Linear(6, 1), nn.Linear(6, 1)]
    pair[1].load_state_dict(pair[0].state_dict())
    first, second = (orfit.PerLayer(one, 0.1, loss="squares") for one in pair)
    assert (first.learn(X, y).prediction == second.learn(X, y[:, 0]).prediction).all()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X), 16)
    remembers = orfit.PerLayer(Plain())
    remembers.remember(loader)
    assert remembers._cell.state.remembered == 60
    f, spread = remembers.predict(X[:0], std=True)
    assert f.shape == spread.shape == (0, 3)


def test_raw_units_in_single_precision_raise_nothing_from_within():
    torch.manual_seed(0)
    X = torch.rand(1500, 30) * 255
    y = X @ torch.randn(30) / 100
    y = y - y.mean() + 0.5 * torch.randn(1500)
    learner = orfit.PerLayer(nn.Linear(30, 1), 0.25, loss="squares")
    with pytest.warns(orfit.ScaleWarning, match="float64|scale"):
        learner.learn(X, y)
    assert learner.seen == 1500
    assert np.isfinite(learner.predict(X)).all()


@pytest.mark.parametrize("noise", [5.0, 0.1, 0.01])
def test_how_far_it_went_is_told_right_in_single_precision(noise):
    torch.manual_seed(0)
    X = torch.randn(2000, 6)
    y = torch.tanh(X @ torch.randn(6)) + 0.1 * torch.randn(2000)
    network = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
    learner = orfit.PerLayer(network, noise, loss="squares", block=50)
    for start in range(0, 2000, 50):
        before = parameters(network)
        told = learner.learn(X[start : start + 50], y[start : start + 50]).step
    assert told == pytest.approx(float((parameters(network) - before).norm()), rel=0.02)


def test_two_at_a_time_give_the_threads_back():
    threadpoolctl = pytest.importorskip("threadpoolctl")

    def counts():
        libraries = threadpoolctl.threadpool_info()
        return [one["num_threads"] for one in libraries if one["internal_api"] == "openblas"]

    inside, leave = threading.Event(), threading.Event()

    def slow(outputs, y):
        inside.set()
        leave.wait(30)
        return functional.cross_entropy(outputs, y, reduction="none")

    def quick(outputs, y):
        return functional.cross_entropy(outputs, y, reduction="none")

    X, y = data(5)
    before = counts()
    for first, second in ((slow, quick), (quick, slow)):
        inside.clear(), leave.clear()
        learners = [orfit.PerLayer(Plain(), loss=loss) for loss in (first, second)]
        threads = [threading.Thread(target=one.learn, args=(X, y)) for one in learners]
        for thread in threads:
            thread.start()
        inside.wait(30)
        leave.set()
        for thread in threads:
            thread.join()
        assert counts() == before


class Interrupted:
    """A learner of ten blocks, and all that an exception could leave behind."""

    def __init__(self):
        torch.manual_seed(0)
        self.X, self.classes = torch.randn(40, 6), torch.arange(40) % 3
        layers = nn.Linear(6, 12), nn.Dropout(0.0), nn.Tanh(), nn.Linear(12, 3)
        self.network = nn.Sequential(*layers).train()
        self.learner = orfit.PerLayer(self.network, noise=1.0)

    def learn(self, blocks=10):
        for start in range(self.learner.seen, 4 * blocks, 4):
            self.learner.learn(self.X[start : start + 4], self.classes[start : start + 4])
        return self

    def pending_changes(self, monkeypatch):
        """Commit one more block without its changes in place, and return these."""
        start = self.learner.seen
        with monkeypatch.context() as patch:
            patch.setattr(per_layer, "apply_pending", lambda s: None)
            self.learner.learn(self.X[start : start + 4], self.classes[start : start + 4])
        return self.learner._cell.state.pending

    def everything(self):
        tensors, parts = self.learner.state_dict(), list(self.network.modules())
        tensors |= self.network.state_dict()
        found = {name: tensor.detach().numpy().tobytes() for name, tensor in tensors.items()}
        hooks = [len(part._forward_hooks) for part in parts]
        modes = [part.training for part in parts], torch.is_grad_enabled()
        return found, hooks, modes


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("alarms", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_alarms(alarms):
    """Each block was learned or it was not; the network and torch are in the modes they were in."""
    expected = [Interrupted().learn(blocks).everything() for blocks in range(11)]
    came, rng = 0, np.random.default_rng(0)
    while came < alarms:
        one = Interrupted()
        if alarmed(rng.uniform(1e-5, 0.02), one.learn) is None:
            came += 1
            assert one.everything() == expected[one.learner.seen // 4]
            assert came % 20 or one.learn().everything() == expected[10]


@pytest.mark.parametrize("before", [True, False])
def test_the_next_call_finishes_an_interrupted_block(before, monkeypatch):
    """The exception comes right before, or right after, each change in place."""
    expected = Interrupted().learn(3).everything()
    count = len(Interrupted().learn(1).pending_changes(monkeypatch))
    assert count == 8  # A, S, a weight and a bias of each layer
    for index in range(count):
        one = Interrupted().learn(2)
        changes = one.pending_changes(monkeypatch)
        (tensor, change), version = changes[index]

        def interrupted(tensor, change=change, changes=changes, index=index, version=version):
            changes[index] = (tensor, change), version
            if not before:
                change(tensor)
            raise Interruption

        changes[index] = (tensor, interrupted), version
        with pytest.raises(Interruption):
            one.learner._finish()
        assert one.learner.seen == 12
        assert one.everything() == expected


def test_a_step_can_be_read_but_not_changed_from_inside():
    """A loss function stands for a signal handler: it reads the state before the step."""
    X, y = data(20)
    found = []

    def loss(outputs, labels):
        found.append((learner.seen, learner.scale, learner.predict(X, std=True)[1]))
        with pytest.raises(RuntimeError, match="from inside its own step"):
            learner.learn(X, y)
        return functional.cross_entropy(outputs, labels, reduction="none")

    torch.manual_seed(0)
    learner = orfit.PerLayer(Plain(), 1.0, loss=loss)
    spreads = [learner.predict(X, std=True)[1]]
    learner.learn(X, y)
    scale = learner.scale
    spreads.append(learner.predict(X, std=True)[1])
    learner.learn(X, y)
    assert [each[:2] for each in found] == [(0, 1.0), (20, scale)]
    assert all((each[2] == spread).all() for each, spread in zip(found, spreads, strict=True))


def test_a_partly_moved_network_is_not_read():
    one = Interrupted().learn(1)
    changes = one.learner._cell.state.pending = [((torch.zeros(1), None), 0)]

    def read(tensor):
        tensor.add_(1)
        with pytest.raises(RuntimeError, match="in the middle of a step"):
            one.learner.predict(one.X)

    changes[0] = (changes[0][0][0], read), 0
    assert one.learner.seen == 4
    assert one.learner._cell.state.pending == []
