"""Damaged and crafted files: load returns a usable learner or raises a CheckpointError.

A usable learner learns, predicts and saves, or raises a ValueError. All of that takes less than a
second, and no more memory than a file of that length needs.
"""

import contextlib
import copy
import itertools
import json
import time
import tracemalloc

import numpy as np
import pytest

import crafted
import orfit
from orfit.memory import FrequentDirections, Latest, Nothing, Random, Sketch

# Of overflow, which numbers like 1e308 lead to, and of advice.
pytestmark = pytest.mark.filterwarnings("ignore")
P = 6
ROTATION = np.kron(np.eye(P // 2), [[0.8, -0.6], [0.6, 0.8]])
SUBJECTS = {
    "principal": lambda: orfit.ORFit(orfit.Linear(P), 3, noise=0.1),
    "interpolating": lambda: orfit.ORFit(orfit.Linear(P), 3),
    "single": lambda: orfit.ORFit(orfit.Linear(P), 3, noise=0.1, w0=np.zeros(P, np.float32)),
    "heads": lambda: orfit.ORFit(orfit.Linear(P - 1, heads=2, bias=True), 3, noise=0.1),
    "unlimited": lambda: orfit.ORFit(orfit.Linear(P)),
    "growing": lambda: orfit.ORFit(orfit.Linear(P), "auto", noise=0.1),
    "latest": lambda: orfit.ORFit(orfit.Linear(P), Latest(3), noise=0.1, forgetting=0.9),
    "random": lambda: orfit.ORFit(orfit.Linear(P), Random(3, seed=2)),
    "frequent": lambda: orfit.ORFit(orfit.Linear(P), FrequentDirections(3), noise=0.1),
    "sketch": lambda: orfit.ORFit(orfit.Linear(P), Sketch(3), noise=0.1),
    "fresh sketch": lambda: orfit.ORFit(orfit.Linear(P), Sketch(3, "fresh"), noise=0.1),
    "symmetric sketch": lambda: orfit.ORFit(orfit.Linear(P), Sketch(4, "symmetric")),
    "nothing": lambda: orfit.ORFit(orfit.Linear(P), Nothing(), noise=0.1),
    "candidates": lambda: orfit.ORFit(orfit.Linear(P), 3, noise="auto", tail="auto"),
    "forgettings": lambda: orfit.ORFit(orfit.Linear(P), 3, noise=0.1, forgetting="auto"),
    "moving": lambda: orfit.ORFit(orfit.Linear(P), 3, noise=0.1, dynamics=0.9, drift=0.1),
    "RLS": lambda: orfit.RLS(orfit.Linear(P), forgetting=0.9, prior=2 * np.eye(P)),
    "RLS fading": lambda: orfit.RLS(orfit.Linear(P), forgetting=0.5),
    "RLS forgettings": lambda: orfit.RLS(orfit.Linear(P), forgetting="auto"),
    "NTKRLS": lambda: orfit.NTKRLS(orfit.Linear(P), drift=np.arange(P) / 10, prior=np.ones(P)),
    "EKF": lambda: orfit.EKF(
        orfit.Linear(P), noise=0.1, dynamics=ROTATION, control=np.ones((P, 1)), drift=np.eye(P)
    ),
    "meter": lambda: orfit.ORFit(orfit.Linear(P, heads=2), 3, meter=orfit.Meter(3)),
    "OneStepSGD": lambda: orfit.OneStepSGD(orfit.Linear(P)),
    "OGD": lambda: orfit.OGD(orfit.Linear(P), 3, lr=0.01, steps=2),
    "SGD": lambda: orfit.SGD(orfit.Linear(P), lr=0.01),
    "Greedy": lambda: orfit.Greedy(orfit.Linear(P)),
}
DEEP = "a hundred thousand brackets"
NASTY = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 900, 1_000_000, 2**31, 2**53, 2**53 + 1, 2**63, 2**64),
    *(10**30, -(2**63), 0.0, 0.5, -0.5, 5e-324, 1e-300, 1e300, 1.7e308),
    *(float("inf"), -float("inf"), float("nan"), "", "1", "x", "auto", "code", "a" * 10_000, DEEP),
    *("Principal", "Dense", "Basis", "Bounded", "Sketch", "Growing", "RLS", "Greedy"),
    *([], {}, [[]], [1, 2], [0.0] * P, [[0.0] * P] * P, np.eye(P).tolist(), {"a": 1}, [None]),
]
NUMBERS = [0.0, -1.0, np.nan, np.inf, 1e308, -1e308, 1e200, 1e-320, 1e-30, 0.5]
COUNTS = [0, 1, -1, 2, 7, 1000, 1 << 31, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)]
MOST = 1 << 25  # bytes, beside files of some kilobytes


def nodes(value):
    """Every place in a header: its container, and where in that."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from nodes(value[key])


def damage_header(header, rng):
    """Change one thing of the structure."""
    places = list(nodes(header))
    container, key = places[rng.integers(len(places))]
    value, change = container[key], rng.integers(8)
    if change == 0:
        del container[key]
    elif change == 1 and isinstance(container, dict):
        container[str(rng.choice(["a", "m", "w0", "model", "prior", "noise"]))] = copy.deepcopy(
            value
        )
    elif change == 2 and isinstance(container, list):
        container.append(copy.deepcopy(value))
    elif change == 3:
        other, place = places[rng.integers(len(places))]
        container[key] = copy.deepcopy(other[place])
    elif change in (4, 5) and isinstance(value, int | float) and not isinstance(value, bool):
        changes = [value + 1, value - 1, -value, 2 * value, value * 10**6, value / 3, str(value)]
        container[key] = changes[rng.integers(len(changes))]
    else:
        container[key] = copy.deepcopy(NASTY[rng.integers(len(NASTY))])


def damage_arrays(arrays, rng):
    """Change one array: remove it, or change its name, shape, dtype or numbers."""
    name = sorted(arrays)[rng.integers(len(arrays))]
    array, change = arrays[name], rng.integers(12)
    if change == 0:
        del arrays[name]
    elif change == 1:
        arrays["state.other" if rng.integers(2) else name + "x"] = array
    elif change == 2:
        arrays[name] = array.T
    elif change == 3:
        arrays[name] = array.reshape(-1) if rng.integers(2) else array[None]
    elif change == 4 and array.ndim:
        arrays[name] = array[:-1] if rng.integers(2) else np.concatenate([array, array])
    elif change == 5:
        kinds = [np.float32, np.float64, np.float16, np.int64, np.uint8, bool]
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(kinds[rng.integers(len(kinds))])
    elif change == 6:
        arrays[name] = np.empty([(0, 1 << 40), (1 << 40, 0), (0,), ()][rng.integers(4)])
    elif change == 7:
        with np.errstate(all="ignore"):
            arrays[name] = array * NUMBERS[rng.integers(len(NUMBERS))]
    elif change == 8:
        arrays[name] = array.reshape(-1)[::-1].reshape(array.shape)
    elif array.size and array.dtype.kind == "f":
        array.reshape(-1)[rng.integers(array.size)] = NUMBERS[rng.integers(len(NUMBERS))]
    elif array.size and array.dtype == np.int64:
        array.reshape(-1)[rng.integers(array.size)] = COUNTS[rng.integers(len(COUNTS))]


def craft(path, header, arrays, rng):
    """Write a file with a right checksum and up to three changes."""
    header, arrays = copy.deepcopy(header), {n: a.copy() for n, a in arrays.items()}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if header and rng.integers(2):
            damage_header(header, rng)
        elif arrays:
            damage_arrays(arrays, rng)
    text = json.dumps(header).replace(json.dumps(DEEP), "[" * 100_000 + "]" * 100_000)
    crafted.write(path, text, arrays)


def damage_bytes(whole, rng):
    """The bytes of a file with bits flipped, bytes replaced, cut off, left out or put in."""
    made, change = bytearray(whole), rng.integers(5)
    # Half of the time within the header, where most is decided.
    end = len(made) if rng.integers(2) else min(len(made), 8 + int.from_bytes(made[:8], "little"))
    if change == 0:
        for _ in range(rng.integers(1, 4)):
            made[rng.integers(end)] ^= 1 << int(rng.integers(8))
    elif change == 1:
        made[rng.integers(end)] = int(rng.integers(256))
    elif change == 2:
        del made[rng.integers(end) :]
    elif change == 3:
        start = rng.integers(end)
        del made[start : start + rng.integers(1, 9)]
    else:
        start = rng.integers(end)
        made[start:start] = rng.bytes(rng.integers(1, 9))
    return bytes(made)


def use(learner, path, rng):
    """Use it as a program would that loaded it; ValueErrors are allowed."""
    shape = learner.model.input_shape
    labels = () if learner.model.heads is None else (learner.model.heads,)
    X, Y = rng.standard_normal((5, *shape)), rng.standard_normal((5, *labels))
    calls = [
        lambda: learner.predict(X),
        lambda: learner.predict(X, std=True),
        lambda: learner.learn(X[0], Y[0]),
        lambda: learner.learn_each(X, Y),
        lambda: learner.learn_batch(X[:2], Y[:2]),
        lambda: learner.learn_each([], []),
        lambda: learner.predict(X[0], std="mean"),
        lambda: learner.save(path),
        lambda: (learner.w, repr(learner), getattr(learner, "health", int)()),
    ]
    for call in calls:
        with contextlib.suppress(ValueError):
            call()


class Fuzzer:
    def __init__(self, folder, seed):
        self.rng, self.path, self.again = np.random.default_rng(seed), folder / "a", folder / "b"
        self.subjects, self.loaded, self.refused = [], 0, 0
        for make, rows in itertools.product(SUBJECTS.values(), (0, 25)):
            learner = make()
            labels = () if learner.model.heads is None else (learner.model.heads,)
            X = self.rng.standard_normal((rows, *learner.model.input_shape))
            learner.learn_each(X, self.rng.standard_normal((rows, *labels)))
            learner.save(self.path)
            use(learner, self.again, self.rng)  # so that all caches are filled
            self.subjects.append((self.path.read_bytes(), *crafted.parts(self.path)))

    def run(self, count):
        tracemalloc.start()
        try:
            for _ in range(count):
                self.one()
        finally:
            tracemalloc.stop()

    def one(self):
        whole, header, arrays = self.subjects[self.rng.integers(len(self.subjects))]
        if self.rng.integers(4):
            craft(self.path, header, arrays, self.rng)
        else:
            self.path.write_bytes(damage_bytes(whole, self.rng))
        tracemalloc.reset_peak()
        before, start = tracemalloc.get_traced_memory()[0], time.process_time()
        try:
            learner = orfit.load(self.path)
        except orfit.CheckpointError:
            self.refused += 1
        else:
            self.loaded += 1
            use(learner, self.again, self.rng)
        assert time.process_time() - start < 1  # of this process: others may keep it waiting
        assert tracemalloc.get_traced_memory()[1] - before < MOST


def test_some_hundred_files(tmp_path):
    fuzzer = Fuzzer(tmp_path, seed=0)
    fuzzer.run(300)
    assert fuzzer.refused > 180  # most changes are noticed,
    assert fuzzer.loaded > 6  # and some result in another learner


@pytest.mark.slow
def test_some_thousand_files(tmp_path):
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    fuzzer = Fuzzer(tmp_path, seed)
    fuzzer.run(4000)
    assert fuzzer.refused > 2400
    assert fuzzer.loaded > 80
