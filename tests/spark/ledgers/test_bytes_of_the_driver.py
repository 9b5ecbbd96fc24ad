"""Entries go from the bookies to the executors: what the driver gets to plan a query does not grow with the log."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import pytest
from log.standing_logs import Standing

from fencepost.ledger.client import connection
from fencepost.spark.ledgers.filters import ANY
from fencepost.spark.ledgers.logs import Log, batch
from fencepost.spark.ledgers.options import ReadOptions, parse
from fencepost.spark.ledgers.parts import Range
from fencepost.spark.ledgers.reading import batches

T = TypeVar("T")

ENTRY = 10_000
"""Bytes of an entry."""

LOOK_UPS = 3
"""How often a batch query looks up an open ledger: to open it, to find the end, and to divide what is before it."""


async def test_the_driver_gets_single_entries_however_many_there_are(
    made: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = 0
    updated = connection._Link.buffer_updated

    def count(link: Any, nbytes: int) -> None:
        nonlocal got
        got += nbytes
        updated(link, nbytes)

    async def bytes_of(work: Awaitable[T]) -> tuple[T, int]:
        """What some work gives, and the bytes that bookies have sent for it."""
        before = got
        return await work, got - before

    monkeypatch.setattr(connection._Link, "buffer_updated", count)
    store = await made.connect()
    driver, executor = await made.connect(), await made.connect()

    async def read(options: ReadOptions, parts: Sequence[Sequence[Range]]) -> int:
        number = 0
        for part in parts:
            async for _, _, entries in batches(executor, options, part):
                number += len(entries)
        return number

    for entries in (50, 200):
        log = store.log(f"of-{entries}")
        await log.create()
        options = parse({"metadata": made.uri, "log": f"of-{entries}"})
        async with log.writer(ledger_entries=entries) as writer:
            await writer.append_many([b"x" * ENTRY] * (entries + 5))
            # A look-up of what is confirmed of the open ledger has its last entry from each of three bookies.
            parts, to_plan = await bytes_of(batch(driver, options, ANY, ANY))
            number, to_read = await bytes_of(read(options, parts))
            assert entries <= number <= entries + 5 and to_read > number * ENTRY
            assert to_plan < 3 * LOOK_UPS * (ENTRY + 500)
        # A closed ledger is looked up in the metadata alone.
        parts, to_plan = await bytes_of(batch(driver, options, ANY, ANY))
        number, to_read = await bytes_of(read(options, parts))
        assert (number, to_plan) == (entries + 5, 0) and to_read > number * ENTRY

    limited = Log(driver, options)
    end, to_limit = await bytes_of(limited.after(await limited.start(), None, None, 55 * ENTRY))
    assert 50 <= end.entry <= 55
    assert to_limit < (200).bit_length() * 2 * (ENTRY + 500), "the lengths before some entries, by halving"
    await limited.ledgers.close()
