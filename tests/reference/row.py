"""One row of a learner that remembers directions, by an SVD (alg:orfit_ipca with R >= 0)."""

import numpy as np
from scipy import linalg

from orfit.core._core import draw


class Reference:
    """U, what was seen along U as F with F Fᵀ = Σ C Cᵀ, and w of each candidate and head."""

    def __init__(
        self, p, m, noise=(1.0,), kind="principal", heads=1, forgetting=1.0, drift=0.0, tailed=True,
        chosen=0, seed=0, linear=True,
    ):  # fmt: skip
        self.m, self.kind, self.forgetting, self.drift = m, kind, forgetting, drift
        self.R, self.chosen, self.seed, self.draws = np.array(noise, float), chosen, seed, 0
        self.U, self.F, self.linear = np.zeros((p, 0)), np.zeros((0, 0)), linear
        self.w = np.zeros((len(self.R), heads, p))
        self.tail = [Tail(R) if tailed and kind == "principal" else None for R in self.R]
        self.prior, self.dropped, self.rows = 1.0, 0.0, 0.0
        self.means = None  # of scores: see `update_means`

    def learn(self, g, y, weight=1.0, offset=0.0):
        g, y, offset = (np.sqrt(weight) * np.asarray(a) for a in (g, y, offset))
        C, rest = project(self.U, g)
        t = np.linalg.norm(rest)
        t = 0.0 if self.U.shape[0] == self.U.shape[1] or t <= 1e-13 * np.linalg.norm(g) else t
        O = rest / t if t else rest * 0
        self.age()
        taus = np.array([tail.level if tail else 0.0 for tail in self.tail])
        along = self.w @ g
        self.prediction = offset + along if self.linear else along * 0 + offset
        self.residual = y - self.prediction
        if not self.linear:
            self.residual = self.residual + along[self.chosen] - along
        self.variance, self.left = np.zeros(len(self.R)), np.zeros_like(self.residual)
        for c, (R, tau) in enumerate(zip(self.R, taus, strict=True)):
            kappa = R / self.prior
            H = linalg.qr(np.vstack([self.F.T, np.sqrt(kappa) * np.eye(len(C))]), mode="r")[0]
            d, rho = np.zeros(len(C)), 1.0
            if R > 0:
                H, rho = H[: len(C)], R / (kappa + tau)
                d = (
                    R * linalg.solve_triangular(H, linalg.solve_triangular(H, C, trans=1))
                    if len(C)
                    else d
                )
            S = C @ d + rho * t * t + R
            self.variance[c] = S
            if S > 0:
                self.w[c] += np.outer(self.residual[c] / S, self.U @ d + O * (rho * t))
            self.left[c] = self.residual[c] * (R / S if S > 0 else 1.0)
        self.remember(C, O, t, taus[self.chosen])

    def age(self):
        """Let the past fade, and w drift."""
        R, q, fade = self.R[self.chosen], self.drift, self.forgetting
        self.F, self.dropped, floor = np.sqrt(fade) * self.F, fade * self.dropped, R / self.prior
        if q > 0:
            share = lambda e: R / (R + q * floor) * R / (R + q * (e + floor))  # noqa: E731
            s = np.diag(self.F)
            self.F, self.prior = np.diag(s * np.sqrt(share(s * s))), self.prior + q
            fade *= share(fade * self.tail[0].level) if self.tail[0] else share(0.0)
        self.rows = fade * self.rows + 1
        for tail in filter(None, self.tail):
            tail.fade(fade)

    def remember(self, C, O, t, tau):
        """Extend U, and keep what the kind of memory keeps."""
        k, seen, energy = len(C), self.F, tau if self.tail[self.chosen] else 0.0
        if t:
            self.U = np.column_stack([self.U, O])
            seen = np.block(
                [[self.F, np.zeros((k, 1))], [np.zeros((1, self.F.shape[1])), np.sqrt(energy)]]
            )
            self.dropped -= energy
            C = np.append(C, t)
        seen = np.column_stack([seen, C])
        if self.kind == "principal":
            V, s, _ = np.linalg.svd(seen, full_matrices=False)
            self.U, self.F = (self.U @ V)[:, : self.m], np.diag(s[: self.m])
            self.drop(s[self.m :] ** 2, s[self.m - 1] ** 2 if len(s) > self.m else 0)
            return
        self.F = linalg.qr(seen.T, mode="r")[0][: len(C)].T if len(C) else seen
        limit = {"nothing": 0, "unlimited": len(C)}.get(self.kind, self.m)
        while self.U.shape[1] > limit:
            self.draws += self.kind == "random"
            j = draw(self.seed, self.draws, self.U.shape[1]) if self.kind == "random" else 0
            self.dropped += (self.F[j] ** 2).sum()
            self.U, self.F = np.delete(self.U, j, 1), np.delete(self.F, j, 0)

    def drop(self, energies, least):
        self.dropped += energies.sum()
        for tail in filter(None, self.tail):
            if len(energies) and least > 0 and tail.R > 0:
                tail.extend(
                    energies, least, self.rows, self.U.shape[0] - self.m, tail.R / self.prior
                )


class Tail:
    """The mean variance of directions that are not kept (memory/principal.py)."""

    def __init__(self, R):
        self.R, self.level, self.dropped, self.dropping = R, 0.0, 0.0, 0.0

    def fade(self, share):
        self.level, self.dropped = share * self.level, share * self.dropped
        self.dropping *= share

    def extend(self, energies, least, rows, unkept, floor):
        self.dropping += 1
        self.dropped += np.maximum(energies - self.level, 0).sum()
        spread = 2 * rows * self.dropped / self.dropping / least * (1 + np.log1p(least / floor))
        weight = 1 / max(1, len(energies), min(unkept, spread))
        variance = (1 - weight * len(energies)) / (floor + self.level)
        variance += (weight / (floor + energies)).sum()
        self.level = min(max(1 / variance - floor, 0.0), least)


def project(U, g):
    """U'g and g - U U'g, twice."""
    C = U.T @ g
    rest = g - U @ C
    more = U.T @ rest
    return C + more, rest - U @ more


def update_means(means, noise, variance, u):
    """The running means of scores (learners/candidates.py `_update_means`) after one row."""
    rows, scale, recent_scale, neighbours, last, surprise = means
    rows += 1
    rate, recent = (min(1.0, max(3 / rows, 1 / window)) for window in (1000, 100))
    u, limit = np.clip(u, -1e140, 1e140), np.sqrt(25 * scale)
    u = np.where(limit > 0, np.clip(u, -limit, limit), u)
    excess = np.minimum(variance / noise, 1e3) if noise[0] > 0 else variance
    return (
        rows,
        scale + rate * (u * u - scale),
        recent_scale + recent * (u * u - recent_scale),
        neighbours + recent * (u * last - neighbours),
        u,
        surprise + recent * (np.minimum(excess, 1e300) - surprise),
    )
