"""One event of a trace, and the error that traces raise."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.errors import FencepostError

STARTED, ENDED, STOPPED = "started", "ended", "trace_stopped"
"""The first action of an incarnation; the last action of a clean shutdown; the last action of a writer that could not
go on writing.
"""


class TraceError(FencepostError):
    """A trace cannot be written, cannot be read, or is incomplete."""


class TraceEvent(msgspec.Struct, frozen=True, gc=False):
    """One row of a trace.

    ``run``: one execution of the whole system. ``node``: the process that acted. ``incarnation``: the number of the
    process's start, from 1. ``seq``: the number of the event in its incarnation, from 1, without gaps. ``actor``: the
    part of the node; empty if the node has only one. ``action``: the name of the action in the protocol. ``subject``:
    the object that the event is about; None: all of them. ``parameters`` and ``state`` (None: not recorded) are JSON
    objects.
    """

    run: str
    node: str
    incarnation: int
    seq: int
    actor: str
    action: str
    subject: str | None
    parameters: str
    state: str | None

    def parameter_values(self) -> dict[str, Any]:
        """The parameters as Python values. Raises :class:`TraceError` if they are not a JSON object."""
        return self._object("parameters", self.parameters)

    def state_values(self) -> dict[str, Any] | None:
        """The state as Python values, None if it is not recorded. Raises :class:`TraceError` if it is not a JSON
        object.
        """
        return None if self.state is None else self._object("state", self.state)

    def _object(self, column: str, text: str) -> dict[str, Any]:
        try:
            return _OBJECT.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise TraceError(
                f"the {column} of event {self.seq} of {named(self.run, self.node, self.incarnation)} are no JSON"
                f" object: {error}"
            ) from error


COLUMNS = TraceEvent.__struct_fields__
"""The columns of a trace, in order."""

_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


def named(run: str, node: str, incarnation: int) -> str:
    """An incarnation, as error messages name it."""
    return f"node {node}, incarnation {incarnation} (run {run})"
