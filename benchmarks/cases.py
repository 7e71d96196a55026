"""What is measured: each case is a ratio of two things timed in turn, on the same data."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.linalg import blas, lapack
from verbatim import Verbatim

import orfit
from orfit.learners import onestep

# OpenBLAS' idle threads spin for some 25 ms and would be charged to whoever comes next.
PAUSE = 0.06


@dataclass
class Case:
    name: str
    target: str
    bar: float
    at_least: bool  # whether the ratio must be at least the bar, or at most
    ratios: list[float] = field(default_factory=list)
    detail: str = ""

    @property
    def median(self):
        return float(np.median(self.ratios))

    @property
    def verdict(self):
        """yes or no, or nothing where there is no target."""
        if self.bar is None:
            return ""
        return "yes" if (self.median >= self.bar) == self.at_least else "no"


class Stream:
    """Rows that never come again: what a memory has seen already takes a second projection."""

    def __init__(self, p, dtype=np.float64):
        self.p, self.dtype, self.rng = p, dtype, np.random.default_rng(0)

    def take(self, n):
        X = self.rng.standard_normal((n, self.p), np.float32).astype(self.dtype)
        return X, self.rng.standard_normal(n)


def seconds_each(learn, X, y):
    """Seconds a row, of a loop over X."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    for x, label in zip(X, y, strict=True):
        learn(x, label)
    return (time.perf_counter() - start) / len(X)


def seconds(call, n):
    """Seconds a row, of one call that learns n of them."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / n


def filled(stream, m):
    """A learner whose memory is full, and warm: the compiled loop is on from the first row."""
    onestep.WORTH_ROWS = 0
    learner = orfit.ORFit(orfit.Linear(stream.p), m, w0=np.zeros(stream.p, stream.dtype))
    learner.learn_each(*stream.take(m + 8))
    for x, label in zip(*stream.take(2), strict=True):
        learner.learn(x, label)
    return learner


def against_verbatim(case, p, m, n, repeats, how, verbatim_rows):
    """The algorithm as printed over `learn`, `learn_each` or `learn_batch` of n rows."""
    stream = Stream(p)
    ours, theirs = filled(stream, m), Verbatim(p, m)
    seconds_each(theirs.learn, *stream.take(m + 1))
    slow, fast = [], []
    for _ in range(repeats):
        slow.append(seconds_each(theirs.learn, *stream.take(verbatim_rows)))
        learn = getattr(ours, how)
        if how == "learn_batch":  # it is short: the other's data and threads are to be gone
            learn(*stream.take(n))
        X, y = stream.take(n)
        fast.append(
            seconds_each(learn, X, y) if how == "learn" else seconds(lambda: learn(X, y), n)
        )
    case.ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    case.detail = f"{1e6 * np.median(slow):,.0f} → {1e6 * np.median(fast):,.1f} µs a row"
    return case


def two_reads(p, m):
    """The floor of a step: a call that says how long two matrix-vector products with U take."""
    basis, g, c = np.ones((m, p)), np.ones(p), np.ones(m)
    return lambda: seconds(lambda: [(basis @ g, c @ basis) for _ in range(5)], 5)


def share_of_floor(case, p, m, n, repeats):
    """Two reads of U over a step."""
    stream = Stream(p)
    learner, floor = filled(stream, m), two_reads(p, m)
    floors, steps = [], []
    for _ in range(repeats):
        floors.append(floor())
        steps.append(seconds_each(learner.learn, *stream.take(n)))
    case.ratios = [a / b for a, b in zip(floors, steps, strict=True)]
    case.detail = f"floor {1e3 * np.median(floors):.2f} ms, step {1e3 * np.median(steps):.2f} ms"
    return case


def of_two(case, learners, n, repeats):
    """Step times of two learners, each with its stream, in turn: those of the second, the first."""
    timed = [[seconds_each(l.learn, *s.take(n)) for s, l in learners] for _ in range(repeats)]
    case.detail = " → ".join(f"{1e3 * t:.2f} ms" for t in np.median(timed, axis=0))
    return np.transpose(timed)


def growth(case, small, large, repeats):
    """Step time of the larger (p, m) over that of the smaller, and how the floor grows."""
    streams = [(Stream(p), m) for p, m in (small, large)]
    first, second = of_two(case, [(s, filled(s, m)) for s, m in streams], 24, repeats)
    case.ratios = list(second / first)
    floors = [two_reads(*size) for size in (small, large)]
    measured = np.array([[floor() for floor in floors] for _ in range(repeats)])
    case.detail += f"; two reads of U ×{np.median(measured[:, 1] / measured[:, 0]):.1f}"
    return case


def half_precision(case, p, m, n, repeats):
    streams = [Stream(p), Stream(p, np.float32)]
    first, second = of_two(case, [(s, filled(s, m)) for s in streams], n, repeats)
    case.ratios = list(first / second)
    return case


def batch_against_single(case, p, m, n, repeats):
    stream = Stream(p)
    one, block, floor = filled(stream, m), filled(stream, m), least_of_a_batch(p, m, n)
    block.learn_batch(*stream.take(n))
    timed = []
    for _ in range(repeats):
        single = seconds_each(one.learn, *stream.take(n))
        X, y = stream.take(n)
        timed.append((single, seconds(lambda: block.learn_batch(X, y), n), floor() / n))
    case.ratios = [single / batch for single, batch, _ in timed]
    single, batch, least = 1e3 * np.median(timed, axis=0)
    case.detail = f"{single:.3f} → {batch:.3f} ms a row; at the processor's full speed {least:.3f}"
    return case


def least_of_a_batch(p, m, n):
    """How long a batch must take: its products, at the speed of a large one, and its eigenproblem.

    2p mn for inner products with the basis, p n² for those of the rows, 2p mn to fold n of both.
    """
    A = np.asfortranarray(np.random.default_rng(0).standard_normal((1500, 1500)))
    K = A[: m + n, : m + n].T @ A[: m + n, : m + n]

    def floor():
        speed = 2 * len(A) ** 3 / seconds(lambda: blas.dgemm(1.0, A, A), 1)
        return p * n * (4 * m + n) / speed + seconds(lambda: lapack.dsyevd(K), 1)

    return floor


def on_a_network(case, m, n, repeats, floor):
    """A step on an MLP over a plain forward and backward pass of it, or two reads of U over it."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Linear(784, 700), nn.ReLU(), nn.Linear(700, 620), nn.ReLU(), nn.Linear(620, 1)
    network = nn.Sequential(*layers)
    model = orfit.TorchModel(network, tangent=True)
    learner, stream = orfit.ORFit(model, m), Stream(784, np.float32)
    learner.learn_each(*stream.take(m + 8))
    basis, g, c = torch.ones((m, model.size)), torch.ones(model.size), torch.ones(m)

    def plain(x, label):
        network.zero_grad()
        (network(torch.from_numpy(x)[None])[0, 0] - label).square().backward()

    pairs = []
    for _ in range(repeats):
        step = seconds_each(learner.learn, *stream.take(n))
        other = (
            seconds(lambda: [(basis @ g, c @ basis) for _ in range(9)], 9)
            if floor
            else seconds_each(plain, *stream.take(n))
        )
        pairs.append((step, other))
    case.ratios = [other / step if floor else step / other for step, other in pairs]
    step, other = np.median(pairs, axis=0)
    case.detail = f"p={model.size:,}: step {1e3 * step:.2f} ms, other {1e3 * other:.2f} ms"
    return case


def peak_memory(case, p, m):
    """In a process of its own: the most memory it ever had, less what it had with the data."""
    script = (
        "import sys, numpy as np, orfit\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from peers import peak_memory as used, reset_peak_memory\n"
        f"p, m = {p}, {m}\n"
        "from orfit.learners import onestep\n"
        "onestep.WORTH_ROWS = 0\n"  # the compiler's memory is not the learner's
        "orfit.ORFit(orfit.Linear(50), 3).learn_each(np.eye(50)[:20], np.ones(20))\n"
        "x, noise = np.ones(p), np.random.default_rng(0)\n"
        "reset_peak_memory()\n"
        "before = used()\n"
        "learner = orfit.ORFit(orfit.Linear(p), m)\n"
        "for _ in range(m + 30):\n"
        "    noise.standard_normal(out=x)\n"
        "    learner.learn(x, 1.0)\n"
        "print((used() - before) / (m * p * 8))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    case.ratios = [float(out.stdout)]
    return case


def all_cases(tick):
    """Run everything; tick(name) before each."""
    plan = [
        (Case("p=784, m=10, learn_each", "≥ 8× verbatim", 8, True),
         lambda c: against_verbatim(c, 784, 10, 20_000, 7, "learn_each", 2000)),
        (Case("p=20,000, m=10, learn_each", "≥ 6× verbatim", 6, True),
         lambda c: against_verbatim(c, 20_000, 10, 600, 7, "learn_each", 60)),
        (Case("p=10⁶, m=10, learn", "≥ 8× verbatim", 8, True),
         lambda c: against_verbatim(c, 10**6, 10, 24, 5, "learn", 4)),
        (Case("p=10⁵, m=100, learn", "≥ 10× verbatim", 10, True),
         lambda c: against_verbatim(c, 10**5, 100, 120, 5, "learn", 4)),
        (Case("p=10⁶, m=10, share of the floor", "≥ 0.5", 0.5, True),
         lambda c: share_of_floor(c, 10**6, 10, 24, 7)),
        (Case("p=10⁵, m=100, share of the floor", "≥ 0.5", 0.5, True),
         lambda c: share_of_floor(c, 10**5, 100, 120, 7)),
        (Case("p=10⁵, step at m=400 ÷ m=100", "≤ 5", 5, False),
         lambda c: growth(c, (10**5, 100), (10**5, 400), 5)),
        (Case("m=100, step at p=4·10⁵ ÷ p=10⁵", "≤ 4.4", 4.4, False),
         lambda c: growth(c, (10**5, 100), (4 * 10**5, 100), 5)),
        (Case("m=10, step at p=4·10⁵ ÷ p=10⁵", "≤ 4.4", 4.4, False),
         lambda c: growth(c, (10**5, 10), (4 * 10**5, 10), 7)),
        (Case("m=10, step at p=1.6·10⁶ ÷ p=4·10⁵", "≤ 4.4", 4.4, False),
         lambda c: growth(c, (4 * 10**5, 10), (16 * 10**5, 10), 5)),
        (Case("p=10⁶, m=10, float64 ÷ float32", "≥ 1.6", 1.6, True),
         lambda c: half_precision(c, 10**6, 10, 24, 5)),
        (Case("p=10⁶, m=50, peak memory ÷ m·p", "≤ 1.4", 1.4, False),
         lambda c: peak_memory(c, 10**6, 50)),
        (Case("p=10⁴, m=100, single ÷ batch of 100", "≥ 5×", 5, True),
         lambda c: batch_against_single(c, 10**4, 100, 100, 7)),
        (Case("p=10⁴, m=100, learn_batch of 100", "—× verbatim", None, True),
         lambda c: against_verbatim(c, 10**4, 100, 100, 7, "learn_batch", 10)),
        (Case("p=20, m=5, one learn ÷ verbatim step", "≤ 1.5", 1.5, False),
         lambda c: inverse(against_verbatim(c, 20, 5, 2000, 7, "learn", 2000))),
        (Case("MLP, m=10, step ÷ forward and backward", "—", None, False),
         lambda c: on_a_network(c, 10, 24, 7, False)),
        (Case("MLP, m=10, share of the floor", "—", None, True),
         lambda c: on_a_network(c, 10, 24, 7, True)),
    ]  # fmt: skip
    for case, run in plan:
        tick(case.name)
        yield run(case)


def inverse(case):
    case.ratios = [1 / ratio for ratio in case.ratios]
    return case


def curves(tick):
    """Time of a step against p and against m, ours, verbatim and the floor (ms)."""
    against_p, against_m = [], []
    for p in (10**3, 10**4, 10**5, 10**6):
        tick(f"time against p: {p:,}")
        against_p.append((p, *three(p, 10)))
    for m in (10, 30, 100, 300):
        tick(f"time against m: {m}")
        against_m.append((m, *three(10**5, m)))
    return against_p, against_m


def three(p, m):
    stream = Stream(p)
    ours, theirs = filled(stream, m), Verbatim(p, m)
    theirs.U = np.linalg.qr(stream.take(m)[0].T)[0]
    theirs.Sigma = np.ones(m)
    floor, timed = two_reads(p, m), []
    for _ in range(7):
        step = seconds_each(ours.learn, *stream.take(24))
        timed.append((step, seconds_each(theirs.learn, *stream.take(3)), floor()))
    return 1e3 * np.median(timed, axis=0)
