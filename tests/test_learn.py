"""`orfit learn`: a stream from the command line, with nothing lost."""

import csv
import fcntl
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("typer")

import pyarrow.parquet as pq

import orfit
from orfit import cli
from orfit.stream import history, saved
from orfit.stream.bookmarks import _begins
from orfit.stream.encoding import Choice
from orfit.stream.forecast import Forecast
from orfit.stream.run import Run, Saving
from orfit.stream.session import Session
from orfit.stream.setup import Setup
from orfit.stream.source import Source

ROWS = 1500
KINDS = ("csv", "csv.gz", "jsonl", "parquet")


def columns(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    group = rng.choice(["north", "south"], rows)
    y = 5 + 2 * X[:, 0] - X[:, 1] + (group == "north") + 0.1 * rng.standard_normal(rows)
    when = np.datetime64("2024-01-01") + np.arange(rows) * np.timedelta64(10, "m")
    made = {"a": X[:, 0], "b": 100 + 10 * X[:, 1], "c": X[:, 2], "group": group}
    return made | {"when": when.astype("datetime64[us]"), "y": 3 * y, "z": X[:, 2] + y}


def put(path, table, start=0, stop=None):
    """A file of the kind that its name says."""
    rows = slice(start, stop)
    kind = "".join(Path(path).suffixes)
    if kind == ".parquet":
        pq.write_table(pa.table({n: v[rows] for n, v in table.items()}), path, row_group_size=400)
        return str(path)
    texts = {n: [str(v) for v in np.asarray(values)[rows]] for n, values in table.items()}
    lines = zip(*texts.values(), strict=True)
    with (gzip.open if kind.endswith(".gz") else open)(path, "wt", newline="") as file:
        if kind == ".jsonl":
            for line in lines:
                file.write(json.dumps(dict(zip(texts, map(_value, line), strict=True))) + "\n")
        else:
            csv.writer(file).writerows([texts, *lines])
    return str(path)


def _value(text):
    try:
        return float(text)
    except ValueError:
        return text


class Witness:
    """Takes note of all that a view is told, and copies checkpoints."""

    def __init__(self, folder=None):
        self.folder, self.notices, self.copies = folder, [], []

    def waiting(self, rows, wanted):
        pass

    def begun(self, session, again):
        self.again = again

    def learned(self, session, share):
        self.share = share

    def notice(self, text):
        self.notices.append(text)

    def saved(self, session, path):
        if self.folder:
            self.copies.append(self.folder / f"copy{len(self.copies)}")
            shutil.copy(path, self.copies[-1])


def learn(paths, checkpoint=None, view=None, every=None, choice=None, **setup):
    """A run in this process."""
    choice = choice or Choice(("y",))
    options = Setup(**{"warmup": 300, "features": "raw"} | setup)
    session = saved.load(checkpoint) if checkpoint and Path(checkpoint).exists() else None
    if session:
        choice, options = session.encoding.choice, session.options
    saving = Saving(Path(checkpoint) if checkpoint else None, every, None)
    return Run(paths, view or Witness(), saving).learn(session, choice, options)


def by_hand(table, warmup, target="y"):
    """Columns, scaled by their first rows, typed out."""
    made = []
    for name in ("a", "b", "c"):
        first = table[name][:warmup]
        made.append((table[name] - first.mean()) / first.std())
    y = table[target]
    return np.column_stack(made), (y - y[:warmup].mean()) / y[:warmup].std(), y[:warmup].std()


def test_it_is_rls_on_scaled_columns(tmp_path):
    """As if one had scaled the columns and called the library."""
    table = columns()
    session = learn([put(tmp_path / "t.csv", table)], choice=Choice(("y",), only=("a", "b", "c")))
    X, y, unit = by_hand(table, 300)
    prior = float(session.learner.memory.prior)
    twin = orfit.RLS(orfit.Linear(3, bias=True), prior=prior)
    made = twin.learn_each(X, y).prediction
    rmse = unit * np.sqrt(np.mean((y - made) ** 2))
    assert session.scores.read()["orfit"]["rmse"][0] == pytest.approx(rmse, rel=1e-9)
    np.testing.assert_allclose(session.learner.w, twin.w, atol=1e-9)
    assert session.rows == session.learner.seen == ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_of_files_give_the_same(kind, tmp_path):
    table = columns(600)
    choice = Choice(("y",), ignore=("when",))
    session = learn([put(tmp_path / f"t.{kind}", table)], choice=choice)
    twin = learn([put(tmp_path / "twin.csv", table)], choice=choice)
    assert np.array_equal(session.learner.w, twin.learner.w)


SETUPS = {
    "fourier": {"features": "fourier:20", "versus": ("sgd", "rls", "one-step"), "holdout": 0.1},
    "lags": {"features": "lags:2+poly:2", "memory": 5, "probes": 3, "forgetting": 0.99},
    "auto": {"features": "lags:2", "memory": 5, "noise": 0.1, "forgetting": "auto"},
}


@pytest.mark.parametrize(
    ("kind", "setup"),
    [("csv", "fourier"), ("csv.gz", "auto"), ("jsonl", "lags"), ("parquet", "lags")],
)
def test_going_on_from_any_checkpoint_ends_the_same_bit_for_bit(kind, setup, tmp_path):
    path = put(tmp_path / f"t.{kind}", columns(800))
    view, choice = Witness(tmp_path), Choice(("y",), only=("a", "b", "c", "when"))
    learn([path], tmp_path / "c", view, 100, choice, **SETUPS[setup])
    end = (tmp_path / "c").read_bytes()
    assert len(view.copies) > 3
    for copy in view.copies[:-1]:
        again = Witness()
        learn([path], copy, again)
        assert again.again
        assert copy.read_bytes() == end


@pytest.mark.parametrize("kind", ["csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_going_on_where_pieces_have_grown_ends_the_same_bit_for_bit(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST", 4)
    path, view = put(tmp_path / f"t.{kind}", columns(6000)), Witness(tmp_path)
    session = learn([path], tmp_path / "c", view, 100, Choice(("y",), only=("a", "b", "c")))
    assert session.piece == session.history.every == 2048
    end = (tmp_path / "c").read_bytes()
    assert len(view.copies) > 8
    for copy in view.copies[1:-1:3]:
        learn([path], copy)
        assert copy.read_bytes() == end


def test_lines_of_the_history_do_not_depend_on_what_comes_together(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST", 8)
    table = columns(6000)
    table["a"][3000:3100] = np.nan
    path = put(tmp_path / "t.csv", table)
    choice = Choice(("y",), only=("a", "b", "c"), missing="skip")
    whole = learn([path], choice=choice, holdout=0.1)
    (rest,) = Source.of([path]).blocks()
    few, _ = rest.split(300)
    twin = Session.begun(choice, whole.options, [few])
    for size in (300, 1, 700, 2, 50, 3000):
        part, rest = rest.split(size)
        twin.learn([part])
    twin.learn([rest])
    assert [line["rows"] for line in twin.history.lines] == [1024, 2048, 3072, 4096, 5120]
    for one, two in zip(whole.history.lines, twin.history.lines, strict=True):
        assert one.keys() == two.keys()
        for name in one:
            if name != "skipped":  # is known of all that came together
                np.testing.assert_allclose(two[name] or 0, one[name] or 0, rtol=1e-6, err_msg=name)


def test_several_files_are_one_stream(tmp_path):
    table = columns()
    parts = [put(tmp_path / f"{i}.csv", table, 500 * i, 500 * i + 500) for i in range(3)]
    session = learn(parts, tmp_path / "c", warmup=700)
    whole = learn([put(tmp_path / "whole.csv", table)], warmup=700)
    np.testing.assert_allclose(session.learner.w, whole.learner.w, atol=1e-12)
    assert session.rows == whole.rows == ROWS


def test_tomorrow_only_what_is_new_is_learned(tmp_path):
    """A file that has grown, another one, and those that were learned before."""
    table = columns()
    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    put(first, table, 0, 600)
    learn([str(first)], tmp_path / "c")
    assert saved.load(tmp_path / "c").rows == 600
    put(first, table, 0, 1000)
    put(second, table, 1000)
    moved = shutil.move(first, tmp_path / "moved.csv")
    session = learn([str(moved), str(second), str(moved)], tmp_path / "c")
    assert session.rows == ROWS
    assert learn([str(second)], tmp_path / "c").rows == ROWS
    whole = learn([put(tmp_path / "whole.csv", table)], warmup=600)
    assert session.scores.read()["orfit"]["rmse"] == pytest.approx(
        whole.scores.read()["orfit"]["rmse"], rel=0.05
    )


@pytest.mark.parametrize("rows", [100, 1200], ids=["short", "longer than is looked at"])
def test_a_file_that_begins_like_another_is_itself(rows, tmp_path):
    """Also where it comes after a save, by the same command again, and under another name."""
    table = columns(rows + 300)
    first, whole = tmp_path / "first.csv", tmp_path / "whole.csv"
    paths = [put(first, table, 0, rows), put(whole, table)]
    view, all_rows = Witness(tmp_path), 2 * rows + 300
    assert learn(paths, tmp_path / "c", view, 50, warmup=50).rows == all_rows
    end = (tmp_path / "c").read_bytes()
    for copy in view.copies:
        assert learn(paths, copy).rows == all_rows
        assert copy.read_bytes() == end
    moved = [str(shutil.move(path, tmp_path / f"{path.name}.csv")) for path in (first, whole)]
    for order in (moved, moved[::-1], moved[:1], moved[1:]):
        session = learn(order, tmp_path / "c")
        assert session.rows == all_rows
        assert len(session.bookmarks.files) == 2


@pytest.mark.parametrize("missing", ["skip", "mean"])
def test_missing_and_wrong_values(missing, tmp_path):
    table = {name: list(values) for name, values in columns(800).items()}
    table["a"][500], table["b"][510], table["y"][520] = "", "bad", "NA"
    path = put(tmp_path / "t.csv", table)
    with open(path, "a") as file:
        file.write("1,2\n")
    table["b"][511] = "worse"
    put(tmp_path / "t.csv", table)
    with open(path, "a") as file:
        file.write("1,2\n")
    view = Witness()
    session = learn([path], view=view, choice=Choice(("y",), ignore=("when",), missing=missing))
    assert session.skipped == (5 if missing == "skip" else 2)  # a target is not filled in
    assert session.rows == 801 - session.skipped
    (told,) = [text for text in view.notices if "is not a number" in text]  # once a column
    assert "line 512, column b: 'bad' is not a number; " in told
    assert ("rows are left out" if missing == "skip" else "the mean of the first") in told


@pytest.mark.parametrize(
    ("row", "column", "value", "said"),
    [
        (500, "a", "", "t.csv, line 502, column a: there is no value"),
        (500, "a", "bad", "t.csv, line 502, column a: 'bad' is not a number"),
        (500, "a", "inf", "t.csv, line 502, column a: 'inf' is too large"),
        (500, "a", "-1e100", "t.csv, line 502, column a: '-1e100' is too large"),
        (501, "y", "NA", "t.csv, line 503, column y: there is no value"),
        (502, "when", "yesterday", "t.csv, line 504, column when: 'yesterday' is not a date"),
        (3, "a", "x y", "t.csv, line 5, column a: 'x y' is not a number"),
    ],
)
def test_a_wrong_value_is_told_with_its_place_and_what_came_before_is_saved(
    row, column, value, said, tmp_path, capsys
):
    table = {name: list(values) for name, values in columns(800).items()}
    table[column][row] = value
    path, checkpoint = put(tmp_path / "t.csv", table), tmp_path / "c"
    arguments = ["learn", path, "--target", "y", "--checkpoint", str(checkpoint)]
    assert cli.main([*arguments, "--warmup", "300", "--features", "raw"]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path}/{said}" in error
    assert "Traceback" not in error
    if row < 300:
        assert not checkpoint.exists()
        return
    assert saved.load(checkpoint).rows == 256
    table[column][row] = columns(800)[column][row]
    put(path, table)
    assert cli.main([*arguments, "--quiet"]) == 0
    assert saved.load(checkpoint).rows == 800


def test_an_error_says_what_is_saved_and_its_advice_can_be_followed(tmp_path, capsys):
    table = {name: list(values) for name, values in columns(800).items()}
    table["a"][600] = "bad"
    checkpoint = tmp_path / "c"
    arguments = ["learn", put(tmp_path / "t.csv", table), "--checkpoint", str(checkpoint)]
    arguments += ["--target", "y", "--warmup", "300", "--features", "raw", "--quiet"]
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert "--missing skip leaves" in error
    assert f"; what came before is saved: {checkpoint} after 512 rows" in error
    assert cli.main(arguments) == 2  # in which nothing was learned, and nothing was saved
    assert "is saved" not in capsys.readouterr().err
    assert cli.main([*arguments, "--missing", "skip"]) == 0
    session = saved.load(checkpoint)
    assert (session.rows, session.skipped) == (799, 1)
    assert session.encoding.choice.missing == "skip"
    twin = learn([arguments[1]], choice=Choice(("y",), missing="skip"))
    assert np.array_equal(session.learner.w, twin.learner.w)


def test_a_column_that_leaves_its_scale_is_told_once(tmp_path):
    table = {name: list(values) for name, values in columns(900).items()}
    table["a"][700], table["a"][800] = 1e6, 2e6
    view = Witness()
    learn([put(tmp_path / "t.csv", table)], view=view)
    (told,) = [text for text in view.notices if "standard deviations" in text]
    assert "line 702, column a: 1e+06" in told


def test_rows_held_out_are_never_learned(tmp_path):
    table = columns()
    path = put(tmp_path / "t.csv", table)
    session = learn([path], holdout=0.1, choice=Choice(("y",), only=("a", "b", "c")))
    X, y, unit = by_hand(table, 300)
    held = session.held
    assert 100 < held.count < 200
    assert session.learner.seen == ROWS - held.count
    # Each is one of the stream, and predicting it is what the table says.
    places = [int(np.argmin(np.abs(X - x).sum(axis=1))) for x in held.X]
    np.testing.assert_allclose(X[places], held.X, atol=1e-12)
    left = np.delete(np.arange(ROWS), places)
    twin = orfit.RLS(
        orfit.Linear(3, bias=True),
        prior=float(session.learner.memory.prior),
    )
    twin.learn_each(X[left], y[left])
    error = unit * (y[places] - twin.predict(X[places]))
    found = session.on_held()["orfit"]
    assert found["rmse"][0] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    assert found["inside"][0] > 0.85


def test_classes_that_come_later(tmp_path):
    rng = np.random.default_rng(0)
    centres = 4 * rng.standard_normal((4, 2))
    kind = np.concatenate([rng.integers(0, 2, 600), rng.integers(0, 4, 900)])
    X = centres[kind] + rng.standard_normal((1500, 2))
    table = {"a": X[:, 0], "b": X[:, 1], "kind": np.array(["red", "blue", "green", "7"])[kind]}
    path = put(tmp_path / "t.csv", table)
    view = Witness(tmp_path)
    choice = Choice(("kind",), classify=True)
    session = learn([path], tmp_path / "c", view, 200, choice, versus=("rls",), features="poly:2")
    classes = session.encoding.target.classes
    assert sorted(classes) == ["7", "blue", "green", "red"]
    told = session.scores.read(lately=True)
    assert told["orfit"]["accuracy"][0] > 0.8
    assert told["majority"]["accuracy"][0] < 0.5
    assert told["orfit"]["kappa"][0] > 0.7
    # As if all classes had been there from the start.
    Z = (X - X[:300].mean(axis=0)) / X[:300].std(axis=0)
    phi = np.column_stack([Z, Z[:, 0] ** 2, Z[:, 0] * Z[:, 1], Z[:, 1] ** 2])
    twin = orfit.RLS(orfit.Linear(5, heads=4, bias=True))
    twin.learn_each(phi, np.eye(4)[[classes.index(name) for name in table["kind"]]])
    np.testing.assert_allclose(session.rivals["rls"].w, twin.w, atol=1e-9)
    end = (tmp_path / "c").read_bytes()
    for copy in view.copies[:-1]:
        learn([path], copy)
        assert copy.read_bytes() == end


def test_several_targets(tmp_path):
    path = put(tmp_path / "t.csv", columns())
    both = learn([path], choice=Choice(("y", "z"), ignore=("when",)))
    told = both.scores.read()["orfit"]["rmse"]
    for i, name in enumerate(("y", "z")):
        other = {"y": "z", "z": "y"}[name]
        one = learn([path], choice=Choice((name,), ignore=("when", other)))
        assert told[i] == pytest.approx(one.scores.read()["orfit"]["rmse"][0], rel=0.05)


def run(*arguments, **settings):
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "orfit", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, **settings)


def test_a_row_of_a_pipe_is_learned_when_it_arrives(tmp_path):
    table = columns(400)
    lines = Path(put(tmp_path / "t.csv", table)).read_text().splitlines(keepends=True)
    process = run(
        "learn", "-", "--target", "y", "--warmup", 300, "--features", "raw", "--json",
        "--report", 1, "--probes", 0,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    process.stdin.writelines(lines[:301])
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["rows"] >= 256
    while json.loads(process.stdout.readline())["rows"] < 300:
        pass
    for row in range(301, 311):
        process.stdin.write(lines[row])
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["rows"] == row
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize(
    ("number", "code", "rows"),
    [
        pytest.param(signal.SIGINT, 130, 50, marks=pytest.mark.slow),
        (signal.SIGTERM, 143, 600),
    ],
)
def test_signals_end_it_after_what_was_learned_is_saved(number, code, rows, tmp_path):
    """Also while it waits for the first rows: all of those are learned too, in several pieces."""
    lines = Path(put(tmp_path / "t.csv", columns(rows))).read_text().splitlines(keepends=True)
    process = run(
        "learn", "-", "--target", "y", "--checkpoint", tmp_path / "c", "--features", "raw",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.writelines(lines)
    process.stdin.flush()
    while int.from_bytes(fcntl.ioctl(process.stdin, termios.FIONREAD, b"\0" * 4), sys.byteorder):
        time.sleep(0.1)  # until all is read
    time.sleep(1)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"saved: {tmp_path / 'c'} after {rows} rows" in error
    assert "the same command goes on" in error
    assert saved.load(tmp_path / "c").rows == rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_killed_at_random_moments(kind, tmp_path):
    """Eight times each: what is left goes on to the same end."""
    path, checkpoint = put(tmp_path / f"t.{kind}", columns(60_000)), tmp_path / "c"
    rng, kills = random.Random(kind), 0
    arguments = ["learn", path, "--target", "y", "--features", "fourier:30", "--every", 300]
    process = run(*arguments, "--checkpoint", tmp_path / "whole", stdout=subprocess.DEVNULL)
    assert process.wait(600) == 0
    end = (tmp_path / "whole").read_bytes()
    while kills < 8:
        process = run(*arguments, "--checkpoint", checkpoint, stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            process.wait(rng.uniform(1.0, 5.0))
            assert checkpoint.read_bytes() == end
            checkpoint.unlink()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    process = run(*arguments, "--checkpoint", checkpoint, stdout=subprocess.DEVNULL)
    assert process.wait(600) == 0
    assert checkpoint.read_bytes() == end


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.csv", "--target", "y"], "nothing.csv"),
        (["{t}"], "--target must name"),
        (["{t}", "--target", "power"], "has no column power, which --target names; it has a, b"),
        (["{t}", "--target", "y", "--ignore", "q"], "has no column q, which --ignore names"),
        (["{t}", "--target", "group"], "the target group is a category, not a number"),
        (["{t}", "--target", "y", "--features", "cubic"], "--features cubic is not known"),
        (["{t}", "--target", "y", "--features", "fourier:0"], "needs a whole number"),
        (["{t}", "--target", "y", "--versus", "adam"], "--versus knows sgd, rls, one-step, not"),
        (["{t}", "--target", "y", "--memory", "-3"], "--memory must be a whole number from 1 on"),
        (["{t}", "--target", "y", "--noise", "much"], "--noise must be a number or auto"),
        (["{t}", "--target", "y", "--forgetting", "2"], "--forgetting must be in"),
        (["{t}", "--target", "y", "--holdout", "1"], "--holdout must be at most"),
        (["{t}", "--target", "y", "--missing", "drop"], "--missing must be error, skip or mean"),
        (["{t}", "--target", "y", "--every", "never"], "--every must be rows"),
        (["{t}", "--target", "y", "--budget", "some"], "--budget must be a size"),
        (["{t}", "--target", "y", "--budget", "1KB"], "more than --budget allows"),
        (["{t}", "--target", "y,y"], "names a column twice"),
        (["{german}", "--target", "y"], "column d holds texts such as '31.1.2024': dates that"),
        (["{comma}", "--target", "y"], "column d holds texts such as '15,13': numbers with a"),
        (["{comma}", "--target", "d", "--ignore", "y"], "column d holds texts such as '15,13'"),
        (["{t}", "--target", "y", "--only", "y"], "column y is the target"),
        (["{empty}", "--target", "y"], "empty.csv is empty"),
        (["{header}", "--target", "y"], "there are no rows"),
        (["{t}", "--target", "y", "--checkpoint", "{t}"], "is truncated, or not an orfit"),
        (
            ["{t}", "--target", "group", "--classify", "--features", "lags:2"],
            "lags are for numbers",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_and_2(arguments, said, tmp_path, capsys):
    put(tmp_path / "t.csv", columns(100))
    (tmp_path / "empty.csv").touch()
    (tmp_path / "header.csv").write_text("a,y\n")
    (tmp_path / "german.csv").write_text("d,y\n31.1.2024,1\n31.1.2024,2\n1.2.2024,3\n")
    (tmp_path / "comma.csv").write_text("d;y\n15;1\n15,13;2\n1.015,2;3\n-,5;4\n")
    names = {path.stem: str(path) for path in tmp_path.iterdir()}
    assert cli.main(["learn", *(each.format(**names) for each in arguments)]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert not told.out


def test_other_options_than_those_it_was_begun_with(tmp_path, capsys):
    path = put(tmp_path / "t.csv", columns(400))
    begin = [
        "learn",
        path,
        "--target",
        "y",
        "--checkpoint",
        str(tmp_path / "c"),
        "--features",
        "raw",
    ]
    assert cli.main(begin) == 0
    assert cli.main([*begin[:-1], "poly:2"]) == 2
    assert "was begun with --features raw, not poly:2" in capsys.readouterr().err
    assert cli.main(begin[:2] + begin[4:]) == 0  # what is not said is as it was
    assert "nothing is new" in capsys.readouterr().out


def test_where_nothing_is_learned_the_checkpoint_stays(tmp_path, capsys):
    table = columns(400)
    path, checkpoint = put(tmp_path / "t.csv", table), tmp_path / "c"
    arguments = ["--target", "group", "--classify", "--checkpoint", str(checkpoint)]
    assert cli.main(["learn", path, *arguments, "--features", "raw", "--ignore", "y,z"]) == 0
    before = checkpoint.read_bytes()
    more = {name: list(values[:20]) for name, values in table.items()}
    more["group"][3], more["a"][10] = "east", "bad"  # a new class, then a value that is wrong
    assert cli.main(["learn", put(tmp_path / "more.csv", more), *arguments]) == 2
    assert "column a: 'bad' is not a number" in capsys.readouterr().err
    assert checkpoint.read_bytes() == before


def test_names_are_shown_as_they_are(tmp_path, capsys):
    """Neither colours of rich nor commands to a terminal, and a sentence is one line."""
    table = columns(400)
    names = dict(zip(("a", "b", "y"), ("[/red]", "[bold]x", ":smile:"), strict=True))
    table = {names.get(name, name): list(values) for name, values in table.items()}
    table["[/red]"][350] = 1e9
    path, checkpoint = put(tmp_path / "t.csv", table), str(tmp_path / "c")
    arguments = ["learn", path, "--target", ":smile:", "--checkpoint", checkpoint]
    assert cli.main([*arguments, "--features", "raw", "--warmup", "300"]) == 0
    assert "column [/red]: 1e+09" in capsys.readouterr().err
    assert cli.main(["inspect", checkpoint]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in names.values())
    assert cli.main(["learn", path, "--target", "no\x1b[2J\n"]) == 2
    assert "has no column no\\x1b[2J" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "code"), [("1e75", 0), ("1e99", 2)])
def test_values_far_beyond_the_first_ones_leave_a_checkpoint_that_loads(value, code, tmp_path):
    """Their squares, and so the variance of a prediction, are beyond all numbers."""
    rows = [f"{a},{i % 2}" for i, a in enumerate(["1e-20", "2e-20", "1e-20", value, "1e-20"])]
    (tmp_path / "t.csv").write_text("\n".join(["a,y", *rows]))
    path, checkpoint = str(tmp_path / "t.csv"), tmp_path / "c"
    arguments = ["--target", "y", "--checkpoint", str(checkpoint), "--features", "poly:2"]
    assert cli.main(["learn", path, *arguments, "--warmup", "2"]) == code
    if code == 0:
        assert saved.load(checkpoint).rows == 5


def test_a_rival_that_diverges_is_out(tmp_path):
    table = columns(900)
    table["a"][400:] *= 20  # a rate that was right for the first rows is none for these
    session = learn([put(tmp_path / "t.csv", table)], versus=("sgd",))
    assert set(session.out) == {"sgd"}  # though all numbers are finite
    assert session.scores.read()["sgd"]["rmse"][0] > 1e20


def test_a_checkpoint_that_cannot_be_written(tmp_path, capsys):
    path = put(tmp_path / "t.csv", columns(100))
    checkpoint = tmp_path / "folder" / "c"
    assert cli.main(["learn", path, "--target", "y", "--checkpoint", str(checkpoint)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("orfit: ")  # before anything was read
    assert "there is no folder" in told
    assert "Traceback" not in told


def test_predict_says_nothing_before_it_can_say_all(tmp_path, capsys):
    """A file that stdout goes to has no head without lines."""
    path, checkpoint = put(tmp_path / "t.csv", columns(100)), str(tmp_path / "c")
    assert cli.main(["learn", path, "--target", "y", "--checkpoint", checkpoint, "--quiet"]) == 0
    table = columns(10)
    del table["a"]
    other = put(tmp_path / "other.csv", table)
    capsys.readouterr()
    assert cli.main(["predict", checkpoint, other]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "other.csv" in err
    assert cli.main(["learn", other, "--target", "y", "--checkpoint", checkpoint]) == 2
    assert "other.csv" in capsys.readouterr().err


def test_a_full_disk_leaves_the_old_checkpoint_whole(tmp_path, capsys, monkeypatch):
    table = columns(800)
    path, checkpoint = tmp_path / "t.csv", tmp_path / "c"
    put(path, table, 0, 400)
    arguments = ["learn", str(path), "--target", "y", "--checkpoint", str(checkpoint)]
    assert cli.main(arguments) == 0
    before = checkpoint.read_bytes()
    put(path, table)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(arguments) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert checkpoint.read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"t.csv", "c"}


def test_a_disk_that_takes_no_more(tmp_path, capsys):
    """As the system says it to safetensors, not to Python: here by a limit on the size of files."""
    resource = pytest.importorskip("resource")
    path, checkpoint = put(tmp_path / "t.csv", columns(400)), tmp_path / "c"
    learn([put(tmp_path / "first.csv", columns(300, seed=1))], checkpoint)
    before = checkpoint.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
    try:
        code = cli.main(["learn", path, "--checkpoint", str(checkpoint)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = capsys.readouterr().err
    assert code == 1
    assert "File too large" in told
    assert "Traceback" not in told
    assert checkpoint.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_predictions_of_other_rows(tmp_path, capsys):
    table = columns()
    path = put(tmp_path / "t.csv", table, 0, 1000)
    checkpoint = tmp_path / "c"
    session = learn([path], checkpoint, choice=Choice(("y",), only=("a", "b", "c"), missing="skip"))
    new = {name: list(values[1000:]) for name, values in table.items() if name != "y"}
    new["a"][5] = ""
    other = put(tmp_path / "new.csv", new)
    before = checkpoint.read_bytes()
    assert cli.main(["predict", str(checkpoint), other]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 500
    assert rows[5] == {"y": "", "y_std": "", "y_low": "", "y_high": ""}
    X, _, unit = by_hand(table, 300)
    made, std = session.learner.predict(X[1000:], std=True)
    mean = table["y"][:300].mean()
    for i in (0, 4, 6, 499):
        assert float(rows[i]["y"]) == pytest.approx(made[i] * unit + mean, rel=1e-9)
        assert float(rows[i]["y_std"]) == pytest.approx(std[i] * unit, rel=1e-9)
    inside = [float(r["y_low"]) <= y <= float(r["y_high"])
              for r, y in zip(rows, table["y"][1000:], strict=True) if r["y"]]  # fmt: skip
    assert np.mean(inside) > 0.9  # what is left has two values, so that all may be inside
    assert checkpoint.read_bytes() == before


def test_where_a_value_is_filled_in_the_interval_is_wider(tmp_path):
    """By what the value might have been: for raw columns, their weight times their deviation."""
    table = columns()
    path = put(tmp_path / "t.csv", table, 0, 1000)
    choice = Choice(("y",), only=("a", "b", "group"), missing="mean")
    session = learn([path], tmp_path / "c", choice=choice)
    whole = {name: values[1000:] for name, values in table.items()}
    lacking = whole | {"a": np.full(500, "")}
    known, found = (
        Forecast(session).predict(next(Source.of([put(tmp_path / name, rows)]).blocks()))
        for name, rows in (("whole.csv", whole), ("lacking.csv", lacking))
    )
    weight = float(session.learner.w[0]) * session.encoding.target.scale[0]
    assert found.std == pytest.approx(np.sqrt(known.std**2 + weight**2), rel=1e-3)  # x itself moved
    inside = np.abs(found.made[:, 0] - whole["y"]) <= 1.96 * found.std[:, 0]
    assert 0.92 < np.mean(inside) < 0.98
    no_group = whole | {"group": np.full(500, "")}
    block = next(Source.of([put(tmp_path / "group.csv", no_group)]).blocks())
    assert (Forecast(session).predict(block).std > 1.2 * known.std).all()


def test_what_is_predicted_leaves_the_session_as_it_is(tmp_path):
    table = {"t": np.zeros(400), "y": np.sin(np.arange(400) / 7)}
    path = put(tmp_path / "t.csv", table)
    session = learn([path], tmp_path / "c", features="lags:4", choice=Choice(("y",)))
    past, blocks = session.lags.past.copy(), list(Source.of([path], rows=200).blocks())
    forecast = Forecast(session)
    first, second = (forecast.predict(block).made for block in blocks)
    assert np.array_equal(session.lags.past, past)
    assert np.array_equal(Forecast(session).predict(blocks[0]).made, first)
    assert not np.array_equal(
        Forecast(session).predict(blocks[1]).made, second
    )  # other rows before


def test_a_file_that_was_packed_since_is_the_same(tmp_path):
    table = columns(900)
    learn([put(tmp_path / "t.csv", table, 0, 600)], tmp_path / "c")
    packed = put(tmp_path / "t.csv.gz", table, 0, 600)
    assert learn([packed], tmp_path / "c").rows == 600
    put(tmp_path / "t.csv.gz", table)  # grown, and packed anew
    session = learn([packed], tmp_path / "c")
    assert (session.rows, len(session.bookmarks.files)) == (900, 1)
    put(tmp_path / "u.csv", table)  # and unpacked again
    assert learn([str(tmp_path / "u.csv")], tmp_path / "c").rows == 900


def test_a_packed_file_in_several_parts_and_a_cut_one(tmp_path):
    text = ("a,y\n" + "".join(f"{i},{2 * i}\n" for i in range(20_000))).encode()
    parts = gzip.compress(text[:100_000]) + gzip.compress(text[100_000:])
    path = tmp_path / "t.csv.gz"
    for data, length in ((parts, 1 << 16), (parts[:2000], None), (parts[:-9] + b"x", 1 << 16)):
        path.write_bytes(data)
        found = _begins(str(path), 1 << 16)
        assert text.startswith(found)
        assert len(found) == length if length else found
    path.write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:200]) + b"\0" * 20)
    assert _begins(str(path), 1 << 16) == text[:200]


def test_a_series_is_predicted_onwards_from_its_own_predictions(tmp_path, capsys):
    """With lags and no target in the new rows, what is predicted stands for it."""
    t = np.arange(1200)
    series = 10 + np.sin(t / 7)
    table = {"t": np.zeros(1200), "y": series}
    checkpoint = tmp_path / "c"
    choice = Choice(("y",), only=("t",))
    learn([put(tmp_path / "t.csv", table, 0, 1000)], checkpoint, features="lags:4", choice=choice)
    ahead = put(tmp_path / "ahead.csv", {"t": table["t"]}, 1000, 1030)
    assert cli.main(["predict", str(checkpoint), ahead]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    made = np.array([float(row["y"]) for row in rows])
    assert np.abs(made - series[1000:1030]).max() < 0.05


def test_inspect(tmp_path, capsys):
    path = put(tmp_path / "t.csv", columns(400))
    learn([path], tmp_path / "c", holdout=0.1, versus=("sgd",))
    assert cli.main(["inspect", str(tmp_path / "c")]) == 0
    told = capsys.readouterr().out
    for text in ("group", "category, hashed", "date: time of day", "exact RLS", "never", "SGD"):
        assert text in told


def test_rows_held_out_are_told_apart(tmp_path, capsys):
    path, checkpoint = put(tmp_path / "t.csv", columns(400)), str(tmp_path / "c")
    arguments = ["learn", path, "--target", "y", "--features", "raw", "--checkpoint", checkpoint]
    assert cli.main([*arguments, "--holdout", "0.1"]) == 0
    session = saved.load(checkpoint)
    held, learned = session.held.count, session.learner.seen
    assert f"400: {learned} learned, {held} held out" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["table", "json"])
def test_quiet_is_the_result_alone(more, tmp_path, capsys):
    path, checkpoint = put(tmp_path / "t.csv", columns(400)), str(tmp_path / "c")
    arguments = ["learn", path, "--target", "y", "--features", "raw", "--checkpoint", checkpoint]
    for _ in range(2):  # begun, and gone on
        assert cli.main([*arguments, "--quiet", *more]) == 0
        told = capsys.readouterr()
        assert told.out
        assert not told.err
    assert cli.main(arguments) == 0
    assert f"saved: {checkpoint} after 400 rows" in capsys.readouterr().err


def test_json_lines(tmp_path, capsys):
    path = put(tmp_path / "t.csv", columns())
    assert cli.main(["learn", path, "--target", "y", "--json", "--report", "500"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["rows"] // 500 for line in lines] == [1, 2, 3, 3]
    assert {"rmse.orfit", "rmse.last value", "noise", "forgetting", "change"} <= lines[-1].keys()


def test_damaged_and_crafted_checkpoints(tmp_path):
    path, checkpoint = put(tmp_path / "t.csv", columns(400)), tmp_path / "c"
    learn([path], checkpoint)
    with pytest.raises(orfit.CheckpointError, match="a stream .* `orfit predict`, .* read it"):
        orfit.load(checkpoint)
    whole = checkpoint.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        checkpoint.write_bytes(damaged)
        with pytest.raises(orfit.CheckpointError):
            saved.load(checkpoint)
    learner = orfit.RLS(orfit.Linear(2))
    learner.save(checkpoint)
    with pytest.raises(orfit.CheckpointError, match="holds a learner by itself"):
        saved.load(checkpoint)


def test_memory_does_not_grow_with_rows(tmp_path):
    """What a checkpoint holds is the same after ten times as many rows."""
    sizes = []
    for rows in (1000, 8000):
        path = put(tmp_path / f"{rows}.csv", columns(rows))
        learn([path], tmp_path / f"{rows}.orfit", features="raw", probes=4)
        sizes.append((tmp_path / f"{rows}.orfit").stat().st_size)
    assert sizes[1] < sizes[0] + 100_000
