"""Traces: emitted events are read back, and missing ones are noticed."""

from __future__ import annotations

import json
import os
import signal
import string
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost import OptionError
from fencepost.traces import RunsFile, TraceError, TraceEvent, TraceWriter, pack, read, table, writer
from fencepost.traces.event import COLUMNS
from fencepost.traces.folder import Folder, parsed, stem_of
from fencepost.traces.spool import Contents

SMALL: dict[str, Any] = {"segment": 1 << 16, "event_limit": 1 << 12, "size_limit": 1 << 20}
"""Sizes small enough that a few events need several files."""

KEYS = st.text(string.ascii_lowercase, min_size=1, max_size=5)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=4)
TEXTS = st.text(max_size=10)
EVENTS = st.lists(st.tuples(TEXTS, st.none() | TEXTS, OBJECTS, st.none() | OBJECTS, TEXTS), max_size=60)


def spools(folder: Path) -> list[Path]:
    return sorted((folder / "_spool").glob("*.spool"))


def parquets(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def rows(folder: Path) -> list[tuple[int, str]]:
    return [(event.seq, event.action) for event in read(folder)]


@settings(max_examples=60, deadline=None)
@given(emitted=EVENTS, as_spool=st.booleans())
def test_what_is_emitted_is_read(tmp_path_factory: pytest.TempPathFactory, emitted: list[Any], as_spool: bool) -> None:
    folder = tmp_path_factory.mktemp("traces")
    trace = TraceWriter(folder, node="n:1", started={"kind": "test"}, **SMALL)
    for event in emitted:
        trace.emit(*event)
    if not as_spool:
        trace.close()
    found = [*read(folder)]
    assert [event.seq for event in found] == [*range(1, len(emitted) + 2 + (not as_spool))]
    assert {(event.run, event.node, event.incarnation) for event in found} == {(trace.run, "n:1", 1)}
    assert (found[0].action, found[0].parameter_values(), found[0].subject) == ("started", {"kind": "test"}, None)
    told = [(e.action, e.subject, e.parameter_values(), e.state_values(), e.actor) for e in found[1 : len(emitted) + 1]]
    assert told == emitted
    assert table(folder).to_pylist() == [{name: getattr(event, name) for name in COLUMNS} for event in found]
    trace.close()
    assert not spools(folder)


def test_three_lines_of_somebody_elses_system(tmp_path: Path) -> None:
    program = f"""
import fencepost, sys
assert not any(name.startswith("fencepost.traces") for name in sys.modules)
trace = fencepost.TraceWriter({str(tmp_path)!r}, node="server-1")
trace.emit("leader_appends", subject=7, parameters={{"index": 4}})
trace.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert rows(tmp_path) == [(1, "started"), (2, "leader_appends"), (3, "ended")]
    assert [*read(tmp_path)][1] == TraceEvent(
        (tmp_path / "_run").read_text().strip(), "server-1", 1, 2, "", "leader_appends", "7", '{"index":4}', None
    )


@pytest.mark.parametrize("packs", [False, True])
def test_a_process_that_is_killed_loses_nothing_that_it_has_emitted(tmp_path: Path, packs: bool) -> None:
    program = f"""
import sys
from fencepost.traces import TraceWriter
trace = TraceWriter({str(tmp_path)!r}, "r", node="n", segment=1 << 16, event_limit=1 << 12)
for number in range(10**9):
    trace.emit("counts", parameters={{"number": number}})
    if number % 1000 == 0:
        print(number, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = 0
        while told < 20_000:
            told = int(process.stdout.readline())
        assert pack(tmp_path) == 0 or not packs  # the process is alive
        process.send_signal(signal.SIGKILL)
        told = int((["0", *process.stdout.read().split()])[-1]) or told
    assert process.returncode == -signal.SIGKILL
    if packs:
        assert pack(tmp_path) >= 1
        assert not [each for each in spools(tmp_path) if Contents(each).origin is not None], "it was in the making"
    else:
        assert spools(tmp_path)
    found = [*read(tmp_path)]
    assert [event.seq for event in found] == [*range(1, len(found) + 1)]
    assert len(found) >= told + 2  # started, and the events that were reported
    assert [event.parameter_values()["number"] for event in found[1:]] == [*range(len(found) - 1)]
    again = TraceWriter(tmp_path, "r", node="n")
    assert again.incarnation == 2
    again.close()
    assert len([*read(tmp_path)]) == len(found) + 2


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1), how=st.sampled_from(["cut", "zeros", "payload"]))
def test_a_torn_frame_ends_the_events_before_it(
    tmp_path_factory: pytest.TempPathFactory, where: float, how: str
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    trace = TraceWriter(folder, "r", node="n", **SMALL)
    ends = [8, trace._end]
    for number in range(20):
        trace.emit("counts", parameters={"number": number, "text": "x" * number})
        ends.append(trace._end)
    (path,) = spools(folder)
    data = path.read_bytes()
    at = int(where * ends[-1])
    torn = data[:at] + (b"" if how == "cut" else bytes(len(data) - at))
    if how == "payload":  # its head was written, not all of it
        frame = max((end for end in ends if end <= at), default=8)
        torn = torn[:frame] + data[frame : frame + 8] + torn[frame + 8 :]
    path.write_bytes(torn)
    found = [*Contents(path).rows()]
    whole = sum(end <= at for end in ends[1:])
    assert whole <= len(found) <= whole + 1  # the bytes that are lost may be zeros anyway
    assert [row[0] for row in found] == [*range(1, len(found) + 1)]
    path.write_bytes(data)
    trace.close()


def test_damage_in_the_middle_is_no_torn_end(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, "r", node="n")
    trace.emit("first", parameters={"text": "abc"})
    trace.emit("second")
    (path,) = spools(tmp_path)
    damaged = path.read_bytes().replace(b"abc", b"abd")
    path.write_bytes(damaged)
    with pytest.raises(
        TraceError, match=r"is damaged at byte \d+: the checksum of a frame is wrong, and others follow it"
    ):
        [*read(tmp_path)]
    trace.close()


def test_incarnations_count_up_and_runs_are_named_by_the_folder(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        with TraceWriter(tmp_path, node="a") as trace:
            assert trace.incarnation == expected
    both = [TraceWriter(tmp_path, node="b"), TraceWriter(tmp_path, node="b")]  # at the same time
    assert [trace.incarnation for trace in both] == [1, 2]
    other = TraceWriter(tmp_path, "another", node="b")
    assert other.incarnation == 1
    for trace in (*both, other):
        trace.close()
    assert {trace.run for trace in both} == {Folder(tmp_path).run()}
    assert Folder(tmp_path).run().startswith(tmp_path.name[:40].replace("_", "_") + "-")
    assert {(e.run, e.node, e.incarnation) for e in read(tmp_path)} == {
        *((both[0].run, "a", n) for n in (1, 2, 3)),
        *((both[0].run, "b", n) for n in (1, 2)),
        ("another", "b", 1),
    }


def test_many_writers_at_once_have_incarnations_of_their_own(tmp_path: Path) -> None:
    def write() -> None:
        for _ in range(5):
            with TraceWriter(tmp_path, node="n", **SMALL) as trace:
                trace.emit("works")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table(tmp_path).num_rows == 60
    assert {event.incarnation for event in read(tmp_path)} == {*range(1, 21)}


def test_threads_share_a_writer(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, node="n", **SMALL) as trace:

        def emits(who: str) -> None:
            for n in range(500):
                trace.emit("does", parameters={"n": n}, actor=who)

        threads = [threading.Thread(target=emits, args=(who,)) for who in ("a", "b", "c")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [*read(tmp_path)]
    for who in ("a", "b", "c"):
        assert [event.parameter_values()["n"] for event in found if event.actor == who] == [*range(500)]


@pytest.mark.parametrize("after", [0, 1, 100])
def test_a_trace_over_its_limit_says_so(tmp_path: Path, after: int, caplog: pytest.LogCaptureFixture) -> None:
    trace = TraceWriter(tmp_path, "r", node="n", segment=1 << 16, event_limit=1 << 12, size_limit=1 << 17)
    while not trace.stopped:
        trace.emit("fills", parameters={"text": "x" * 500})
    stopped = trace.seq
    for _ in range(after):
        trace.emit("is lost")
    assert f"stops with event {stopped}: it has reached its limit of bytes" in caplog.text
    with pytest.raises(
        TraceError, match=f"node n, incarnation 1 \\(run r\\) stopped with event {stopped}: it has reached its limit"
    ):
        [*read(tmp_path)]
    trace.close()
    for reading in (lambda: [*read(tmp_path)], lambda: table(tmp_path)):
        with pytest.raises(TraceError, match=f"stopped with event {stopped}: it has reached its limit"):
            reading()
    *_, before, last = read(tmp_path, check=False)
    assert (before.action, before.seq) == ("trace_stopped", stopped)
    assert (last.action, last.seq, last.parameter_values()["lost"]) == ("ended", stopped + after + 1, after + 1)
    assert sum(1 for _ in read(tmp_path, check=False)) == stopped + 1


def test_a_full_disk_stops_the_trace_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = TraceWriter(tmp_path, "r", node="n", **SMALL)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fencepost.traces.spool._allocate", full)
    for _ in range(1000):
        trace.emit("fills", parameters={"text": "x" * 500})
    assert "No space left on device" in trace.stopped
    monkeypatch.undo()
    trace.emit("is not written though there is room again")
    trace.close()
    assert not spools(tmp_path)
    with pytest.raises(
        TraceError, match=r"stopped with event \d+: its file of frames cannot be made: No space left on device"
    ):
        [*read(tmp_path)]


def test_a_real_full_disk(tmp_path: Path) -> None:
    """On a file system of 200 KiB, if this user may create one."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(place)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        trace = TraceWriter(place, "r", node="n", **SMALL)
        for _ in range(5000):
            trace.emit("fills", parameters={"text": os.urandom(200).hex()})
        assert "No space left" in trace.stopped
        trace.close()
        with pytest.raises(TraceError, match=r"stopped with event \d+: .*No space left"):
            [*read(place)]
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_an_event_that_can_not_be_written_is_missing_by_its_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = TraceWriter(tmp_path, "r", node="n", **SMALL)
    trace.emit("is there")
    trace.emit("too large", parameters={"text": "x" * 5000})
    trace.emit("no text", parameters={"text": "\ud800"})
    trace.emit("is there too", parameters={"odd": object})
    trace.close()
    assert "event 3, too large, is missing" in caplog.text and "event 4, no text, is missing" in caplog.text
    with pytest.raises(TraceError, match="events 3 to 4 are missing in the trace of node n, incarnation 1 \\(run r\\)"):
        [*read(tmp_path)]
    with pytest.raises(TraceError, match="events 3 to 4 are missing"):
        table(tmp_path)
    assert [event.action for event in read(tmp_path, check=False)] == ["started", "is there", "is there too", "ended"]


def test_nothing_is_raised_after_the_end(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, "r", node="n")
    trace.close({"reason": "signal"})
    trace.close()
    trace.emit("too late")
    assert rows(tmp_path) == [(1, "started"), (2, "ended")]


def test_a_child_of_the_process_writes_nothing(tmp_path: Path) -> None:
    program = f"""
import os
from fencepost.traces import TraceWriter
trace = TraceWriter({str(tmp_path)!r}, "r", node="n")
child = os.fork()
trace.emit("does", actor="child" if not child else "parent")
if not child:
    trace.close()
    os._exit(0)
os.waitpid(child, 0)
trace.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [(event.action, event.actor) for event in read(tmp_path)] == [
        ("started", ""),
        ("does", "parent"),
        ("ended", ""),
    ]


def _write(folder: Path, seqs: list[tuple[int, int]]) -> None:
    with RunsFile(folder / "x.parquet") as file:
        for incarnation, seq in seqs:
            file.emit("r", "n", incarnation, seq, "does")


@pytest.mark.parametrize(
    ("seqs", "complaint"),
    [
        ([(1, 1), (1, 3)], "event 2 is missing in the trace of node n, incarnation 1"),
        ([(1, 2)], "event 1 is missing"),
        ([(1, 1), (1, 2), (1, 2)], "event 2 is there after event 2, twice or out of order, of node n"),
        ([(2, 1), (1, 1), (2, 4)], "events 2 to 3 are missing in the trace of node n, incarnation 2"),
        (
            [(1, 1), (3, 1)],
            "there is no event of node n, incarnation 2 \\(run r\\), and there are some of incarnation 3",
        ),
        ([], "there is no event in"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, seqs: list[tuple[int, int]], complaint: str) -> None:
    _write(tmp_path, seqs)
    with pytest.raises(TraceError, match=complaint):
        [*read(tmp_path)]
    with pytest.raises(TraceError, match=complaint):
        table(tmp_path)


def test_a_file_of_many_runs(tmp_path: Path) -> None:
    with RunsFile(tmp_path / "seeds.parquet") as file:
        for run in range(1, 301):
            for seq in (1, 2):
                for node in ("a", "b"):
                    file.emit(f"seed-{run}", node, 1, seq, "does", parameters={"seq": seq})
    found = [*read(tmp_path)]
    assert len(found) == 1200 == table(tmp_path).num_rows
    with pytest.raises(ZeroDivisionError), RunsFile(tmp_path / "none.parquet") as file:
        file.emit("r", "n", 1, 1, "does")
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["seeds.parquet"]


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pytest.raises(TraceError, match="there is no trace"):
        [*read(tmp_path / "nowhere")]
    with pytest.raises(TraceError, match="there is no event in"):
        [*read(tmp_path)]
    (tmp_path / "a.parquet").write_bytes(b"no Parquet at all")
    with pytest.raises(TraceError, match="a.parquet cannot be read"):
        [*read(tmp_path)]
    pq.write_table(pa.table({"run": ["r"], "node": ["n"]}), tmp_path / "a.parquet")
    with pytest.raises(TraceError, match="a.parquet is no trace: it has no column incarnation"):
        table(tmp_path)
    (tmp_path / "a.parquet").unlink()
    (tmp_path / "_spool").mkdir()
    (tmp_path / "_spool" / "x@1@000001.spool").write_bytes(b"something else")
    with pytest.raises(TraceError, match="is no spool of a trace, or one of another version"):
        [*read(tmp_path)]


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    with TraceWriter(tmp_path, "r", node="n") as trace:
        for number in range(1000):
            trace.emit("does", parameters={"number": number})
    (path,) = parquets(tmp_path)
    data = bytearray(path.read_bytes())
    for at in range(100, len(data) // 2, 97):
        data[at] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(TraceError, match="cannot be read"):
        [*read(tmp_path)]


@given(run=st.text(min_size=1, max_size=20), node=st.text(min_size=1, max_size=20))
def test_names_of_files_are_those_of_one_node_alone(run: str, node: str) -> None:
    try:
        stem = stem_of(run, node)
    except TraceError:
        return
    name = parsed(f"{stem}@3@000004.parquet")
    assert name is not None and (name.stem, name.incarnation, name.part) == (stem, 3, 4)
    assert stem.count("@") == 1 and not stem.startswith(("_", ".")) and stem.isascii()
    assert "/" not in stem and ":" not in stem


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a segment has room for the largest event"):
        TraceWriter(tmp_path, node="n", segment=100)
    with pytest.raises(TraceError, match="the name of the node is ''"):
        TraceWriter(tmp_path, node="")
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match="traces cannot be written to"):
        TraceWriter(tmp_path / "file", node="n")


def test_without_pyarrow_spools_stay_and_are_read(tmp_path: Path) -> None:
    program = f"""
import sys
sys.modules["pyarrow"] = None
from fencepost.traces import TraceWriter, read, pack, table
with TraceWriter({str(tmp_path)!r}, "r", node="n", segment=1 << 16, event_limit=1 << 12) as trace:
    for number in range(3000):
        trace.emit("does", parameters={{"number": number}})
assert sum(1 for _ in read({str(tmp_path)!r})) == 3002
for do in (pack, table):
    try:
        do({str(tmp_path)!r})
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert (
        first == "OptionError writing traces as Parquet needs pyarrow, which is not installed: in a checkout of"
        " Fencepost, pip install '.[query]'"
    )
    assert (
        second == "OptionError reading traces as tables needs pyarrow, which is not installed: in a checkout of"
        " Fencepost, pip install '.[query]'"
    )
    assert len(spools(tmp_path)) >= 2 and not parquets(tmp_path)
    assert pack(tmp_path) == len(parquets(tmp_path)) >= 2
    assert table(tmp_path).num_rows == 3002


def test_a_segment_that_was_packed_and_not_removed_counts_once(tmp_path: Path) -> None:
    trace = TraceWriter(tmp_path, "r", node="n")
    trace.emit("does")
    (path,) = spools(tmp_path)
    data = path.read_bytes()
    trace.close()
    path.write_bytes(data)
    assert rows(tmp_path) == [(1, "started"), (2, "does"), (3, "ended")]


def test_a_parquet_file_that_can_not_be_written_leaves_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = TraceWriter(tmp_path, "r", node="n")
    trace.emit("does")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "_convert", fails)
    trace.close()
    assert rows(tmp_path) == [(1, "started"), (2, "does"), (3, "ended")]


def test_parameters_that_are_no_object() -> None:
    event = TraceEvent("r", "n", 1, 5, "", "does", None, "[1]", json.dumps(3))
    with pytest.raises(
        TraceError, match="the parameters of event 5 of node n, incarnation 1 \\(run r\\) are no JSON object"
    ):
        event.parameter_values()
    with pytest.raises(TraceError, match="the state of event 5"):
        event.state_values()


def test_a_share_of_the_ledgers_is_traced_by_all_writers_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "_share").write_text("3\n")
    for node in ("a", "b"):
        with TraceWriter(tmp_path, node=node, run="r") as writer:
            for subject in (0, 1, "2", 3, "6", "log/7", None):
                writer.emit("acts", subject)
    for node in ("a", "b"):
        events = [each for each in read(tmp_path) if each.node == node]
        assert [each.subject for each in events] == [None, "0", "3", "6", "log/7", None, None]
        assert [each.seq for each in events] == [*range(1, 8)]


@pytest.mark.parametrize("text", ["", "0", "-3", "many", "9" * 19])
def test_a_share_that_is_no_number_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "_share").write_text(text)
    with pytest.raises(TraceError, match="write a number there, such as 16 to trace one ledger of 16"):
        TraceWriter(tmp_path, node="a")
