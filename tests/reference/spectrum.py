"""Eigenvalues of diag(sigma²) + z zᵀ with as many digits as wished."""

import mpmath
import numpy as np


def singular_values_and_vectors(sigma, z, digits):
    """Singular values of [diag(sigma), z], falling, and left singular vectors as columns (mpmath).

    Numbers that span d decades need 4 d digits more than are wished.
    """
    n = len(sigma)
    with mpmath.workdps(digits):
        squares = mpmath.matrix(n, n)
        numbers = [mpmath.mpf(float(x)) for x in z]
        for i in range(n):
            for j in range(n):
                squares[i, j] = numbers[i] * numbers[j]
            squares[i, i] += mpmath.mpf(float(sigma[i])) ** 2
        values, vectors = mpmath.eigsy(squares)
        order = sorted(range(n), key=lambda i: -values[i])
        roots = [mpmath.sqrt(max(values[i], mpmath.mpf(0))) for i in order]
        return roots, np.array([[float(vectors[j, i]) for i in order] for j in range(n)])


def relative_error(value, exact, digits):
    """|value − exact| / exact, and 0 for two zeros."""
    with mpmath.workdps(digits):
        difference = abs(mpmath.mpf(float(value)) - exact)
        return float(difference / exact) if exact else float(difference)
