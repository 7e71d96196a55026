"""What `test_distributed.py` lets several processes do: `python shards.py FOLDER` is one of them.

Each writes what it found to FOLDER; what one process would have found is made by the tests.
"""

import functools
import itertools
import json
import os
import sys
import traceback
from pathlib import Path

import numpy as np
import torch

import orfit
import orfit.distributed

P = 301
STREAM = 60  # rows that are learned by one number of processes, then by another
SHARES = {2: [200, 101], 4: [4, 150, 41, 106]}  # uneven, and one shorter than a block


def white(n, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)).astype(dtype)
    return X, X @ rng.standard_normal(P) / P**0.5 + 0.1 * rng.standard_normal(n)


def at_rest(n):
    """The first rows are short."""
    X, y = white(n)
    scale = np.where(np.arange(n) < 10, 1e-4, 1.0)
    return X * scale[:, None], y * scale


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
    "auto, at rest": case(
        lambda: at_rest(60), memory=8, noise="auto", w0=np.cos(np.arange(P)), rows="plain"
    ),
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

    for rows in ("plain", "coordinates")[: 1 if len(shares) == 2 else 2]:
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


def divergence(folder, shares, rank):
    """Labels that differ are noticed by all, at the next row, or when they save."""
    (X, y), model = white(4), orfit.distributed.Linear(P, shares=shares)
    told = []
    for then in (
        lambda learner: learner.learn(X[1, model.here], y[1]),
        lambda learner: learner.save(folder / f"diverged-{len(shares)}.safetensors"),
    ):
        learner = orfit.distributed.ORFit(model, 8, noise=0.1)
        learner.learn(X[0, model.here], y[0] + 1e-15 * rank * abs(y[0]))
        told.append(raised(functools.partial(then, learner))[0])
    return told


def saved(folder, shares, rank):
    """Saved in the middle, and taken up: bit by bit as if it had gone on."""
    found = {}
    for name in ("R, m", "blocks, few", "auto", "auto, at rest", "Sketch", "w0"):
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


# Networks, which every process has whole.


def network(outputs=1, dtype=torch.float64, seed=0):
    """Of P parameters, too."""
    inputs, hidden = (4, 50) if outputs == 1 else (3, 43)
    torch.manual_seed(seed)
    last = torch.nn.Linear(hidden, outputs, bias=outputs == 1)
    made = torch.nn.Sequential(torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), last)
    return made.to(dtype)


def curved(n, inputs=4, outputs=1):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, inputs))
    Y = np.sin(X @ rng.standard_normal((inputs, outputs)))
    return X, Y[:, 0] if outputs == 1 else Y


def net(learn="each", outputs=1, dtype=torch.float64, weight=None, said=None, **made):
    """How a network learns, and the settings of its model and of its learner."""
    return {"learn": learn, "outputs": outputs, "dtype": dtype, "weight": weight,
            "said": said or {}, "made": made}  # fmt: skip


ROWS = 30
WEIGHTS = np.resize([1.0, 0.0, 2.5, 1.0], ROWS)
AT_W = {
    "R=0": net(),
    "R=0, m": net(memory=8),
    "R": net(noise=0.1),
    "R, m": net(memory=8, noise=0.1),
    "blocks, R=0": net(learn=5),
    "blocks, R, m": net(learn=5, memory=8, noise=0.1),
    "outputs": net(outputs=3, memory=12, noise=0.1),
    "outputs, blocks": net(outputs=3, learn=5, memory=12, noise=0.1),
    "λ": net(memory=8, noise=0.1, forgetting=0.95),
    # With noise=1 float32 is 4e-6 of a prediction away from float64, in one process, too.
    "float32": net(memory=8, noise=10.0, dtype=torch.float32),
    "weights": net(memory=8, noise=0.1, weight=WEIGHTS),
    "prior": net(memory=8, noise=0.1, said={"prior": 4.0}),
    "auto": net(memory=8, noise="auto"),
    "w0": net(memory=8, noise=0.1, w0=np.cos(np.arange(P))),
}
NETWORKS = AT_W | {
    f"tangent, {name}": told | {"said": told["said"] | {"tangent": True}}
    for name, told in AT_W.items()
}
NETWORKS["tangent, coordinates"] = net(
    memory=8, noise=0.1, said={"tangent": True}, way="coordinates"
)

# Two processes are for the default suite: of networks on their tangent, they have a few.
ON_FOUR_ONLY = {
    *(f"tangent, {name}" for name in AT_W if name not in ("R=0", "R, m", "outputs")),
    "tangent, coordinates",
}


def networks(count):
    return [name for name in NETWORKS if count == 4 or name not in ON_FOUR_ONLY]


COUNTED_NETWORKS = ("R=0", "R, m", "λ", "tangent, R=0", "tangent, R, m")


def network_learner(name, spread, shares=None):
    told = NETWORKS[name]
    made = {**told["made"]}
    made["rows"] = made.pop("way", "plain")
    model = orfit.TorchModel(network(told["outputs"], told["dtype"]), **told["said"])
    if not spread:
        return orfit.ORFit(model, **made)
    return orfit.distributed.ORFit(orfit.distributed.Whole(model, shares=shares), **made)


def network_learned(name, learner, some=slice(None)):
    """Let it learn some of the rows: w, predictions and how sure they are."""
    told = NETWORKS[name]
    outputs = told["outputs"]
    X, Y = curved(ROWS, 4 if outputs == 1 else 3, outputs)
    if told["learn"] == "each":
        learner.learn_each(X[some], Y[some], None if told["weight"] is None else WEIGHTS[some])
    else:
        for start in range(*some.indices(len(X))[:2], told["learn"]):
            rows = slice(start, start + told["learn"])
            learner.learn_batch(X[rows], Y[rows])
    return np.asarray(learner.w), *learner.predict(X, std=True)


def network_messages(name, shares):
    """The most that a step took: sums, and parameters put together."""
    learner, (X, y) = network_learner(name, True, shares), curved(ROWS)
    processes, each = learner.model.processes, []
    for i in range(ROWS):
        before = processes.exchanges, processes.gathers
        learner.learn(X[i], y[i])
        each.append((processes.exchanges - before[0], processes.gathers - before[1]))
    return [max(numbers) for numbers in zip(*each, strict=True)]


class Spoiled(orfit.TorchModel):
    """One that does on one process what it should not."""

    how = None

    def _at(self, w, X, classes):
        F, G = super()._at(w, X, classes)
        if self.how == "fails":
            raise RuntimeError("no memory on this device")
        if self.how == "gradient":
            G[self.where] = np.nan
        return F * (np.nan if self.how == "prediction" else 1), G


def network_refusals(shares, rank):
    """What one process refuses, or finds not finite, and what it and the others then raise."""
    found, on_1 = {}, rank == 1
    models = (False, "plain"), (True, "plain"), (True, "coordinates")
    kinds = list(itertools.product(models, (1, 3)))
    for (tangent, way), outputs in kinds[1:3] if len(shares) == 2 else kinds:
        model = Spoiled(network(outputs), tangent=tangent)
        whole = orfit.distributed.Whole(model, shares=shares)
        model.where = whole.here.start
        learner = orfit.distributed.ORFit(whole, 12, noise=0.1, rows=way)
        X, Y = curved(20, 4 if outputs == 1 else 3, outputs)
        bad, missing = X.copy(), Y.copy()
        bad[3, 0], missing[3] = np.nan, np.nan

        def tries(learner, X=X, Y=Y, bad=bad, missing=missing):
            x, some = (bad[3] if on_1 else X[3]), (bad if on_1 else X)
            return {
                "x": lambda: learner.learn(x, Y[3]),
                "y": lambda: learner.learn(X[3], missing[3] if on_1 else Y[3]),
                "batch": lambda: learner.learn_batch(some, Y),
                "each": lambda: learner.learn_each(some, Y),
                "weight": lambda: learner.learn(X[0], Y[0], -1.0 if on_1 else 1.0),
                "predict": lambda: learner.predict(some),
                "std": lambda: learner.predict(some, std=True),
            }

        for time in ("first", "later"):
            for name, call in tries(learner).items():
                before = state_of(learner)
                told = raised(call)
                key = f"{name}, {time}, {tangent}, {way}, {outputs}"
                found[key] = [told, same(before, state_of(learner))]
            for how, many in itertools.product(("gradient", "prediction", "fails"), (0, 5)):
                before, model.how = state_of(learner), how if on_1 else None
                learn = learner.learn_each if many else learner.learn
                some = slice(many) if many else 3
                told = raised(functools.partial(learn, X[some], Y[some]))
                key = f"{how}, {many} rows, {time}, {tangent}, {way}, {outputs}"
                model.how = None
                found[key] = [told, same(before, state_of(learner))]
            learner.learn_each(X, Y)  # and it goes on
            learner.predict(X)
        found[f"after, {tangent}, {way}, {outputs}"] = [None, learner.seen == 40]
    unlike = orfit.TorchModel(network(seed=rank))
    found["unlike"] = [raised(lambda: orfit.distributed.ORFit(unlike, 8)), True]
    return found


def network_saved(folder, shares):
    """Saved in the middle, and taken up: bit by bit as if it had gone on."""
    found = {}
    for name in ("R, m", "tangent, outputs", "auto"):
        learner = network_learner(name, True, shares)
        network_learned(name, learner, slice(20))
        path = folder / f"network-{name}-{len(shares)}.safetensors"
        learner.save(path)
        loaded = orfit.distributed.load(path, model=learner.model)
        for one in (learner, loaded):
            network_learned(name, one, slice(20, ROWS))
        found[name] = same(state_of(learner), state_of(loaded))
    return found


def network_resumed(folder, shares):
    """Go on from what another number of processes had saved, or one."""
    found = {}
    for path in sorted(folder.glob("network-*.safetensors")):
        name = path.name.split("-")[1]
        model = network_learner(name, True, shares).model
        learner = orfit.distributed.load(path, model=model)
        found[path.name] = network_learned(name, learner, slice(20, ROWS))[0]
    return found


def main(folder, kill):
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shares, found, arrays = SHARES[count], {}, {}
    orfit.distributed.start(timeout=60)
    for name in CASES:
        learner = learner_of(name, True, shares)
        told = learned(name, learner, learner.model.here)
        arrays |= {f"{name}: w": learner.w, f"{name}: f": told[0], f"{name}: std": told[1]}
        found[name] = learner.seen
    found["counts"] = {stream: messages(stream, "m", 40, 1, shares) for stream in COUNTED_HERE}
    found["refusals"] = refusals(shares, rank)
    found["saved"] = saved(folder, shares, rank)
    for name, (seen, w) in resumed(folder, rank).items():
        arrays[f"{name}: w"], found[name] = w, seen
    for name in networks(count):
        learner = network_learner(name, True, shares)
        told = dict(zip(("w", "f", "std"), network_learned(name, learner), strict=True))
        arrays |= {f"network, {name}: all of {what}": numbers for what, numbers in told.items()}
    found["network_counts"] = {name: network_messages(name, shares) for name in COUNTED_NETWORKS}
    found["network_saved"] = network_saved(folder, shares)
    for name, w in network_resumed(folder, shares).items():
        arrays[f"{name}: all of w"] = w
    found["network_refusals"] = network_refusals(shares, rank)
    found["divergence"] = divergence(folder, shares, rank)
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
