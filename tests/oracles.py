"""Independent results: closed forms, and the paper's algorithms line by line.

Nothing here imports orfit.
"""

import numpy as np


def nearest_interpolator(A, y, w0):
    """argmin |w − w0| s.t. A w = y (eq:implicit_bias), A: (n, p), y: (n,) or (n, q).

    Rows are normalised first, which improves the conditioning of the same problem.
    """
    scale = np.linalg.norm(A, axis=1)
    scale[scale == 0] = 1
    residual = ((y - A @ w0).T / scale).T
    return w0 + np.linalg.lstsq(A / scale[:, None], residual, rcond=1e-11)[0]


def ridge(A, y, w0, noise, weights=None):
    """argmin Σ weights (y − A w)² + noise |w − w0|², by the augmented least-squares problem."""
    p = A.shape[1]
    root = np.sqrt(np.ones(len(A)) if weights is None else weights)
    stacked = np.vstack([root[:, None] * A, np.sqrt(noise) * np.eye(p)])
    residual = (root * (y - A @ w0).T).T
    labels = np.concatenate([residual, np.zeros((p, *w0.shape[1:]))])
    return w0 + np.linalg.lstsq(stacked, labels, rcond=None)[0]


def orfit_unlimited(X, y, w0):
    """alg:orfit1_infmem."""
    U, w = np.zeros((X.shape[1], 0)), w0.copy()
    for x, label in zip(X, y, strict=True):
        g = x
        g_tilde = g - U @ (U.T @ g)
        eta = (x @ w - label) / (g @ g_tilde)
        w = w - eta * g_tilde
        U = np.column_stack([U, g_tilde / np.linalg.norm(g_tilde)])
    return w, U


def batch_orfit_unlimited(blocks, w0):
    """alg:borfit_infmem, for blocks (Phi, y) with Phi: (n, p)."""
    U, w = np.zeros((len(w0), 0)), w0.copy()
    for A, y in blocks:
        G = A.T
        G_tilde = G - U @ (U.T @ G)
        w = w - G_tilde @ np.linalg.inv(G.T @ G_tilde) @ (A @ w - y)
        for g in G.T:
            g_tilde = g - U @ (U.T @ g)
            U = np.column_stack([U, g_tilde / np.linalg.norm(g_tilde)])
    return w, U


def batch_orfit_limited(blocks, w0, m):
    """alg:orfit_ipca and alg:borfit_ipca, for blocks (Phi, y) with Phi: (n, p)."""
    U, sigma, w = np.zeros((len(w0), 0)), np.zeros(0), w0.copy()
    for A, y in blocks:
        G = A.T
        G_tilde = G - U @ (U.T @ G)
        w = w - G_tilde @ np.linalg.inv(G.T @ G_tilde) @ (A @ w - y)
        G_orth = np.linalg.qr(G_tilde)[0]
        k, n = U.shape[1], G.shape[1]
        bordered = np.block([[np.diag(sigma), U.T @ G], [np.zeros((n, k)), G_orth.T @ G_tilde]])
        U_tilde, sigma, _ = np.linalg.svd(bordered)
        U = np.column_stack([U, G_orth]) @ U_tilde
        U, sigma = U[:, :m], sigma[:m]
    return w, U, sigma


def random_index(seed, draws, count):
    """The index that `Random` drops at a draw, by SplitMix64 in whole numbers of C."""
    with np.errstate(over="ignore"):
        u = np.uint64(seed)
        for more in (0, draws):
            u += np.uint64(0x9E3779B97F4A7C15) * np.uint64(more)
            u = (u ^ (u >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            u = (u ^ (u >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            u ^= u >> np.uint64(31)
        return int((u >> np.uint64(32)) * np.uint64(count) >> np.uint64(32))


def orfit_subset(X, y, w0, choose):
    """ORFit-random and ORFit-latest (subsec:exp_limit): choose(k) says which of k vectors stay."""
    U, w = np.zeros((X.shape[1], 0)), w0.copy()
    for x, label in zip(X, y, strict=True):
        g_tilde = x - U @ (U.T @ x)
        w = w - (x @ w - label) / (x @ g_tilde) * g_tilde
        U = np.column_stack([U, g_tilde / np.linalg.norm(g_tilde)])
        U = U[:, choose(U.shape[1])]
    return w, U


def ew_rls(X, y, w0, forgetting, prior):
    """eq:rls_update, with its λ^i as printed."""
    w, P = w0.copy(), np.linalg.inv(prior)
    for i, (x, label) in enumerate(zip(X, y, strict=True), start=1):
        Px = P @ x
        denominator = forgetting**i + x @ Px
        w = w + Px / denominator * (label - x @ w)
        P = P - np.outer(Px, Px) / denominator
    return w, P


def ekf(gradient_and_value, data, w0, R, P0):
    """The appendix's filter, with the ∇ that it omits, for c outputs."""
    w, Q = w0.copy(), P0.copy()
    for x, y in data:
        f, H = gradient_and_value(x, w)  # H: (c, p)
        L = Q @ H.T @ np.linalg.inv(H @ Q @ H.T + R)
        w = w + L @ (y - f)
        Q = Q - L @ H @ Q
    return w, Q


def ridge_with_tail(blocks, w0, m, noise, forgetting=1.0):
    """`orfit.tail`, equation by equation, on explicit matrices: for blocks (A, y), A: (n, p)."""
    p, w = len(w0), w0.copy()
    U, e = np.zeros((p, 0)), np.zeros(0)
    tau = dropped = rows = dropping = 0.0
    for A, y in blocks:
        e, tau, dropped = forgetting * e, forgetting * tau, forgetting * dropped
        rows, dropping = forgetting * rows + len(A), forgetting * dropping
        P = U @ np.diag(noise / (noise + e)) @ U.T
        P += noise / (noise + tau) * (np.eye(p) - U @ U.T)
        w = w + P @ A.T @ np.linalg.solve(A @ P @ A.T + noise * np.eye(len(A)), y - A @ w)
        rest = A.T - U @ (U.T @ A.T)
        O = np.linalg.qr(rest - U @ (U.T @ rest))[0][:, : p - U.shape[1]]
        frame = np.column_stack([U, O])
        seen = np.diag(np.concatenate([e, np.full(O.shape[1], tau)]))
        values, vectors = np.linalg.eigh(seen + frame.T @ A.T @ A @ frame)
        U, e = frame @ vectors[:, ::-1][:, :m], values[::-1][:m]
        gone = values[::-1][m:]
        if len(gone):
            dropped += np.maximum(gone - tau, 0).sum()
            dropping += len(A)
            b = rows * (dropped / dropping) / e[-1]
            r = min(p - m, max(1, 2 * b * (1 + np.log(1 + e[-1] / noise))))
            weight = 1 / max(r, len(gone))
            variance = (1 - weight * len(gone)) / (noise + tau) + weight * (
                1 / (noise + gone)
            ).sum()
            tau = 1 / variance - noise
    return w, tau


def kalman(X, y, w0, P0, noise, drift):
    """The Kalman filter of a w that walks at random: w, P, and the variance of each innovation."""
    w, P, variances = w0.copy(), P0.copy(), []
    for x, label in zip(X, y, strict=True):
        P = P + drift * np.eye(len(w))
        S = x @ P @ x + noise
        gain = P @ x / S
        w = w + gain * (label - x @ w)
        left = np.eye(len(w)) - np.outer(gain, x)
        P = left @ P @ left.T + noise * np.outer(gain, gain)  # Joseph's form
        variances.append(S)
    return w, P, np.array(variances)


def faded_ridge(X, y, w0, noise, forgetting):
    """What `ORFit(noise, forgetting)` minimises, in information form.

    Σ λ^(i−k) (y_k − x_kᵀ w)²  +  noise (λ^i |w − w0|² + (1−λ) Σ λ^(i−k) |w − w_(k−1)|²)
    """
    p = X.shape[1]
    information, vector, w = noise * np.eye(p), noise * w0, w0.copy()
    for x, label in zip(X, y, strict=True):
        information = forgetting * information + (1 - forgetting) * noise * np.eye(p)
        information += np.outer(x, x)
        vector = forgetting * vector + (1 - forgetting) * noise * w + x * label
        w = np.linalg.solve(information, vector)
    return w


def kalman_filter(steps, w, P):
    """The textbook's linear filter. steps: (A, b, Q, H, y, R), H (c×p); y is None: not measured.

    w ← A w + b, P ← A P Aᵀ + Q; then S = H P Hᵀ + R, K = P Hᵀ S⁻¹, w ← w + K (y − H w) and
    Joseph's P ← (I − K H) P (I − K H)ᵀ + K R Kᵀ.
    """
    for A, b, Q, H, y, R in steps:
        w, P = A @ w + b, A @ P @ A.T + Q
        if y is None:
            continue
        K = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
        left = np.eye(len(w)) - K @ H
        w, P = w + K @ (y - H @ w), left @ P @ left.T + K @ R @ K.T
    return w, P
