"""`examples/dask_folder.py` on a cluster of processes, beside one learner that saw all rows."""

import importlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import orfit

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

EXAMPLES = str(Path(__file__).parents[1] / "examples")
FILES, COLUMNS = 7, 12


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)  # which workers inherit
        yield importlib.import_module("dask_folder")


@pytest.fixture(scope="module")
def client(example):
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Parquet files, and all of their rows."""
    path, rng = tmp_path_factory.mktemp("rows"), np.random.default_rng(0)
    X, y = rng.standard_normal((350, COLUMNS)), rng.standard_normal(350)
    for i, part in enumerate(np.array_split(np.arange(350), FILES)):
        columns = {f"x{j}": X[part, j] for j in range(COLUMNS)} | {"power": y[part]}
        pq.write_table(pa.table(columns), path / f"part-{i}.parquet")
    return path, X, y


def single(example, X, y):
    learner = example.new(COLUMNS)
    learner.learn_each(X, y)
    return learner


def check_alike(learner, whole):
    assert learner.seen == whole.seen
    assert np.abs(learner.w - whole.w).max() <= 1e-10
    assert np.abs(learner.memory.sigma - whole.memory.sigma).max() <= 1e-10


def test_a_folder_is_learned_as_by_one(example, client, folder, tmp_path, capsys):
    path, X, y = folder
    example.main(str(path), "power", tmp_path / "learner", client.scheduler.address)
    assert capsys.readouterr().out == "350 rows of 7 files learned\n"
    check_alike(orfit.load(tmp_path / "learner"), single(example, X, y))


def test_a_worker_that_is_killed_is_recomputed(example, client, folder, tmp_path):
    """One dies while it learns, and another when its learners wait to be merged."""
    path, X, y = folder
    files = sorted(str(file) for file in path.glob("*.parquet"))
    log = tmp_path / "log"
    learn = example.learned

    def noted(file):
        with open(log, "a") as lines:  # one write, of which none is lost
            lines.write(f"{Path(file).name}\n")
        if file.endswith("part-3.parquet") and log.read_text().count("part-3") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return learn(file, "power")

    parts = [client.submit(noted, file) for file in files]
    distributed.wait(parts, timeout=60)
    assert log.read_text().count("part-3") == 2
    begun = len(log.read_text().split())
    holds = {address: len(keys) for address, keys in client.has_what().items()}
    pids = client.run(os.getpid)
    address = max(holds, key=holds.get)
    assert holds[address] > 0
    os.kill(pids[address], signal.SIGKILL)
    check_alike(example.folded(client, parts).result(timeout=60), single(example, X, y))
    assert len(log.read_text().split()) > begun  # what it held was learned again
