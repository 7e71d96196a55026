"""`decompose_rank_one`: singular values and left singular vectors of [diag(sigma), z].

Bounds that hold for n numbers, with EPS the distance from 1 to the next number:
- each value has a relative error of (n + 8) EPS, besides sqrt(n) LEAST times the largest number;
- vectors are orthonormal within (n + 8) EPS;
- the residual of an eigenpair of diag(sigma²) + z zᵀ is within (n + 8) EPS of the largest
  eigenvalue;
- values lie between neighbouring numbers of sigma, without any error;
- a vector has an error of (n + 8) EPS / gap, where gap is the relative distance of its value from
  the others, however small the value is.
"""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_library import aligned, aligned_copy, padded, pointer, size, targets
from reference.spectrum import relative_error, singular_values_and_vectors

EPS = {np.float64: 2.0**-52, np.float32: 2.0**-23}
LEAST = {np.float64: 2.0**-279, np.float32: 2.0**-28}
DECADES = {np.float64: 84, np.float32: 8}  # of singular values that are distinguished from 0
GUARD = 12345.0


def decompose(library, sigma, z, columns=None, dtype=np.float64, in_place=False):
    """Values and vectors (as columns); fails if numbers outside of the arrays change."""
    n = len(sigma)
    columns = n if columns is None else columns
    stride = library.spectrum_stride(n) + 8
    sizes = {
        "values": n,
        "vectors": n * stride,
        "work": library.spectrum_work(n),
        "spare": library.spectrum_spare(n, size(stride)),
    }
    arrays = {name: aligned(length + 64, dtype, GUARD) for name, length in sizes.items()}
    order = np.full(library.spectrum_order(n) + 16, 77, np.int32)
    sigma, z = aligned_copy(sigma, dtype), aligned_copy(z, dtype)
    if in_place:
        arrays["values"][:n] = sigma[:n]
        sigma = arrays["values"]
    library.decompose_rank_one(
        *(n, pointer(sigma), pointer(z), columns, pointer(arrays["values"])),
        *(pointer(arrays["vectors"]), size(stride)),
        *(pointer(arrays["work"]), pointer(arrays["spare"]), pointer(order)),
    )
    for name, length in sizes.items():
        assert (arrays[name][length:] == GUARD).all(), name
    assert (order[-16:] == 77).all()
    vectors = arrays["vectors"][: n * stride].reshape(n, stride)
    assert (vectors[:, columns : padded(columns)] == 0).all()
    assert (vectors[:, padded(n) :] == GUARD).all()
    return arrays["values"][:columns], np.ascontiguousarray(vectors[:, :columns])


def sequence(kind, n, decades, eps, rng):
    """n numbers >= 0, of a kind that is difficult for an eigensolver."""
    if kind == "mixed":
        kinds = rng.choice(KINDS[:-1], 2)
        return np.concatenate(
            [
                sequence(kinds[0], n // 2, decades, eps, rng),
                sequence(kinds[1], n - n // 2, decades, eps, rng),
            ]
        )
    span = rng.choice([1, 3, min(24, decades), decades])
    return {
        "white": lambda: np.abs(rng.normal(size=n)),
        "scattered": lambda: 10.0 ** -rng.uniform(0, span, n),
        "graded": lambda: 10.0 ** -np.linspace(0, span, n),
        "nearly tied": lambda: 1 + eps * rng.integers(0, rng.choice([2, 10, 100]), n),
        "clusters": lambda: (
            10.0 ** -rng.choice([0, span / 2, span], n) * (1 + eps * rng.integers(0, 4, n))
        ),
        "close": lambda: np.abs(1 + 10.0 ** -rng.uniform(0, 16) * rng.normal(size=n)),
        "ties": lambda: rng.integers(0, 4, n).astype(float),
        "zeros": lambda: np.where(rng.random(n) < 0.5, 0, 10.0 ** -rng.uniform(0, span, n)),
        "equal": lambda: np.full(n, 10.0 ** -rng.uniform(0, span)),
    }[kind]()


KINDS = [
    *("white", "scattered", "graded", "nearly tied", "clusters", "close", "ties", "zeros", "equal"),
    "mixed",
]


@st.composite
def problems(draw, most, dtype=np.float64):
    """sigma and z of one length up to `most`."""
    n = draw(st.integers(1, most))
    kinds = draw(st.tuples(*[st.sampled_from(KINDS)] * 2))
    ratio, seed = draw(st.sampled_from([0, 0, -3, 3, -8, 8])), draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    decades = DECADES[dtype] - 3 - abs(ratio) / 2 * (dtype == np.float32)
    sigma, z = (sequence(kind, n, decades, EPS[dtype], rng) for kind in kinds)
    z = z * rng.choice([-1, 1], n) * 10.0 ** (ratio if dtype == np.float64 else ratio / 4)
    return np.sort(sigma.astype(dtype))[::-1], z.astype(dtype)


def check(core, sigma, z, dtype=np.float64, every=False):
    """All properties that need no digits beyond those of numpy."""
    n = len(sigma)
    results = [
        decompose(library, sigma, z, dtype=dtype) for library in core.libraries(dtype, every)
    ]
    values, vectors = results[0]
    for other in results[1:]:
        assert values.tobytes() == other[0].tobytes()
        assert vectors.tobytes() == other[1].tobytes()
    bound = (n + 8) * EPS[dtype]
    assert np.isfinite(values).all()
    assert (values >= 0).all()
    assert (np.diff(values) <= 0).all()
    largest = max(sigma[0], np.abs(z).max())
    assert (values >= np.where(sigma < LEAST[dtype] * largest, 0, sigma)).all()
    assert (values[1:] <= sigma[:-1]).all()
    unit = np.longdouble(largest if largest > 0 else 1)
    s, z, v = sigma / unit, z / unit, values / unit
    V = vectors.astype(np.longdouble)
    assert np.abs(V.T @ V - np.eye(n)).max() <= bound
    residual = (s**2)[:, None] * V + np.outer(z, z @ V) - V * v**2
    assert np.abs(residual).max() <= bound * max(v[0] ** 2, 1e-30)
    return values, vectors


def check_digits(core, sigma, z, dtype=np.float64):
    """The relative errors of values and vectors."""
    n = len(sigma)
    values, vectors = decompose(core.library("plain", dtype), sigma, z, dtype=dtype)
    digits = 4 * DECADES[dtype] + 60
    exact, exact_vectors = singular_values_and_vectors(sigma, z, digits)
    least = LEAST[dtype] * np.sqrt(n) * max(sigma[0], np.abs(z).max())
    bound = (n + 8) * EPS[dtype]
    for value, root in zip(values, exact, strict=True):
        allowance = least / float(root) if root else least
        assert relative_error(value, root, digits) <= bound + allowance
    v = np.array([float(root) for root in exact], np.longdouble)
    for i in range(n):
        others = np.delete(v, i)
        gap = (np.abs(v[i] - others) / (v[i] + others)).min(initial=1) if v[i] else 0
        if gap > 0 and v[i] > least / bound:
            exact_vector = exact_vectors[:, i] * np.sign(exact_vectors[:, i] @ vectors[:, i])
            assert np.abs(vectors[:, i] - exact_vector).max() <= bound / gap


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=300)
@given(st.data())
def test_vectors_are_orthonormal_and_the_same_on_all_targets(core, dtype, data):
    check(core, *data.draw(problems(24, dtype)), dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=100)
@given(st.data())
def test_small_singular_values_are_as_accurate_as_large_ones(core, dtype, data):
    check_digits(core, *data.draw(problems(6, dtype)), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=5000)
@given(st.data())
def test_search_for_vectors_that_are_not_orthonormal(core, dtype, data):
    check(core, *data.draw(problems(70, dtype)), dtype, every=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=1000)
@given(st.data())
def test_search_for_inaccurate_singular_values(core, dtype, data):
    check_digits(core, *data.draw(problems(8, dtype)), dtype)


@pytest.mark.parametrize("n", [2, 7, 11])
def test_spectrum_over_24_decades(core, n, rng):
    graded = 10.0 ** -np.linspace(0, 24, n)
    for z in (graded, graded[::-1], np.ones(n), -graded * rng.normal(size=n)):
        check(core, graded, z)
        check_digits(core, graded, z)


@settings(max_examples=30)
@given(problems(20), st.data())
def test_the_first_columns_do_not_depend_on_how_many_there_are(core, problem, data):
    columns = data.draw(st.integers(0, len(problem[0])))
    for library in core.libraries():
        values, vectors = decompose(library, *problem)
        few_values, few_vectors = decompose(library, *problem, columns)
        assert few_values.tobytes() == values[:columns].tobytes()
        assert few_vectors.tobytes() == np.ascontiguousarray(vectors[:, :columns]).tobytes()


@settings(max_examples=20)
@given(problems(20))
def test_values_may_replace_sigma(core, problem):
    library = core.library(targets()[-1])
    for apart, in_place in zip(
        decompose(library, *problem), decompose(library, *problem, in_place=True), strict=True
    ):
        assert apart.tobytes() == in_place.tobytes()


@pytest.mark.parametrize("exponent", [-1000, -820, -500, 500, 1000, 1020])
def test_a_power_of_two_scales_the_values_and_leaves_the_vectors(core, exponent, rng):
    """Scaling is exact where no number underflows."""
    for n in (1, 4, 9):
        sigma, z = np.sort(rng.uniform(0.5, 1, n))[::-1], rng.normal(size=n)
        values, vectors = decompose(core.library("plain"), sigma, z)
        scaled = check(core, np.ldexp(sigma, exponent), np.ldexp(z, exponent))
        np.testing.assert_array_equal(scaled[0], np.ldexp(values, exponent))
        np.testing.assert_array_equal(scaled[1], vectors)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 2, 8, 9])
def test_all_zero_input(core, n, dtype):
    for library in core.libraries(dtype):
        values, vectors = decompose(library, np.zeros(n), np.zeros(n), dtype=dtype)
        np.testing.assert_array_equal(values, 0)
        np.testing.assert_array_equal(vectors, np.eye(n))


def test_one_number(core):
    for library in core.libraries():
        for sigma, z, value in (
            (3, 4, 5),
            (3, -4, 5),
            (0, 2, 2),
            (2, 0, 2),
            (1e150, 1e150, 2**0.5 * 1e150),
        ):
            values, vectors = decompose(library, [sigma], [z])
            np.testing.assert_allclose(values, value, rtol=4e-16)
            np.testing.assert_allclose(np.abs(vectors), 1, rtol=2 * EPS[np.float64])


def with_passes(core, passes, problem):
    """What the iteration finds in so many passes."""
    library = core.library("plain")
    most_passes = ctypes.c_int.in_dll(library, "most_passes")
    most_passes.value = passes
    try:
        return decompose(library, *problem)
    finally:
        most_passes.value = 100


@settings(max_examples=100)
@given(problems(24))
def test_few_passes_find_all_roots(core, problem):
    """A wrong step is replaced by bisection, which would find the roots too, but slowly."""
    values, vectors = decompose(core.library("plain"), *problem)
    few_values, few_vectors = with_passes(core, 20, problem)
    assert few_values.tobytes() == values.tobytes()
    assert few_vectors.tobytes() == vectors.tobytes()


@pytest.mark.parametrize("ratio", [0, 0.5, 1, 3, 10, 50, 100, 1e6])
def test_small_part_beside_a_root_at_its_pole(core, ratio):
    """0.6² + 0.8² = 1, so z_0 splits two equal values: they depend on it linearly."""
    sigma, z = np.array([1, 0.6]), np.array([ratio * EPS[np.float64], 0.8])
    check(core, sigma, z)
    check_digits(core, sigma, z)


def test_ordinary_spectra_need_three_passes_on_average(core, rng):
    needed = []
    for n in (6, 11, 51) * 20:
        for sigma in (np.abs(10 + rng.normal(size=n)), 30 / np.arange(1, n + 1)):
            problem = np.sort(sigma)[::-1], rng.normal(size=n)
            values, _ = decompose(core.library("plain"), *problem)
            passes = 1
            while with_passes(core, passes, problem)[0].tobytes() != values.tobytes():
                passes += 1
            needed.append(passes)
    assert np.mean(needed) <= 3.35  # 3.22 on this stream
