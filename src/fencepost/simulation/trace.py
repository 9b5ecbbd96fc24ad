"""The traces of a simulated cluster's processes, as events of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from fencepost.traces.event import ENDED
from fencepost.traces.writer import NOTHING

Emit: TypeAlias = Callable[..., None]
"""Receives an event: node, incarnation, number from 1, action, subject and parameters; and the actor, where a process
has several.
"""


class SimTrace:
    """Numbers the events of each incarnation of each process, and passes them to ``emit``, if given."""

    def __init__(self, emit: Emit | None = None) -> None:
        self._emit = emit
        self.is_read = emit is not None
        self._numbers: dict[str, tuple[int, int]] = {}

    @contextmanager
    def held(self) -> Iterator[SimTrace]:
        """A trace that buffers its events until the end, because ``emit`` may use the clock or random bytes."""
        emit, events = self._emit, list[tuple[Any, ...]]()
        if emit is None:
            yield self
            return
        try:
            yield SimTrace(lambda *event: events.append(event))
        finally:
            for event in events:
                emit(*event)

    def started(self, node: str, kind: str) -> None:
        """A process has started or restarted."""
        incarnation = self._numbers.get(node, (0, 0))[0] + 1
        self._numbers[node] = incarnation, 0
        self.node_did(node, "started", {"kind": kind})

    def node_did(
        self, node: str, action: str, parameters: Mapping[str, Any], subject: str | None = None, actor: str = ""
    ) -> None:
        """A process did something. ``subject``: the ledger concerned, None for all."""
        if self._emit is not None:
            incarnation, number = self._numbers[node]
            self._numbers[node] = incarnation, number + 1
            self._emit(node, incarnation, number + 1, action, subject, parameters, *([actor] if actor else []))


class NodeTrace:
    """The trace of one process, with the interface of :class:`fencepost.traces.TraceWriter`."""

    def __init__(self, trace: SimTrace, node: str, kind: str) -> None:
        self.node = node
        self._trace = trace
        trace.started(node, kind)

    def emit(
        self,
        action: str,
        subject: str | int | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        state: object = None,
        actor: str = "",
    ) -> None:
        """See :class:`fencepost.traces.TraceWriter`, as for all below."""
        about = None if subject is None else str(subject)
        self._trace.node_did(self.node, action, parameters, about, actor)

    def close(self, parameters: Mapping[str, Any] = NOTHING) -> None:
        self._trace.node_did(self.node, ENDED, parameters)
