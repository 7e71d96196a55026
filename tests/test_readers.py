"""Readers: what is written is read, from everywhere on, with the lines it stands on; or a sentence.

The truth is what the tables were written from, and what the csv module, json and pyarrow read.
"""

import contextlib
import csv
import datetime
import decimal
import gzip
import io
import itertools
import json
import os
import random
import re
import sys
import threading
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq

from orfit.stream import inputs, source
from orfit.stream.block import Block, Position, StreamError
from orfit.stream.endings import Quoted
from orfit.stream.source import Source
from orfit.stream.values import MISSING, parsed

BEGIN = Position()
COMMA = ["a,b", "1,2", "3,4"]


@pytest.fixture
def put(tmp_path):
    """Write a file: text, bytes, or lines; its name says whether it is packed."""

    def write(name, content):
        if isinstance(content, list):
            content = "\n".join(content) + "\n"
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def read(paths, *, start=BEGIN, numeric=(), columns=None, **options):
    """All rows: where each stands, and its values; and what is malformed."""
    paths = [paths] if isinstance(paths, str) else paths
    opened = Source.of(paths, **options)
    return gathered(opened.blocks(start, numeric, columns))


def gathered(blocks):
    rows, malformed = [], []
    for block in blocks:
        rows += rows_of(block)
        malformed += [(one.line, one.why) for one in block.malformed]
    return rows, malformed


def rows_of(block):
    check(block)
    values = [
        column.cast(pa.int64()).to_pylist()  # what Python has no date for
        if pa.types.is_timestamp(column.type) and "ns" not in str(column.type)
        else column.to_pylist()
        for column in block.columns.values()
    ]
    if not values:
        return [(int(line), ()) for line in block.lines]
    return list(zip(block.lines.tolist(), zip(*values, strict=True), strict=True))


def check(block):
    """A block is what it promises to be."""
    assert isinstance(block, Block)
    records = [*block.records.tolist(), *(one.record for one in block.malformed)]
    assert sorted(records) == list(range(len(records)))
    assert len(block.lines) == len(block)
    assert (np.diff(block.lines) > 0).all()
    assert block.start.offset < block.end.offset
    assert [len(column) for column in block.columns.values()] == [len(block)] * len(block.columns)
    for column in block.columns.values():
        column.validate(full=True)


def complains(sentence, paths, **options):
    with pytest.raises(StreamError) as caught:
        read(paths, **options)
    message = str(caught.value)
    assert re.search(sentence, message), message
    assert "\n" not in message
    return message


# Names and kinds of inputs.


@pytest.mark.parametrize("name", ["a.csv", "a.CSV", "a.csv.gz", "a.b.csv"])
def test_a_csv_is_known_by_its_name(put, name):
    assert read(put(name, COMMA))[0] == [(2, ("1", "2")), (3, ("3", "4"))]


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_a_tsv_has_tabs(put, name):
    assert read(put(name, "a,x\tb\n1,5\t2\n"))[0] == [(2, ("1,5", "2"))]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz", "a.ndjson.gz"])
def test_json_lines_are_known_by_their_name(put, name):
    assert read(put(name, ['{"a": 1, "b": "x"}']))[0] == [(1, (1.0, "x"))]


def test_other_names_need_a_format(put):
    path = put("a.dat", COMMA)
    complains("a.dat: .*--format.*csv, tsv, jsonl, ndjson, parquet", path)
    assert len(read(path, format="csv")[0]) == 2
    assert len(read(put("b.gz", COMMA), format="csv")[0]) == 2
    complains("--format must be one of", path, format="xls")
    complains("no such file", "nowhere.csv")
    complains("no input", [])
    complains("compressed by itself", put("a.parquet.gz", "x"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_in_the_header(put, delimiter):
    header = delimiter.join(["a", '"b,;|\t,;|\t"', "c"])
    path = put("a.csv", [header, delimiter.join(["1", "2", "3,5" if delimiter != "," else "3"])])
    opened = Source.of([path])
    assert opened.names == ["a", "b,;|\t,;|", "c"]
    assert len(read(path)[0]) == 1


def test_a_delimiter_can_be_given(put):
    path = put("a.csv", ["a:b,c", "1:2"])
    assert read(path, delimiter=":")[0] == [(2, ("1", "2"))]
    assert Source.of([put("b.csv", "a\tb,c,d\n")], delimiter="\\t").names == ["a", "b,c,d"]
    for wrong in ("", "::", '"', "\n", "é"):
        complains("single character", path, delimiter=wrong)
    complains("no input is a csv", put("a.jsonl", ['{"a": 1}']), delimiter=",")


def test_several_files_are_one_stream_by_name(put):
    paths = [
        put("a.csv", COMMA),
        put("b.jsonl", ['{"b": 6, "a": 5}']),
        put("c.csv.gz", ["b;a", "8;7"]),
    ]
    opened = Source.of(paths)
    blocks = list(opened.blocks(numeric=["a", "b"]))
    rows = [values for block in blocks for _, values in rows_of(block)]
    assert rows == [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0)]
    assert [block.start.file for block in blocks] == [0, 1, 2]
    assert blocks[2].where(0) == f"{paths[2]}, line 2"
    assert opened.names == ["a", "b"]
    assert gathered(opened.blocks(blocks[0].end, ["a", "b"]))[0][0] == (1, (5.0, 6.0))
    pq.write_table(pa.table({"b": [1], "a": [2]}), f"{paths[0]}.parquet")
    assert read([paths[0], f"{paths[0]}.parquet"], numeric="ab")[0][-1] == (1, (2.0, 1.0))


def test_files_with_other_columns_are_refused_before_reading(put):
    paths = [put("a.csv", COMMA), put("b.csv", ["a,c,d", "1,2,3"])]
    with pytest.raises(StreamError, match=r"b.csv.*than .*a.csv: it lacks 'b'; it has 'c', 'd'"):
        Source.of(paths)


def test_only_some_columns(put):
    csv_ = put("a.csv", ["a,b,c", "1,2,3", "4,5"])
    assert read(csv_, columns=["c", "a"], numeric=["a"])[0] == [(2, (1.0, "3"))]
    assert read(csv_, columns=[]) == ([(2, ())], [(3, "2 values, where the header has 3")])
    complains("no column 'd'; the columns are 'a', 'b', 'c'", csv_, columns=["d"])
    complains("no column 'd'", csv_, numeric=["d"])
    json_ = put("a.jsonl", ['{"a": 1, "b": [1]}'])
    assert read(json_, columns=["a"]) == ([(1, (1.0,))], [])
    parquet = f"{csv_}.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": [[1], []], "c": ["x", "y"]}), parquet)
    assert read(parquet, columns=["c", "a"])[0] == [(1, (1, "x")), (2, (2, "y"))]
    assert read(parquet, columns=[])[0] == [(1, ()), (2, ())]


# Tables as text.


def test_quotes_open_only_where_a_value_begins(put):
    lines = ["a,b", '5" pipe,"x, ""y"""', '"a"b"c,d"', '"two', 'lines",2', "", "7,8"]
    rows = [
        (2, ('5" pipe', 'x, "y"')),
        (3, ('ab"c', 'd"')),
        (4, ("two\nlines", "2")),
        (7, tuple("78")),
    ]
    for chunk in (1, 7, 1000):
        assert read(put("a.csv", lines), chunk=chunk)[0] == rows


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_any_line_end_and_none_at_the_end(put, end, last, chunk):
    text = end.join(["a,b", "1,2", "", "", "3,4", "5", f'"x{end}y",6']) + end * last
    rows, malformed = read(put("a.csv", text), chunk=chunk)
    assert rows == [(2, ("1", "2")), (5, ("3", "4")), (7, (f"x{end}y", "6"))]
    assert malformed == [(6, "1 value, where the header has 2")]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_mark_of_utf_8_is_no_part_of_the_first_name(put, name):
    path = put(name, "\ufeffä,b\n1,é\n")
    assert Source.of([path]).names == ["ä", "b"]
    assert read(path, chunk=1)[0] == [(2, ("1", "é"))]
    assert Source.of([put("q.csv", '\ufeff"a,x",b\n')]).names == ["a,x", "b"]
    json_ = put("a.jsonl", '\ufeff{"a": "x"}\n')
    assert read(json_, chunk=1)[0] == [(1, ("x",))]
    complains("is empty", put("b.csv", "\ufeff"))


def test_missing_values_are_null_whatever_is_expected(put):
    lines = [
        "a,NA,c",
        *(f'{one},1," {one}"' for one in MISSING),
        *(f'"{one}",2,x' for one in MISSING),
    ]
    rows, _ = read(put("a.csv", lines), numeric=["a"], columns=["a"])
    assert [values for _, values in rows] == [(None,)] * 18
    rows, _ = read(put("a.csv", lines))
    assert [values[0] for _, values in rows] == [None] * 18
    assert rows[1][1][2] == " NA"  # a text is kept as it is


def test_numbers_where_they_are_expected(put):
    good = put("a.csv", ["a,b,c", "1, NA ,-inf", "+2.5, 3e-4 ,x", ",nan,-nan"])
    rows, _ = read(good, numeric=["a", "b", "c"])
    assert [values[:2] for _, values in rows] == [(1.0, None), (2.5, 3e-4), (None, None)]
    assert [values[2] for _, values in rows] == ["-inf", "x", "-nan"]  # texts, as one is none
    blocks = list(Source.of([good], rows=1).blocks(numeric=["c"]))
    assert [str(block.columns["c"].type) for block in blocks] == ["double", "string", "double"]
    assert blocks[2].columns["c"].to_pylist() == [None]


def test_texts_that_are_numbers():
    numbers, right = parsed(pa.array(["1", " 2 ", None, "NA", "", "+3"]))
    assert (numbers.to_pylist(), right) == ([1.0, 2.0, None, None, None, 3.0], True)
    numbers, right = parsed(pa.array(["1", "x", " True", "-nan", "FALSE", "-inf"]))
    assert (numbers.to_pylist(), right) == ([1.0, None, 1.0, None, 0.0, -np.inf], False)
    assert len(parsed(pa.array([], pa.string()))[0]) == 0


@given(st.text("+-.0159eE infatyINFATY()_x", max_size=7) | st.floats().map(str))
def test_a_text_is_a_number_whatever_stands_beside_it(text):
    """One parser, though pyarrow's own is used where all of a column are right."""
    alone, right = parsed(pa.array([text]))
    beside, _ = parsed(pa.array([text, "x"]))
    assert beside[0] == alone[0]
    assert parsed(pa.array([text, "true"]))[1] == right


def test_wrong_rows_are_told_with_the_line(put):
    rows, malformed = read(put("a.csv", ["a,b", "1", "1,2,3", "4,5", "", '6,"7', "8,9"]))
    assert rows == [(4, ("4", "5"))]
    assert malformed == [
        (2, "1 value, where the header has 2"),
        (3, "3 values, where the header has 2"),
        (6, "a quote that opens here is never closed"),
    ]
    assert read(put("a.csv", ["a,b", "1", '"'])) == ([], [
        (2, "1 value, where the header has 2"), (3, "a quote that opens here is never closed"),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("a,b,a", "a.csv, line 1: two columns are named 'a'"),
        ("a,,b", "a.csv, line 1: column 2 has no name"),
        ("a, ,b", "column 2 has no name"),
        ('a,"b', "line 1: a quote in the header is never closed"),
    ],
)
def test_names_are_unique_and_not_empty(put, header, sentence):
    complains(sentence, put("a.csv", [header, "1,2,3"]))


def test_header_alone_gives_no_rows(put):
    for text in ("a,b", "a,b\n", "\n\na,b\n\n"):
        assert read(put("a.csv", text)) == ([], [])
    pq.write_table(
        pa.table({"a": pa.array([], pa.float64())}), path := put("a.parquet", "").strip()
    )
    assert read(path) == ([], [])


# Lines of JSON.


def test_json_values(put):
    lines = [
        '{"n": 1, "s": "x\\u00e9\\n", "b": true, "m": 1, "e": null}',
        "",
        '{"n": 2.5, "s": null, "b": false, "m": "x", "e": null}',
        '{"n": NaN, "m": true}\r',
        '{"n": -1e999, "m": NaN}',
    ]
    rows, malformed = read(put("a.jsonl", lines))
    assert rows == [
        (1, (1.0, "xé\n", True, "1", None)),
        (3, (2.5, None, False, "x", None)),
        (4, (None, None, None, "true", None)),
        (5, (-np.inf, None, None, None, None)),
    ]
    assert not malformed
    (block,) = Source.of([put("a.jsonl", lines)]).blocks(numeric=["e"])
    types = [str(column.type) for column in block.columns.values()]
    assert types == ["double", "string", "bool", "string", "double"]
    (block,) = Source.of([put("a.jsonl", lines)]).blocks(columns=["e"])
    assert str(block.columns["e"].type) == "null"
    huge = ['{"n": 1}', '{"n": 1' + "0" * 400 + "}", '{"n": -1' + "0" * 400 + "}", '{"n": null}']
    rows, _ = read(put("a.jsonl", huge))
    assert [values[0] for _, values in rows] == [1.0, np.inf, -np.inf, None]


def test_lines_that_are_no_objects(put):
    lines = [
        '{"a": 1}', "[1]", "x", '{"a": {"b": 1}}', '{"a": [1]}', '{"a": 1} {"a": 2}', "  ",
        '{"a": "\\ud800"}', '{"a": ' + "1" * 5000 + "}", '{"a":' * 10**5, '{"a": "[{"}',
    ]  # fmt: skip
    rows, malformed = read(put("a.jsonl", lines))
    assert rows == [(1, ("1",)), (11, ("[{",))]
    assert [line for line, _ in malformed] == list(range(2, 11))
    assert malformed[0][1] == "this is not an object of JSON, {...}"
    assert malformed[1][1] == "this is not JSON: Expecting value at character 1"
    assert malformed[2][1] == malformed[3][1] == "the value of 'a' is not a single one"
    assert "Extra data" in malformed[4][1]
    assert "half a character" in malformed[6][1]
    assert malformed[7][1] == "a number is too long"
    assert malformed[8][1] == "this is nested too deeply"


@pytest.mark.parametrize("chunk", [1, 1000])
def test_blank_lines_of_json(put, chunk):
    text = '\n\r\n{"a": 1}\n\r\r\n \n\r\n{"a": 2}\r\n\r'
    rows, malformed = read(put("a.jsonl", text), chunk=chunk)
    assert rows == [(3, (1.0,)), (7, (2.0,))]
    assert [line for line, _ in malformed] == [4, 5]


def test_json_schema_is_that_of_the_first_object(put):
    complains(r"a.jsonl, line 3: the key 'c' is new; .* 'a', 'b'",
              put("a.jsonl", ['{"a": 1, "b": 2}', '{"b": 3}', '{"a": 1, "c": 2}']))  # fmt: skip
    complains("line 2: this is not an object", put("a.jsonl", ["", "[1]"]))
    complains("line 1: the first object has no keys", put("a.jsonl", ["{}"]))
    complains("column 1 has no name", put("a.jsonl", ['{"": 1}']))


# Parquet.


def test_parquet_types(tmp_path):
    day = datetime.date(2020, 2, 3)
    noon = datetime.datetime(2020, 2, 3, 12)
    table = pa.table({
        "f": [1.5, float("nan"), None],
        "i": pa.array([1, 2, None], pa.int32()),
        "h": pa.array([np.float16(1.5), None, None], pa.float16()),
        "c": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3")]),
        "k": pa.array(["x", "y", None]).dictionary_encode(),
        "l": pa.array(["x", "", "NA"], pa.large_string()),
        "b": [True, None, False],
        "d": [day, None, day],
        "t": pa.array([noon, None, noon], pa.timestamp("ns", "UTC")),
        "e": pa.nulls(3),
        "a.b": [1, 2, 3],
    })  # fmt: skip
    path = str(tmp_path / "a.parquet")
    pq.write_table(table, path)
    opened = Source.of([path])
    assert opened.size == 3
    (block,) = opened.blocks(numeric=["i", "e"])
    check(block)
    found = {name: (str(one.type), one.to_pylist()) for name, one in block.columns.items()}
    assert found["f"] == ("double", [1.5, None, None])
    assert found["i"] == ("double", [1.0, 2.0, None])
    assert found["h"] == ("double", [1.5, None, None])
    assert found["c"] == ("double", [1.25, None, -3.0])
    assert found["k"] == ("string", ["x", "y", None])
    assert found["l"] == ("string", ["x", "", "NA"])
    assert found["b"] == ("bool", [True, None, False])
    assert found["d"] == ("date32[day]", [day, None, day])
    assert found["t"][0] == "timestamp[ns, tz=UTC]"
    assert found["e"] == ("double", [None] * 3)
    assert found["a.b"] == ("int64", [1, 2, 3])
    assert block.where(2) == f"{path}, row 3"
    (block,) = opened.blocks()
    assert (str(block.columns["i"].type), str(block.columns["e"].type)) == ("int32", "null")


@pytest.mark.parametrize("value", [[1], {"x": 1}, b"x", datetime.time(1), datetime.timedelta(1)])
def test_parquet_columns_that_cannot_be_learned_from(tmp_path, value):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1], "no": [value]}), path)
    complains("a.parquet: column 'no' holds .*only numbers", path)
    assert read(path, columns=["a"])[0] == [(1, (1,))]


def test_parquet_goes_on_in_a_later_group(tmp_path, monkeypatch):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": range(100)}), path, row_group_size=10)
    asked = []
    iterate = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, **options: asked.append(options["row_groups"]) or iterate(self, **options),
    )
    for at in range(101):
        position = Position(0, at, at + 1)
        rows, _ = read(path, start=position, rows=4)
        assert rows == [(row + 1, (row,)) for row in range(at, 100)]
        assert at == 100 or asked[-(10 - at // 10) :] == [[group] for group in range(at // 10, 10)]


# Pipes.


@contextlib.contextmanager
def piped(monkeypatch):
    """A pipe as stdin; what is yielded writes into it."""
    ours, theirs = os.pipe()
    with open(ours, "rb") as reading, open(theirs, "wb", buffering=0) as writing:
        monkeypatch.setattr(sys, "stdin", reading)
        yield writing


@pytest.mark.parametrize(
    ("format", "lines"),
    [(None, ["a,b", "1,2", "3,4", "5,6"]), ("jsonl", ['{"a": "1"}', '{"a": "3"}', '{"a": "5"}'])],
)
def test_a_row_is_handed_on_before_the_next_is_written(monkeypatch, format, lines):
    with piped(monkeypatch) as pipe:
        header = 1 if format is None else 0
        pipe.write("".join(line + "\n" for line in lines[: header + 1]).encode())
        opened = Source.of(["-"], format)
        assert opened.live
        assert opened.size is opened.progress(Position()) is None
        blocks = opened.blocks()
        for number, line in enumerate(lines[header:], header):
            block = next(blocks)  # would wait for ever if it wanted more
            assert rows_of(block)[0][0] == number + 1
            assert block.name == "stdin"
            assert len(block) == 1
            if number + 1 < len(lines):
                half = len(lines[number + 1]) // 2
                pipe.write(lines[number + 1][:half].encode())
                threading.Timer(
                    0.05, pipe.write, [lines[number + 1][half:].encode() + b"\n"]
                ).start()
            del line
        pipe.write(lines[-1].encode())  # without a line end
        pipe.close()
        assert len(next(blocks)) == 1
        assert next(blocks, None) is None
        with pytest.raises(StreamError, match="stdin is a pipe, which can be read only once"):
            next(opened.blocks())


def test_the_header_alone_opens_a_pipe(monkeypatch):
    with piped(monkeypatch) as pipe:
        pipe.write(b"a,b\n")
        opened = Source.of(["-"])
        assert opened.names == ["a", "b"]
        pipe.write(b'1,"2\n')
        threading.Timer(0.05, lambda: (pipe.write(b'x"\n'), pipe.close())).start()
        assert gathered(opened.blocks())[0] == [(2, ("1", "2\nx"))]


def test_a_pipe_among_files(monkeypatch, put):
    with piped(monkeypatch) as pipe:
        pipe.write(b"b,a\n4,3\n")
        pipe.close()
        opened = Source.of([put("a.csv", COMMA), "-", put("b.csv", COMMA)])
        rows, _ = gathered(opened.blocks())
    assert [values for _, values in rows] == [tuple(two) for two in ("12", "34", "34", "12", "34")]
    with piped(monkeypatch) as pipe:
        pipe.write(b"a,c\n4,3\n")
        pipe.close()
        complains("stdin has other columns than .*a.csv", [put("a.csv", COMMA), "-"])


def test_going_on_in_a_pipe_leaves_out_what_was_read(monkeypatch):
    with piped(monkeypatch) as pipe:
        pipe.write(b"a,b\n1,2\n3,4\n")
        pipe.close()
        assert read("-", start=Position(0, 8, 3))[0] == [(3, ("3", "4"))]


def test_named_pipes_files_as_stdin_and_programs_that_put_one(monkeypatch, put, tmp_path):
    fifo = str(tmp_path / "fifo.csv")
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: put("fifo.csv", COMMA))
    writer.start()
    opened = Source.of([fifo])
    assert opened.live
    assert len(gathered(opened.blocks())[0]) == 2
    writer.join()
    with open(put("a.csv", COMMA)) as file:
        monkeypatch.setattr(sys, "stdin", file)
        opened = Source.of(["-"])
        assert (opened.live, opened.size) == (False, None)
        assert len(gathered(opened.blocks())[0]) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n1\n")))
    assert read("-")[0] == [(2, ("1",))]
    monkeypatch.setattr(sys, "stdin", io.StringIO("a\n1\n"))
    assert read("-")[0] == [(2, ("1",))]
    monkeypatch.setattr(sys, "stdin", None)
    complains("stdin is closed", "-")


def test_what_a_pipe_cannot_be(monkeypatch):
    complains("stdin: parquet cannot come from a pipe", "-", format="parquet")
    complains("twice", ["-", "-"])
    with piped(monkeypatch) as pipe:
        pipe.close()
        complains("stdin is empty", "-")


# What is not as it should be.


def test_files_that_cannot_be_read(put, tmp_path):
    complains("nowhere.csv: there is no such file", str(tmp_path / "nowhere.csv"))
    (tmp_path / "d.csv").mkdir()
    (tmp_path / "d.parquet").mkdir()
    complains("d.csv: this is a folder", str(tmp_path / "d.csv"))
    complains("d.parquet: this is a folder", str(tmp_path / "d.parquet"))
    complains("is no path", "a\0.csv")
    for name in ("e.csv", "e.jsonl", "e.parquet"):
        complains(f"{name} is empty", put(name, b""))
    complains("e.csv.gz is empty", put("e.csv.gz", b""))
    complains("blank.csv is empty", put("blank.csv", "\n\r\n\n"))
    with pytest.raises(StreamError, match="x: there is no permission"), inputs.told("x"):
        raise PermissionError(13, "Permission denied")
    with pytest.raises(StreamError, match="x: it cannot be read: Input/output error"):  # noqa: SIM117
        with inputs.told("x"):
            raise OSError(5, "Input/output error")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_files_without_permission(put):
    os.chmod(path := put("a.csv", COMMA), 0)
    complains("no permission", path)


def test_files_of_another_kind(put, tmp_path):
    zipped = gzip.compress("\n".join(COMMA).encode())
    complains("a.csv: this is gzip", put("a.csv", zipped))
    (tmp_path / "b.csv.gz").write_bytes(b"a,b\n1,2\n")
    complains("b.csv.gz: this is not gzip", str(tmp_path / "b.csv.gz"))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "c.csv")
    complains("c.csv: this is parquet", str(tmp_path / "c.csv"))
    complains("d.parquet: this is not parquet", put("d.parquet", COMMA))
    complains("d.parquet: the parquet data is cut short", put("d.parquet", b"PAR1" + b"x" * 50))
    complains("d.parquet: this cannot be read as parquet", put("d.parquet", b"PAR1\0\0\0\0PAR1"))
    complains("UTF-16", put("e.csv", "a,b\n1,2\n".encode("utf-16")))
    complains("f.csv, line 2: there is a NUL byte", put("f.csv", b"a,b\n1,\0\n"))
    complains("line 1: there is a NUL byte", put("f.jsonl", bytes(1000)))


@pytest.mark.parametrize("chunk", [1, 10, 1 << 20])
def test_bytes_that_are_not_utf_8(put, chunk):
    lines = b'a,b\n1,\xc3\xa9\n\n"x\ny",3\n4,\xe9\n'
    complains("a.csv, line 6: byte 0xe9 is not UTF-8", put("a.csv", lines), chunk=chunk)
    complains("a.csv, line 1: byte 0xff", put("a.csv", b"a,\xff\n1,2\n"), chunk=chunk)
    complains("line 2: byte 0x80", put("a.jsonl", b'{"a": 1}\n{"a": "\x80"}\n'), chunk=chunk)


def test_gzip_that_is_damaged_or_cut(tmp_path):
    text = "a,b\n" + "".join(f"{i},{i * 7919 % 10007}\n" for i in range(20000))
    whole = gzip.compress(text.encode())
    path = tmp_path / "a.csv.gz"
    for content, sentence in [
        (whole[: len(whole) // 2], "a.csv.gz: the gzip data is cut short"),
        (whole[:-1], "cut short"),
        (whole[:5], "cut short"),
        (whole[:1000] + bytes(50) + whole[1050:], "a.csv.gz: the gzip data is damaged"),
        (whole[:-8] + bytes(8), "damaged"),
        (whole + b"junk", "this is not gzip"),
    ]:
        path.write_bytes(content)
        complains(sentence, str(path))
    path.write_bytes(whole[: len(whole) // 2])
    blocks = Source.of([str(path)], chunk=1000).blocks()
    assert len(next(blocks))  # what is before the damage is read
    path.write_bytes(gzip.compress(b"a\n1\n") + gzip.compress(b"2\n"))
    assert [values for _, values in read(str(path))[0]] == [("1",), ("2",)]


def test_lines_without_end(put):
    long = b"x" * (65 << 20)
    complains("a.csv, line 1: what begins here is longer than 64 MB", put("a.csv", long))
    message = complains("line 3: what begins", put("a.csv", b'a,b\n1,2\n"' + long))
    assert "quote" in message


def test_pyarrow_is_an_extra(monkeypatch, put):
    monkeypatch.setattr(source, "find_spec", lambda name: None)
    complains(r"pyarrow: pip install '\.\[cli\]'", put("a.csv", COMMA))


# Going on.


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl"])
def test_a_file_that_is_another_one_now(put, name):
    header = ["a,b"] if "csv" in name else []
    row = (lambda i: f"{i},{i}") if header else (lambda i: json.dumps({"a": i, "b": i}))
    lines = [*header, *map(row, range(10, 20))]
    (block,) = Source.of([put(name, lines)]).blocks()
    complains("is shorter than it was", put(name, lines[:5]), start=block.end)
    changed = [lines[0], *(line.replace("1", "1000") for line in lines[1:])]
    complains(f"{name} has changed: no line ends where", put(name, changed), start=block.end)
    assert read(put(name, [*lines, row(5)]), start=block.end)[0][0][0] == len(lines) + 1
    complains("stopped in input 2, and there are 1 now", put(name, lines), start=Position(1))
    if header:
        longer = ["a,b" + " " * 100, *lines[1:]]
        start = replace(block.start, offset=20)
        complains("reading stopped where its header is now", put(name, longer), start=start)
        opened = Source.of([put(name, lines)])
        put(name, ["a,c", *lines[1:]])
        with pytest.raises(StreamError, match="has changed: its first line"):
            next(opened.blocks())


def test_parquet_that_is_another_one_now(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": range(5)}), path)
    complains("is shorter than it was", path, start=Position(0, 6, 7))
    opened = Source.of([path])
    pq.write_table(pa.table({"a": range(6)}), path)
    with pytest.raises(StreamError, match="has changed"):
        next(opened.blocks())


def test_rows_that_are_appended_are_read_from_where_it_ended(put):
    text = "a,b\n1,2\n3,4"
    *_, block = Source.of([put("a.csv", text)]).blocks()
    assert read(put("a.csv", text), start=block.end) == ([], [])
    assert read(put("a.csv", text + "\n5,6"), start=block.end)[0] == [(4, ("5", "6"))]
    complains("no line ends where", put("a.csv", text + "7\n"), start=block.end)


def test_progress_goes_from_none_to_all(put, tmp_path):
    lines = ["a,b", *(f"{i},{i}" for i in range(1000))]
    paths = [put("a.csv", lines), put("b.csv.gz", lines), str(tmp_path / "c.parquet")]
    pq.write_table(pa.table({"a": range(50), "b": range(50)}), paths[2])
    for some in (paths, *([path] for path in paths)):
        opened = Source.of(some, chunk=100, rows=9)
        assert opened.progress(Position()) == 0
        shares = [opened.progress(block.end) for block in opened.blocks()]
        assert all(0 < share <= 1 for share in shares)
        assert shares[-1] == pytest.approx(1)
        if paths[1] not in some:  # of gzip it is a guess, from the bytes that were needed so far
            assert shares == sorted(shares)
            assert shares[0] < 0.2
    assert Source.of(paths[:2]).size == sum(map(os.path.getsize, paths[:2]))


# Everything together.

texts = st.text(
    st.sampled_from('",;\t|\n\r ax1é😀\\{[')
    | st.characters(exclude_categories=["Cs"], min_codepoint=1),
    max_size=6,
) | st.sampled_from([*MISSING, "1.5", " "])
names = st.lists(
    texts.map(str.strip).filter(bool), min_size=1, max_size=4, unique=True
).filter(lambda found: "n" not in found)  # fmt: skip
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw):
    """Names, and rows with a number after the texts."""
    found = draw(names)
    row = st.tuples(*[st.none() | texts] * len(found), numbers)
    return [*found, "n"], draw(st.lists(row, max_size=7))


def quoted(value, delimiter, always):
    text = "" if value is None else repr(value) if isinstance(value, float) else value
    must = any(one in text for one in f'"\r\n{delimiter}')
    return '"' + text.replace('"', '""') + '"' if must or always else text


def lines_of(text):
    return len(re.findall(r"\r\n|\r|\n", text))


@st.composite
def csv_files(draw):
    """A table as text, in every way it can be written; its rows, and what is no row of it."""
    columns, rows = draw(tables())
    delimiter = draw(st.sampled_from(",;\t|:"))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    always = draw(st.booleans())
    blanks = st.integers(0, 2).map(lambda count: end * count)

    def record(values):
        return delimiter.join(quoted(value, delimiter, always) for value in values)

    text = draw(blanks) + record(columns) + end
    good, bad = [], []
    for row in rows:
        text += draw(blanks)
        line = 1 + lines_of(text)
        if draw(st.integers(0, 4)):
            good.append((line, tuple(None if one in MISSING else one for one in row)))
            text += record(row) + end
        else:
            bad.append(line)
            text += record((*row, "x")) + end
    if draw(st.booleans()):
        text = text.removesuffix(end)
    return delimiter, text, columns, good, bad


def agrees(path, columns, good, bad=(), seed=0, **options):
    """Read all; then from every row on, in other pieces, and from every split."""
    randoms = random.Random(seed)
    sizes = [1, 2, 3, 5, 16, 50, 1 << 20]

    def opened():
        return Source.of([path], chunk=randoms.choice(sizes), rows=randoms.choice(sizes), **options)

    def rest(position):
        return gathered(opened().blocks(position, ["n"]))

    first = opened()
    assert first.names == list(columns)
    blocks = list(first.blocks(numeric=["n"]))
    rows, malformed = gathered(blocks)
    assert rows == good
    assert [line for line, _ in malformed] == list(bad)
    assert all(one.end.offset <= two.start.offset for one, two in itertools.pairwise(blocks))
    done = 0
    for block in blocks:
        for row, (offset, line) in enumerate(zip(block.offsets, block.lines, strict=True)):
            assert rest(replace(block.start, offset=int(offset), line=int(line))) == (
                rows[done + row :],
                [one for one in malformed if one[0] > line],
            )
        for cut in range(1, len(block)):
            one, two = block.split(cut)
            assert rest(one.end)[0] == rows[done + cut :]
            assert rows_of_part(one) + rows_of_part(two) == rows_of(block)
        done += len(block)
        last = max([*block.lines.tolist(), *(one.line for one in block.malformed)])
        assert rest(block.end) == (rows[done:], [one for one in malformed if one[0] > last])


def rows_of_part(block):
    columns = [column.to_pylist() for column in block.columns.values()]
    return list(zip(block.lines.tolist(), zip(*columns, strict=True), strict=True))


@given(csv_files(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_any_table_as_csv(tmp_path_factory, file, packed, mark, seed):
    delimiter, text, columns, good, bad = file
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    assert len(rows) == 1 + len(good) + len(bad)  # the csv module sees the same records
    assert [name.strip() for name in rows[0]] == columns
    data = text.encode("utf-8-sig" if mark else "utf-8")
    path = tmp_path_factory.getbasetemp() / ("any.csv.gz" if packed else "any.csv")
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    agrees(str(path), columns, good, bad, seed, delimiter=delimiter)


@given(tables(), st.booleans(), st.booleans(), st.integers(0, 99), st.data())
def test_any_table_as_json_lines(tmp_path_factory, table, packed, ascii_, seed, data):
    columns, rows = table
    text, good, bad = "", [], []
    for row in rows or [(None,) * len(columns)]:
        text += data.draw(st.sampled_from(["", "\n", "\r\n"])) if text else ""
        pairs = zip(columns, row, strict=True)
        kept = {name: one for name, one in pairs if not text or one is not None}
        if text and not data.draw(st.integers(0, 4)):
            bad.append(text.count("\n") + 1)
            text += data.draw(st.sampled_from(["[1]", "{", "nonsense", '{"n": {}}']))
        else:
            good.append((text.count("\n") + 1, row))
            text += json.dumps(kept, ensure_ascii=ascii_)
        text += "\n"
    path = tmp_path_factory.getbasetemp() / ("any.jsonl.gz" if packed else "any.jsonl")
    path.write_bytes(gzip.compress(text.encode(), 1) if packed else text.encode())
    agrees(str(path), columns, good or [(1, (None,) * len(columns))], bad, seed)


@given(tables(), st.integers(1, 4), st.integers(0, 99))
def test_any_table_as_parquet(tmp_path_factory, table, group, seed):
    columns, rows = table
    kinds = [*[pa.string()] * (len(columns) - 1), pa.float64()]
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(one, kind) for one, kind in zip(values, kinds, strict=True)]
    path = str(tmp_path_factory.getbasetemp() / "any.parquet")
    pq.write_table(pa.table(arrays, columns), path, row_group_size=group)
    agrees(path, columns, list(enumerate(rows, 1)), seed=seed)


@given(st.text(st.sampled_from('",\n\rab'), max_size=30), st.booleans())
@settings(max_examples=500)
def test_where_records_end(text, final):
    """Against a walk from byte to byte, also of quotes in odd places."""
    data = text.encode()
    ends = Quoted(b",").ends(data, final)
    state, records = "start", []
    for at, one in enumerate(text):
        alone = one == "\r" and text[at + 1 : at + 2] != "\n" and (final or at + 1 < len(text))
        if state == "quoted":
            state = "closing" if one == '"' else state
        elif state in ("closing", "start") and one == '"':
            state = "quoted"
        elif one == "\n" or alone:
            records.append(at)
            state = "start"
        else:
            state = "start" if one in ",\r" else "plain"
    assert ends.records.tolist() == records
    assert ends.unclosed == (state == "quoted")


@given(st.text(st.sampled_from('",\n\ra'), max_size=40), st.integers(1, 20), st.integers(1, 4))
@settings(max_examples=200)
def test_odd_csv_is_the_same_in_any_pieces(tmp_path_factory, text, chunk, rows):
    path = tmp_path_factory.getbasetemp() / "odd.csv"
    path.write_text("a,b\n" + text, newline="")
    whole = read(str(path))
    assert read(str(path), chunk=chunk, rows=rows) == whole
    lines = [line for part in whole for line, _ in part]
    assert len(set(lines)) == len(lines)


# Anything at all.


def written(kind):
    """A small file of a kind, with some of everything."""
    count = 40
    if kind == "parquet":
        table = pa.table({
            "n": [i / 7 if i % 5 else None for i in range(count)],
            "s": [f"tä{i}" for i in range(count)],
            "k": pa.array([f"k{i % 3}" for i in range(count)]).dictionary_encode(),
            "b": [i % 2 == 0 for i in range(count)],
            "t": [datetime.datetime(2020, 1, 1 + i % 28) for i in range(count)],
            "c": [decimal.Decimal("1.5")] * count,
        })  # fmt: skip
        file = io.BytesIO()
        pq.write_table(table, file, row_group_size=15)
        return file.getvalue()
    if kind.startswith("csv"):
        text = "n,s\n" + "".join(f'{i / 7},"tä\n""{i}"\r\n\n' for i in range(count))
    else:
        text = "".join(
            json.dumps({"n": i / 7, "s": f'tä\n"{i}', "b": None}) + "\n" for i in range(count)
        )
    return gzip.compress(text.encode()) if kind.endswith("gz") else text.encode()


KINDS = ("csv", "csv.gz", "jsonl", "jsonl.gz", "parquet")


def survives(folder, kind, data, chunk=64):
    path = folder / f"damaged.{kind}"
    path.write_bytes(data)
    said = f"{path.name}: nothing"
    try:
        opened = Source.of([str(path)], chunk=chunk, rows=8)
        numeric = [name for name in opened.names if name == "n"]
        for block in opened.blocks(numeric=numeric):
            rows_of(block)
            opened.progress(block.end)
    except StreamError as error:
        said = str(error)
    assert path.name in said
    assert "\n" not in said


def damaged(data, randoms):
    data = bytearray(data)
    for _ in range(randoms.choice([1, 1, 2, 5, 20])):
        at = randoms.randrange(len(data) // 2 if randoms.random() < 0.5 else 0, len(data))
        data[at] = randoms.choice([randoms.randrange(256), 0, 255, 34, 10, 13, data[at] ^ 1])
    if randoms.random() < 0.3:
        at = randoms.randrange(len(data))
        del data[at : at + randoms.randrange(30)]
    return bytes(data[: randoms.randrange(len(data))] if randoms.random() < 0.2 else data)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.binary(max_size=200), seed=st.integers(0, 2**32))
def test_any_bytes_are_rows_or_a_sentence(tmp_path_factory, kind, data, seed):
    folder = tmp_path_factory.getbasetemp()
    survives(folder, kind, data, chunk=7)
    survives(folder, kind, damaged(written(kind), random.Random(seed)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_anywhere_is_rows_or_a_sentence(tmp_path, kind):
    whole = written(kind)
    for stop in range(0, len(whole), 1 + len(whole) // 100):
        survives(tmp_path, kind, whole[:stop])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_files_are_rows_or_a_sentence(tmp_path, kind):
    randoms = random.Random(1)
    whole = written(kind)
    for _ in range(800):
        survives(tmp_path, kind, damaged(whole, randoms), chunk=randoms.choice([1, 30, 1000]))


# How much memory.


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_memory_is_bounded(tmp_path, name):
    path = str(tmp_path / name)
    rows = 100_000
    if name.endswith("parquet"):
        column = np.random.default_rng(0).standard_normal(10 * rows)
        pq.write_table(
            pa.table({f"x{i}": column for i in range(6)}), path, row_group_size=10 * rows
        )
        rows *= 10
    else:
        line = ",".join(f"{i}.123456" for i in range(50)) + "\n"
        opener = gzip.open if name.endswith("gz") else open
        with opener(path, "wb", **({"compresslevel": 1} if opener is gzip.open else {})) as file:
            file.write(",".join(f"x{i}" for i in range(50)).encode() + b"\n")
            for _ in range(100):
                file.write(line.encode() * (rows // 100))
    opened = Source.of([path])
    before, most, count = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for block in opened.blocks(numeric=opened.names):
        count += len(block)
        most = max(most, pa.total_allocated_bytes() - before)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == rows
    assert python < 8 << 20
    assert most < 24 << 20
