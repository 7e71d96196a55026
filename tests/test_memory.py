"""Memories by themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import orfit
from orfit.memory import Latest, Nothing, Principal, Random, Unlimited

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


def test_a_bounded_memory_must_say_what_goes():
    class Forgetful(orfit.memory.Bounded):
        pass

    with pytest.raises(TypeError, match="trim"):
        Forgetful(3)


def test_a_pca_of_float32_columns_stays_float32(rng):
    memory = Principal(3)
    memory.absorb(rng.standard_normal((6, 2)).astype(np.float32))
    assert memory.U.dtype == np.float32
    assert memory.sigma.dtype == np.float64
