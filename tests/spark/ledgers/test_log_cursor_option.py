"""The start of a query with a cursor: the requests of the driver to real bookies, without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from log.standing_logs import Standing

from fencepost import OptionError
from fencepost.log.chain import Position
from fencepost.log.cursors import Acknowledged, bytes_of
from fencepost.log.errors import LogTrimmedError, MissingLedgerError
from fencepost.spark.ledgers.filters import ANY
from fencepost.spark.ledgers.logs import NONE, Log, LogOffset, batch
from fencepost.spark.ledgers.options import parse


async def test_a_query_begins_at_its_cursor_if_there_is_one(made: Standing) -> None:
    store = await made.connect()
    async with store.create_ledger():  # so that no log has ledger 0, where a cursor of a log without ledgers is
        pass
    log = store.log("orders")
    await log.create()

    async def start(cursor: str, **options: Any) -> LogOffset:
        query = Log(store, parse({"metadata": made.uri, "log": "orders", "cursor": cursor, **options}))
        try:
            return await query.start()
        finally:
            await query.ledgers.close()

    cursor = await log.cursor("billing")
    earliest = LogOffset(-1, NONE, 0, ended=True)
    assert await start("billing") == earliest == await start("none")
    async with log.writer(ledger_entries=10) as writer:
        positions = await writer.append_many([b"%d" % number for number in range(30)])
    assert await start("billing", startingOffsets="latest") == earliest, "the cursor is where the log began"
    assert await start("none", startingOffsets=str(positions[12])) == LogOffset(1, positions[12].ledger, 2)
    await cursor.acknowledge_up_to(positions[14])
    assert await start("billing") == LogOffset(1, positions[14].ledger, 5)
    await cursor.acknowledge_up_to(Position(positions[20].ledger, -1))
    assert await start("billing") == LogOffset(2, positions[20].ledger, 0), "all before that ledger"
    await cursor.acknowledge_up_to(positions[29])
    assert await start("billing") == LogOffset(2, positions[29].ledger, 10, ended=True)

    assert await log.trim(keep=1) == (positions[0].ledger, positions[10].ledger)
    await log._nodes.create_cursor("behind", bytes_of(Acknowledged(positions[14])))
    says = (
        f"option cursor: log orders was trimmed behind {positions[14]}, where cursor behind is. Set option"
        " failOnDataLoss to false"
    )
    with pytest.raises(LogTrimmedError, match=says):
        await start("behind")
    assert await start("behind", failOnDataLoss="false") == LogOffset(1, NONE, 0, ended=True)


async def test_a_query_that_begins_behind_its_end_is_refused(made: Standing) -> None:
    store = await made.connect()
    log = store.log("orders")
    await log.create()
    async with log.writer(ledger_entries=2) as writer:
        positions = await writer.append_many([b"x"] * 6)
    ids = [each.ledger for each in positions[::2]]
    # Every place of a query: before an entry, and after the last one of a ledger, where the next one begins.
    places = {Position(ledger, entry): 2 * at + entry for at, ledger in enumerate(ids) for entry in range(3)}
    for begin, first in places.items():
        for end, stop in places.items():
            bounds = {"startingOffsets": str(begin), "endingOffsets": str(end)}
            query = parse({"metadata": made.uri, "log": "orders", **bounds})
            if first <= stop:
                parts = await batch(store, query, ANY, ANY)
                assert sum(each.last + 1 - each.first for part in parts for each in part) == stop - first
            else:
                says = f"option startingOffsets is {begin}, behind endingOffsets, {end}: begin where the query ends"
                with pytest.raises(OptionError, match=says):
                    await batch(store, query, ANY, ANY)
    cursor = await log.cursor("billing")
    await cursor.acknowledge_up_to(positions[4])
    passed = {"metadata": made.uri, "log": "orders", "cursor": "billing", "endingOffsets": str(positions[1])}
    assert await batch(store, parse(passed), ANY, ANY) == [], "the cursor may have passed the end"


async def test_a_query_and_a_write_say_which_ledgers_of_a_log_are_missing(made: Standing) -> None:
    store = await made.connect()
    log = store.log("orders")
    await log.create()
    async with log.writer(ledger_entries=10) as writer:
        ids = [*dict.fromkeys(each.ledger for each in await writer.append_many([b"x"] * 30))]

    async def pieces(**options: Any) -> list[tuple[int, int]]:
        query = Log(store, parse({"metadata": made.uri, "log": "orders", **options}))
        try:
            start = await query.start()
            return [(each.ledger, each.stop) async for each in query.pieces(start, await query.end(start))]
        finally:
            await query.ledgers.close()

    assert await pieces() == [(ledger, 10) for ledger in ids]
    await store.delete_ledger(ids[1], of_log="orders")
    gone = f"entries from {ids[1]}:0 up to {ids[2]}:0 are gone. Set option failOnDataLoss to false"
    with pytest.raises(MissingLedgerError, match=f"ledger {ids[1]} of the log orders is missing: the {gone}"):
        await pieces()
    assert await pieces(failOnDataLoss="false") == [(ids[0], 10), (ids[1], 0), (ids[2], 10)]
    await store.delete_ledger(ids[2], of_log="orders")
    with pytest.raises(MissingLedgerError, match=f"ledger {ids[2]} of the log orders is missing"):
        await pieces(startingOffsets="latest")
