"""Adds and reads by Fencepost's client for a number of seconds with a fixed number in flight, as ``Load.java`` does.

The client is used as somebody would who wants speed: entries go in by ``append_many``, the ledger limits how many are
under way, and what is read in order comes by ``read_batches``. Latencies of adds are those of a few entries among the
many that are appended one by one, at random moments: so measuring costs nothing that counts. Where one is in flight,
each is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import random
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.client.writer import LedgerWriter

PROBES = 16
"""Entries in flight whose latency is measured, at most; at most an eighth of all that are."""
AT_ONCE = 64
"""Ledgers that are created or opened at once."""
SPAN = 5.0
"""Seconds after which ``append_many`` is called anew, so that its list of ids stays short."""

clock = time.perf_counter


async def writes(ledger: LedgerWriter, size: int, in_flight: int, seconds: float) -> dict[str, float]:
    """Append entries of ``size`` bytes; how many, in how many seconds, and two quantiles of their latencies in
    milliseconds.

    The ledger was created with the limit ``in_flight``.
    """
    data = os.urandom(size)
    latencies = array("d")
    began = clock()
    end = began + seconds

    def until(limit: float) -> Iterator[bytes]:
        while clock() < limit:
            yield data

    async def stream() -> int:
        entries = 0
        while (now := clock()) < end:
            entries += len(await ledger.append_many(until(min(end, now + SPAN))))
        return entries

    async def probe() -> int:
        took = 0.0
        for count in itertools.count():
            # Not at once, or a probe would always come right after a group of entries was confirmed.
            await asyncio.sleep(random.random() * took)
            sent = clock()
            if sent >= end:
                return count
            await ledger.submit(data)
            took = clock() - sent
            latencies.append(took)
        return 0

    async def alone() -> int:
        while (sent := clock()) < end:
            await ledger.append(data)
            latencies.append(clock() - sent)
        return len(latencies)

    if in_flight == 1:
        entries = await alone()
    else:
        probes = [probe() for _ in range(max(1, min(PROBES, in_flight // 8)))]
        entries = sum(await asyncio.gather(stream(), *probes))
    return report(entries, clock() - began, latencies)


async def reads(ledger: LedgerReader, in_flight: int, seconds: float) -> dict[str, float]:
    """Read entries one by one, each by a call of its own, from the first on and round again."""
    entries = await ledger.read_last_add_confirmed() + 1
    return await _rounds(lambda turn: ledger.read_entry(turn % entries), in_flight, seconds)


async def scans(ledger: LedgerReader, in_flight: int, seconds: float) -> dict[str, float]:
    """Read entries in their order, by the batch, from the first on and round again. The ledger was opened to ask for
    ``in_flight`` entries ahead.

    There are no latencies: nobody waits for an entry of its own.
    """
    last = await ledger.read_last_add_confirmed()
    count, size = 0, 0
    began = clock()
    end = began + seconds
    while clock() < end:
        async with contextlib.aclosing(ledger.read_batches(0, last)) as batches:
            async for batch in batches:
                count += len(batch)
                size += len(batch.data)
                if clock() >= end:
                    break
    return report(count, clock() - began, array("d")) | {"bytes": size}


async def create_many(store: LedgerClient, ledgers: int, lac_interval: float) -> tuple[list[LedgerWriter], float]:
    """Open ledgers on three bookies, and the seconds in which they were created. ``lac_interval``: the seconds until
    their LAC is sent alone; 0 for never.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def create() -> LedgerWriter:
        async with room:
            return await store.create_ledger(explicit_lac_interval=lac_interval)

    began = clock()
    writers = await asyncio.gather(*(create() for _ in range(ledgers)))
    return writers, clock() - began


async def write_many(writers: list[LedgerWriter], size: int, period: float, seconds: float) -> dict[str, float]:
    """Append an entry of ``size`` bytes to each ledger every ``period`` seconds, the ledgers one after another."""
    data = os.urandom(size)
    latencies = array("d")
    began = clock()
    pause = period / len(writers)

    def done(sent: float, entry: asyncio.Future[int]) -> None:
        entry.result()
        latencies.append(clock() - sent)

    waiting: set[asyncio.Future[int]] = set()
    for turn in range(int(seconds / pause)):
        late = clock() - (began + turn * pause)
        if late < 0:
            await asyncio.sleep(-late)
        entry = writers[turn % len(writers)].submit(data)
        entry.add_done_callback(functools.partial(done, clock()))
        waiting.add(entry)
        entry.add_done_callback(waiting.discard)
    if waiting:
        await asyncio.wait(waiting)
    return report(len(latencies), clock() - began, latencies)


async def tail_many(store: LedgerClient, ledgers: list[int], seconds: float) -> dict[str, float]:
    """Follow each of these ledgers from its end on; how many entries came."""
    room = asyncio.Semaphore(AT_ONCE)
    count = 0

    async def opened(ledger: int) -> LedgerReader:
        async with room:
            return await store.open_ledger(ledger)

    async def follow(reader: LedgerReader) -> None:
        nonlocal count
        async with contextlib.aclosing(reader.tail(reader.last_add_confirmed + 1)) as entries:
            async for _ in entries:
                count += 1

    readers = await asyncio.gather(*map(opened, ledgers))
    began = clock()
    tails = [asyncio.create_task(follow(reader)) for reader in readers]
    done, _ = await asyncio.wait(tails, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    took = clock() - began
    for tail in tails:
        tail.cancel()
    await asyncio.gather(*tails, return_exceptions=True)
    for tail in done:
        tail.result()
    await asyncio.gather(*(reader.close() for reader in readers))
    return {"entries": count, "seconds": took}


async def _rounds(ask: Callable[[int], Awaitable[Any]], in_flight: int, seconds: float) -> dict[str, float]:
    """Keep ``in_flight`` requests open until the time is over. ``ask`` gets the number of requests begun before."""
    latencies = array("d")
    turns = itertools.count()
    began = clock()
    end = began + seconds

    async def ask_on() -> None:
        while (sent := clock()) < end:
            await ask(next(turns))
            latencies.append(clock() - sent)

    await asyncio.gather(*(ask_on() for _ in range(in_flight)))
    return report(len(latencies), clock() - began, latencies)


def report(entries: int, seconds: float, latencies: array[float]) -> dict[str, float]:
    """How many entries in how many seconds, and the median and the 99th percentile of latencies in milliseconds."""
    ordered = sorted(latencies)
    p50, p99 = (ordered[int(len(ordered) * share)] * 1e3 if ordered else 0.0 for share in (0.5, 0.99))
    return {"entries": entries, "seconds": seconds, "p50": p50, "p99": p99, "samples": len(ordered)}
