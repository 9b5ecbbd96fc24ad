"""The repair of a bookie that may have lost entries (BP-46): its ledgers are marked before it serves, and made whole while it does.

Phase one puts every ledger in limbo that is not closed, and fences those that are, durably. Phase two has each of them closed by a recovery, copies what
belongs here and is missing from other bookies, and only then ends the limbo of the ledger. It goes on after any crash: limbo is in the
journal, and that there is a repair is noted in the directories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fencepost.errors import SystemFailure
from fencepost.store.bookie import cookies
from fencepost.store.bookie.directories import Directories
from fencepost.store.bookie.server import Server
from fencepost.store.bookie.settings import Settings
from fencepost.store.client.replication import Copied, Copier, Pace, belonging
from fencepost.store.client.settings import ClientSettings
from fencepost.store.client.store import Store
from fencepost.store.disk.storage import Storage
from fencepost.store.errors import NoSuchLedgerError, StoreError
from fencepost.store.metadata.client import MetadataClient
from fencepost.store.rules.boot import Mark, mark_of, may_leave_limbo
from fencepost.store.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.store.rules.replication import fragments_on

PAUSE = 3.0
"""Seconds after which what could not be repaired is tried again."""

_log = logging.getLogger("fencepost.store.bookie")


@dataclass
class Progress(Copied):
    """How far a repair is. ``ledgers``: those that are still to be looked at in this round, of which ``lacking`` entries could not be had."""

    ledgers: int = 0


class Repair:
    """The repair of one bookie."""

    def __init__(
        self, server: Server, storage: Storage, client: MetadataClient, bookie_id: str, directories: Directories, settings: Settings
    ) -> None:
        self.server = server
        self.storage = storage
        self.client = client
        self.bookie_id = bookie_id
        self.directories = directories
        self.settings = settings
        self.progress = Progress()
        self._pace = Pace(settings.replication_rate_by_bytes)

    @property
    def limbo(self) -> int:
        """How many ledgers are in limbo."""
        return sum(ledger.limbo for ledger in self.server.role.ledgers.values())

    # -- phase one ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Note in all directories that there is a repair, ahead of anything that it does. Raises :class:`SystemFailure`."""
        for directory in dict.fromkeys(self.directories):
            cookies.begin_repair(directory)

    async def mark_ledgers(self) -> None:
        """Phase one. It is durable when this comes back, and may be done again at any time. The bookie must not serve before.

        Raises :class:`StoreError` if the metadata can not be read, and :class:`SystemFailure` if the disk fails.
        """
        await self.client.sync()
        limbo = fenced = 0
        async for ledger, metadata in self.client.all_metadata():
            mark = mark_of(metadata, self.bookie_id)
            if mark is Mark.LIMBO:
                await self._call("enter limbo", ledger)
                limbo += 1
            elif mark is Mark.FENCE:
                await self._call("fence", ledger)
                fenced += 1
        await asyncio.to_thread(self.storage.checkpoint, always=True)
        _log.warning("entries may be missing: %d ledgers are in limbo, and %d closed ones are fenced", limbo, fenced)

    async def _call(self, operation: str, *arguments: object) -> None:
        """Ask something of the role; done when it is durable. Raises :class:`SystemFailure` if the storage has failed."""
        future = self.server.call(operation, *arguments)
        while not future.done():
            if self.server.stopped:
                raise SystemFailure("the bookie's storage has failed while its ledgers were repaired")
            await asyncio.wait((future,), timeout=0.1)

    # -- phase two ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Phase two, until nothing is missing any more: round after round, while other bookies or the metadata service are away."""
        settings = ClientSettings(session_timeout=self.settings.zk_timeout / 1000)
        while True:
            try:
                async with await Store.connect(self.settings.metadata_service_uri, settings) as store:
                    while not await self._round(store):
                        await asyncio.sleep(PAUSE)
                break
            except StoreError as error:
                _log.warning("the repair waits: %s", error)
                await asyncio.sleep(PAUSE)
        await asyncio.to_thread(self.storage.checkpoint)
        for directory in dict.fromkeys(self.directories):
            cookies.end_repair(directory)
        _log.warning("the repair is done: %d entries of %d bytes were copied", self.progress.entries, self.progress.bytes)

    async def _round(self, store: Store) -> bool:
        """Look at every ledger of the bookie once; whether nothing is missing now."""
        limbo = [ledger for ledger, known in self.server.role.ledgers.items() if known.limbo]
        others = [
            ledger
            async for ledger, metadata in self.client.all_metadata()
            if mark_of(metadata, self.bookie_id) is Mark.FENCE and not self._is_in_limbo(ledger)
        ]
        ledgers = [*limbo, *others]
        left = self.progress.lacking = 0
        for done, ledger in enumerate(ledgers):
            self.progress.ledgers = len(ledgers) - done
            try:
                left += not await self._repaired(store, ledger)
            except NoSuchLedgerError:
                await self._call("leave limbo", ledger)
            except StoreError as error:
                _log.warning("ledger %d is not repaired yet: %s", ledger, error)
                left += 1
        self.progress.ledgers = left
        return not left

    def _is_in_limbo(self, ledger: int) -> bool:
        known = self.server.role.ledgers.get(ledger)
        return known is not None and known.limbo

    async def _repaired(self, store: Store, ledger: int) -> bool:
        """Have a ledger closed if it is in limbo, copy what is missing of it, and end its limbo; whether all is there.

        Raises :class:`StoreError` if it can not be recovered now.
        """
        metadata = await store.ledger_metadata(ledger)
        if metadata.status is not LedgerStatus.CLOSED:
            metadata = await store.recover_ledger(ledger, password=metadata.password or b"")
        missing = missing_of(metadata, self.bookie_id, await asyncio.to_thread(self.storage.entries_of, ledger))
        copier = Copier(store, ledger, metadata, self._pace, self.progress)
        lacking = await copier.copy(missing, self.bookie_id, partial(self._call, "store entry", ledger))
        if lacking:
            _log.error("ledger %d lacks %d entries that no other bookie gives now", ledger, lacking)
        elif self._is_in_limbo(ledger) and may_leave_limbo(metadata.status, lacking):
            await self._call("leave limbo", ledger)
        return not lacking


def missing_of(metadata: LedgerMetadata, bookie: str, stored: Iterable[int]) -> NDArray[np.int64]:
    """The entries of a closed ledger that belong to a bookie and are not among those that it has stored, in order."""
    belong = [belonging(metadata, fragment, bookie) for fragment in fragments_on(metadata, bookie)]
    return np.setdiff1d(np.concatenate(belong) if belong else np.empty(0, np.int64), np.fromiter(stored, np.int64))
