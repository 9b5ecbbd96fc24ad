"""The traces of the processes of a simulated cluster, as events of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Emit: TypeAlias = Callable[[str, int, int, str, str | None, Mapping[str, Any]], None]
"""Takes an event: the node, its incarnation, its number from 1 on, the action, the subject and the parameters."""


class SimTrace:
    """Numbers the events of each incarnation of each process, and gives them to ``emit``, if there is one."""

    def __init__(self, emit: Emit | None = None) -> None:
        self._emit = emit
        self.is_read = emit is not None
        self._numbers: dict[str, tuple[int, int]] = {}

    def started(self, node: str, kind: str) -> None:
        """A process has begun, perhaps once more."""
        incarnation = self._numbers.get(node, (0, 0))[0] + 1
        self._numbers[node] = incarnation, 0
        self.node_did(node, "started", {"kind": kind})

    def node_did(self, node: str, action: str, parameters: Mapping[str, Any], subject: str | None = None) -> None:
        """A process has done something; ``subject`` is the ledger that it is about, None for all of them."""
        if self._emit is not None:
            incarnation, number = self._numbers[node]
            self._numbers[node] = incarnation, number + 1
            self._emit(node, incarnation, number + 1, action, subject, parameters)
