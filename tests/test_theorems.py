"""The paper's results, each as a property against an independent oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import orfit
from orfit.reproduce.tanh import TanhNetwork
from problems import assert_close, conditioning, problems

ways = st.sampled_from(["one by one", "in blocks", "in one batch", "each"])


def learned(learner, problem, way):
    if way == "one by one":
        for x, y in zip(problem.X, problem.y, strict=True):
            learner.learn(x, y)
    elif way == "in blocks":
        for start in range(0, len(problem.X), 3):
            learner.learn_batch(problem.X[start : start + 3], problem.y[start : start + 3])
    elif way == "in one batch":
        learner.learn_batch(problem.X, problem.y)
    else:
        learner.learn_each(problem.X, problem.y)
    return learner


@given(problems(), ways, st.booleans())
def test_theorem_implicit_bias(problem, way, limited):
    """thm:implicit_bias: the interpolator nearest to w0, while (i−1)c ≤ m."""
    memory = len(problem.A) if limited else None
    learner = learned(orfit.ORFit(problem.model, memory, w0=problem.w0), problem, way)
    expected = oracles.nearest_interpolator(problem.A, problem.labels, problem.w0)
    assert_close(learner.w, expected, condition=conditioning(problem.A), start=problem.w0)


@given(problems(degenerate=True), ways)
def test_theorem_implicit_bias_where_rows_depend(problem, way):
    learner = learned(orfit.ORFit(problem.model, w0=problem.w0), problem, way)
    expected = oracles.nearest_interpolator(problem.A, problem.labels, problem.w0)
    assert_close(learner.w, expected, condition=conditioning(problem.A), start=problem.w0)


@given(problems(most_points=10))
def test_lemma_step(problem):
    """lem:step: past predictions do not move."""
    learner = orfit.ORFit(problem.model, w0=problem.w0)
    learner.learn(problem.X[0], problem.y[0])
    for i in range(1, len(problem.X)):
        before = learner.predict(problem.X[:i])
        step = learner.learn(problem.X[i], problem.y[i]).step
        moved = np.abs(learner.predict(problem.X[:i]) - before)
        lengths = np.linalg.norm(problem.phi[:i], axis=1)
        assert (moved <= 1e-14 * lengths * (step + np.linalg.norm(learner.w))).all()


@given(problems(outputs=(None,)))
def test_proposition_compare_rls(problem):
    """prop:compare_RLS: w equals EW-RLS at λ = 0, Π = I, and there P is the projector."""
    learner = learned(orfit.ORFit(problem.model, w0=problem.w0), problem, "one by one")
    rls = learned(orfit.RLS(problem.model, w0=problem.w0, forgetting=0), problem, "one by one")
    condition = conditioning(problem.A)
    assert_close(rls.w, learner.w, condition=condition, start=problem.w0)
    unit = problem.A / np.linalg.norm(problem.A, axis=1)[:, None]
    projector = np.eye(len(learner.w)) - np.linalg.pinv(unit) @ unit
    U = learner.memory.U
    assert np.abs(np.eye(len(U)) - U @ U.T - projector).max() <= 1e-13 * condition
    assert np.abs(rls.memory.P - projector).max() <= 1e-13 * condition


def test_ew_rls_tends_to_orfit_as_forgetting_vanishes(rng):
    """The remark on prop:compare_RLS: the distance falls with λ."""
    X, y, w0 = rng.standard_normal((6, 12)), rng.standard_normal(6), rng.standard_normal(12)
    learner = orfit.ORFit(orfit.Linear(12), w0=w0)
    learner.learn_each(X, y)
    distances = []
    for forgetting in (1e-1, 1e-2, 1e-3, 1e-4):
        rls = orfit.RLS(orfit.Linear(12), w0=w0, forgetting=forgetting)
        rls.learn_each(X, y)
        distances.append(np.linalg.norm(rls.w - learner.w))
    assert np.all(np.diff(np.log10(distances)) < -0.8)


@given(problems(most_points=6, outputs=(None,)))
def test_corollary_sgd_converges_to_orfit(problem):
    """The corollary of thm:implicit_bias: many passes of SGD reach what ORFit has after one."""
    lengths = np.linalg.norm(problem.A, axis=1)
    A, y = problem.A / lengths[:, None], problem.y / lengths
    condition = conditioning(A)
    if condition > 12:  # SGD's rate is 1/condition²; what takes it too long teaches nothing here
        return
    learner = orfit.ORFit(problem.model, w0=problem.w0)
    learner.learn_each(A, y)
    sgd = orfit.SGD(problem.model, lr=0.4, w0=problem.w0)
    sgd.learn_each(A, y, passes=int(10 * condition**2) + 10)
    distance = np.linalg.norm(sgd.w - learner.w)
    assert distance <= 1e-3 * (np.linalg.norm(learner.w - problem.w0) + 1e-12)


@given(problems())
def test_proposition_local_opt(problem):
    """prop:local_opt: each step is the shortest that fits the new point and keeps the old ones."""
    learner = orfit.ORFit(problem.model, w0=problem.w0)
    c = len(problem.A) // len(problem.X)
    for i, (x, y) in enumerate(zip(problem.X, problem.y, strict=True), start=1):
        before = learner.w
        learner.learn(x, y)
        A, labels = problem.A[: i * c], problem.labels[: i * c]
        expected = oracles.nearest_interpolator(A, labels, before)
        assert_close(learner.w, expected, condition=conditioning(A), start=before)


def worst_forgetting(A, S):
    """max over unit Δw ⊥ S of Σ (f_k(w+Δw) − f_k(w))² (eq:pca_opt)."""
    outside = np.linalg.svd(S)[0][:, S.shape[1] :]
    return np.linalg.svd(A @ outside, compute_uv=False)[0] ** 2


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(-6, 6))
def test_proposition_pca_analysis(seed, m, exponent):
    """prop:pca_analysis: exact PCA forgets σ²_(m+1) at worst; no other subspace does better."""
    rng = np.random.default_rng(seed)
    p, n = 12, 10
    A = rng.standard_normal((n, p)) * np.geomspace(1, 0.01, p) * 10.0**exponent
    _, sigma, Vt = np.linalg.svd(A)
    least = sigma[m] ** 2
    assert np.isclose(worst_forgetting(A, Vt[:m].T), least, rtol=1e-9)
    nearby = np.linalg.qr(Vt[:m].T + 0.1 * rng.standard_normal((p, m)))[0]
    for S in (nearby, np.linalg.qr(rng.standard_normal((p, m)))[0], np.linalg.qr(A[-m:].T)[0]):
        assert worst_forgetting(A, S) >= least * (1 - 1e-9)
    # One block is the exact PCA; row after row the recursion forgets a little more.
    block = orfit.memory.Principal(m)
    block.absorb(A.T)
    assert np.isclose(worst_forgetting(A, block.U), least, rtol=1e-8)
    assert np.allclose(block.sigma, sigma[:m], rtol=1e-9)
    recursion = orfit.memory.Principal(m)
    for row in A:
        recursion.absorb(row)
    assert least * (1 - 1e-9) <= worst_forgetting(A, recursion.U) <= 4 * least


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.sampled_from([None, 2]))
def test_theorem_implicit_bias_ntk(seed, n, outputs):
    """thm:implicit_bias_ntk: ORFit = NTK-RLS at λ = 0; it meets the linearised constraints."""
    rng = np.random.default_rng(seed)
    model = TanhNetwork(3, 8, outputs, seed=seed)
    X = rng.standard_normal((n, 3))
    Y = rng.standard_normal(n if outputs is None else (n, outputs))
    learner, rls = orfit.ORFit(model), orfit.NTKRLS(model, forgetting=0)
    ekf = orfit.EKF(model, noise=0.0)
    start, constraints, targets = learner.w, [], []
    for x, y in zip(X, Y, strict=True):
        f, G = model.linearize(learner.w, x[None])
        constraints.append(G.T)
        targets.append(y - f[0] + G.T @ learner.w)  # y_k = f_(k|k−1)(w) as a row of A w = b
        for each in (learner, rls, ekf):
            each.learn(x, y)
    A = np.vstack(constraints)
    b = np.concatenate([np.atleast_1d(t) for t in targets])
    condition = conditioning(A)
    expected = oracles.nearest_interpolator(A, b, start)
    assert_close(learner.w, expected, condition=condition, start=start)
    assert_close(rls.w, learner.w, condition=condition, start=start)
    assert_close(ekf.w, learner.w, condition=condition, start=start)


@given(problems(), ways, st.integers(-3, 3))
def test_noise_is_the_kalman_filters_and_ridge(problem, way, exponent):
    """The appendix on the EKF: R > 0 is `ORFit(noise=R)`, and that is ridge regression."""
    A = problem.A / np.linalg.norm(problem.A, axis=1)[:, None]
    noise = 10.0**exponent
    model = orfit.Linear(A.shape[1])
    y = problem.labels / np.linalg.norm(problem.A, axis=1)
    unit = type(problem)(A, y + 1.0, problem.w0)
    learner = learned(orfit.ORFit(model, noise=noise, w0=unit.w0), unit, way)
    ekf = learned(orfit.EKF(model, noise=noise, w0=unit.w0), unit, way)
    expected = oracles.ridge(A, unit.y, unit.w0, noise)
    condition = np.sqrt(1 + len(A) / noise)
    assert_close(learner.w, expected, condition=condition, start=unit.w0)
    assert_close(ekf.w, expected, condition=condition, start=unit.w0)


@pytest.mark.parametrize("outputs", [None, 2])
def test_network_jacobian(outputs, rng):
    """The hand-made Jacobian of the test network against central differences."""
    model = TanhNetwork(3, 4, outputs)
    X, w, h = rng.standard_normal((2, 3)), model.initial(), 1e-6
    _, G = model.linearize(w, X)
    for j in range(model.size):
        e = np.zeros(model.size)
        e[j] = h
        slope = (model.predict(w + e, X) - model.predict(w - e, X)).reshape(-1) / (2 * h)
        assert np.abs(G[j] - slope).max() < 1e-8
