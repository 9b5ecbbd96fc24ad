"""Reads new events from folders of traces while systems write them, from finished and unfinished files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fencepost.traces.event import STOPPED, TraceError, TraceEvent, named
from fencepost.traces.reading import events_of_parquet, events_of_spool, files_of


class Tail:
    """The events added to folders since the last :meth:`poll`. Folders must be on this machine."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = folders
        self._last: dict[tuple[str, str, int], int] = {}
        self._done: set[str] = set()
        self._read: dict[Path, int] = {}

    def poll(self) -> list[TraceEvent]:
        """The new events, each incarnation's in order.

        Raises :class:`fencepost.traces.TraceError` if one is missing, or a file cannot be read.
        """
        found: list[TraceEvent] = []
        for path in files_of(self.folders):
            is_spool = path.suffix == ".spool"
            if path.stem in self._done and not is_spool:
                continue
            try:
                for event in events_of_spool(path, self._read) if is_spool else events_of_parquet(path):
                    if self._is_new(event):
                        found.append(event)
            except FileNotFoundError:  # converted to Parquet meanwhile: the next poll reads that
                continue
            except OSError as error:
                raise TraceError(f"{path} cannot be read: {error.strerror or error}") from error
            if not is_spool:
                self._done.add(path.stem)
                self._read = {spool: end for spool, end in self._read.items() if spool.stem != path.stem}
        return found

    def _is_new(self, event: TraceEvent) -> bool:
        key = (event.run, event.node, event.incarnation)
        last = self._last.get(key, 0)
        if event.seq <= last:
            return False
        if event.seq != last + 1:
            raise TraceError(f"events {last + 1:,} to {event.seq - 1:,} are missing in the trace of {named(*key)}")
        if event.action == STOPPED:
            raise TraceError(f"the trace of {named(*key)} stopped with event {event.seq:,}: {event.parameters}")
        self._last[key] = event.seq
        return True
