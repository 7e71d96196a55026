"""Which learner stands behind the faces that other libraries know."""

import numpy as np
import pytest

import orfit
from orfit.faces import EXACT, grown, learner_for

MEMORY = 3


@pytest.mark.parametrize("noise", [0.3, "auto"])
def test_nothing_is_dropped_while_there_are_few_parameters(noise):
    """With the noise that it uses in the end, it is ridge regression."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, EXACT * MEMORY - 1))
    y = X @ rng.standard_normal(X.shape[1]) + rng.standard_normal(60)
    learner = learner_for(X.shape[1], None, MEMORY, noise=noise)
    learner.learn_each(X, y)
    R = noise if noise == 0.3 else learner.noise
    phi = np.hstack([X, np.ones((60, 1))])
    ridge = np.linalg.solve(phi.T @ phi + R * np.eye(phi.shape[1]), phi.T @ y)
    np.testing.assert_allclose(learner.w, ridge, rtol=1e-9)


def test_with_many_there_are_as_many_directions_as_were_asked_for():
    learner = learner_for(EXACT * MEMORY, 2, MEMORY, dtype=np.float32)
    assert isinstance(learner, orfit.ORFit)
    assert learner.memory.m == MEMORY
    assert learner.w.dtype == np.float32
    assert learner.w.shape == (EXACT * MEMORY + 1, 2)


@pytest.mark.parametrize("noise", [0.3, "auto"])
def test_what_grows_is_exact_up_to_there_and_has_no_more_directions_then(noise):
    rng = np.random.default_rng(0)
    most = EXACT * MEMORY
    X = rng.standard_normal((80, 3 * most))
    y = X[:, :most] @ rng.standard_normal(most) + rng.standard_normal(80)
    learner = learner_for(4, None, MEMORY, noise=noise, bias=False, growing=True)
    learner.learn_each(X[:, :4], y)
    learner = grown(learner, most, None, MEMORY)
    learner.learn_each(X[:, :most], y)
    R = noise if noise == 0.3 else learner.noise
    phi = np.vstack([np.pad(X[:, :4], ((0, 0), (0, most - 4))), X[:, :most]])
    ridge = np.linalg.solve(phi.T @ phi + R * np.eye(most), phi.T @ np.append(y, y))
    np.testing.assert_allclose(learner.w, ridge, rtol=1e-8)
    before = learner.predict(X[:, :most], std=True)
    learner = grown(learner, 3 * most, None, MEMORY)
    after = learner.predict(np.pad(X[:, :most], ((0, 0), (0, 2 * most))), std=True)
    np.testing.assert_allclose(after, before, rtol=1e-3)  # its scale is that of some rows
    np.testing.assert_allclose(after[0], before[0], rtol=1e-8)
    learner.learn_each(X, y)
    assert learner.memory.rank <= most


def test_no_noise_interpolates():
    learner = learner_for(4, None, MEMORY, noise=0, bias=False)
    learner.learn_each(np.eye(4)[:3], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(learner.predict(np.eye(4)), [1, 2, 3, 0])


def test_a_memory_is_a_whole_number():
    with pytest.raises(ValueError, match="memory must be at least 1"):
        learner_for(4, None, 0)
