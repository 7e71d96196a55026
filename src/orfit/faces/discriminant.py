"""From what regression on classes predicts to how likely each class is.

Regression on Y, 1 for a row's class and 0 for others, leaves residuals of covariance Σ. With D =
diag(π) of how frequent the classes are, predictions have covariance T = D − ππᵀ − Σ, the mean
π + T D⁻¹ e_k in class k, and so W = T − T D⁻¹ T within a class. Where they are normal there, a
class has, up to what is the same for all of them,

    log p(k | f) = (f − π)ᵀ (D − T)⁻¹ e_k − ½ e_kᵀ D⁻¹ T (D − T)⁻¹ e_k + log π_k,

since W⁺ T D⁻¹ = (D − T)⁻¹, and D − T = ππᵀ + Σ. Without shrinkage that is linear discriminant
analysis of the features (Hastie, Tibshirani and Buja's flexible discriminant analysis, 1994): a
class between two others, which the largest f never is, is found.
"""

from typing import Any

import numpy as np

from orfit import validation
from orfit.learners.gain import GainLearner
from orfit.learners.rls import RLS
from orfit.learners.update import Updates
from orfit.schema import DOUBLE, Fields, Layout
from orfit.validation import Array

RECENCY = 3.0  # row i of n counts as (i/n)^(RECENCY − 1), about
WINDOW = 1000  # rows: never longer than that
ROUNDING = 1e-9  # of sums over a long stream


class Discriminant:
    """How frequent classes are, and what regression on them leaves.

    exact: whether nothing was dropped. Then Σ comes of Yᵀ(K + R)⁻¹Y, to which residuals before each
    step, beside what was expected of them, add up in any order; else it is what was left before a
    step, lately.
    """

    def __init__(self, classes: int, exact: bool) -> None:
        self.exact = exact
        self.labels, self.rows = np.zeros(classes), 0.0  # of each class, and of all
        self.products, self.mass = np.zeros((classes, classes)), 0.0  # of residuals, of so many

    @classmethod
    def of(cls, classes: int, learner: GainLearner) -> "Discriminant":
        """For classes that this learner is to learn."""
        unfading = learner.candidates.forgettings == (1.0,)
        return cls(classes, isinstance(learner, RLS) and unfading)

    def see(self, updates: Updates, Y: Array, counts: Array, fading: float, before: int) -> None:
        """Take note of rows that were learned. before: how many there had been."""
        self.count(Y, counts, fading)
        some = counts > 0
        residual, counts = updates.residual[some], counts[some]
        stay = np.full(len(counts), fading)
        left, weight = _fading(stay)
        if self.exact:
            beside = 1 / updates.variance[some]
        else:
            i = before + 1.0 + np.arange(len(counts))
            left, weight = _fading(stay * (1 - np.minimum(1, RECENCY / np.minimum(i, WINDOW))))
            beside = counts
        shares = (weight * beside)[:, None] * residual
        self.products = left * self.products + residual.T @ shares
        self.mass = left * self.mass + float(weight @ counts)

    def count(self, Y: Array, counts: Array, fading: float) -> None:
        """Take note of the classes of rows alone, where nothing is told of residuals."""
        some = counts > 0
        Y, counts = Y[some], counts[some]
        left, weight = _fading(np.full(len(counts), fading))
        self.labels = left * self.labels + (weight * counts) @ Y
        self.rows = left * self.rows + float(weight @ counts)

    def rule(self, unsure: float = 0.0) -> tuple[Array, Array]:
        """A, b so that f A + b are the classes' logarithms. unsure: by what share w adds to Σ.

        One more row, of which nothing is known, keeps all of it finite.
        """
        k = len(self.labels)
        pi = (self.labels + 1 / k) / (self.rows + 1)
        apart = np.diag(pi) - np.outer(pi, pi)
        known = self.products / max(self.mass - self.exact, 1.0) * (1 + unsure)
        sigma = (self.rows * known + apart) / (self.rows + 1)
        A = np.linalg.inv(np.outer(pi, pi) + sigma)
        within = ((apart - sigma) @ A).diagonal() / pi
        return A, np.log(pi) - pi @ A - within / 2

    def rule_beside(self, learner: GainLearner) -> tuple[Array, Array]:
        """The same, knowing how unsure w is, where nothing was dropped."""
        if not self.exact:
            return self.rule()
        # Where P is what n rows left of Π⁻¹, the mean of gᵀPg over them is (p − tr ΠP) / n.
        memory, size = learner.memory, learner.model.size
        used = size - float(memory.prior) * float(np.sum(memory.L**2))
        return self.rule(min(max(used, 0.0), size) / max(self.rows, 1.0))

    def grown(self, classes: int) -> "Discriminant":
        """With more classes, of which there was no row yet."""
        made, more = Discriminant(classes, self.exact), (0, classes - len(self.labels))
        made.labels, made.products = np.pad(self.labels, more), np.pad(self.products, more)
        made.rows, made.mass = self.rows, self.mass
        return made

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        arrays = {"classes.labels": self.labels, "classes.products": self.products}
        return arrays, {"rows": self.rows, "mass": self.mass}

    def restore(self, arrays: dict[str, Array], values: dict[str, Any]) -> None:
        self.labels, self.products = arrays["classes.labels"], arrays["classes.products"]
        self.rows, self.mass = values["rows"], values["mass"]
        off = abs(float(self.labels.sum()) - self.rows)
        if self.labels.min() < 0 or not off <= ROUNDING * (1 + self.rows):
            raise ValueError("classes have not the rows that there were")
        energies = np.linalg.eigvalsh(self.products)
        if not validation.symmetric(self.products) or energies[0] < -ROUNDING * energies[-1]:
            raise ValueError("products of residuals are none")


FIELDS: Fields = {"rows": validation.nonnegative, "mass": validation.nonnegative}
LAYOUT: Layout = {"classes.labels": (DOUBLE, "q"), "classes.products": (DOUBLE, "q", "q")}


def _fading(stay: Array) -> tuple[float, Array]:
    """What is left of the past, of which each row left such a share; and of what each row adds."""
    later = np.append(np.cumprod(stay[::-1])[::-1], 1.0)
    return float(later[0]), later[1:]
