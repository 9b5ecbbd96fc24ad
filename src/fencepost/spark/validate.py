"""Validates many traces against a protocol on Spark.

The events of a run and a subject are shuffled to one task, in their order. Events about all subjects of a run go to the
tasks of each subject, if verdicts depend on them, which one task decides for all of a run. A worker caches the
evaluated steps of a protocol from one trace and task to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.report.validation import explaining
from fencepost.spark.cluster import Cluster
from fencepost.spark.coverage import VISITS, in_space, rows_of
from fencepost.states.manifest import StateSpace
from fencepost.traces import parquet, table
from fencepost.traces.event import STOPPED, TraceError, named
from fencepost.traces.folder import SPOOL
from fencepost.traces.foreign import Foreign
from fencepost.traces.reading import files_of_records, nothing_in
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.coverage import Coverage, Visits
from fencepost.traces.validation.outcome import Outcome, judged
from fencepost.traces.validation.request import Request, validator_of
from fencepost.traces.validation.space_coverage import InSpace, SpaceCoverage
from fencepost.traces.validation.traces import must_be_there, natural, needed
from fencepost.traces.validation.validate import collect_rarely

TASKS_PER_CORE = 4
"""Tasks for each core. Traces differ in length, and a job waits for its last task."""

MOST_HELD = 100_000
"""Steps in a state space that a task collects before it emits them."""

BATCH = 16_384
"""Events that Spark hands to a worker at once."""

MOST_GAPS = 3
"""The most incarnations with missing events that an error names."""

RESULT = "result binary"
"""The schema of a task's rows: each is a :class:`TaskResult`."""

COLUMNS = ("node", "incarnation", "seq", "actor", "action", "subject", "parameters")
"""Those of an event in its trace."""

TEXT = (
    "run string, node string, incarnation int, seq bigint, actor string, action string, subject string, parameters"
    " string, state string"
)


NEEDED = pa.schema(
    [(name, {"incarnation": pa.int32(), "seq": pa.int64()}.get(name, pa.string())) for name in ("run", "of", *COLUMNS)]
)
"""Events about all subjects of a run, each with whether there are ``several`` (``of``)."""


class TaskResult(msgspec.Struct):
    """A result of a task: the outcome of a trace; with coverage, the visits of all its traces; what the conformance
    raised when asked what is over; or the traces of a run and share that are still open.
    """

    outcome: Outcome | None = None
    visits: Visits | None = None
    raised: str | None = None
    still_open: tuple[str, int, list[Outcome]] | None = None


def validated(
    cluster: Cluster,
    paths: Sequence[str],
    request: Request,
    report: Callable[[str], None] = lambda stage: None,
    foreign: Foreign | None = None,
) -> tuple[list[Outcome], Visits, SpaceCoverage | None]:
    """The outcomes of all traces in folders and files, which may be at URLs, and their coverage of the protocol and of
    a state space if requested. Meanwhile, calls ``report`` with Spark's current stage. ``foreign``: makes events of
    records of other systems, in this process.

    Raises :class:`fencepost.traces.TraceError` if there are none or events are missing, :class:`fencepost.OptionError`
    if a run or subject does not exist, and :class:`fencepost.SystemFailure` if Spark fails.
    """
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(TASKS_PER_CORE * cluster.cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
    }
    spark = cluster.session_with(settings)

    def collect(name: str, frame: Callable[[], Any], *doing: str) -> list[Any]:
        return cluster.collect(spark, frame, f"validate: {name}", doing, report)

    whole = events(spark, paths, foreign)
    known = lives(whole).cache()
    runs = {row.run for row in collect("finding runs", lambda: known.select("run").distinct(), *("reading",) * 2)}
    must_be_there("run", request.runs, runs)
    if not runs:
        raise TraceError(nothing_in(paths, foreign))
    require_complete(collect("checking for gaps", lambda: gaps(known), *("looking for gaps",) * 3))
    results = results_of(
        collect("validating traces", lambda: verdicts(whole, request), "reading", "sorting", "validating")
    )
    outcomes = [each.outcome for each in results if each.outcome is not None]
    visits = Visits()
    for each in results:
        if each.visits is not None:
            visits.add(each.visits)
    if request.subjects:
        must_be_there("subject", request.subjects, {outcome.subject for outcome in outcomes})
    space = None
    if request.states is not None:
        space = in_space(cluster, spark, StateSpace(request.states), visited(whole, request), report)
    return sorted(outcomes, key=lambda outcome: (natural(outcome.run), natural(outcome.subject))), visits, space


# -- tables -----------------------------------------------------------------------------------------------------------


def events(spark: Any, paths: Sequence[str], foreign: Foreign | None = None) -> Any:
    """All events in folders and files as a DataFrame with the columns of :class:`fencepost.traces.TraceEvent`. Spools
    and records of other systems must be on this machine, and are read in this process.
    """
    reader = spark.read.schema(TEXT).option("pathGlobFilter", "*.parquet")
    tables, spools = [], list[Path]()
    of_records = files_of_records([path for path in paths if "://" not in path], foreign is not None)
    others = {path.resolve() for path in of_records}
    for path in paths:
        if "://" in path:
            tables.append(path)
            continue
        place = Path(path).resolve()
        if place.suffix == ".spool":
            spools.append(place)
            continue
        own = packed = [place]
        if place.is_dir():
            packed = [each for each in place.glob("*.parquet") if not each.name.startswith(("_", "."))]
            stems = {each.stem for each in packed}
            spools += [each for each in sorted((place / SPOOL).glob("*.spool")) if each.stem not in stems]
            own = [place] if packed and others.isdisjoint(each.resolve() for each in packed) else packed
        for each in packed if foreign is None else ():  # Spark would make up the columns that are missing
            parquet.require(each)
        tables += [
            "file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(each)) for each in own if each.resolve() not in others
        ]
    frames = [reader.parquet(*tables)] if tables else []
    if spools:
        frames.append(spark.createDataFrame(table(spools, check=False)))
    if foreign is not None and of_records:
        made = parquet.table_of([event for _, event in foreign.events(of_records)])
        if made.num_rows:
            frames.append(spark.createDataFrame(made))
    if not frames:
        raise TraceError(nothing_in(paths, foreign))
    return reduce(lambda one, other: one.unionByName(other), frames)


def lives(whole: Any) -> Any:
    """One row for each incarnation: the ``count`` of its events, how many ``distinct`` numbers they have, the ``last``
    number, and the number of the event that ``stopped`` its trace, if any.
    """
    from pyspark.sql import functions as f

    stretches = whole.select(
        "run", "node", "incarnation", "seq", (f.col("action") == STOPPED).alias("stopped")
    ).mapInArrow(stretches_of, STRETCHES)
    # The numbers of all events are the union of the stretches, and there are few stretches.
    covered = """aggregate(
        array_sort(collect_list(struct(first, last))),
        struct(cast(0 as bigint) as end, cast(0 as bigint) as total),
        (so_far, one) -> struct(greatest(so_far.end, one.last) as end,
            so_far.total + greatest(cast(0 as bigint), one.last - greatest(so_far.end, one.first - 1)) as total)
    ).total"""
    return stretches.groupBy("run", "node", "incarnation").agg(
        f.sum("count").alias("count"),
        f.max("last").alias("last"),
        f.expr(covered).alias("distinct"),
        f.max("stopped").alias("stopped"),
    )


STRETCHES = "run string, node string, incarnation int, first bigint, last bigint, count bigint, stopped bigint"


def stretches_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The stretches of event numbers without a gap, one row for each. An incarnation has one stretch unless events are
    missing.
    """
    for batch in batches:
        table = pa.Table.from_batches([batch]).sort_by(
            [(name, "ascending") for name in ("run", "node", "incarnation", "seq")]
        )
        if not table.num_rows:
            continue
        seq = table["seq"].to_numpy()
        begins = np.ones(len(seq), np.bool_)
        begins[1:] = np.diff(seq) != 1
        for name in ("run", "node", "incarnation"):
            column = table[name].combine_chunks()
            begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(seq)) - 1
        stopped = np.maximum.reduceat(np.where(table["stopped"].to_numpy(), seq, -1), first)
        stops = pa.array(stopped, pa.int64(), mask=stopped < 0)
        names = [table[name].combine_chunks().take(pa.array(first)) for name in ("run", "node", "incarnation")]
        columns = [*names, pa.array(seq[first]), pa.array(seq[last]), pa.array(last - first + 1), stops]
        yield pa.RecordBatch.from_arrays(columns, ["run", "node", "incarnation", "first", "last", "count", "stopped"])


def gaps(lives: Any) -> Any:
    """One row for each incarnation with missing events, and for each node with a missing incarnation."""
    from pyspark.sql import functions as f

    broken = lives.where("count != last or distinct != last or stopped is not null").selectExpr(
        "run", "node", "incarnation", "count", "last", "distinct", "stopped"
    )
    nodes = lives.groupBy("run", "node").agg(
        f.max("incarnation").alias("incarnation"), f.count("incarnation").alias("count")
    )
    missing = nodes.where("incarnation != count").selectExpr(
        "run",
        "node",
        "incarnation",
        "count",
        "cast(null as bigint) as last",
        "cast(null as bigint) as distinct",
        "cast(null as bigint) as stopped",
    )
    return broken.unionByName(missing).orderBy("run", "node", "incarnation")


def require_complete(rows: Sequence[Any]) -> None:
    """Raise :class:`fencepost.traces.TraceError` if there are rows of :func:`gaps`."""
    problems = []
    for row in rows[:MOST_GAPS]:
        which = named(row.run, row.node, row.incarnation)
        if row.last is None:
            problems.append(
                f"there are events of {row['count']} incarnations of node {row.node} (run {row.run}), and some of"
                f" incarnation {row.incarnation}"
            )
        elif row.distinct != row["count"]:
            problems.append(
                f"events are there twice in the trace of {which}: {row['count']:,} events have {row.distinct:,} numbers"
            )
        elif row.last != row["count"]:
            problems.append(
                f"events are missing in the trace of {which}: there are {row['count']:,}, and the last has number"
                f" {row.last:,}"
            )
        else:
            problems.append(f"the trace of {which} stopped with event {row.stopped:,}")
    if problems:
        more = len(rows) - len(problems)
        raise TraceError("; ".join(problems) + (f"; and {more:,} more" if more else ""))


def verdicts(whole: Any, request: Request) -> Any:
    """One row for each trace, as :data:`RESULT` has it."""
    return traces(whole, request).mapInArrow(partial(validate_task, request), RESULT)


def visited(whole: Any, request: Request) -> Any:
    """The states and steps of a state space that traces visit, with :data:`fencepost.spark.coverage.SCHEMA`."""
    assert request.states is not None
    return traces(whole, request).mapInArrow(partial(visit_task, request), VISITS)


def traces(whole: Any, request: Request) -> Any:
    """The requested events, each with the subject of its trace (``of``). Traces follow each other in each partition."""
    from pyspark.sql import functions as f

    if request.runs:
        whole = whole.where(f.col("run").isin(list(request.runs)))
    about_one = whole.where(own(request))
    names = about_one.select("run", f.col("subject").alias("of")).distinct()
    about_all = needed_of(whole.where(common(request)), names, request)
    if request.subjects:
        about_one, names = (
            frame.where(f.col(name).isin(list(request.subjects)))
            for frame, name in ((about_one, "subject"), (names, "of"))
        )
    about_all = about_all.join(names, "run", "inner" if request.subjects else "left")
    columns = ("run", "of", *COLUMNS)
    together = about_one.withColumn("of", f.col("subject")).select(*columns).unionByName(
        about_all.withColumn("of", f.coalesce("of", f.lit(""))).select(*columns)
    )  # fmt: skip
    return together.repartition("run", "of").sortWithinPartitions(*columns[:5])


def needed_of(about_all: Any, names: Any, request: Request) -> Any:
    """Of the events about all subjects, those that verdicts depend on. One task looks at all those of a run. A run of
    one subject, by ``names``, keeps all of them.
    """
    from pyspark.sql import functions as f

    if not request.find().chooses():
        return about_all
    several = f.broadcast(names.groupBy("run").count().where("count > 1").selectExpr("run", "'several' of"))
    whole = about_all.join(several, "run", "left").withColumn("of", f.coalesce("of", f.lit("")))
    together = whole.select("run", "of", *COLUMNS).repartition("run").sortWithinPartitions("run", *COLUMNS[:3])
    return together.mapInArrow(partial(needed_task, request), together.schema).drop("of")


def own(request: Request) -> Any:
    """Whether an event is about a subject of the conformance."""
    from pyspark.sql import functions as f

    return f.col("subject").rlike(f"^(?s:{request.find().subjects})$")


def common(request: Request) -> Any:
    """Whether an event is in every trace of its run: it is about all subjects, or the conformance heeds it."""
    from pyspark.sql import functions as f

    return f.col("subject").isNull() | (f.col("action").isin(list(request.find().heeds)) & ~own(request))


# -- tasks ------------------------------------------------------------------------------------------------------------

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_result_decoder = msgspec.msgpack.Decoder(TaskResult)


def validate_task(request: Request, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Validate the traces of a partition. Events are sorted by trace, node, incarnation and number."""
    collect_rarely()
    validator = validator_of(request)
    explain = explaining(request.last, request.width)
    coverage = Coverage() if request.coverage else None
    on_verdict = coverage.add if coverage is not None else None
    for run, subject, rows in traces_of(batches):
        trace = partial(_events_of, rows)
        yield row_of(TaskResult(judged(validator, run, subject, trace, request.shuffle, explain, on_verdict)))
    if coverage is not None:
        yield row_of(TaskResult(visits=coverage.visits))


def needed_task(request: Request, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Leave out the events about all subjects that no verdict depends on, where a run has several. Events are sorted by
    run, node, incarnation and number.
    """
    still_needed = request.find().still_needed
    for run, of, rows in traces_of(batches):
        kept = needed(rows, lambda row: event_of(*row), still_needed) if of else rows
        for first in range(0, len(kept), BATCH):
            some = [(run, of, *row) for row in kept[first : first + BATCH]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(each, kind) for each, kind in zip(zip(*some, strict=True), NEEDED.types, strict=True)],
                schema=NEEDED,
            )


def visit_task(request: Request, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Emit the states and steps of a state space that the traces of a partition visit."""
    assert request.states is not None
    within = InSpace(request.find(), StateSpace(request.states))
    for _, subject, rows in traces_of(batches):
        if subject:
            within.replay(subject, partial(_events_of, rows))
            if len(within.visited.steps) >= MOST_HELD:
                yield rows_of(within.take())
    yield rows_of(within.take())


def event_of(
    node: str, incarnation: int, seq: int, actor: str, action: str, subject: str | None, parameters: str
) -> Event:
    """An event from its columns. Raises :class:`fencepost.traces.TraceError` if the parameters are no JSON object."""
    try:
        return Event(node, incarnation, seq, action, subject, _decode(parameters), actor)
    except msgspec.DecodeError as error:
        raise TraceError(
            f"the parameters of event {seq} of node {node}, incarnation {incarnation}, are no JSON object: {error}"
        ) from error


def traces_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, list[tuple[Any, ...]]]]:
    """Split sorted events into traces: run, subject, and rows of events."""
    name: tuple[str, str] | None = None
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        runs, subjects, *columns = (column.to_pylist() for column in batch.columns)
        for run, subject, *row in zip(runs, subjects, *columns, strict=True):
            if name != (run, subject):
                if name is not None:
                    yield *name, rows
                name, rows = (run, subject), []
            rows.append(tuple(row))
    if name is not None:
        yield *name, rows


def _events_of(rows: Sequence[Sequence[Any]]) -> list[Event]:
    return [event_of(*row) for row in rows]


def row_of(result: TaskResult) -> pa.RecordBatch:
    """A result as a row."""
    return pa.record_batch([pa.array([msgspec.msgpack.encode(result)], pa.binary())], names=["result"])


def results_of(rows: Sequence[Any]) -> list[TaskResult]:
    """The results in rows."""
    return [_result_decoder.decode(bytes(row["result"])) for row in rows]
