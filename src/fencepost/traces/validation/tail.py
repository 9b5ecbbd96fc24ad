"""Reads new events from folders of traces while systems write them, from finished and unfinished files, and from the
lines of JSON that other systems write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fencepost.traces import records
from fencepost.traces.event import STOPPED, TraceError, TraceEvent, named
from fencepost.traces.foreign import Begun, Foreign
from fencepost.traces.reading import events_of_parquet, events_of_spool, files_of, files_of_records


class Tail:
    """The events added to folders since the last :meth:`poll`. Folders must be on this machine. ``foreign``: makes
    events of the records of other systems.
    """

    def __init__(self, folders: Sequence[str], foreign: Foreign | None = None) -> None:
        self.folders = folders
        self._foreign = foreign
        self._growing: dict[Path, records.Growing] = {}
        self._begun = Begun()
        self._last: dict[tuple[str, str, int], int] = {}
        self._done: set[str] = set()
        self._read: dict[Path, int] = {}

    def poll(self) -> list[TraceEvent]:
        """The new events, each incarnation's in order.

        Raises :class:`fencepost.traces.TraceError` if one is missing, or a file cannot be read.
        """
        of_records = files_of_records(self.folders, True) if self._foreign is not None else []
        found: list[TraceEvent] = []
        for path in files_of(self.folders):
            if path in of_records:
                continue
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
        return found + [event for event in self._added(of_records) if self._is_new(event)]

    def _added(self, paths: Sequence[Path]) -> Iterator[TraceEvent]:
        for path in paths:
            if path not in self._growing:
                if not records.grows(path):
                    raise TraceError(not_followed(path))
                self._growing[path] = records.Growing(path)
        for path, file in self._growing.items():
            assert self._foreign is not None
            yield from self._foreign.added(path, file.new(), self._begun)

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


def not_followed(path: Path) -> str:
    """Why a file of records cannot be followed, in words."""
    return f"{path} cannot be followed: only lines of JSON can, in files that end in {' or '.join(records.LINES)}"
