"""What an auditor publishes of bookies that come and go while it audits, with a stand-in for the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from fencepost.ledger.autorecovery.auditor import Auditor
from fencepost.ledger.autorecovery.settings import RecoverySettings
from fencepost.ledger.metadata.client import Bookies
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.monitoring.metrics import Metrics
from fencepost.monitoring.table import PARTS

WAITS = asyncio.Event().wait


class StandIn:
    """A store of two ledgers on the same bookies, which is its own metadata client and has the nodes of auto-recovery.

    ``between`` is called in each audit between the two ledgers.
    """

    def __init__(self, between: Callable[[int], None]) -> None:
        self.metadata = self
        self.published: list[tuple[int, frozenset[str]]] = []
        self.audits = 0
        self._between = between
        self._watch: Callable[[Bookies], None] = lambda bookies: None

    def register(self, bookies: str) -> None:
        self._watch(Bookies(tuple(bookies)))

    async def watch_bookies(self, callback: Callable[[Bookies], None]) -> Callable[[], None]:
        self._watch = callback
        self.register("abc")
        return lambda: None

    async def names_in(self, below: str) -> list[str]:
        return [*"abc"]

    async def sync(self) -> None:
        pass

    async def all_metadata(self) -> AsyncIterator[tuple[int, LedgerMetadata]]:
        self.audits += 1
        metadata = LedgerMetadata(2, 2, 2, (Fragment(0, ("a", "b")),), LedgerStatus.CLOSED, 5)
        yield 1, metadata
        self._between(self.audits)
        yield 2, metadata

    async def is_enabled(self, changed: object = None) -> bool:
        return True

    async def recovery_delay(self, seconds: int, changed: object) -> tuple[int, int]:
        return 0, 0

    async def checked(self) -> None:
        return None

    async def publish(self, ledger: int, missing: frozenset[str], now: int) -> bool:
        self.published.append((ledger, missing))
        return True


async def test_a_bookie_that_is_back_and_lost_again_during_an_audit_is_audited_again() -> None:
    """The audit passes the second ledger while the bookie is registered."""

    def between(audit: int) -> None:
        if audit == 1:  # the first check of all metadata, when nobody is lost
            store.register("ac")
        elif audit == 2:
            store.register("abc")
            store.register("ac")

    store = StandIn(between)
    settings = RecoverySettings(auditor_periodic_check_interval=0, auditor_periodic_bookie_check_interval=86_400)
    any_store: Any = store
    auditing = asyncio.create_task(
        Auditor(any_store, any_store, settings, Metrics("autorecovery", PARTS["autorecovery"])).run()
    )
    async with asyncio.timeout(60):
        while store.audits < 3:
            await asyncio.sleep(0)
    auditing.cancel()
    await asyncio.gather(auditing, return_exceptions=True)
    assert store.published[-1][1] == frozenset("b")
