"""What the benchmarks compare with: filters in NumPy and SciPy, BLAS calls, and other packages.

Learners have `learn(x, y)`; all start from w = 0 and P = I. Each class states its package.
"""

import numpy as np
from scipy.linalg import blas, lapack

R, DRIFT = 0.1, 1e-4


class FiveLines:
    """Recursive least squares in five lines of NumPy."""

    def __init__(self, p):
        self.w, self.P = np.zeros(p), np.eye(p)

    def learn(self, x, y):
        k = self.P @ x
        k = k / (R + x @ k)
        self.w = self.w + k * (y - x @ self.w)
        self.P = self.P - np.outer(k, x @ self.P)


class BlasRLS:
    """The same with SciPy's BLAS: P in one triangle, changed in place."""

    def __init__(self, p):
        self.w, self.P = np.zeros(p), np.eye(p, order="F")

    def learn(self, x, y):
        k = blas.dsymv(1.0, self.P, x)
        total = R + x @ k
        self.w += k * ((y - self.w @ x) / total)
        self.P = blas.dsyr(-1.0 / total, k, a=self.P, overwrite_a=True)


class DriftingRLS(FiveLines):
    """The five lines, and P ← P + Q before each row."""

    def __init__(self, p):
        super().__init__(p)
        self.Q = DRIFT * np.eye(p)

    def learn(self, x, y):
        self.P = self.P + self.Q
        super().learn(x, y)


class System:
    """A stable system w ← A w + B u with random A, of p states and one input."""

    def __init__(self, p):
        rng = np.random.default_rng(0)
        A = rng.standard_normal((p, p))
        self.A = 0.95 * np.linalg.qr(A)[0]
        self.B, self.Q, self.u = rng.standard_normal((p, 1)), DRIFT * np.eye(p), np.array([0.5])


class KalmanFilter(FiveLines):
    """The Kalman filter of a `System` in NumPy."""

    def __init__(self, p):
        super().__init__(p)
        self.system = System(p)

    def learn(self, x, y):
        s = self.system
        self.w = s.A @ self.w + s.B @ s.u
        self.P = s.A @ self.P @ s.A.T + s.Q
        super().learn(x, y)


class Decay:
    """A model of the user's: f(x; w) = w₀ + w₁ exp(−w₂ x) + w₃ x."""

    size, heads, input_shape, linear = 4, None, (), False

    def initial(self):
        return np.array([0.0, 1.0, 1.0, 0.0])

    def predict(self, w, X):
        return w[0] + w[1] * np.exp(-w[2] * X) + w[3] * X

    def linearize(self, w, X):
        e = np.exp(-w[2] * X)
        return w[0] + w[1] * e + w[3] * X, np.array([np.ones_like(X), e, -w[1] * X * e, X])

    def settings(self):
        return {}


class ExtendedKalmanFilter:
    """The extended Kalman filter of `Decay` in NumPy."""

    def __init__(self, p):
        self.model = Decay()
        self.w, self.P = self.model.initial(), np.eye(p)

    def learn(self, x, y):
        F, G = self.model.linearize(self.w, x)
        k = self.P @ G
        total = R + G @ k
        self.w = self.w + k * ((y - F) / total)
        self.P = self.P - np.outer(k / total, k)


class TwoReads:
    """Two matrix-vector products with the directions: the reads of alg:orfit_ipca."""

    def __init__(self, p, m):
        self.Q, self.c = np.ones((m, p)), np.ones(m)

    def learn(self, x, y):
        return self.Q @ x, self.c @ self.Q


class LeastBatch:
    """The products and the decompositions that a block of rows cannot avoid, in BLAS and LAPACK."""

    def __init__(self, p, m):
        self.Q = np.asfortranarray(np.random.default_rng(1).standard_normal((p, m)))
        self.m, self.sigma = m, np.full(m, p**0.5)

    def learn_batch(self, X, y):
        G, m, n = X.T, self.m, len(y)
        C = blas.dgemm(1.0, self.Q, G, trans_a=True)
        square = blas.dsyrk(1.0, G, trans=1)
        lapack.dpotrf(square + np.eye(n))
        both = np.zeros((m + n, m + n))
        both[range(m), range(m)] = self.sigma**2
        both[:m, m:], both[m:, m:] = self.sigma[:, None] * C, square
        V = lapack.dsyevr(both, range="I", il=n + 1, iu=m + n, lower=0)[1]
        new = blas.dgemm(1.0, self.Q, V[:m])
        blas.dgemm(1.0, G, V[m:], beta=1.0, c=new, overwrite_c=True)


class Filterpy:
    """filterpy's Kalman filter: RLS, or with drift, or of a `System`."""

    def __init__(self, p, kind="RLS"):
        from filterpy.kalman import KalmanFilter

        self.filter, self.kind = KalmanFilter(dim_x=p, dim_z=1, dim_u=1), kind
        self.filter.R *= R
        if kind == "drift":
            self.filter.Q = DRIFT * np.eye(p)
        if kind == "system":
            system = System(p)
            self.filter.F, self.filter.B, self.filter.Q = system.A, system.B, system.Q
            self.u = system.u[:, None]

    def learn(self, x, y):
        if self.kind == "drift":
            self.filter.predict()
        elif self.kind == "system":
            self.filter.predict(u=self.u)
        self.filter.update(y, H=x[None])


class Padasip:
    """padasip's RLS."""

    def __init__(self, p):
        import padasip

        self.filter = padasip.filters.FilterRLS(p, mu=1.0, eps=1.0, w="zeros")

    def learn(self, x, y):
        self.filter.adapt(y, x)


class River:
    """river's BayesianLinearRegression, with features as a dict. Only `learn_one` is timed."""

    def __init__(self, p):
        from river.linear_model import BayesianLinearRegression

        self.model = BayesianLinearRegression(alpha=1.0, beta=1 / R)

    def learn(self, x, y):
        self.model.learn_one(x, y)
