"""Whole runs of `orfit learn` on any table with any options: a result, or one sentence.

Whatever is in a file, the exit code is 0, or 1 or 2 with a sentence on a line of its own and no
traceback; a checkpoint that was there is whole, and the same where nothing was learned.
"""

import contextlib
import csv
import gzip
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("typer")

import pyarrow.parquet as pq

from orfit import cli
from orfit.stream import saved

MOST_ROWS = 40
SAID = ("orfit: ", "features: ", "goes on after", "saved: ", "orfit compiles")  # on stderr
BLANKS = ("", "NA", "NaN", "null", " ")
KINDS = {
    "small": st.integers(-3, 3).map(str),
    "number": st.floats(-1e6, 1e6).map(repr),
    "huge": st.floats().map(repr),
    "date": st.datetimes().map(lambda moment: moment.isoformat()),
    "clock": st.times().map(str),
    "truth": st.sampled_from(["true", "False"]),
    "word": st.sampled_from(["north", "south", "[red]", ":smile:", "Ä", "a,b", 'q"q', "[/x]"]),
    "text": st.text(max_size=6),
    "constant": st.just("7"),
    "blank": st.sampled_from(BLANKS),
    "mixed": st.sampled_from(["1", "2.5", "x", "", "1e999", "-inf", "2020-01-01", "0x10", "1_0"]),
}
USUAL = ["small", "number"]
NAMES = st.lists(
    st.sampled_from(
        ["a", "b", "Ω", "with space", "[bold]", "[/]", "x\ny", "a\\,b", "\x1b[2J", "1"]
    ),
    min_size=2,
    max_size=4,
    unique=True,
)
FEATURES = ("auto", "raw", "poly:2", "fourier:5", "lags:2", "lags:1+fourier:3", "lags:3+poly:2")
CHOICES = {
    "--features": FEATURES,
    "--warmup": ("1", "2", "10", "1000"),
    "--holdout": ("0", "0.1", "0.9"),
    "--versus": ("sgd", "rls,one-step", "sgd,rls,one-step"),
    "--memory": ("1", "3", "exact", "auto"),
    "--noise": ("0", "0.1", "1e300", "auto"),
    "--forgetting": ("1", "0.5", "0.01", "auto"),
    "--tail": ("on", "off", "auto"),
    "--window": ("1", "5"),
    "--probes": ("0", "2"),
    "--width": ("1", "3"),
    "--dates": ("cycles", "trend"),
    "--budget": ("10KB", "1MB"),
    "--every": ("1", "7", "0.001s"),
    "--seed": ("0", "5"),
}


@st.composite
def tables(draw, names):
    """Texts by row: the last column mostly of numbers, and values of another kind among all."""
    rows = draw(st.integers(0, MOST_ROWS) | st.integers(MOST_ROWS // 2, MOST_ROWS))
    columns = []
    for i in range(len(names)):
        usual = USUAL if i == len(names) - 1 else list(KINDS)
        first = draw(st.sampled_from(usual) | st.sampled_from(list(KINDS)))
        column = draw(st.lists(KINDS[first], min_size=rows, max_size=rows))
        other = draw(st.sampled_from(list(KINDS)))
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3])) if rows else 0):
            column[draw(st.integers(0, rows - 1))] = draw(KINDS[other] | KINDS["blank"])
        columns.append(column)
    return [list(row) for row in zip(*columns, strict=True)]


@st.composite
def files(draw, names):
    """A name and the bytes of a table: of any format, and perhaps damaged."""
    rows = draw(tables(names))
    kind = draw(st.sampled_from(["csv", "csv", "csv.gz", "jsonl", "parquet"]))
    if kind == "parquet":
        data = as_parquet(names, rows, draw(st.booleans()))
    elif kind == "jsonl":
        data = as_json(names, rows)
    else:
        text = io.StringIO()
        writer = csv.writer(
            text,
            delimiter=draw(st.sampled_from(",;\t|")),
            lineterminator=draw(st.sampled_from(["\n", "\r\n", "\r"])),
            quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
        )
        writer.writerows([names, *rows])
        data = text.getvalue().encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        other = draw(st.binary(max_size=3) | st.sampled_from([b"\n", b'"', b",", b"\xff", b"\0"]))
        data = data[:at] + other + data[at + draw(st.integers(0, 4)) :]
    return kind, gzip.compress(data, mtime=0) if kind.endswith("gz") else data


def as_parquet(names, rows, texts):
    """All texts, or the type that all values of a column have."""
    columns = {}
    for i, name in enumerate(names):
        column = [None if row[i] in BLANKS else row[i] for row in rows]
        if not texts:
            with contextlib.suppress(ValueError):
                column = [None if value is None else float(value) for value in column]
        columns[name] = pa.array(column)
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=7)
    return file.getvalue()


def as_json(names, rows):
    lines = []
    for row in rows:
        values = {}
        for name, text in zip(names, row, strict=True):
            try:
                values[name] = json.loads(text)
            except ValueError:
                values[name] = text or None
        lines.append(json.dumps(values))
    return "\n".join(lines).encode()


@st.composite
def cases(draw):
    names = draw(NAMES)
    target = draw(st.sampled_from([names[-1]] * 6 + [names[0], "nobody"]))
    arguments = ["--target", target.replace(",", "\\,")]
    for option in draw(st.lists(st.sampled_from(list(CHOICES)), max_size=5, unique=True)):
        arguments += [option, draw(st.sampled_from(CHOICES[option]))]
    if draw(st.integers(0, 3)) == 0:
        arguments.append("--classify")
    if draw(st.integers(0, 3)) == 0:
        option = draw(st.sampled_from(["--ignore", "--only", "--categories"]))
        arguments += [option, draw(st.sampled_from(names)).replace(",", "\\,")]
    arguments += draw(st.sampled_from([["--missing", word] for word in ("skip", "mean")] + [[]]))
    others = names if draw(st.integers(0, 3)) else draw(NAMES)
    return draw(files(names)), draw(files(others)), arguments


def run(*arguments):
    """A command in this process: its exit code, after what it said was looked at."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*map(str, arguments)])
    said = err.getvalue()
    assert code in (0, 1, 2), said
    assert "Traceback" not in said
    lines = said.split("\n")[:-1]
    assert all(line.startswith(SAID) for line in lines), said
    assert all(line.isprintable() for line in lines), said
    if code:
        assert lines[-1].startswith("orfit: "), said
        assert len(lines[-1]) > len("orfit: .")
    return code


def holds(case):
    """Learn a table, then another one with the same learner, and look at what is there."""
    (kind, data), (other_kind, other), arguments = case
    with tempfile.TemporaryDirectory() as folder:
        one, two = Path(folder) / f"one.{kind}", Path(folder) / f"two.{other_kind}"
        one.write_bytes(data)
        two.write_bytes(other)
        checkpoint = Path(folder) / "c.orfit"
        code = run("learn", one, *arguments, "--checkpoint", checkpoint)
        if not checkpoint.exists():
            assert code
            return
        before, known = checkpoint.read_bytes(), saved.load(checkpoint)
        code = run("learn", two, "--checkpoint", checkpoint)
        after = saved.load(checkpoint)
        assert after.rows >= known.rows
        if code and (after.rows, after.skipped) == (known.rows, known.skipped):
            assert checkpoint.read_bytes() == before
        kept = checkpoint.read_bytes()
        for command in (["predict", checkpoint, two], ["inspect", checkpoint]):
            run(*command)
        assert run("report", checkpoint, "--out", Path(folder) / "page.html") == 0
        assert checkpoint.read_bytes() == kept


slowly = settings(suppress_health_check=list(HealthCheck))


@settings(slowly, max_examples=30)
@given(cases())
def test_a_result_or_a_sentence(case):
    holds(case)


@pytest.mark.slow
@settings(slowly, max_examples=300, derandomize=False)
@given(cases())
def test_a_result_or_a_sentence_at_length(case):
    holds(case)
