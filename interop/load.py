"""Adds and reads by Fencepost's client for a number of seconds with a fixed number in flight, as ``Load.java`` does."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Callable

from fencepost.store.client import LedgerReader, LedgerWriter


async def writes(ledger: LedgerWriter, size: int, in_flight: int, seconds: float) -> dict[str, float]:
    """Append entries of ``size`` bytes; how many, in how many seconds, and two quantiles of their latencies in milliseconds."""
    data = os.urandom(size)
    return await _load(lambda: ledger.submit(data), in_flight, seconds)


async def reads(ledger: LedgerReader, in_flight: int, seconds: float) -> dict[str, float]:
    """Read entries one by one, from the first on and round again."""
    last = await ledger.read_last_add_confirmed()
    loop = asyncio.get_running_loop()
    entry = -1

    def send() -> asyncio.Future[bytes]:
        nonlocal entry
        entry = 0 if entry == last else entry + 1
        return loop.create_task(ledger.read_entry(entry))

    return await _load(send, in_flight, seconds)


async def _load(send: Callable[[], asyncio.Future[object]], in_flight: int, seconds: float) -> dict[str, float]:
    clock = time.perf_counter
    latencies = array("d")
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    began = clock()
    end = began + seconds
    running = 0

    def another() -> None:
        nonlocal running
        running += 1
        sent = clock()

        def done(future: asyncio.Future[object]) -> None:
            nonlocal running
            running -= 1
            now = clock()
            if future.exception() is not None:
                if not over.done():
                    over.set_exception(future.exception())
                return
            latencies.append(now - sent)
            if now < end:
                another()
            elif not running and not over.done():
                over.set_result(None)

        send().add_done_callback(done)

    for _ in range(in_flight):
        another()
    await over
    took = clock() - began
    ordered = sorted(latencies)
    count = len(ordered)
    return {"entries": count, "seconds": took, "p50": ordered[count // 2] * 1e3, "p99": ordered[int(count * 0.99)] * 1e3}
