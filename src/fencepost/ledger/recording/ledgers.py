"""Follows the metadata of ledgers, and records every version: those seen, and those missed.

A ledger created during the recording is followed from its first version. An older ledger is followed from the first
message about it. A watch of the metadata service reports that a node has changed, but not how, so a reader sees two
quick changes as one. Versions are consecutive numbers, so missed versions are detected and recorded.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fencepost.connections import tasks
from fencepost.ledger.errors import MetadataServiceError, NoSuchLedgerError, UnknownLayoutError
from fencepost.ledger.metadata import paths
from fencepost.ledger.metadata.client import LedgerInService, MetadataClient
from fencepost.ledger.roles.metadata import described
from fencepost.traces import TraceWriter

LEDGERS = 100_000
"""The most ledgers to follow. Changes of others are not recorded; their existence is."""

NAMES = 200_000
"""The most node names to remember, for recognising new ledgers. Beyond that, ledgers are followed from the first
message about them.
"""

PAUSE = 1.0
"""Seconds before a failed read is retried."""

_NEVER = -1

_log = logging.getLogger("fencepost.ledger.recording")


class Ledgers:
    """The ledgers being followed. Call :meth:`begin` first, then :meth:`noticed` for the ledger of every message."""

    def __init__(
        self, client: MetadataClient, trace: TraceWriter, most: int = LEDGERS, most_names: int = NAMES
    ) -> None:
        self.client = client
        self.trace = trace
        self.most = most
        self.most_names = most_names
        self.seen = 0
        self.missed = 0
        self._followed: dict[int, _Followed] = {}
        self._names: dict[str, set[str]] = {}
        """The child names of the nodes above ledgers, by path."""
        self._known_names = 0
        self._is_watching = True
        self._is_begun = False
        self._is_full = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """List the ledgers, to recognise new ones later. Raises :class:`MetadataServiceError`."""
        await self._look("")
        self._is_begun = True

    async def close(self) -> None:
        """Stop following."""
        await tasks.cancel(self._tasks)

    def noticed(self, ledger: int) -> None:
        """A message was about this ledger."""
        if ledger not in self._followed:
            self._follow(ledger, None if self._was_there(ledger) else _NEVER)

    def _follow(self, ledger: int, version: int | None) -> None:
        """``version``: the last version that need not be seen; -1 to see all; None if unknown."""
        if len(self._followed) >= self.most:
            if not self._is_full:
                self._is_full = True
                self.trace.emit("metadata_unfollowed", None, {"ledger": ledger, "followed": self.most})
                _log.warning("ledger %d and later ones are not followed: the limit of %d is reached", ledger, self.most)
            return
        self._followed[ledger] = _Followed(self, ledger, version)
        self._followed[ledger].read()

    def start(self, work: Any) -> None:
        """Start a task, which :meth:`close` cancels."""
        tasks.start(work, self._tasks)

    def _was_there(self, ledger: int) -> bool:
        """Whether a ledger may be older than the recording, so that versions may have been missed."""
        if not self._is_watching:
            return True
        places = (
            paths.ledger_path(ledger).rpartition("/"),
            paths.ledger_path(ledger, always_long=True).rpartition("/"),
        )
        return any(name in self._names.get(below, ()) for below, _, name in places)

    # -- new ledgers -----------------------------------------------------------------------------------------

    def _changed(self, below: str) -> None:
        if self._is_watching:
            self.start(self._look(below))

    async def _look(self, below: str) -> None:
        """Find new names in a node, and in the new nodes below it."""
        while True:
            try:
                names = await self.client.names_in(below, self._changed)
                break
            except MetadataServiceError as error:
                if not self._is_begun:
                    raise
                _log.warning("the ledgers cannot be watched, retrying: %s", error)
                await asyncio.sleep(PAUSE)
        if names is None:
            self._known_names -= len(self._names.pop(below, ()))
            return
        names = [name for name in names if below or paths.TOP.fullmatch(name)]
        known = self._names.get(below, set())
        self._names[below] = set(names)
        self._known_names += len(names) - len(known)
        if self._known_names > self.most_names:
            self._give_up()
        for name in names:
            if name not in known and self._is_watching:
                await self._found(f"{below}/{name}" if below else name)

    async def _found(self, path: str) -> None:
        if not path.rpartition("/")[2].startswith("L"):
            await self._look(path)
            return
        ledger = paths.ledger_of(path)
        if ledger is None or not self._is_begun:
            return
        followed = self._followed.get(ledger)
        if followed is None:
            self._follow(ledger, _NEVER)
        elif followed.is_gone:
            followed.read()

    def _give_up(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._names.clear()
            self.trace.emit("new_ledgers_unwatched", None, {"names": self.most_names})
            _log.warning(
                "there are more than %d ledgers: each is followed from the first message about it on", self.most_names
            )


class _Followed:
    """A followed ledger. It is read after each change, one read at a time."""

    __slots__ = ("has_changed", "is_gone", "is_new", "is_reading", "ledger", "ledgers", "version")

    def __init__(self, ledgers: Ledgers, ledger: int, version: int | None) -> None:
        self.ledgers = ledgers
        self.ledger = ledger
        self.version = version
        self.has_changed = False
        self.is_reading = False
        self.is_gone = False
        self.is_new = version == _NEVER

    def read(self) -> None:
        """Read the ledger now, or again after the read in progress."""
        self.has_changed = True
        if not self.is_reading:
            self.is_reading = True
            self.ledgers.start(self._read())

    def _changed(self, ledger: int) -> None:
        self.read()

    async def _read(self) -> None:
        try:
            while self.has_changed:
                self.has_changed = False
                try:
                    self._saw(await self.ledgers.client.read_ledger(self.ledger, self._changed))
                except NoSuchLedgerError:
                    if not self.is_gone:
                        self._emit("metadata_gone", {"version": None if self.version == _NEVER else self.version})
                    self.is_gone, self.is_new, self.version = True, True, _NEVER
                except UnknownLayoutError as error:
                    self._emit("metadata_unreadable", {"reason": str(error)})
                except MetadataServiceError as error:
                    _log.warning("ledger %d cannot be read, retrying: %s", self.ledger, error)
                    self.has_changed = True
                    await asyncio.sleep(PAUSE)
        finally:
            self.is_reading = False

    def _saw(self, found: LedgerInService) -> None:
        version, known = found.version, self.version
        self.is_gone = False
        if known == version:
            return
        if known is not None and known + 1 < version:
            self.ledgers.missed += version - known - 1
            self._emit("metadata_missed", {"first": known + 1, "last": version - 1})
        self.ledgers.seen += 1
        self.version = version
        self._emit("metadata_seen", {"version": version, "metadata": described(found.metadata), "new": self.is_new})

    def _emit(self, action: str, parameters: dict[str, Any]) -> None:
        self.ledgers.trace.emit(action, str(self.ledger), parameters, actor="metadata")
