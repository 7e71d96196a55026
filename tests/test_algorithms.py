"""The paper's algorithms, verbatim, and everything that must agree with them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import orfit
from problems import assert_close, conditioning, problems

Memory = orfit.memory
seeds = st.integers(0, 2**32 - 1)


def blocks(A, y, n):
    return [(A[i : i + n], y[i : i + n]) for i in range(0, len(A), n)]


def test_the_verbatim_algorithm_at_full_size(rng):
    """(p, m) = (784, 10), 1000 points: w within 1e-9 of alg:orfit_ipca."""
    X, y, w0 = rng.standard_normal((1000, 784)), rng.standard_normal(1000), rng.standard_normal(784)
    w, U, sigma = oracles.batch_orfit_limited(blocks(X, y, 1), w0, m=10)
    learner = orfit.ORFit(orfit.Linear(784), 10, w0=w0)
    learner.learn_each(X, y)
    assert np.abs(learner.w - w).max() <= 1e-9
    assert np.abs(learner.memory.sigma - sigma).max() <= 1e-9 * sigma[0]
    assert np.abs(learner.memory.U @ learner.memory.U.T - U @ U.T).max() <= 1e-9
    assert np.abs(learner.memory.U.T @ learner.memory.U - np.eye(10)).max() <= 1e-12


@given(seeds, st.integers(1, 4), st.integers(4, 6), st.integers(-6, 6))
def test_the_limited_algorithms(seed, n, m, exponent):
    """alg:orfit_ipca and alg:borfit_ipca, blocks of n columns."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((24, 40)) * np.geomspace(1, 0.05, 40) * 10.0**exponent
    y, w0 = rng.standard_normal(24), rng.standard_normal(40)
    w, U, sigma = oracles.batch_orfit_limited(blocks(A, y, n), w0, m)
    learner = orfit.ORFit(orfit.Linear(40), m, w0=w0)
    for X, Y in blocks(A, y, n):
        learner.learn_batch(X, Y)
    assert np.linalg.norm(learner.w - w) <= 1e-9 * np.linalg.norm(w)
    assert np.abs(learner.memory.sigma - sigma).max() <= 1e-9 * sigma[0]
    assert np.abs(np.abs(learner.memory.U) - np.abs(U)).max() <= 1e-6


@given(problems(outputs=(None,)), st.integers(1, 3))
def test_the_unlimited_algorithms(problem, n):
    """alg:orfit1_infmem and alg:borfit_infmem."""
    condition = conditioning(problem.A)
    if condition > 1e3:  # the verbatim algorithm loses more digits there than orfit does
        return
    w, U = oracles.batch_orfit_unlimited(blocks(problem.A, problem.y, n), problem.w0)
    one, _ = oracles.orfit_unlimited(problem.A, problem.y, problem.w0)
    learner = orfit.ORFit(problem.model, w0=problem.w0)
    for X, Y in blocks(problem.A, problem.y, n):
        learner.learn_batch(X, Y)
    # The verbatim inverse of GᵀG̃ is not scaled: blocks of very unlike rows cost it digits.
    if n == 1:
        assert_close(learner.w, w, condition=10 * condition, start=problem.w0)
    assert_close(learner.w, one, condition=10 * condition, start=problem.w0)
    assert np.abs(learner.memory.U @ learner.memory.U.T - U @ U.T).max() <= 1e-12 * condition**2


@given(seeds, st.sampled_from(["latest", "random"]))
def test_latest_and_random(seed, kind):
    """ORFit-latest and ORFit-random keep m of the basis vectors g̃/|g̃|."""
    rng = np.random.default_rng(seed)
    X, y, w0 = rng.standard_normal((20, 30)), rng.standard_normal(20), rng.standard_normal(30)
    if kind == "latest":
        memory, choose = Memory.Latest(4), lambda k: range(max(0, k - 4), k)
    else:
        memory, draws = Memory.Random(4, seed=7), itertools.count(1)

        def choose(k):
            if k <= 4:
                return range(k)
            return np.delete(range(k), oracles.random_index(7, next(draws), k))

    w, U = oracles.orfit_subset(X, y, w0, choose)
    learner = orfit.ORFit(orfit.Linear(30), memory, w0=w0)
    learner.learn_each(X, y)
    assert np.linalg.norm(learner.w - w) <= 1e-10 * np.linalg.norm(w)
    assert np.abs(learner.memory.U @ learner.memory.U.T - U @ U.T).max() <= 1e-10


def test_latest_keeps_the_last_vectors_of_a_block(rng):
    X, y = rng.standard_normal((6, 10)), rng.standard_normal(6)
    learner = orfit.ORFit(orfit.Linear(10), Memory.Latest(2))
    learner.learn_batch(X, y)
    basis = np.linalg.qr(X.T)[0][:, -2:]
    assert np.abs(learner.memory.U @ learner.memory.U.T - basis @ basis.T).max() <= 1e-13


def test_one_step_sgd_is_a_step_with_nothing_remembered(rng):
    X, y, w = rng.standard_normal((9, 5)), rng.standard_normal(9), rng.standard_normal(5)
    learner = orfit.OneStepSGD(orfit.Linear(5), w0=w)
    empty = orfit.ORFit(orfit.Linear(5), Memory.Nothing(), w0=w)
    for x, label in zip(X, y, strict=True):
        w = w - (x @ w - label) / (x @ x) * x
        learner.learn(x, label)
        empty.learn(x, label)
    assert np.abs(learner.w - w).max() <= 1e-13
    assert (empty.w == learner.w).all()


@given(problems(), st.randoms(use_true_random=False))
def test_order_does_not_matter_while_nothing_is_dropped(problem, random):
    order = list(range(len(problem.X)))
    random.shuffle(order)
    one = orfit.ORFit(problem.model, w0=problem.w0)
    other = orfit.ORFit(problem.model, w0=problem.w0)
    one.learn_each(problem.X, problem.y)
    other.learn_each(problem.X[order], problem.y[order])
    assert_close(other.w, one.w, condition=conditioning(problem.A), start=problem.w0)


@given(seeds, st.integers(1, 12), st.sampled_from([0.9, 1.0]))
def test_more_data_than_parameters_with_noise(seed, block, forgetting):
    """noise > 0 goes on as RLS does, long after the memory spans everything."""
    rng = np.random.default_rng(seed)
    X, y, w0 = rng.standard_normal((60, 5)), rng.standard_normal(60), rng.standard_normal(5)
    learner = orfit.ORFit(orfit.Linear(5), w0=w0, noise=0.7, forgetting=forgetting)
    if forgetting == 1:
        for A, Y in blocks(X, y, block):
            learner.learn_batch(A, Y)
        expected = oracles.ridge(X, y, w0, 0.7)
    else:
        learner.learn_each(X, y)
        expected = oracles.faded_ridge(X, y, w0, 0.7, forgetting)
    assert np.abs(learner.w - expected).max() <= 1e-11


def test_forgetting_chooses_what_a_limited_memory_drops(rng):
    """noise = 0: fading does not move P, only the order of the directions."""
    early, late = np.eye(6)[:2] * 2, np.eye(6)[2:4]
    steady, fading = orfit.memory.Principal(2), orfit.memory.Principal(2)
    for memory, forgetting in ((steady, 1.0), (fading, 0.1)):
        learner = orfit.ORFit(orfit.Linear(6), memory, forgetting=forgetting)
        for x in np.vstack([early, late]):
            learner.learn(x, 1.0)
    assert np.allclose(steady.U @ steady.U.T, np.diag([1, 1, 0, 0, 0, 0]))
    assert np.allclose(fading.U @ fading.U.T, np.diag([0, 0, 1, 1, 0, 0]))


@given(seeds, st.integers(1, 4))
def test_heads_are_separate_models_that_share_a_memory(seed, q):
    rng = np.random.default_rng(seed)
    X, Y, w0 = (rng.standard_normal(s) for s in ((12, 15), (12, q), (15, q)))
    for arguments in ({}, {"memory": 4}, {"noise": 0.3}, {"memory": 4, "noise": 0.3}):
        together = orfit.ORFit(orfit.Linear(15, heads=q), w0=w0, **arguments)
        together.learn_each(X, Y)
        for j in range(q):
            alone = orfit.ORFit(orfit.Linear(15), w0=w0[:, j], **arguments)
            alone.learn_each(X, Y[:, j])
            assert np.abs(together.w[:, j] - alone.w).max() <= 1e-12


def test_bias_is_one_more_feature(rng):
    X, y = rng.standard_normal((5, 8)), rng.standard_normal(5)
    plain = orfit.ORFit(orfit.Linear(9), 3)
    biased = orfit.ORFit(orfit.Linear(8, bias=True), 3)
    with_ones = np.column_stack([X, np.ones(5)])
    plain.learn_each(with_ones, y)
    biased.learn_each(X, y)
    # Kernels round sums by the layout of arrays: 9 eps for a sum of 9 products, in each of 5 rows,
    # and the condition of the rows magnifies it.
    bound = 9 * 5 * np.finfo(float).eps * np.linalg.cond(with_ones)
    assert np.abs(plain.w - biased.w).max() <= bound * np.abs(plain.w).max()
    assert biased.predict(X[0]) == pytest.approx(X[0] @ plain.w[:-1] + plain.w[-1])


def test_bias_of_several_outputs_is_shared(rng):
    phi, w = rng.standard_normal((4, 6, 2)), rng.standard_normal(7)
    model = orfit.Linear(6, bias=True, features=lambda X: X.reshape(-1, 6, 2))
    learner = orfit.ORFit(model, w0=w)
    expected = np.einsum("npc,p->nc", phi, w[:6]) + w[6]
    assert np.abs(learner.predict(phi.reshape(4, -1)) - expected).max() <= 1e-13


@given(seeds, st.sampled_from([1.0, 0.99, 0.8]), st.sampled_from(["number", "vector", "matrix"]))
def test_exponentially_weighted_rls(seed, forgetting, kind):
    """eq:rls_update as printed, and the problem it solves, eq:weighted_ls."""
    rng = np.random.default_rng(seed)
    X, y, w0 = rng.standard_normal((12, 6)), rng.standard_normal(12), rng.standard_normal(6)
    root = rng.standard_normal((6, 6))
    prior = {"number": 0.3, "vector": rng.uniform(0.1, 3, 6), "matrix": root @ root.T + np.eye(6)}[
        kind
    ]
    Pi = prior * np.eye(6) if kind != "matrix" else prior
    w, P = oracles.ew_rls(X, y, w0, forgetting, Pi)
    learner = orfit.RLS(orfit.Linear(6), w0=w0, prior=prior, forgetting=forgetting)
    learner.learn_each(X, y)
    assert np.abs(learner.w - w).max() <= 1e-10
    assert (
        np.abs(learner.memory.P - P / forgetting**12).max()
        <= 1e-10 * np.abs(P).max() / forgetting**12
    )
    weights = forgetting ** np.arange(11, -1, -1)
    information = (weights * X.T) @ X + forgetting**12 * Pi
    vector = (weights * X.T) @ y + forgetting**12 * Pi @ w0
    assert np.abs(learner.w - np.linalg.solve(information, vector)).max() <= 1e-9


def test_rls_in_blocks_is_rls_one_by_one(rng):
    X, Y = rng.standard_normal((12, 6)), rng.standard_normal((12, 3))
    one = orfit.RLS(orfit.Linear(6, heads=3))
    block = orfit.RLS(orfit.Linear(6, heads=3))
    one.learn_each(X, Y)
    block.learn_batch(X, Y)
    assert np.abs(one.w - block.w).max() <= 1e-13
    assert np.abs(one.memory.P - block.memory.P).max() <= 1e-13


def test_rls_does_not_wind_up(rng):
    """λ^i would underflow, P would overflow: the stream leaves a direction for a long time."""
    learner = orfit.RLS(orfit.Linear(4), forgetting=0.98)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    learner.learn(turn[3], 2.0)
    for _ in range(5000):
        x = rng.standard_normal(3) @ turn[:3]
        learner.learn(x, x @ [1.0, 2.0, 3.0, 4.0])
    assert np.isfinite(learner.memory.P).all()
    excited = turn[:3] @ (learner.w - [1.0, 2.0, 3.0, 4.0])
    assert np.abs(excited).max() <= 1e-8
    assert learner.predict(turn[3]) == pytest.approx(2.0, abs=1.5)  # prior and point, both faded
    for _ in range(300):
        x = rng.standard_normal(4)
        learner.learn(x, x @ [4.0, 3.0, 2.0, 1.0])
    assert np.abs(learner.w - [4.0, 3.0, 2.0, 1.0]).max() <= 0.05


@given(seeds, st.integers(0, 3), st.integers(1, 3))
def test_kalman_filter_with_a_noise_matrix(seed, noiseless, block):
    rng = np.random.default_rng(seed)
    p, c, n = 14, 3, 4
    phi, Y, w0 = (rng.standard_normal(s) for s in ((n, p, c), (n, c), (p,)))
    turn = np.linalg.qr(rng.standard_normal((c, c)))[0]
    R = (turn * np.where(np.arange(c) < noiseless, 0.0, rng.uniform(0.1, 2, c))) @ turn.T
    root = rng.standard_normal((p, p))
    prior = root @ root.T / p + np.eye(p)
    model = orfit.Linear(p, features=lambda X: X.reshape(-1, p, c))
    learner = orfit.EKF(model, noise=R, prior=prior, w0=w0)
    for start in range(0, n, block):
        learner.learn_batch(phi[start : start + block].reshape(-1, p * c), Y[start : start + block])
    data = [(phi[i], Y[i]) for i in range(n)]
    w, P = oracles.ekf(lambda x, w: (x.T @ w, x.T), data, w0, R, np.linalg.inv(prior))
    assert np.abs(learner.w - w).max() <= 1e-9
    assert np.abs(learner.memory.P - P).max() <= 1e-9


def test_kalman_filter_tells_what_is_left(rng):
    phi, y, w0 = rng.standard_normal((6, 2)), rng.standard_normal(2), rng.standard_normal(6)
    model = orfit.Linear(6, features=lambda X: X.reshape(-1, 6, 2))
    learner = orfit.EKF(model, noise=[[1.0, 0.4], [0.4, 2.0]], w0=w0)
    update = learner.learn(phi.ravel(), y)
    assert np.abs(update.conflict - (y - learner.predict(phi.ravel()))).max() <= 1e-13
    assert update.step == pytest.approx(np.linalg.norm(learner.w - w0))


def test_ogd_steps_and_remembers_the_fresh_gradient(rng):
    """eq:ogd_projection, on a nonlinear model, where fresh and used gradients differ."""
    from orfit.reproduce.tanh import TanhNetwork

    model = TanhNetwork(3, 6)
    learner = orfit.OGD(model, lr=0.05, steps=4)
    w, U = model.initial().copy(), np.zeros((model.size, 0))
    for x, y in zip(rng.standard_normal((5, 3)), rng.standard_normal(5), strict=True):
        for _ in range(4):
            f, G = model.linearize(w, x[None])
            g = 2 * (f[0] - y) * G[:, 0]
            w = w - 0.05 * (g - U @ (U.T @ g))
        fresh = model.linearize(w, x[None])[1][:, 0]
        fresh = fresh - U @ (U.T @ fresh)
        U = np.column_stack([U, fresh / np.linalg.norm(fresh)])
        learner.learn(x, y)
    assert np.abs(learner.w - w).max() <= 1e-12
    assert np.abs(learner.memory.U @ learner.memory.U.T - U @ U.T).max() <= 1e-10


def test_many_ogd_steps_are_one_of_orfit(rng):
    """On a linear model the gradient steps converge to the single step."""
    X, y = rng.standard_normal((4, 10)), rng.standard_normal(4)
    slow = orfit.OGD(orfit.Linear(10), lr=0.02, steps=500)
    fast = orfit.ORFit(orfit.Linear(10))
    slow.learn_each(X, y)
    fast.learn_each(X, y)
    assert np.abs(slow.w - fast.w).max() <= 1e-6


def test_sgd_is_the_gradient_of_the_squared_error(rng):
    X, Y, w = rng.standard_normal((3, 4)), rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
    learner = orfit.SGD(orfit.Linear(4, heads=2), lr=0.1, w0=w)
    learner.learn(X[0], Y[0])
    w = w - 0.1 * 2 * np.outer(X[0], X[0] @ w - Y[0])
    assert np.abs(learner.w - w).max() <= 1e-14
    learner.learn_batch(X, Y)
    w = w - 0.1 * 2 * X.T @ (X @ w - Y) / 3
    assert np.abs(learner.w - w).max() <= 1e-14


def test_greedy_tells_the_latest_label():
    learner = orfit.Greedy(orfit.Linear(3, heads=2))
    assert (learner.predict(np.ones(3)) == 0).all()
    learner.learn([1, 2, 3], [4.0, 5.0])
    learner.learn([7, 8, 9], [6.0, 7.0])
    assert (learner.predict([1, 2, 3]) == [6, 7]).all()
    assert (learner.predict(np.ones((2, 3))) == [[6, 7], [6, 7]]).all()
