"""Validating traces on Spark: the same verdicts and the same complaints as in one process."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaigns import campaign_if
from msgspec import structs
from traces.counting import Counting
from traces.plain_space import walked
from traces.test_shared_events import rows
from traces.traces_of_runs import BAD, GOOD, write_counters, write_runs

import fencepost
from fencepost.errors import OptionError
from fencepost.language import loading
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.report.validation import explaining
from fencepost.spark import coverage as on_spark
from fencepost.spark import validate
from fencepost.spark.cluster import Cluster
from fencepost.spark.validate import (
    NEEDED,
    TaskResult,
    needed_task,
    results_of,
    stretches_of,
    traces_of,
    validate_task,
    visit_task,
)
from fencepost.states.manifest import StateSpace
from fencepost.traces import RunsFile, TraceError, TraceEvent, TraceWriter, read
from fencepost.traces.foreign import Foreign
from fencepost.traces.validation import registry
from fencepost.traces.validation.conformance import Conformance
from fencepost.traces.validation.coverage import Coverage
from fencepost.traces.validation.outcome import Outcome, judged
from fencepost.traces.validation.request import Request
from fencepost.traces.validation.space_coverage import InSpace, in_space
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator

CONFORMANCE = str(Path(__file__).parents[1] / "traces" / "counting.py")


def here(path: Path, conformance: str, foreign: Foreign | None = None) -> list[Outcome]:
    """The outcomes in this process."""
    validator = Validator(registry.resolve(conformance))
    needed = validator.conformance.still_needed
    traces = Traces(read(path, foreign=foreign), still_needed=needed)
    return [
        judged(validator, *name, partial(traces.events, name), None, explaining(12, 100)) for name in traces.names()
    ]


def validated(paths: list[str], request: Request) -> Any:
    """The outcomes on Spark, with the coverage."""
    with closing(Cluster()) as cluster:
        return validate.validated(cluster, paths, request)


@pytest.mark.campaign
def test_spark_comes_to_the_same_verdicts(spark: object, tmp_path: Path) -> None:
    write_runs(tmp_path / "good.parquet", range(1, 6), "everything")
    write_runs(tmp_path / "bad.parquet", range(11, 14), "everything", without="write_back_before_close")
    found, _, _ = validated([str(tmp_path)], Request("store"))
    assert len(found) == 8
    assert found == here(tmp_path, "store")
    assert any(outcome.refusals and outcome.story for outcome in found)


def test_events_about_all_subjects_that_no_verdict_needs_are_left_out_once_a_run(spark: object, tmp_path: Path) -> None:
    numbers: Counter[tuple[str, str, int]] = Counter()
    with RunsFile(tmp_path / "a.parquet") as file:
        for event in [*rows(1), *(structs.replace(each, run="another") for each in rows(2))]:
            life = (event.run, event.node, event.incarnation)
            numbers[life] += 1
            file.emit(*life, numbers[life], event.action, event.subject, event.parameter_values())
    write_runs(tmp_path / "one.parquet", [3], "crashes")  # of one ledger, which is given all
    found, _, _ = validated([str(tmp_path)], Request("store"))
    assert [(each.run, each.subject) for each in found] == [
        ("another", "7"), ("another", "8"), ("crashes-3", "7"), ("run", "7"), ("run", "8"),
    ]  # fmt: skip
    assert found == here(tmp_path, "store")
    assert found[3].events < sum(each.subject in (None, "7") for each in rows(1))
    chosen, _, _ = validated([str(tmp_path)], Request("store", runs=("run",), subjects=("8",)))
    assert chosen == [found[4]], "the choice of a subject does not make a run one of a single subject"


def test_a_task_leaves_out_what_no_verdict_needs_unless_an_event_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(validate, "BATCH", 7)

    def kept(of: str, some: Sequence[TraceEvent]) -> list[tuple[int, str | None]]:
        shared = sorted((each for each in some if each.subject is None), key=lambda each: (each.node, each.incarnation))
        columns = zip(*(("r", of, *structs.astuple(each)[1:-1]) for each in shared), strict=True)
        batch = pa.record_batch(
            [pa.array(each, kind) for each, kind in zip(columns, NEEDED.types, strict=True)], schema=NEEDED
        )
        made = [*needed_task(Request("store"), iter([batch.slice(0, 20), batch.slice(20)]))]
        assert all(each.schema == batch.schema and each.num_rows <= 7 for each in made)
        return [(row["seq"], row["parameters"]) for each in made for row in each.to_pylist()]

    some = rows(1)
    whole = kept("", some)
    assert len(whole) == sum(each.subject is None for each in some)
    short = Traces(some, still_needed=StoreConformance.still_needed).rows(("run", "7"))
    assert sorted(seq for seq, _ in kept("several", some)) == sorted(each.seq for each in short if each.subject is None)
    broken = [*some, TraceEvent("run", "b9", 1, 1, "", "started", None, "no JSON", None)]
    assert kept("several", broken) == kept("", broken)


def test_a_conformance_that_needs_all_is_not_asked() -> None:
    assert StoreConformance.chooses() and not Conformance.chooses()
    own: Any = type("Own", (Conformance,), {"still_needed": lambda events: events[:1]})
    assert own.chooses()


def test_a_conformance_of_ones_own_and_a_choice_of_traces(spark: object, tmp_path: Path) -> None:
    write_counters(tmp_path / "a.parquet", {"one": GOOD, "two": BAD, "three": GOOD})
    with TraceWriter(tmp_path, node="idle", run="four"):
        pass
    with RunsFile(tmp_path / "b.parquet") as file:
        file.emit("zero", "a", 1, 1, "writes", "7")  # without its value, at which the conformance raises
    found, _, _ = validated([str(tmp_path)], Request(CONFORMANCE))
    assert found == here(tmp_path, CONFORMANCE)
    assert [(outcome.run, outcome.verdict) for outcome in found] == [
        ("four", "not covered"), ("one", "accepted"), ("three", "accepted"), ("two", "rejected"),
        ("zero", "raised"),
    ]  # fmt: skip
    assert [
        outcome.run for outcome in validated([str(tmp_path)], Request(CONFORMANCE, runs=("two",), subjects=("7",)))[0]
    ] == ["two"]
    with pytest.raises(OptionError, match="run x is not in the traces"):
        validated([str(tmp_path)], Request(CONFORMANCE, runs=("x",)))


HEEDING = """
from fencepost.traces.validation import NotCovered
from counting_on_spark import CountingConformance


class Heeding(CountingConformance):
    subjects = "7"
    heeds = ("notes",)

    def steps(self, event):
        if event.action == "notes":
            raise NotCovered(f"{event.subject} is noted")
        return super().steps(event)
"""


def test_events_of_other_subjects_that_a_conformance_heeds(spark: object, tmp_path: Path) -> None:
    heeding = tmp_path / "heeding.py"
    heeding.write_text(HEEDING)
    shutil.copy(CONFORMANCE, tmp_path / "counting_on_spark.py")
    path = tmp_path / "t.parquet"
    with RunsFile(path) as file:
        for run, action in (("one", "notes"), ("two", "ignores")):
            file.emit(run, "a", 1, 1, "writes", "7", {"value": 1})
            file.emit(run, "a", 1, 2, action, "8")
    found, _, _ = validated([str(path)], Request(f"{heeding}:Heeding"))
    assert [outcome.verdict for outcome in found] == ["not covered", "accepted"]
    traces = Traces(read(path), kind="7", heeds=("notes",))
    validator = Validator(registry.resolve(f"{heeding}:Heeding"))
    assert found == [judged(validator, *name, partial(traces.events, name)) for name in traces.names()]


def test_records_of_other_systems(spark: object, tmp_path: Path) -> None:
    """Beside traces, in one folder: lines of JSON, and rows of Parquet without the columns of traces."""
    write_counters(tmp_path / "own.parquet", {"own": GOOD})
    written = [
        {"day": day, "who": node, "did": action, "value": value}
        for day, rows in (("good", GOOD), ("bad", BAD))
        for node, action, value in rows
    ]
    (tmp_path / "a.ndjson").write_text("".join(f"{json.dumps(row)}\n" for row in [*written, {}]))
    pq.write_table(pa.Table.from_pylist([{**row, "day": "table"} for row in written[:5]]), tmp_path / "b.parquet")
    conformance = tmp_path / "reading.py"
    shutil.copy(CONFORMANCE, tmp_path / "counting_on_spark.py")
    conformance.write_text(READING)
    found = registry.resolve(str(conformance))
    local, driver = (registry.foreign_of(found) for _ in range(2))
    with closing(Cluster()) as cluster:
        outcomes, _, _ = validate.validated(cluster, [str(tmp_path)], Request(str(conformance)), foreign=driver)
        assert [(each.run, each.verdict) for each in outcomes] == [
            ("bad", "rejected"), ("good", "accepted"), ("own", "accepted"), ("table", "accepted"),
        ]  # fmt: skip
        assert outcomes == here(tmp_path, str(conformance), local)
        assert driver is not None and (driver.records, driver.left_out) == (15, 1)
        with pytest.raises(TraceError, match=r"b\.parquet is no trace: it has no column run; a conformance whose"):
            validate.validated(cluster, [str(tmp_path / "b.parquet")], Request(CONFORMANCE))
        with pytest.raises(TraceError, match=r"a\.ndjson is no trace that Fencepost wrote"):
            validate.validated(cluster, [str(tmp_path / "a.ndjson")], Request(CONFORMANCE))
        (tmp_path / "none.ndjson").write_text("{}\n")
        driver = registry.foreign_of(found)
        with pytest.raises(TraceError, match="there is no event in .*: Reading.read makes none of 1 records"):
            validate.validated(cluster, [str(tmp_path / "none.ndjson")], Request(str(conformance)), foreign=driver)


READING = """
from counting_on_spark import CountingConformance

from fencepost.traces.validation import ReadEvent


class Reading(CountingConformance):
    @classmethod
    def read(cls, record):
        if record:
            values = {"value": record["value"]}
            return ReadEvent(record["did"], "7", values, node=record["who"], run=record["day"])
"""


@pytest.mark.campaign
def test_spools_of_killed_processes_are_read(spark: object, tmp_path: Path) -> None:
    killed = TraceWriter(tmp_path, node="a", run="r")
    killed.emit("writes", "7", {"value": 1})
    found, _, _ = validated([str(tmp_path)], Request(CONFORMANCE))
    assert [(outcome.verdict, outcome.events, outcome.steps) for outcome in found] == [("accepted", 2, 1)]
    killed.close()


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        (
            [(1, 1), (1, 2), (1, 4)],
            "events are missing in the trace of node a, incarnation 1 .run r.: there are 3, and the last has number 4",
        ),
        *campaign_if(
            bool,
            [
                ([(1, 1), (1, 2), (1, 2)], "events are there twice in the trace of node a, incarnation 1"),
                ([(1, 1), (3, 1)], "there are events of 2 incarnations of node a .run r., and some of incarnation 3"),
            ],
        ),
        ([], "there is no event in"),
    ],
)
def test_what_is_missing_is_told(
    spark: object, tmp_path: Path, events: Sequence[tuple[int, int]], complaint: str
) -> None:
    with RunsFile(tmp_path / "t.parquet") as file:
        for incarnation, seq in events:
            file.emit("r", "a", incarnation, seq, "writes", "7", {"value": seq})
    with pytest.raises(TraceError, match=complaint):
        validated([str(tmp_path)], Request(CONFORMANCE))


# -- one task, without Spark ------------------------------------------------------------------------------------------


def batches(rows: Sequence[tuple[str, str, str, int, int, str, str, str, str]], size: int) -> Iterator[pa.RecordBatch]:
    names = ("run", "of", "node", "incarnation", "seq", "actor", "action", "subject", "parameters")
    for at in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows[at : at + size]])


def told(events: Iterator[pa.RecordBatch]) -> list[TaskResult]:
    return results_of([row for batch in validate_task(Request(CONFORMANCE), events) for row in batch.to_pylist()])


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_traces_are_cut_where_they_end_however_they_come(
    size: int, asked: Callable[[int], list[tuple[str, str, str, int, int, str, str, str, str]]]
) -> None:
    rows = asked(7)
    found = [(run, subject, len(events)) for run, subject, events in traces_of(batches(rows, size))]
    assert found == [("r1", "1", 3), ("r1", "2", 1), ("r2", "1", 7)]
    judged = told(batches(rows, size))
    assert [each.outcome is not None and each.outcome.accepted for each in judged] == [True, True, True]


@pytest.fixture
def asked() -> Callable[[int], list[tuple[str, str, str, int, int, str, str, str, str]]]:
    def rows(last: int) -> list[tuple[str, str, str, int, int, str, str, str, str]]:
        traces = [("r1", "1", 3), ("r1", "2", 1), ("r2", "1", last)]
        return [
            (r, s, "a", 1, n, "", "writes", s, f'{{"value": {n}}}')
            for r, s, count in traces
            for n in range(1, count + 1)
        ]

    return rows


def test_an_outcome_and_its_row_are_the_same(
    asked: Callable[[int], list[tuple[str, str, str, int, int, str, str, str, str]]],
) -> None:
    [row] = told(batches([*asked(3)[:1], ("r1", "1", "a", 1, 2, "", "writes", "1", '{"value": 3}')], 9))
    assert row.outcome is not None and row.outcome.refusals[0].step == "writes(w=w1)"


@pytest.mark.campaign
def test_coverage_is_that_of_one_process(spark: object, tmp_path: Path) -> None:
    fencepost.check(
        loading.configured(loading.load(f"{CONFORMANCE}:Counting"), None),
        engine="reference",
        states=tmp_path / "space",
        edges=True,
    )
    write_counters(tmp_path / "t.parquet", {"one": GOOD, "two": BAD, "three": GOOD[:2], "four": GOOD})
    space = StateSpace(tmp_path / "space")
    coverage, within = Coverage(), InSpace(registry.resolve(CONFORMANCE), space)
    traces, validator = Traces(read(tmp_path / "t.parquet")), Validator(registry.resolve(CONFORMANCE))
    for name in traces.names():
        judged(validator, *name, lambda name=name: traces.events(name), on_verdict=coverage.add)  # type: ignore[misc]
        within.replay(name[1], lambda name=name: traces.events(name))  # type: ignore[misc]
    _, visits, found = validated(
        [str(tmp_path / "t.parquet")], Request(CONFORMANCE, coverage=True, states=str(tmp_path / "space"))
    )
    assert visits == coverage.visits
    assert found == in_space(space, within.visited)
    assert found is not None and (found.traces, found.fitting, found.visited, found.taken) == (4, 3, 6, 5)


@pytest.mark.campaign
@pytest.mark.parametrize("edges", [True, False])
def test_a_join_with_the_table_counts_as_one_process_does(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edges: bool
) -> None:
    fencepost.check(Counting(limit=5), engine="reference", states=tmp_path / "space", edges=edges)
    space = StateSpace(tmp_path / "space")
    cluster = Cluster()
    spark = cluster.session_with({"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "false"})
    for seed, small in ((0, 10**6), (5, 0)):
        monkeypatch.setattr(on_spark, "SMALL", small)
        visited = walked(space, seed, walks=seed % 4, length=seed)
        emitted = spark.createDataFrame(pa.Table.from_batches([on_spark.rows_of(visited)] * 2)).repartition(3)
        emitted = emitted.withColumn("traces", emitted.traces / 2).withColumn("fitting", emitted.fitting / 2)
        found = on_spark.in_space(cluster, spark, space, emitted, lambda doing: None, 4)
        assert found == in_space(space, visited, 4)
    cluster.close()


def test_what_is_visited_is_emitted_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.validate.MOST_HELD", 3)
    fencepost.check(
        loading.configured(loading.load(f"{CONFORMANCE}:Counting"), None), engine="reference", states=tmp_path / "space"
    )
    rows = [
        ("r1", subject, "a", 1, n, "", "writes", subject, f'{{"value": {n}}}') for subject in "123" for n in (1, 2, 3)
    ]
    request = Request(CONFORMANCE, states=str(tmp_path / "space"))
    told = [row for batch in visit_task(request, batches(rows, 2)) for row in batch.to_pylist()]
    assert sum(row["traces"] or 0 for row in told) == sum(row["fitting"] or 0 for row in told) == 3
    assert (
        len([row for row in told if row["action"]]) == 9 and len({row["target"] for row in told if row["target"]}) == 4
    )


def test_numbers_are_told_in_stretches() -> None:
    events = [
        ("r", "b", 1, 3),
        ("r", "a", 1, 2),
        ("r", "a", 1, 1),
        ("r", "a", 1, 2),
        ("r", "a", 2, 3),
        ("r", "a", 1, 6),
        ("r", "b", 1, 4),
    ]
    names = ("run", "node", "incarnation", "seq")
    stopped = [False, False, False, False, False, True, False]
    columns = [
        pa.array([event[place] for event in events], pa.string() if place < 2 else pa.int64()) for place in range(4)
    ]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array(stopped)], [*names, "stopped"])
    (found,) = stretches_of(iter([batch, batch.slice(0, 0)]))
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("r", "a", 1, 1, 2, 2, None), ("r", "a", 1, 2, 2, 1, None), ("r", "a", 1, 6, 6, 1, 6),
        ("r", "a", 2, 3, 3, 1, None),
        ("r", "b", 1, 3, 4, 2, None),
    ]  # fmt: skip
