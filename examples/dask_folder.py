"""A folder of parquet files, learned in parallel by Dask and merged into one learner.

    python examples/dask_folder.py rows/ power learner.safetensors [tcp://scheduler:8786]

Each file (or row group, or whatever can be read by itself) is learned by some worker; learners are
merged in pairs, as they are done. A worker that dies takes nothing along: Dask computes again what
it had.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from dask.distributed import Client, Future

import orfit


def new(columns: int) -> Any:
    """What every worker begins with: the same model, noise and w0."""
    return orfit.ORFit(orfit.Linear(columns, bias=True), noise=0.1)


def learned(path: str, target: str) -> Any:
    """A learner of one file, every column but the target an input."""
    table = pq.read_table(path)
    names = [name for name in table.column_names if name != target]
    learner = new(len(names))
    learner.learn_each(np.column_stack([table[name] for name in names]), np.asarray(table[target]))
    return learner


def merged(*learners: Any) -> Any:
    return orfit.merge(learners)


def folded(client: Client, parts: list[Future]) -> Future:
    """All of them as one, by pairs: so no worker holds more than a few."""
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [client.submit(merged, *pair) for pair in pairs]
    return parts[0]


def main(folder: str, target: str, out: str, scheduler: str | None = None) -> None:
    paths = sorted(str(path) for path in Path(folder).glob("*.parquet"))
    with Client(scheduler, threads_per_worker=1) if scheduler is None else Client(scheduler) as on:
        parts = [on.submit(learned, path, target) for path in paths]
        learner = folded(on, parts).result()
    learner.save(out)
    print(f"{learner.seen} rows of {len(paths)} files learned")


if __name__ == "__main__":
    main(*sys.argv[1:])
