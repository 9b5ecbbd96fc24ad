"""The collection of garbage: entry logs that hold little or nothing that is still found give their room back.

What is still in use of an entry log is copied to a new section, together with what only this log says of ledgers. When the last such
section is durable, it says that the old entry log is not there any more, and only then is that removed. A crash at any point leaves
either the old entry log, or all of what was in use of it elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fencepost.store.disk.entry_logs import CHUNK, Bodies, EntryLogs, name_of, scan
from fencepost.store.disk.index import places_of
from fencepost.store.disk.journal import Damage


@dataclass
class Collected:
    """What a collection did: the entry logs that it removed, the bytes of them, the bytes that it copied, and the entry logs that it had to
    leave since something in them can not be read."""

    removed: list[int] = field(default_factory=list)
    bytes_removed: int = 0
    bytes_copied: int = 0
    damaged: list[int] = field(default_factory=list)


class Collection:
    """Collects the garbage of entry logs."""

    def __init__(self, logs: EntryLogs) -> None:
        self._logs = logs
        self._running = threading.Lock()

    def run(
        self, threshold: float, writing: threading.Lock, rate: int, ended: Callable[[], bool] = lambda: False
    ) -> Collected:
        """Remove entry logs that nothing is in use of, and compact those of which at most a share of ``threshold`` is, the emptiest first.

        ``writing`` is held while something is written, ``rate`` the bytes a second that are written at most (0: any), and nothing more is begun
        once ``ended()`` is true. Entry logs for whose copies there is no room are left. Raises ``OSError``.
        """
        collected = Collected()
        with self._running:
            for log in self._candidates(threshold):
                if ended():
                    break
                if self._logs.files.room().free > 2 * self._logs.index.live[log] or not self._logs.index.live[log]:
                    self._compact(log, writing, rate, ended, collected)
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
        self, log: int, writing: threading.Lock, rate: int, ended: Callable[[], bool], collected: Collected
    ) -> None:
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
            began = time.monotonic()
            with writing:
                try:
                    copied = self._copy(log, runs)
                except Damage:
                    collected.damaged.append(log)
                    return
            collected.bytes_copied += copied
            if rate:
                time.sleep(max(0.0, copied / rate - (time.monotonic() - began)))
        collected.removed.append(log)
        collected.bytes_removed += size

    def _copy(self, log: int, runs: deque[tuple[int, int, int]]) -> int:
        """Copy some of these runs, given by their ledgers, first and last ids, which are taken out of the queue; with the last of them, remove the entry log. The bytes copied."""
        logs = self._logs
        entries: dict[int, dict[int, bytes]] = {}
        size = 0
        while runs and size < CHUNK:
            ledger, first, last = runs.popleft()
            for located in logs.index.runs(ledger, first, last):
                if located.log != log:
                    continue
                for entry_id, place in places_of(located):
                    if entry_id not in entries.get(ledger, ()):
                        body = logs.read_at(place, ledger, entry_id)
                        if body is None:
                            raise Damage(f"entry {entry_id} of ledger {ledger} in {name_of(log)} can not be read")
                        entries.setdefault(ledger, {})[entry_id] = body
                        size += place.size
        if not runs and logs.index.live[log] != size:
            raise Damage(f"{name_of(log)} has entries that its sections do not tell of")
        without = () if runs else (log,)
        states = [] if runs else [logs.states[ledger] for ledger, told_in in sorted(logs.told_in.items()) if told_in == log]
        section = logs.write(Bodies(entries), states, without=without)
        logs.sync(section)
        logs.commit(section)
        logs.remove(without)
        return size
