"""Which ledgers a bookie deletes, with a metadata service that lags behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from fencepost.ledger.bookie.garbage import forget_deleted
from fencepost.ledger.errors import NoSuchLedgerError


class Lagging:
    """The interface of a metadata client whose server has not seen recent changes, until it catches up."""

    def __init__(self, there: set[int], heard_of: set[int]) -> None:
        self.there = there
        self.heard_of = heard_of

    async def sync(self) -> None:
        self.heard_of = self.there

    async def ledgers(self) -> AsyncIterator[int]:
        for ledger in sorted(self.heard_of):
            yield ledger

    async def read_ledger(self, ledger: int) -> None:
        if ledger not in self.heard_of:
            raise NoSuchLedgerError(f"there is no ledger {ledger}")

    async def instance_id(self) -> str:
        return "the cluster"


async def test_a_ledger_that_a_server_of_the_metadata_service_has_not_heard_of_yet_is_kept() -> None:
    forgotten: list[int] = []

    async def call(operation: str, ledger: int) -> None:
        forgotten.append(ledger)

    server: Any = SimpleNamespace(call=call, metrics=SimpleNamespace(add=lambda *_: None))
    storage: Any = SimpleNamespace(ledgers=lambda: [1, 2, 3])
    client: Any = Lagging(there={1, 3}, heard_of={1, 2})
    assert await forget_deleted(server, storage, client, "the cluster") == forgotten == [2]
