"""The cases of run.py: each is a ratio of two times, measured in alternation on the same data."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.linalg import blas, lapack
from verbatim import FiveLines, Verbatim

import orfit

# Idle threads of OpenBLAS wait actively for some 25 ms and would slow down the next measurement.
PAUSE = 0.06
KINDS = ("white", "15 directions", "spectrum 1/i")


@dataclass
class Case:
    """A ratio of two times, on each kind of stream."""

    name: str
    target: str
    bar: float | None
    at_least: bool  # whether the ratio must be at least the bar, or at most
    ratios: dict[str, list[float]] = field(default_factory=dict)
    detail: dict[str, str] = field(default_factory=dict)

    def median(self, kind):
        return float(np.median(self.ratios[kind]))

    @property
    def verdict(self):
        """Whether every stream meets the target; empty if there is none."""
        if self.bar is None:
            return ""
        met = [(self.median(kind) >= self.bar) == self.at_least for kind in self.ratios]
        return "yes" if all(met) else "no"


class Stream:
    """Random rows of one kind; no row comes twice.

    white: all directions are equal, so a bounded memory is of no use.
    15 directions: 15 directions, and noise of a tenth of their length.
    spectrum 1/i: 300 directions, whose standard deviations fall like 1/i.
    """

    def __init__(self, p, kind="white", dtype=np.float64):
        self.p, self.kind, self.dtype = p, kind, dtype
        self.rng = np.random.default_rng(0)
        if kind != "white":
            count = 15 if kind == "15 directions" else 300
            self.directions = self.rng.standard_normal((count, p), np.float32)

    def take(self, n):
        return self.rows(n).astype(self.dtype), self.rng.standard_normal(n)

    def rows(self, n):
        if self.kind == "white":
            return self.rng.standard_normal((n, self.p), np.float32)
        draws = self.rng.standard_normal((n, len(self.directions)), np.float32)
        if self.kind == "15 directions":
            noise = self.rng.standard_normal((n, self.p), np.float32)
            return draws @ self.directions + np.float32(0.1) * noise
        return (draws / np.arange(1, 301, dtype=np.float32)) @ self.directions


def seconds_each(learn, X, y):
    """Return the seconds per row of a loop over X."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    for x, label in zip(X, y, strict=True):
        learn(x, label)
    return (time.perf_counter() - start) / len(X)


def seconds(call, n):
    """Return the seconds per row of one call that learns n rows."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) / n


def filled(stream, m):
    """Return a learner whose memory is full."""
    w0 = np.zeros(stream.p, stream.dtype)
    learner = orfit.ORFit(orfit.Linear(stream.p), m, w0=w0)
    learner.learn_each(*stream.take(m + 10))
    return learner


def against_verbatim(stream, m, n, repeats, how, verbatim_rows):
    """The time of the algorithm as printed, over that of `learn`, `learn_each` or `learn_batch`."""
    ours, theirs = filled(stream, m), Verbatim(stream.p, m)
    seconds_each(theirs.learn, *stream.take(m + 1))
    slow, fast = [], []
    for _ in range(repeats):
        slow.append(seconds_each(theirs.learn, *stream.take(verbatim_rows)))
        learn = getattr(ours, how)
        if how == "learn_batch":  # one short call: the caches would hold the data of `theirs`
            learn(*stream.take(n))
        X, y = stream.take(n)
        fast.append(
            seconds_each(learn, X, y) if how == "learn" else seconds(lambda: learn(X, y), n)
        )
    ratios = [a / b for a, b in zip(slow, fast, strict=True)]
    return ratios, f"{1e6 * np.median(slow):,.0f} → {1e6 * np.median(fast):,.1f} µs a row"


# Filters of p parameters that take about five lines without orfit.
FILTERS = {
    "RLS": lambda p: orfit.RLS(orfit.Linear(p)),
    "RLS, λ=0.99": lambda p: orfit.RLS(orfit.Linear(p), forgetting=0.99),
    "EKF": lambda p: orfit.EKF(orfit.Linear(p), noise=0.1),
    "ORFit, m=10, R=0.1": lambda p: orfit.ORFit(orfit.Linear(p), 10, noise=0.1),
}


def against_five_lines(name, p, repeats):
    """The time of `learn` over that of RLS in five lines.

    Few rows are timed at once, so that other processes rarely interrupt a measurement.
    """
    stream, n = Stream(p), max(2, min(64, 2_000_000 // p**2))
    ours, theirs = FILTERS[name](p), FiveLines(p)
    for learner in (ours, theirs):
        seconds_each(learner.learn, *stream.take(20))
    timed = []
    for _ in range(repeats):
        X, y = stream.take(n)
        timed.append([seconds_each(l.learn, X, y.tolist()) for l in (theirs, ours)])
    five, step = 1e6 * np.min(timed, axis=0)
    return [b / a for a, b in timed], f"{five:,.1f} → {step:,.1f} µs at best"


def auto_against_fixed(stream, m, n, repeats):
    """The time of a row with noise="auto", over that with the noise that "auto" has chosen.

    With another noise the learner would keep other directions, which take another time.
    """
    auto, first = orfit.ORFit(orfit.Linear(stream.p), m, noise="auto"), stream.take(1100)
    auto.learn_each(*first)
    fixed = orfit.ORFit(orfit.Linear(stream.p), m, noise=auto.noise)
    fixed.learn_each(*first)
    made, timed = (fixed, auto), []
    for _ in range(repeats):
        X, y = stream.take(n)
        timed.append([seconds(lambda: learner.learn_each(X, y), n) for learner in made])
    fixed, auto = 1e6 * np.median(timed, axis=0)
    return [b / a for a, b in timed], f"{fixed:,.0f} → {auto:,.0f} µs a row"


def two_reads(p, m):
    """Return a function that measures two matrix-vector products with U, the floor of a step."""
    basis, g, c = np.ones((m, p)), np.ones(p), np.ones(m)
    return lambda: seconds(lambda: [(basis @ g, c @ basis) for _ in range(5)], 5)


def share_of_floor(stream, m, n, repeats):
    """The time of two reads of U over that of a step."""
    learner, floor = filled(stream, m), two_reads(stream.p, m)
    floors, steps = [], []
    for _ in range(repeats):
        floors.append(floor())
        steps.append(seconds_each(learner.learn, *stream.take(n)))
    ratios = [a / b for a, b in zip(floors, steps, strict=True)]
    return ratios, f"{1e3 * np.median(floors):.2f}, step {1e3 * np.median(steps):.2f} ms"


def of_two(learners, n, repeats):
    """Return the step times of two pairs (stream, learner), measured in alternation."""
    timed = [[seconds_each(l.learn, *s.take(n)) for s, l in learners] for _ in range(repeats)]
    detail = " → ".join(f"{1e3 * t:.2f} ms" for t in np.median(timed, axis=0))
    return *np.transpose(timed), detail


def growth(kind, small, large, repeats):
    """The step time with the larger (p, m) over that with the smaller."""
    streams = [(Stream(p, kind), m) for p, m in (small, large)]
    first, second, detail = of_two([(s, filled(s, m)) for s, m in streams], 24, repeats)
    floors = [two_reads(*size) for size in (small, large)]
    measured = np.array([[floor() for floor in floors] for _ in range(repeats)])
    detail += f"; two reads of U ×{np.median(measured[:, 1] / measured[:, 0]):.1f}"
    return list(second / first), detail


def half_precision(kind, p, m, n, repeats):
    streams = [Stream(p, kind), Stream(p, kind, np.float32)]
    first, second, detail = of_two([(s, filled(s, m)) for s in streams], n, repeats)
    return list(first / second), detail


def batch_against_single(stream, m, n, repeats):
    one, block, floor = filled(stream, m), filled(stream, m), least_of_a_batch(stream.p, m, n)
    block.learn_batch(*stream.take(n))
    timed = []
    for _ in range(repeats):
        single = seconds_each(one.learn, *stream.take(n))
        X, y = stream.take(n)
        timed.append((single, seconds(lambda: block.learn_batch(X, y), n), floor() / n))
    single, batch, least = 1e3 * np.median(timed, axis=0)
    ratios = [single / batch for single, batch, _ in timed]
    return ratios, f"{single:.3f} → {batch:.3f} ms a row; at the processor's full speed {least:.3f}"


def least_of_a_batch(p, m, n):
    """Return a function that measures the least time of a batch: its products and eigenproblem.

    The products run at the speed of a large one: 2p mn for inner products with the basis, p n² for
    those of the rows, 2p mn for the compaction.
    """
    A = np.asfortranarray(np.random.default_rng(0).standard_normal((1500, 1500)))
    K = A[: m + n, : m + n].T @ A[: m + n, : m + n]

    def floor():
        speed = 2 * len(A) ** 3 / seconds(lambda: blas.dgemm(1.0, A, A), 1)
        return p * n * (4 * m + n) / speed + seconds(lambda: lapack.dsyevd(K), 1)

    return floor


def on_a_network(kind, m, n, repeats, floor):
    """A step on an MLP over a forward and backward pass. With floor: two reads of U over a step."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Linear(784, 700), nn.ReLU(), nn.Linear(700, 620), nn.ReLU(), nn.Linear(620, 1)
    network = nn.Sequential(*layers)
    model = orfit.TorchModel(network, tangent=True)
    learner, stream = orfit.ORFit(model, m), Stream(784, kind, np.float32)
    learner.learn_each(*stream.take(m + 10))
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
    step, other = np.median(pairs, axis=0)
    ratios = [other / step if floor else step / other for step, other in pairs]
    return ratios, f"step {1e3 * step:.2f} ms, other {1e3 * other:.2f} ms"


def on_each_layer(block, repeats):
    """PerLayer on 1,000 digits over forward and backward passes of the same blocks.

    After 1,000 digits PerLayer computes its axes anew, so each run includes this once.
    """
    import torch
    from torch import nn

    torch.manual_seed(0)
    digits = orfit.datasets.mnist_sample()
    X = torch.tensor(digits.train_images.reshape(1500, -1) / 255, dtype=torch.float32)
    y = torch.tensor(digits.train_labels.astype(int))
    layers = nn.Linear(784, 800), nn.ReLU(), nn.Linear(800, 450), nn.ReLU(), nn.Linear(450, 10)
    network = nn.Sequential(*layers)
    learner = orfit.PerLayer(network, block=block)
    learner.learn(X, y)

    def plain():
        for rows in torch.arange(1000).split(block):
            network.zero_grad(set_to_none=False)
            nn.functional.cross_entropy(network(X[rows]), y[rows]).backward()

    pairs = [
        (seconds(lambda: learner.learn(X[:1000], y[:1000]), 1), seconds(plain, 1))
        for _ in range(repeats)
    ]
    step, other = np.median(pairs, axis=0) * block / 1000
    return [a / b for a, b in pairs], f"block {1e3 * step:.2f} ms, passes {1e3 * other:.2f} ms"


def longest_pause(seconds):
    """Return the longest pause of a loop that only reads the clock."""
    longest, now = 0.0, time.perf_counter()
    end = now + seconds
    while now < end:
        before, now = now, time.perf_counter()
        longest = max(longest, now - before)
    return longest


def worst_steps(stream, m, calls):
    """Return the times of single calls of `learn`: median, 99.9th percentile and longest."""
    learner = filled(stream, m)
    times = np.empty(calls)
    for start in range(0, calls, 500):
        X, y = stream.take(500)
        for i, (x, label) in enumerate(zip(X, y, strict=True)):
            begin = time.perf_counter()
            learner.learn(x, label)
            times[start + i] = time.perf_counter() - begin
    median, tail = np.median(times), np.percentile(times, 99.9)
    pause = longest_pause(times.sum())
    # Other processes interrupt some periods for milliseconds; each period has one compaction.
    period = learner._cell.state.store.capacity - m
    longest = times[: calls // period * period].reshape(-1, period).max(axis=1)
    return {
        "median µs": 1e6 * median,
        "99.9 %": tail / median,
        "longest": times.max() / median,
        "longest of an empty loop": pause / median,
        "longest between two compactions, median": np.median(longest) / median,
    }


def peak_memory(p, m):
    """Measure the peak memory of learning, in a new process, in units of m·p numbers."""
    script = (
        "import sys, numpy as np, orfit\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from peers import peak_memory as used, reset_peak_memory\n"
        f"p, m = {p}, {m}\n"
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
    return [float(out.stdout)], ""


def plan():
    """Return every case, a function that measures it, and the kinds of streams."""
    everywhere = [
        (Case("p=784, m=10, learn_each", "≥ 10× verbatim", 10, True),
         lambda kind: against_verbatim(Stream(784, kind), 10, 20_000, 7, "learn_each", 2000)),
        (Case("p=20,000, m=10, learn_each", "≥ 9× verbatim", 9, True),
         lambda kind: against_verbatim(Stream(20_000, kind), 10, 600, 7, "learn_each", 60)),
        (Case("p=20,000, m=100, learn_each", "≥ 25× verbatim", 25, True),
         lambda kind: against_verbatim(Stream(20_000, kind), 100, 300, 7, "learn_each", 8)),
        (Case("p=10⁶, m=10, learn", "≥ 14× verbatim", 14, True),
         lambda kind: against_verbatim(Stream(10**6, kind), 10, 24, 5, "learn", 4)),
        (Case("p=10⁵, m=100, learn", "≥ 25× verbatim", 25, True),
         lambda kind: against_verbatim(Stream(10**5, kind), 100, 120, 5, "learn", 4)),
        (Case("p=10⁶, m=10, share of the floor", "≥ 0.8", 0.8, True),
         lambda kind: share_of_floor(Stream(10**6, kind), 10, 24, 7)),
        (Case("p=10⁵, m=100, share of the floor", "≥ 1.2", 1.2, True),
         lambda kind: share_of_floor(Stream(10**5, kind), 100, 120, 7)),
        (Case("p=10⁵, step at m=400 ÷ m=100", "≤ 5", 5, False),
         lambda kind: growth(kind, (10**5, 100), (10**5, 400), 5)),
        (Case("m=100, step at p=4·10⁵ ÷ p=10⁵", "≤ 4.4", 4.4, False),
         lambda kind: growth(kind, (10**5, 100), (4 * 10**5, 100), 5)),
        (Case("m=10, step at p=1.6·10⁶ ÷ p=4·10⁵", "≤ 4.4", 4.4, False),
         lambda kind: growth(kind, (4 * 10**5, 10), (16 * 10**5, 10), 5)),
        (Case("p=10⁶, m=10, float64 ÷ float32", "≥ 1.6", 1.6, True),
         lambda kind: half_precision(kind, 10**6, 10, 24, 5)),
        (Case("p=10⁴, m=100, single ÷ batch of 100", "—", None, True),
         lambda kind: batch_against_single(Stream(10**4, kind), 100, 100, 7)),
        (Case("p=10⁴, m=100, learn_batch of 100", "—× verbatim", None, True),
         lambda kind: against_verbatim(Stream(10**4, kind), 100, 100, 7, "learn_batch", 10)),
        (Case('p=2,000, m=50, noise="auto" ÷ the noise it chose', "≤ 1.6", 1.6, False),
         lambda kind: auto_against_fixed(Stream(2000, kind), 50, 500, 11)),
        (Case("p=20, m=5, one learn ÷ verbatim step", "≤ 1.5", 1.5, False),
         lambda kind: inverse(against_verbatim(Stream(20, kind), 5, 2000, 7, "learn", 2000))),
        (Case("MLP of 10⁶, m=10, step ÷ forward and backward", "≤ 8", 8, False),
         lambda kind: on_a_network(kind, 10, 24, 7, False)),
        (Case("MLP of 10⁶, m=10, share of the floor", "≥ 0.7", 0.7, True),
         lambda kind: on_a_network(kind, 10, 24, 7, True)),
    ]  # fmt: skip
    once = [
        (Case(f"p={p:,}, {name}, one learn ÷ five lines of RLS", "≤ 2", 2, False),
         lambda kind, name=name, p=p: against_five_lines(name, p, 41))
        for name in FILTERS for p in (10, 100, 400, 800, 1600)
    ] + [
        *((Case(f"PerLayer, MLP of 10⁶, blocks of {n} ÷ forward and backward", "≤ 8", 8, False),
           lambda kind, n=n: on_each_layer(n, 3)) for n in (10, 50)),
        (Case("p=10⁶, m=50, peak memory ÷ m·p", "≤ 2.8", 2.8, False),
         lambda kind: peak_memory(10**6, 50)),
    ]  # fmt: skip
    return [(case, run, KINDS) for case, run in everywhere] + [
        (case, run, KINDS[:1]) for case, run in once
    ]


def all_cases(tick):
    """Measure every case; `tick(name)` is called before each."""
    for case, run, kinds in plan():
        for kind in kinds:
            tick(f"{case.name}, {kind}")
            case.ratios[kind], case.detail[kind] = run(kind)
        yield case


def worst_cases(tick):
    """Return the longest of 20,000 steps, in units of the median, for each size and stream."""
    found = []
    for p in (784, 20_000):
        for kind in KINDS:
            tick(f"worst steps at p={p:,}, {kind}")
            found.append({"p": p, "stream": kind} | worst_steps(Stream(p, kind), 10, 20_000))
    return found


def inverse(measured):
    ratios, detail = measured
    return [1 / ratio for ratio in ratios], detail


def curves(tick):
    """Return the times of a step (ms) against p and m: orfit, verbatim, and two reads of U."""
    against_p, against_m = [], []
    for p in (10**3, 10**4, 10**5, 10**6):
        tick(f"time against p: {p:,}")
        against_p.append((p, *three(p, 10)))
    for m in (10, 30, 100, 300):
        tick(f"time against m: {m}")
        against_m.append((m, *three(10**5, m)))
    return against_p, against_m


def three(p, m):
    stream = Stream(p, "spectrum 1/i")
    ours, theirs = filled(stream, m), Verbatim(p, m)
    theirs.U = np.linalg.qr(stream.take(m)[0].T)[0]
    theirs.Sigma = np.ones(m)
    floor, timed = two_reads(p, m), []
    for _ in range(7):
        step = seconds_each(ours.learn, *stream.take(24))
        timed.append((step, seconds_each(theirs.learn, *stream.take(3)), floor()))
    return 1e3 * np.median(timed, axis=0)
