"""What `test_distributed.py` lets several processes do: `python shards.py FOLDER` is one of them.

Each writes what it found to FOLDER; what one process would have found is made by the tests.
"""

import json
import os
import sys
import traceback
from pathlib import Path

import numpy as np

import orfit
import orfit.distributed

P = 301
STREAM = 60  # rows that are learned by one number of processes, then by another
SHARES = {2: [200, 101], 4: [4, 150, 41, 106]}  # uneven, and one shorter than a block


def white(n, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)).astype(dtype)
    return X, X @ rng.standard_normal(P) / P**0.5 + 0.1 * rng.standard_normal(n)


def decaying(n, seed=0):
    """A spectrum of 1/i."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((P, P)))[0]
    X = (rng.standard_normal((n, P)) / np.arange(1, P + 1)) @ turn
    return X, X @ rng.standard_normal(P)


def few(n, directions=15, seed=0):
    """Rows of which soon hardly anything is new."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, directions)) @ rng.standard_normal((directions, P))
    X += 1e-3 * rng.standard_normal((n, P))
    return X, X @ rng.standard_normal(P) / P**0.5


def consistent(n, seed=0):
    """Rows that come again, and combinations of others, with labels that agree."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    X[3::5] = X[1::5][: len(X[3::5])]
    X[4::5] = X[0::5][: len(X[4::5])] - X[2::5][: len(X[4::5])]
    return X, X @ rng.standard_normal(P) / P**0.5


def two_labels(X, y):
    return np.column_stack([y, np.cos(y), -y])


USUAL = {"learn": "each", "std": True}
USUAL |= dict.fromkeys(("labels", "weight", "heads", "features", "w0"))


def case(make, **told):
    """A stream, how it is learned (`USUAL`), and the settings of its learner."""
    made = {name: told.pop(name) for name in [*told] if name not in USUAL}
    return {**USUAL, **told, "make": make, "made": made}


A = np.random.default_rng(5).standard_normal((7, P))

CASES = {
    "R=0": case(lambda: white(40)),
    "R=0, m": case(lambda: white(40), memory=8),
    "R=0, rows again": case(lambda: consistent(60)),
    "R=0, few": case(lambda: few(40)),
    "R": case(lambda: white(40), noise=0.1),
    "R, m": case(lambda: white(60), memory=8, noise=0.1),
    "R, m, 1/i": case(lambda: decaying(60), memory=8, noise=1e-3),
    "R, m, few": case(lambda: few(40), memory=20, noise=0.1),
    "R, m, large": case(lambda: decaying(60), memory=40, noise=1e-3),
    "blocks, R=0": case(lambda: white(48), learn=6),
    "blocks, R=0, rows again": case(lambda: consistent(48), learn=6),
    "blocks, R": case(lambda: white(48), learn=6, noise=0.1),
    "blocks, R, m": case(lambda: decaying(60), learn=6, memory=8, noise=1e-3),
    "blocks, few": case(lambda: few(60), learn=6, memory=20, noise=0.1),
    "heads": case(lambda: white(40), labels=two_labels, heads=3, memory=8, noise=0.1),
    "heads, R=0": case(lambda: white(30), labels=two_labels, heads=3),
    "float32": case(
        lambda: white(40, dtype=np.float32), memory=8, noise=0.1, w0=np.zeros(P, np.float32)
    ),
    "λ": case(lambda: white(60), memory=8, noise=0.1, forgetting=0.95),
    "λ, unlimited": case(lambda: white(40), noise=0.1, forgetting=0.95),
    "drift": case(lambda: white(40), memory=8, noise=0.1, drift=1e-3),
    "coordinates": case(lambda: white(60), memory=8, noise=0.1, rows="coordinates"),
    "coordinates, heads": case(
        lambda: decaying(60), labels=two_labels, heads=3, memory=8, noise=0.1, rows="coordinates"
    ),
    "weights": case(
        lambda: white(40), weight=np.tile([1.0, 0.0, 2.5, 1.0], 10), memory=8, noise=0.1
    ),
    "w0": case(lambda: white(40), memory=8, noise=0.1, w0=np.cos(np.arange(P))),
    "auto": case(lambda: white(40), memory="auto", noise="auto", tail="auto"),
    "auto λ": case(lambda: white(40), memory=8, noise=0.1, forgetting="auto"),
    "features": case(lambda: (white(40)[0][:, :7], white(40)[1]), features=A, memory=8, noise=0.1),
    "huge": case(lambda: (white(20)[0] * 1e160, white(20)[1]), memory=8, std=False),
    "tiny": case(lambda: (white(20)[0] * 1e-170, white(20)[1] * 1e-170), memory=8, std=False),
    "Latest": case(lambda: white(40), memory=lambda: orfit.memory.Latest(8), noise=0.1),
    "Random": case(lambda: white(40), memory=lambda: orfit.memory.Random(8), noise=0.1),
    "Sketch": case(lambda: white(40), memory=lambda: orfit.memory.Sketch(8), noise=0.1),
    "Sketch, symmetric": case(
        lambda: white(40), memory=lambda: orfit.memory.Sketch(8, "symmetric"), noise=0.1
    ),
    "Nothing": case(lambda: white(30), memory=orfit.memory.Nothing),
    "float32, R=0": case(lambda: white(30, dtype=np.float32), w0=np.zeros(P, np.float32)),
    "float32, blocks": case(
        lambda: white(48, dtype=np.float32), learn=6, memory=8, noise=0.1,
        w0=np.zeros(P, np.float32),
    ),
}  # fmt: skip


ON_TWO = 18  # of these cases are for two processes as well


def cases(count):
    return [*CASES][: ON_TWO if count == 2 else None]


def learner_of(name, spread, shares=None):
    """The learner of a case: over processes, or in one."""
    told = CASES[name]
    made = {**told["made"]}
    if callable(made.get("memory")):
        made["memory"] = made["memory"]()
    made.setdefault("rows", "plain")
    features, heads, w0 = told["features"], told["heads"], told["w0"]
    if not spread:
        of_all = None if features is None else lambda X: np.tanh(X @ features)
        return orfit.ORFit(orfit.Linear(P, heads=heads, features=of_all), w0=w0, **made)
    here = orfit.distributed.Linear(P, shares=shares).here
    mine = None if features is None else lambda X: np.tanh(X @ features[:, here])
    model = orfit.distributed.Linear(P, heads=heads, features=mine, shares=shares)
    return orfit.distributed.ORFit(model, w0=None if w0 is None else w0[here], **made)


def learned(name, learner, here):
    """Let it learn the stream of a case, of which it is given what is here."""
    told = CASES[name]
    X, y = told["make"]()
    y = y if told["labels"] is None else told["labels"](X, y)
    X = X if told["features"] is not None else X[:, here]
    if told["learn"] == "each":
        learner.learn_each(X, y, told["weight"])
    else:
        for start in range(0, len(X), told["learn"]):
            rows = slice(start, start + told["learn"])
            learner.learn_batch(X[rows], y[rows])
    return learner.predict(X[:5], std=True) if told["std"] else (learner.predict(X[:5]), 0.0)


def zeros(n):
    X, y = white(n)
    X[3::4] = 0
    return X, y


def again(n):
    X, y = white(n)
    X[1::2] = X[::2] * 3
    return X, y


def nearly(n):
    X, y = white(n)
    X[1::2] = X[::2] + 1e-9 * X[1::2]
    return X, y


STREAMS = {
    "white": white, "1/i": decaying, "few": few, "zeros": zeros, "again": again,
    "nearly": nearly, "one sign": lambda n: (np.abs(white(n)[0]), white(n)[1]),
}  # fmt: skip
COUNTED = {
    "m": {"memory": 10, "noise": 0.1},
    "m, R=0": {"memory": 10},
    "m=30": {"memory": 30, "noise": 0.1},
    "λ": {"memory": 10, "noise": 0.1, "forgetting": 0.95},
    "unlimited": {"noise": 0.1},
    "unlimited, R=0": {},
    "Latest": {"memory": lambda: orfit.memory.Latest(10), "noise": 0.1},
}


COUNTED_HERE = ("white", "1/i", "nearly")  # where messages are sent; alone, all of them


def messages(stream, settings, rows, block=1, shares=None):
    """How many messages steps took: the most, the mean, and bytes a row."""
    model = orfit.distributed.Linear(P, shares=shares)
    made = {n: value() if callable(value) else value for n, value in COUNTED[settings].items()}
    learner = orfit.distributed.ORFit(model, rows="plain", **made)
    (X, y), processes, each = STREAMS[stream](rows), model.processes, []
    numbers = processes.numbers
    for start in range(0, rows, block):
        before, some = processes.exchanges, slice(start, start + block)
        learner.learn_batch(X[some, model.here], y[some])
        each.append(processes.exchanges - before)
    size = 8 * (processes.numbers - numbers) / rows
    return {"most": max(each), "mean": float(np.mean(each)), "bytes": size}


def state_of(learner):
    arrays, header = learner.state()
    return {n: np.array(orfit.tall.here(a)) for n, a in arrays.items()}, json.dumps(header)


def same(a, b):
    return a[1] == b[1] and all(np.array_equal(a[0][n], b[0][n]) for n in a[0])


def raised(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def refusals(shares, rank):
    """What each way to hand in a NaN on one process raises here, and whether anything changed."""
    found = {}
    (X, y), model = white(40), orfit.distributed.Linear(P, shares=shares)
    bad = np.full(model.held, 1.0)
    bad[0] = np.nan
    X = X[:, model.here]
    spoiled = X[30:].copy()
    spoiled[7, 0] = np.nan
    on_1, on_0 = rank == 1, rank == 0

    def tries(learner, many):
        return {
            "x": lambda: learner.learn(bad if on_1 else X[0], 1.0),
            "y": lambda: learner.learn(X[0], np.nan if on_0 else 1.0),
            "shape": lambda: learner.learn(X[0, :-1] if on_1 else X[0], 1.0),
            "batch": lambda: learner.learn_batch(many, y[30:]),
            "each": lambda: learner.learn_each(many, y[30:]),
            "weight": lambda: learner.learn(X[0], 1.0, -1.0 if on_1 else 1.0),
            "predict": lambda: learner.predict(many),
        }

    for rows in ("plain", "coordinates"):
        learner = orfit.distributed.ORFit(model, 8, noise=0.1, rows=rows)
        learner.learn_each(X[:30], y[:30])
        for name, call in tries(learner, spoiled if on_1 else X[30:]).items():
            before = state_of(learner)
            found[f"{name}, {rows}"] = [raised(call), same(before, state_of(learner))]
        learner.learn_each(X[30:], y[30:])  # and it goes on
        found[f"after, {rows}"] = [None, learner.seen == 40]
    broken = orfit.distributed.Linear(
        P,
        shares=shares,
        features=lambda X: np.where(on_1 & (X[:, :1] == 7), np.nan, X[:, model.here]),
    )
    learner = orfit.distributed.ORFit(broken, 8, noise=0.1, rows="coordinates")
    rows = white(20)[0]
    rows[12, 0] = 7
    found["features"] = [raised(lambda: learner.learn_each(rows, y[:20])), learner.seen == 12]
    return found


def divergence(shares, rank):
    """Labels that differ are noticed by all, at the next row."""
    (X, y), model = white(4), orfit.distributed.Linear(P, shares=shares)
    learner = orfit.distributed.ORFit(model, 8, noise=0.1)
    learner.learn(X[0, model.here], y[0] + 1e-15 * rank * abs(y[0]))
    return raised(lambda: learner.learn(X[1, model.here], y[1]))


def saved(folder, shares, rank):
    """Saved in the middle, and taken up: bit by bit as if it had gone on."""
    found = {}
    for name in ("R, m", "blocks, few", "auto", "Sketch", "w0"):
        learner = learner_of(name, True, shares)
        X, y = CASES[name]["make"]()
        X, half = X[:, learner.model.here], len(y) // 2
        learner.learn_each(X[:half], y[:half])
        path = folder / f"{name.replace('/', '')}.safetensors"
        for _ in range(2):  # one takes the place of the other
            learner.save(path)
        loaded = orfit.distributed.load(path, model=learner.model)
        files = len([*folder.glob(f"{path.name}.*")])
        for one in (learner, loaded):
            one.learn_each(X[half:], y[half:])
        found[name] = [same(state_of(learner), state_of(loaded)), files]
    return found


def resumed(folder, rank):
    """Go on from checkpoints of another number of processes, and of one."""
    found = {}
    for path in sorted(folder.glob("given-*.safetensors")):
        learner = orfit.distributed.load(path)
        (X, y), here = white(STREAM), learner.model.here
        learner.learn_each(X[learner.seen :, here], y[learner.seen :])
        found[path.name] = [learner.seen, learner.w]
    return found


def killed(folder, shares, rank):
    """One of the processes is killed in the middle of a stream that is saved every 10 rows."""
    model = orfit.distributed.Linear(P, shares=shares)
    learner = orfit.distributed.ORFit(model, 8, noise=0.1, rows="plain")
    X, y = white(STREAM)
    for i in range(STREAM):
        if rank == 1 and i == 37:
            os.kill(os.getpid(), 9)
        learner.learn(X[i, model.here], y[i])
        if learner.seen % 10 == 0:
            learner.save(folder / "given-killed.safetensors")


def main(folder, kill):
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shares, found, arrays = SHARES[count], {}, {}
    orfit.distributed.start(timeout=60)
    for name in cases(count):
        learner = learner_of(name, True, shares)
        told = learned(name, learner, learner.model.here)
        arrays |= {f"{name}: w": learner.w, f"{name}: f": told[0], f"{name}: std": told[1]}
        found[name] = learner.seen
    found["counts"] = {stream: messages(stream, "m", 40, 1, shares) for stream in COUNTED_HERE}
    found["refusals"] = refusals(shares, rank)
    found["saved"] = saved(folder, shares, rank)
    for name, (seen, w) in resumed(folder, rank).items():
        arrays[f"{name}: w"], found[name] = w, seen
    found["divergence"] = divergence(shares, rank)
    np.savez(folder / f"{rank}.npz", **arrays)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    if kill:
        killed(folder, shares, rank)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), kill="kill" in sys.argv)
    except BaseException:
        traceback.print_exc()
        sys.exit(1)
