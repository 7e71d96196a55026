"""Which learner stands behind the faces that other libraries know."""

import numpy as np
import pytest

import orfit
from orfit.faces import EXACT, learner_for

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


def test_no_noise_interpolates():
    learner = learner_for(4, None, MEMORY, noise=0, bias=False)
    learner.learn_each(np.eye(4)[:3], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(learner.predict(np.eye(4)), [1, 2, 3, 0])


def test_a_memory_is_a_whole_number():
    with pytest.raises(ValueError, match="memory must be at least 1"):
        learner_for(4, None, 0)
