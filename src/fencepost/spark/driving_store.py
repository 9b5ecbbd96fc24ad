"""Driving on Spark: each task drives the transitions from its own states. This process tries other paths to states that
the tasks could not reach.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.store.store import Store as Protocol
from fencepost.spark import driving
from fencepost.spark.sql import edges as edges_of
from fencepost.states.manifest import StateSpace
from fencepost.testing.store.driver import Driver
from fencepost.testing.store.table import (
    MOST,
    Tree,
    must_have_edges,
    protocol_of,
    ranks,
    with_other_ways,
)
from fencepost.testing.walk import DriveResult, Edge, Part, drive_part


def every_transition(spark: Any, space: StateSpace, protections: Protections | None = None) -> DriveResult:
    """Drive every transition of a table."""
    must_have_edges(space)
    protocol = protocol_of(space)
    work = partial(_driven, protocol.constants, protections)
    result = _merged(driving.every_edge(spark, space, work))
    if result.unreached and result.beyond <= MOST:
        edges = _edges_of(spark, space, result.unreached)
        result = with_other_ways(Driver(protocol, protections), result, edges, Tree(space))
    return result


def sample(spark: Any, space: StateSpace, count: int, seed: int, protections: Protections | None = None) -> DriveResult:
    """Drive the paths to ``count`` states of a table that a seed chooses: the same states as in one process."""
    work = partial(_driven, protocol_of(space).constants, protections)
    return _merged(driving.paths_to(spark, space, partial(ranks, seed=seed), count, work))


def _driven(
    constants: Mapping[str, Any],
    protections: Protections | None,
    edges: Sequence[driving.Step],
    tree: Sequence[driving.Step],
) -> bytes:
    """The work of a task: drive its edges. Returns the pickled :class:`DriveResult`."""
    driver = Driver(Protocol(**constants), protections)
    part = Part.of((Edge(*edge) for edge in edges), (Edge(*step) for step in tree))
    return pickle.dumps(drive_part(driver, part.needed()))


def _merged(results: Sequence[bytes]) -> DriveResult:
    whole = DriveResult()
    for each in results:
        whole.add(pickle.loads(each))
    return whole


def _edges_of(spark: Any, space: StateSpace, states: set[int]) -> list[Edge]:
    """The edges from and to some states."""
    from pyspark.sql import functions as f

    wanted = f.broadcast(spark.createDataFrame([(state,) for state in sorted(states)], "state long"))
    edges = edges_of(spark, space.directory).select(*Edge._fields)
    found = [
        edges.join(wanted, f.col(end) == f.col("state")).select(*Edge._fields).collect() for end in ("source", "target")
    ]
    return [Edge(*row) for row in {tuple(row) for rows in found for row in rows}]
