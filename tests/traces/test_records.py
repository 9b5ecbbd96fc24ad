"""Records of other systems: what was written in each format is read back, and bad files are refused in one line."""

from __future__ import annotations

import gzip
import json
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces.foreign_files import FORMATS, Row

from fencepost.errors import ProtocolRaised
from fencepost.traces import RunsFile, TraceError, TraceEvent, read, records
from fencepost.traces.event import COLUMNS
from fencepost.traces.foreign import Foreign, ReadEvent

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
ROWS = st.fixed_dictionaries(
    {
        "what": st.sampled_from(["started", "writes", 'liest, "und"\n\r zählt']),
        "about": st.sampled_from([None, "7", "x,y"]),
        "values": st.dictionaries(TEXTS, VALUES, max_size=3),
        "host": st.sampled_from(["a", "b"]),
        "day": st.sampled_from(["monday", "tuesday"]),
        "part": st.sampled_from(["", "leader"]),
    }
)


def expected(rows: list[Row], lives: list[int] | None = None) -> list[TraceEvent]:
    """A plain twin: the events of rows in the order in which each node wrote them, counted."""
    found = []
    for node in sorted({(row["day"], row["host"]) for row in rows}):
        incarnation, seq = 1, 0
        for place, row in enumerate(rows):
            if (row["day"], row["host"]) == node:
                if lives is not None and lives[place] != incarnation:
                    incarnation, seq = lives[place], 0
                elif lives is None and row["what"] == "started" and seq:
                    incarnation, seq = incarnation + 1, 0
                seq += 1
                values = json.dumps(row["values"])
                found.append(TraceEvent(*node, incarnation, seq, row["part"], row["what"], row["about"], values, None))
    return found


def by_node(events: list[TraceEvent]) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Events of each node, with parameters as values."""
    found = defaultdict(list)
    for event in events:
        rest = (event.incarnation, event.seq, event.actor, event.action, event.subject, event.parameter_values())
        found[event.run, event.node].append(rest)
    return dict(found)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=12),
    files=st.integers(1, 3),
    order=st.sampled_from(["file", "at", "seq"]),
    seed=st.integers(0, 99),
)
def test_what_is_written_is_read_back(name: str, rows: list[Row], files: int, order: str, seed: int) -> None:
    """In the file's order where records say none; else in any order, and in any file."""
    ending, write, mapping = FORMATS[name]
    want = expected(rows)
    drawn = random.Random(seed)
    if order == "seq":
        # The n-th row of a node is the n-th event of the twin, which has its numbers.
        ahead = {node: iter(events) for node, events in by_node(want).items()}
        numbers = [next(ahead[row["day"], row["host"]]) for row in rows]
        rows = [{**row, "life": life, "number": seq} for row, (life, seq, *_) in zip(rows, numbers, strict=True)]
    elif order == "at":
        rows = [{**row, "clock": place // 2} for place, row in enumerate(rows)]
        pairs = [rows[place : place + 2] for place in range(0, len(rows), 2)]
        drawn.shuffle(pairs)  # events of one time keep the order of their file
        rows = [row for pair in pairs for row in pair]
    if order == "seq":
        drawn.shuffle(rows)
    at = sorted(drawn.randint(0, len(rows)) for _ in range(files - 1))
    parts = [rows[begin:end] for begin, end in zip([0, *at], [*at, len(rows)], strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(parts):
            if part:
                write(Path(folder) / f"n{number + 9}{ending}", part)
        foreign = Foreign(mapping)
        found = [*read(folder, foreign=foreign)]
    assert by_node(found) == by_node(want)
    assert foreign.records - foreign.left_out == len(rows)
    assert foreign.left_out == (len(rows) if name == "spans" else 0)


# -- what is left out -------------------------------------------------------------------------------------------------


def written(folder: Path, name: str, *rows: Any) -> Path:
    """A file of lines, each an object or a text as it is."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def acts(record: Mapping[str, Any]) -> ReadEvent | None:
    """The simplest mapping."""
    return ReadEvent(record["a"]) if "a" in record else None


def places(paths: Any, mapping: Callable[[Mapping[str, Any]], Any] = acts) -> list[tuple[Any, ...]]:
    """Run, node, incarnation, number and action of every event."""
    return [
        (event.run, event.node, event.incarnation, event.seq, event.action)
        for event in read(paths, foreign=Foreign(mapping))
    ]


def test_run_and_node_are_those_of_the_file(tmp_path: Path) -> None:
    written(tmp_path / "monday", "10.0.0.1.ndjson", {"a": "x"}, {"a": "y"})
    (tmp_path / "monday" / "b.json.gz").write_bytes(gzip.compress(b'{"a": "z"}'))
    written(tmp_path / "tuesday", "b.jsonl", {"a": "x"})
    assert places([tmp_path / "monday", tmp_path / "tuesday" / "b.jsonl"]) == [
        ("monday", "10.0.0.1", 1, 1, "x"), ("monday", "10.0.0.1", 1, 2, "y"), ("monday", "b", 1, 1, "z"),
        ("tuesday", "b", 1, 1, "x"),
    ]  # fmt: skip


def test_two_folders_of_one_name_are_not_one_run(tmp_path: Path) -> None:
    paths = [written(tmp_path / name / "logs", "a.ndjson", {"a": "x"}) for name in "xy"]
    with pytest.raises(TraceError, match="x/logs and .*y/logs would both be the run logs"):
        places(paths)
    assert len(places(paths, lambda record: ReadEvent("x", run="r", seq=None))) == 2


def test_files_come_in_the_order_of_their_numbers_and_once(tmp_path: Path) -> None:
    for number in (10, 9, 2):
        written(tmp_path, f"part-{number}.ndjson", {"a": str(number)})
    found = places([tmp_path, tmp_path / "part-2.ndjson"], lambda record: ReadEvent(record["a"], node="n"))
    assert [action for *_, action in found] == ["2", "9", "10"]


def test_a_record_is_one_event_or_none_or_several(tmp_path: Path) -> None:
    path = written(tmp_path, "a.ndjson", {"a": 0}, {"a": 1}, "", {"a": 2})
    foreign = Foreign(lambda record: (ReadEvent(f"e{n}") for n in range(record["a"])))
    assert [event.action for event in read(path, foreign=foreign)] == ["e0", "e0", "e1"]
    assert (foreign.records, foreign.left_out) == (3, 1)


def test_hidden_and_other_files_of_a_folder_are_not_read(tmp_path: Path) -> None:
    for name in ("_SUCCESS.json", ".hidden.ndjson", "notes.txt", "sub.csv/x.ndjson"):
        written(tmp_path, name, "nonsense")
    written(tmp_path, "a.ndjson", {"a": "x"})
    assert len(places(tmp_path)) == 1


def test_traces_are_read_beside_records(tmp_path: Path) -> None:
    written(tmp_path, "a.ndjson", {"a": "x"})
    with RunsFile(tmp_path / "b.parquet") as file:
        file.emit("r", "b", 1, 1, "started")
    pq.write_table(pa.table({"a": ["y"]}), tmp_path / "c.parquet")
    assert sorted(action for *_, action in places(tmp_path)) == ["started", "x", "y"]
    assert [event.action for event in read(tmp_path / "b.parquet")] == ["started"]


def test_a_folder_of_traces_may_have_other_files_where_nothing_maps_them(tmp_path: Path) -> None:
    written(tmp_path, "result.json", "nonsense")
    with RunsFile(tmp_path / "b.parquet") as file:
        file.emit("r", "b", 1, 1, "started")
    assert len([*read(tmp_path)]) == 1


def test_values_of_parquet_are_those_of_python(tmp_path: Path) -> None:
    when = datetime(2024, 2, 29, 12, tzinfo=UTC)
    columns = {
        "s": pa.array([when], pa.timestamp("us", "UTC")),
        "ns": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns")),
        "list": pa.array([[1, None]], pa.list_(pa.int64())),
        "map": pa.array([{"x": 1.5}], pa.struct({"x": pa.float64()})),
        "big": pa.array([2**64 - 1], pa.uint64()),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    ((where, row),) = records.records(tmp_path / "t.parquet")
    assert where == f"{tmp_path}/t.parquet, row 1"
    assert row == {"s": when, "ns": 1_700_000_000_123_456_789, "list": [1, None], "map": {"x": 1.5}, "big": 2**64 - 1}
    (event,) = read(tmp_path, foreign=Foreign(lambda record: ReadEvent("x", parameters=record)))
    assert event.parameter_values()["s"] == "2024-02-29T12:00:00Z"
    assert event.parameter_values()["big"] == 2**64 - 1


# -- order ------------------------------------------------------------------------------------------------------------


def test_a_gap_in_given_numbers_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.ndjson", *({"n": n} for n in (4, 2, 1)))
    with pytest.raises(TraceError, match=r"a\.ndjson: event 3 is missing in the trace of node a, incarnation 1"):
        places(path, lambda record: ReadEvent("x", seq=record["n"]))
    with pytest.raises(TraceError, match="twice or out of order"):
        places(path, lambda record: ReadEvent("x", seq=min(record["n"], 2)))
    with pytest.raises(TraceError, match="no event of node a, incarnation 3"):
        places(path, lambda record: ReadEvent("x", incarnation=record["n"]))


def test_each_later_start_begins_an_incarnation(tmp_path: Path) -> None:
    path = written(tmp_path, "a.ndjson", *({"a": action} for action in ("started", "x", "started", "started", "y")))
    assert [(life, seq) for _, _, life, seq, _ in places(path)] == [(1, 1), (1, 2), (2, 1), (3, 1), (3, 2)]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([{"seq": 1}, {}], "a.ndjson:2: read gives this event of node a neither incarnation nor seq nor at, and its"),
        ([{"at": 1}, {"seq": 2}], "a.ndjson:2: read gives this event of node a seq, and its first one at"),
        ([{"at": 1}, {"at": "2"}], "times `at` that cannot be compared"),
        ([{"at": 1, "seq": 1}], "seq and at both say the order"),
        ([{"seq": 0}], "ValueError: seq is 0, and no number from 1"),
        ([{"seq": True}], "seq is True"),
        ([{"incarnation": 2**31}], "incarnation is 2147483648"),
        ([{"subject": 7}], "TypeError: subject is 7, and no text at"),
        ([{"node": None}], "node is None, and no text"),
        ([{"action": ""}], "action is empty"),
        ([{"parameters": [1]}], r"parameters are \[1\], and no dict"),
    ],
)
def test_events_that_cannot_be_are_refused(tmp_path: Path, given: list[Row], complaint: str) -> None:
    path = written(tmp_path, "a.ndjson", *({"action": "x", **row} for row in given))
    with pytest.raises(ProtocolRaised, match=complaint):
        places(path, lambda record: ReadEvent(**record))


# -- what raises ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        (lambda record: ReadEvent(record["b"]), r"a\.ndjson:2: read raised KeyError: b at .*test_records\.py:\d+"),
        (
            lambda record: {"action": "x"},
            r"a\.ndjson:1: read returns a value of type dict: return a ReadEvent, or None",
        ),
        (lambda record: "x", "read returns a value of type str"),
        (lambda record: {}, "read returns a value of type dict"),
        (lambda record: [7], "read returns a value of type int"),
        (lambda record: 7, "read returns a value of type int"),
        (lambda record: ReadEvent("x", parameters={"v": object()}), "ndjson:1: the parameters that read gives are no"),
        (lambda record: ReadEvent("x", at=float("nan")), "at is nan, which has no place"),
        (lambda record: exec("raise SystemExit(3)"), "read raised SystemExit: 3"),
    ],
)
def test_a_mapping_that_fails_names_the_record(tmp_path: Path, mapping: Any, complaint: str) -> None:
    path = written(tmp_path, "a.ndjson", {"b": "x"}, {"a": "y"})
    with pytest.raises(ProtocolRaised, match=complaint) as raised:
        places(path, mapping)
    assert "\n" not in str(raised.value)


# -- bad files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.ndjson", b'{"a": "x"}\n\n{"a": \n', r"a\.ndjson:3: it is no JSON: Input data was truncated"),
        ("a.ndjson", b'{"a": "x"}\n{"a": "\xff"}\n', r"a\.ndjson:2: it is no JSON: 'utf-8' codec"),
        ("a.ndjson", b"[" * 100_000, r"a\.ndjson:1: it is no JSON: .*recursion"),
        ("a.ndjson", b'{"a": "x"}\n[{}]\n', r"a\.ndjson:2: there is no object of JSON"),
        ("a.ndjson", b"{\n}\n", r"a\.ndjson:1: it is no JSON"),
        ("a.json", b'{\n "a":\n 1,,\n}', r"a\.json:3: it is no JSON"),
        ("a.json", b'[\n {"a": "x"}, 7\n]', r"a\.json, element 2: there is no object"),
        ("a.json", b'{"a": "x"}\n[{}]\n', r"a\.json:2: there is no object of JSON"),
        ("a.json", b'{"a": "x"}\n{"a": \n', r"a\.json:2: it is no JSON"),
        ("a.json", b'\n{"a": "x",\n', r"a\.json:2: it is no JSON: Input data was truncated"),
        ("a.csv", b'a,b\nx,"y\ny"\n1\n', r"a\.csv:4: the row has 1 fields, and there are 2 columns"),
        ("a.csv", b'a,b\n"x\n\n', r"a\.csv:2: it is no CSV: unexpected end of data"),
        ("a.csv", b"a,b,a\n", r"a\.csv:1: two columns have the name 'a'"),
        ("a.csv", b"a\nx\n\xff\n", r"a\.csv:3: it is no CSV: 'utf-8' codec"),
        ("a.csv", b"a\n" + b"x" * 140_000, r"a\.csv:2: it is no CSV: field larger than field limit"),
        ("a.csv.gz", b"a\nx\n", r"a\.csv\.gz cannot be read: Not a gzipped file"),
        (
            "a.ndjson.gz",
            gzip.compress(b'{"a": "x"}\n' * 99, mtime=0)[:-9],
            r"a\.ndjson\.gz cannot be read: Compressed file ended",
        ),
        ("a.parquet", b"PAR1nonsense", r"a\.parquet cannot be read"),
        ("a.ndjson", b"", "there is no event in .*records are in files that end in .ndjson, .jsonl, .json, .csv"),
        ("a.ndjson", b"{}\n{}\n", "there is no event in .*: read makes none of 2 records"),
        ("a.ndjson", b'{"resourceLogs": [{"scopeLogs": 7}]}', r"a\.ndjson:1: it is no OTLP: .*resourceLogs\[0\]"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=complaint) as raised:
        places(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_long_line_and_a_long_document_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 1 << 20)
    padding = " " * ((1 << 20) - len('{"a": "x"}') - 1)
    assert len(places(written(tmp_path, "a.ndjson", {"a": "x"}, f'{{"a": "x"}}{padding}'))) == 2
    with pytest.raises(TraceError, match=r"b\.ndjson:2: the line is longer than 1 MiB"):
        places(written(tmp_path, "b.ndjson", {"a": "x"}, f'{{"a": "x"}}{padding} '))
    with pytest.raises(TraceError, match=r"c\.json is one document of JSON, and longer than 1 MiB"):
        places(written(tmp_path, "c.json", "[", f'{{"a": "x"}}{padding} ', "]"))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.ndjson")
    with pytest.raises(TraceError, match="it is a device or a pipe"):
        places(tmp_path)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (pa.array([2**62], pa.timestamp("us")), "date value out of range"),
        (pa.array([2**31 - 1], pa.date32()), "days=2147483647; must have magnitude"),
        (pa.array([2**62], pa.duration("s")), "too large to convert"),
        (pa.array([1], pa.timestamp("us", "Mars/Base")), "UnknownTimeZoneError: 'Mars/Base'"),
        (pa.array([b"\xff"]).view(pa.string()), "'utf-8' codec can't decode"),
    ],
)
def test_values_that_python_does_not_have_are_refused_in_one_line(
    tmp_path: Path, values: pa.Array, complaint: str
) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=rf"t\.parquet cannot be read: .*{complaint}") as raised:
        places(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["action", "parameters"])
def test_texts_of_a_trace_that_are_no_utf_8_are_refused(tmp_path: Path, name: str) -> None:
    columns: dict[str, list[Any]] = {field: ["x"] for field in COLUMNS} | {"incarnation": [1], "seq": [1]}
    pq.write_table(pa.table(columns | {name: pa.array([b"\xff"]).view(pa.string())}), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"t\.parquet cannot be read: 'utf-8' codec can't decode byte 0xff"):
        [*read(tmp_path)]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["a", "a"]), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match="two columns have the name 'a'"):
        places(tmp_path)


@pytest.mark.parametrize("name", ["a.ndjson", "a.json.gz", "a.csv"])
def test_records_without_a_mapping_are_no_trace(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, {"a": "x"})
    for each in (path, tmp_path):
        with pytest.raises(TraceError, match=f"{name} is no trace .* a conformance whose `read` maps its records"):
            [*read(each)]


def test_a_file_that_begins_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfa\r\nx\r\n")
    (tmp_path / "b.ndjson").write_bytes(b'\xef\xbb\xbf{"a": "y"}\r\n')
    assert [action for *_, action in places(tmp_path)] == ["x", "y"]
