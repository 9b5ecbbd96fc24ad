"""Whether a bookie may stop if others come and go while the metadata are searched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fencepost.ledger.metadata.client import Bookies
from fencepost.ledger.metadata.stopping import stop_of
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus


class StandIn:
    """A metadata service with one closed ledger on a, b and c, and other bookies registered in the end."""

    def __init__(self, before: str, after: str) -> None:
        self._registered = iter((Bookies(tuple(before)), Bookies((), tuple(after))))

    def listen(self, listener: object) -> None:
        pass

    async def sync(self) -> None:
        pass

    async def bookies(self) -> Bookies:
        return next(self._registered)

    async def names_in(self, below: str, changed: object = None) -> list[str]:
        return []

    async def all_metadata(self) -> AsyncIterator[tuple[int, LedgerMetadata]]:
        yield 1, LedgerMetadata(3, 3, 2, (Fragment(0, ("a", "b", "c")),), LedgerStatus.CLOSED, 5)


@pytest.mark.parametrize(
    ("before", "after", "is_safe"), [("abc", "abc", True), ("abc", "ab", False), ("ab", "abc", False)]
)
def test_a_bookie_serves_that_is_registered_all_the_time(before: str, after: str, is_safe: bool) -> None:
    client: Any = StandIn(before, after)
    found = asyncio.run(stop_of(client, "a"))
    assert found is not None and (found.is_safe, found.is_registered, found.ledgers) == (is_safe, True, 1)


def test_nobody_knows_it() -> None:
    client: Any = StandIn("abc", "abc")
    assert asyncio.run(stop_of(client, "d")) is None
