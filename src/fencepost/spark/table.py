"""The state space as a table, as the driver of a search on Spark sees to it: it sends the columns out, and can go on
with a table that a search before it has begun.
"""

from __future__ import annotations

from typing import Any

from fencepost.engines.options import SparkOptions
from fencepost.errors import SystemFailure
from fencepost.spark.cluster import Cluster, Held
from fencepost.spark.level import Output
from fencepost.states.writer import Mark, Writer
from fencepost.step import Stepper
from fencepost.storage import open_storage


class Outputs:
    """What tasks need to know of a table, level after level."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._sent: tuple[tuple[bool, int], Any] | None = None

    def next(self, small: bool, cluster: Cluster) -> Output:
        """For the level that is to be written next, or the one that was written last is to be expanded. The columns are
        shared anew when they have grown; if the level is ``small``, they stay in this process.
        """
        writer, columns = self.writer, self.writer.columns
        writer.begin()
        columns.learn(writer.stepper.store)
        version = (small, columns.version)
        if self._sent is None or self._sent[0] != version:
            if self._sent is not None:
                cluster.discard(self._sent[1])
            self._sent = (version, Held(columns) if small else cluster.share(columns))
        return Output(writer.storage.place, writer.depth + 1, writer.edges is not None, self._sent[1])


def resumed(stepper: Stepper, options: SparkOptions, mark: Mark | None, checkpoint: str) -> Writer | None:
    """The table that a search goes on with: the one that its checkpoint speaks of, if it does. Nothing is changed yet.

    Raises :class:`fencepost.SystemFailure` if another one is asked for, or if a file of it is missing.
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
            f"the search in {checkpoint} can not go on with its table of states: {damage}; start again without"
            " {resume}",
            "resume",
        )
    return writer
