"""The compiled row loop against LAPACK and against the plain path."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import orfit
from orfit import kernels, small, tall
from orfit.memory.frame import Frame, split_by_gram

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True, scope="module")
def from_the_first_row_on():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orfit.learners.onestep.WORTH_ROWS", 0)
        yield


@given(seeds, st.integers(1, 14), st.sampled_from(["wide", "plain", "equal", "zeros", "close"]))
def test_rank_one_eigenproblem(seed, n, kind):
    """diag(s²) + z zᵀ: roots as LAPACK's singular values, vectors orthogonal to rounding."""
    rng = np.random.default_rng(seed)
    s = np.sort(rng.uniform(1, 10, n))
    z = rng.standard_normal(n) * 10.0 ** rng.uniform(-10, 4)
    if kind == "wide":
        s = np.sort(10.0 ** rng.uniform(-8, 3, n))
    elif kind == "equal":
        s = np.sort(rng.integers(0, 3, n).astype(float))
    elif kind == "zeros":
        z[rng.integers(0, n, 3)] = 0
    elif kind == "close":
        s = np.sort(1 + 1e-14 * rng.integers(0, 5, n) + rng.integers(0, 2, n))
        z *= 10.0 ** rng.uniform(-15, 2, n)
    s[0] = rng.choice([0.0, s[0]])
    s = s[::-1].copy()
    values, rows = np.empty(n), np.empty((n, n))
    kernels.rank_one(s, z, values, rows, np.empty((6 + n, n)), 1)
    vectors = rows.T
    A = np.column_stack([np.diag(s), z])
    expected = np.linalg.svd(A, compute_uv=False)
    scale = expected.max() or 1.0
    assert np.abs(values - expected).max() <= 1e-13 * scale
    assert np.abs(vectors.T @ vectors - np.eye(n)).max() <= 1e-14
    assert np.abs(A.T @ vectors).max() <= 1.1 * scale
    assert (
        np.abs(vectors.T @ (A @ A.T / scale**2) @ vectors - np.diag((values / scale) ** 2)).max()
        <= 1e-13
    )


@given(
    seeds,
    st.integers(1, 40),
    st.integers(1, 8),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([0.0, 1e-6, 1.0]),
    st.sampled_from([1.0, 0.9]),
    st.sampled_from(["full", "low rank", "repeating", "zeros", "decaying"]),
    st.integers(1, 2),
    st.sampled_from([1, 1000]),
)
def test_the_compiled_loop_is_the_plain_one(  # noqa: PLR0917
    seed, p, m, heads, noise, forgetting, kind, threads, chunked
):
    rng = np.random.default_rng(seed)
    n = 60
    X = rng.standard_normal((n, p)) * np.geomspace(1, 1e-2 if kind == "decaying" else 0.3, p)
    if kind == "low rank":
        rank = max(1, min(p, m) - 1)
        X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p))
    elif kind == "repeating":
        X = X[rng.integers(0, max(1, m - 1), n)]
    elif kind == "zeros":
        X[rng.random(n) < 0.3] = 0
    Y = rng.standard_normal(n if heads is None else (n, heads))

    def learned():
        learner = orfit.ORFit(orfit.Linear(p, heads=heads), m, noise=noise, forgetting=forgetting)
        updates = learner.learn_each(X[:30], Y[:30])
        learner.learn_batch(X[30:33], Y[30:33])
        learner.learn(X[33], Y[33])
        learner.learn_each(X[34:], Y[34:])
        return learner, updates

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr("warnings.warn", lambda *args, **kwargs: None)
        patch.setattr("orfit.kernels.threads", lambda size, rows: threads)
        patch.setattr("orfit.learners.onestep.CHUNKED", chunked)
        patch.setattr("orfit.learners.onestep.FEW", 0)
        compiled, told = learned()
        patch.setattr("orfit.learners.onestep.kernels", lambda: None)
        plain, expected = learned()
    # Where steps are long, both carry the rounding of the longest.
    scale = 1 + np.abs(plain.w).max() + expected.step.max()
    assert np.abs(compiled.w - plain.w).max() <= 1e-7 * scale
    assert compiled.memory.rank == plain.memory.rank
    sigma = plain.memory.sigma
    assert np.abs(compiled.memory.sigma - sigma).max(initial=0) <= 1e-8 * (sigma.max(initial=0) + 1)
    for field in ("prediction", "residual", "step", "conflict"):
        difference = np.abs(getattr(told, field) - getattr(expected, field)).max()
        assert difference <= 1e-7 * scale * (1 + np.abs(X).max())
    assert (told.rank == expected.rank).all()
    assert np.abs(told.novelty - expected.novelty).max() <= 1e-7


@pytest.mark.parametrize("crooked", [False, True])
@given(
    seed=seeds,
    k=st.integers(1, 12),
    extra=st.integers(1, 12),
    threads=st.integers(1, 2),
    cured=st.booleans(),
)
def test_making_room_keeps_the_span(  # noqa: PLR0917
    crooked, seed, k, extra, threads, cured
):
    """Rows folded into the others, or all of them written out: the same U, and w is paid."""
    rng = np.random.default_rng(seed)
    stored, p, q = k + extra, 40, 1 + seed % 2
    directions = np.linalg.qr(rng.standard_normal((p, stored)))[0].T.copy()
    mixed = np.eye(stored) + np.tril(rng.standard_normal((stored, stored)), -1) / np.sqrt(stored)
    rows = np.linalg.solve(mixed, directions)  # as gradients come
    turned = np.linalg.qr(rng.standard_normal((stored, k)))[0].T
    if seed % 3 == 0:  # as after a few steps: some directions gone, the others as they were
        turned = np.eye(stored)[rng.permutation(stored)[:k]]
    W = np.zeros((stored, stored))
    W[:k] = turned @ mixed
    U = W[:k] @ rows
    w, owed = rng.standard_normal((q, p)), rng.standard_normal((q, stored))
    moved = w + owed @ rows
    if crooked:
        rows[:k] *= 1e6
        W[:k, :k] /= 1e6
        owed[:, :k] /= 1e6
    x, met = rng.standard_normal(p), np.full(k + q, np.nan)
    kernels.make_room(rows, stored, W, k, owed, w, cured, x, met, threads)
    assert np.abs(W[:k, :k] @ met[:k] - U @ x).max() <= 1e-12
    assert np.abs(met[k:] - moved @ x).max() <= 1e-12
    assert np.abs(w - moved).max() <= 1e-12
    assert np.abs(W[:k, :k] @ rows[:k] - U).max() <= 1e-13
    assert (W[:, k:] == 0).all()


@given(seeds, st.integers(1, 9), st.integers(0, 12), st.integers(1, 9))
def test_the_vectors_that_can_be_spared(seed, k, stored, extra):
    """C = (E + Y) C[stay], with what stays in its place, and the basis is folded by the same."""
    rng = np.random.default_rng(seed)
    r = max(1, k + extra - stored)
    s, p = stored + r, 30
    C = np.linalg.qr(rng.standard_normal((s, k)))[0]
    stay, Y = small.spare(C, stored)
    E = np.zeros((s, k))
    E[stay, range(k)] = 1
    assert np.abs((E + Y) @ C[stay] - C).max() <= 1e-13
    assert (Y[stay] == 0).all()
    assert all(j == place for place, j in enumerate(stay) if j < min(k, stored))
    rows, N = rng.standard_normal((max(k, stored), p)), rng.standard_normal((p, r))
    lengths = np.linalg.norm(N, axis=0)
    expected = (E + Y).T @ np.vstack([rows[:stored], N.T / lengths[:, None]])
    Y[stored:] /= lengths[:, None]
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(
                "orfit.tall.blocks", lambda *_: [slice(0, 7), slice(7, 29), slice(29, 40)]
            )
        tall.exchange(rows, stay, Y, np.asfortranarray(N), lengths)
    assert np.abs(rows[:k] - expected).max() <= 1e-12


@given(seeds, st.integers(1, 20), st.integers(1, 8), st.floats(0, 6))
def test_how_much_the_inverse_magnifies(seed, k, extra, digits):
    """Elimination keeps W = L U in the order of its pivots, and the estimate is near the truth."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((k, k + extra)) * 10 ** rng.uniform(-digits, 0, (k, 1))
    E, order = W.copy(), np.arange(k + extra)
    assert kernels.eliminate(E, order)
    L, U = np.tril(E[:, :k], -1) + np.eye(k), np.triu(E)
    assert np.abs(L @ U - W[:, order]).max() <= 1e-13
    assert (np.abs(U) <= np.abs(np.diag(U))[:, None] * (1 + 1e-15)).all()
    expected = np.linalg.norm(np.linalg.inv(W[:, order[:k]]), 2)
    assert 0.3 * expected <= kernels.magnified(E) <= 1.001 * expected


def test_a_crooked_choice_is_none():
    """Kahan's matrix: elimination with pivots sees nothing of how nearly singular it is."""
    sine, cosine = 0.6, 0.8
    kahan = np.triu(-cosine * np.ones((60, 60)), 1) + np.eye(60)
    kahan *= (sine ** np.arange(60))[:, None]
    assert small.spare(np.vstack([kahan.T, np.zeros((3, 60))]), 60) is None
    assert small.spare(np.zeros((5, 2)), 3) is None


@pytest.mark.parametrize("in_coordinates", [False, True])
def test_a_large_basis(in_coordinates, rng, monkeypatch):
    """Rows fold directions, blocks are products of matrices: as verbatim."""
    monkeypatch.setattr("orfit.learners.onestep.CHUNKED", 1 if in_coordinates else 10**9)
    X, y = rng.standard_normal((120, 6000)), rng.standard_normal(120)
    blocks = [(X[i : i + 1], y[i : i + 1]) for i in range(120)]
    w, U, _ = oracles.batch_orfit_limited(blocks, np.zeros(6000), 60)
    learner = orfit.ORFit(orfit.Linear(6000), 60)
    learner.learn_each(X, y)
    assert np.abs(learner.w - w).max() <= 1e-12
    assert np.abs(learner.memory.U @ (learner.memory.U.T @ U) - U).max() <= 1e-9
    assert np.abs(learner.memory.U.T @ learner.memory.U - np.eye(60)).max() <= 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seeds, st.floats(0, 4), st.integers(2, 6), st.integers(0, 5), st.integers(0, 4))
def test_a_block_by_its_gram_matrix(  # noqa: PLR0917
    dtype, seed, digits, n, k, dropped
):
    """G = U C + O T with O orthonormal, whether O is nearly in U's span, or G nearly dependent."""
    rng = np.random.default_rng(seed)
    eps = np.finfo(dtype).eps
    frame = Frame(np.empty(60, dtype), k + 8)
    frame.rows[:k] = np.linalg.qr(rng.standard_normal((60, k)))[0].T
    frame.stored = k
    if 0 < dropped < k:
        frame.turn(np.linalg.qr(rng.standard_normal((k, k - dropped)))[0])
    U = frame.combine(np.eye(frame.rank))
    spread = rng.standard_normal((60, n)) * 10.0**-digits
    G = spread + U @ rng.standard_normal((frame.rank, n)) + rng.standard_normal((60, 1))
    G = np.asfortranarray(G * 10.0 ** rng.uniform(-3, 3, n), dtype)
    norms = np.linalg.norm(G, axis=0)
    parts = split_by_gram(frame, G, norms)
    if parts is None:
        assert digits > 0.5  # dependent indeed
        return
    O = parts.directions()
    assert np.abs(O.T @ O - np.eye(n)).max() <= 100 * eps
    assert np.abs(U.T @ O).max(initial=0) <= 100 * eps
    assert (np.abs(U @ parts.C + O @ parts.T - G).max(axis=0) <= 1000 * eps * norms).all()
    a, b = rng.standard_normal(frame.rank), rng.standard_normal(n)
    assert np.abs(parts.move(a, b) - U @ a - O @ b).max() <= 1000 * eps
    assert (np.tril(parts.T, -1) == 0).all()


def test_a_cure_makes_the_frame_orthonormal(rng):
    rows = np.linalg.qr(rng.standard_normal((40, 9)))[0].T + 1e-6 * rng.standard_normal((9, 40))
    W = np.linalg.qr(rng.standard_normal((9, 5)))[0].T.copy()
    kernels.cure(rows, W, 1)
    U = W[:5] @ rows
    assert np.abs(U @ U.T - np.eye(5)).max() <= 1e-10


def test_what_the_loop_leaves_to_the_plain_path(rng):
    """Numbers whose fourth power is none, several outputs that share one w, a nonlinear model."""
    learner = orfit.ORFit(orfit.Linear(4), 2)
    learner.learn_each(rng.standard_normal((3, 4)) * [[1], [1e-100], [1e100]], [1.0, 2.0, 3.0])
    assert learner.seen == 3
    shared = orfit.Linear(4, features=lambda X: X.reshape(-1, 4, 2))
    learner = orfit.ORFit(shared, 3)
    learner.learn_each(rng.standard_normal((5, 8)), rng.standard_normal((5, 2)))
    assert learner.memory.rank == 3


def test_few_rows_do_not_wait_for_the_compiler(rng, monkeypatch):
    """The loop is used once a learner has enough of them, whatever the process did before."""
    asked = []
    monkeypatch.setattr("orfit.learners.onestep.WORTH_ROWS", 30)
    monkeypatch.setattr("orfit.learners.onestep.kernels", lambda: asked.append(1))
    X, y = rng.standard_normal((40, 8)), rng.standard_normal(40)
    learner = orfit.ORFit(orfit.Linear(8), 3)
    learner.learn_each(X[:20], y[:20])
    learner.learn(X[20], y[20])
    assert not asked
    learner.learn_each(X[21:], y[21:])
    assert asked


def test_read_only_input_is_learned_and_left_alone(rng):
    X, y = rng.standard_normal((5, 4)), rng.standard_normal(5)
    before = X.copy()
    X.flags.writeable = False
    learner = orfit.ORFit(orfit.Linear(4), 2)
    learner.learn_each(X, y)
    assert (X == before).all()


def in_coordinates(monkeypatch):
    monkeypatch.setattr("orfit.learners.onestep.CHUNK", 2)
    monkeypatch.setattr("orfit.learners.onestep.CHUNKED", 1)
    monkeypatch.setattr("orfit.learners.onestep.FEW", 0)


def test_in_coordinates_with_noise_before_anything_is_dropped(rng, monkeypatch, tmp_path):
    in_coordinates(monkeypatch)
    X, y = rng.standard_normal((30, 50)), rng.standard_normal(30)
    chunked, single = (orfit.ORFit(orfit.Linear(50), 40, noise=1.0) for _ in range(2))
    chunked.learn_each(X[:10], y[:10])
    chunked.learn(X[10], y[10])
    chunked.save(tmp_path / "learner")
    chunked = orfit.load(tmp_path / "learner")
    told = chunked.learn_each(X[11:], y[11:])
    expected = [single.learn(x, label) for x, label in zip(X, y, strict=True)]
    assert chunked.w == pytest.approx(single.w)
    assert told.prediction == pytest.approx([update.prediction for update in expected[11:]])
    assert told.conflict == pytest.approx([update.conflict for update in expected[11:]])


def test_what_a_later_chunk_predicts(rng, monkeypatch):
    in_coordinates(monkeypatch)
    X, y = rng.standard_normal((40, 30)), rng.standard_normal(40)
    chunked, single = (orfit.ORFit(orfit.Linear(30), 4) for _ in range(2))
    told = [chunked.learn_each(X[i : i + 8], y[i : i + 8]).prediction for i in range(0, 40, 8)]
    expected = [single.learn(x, label).prediction for x, label in zip(X, y, strict=True)]
    assert np.concatenate(told) == pytest.approx(expected)


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float64, 1e160), (np.float64, 1e-160), (np.float32, 1e20), (np.float32, 1e-22)],
)
def test_a_block_whose_squares_are_no_numbers(dtype, scale, noise, rng):
    """By products of squares it would hang, or be wrong; so it goes column by column."""
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


def test_noise_beside_a_row_that_is_a_thousand_million_million_times_longer(rng):
    """The eigenproblem of the compiled loop is solved up to eps of its largest number."""
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = np.array([1e15 * Q[0], Q[1], Q[1] + 0.3 * Q[2], Q[1] + 0.1 * Q[2]])
    y, noise = np.array([1.0, 1.0, 2.0, 3.0]), 1e-2
    learner = orfit.ORFit(orfit.Linear(6), 4, noise=noise)
    learner.learn_each(X, y)
    # In coordinates along Q the long row decouples: ridge regression in two dimensions.
    Z = X[1:] @ Q[1:3].T
    expected = np.linalg.solve(Z.T @ Z + noise * np.eye(2), Z.T @ y[1:])
    assert Q[1:3] @ learner.w == pytest.approx(expected, rel=1e-9)


def test_a_short_row_in_float32_makes_no_infinity():
    learner = orfit.ORFit(orfit.Linear(2), 1, w0=np.zeros(2, np.float32))
    learner.learn(np.float32([1e-3, 1e-3]), 1e34)
    assert learner.w == pytest.approx([5e36, 5e36], rel=1e-5)


def test_steps_that_overflow_together_are_refused_in_time():
    from scipy.linalg import hadamard

    X, y = hadamard(64) / 2, np.full(64, 1.6e308)
    learner = orfit.ORFit(orfit.Linear(64), 64)
    with pytest.raises(ValueError, match="the step overflows"):
        learner.learn_each(X, y)
    assert np.isfinite(learner.w).all()


@pytest.mark.parametrize("forgetting", [1.0, 0.7])
def test_a_refused_row_leaves_the_memory_bit_by_bit(forgetting, rng):
    learner = orfit.ORFit(orfit.Linear(9), 4, forgetting=forgetting)
    learner.learn_each(rng.standard_normal((8, 9)), rng.standard_normal(8))
    before = learner.memory.sigma.copy(), learner.memory.U.copy(), learner.w
    with pytest.raises(ValueError, match="overflows"):
        learner.learn(rng.standard_normal(9), 1.7e308)
    assert (learner.memory.sigma == before[0]).all()
    assert (learner.memory.U == before[1]).all()
    assert (learner.w == before[2]).all()


@pytest.mark.parametrize("spread", [1.0, 2.0, 6.0])
@pytest.mark.parametrize("scale", [1.0, 1e-160, 1e150])
def test_principal_axes_of_a_large_root(spread, scale, rng):
    """With narrow singular values by RᵀR, with wide ones by an SVD."""
    A = rng.standard_normal((400, 80)) * np.geomspace(1, 10**-spread, 80)
    R = small.triangle(A) * scale
    sigma, V = small.principal(R)
    expected = np.linalg.svd(R / scale, compute_uv=False)
    assert sigma / scale == pytest.approx(expected, rel=1e-10)
    assert np.abs(V.T @ V - np.eye(80)).max() <= 1e-13
    along = np.linalg.norm((R / scale) @ V, axis=0)
    assert along == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_steps_that_are_owed_are_nobodys_business(heads, noise, rng, tmp_path):
    """The loop adds its steps to w when it must: looking, copying and saving change nothing."""
    X, Y = rng.standard_normal((60, 30)), rng.standard_normal((60, *([heads] if heads else [])))
    X[1::2] += X[::2]  # some gradients keep more than half of their length, some do not
    X[2::5] = X[1::5] + 0.1 * X[2::5]

    def learner():
        return orfit.ORFit(orfit.Linear(30, heads=heads), 4, noise=noise)

    alone, watched = learner(), learner()
    for x, y in zip(X, Y, strict=True):
        alone.learn(x, y)
        watched.learn(x, y)
        before = watched.predict(X)
        assert np.abs(X @ watched.w - before).max() <= 1e-12
        twin = copy.deepcopy(watched)
        assert (twin.predict(X) == before).all()
        watched.save(tmp_path / "learner.safetensors")
        watched = orfit.load(tmp_path / "learner.safetensors")
        assert (watched.predict(X) == before).all()
    assert watched.memory.owed() is not None
    assert (watched.w == alone.w).all()
    assert (watched.memory.U == alone.memory.U).all()


def test_owed_steps_outlive_a_change_of_the_memory(rng):
    """A memory that takes gradients in by itself, and blocks in between, lose no step."""
    X, y = rng.standard_normal((40, 50)), rng.standard_normal(40)
    learner = orfit.ORFit(orfit.Linear(50), 3)
    for i in range(0, 40, 10):
        for x, label in zip(X[i : i + 4], y[i : i + 4], strict=True):
            learner.learn(x, label)
        w = learner.w
        learner.memory.absorb(X[i + 4 : i + 8].T)  # more than there is room for
        assert np.abs(learner.w - w).max() <= 1e-13
        learner.learn(X[i + 8], y[i + 8])
        w, told = learner.w, learner.learn_batch(X[[i + 9] * 2], y[[i + 9] * 2])
        assert np.linalg.norm(learner.w - w) == pytest.approx(told.step, rel=1e-9)
        assert learner.predict(X[i + 9]) == pytest.approx(y[i + 9])


def test_rows_that_a_block_left_behind_are_directions(rng):
    """After a block `stored` exceeds the rank: what the loop worked on before must not be read."""
    X, y = rng.standard_normal((90, 6000)), rng.standard_normal(90)
    learner = orfit.ORFit(orfit.Linear(6000), 49)
    learner.learn_batch(X[:40], y[:40])
    learner.learn_batch(X[40:60], y[40:60])
    room = len(learner.memory.frame.rows)
    learner.memory._work = np.full((4, room + 6, room), np.nan)
    for x, label in zip(X[60:], y[60:], strict=True):
        learner.learn(x, label)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(49)).max() <= 1e-13
    assert learner.predict(X[-1]) == pytest.approx(y[-1])


def test_after_a_memory_took_something_in_the_loop_knows_w(rng):
    X, y = rng.standard_normal((6, 20)), rng.standard_normal(6)
    learner = orfit.ORFit(orfit.Linear(20), 3)
    for x, label in zip(X[:3], y[:3], strict=True):
        learner.learn(x, label)
    learner.memory.absorb(rng.standard_normal((20, 1)))
    before = learner.predict(X[3])
    assert learner.learn(X[3], y[3]).prediction == pytest.approx(before)
    assert learner.predict(X[3]) == pytest.approx(y[3])


@pytest.mark.parametrize("share", [0.86, 0.8, 0.707, 0.5])
@pytest.mark.parametrize("m", [60, 250])
def test_a_chain_of_gradients_each_half_its_predecessor(share, m):
    """What one direction lacks of being orthogonal must not be magnified by all that follow."""
    p = 300
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((p, p)))[0]
    links = [share * Q[j - 1] + np.sqrt(1 - share**2) * Q[j] for j in range(1, 250)]
    X, y = np.array([Q[0], *links]), np.random.default_rng(1).standard_normal(250)
    learner = orfit.ORFit(orfit.Linear(p), m, noise=1e-2)
    learner.learn_each(X, y)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(m)).max() <= 1e-12
    if m == 250:
        ridge = np.linalg.solve(X.T @ X + 1e-2 * np.eye(p), X.T @ y)
        assert np.abs(learner.w - ridge).max() <= 1e-12


def test_rounding_of_float32_is_rounding_in_coordinates(rng, monkeypatch):
    """A long row that comes again and again, with other labels, is no new direction."""
    X = rng.standard_normal((60, 200))
    X[::3] = 1e3 * X[0]
    y = rng.standard_normal(60)

    def longest_step():
        learner = orfit.ORFit(orfit.Linear(200), 5, w0=np.zeros(200, np.float32))
        learner.learn_each(X[:8], y[:8])
        return learner.learn_each(X[8:], y[8:]).step.max()

    expected = longest_step()
    in_coordinates(monkeypatch)
    assert longest_step() == pytest.approx(expected, rel=1e-2)


def test_warming_up_compiles_the_loop():
    orfit.warm_up()
    assert kernels.walk.signatures


def test_long_steps_there_and_back_are_no_overflow():
    """Only where w itself would leave the numbers is a step refused."""
    learner = orfit.ORFit(orfit.Linear(3), 1, w0=np.zeros(3, np.float32))
    X = np.eye(3)[np.arange(3000) % 2]
    y = np.where(np.arange(3000) % 4 < 2, 1e35, -1e35)
    learner.learn_each(X, y)
    assert learner.seen == 3000
    for x, label in zip(X[:2000], y, strict=False):
        learner.learn(x, label)
    assert learner.seen == 5000
    with pytest.raises(ValueError, match="overflows"):
        learner.learn([0.0, 0.0, 1.0], 1e39)


def played(seed, tmp_path):
    """A learner after rows, blocks, a memory used by itself, copies and files, in any order."""
    rng = np.random.default_rng(seed)
    p, heads = int(rng.integers(5, 60)), [None, 3][seed % 2]
    m, noise = int(rng.integers(1, min(p, 20))), float(rng.choice([0.0, 1e-3, 1.0]))
    model = orfit.Linear(p, heads=heads)
    learner = orfit.ORFit(model, m, noise=noise, forgetting=float(rng.choice([1.0, 0.97])))
    along = rng.standard_normal(p) * rng.choice([0.0, 1.0, 2.0])
    for _ in range(20):
        n = int(rng.integers(1, 14))
        X, Y = rng.standard_normal((n, p)) + along, rng.standard_normal((n, heads or 1))
        Y = Y if heads else Y[:, 0]
        match rng.integers(0, 6):
            case 0:
                learner.learn_batch(X, Y)
            case 1:
                for x, y in zip(X, Y, strict=True):
                    learner.learn(x, y)
            case 2:
                learner.memory.absorb(X.T)
            case 3:
                learner = copy.deepcopy(learner)
            case 4:
                learner.save(tmp_path / "learner.safetensors")
                learner = orfit.load(tmp_path / "learner.safetensors")
            case _:
                learner.learn_each(X, Y)
    return learner


@pytest.mark.parametrize("seed", range(16))
def test_whatever_comes_after_whatever_all_paths_agree(seed, tmp_path, monkeypatch):
    compiled = played(seed, tmp_path)
    monkeypatch.setattr("orfit.learners.onestep.CHUNK", 2)
    monkeypatch.setattr("orfit.learners.onestep.CHUNKED", 1)
    monkeypatch.setattr("orfit.learners.onestep.FEW", 0)
    together = played(seed, tmp_path)
    monkeypatch.setattr("orfit.learners.onestep.kernels", lambda: None)
    monkeypatch.setattr("orfit.learners.onestep.CHUNKED", 10**9)
    plain = played(seed, tmp_path)
    for learner in (compiled, together):
        assert np.abs(learner.w - plain.w).max() <= 1e-9 * max(1.0, np.abs(plain.w).max())
        assert learner.memory.sigma == pytest.approx(plain.memory.sigma, rel=1e-9)
        U = learner.memory.U
        assert np.abs(U.T @ U - np.eye(U.shape[1])).max() <= 1e-12
