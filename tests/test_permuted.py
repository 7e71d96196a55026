"""Permuted MNIST, and the memory for each layer that it is learned with."""

import numpy as np
import pytest

import orfit
from orfit.experiments import permuted
from orfit.memory import Unlimited

torch = pytest.importorskip("torch")
from orfit.experiments.layers import Layers
from orfit.learners.onestep import OneStep

SHAPES = [(3, 5), (2, 3)]
R = 0.7


def outer_products(rng, count):
    """Gradients as a network has them, p×n: δ xᵀ in each layer."""
    parts = []
    for outputs, inputs in SHAPES:
        delta, x = rng.standard_normal((count, outputs, 1)), rng.standard_normal((count, 1, inputs))
        parts.append((delta * x).reshape(count, -1))
    return torch.tensor(np.concatenate(parts, axis=1)).T


def filled(rng, blocks=3):
    memory = Layers(SHAPES, every=1)
    memory.bind(torch.zeros(21, dtype=torch.float64))
    for _ in range(blocks):
        memory.fold(memory.split(outer_products(rng, 4), R))
    return memory


def dense(memory):
    """P from its definition, p×p."""
    blocks = []
    for layer in memory.layers:
        seen = torch.kron(layer.S, layer.A) / layer.N
        blocks.append(R * torch.linalg.inv(seen + R * torch.eye(len(seen), dtype=seen.dtype)))
    return torch.block_diag(*blocks)


def test_the_split_is_that_of_the_whole_p(rng):
    memory = filled(rng)
    G = outer_products(rng, 4)
    P, past = dense(memory), memory.split(G, R)
    assert past.factor.T @ past.factor == pytest.approx(np.asarray(G.T @ P @ G))
    for j in range(4):
        (moved, _), length = past.move(past.factor[:, j : j + 1])
        moved = moved[:, 0]
        assert np.asarray(moved) == pytest.approx(np.asarray(P @ G[:, j]))
        assert length == pytest.approx(float(torch.linalg.vector_norm(moved)))
    assert 0 < past.novelty < 1
    assert memory.rank == 21


def test_what_was_seen_has_the_right_total(rng):
    G = outer_products(rng, 6)
    memory = Layers(SHAPES, every=1)
    memory.bind(G[:, 0])
    memory.fold(memory.split(G, R))
    total = sum(float(layer.seen.sum()) for layer in memory.layers)
    assert total == pytest.approx(float(G.square().sum()))


def test_of_one_layer_and_one_gradient_nothing_is_lost(rng):
    first, then = (np.kron(rng.standard_normal(3), rng.standard_normal(5))[:, None] for _ in "ab")
    remaining = []
    for memory, kind in ((Layers([(3, 5)], every=1), torch.tensor), (Unlimited(), np.array)):
        memory.bind(kind(first[:, 0]))
        memory.fold(memory.split(kind(first), R))
        root = memory.split(kind(then), R).factor
        remaining.append(root.T @ root)
    assert remaining[0] == pytest.approx(remaining[1])


def test_a_gradient_of_zeros_and_a_memory_without_noise(rng):
    memory = filled(rng)
    zeros = torch.zeros((21, 2), dtype=torch.float64)
    past = memory.split(zeros, R)
    assert past.novelty == 0
    assert not past.displacement(np.zeros((2, 1))).any()
    memory.fold(past)
    assert np.isfinite(memory.split(outer_products(rng, 2), R).factor).all()
    with pytest.raises(ValueError, match="needs noise"):
        memory.split(zeros)
    with pytest.raises(ValueError, match="21 parameters, not 20"):
        memory.bind(zeros[:20, 0])


def test_its_state_goes_on_bit_equally(rng):
    def learner():
        torch.manual_seed(0)
        layers = (
            torch.nn.Linear(4, 5, bias=False),
            torch.nn.Tanh(),
            torch.nn.Linear(5, 1, bias=False),
        )
        model = orfit.TorchModel(torch.nn.Sequential(*layers))
        return OneStep(model, Layers([(5, 4), (1, 5)], every=5), noise=R)

    X, y = rng.standard_normal((20, 4)), rng.standard_normal(20)
    first, then = learner(), learner()
    first.learn_batch(X[:12], y[:12])
    then.memory.restore(*first.memory.state())
    for one in (first, then):
        one.learn_batch(X[12:], y[12:])
    assert (first.w == then.w).all()
    assert "every=5" in repr(first.memory)


def test_a_network_learns_on_it(rng):
    torch.manual_seed(0)
    first, last = torch.nn.Linear(4, 30, bias=False), torch.nn.Linear(30, 1, bias=False)
    module = torch.nn.Sequential(first, torch.nn.Tanh(), last)
    learner = OneStep(orfit.TorchModel(module), Layers([(30, 4), (1, 30)], every=20), noise=0.1)
    X = rng.standard_normal((800, 4))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    for start in range(0, 800, 10):
        learner.learn_batch(X[start : start + 10], y[start : start + 10])
    assert np.abs(learner.predict(X[:200]) - y[:200]).mean() < 0.25 * np.abs(y).mean()


@pytest.fixture(scope="module")
def quick():
    settings = permuted.Settings(**permuted.QUICK)
    ticked = []
    return settings, permuted.run(settings, lambda: ticked.append(1)), ticked


def test_every_task_is_measured_after_every_task(quick):
    settings, curves, ticked = quick
    assert len(ticked) == permuted.ticks(settings)
    for method in permuted.ENTRIES:
        accuracy = curves.facts[method]
        assert accuracy.shape == (settings.tasks, settings.tasks)
        assert ((accuracy >= 0) & (accuracy <= 1)).all()


def test_a_memory_for_each_layer_knows_more_in_the_end(quick):
    _, curves, _ = quick
    known = {method: curves.facts[method][-1].mean() for method in permuted.ENTRIES}
    assert known["layers"] > known["sgd"] + 0.05
    assert known["layers"] > known["layers-few"]
    assert known["orfit"] > known["ogd"]


def test_each_task_shows_the_same_images_in_another_order():
    settings = permuted.Settings(**permuted.QUICK)
    data = permuted.Permuted(settings)
    stages = permuted.stages(data, settings, permuted.ENTRIES["layers"])
    assert [set(tasks) for tasks, _ in stages] == [{0}, {1}, {2}]
    mixed = permuted.stages(data, settings, permuted.ENTRIES["sgd-mixed"])
    assert set(mixed[0][0]) == {0, 1, 2}
    for tasks, rows in stages:
        assert len(set(rows)) == settings.rows, "each image is seen once"
        X, classes = next(data.blocks(tasks, rows, 7))
        assert (X.sort(dim=1).values == data.X[rows[:7]].sort(dim=1).values).all()
        assert (X != data.X[rows[:7]]).any()
        assert (classes == data.classes[rows[:7]]).all()
