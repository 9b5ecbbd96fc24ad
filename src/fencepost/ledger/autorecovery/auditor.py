"""The auditor: publishes under-replicated ledgers when a bookie is lost, and in periodic checks."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection

from fencepost.ledger.autorecovery.settings import RecoverySettings
from fencepost.ledger.autorecovery.tasks import Change, until_one_ends
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.replication import has_ends
from fencepost.ledger.metadata import paths
from fencepost.ledger.metadata.client import Bookies
from fencepost.ledger.metadata.underreplication import UnderReplication
from fencepost.ledger.rules.auditing import Due, Watched, audited, is_asked_for, met, seen
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.ledger.rules.replication import better, is_closed_fragment, lost, misplaced
from fencepost.monitoring.metrics import Metrics

AT_ONCE = 50
"""The number of ledgers published at once."""

_log = logging.getLogger("fencepost.ledger.autorecovery")


class Auditor:
    """Audits one cluster while it is elected."""

    def __init__(
        self, store: LedgerClient, nodes: UnderReplication, settings: RecoverySettings, counts: Metrics
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._settings = settings
        self._counts = counts
        self._bookies = Bookies()
        self._watched = Watched()
        self._changed = Change()
        self.misplaced = 0
        """The ledgers with entries in too few racks, zones or regions, at the last check."""

    async def run(self) -> None:
        """Audit until cancelled. Raises :class:`StoreError` if the metadata service fails."""
        stop = await self._store.metadata.watch_bookies(self._bookies_changed)
        try:
            await until_one_ends(self._watch(), self._check_entries(), self._check_placement())
        finally:
            stop()

    @property
    def _registered(self) -> frozenset[str]:
        return frozenset((*self._bookies.writable, *self._bookies.read_only))

    def _bookies_changed(self, bookies: Bookies) -> None:
        self._bookies = bookies
        self._watched = met(self._watched, self._registered)
        self._changed.set()

    # -- lost bookies
    # ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Publish the ledgers of lost bookies: of a single one after the delay, of several at once, and all in the
        periodic check.
        """
        loop = asyncio.get_running_loop()
        self._watched = Watched(known=frozenset(await self._store.metadata.names_in(paths.COOKIES) or ()))
        before: tuple[int, int] | None = None
        check_at, audit_at = loop.time(), math.inf
        while True:
            self._changed.clear()
            await self._until_enabled()
            delay = await self._nodes.recovery_delay(self._settings.lost_bookie_recovery_delay, self._changed.notice)
            waited = self._watched.waiting
            self._watched, due = seen(self._watched, self._registered, delay[0])
            now = loop.time()
            if before is not None and delay[1] != before[1]:
                due, waited = (Due.NOW if is_asked_for(delay[0], before[0]) else due), frozenset()
            before = delay
            if due is Due.NOW:
                audit_at = now
            elif due is Due.NOTHING:
                if audit_at < math.inf:
                    self._counts.add("auditor_NUM_DELAYED_BOOKIE_AUDITS_CANCELLED", 1)
                    _log.info("the bookie that was waited for is back")
                audit_at = math.inf
            elif self._watched.waiting != waited:
                self._counts.add("auditor_NUM_BOOKIE_AUDITS_DELAYED", 1)
                _log.warning(
                    "lost: %s; its ledgers are published if that is so in %d s",
                    ", ".join(sorted(self._watched.waiting)),
                    delay[0],
                )
                audit_at = now + delay[0]
            if audit_at <= now:
                await self._audit(())
                self._watched, audit_at = audited(self._watched), math.inf
            elif check_at <= now:
                await self._audit(self._watched.waiting)
                interval = self._settings.auditor_periodic_bookie_check_interval
                check_at = now + interval if interval else math.inf
            else:
                await self._until_changed(min(audit_at, check_at) - now)

    async def _until_changed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds if seconds < math.inf else None):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _until_enabled(self) -> None:
        while True:
            changed = Change()
            if await self._nodes.is_enabled(changed.notice):
                return
            _log.warning("auto-recovery is disabled, and the auditor waits until it is enabled")
            await changed.wait()

    async def _audit(self, waited_for: Collection[str]) -> None:
        """Publish every ledger with an unregistered bookie in an ensemble, except the bookies ``waited_for``."""
        began, found, news = time.perf_counter(), 0, 0
        missing: set[str] = set()
        some: dict[int, frozenset[str]] = {}
        await self._store.metadata.sync()
        async for ledger, metadata in self._store.metadata.all_metadata():
            gone = lost(metadata, self._registered).difference(waited_for)
            if gone:
                some[ledger] = gone
                found += 1
                missing |= gone
            if len(some) == AT_ONCE:
                news += await self._publish(some)
                some.clear()
        news += await self._publish(some)
        self._counts.took("auditor_AUDIT_BOOKIES_TIME", time.perf_counter() - began)
        self._counts.add("auditor_NUM_UNDER_REPLICATED_LEDGERS", news)
        if found:
            _log.warning(
                "under-replicated ledgers: %d, of which %d are new; lost: %s",
                found,
                news,
                ", ".join(sorted(missing)),
            )

    async def _publish(self, some: dict[int, frozenset[str]]) -> int:
        """Publish ledgers with the bookies that each misses, unless disabled now. Gives how many were not published
        before.
        """
        if not some or not await self._nodes.is_enabled():
            return 0
        now = _now()
        news = await asyncio.gather(*(self._nodes.publish(ledger, gone, now) for ledger, gone in some.items()))
        return sum(news)

    # -- lost entries
    # ------------------------------------------------------------------------------------------------------

    async def _check_entries(self) -> None:
        """Check periodically whether bookies have the entries that they should."""
        interval = self._settings.auditor_periodic_check_interval
        if not interval:
            await asyncio.Event().wait()
        while True:
            checked = await self._nodes.checked()
            if checked is not None:
                await asyncio.sleep(min(max(interval - (_now() - checked) / 1000, 0), interval))
            await self._until_enabled()
            began = time.perf_counter()
            await self._check_all()
            await self._nodes.set_checked(_now())
            self._counts.took("auditor_CHECK_ALL_LEDGERS_TIME", time.perf_counter() - began)

    async def _check_placement(self) -> None:
        """Check periodically whether entries are in enough racks, zones and regions."""
        interval = self._settings.auditor_periodic_placement_policy_check_interval
        if not interval:
            await asyncio.Event().wait()
        while True:
            await self._until_enabled()
            began = time.perf_counter()
            self.misplaced = await self._misplaced()
            self._counts.took("auditor_PLACEMENT_POLICY_CHECK_TIME", time.perf_counter() - began)
            await asyncio.sleep(interval)

    async def _misplaced(self) -> int:
        """How many ledgers have entries in too few racks, zones or regions. They are published if they can be
        repaired.
        """
        found = 0
        async for ledger, metadata in self._store.metadata.all_metadata():
            placement = self._bookies.placement(self._store.policy)
            if not misplaced(metadata, placement):
                continue
            found += 1
            if (
                self._settings.repaired_placement_policy_not_adhering_bookie_enabled
                and better(metadata, self._bookies.writable, placement) is not None
                and await self._nodes.is_enabled()
            ):
                await self._nodes.publish(ledger, frozenset(), _now())
        if found:
            _log.warning(
                "ledgers with entries in fewer racks, zones or regions than the minimum: %d (fencepost bookie list"
                " misplaced)",
                found,
            )
        return found

    async def _check_all(self) -> None:
        """Publish every ledger with a registered bookie that lacks the first or the last of its entries in a closed
        fragment.
        """
        async for ledger, metadata in self._store.metadata.all_metadata():
            lacking = await self._lacking(ledger, metadata)
            self._counts.add("auditor_NUM_LEDGERS_CHECKED", 1)
            if lacking and await self._nodes.is_enabled() and await self._nodes.publish(ledger, lacking, _now()):
                self._counts.add("auditor_NUM_UNDER_REPLICATED_LEDGERS", 1)
                _log.warning("ledger %d lacks entries on %s", ledger, ", ".join(sorted(lacking)))

    async def _lacking(self, ledger: int, metadata: LedgerMetadata) -> frozenset[str]:
        registered = self._registered
        asked = [
            (place, bookie)
            for place, fragment in enumerate(metadata.fragments)
            if is_closed_fragment(metadata, place)
            for bookie in fragment.ensemble
            if bookie in registered
        ]
        found = await asyncio.gather(
            *(has_ends(self._store, ledger, metadata, place, bookie) for place, bookie in asked)
        )
        return frozenset(bookie for (_, bookie), has in zip(asked, found, strict=True) if has is False)


def _now() -> int:
    """Milliseconds since 1970, as in BookKeeper's nodes."""
    return time.time_ns() // 1_000_000
