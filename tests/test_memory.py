"""Memories by themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import orfit
from orfit.core._core import draw
from orfit.memory import (
    Bounded,
    FrequentDirections,
    Latest,
    Nothing,
    Principal,
    Random,
    Unlimited,
)

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 5), st.integers(-6, 6))
def test_unlimited_holds_the_whole_decomposition(seed, block, exponent):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((12, 9)) @ np.diag(np.geomspace(1, 1e-3, 9)) * 10.0**exponent
    memory = Unlimited()
    for start in range(0, 9, block):
        memory.absorb(A[:, start : start + block])
    gram = (memory.U * memory.sigma**2) @ memory.U.T
    assert np.abs(gram - A @ A.T).max() <= 1e-12 * np.abs(A @ A.T).max()
    assert np.allclose(memory.sigma, np.linalg.svd(A, compute_uv=False), rtol=1e-9)


def test_principal_is_an_incremental_pca(rng):
    """A stream of low rank plus a little: the recursion finds the exact principal directions."""
    A = rng.standard_normal((200, 5)) @ np.diag([9, 8, 7, 6, 5]) @ rng.standard_normal((5, 1000))
    A += 0.05 * rng.standard_normal(A.shape)
    pca = Principal(5)
    for start in range(0, 1000, 7):
        pca.absorb(A[:, start : start + 7])
    U, sigma, _ = np.linalg.svd(A)
    assert np.allclose(pca.sigma, sigma[:5], rtol=1e-3)
    cosines = np.linalg.svd(pca.U.T @ U[:, :5], compute_uv=False)
    assert cosines.min() > 1 - 1e-4


@pytest.mark.parametrize("memory", [Unlimited(), Principal(3), Latest(3), Random(3), Nothing()])
def test_a_memory_before_it_has_seen_anything(memory):
    assert memory.rank == 0
    assert memory.U.shape == (0, 0)
    assert memory.sigma.shape == (0,)
    memory.absorb(np.empty((5, 0)))
    assert memory.U.shape == (5, 0)


def test_a_spanned_column_adds_no_direction_but_weight(rng):
    A = rng.standard_normal((10, 3))
    memory = Principal(5)
    memory.absorb(A)
    memory.absorb(A)
    assert memory.rank == 3
    assert np.allclose(memory.sigma, np.sqrt(2) * np.linalg.svd(A, compute_uv=False))


@given(seeds)
def test_gram_matrix_restricted_to_what_is_kept(seed):
    """Latest and Random: what is remembered is the past, seen along the kept directions."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((12, 8))
    for memory in (Latest(3), Random(3, seed=seed)):
        memory.absorb(A)
        projected = memory.U @ (memory.U.T @ A)
        gram = (memory.U * memory.sigma**2) @ memory.U.T
        assert np.abs(gram - projected @ projected.T).max() <= 1e-12


def test_random_draws_by_its_seed(rng):
    A = rng.standard_normal((30, 20))
    spans = []
    for seed in (1, 1, 2):
        memory = Random(4, seed=seed)
        for column in A.T:
            memory.absorb(column)
        spans.append(memory.U @ memory.U.T)
    assert (spans[0] == spans[1]).all()
    assert np.abs(spans[0] - spans[2]).max() > 0.1


def test_a_memory_refuses_what_it_cannot_hold(rng):
    memory = Principal(3)
    memory.absorb(rng.standard_normal((6, 2)))
    before = memory.U
    for bad, message in (
        (rng.standard_normal((5, 2)), "6 parameters, not 5"),
        (np.full(6, np.nan), "NaN or infinite"),
        (np.zeros((6, 2, 2)), "shape"),
        (["a"] * 6, "real numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            memory.absorb(bad)
    assert (memory.U == before).all()
    with pytest.raises(ValueError, match="6 parameters, not 9"):
        orfit.ORFit(orfit.Linear(9), memory)
    with pytest.raises(ValueError, match="float64 directions"):
        orfit.ORFit(orfit.Linear(6), memory, w0=np.zeros(6, np.float32))
    for bad in (0, -1, 2.5, True, "3"):
        with pytest.raises(ValueError, match="m must be"):
            Principal(bad)


def test_a_memory_belongs_to_one_learner():
    memory = Principal(3)
    orfit.ORFit(orfit.Linear(4), memory)
    with pytest.raises(ValueError, match="belongs to another learner"):
        orfit.ORFit(orfit.Linear(4), memory)


def test_draws_are_those_of_splitmix64():
    for count in (1, 2, 7, 300):
        drawn = [draw(5, i, count) for i in range(1, 2001)]
        assert drawn[:50] == [oracles.random_index(5, i, count) for i in range(1, 51)]
        expected = 2000 / count
        assert np.abs(np.bincount(drawn, minlength=count) - expected).max() <= 6 * expected**0.5
    assert 0 <= draw(2**53, 2**53, 2**31) < 2**31


class Told(Bounded):
    """Returns what it was given."""

    def __init__(self, m, returned=()):
        super().__init__(m)
        self.returned, self.calls = returned, []

    def keep(self, sigma, m):
        self.calls.append((sigma.copy(), m))
        sigma[:] = np.nan  # it is a copy
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned(sigma, m) if callable(self.returned) else self.returned


def gram(memory):
    return (memory.U * memory.sigma**2) @ memory.U.T


def test_a_bounded_memory_must_say_what_stays():
    class Forgetful(Bounded):
        pass

    with pytest.raises(TypeError, match="keep"):
        Forgetful(3)


@pytest.mark.parametrize(
    ("returned", "weights"),
    [
        ([2, 0], [1, 0, 1, 0]),
        (np.array([1, 3], np.uint8), [0, 1, 0, 1]),
        ([3], [0, 0, 0, 1]),
        ([], [0, 0, 0, 0]),
        ([0.5, 0.0, 2.0, 0.0], [0.5, 0, 2, 0]),
        (np.array([0.25, 0, 0, 1], np.float32), [0.25, 0, 0, 1]),
        ([0.0] * 4, [0, 0, 0, 0]),
    ],
)
def test_a_memory_keeps_what_its_rule_says(returned, weights, rng):
    """Indices in any order, or weights, which may change the order."""
    sigma, weights = np.array([4.0, 3.0, 2.0, 1.0]), np.array(weights, float)
    U = np.linalg.qr(rng.standard_normal((9, 4)))[0]
    memory = Told(2, returned)
    memory.absorb(U * sigma)
    left = weights * sigma
    assert memory.rank == np.count_nonzero(weights)
    assert memory.sigma == pytest.approx(np.sort(left[left > 0])[::-1])
    assert np.abs(gram(memory) - (U * left**2) @ U.T).max() <= 1e-13
    assert memory.U.T @ memory.U == pytest.approx(np.eye(memory.rank), abs=1e-13)
    assert memory.lost == pytest.approx((sigma**2 - left**2).sum(), abs=1e-13)


def test_the_rule_is_asked_only_when_there_are_too_many(rng):
    memory = Told(3, lambda sigma, m: [0, 1, 2])
    for columns in (2, 1, 1, 4):
        memory.absorb(rng.standard_normal((9, columns)))
    assert [(len(sigma), m) for sigma, m in memory.calls] == [(4, 3), (7, 3)]
    for sigma, _ in memory.calls:
        assert (np.diff(sigma) <= 0).all()


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ([0, 1, 2], ValueError, "at most 2 directions, not 3"),
        (np.ones(3), ValueError, "at most 2 directions, not 3"),
        ([1, 1], ValueError, "different indices below 3"),
        ([0, 3], ValueError, "different indices below 3"),
        ([-1], ValueError, "different indices below 3"),
        (np.array([2**64 - 1], np.uint64), ValueError, "different indices below 3"),
        ([1.0, 0.0], ValueError, "3 weights .floats., not an array of float64 with shape .2,"),
        ([1.0, -1.0, 0.0], ValueError, "finite weights ≥ 0"),
        ([1.0, np.nan, 0.0], ValueError, "finite weights ≥ 0"),
        ([np.inf, 0.0, 0.0], ValueError, "finite weights ≥ 0"),
        ([True, False, True], ValueError, "flatnonzero turns a mask of bools"),
        (None, ValueError, "must return indices"),
        (["a"], ValueError, "must return indices"),
        ([[0, 1]], ValueError, "must return indices"),
        (KeyError("mine"), KeyError, "mine"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_after_a_wrong_answer_nothing_has_changed(returned, error, message, noise, rng):
    X, y = rng.standard_normal((9, 6)), rng.standard_normal(9)
    learner, other = (orfit.ORFit(orfit.Linear(6), Told(2, [2, 0]), noise=noise) for _ in range(2))
    for each in (learner, other):
        each.learn_each(X[:5], y[:5])
    before = learner._cell.state
    learner.memory.returned = returned
    with pytest.raises(error, match=message):
        learner.learn(X[5], y[5])
    assert learner._cell.state is before
    assert learner.seen == 5
    learner.memory.returned = [2, 0]
    for each in (learner, other):
        each.learn_each(X[5:], y[5:])
    assert (learner.w == other.w).all()
    assert (learner.memory.U == other.memory.U).all()


def test_a_rule_reads_the_memory_before_the_block_and_cannot_learn(rng):
    def rule(sigma, m):
        assert learner.memory.rank == 2
        with pytest.raises(RuntimeError, match="inside its own step"):
            learner.learn(X[0], 1.0)
        return [0, 1]

    X = rng.standard_normal((3, 6))
    learner = orfit.ORFit(orfit.Linear(6), Told(2, rule))
    learner.learn_each(X, np.ones(3))
    assert learner.seen == 3


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_rules_of_orfit_written_by_a_user(noise, rng):
    """`Principal` without its tail, and `FrequentDirections`."""

    class First(Bounded):
        def keep(self, sigma, m):
            return range(m)

    class Shrinking(Bounded):
        def keep(self, sigma, m):
            return np.sqrt(np.maximum(1 - (sigma[m] / sigma) ** 2, 0))

    X, y = rng.standard_normal((40, 12)), rng.standard_normal(40)
    for mine, theirs in ((First, Principal), (Shrinking, FrequentDirections)):
        one = orfit.ORFit(orfit.Linear(12), mine(4), noise=noise)
        other = orfit.ORFit(orfit.Linear(12), theirs(4), noise=noise, tail=False)
        for each in (one, other):
            each.learn_each(X, y)
        assert one.w == pytest.approx(other.w, rel=1e-9)
        assert gram(one.memory) == pytest.approx(gram(other.memory), abs=1e-9)
        assert one.memory.lost == pytest.approx(other.memory.lost)


def test_a_subclass_of_principal_with_another_rule_has_no_tail_and_does_not_merge():
    class Fewer(Principal):
        def keep(self, sigma, m):
            return range(m - 1)

    assert (Principal.merges, Principal.has_tail) == (True, True)
    assert (Fewer.merges, Fewer.has_tail) == (False, False)
    with pytest.raises(ValueError, match="does not know what it saw"):
        orfit.ORFit(orfit.Linear(3), Fewer(2), noise=1.0).rows()


def test_shrinking_is_exact_where_singular_values_nearly_agree():
    """1 − (σ_m/σ)² would lose all digits; a direction of which nothing is left is dropped."""
    gap = 2.0**-40
    weights = FrequentDirections(2).keep(np.array([1.0 + gap, 1.0, 1.0]), 2)
    assert weights == pytest.approx([(2 * gap) ** 0.5, 0, 0], rel=1e-11)
    assert (FrequentDirections(1).keep(np.array([1e300, 0.0]), 1) == [1, 0]).all()
    memory = FrequentDirections(2)
    memory.absorb(np.diag([2.0, 1.0, 1.0]))
    assert memory.rank == 1
    assert memory.sigma == pytest.approx(np.sqrt([3.0]))


def test_a_pca_of_float32_columns_stays_float32(rng):
    memory = Principal(3)
    memory.absorb(rng.standard_normal((6, 2)).astype(np.float32))
    assert memory.U.dtype == np.float32
    assert memory.sigma.dtype == np.float64
