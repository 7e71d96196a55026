"""Sketches and Frequent Directions: what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from orfit.memory import FrequentDirections, Principal, Sketch
from orfit.memory.sketch import WAYS

seeds = st.integers(0, 2**32 - 1)


def estimate(memory):
    """What the memory says that A Aᵀ is."""
    return (memory.U * memory.sigma**2) @ memory.U.T


@given(seeds, st.integers(1, 6), st.integers(5, 40), st.integers(1, 4))
def test_frequent_directions_keep_their_guarantee(seed, m, n, block):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((12, n)) * rng.uniform(0.1, 3, n)
    memory = FrequentDirections(m)
    for start in range(0, n, block):
        memory.absorb(A[:, start : start + block])
    missing = np.linalg.eigvalsh(A @ A.T - estimate(memory))
    total = (A**2).sum()
    assert missing[0] >= -1e-10 * total, "never more than was seen"
    assert missing[-1] <= total / (m + 1) + 1e-10 * total
    assert memory.rank == min(m, n)
    assert np.abs(memory.U.T @ memory.U - np.eye(memory.rank)).max() <= 1e-13


def test_frequent_directions_of_few_directions_are_principal_ones(rng):
    A = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 30))
    frequent, principal = FrequentDirections(3), Principal(3)
    frequent.absorb(A)
    principal.absorb(A)
    assert frequent.sigma == pytest.approx(principal.sigma)
    assert estimate(frequent) == pytest.approx(A @ A.T)


@pytest.mark.parametrize("way", WAYS)
@given(seeds, st.integers(1, 4), st.integers(1, 3))
def test_while_there_is_room_a_sketch_spans_all(way, seed, rank, block):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((15, rank)) @ rng.standard_normal((rank, 9))
    memory = Sketch(8 if way == "symmetric" else 4, way, seed=seed % 100)
    for start in range(0, 9, block):
        memory.absorb(A[:, start : start + block])
    assert np.abs(memory.project(A)).max() <= 1e-7 * np.abs(A).max()
    assert memory.rank <= memory.m
    assert np.abs(memory.U.T @ memory.U - np.eye(memory.rank)).max() <= 1e-13
    if way != "fresh":  # there only the span is exact
        assert estimate(memory) == pytest.approx(A @ A.T, abs=1e-6 * np.linalg.norm(A, 2) ** 2)


@pytest.mark.parametrize("way", WAYS)
def test_the_sketches_are_those_of_the_paper(way, rng):
    """Typed out: Y, W, and the basis."""
    A = rng.standard_normal((30, 12))
    memory = Sketch(6, way, seed=3)
    memory.absorb(A[:, :5])
    memory.absorb(A[:, 5:])
    width = 3 if way == "symmetric" else 6
    if way == "fresh":
        draws = [np.random.Generator(np.random.PCG64([3, draw])) for draw in (1, 2)]
        Omega = np.vstack([draws[i].standard_normal((n, 6)) for i, n in enumerate((5, 7))])
        Q = np.linalg.qr(A @ Omega)[0]
    else:
        random = np.random.Generator(np.random.PCG64([3, 0, 1]))
        Omega = random.standard_normal((width, 30)).T
        Q = np.linalg.qr(A @ A.T @ Omega)[0]
        if way == "symmetric":
            Psi = random.standard_normal((2 * width + 1, 30)) / np.sqrt(30)
            X = np.linalg.pinv(Psi @ Q) @ (Psi @ A @ A.T)
            Q = np.linalg.qr(np.hstack([Q, X.T]))[0]
    assert memory.U @ (memory.U.T @ Q) == pytest.approx(Q, abs=1e-9)
    assert memory.rank == 6


@pytest.mark.parametrize("way", WAYS)
def test_the_order_does_not_matter(way, rng):
    """A sketch is linear in what it has seen."""
    A = rng.standard_normal((20, 10))
    one, other = (Sketch(4, way, seed=1) for _ in range(2))
    one.absorb(A)
    other.absorb(A if way == "fresh" else A[:, ::-1])
    assert estimate(one) == pytest.approx(estimate(other), abs=1e-8)


@pytest.mark.parametrize("way", WAYS)
def test_on_average_a_sketch_sees_what_there_is(way):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 30)) * np.geomspace(3, 0.1, 30)
    share = []
    for seed in range(20):
        memory = Sketch(10, way, seed=seed)
        memory.absorb(A)
        away = memory.project(A)
        share.append((away**2).sum() / (A**2).sum())
    best = np.linalg.svd(A, compute_uv=False)[10:] ** 2
    assert np.mean(share) <= 8 * best.sum() / (A**2).sum()


def test_a_sketch_learns_a_stream_it_has_room_for(rng):
    X = rng.standard_normal((40, 5)) @ rng.standard_normal((5, 60))
    w = rng.standard_normal(60)
    for memory in (Sketch(5, "fresh"), Sketch(5), Sketch(10, "symmetric"), FrequentDirections(5)):
        learner = orfit.ORFit(orfit.Linear(60), memory)
        learner.learn_each(X[:30], X[:30] @ w)
        assert learner.predict(X) == pytest.approx(X @ w, abs=1e-5)


def test_a_sketch_on_a_network():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    X, y = rng.standard_normal((20, 4)), rng.standard_normal(20)
    for memory in (Sketch(6, "fresh"), Sketch(6), Sketch(6, "symmetric"), FrequentDirections(6)):
        learner = orfit.ORFit(orfit.TorchModel(network, tangent=True), memory)
        learner.learn_each(X, y)
        assert isinstance(learner.memory.U, torch.Tensor)
        assert learner.memory.rank == 6
        assert abs(learner.predict(X[-1]) - y[-1]) < 1e-4


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Sketch(3, "some"), "way must be one of fresh, kept, symmetric"),
        (lambda: Sketch(1, "symmetric"), "m must be at least 2"),
        (lambda: Sketch(0), "m must be at least 1"),
        (lambda: Sketch(3, seed=-1), "seed must be at least 0"),
    ],
)
def test_wrong_arguments(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("way", ["fresh", "kept", "symmetric"])
def test_a_gradient_that_is_too_long_changes_nothing(way):
    learner = orfit.ORFit(orfit.Linear(5), Sketch(4, way), w0=np.zeros(5, np.float32))
    learner.learn(np.eye(5)[0], 1.0)
    with pytest.raises(ValueError, match="scale x"):
        learner.learn(np.eye(5)[1] * 1e25, 1.0)
    learner.learn(np.eye(5)[2], 1.0)
    assert learner.predict(np.eye(5)[:3]) == pytest.approx([1.0, 0.0, 1.0], abs=1e-5)
