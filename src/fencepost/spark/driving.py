"""Behaviours for Spark: the states and steps of a table, partitioned so that each task has the paths to its own edges.

Every task gets the *top*: the states down to a certain level. A state below belongs to the last state of the top on its
path, its *stem*. All edges out of the states of one stem go to one task. So no path is driven twice, except through the
top.

This module does not depend on the driven system: a task calls a function with its edges and the steps of the tree.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fencepost.spark.sql import edges as edges_of
from fencepost.spark.sql import states as states_of
from fencepost.states.manifest import StateSpace

Step = tuple[int, str, str, int]
"""A step: fingerprint of the source, action, parameters, fingerprint of the target."""

Work = Callable[[Sequence[Step], Sequence[Step]], bytes]
"""The work of a task. It gets the edges, and the steps of the tree on the paths to their sources."""

MOST_TOP = 20_000
"""The most states of the top."""

TASK_EDGES = 20_000
"""Edges for which another task pays."""


def every_edge(spark: Any, space: StateSpace, work: Work) -> list[bytes]:
    """Run tasks on all edges of a table between two of its states. Returns their results."""
    from pyspark.sql import functions as f

    states = states_of(spark, space.directory).select("fingerprint", "depth", "parent", "action", "parameters")
    edges = edges_of(spark, space.directory).join(states.select(f.col("fingerprint").alias("target")), "target")
    top, depth = _top(states)
    stems = _stems(states, depth)
    wanted = edges.join(stems, f.col("fingerprint") == f.col("source")).select(
        "stem", f.lit(True).alias("wanted"), "source", "action", "parameters", "target"
    )
    below = states.where(f.col("depth") > depth).join(stems, "fingerprint")
    tree = below.select(
        "stem",
        f.lit(False).alias("wanted"),
        f.col("parent").alias("source"),
        "action",
        "parameters",
        f.col("fingerprint").alias("target"),
    )
    count = space.manifest.edges or 0
    tasks = max(spark.sparkContext.defaultParallelism, count // TASK_EDGES)
    return _results(spark, wanted.unionByName(tree).repartition(tasks, "stem"), top, work)


def paths_to(spark: Any, space: StateSpace, ranked: Callable[[Any], Any], count: int, work: Work) -> list[bytes]:
    """Run tasks on the paths to ``count`` states: those with the least numbers that ``ranked`` computes for an array of
    fingerprints. Returns their results.
    """
    from pyspark.sql import functions as f

    states = states_of(spark, space.directory).select("fingerprint", "parent", "action", "parameters")

    def least(batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        for batch in batches:
            fingerprints = batch.column(0).to_numpy(zero_copy_only=False)
            ranks = ranked(fingerprints)
            first = np.argsort(ranks)[:count]
            # Spark has no unsigned numbers. Shifting them down keeps the order.
            rank = (ranks[first] ^ np.uint64(1 << 63)).view(np.int64)
            yield pa.record_batch([pa.array(fingerprints[first]), pa.array(rank)], names=["fingerprint", "rank"])

    chosen = states.select("fingerprint").mapInArrow(least, "fingerprint long, rank long").orderBy("rank").limit(count)
    steps: dict[int, Step] = {}
    frontier = {row.fingerprint for row in chosen.collect()}
    while frontier:
        wanted = f.broadcast(spark.createDataFrame([(state,) for state in sorted(frontier)], "fingerprint long"))
        last = states.join(wanted, "fingerprint").where(f.col("parent").isNotNull()).collect()
        steps |= {row.fingerprint: (row.parent, row.action, row.parameters, row.fingerprint) for row in last}
        frontier = {row.parent for row in last} - steps.keys()
    rows = [(stem, True, *step) for step, stem in zip(steps.values(), _stems_of_paths(steps), strict=True)]
    schema = "stem long, wanted boolean, source long, action string, parameters string, target long"
    tasks = spark.sparkContext.defaultParallelism
    return _results(spark, spark.createDataFrame(rows, schema).repartition(tasks, "stem"), list(steps.values()), work)


def _stems_of_paths(steps: dict[int, Step]) -> list[int]:
    """For each step, the state that its path has reached after a few steps."""

    def path(state: int) -> list[int]:
        found = [state]
        while state in steps:
            state = steps[state][0]
            found.append(state)
        return found[::-1]

    depths = sorted(len(path(state)) for state in steps)
    cut = depths[len(depths) // 3] if depths else 0
    return [path(state)[: cut + 1][-1] for state in steps]


def _top(states: Any) -> tuple[list[Step], int]:
    """The steps to all states down to a level, and that level."""
    from pyspark.sql import functions as f

    counts = {row["depth"]: row["count"] for row in states.groupBy("depth").count().collect()}
    total = depth = 0
    while depth + 1 in counts and (total + counts[depth + 1] <= MOST_TOP or not depth):
        depth += 1
        total += counts[depth]
    depth = max(1, min(depth, len(counts) * 2 // 3))  # a small table is partitioned too
    top = states.where((f.col("depth") <= depth) & f.col("parent").isNotNull()).select(
        "parent", "action", "parameters", "fingerprint"
    )
    return [tuple(row) for row in top.collect()], depth


def _stems(states: Any, depth: int) -> Any:
    """The stem of each state. Each round goes back twice as far as the last one."""
    from pyspark.sql import functions as f

    deepest = states.agg(f.max("depth")).first()[0] or 1
    below = f.col("depth") > depth
    stems = states.select("fingerprint", f.when(below, f.col("parent")).otherwise(f.col("fingerprint")).alias("stem"))
    reach = 1
    while reach < deepest - depth:
        stems = stems.localCheckpoint()
        further = stems.select(f.col("fingerprint").alias("at"), f.col("stem").alias("further"))
        stems = stems.join(further, f.col("stem") == f.col("at")).select("fingerprint", f.col("further").alias("stem"))
        reach *= 2
    return stems.localCheckpoint()


def _results(spark: Any, rows: Any, top: list[Step], work: Work) -> list[bytes]:
    """The results of tasks on these rows."""
    shared = spark.sparkContext.broadcast(pickle.dumps(top))

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        names = ("source", "action", "parameters", "target")
        wanted: list[Step] = []
        tree: list[Step] = []
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in names]
            for wants, *step in zip(batch.column("wanted").to_pylist(), *columns, strict=True):
                (wanted if wants else tree).append(tuple(step))
        if wanted:
            result = work(wanted, [*pickle.loads(shared.value), *tree])
            yield pa.record_batch([pa.array([result], pa.binary())], names=["result"])

    try:
        return [
            bytes(row.result)
            for row in rows.select("stem", "wanted", "source", "action", "parameters", "target")
            .mapInArrow(task, "result binary")
            .collect()
        ]
    finally:
        shared.destroy()
