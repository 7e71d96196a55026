"""The Kalman filter in time: dynamics, control, drift, and what was not measured."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import orfit
from test_contract import state

seeds = st.integers(0, 2**32 - 1)
P, C, K = 4, 2, 3
MODEL = orfit.Linear(P, features=lambda X: X.reshape(-1, P, C))


def drawn(seed, n=12):
    """A stable system, and n measurements of it: A, B, Q, R, prior, H (n, C, P), u, y, w0."""
    rng = np.random.default_rng(seed)
    A = np.linalg.qr(rng.standard_normal((P, P)))[0] * rng.uniform(0.5, 1.05)
    roots = [rng.standard_normal((k, k)) for k in (P, C, P)]
    Q, R, prior = (root @ root.T / len(root) for root in roots)
    shapes = (n, C, P), (n, K), (n, C), (P,), (P, K)
    H, u, y, w0, B = (rng.standard_normal(shape) for shape in shapes)
    return A, B, Q, R, prior + np.eye(P), H, u, y, w0


def x_of(H):
    """The input whose features are Hᵀ."""
    return H.T.ravel()


def close(learner, w, covariance, tolerance=1e-8):
    assert np.abs(learner.w - w).max() <= tolerance * (1 + np.abs(w).max())
    assert np.abs(learner.memory.P - covariance).max() <= tolerance * (1 + np.abs(covariance).max())


@given(seeds, st.sampled_from(["number", "vector", "matrix"]), st.sampled_from([1.0, 0.9]))
def test_rls_that_drifts_is_the_filter(seed, kind, forgetting):
    """P ← P/λ + Q before each row: forgetting is a drift in proportion to P."""
    rng = np.random.default_rng(seed)
    root, X, y = (rng.standard_normal(s) for s in ((5, 3), (20, 5), (20,)))
    drift = {"number": 0.3, "vector": rng.uniform(0, 1, 5), "matrix": root @ root.T}[kind]
    Q = drift if kind == "matrix" else drift * np.eye(5)
    for learner in (
        orfit.RLS(orfit.Linear(5), prior=0.5, forgetting=forgetting, drift=drift),
        orfit.NTKRLS(orfit.Linear(5), prior=0.5, forgetting=forgetting, drift=drift),
    ):
        learner.learn_each(X, y)
        w, covariance = np.zeros(5), 2 * np.eye(5)
        for x, label in zip(X, y, strict=True):
            step = (np.eye(5), 0, Q, x[None], np.array([label]), np.eye(1))
            w, covariance = oracles.kalman_filter([step], w, covariance / forgetting)
        close(learner, w, covariance, 1e-10)


@given(seeds, st.booleans(), st.booleans())
def test_against_the_filter_typed_out(seed, matrix, whole):
    A, B, Q, R, prior, H, u, y, w0 = drawn(seed)
    noise, drift = (R if matrix else 0.4), (Q if whole else 0.2)
    learner = orfit.EKF(MODEL, noise=noise, prior=prior, w0=w0, dynamics=A, control=B, drift=drift)
    R, Q = R if matrix else 0.4 * np.eye(C), Q if whole else 0.2 * np.eye(P)
    steps = []
    for i in range(len(y)):
        if i % 3:  # at times without an input: `learn` takes the step itself
            learner.advance(u[i])
        learner.learn(x_of(H[i]), y[i])
        steps.append((A, B @ u[i] * bool(i % 3), Q, H[i], y[i], R))
    close(learner, *oracles.kalman_filter(steps, w0, np.linalg.inv(prior)))


@given(seeds)
def test_against_filterpy(seed):
    A, B, Q, R, prior, H, u, y, w0 = drawn(seed)
    learner = orfit.EKF(MODEL, noise=R, prior=prior, w0=w0, dynamics=A, control=B, drift=Q)
    theirs = pytest.importorskip("filterpy.kalman").KalmanFilter(P, C, K)
    theirs.x, theirs.P, theirs.F, theirs.B = w0.copy(), np.linalg.inv(prior), A, B
    theirs.Q, theirs.R = Q, R
    for i in range(len(y)):
        theirs.predict(u[i])
        theirs.update(None if i % 4 == 3 else y[i], H=H[i])
        learner.advance(u[i])
        learner.learn(x_of(H[i]), None if i % 4 == 3 else y[i])
    close(learner, theirs.x, theirs.P)


class Pendulum:
    """Measured: the sine of its angle, and x times its speed."""

    size, heads, input_shape, linear = 2, None, (), False

    def initial(self):
        return np.array([0.4, 0.0])

    def predict(self, w, X):
        return np.stack([np.full(len(X), np.sin(w[0])), X * w[1]], axis=1)

    def linearize(self, w, X):
        G = np.zeros((2, len(X), 2))
        G[0, :, 0], G[1, :, 1] = np.cos(w[0]), X
        return self.predict(w, X), np.asfortranarray(G.reshape(2, -1))

    def settings(self):
        return {}


def swing(w, torque):
    push = 0.0 if torque is None else float(torque)
    ahead = np.array([w[0] + 0.1 * w[1], w[1] - 0.1 * np.sin(w[0]) + 0.1 * push])
    return ahead, np.array([[1.0, 0.1], [-0.1 * np.cos(w[0]), 1.0]])


def test_nonlinear_dynamics_against_filterpy(rng):
    R, Q = np.diag([0.1, 0.2]), np.diag([1e-3, 2e-3])
    learner = orfit.EKF(Pendulum(), noise=R, dynamics=swing, drift=Q)
    theirs = pytest.importorskip("filterpy.kalman").ExtendedKalmanFilter(2, 2)
    theirs.x, theirs.Q, theirs.R = learner.w.copy(), Q, R
    for _ in range(60):
        torque, x, y = rng.standard_normal(), rng.uniform(0.5, 1.5), rng.standard_normal(2)
        theirs.x, theirs.F = swing(theirs.x, torque)
        theirs.P = theirs.F @ theirs.P @ theirs.F.T + Q
        theirs.update(
            y,
            lambda w, x=x: np.array([[np.cos(w[0]), 0.0], [0.0, x]]),
            lambda w, x=x: np.array([np.sin(w[0]), x * w[1]]),
        )
        learner.advance(torque)
        learner.learn(x, y)
    close(learner, theirs.x, theirs.P)


@given(seeds, st.booleans())
def test_what_was_not_measured(seed, matrix):
    """None and NaN: time goes on; of several outputs those are used that are there."""
    A, _, Q, R, prior, H, _, y, w0 = drawn(seed)
    rng = np.random.default_rng(seed)
    R = R if matrix else 0.4 * np.eye(C)
    y[rng.random(y.shape) < 0.4] = np.nan
    settings = {"prior": prior, "w0": w0, "dynamics": A, "drift": Q}
    learner, each = (orfit.EKF(MODEL, noise=R if matrix else 0.4, **settings) for _ in range(2))
    steps = []
    for h, label in zip(H, y, strict=True):
        there = ~np.isnan(label)
        nothing = not there.any()
        update = learner.learn(x_of(h), None if nothing and rng.random() < 0.5 else label)
        assert (np.isnan(update.residual) == ~there).all()
        assert (np.isnan(update.conflict) == ~there).all()
        assert np.isfinite(update.prediction).all()
        measured = (h[there], None if nothing else label[there], R[np.ix_(there, there)])
        steps.append((A, 0, Q, *measured))
    close(learner, *oracles.kalman_filter(steps, w0, np.linalg.inv(prior)))
    assert learner.seen == (~np.isnan(y).all(axis=1)).sum()
    each.learn_each(np.array([x_of(h) for h in H]), y)
    assert each.w == pytest.approx(learner.w, rel=1e-10)


@given(seeds)
def test_a_block_with_gaps_is_one_moment(seed):
    _, _, _, R, prior, H, _, y, w0 = drawn(seed, 5)
    y[[0, 1, 3], [0, 1, 0]] = np.nan
    y[4] = np.nan
    learner = orfit.EKF(MODEL, noise=R, prior=prior, w0=w0, drift=0.5)
    learner.learn_batch(np.array([x_of(h) for h in H]), y)
    there = ~np.isnan(y).ravel()
    block = np.kron(np.eye(5), R)[np.ix_(there, there)]
    step = np.eye(P), 0, 0.5 * np.eye(P), H.reshape(-1, P)[there], y.ravel()[there], block
    close(learner, *oracles.kalman_filter([step], w0, np.linalg.inv(prior)))


@pytest.mark.slow
def test_rows_with_gaps_in_a_long_stream(rng):
    """One output: rows that were not measured teach nothing, also among compiled ones."""
    X, y = rng.standard_normal((50, 6)), rng.standard_normal(50)
    gaps = y.copy()
    gaps[::7] = np.nan
    one, other = (orfit.EKF(orfit.Linear(6), noise=0.2) for _ in range(2))
    one.learn_each(X, gaps)
    other.learn_each(X[~np.isnan(gaps)], y[~np.isnan(gaps)])
    assert one.w == pytest.approx(other.w, rel=1e-12)
    assert one.seen == other.seen


def test_heads_are_there_or_missing_together(rng):
    learner = orfit.EKF(orfit.Linear(4, heads=2), noise=1.0, drift=0.1)
    learner.learn(np.ones(4), [1.0, 2.0])
    before = state(learner)
    with pytest.raises(ValueError, match="heads share one P"):
        learner.learn(np.ones(4), [1.0, np.nan])
    assert state(learner) == before
    w = learner.w
    learner.learn(np.ones(4), [np.nan, np.nan])
    assert (learner.w == w).all()


def test_nobody_else_takes_nan():
    for learner in (orfit.ORFit(orfit.Linear(2), noise=1.0), orfit.RLS(orfit.Linear(2))):
        with pytest.raises(ValueError, match="y must be finite"):
            learner.learn([1, 2], np.nan)
        with pytest.raises(ValueError, match="y must hold real numbers"):
            learner.learn([1, 2], None)


def test_this_once_is_not_for_good(rng):
    """Time-varying systems: `advance` takes another A, B or Q."""
    A, B, Q, R, prior, H, u, y, w0 = drawn(3)
    learner = orfit.EKF(MODEL, noise=R, prior=prior, w0=w0, dynamics=A, control=B, drift=Q)
    learner.advance(u[0], dynamics=0.5 * A, drift=0.0)
    learner.advance(u[1], control=2 * B)
    learner.learn(x_of(H[0]), y[0])
    learner.learn(x_of(H[1]), y[1])
    nothing = H[0], None, R
    steps = [
        (0.5 * A, B @ u[0], 0 * Q, *nothing),
        (A, 2 * B @ u[1], Q, H[0], y[0], R),
        (A, 0, Q, H[1], y[1], R),
    ]
    close(learner, *oracles.kalman_filter(steps, w0, np.linalg.inv(prior)))


@pytest.mark.parametrize("moment", ["between", "advanced"])
def test_saved_and_restored_in_time(moment, rng, tmp_path):
    A, B, Q, R, prior, H, u, y, w0 = drawn(5)
    learner = orfit.EKF(MODEL, noise=R, prior=prior, w0=w0, dynamics=A, control=B, drift=Q)
    for i in range(6):
        learner.advance(u[i])
        learner.learn(x_of(H[i]), y[i])
    if moment == "advanced":
        learner.advance(u[6])
    learner.save(tmp_path / "filter")
    twin = orfit.load(tmp_path / "filter", model=MODEL)
    assert state(twin) == state(learner)
    for each in (learner, twin):
        each.learn(x_of(H[6]), [np.nan, y[6, 1]])
        each.advance(u[7])
        each.learn(x_of(H[7]), y[7])
    assert state(twin) == state(learner)


def test_dynamics_that_are_code_are_passed_to_load(tmp_path):
    learner = orfit.EKF(Pendulum(), noise=1.0, dynamics=swing)
    learner.learn(1.0, [0.1, 0.2])
    learner.save(tmp_path / "filter")
    with pytest.raises(orfit.CheckpointError, match="its dynamics are Python code"):
        orfit.load(tmp_path / "filter", model=Pendulum())
    twin = orfit.load(tmp_path / "filter", model=Pendulum(), dynamics=swing)
    learner.learn(1.0, [0.3, 0.2])
    twin.learn(1.0, [0.3, 0.2])
    assert state(twin) == state(learner)


def test_what_is_refused_leaves_everything_as_before(rng):
    A, B, Q, R, _, H, u, y, _ = drawn(7)
    learner = orfit.EKF(MODEL, noise=R, dynamics=A, control=B, drift=Q)
    learner.learn(x_of(H[0]), y[0])
    before = state(learner) | {"header": json.dumps(learner.state()[1])}
    for refused, message in (
        (lambda: learner.learn(x_of(H[1]), [1.0, np.inf]), "y must be finite"),
        (lambda: learner.learn(x_of(H[1]), [1.0, 1.7e308]), "overflows"),
        (lambda: learner.learn(x_of(H[1]), [1.0, 1.0, np.nan]), "y has shape"),
        (lambda: learner.learn(np.full(8, np.nan), None), "x must be finite"),
        (lambda: learner.advance(u[0][:2]), r"u must have shape \(3,\)"),
        (lambda: learner.advance([np.nan] * 3), "u must be finite"),
        (lambda: learner.advance(drift=-1), "drift must not be negative"),
        (lambda: learner.advance(dynamics=np.eye(3)), "dynamics must be 4×4"),
        (lambda: learner.advance(dynamics=1e308 * np.ones((P, P))), "finite"),
        (lambda: learner.advance(dynamics=lambda w, u: w), "dynamics must"),
        (lambda: learner.advance(dynamics=lambda w, u: (w, np.eye(2))), "the A that dynamics"),
        (lambda: learner.advance(dynamics=lambda w: w), "dynamics must take w and u"),
        (lambda: orfit.EKF(MODEL, noise=1.0).advance(1.0), "u has no influence"),
    ):
        with pytest.raises(ValueError, match=message), np.errstate(all="ignore"):
            refused()
        assert state(learner) | {"header": json.dumps(learner.state()[1])} == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"drift": [1.0, 2.0]}, r"drift must be a number, 4 of them or 4×4; it has shape \(2,\)"),
        ({"drift": -1}, "drift must not be negative"),
        ({"drift": [1, 1, 1, -1]}, "drift must not be negative; its least value is -1"),
        ({"drift": np.triu(np.ones((4, 4)))}, "drift must be symmetric"),
        ({"drift": -np.eye(4)}, "drift must be positive semidefinite"),
        ({"dynamics": np.eye(3)}, r"dynamics must be 4×4"),
        ({"control": np.eye(3)}, r"control must have shape \(4, k\)"),
        ({"control": np.eye(4), "dynamics": swing}, "control must be left out"),
    ],
)
def test_systems_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        orfit.EKF(orfit.Linear(4), noise=1.0, **settings)


def test_a_drifting_system_is_followed(rng):
    """A random walk of w: with the right Q the error is below that without."""
    w, errors = np.zeros(3), []
    learners = [orfit.EKF(orfit.Linear(3), noise=0.01, drift=q) for q in (0.0, 1e-3)]
    for _ in range(600):
        w += np.sqrt(1e-3) * rng.standard_normal(3)
        x = rng.standard_normal(3)
        y = x @ w + 0.1 * rng.standard_normal()
        for learner in learners:
            learner.learn(x, y)
        errors.append([np.linalg.norm(learner.w - w) for learner in learners])
    still, drifting = np.mean(errors[100:], axis=0)
    assert drifting <= 0.3 * still
