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
from fencepost.ledger.rules.placement import Policy


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


class Open(StandIn):
    """The ledger is open, needs all three bookies, and another one is registered. Bookies are in two racks."""

    async def bookies(self) -> Bookies:
        return Bookies(("a", "b", "c", "d"), racks=(("a", "/x"), ("b", "/y"), ("c", "/y"), ("d", "/y")))

    async def all_metadata(self) -> AsyncIterator[tuple[int, LedgerMetadata]]:
        yield 1, LedgerMetadata(3, 3, 3, (Fragment(0, ("a", "b", "c")),))


@pytest.mark.parametrize(
    ("bookie", "is_enforced", "is_safe"), [("a", False, True), ("a", True, False), ("b", True, True)]
)
def test_a_writer_must_be_able_to_replace_it_in_a_rack_that_suits(
    bookie: str, is_enforced: bool, is_safe: bool
) -> None:
    client: Any = Open("", "")
    policy = Policy(enforce_min_num_racks_per_write_quorum=is_enforced)
    found = asyncio.run(stop_of(client, bookie, policy))
    assert found is not None and found.is_safe is is_safe
    assert [each.risk for each in found.at_risk] == ([] if is_safe else ["misplaced"])
