"""Torch modules as models: gradients, the theorems on the tangent, saving, refusing."""

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from orfit.memory import Latest, Principal, Random, Unlimited
from orfit.memory.frame import orthonormalize
from orfit.store import HOST, Store

torch = pytest.importorskip("torch")
from torch import nn

from orfit.store.torch import TORCH

seeds = st.integers(0, 2**32 - 1)


def mlp(inputs=5, outputs=1, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, outputs)).to(dtype)


class Attention(nn.Module):
    """Self-attention over four tokens of size 6, then the mean of them."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(6, 18), nn.Linear(6, 3)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mixed = torch.softmax(q @ k.transpose(-1, -2) / 6**0.5, dim=-1) @ v
        return self.out(mixed.mean(dim=1))


def networks():
    torch.manual_seed(1)
    layers = nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.AvgPool2d(2)
    conv = nn.Sequential(*layers, nn.Flatten(), nn.Linear(12, 2))
    conv[1].running_mean += 0.3
    yield "mlp", mlp(), (5,)
    yield "mlp, three outputs", mlp(outputs=3), (5,)
    yield "cnn with batch norm", conv.double(), (1, 6, 6)
    yield "attention", Attention().double(), (4, 6)


NETWORKS = pytest.mark.parametrize(("name", "module", "shape"), list(networks()))


def data(rng, n, shape=(5,), outputs=None):
    X = rng.standard_normal((n, *shape))
    return X, rng.standard_normal(n if outputs is None else (n, outputs))


@NETWORKS
def test_gradients_against_finite_differences(name, module, shape, rng):
    model = orfit.TorchModel(module)
    X = torch.as_tensor(rng.standard_normal((3, *shape)))
    w = model.initial()
    F, G = model.linearize(w, X)
    assert F == pytest.approx(model.predict(w, X))
    assert G.shape == (model.size, F.size)
    for i in rng.choice(model.size, 12, replace=False):
        step = torch.zeros_like(w)
        step[i] = 1e-6
        slope = (model.predict(w + step, X) - model.predict(w - step, X)) / 2e-6
        assert G[i].numpy() == pytest.approx(slope.reshape(-1), rel=1e-6, abs=1e-8)


@NETWORKS
def test_one_by_one_in_chunks_or_all_at_once(name, module, shape, rng):
    X = torch.as_tensor(rng.standard_normal((5, *shape)))
    model, chunked = orfit.TorchModel(module), orfit.TorchModel(module, chunk_size=1)
    F, G = model.linearize(model.initial(), X)
    F_chunked, G_chunked = chunked.linearize(model.initial(), X)
    assert F_chunked == pytest.approx(F, rel=1e-13)
    assert torch.allclose(G_chunked, G, rtol=1e-12, atol=1e-13)
    single = [model.linearize(model.initial(), x[None]) for x in X]
    assert np.concatenate([f for f, _ in single]) == pytest.approx(F, rel=1e-13)
    assert torch.allclose(torch.cat([g for _, g in single], dim=1), G, rtol=1e-12, atol=1e-13)


@NETWORKS
@pytest.mark.parametrize(
    ("memory", "noise"), [(Unlimited, 0.0), (lambda: Principal(7), 0.0), (lambda: Latest(7), 0.0),
                          (lambda: Random(7), 0.0), (lambda: Principal(7), 0.1), (Unlimited, 0.1)]
)  # fmt: skip
def test_a_tangent_model_is_a_linear_one(name, module, shape, memory, noise, rng):
    """The same learner on its gradients as features gives the same numbers, step by step."""
    tangent = orfit.TorchModel(module, tangent=True)
    start = tangent.initial()
    outputs = tangent.predict(start, torch.zeros(1, *shape, dtype=torch.float64)).shape[1:]
    X, Y = data(rng, 12, shape, *outputs)

    def offset(X):
        return tangent.predict(start, torch.as_tensor(X))

    def gradients(X):
        G = tangent.linearize(start, torch.as_tensor(X))[1].numpy()
        return G.T.reshape(len(X), *outputs, -1).swapaxes(1, -1) if outputs else G.T

    linear = orfit.Linear(tangent.size, features=gradients)
    ours = orfit.ORFit(tangent, memory(), noise=noise)
    theirs = orfit.ORFit(linear, memory(), noise=noise)
    for block in (slice(0, 1), slice(1, 2), slice(2, 6)):
        update = ours.learn_batch(X[block], Y[block])
        expected = theirs.learn_batch(X[block], Y[block] - offset(X[block]))
        assert update.novelty == pytest.approx(expected.novelty, abs=1e-9)
    ours.learn_each(X[6:], Y[6:])
    theirs.learn_each(X[6:], Y[6:] - offset(X[6:]))
    assert (ours.w - start).numpy() == pytest.approx(theirs.w, abs=1e-9)
    assert ours.predict(X) == pytest.approx(theirs.predict(X) + offset(X), abs=1e-9)
    assert ours.memory.sigma == pytest.approx(theirs.memory.sigma)


@given(seeds, st.integers(1, 12))
def test_on_the_tangent_nothing_is_forgotten_and_w_is_nearest(seed, n):
    """lem:step and thm:implicit_bias, on a network."""
    rng = np.random.default_rng(seed)
    X, y = data(rng, n)
    model = orfit.TorchModel(mlp(), tangent=True)
    learner = orfit.ORFit(model)
    for x, label in zip(X, y, strict=True):
        learner.learn(x, label)
    assert learner.predict(X) == pytest.approx(y, abs=1e-9)
    f, G = model.linearize(model.initial(), torch.as_tensor(X))
    nearest = np.linalg.lstsq(G.numpy().T, y - f, rcond=None)[0]
    assert (learner.w - model.initial()).numpy() == pytest.approx(nearest, abs=1e-8)


def test_on_the_tangent_rls_and_the_kalman_filter_are_the_limit(rng):
    X, y = data(rng, 8)
    model = orfit.TorchModel(mlp(), tangent=True)
    ours, noisy = orfit.ORFit(model), orfit.ORFit(model, noise=0.3)
    rls, filter_ = orfit.RLS(model, forgetting=0), orfit.EKF(model, noise=0.3)
    for learner in (ours, noisy, rls, filter_):
        learner.learn_each(X, y)
    assert rls.w.numpy() == pytest.approx(ours.w.numpy(), abs=1e-9)
    assert filter_.w.numpy() == pytest.approx(noisy.w.numpy(), abs=1e-9)


def test_a_kalman_filter_with_a_noise_for_each_output(rng):
    X, Y = data(rng, 4, (5,), 3)
    R = np.diag([0.1, 0.0, 0.4])
    one, other = (
        orfit.EKF(orfit.TorchModel(mlp(outputs=3), tangent=True), noise=n) for n in (R, 0)
    )
    for learner in (one, other):
        learner.learn_each(X, Y)
    assert one.predict(X)[:, 1] == pytest.approx(Y[:, 1], abs=1e-8)
    assert other.predict(X) == pytest.approx(Y, abs=1e-8)


def test_at_current_parameters_it_is_ntk_rls(rng):
    """thm:implicit_bias_ntk."""
    X, y = data(rng, 8)
    ours = orfit.ORFit(orfit.TorchModel(mlp()))
    theirs = orfit.NTKRLS(orfit.TorchModel(mlp()), forgetting=0)
    ours.learn_each(X, y)
    theirs.learn_each(X, y)
    assert ours.w.numpy() == pytest.approx(theirs.w.numpy(), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_are_the_modules(dtype, rng):
    X, y = data(rng, 20)
    learner = orfit.ORFit(orfit.TorchModel(mlp(dtype=dtype), tangent=True), 6)
    learner.learn_each(X, y)
    eps = torch.finfo(dtype).eps
    assert learner.w.dtype == learner.memory.U.dtype == dtype
    rows = learner._cell.state.store.rows
    assert isinstance(rows, np.ndarray)  # of a module on the CPU
    assert rows.dtype == str(dtype).removeprefix("torch.")
    assert learner.memory.U.device == next(learner.model.module.parameters()).device
    assert (learner.memory.U.T @ learner.memory.U - torch.eye(6)).abs().max() < 50 * eps
    assert abs(learner.predict(X[-1]) - y[-1]) < 100 * eps


def test_frozen_and_filtered_parameters_never_move(rng):
    X, y = data(rng, 6)
    module = mlp()
    module[0].bias.requires_grad_(False)
    model = orfit.TorchModel(module, parameters=["0.*"])
    assert model.size == 35  # 0.weight, neither the frozen bias nor the other layer
    before = {name: values.clone() for name, values in module.state_dict().items()}
    learner = orfit.ORFit(model)
    learner.learn_each(X, y)
    assert all((module.state_dict()[name] == before[name]).all() for name in before), "not synced"
    learner.sync()
    moved = {name for name in before if (module.state_dict()[name] != before[name]).any()}
    assert moved == {"0.weight"}
    assert learner.predict(X) == pytest.approx(module(torch.as_tensor(X))[:, 0].detach().numpy())
    assert orfit.TorchModel(module, parameters=lambda name: "bias" in name).size == 1


def test_state_dict_in_and_out(rng):
    X, y = data(rng, 4)
    module, other = mlp(), mlp(seed=3)
    model = orfit.TorchModel(module)
    learner = orfit.ORFit(model)
    learner.learn_each(X, y)
    state = model.state_dict(learner.w)
    other.load_state_dict(state)
    assert other(torch.as_tensor(X))[:, 0].detach().numpy() == pytest.approx(learner.predict(X))
    assert (model.vector(state) == learner.w).all()
    again = orfit.ORFit(orfit.TorchModel(mlp(seed=5)), w0=model.vector(state))
    assert again.predict(X) == pytest.approx(learner.predict(X))


def test_a_tangent_model_is_not_written_back():
    learner = orfit.ORFit(orfit.TorchModel(mlp(), tangent=True))
    with pytest.raises(ValueError, match="predict with the learner"):
        learner.sync()
    with pytest.raises(ValueError, match="has no module to write w into"):
        orfit.ORFit(orfit.Linear(3)).sync()


def test_only_the_labelled_output(rng):
    X, classes = rng.standard_normal((9, 5)), rng.integers(0, 3, 9)
    model = orfit.TorchModel(mlp(outputs=3), tangent=True, outputs="label")
    learner = orfit.ORFit(model)
    update = learner.learn(X[0], classes[0])
    before = orfit.TorchModel(mlp(outputs=3)).predict(model.initial(), torch.as_tensor(X[:1]))
    assert update.prediction == pytest.approx(before[0, classes[0]])
    assert update.residual == pytest.approx(1 - before[0, classes[0]])
    learner.learn_batch(X[1:5], classes[1:5])
    learner.learn_each(X[5:], classes[5:])
    assert learner.memory.rank == 9, "one gradient for each datapoint"
    logits = learner.predict(X)
    assert logits.shape == (9, 3)
    assert logits[range(9), classes] == pytest.approx(1.0)
    for wrong in (0.5, -1, [0, 1]):
        with pytest.raises(ValueError, match="y must be a class"):
            learner.learn(X[0], wrong)


@pytest.mark.parametrize("prior", [4.0, {"0.*": 9.0, "2.bias": 0.5}, "each"])
def test_a_prior_makes_parameters_stiff(prior, rng):
    """The interpolator nearest to w0 in the norm of Π, in closed form."""
    X, y = data(rng, 6)
    module = mlp()
    plain = orfit.TorchModel(module, tangent=True)
    Pi = np.full(plain.size, 4.0)
    if prior == "each":
        prior = Pi = rng.uniform(0.1, 10, plain.size)
    elif isinstance(prior, dict):
        Pi = np.concatenate([np.full(35, 9.0), np.full(7, 9.0), np.full(7, 1.0), [0.5]])
    stiff = orfit.TorchModel(module, tangent=True, prior=prior)
    learner = orfit.ORFit(stiff)
    learner.learn_each(X, y)
    f, G = plain.linearize(plain.initial(), torch.as_tensor(X))
    G = G.numpy() / Pi[:, None]
    expected = G @ np.linalg.solve(G.T @ (G * Pi[:, None]), y - f)
    moved = plain.vector(stiff.state_dict(learner.w)) - plain.initial()
    assert moved.numpy() == pytest.approx(expected, abs=1e-9)
    rls = orfit.RLS(plain, prior=Pi, forgetting=0)
    rls.learn_each(X, y)
    assert (rls.w - plain.initial()).numpy() == pytest.approx(expected, abs=1e-8)


def test_batch_norm_is_in_eval_mode_and_left_alone(rng):
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    module[1].running_mean += 0.5
    module.train()
    before = module[1].running_mean.clone()
    learner = orfit.ORFit(orfit.TorchModel(module), 3)
    X, y = data(rng, 5)
    learner.learn_each(X, y)
    learner.learn_batch(X, y)
    assert (module[1].running_mean == before).all()
    assert module.training
    assert module[1].training
    one, many = learner.predict(X[0]), learner.predict(X)
    assert one == pytest.approx(many[0], rel=1e-12)


class Tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, x):
        return self.layer(x), x


def with_dropout():
    return nn.Sequential(nn.Linear(5, 1), nn.Dropout(0.5))


def flattened():
    return nn.Sequential(nn.Flatten(0), nn.Linear(10, 3))


@pytest.mark.parametrize(
    ("module", "settings", "sentence"),
    [
        (with_dropout, {}, "module.eval()"),
        (nn.ReLU, {}, "no parameter of the module is to be learned"),
        (mlp, {"parameters": ["9.*"]}, "it has 0.weight, 0.bias"),
        (lambda: mlp(dtype=torch.bfloat16), {}, "torch.bfloat16 on cpu"),
        (lambda: len, {}, "module must be a torch.nn.Module"),
        (mlp, {"outputs": "some"}, 'must be "all" or "label"'),
        (mlp, {"prior": {"9": 1.0}}, "which no learned parameter matches"),
        (mlp, {"prior": -1.0}, "prior must be positive"),
        (mlp, {"chunk_size": 0}, "chunk_size must be at least 1"),
        (Tuple, {}, "it returned tuple"),
        (flattened, {}, "for 2 inputs it returned (3,)"),
    ],
)
def test_a_module_that_cannot_be_used(module, settings, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        orfit.ORFit(orfit.TorchModel(module(), **settings)).predict(np.ones((2, 5)))


def test_dropout_in_eval_mode_is_fine(rng):
    module = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 1)).eval()
    learner = orfit.ORFit(orfit.TorchModel(module, tangent=True))
    X, y = data(rng, 3)
    learner.learn_each(X, y)
    assert learner.predict(X) == pytest.approx(y, abs=1e-4)


def test_input_is_checked_before_anything_changes(rng):
    learner = orfit.ORFit(orfit.TorchModel(mlp()))
    learner.learn(rng.standard_normal(5), 1.0)
    w = learner.w
    for x, y, sentence in (
        ([np.nan] * 5, 1.0, "x must be finite"),
        (torch.full((5,), torch.inf), 1.0, "x must be finite"),
        (np.ones(4), 1.0, "x must have shape"),
        (np.ones(5), [1.0, 2.0], "y must be a single number"),
        (["a"] * 5, 1.0, "x must hold real numbers"),
    ):
        with pytest.raises(ValueError, match=sentence):
            learner.learn(x, y)
    assert (learner.w == w).all()
    assert learner.seen == 1


def test_tensors_and_tokens_go_in(rng):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.Linear(12, 1)).double()
    learner = orfit.ORFit(orfit.TorchModel(module, tangent=True))
    X = torch.randint(0, 11, (5, 3))
    y = torch.randn(5, dtype=torch.float64, requires_grad=True)
    learner.learn_batch(X, y)
    assert learner.predict(X) == pytest.approx(y.detach().numpy())
    assert learner.predict(X.numpy()[0]) == pytest.approx(float(y.detach()[0]))


@pytest.mark.parametrize(
    "make",
    [
        lambda model: orfit.ORFit(model, 3, noise=0.1),
        lambda model: orfit.OGD(model, 3, lr=0.01, steps=2),
        lambda model: orfit.SGD(model, lr=0.01),
        orfit.OneStepSGD,
        orfit.NTKRLS,
        lambda model: orfit.EKF(model, noise=0.1),
        orfit.Greedy,
    ],
)
def test_every_learner_takes_a_network(make, rng, tmp_path):
    X, y = data(rng, 8)
    learner = make(orfit.TorchModel(mlp()))
    learner.learn_each(X[:3], y[:3])
    learner.learn_batch(X[3:6], y[3:6])
    learner.save(tmp_path / "learner")
    again = orfit.load(tmp_path / "learner", model=orfit.TorchModel(mlp()))
    for each in (learner, again):
        each.learn_each(X[6:], y[6:])
    assert (np.asarray(again.w) == np.asarray(learner.w)).all()
    assert (again.predict(X) == learner.predict(X)).all()


SCRIPT = """
import sys, numpy as np, orfit, torch
sys.path.insert(0, {tests!r})
from test_torch import data, mlp
X, y = data(np.random.default_rng(5), 20)
for tangent in (False, True):
    path = f"learner {{tangent}}"
    model = orfit.TorchModel(mlp(dtype=torch.float32), tangent=tangent)
    if sys.argv[1] == "save":
        learner = orfit.ORFit(model, 6)
        learner.learn_each(X[:10], y[:10])
        learner.save(path)
    else:
        learner = orfit.load(path, model=model)
    learner.learn_each(X[10:], y[10:])
    learner.save(path + "." + sys.argv[1])
"""


@pytest.mark.slow
def test_saved_in_one_process_it_goes_on_in_another(tmp_path):
    from pathlib import Path

    script = SCRIPT.format(tests=str(Path(__file__).parent))
    for what in ("save", "go on"):
        subprocess.run([sys.executable, "-c", script, what], check=True, cwd=tmp_path)
    for tangent in (False, True):
        files = [tmp_path / f"learner {tangent}.{what}" for what in ("save", "go on")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_a_tangent_elsewhere_is_refused(tmp_path, rng):
    learner = orfit.ORFit(orfit.TorchModel(mlp(), tangent=True))
    learner.learn(rng.standard_normal(5), 1.0)
    learner.save(tmp_path / "learner")
    with pytest.raises(orfit.CheckpointError, match="started_at"):
        orfit.load(tmp_path / "learner", model=orfit.TorchModel(mlp(seed=4), tangent=True))
    with pytest.raises(orfit.CheckpointError, match="pass the model to load"):
        orfit.load(tmp_path / "learner")


def test_a_module_as_a_feature_map(rng):
    """Heads on frozen features."""
    body = mlp(outputs=6).eval()

    def features(X):
        with torch.no_grad():
            return body(torch.as_tensor(X))

    learner = orfit.ORFit(orfit.Linear(6, heads=3, features=features))
    X, Y = data(rng, 4, (5,), 3)
    learner.learn_each(X, Y)
    assert learner.predict(X) == pytest.approx(Y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seeds, st.integers(1, 30), st.integers(0, 5), st.integers(1, 4), st.floats(-30, 30))
def test_operations_on_tensors_are_those_on_arrays(dtype, seed, p, k, n, exponent):
    rng = np.random.default_rng(seed)
    single = dtype == torch.float32
    eps = torch.finfo(dtype).eps
    scale = 10.0**exponent if not single else 10.0 ** (exponent / 3)
    kind = np.float32 if single else np.float64
    A, G = (np.asfortranarray(rng.standard_normal((p, c)), kind) for c in (k, n))
    G *= kind(scale)
    c = rng.standard_normal((k, n))
    a, g = torch.from_numpy(A.T.copy()).T, torch.from_numpy(G.T.copy()).T

    def close(tensor, array, size):
        difference = np.abs(np.asarray(tensor, float) - np.asarray(array, float))
        assert difference.max(initial=0.0) <= 20 * p * eps * size

    close(TORCH.inner(a, g), HOST.inner(A, G), 10 * scale)
    close(TORCH.gram(g), HOST.gram(G), 50 * scale**2)
    close(TORCH.combine(a, c), HOST.combine(A, c), 20)
    close(TORCH.subtract(g, a, c), HOST.subtract(G, A, c), 20 + 10 * scale)
    close(TORCH.norms(g), HOST.norms(G), 10 * scale)
    np.testing.assert_array_equal(TORCH.exponents(g[:, 0]), HOST.exponents(G[:, 0]))
    none = np.empty((0, n))
    O, T, _ = orthonormalize(TORCH, g, none, TORCH.norms(g), None)
    close(TORCH.combine(O, T), G, 20 * scale)
    assert len(T) == len(orthonormalize(HOST, G, none, HOST.norms(G), None)[1])
    base = np.asfortranarray(rng.standard_normal((p, 2)), kind)
    pair = (TORCH, g, a, torch.from_numpy(base)), (HOST, G, A, base)
    tensors, arrays = (
        Store.new(ops, like, k, 2).append(rows).with_base(w) for ops, like, rows, w in pair
    )
    for ours, theirs in zip(tensors.products(g), arrays.products(G), strict=True):
        close(ours, theirs, 50 * (scale + scale**2))
    T, shift = rng.standard_normal((max(0, k - 1), k)), rng.standard_normal((2, k))
    tensors, arrays = (one.compact(T, shift, k + 1) for one in (tensors, arrays))
    close(tensors.Q, arrays.Q, 100)
    close(tensors.base, arrays.base, 100)


def test_lengths_beyond_the_range_of_squares():
    g = torch.tensor([[1e30, 0.0, 1e-30], [1e30, 0.0, 1e-30]], dtype=torch.float32)
    assert TORCH.norms(g) == pytest.approx([2**0.5 * 1e30, 0.0, 2**0.5 * 1e-30], rel=1e-6)


def test_a_class_that_the_module_has_no_output_for(rng):
    model = orfit.TorchModel(mlp(outputs=3), tangent=True, outputs="label")
    learner = orfit.ORFit(model, 4)
    X = rng.standard_normal((12, 5))
    with pytest.raises(ValueError, match="3 outputs, so a class is at most 2; y has 7"):
        learner.learn_each(X, [0, 1, 2, 0, 1, 2, 0, 1, 2, 7, 0, 1])
    assert learner.seen == 9


def test_gradients_where_the_caller_wants_none(rng):
    X, y = rng.standard_normal((6, 5)), rng.standard_normal(6)
    learners = [orfit.ORFit(orfit.TorchModel(mlp()), 4) for _ in range(3)]
    learners[0].learn_each(X, y)
    with torch.no_grad():
        learners[1].learn_each(X, y)
    with torch.inference_mode():
        learners[2].learn_each(torch.from_numpy(X), y)
    assert all(bool((learner.w == learners[0].w).all()) for learner in learners)


@pytest.mark.parametrize(
    "other", [{"prior": 4.0}, {"parameters": ["0.*"]}, {"outputs": "label", "target": 2.0}]
)
def test_loading_with_a_model_of_other_settings_is_refused(other, rng, tmp_path):
    first = {"outputs": "label"} if "outputs" in other else {}
    learner = orfit.ORFit(orfit.TorchModel(mlp(outputs=2), **first), 3)
    learner.learn(rng.standard_normal(5), 1 if first else [0.0, 1.0])
    learner.save(tmp_path / "learner.safetensors")
    with pytest.raises(orfit.CheckpointError, match="saved with a model of"):
        orfit.load(tmp_path / "learner.safetensors", orfit.TorchModel(mlp(outputs=2), **other))


def test_a_parameter_with_two_names_is_one():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(torch.tanh(self.a(x)))[:, 0]

    learner = orfit.ORFit(orfit.TorchModel(Tied()), 2)
    learner.learn([1.0, 2.0, 3.0], 1.0)
    state = learner.model.state_dict(learner.w)
    assert (state["a.weight"] == state["b.weight"]).all()


def test_what_is_not_learned_must_be_what_it_was(rng, tmp_path):
    learner = orfit.ORFit(orfit.TorchModel(mlp(), parameters=["2.*"]), 3)
    learner.learn(rng.standard_normal(5), 1.0)
    learner.save(tmp_path / "learner.safetensors")
    same = orfit.TorchModel(mlp(), parameters=["2.*"])
    assert orfit.load(tmp_path / "learner.safetensors", same).seen == 1
    other = orfit.TorchModel(mlp(seed=1), parameters=["2.*"])
    with pytest.raises(orfit.CheckpointError, match="saved with a model of"):
        orfit.load(tmp_path / "learner.safetensors", other)


def test_no_step_holds_on_to_the_graph_of_those_before(rng):
    """A trainable body that is not learned: with it, w and the memory once kept every graph."""
    import gc

    learner = orfit.ORFit(orfit.TorchModel(mlp(outputs=2), parameters=["2.*"]), 3, noise=0.1)

    def alive(steps):
        for _ in range(steps):
            learner.learn_batch(*data(rng, 2, outputs=2))
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    begun = alive(10)
    assert alive(200) <= begun + 5
    assert not learner.memory.w.requires_grad
    assert not learner.memory.U.requires_grad


def test_what_is_said_to_those_who_hand_in_a_network_or_classes(rng):
    with pytest.raises(ValueError, match=r"orfit.TorchModel\(network\)"):
        orfit.ORFit(mlp())
    for tangent in (False, True):
        learner = orfit.ORFit(orfit.TorchModel(mlp(outputs=3), tangent=tangent), 4)
        with pytest.raises(ValueError, match=r'np.eye\(3\)\[y\].*outputs="label"'):
            learner.learn_batch(rng.standard_normal((4, 5)), [0, 1, 2, 1])
    with pytest.raises(ValueError, match=r"y must have shape \(3,\) for each datapoint; .* \(\)$"):
        learner.learn(rng.standard_normal(5), 0.5)


def test_a_memory_absorbs_tensors(rng):
    A = rng.standard_normal((50, 6))
    arrays, tensors = Principal(3), Principal(3)
    for columns in (A[:, :4], A[:, 4]):
        arrays.absorb(columns)
        tensors.absorb(torch.tensor(columns, requires_grad=True))
    assert tensors.sigma == pytest.approx(arrays.sigma)
    assert isinstance(tensors.U, torch.Tensor)
    arrays.absorb(torch.tensor(A[:, 5]))
    tensors.absorb(A[:, 5])
    assert tensors.sigma == pytest.approx(arrays.sigma)
    with pytest.raises(ValueError, match="G must be finite"):
        tensors.absorb(torch.full((50,), torch.nan))
    model = orfit.TorchModel(mlp())  # 50 parameters: known directions are not moved along
    learner = orfit.ORFit(model, tensors)
    learner.learn(rng.standard_normal(5), 1.0)
    moved = (learner.w - model.initial()).numpy()
    assert np.abs(arrays.U.T @ moved).max() < 1e-12


def test_statistics_that_were_refreshed_can_be_allowed(rng, tmp_path):
    def module():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()

    learner = orfit.ORFit(orfit.TorchModel(module()), 3)
    learner.learn(rng.standard_normal(5), 1.0)
    learner.save(tmp_path / "learner")
    other = module()
    other[1].running_mean += 1.0
    with pytest.raises(orfit.CheckpointError, match="buffers"):
        orfit.load(tmp_path / "learner", orfit.TorchModel(other))
    assert orfit.load(tmp_path / "learner", orfit.TorchModel(other, refreshed=True)).seen == 1
    with pytest.raises(ValueError, match="bound to the statistics"):
        orfit.TorchModel(other, tangent=True, refreshed=True)


def test_a_last_layer_of_zeros_is_told_of_on_the_tangent():
    module = mlp()
    nn.init.zeros_(module[2].weight)
    orfit.TorchModel(module)  # elsewhere the first step makes it something
    orfit.TorchModel(module, tangent=True, parameters=["2.*"])
    with pytest.warns(UserWarning, match=r"2.weight is all zero.* 0.weight and all others"):
        orfit.TorchModel(module, tangent=True)


def test_inputs_that_the_module_cannot_take():
    learner = orfit.ORFit(orfit.TorchModel(mlp()), 3)
    with pytest.raises(ValueError, match=r"failed on torch.int64 inputs of shape \(1, 5\)"):
        learner.learn([1, 2, 3, 4, 5], 1.0)
    with pytest.raises(ValueError, match=r"failed on torch.float64 inputs of shape \(1, 4\)"):
        learner.learn([1.0, 2.0, 3.0, 4.0], 1.0)
    assert learner.seen == 0


FILES = (
    "stateless",
    "_named_member_accessor",
    "vmap",
    "eager_transforms",
    "contextlib",
    "grad_mode",
)


def raising_in_torch(moment):
    """A tracer that raises at so many lines of torch's which exchange parameters, or modes."""
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(tuple(f"{name}.py" for name in FILES)):
            return None
        lines += event == "line"
        if lines == moment:
            raise KeyboardInterrupt
        return trace

    return trace


# Of what torch's generators raise when they are collected, Python can but mention it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("tangent", [False, True])
@pytest.mark.parametrize("how", ["learn_each", "learn_batch", "predict"])
def test_an_exception_inside_torch(how, tangent):
    """Torch leaves a module with its call's parameters, and itself in a transform: put right."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    module[2].weight = module[0].weight
    own = dict(module.named_parameters(remove_duplicate=False))
    X, Y = np.random.default_rng(0).standard_normal((2, 3)), np.ones((2, 3))

    def made():
        learner = orfit.ORFit(orfit.TorchModel(module, tangent=tangent), 4, noise=0.1)
        return learner, (lambda: learner.predict(X)) if how == "predict" else (
            lambda: getattr(learner, how)(X[learner.seen :], Y[learner.seen :])
        )

    expected, use = made()
    told = use()
    for moment in range(1, 4000, 7):
        (learner, use), before = made(), sys.gettrace()
        sys.settrace(raising_in_torch(moment))
        try:
            use()
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        found = dict(module.named_parameters(remove_duplicate=False))
        assert found.keys() == own.keys()
        assert all(found[name] is own[name] for name in own)
        assert all(part.training for part in module.modules())
        assert torch.is_grad_enabled()
        torch.rand(1)  # which is refused inside a transform
        again = use()
        assert torch.equal(learner.w, expected.w)
        assert how != "predict" or np.array_equal(again, told)
        assert learner.model.settings() == expected.model.settings()
    assert 100 < moment < 3500


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_are_taken_however_they_lie(dtype, rng):
    X = rng.standard_normal((4, 5)).astype(dtype)
    fixed = X.copy()
    fixed.flags.writeable = False
    model = orfit.TorchModel(mlp(dtype=torch.float32))
    for same in (fixed, X[::-1].copy()[::-1], np.asfortranarray(X), X.tolist()):
        np.testing.assert_array_equal(model.accept("X", same, None), X.astype(np.float32))


@pytest.mark.parametrize("of", [np.asarray, torch.as_tensor, np.ndarray.tolist])
def test_what_is_no_number_is_found_in_arrays_and_tensors(of):
    learner = orfit.ORFit(orfit.TorchModel(mlp()))
    X = np.ones((3, 5))
    X[1, 2] = np.nan
    with pytest.raises(ValueError, match=r"X must be finite .* first at index \(1, 2\)"):
        learner.predict(of(X))


def test_weights_that_are_tied_are_moved_by_all_that_they_do(rng):
    """Each by both of its names, also where another name is used for it after loading."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.there = nn.Linear(4, 4, bias=False)
            self.back = nn.Linear(4, 4, bias=False)
            self.back.weight = self.there.weight

        def forward(self, x):
            return self.back(torch.tanh(self.there(x))).sum(dim=1)

    model = orfit.TorchModel(Tied().double())
    assert model.size == 16
    w, x = rng.standard_normal(16), torch.as_tensor(rng.standard_normal((1, 4)))
    _, G = model.linearize(torch.as_tensor(w), x)
    for i in range(16):
        there, back = w.copy(), w.copy()
        there[i], back[i] = there[i] + 1e-6, back[i] - 1e-6
        F = [model.predict(torch.as_tensor(v), x)[0] for v in (there, back)]
        assert G[i, 0].item() == pytest.approx((F[0] - F[1]) / 2e-6, rel=1e-6, abs=1e-8)
    state = model.state_dict(torch.as_tensor(w))
    assert torch.equal(state["there.weight"], state["back.weight"])
    model.sync(torch.as_tensor(w))
    np.testing.assert_array_equal(model.module.back.weight.detach().reshape(-1), w)
