"""Frequent operations with pytest-benchmark: `pytest benchmarks --benchmark-compare`."""

import numpy as np
import pytest

import orfit
from orfit import small_linalg


def stream(p, n):
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, p)), rng.standard_normal(n)


@pytest.mark.parametrize(("p", "m"), [(20, 5), (784, 10), (20_000, 10), (100_000, 100)])
def test_learn(benchmark, p, m):
    X, y = stream(p, m + 30)
    learner = orfit.ORFit(orfit.Linear(p), m)
    learner.learn_each(X, y)
    benchmark(learner.learn, X[0], y[0])


@pytest.mark.parametrize(("p", "m"), [(784, 10), (20_000, 10)])
def test_learn_each(benchmark, p, m):
    X, y = stream(p, 256)
    learner = orfit.ORFit(orfit.Linear(p), m)
    benchmark(learner.learn_each, X, y)


def test_learn_batch(benchmark):
    X, y = stream(10_000, 100)
    learner = orfit.ORFit(orfit.Linear(10_000), 100)
    benchmark(learner.learn_batch, X, y)


def test_singular_values_after_one_row(benchmark):
    bordered = np.zeros((101, 101))
    bordered[range(100), range(100)] = np.linspace(2, 1, 100)
    bordered[:, 100] = np.random.default_rng(0).standard_normal(101)
    benchmark(small_linalg.principal, bordered.T)
