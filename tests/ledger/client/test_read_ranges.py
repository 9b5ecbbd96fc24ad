"""A batch being read when an entry in the middle cannot be read: the entries before it are still awaited, those after
it do not count.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from fencepost.ledger.client import reading
from fencepost.ledger.client.loops import LOOPS
from fencepost.ledger.client.reading import RowRange, Singles
from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.errors import NoSuchEntryError
from fencepost.ledger.roles.interface import ReadsAnswered
from fencepost.ledger.rules.metadata import DigestType


class Role:
    """The known state of the ledger."""

    ledger, lac, suspects = 1, 100, ()

    def __init__(self, digest: DigestType) -> None:
        self.digests = Digests(digest, b"password")


class Readings:
    """The readings of a reader. They keep what they receive."""

    def __init__(self, digest: DigestType) -> None:
        self.loop = asyncio.get_running_loop()
        self.role = Role(digest)
        self.calls = self.actor = self
        self.told: list[ReadsAnswered] = []
        self.deliver = self.told.append
        self._is_reporting = False
        self.wanted: dict[int, asyncio.Future[bytes]] = {}
        self.also_wanted: dict[int, list[asyncio.Future[bytes]]] = {}

    give, expect_more = reading.Readings.give, reading.Readings.expect_more

    def _report_later(self) -> None:
        pass

    def all_told(self) -> list[tuple[list[int], bool]]:
        """The entries, and whether they are damaged."""
        return [([*map(int, each.entry_ids)], each.is_damaged) for each in self.told]


def responses(digests: Digests, *entry_ids: int, damaged: int = -1) -> tuple[Any, Any, Any, Any]:
    """Responses with these entries, as a connection passes them on."""
    loops = LOOPS.module
    bodies = [bytearray(digests.entry_body(Entry(1, each, -1, 5 * (each + 1), b"data%d" % each))) for each in entry_ids]
    found = np.zeros((len(bodies), loops.RESPONSE_COLUMNS), np.int64)
    at = 0
    for row, body in enumerate(bodies):
        if entry_ids[row] == damaged:
            body[-1] ^= 1
        found[row, loops.RESPONSE_BODY], found[row, loops.RESPONSE_SIZE], found[row, loops.RESPONSE_LAC] = (
            at,
            len(body),
            -1,
        )
        at += len(body)
    return np.frombuffer(bytearray().join(bodies), np.uint8), found, np.array(entry_ids), np.arange(len(bodies))


@pytest.fixture(autouse=True)
def _loops() -> None:
    LOOPS.load()


@pytest.mark.parametrize("digest", [DigestType.CRC32C, DigestType.HMAC])
async def test_what_comes_behind_an_entry_that_can_not_be_had_is_not_taken_for_what_is_before_it(
    digest: DigestType,
) -> None:
    readings: Any = Readings(digest)
    read_range = RowRange(readings, 1, 0, 9, 100)
    digests = readings.role.digests
    read_range.entries_read("b", *responses(digests, 6, 7, 8, 9, 4))
    read_range.entries_read("b", *responses(digests, 0, 5, 2, 3, 1, 0, damaged=5))
    read_range.found(Entry(1, 3, 7, 7, b"again"))
    assert readings.all_told() == [([6, 7, 8, 9, 4], False), ([0, 2, 3, 1, 0], False), ([5], True)]
    assert [each.lac for each in readings.told] == [-1, -1, -1]
    failure = NoSuchEntryError("5")
    read_range.over(5, failure)
    batch, error = read_range.batch.result()
    assert batch is not None and list(batch) == [b"data0", b"data1", b"data2", b"data3", b"data4"] and error is failure
    assert batch.lengths is not None and [*batch.lengths] == [5, 10, 15, 20, 25]


@pytest.mark.parametrize("digest", [DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC])
async def test_a_damaged_entry_among_single_ones_is_not_given(digest: DigestType) -> None:
    readings: Any = Readings(digest)
    futures: dict[int, asyncio.Future[bytes]] = {each: readings.loop.create_future() for each in range(3)}
    again: asyncio.Future[bytes] = readings.loop.create_future()
    readings.wanted, readings.also_wanted = {**futures}, {1: [again]}
    view, found, entry_ids, rows = responses(readings.role.digests, 2, 0, 1, damaged=0)
    found = np.concatenate([found, np.full((1, found.shape[1]), 1 << 60)])  # the last row is nobody's
    Singles(readings, -1).entries_read("b", view, found, entry_ids, rows)
    assert [futures[each].done() for each in range(3)] == [False, True, True]
    assert futures[1].result() == again.result() == b"data1" and futures[2].result() == b"data2"
    assert readings.all_told() == [([2, 1], False), ([0], True)] and [*readings.wanted] == [0]
