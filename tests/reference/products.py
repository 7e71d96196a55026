"""Products of vectors and matrices, with the order of every sum of products.c."""

import numpy as np

BLOCK, LANES = 512, 8


def multiply_vectors(a, b):
    """a·b: blocks are added in order; in a block, eight lanes, which are added in pairs."""
    total = a.dtype.type(0)
    size = -(-len(a) // LANES) * LANES
    products = np.zeros(size, a.dtype)
    products[: len(a)] = a * b
    for start in range(0, size, BLOCK):
        lanes = products[start : start + BLOCK].reshape(-1, LANES)
        x = np.add.accumulate(lanes, axis=0)[-1]  # one after another
        total = total + (((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])))
    return total


def multiply(A, g):
    """A g."""
    return np.array([multiply_vectors(row, g) for row in A])


def combine(A, by, start=None):
    """start + Aᵀ by: rows are added in order."""
    total = np.zeros(A.shape[1], A.dtype) if start is None else start.copy()
    for row, factor in zip(A, by, strict=True):
        total = total + factor * row
    return total


def rotate(T, B, start=None):
    """start + Tᵀ B."""
    made = [combine(B, T[:, i], None if start is None else start[i]) for i in range(T.shape[1])]
    return np.array(made).reshape(T.shape[1], B.shape[1])
