"""`orfit learn`, compared with `learn_each` on the same rows in memory: reading, scoring, records.

Both are timed in alternation, several times. Seconds are CPU time; the last two columns are the
share of `learn_each` in CPU time and in wall-clock time.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from orfit.stream.encoding import Choice
from orfit.stream.run import Run
from orfit.stream.session import Session
from orfit.stream.setup import Setup
from orfit.stream.source import Source

COLUMNS = 20


class Silent:
    def waiting(self, rows, wanted): ...
    def begun(self, session, again): ...
    def learned(self, session, share): ...
    def notice(self, text): ...
    def saved(self, session, path): ...


def write_table(path, rows):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, COLUMNS)) @ rng.standard_normal((COLUMNS, COLUMNS)) / 4
    y = np.sin(X[:, 0]) + X @ rng.standard_normal(COLUMNS) + 0.1 * rng.standard_normal(rows)
    pq.write_table(pa.table({f"x{i}": x for i, x in enumerate(X.T)} | {"y": y}), path)


def read_clocks():
    return np.array([time.process_time(), time.perf_counter()])


def compare(path, features):
    """Return CPU and wall-clock seconds of the command, and of `learn_each` alone."""
    choice, options = Choice(("y",)), Setup(features=features)
    run = Run([str(path)], Silent())
    start = read_clocks()
    session = run.learn(None, choice, options)
    command = read_clocks() - start
    blocks = list(Source.of([str(path)]).blocks())
    few = [blocks[0].split(options.warmup)[0]]
    learner = Session.begun(choice, options, few).learner
    encoded = [session.encoding.encode(block) for block in blocks]
    phi = session.features.make(np.vstack([each.X for each in encoded]))
    y = np.vstack([each.Y for each in encoded])[:, 0]
    start = read_clocks()
    learner.learn_each(phi, y)
    return command, read_clocks() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="of raw columns")
    parser.add_argument("--fourier-rows", type=int, default=10_000, help="of fourier:1000")
    parser.add_argument("--times", type=int, default=5, help="repeats, for medians")
    options = parser.parse_args()
    titles = f"{'features':<14}{'rows':>10}{'command':>10}{'learn_each alone':>18}"
    print(f"{titles}{'share':>8}{'clock':>8}")
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "rows.parquet"
        for features, rows in (("raw", options.rows), ("fourier:1000", options.fourier_rows)):
            write_table(path, rows)
            times = np.array([compare(path, features) for _ in range(options.times)])
            command, alone = np.median(times[:, :, 0], axis=0)
            share, clock = np.median(times[:, 1] / times[:, 0], axis=0)
            cells = f"{rows:>10,}{command:>8.2f} s{alone:>16.2f} s{share:>8.2f}{clock:>8.2f}"
            print(f"{features:<14}{cells}", flush=True)


if __name__ == "__main__":
    main()
