"""The replication worker: takes under-replicated ledgers one after another and restores their missing copies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from typing import Any

from fencepost.connections import tasks
from fencepost.ledger.autorecovery.settings import RecoverySettings
from fencepost.ledger.autorecovery.tasks import Change
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.replication import Copied, Pace, has_ends, refill, replace_fragments, spread_fragments
from fencepost.ledger.errors import (
    MetadataServiceError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    ReadError,
    StoreError,
    UnknownLayoutError,
)
from fencepost.ledger.metadata.underreplication import UnderReplicated, UnderReplication
from fencepost.ledger.rules.auditing import rest
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.ledger.rules.replication import is_closed_fragment, lost, waits_for_end
from fencepost.monitoring.metrics import Metrics

AT_ONCE = 8
"""The number of ledgers a worker replicates at once. Small ledgers mostly wait for the metadata service."""

LOOK = 60.0
"""Seconds after which a worker looks for ledgers without a notification."""

_log = logging.getLogger("fencepost.ledger.autorecovery")


class Worker:
    """Replicates ledgers of one cluster."""

    def __init__(
        self, store: LedgerClient, nodes: UnderReplication, settings: RecoverySettings, counts: Metrics
    ) -> None:
        self.copied = Copied()
        self._store = store
        self._nodes = nodes
        self._settings = settings
        self._counts = counts
        self._pace = Pace(settings.replication_rate_by_bytes)
        self._changed = Change()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._begun: set[asyncio.Task[None]] = set()
        """The tasks of the ledgers that this worker has locked, to replicate now or later."""
        self._failures: dict[int, int] = {}
        self._error: BaseException | None = None
        """The unexpected error of one of these tasks."""

    async def run(self) -> None:
        """Replicate until cancelled. Raises :class:`StoreError` if the metadata service fails."""
        self._slots = asyncio.Semaphore(AT_ONCE)
        try:
            for ledger in [*self._nodes.held]:  # from an earlier run that failed
                await self._nodes.release(ledger)
            while True:
                await self._next()
        finally:
            await tasks.cancel(self._begun)

    async def _next(self) -> None:
        """Start on a ledger, or wait until there may be one."""
        self._changed.clear()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if not await self._nodes.is_enabled(self._changed.notice):
            await self._changed.wait()
            return
        async with self._slots:  # wait until a slot is free
            try:
                taken = await self._nodes.take(self._changed.notice)
            except UnknownLayoutError as error:
                _log.error("%s", error)
                return
        if taken is not None:
            self._begin(self._work(taken))
            await asyncio.sleep(0)  # let it take its slot
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await self._changed.wait()

    async def _work(self, taken: UnderReplicated) -> None:
        async with self._slots:
            if not await self._replicated(taken):
                await asyncio.sleep(self._settings.rw_rereplicate_backoff_ms / 1000)

    async def _replicated(self, taken: UnderReplicated, is_late: bool = False) -> bool:
        """Do what is possible for a locked ledger, and release its lock now or later. False if there are no bookies to
        copy to.

        ``is_late``: its writer's grace period is over.
        """
        began, success = time.perf_counter(), False
        try:
            success = await self._replicate(taken, is_late)
        except NoSuchLedgerError:
            _log.info("ledger %d was deleted", taken.ledger)
            await self._done(taken)
        except NotEnoughBookiesError as error:
            _log.warning("ledger %d is not replicated yet: %s", taken.ledger, error)
            await self._nodes.release(taken.ledger)
            return False
        except MetadataServiceError:
            raise
        except StoreError as error:
            if isinstance(error, ReadError):
                self._counts.add("replication_worker_NUM_ENTRIES_UNABLE_TO_READ_FOR_REPLICATION", 1)
            self._give_rest(taken.ledger, str(error))
        finally:
            self._counts.took("replication_worker_rereplicate", time.perf_counter() - began, success=success)
        return True

    async def _replicate(self, taken: UnderReplicated, is_late: bool) -> bool:
        """Copy what can be copied. Gives whether the ledger has all its copies. Raises :class:`StoreError`."""
        ledger = taken.ledger
        metadata = await self._store.ledger_metadata(ledger)
        registered = await self._registered()
        gone = lost(metadata, registered)
        if is_late and waits_for_end(metadata, gone):
            _log.warning(
                "ledger %d is closed by a recovery: bookies of its last fragment are lost: %s",
                ledger,
                ", ".join(sorted(gone)),
            )
            await self._store.recover_ledger(ledger, password=metadata.password or b"")
        batch = self._settings.rereplication_entry_batch_size
        if await replace_fragments(self._store, ledger, gone, self._pace, self.copied, batch):
            self._counts.add("replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED", 1)
        if self._settings.repaired_placement_policy_not_adhering_bookie_enabled:
            await spread_fragments(self._store, ledger, self._pace, self.copied, batch)
        await self._refill(ledger, [each for each in taken.missing if each in registered])
        metadata = await self._store.ledger_metadata(ledger)
        gone = lost(metadata, await self._registered())
        if waits_for_end(metadata, gone):
            self._begin(self._late(taken))
        elif gone:  # another bookie was lost meanwhile
            await self._nodes.release(ledger)
        else:
            await self._done(taken)
            return True
        return False

    async def _registered(self) -> frozenset[str]:
        bookies = await self._store.bookies()
        return frozenset((*bookies.writable, *bookies.read_only))

    async def _refill(self, ledger: int, missing: list[str]) -> None:
        """Copy entries to registered bookies that were published as missing some. Raises :class:`ReadError` if what a
        bookie has is unknown, or an entry cannot be read.
        """
        metadata = await self._store.ledger_metadata(ledger)
        if metadata.status is LedgerStatus.IN_RECOVERY:
            return
        for place, fragment in enumerate(metadata.fragments):
            for bookie in fragment.ensemble if is_closed_fragment(metadata, place) else ():
                if bookie not in missing:
                    continue
                has = await has_ends(self._store, ledger, metadata, place, bookie)
                if has is None:
                    raise ReadError(f"bookie {bookie} is registered and does not say what it has")
                if not has:
                    batch = self._settings.rereplication_entry_batch_size
                    await refill(self._store, ledger, metadata, place, bookie, self._pace, self.copied, batch)

    # -- afterwards ----------------------------------------------------------------------------------------------------

    async def _done(self, taken: UnderReplicated) -> None:
        self._failures.pop(taken.ledger, None)
        if await self._nodes.replicated(taken):
            _log.info("ledger %d is whole", taken.ledger)

    def _give_rest(self, ledger: int, reason: str) -> None:
        """Keep a ledger that could not be replicated locked for a while."""
        failures = self._failures[ledger] = self._failures.get(ledger, 0) + 1
        seconds = rest(failures, self._settings.lock_release_of_failed_ledger_grace_period / 1000)
        _log.warning("ledger %d is not replicated yet, and tried again in %.0f s: %s", ledger, seconds, reason)
        self._counts.add("replication_worker_NUM_DEFER_LEDGER_LOCK_RELEASE_OF_FAILED_LEDGER", 1)
        self._begin(self._release(ledger, seconds))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._begun.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error
        self._changed.set()

    async def _release(self, ledger: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._nodes.release(ledger)

    async def _late(self, taken: UnderReplicated) -> None:
        """Retry a ledger after its writer's grace period."""
        await asyncio.sleep(self._settings.open_ledger_rereplication_grace_period / 1000)
        async with self._slots:
            await self._replicated(taken, is_late=True)
