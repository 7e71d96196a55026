"""Dense covariances as a textbook has them, in NumPy, and in 60 digits."""

import mpmath
import numpy as np


def update_factors(U, D, g, noise):
    """Bierman's update of P = U D Uᵀ, element by element; also P g and gᵀPg + R."""
    U, D, f = U.copy(), D.copy(), U.T @ g
    b, total = D * f, noise
    for j in range(len(D)):
        before, total = total, total + f[j] * b[j]
        D[j] *= before / total if total > 0 else 1.0
        by = -f[j] / before if before > 0 else 0.0
        for i in range(j):
            U[i, j], b[i] = U[i, j] + by * b[i], b[i] + U[i, j] * b[j]
    return U, D, b, total


def learn(w, P, x, y, noise, forgetting=1.0, drift=0.0):
    """One row of a filter whose P grows by forgetting and drift: w, P, and S."""
    P = P / forgetting + drift * np.eye(len(P)) if np.ndim(drift) < 2 else P / forgetting + drift
    gain = P @ x
    S = x @ gain + noise
    return w + np.multiply.outer(gain / S, y - x @ w), P - np.outer(gain, gain) / S, S


def learn_all(X, Y, P, noise, forgetting=1.0, drift=0.0, w=None):
    w = np.zeros((X.shape[1], *Y.shape[1:])) if w is None else w
    for x, y in zip(X, Y, strict=True):
        w, P, _ = learn(w, P, x, y, noise, forgetting, drift)
    return w, P


def learn_exactly(X, y, prior, noise, drift):
    """w and P after all rows of a filter with P₀ = I / prior and Q = drift I, in 60 digits."""
    with mpmath.workdps(60):
        p = X.shape[1]
        w, P = mpmath.zeros(p, 1), mpmath.eye(p) / mpmath.mpf(prior)
        for row, label in zip(X, y, strict=True):
            x = mpmath.matrix(row.tolist())
            P = P + mpmath.mpf(drift) * mpmath.eye(p)
            gain = P * x
            S = (x.T * gain)[0] + mpmath.mpf(noise)
            w = w + gain * ((mpmath.mpf(float(label)) - (x.T * w)[0]) / S)
            P = P - gain * gain.T / S
        return w, P


def relative_errors(w, P, exact_w, exact_P):
    """|L⁻¹ (w − exact)| and |L⁻¹ (P − exact) L⁻ᵀ|, exact P = L Lᵀ: in standard deviations."""
    with mpmath.workdps(60):
        inverse = mpmath.cholesky(exact_P) ** -1
        of_w = inverse * (mpmath.matrix(w.tolist()) - exact_w)
        of_P = inverse * (mpmath.matrix(P.tolist()) - exact_P) * inverse.T
        return float(mpmath.norm(of_w)), float(mpmath.mnorm(of_P, "f"))
