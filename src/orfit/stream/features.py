"""What --features says, and how well features do on the first rows."""

import numpy as np

from orfit.features import Features, Fourier, Polynomial, Raw
from orfit.stream.block import StreamError
from orfit.validation import Array

MOST = 100_000  # features: a slip of the keyboard asks for more


def parse(text: str, seed: int) -> tuple[int, Features | None]:
    """What --features says: how many lags, and which features; None where they are to be chosen.

    "raw", "poly:2", "fourier:500", "lags:12", or lags and others: "lags:12+fourier:500".
    """
    lags = 0
    made: Features | None = None
    for part in text.split("+"):
        name, _, number = part.strip().partition(":")
        if name == "lags" and not lags:
            lags = _count(part, number)
        elif name == "raw" and not number and made is None:
            made = Raw()
        elif name == "poly" and number == "2" and made is None:
            made = Polynomial()
        elif name == "fourier" and made is None:
            made = Fourier(_count(part, number), seed)
        elif part.strip() != "auto":
            raise StreamError(
                f"--features {text} is not known; there are raw, poly:2, fourier:N, lags:N, and "
                "lags with one of the others, as in lags:12+fourier:500"
            )
    return lags, made


def _count(part: str, number: str) -> int:
    if not number.isdecimal() or not 0 < int(number) <= MOST:
        raise StreamError(f"--features {part} needs a whole number up to {MOST} after the colon")
    return int(number)


def leave_one_out(phi: Array, Y: Array, noises: Array) -> Array:
    """Of ridge regression with each noise, the mean squared error on rows left out, in closed form.

    r_i / (1 − h_ii), with h of H = K (K + R I)⁻¹, K = Φ Φᵀ: the residual of row i when all others
    were learned. Φ has a column of ones beside the features.
    """
    phi = np.hstack([phi, np.ones((len(phi), 1))])
    if 4 * phi.shape[1] <= len(phi):  # else the square is faster
        V, sigma, _ = np.linalg.svd(phi, full_matrices=False)
        energies = sigma * sigma
    else:
        energies, V = np.linalg.eigh(phi @ phi.T)
        energies = np.maximum(energies, 0.0)
    along, squares, errors = V.T @ Y, V * V, []
    outside, beyond = Y - V @ along, 1 - squares.sum(axis=1)  # of I − H, where no feature reaches
    for noise in noises:
        left = noise / (energies + noise)  # of I − H, along each axis
        residual = outside + V @ (left[:, None] * along)
        leverage = beyond + squares @ left
        errors.append(float(np.mean((residual / leverage[:, None]) ** 2)))
    return np.array(errors)
