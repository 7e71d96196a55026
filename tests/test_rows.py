"""Rows in pieces, blocks, copies and files; rows of huge, tiny and parallel numbers."""

import copy
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import orfit
from interrupts import everything
from orfit import small_linalg
from orfit.memory import Latest, Principal, Random

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("p", [12, 40, pytest.param(5000, marks=pytest.mark.slow)])
@given(
    seed=seeds,
    m=st.integers(1, 80),
    noise=st.sampled_from([0.0, 0.1, "auto"]),
    forgetting=st.sampled_from([1.0, 0.9]),
    heads=st.sampled_from([None, 3, 5]),
    dtype=st.sampled_from([np.float64, np.float32]),
)
@settings(max_examples=8)
def test_a_stream_in_pieces_is_the_stream_bit_by_bit(p, seed, m, noise, forgetting, heads, dtype):
    rng, sides = np.random.default_rng(seed), () if heads is None else (heads,)
    X, y = rng.standard_normal((70, p)), rng.standard_normal((70, *sides))
    scale = 1e35 if dtype is np.float64 else 1e6
    for i in range(1, len(X)):  # repeated, zero, huge, or nearly parallel rows
        kind, before = rng.integers(12), X[rng.integers(i)]
        X[i] = {0: before, 1: 0 * before, 2: scale * X[i], 3: before + 1e-7 * X[i]}.get(kind, X[i])
    model, w0 = orfit.Linear(p, heads=heads), np.zeros((p, *sides), dtype)
    made = {"noise": noise, "forgetting": forgetting}
    whole, pieces, single = (orfit.ORFit(model, m, w0=w0, **made) for _ in range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole.learn_each(X, y)
        cuts = np.sort(rng.integers(0, len(X), 6))
        for part in np.split(np.arange(len(X)), cuts):
            pieces.learn_each(X[part], y[part])
        for x, label in zip(X, y, strict=True):
            single.learn(x, label)
    for other in (pieces, single):
        assert everything(other) == everything(whole)


def test_a_large_basis(rng):
    """Many directions, with compactions, equal the algorithm of the paper."""
    X, y = rng.standard_normal((90, 6000)), rng.standard_normal(90)
    blocks = [(X[i : i + 1], y[i : i + 1]) for i in range(90)]
    w, U, _ = oracles.batch_orfit_limited(blocks, np.zeros(6000), 40)
    learner = orfit.ORFit(orfit.Linear(6000), 40)
    learner.learn_each(X, y)
    assert np.abs(learner.w - w).max() <= 1e-12
    assert np.abs(learner.memory.U @ (learner.memory.U.T @ U) - U).max() <= 1e-9
    assert np.abs(learner.memory.U.T @ learner.memory.U - np.eye(40)).max() <= 1e-12


def test_a_memory_that_keeps_fewer_directions_than_allowed(rng):
    class Fewer(Principal):
        def keep(self, sigma, m):
            return [0]

    learner = orfit.ORFit(orfit.Linear(4), Fewer(3))
    X, y = rng.standard_normal((9, 4)), rng.standard_normal(9)
    ranks = [learner.learn(*row).rank for row in zip(X, y, strict=True)]
    assert ranks == [1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert learner.predict(X[-1]) == pytest.approx(y[-1])


def test_read_only_input_is_learned_and_not_changed(rng):
    X, y = rng.standard_normal((5, 4)), rng.standard_normal(5)
    before = X.copy()
    X.flags.writeable = False
    learner = orfit.ORFit(orfit.Linear(4), 2)
    learner.learn_each(X, y)
    assert (X == before).all()


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float64, 1e160), (np.float64, 1e-160), (np.float32, 1e20), (np.float32, 1e-22)],
)
def test_a_block_whose_squares_overflow_or_vanish(dtype, scale, noise, rng):
    learner = orfit.ORFit(orfit.Linear(50), 5, noise=noise, w0=np.zeros(50, dtype))
    learner.learn_each(rng.standard_normal((10, 50)) * scale, rng.standard_normal(10) * scale)
    X = rng.standard_normal((3, 50))
    learner.learn_batch(X * scale, np.array([1, 1, 2]) * scale)
    eps = float(np.finfo(dtype).eps)
    assert np.abs(learner.memory.U.T @ learner.memory.U - np.eye(5)).max() <= 100 * eps
    if noise == 0:
        assert learner.predict(X * scale) / scale == pytest.approx([1, 1, 2], abs=1e4 * eps)


def test_one_huge_row_in_a_block(rng):
    X = rng.standard_normal((3, 50))
    X[0] *= 1e160
    learner = orfit.ORFit(orfit.Linear(50), 20, noise=1.0)
    learner.learn_batch(X, [1.0, 1.0, 2.0])
    assert np.isfinite(learner.w).all()


def test_noise_and_a_row_that_is_1e15_times_as_long(rng):
    """What was seen along short rows counts relative to the noise, not to the longest row."""
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = np.array([1e15 * Q[0], Q[1], Q[1] + 0.3 * Q[2], Q[1] + 0.1 * Q[2]])
    y, noise = np.array([1.0, 1.0, 2.0, 3.0]), 1e-2
    learner = orfit.ORFit(orfit.Linear(6), 4, noise=noise)
    learner.learn_each(X, y)
    # In coordinates along Q the long row decouples: ridge regression in two dimensions.
    Z = X[1:] @ Q[1:3].T
    expected = np.linalg.solve(Z.T @ Z + noise * np.eye(2), Z.T @ y[1:])
    assert Q[1:3] @ learner.w == pytest.approx(expected, rel=1e-9)


def test_a_long_step_along_a_short_row_in_float32():
    learner = orfit.ORFit(orfit.Linear(2), 1, w0=np.zeros(2, np.float32))
    learner.learn(np.float32([1e-3, 1e-3]), 1e34)
    assert learner.w == pytest.approx([5e36, 5e36], rel=1e-5)


def test_steps_that_overflow_together_are_refused():
    from scipy.linalg import hadamard

    X, y = hadamard(64) / 2, np.full(64, 1.6e308)
    learner = orfit.ORFit(orfit.Linear(64), 64)
    with pytest.raises(ValueError, match="the step overflows"):
        learner.learn_each(X, y)
    assert np.isfinite(learner.w).all()


def test_long_steps_there_and_back_do_not_overflow():
    """A step is refused only if w itself would overflow."""
    learner = orfit.ORFit(orfit.Linear(3), 1, w0=np.zeros(3, np.float32))
    X = np.eye(3)[np.arange(600) % 2]
    y = np.where(np.arange(600) % 4 < 2, 1e35, -1e35)
    learner.learn_each(X, y)
    assert learner.seen == 600
    for x, label in zip(X[:400], y, strict=False):
        learner.learn(x, label)
    assert learner.seen == 1000
    with pytest.raises(ValueError, match="overflows"):
        learner.learn([0.0, 0.0, 1.0], 1e39)


@pytest.mark.parametrize("forgetting", [1.0, 0.7])
def test_a_refused_row_leaves_the_state_bit_by_bit(forgetting, rng):
    learner = orfit.ORFit(orfit.Linear(9), 4, forgetting=forgetting)
    learner.learn_each(rng.standard_normal((8, 9)), rng.standard_normal(8))
    before = everything(learner)
    with pytest.raises(ValueError, match="overflows"):
        learner.learn(rng.standard_normal(9), 1.7e308)
    assert everything(learner) == before


@pytest.mark.parametrize("spread", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e150])
def test_principal_axes_of_a_large_root(spread, scale, rng):
    """With narrow singular values by RᵀR, with wide ones by an SVD."""
    A = rng.standard_normal((400, 80)) * np.geomspace(1, 10**-spread, 80)
    R = small_linalg.triangle(A) * scale
    sigma, V = small_linalg.principal(R)
    expected = np.linalg.svd(R / scale, compute_uv=False)
    assert sigma / scale == pytest.approx(expected, rel=1e-10)
    assert np.abs(V.T @ V - np.eye(80)).max() <= 1e-13
    along = np.linalg.norm((R / scale) @ V, axis=0)
    assert along == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_reading_copying_and_saving_change_nothing(heads, noise, rng, tmp_path):
    """Also between compactions, when w is a combination of rows."""
    X, Y = rng.standard_normal((60, 30)), rng.standard_normal((60, *([heads] if heads else [])))
    X[1::2] += X[::2]  # some gradients keep more than half of their length, some do not
    X[2::5] = X[1::5] + 0.1 * X[2::5]

    def learner():
        return orfit.ORFit(orfit.Linear(30, heads=heads), 4, noise=noise)

    single, watched = learner(), learner()
    for x, y in zip(X, Y, strict=True):
        single.learn(x, y)
        watched.learn(x, y)
        before = watched.predict(X)
        assert np.abs(X @ watched.w - before).max() <= 1e-12
        twin = copy.deepcopy(watched)
        assert (twin.predict(X) == before).all()
        watched.save(tmp_path / "learner.safetensors")
        watched = orfit.load(tmp_path / "learner.safetensors")
        assert (watched.predict(X) == before).all()
    assert watched._cell.state.shift.any()
    assert everything(watched) == everything(single)


def test_numbers_beyond_the_stored_rows_are_not_read(rng):
    X, y = rng.standard_normal((90, 6000)), rng.standard_normal(90)
    learner = orfit.ORFit(orfit.Linear(6000), 49)
    learner.learn_batch(X[:40], y[:40])
    learner.learn_batch(X[40:60], y[40:60])
    s = learner._cell.state
    stored = s.store.stored
    s.M[stored:], s.M[:, stored:], s.store.rows[stored:] = np.nan, np.nan, np.nan
    for x, label in zip(X[60:], y[60:], strict=True):
        learner.learn(x, label)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(49)).max() <= 1e-13
    assert learner.predict(X[-1]) == pytest.approx(y[-1])


def test_the_memory_of_a_learner_absorbs_no_other_gradients(rng):
    learner = orfit.ORFit(orfit.Linear(20), 3)
    with pytest.raises(ValueError, match="belongs to"):
        learner.memory.absorb(rng.standard_normal((20, 1)))


def test_a_memory_may_absorb_gradients_before_it_belongs_to_a_learner(rng):
    X, y = rng.standard_normal((9, 20)), rng.standard_normal(9)
    for more in ({}, {"noise": 1e-3}, {"noise": 1e-3, "forgetting": "auto"}):
        memory = Principal(8)
        memory.absorb(X[:4].T)
        learner = orfit.ORFit(orfit.Linear(20), memory, **more)
        learner.learn_each(X[4:], y[4:])
        assert learner.memory.rank == 8
        if not more:  # nothing moves along the absorbed gradients
            assert np.abs(X[:4] @ learner.w).max() <= 1e-12
        assert learner.predict(X[-1]) == pytest.approx(y[-1], abs=0.01)


@pytest.mark.parametrize(("share", "m"), [(0.86, 60), (0.8, 120), (0.707, 60), (0.5, 120)])
def test_a_chain_of_gradients_each_half_its_predecessor(share, m):
    """An orthonormality loss is not magnified by the directions that follow."""
    p, n = 150, 120
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((p, p)))[0]
    links = [share * Q[j - 1] + np.sqrt(1 - share**2) * Q[j] for j in range(1, n)]
    X, y = np.array([Q[0], *links]), np.random.default_rng(1).standard_normal(n)
    learner = orfit.ORFit(orfit.Linear(p), m, noise=1e-2)
    learner.learn_each(X, y)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(m)).max() <= 1e-12
    if m == n:
        ridge = np.linalg.solve(X.T @ X + 1e-2 * np.eye(p), X.T @ y)
        assert np.abs(learner.w - ridge).max() <= 1e-12


def learned_in_calls(seed, tmp_path, copied):
    """A learner after rows and blocks in random order; copied: also after copies and files."""
    rng = np.random.default_rng(seed)
    p, heads = int(rng.integers(5, 60)), [None, 3][seed % 2]
    m, noise = int(rng.integers(1, min(p, 20))), float(rng.choice([0.0, 1e-3, 1.0]))
    forgetting = float(rng.choice([1.0, 0.97]))
    model = orfit.Linear(p, heads=heads)
    learner = orfit.ORFit(model, m, noise=noise, forgetting=forgetting)
    common = rng.standard_normal(p) * rng.choice([0.0, 1.0, 2.0])
    for _ in range(20):
        n = int(rng.integers(1, 14))
        X, Y = rng.standard_normal((n, p)) + common, rng.standard_normal((n, heads or 1))
        Y, kind = Y if heads else Y[:, 0], rng.integers(5)
        if kind == 0:
            learner.learn_batch(X, Y)
        elif kind == 1:
            for x, y in zip(X, Y, strict=True):
                learner.learn(x, y)
        elif kind == 2:
            learner = copy.deepcopy(learner) if copied else learner
        elif kind == 3 and copied:
            learner.save(tmp_path / "learner.safetensors")
            learner = orfit.load(tmp_path / "learner.safetensors")
        elif kind == 4:
            learner.learn_each(X, Y)
    return learner


@pytest.mark.parametrize("seed", range(8))
def test_copies_and_files_between_calls_change_no_bit(seed, tmp_path):
    learner, plain = (learned_in_calls(seed, tmp_path, copied) for copied in (True, False))
    assert everything(learner) == everything(plain)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(U.shape[1])).max() <= 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("memory", "p"),
    [
        (orfit.memory.Latest(4), 6),
        (orfit.memory.Random(4), 6),
        (orfit.memory.Latest(20), 30),
        (orfit.memory.Principal(4), 6),
        (orfit.memory.Principal(10), 40),
    ],
)
def test_directions_that_are_replaced_many_times_stay_orthonormal(memory, p, dtype, rng):
    """An orthonormality loss does not grow like a power of the number of replacements."""
    memory = copy.deepcopy(memory)
    for _ in range(600):
        memory.absorb(rng.standard_normal(p).astype(dtype))
    U = memory.U.astype(float)
    bound = 1e-10 if dtype == np.float64 else 2e-4
    assert np.abs(U.T @ U - np.eye(U.shape[1])).max() <= bound


def test_a_long_stream_of_few_directions_and_little_noise(rng):
    X = rng.standard_normal((3000, 6)) @ rng.standard_normal((6, 40))
    X = (X + 1e-3 * rng.standard_normal(X.shape)).astype(np.float32)
    learner = orfit.ORFit(orfit.Linear(40), 10, w0=np.zeros(40, np.float32))
    learner.learn_each(X, X[:, 0])
    U = learner.memory.U.astype(float)
    assert np.abs(U.T @ U - np.eye(10)).max() <= 1e-4


def test_rows_and_steps_at_the_ends_of_the_range(rng):
    learner = orfit.ORFit(orfit.Linear(4), 2)
    learner.learn_each(rng.standard_normal((3, 4)) * [[1], [1e-100], [1e100]], [1.0, 2.0, 3.0])
    assert learner.seen == 3
    learner.learn_each(np.eye(4)[:1] * 1e-305, [0.0])  # its inverse nearly overflows
    assert learner.seen == 4
    X = np.random.default_rng(0).standard_normal((4, 5))
    X[2] *= 1e-310
    learner = orfit.ORFit(orfit.Linear(5), 3)
    learner.learn_each(X, [1.0, 1.0, 0.0, 1.0])
    assert np.isfinite(learner.memory.sigma).all()
    assert learner.memory.rank == 3
    learner, x = orfit.ORFit(orfit.Linear(3), 2, noise=1.0), np.array([1e200, 0, 0])
    learner.learn(x, 1.0)
    learner.learn(x, 3.0)
    assert learner.predict(x) == pytest.approx(2.0)
    learner = orfit.ORFit(orfit.Linear(3), 2)
    learner.learn([1.0, 0, 0], 1e300)
    with pytest.raises(ValueError, match="leaves the finite numbers"):
        learner.learn([1e10, 0, 0], 1.0)
    assert learner.seen == 1
    learner = orfit.ORFit(orfit.Linear(6), 3, noise=0.1)
    learner.learn_each(np.zeros((2, 6)), np.zeros(2))
    assert learner.seen == 2


@pytest.mark.parametrize(("dtype", "short", "y"), [("d", 1e-149, 1e165), ("f", 1e-14, 1e28)])
def test_a_step_along_a_short_row(dtype, short, y):
    """Its coefficient may overflow where the step itself does not."""
    X = np.random.default_rng(0).standard_normal((2, 5))
    X[1] += X[0]
    X[0] *= short
    learner = orfit.ORFit(orfit.Linear(5), 3, w0=np.zeros(5, dtype))
    learner.learn_each(X, [0.0, y])
    assert np.isfinite(learner.w).all()
    assert learner.predict(X[1]) == pytest.approx(y, rel=1e-4)


def test_the_bound_of_the_parameters_follows_all_steps():
    w0 = np.zeros(2, np.float32)
    learner = orfit.ORFit(orfit.Linear(2), orfit.memory.Nothing(), w0=w0)
    x = np.eye(2) * 1e-6

    def learn_until_refused():
        for _ in range(40):
            learner.learn_each(x, np.array([learner.predict(x[0]) + 5e31, 0]))

    with pytest.raises(ValueError, match="overflows"):
        learn_until_refused()
    before = learner._cell.state.parameter_bound
    with pytest.raises(ValueError, match="overflows"):
        learner.learn(x[0], 1e35)
    assert learner._cell.state.parameter_bound == before
    assert np.isfinite(learner.w).all()


def test_a_memory_of_another_learner_is_refused_by_load(rng, tmp_path):
    learner = orfit.ORFit(orfit.Linear(5), Latest(2))
    learner.save(tmp_path / "l")
    with pytest.raises(ValueError, match="memory must be None, a whole number"):
        orfit.load(tmp_path / "l", memory=Latest)
    with pytest.raises(ValueError, match="belongs to another learner"):
        orfit.load(tmp_path / "l", memory=learner.memory)
    with pytest.raises(orfit.CheckpointError, match=r"not with Principal\(m=5\)"):
        orfit.load(tmp_path / "l", memory=5)


@pytest.mark.parametrize("kind", [Latest, Random])
def test_with_noise_too_rounding_displaces_no_direction(kind, rng):
    """Five directions; the last two begin with a thirtieth of the length of their rows."""
    for _ in range(4):
        Z = rng.standard_normal((200, 5))
        Z[:3, 3:], Z[3, 3:], Z[4, 3:] = 0, (0.03, 0), (1, 0.03)
        X = Z @ rng.standard_normal((5, 12))
        y = X @ rng.standard_normal(12) + 0.1 * rng.standard_normal(200)
        learner = orfit.ORFit(orfit.Linear(12), kind(5), noise=5e-3)
        learner.learn_each(X, y)
        ridge = np.linalg.solve(X.T @ X + 5e-3 * np.eye(12), X.T @ y)
        assert np.abs(learner.w - ridge).max() <= 1e-6


def test_rows_before_one_whose_gradient_is_not_finite_are_learned(rng):
    class Bad(orfit.Linear):
        def affine(self, X, Y):
            offset, Y, G = super().affine(X, Y)
            G = np.array(G, order="F")
            G[:, X[:, 0] == 99] = np.nan
            return offset, Y, G

    X, y = rng.standard_normal((12, 30)), rng.standard_normal(12)
    X[9, 0] = 99
    learner, expected = orfit.ORFit(Bad(30), 3), orfit.ORFit(orfit.Linear(30), 3)
    learner.learn_each(X[:4], y[:4])
    with pytest.raises(ValueError, match="not finite"):
        learner.learn_each(X[4:], y[4:])
    expected.learn_each(X[:9], y[:9])
    assert learner.seen == 9
    assert np.abs(learner.w - expected.w).max() <= 1e-10


def test_a_model_may_have_an_origin_and_no_affine():
    class Shifted:
        size, heads, input_shape, linear = 3, None, (3,), True
        origin = np.array([1.0, 2.0, 3.0])

        def initial(self):
            return np.zeros(3)

        def predict(self, w, X):
            return X @ w

        def linearize(self, w, X):
            return X @ w, np.asfortranarray(X.T)

        def settings(self):
            return {}

    learner = orfit.ORFit(Shifted())
    assert learner.learn(np.ones(3), 5.0).prediction == pytest.approx(0)
    assert learner.predict(np.ones(3)) == pytest.approx(5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("heads", "bias"), [(None, False), (None, True), (3, True)])
def test_one_row_is_predicted_as_many_are(rng, dtype, heads, bias):
    model = orfit.Linear(20, heads=heads, bias=bias)
    X, Y = rng.standard_normal((90, 20)).astype(dtype), rng.standard_normal((90, heads or 1))
    w0 = np.zeros(model.initial().shape, dtype)
    for learner in (
        orfit.ORFit(model, 10, noise=0.1, w0=w0),
        orfit.ORFit(model, noise=0.1, w0=w0),
        orfit.RLS(model, w0=w0),
    ):
        learner.learn_each(X[:40], Y[:40] if heads else Y[:40, 0])
        many = learner.predict(X)
        before = learner.state()[0]
        for x, f in zip(X, many, strict=True):
            one = learner.predict(x)
            assert learner._cell.held.predict(x) is not None
            assert type(one) is type(f)
            assert one.dtype == f.dtype
            np.testing.assert_allclose(one, f, atol=20 * np.finfo(dtype).eps)
            np.testing.assert_allclose(learner.predict(x.tolist()), f, atol=1e-5)
        for name, array in learner.state()[0].items():
            np.testing.assert_array_equal(array, before[name])
        with pytest.raises(ValueError, match="X must be finite"):
            learner.predict(np.full(20, np.nan, dtype))
        with pytest.raises(ValueError, match="X must have shape"):
            learner.predict(X[0, :19])


def test_the_scale_before_each_row_is_known(rng):
    X, y = rng.standard_normal((50, 4)), rng.standard_normal(50)
    together, alone = (orfit.RLS(orfit.Linear(4), prior=0.1) for _ in range(2))
    scales = []
    for x, label in zip(X, y, strict=True):
        scales.append(alone.scale)
        alone.learn(x, label)
    found = [
        together.learn_each_with_scale(X[rows], y[rows])[1] for rows in (slice(7), slice(7, 50))
    ]
    np.testing.assert_array_equal(np.vstack(found)[:, 0], scales)
