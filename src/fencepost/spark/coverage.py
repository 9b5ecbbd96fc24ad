"""How much of an explored state space traces cover, computed on Spark by joining them with the table of the space.

Workers follow the traces within the bounds of the space, and emit each step once. The states and steps of the table
never leave Spark. The driver gets the counts of levels and actions, and a limited number of the nearest steps that were
not taken. So the table may be larger than any memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fencepost.spark.cluster import Cluster
from fencepost.spark.sql import edges as edges_of
from fencepost.spark.sql import states as states_of
from fencepost.states.manifest import StateSpace
from fencepost.traces.validation.space_coverage import (
    MOST_UNVISITED,
    ActionVisits,
    LevelVisits,
    SpaceCoverage,
    Unvisited,
    nearest,
)

if TYPE_CHECKING:
    from fencepost.traces.validation.space_coverage import Visited

SCHEMA = pa.schema(
    [
        ("source", pa.int64()),
        ("target", pa.int64()),
        ("action", pa.string()),
        ("parameters", pa.string()),
        ("traces", pa.int64()),
        ("fitting", pa.int64()),
    ]
)
"""One row for each step taken; ``source`` is null for a state in which a trace begins. Rows with a null ``target`` hold
the number of ``traces``, and how many of them are ``fitting``.
"""

VISITS = "source bigint, target bigint, action string, parameters string, traces bigint, fitting bigint"

SMALL = 200_000
"""The most fingerprints that the driver broadcasts. More of them are shuffled to be joined with the table."""

LABEL = ["action", "parameters"]
STEP = ["source", "target", *LABEL]


def rows_of(visited: Visited) -> pa.RecordBatch:
    """The visited states and steps as rows of :data:`SCHEMA`."""
    rows: list[tuple[Any, ...]] = [(None, None, None, None, visited.traces, visited.fitting)]
    ends = {target for _, target, _, _ in visited.steps}
    rows += [(None, state, None, None, None, None) for state in visited.states if state not in ends]
    rows += [(*step, None, None) for step in visited.steps]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)],
        schema=SCHEMA,
    )


class InTable:
    """The table of a state space, joined with the visited states and steps. ``visits``: a DataFrame with
    :data:`SCHEMA`.
    """

    def __init__(self, spark: Any, space: StateSpace, visits: Any) -> None:
        from pyspark.sql import functions as f

        self.f = f
        self.spark = spark
        self.space = space
        self.counts = visits.where("target is null").agg(
            f.sum("traces").alias("traces"), f.sum("fitting").alias("fitting")
        )
        self.steps = visits.where("action is not null").select(*STEP).distinct()
        self.visited = visits.where("target is not null").select(f.col("target").alias("fingerprint")).distinct()
        states = states_of(spark, space.directory)
        self.states = states.select("fingerprint", "depth", f.col("parent").isNull().alias("initial"))
        if space.manifest.edges is not None:
            self.all_steps = edges_of(spark, space.directory).select(*STEP)
        else:
            discovered = states.where("parent is not null")
            ends = f.col("parent").alias("source"), f.col("fingerprint").alias("target")
            self.all_steps = discovered.select(*ends, *LABEL)

    def levels(self) -> Any:
        """One row for each level."""
        f = self.f
        marked = self.states.join(self.visited.withColumn("here", f.lit(1)), "fingerprint", "left")
        return (
            marked.groupBy("depth")
            .agg(f.count("depth").alias("states"), f.sum(f.coalesce("here", f.lit(0))).alias("visited"))
            .orderBy("depth")
        )

    def labels(self) -> Any:
        """One row for each action with its parameters: its ``steps``, those that were ``taken``, and whether any trace
        took one, also outside the space (``elsewhere``).
        """
        f = self.f
        marked = self.all_steps.join(self.steps.withColumn("here", f.lit(1)), STEP, "left")
        counted = marked.groupBy(*LABEL).agg(
            f.count("source").alias("steps"), f.sum(f.coalesce("here", f.lit(0))).alias("taken")
        )
        anywhere = self.steps.select(*LABEL).distinct().withColumn("elsewhere", f.lit(True))
        return counted.join(anywhere, LABEL, "left").withColumn("elsewhere", f.coalesce("elsewhere", f.lit(False)))

    def actions(self, labels: Any) -> Any:
        """One row for each action."""
        f = self.f
        ever = f.sum(f.col("elsewhere").cast("bigint")).alias("parameters_taken")
        return labels.groupBy("action").agg(
            f.count("action").alias("parameters"), ever, f.sum("steps").alias("steps"), f.sum("taken").alias("taken")
        )

    def next_to(self, frontier: Any, labels: Any, known: Sequence[Unvisited], distance: int, most: int) -> Any:
        """The nearest steps out of the states just reached, one for each label that is not known yet. At most ``most``
        of them were taken nowhere, and at most as many, out of visited states only, were taken elsewhere.
        """
        from pyspark.sql import Window

        f = self.f
        out = self.all_steps.join(frontier.withColumnRenamed("fingerprint", "source"), "source", "left_semi")
        if distance == 1:
            out = out.join(self.steps, STEP, "left_anti")
        ends = self.states.select(f.col("fingerprint").alias("target"), "depth")
        first = out.join(ends, "target").groupBy(*LABEL).agg(f.min(f.struct("depth", "target")).alias("first"))
        nearest_steps = first.join(labels.select(*LABEL, "elsewhere"), LABEL)
        if distance > 1:
            nearest_steps = nearest_steps.where(~f.col("elsewhere"))
        if known:
            rows = [(step.action, step.parameters) for step in known]
            known_labels = f.broadcast(self.spark.createDataFrame(rows, "action string, parameters string"))
            nearest_steps = nearest_steps.join(known_labels, LABEL, "left_anti")
        nearest_steps = nearest_steps.select(
            *LABEL, "elsewhere", f.col("first.target").alias("fingerprint"), f.col("first.depth").alias("depth")
        )
        ranked = Window.partitionBy("elsewhere").orderBy("depth", "fingerprint", *LABEL)
        return nearest_steps.withColumn("rank", f.row_number().over(ranked)).where(f.col("rank") <= most)

    def beyond(self, frontier: Any, reached: Any, first: bool) -> Any:
        """The states one more step away. For the ``first`` step, also the states in which a behaviour may begin."""
        f = self.f
        ends = (
            self.all_steps.join(frontier.withColumnRenamed("fingerprint", "source"), "source", "left_semi")
            .select(f.col("target").alias("fingerprint"))
            .distinct()
        )
        found = self.states.select("fingerprint").join(ends, "fingerprint")
        if first:
            found = found.union(self.states.where("initial").select("fingerprint")).distinct()
        return found.join(reached, "fingerprint", "left_anti")


def in_space(
    cluster: Cluster,
    spark: Any,
    space: StateSpace,
    visits: Any,
    report: Callable[[str], None],
    most: int = MOST_UNVISITED,
) -> SpaceCoverage:
    """As :func:`fencepost.traces.validation.space_coverage.in_space`. ``visits``: a DataFrame with
    :data:`SCHEMA`, which is computed once.

    Raises :class:`fencepost.SystemFailure` if Spark fails.
    """

    def collect(frame: Callable[[], Any], doing: str) -> list[Any]:
        return cluster.collect(spark, frame, f"validate: {doing}", (doing,) * 8, report)

    def persisted(frame: Any, doing: str) -> tuple[Any, int]:
        """Keep the rows of a frame on the executors until the end. Returns the frame and the number of its rows."""
        frame = frame.persist()
        frames.append(frame)
        [row] = collect(lambda: frame.groupBy().count(), doing)
        return frame, row[0]

    frames: list[Any] = []
    try:
        visits, _ = persisted(visits, "following traces in the state space")
        table = InTable(spark, space, visits)
        table.visited, states = persisted(table.visited, "states that were visited")
        table.steps, steps = persisted(table.steps, "steps that were taken")
        frontier = reached = table.visited
        table.visited, table.steps = _broadcast_if_small(table.visited, states), _broadcast_if_small(table.steps, steps)
        [counts] = collect(lambda: table.counts, "counting traces")
        levels = [LevelVisits(row.depth, row.states, row.visited) for row in collect(table.levels, "counting states")]
        labels, kinds = persisted(table.labels(), "counting steps")
        actions = [
            ActionVisits(*row) for row in collect(lambda: table.actions(labels).orderBy("action"), "counting actions")
        ]
        anew = kinds - sum(row.parameters_taken for row in actions)
        found: list[Unvisited] = []
        distance = 1
        while True:
            rows = collect(
                partial(table.next_to, frontier, labels, tuple(found), distance, most), "steps that were not taken"
            )
            found += [
                Unvisited(distance, row.action, row.parameters, row.elsewhere, row.fingerprint, row.depth)
                for row in rows
            ]
            if sum(not step.elsewhere for step in found) >= min(anew, most):
                break
            beyond, count = persisted(table.beyond(frontier, reached, distance == 1), "states beyond")
            if not count:
                break
            reached = reached.union(beyond)
            frontier, distance = _broadcast_if_small(beyond, count), distance + 1
        edges = space.manifest.edges
        return SpaceCoverage(
            str(space.directory),
            space.title,
            counts["traces"] or 0,
            counts["fitting"] or 0,
            sum(level.states for level in levels),
            sum(level.visited for level in levels),
            edges,
            sum(action.taken for action in actions) if edges is not None else 0,
            levels,
            actions,
            nearest(found, most),
        )
    finally:
        for frame in frames:
            frame.unpersist()


def _broadcast_if_small(frame: Any, rows: int) -> Any:
    """The frame, with a hint to broadcast it if it is small."""
    from pyspark.sql import functions as f

    return f.broadcast(frame) if rows <= SMALL else frame
