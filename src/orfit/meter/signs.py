"""Random signs by number: nothing of the chance has to be kept, or saved."""

import numpy as np

from orfit.validation import Array

GOLDEN = 0x9E3779B97F4A7C15
WORD = 64  # signs that one number makes


def mixed(numbers: Array) -> Array:
    """Splitmix64: each number as another, of which every bit looks like chance."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(numbers ^ (numbers >> np.uint64(31)))


def signs(seed: int, first: int, count: int, probes: int) -> Array:
    """Of the gradients from number `first` on, one line for each, ±1 for each probe.

    They depend on the seed, the gradient's number and the probe's, and on nothing else.
    """
    words = np.arange(-(-probes // WORD), dtype=np.uint64)
    keys = mixed(mixed(np.array([seed], np.uint64)) + words * np.uint64(GOLDEN))
    numbers = np.arange(first, first + count, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = mixed(numbers[:, None] + keys).astype("<u8").view(np.uint8)
    return 1.0 - 2.0 * np.unpackbits(bits, axis=1, count=probes, bitorder="little")
