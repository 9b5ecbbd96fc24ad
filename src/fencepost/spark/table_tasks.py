"""The tasks that write the state space as a table: files of states, and files of steps.

Only the driver knows the value of a number. It has met every value of a level only when that level is complete. So a
later job writes the states, with the driver's columns as a broadcast variable. The tasks that expand a level write the
steps, since actions and their parameters are known from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fencepost.checker.compiler.arrays import Array, Compiled
from fencepost.checker.engines.kernel import Arena, Work
from fencepost.checker.engines.recording import steps_of
from fencepost.files.storage import open_storage
from fencepost.spark import level
from fencepost.spark.level import Plan, TableOutput
from fencepost.states.files import BLOCK, Part, TableLocation, writing

LISTED_STATES = BLOCK // 4
"""States whose steps are listed at once."""


def write_states(plan: Plan, partition: int, c: Compiled) -> Part | None:
    """Write the states of a partition."""
    output = plan.output
    assert output is not None
    columns = output.columns.value
    schema = columns.schema()

    def blocks() -> Iterator[Any]:
        for fps, outcomes, rows in level.read_states(plan, partition, BLOCK):
            yield columns.states(schema, output.depth, fps, fps ^ c.delta[outcomes], c.outcome_root[outcomes], rows)

    return _write(output, "states", partition, blocks())


def write_steps(plan: Plan, partition: int, c: Compiled, old: Arena, work: Work) -> Part | None:
    """Write the steps out of the states of a partition, whose rows are in ``old``, if the table has steps."""
    if plan.output is None or not plan.output.edges:
        return None
    columns = plan.output.columns.value
    roots = np.arange(plan.roots, dtype=np.uint16)
    no_conditions = np.zeros((plan.roots, 0), np.uint64)

    def blocks() -> Iterator[Any]:
        for begin in range(0, len(old.fp), LISTED_STATES):
            order: Array = np.arange(begin, min(begin + LISTED_STATES, len(old.fp)))
            counts, targets, taken, _ = steps_of(c, old, work, order, roots, no_conditions)
            sources = np.repeat(old.fp[order], counts)
            for at in range(0, len(sources), BLOCK):
                block = slice(at, at + BLOCK)
                yield columns.edges(sources[block], targets[block], taken[block])

    return _write(plan.output, "edges", partition, blocks())


def _write(output: TableOutput, table: str, partition: int, blocks: Iterator[Any]) -> Part | None:
    with writing(output.place):
        return TableLocation(open_storage(output.place), table).write(partition, blocks)
