"""Triangular roots H: rows are added, unknowns added and deleted, equations solved.

With n_i the length of column i of all rows that H stands for, each element i, j of HᵀH has an
error of up to 4 (k + 4) EPS n_i n_j. A solution x of H x = b is exact for an H whose elements have
relative errors of (k + 2) EPS.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_library import aligned, aligned_copy, padded, pointer, size
from reference.triangle import gram, gram_with

EPS = {np.float64: 2.0**-52, np.float32: 2.0**-23}
DECADES = {np.float64: 12, np.float32: 3}
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])


class Root:
    """H (k x k) in the first rows and columns of an array with a guard behind it."""

    def __init__(self, H, dtype=np.float64, most=None):
        self.k, self.stride = len(H), padded(max(len(H) if most is None else most, 1)) + 8
        self.rows = len(H) if most is None else most
        self.numbers = aligned(self.rows * self.stride + 64, dtype, np.nan)
        self.array[:] = 0
        self.array[: self.k, : self.k] = H

    @property
    def array(self):
        return self.numbers[: self.rows * self.stride].reshape(self.rows, self.stride)

    @property
    def H(self):
        return self.array[: self.k, : self.k]

    def call(self, function, *arguments):
        arguments = [pointer(a) if isinstance(a, np.ndarray) else a for a in arguments]
        function(self.k, pointer(self.numbers), size(self.stride), *arguments)
        assert np.isnan(self.numbers[self.rows * self.stride :]).all()

    def check(self, k):
        """Only the triangle of k rows is not zero."""
        self.k = k
        triangle = np.zeros_like(self.array)
        triangle[:k, :k] = np.triu(self.H)
        np.testing.assert_array_equal(self.array, triangle)


def on_all_targets(core, dtype, run):
    """The result of run(library), which must have the same bits on all targets."""
    results = [run(library) for library in core.libraries(dtype)]
    assert len({result.tobytes() for result in results}) == 1
    return results[0]


def random_numbers(rng, shape, decades):
    numbers = rng.normal(size=shape)
    return numbers * 10.0 ** -rng.uniform(0, decades, shape) * (rng.random(shape) > 0.1)


@st.composite
def roots(draw, dtype=np.float64, regular=False):
    """H, with columns and rows of different scale, and a generator of random numbers."""
    k, seed = draw(st.integers(0, 20)), draw(st.integers(0, 2**32))
    decades = draw(st.sampled_from([0, 1, DECADES[dtype]]))
    rng = np.random.default_rng(seed)
    H = np.triu(random_numbers(rng, (k, k), decades)) * 10.0 ** -rng.uniform(0, decades, k)
    if regular:
        H[range(k), range(k)] = 10.0 ** -rng.uniform(0, decades, k)
    return np.abs(np.diag(np.diag(H))) + np.triu(H, 1), rng, decades


def random_row(rng, length, decades):
    return random_numbers(rng, length, decades) * 10.0 ** rng.uniform(-decades, decades)


def assert_stands_for(H, dtype, *blocks):
    """HᵀH is the sum of AᵀA over blocks of rows."""
    expected, lengths = gram(*blocks)
    error = np.abs(gram_with(lengths, H) - expected)
    assert error.max(initial=0) <= 4 * (len(H) + 4) * EPS[dtype]


@DTYPES
@settings(max_examples=100)
@given(st.data())
def test_a_row_is_added(core, dtype, data):
    H, rng, decades = data.draw(roots(dtype))
    H, row = H.astype(dtype), random_row(rng, len(H), decades).astype(dtype)

    def add(library):
        root = Root(H, dtype)
        root.call(library.add_row_to_root, aligned_copy(row, dtype))
        root.check(len(H))
        return root.H

    result = on_all_targets(core, dtype, add)
    assert (np.diag(result) >= 0).all()
    if len(H):
        assert_stands_for(result, dtype, H, row)


@DTYPES
@settings(max_examples=100)
@given(st.data())
def test_a_root_grows(core, dtype, data):
    H, rng, decades = data.draw(roots(dtype))
    k = len(H)
    H, row = H.astype(dtype), random_row(rng, k + 1, decades).astype(dtype)
    diagonal = dtype(rng.choice([0, 1e-3, 1, 1e3]))
    start = np.zeros((k + 1, k + 1))
    start[:k, :k], start[k, k] = H, diagonal

    def grow(library):
        root = Root(H, dtype, most=k + 1)
        root.array[k:] = root.array[:, k:] = 9  # space that is not in use yet
        root.array[:k, padded(k + 1) :] = root.array[k:, padded(k + 1) :] = 0
        number = np.ctypeslib.as_ctypes_type(dtype)(diagonal)
        root.array[:k, k + 1 :] = 0
        root.call(library.grow_root, aligned_copy(row, dtype), number)
        root.check(k + 1)
        return root.H

    assert_stands_for(on_all_targets(core, dtype, grow), dtype, start, row)


@DTYPES
@settings(max_examples=100)
@given(st.data())
def test_an_unknown_is_deleted(core, dtype, data):
    H, _, _ = data.draw(roots(dtype).filter(lambda drawn: len(drawn[0]) > 0))
    H, j = H.astype(dtype), data.draw(st.integers(0, len(H) - 1))

    def delete(library):
        root = Root(H, dtype)
        root.call(library.delete_from_root, j)
        root.check(len(H) - 1)
        return root.H

    result = on_all_targets(core, dtype, delete)
    assert (np.diag(result) >= 0).all()
    if len(H) > 1:
        assert_stands_for(result, dtype, np.delete(H, j, axis=1))


@DTYPES
@pytest.mark.parametrize("transposed", [False, True])
@settings(max_examples=100)
@given(st.data())
def test_equations_are_solved(core, dtype, transposed, data):
    H, rng, _ = data.draw(roots(dtype, regular=True))
    k = len(H)
    # Elements of up to 1 / k keep the solution within the range of float.
    H = np.triu(H, 1) / max(k, 1) * np.diag(H)[:, None] + np.diag(np.diag(H))
    H, b = H.astype(dtype), rng.normal(size=k).astype(dtype)

    def solve(library):
        root, x = Root(H, dtype), aligned_copy(b, dtype)
        root.call(library.solve_root_transposed if transposed else library.solve_root, x)
        assert (x[k:] == 0).all()
        return x[:k]

    x = on_all_targets(core, dtype, solve).astype(np.longdouble)
    A = (H.T if transposed else H).astype(np.longdouble)
    assert (np.abs(b - A @ x) <= (k + 2) * EPS[dtype] * (np.abs(A) @ np.abs(x))).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-30, 1e30, 1e160, 1e300])
def test_squares_may_overflow_or_underflow(core, scale, rng):
    for k in (1, 2, 9):
        H, row = scale * np.triu(rng.uniform(0.1, 1, (k, k))), scale * rng.normal(size=k)

        def add(library, H=H, row=row):
            root = Root(H)
            root.call(library.add_row_to_root, aligned_copy(row))
            return root.H

        assert_stands_for(
            on_all_targets(core, np.float64, add) / scale, np.float64, H / scale, row / scale
        )


@pytest.mark.parametrize("ratio", [1e-8, 1e8, 1e100])
def test_a_row_of_another_scale_leaves_the_other_directions_accurate(core, ratio, rng):
    """diag(1) and one row: the elements of H have closed forms."""
    k = 9
    row = ratio * rng.uniform(0.5, 2, k) * rng.choice([-1, 1], k)
    root = Root(np.eye(k))
    root.call(core.library("plain").add_row_to_root, aligned_copy(row))
    # HᵀH = I + row rowᵀ, so H_jj² = (1 + Σ_i≤j row_i²) / (1 + Σ_i<j row_i²)
    sums = 1 + np.concatenate([[0], np.cumsum(row.astype(np.longdouble) ** 2)])
    diagonal = np.sqrt(sums[1:] / sums[:-1])
    expected = np.triu(np.outer(row, row) / np.sqrt(sums[1:] * sums[:-1])[:, None], 1)
    np.testing.assert_allclose(root.H, expected + np.diag(diagonal), rtol=1e-14)


def test_a_root_that_grows_and_shrinks_keeps_its_accuracy(core, rng):
    """Unknowns come and go 200 times, beside the same matrix HᵀH in numpy."""
    library = core.library("plain")
    most, root = 12, Root(np.zeros((0, 0)), most=12)
    G = np.zeros((0, 0))
    for _ in range(200):
        if root.k == most or (root.k > 2 and rng.random() < 0.4):
            j = int(rng.integers(root.k))
            root.call(library.delete_from_root, j)
            G = np.delete(np.delete(G, j, axis=0), j, axis=1)
            root.check(root.k - 1)
        else:
            row = rng.normal(size=root.k + 1)
            root.call(library.grow_root, aligned_copy(row), np.ctypeslib.as_ctypes_type(float)(0.5))
            G = np.pad(G, (0, 1)) + np.outer(row, row)
            G[-1, -1] += 0.25
            root.check(root.k + 1)
        np.testing.assert_allclose(root.H.T @ root.H, G, atol=1e-13 * np.abs(G).max())
