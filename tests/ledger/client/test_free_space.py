"""Bookies by their free space: how they are drawn, and how a client learns of it over loopback."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ledger.bookie.test_repair import bookies
from patience import eventually

import fencepost
from fencepost.ledger.client.driver import Driver, drawn
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.messages import GetBookieInfo, GetBookieInfoResponse, Request
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.placement import Policy


def test_bookies_are_drawn_as_likely_as_their_weights() -> None:
    """By many draws from one seed: the first one, and the second of those that are left."""
    random.seed(7)
    count = 20_000
    orders = [drawn("abc", [1e9, 2e9, 5e9]) for _ in range(count)]
    first = Counter(order[0] for order in orders)
    for bookie, share in (("a", 1 / 8), ("b", 2 / 8), ("c", 5 / 8)):
        assert abs(first[bookie] / count - share) < 0.02
    after = Counter(order[1] for order in orders if order[0] == "c")
    assert abs(after["b"] / first["c"] - 2 / 3) < 0.02
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


class Asked:
    """Answers in the bookies' place: how much each has free; None: it does not answer."""

    def __init__(self) -> None:
        self.free: dict[str, int | None] = {}
        self.asked: Counter[str] = Counter()

    async def ask(self, driver: Driver, bookie: str, request: Request) -> Any:
        assert request == GetBookieInfo(total=False)
        self.asked[bookie] += 1
        free = self.free.get(bookie)
        return None if free is None else GetBookieInfoResponse(Code.OK, None, free)


async def test_the_free_space_decides_where_new_ledgers_are(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie is asked at once, again if it does not answer, and all are in each interval."""
    answers = Asked()
    weighted = ClientSettings(
        placement=Policy(
            disk_weight_based_placement_enabled=True,
            bookie_max_multiple_for_weight_based_placement=0,
            get_bookie_info_interval_seconds=1,
            get_bookie_info_retry_interval_seconds=1,
        )
    )
    with bookies(tmp_path, uri, count=3) as running:
        one, two, three = (each.bookie_id for each in running)
        async with await fencepost.connect(uri, weighted) as store:
            found = store.driver.free
            assert found.keys() == {one, two, three} and min(found.values()) > 0, "real bookies, before any ledger"
        monkeypatch.setattr(Driver, "ask", lambda self, *asked: answers.ask(self, *asked))
        answers.free = {one: 1 << 50, two: 1, three: None}
        async with await fencepost.connect(uri, weighted) as store:
            assert store.driver.free == {one: 1 << 50, two: 1}
            assert [each for each in range(50) if store.driver.mixed([two, three, one])[0] != one] == []
            answers.free[three] = 1 << 60
            await eventually(lambda: three in store.driver.free, "a bookie to be asked again")
            assert store.driver.mixed([two, three, one])[0] in (one, three)
            answers.free[two] = 5
            await eventually(lambda: store.driver.free[two] == 5, "all bookies to be asked again")
            answers.free[one] = None
            await eventually(lambda: one not in store.driver.free, "a bookie that does not answer to be unknown")
        before = answers.asked.copy()
        async with await fencepost.connect(uri) as store:
            assert store.driver.free == {} and answers.asked == before, "nobody is asked unless it is for placement"


async def test_a_bookie_that_hangs_does_not_hold_up_a_client(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(self: Driver, bookie: str, request: Request) -> Any:
        await asyncio.Event().wait()

    with bookies(tmp_path, uri, count=1):
        monkeypatch.setattr(Driver, "ask", never)
        policy = Policy(disk_weight_based_placement_enabled=True)
        async with await fencepost.connect(uri, ClientSettings(placement=policy, request_timeout=0.1)) as store:
            assert store.driver.free == {}
