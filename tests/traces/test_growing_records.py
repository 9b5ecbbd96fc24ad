"""Records of other systems that are followed while they are written."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from docs.documents import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st

from fencepost.traces import TraceError, TraceEvent, records
from fencepost.traces import read as read_whole
from fencepost.traces.foreign import Foreign, ReadEvent
from fencepost.traces.validation.tail import Tail

BANK = str(EXAMPLES / "bank_conformance.py")


def mapped(record: Mapping[str, Any]) -> ReadEvent | None:
    """The event that a record of these tests is: its fields are those of an event."""
    return ReadEvent(**record) if record else None


def line(number: int, **fields: Any) -> bytes:
    return json.dumps({"action": f"a{number}", **fields}).encode() + b"\n"


def numbers(events: Sequence[TraceEvent]) -> list[tuple[str, str, int]]:
    return [(event.node, event.action, event.seq) for event in events]


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail([str(tmp_path)], Foreign(mapped, "mapped"))


def add(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_whole_lines_are_read_once(tail: Tail, tmp_path: Path) -> None:
    path = tmp_path / "n.ndjson"
    assert tail.poll() == []
    add(path, line(1) + b"\n{}\n" + line(2)[:9])
    assert numbers(tail.poll()) == [("n", "a1", 1)]
    assert tail.poll() == []
    add(path, line(2)[9:-1])
    assert tail.poll() == []
    add(path, b"\n" + line(3))
    assert numbers(tail.poll()) == [("n", "a2", 2), ("n", "a3", 3)]
    add(tmp_path / "m.jsonl", line(1))
    assert numbers(tail.poll()) == [("m", "a1", 1)]


@given(
    of=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "é", "\n\n", "  "])), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_the_events_are_those_of_the_whole_file(of: list[tuple[str, str]], cuts: list[int]) -> None:
    """However the file is cut while it grows. Nothing comes before the end of its line."""
    text = b"\xef\xbb\xbf" + b"".join(
        line(number, node=node, parameters={"é": blank.strip()}) + (blank if blank.isspace() else "").encode()
        for number, (node, blank) in enumerate(of)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r", "n.ndjson")
        path.parent.mkdir()
        tail, found, written = Tail([str(path.parent)], Foreign(mapped)), list[TraceEvent](), 0
        for cut in [*sorted(min(each, len(text)) for each in cuts), len(text)]:
            add(path, text[written:cut])
            written = cut
            found += tail.poll()
            whole = text[:cut].rpartition(b"\n")[0]
            assert len(found) == sum(bool(each.strip()) for each in whole.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
        expected = [*read_whole(path.parent, foreign=Foreign(mapped))] if of else []
        assert found == expected


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:5]), "is not the file that it was, or was cut"),
        (lambda path: path.write_bytes(b""), "is not the file that it was, or was cut"),
        (lambda path: path.write_bytes(b"x" * 500), "is not the file that it was, or was cut"),
        (lambda path: _replaced(path), "is not the file that it was, or was cut"),
        (lambda path: path.unlink(), "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_does_not_only_grow_is_refused(
    tail: Tail, tmp_path: Path, how: Callable[[Path], object], says: str
) -> None:
    path = tmp_path / "n.ndjson"
    add(path, line(1) + line(2))
    assert len(tail.poll()) == 2
    how(path)
    with pytest.raises(TraceError, match=rf"n\.ndjson {says}"):
        tail.poll()


def _replaced(path: Path) -> None:
    """The same bytes and more, in another file."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes() + line(3))
    other.rename(path)


def test_a_line_that_is_no_json_is_named(tail: Tail, tmp_path: Path) -> None:
    add(tmp_path / "n.ndjson", line(1))
    tail.poll()
    add(tmp_path / "n.ndjson", b"{\n")
    with pytest.raises(TraceError, match=r"n\.ndjson:2: it is no JSON"):
        tail.poll()


def test_a_line_that_never_ends_is_refused(tail: Tail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LONGEST", 1 << 20)
    add(tmp_path / "n.ndjson", line(1) + b" " * ((1 << 20) + 1))
    with pytest.raises(TraceError, match=r"n\.ndjson:2: the line is longer than 1 MiB"):
        tail.poll()


def test_numbers_and_incarnations_go_on(tail: Tail, tmp_path: Path) -> None:
    path = tmp_path / "n.ndjson"
    add(path, line(1))
    first = tail.poll()
    add(path, b'{"action": "started"}\n' + line(2))
    assert [(each.incarnation, each.seq) for each in first + tail.poll()] == [(1, 1), (2, 1), (2, 2)]


def test_events_with_numbers_come_in_their_order(tail: Tail, tmp_path: Path) -> None:
    path = tmp_path / "n.ndjson"
    add(path, line(1, seq=1) + line(2, seq=2))
    assert len(tail.poll()) == 2
    for seq in (2, 4):
        add(path, line(3, seq=seq))
        with pytest.raises(TraceError, match=rf":3: event {seq} of node n, .* comes after event 2: events that are"):
            tail.poll()
        path.write_bytes(line(1, seq=1) + line(2, seq=2))
        tail = Tail([str(tmp_path)], Foreign(mapped, "mapped"))
        assert len(tail.poll()) == 2


def test_events_with_times_are_not_sorted(tail: Tail, tmp_path: Path) -> None:
    add(tmp_path / "n.ndjson", line(1, at=1))
    with pytest.raises(TraceError, match=r":1: mapped gives a time `at`: .* so leave `at` out"):
        tail.poll()


# -- the command ------------------------------------------------------------------------------------------------------

Said = tuple[int, str, str]


@pytest.fixture
def said(said: Callable[..., Said]) -> Callable[..., Said]:
    """Run ``fencepost validate --follow`` for the bank, for a moment."""
    return lambda *arguments: said(*arguments, "--conformance", BANK, "--follow", "--for", "0.1")


@pytest.mark.parametrize("name", ["a.ndjson.gz", "a.csv", "a.json", "a.csv.gz"])
def test_other_files_are_refused(said: Callable[..., Said], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    code, _, complaint = said(tmp_path)
    assert (code, complaint.count("\n")) == (151, 1)
    assert f"{name} cannot be followed: only lines of JSON can, in files that end in .ndjson or .jsonl; leave out" in (
        complaint
    )


def test_one_that_comes_later_is_refused_too(tail: Tail, tmp_path: Path) -> None:
    assert tail.poll() == []
    (tmp_path / "a.ndjson.gz").write_bytes(b"")
    with pytest.raises(TraceError, match=r"a\.ndjson\.gz cannot be followed: only lines of JSON can"):
        tail.poll()


def test_tables_are_refused(said: Callable[..., Said], tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    code, _, complaint = said(tmp_path)
    assert (code, complaint.count("\n")) == (151, 1) and "a.parquet cannot be followed" in complaint


def test_spark_does_not_follow_records(said: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b"")
    code, _, complaint = said(tmp_path, "--engine", "spark")
    assert (code, complaint.count("\n")) == (151, 1) and "Spark does not follow records of other systems" in complaint


def test_records_are_followed_to_their_verdict(said: Callable[..., Said], tmp_path: Path) -> None:
    """What is there when following begins counts, and records that are no events are counted. The bank's log does not
    say its end.
    """
    for fault, code, verdict in (("good", 152, "NOT FINISHED  1 trace"), ("hasty", 12, "REJECTED")):
        subprocess.run([sys.executable, str(EXAMPLES / "bank.py"), str(tmp_path / fault), fault], check=True)
        found, out, _ = said(tmp_path / fault, "--patience", "0.001")
        assert found == code and verdict in out and "are no events" in out
