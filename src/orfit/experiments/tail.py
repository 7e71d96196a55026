"""What does a bounded memory lose against exact ridge regression? (beyond the paper)

ORFit keeps m directions and, of all it has dropped, one number, the tail (`orfit.tail`). Ridge
regression with the same R, which forgets nothing, is the yardstick. Beside it: ORFit with the tail,
without it (`tail=False`), and with noise="auto", which is told no R.

Streams are white, with a spectrum that falls like 1/i, and of rank 20 with a little noise around
it, all with one w; and `regimes`, four spectra one after another. Labels have noise of variance 1
and w a prior of variance 1, so R = 1 is right. Rows have a mean squared length of p. Then data that
come with scikit-learn, through random Fourier features of the same length, with targets of variance
p: diabetes, shuffled and ordered by age, and the number that a digit shows, shuffled and class after
class. And a w that jumps in the midst of a white stream, where the tail is a burden.

An error is the root mean square over held-out rows, against the truth without noise where it is
known, as a share of the target's standard deviation. In curves.csv `step` is R, m, rows at once
(`block`), or rows learned, as the quantity says; what has no R is written for each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

import orfit
from orfit.door import Array
from orfit.experiments import report
from orfit.experiments.report import Curves, Tick

TITLE = "What a bounded memory loses against exact ridge regression, with the tail and without"


@dataclass(frozen=True)
class Settings:
    p: int = 100  # inputs of the streams that are drawn
    rows: int = 2000  # of each of them
    tests: int = 500  # rows held out of each of them
    rank: int = 20  # of the stream that has one
    features: int = 200  # random Fourier features of the data
    test_share: float = 0.3  # of the data
    m: int = 20  # directions kept
    decades: int = 4  # R is 10 to the power −decades, …, decades
    longest: int = 8000  # rows of the white stream on which errors are watched
    runs: int = 3  # of everything but the blocks, which have one: large ones take long
    compiled: bool = True  # use numba's loop, where there is numba
    seed: int = 0


QUICK = {
    "p": 30, "rows": 150, "tests": 200, "rank": 10, "features": 40, "m": 6, "decades": 1,
    "longest": 1280, "runs": 1, "compiled": False,
}  # fmt: skip

DRAWN = {
    "white": "white",
    "1/i": "spectrum 1/i",
    "rank": "low rank + noise",
    "regimes": "four regimes",
}
REAL = {
    "diabetes": "diabetes, shuffled",
    "diabetes-ordered": "diabetes, by age",
    "digits": "digits, shuffled",
    "digits-ordered": "digits, by class",
}
STREAMS = DRAWN | REAL
NAMES = {"ridge": "ridge", "tail": "tail", "no-tail": "no tail", "auto": 'noise="auto"'}
COLOURS = {"ridge": "black", "tail": "tab:blue", "no-tail": "tab:orange", "auto": "tab:green"}
BLOCKS = [1, 30, 300]
FADING = [1.0, 0.99]  # λ, where w jumps
REGIMES = 4


@dataclass(frozen=True)
class Stream:
    X: Array
    y: Array
    X_test: Array
    truth: Array
    scale: float  # the standard deviation of the target

    def error(self, w: Array) -> float:
        return float(np.sqrt(np.mean((self.X_test @ w - self.truth) ** 2)) / self.scale)


def noises(settings: Settings) -> Array:
    """The values of R."""
    return np.asarray(10.0 ** np.arange(-settings.decades, settings.decades + 1))


def sizes(settings: Settings) -> list[int]:
    """The values of m."""
    return sorted({max(1, settings.m // 4), settings.m, min(settings.p, 5 * settings.m // 2)})


def lengths(settings: Settings) -> Array:
    """After so many rows errors are watched."""
    halves = [settings.longest // 2**i for i in range(6)]
    return np.array(sorted({n for n in halves if n}))


def ticks(settings: Settings) -> int:
    return settings.runs * (len(STREAMS) + 2) + len(DRAWN)


def run(settings: Settings, tick: Tick) -> Curves:
    found: dict[tuple[str, str], tuple[Array, list[Array]]] = {}

    def note(method: str, quantity: str, steps: Any, values: Any) -> None:
        _, runs = found.setdefault((method, quantity), (np.asarray(steps), []))
        runs.append(np.broadcast_to(values, np.shape(steps)))

    for number in range(settings.runs):
        for place, name in enumerate(STREAMS):
            stream = made(name, settings, [settings.seed, number, place])
            for told in _against_noise(stream, settings):
                note(told[0], f"error {name} by R", *told[1:])
            if name in DRAWN:
                for told in _against_size(stream, settings):
                    note(told[0], f"error {name} by m", *told[1:])
            tick()
        for told in _against_rows(settings, [settings.seed, number, len(STREAMS)]):
            note(told[0], "error white by rows", *told[1:])
        tick()
        for method, fading, *curve in _jumping(settings, [settings.seed, number, len(STREAMS) + 1]):
            note(method, f"error jump λ={fading:g} by rows", *curve)
        tick()
    for place, name in enumerate(DRAWN):
        stream = made(name, settings, [settings.seed, 0, place])
        for told in _against_block(stream, settings):
            note(told[0], f"error {name} by block", *told[1:])
        tick()
    curves = Curves()
    for (method, quantity), (steps, values) in found.items():
        curves.add(method, quantity, steps, np.array(values))
    return curves


def made(name: str, settings: Settings, seed: list[int]) -> Stream:
    """The same rows, features and held-out rows for a stream and its ordered twin."""
    if name in DRAWN:
        return drawn(name, settings, np.random.default_rng(seed))
    data, _, ordered = name.partition("-")
    twin = [*seed[:-1], len(STREAMS) + list(REAL).index(data)]
    return real(data, bool(ordered), settings, np.random.default_rng([*twin, 1]))


def drawn(name: str, settings: Settings, rng: np.random.Generator) -> Stream:
    """Rows of mean squared length p, labels with noise of variance 1."""
    p, n, tests = settings.p, settings.rows, settings.tests
    w = rng.standard_normal(p)
    X, X_test = (_inputs(name, count, settings, rng) for count in (n, tests))
    if name == "regimes":
        each = [_inputs("1/i", -(-(n + tests) // REGIMES), settings, rng) for _ in range(REGIMES)]
        cut = -(-n // REGIMES)
        X = np.concatenate([rows[:cut] for rows in each])[:n]
        X_test = np.concatenate([rows[cut:] for rows in each])
    truth = X_test @ w
    return Stream(X, X @ w + rng.standard_normal(n), X_test, truth, float(truth.std()))


def _inputs(name: str, count: int, settings: Settings, rng: np.random.Generator) -> Array:
    raise NotImplementedError
