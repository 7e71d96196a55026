"""Exponential forgetting: what happens to directions that the stream has left."""

import numpy as np
import pytest

import orfit
from orfit.memory import windup
from orfit.memory.base import StepSettings
from orfit.state import State, to_arrays


def streams(p, rng, ordinary=600, held=1000, back=None):
    """Ordinary rows, one row held for long, ordinary rows again; y of w = 1, with noise 0.1.

    At λ = 0.9 a thousand rows are as good as any number: P would have grown by 1e45.
    """
    w, back = np.ones(p), back or 3 * p + 100
    still = np.broadcast_to(rng.standard_normal(p), (held, p))
    for X in (rng.standard_normal((ordinary, p)), still, rng.standard_normal((back, p))):
        yield X, X @ w + 0.1 * rng.standard_normal(len(X))


def learners(p, forgetting):
    rls = orfit.RLS(orfit.Linear(p), forgetting=forgetting)
    return rls, orfit.ORFit(orfit.Linear(p), noise=1.0, forgetting=forgetting)


def test_a_repeated_row_after_ordinary_ones_does_not_wind_p_up(rng):
    rls, other = learners(4, 0.95)
    for X, y in list(streams(4, rng, 500, 1000))[:2]:
        rls.learn_each(X, y)
        other.learn_each(X, y)
    assert np.abs(rls.memory.P).max() <= 1e12
    assert np.linalg.norm(rls.w - 1) <= 2 * np.linalg.norm(other.w - 1)


@pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
@pytest.mark.parametrize(("p", "forgetting"), [(1, 0.9), (2, 0.97), (20, 0.9), (50, 0.95)])
def test_when_excitation_returns(p, forgetting, rng):
    """The largest residual is near that of ORFit, whose prior keeps its weight."""
    rls, other = learners(p, forgetting)
    for X, y in streams(p, rng, held=int(100 / (1 - forgetting))):
        most = np.abs(rls.learn_each(X, y).residual).max()
        # After some hundred rows ORFit stands still.
        least = np.abs(other.learn_each(X[-600:], y[-600:]).residual).max()
    assert most <= 2 * least


@pytest.mark.filterwarnings("ignore::orfit.SaturationWarning")
@pytest.mark.parametrize(("p", "forgetting"), [(50, 0.9), (100, 0.95)])
def test_w_after_excitation_returns_is_as_good_as_before(p, forgetting, rng):
    """As if the prior had had its weight since the row was held, around the w of then.

    It is not compared with an ORFit that began with the stream: where p is more than the rows that
    count, 1 / (1 − λ), the textbook's w is worse than its one, before any row is held.
    """
    rls, _ = learners(p, forgetting)
    first, held, back = streams(p, rng, 1000, 1000, 300)
    before = np.abs(rls.learn_each(*first).residual[-300:]).max()
    other = orfit.ORFit(orfit.Linear(p), p, w0=rls.w, noise=1.0, forgetting=forgetting)
    for X, y in (held, back):
        most = np.abs(rls.learn_each(X, y).residual).max()
        least = np.abs(other.learn_each(X, y).residual).max()
    assert rls._cell.state.wound_up
    assert most <= 1.5 * least
    assert most <= 2 * before


@pytest.mark.parametrize("prior", [1e-6, 1e4])
def test_the_limit_of_p_depends_on_the_noise(prior, rng):
    """A very wide prior, the textbook's start, leaves less room for rounding."""
    rls = orfit.RLS(orfit.Linear(4), prior=prior, forgetting=0.95)
    for X, y in list(streams(4, rng, 500, 1500))[:2]:
        rls.learn_each(X, y)
        assert np.linalg.norm(rls.w - 1) <= 0.2


@pytest.mark.parametrize("p", [1, 12])
def test_zero_rows_do_not_wind_p_up(p, rng):
    """Rows of zeros excite nothing at all."""
    rls = orfit.RLS(orfit.Linear(p), forgetting=0.9)
    first, silent, back = streams(p, rng, held=7000)  # P would leave the numbers
    rls.learn_each(*first)
    rls.learn_each(0 * silent[0], silent[1])
    assert np.abs(rls.memory.P).max() <= 1.1
    rls.learn_each(*back)
    assert np.abs(rls.memory.P).max() <= 1.1
    assert np.linalg.norm(rls.w - 1) <= 1


def test_while_every_row_is_new_p_grows_as_it_must(rng):
    """eq:weighted_ls with λ^i far beyond the digits of float64, beside unseen directions."""
    p, n, forgetting = 30, 12, 1e-3
    X, y = rng.standard_normal((n, p)), rng.standard_normal(n)
    rls = orfit.RLS(orfit.Linear(p), forgetting=forgetting)
    rls.learn_each(X, y)
    nearest = np.linalg.pinv(X) @ y
    assert np.linalg.norm(rls.w - nearest) <= 20 * forgetting * np.linalg.norm(nearest)
    assert np.abs(rls.memory.P).max() >= 0.1 * forgetting**-n


def test_p_is_the_textbooks_until_a_direction_is_left_for_long(rng):
    """1,000 rows at λ = 0.98: P has grown by 6e8 along what they leave."""
    rls = orfit.RLS(orfit.Linear(3), forgetting=0.98)
    information = np.eye(3)
    for _ in range(1000):
        x = np.append(rng.standard_normal(2), 0.0)
        information = 0.98 * information + np.outer(x, x)
        rls.learn(x, 1.0)
    assert rls.memory.P @ information == pytest.approx(np.eye(3), abs=1e-6)


def test_a_wound_up_state_is_saved_and_restored(rng, tmp_path):
    """Bit for bit, also between two corrections."""
    rls, _ = learners(4, 0.9)
    X, y = next(streams(4, rng, 50))
    rls.learn_each(np.vstack([X, X[[0] * 700]]), np.append(y, y[[0] * 700]))
    rls.save(tmp_path / "learner")
    twin = orfit.load(tmp_path / "learner")
    for learner in (rls, twin):
        learner.learn_each(X[[1] * 300], y[[1] * 300])
        learner.learn_each(X, y)
    assert (twin.w == rls.w).all()
    assert (twin.memory.L == rls.memory.L).all()


def test_decompose_changes_no_array_where_p_is_limited(rng):
    rls = orfit.RLS(orfit.Linear(3), forgetting=0.9)
    rls.learn_each(np.eye(3)[[0] * 300], np.ones(300))
    before = {name: np.array(array) for name, array in to_arrays(rls._cell.state).items()}
    settings = StepSettings(np.ones(1), np.zeros(1, bool), 0, 0.9, 0.0)
    for i in (0, 1):
        draft = State(**vars(rls._cell.state))
        rls.memory.decompose(draft, np.asfortranarray(np.eye(3)[:, i : i + 1]), settings)
    assert draft.wound_up
    for name, array in to_arrays(rls._cell.state).items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_p_is_limited_only_where_it_is_wide(dtype, rng):
    L = np.asfortranarray(rng.standard_normal((6, 6)), dtype)
    held = windup._held(L, 0.5)
    e, V = np.linalg.eigh(L.astype(np.float64) @ L.T.astype(np.float64))
    assert e[0] < 0.25 < e[-1]
    P = (V * np.minimum(e, 0.25)) @ V.T
    np.testing.assert_allclose(held @ held.T, P, atol=1e-5 if dtype is np.float32 else 1e-12)
    assert held.dtype == dtype
    assert np.linalg.norm(held, 2) < 0.5 + 1e-5


def test_parameters_that_are_still_seen_are_weighted_least_squares(rng):
    """Half of the parameters are no longer seen, and P is limited there again and again."""
    X = rng.integers(-3, 4, (3000, 8)).astype(float)
    X[300:, 4:] = 0
    y = X @ np.arange(1, 9) + rng.integers(-5, 6, 3000)
    learner = orfit.RLS(orfit.Linear(8), forgetting=0.9)
    learner.learn_each(X, y)
    assert learner._cell.state.wound_up
    root = np.sqrt(0.9 ** np.arange(1000)[::-1])
    expected = np.linalg.lstsq(root[:, None] * X[-1000:, :4], root * y[-1000:], rcond=None)[0]
    np.testing.assert_allclose(learner.w[:4], expected, rtol=1e-9)


@pytest.mark.parametrize(("dtype", "drift"), [(np.float32, 1e8), (np.float64, 1e20)])
def test_a_p_that_drift_made_far_wider_is_limited(dtype, drift, rng):
    learner = orfit.RLS(orfit.Linear(5), forgetting=0.9, drift=drift, w0=np.zeros(5, dtype))
    learner.learn_each(np.eye(5)[[0] * 300], np.ones(300))
    learner.learn_each(rng.standard_normal((30, 5)), np.ones(30))
    assert np.isfinite(learner.w).all()
