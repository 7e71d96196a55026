"""The noise that makes the labels of some rows most likely: whatever order they come in.

With w ~ N(0, s² I), an intercept of which nothing is known, and noise of variance s² R,

    −2 log p(y) = (N − 1) log yᵀ(K + R)⁻¹y + log |K + R| + what does not depend on R,

with rows centred, K = Φ Φᵀ, and s² where this is least. A row of weight v counts as v rows:
N = Σ v, and of each mean, square and product it has v shares. Leaving rows out one by one, as
`orfit learn` does to choose features, tells rows that came twice from such of weight 2; this does
not. Where Σ v is less than the number of rows, as where weights add up to 1, they cannot count
rows: only how they compare matters then, N is the number of rows, and v and R are in units of the
mean weight.
"""

from collections.abc import Iterable

import numpy as np

from orfit.faces.rows import Rows
from orfit.validation import Array

# Of ten: of R, in units of a row's squared length. Where labels cannot tell, as two rows cannot, it
# is the one nearest to that unit, and never rounding that decides.
POWERS = np.arange(-8, 3.5, 0.5)
TOLD = 1e-6  # of −2 log p: what is less likely by less is as likely
ROUNDING = 1e-12  # of the squares of a target, added up
NOTHING = 1e-24  # of the squares of a target: what is left is rounding


def most_likely_noise(parts: Iterable[Rows], centred: bool) -> float:
    """R, for rows whose X are features. Targets share R, and each has its own s²."""
    energies, along, total, mass, share = _axes(parts, centred)
    unit = energies.sum() / mass or 1.0
    count = mass - centred
    told = total > 0
    if count <= 0 or not told.any():
        return float(share * unit)
    along, total = along[:, told], total[told]
    beyond = total - along.sum(axis=0)  # what no w can fit; where rows are few, there is none
    beyond = np.where(beyond > ROUNDING * total, beyond, 0.0)
    best, least = 0.0, np.inf
    for R in unit * 10.0 ** np.array(sorted(POWERS, key=abs)):
        left = beyond + np.sum(along * (R / (energies + R))[:, None], axis=0)
        square = np.maximum(left, NOTHING * total) / R
        volume = np.log(energies + R).sum() + (count - len(energies)) * np.log(R)
        unlikely = float(np.mean(count * np.log(square)) + volume)
        if unlikely < least - TOLD:
            best, least = float(R), unlikely
    return share * best


def _axes(parts: Iterable[Rows], centred: bool) -> tuple[Array, Array, Array, float, float]:
    """Eigenvalues of K, y² along its axes, |y|², N, and the weight that counts as one row."""
    # Of 1, the features and the targets; so the parts need not be there at once.
    moments, width, rows = np.zeros((0, 0)), 0, 0
    for part in parts:
        A = np.hstack([np.ones((len(part), 1)), part.X, part.Y])
        width, rows = part.X.shape[1], rows + int(np.count_nonzero(part.counts))
        product = A.T @ (part.counts[:, None] * A)
        moments = product if not moments.size else moments + product
    share = min(1.0, float(moments[0, 0]) / rows)
    moments = moments / share
    mass = float(moments[0, 0])
    if centred:
        moments = moments - np.outer(moments[0], moments[0]) / mass
    features, targets = slice(1, 1 + width), slice(1 + width, None)
    energies, V = np.linalg.eigh(moments[features, features])
    told = energies > len(energies) * np.finfo(float).eps * max(energies.max(initial=0.0), 0.0)
    energies = np.where(told, energies, 0.0)
    squares = (V.T @ moments[features, targets]) ** 2
    along = np.where(told[:, None], squares / np.where(told, energies, 1.0)[:, None], 0.0)
    return energies, along, np.maximum(np.diag(moments)[targets], 0.0), mass, share
