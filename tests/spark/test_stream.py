"""Validating traces on Spark while they are written."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path

import pytest

from fencepost import ProtocolRaised
from fencepost.spark import stream
from fencepost.spark.cluster import Cluster
from fencepost.spark.stream import Feeder, follow
from fencepost.traces import RunsFile, TraceError, TraceEvent, TraceWriter
from fencepost.traces.validation.outcome import Outcome
from fencepost.traces.validation.request import Request
from fencepost.traces.validation.tail import Tail
from fencepost.traces.validation.watch import Limits

CALLER: ContextVar[str] = ContextVar("caller")
CONFORMANCE = str(Path(__file__).parents[1] / "traces" / "counting.py")


def test_verdicts_are_told_while_systems_write(spark: object, tmp_path: Path) -> None:
    a, b = (TraceWriter(tmp_path, node=node, run="r") for node in "ab")
    b.emit("reads", "good", {"value": 1})
    b.emit("reads", "bad", {"value": 1})
    b.close()
    told: list[Outcome] = []
    rejected, done = threading.Event(), threading.Event()
    CALLER.set("this test")

    def report(outcomes: list[Outcome]) -> None:
        assert CALLER.get() == "this test"  # where standard output is the command's, for one
        told.extend(outcomes)
        if any(outcome.subject == "bad" for outcome in told):
            rejected.set()
        if len(told) == 2:
            done.set()

    def write() -> None:
        a.emit("writes", "good", {"value": 1})
        rejected.wait(120)
        a.close()

    writing = threading.Thread(target=write)
    writing.start()
    try:
        with closing(Cluster()) as cluster:
            follow(cluster, [str(tmp_path)], Request(CONFORMANCE), Limits(patience=2), report, done.is_set)
    finally:
        rejected.set()
        writing.join()
    assert [(outcome.run, outcome.subject, outcome.verdict) for outcome in told] == [
        ("r", "bad", "rejected"),
        ("r", "good", "accepted"),
    ]
    assert told[0].refusals[0].step == "reads(w=w1)"


def test_a_conformance_that_raises_ends_it(spark: object, tmp_path: Path) -> None:
    text, told = Path(CONFORMANCE).read_text(), list[Outcome]()
    asked = "    is_over = still_needed = lambda events: nobody\n\n    def constants("
    (tmp_path / "broken.py").write_text(text.replace("    def constants(", asked, 1))
    with RunsFile(tmp_path / "t.parquet") as file:
        file.emit("r", "a", 1, 1, "writes", "7", {"value": 1})
    with closing(Cluster()) as cluster, pytest.raises(ProtocolRaised) as raised:
        follow(cluster, [str(tmp_path)], Request(str(tmp_path / "broken.py")), Limits(), told.extend)
    assert str(raised.value).startswith("the conformance raised NameError: name 'nobody' is not defined") and not told


def test_a_gap_ends_it(spark: object, tmp_path: Path) -> None:
    with RunsFile(tmp_path / "t.parquet") as file:
        file.emit("r", "a", 1, 2, "writes", "7", {"value": 1})
    with closing(Cluster()) as cluster, pytest.raises(TraceError, match="events 1 to 1 are missing"):
        follow(cluster, [str(tmp_path)], Request(CONFORMANCE), Limits(), lambda outcomes: None)


def test_the_time_that_it_takes_begins_after_the_first_batch(spark: object, tmp_path: Path) -> None:
    with TraceWriter(tmp_path, node="a", run="r") as a:
        a.emit("reads", "bad", {"value": 1})
    told: list[Outcome] = []
    with closing(Cluster()) as cluster:
        follow(cluster, [str(tmp_path)], Request(CONFORMANCE), Limits(patience=0), told.extend, lambda: True)
    assert [outcome.verdict for outcome in told] == ["rejected"]


def test_what_is_open_in_the_end_is_not_finished(spark: object, tmp_path: Path) -> None:
    with RunsFile(tmp_path / "t.parquet") as file:
        file.emit("r", "a", 1, 1, "writes", "good", {"value": 1})
        file.emit("r", "b", 1, 1, "reads", "waits", {"value": 1})
    told: list[Outcome] = []
    with closing(Cluster()) as cluster:
        follow(cluster, [str(tmp_path)], Request(CONFORMANCE), Limits(), told.extend, lambda: True)
    found = {outcome.subject: (outcome.verdict, outcome.accepted, outcome.problem) for outcome in told}
    waits = "a step still waits: b 1 1 reads(w=w1)"
    assert found == {"good": ("not finished", True, ""), "waits": ("not finished", False, waits)}


def test_a_folder_that_a_late_task_writes_to_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    remove, removals = shutil.rmtree, list[str]()

    def removes_the_second_time(folder: str, ignore_errors: bool) -> None:
        removals.append(folder)
        if len(removals) == 2:
            remove(folder, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", removes_the_second_time)
    with stream._temporary_folder() as folder:
        Path(folder, "state").mkdir()
    assert removals == [folder, folder] and not Path(folder).exists()


def test_a_folder_that_stays_is_told_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(stream, "LATE", 0.0)
    with monkeypatch.context() as patch, stream._temporary_folder() as folder:
        patch.setattr(shutil, "rmtree", lambda folder, ignore_errors: None)
    shutil.rmtree(folder)
    assert f"{folder} could not be removed" in caplog.text


def test_what_is_there_already_is_in_the_first_batch(tmp_path: Path) -> None:
    class Slow(Tail):
        def poll(self) -> list[TraceEvent]:
            time.sleep(0.2)
            return super().poll()

    with TraceWriter(tmp_path / "trace", node="a", run="r") as a:
        a.emit("reads", "bad", {"value": 1})
    feeder = Feeder(Slow([str(tmp_path / "trace")]), tmp_path / "events")
    feeder.start()
    try:
        assert [file.name for file in (tmp_path / "events").glob("*.parquet")] == ["00000000.parquet"]
    finally:
        feeder.stop()
    assert feeder.failure is None


@pytest.mark.parametrize(("patience", "seconds"), [(0.0, 0.1), (0.25, 0.25), (5.0, 1.0)])
def test_batches_come_as_often_as_patience_asks(patience: float, seconds: float) -> None:
    assert stream.seconds_between_batches(Limits(patience=patience)) == seconds


def test_a_class_that_this_spark_lacks_is_not_used(spark: object) -> None:
    assert stream.has_class(spark, stream.FILE_MANAGER)
    assert not stream.has_class(spark, stream.FILE_MANAGER.replace("checkpointing", "elsewhere"))
