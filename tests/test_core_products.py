"""Small functions of the core, bit by bit or against more digits."""

import ctypes
import math

import mpmath
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from core_library import (
    SCORES,
    Learner,
    aligned_copy,
    libraries,
    matrix,
    number,
    padded,
    pointer,
    size,
    zeros,
)
from orfit.core import _core
from reference import products as reference
from reference import row as row_reference

seeds = st.integers(0, 2**32 - 1)
widths = st.one_of(st.integers(1, 40), st.integers(500, 1100))
RECORDED = -1.5  # what stands where a function must not write


def drawn(seed, *shape):
    """Numbers of very different sizes."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, shape)


@given(seeds, st.integers(0, 13), widths)
def test_products_of_rows_and_a_vector(seed, count, n):
    A, g = drawn(seed, count, n), drawn(seed + 1, n)
    rows, vector = matrix(A, padded(n) + 8), aligned_copy(g)
    for library in libraries():
        for name in ("multiply_real", "multiply_small"):
            out = np.full(count + 1, RECORDED)
            getattr(library, name)(
                *(pointer(rows), size(padded(n) + 8), count, n, pointer(vector), pointer(out))
            )
            np.testing.assert_array_equal(out[:count], reference.multiply(A, g))
            assert out[count] == RECORDED
        if count:
            assert library.multiply_vectors(pointer(rows), pointer(vector), n) == out[0]


@given(seeds, st.integers(1, 13), widths)
def test_eight_vectors_have_the_products_of_each(seed, count, n):
    A, G = drawn(seed, count, n), drawn(seed + 1, 8, n)
    rows, vectors, stride = matrix(A), matrix(G), size(padded(n))
    for library in libraries():
        out = np.full((count + 1, 8), RECORDED)
        library.multiply_eight(
            *(pointer(rows), stride, count, n, pointer(vectors), stride, pointer(out))
        )
        for v in range(8):
            np.testing.assert_array_equal(out[:count, v], reference.multiply(A, G[v]))
        assert (out[count] == RECORDED).all()


@given(seeds, st.integers(0, 13), st.integers(1, 90), st.sampled_from(["none", "other", "same"]))
def test_combinations_of_rows(seed, count, n, kind):
    A, by, start = drawn(seed, count, n), drawn(seed + 1, count), drawn(seed + 2, n)
    rows, expected = matrix(A), reference.combine(A, by, None if kind == "none" else start)
    for library in libraries():
        for name in ("combine_real", "combine_small"):
            first = aligned_copy(start)
            out = first if kind == "same" else zeros(padded(n))
            begin = None if kind == "none" else pointer(first)
            getattr(library, name)(
                *(pointer(rows), size(padded(n)), count, n, pointer(by), begin, pointer(out))
            )
            np.testing.assert_array_equal(out[:n], expected)


@given(seeds, st.integers(1, 19), st.integers(0, 9), st.integers(1, 60))
def test_rotations_of_rows(seed, m, count, n):
    T, B, start = drawn(seed, count, m), drawn(seed + 1, count, n), drawn(seed + 2, m, n)
    left, right = matrix(T), matrix(B, padded(n))
    strides = size(padded(m)), size(padded(n))
    for library in libraries():
        for add in (0, 1):
            out = matrix(start, padded(n))
            library.rotate_small(
                *(add, pointer(left), strides[0], pointer(right), strides[1], m, count, n),
                *(pointer(out), strides[1]),
            )
            expected = reference.rotate(T, B, start if add else None)
            np.testing.assert_array_equal(out[:m, :n], expected)
        out = matrix(start, padded(n))
        library.add_rotated_real(
            *(pointer(left), strides[0], pointer(right), strides[1], m, count, n),
            *(pointer(out), strides[1]),
        )
        np.testing.assert_array_equal(out[:m, :n], expected)


@given(seeds, st.integers(0, 9), st.floats(-320, 307), st.booleans())
def test_length(seed, n, power, graded):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(n) * 10.0 ** (power - graded * rng.uniform(0, 300, n)) / 4
    exact = math.hypot(*a)
    for library in libraries():
        found = library.find_length(pointer(a), n)
        assert abs(found - exact) <= 8e-16 * exact + 5e-324


def test_length_of_what_is_not_finite():
    for library in libraries():
        for values in ([np.inf, 1], [1, -np.inf], [np.nan, 1], [1, np.nan, np.inf]):
            assert not np.isfinite(library.find_length(pointer(np.array(values)), len(values)))


@given(st.one_of(st.floats(0, 1), st.floats(1e-20, 1e300), st.sampled_from([0.0, 2.0**-53, 1e308])))
def test_logarithm(x):
    with mpmath.workdps(340):
        exact = mpmath.log(1 + mpmath.mpf(min(x, 1e300)))
    for library in libraries():
        assert abs(library.log_one_plus(x) - exact) <= 2 * 2.0**-52 * exact


@given(seeds, st.integers(1, 8), st.integers(1, 4))
def test_tail(seed, candidates, count):
    rng = np.random.default_rng(seed)
    noise = 10.0 ** rng.uniform(-4, 4, candidates)
    energies, least = 10.0 ** rng.uniform(-6, 1, count), 10.0 ** rng.uniform(-3, 3)
    level, dropped = rng.uniform(0, least, candidates), rng.uniform(0, 10, candidates)
    expected = []
    for c, R in enumerate(noise):
        tail = row_reference.Tail(R)
        tail.level, tail.dropped, tail.dropping = level[c], dropped[c], 6.0
        tail.extend(energies, least, 20.0, 30.0, R)
        expected.append([tail.level, tail.dropped])
    for library in libraries():
        found = level.copy(), dropped.copy()
        library.extend_tail(
            *(candidates, pointer(noise), *map(pointer, found), number(20), number(7)),
            *(pointer(energies), count, number(least), number(30)),
        )
        # 1 / variance - floor: an error of eps times the floor
        error = np.abs(np.transpose(found) - expected)
        assert (error <= 1e-13 * (noise + least)[:, None] + 1e-13 * np.array(expected)).all()


@given(seeds, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_means_of_scores(seed, candidates, heads, noisy):
    rng, e, q = np.random.default_rng(seed), candidates, candidates * heads
    for library in libraries():
        learner = Learner(
            2,
            1,
            10.0 ** rng.uniform(-3, 3, e) if noisy else np.zeros(e),
            heads=heads,
            library=library,
        )
        s, noise = learner.struct.scores, learner.noise
        means = 0, np.zeros(q), np.zeros(q), np.zeros(q), np.zeros(q), np.zeros(e)
        for _ in range(30):
            u = rng.standard_normal(q) * 10.0 ** rng.choice([0, 0, 0, 1, 200, -200], q)
            variance = 10.0 ** rng.uniform(-3, 9, e)
            library.update_scores(ctypes.byref(s), pointer(noise), pointer(variance), pointer(u))
            means = row_reference.update_means(means, noise, variance, u)
            found = [learner.scores(n) for n in SCORES]
            assert s.rows == means[0]
            for mean, expected in zip(found, means[1:], strict=True):
                np.testing.assert_allclose(mean, expected, rtol=1e-12, atol=1e-300)


def test_draws():
    """Each index is as likely as the others, and the same on every machine."""
    for library in libraries():
        draws = [library.draw(*map(ctypes.c_int64, (7, i, 10))) for i in range(10_000)]
        assert draws == [_core.draw(7, i, 10) for i in range(10_000)]
        assert np.bincount(draws, minlength=10).min() > 900
    assert draws[:6] == [7, 5, 3, 9, 8, 6]
