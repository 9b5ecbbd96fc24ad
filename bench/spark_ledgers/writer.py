"""``python -m bench.spark_ledgers.writer``: a log is written at a steady rate, by a process of its own.

It prints a line once it has begun, and one at its end: how many entries were confirmed, in how many seconds, and when
how many were.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from functools import partial

import fencepost

STEP = 0.01
"""Seconds from one group of entries to the next."""

TOGETHER = 500
"""Entries that are appended together at most: they wait for room together, or others would come between them."""

IN_FLIGHT = 20_000
"""Entries that are not confirmed, at most: what is more waits in the writer, and not ahead of what tells bookies how
much is confirmed.
"""


async def write(uri: str, name: str, rate: float, seconds: float, size: int) -> None:
    """Append ``rate`` entries of ``size`` bytes a second until the time is over or standard input ends. Late entries
    are not skipped.
    """
    is_over = threading.Event()
    confirmed: list[tuple[float, int]] = []

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    def confirm(stop: int, _: object) -> None:
        confirmed.append((time.time(), stop))

    threading.Thread(target=wait_for_end, daemon=True).start()
    filler = os.urandom(max(0, size - 8))
    async with fencepost.connect(uri) as store:
        log = store.log(name)
        async with log.writer(in_flight=IN_FLIGHT) as writer:
            print(json.dumps({"ledger": writer.ledger}), flush=True)
            under_way: set[asyncio.Task[object]] = set()
            sent, began = 0, time.monotonic()
            while (now := time.monotonic() - began) < seconds and not is_over.is_set():
                count = int(rate * now) - sent
                for first in range(sent, sent + count, TOGETHER):
                    stop = min(sent + count, first + TOGETHER)
                    data = [number.to_bytes(8, "big") + filler for number in range(first, stop)]
                    task = asyncio.ensure_future(writer.append_many(data))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    task.add_done_callback(partial(confirm, stop))
                sent += count
                await asyncio.sleep(max(0.0, began + now + STEP - time.monotonic()))
            await asyncio.gather(*under_way)
            took = time.monotonic() - began
    print(json.dumps({"entries": sent, "seconds": took, "confirmed": confirmed}), flush=True)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])))
