"""What each of several processes runs for `test_distributed.py`: python shards.py FOLDER.

Each process writes its results to FOLDER. The tests compare them with those of one process.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

import orfit
import orfit.distributed

P = 301
SHARES = [297, 4]  # uneven, and one part is shorter than a block
HALF = 30  # rows that are learned before a checkpoint


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
    """Rows that soon have hardly anything new."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, directions)) @ rng.standard_normal((directions, P))
    X += 1e-3 * rng.standard_normal((n, P))
    return X, X @ rng.standard_normal(P) / P**0.5


def consistent(n, seed=0):
    """Repeated rows and combinations of others, with labels that agree."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P))
    X[3::5] = X[1::5][: len(X[3::5])]
    X[4::5] = X[0::5][: len(X[4::5])] - X[2::5][: len(X[4::5])]
    return X, X @ rng.standard_normal(P) / P**0.5


def short_first(n):
    """The first rows are short, so that the grid of noises moves."""
    X, y = white(n)
    scale = np.where(np.arange(n) < 10, 1e-4, 1.0)
    return X * scale[:, None], y * scale


def stretched(n):
    """Columns in units so different that the grid of noises is stretched."""
    X, y = white(n)
    return X * np.logspace(-3, 3, P), y


def with_gaps(n):
    """Some labels are missing."""
    X, y = white(n)
    y[::7] = np.nan
    return X, y


def two_outputs(stream):
    X, y = stream
    return X, np.column_stack([y, np.cos(y)])


USUAL = {"block": None, "weight": None, "heads": None, "w0": None, "std": True}


def case(make, **arguments):
    """A stream, how it is learned (`USUAL`), and the settings of its learner."""
    settings = {name: arguments.pop(name) for name in [*arguments] if name not in USUAL}
    return {**USUAL, **arguments, "make": make, "settings": settings}


CASES = {
    "R=0": case(lambda: white(40)),
    "R=0, m": case(lambda: white(40), memory=8),
    "R=0, repeated rows": case(lambda: consistent(60)),
    "R=0, few": case(lambda: few(40)),
    "R": case(lambda: white(40), noise=0.1),
    "R, m": case(lambda: white(60), memory=8, noise=0.1),
    "R, m, 1/i": case(lambda: decaying(60), memory=8, noise=1e-3),
    "R, m, few": case(lambda: few(40), memory=20, noise=0.1),
    "R, m, large": case(lambda: decaying(60), memory=40, noise=1e-3),
    "no tail": case(lambda: decaying(60), memory=8, noise=1e-3, tail=False),
    "blocks, R=0": case(lambda: white(48), block=6),
    "blocks, R=0, repeated rows": case(lambda: consistent(48), block=6),
    "blocks, R": case(lambda: white(48), block=6, noise=0.1),
    "blocks, R, m": case(lambda: decaying(60), block=6, memory=8, noise=1e-3),
    "blocks, few": case(lambda: few(60), block=6, memory=20, noise=0.1),
    "heads": case(lambda: two_outputs(white(40)), heads=2, memory=8, noise=0.1),
    "heads, R=0": case(lambda: two_outputs(white(30)), heads=2),
    "λ": case(lambda: white(60), memory=8, noise=0.1, forgetting=0.95),
    "λ, unlimited": case(lambda: white(40), noise=0.1, forgetting=0.95),
    "drift": case(lambda: white(40), memory=8, noise=0.1, drift=1e-3),
    "drift, missing labels": case(lambda: with_gaps(40), memory=8, noise=0.1, drift=1e-3),
    "weights": case(
        lambda: white(40), weight=np.tile([1.0, 0.0, 2.5, 1.0], 10), memory=8, noise=0.1
    ),
    "w0": case(lambda: white(40), memory=8, noise=0.1, w0=np.cos(np.arange(P))),
    "auto": case(lambda: white(40), memory="auto", noise="auto", tail="auto"),
    "auto, short rows first": case(
        lambda: short_first(60), memory=8, noise="auto", w0=np.cos(np.arange(P))
    ),
    "auto, stretched": case(lambda: stretched(40), memory=8, noise="auto"),
    "auto λ": case(lambda: white(40), memory=8, noise=0.1, forgetting="auto"),
    "huge": case(lambda: (white(20)[0] * 1e160, white(20)[1]), memory=8, std=False),
    "tiny": case(lambda: (white(20)[0] * 1e-170, white(20)[1] * 1e-170), memory=8, std=False),
    "Latest": case(lambda: white(40), memory=lambda: orfit.memory.Latest(8), noise=0.1),
    "Random": case(lambda: white(40), memory=lambda: orfit.memory.Random(8), noise=0.1),
    "Nothing": case(lambda: white(30), memory=orfit.memory.Nothing),
    "float32": case(
        lambda: white(40, dtype=np.float32), memory=8, noise=0.1, w0=np.zeros(P, np.float32)
    ),
    "float32, R=0": case(lambda: white(30, dtype=np.float32), w0=np.zeros(P, np.float32)),
    "float32, blocks": case(
        lambda: white(48, dtype=np.float32), block=6, memory=8, noise=0.1,
        w0=np.zeros(P, np.float32),
    ),
}  # fmt: skip
SAVED = "R, m", "R=0, repeated rows", "auto", "auto λ", "w0", "heads"


def learner_of(name, model):
    """The learner of a case, on a model of all features or of the features of a process."""
    settings, w0 = {**CASES[name]["settings"]}, CASES[name]["w0"]
    if callable(settings.get("memory")):
        settings["memory"] = settings["memory"]()
    if isinstance(model, orfit.distributed.Linear):
        return orfit.distributed.ORFit(model, w0=None if w0 is None else w0[model.here], **settings)
    return orfit.ORFit(model, w0=w0, **settings)


def model_of(name):
    return orfit.distributed.Linear(P, heads=CASES[name]["heads"], shares=SHARES)


def learn(name, learner, rows=slice(None)):
    """Learn rows of a case, and return what the learner then predicts and holds."""
    given, (X, y) = CASES[name], CASES[name]["make"]()
    X = X[:, getattr(learner.model, "here", slice(None))]
    test, X, y = X[:5], X[rows], y[rows]
    weight = None if given["weight"] is None else given["weight"][rows]
    if given["block"] is None:
        learner.learn_each(X, y, weight)
    else:
        for start in range(0, len(X), given["block"]):
            block = slice(start, start + given["block"])
            learner.learn_batch(X[block], y[block])
    found = {"w": learner.w, "rank": learner.memory.rank, "sigma": learner.memory.sigma}
    found |= {"f": learner.predict(test), "scale": learner.scale, "noise": learner.noise}
    found["health"] = learner.health().dropped
    if given["std"]:
        found["std"] = learner.predict(test, std=True)[1]
    return found


def raised(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def state_of(learner):
    return {name: np.array(array) for name, array in learner.state()[0].items()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def refusals(rank):
    """The errors if x is not finite on process 1, and whether nothing has changed."""
    found = {}
    for noise in (0.0, 0.1, "auto"):
        for bad in (np.nan, np.inf):
            model = orfit.distributed.Linear(P, shares=SHARES)
            learner = orfit.distributed.ORFit(model, 8, noise=noise)
            (X, y), spoiled = white(40), white(40)[0][:, model.here]
            X = X[:, model.here]
            if rank == 1:
                spoiled[::2, 1] = bad
            calls = {
                "learn": lambda: learner.learn(spoiled[0], y[0]),  # noqa: B023
                "learn_batch": lambda: learner.learn_batch(spoiled[:4], y[:4]),  # noqa: B023
                "learn_each": lambda: learner.learn_each(spoiled[:4], y[:4]),  # noqa: B023
                "weight": lambda: learner.learn(spoiled[0], y[0], 2.0),  # noqa: B023
                "weight 0": lambda: learner.learn(spoiled[0], y[0], 0.0),  # noqa: B023
                "predict": lambda: learner.predict(spoiled),  # noqa: B023
                "std": lambda: learner.predict(spoiled, std=True),  # noqa: B023
            }
            for when, rows in (("at first", slice(0)), ("later", slice(HALF))):
                learner.learn_each(X[rows], y[rows])
                for name, call in calls.items():
                    before = state_of(learner)
                    error = raised(call)
                    found[f"{name}, {when}, {bad}, noise={noise}"] = [
                        error, same(before, state_of(learner))
                    ]  # fmt: skip
            learner.learn_each(X[HALF:], y[HALF:])
            found[f"seen, {bad}, noise={noise}"] = [learner.seen, True]
    return found


def saved(folder):
    """Learners that were saved in the middle, and continued here by themselves and once loaded."""
    found = {}
    for name in SAVED:
        learner = learner_of(name, model_of(name))
        learn(name, learner, slice(HALF))
        path = folder / f"two, {name.replace('/', '')}.safetensors"
        learner.save(path)
        loaded = orfit.distributed.load(path, shares=SHARES)
        for kind, one in (("kept", learner), ("loaded", loaded)):
            found |= {
                f"{name}, {kind}: {n}": a for n, a in learn(name, one, slice(HALF, None)).items()
            }
        one = orfit.distributed.load(folder / f"one, {name}.safetensors")
        found |= {f"{name}, of one: {n}": a for n, a in learn(name, one, slice(HALF, None)).items()}
    return found


def errors_of_files(folder, rank):
    learner = learner_of("R, m", model_of("R, m"))
    missing = folder / "missing" / "learner.safetensors"
    return {
        "save": raised(lambda: learner.save(missing)),
        "load": raised(lambda: orfit.distributed.load(missing)),
        "memory": raised(lambda: orfit.distributed.ORFit(model_of("R"), orfit.memory.Sketch(4))),
        "rows": raised(learner.rows),
    }


def main(folder):
    orfit.distributed.start(timeout=60)
    rank, arrays = int(os.environ["RANK"]), {}
    for name in CASES:
        arrays |= {
            f"{name}: {n}": a for n, a in learn(name, learner_of(name, model_of(name))).items()
        }
    arrays |= saved(folder)
    np.savez(folder / f"{rank}.npz", **arrays)
    found = {"refusals": refusals(rank), "files": errors_of_files(folder, rank)}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    learner = learner_of("R, m", model_of("R, m"))
    X, y = white(60)
    for i in range(60):
        if rank == 1 and i == 7:
            os.kill(os.getpid(), 9)
        learner.learn(X[i, learner.model.here], y[i])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
