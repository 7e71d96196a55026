"""Rows one after another: compiled, in coordinates or plain, the same steps."""

import copy
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import orfit
from conftest import WAYS, every_way, needs_numba, on
from orfit import small
from orfit.learners.rows import Auto
from orfit.memory import Latest, Principal, Random

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
@pytest.mark.parametrize("way", [pytest.param("compiled", marks=needs_numba), "coordinates"])
@given(
    seeds,
    st.integers(1, 40),
    st.integers(1, 8),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([0.0, 1e-6, 1.0]),
    st.sampled_from([1.0, 0.9]),
    st.sampled_from(["full", "low rank", "repeating", "zeros", "decaying"]),
    st.sampled_from([orfit.memory.Principal, orfit.memory.FrequentDirections]),
)
def test_every_way_is_the_plain_one(way, seed, p, m, heads, noise, forgetting, kind, memory):
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

    def learned(way):
        model = orfit.Linear(p, heads=heads)
        learner = on(WAYS[way])(model, memory(m), noise=noise, forgetting=forgetting)
        updates = learner.learn_each(X[:30], Y[:30])
        learner.learn_batch(X[30:33], Y[30:33])
        learner.learn(X[33], Y[33])
        learner.learn_each(X[34:], Y[34:])
        return learner, updates

    with np.errstate(all="ignore"):
        compiled, told = learned(way)
        plain, expected = learned("plain")
    # Where steps are long, both carry the rounding of the longest.
    scale = 1 + np.abs(plain.w).max() + expected.step.max()
    assert np.abs(compiled.w - plain.w).max() <= 1e-7 * scale
    assert compiled.memory.rank == plain.memory.rank
    sigma = plain.memory.sigma
    assert np.abs(compiled.memory.sigma - sigma).max(initial=0) <= 1e-8 * (sigma.max(initial=0) + 1)
    assert compiled.memory.lost == pytest.approx(plain.memory.lost, rel=1e-6, abs=1e-12)
    for field in ("prediction", "residual", "step", "conflict"):
        difference = np.abs(getattr(told, field) - getattr(expected, field)).max()
        assert difference <= 1e-7 * scale * (1 + np.abs(X).max())
    assert (told.rank == expected.rank).all()
    assert np.abs(told.novelty - expected.novelty).max() <= 1e-7


@pytest.mark.slow
@needs_numba
@pytest.mark.parametrize("p", [12, 40, 5000])
@given(
    seed=seeds,
    m=st.integers(1, 80),
    noise=st.sampled_from([0.0, 0.1, "auto"]),
    forgetting=st.sampled_from([1.0, 0.9]),
    heads=st.sampled_from([None, 3, 5]),
    dtype=st.sampled_from([np.float64, np.float32]),
)
@settings(max_examples=15)
def test_pieces_of_a_stream_are_the_stream_to_the_last_bit(
    p, seed, m, noise, forgetting, heads, dtype
):
    """The loop reads for several rows at once; how many came together is not seen."""
    rng, sides = np.random.default_rng(seed), () if heads is None else (heads,)
    X, y = rng.standard_normal((70, p)), rng.standard_normal((70, *sides))
    far = 1e35 if dtype is np.float64 else 1e6
    for i in range(1, len(X)):  # the same again, nothing, huge, or next to nothing new
        kind, before = rng.integers(12), X[rng.integers(i)]
        X[i] = {0: before, 1: 0 * before, 2: far * X[i], 3: before + 1e-7 * X[i]}.get(kind, X[i])
    model, w0 = orfit.Linear(p, heads=heads), np.zeros((p, *sides), dtype)
    made = {"noise": noise, "forgetting": forgetting, "rows": "compiled"}
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
        assert np.array_equal(other.w, whole.w)
        assert np.array_equal(other.memory.sigma, whole.memory.sigma)
        assert np.array_equal(other.memory.U, whole.memory.U)


@every_way
def test_a_large_basis(rows, rng):
    """Rows fold directions, blocks are products of matrices: as verbatim."""
    X, y = rng.standard_normal((90, 6000)), rng.standard_normal(90)
    blocks = [(X[i : i + 1], y[i : i + 1]) for i in range(90)]
    w, U, _ = oracles.batch_orfit_limited(blocks, np.zeros(6000), 40)
    learner = on(rows)(orfit.Linear(6000), 40)
    learner.learn_each(X, y)
    assert np.abs(learner.w - w).max() <= 1e-12
    assert np.abs(learner.memory.U @ (learner.memory.U.T @ U) - U).max() <= 1e-9
    assert np.abs(learner.memory.U.T @ learner.memory.U - np.eye(40)).max() <= 1e-12


@pytest.mark.slow
@needs_numba
def test_which_way_is_in_use(rng):
    """Few rows do not wait for the compiler; many gradients of many parameters go together."""
    learner = orfit.ORFit(orfit.Linear(8), 3, rows=Auto(compiled_rows=30, when_ready=False))
    assert learner.way() == "plain"
    learner.learn_each(rng.standard_normal((29, 8)), rng.standard_normal(29))
    assert learner.way() == "compiled"
    patient = on(Auto(when_ready=False))
    assert patient(orfit.Linear(8), 3).way(1999) == "plain"
    assert patient(orfit.Linear(8), 3).way(2000) == "compiled"
    assert patient(orfit.Linear(10**6), 3).way(2) == "compiled"
    large = patient(orfit.Linear(5000), 40, noise=1.0)
    large.learn_batch(rng.standard_normal((40, 5000)), rng.standard_normal(40))
    assert large.way(1) == "plain"
    assert large.way(100) == "coordinates"
    assert orfit.ORFit(orfit.Linear(8), 3, rows="compiled").way() == "compiled"


@pytest.mark.slow
def test_a_memory_that_trims_otherwise_is_not_compiled(rng):
    class Trivial(orfit.memory.Principal):
        """The same under another name."""

    class Fewer(orfit.memory.Principal):
        def trim(self):
            super().trim()
            self.frame.drop(self.frame.W[:1])
            self.seen = type(self.seen)(self.seen.sigma[:1])

    assert orfit.ORFit(orfit.Linear(4), Trivial(3), rows="compiled").way() == "compiled"
    with pytest.raises(ValueError, match="has no compiled loop"):
        orfit.ORFit(orfit.Linear(4), Fewer(3), rows="compiled")
    learner = orfit.ORFit(orfit.Linear(4), Fewer(3), rows=WAYS["compiled"])
    learner.learn_each(rng.standard_normal((9, 4)), rng.standard_normal(9))
    assert learner.memory.rank == 1


@pytest.mark.slow
def test_without_numba_there_is_the_plain_way():
    script = (
        "import sys; sys.modules['numba'] = None; sys.meta_path.insert(0, type('Gone', (), "
        "{'find_spec': staticmethod(lambda name, *_: None)}))\n"
        "import importlib.util as util; found = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name == 'numba' else found(name, *a)\n"
        "import numpy as np, orfit\n"
        "learner = orfit.ORFit(orfit.Linear(3), 2)\n"
        "learner.learn_each(np.eye(3)[np.arange(3000) % 3], np.ones(3000))\n"
        "print(learner.way()); orfit.warm_up()\n"
        "try: orfit.ORFit(orfit.Linear(3), 2, rows='compiled')\n"
        "except ValueError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("plain\nrows='compiled' is not possible here: numba is not inst")


@pytest.mark.slow
@needs_numba
def test_what_the_loop_leaves_to_the_plain_path(rng):
    """Numbers whose fourth power is none, several outputs that share one w, a nonlinear model."""
    learner = on(WAYS["compiled"])(orfit.Linear(4), 2)
    learner.learn_each(rng.standard_normal((3, 4)) * [[1], [1e-100], [1e100]], [1.0, 2.0, 3.0])
    assert learner.seen == 3
    learner.learn_each(np.eye(4)[:1] * 1e-305, [0.0])  # its inverse is hardly a number
    assert learner.seen == 4
    shared = orfit.Linear(4, features=lambda X: X.reshape(-1, 4, 2))
    learner = on(WAYS["compiled"])(shared, 3)
    learner.learn_each(rng.standard_normal((5, 8)), rng.standard_normal((5, 2)))
    assert learner.memory.rank == 3


@every_way
def test_read_only_input_is_learned_and_left_alone(rows, rng):
    X, y = rng.standard_normal((5, 4)), rng.standard_normal(5)
    before = X.copy()
    X.flags.writeable = False
    learner = on(rows)(orfit.Linear(4), 2)
    learner.learn_each(X, y)
    assert (X == before).all()


@pytest.mark.slow
def test_in_coordinates_with_noise_before_anything_is_dropped(rng, tmp_path):
    X, y = rng.standard_normal((30, 50)), rng.standard_normal(30)
    chunked, single = (
        on(rows)(orfit.Linear(50), 40, noise=1.0) for rows in (WAYS["coordinates"], "plain")
    )
    chunked.learn_each(X[:10], y[:10])
    chunked.learn(X[10], y[10])
    chunked.save(tmp_path / "learner")
    chunked = orfit.load(tmp_path / "learner")
    told = chunked.learn_each(X[11:], y[11:])
    expected = [single.learn(x, label) for x, label in zip(X, y, strict=True)]
    assert chunked.w == pytest.approx(single.w)
    assert told.prediction == pytest.approx([update.prediction for update in expected[11:]])
    assert told.conflict == pytest.approx([update.conflict for update in expected[11:]])


@pytest.mark.slow
def test_what_a_later_chunk_predicts(rng):
    X, y = rng.standard_normal((40, 30)), rng.standard_normal(40)
    chunked, single = (on(rows)(orfit.Linear(30), 4) for rows in (WAYS["coordinates"], "plain"))
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


@every_way
def test_noise_beside_a_row_that_is_a_thousand_million_million_times_longer(rows, rng):
    """What was seen is known beside the noise, not beside what was seen most."""
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = np.array([1e15 * Q[0], Q[1], Q[1] + 0.3 * Q[2], Q[1] + 0.1 * Q[2]])
    y, noise = np.array([1.0, 1.0, 2.0, 3.0]), 1e-2
    learner = on(rows)(orfit.Linear(6), 4, noise=noise)
    learner.learn_each(X, y)
    # In coordinates along Q the long row decouples: ridge regression in two dimensions.
    Z = X[1:] @ Q[1:3].T
    expected = np.linalg.solve(Z.T @ Z + noise * np.eye(2), Z.T @ y[1:])
    assert Q[1:3] @ learner.w == pytest.approx(expected, rel=1e-9)


@every_way
def test_a_short_row_in_float32_makes_no_infinity(rows):
    learner = on(rows)(orfit.Linear(2), 1, w0=np.zeros(2, np.float32))
    learner.learn(np.float32([1e-3, 1e-3]), 1e34)
    assert learner.w == pytest.approx([5e36, 5e36], rel=1e-5)


@every_way
def test_steps_that_overflow_together_are_refused_in_time(rows):
    from scipy.linalg import hadamard

    X, y = hadamard(64) / 2, np.full(64, 1.6e308)
    learner = on(rows)(orfit.Linear(64), 64)
    with pytest.raises(ValueError, match="the step overflows"):
        learner.learn_each(X, y)
    assert np.isfinite(learner.w).all()


@every_way
def test_long_steps_there_and_back_are_no_overflow(rows):
    """Only where w itself would leave the numbers is a step refused."""
    learner = on(rows)(orfit.Linear(3), 1, w0=np.zeros(3, np.float32))
    X = np.eye(3)[np.arange(600) % 2]
    y = np.where(np.arange(600) % 4 < 2, 1e35, -1e35)
    learner.learn_each(X, y)
    assert learner.seen == 600
    for x, label in zip(X[:400], y, strict=False):
        learner.learn(x, label)
    assert learner.seen == 1000
    with pytest.raises(ValueError, match="overflows"):
        learner.learn([0.0, 0.0, 1.0], 1e39)


@every_way
@pytest.mark.parametrize("forgetting", [1.0, 0.7])
def test_a_refused_row_leaves_the_memory_bit_by_bit(rows, forgetting, rng):
    learner = on(rows)(orfit.Linear(9), 4, forgetting=forgetting)
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


@every_way
@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_looking_copying_and_saving_change_nothing(rows, heads, noise, rng, tmp_path):
    """Steps are written to w when rows are folded; whoever asks before gets it all the same."""
    X, Y = rng.standard_normal((60, 30)), rng.standard_normal((60, *([heads] if heads else [])))
    X[1::2] += X[::2]  # some gradients keep more than half of their length, some do not
    X[2::5] = X[1::5] + 0.1 * X[2::5]

    def learner():
        return on(rows)(orfit.Linear(30, heads=heads), 4, noise=noise)

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
    assert watched.memory.frame.shift.any()
    assert (watched.w == alone.w).all()
    assert (watched.memory.U == alone.memory.U).all()


@every_way
def test_steps_outlive_a_change_of_the_memory(rows, rng):
    """A memory that takes gradients in by itself, and blocks in between, lose no step."""
    X, y = rng.standard_normal((40, 50)), rng.standard_normal(40)
    learner = on(rows)(orfit.Linear(50), 3)
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


@every_way
def test_rows_that_a_block_left_behind_are_directions(rows, rng):
    """After a block `stored` exceeds the rank: what lies beyond must not be read."""
    X, y = rng.standard_normal((90, 6000)), rng.standard_normal(90)
    learner = on(rows)(orfit.Linear(6000), 49)
    learner.learn_batch(X[:40], y[:40])
    learner.learn_batch(X[40:60], y[40:60])
    learner.memory.frame.M[learner.memory.frame.stored :] = np.nan
    for x, label in zip(X[60:], y[60:], strict=True):
        learner.learn(x, label)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(49)).max() <= 1e-13
    assert learner.predict(X[-1]) == pytest.approx(y[-1])


@every_way
def test_after_a_memory_took_something_in_the_loop_knows_w(rows, rng):
    X, y = rng.standard_normal((6, 20)), rng.standard_normal(6)
    learner = on(rows)(orfit.Linear(20), 3)
    for x, label in zip(X[:3], y[:3], strict=True):
        learner.learn(x, label)
    learner.memory.absorb(rng.standard_normal((20, 1)))
    before = learner.predict(X[3])
    assert learner.learn(X[3], y[3]).prediction == pytest.approx(before)
    assert learner.predict(X[3]) == pytest.approx(y[3])


@every_way
@pytest.mark.parametrize(("share", "m"), [(0.86, 60), (0.8, 120), (0.707, 60), (0.5, 120)])
def test_a_chain_of_gradients_each_half_its_predecessor(rows, share, m):
    """What one direction lacks of being orthogonal must not be magnified by all that follow."""
    p, n = 150, 120
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((p, p)))[0]
    links = [share * Q[j - 1] + np.sqrt(1 - share**2) * Q[j] for j in range(1, n)]
    X, y = np.array([Q[0], *links]), np.random.default_rng(1).standard_normal(n)
    learner = on(rows)(orfit.Linear(p), m, noise=1e-2)
    learner.learn_each(X, y)
    U = learner.memory.U
    assert np.abs(U.T @ U - np.eye(m)).max() <= 1e-12
    if m == n:
        ridge = np.linalg.solve(X.T @ X + 1e-2 * np.eye(p), X.T @ y)
        assert np.abs(learner.w - ridge).max() <= 1e-12


@pytest.mark.slow
def test_rounding_of_float32_is_rounding_in_coordinates(rng):
    """A long row that comes again and again, with other labels, is no new direction."""
    X = rng.standard_normal((60, 200))
    X[::3] = 1e3 * X[0]
    y = rng.standard_normal(60)

    def longest_step(rows):
        learner = on(rows)(orfit.Linear(200), 5, w0=np.zeros(200, np.float32))
        learner.learn_each(X[:8], y[:8])
        return learner.learn_each(X[8:], y[8:]).step.max()

    expected = longest_step("plain")
    for rows in WAYS.values():
        assert longest_step(rows) == pytest.approx(expected, rel=1e-2)


def played(seed, tmp_path, rows):
    """A learner after rows, blocks, a memory used by itself, copies and files, in any order."""
    rng = np.random.default_rng(seed)
    p, heads = int(rng.integers(5, 60)), [None, 3][seed % 2]
    m, noise = int(rng.integers(1, min(p, 20))), float(rng.choice([0.0, 1e-3, 1.0]))
    model = orfit.Linear(p, heads=heads)
    forgetting = float(rng.choice([1.0, 0.97]))
    learner = on(rows)(model, m, noise=noise, forgetting=forgetting)
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


@every_way
@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_after_whatever_all_ways_agree(seed, rows, tmp_path):
    learner, plain = (played(seed, tmp_path, way) for way in (rows, "plain"))
    assert np.abs(learner.w - plain.w).max() <= 1e-9 * max(1.0, np.abs(plain.w).max())
    assert learner.memory.sigma == pytest.approx(plain.memory.sigma, rel=1e-9)
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
def test_directions_that_are_replaced_for_ever_stay_orthonormal(memory, p, dtype, rng):
    """What each lacks of being orthogonal must not be handed on, and grow like a power."""
    memory = copy.deepcopy(memory)
    for _ in range(600):
        memory.absorb(rng.standard_normal(p).astype(dtype))
    U = memory.U.astype(float)
    bound = 1e-10 if dtype == np.float64 else 2e-4
    assert np.abs(U.T @ U - np.eye(U.shape[1])).max() <= bound


def test_a_long_stream_of_few_directions_and_little_noise(rng):
    X = rng.standard_normal((3000, 6)) @ rng.standard_normal((6, 40))
    X = (X + 1e-3 * rng.standard_normal(X.shape)).astype(np.float32)
    learner = orfit.ORFit(orfit.Linear(40), 10, w0=np.zeros(40, np.float32), rows="plain")
    learner.learn_each(X, X[:, 0])
    U = learner.memory.U.astype(float)
    assert np.abs(U.T @ U - np.eye(10)).max() <= 1e-4


@every_way
def test_what_the_compiled_loop_leaves_to_the_plain_step(rows):
    """Rows and steps at the ends of the range: the same answers, or the same refusal."""
    X = np.random.default_rng(0).standard_normal((4, 5))
    X[2] *= 1e-310
    learner = on(rows)(orfit.Linear(5), 3)
    learner.learn_each(X, [1.0, 1.0, 0.0, 1.0])
    assert np.isfinite(learner.memory.sigma).all()
    assert learner.memory.rank == 3
    learner, x = on(rows)(orfit.Linear(3), 2, noise=1.0), np.array([1e200, 0, 0])
    learner.learn(x, 1.0)
    learner.learn(x, 3.0)
    assert learner.predict(x) == pytest.approx(2.0)
    learner = on(rows)(orfit.Linear(3), 2)
    learner.learn([1.0, 0, 0], 1e300)
    with pytest.raises(ValueError, match="leaves the finite numbers"):
        learner.learn([1e10, 0, 0], 1.0)
    assert learner.seen == 1
    learner = on(rows)(orfit.Linear(6), 3, noise=0.1)
    learner.learn_each(np.zeros((2, 6)), np.zeros(2))
    assert learner.seen == 2


@every_way
@pytest.mark.parametrize(("dtype", "short", "y"), [("d", 1e-149, 1e165), ("f", 1e-14, 1e28)])
def test_a_step_along_a_short_row(rows, dtype, short, y):
    """Its coefficient may be no number where it is one itself."""
    X = np.random.default_rng(0).standard_normal((2, 5))
    X[1] += X[0]
    X[0] *= short
    learner = on(rows)(orfit.Linear(5), 3, w0=np.zeros(5, dtype))
    learner.learn_each(X, [0.0, y])
    assert np.isfinite(learner.w).all()
    assert learner.predict(X[1]) == pytest.approx(y, rel=1e-4)


@every_way
def test_no_way_loses_count_of_how_large_w_is(rows):
    w0 = np.zeros(2, np.float32)
    learner = on(rows)(orfit.Linear(2), orfit.memory.Nothing(), w0=w0)
    x = np.eye(2) * 1e-6

    def go_on():
        for _ in range(40):
            learner.learn_each(x, np.array([learner.predict(x[0]) + 5e31, 0]))

    with pytest.raises(ValueError, match="overflows"):
        go_on()
    before = learner.memory.reach
    with pytest.raises(ValueError, match="overflows"):
        learner.learn(x[0], 1e35)
    assert learner.memory.reach == before
    assert np.isfinite(learner.w).all()


class Idle(Principal):
    """Drops nothing."""

    def trim(self):
        pass


class Stretches(Latest):
    """Keeps what are no orthonormal directions."""

    def trim(self):
        if self.rank > self.m:
            self.keep(np.ones((self.rank, self.m)))


@pytest.mark.parametrize(
    ("memory", "message"),
    [(Idle(2), "trim left 3 directions, more than m=2"), (Stretches(2), "K must be orthonormal")],
)
def test_a_memory_that_trims_wrongly_is_told(memory, message, rng):
    learner = orfit.ORFit(orfit.Linear(10), memory)
    with pytest.raises(ValueError, match=message):
        learner.learn_each(rng.standard_normal((5, 10)), rng.standard_normal(5))


@pytest.mark.slow
def test_a_way_that_is_not_possible_where_a_learner_is_loaded(rng, tmp_path, monkeypatch):
    learner = orfit.ORFit(orfit.Linear(5), 2, rows="compiled")
    learner.learn_each(rng.standard_normal((9, 5)), rng.standard_normal(9))
    learner.save(tmp_path / "l")
    monkeypatch.setattr("orfit.learners.rows.find_spec", lambda name: None)
    with pytest.raises(orfit.CheckpointError, match=r"numba is not installed.*pass another rows="):
        orfit.load(tmp_path / "l")
    assert (orfit.load(tmp_path / "l", rows="plain").w == learner.w).all()


def test_a_memory_that_is_none_or_taken_is_not_the_files_fault(rng, tmp_path):
    learner = orfit.ORFit(orfit.Linear(5), Latest(2))
    learner.save(tmp_path / "l")
    with pytest.raises(ValueError, match="memory must be None, a whole number"):
        orfit.load(tmp_path / "l", memory=Latest)
    with pytest.raises(ValueError, match="belongs to another learner"):
        orfit.load(tmp_path / "l", memory=learner.memory)
    with pytest.raises(orfit.CheckpointError, match=r"not with Principal\(m=5\)"):
        orfit.load(tmp_path / "l", memory=5)


@pytest.mark.parametrize("way", ["plain", "coordinates"])
@pytest.mark.parametrize("kind", [Latest, Random])
def test_with_noise_too_rounding_displaces_no_direction(kind, way, rng):
    """Five directions, the last two of them found as a thirtieth of what was there already."""
    for _ in range(4):
        Z = rng.standard_normal((200, 5))
        Z[:3, 3:], Z[3, 3:], Z[4, 3:] = 0, (0.03, 0), (1, 0.03)
        X = Z @ rng.standard_normal((5, 12))
        y = X @ rng.standard_normal(12) + 0.1 * rng.standard_normal(200)
        learner = orfit.ORFit(orfit.Linear(12), kind(5), noise=5e-3, rows=way)
        learner.learn_each(X, y)
        ridge = np.linalg.solve(X.T @ X + 5e-3 * np.eye(12), X.T @ y)
        assert np.abs(learner.w - ridge).max() <= 1e-6


@every_way
def test_rows_before_one_whose_gradient_is_no_number_are_learned_and_counted(rows, rng):
    class Bad(orfit.Linear):
        def affine(self, X, Y):
            offset, Y, G = super().affine(X, Y)
            G = np.array(G, order="F")
            G[:, X[:, 0] == 99] = np.nan
            return offset, Y, G

    X, y = rng.standard_normal((12, 30)), rng.standard_normal(12)
    X[9, 0] = 99
    learner, expected = on(rows)(Bad(30), 3), on("plain")(orfit.Linear(30), 3)
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
