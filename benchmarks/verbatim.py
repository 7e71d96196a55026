"""References of the benchmarks: alg:orfit_ipca as in the paper, for c = 1, and textbook RLS."""

import numpy as np
from scipy.linalg import blas


class Verbatim:
    """Orthogonal recursive fitting with memory limit m: every line as printed, every step."""

    def __init__(self, size, m, dtype=np.float64):
        self.U = np.zeros((size, 0), dtype)
        self.Sigma = np.zeros(0, dtype)
        self.w = np.zeros(size, dtype)
        self.m = m

    def learn(self, x, y):
        U, Sigma, w = self.U, self.Sigma, self.w
        # Update parameter
        g = x
        g_tilde = g - U @ (U.T @ g)
        w = w - g_tilde * ((x @ w - y) / (g @ g_tilde))
        # Update orthonormal basis
        g_orth = g_tilde / np.linalg.norm(g_tilde)
        k = len(Sigma)
        bordered = np.zeros((k + 1, k + 1), U.dtype)
        bordered[range(k), range(k)] = Sigma
        bordered[:k, k] = U.T @ g
        bordered[k, k] = g_orth @ g_tilde
        U_tilde, Sigma, _ = np.linalg.svd(bordered)
        U = np.column_stack([U, g_orth]) @ U_tilde
        self.U, self.Sigma, self.w = U[:, : self.m], Sigma[: self.m], w


class FiveLines:
    """Recursive least squares as a control engineer writes it: P in one triangle, BLAS."""

    def __init__(self, p):
        self.P, self.w = np.eye(p, order="F"), np.zeros(p)

    def learn(self, x, y):
        Px = blas.dsymv(1.0, self.P, x)
        total = 1.0 + x @ Px
        self.w += Px * ((y - self.w @ x) / total)
        self.P = blas.dsyr(-1.0 / total, Px, a=self.P, overwrite_a=True)
