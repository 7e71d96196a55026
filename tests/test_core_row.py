"""Rows of memories of directions in C, against the recursion by an SVD and exact solutions."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_library import (
    BAD_GRADIENT,
    BAD_PREDICTION,
    DONE,
    MEMORIES,
    NEEDS_ROOM,
    OF_HEADS,
    SCORES,
    TOO_LARGE,
    Learner,
    library,
)
from reference.row import Reference, update_means

seeds = st.integers(0, 2**32 - 1)
memories = st.sampled_from(MEMORIES)
GRID = tuple(10.0 ** np.arange(-4, 4))
NOISES = {"none": (0.0,), "one": (0.1,), "two": (0.01, 1.0), "eight": GRID}


# Streams of n rows of p numbers.


def hilbert(rng, n, p):
    return 1 / (1.0 + np.arange(n)[:, None] % (2 * p) + np.arange(p))


def nearly_parallel(rng, n, p):
    return rng.standard_normal(p) + 1e-7 * rng.standard_normal((n, p))


def duplicated(rng, n, p):
    """Some rows are copies, sums of the rows before, or copies but for 1e-9."""
    X = rng.standard_normal((n, p))
    for i in range(2, n):
        kind = rng.integers(12)
        if kind < 3:
            X[i] = X[i - 1 - rng.integers(min(i, 9))] * (1 + (kind == 0))
        elif kind == 3:
            X[i] = X[i - 1] - 2 * X[i - 2]
        elif kind == 4:
            X[i] = X[i - 1] + 1e-9 * X[i]
    return X


def graded(rng, n, p):
    return rng.standard_normal((n, p)) * 10.0 ** np.linspace(0, -12, p)


def falling(n):
    """Lengths from 1 to 1e-12, as a column."""
    return 10.0 ** np.linspace(0, -12, n)[:, None]


def tied(rng, n, p):
    return np.eye(p)[rng.integers(p, size=n)] * (1 + 1e-14 * rng.standard_normal((n, 1)))


def one_hot(rng, n, p):
    return np.eye(p)[rng.integers(p, size=n)] * rng.choice([1, 3.0], (n, 1))


STREAMS = {
    "normal": lambda rng, n, p: rng.standard_normal((n, p)),
    "graded": graded,
    "fading": lambda rng, n, p: rng.standard_normal((n, p)) * falling(n),
    "growing": lambda rng, n, p: rng.standard_normal((n, p)) * falling(n)[::-1],
    "lengths": lambda rng, n, p: rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-12, 12, (n, 1)),
    "tied": tied,
    "signs": lambda rng, n, p: rng.choice([-1.0, 1.0], (n, p)),
    "one-hot": one_hot,
    "zeros": lambda rng, n, p: rng.standard_normal((n, p)) * rng.integers(2, size=(n, 1)),
    "sparse": lambda rng, n, p: rng.standard_normal((n, p)) * rng.integers(2, size=(n, p)),
    "few": lambda rng, n, p: rng.standard_normal((n, 2)) @ rng.standard_normal((2, p)),
    "parallel": nearly_parallel,
    "hilbert": hilbert,
    "duplicated": duplicated,
    "huge": lambda rng, n, p: rng.standard_normal((n, p)) * 1e299,
    "tiny": lambda rng, n, p: rng.standard_normal((n, p)) * 1e-299,
    "floats": lambda rng, n, p: rng.standard_normal((n, p)).astype(np.float32).astype(float),
}  # fmt: skip


def check_frame(learner, scale=1.0):
    """UᵀU = I and M = Q Qᵀ; the numbers are finite."""
    U, Q, k = learner.U, learner.Q, learner.struct.rank
    lengths = np.linalg.norm(Q, axis=1)
    bound = 1e-14 if learner.real == np.float64 else 4e-6
    assert np.abs(U.T @ U - np.eye(k)).max(initial=0) <= 100 * bound
    error = np.abs(Q @ Q.T - learner.M) / np.outer(lengths, lengths)
    assert error.max(initial=0) <= 100 * bound
    assert np.isfinite(learner.w).all()
    assert (np.diff(learner.sigma) <= 0).all()


def learn_and_check(learner, reference, x, y, weight=1.0):
    """Learn one row by both, and compare all that a row reports."""
    assert learner.learn(x, y, weight) == DONE
    reference.learn(x, y, weight)
    size = max(1.0, np.abs(reference.prediction).max(), np.abs(y).max())
    for name in ("prediction", "residual", "left"):
        found = learner.result(name).reshape(reference.left.shape)
        assert np.abs(found - getattr(reference, name)).max() <= 1e-8 * size, name
    np.testing.assert_allclose(learner.result("variance"), reference.variance, rtol=1e-8)


def check_memory(learner, reference):
    """The same directions, energies, tail and parameters."""
    s = learner.struct
    assert s.rank == reference.U.shape[1]
    assert np.abs(learner.w - reference.w).max() <= 1e-8 * max(1, np.abs(reference.w).max())
    U, V = learner.U, reference.U
    assert np.abs(U @ U.T - V @ V.T).max() <= 1e-9
    energy, total = np.linalg.norm(reference.F) ** 2, 1 + reference.dropped
    if learner.kind == "principal":
        np.testing.assert_allclose(learner.sigma, np.diag(reference.F), rtol=1e-9)
        if reference.tail[0]:
            tail = [tail.level for tail in reference.tail]
            found = learner.array(s.tail_level, len(tail))
            np.testing.assert_allclose(found, tail, rtol=1e-6, atol=1e-12 * energy)
    elif learner.kind != "nothing":
        H = learner.root(0)
        np.testing.assert_allclose(H.T @ H, reference.F @ reference.F.T, rtol=0, atol=1e-9 * energy)
    assert abs(s.dropped_energy - reference.dropped) <= 1e-9 * total
    check_frame(learner)


@given(st.data(), seeds, memories, st.sampled_from([*NOISES]), st.integers(1, 3))
@settings(max_examples=60)
def test_rows_are_those_of_the_reference(data, seed, kind, noise, heads):
    rng, noises = np.random.default_rng(seed), NOISES[noise]
    p = data.draw(st.integers(1, 14), label="p")
    m, n = data.draw(st.integers(1, p + 3), label="m"), 40
    usual = kind in ("principal", "nothing") or noise == "none"
    drift = 0.01 if kind == "principal" and noise == "one" and rng.integers(2) else 0.0
    same = {
        "heads": heads,
        "forgetting": 0.9 if usual and rng.integers(2) else 1.0,
        "drift": drift,
        "tailed": bool(rng.integers(2)),
        "chosen": int(rng.integers(len(noises))),
        "seed": int(rng.integers(100)),
        "linear": bool(rng.integers(4)),
    }
    learner = Learner(p, m, noises, kind, library=library(), **same)
    reference = Reference(p, m, noises, kind, **same)
    X, Y = rng.standard_normal((n, p)), rng.standard_normal((n, heads))
    weights = rng.choice([1.0, 1.0, 4.0, 0.3], n) if rng.integers(2) else np.ones(n)
    for x, y, weight in zip(X, Y, weights, strict=True):
        learn_and_check(learner, reference, x, y, weight)
    check_memory(learner, reference)
    assert learner.struct.seen == n


@pytest.mark.parametrize("stream", ["few", "sparse", "one-hot", "duplicated", "zeros", "floats"])
@pytest.mark.parametrize("kind", MEMORIES)
def test_rows_that_add_no_direction(kind, stream):
    """Ranks are the same: what is rounding is no direction."""
    rng = np.random.default_rng(3)
    for noise in (0.0, 0.5):
        X = STREAMS[stream](rng, 50, 9)
        learner, reference = (make(9, 4, (noise,), kind, 1) for make in (Learner, Reference))
        for i, (x, y) in enumerate(zip(X, X @ np.arange(9.0), strict=True)):
            learner.learn(x, y)
            reference.learn(x, y)
            assert learner.struct.rank == reference.U.shape[1], i
        check_frame(learner)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_any_stream_leaves_a_sound_state(noise, kind, stream):
    """U is orthonormal, M is Q Qᵀ, and the step fits the label as far as it reports."""
    rng = np.random.default_rng(4)
    for p, m in ((1, 1), (5, 7), (20, 4)):
        X = STREAMS[stream](rng, 60, p)
        learner, longest = Learner(p, m, (noise,), kind), 0.0
        for x, y in zip(X, rng.standard_normal(60), strict=True):
            assert learner.learn(x, y) == DONE
            w, left = learner.w[0, 0], learner.result("left")[0]
            prediction = abs(learner.result("prediction")[0])
            longest = max(longest, np.abs(w).max())  # w is a sum of all steps since a compaction
            size = p * np.abs(x).max() * longest + abs(y) + prediction
            assert abs(y - x @ w - left) <= 1e-13 * size
        check_frame(learner)


def ridge(X, y, noise):
    """argmin |X w - y|² + noise |w|², or with noise = 0 the shortest w that fits, in 80 digits."""
    with mpmath.workdps(80):
        A, b = mpmath.matrix(X.tolist()), mpmath.matrix(y.tolist())
        if noise:
            return A.T * mpmath.lu_solve(A * A.T + mpmath.mpf(noise) * mpmath.eye(len(X)), b)
        return A.T * mpmath.lu_solve(A * A.T, b)


def error_of(w, exact):
    with mpmath.workdps(80):
        difference = mpmath.matrix(w.tolist()) - exact
        return float(mpmath.norm(difference) / mpmath.norm(exact))


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9])
def test_nearly_equal_rows_are_fitted_exactly(distance):
    """R = 0: w is the shortest that fits all rows, which differ by a small part."""
    rng, p, n = np.random.default_rng(5), 12, 8
    X = rng.standard_normal(p) + distance * np.tril(rng.standard_normal((n, p)))
    y = X @ rng.standard_normal(p)
    learner = Learner(p, n, (0.0,)).learn_all(X, y)
    assert learner.struct.rank == n
    fit = np.abs(X @ learner.w[0, 0] - y).max()
    assert fit <= 1e-14 * np.linalg.norm(learner.w)
    assert error_of(learner.w[0, 0], ridge(X, y, 0)) <= 5e-15 / distance


@pytest.mark.parametrize(
    ("stream", "digits"),
    [
        *(("fading", 1e-14), ("growing", 1e-14), ("normal", 1e-14), ("lengths", 1e-14)),
        *(("graded", 3e-10), ("hilbert", 5e-11)),  # eps times a condition of 1e6
    ],
)
def test_little_noise_is_exact(stream, digits):
    """R = 1e-12 and m = p: ridge regression, with as many digits as the labels determine."""
    rng, p, n = np.random.default_rng(6), 8, 24
    X = STREAMS[stream](rng, n, p)
    y = X @ rng.standard_normal(p)
    learner = Learner(p, p, (1e-12,), tailed=False).learn_all(X, y)
    assert error_of(learner.w[0, 0], ridge(X, y, 1e-12)) <= digits


@pytest.mark.parametrize("kind", MEMORIES)
def test_candidates_and_heads_are_learners_of_their_own(kind):
    """They share U. A tail would have the learners start directions with different energies."""
    rng, p, n = np.random.default_rng(7), 10, 60
    X, Y = rng.standard_normal((n, p)), rng.standard_normal((n, 2))
    for count in range(1, 9):
        noises = tuple(10.0 ** np.arange(count) / 100)
        same = Learner(p, 4, noises, kind, heads=2, tailed=False).learn_all(X, Y)
        for c, noise in enumerate(noises):
            for h in range(2):
                one = Learner(p, 4, (noise,), kind, tailed=False).learn_all(X, Y[:, h])
                np.testing.assert_allclose(same.w[c, h], one.w[0, 0], rtol=0, atol=1e-12)
                assert same.scores("scale")[2 * c + h] == pytest.approx(one.scores("scale")[0])


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_running_means(weighted):
    """u² = residual² / S of rows that count once: a row of weight v has S - R + v R for S."""
    rng, p, heads = np.random.default_rng(8), 6, 2
    noises, q = np.array([0.1, 1.0, 10.0]), 6
    learner = Learner(p, 3, noises, heads=heads)
    means = 0, np.zeros(q), np.zeros(q), np.zeros(q), np.zeros(q), np.zeros(3)
    for _ in range(50):
        weight = rng.choice([0.25, 3.0]) if weighted else 1.0
        assert learner.learn(rng.standard_normal(p), 9 * rng.standard_normal(heads), weight) == DONE
        S = learner.result("variance")
        u = learner.result("residual").reshape(3, heads)
        u = u / np.sqrt(S - noises + weight * noises)[:, None]
        means = update_means(means, noises, (S - noises) / weight + noises, u.ravel())
    found = [learner.scores(name) for name in SCORES]
    for mean, expected in zip(found, means[1:], strict=True):
        np.testing.assert_allclose(mean, expected, rtol=1e-10)


def test_what_could_not_be_fitted_without_noise():
    """The largest residual of a row that adds no direction; labels that agree have none."""
    learner = Learner(3, 3, (0.0,)).learn_all(np.eye(3)[:2], [1.0, 2.0])
    assert learner.learn([1.0, 1.0, 0.0], 3.0) == DONE
    assert learner.struct.scores.unfitted <= 1e-15
    assert learner.learn([1.0, 1.0, 0.0], 5.0) == DONE
    assert learner.struct.scores.unfitted == pytest.approx(2.0)
    assert learner.learn([0.0, 0.0, 1e-200], 7.0) == DONE  # its variance, the square, underflows
    assert learner.struct.scores.unfitted == pytest.approx(2.0)
    assert learner.w[0, 0, 2] == pytest.approx(7e200)


# Many rows by one call.

LONG = [(300, 4, "normal"), (300, 12, "duplicated"), (264, 5, "zeros"), (7, 3, "duplicated")]


def columns_of(outputs):
    return {
        name: outputs[name].tobytes()
        for name in (*OF_HEADS, "variance", "length", "novelty", "rank")
    }


def learned_in_chunks(X, Y, weights, count, *arguments, **settings):
    learner, parts = Learner(*arguments, **settings), []
    for start in range(0, len(X), count):
        part = slice(start, start + count)
        some = None if weights is None else weights[part]
        done, code, outputs = learner.learn_rows(X[part], Y[part], some)
        assert (done, code) == (len(X[part]), DONE)
        parts.append(outputs)
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return learner.state(), columns_of(outputs)


@pytest.mark.parametrize(("p", "m", "stream"), LONG)
@pytest.mark.parametrize("kind", MEMORIES)
def test_bits_do_not_depend_on_chunks(kind, p, m, stream):
    """Eight rows are read together if eight before were stored as they are; others end that."""
    rng, n = np.random.default_rng(9), 90
    X, Y = STREAMS[stream](rng, n, p), rng.standard_normal((n, 2))
    weights = None if kind != "principal" else rng.choice([1.0, 1.0, 2.0], n)
    for noise in ((0.1, 1.0), (0.0,)):
        found = [
            learned_in_chunks(
                X,
                Y,
                weights,
                count,
                p,
                m,
                noise,
                kind,
                2,
                capacity=99 if kind == "unlimited" else None,
            )
            for count in (1, 2, 7, 8, 9, n)
        ]
        assert all(other == found[0] for other in found[1:])


def test_eight_rows_are_read_together():
    """So that the test above tests it: the number of rows is what `learn_rows` may read ahead."""
    rng = np.random.default_rng(10)
    X, Y = rng.standard_normal((40, 300)), rng.standard_normal(40)
    learner = Learner(300, 30, (0.1,))
    learner.learn_rows(X[:30], Y[:30])
    beyond = learner.rows[learner.struct.stored + 1, :300]
    assert (beyond == X[29]).all() or (learner.rows[: learner.struct.capacity, :300] == X[29]).all(
        1
    ).any()


def test_a_row_that_moves_the_base_ends_reading_ahead():
    """Products with the base that were read before are obsolete."""
    rng, p, n = np.random.default_rng(11), 300, 40
    X, Y = rng.standard_normal((n, p)) * 1e-12, rng.standard_normal(n)
    Y[12:] *= 1e285
    limits = {}
    for count in (1, n):
        learner = Learner(p, 30, (0.0,), "latest", library=library())
        learner.struct.limit = 1e300
        for start in range(0, n, count):
            assert learner.learn_rows(X[start : start + count], Y[start : start + count])[1] == DONE
        limits[count] = learner.state()
        assert np.abs(learner.base).max() > 0
    assert limits[1] == limits[n]


# Rows that are refused.

REFUSED = {
    "gradient is not a number": (np.nan, 1.0, BAD_GRADIENT),
    "gradient is infinite": (np.inf, 1.0, BAD_GRADIENT),
    "label is not a number": (1.0, np.nan, BAD_PREDICTION),
    "label is infinite": (1.0, -np.inf, BAD_PREDICTION),
    "step is too long": (1e-250, 1e200, TOO_LARGE),
    "gradient is too long": (1e303, 1.0, BAD_GRADIENT),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("kind", MEMORIES)
def test_a_refused_row_changes_nothing(kind, case):
    number, label, expected = REFUSED[case]
    rng, p = np.random.default_rng(12), 300
    X, Y = rng.standard_normal((23, p)), rng.standard_normal((23, 2))
    for noise in ((0.0,), (0.1, 1.0)):
        if noise[0] and case == "step is too long":
            continue
        x = np.zeros(p)
        x[-1] = number
        learner, other = (Learner(p, 5, noise, kind, heads=2) for _ in range(2))
        learner.learn_rows(X[:12], Y[:12])
        other.learn_rows(X[:12], Y[:12])
        before = learner.state()
        assert learner.learn(x, np.full(2, label)) == expected
        assert learner.state() == before
        bad = X[12:].copy(), Y[12:].copy()
        bad[0][9], bad[1][9] = x, label
        assert learner.learn_rows(*bad)[:2] == (9, expected)
        other.learn_rows(X[12:21], Y[12:21])
        assert learner.state() == other.state()
        learner.learn_rows(X[21:], Y[21:])
        other.learn_rows(X[21:], Y[21:])
        assert learner.state() == other.state()


def test_a_step_that_overflows_by_short_rows_is_refused():
    """Coefficients of rows overflow before w does."""
    learner = Learner(2, 2, (0.0,)).learn_all([[1e-20, 0.0]], [0.0])
    before = learner.state()
    assert learner.learn([1.0, 1.0], 1e290) == TOO_LARGE
    assert learner.state() == before


def test_a_prediction_that_overflows_is_refused():
    learner = Learner(1, 1, (0.0,), "nothing").learn_all([[1.0]], [1e305])
    before = learner.state()
    assert learner.learn([1e5], 0.0) == BAD_PREDICTION
    assert learner.state() == before


def test_the_longest_gradients():
    """Singular values stay finite however many there are."""
    learner = Learner(2, 1, (0.1,))
    for _ in range(2000):
        assert learner.learn([1.7e302, 0.0], 1.0) == DONE
    assert learner.sigma[0] == pytest.approx(1.7e302 * np.sqrt(2000))
    assert learner.learn([1.8e302, 0.0], 1.0) == BAD_GRADIENT


def test_drift_beside_a_large_singular_value():
    """P + q I along a direction of which nearly all is known is q: energy R² / q."""
    learner, R, q = Learner(2, 2, (4.0,), drift=0.5), 4.0, 0.5
    assert learner.learn([1e200, 0.0], 1.0) == DONE
    for _ in range(2):
        assert learner.learn([0.0, 0.0], 1.0) == DONE
    np.testing.assert_allclose(learner.sigma[0] ** 2 + R / 2.5, R / (2 * q), rtol=1e-12)


def test_the_bound_of_parameters_is_measured_if_it_is_reached():
    """Steps that cancel do not add up to the limit."""
    learner = Learner(2, 1, (0.0,), "nothing")
    learner.struct.limit = 10.0
    for i in range(20):
        assert learner.learn([1.0, 0.0], 3.0 * (-1) ** i) == DONE
    before = learner.state()
    assert learner.learn([1.0, 0.0], 30.0) == TOO_LARGE
    assert learner.state() == before


def test_an_unlimited_memory_needs_room():
    learner = Learner(9, kind="unlimited", capacity=3).learn_all(np.eye(9)[:2], [1.0, 1.0])
    assert learner.learn_rows(np.eye(9)[2:5], np.ones(3))[:2] == (1, NEEDS_ROOM)
    before = learner.state()
    assert learner.learn(np.eye(9)[4], 1.0) == NEEDS_ROOM
    assert learner.state() == before


# The frame.


@given(seeds, st.sampled_from(["principal", "latest", "random", "nothing"]), st.integers(2, 40))
@settings(max_examples=25)
def test_a_compaction_changes_no_direction_and_no_parameter(seed, kind, p):
    rng, m = np.random.default_rng(seed), 1 + seed % 6
    learner = Learner(p, m, (0.1, 1.0), kind, heads=2, capacity=m + 40)
    X = STREAMS[["normal", "sparse", "lengths", "duplicated"][seed % 4]](rng, m + 20, p)
    learner.learn_all(X, rng.standard_normal((len(X), 2)))
    U, w, longest = learner.U, learner.w, np.abs(learner.w).max()
    dropped = learner.struct.stored > learner.struct.rank
    learner.call("compact")
    assert learner.struct.stored == learner.struct.rank == U.shape[1]
    assert np.abs(learner.U - U).max(initial=0) <= 1e-11
    assert np.abs(learner.w - w).max() <= 1e-11 * longest
    assert not learner.field("shift", learner.struct.columns, learner.struct.width).any()
    assert not (dropped and learner.struct.has_history)
    check_frame(learner)


def test_a_compaction_writes_directions_that_would_be_long_combinations():
    """Rows far from zero are nearly parallel, and directions are small differences of them."""
    rng, written = np.random.default_rng(18), 0
    for _ in range(20):
        learner = Learner(20, 6, (0.1,), capacity=40)
        learner.learn_rows(18 + rng.standard_normal((30, 20)), rng.standard_normal(30))
        U, w = learner.U, learner.w
        learner.call("compact")
        assert np.abs(learner.U - U).max() <= 1e-12
        assert np.abs(learner.w - w).max() <= 1e-12
        check_frame(learner)
        written += np.abs(learner.M - np.eye(6)).max() <= 1e-12
        assert np.linalg.cond(learner.W * np.linalg.norm(learner.Q, axis=1)) <= 900
    assert written


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9])
def test_rounding_of_earlier_rows_is_no_direction(distance):
    """R = 0: a direction that is a small difference of rows carries their rounding, enlarged."""
    rng = np.random.default_rng(16)
    for _ in range(20):
        x, z = rng.standard_normal((2, 8))
        near = x + distance * z
        learner = Learner(8, 8, (0.0,)).learn_all([x, near], [1.0, 2.0])
        assert learner.learn(np.round(3 + 7 / distance) * (near - x), 5.0) == DONE
        assert learner.struct.rank == 2
        assert learner.learn(z + rng.standard_normal(8) * 1e-3 / distance**0.5, 5.0) == DONE
        assert learner.struct.rank == 3


@pytest.mark.parametrize("kind", ["principal", "latest"])
def test_directions_that_are_not_orthonormal_are_corrected(kind):
    """To first order, by the next row that shows it."""
    rng = np.random.default_rng(17)
    learner = Learner(12, 5, (0.1,), kind)
    learner.learn_rows(rng.standard_normal((20, 12)), rng.standard_normal(20))
    learner.W[:] += 1e-9 * rng.standard_normal((5, 5)) @ learner.W
    loss = [np.abs(learner.U.T @ learner.U - np.eye(5)).max()]
    for x in rng.standard_normal((3, 12)):
        assert learner.learn(x, 0.0) == DONE
        loss.append(np.abs(learner.U.T @ learner.U - np.eye(5)).max())
    assert loss[0] >= 1e-10
    assert loss[-1] <= 1e-14


@pytest.mark.parametrize("kind", MEMORIES)
def test_history_ends_when_something_is_dropped(kind):
    """Only then is a memory compacted, so that history never has to be changed."""
    rng = np.random.default_rng(13)
    learner = Learner(30, 4, (0.0,), kind)
    for x in rng.standard_normal((30, 30)):
        assert learner.learn(x, 0.0) == DONE
        s = learner.struct
        assert bool(s.has_history) == (s.dropped_energy == 0)
        assert not (s.has_history and s.compactions)


@pytest.mark.parametrize("kind", MEMORIES)
def test_smallest_sizes(kind):
    """p = 1, m = 1, m > p, and rows of zeros before the first direction."""
    for p, m in ((1, 1), (1, 5), (2, 1), (3, 40)):
        for noise in ((0.0,), (1.0, 2.0)):
            learner, reference = (make(p, m, noise, kind, 1) for make in (Learner, Reference))
            for i in range(40):
                x = np.cos(np.arange(p) * (1 + i)) * (i > 1)
                learn_and_check(learner, reference, x, 1.0 + i % 3)
            check_memory(learner, reference)


def test_the_bias_is_the_last_parameter(rng):
    X, Y = rng.standard_normal((40, 8)), rng.standard_normal(40)
    one = Learner(9, 4, (0.1,), bias=True)
    two = Learner(9, 4, (0.1,))
    for x, y in zip(X, Y, strict=True):
        assert one.learn(x, y, 2.0) == two.learn([*x, 1.0], y, 2.0) == DONE
    assert one.state() == two.state()


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["normal", "duplicated", "lengths"])
def test_float_rows(stream):
    """Rows of float and small algebra of double: the digits of float."""
    rng = np.random.default_rng(14)
    X, Y = STREAMS[stream](rng, 80, 20).astype(np.float32), rng.standard_normal(80)
    for kind in MEMORIES:
        learner = Learner(
            20, 5, (0.1,), kind, capacity=100 if kind == "unlimited" else None, real=np.float32
        )
        reference = Reference(20, 5, (0.1,), kind)
        for x, y in zip(X, Y, strict=True):
            assert learner.learn(x, y) == DONE
            reference.learn(x.astype(float), y)
        check_frame(learner)
        if stream == "normal":
            error = np.abs(learner.w - reference.w).max() / np.abs(reference.w).max()
            assert error <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("p", "m", "rows"), [(30, 10, 1_000_000), (50, 20, 300_000)])
@pytest.mark.parametrize("kind", ["principal", "latest", "random"])
def test_directions_stay_orthonormal(kind, p, m, rows):
    """|UᵀU − I| after a million rows that are nearly parallel, or graded."""
    rng, learner = np.random.default_rng(15), Learner(p, m, (0.1,), kind)
    for start in range(0, rows, 10_000):
        X = rng.standard_normal((10_000, p)) / np.arange(1, p + 1) + np.ones(p)
        assert learner.learn_rows(X, rng.standard_normal(10_000))[1] == DONE
        if start % 100_000 == 0:
            U = learner.U
            assert np.abs(U.T @ U - np.eye(m)).max() <= 2e-12
    check_frame(learner)
