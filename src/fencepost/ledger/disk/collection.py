"""Garbage collection: reclaims entry logs whose entries are mostly or all deleted or superseded.

The live entries of an entry log are copied to new sections, together with ledger state that only this log holds. The
last of these sections no longer lists the old entry log. Once it is durable, the old log is removed. After a crash at
any point, either the old entry log exists or all its live entries exist elsewhere.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from fencepost.files.folders import NoRoom
from fencepost.ledger.disk.entry_logs import Bodies, Entries, EntryLogs, name_of, scan
from fencepost.ledger.disk.index import Located, places_of
from fencepost.ledger.disk.journal import Damage
from fencepost.ledger.disk.read_cache import entries_of
from fencepost.ledger.disk.workers import Disk, Turn, Work
from fencepost.ledger.disk.write_cache import RowsWriteCache
from fencepost.ledger.kernels.results import CODE, missing
from fencepost.ledger.rules.codes import Code

CHUNK = 1 << 22
"""Bytes copied in one step."""


@dataclass
class Collected:
    """The result of a collection: the entry logs removed, their bytes, the bytes copied, and the entry logs kept
    because part of them cannot be read.
    """

    removed: list[int] = field(default_factory=list)
    bytes_removed: int = 0
    bytes_copied: int = 0
    damaged: list[int] = field(default_factory=list)


class Collection:
    """Collects the garbage of entry logs."""

    def __init__(self, logs: EntryLogs, compiled: Callable[[], bool], now: Callable[[], float]) -> None:
        """``compiled()`` says whether the compiled loops are ready; ``now()`` is the time in seconds."""
        self._logs = logs
        self._compiled = compiled
        self._now = now
        self._running = threading.Lock()

    def run(
        self, threshold: float, writing: Turn, rate: int, ended: Callable[[], bool] = lambda: False
    ) -> Work[Collected]:
        """Remove entry logs without live entries, and compact those whose live share is at most ``threshold``, emptiest
        first.

        ``writing`` is held during each write. ``rate`` limits the bytes written per second; 0 means no limit. No
        further step begins once ``ended()`` is true. An entry log is kept if neither the disk nor the reserve has room
        for its copies. Raises ``OSError``.
        """
        collected = Collected()
        yield self._running
        try:
            for log in self._candidates(threshold):
                if ended():
                    break
                room = self._logs.files.room().free + self._logs.reserve.size
                if room > 2 * self._logs.index.live[log] or not self._logs.index.live[log]:
                    with suppress(NoRoom):
                        yield from self._compact(log, writing, rate, ended, collected)
        finally:
            self._running.release()
        return collected

    def wait(self) -> None:
        """Block until no collection is running."""
        with self._running:
            pass

    def _candidates(self, threshold: float) -> list[int]:
        logs = self._logs
        shares = {log: logs.index.live[log] / logs.sizes[log] for log in list(logs.sizes) if log != logs.current}
        return sorted((log for log in shares if shares[log] <= threshold), key=lambda log: (shares[log], log))

    def _compact(
        self, log: int, writing: Turn, rate: int, ended: Callable[[], bool], collected: Collected
    ) -> Work[None]:
        """Copy the live entries of an entry log, then remove it."""
        found = scan(self._logs.files.open(name_of(log)), log)
        if not found.complete:
            collected.damaged.append(log)
            return
        runs = deque(span for section in found.sections for span in section.runs.spans)
        size = self._logs.sizes[log]
        while runs or log in self._logs.sizes:
            if ended():
                return
            began = self._now()
            yield writing
            try:
                copied = yield from self._copy(log, runs)
            except Damage:
                collected.damaged.append(log)
                return
            finally:
                writing.release()
            collected.bytes_copied += copied
            yield began + (copied / rate if rate else 0.0)  # let others write
        collected.removed.append(log)
        collected.bytes_removed += size

    def _copy(self, log: int, runs: deque[tuple[int, int, int]]) -> Work[int]:
        """Copy the next runs of a queue of (ledger, first id, last id), and remove them from it. After the last one,
        remove the entry log. Returns the bytes copied.
        """
        logs = self._logs
        chosen: dict[int, Located] = {}
        size = 0
        while runs and size < CHUNK:
            for located in logs.index.runs(*runs.popleft()):
                if located.log == log and located.offset not in chosen:
                    chosen[located.offset] = located
                    size += located.run.size
        if not runs and logs.index.live[log] != size:
            raise Damage(f"{name_of(log)} has entries that are not in its sections")
        entries = self._read([*chosen.values()])
        without = () if runs else (log,)
        states = [] if runs else [logs.states[ledger] for ledger, at in sorted(logs.log_of_state.items()) if at == log]
        yield Disk.WRITE
        section = logs.write(entries, states, without=without)
        yield Disk.SYNC
        logs.sync(section)
        logs.commit(section)
        yield Disk.WRITE
        logs.remove(without)
        return size

    def _read(self, chosen: list[Located]) -> Entries:
        """The entries of runs, which must not move meanwhile. Raises :class:`Damage` if one cannot be read."""
        logs = self._logs
        if chosen and self._compiled():
            ledgers = np.repeat([located.run.ledger for located in chosen], [len(located.run) for located in chosen])
            ids = np.concatenate([np.asarray(located.run.ids) for located in chosen])
            table = missing(ids)
            _, errors, block = logs.read_rows(ledgers, ids, table)
            if block is not None and not errors and bool((table[:, CODE] == Code.OK.value).all()):
                cache = RowsWriteCache(len(ids))
                cache.put_rows(entries_of(ledgers, table, block))
                return cache.in_order()
        entries: dict[int, dict[int, bytes]] = {}
        for located in chosen:
            ledger = located.run.ledger
            for entry_id, place in places_of(located):
                body = logs.read_at(place, ledger, entry_id)
                if body is None:
                    raise Damage(f"entry {entry_id} of ledger {ledger} in {name_of(place.log)} cannot be read")
                entries.setdefault(ledger, {})[entry_id] = body
        return Bodies(entries)
