"""The collection of garbage: entry logs that hold little or nothing that is still found give their room back.

What is still in use of an entry log is copied to a new section, together with what only this log says of ledgers. When
the last such section is durable, it says that the old entry log is not there any more, and only then is that removed. A
crash at any point leaves either the old entry log, or all of what was in use of it elsewhere.
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
from fencepost.ledger.kernels.found import CODE, missing
from fencepost.ledger.rules.codes import Code

CHUNK = 1 << 22
"""Bytes that are copied together."""


@dataclass
class Collected:
    """The result of a collection: the entry logs that it removed, the bytes of them, the bytes that it copied, and the
    entry logs that it had to leave since something in them cannot be read.
    """

    removed: list[int] = field(default_factory=list)
    bytes_removed: int = 0
    bytes_copied: int = 0
    damaged: list[int] = field(default_factory=list)


class Collection:
    """Collects the garbage of entry logs."""

    def __init__(self, logs: EntryLogs, compiled: Callable[[], bool], now: Callable[[], float]) -> None:
        """``compiled()`` says whether there are compiled loops by now, ``now()`` the time in seconds."""
        self._logs = logs
        self._compiled = compiled
        self._now = now
        self._running = threading.Lock()

    def run(
        self, threshold: float, writing: Turn, rate: int, ended: Callable[[], bool] = lambda: False
    ) -> Work[Collected]:
        """Remove entry logs that nothing is in use of, and compact those of which at most a share of ``threshold`` is,
        the emptiest first.

        ``writing`` is held while something is written, ``rate`` the bytes a second that are written at most (0: any),
        and nothing more is begun once ``ended()`` is true. Entry logs for whose copies there is neither room nor a
        reserve are left. Raises ``OSError``.
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
        """Come back when none is under way."""
        with self._running:
            pass

    def _candidates(self, threshold: float) -> list[int]:
        logs = self._logs
        shares = {log: logs.index.live[log] / logs.sizes[log] for log in list(logs.logs) if log != logs.current}
        return sorted((log for log in shares if shares[log] <= threshold), key=lambda log: (shares[log], log))

    def _compact(
        self, log: int, writing: Turn, rate: int, ended: Callable[[], bool], collected: Collected
    ) -> Work[None]:
        """Copy what is in use of an entry log, and remove it."""
        found = scan(self._logs.logs[log], log)
        if not found.complete:
            collected.damaged.append(log)
            return
        runs = deque(span for section in found.sections for span in section.runs.spans)
        size = self._logs.sizes[log]
        while runs or log in self._logs.logs:
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
            yield began + (copied / rate if rate else 0.0)  # and let others write
        collected.removed.append(log)
        collected.bytes_removed += size

    def _copy(self, log: int, runs: deque[tuple[int, int, int]]) -> Work[int]:
        """Copy some of these runs, given by their ledgers, first and last ids, which are taken out of the queue; with
        the last of them, remove the entry log. The bytes copied.
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
            raise Damage(f"{name_of(log)} has entries that its sections do not tell of")
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
        """The entries of runs, which nobody moves meanwhile. Raises :class:`Damage` if one cannot be read."""
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
