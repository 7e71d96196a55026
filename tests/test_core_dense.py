"""Dense P in C: each function against NumPy, and whole filters against closed forms."""

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from core_library import (
    BAD_GRADIENT,
    BAD_PREDICTION,
    DONE,
    LANES,
    NEEDS_LIMIT,
    PLAIN,
    RESULTS,
    ROOT,
    STRUCTS,
    TOO_LARGE,
    Filter,
    aligned_copy,
    library,
    matrix,
    number,
    padded,
    pointer,
    targets,
    zeros,
)
from orfit.memory import windup
from reference import dense as reference

sizes, seeds = st.integers(1, 30), st.integers(0, 2**32 - 1)


def drawn(seed, p):
    """U, D, a gradient, and a covariance, all with elements of very different sizes."""
    rng = np.random.default_rng(seed)
    U = np.triu(rng.standard_normal((p, p)), 1) + np.eye(p)
    D, g = 10.0 ** rng.uniform(-4, 4, p), rng.standard_normal(p)
    return U, D, g, (U * D) @ U.T


def lower(A):
    """The rows of A (n×n) up to the end of the block of eight columns with the diagonal."""
    rows, columns = np.indices(A.shape)
    return matrix(np.where(columns // LANES <= rows // LANES, A, 0.0))


def close(found, expected, digits=1e-13):
    assert np.abs(found - expected).max() <= digits * np.abs(expected).max()


# The forms of P.


@given(seeds, sizes)
def test_products_with_both_forms(seed, p):
    U, _, g, P = drawn(seed, p)
    f, y = zeros(padded(p)), zeros(padded(p))
    columns, rows, x = matrix(U.T), lower(P), aligned_copy(g)
    library().multiply_factors(pointer(columns), padded(p), p, pointer(x), pointer(f))
    library().multiply_covariance(pointer(rows), padded(p), p, pointer(x), pointer(y))
    close(f[:p], U.T @ g, 1e-14 * p)
    close(y[:p], P @ g)
    assert (f[p:] == 0).all()
    assert (y[p:] == 0).all()


@given(seeds, sizes)
def test_update_of_the_root(seed, p):
    U, _, _, _ = drawn(seed, p)
    v, s = np.random.default_rng(seed).standard_normal((2, p))
    columns, y = matrix(U.T), zeros(padded(p))
    arguments = map(pointer, (aligned_copy(v), aligned_copy(s), y))
    library().update_factors(pointer(columns), padded(p), p, *arguments)
    for j in range(p):
        U[:, j], before = U[:, j] + s[j] * (U[:, :j] @ v[:j] if j else 0), U[:, j].copy()
        assert np.abs(columns[j, :p] - U[:, j]).max() <= 1e-12 * p
        U[:, j] = before  # later columns use sums of the columns before the update
    close(y[:p], U @ v)
    assert (np.diag(columns)[:p] == 1).all()


@given(seeds, sizes)
def test_update_of_plain_rows(seed, p):
    _, _, z, P = drawn(seed, p)
    rows = lower(P)
    library().update_covariance(pointer(rows), padded(p), p, number(1.25), pointer(aligned_copy(z)))
    np.testing.assert_array_equal(rows, lower(1.25 * P - np.outer(z, z)))


@given(seeds, sizes, st.floats(1e-6, 1e6), st.booleans())
def test_addition_to_the_root(seed, p, weight, singular):
    U, D, a, _ = drawn(seed, p)
    last = np.random.default_rng(seed).integers(p)
    D[:: 2 if singular else p + 1] = 0
    a[last + 1 :] = 0
    columns, found, work = matrix(U.T), aligned_copy(D), aligned_copy(a)
    library().add_to_factors(
        pointer(columns), padded(p), pointer(found), int(last), number(weight), pointer(work)
    )
    made = np.triu(columns[:p, :p].T)
    close((made * found[:p]) @ made.T, (U * D) @ U.T + weight * np.outer(a, a))
    assert (found >= 0).all()
    assert (columns == matrix(made.T)).all()


def factored(array, D, p):
    """U of `factor_covariance`, which sets D."""
    columns, work, start = zeros(*array.shape), zeros(padded(p)), zeros(padded(p))
    arguments = map(pointer, (columns, D, work, start))
    library().factor_covariance(pointer(array), padded(p), p, *arguments)
    made = np.triu(columns[:p, :p].T)
    assert (columns == matrix(made.T)).all()
    return made


@given(seeds, sizes)
def test_forms_are_converted_into_each_other(seed, p):
    U, D, _, P = drawn(seed, p)
    array, found = matrix(U.T), aligned_copy(D)
    trace = library().sum_variances(ROOT, pointer(array), padded(p), pointer(found), p)
    assert trace == pytest.approx(np.trace(P), rel=1e-13)
    library().fill_covariance(
        pointer(array), padded(p), pointer(found), p, pointer(zeros(padded(p)))
    )
    rows = np.tril(array[:p, :p])
    close(rows + np.tril(rows, -1).T, P)
    assert (array == lower(rows + np.tril(rows, -1).T)).all()
    trace = library().sum_variances(PLAIN, pointer(array), padded(p), None, p)
    assert trace == pytest.approx(np.trace(P), rel=1e-13)
    made = factored(array, found, p)
    close((made * found[:p]) @ made.T, P)


@given(seeds, st.integers(2, 20), st.integers(0, 4))
def test_a_singular_covariance_has_a_root(seed, p, rank):
    root = np.random.default_rng(seed).standard_normal((p, rank))
    root[:: int(seed % 3) + 1] *= 1e-4
    P = root @ root.T
    array, D = lower(P), zeros(padded(p))
    made = factored(array, D, p)
    assert (D >= 0).all()
    error = np.abs((made * D[:p]) @ made.T - P).max()
    assert error <= 4 * p**2 * np.finfo(float).eps * np.abs(P).max(initial=0)


@given(seeds, sizes, st.booleans(), st.sampled_from(["number", "orthogonal", "singular"]))
def test_steps_in_time(seed, p, plain, kind):
    rng = np.random.default_rng(seed)
    U, _, _, _ = drawn(seed, p)
    D = 10.0 ** rng.uniform(-2, 2, p) * (1 if plain else 10.0 ** (-12 * (np.arange(p) == 0)))
    root = rng.standard_normal((p, p))
    A = {"number": -1.5, "orthogonal": np.linalg.qr(root)[0], "singular": np.triu(root, 1)}[kind]
    drift = [None, 0.3, rng.uniform(0, 1, p), root @ root.T][seed % 4]
    Q = 0 if drift is None else drift if np.ndim(drift) == 2 else drift * np.eye(p)
    f = Filter(p, moves=True, drift=drift)
    f.triangle[:p, :p], f.D[:p] = U.T, D
    expected = A * A * f.P + Q if kind == "number" else A @ f.P @ A.T + Q
    f.struct.width = np.sqrt(np.trace(f.P) / p)
    assert f.move(A) == DONE
    assert np.abs(f.P - expected).max() <= 1e-13 * p * max(1, np.abs(expected).max())
    assert f.struct.width == pytest.approx(np.sqrt(np.trace(f.P) / p), rel=1e-12)


def test_a_step_in_time_that_overflows_changes_nothing():
    f = Filter(3, moves=True)
    before = f.state()
    assert f.move(1e200) == TOO_LARGE
    assert f.move(1e200 * np.ones((3, 3))) == TOO_LARGE
    assert f.state() == before


# Rows.


@given(seeds, sizes, st.sampled_from([0.0, 1e-6, 1.0]), st.sampled_from([1.0, 0.9]))
def test_one_row_is_biermans_update(seed, p, noise, forgetting):
    U, D, g, _ = drawn(seed, p)
    rng = np.random.default_rng(seed)
    f = Filter(p, noise=noise, forgetting=forgetting, prior=1 / D.max())
    w, y = rng.standard_normal(p), rng.standard_normal()
    f.triangle[:p, :p], f.D[:p], f.parameters[0, :p] = U.T, D, w
    f.struct.prior_width, f.struct.width = 1e9, 1.0  # so that P is not limited
    U, D, b, S = reference.update_factors(U, D / forgetting, g, noise)
    assert f.learn(g, y) == DONE
    close(f.w, w + b / S * (y - g @ w), 1e-12)
    close(f.triangle[:p, :p], U.T, 1e-11)
    close(f.D[:p], D, 1e-11)
    assert f.result("variance")[0] == pytest.approx(S, rel=1e-12)
    assert f.result("length")[0] == pytest.approx(np.linalg.norm(f.w - w), rel=1e-9, abs=1e-12)
    assert f.result("left")[0] == pytest.approx((y - g @ w) * noise / S, rel=1e-12)


@given(
    seeds,
    st.integers(1, 20),
    st.sampled_from([None, "number", "diagonal", "matrix"]),
    st.sampled_from([1.0, 0.95]),
    st.integers(1, 3),
)
def test_filters_against_the_textbook(seed, p, kind, forgetting, heads):
    rng = np.random.default_rng(seed)
    X, Y, root = (rng.standard_normal(s) for s in ((40, p), (40, heads), (p, p)))
    drift = {"number": 0.1, "diagonal": rng.uniform(0, 1, p), "matrix": root @ root.T}.get(kind)
    f = Filter(p, noise=0.5, prior=0.2, forgetting=forgetting, drift=drift, heads=heads)
    f.learn_all(X, Y)
    drift = 0.0 if drift is None else np.diag(drift) if np.ndim(drift) == 1 else drift
    w, P = reference.learn_all(X, Y, 5 * np.eye(p), 0.5, forgetting, drift)
    close(f.w.reshape(p, heads), w, 1e-11)
    close(f.P, P, 1e-11)
    assert f.struct.form == (ROOT if kind is None else PLAIN)


@given(seeds, st.integers(1, 12), st.sampled_from([1.0, 0.9]))
def test_weighted_rows_with_offset_and_bias(seed, p, forgetting):
    """A row of weight v is a row times √v; the bias is a feature that is 1."""
    rng = np.random.default_rng(seed)
    f = Filter(p + 1, bias=True, forgetting=forgetting)
    w, P = np.zeros(p + 1), np.eye(p + 1)
    for _ in range(10):
        x, (y, offset), v = rng.standard_normal(p), rng.standard_normal(2), rng.uniform(0.1, 3)
        assert f.learn(x, y, v, offset) == DONE
        full = np.append(x, 1)
        assert f.result("prediction")[0] == pytest.approx(np.sqrt(v) * (full @ w + offset))
        w, P, _ = reference.learn(
            w, P, np.sqrt(v) * full, np.sqrt(v) * (y - offset), 1.0, forgetting
        )
    close(f.w, w, 1e-12)
    close(f.P, P, 1e-12)


def test_the_offset_of_a_model_that_is_not_linear_is_its_prediction(rng):
    f = Filter(4)
    f.struct.linear = 0
    f.parameters[0, :4] = rng.standard_normal(4)
    assert f.learn(np.ones(4), 3.0, offset=1.0) == DONE
    assert f.result("prediction")[0] == 1.0
    assert f.result("residual")[0] == 2.0


@given(seeds, st.integers(2, 12))
def test_a_dense_p_without_noise_interpolates(seed, p):
    """Near-duplicates count as far as rounding allows; what is rounding adds nothing."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, p + 1))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-100, 100, (n, 1))
    for i in range(1, n, 2):
        X[i] = X[i - 1] + 1e-5 * np.linalg.norm(X[i - 1]) * rng.standard_normal(p)
    y = X @ rng.standard_normal(p)
    f = Filter(p, noise=0.0).learn_all(X, y)
    unit = X / np.linalg.norm(X, axis=1)[:, None]
    condition = np.linalg.cond(unit)
    expected = oracles.nearest_interpolator(X, y, np.zeros(p))
    assert np.linalg.norm(f.w - expected) <= 1e-14 * condition**2 * np.linalg.norm(expected)
    assert np.trace(f.P) == pytest.approx(p - n, abs=1e-14 * condition**2)
    before = f.arrays()
    for i in range(n):  # each is spanned now, and so is a sum of all
        assert f.learn(X[i], y[i]) == DONE
        assert f.result("novelty") == 0
        assert f.result("variance")[0] == 0
    assert f.learn(unit.sum(axis=0), 7.0) == DONE
    assert f.result("left")[0] == f.result("residual")[0]
    assert f.arrays() == before
    assert f.struct.scores.unfitted >= abs(f.result("residual")[0])


@given(seeds, st.floats(-140, 140), st.sampled_from([0.0, 1.0]))
def test_rows_of_any_length(seed, power, noise):
    """Scaling x and y is scaling R: squares that overflow or vanish are not formed."""
    rng = np.random.default_rng(seed)
    X, y, scale = rng.standard_normal((6, 4)), rng.standard_normal(6), 10.0**power
    f = Filter(4, noise=noise * scale**2 if abs(power) < 100 else noise)
    plain = Filter(4, noise=f.struct.noise / scale / scale)
    plain.struct.cutoff = f.struct.cutoff
    for x, label in zip(X, y, strict=True):
        assert f.learn(scale * x, scale * label) == DONE
        assert plain.learn(x, label) == DONE
        for name in ("novelty", "length"):
            assert np.allclose(f.result(name), plain.result(name), rtol=1e-9, atol=1e-12)
        assert np.allclose(f.result("left") / scale, plain.result("left"), rtol=1e-9, atol=1e-9)
    assert np.allclose(f.w, plain.w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1e-300, 1e-170, 1e170, 1e300])
@pytest.mark.parametrize("noise", [0.0, 1e-200, 1.0, 1e200])
def test_extreme_gradients_leave_finite_numbers(size, noise):
    f = Filter(3, noise=noise)
    for x in ([size, 0, 0], [size, size, 1.0], [0.0, size, 0.0]):
        if f.learn(x, size) == DONE:
            assert f.result("length")[0] < np.inf
    assert np.isfinite(f.P).all()
    assert np.isfinite(f.w).all()


@pytest.mark.parametrize(
    ("prior", "noise", "drift"),
    [
        (1.0, 1.0, 1e-3),
        (1.0, 1e-4, 1e-6),
        (1e-9, 1.0, 1e-9),
        (1e-9, 1e-6, 1e-9),
        (1e-9, 1e-12, 1e-14),
        (1e6, 1.0, 1e-12),
    ],
)
def test_drift_is_accurate_in_60_digits(prior, noise, drift, rng):
    """Errors in standard deviations. The plain form alone loses all digits in the fourth case."""
    X = rng.standard_normal((15, 4))
    X[:, 3] = X[:, 0] + 1e-2 * X[:, 3]
    y = X @ np.ones(4) + np.sqrt(noise) * rng.standard_normal(15)
    f = Filter(4, noise=noise, prior=prior, drift=drift)
    f.learn_all(X, y)
    of_w, of_P = reference.relative_errors(
        f.w, f.P, *reference.learn_exactly(X, y, prior, noise, drift)
    )
    assert of_P <= 1e-8
    assert of_w <= 1e-7 * (1 + np.sqrt(drift / noise))


@pytest.mark.parametrize("drift", [1e-4, 1e-12, 1e-20])
@pytest.mark.parametrize("prior", [1.0, 1e-9])
def test_drift_without_noise(drift, prior, rng):
    """Each row is fitted, and pulls P down to rounding along itself, but not below zero."""
    X = rng.standard_normal((12, 4))
    X[6:, 3] = X[6:, 0] + 1e-3 * X[6:, 3]
    y = X @ np.ones(4)
    f = Filter(4, noise=0.0, prior=prior, drift=drift)
    for x, label in zip(X, y, strict=True):
        assert f.learn(x, label) == DONE
        assert x @ f.w == pytest.approx(label, abs=1e-9)
        assert np.linalg.eigvalsh(f.P)[0] >= -1e-7 * drift - 1e-15 * np.linalg.norm(f.P, 2)
    exact, _ = reference.learn_exactly(X, y, prior, 0.0, drift)
    assert np.abs(f.w - np.array(exact.tolist(), float).ravel()).max() <= 1e-9


def test_both_forms_of_a_drifting_p_agree(rng):
    """A row without noise makes P singular, so that later rows use the root for a while."""
    X, y = rng.standard_normal((60, 5)), rng.standard_normal(60)
    f, w, P = Filter(5, noise=1e-3, drift=1e-13), np.zeros(5), np.eye(5)
    forms = []
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        f.struct.noise = 0.0 if i in (10, 11) else 1e-12 if i == 30 else 1e-3
        w, P, _ = reference.learn(w, P, x, label, f.struct.noise, 1.0, 1e-13)
        assert f.learn(x, label) == DONE
        forms.append(f.struct.form)
    assert set(forms) == {ROOT, PLAIN}
    close(f.w, w, 1e-8)
    close(f.P, P, 1e-8)


def test_a_row_that_is_refused_changes_nothing(rng):
    for drift, noise in ((None, 1.0), (0.1, 1.0), (1e-12, 0.0)):
        f = Filter(3, noise=noise, drift=drift)
        f.learn_all(rng.standard_normal((2, 3)), rng.standard_normal(2))
        f.parameters[0, :3], f.struct.parameter_bound, f.struct.limit = 1e300, 1e300, 1e301
        before = f.state()
        assert f.learn([1, np.nan, 0], 1.0) == BAD_GRADIENT
        assert f.learn([1, np.inf, 0], 1.0) == BAD_GRADIENT
        assert f.learn([1e200, 1e200, 0], 1.0) == BAD_PREDICTION
        assert f.learn([1, 2, 3], 1.7e308) == TOO_LARGE
        assert f.state() == before


def test_the_bound_of_parameters_is_renewed_if_steps_cancel(rng):
    f = Filter(2)
    f.struct.limit = 100.0
    for i in range(300):
        assert f.learn([1.0, 0.0], 50.0 * (-1) ** i) == DONE
    assert f.struct.parameter_bound <= 100
    assert f.learn([0.0, 1.0], 1000.0) == TOO_LARGE


def test_scores_are_means_of_squared_innovations(rng):
    """A row of weight v counts once; rows weigh about as 1, 4, 9, ...; the first three as one."""
    X, Y = rng.standard_normal((7, 4)), rng.standard_normal((7, 2))
    f, w, P, scale = Filter(4, heads=2, noise=0.5), np.zeros((4, 2)), np.eye(4), np.zeros(2)
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        v = 0.5 + i % 3
        squares = (y - x @ w) ** 2 / (x @ P @ x + 0.5)
        squares = np.minimum(squares, 25 * scale) if i else squares
        scale = scale + min(1, 3 / (i + 1)) * (squares - scale)
        w, P, _ = reference.learn(w, P, np.sqrt(v) * x, np.sqrt(v) * y, 0.5)
        assert f.learn(x, y, v) == DONE
    np.testing.assert_allclose(f.scores("scale"), scale, rtol=1e-12)
    assert f.struct.scores.rows == f.struct.seen == 7


def test_rows_are_learned_together_as_one_by_one(rng):
    X, Y = rng.standard_normal((9, 5)), rng.standard_normal((9, 2))
    one, all_rows = (Filter(5, heads=2, drift=0.1) for _ in range(2))
    X[7] = np.nan
    count, code, outputs = all_rows.learn_rows(X, Y)
    assert (count, code) == (7, BAD_GRADIENT)
    for i in range(7):
        assert one.learn(X[i], Y[i]) == DONE
        for name in RESULTS:
            np.testing.assert_array_equal(outputs[name][i], one.result(name))
    assert one.state() == all_rows.state()


@pytest.mark.slow  # which compiles another library
def test_float_rows(rng):
    """w has the learner's dtype, P is double: P is that of double rows."""
    X, y = rng.standard_normal((30, 9)).astype(np.float32), rng.standard_normal(30)
    f = Filter(9, real=np.float32).learn_all(X, y)
    w, P = reference.learn_all(X.astype(float), y, np.eye(9), 1.0)
    close(f.P, P, 1e-12)
    close(f.w, w, 1e-5)
    assert f.parameters.dtype == np.float32


def test_a_wide_p_needs_its_limit_first(rng):
    """Nothing is changed before Python has limited P; the C core has the same rule."""
    f = Filter(3, forgetting=0.5)
    while (code := f.learn([1, 0, 0], 1.0)) == DONE:
        before = f.state()
    assert code == NEEDS_LIMIT
    assert f.state() == before
    limit = windup.width_limit(False, 1.0, 1.0, 1.0)
    assert f.struct.width <= limit < f.struct.width * np.sqrt(2)
    f.struct.forgetting = 1.0
    assert f.learn([1, 0, 0], 1.0) == DONE
    f.struct.forgetting, f.struct.wound_up, f.struct.width = 0.5, 1, 0.9
    assert f.learn([1, 0, 0], 1.0) == NEEDS_LIMIT


def test_while_every_row_is_new_p_grows_as_it_must(rng):
    """eq:weighted_ls with λ^i far beyond the digits of float64: no limit is needed."""
    X, y = rng.standard_normal((12, 30)), rng.standard_normal(12)
    f = Filter(30, forgetting=1e-3).learn_all(X, y)
    nearest = np.linalg.pinv(X) @ y
    assert np.linalg.norm(f.w - nearest) <= 20e-3 * np.linalg.norm(nearest)
    assert np.abs(f.P).max() >= 0.1 * 1e36


def test_the_width_is_measured_before_a_limit_is_needed(rng):
    """The bound of a P that rows keep small grows by forgetting alone."""
    X, y = rng.standard_normal((300, 3)), rng.standard_normal(300)
    f = Filter(3, forgetting=0.5).learn_all(X, y)
    assert f.struct.width <= 1e6


def test_a_row_of_zeros(rng):
    for settings in (
        {},
        {"drift": 0.5},
        {"forgetting": 0.5},
        {"noise": 0.0},
        {"noise": 0, "drift": 1},
    ):
        f = Filter(3, **settings)
        assert f.learn(np.zeros(3), 2.0) == DONE
        expected = 1 / settings.get("forgetting", 1) + settings.get("drift", 0)
        np.testing.assert_allclose(f.P, expected * np.eye(3), rtol=1e-15)
        assert (f.w == 0).all()
        assert f.result("novelty") == 0


@pytest.mark.parametrize("name", STRUCTS)
def test_the_layout_in_numpy_is_that_of_the_struct(name):
    dtype = STRUCTS[name]
    offsets = [dtype.fields[field][1] for field in dtype.names] + [dtype.itemsize]
    in_c = (ctypes.c_size_t * len(offsets)).in_dll(library(), f"{name}_offsets")
    assert offsets == list(in_c)


@pytest.mark.parametrize("real", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_bits_do_not_depend_on_the_width_of_vectors(real, rng):
    X, y, A = rng.standard_normal((40, 21)), rng.standard_normal(40), rng.standard_normal((21, 21))
    X[20], X[30] = X[3] + 1e-7 * X[4], 0
    states = []
    for target in (targets()[-1], "plain"):
        f = Filter(21, real=real, library=library(target, real, np.float64))
        state = [f.learn_all(X, y).state()]
        for settings in ({"noise": 0.0}, {"drift": 0.1}, {"drift": 1e-6, "prior": 1e-9}):
            f = Filter(21, real=real, library=f.library, **settings)
            for x, label in zip(X, y, strict=True):
                f.move(A / np.linalg.norm(A, 2)) if "drift" in settings else None
                assert f.learn(x, label) == DONE
            state.append(f.state())
        states.append(state)
    assert states[0] == states[1]
