"""HᵀH of triangular roots, in extended precision and relative to the lengths of columns."""

import numpy as np


def gram(*blocks):
    """Σ AᵀA over blocks of rows, with columns divided by their lengths; and these lengths."""
    stacked = np.vstack([np.atleast_2d(block) for block in blocks]).astype(np.longdouble)
    lengths = np.sqrt((stacked**2).sum(axis=0))
    lengths[lengths == 0] = 1
    scaled = stacked / lengths
    return scaled.T @ scaled, lengths


def gram_with(lengths, H):
    """HᵀH with columns divided by given lengths."""
    scaled = H.astype(np.longdouble) / lengths
    return scaled.T @ scaled
