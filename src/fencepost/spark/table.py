"""The state space as a table, in the driver: it sends the columns to executors, and goes on with the table of a resumed
search.
"""

from __future__ import annotations

from fencepost.checker.engines.options import SparkOptions
from fencepost.errors import SystemFailure
from fencepost.files.storage import open_storage
from fencepost.semantics import Stepper
from fencepost.spark.cluster import Broadcast
from fencepost.spark.level import TableOutput
from fencepost.states.writer import Mark, Writer


def output_of(writer: Writer, shared: Broadcast, small: bool) -> TableOutput:
    """The table, in the form that is sent to the tasks of the next level to write. The columns are broadcast again when
    they have grown. For a ``small`` level they stay in this process.
    """
    columns = writer.columns
    writer.begin()
    columns.learn(writer.stepper.store)
    variable = shared.current(small, lambda: columns.version, lambda: columns).variable
    return TableOutput(writer.storage.place, writer.depth + 1, writer.edges is not None, variable)


def resumed(stepper: Stepper, options: SparkOptions, mark: Mark | None, checkpoint: str) -> Writer | None:
    """The table that a resumed search goes on with: the one of its checkpoint, or None. Changes nothing yet.

    Raises :class:`fencepost.SystemFailure` if another table is requested, or if a file of it is missing.
    """
    if mark is None:
        if options.states is not None:
            raise SystemFailure(
                f"the search in {checkpoint} was begun without {{states}}, and what it has explored is not written"
                " down: leave out {states}, or start again without {resume}",
                "states",
                "resume",
            )
        return None
    if options.states is not None and open_storage(options.states).place != mark.place:
        raise SystemFailure(
            f"the search in {checkpoint} writes its states to {mark.place}, and goes on with it; leave out {{states}}",
            "states",
        )
    if options.edges and mark.edges is None:
        raise SystemFailure(
            f"the search in {checkpoint} writes its states without the steps: leave out {{edges}}, or start again"
            " without {resume}",
            "edges",
            "resume",
        )
    writer = Writer(stepper, options.states or mark.place, mark.edges is not None, mark)
    damage = writer.damage()
    if damage is not None:
        raise SystemFailure(
            f"the search in {checkpoint} cannot go on with its table of states: {damage}; start again without"
            " {resume}",
            "resume",
        )
    return writer
