"""One event of a trace, and what can be wrong with traces."""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.errors import FencepostError

STARTED, ENDED, STOPPED = "started", "ended", "trace_stopped"
"""The first action of an incarnation; the last one of an orderly end; the one after which a writer could not go on
writing.
"""


class TraceError(FencepostError):
    """A trace cannot be written, cannot be read, or is not whole."""


class TraceEvent(msgspec.Struct, frozen=True, gc=False):
    """One row of a trace.

    ``run``: one execution of the whole system. ``node``: the process that did it. ``incarnation``: which life of the
    node, from 1 on. ``seq``: from 1 on, without gaps within an incarnation. ``actor``: the part of the node, empty if
    there is one. ``action``: what was done, by its name in the protocol. ``subject``: what it was about; None:
    everything. ``parameters`` and ``state`` (None: not recorded) are JSON objects.
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
        """The parameters as Python values. Raises :class:`TraceError` if they are no JSON object."""
        return self._object("parameters", self.parameters)

    def state_values(self) -> dict[str, Any] | None:
        """The state as Python values, None if it is not recorded. Raises :class:`TraceError` if it is no JSON
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
"""The columns of a trace, in their order."""

_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


def named(run: str, node: str, incarnation: int) -> str:
    """How complaints call an incarnation."""
    return f"node {node}, incarnation {incarnation} (run {run})"
