"""The stores: every operation against plain NumPy, and stores as values."""

import copy

import numpy as np
import pytest

from orfit.store import HOST, Store, arithmetic, cutoff, largest_allowed, numpy_dtype

SIZE = 30


class Kind:
    """Arrays of one library and dtype, with contiguous columns."""

    def __init__(self, library, dtype):
        self.library, self.dtype = library, np.dtype(dtype)
        self.eps = float(np.finfo(dtype).eps)

    def array(self, values):
        A = np.asfortranarray(values, self.dtype)
        if self.library is np:
            return A
        return self.library.as_tensor(A.T.copy()).mT if A.ndim == 2 else self.library.as_tensor(A)

    def draw(self, rng, *shape):
        return self.array(rng.standard_normal(shape))


@pytest.fixture(params=["numpy", "torch"])
def library(request):
    return pytest.importorskip(request.param)


@pytest.fixture(params=["float64", "float32"])
def kind(library, request):
    return Kind(library, request.param)


def plain(A):
    """Float64 NumPy numbers."""
    return arithmetic(A).to_numpy(A).astype(float)


def assert_near(A, expected, eps, terms=SIZE):
    """Equal up to the rounding of sums of so many products of a few units."""
    assert A.shape == expected.shape
    assert np.abs(plain(A) - expected).max(initial=0) <= 20 * terms * eps


def new_store(kind, rng, rows=5, capacity=8, columns=2):
    like = kind.draw(rng, SIZE, 1)
    s = Store.new(arithmetic(like), like, capacity, columns)
    return s.append(kind.draw(rng, SIZE, rows)).with_base(kind.draw(rng, SIZE, columns))


def contents(store):
    return plain(store.Q), plain(store.base), store.stored


def assert_unchanged(store, before):
    for now, then in zip(contents(store), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_products_and_combinations(kind, k, n, rng):
    A, G, c = kind.draw(rng, SIZE, k), kind.draw(rng, SIZE, n), rng.standard_normal((k, n))
    ops = arithmetic(A)
    a, g = plain(A), plain(G)
    assert_near(ops.inner(A, G), a.T @ g, kind.eps)
    assert_near(ops.combine(A, c), a @ c, kind.eps)
    assert_near(ops.gram(A), a.T @ a, kind.eps)
    assert ops.inner(A, G).dtype == ops.gram(A).dtype == np.float64
    assert numpy_dtype(ops.combine(A, c)) == kind.dtype
    before = plain(G)
    assert_near(ops.subtract(G, A, c), g - a @ c, kind.eps)
    np.testing.assert_array_equal(plain(G), before)
    assert_near(ops.side_by_side([A, G]), np.hstack([a, g]), kind.eps)


def test_vectors(kind, rng):
    A, g, c = kind.draw(rng, SIZE, 4), kind.draw(rng, SIZE), rng.standard_normal(4)
    ops = arithmetic(A)
    assert_near(ops.inner(A, g), plain(A).T @ plain(g), kind.eps)
    assert_near(ops.combine(A, c), plain(A) @ c, kind.eps)
    assert_near(ops.subtract(g, A, c), plain(g) - plain(A) @ c, kind.eps)


@pytest.mark.parametrize("n", [1, 3])
def test_factors(kind, n, rng):
    G = kind.draw(rng, SIZE, n)
    Q, R = arithmetic(G).factors(G)
    assert_near(plain(Q).T @ plain(Q), np.eye(n), kind.eps)
    assert_near(plain(Q) @ R, plain(G), kind.eps)
    assert (np.diagonal(R) >= 0).all()
    assert (np.tril(R, -1) == 0).all()


def test_norms(kind, rng):
    """Also of columns whose squares leave the range of the dtype."""
    limits = np.finfo(kind.dtype)
    scales = np.array([1.0, 0.0, float(limits.max) / 100, 100 * float(limits.tiny)])
    G = rng.standard_normal((SIZE, 4)) / 10
    lengths = np.linalg.norm(G, axis=0) * scales
    A = kind.array(G * scales)
    ops = arithmetic(A)
    np.testing.assert_allclose(ops.norms(A), lengths, rtol=20 * kind.eps)
    np.testing.assert_allclose(ops.finite_norms(A), lengths, rtol=20 * kind.eps)
    assert ops.norms(kind.draw(rng, SIZE, 0)).shape == (0,)
    with pytest.raises(ValueError, match="gradient is not finite"):
        ops.finite_norms(kind.array(np.full((SIZE, 1), np.nan)))


def test_small_operations(kind, rng):
    A = kind.draw(rng, SIZE, 3)
    ops = arithmetic(A)
    assert ops.largest(A) == np.abs(plain(A)).max()
    assert ops.largest(kind.draw(rng, 0, 3)) == 0
    assert ops.finite(A)
    assert not ops.finite(kind.array([[1.0, np.inf]]))
    made = ops.copy(A)
    made[0, 0] = 7
    assert A[0, 0] != 7
    assert numpy_dtype(ops.convert(A, [1.5])) == numpy_dtype(ops.empty(A, 2, 3)) == kind.dtype
    assert tuple(ops.empty(A, 2, 3).shape) == (2, 3)
    np.testing.assert_array_equal(ops.to_numpy(A), plain(A))
    assert cutoff(A.dtype) == 100 * kind.eps
    assert largest_allowed(numpy_dtype(A)) == float(np.finfo(kind.dtype).max) / 4


def test_rows_of_an_empty_array_start_at_a_cache_line():
    assert HOST.empty(np.empty(1), 3, 5).ctypes.data % 64 == 0


def test_a_new_store(kind, rng):
    like = kind.draw(rng, SIZE, 1)
    store = Store.new(arithmetic(like), like, 4, 2)
    assert (store.stored, store.capacity) == (0, 4)
    assert (plain(store.base) == 0).all()
    assert tuple(store.Q.shape) == (SIZE, 0)
    assert store.base.shape == (2, SIZE)


def test_reading_a_store(kind, rng):
    store = new_store(kind, rng)
    G, A, shift = kind.draw(rng, SIZE, 3), rng.standard_normal((5, 3)), rng.standard_normal((2, 5))
    before = contents(store)
    Q, base = before[:2]
    rows, along_base, square = store.products(G)
    assert_near(rows, plain(G).T @ Q, kind.eps)
    assert_near(along_base, plain(G).T @ base.T, kind.eps)
    assert_near(square, plain(G).T @ plain(G), kind.eps)
    assert_near(store.residual(G, A), plain(G) - Q @ A, kind.eps)
    assert_near(store.parameters(shift), base.T + Q @ shift.T, kind.eps)
    assert_near(store.moved_base(shift), base + shift @ Q.T, kind.eps)
    assert_unchanged(store, before)


@pytest.mark.parametrize("more", [1, 3, 4, 40])
def test_append_does_not_change_an_older_store(kind, more, rng):
    """Where rows fit into the shared buffer, and where a larger one is needed."""
    store = new_store(kind, rng)
    before, N = contents(store), kind.draw(rng, SIZE, more)
    grown = store.append(N)
    assert grown.stored == 5 + more <= grown.capacity
    np.testing.assert_array_equal(plain(grown.Q), np.hstack([before[0], plain(N)]))
    np.testing.assert_array_equal(plain(grown.base), before[1])
    assert (grown.capacity == 8) == (more <= 3)
    assert_unchanged(store, before)


def test_capacity_depends_on_the_number_of_rows_alone(kind, rng):
    at_once = new_store(kind, rng).append(kind.draw(rng, SIZE, 60))
    one_by_one = new_store(kind, rng)
    for _ in range(60):
        one_by_one = one_by_one.append(kind.draw(rng, SIZE, 1))
    assert at_once.capacity == one_by_one.capacity


@pytest.mark.parametrize("rows", [0, 5])
@pytest.mark.parametrize("more", [0, 1, 40])
def test_compact_writes_into_a_new_buffer(kind, rows, more, rng):
    """Also what is beside the buffer."""
    store, N = new_store(kind, rng, rows), kind.draw(rng, SIZE, more)
    store = store.beside(N) if more else store
    T, shift = rng.standard_normal((3, rows + more)), rng.standard_normal((2, rows + more))
    before = contents(store)
    np.testing.assert_array_equal(before[0][:, rows:], plain(N))
    for same in (store, store.with_base(store.base.T), store.resized(8)):
        np.testing.assert_array_equal(contents(same)[0], before[0])
        assert same.stored == rows + more
    assert store.capacity == 8
    made = store.compact(T, shift, 8)
    assert_near(made.Q, before[0] @ T.T, kind.eps)
    assert_near(made.base, before[1] + shift @ before[0].T, kind.eps)
    assert_near(store.parameters(shift), plain(made.base).T, kind.eps)
    assert_unchanged(store, before)


def test_compact_into_another_capacity(kind, rng):
    store = new_store(kind, rng)
    made = store.compact(np.eye(3, 5), np.zeros((2, 5)), 6)
    assert (made.capacity, made.stored) == (6, 3)
    np.testing.assert_array_equal(plain(made.Q), plain(store.Q)[:, :3])


def test_variants_do_not_change_a_store(kind, rng):
    store = new_store(kind, rng)
    before, w, U = contents(store), kind.draw(rng, SIZE, 2), kind.draw(rng, SIZE, 3)
    with_base, resized = store.with_base(w), store.resized(20)
    with_rows, copied = store.with_rows(U), copy.deepcopy(store)
    for made in (with_base, resized, copied):
        np.testing.assert_array_equal(plain(made.Q), before[0])
    for made in (with_rows, resized, copied):
        np.testing.assert_array_equal(plain(made.base), before[1])
    np.testing.assert_array_equal(plain(with_base.base), plain(w).T)
    np.testing.assert_array_equal(plain(with_rows.Q), plain(U))
    assert resized.capacity == 20
    copied.rows[:], copied.base[:], with_base.base[:] = 0, 0, 0
    with_rows.rows[:], resized.rows[:] = 0, 0
    assert_unchanged(store, before)
    assert plain(w).any()
