"""The traces of many simulated runs in one Parquet file, instead of one file per process and run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fencepost.errors import naming_extra
from fencepost.traces.event import TraceError, named
from fencepost.traces.spool import Row
from fencepost.traces.writer import NOTHING, json_of

ROWS = 4_096
"""Events per batch."""


class RunsFile:
    """A Parquet file of the events of many runs, in the order of emission. Use it as a context manager: an error leaves
    no file.

    All events are lost if the process is killed, so use it only for runs that can be repeated. Raises
    :class:`TraceError` if the file cannot be written, and :class:`fencepost.OptionError` without PyArrow.
    """

    def __init__(self, path: str | Path) -> None:
        with naming_extra("writing traces as Parquet", "query"):
            from fencepost.traces import parquet
        self.path = Path(path)
        self._runs: list[str] = []
        self._nodes: list[str] = []
        self._incarnations: list[int] = []
        self._rows: list[Row] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = parquet.File(self.path)
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> RunsFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        try:
            if kind is None:
                self._encode()
            self._file.__exit__(kind)
        except OSError as error:
            raise self._failed(error) from error

    def emit(
        self,
        run: str,
        node: str,
        incarnation: int,
        seq: int,
        action: str,
        subject: str | None = None,
        parameters: Mapping[str, Any] = NOTHING,
        state: Mapping[str, Any] | None = None,
        actor: str = "",
    ) -> None:
        """Append an event. The caller counts ``seq``. Raises :class:`TraceError` if it cannot be written."""
        try:
            row: Row = (seq, actor, action, subject, json_of(parameters), None if state is None else json_of(state))
        except Exception as error:
            raise TraceError(
                f"event {seq}, {action}, of {named(run, node, incarnation)} cannot be written as JSON: {error}"
            ) from error
        self._runs.append(run)
        self._nodes.append(node)
        self._incarnations.append(incarnation)
        self._rows.append(row)
        if len(self._rows) >= ROWS:
            try:
                self._encode()
            except OSError as error:
                raise self._failed(error) from error

    def _encode(self) -> None:
        self._file.add(self._runs, self._nodes, self._incarnations, self._rows)
        self._runs, self._nodes, self._incarnations, self._rows = [], [], [], []

    def _failed(self, error: OSError) -> TraceError:
        return TraceError(f"the trace {self.path} cannot be written: {error.strerror or error}")
