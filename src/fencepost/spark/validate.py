"""Traces by the thousand, held to a protocol on Spark.

The events of a run and a subject come together in one task, in their order; those that are about all subjects of a run
come to each. A worker keeps what it has learnt of a protocol from one trace to the next, and from one task to the next.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost import tracing
from fencepost.conform import registry
from fencepost.conform.conformance import Event
from fencepost.conform.coverage import Coverage, Visits, noting
from fencepost.conform.outcome import Alternative, Explain, Notes, Outcome, judged
from fencepost.conform.space import SpaceCoverage
from fencepost.conform.traces import must_be_there, natural
from fencepost.conform.validate import Validator, collect_rarely
from fencepost.report.validation import explaining
from fencepost.spark.cluster import Cluster
from fencepost.spark.coverage import VISITS, Visiting, in_space
from fencepost.states.manifest import StateSpace
from fencepost.tracing.event import STOPPED, TraceError, named
from fencepost.tracing.folder import SPOOL

TASKS_PER_CORE = 4
"""Tasks of a core: traces differ in length, and the last task is waited for."""

BATCH = 16_384
"""Events that are handed to a worker at once."""

MOST_GAPS = 3
"""Incarnations with missing events that a complaint names."""

SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("subject", pa.string()),
        ("accepted", pa.bool_()),
        ("covered", pa.bool_()),
        ("events", pa.int64()),
        ("steps", pa.int64()),
        ("taken", pa.int64()),
        ("skipped", pa.int64()),
        ("problem", pa.string()),
        ("refusals", pa.string()),
        ("story", pa.string()),
        ("sequence", pa.string()),
        ("finished", pa.bool_()),
        ("protocol", pa.string()),
        ("covered_by", pa.binary()),
    ]
)
"""A row for each trace, with the fields of :class:`fencepost.conform.outcome.Outcome`; its refusals as JSON. Where
coverage is asked for, each task adds a row without a run, with what its traces have visited.
"""

_SQL = {pa.bool_(): "boolean", pa.int64(): "bigint", pa.binary(): "binary"}

VERDICTS = ", ".join(f"{field.name} {_SQL.get(field.type, 'string')}" for field in SCHEMA)

TEXT = (
    "run string, node string, incarnation int, seq bigint, actor string, action string, subject string, parameters"
    " string, state string"
)


class Given(msgspec.Struct, frozen=True):
    """What the tasks have to know. ``conformance``: a protocol's name, or a file; ``shuffle``, ``last``, ``coverage``,
    ``states``: as the command's options.
    """

    conformance: str
    shuffle: int | None = None
    last: int = 12
    width: int = 100
    coverage: bool = False
    states: str | None = None

    def find(self) -> Any:
        """The conformance."""
        return registry.found(self.conformance)


def validated(
    paths: Sequence[str],
    given: Given,
    runs: Collection[str] = (),
    subjects: Collection[str] = (),
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    debug: bool = False,
    tell: Callable[[str], None] = lambda doing: None,
) -> tuple[list[Outcome], Visits, SpaceCoverage | None]:
    """The outcomes of all traces in folders and files, which may be at URLs; ``runs``, ``subjects``: those that are
    wanted, empty for all. And what they have visited, of the protocol and of a state space, if that is asked for.

    Raises :class:`fencepost.tracing.TraceError` if there are none or events are missing, :class:`fencepost.OptionError`
    if a run or subject is not there, and :class:`fencepost.SystemFailure` if Spark fails.
    """
    cluster = Cluster(master, conf, debug)
    try:
        partitions = str(TASKS_PER_CORE * cluster.cores)
        settings = {
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": partitions,
            "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
        }
        spark = cluster.session_with(settings)
        whole = events(spark, paths)
        known = lives(whole).cache()
        there = cluster.collect(
            spark, lambda: known.select("run").distinct(), "validate: what there is", ("reading",) * 2, tell
        )
        must_be_there("run", runs, {row.run for row in there})
        if not there:
            raise TraceError(f"there is no event in {', '.join(paths)}")
        must_be_whole(
            cluster.collect(
                spark, lambda: gaps(known), "validate: whether they are whole", ("looking for gaps",) * 3, tell
            )
        )
        found = cluster.collect(
            spark,
            lambda: verdicts(whole, given, runs, subjects),
            "validate: step by step",
            ("reading", "sorting", "validating"),
            tell,
        )
        outcomes = [outcome_of(row) for row in found if row.run is not None]
        visits = Visits()
        for row in found:
            if row.run is None:
                visits.add(_covered.decode(bytes(row.covered_by)))
        if subjects:
            must_be_there("subject", subjects, {outcome.subject for outcome in outcomes})
        space = None
        if given.states is not None:
            space = in_space(cluster, spark, StateSpace(given.states), visited(whole, given, runs, subjects), tell)
        return sorted(outcomes, key=lambda outcome: (natural(outcome.run), natural(outcome.subject))), visits, space
    finally:
        cluster.close()


# -- tables -----------------------------------------------------------------------------------------------------------


def events(spark: Any, paths: Sequence[str]) -> Any:
    """All events in folders and files as a DataFrame with the columns of :class:`fencepost.tracing.TraceEvent`. Spools
    are read here, which must be on this machine.
    """
    reader = spark.read.schema(TEXT).option("pathGlobFilter", "*.parquet")
    tables, spools = [], list[Path]()
    for path in paths:
        if "://" in path:
            tables.append(path)
            continue
        place = Path(path).resolve()
        if place.suffix == ".spool":
            spools.append(place)
            continue
        if place.is_dir():
            packed = {each.stem for each in place.glob("*.parquet")}
            spools += [each for each in sorted((place / SPOOL).glob("*.spool")) if each.stem not in packed]
            if not packed:
                continue
        tables.append("file://" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(place)))
    found = reader.parquet(*tables) if tables else None
    if spools:
        frames = spark.createDataFrame(tracing.table(spools, check=False))
        found = frames if found is None else found.unionByName(frames)
    if found is None:
        raise TraceError(f"there is no event in {', '.join(paths)}")
    return found


def lives(whole: Any) -> Any:
    """A row for each incarnation: the ``count`` of its events and how many numbers they have (``distinct``), the
    ``last`` number, and that of an event that its trace ``stopped`` with.
    """
    from pyspark.sql import functions as f

    stretches = whole.select(
        "run", "node", "incarnation", "seq", (f.col("action") == STOPPED).alias("stopped")
    ).mapInArrow(stretches_of, STRETCHES)
    # The numbers that are there are the union of the stretches, which are few.
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
    """Of some events, the stretches of numbers without a gap: a row for each, which is one for each incarnation where
    all is as it should be.
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
        told = pa.array(stopped, pa.int64(), mask=stopped < 0)
        names = [table[name].combine_chunks().take(pa.array(first)) for name in ("run", "node", "incarnation")]
        columns = [*names, pa.array(seq[first]), pa.array(seq[last]), pa.array(last - first + 1), told]
        yield pa.RecordBatch.from_arrays(columns, ["run", "node", "incarnation", "first", "last", "count", "stopped"])


def gaps(lives: Any) -> Any:
    """The incarnations of which something is missing: a row for each, and one for the nodes of which an incarnation is
    missing.
    """
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


def must_be_whole(rows: Sequence[Any]) -> None:
    """Raises :class:`fencepost.tracing.TraceError` if there is anything in :func:`gaps`."""
    told = []
    for row in rows[:MOST_GAPS]:
        which = named(row.run, row.node, row.incarnation)
        if row.last is None:
            told.append(
                f"there are events of {row['count']} incarnations of node {row.node} (run {row.run}), and some of"
                f" incarnation {row.incarnation}"
            )
        elif row.distinct != row["count"]:
            told.append(
                f"events are there twice in the trace of {which}: {row['count']:,} events have {row.distinct:,} numbers"
            )
        elif row.last != row["count"]:
            told.append(
                f"events are missing in the trace of {which}: there are {row['count']:,}, and the last has number"
                f" {row.last:,}"
            )
        else:
            told.append(f"the trace of {which} stopped with event {row.stopped:,}")
    if told:
        more = len(rows) - len(told)
        raise TraceError("; ".join(told) + (f"; and {more:,} more" if more else ""))


def verdicts(whole: Any, given: Given, runs: Collection[str] = (), subjects: Collection[str] = ()) -> Any:
    """A row for each trace, with the columns of :data:`SCHEMA`."""
    return traces(whole, runs, subjects, given.find().subjects).mapInArrow(Task(given), VERDICTS)


def visited(whole: Any, given: Given, runs: Collection[str] = (), subjects: Collection[str] = ()) -> Any:
    """What the traces visit of a state space, as :mod:`fencepost.spark.coverage` has it."""
    assert given.states is not None
    return traces(whole, runs, subjects, given.find().subjects).mapInArrow(
        Visiting(subjects_of, given.find, given.states), VISITS
    )


def traces(whole: Any, runs: Collection[str], subjects: Collection[str], kind: str) -> Any:
    """Events with the subject whose trace they belong to (``of``), the traces one after the other in each partition.
    ``kind``: a regular expression of the subjects that are known of.
    """
    from pyspark.sql import functions as f

    if runs:
        whole = whole.where(f.col("run").isin(list(runs)))
    about_one = whole.where(f.col("subject").rlike(f"^(?s:{kind})$"))
    if subjects:
        about_one = about_one.where(f.col("subject").isin(list(subjects)))
    names = about_one.select("run", f.col("subject").alias("of")).distinct()
    about_all = whole.where("subject is null").join(names, "run", "inner" if subjects else "left")
    columns = ("run", "of", "node", "incarnation", "seq", "actor", "action", "subject", "parameters")
    together = about_one.withColumn("of", f.col("subject")).select(*columns).unionByName(
        about_all.withColumn("of", f.coalesce("of", f.lit(""))).select(*columns)
    )  # fmt: skip
    return together.repartition("run", "of").sortWithinPartitions(*columns[:5])


# -- tasks ------------------------------------------------------------------------------------------------------------

validators: dict[str, Validator] = {}
"""What this process has learnt."""

_decode = msgspec.json.Decoder(dict[str, Any]).decode
_covered = msgspec.msgpack.Decoder(Visits)


class Task:
    """Validates the traces of a partition, whose events are sorted by trace, node, incarnation and number."""

    def __init__(self, given: Given) -> None:
        self.given = given

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        given = self.given
        collect_rarely()
        validator = validators.get(given.conformance)
        if validator is None:
            validator = validators[given.conformance] = Validator(given.find())
        explain = explaining(given.last, given.width)
        coverage = Coverage() if given.coverage else None
        notes = noting(coverage)
        for run, subject, rows in traces_of(batches):
            yield row_of(judge(validator, run, subject, rows, given.shuffle, explain, notes))
        if coverage is not None:
            yield _row({"covered_by": msgspec.msgpack.encode(coverage.visits)})


def judge(
    validator: Validator,
    run: str,
    subject: str,
    rows: Sequence[Sequence[Any]],
    shuffle: int | None,
    explain: Explain,
    notes: Notes | None = None,
) -> Outcome:
    """Validates the trace that is in some rows of a table."""
    return judged(validator, run, subject, lambda: [event_of(*row) for row in rows], shuffle, explain, notes)


def event_of(
    node: str, incarnation: int, seq: int, actor: str, action: str, subject: str | None, parameters: str
) -> Event:
    """An event from its columns. Raises :class:`fencepost.tracing.TraceError` if the parameters are no JSON object."""
    try:
        return Event(node, incarnation, seq, action, subject, _decode(parameters), actor)
    except msgspec.DecodeError as error:
        raise TraceError(
            f"the parameters of event {seq} of node {node}, incarnation {incarnation}, are no JSON object: {error}"
        ) from error


def traces_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, list[tuple[Any, ...]]]]:
    """The traces in sorted events: run, subject, and rows of events."""
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


def subjects_of(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Callable[[], list[Event]]]]:
    """The subjects of the traces in sorted events, each with its events."""
    for _, subject, rows in traces_of(batches):
        if subject:
            yield subject, lambda rows=rows: [event_of(*row) for row in rows]  # type: ignore[misc]


def row_of(outcome: Outcome) -> pa.RecordBatch:
    """An outcome as a row."""
    values = {name: getattr(outcome, name) for name in Outcome.__struct_fields__}
    values["refusals"] = msgspec.json.encode(outcome.refusals).decode()
    return _row(values)


def _row(values: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: values.get(name) for name in SCHEMA.names}], SCHEMA)


def outcome_of(row: Any) -> Outcome:
    """An outcome from its row."""
    values = {name: row[name] for name in Outcome.__struct_fields__}
    values["refusals"] = msgspec.json.decode(values["refusals"], type=list[Alternative])
    return Outcome(**values)
