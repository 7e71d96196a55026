"""Means of residuals beside what was expected of them, against the definition typed out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orfit.learners.means import FAR, GROUP, LATELY, MEDIAN, RECENCY, WINDOW, Means


def typed_out(excess, u):
    """One column: the means of u² over both windows, of S/R and of u u' over the shorter."""
    long = short = ratio = product = last = 0.0
    for start in range(0, len(u), GROUP):
        group = u[start : start + GROUP]
        most = np.median(group**2) / MEDIAN
        if start:
            most = max(long, most) if len(group) == GROUP else long
        limit = np.sqrt(FAR * most) if most > 0 else np.inf
        for i, value in enumerate(np.clip(group, -limit, limit), start):
            new = [min(1.0, max(RECENCY / (i + 1), 1 / window)) for window in (WINDOW, LATELY)]
            long += new[0] * (value**2 - long)
            short += new[1] * (value**2 - short)
            ratio += new[1] * (excess[i] - ratio)
            product += new[1] * (value * last - product)
            last = value
    return long, short, ratio, product


def residuals(seed, n, columns, outliers):
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((n, columns)) * 10.0 ** rng.uniform(-3, 3, columns)
    u[rng.random(n) < outliers] *= 100
    u[n // 2 : n // 2 + n // 3] *= 10  # noise that has grown
    return 1 + rng.random((n, columns)), u


@pytest.mark.parametrize("outliers", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 700, 5000])
def test_as_defined(n, outliers):
    excess, u = residuals(n, n, 3, outliers)
    u[:, 2] = 0
    means = Means.none(3, 3).with_rows(excess, u)
    found = means.scale, means.lately, means.excess, means.neighbours
    for column in range(3):
        wanted = typed_out(excess[:, column], u[:, column])
        size = [wanted[0], wanted[1], wanted[2], wanted[1]]
        for mean, value, beside in zip(found, wanted, size, strict=True):
            assert mean[column] == pytest.approx(value, rel=0, abs=1e-12 * beside)
    assert means.known == n


@given(
    seed=st.integers(0, 10**6),
    groups=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    rest=st.integers(0, GROUP - 1),
    columns=st.integers(1, 9),
)
def test_in_pieces_of_whole_groups_bit_by_bit(seed, groups, rest, columns):
    n = GROUP * sum(groups) + rest
    excess, u = residuals(seed, n, columns, 0.01)
    whole = Means.none(columns, columns).with_rows(excess, u)
    pieces, ends = Means.none(columns, columns), np.cumsum(groups) * GROUP
    for rows in np.split(np.arange(n), ends):
        pieces = pieces.with_rows(excess[rows], u[rows])
    np.testing.assert_array_equal(pieces.table, whole.table)
    np.testing.assert_array_equal(pieces.last, whole.last)
    assert pieces.known == whole.known == n
