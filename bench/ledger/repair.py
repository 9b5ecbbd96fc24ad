"""A repair: a bookie that has lost its disk gets its entries back while it serves. How fast that is, what memory it
takes, and what those notice who use the bookie meanwhile.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.ledger.figures import size_of, table
from bench.ledger.sides import OURS, Side
from bench.ledger.usage import cpu, status_bytes

SIZE = 1024
IN_FLIGHT = 1000
OF_A_LEDGER = 100_000
"""Entries that a ledger has at the least."""
SPAN = 2.0
"""Seconds of each measurement of those who use the bookies."""
NORMAL = 10
"""Measurements of them before the disk is lost."""
SETTINGS = {"dataIntegrityStampMissingCookies": "true"}
Span = dict[str, dict[str, float]]


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    side = Side(OURS, folder, SETTINGS | given.setting)
    try:
        side.start(clients=2)
        written = _fill(side, given.repair_entries)
        normal = _use(side, lambda measured: measured < NORMAL)
        bookie = side.cluster.bookies[0]
        bookie.server.kill()
        data = folder / "bookie-1" / "data"
        for directory in ("journal", "ledgers"):
            shutil.rmtree(data / directory)
        began = time.monotonic()
        side.cluster.restart([bookie])
        served = time.monotonic() - began
        meanwhile = _use(side, lambda _: any(data.glob("*/current/REPAIR")))
        took = time.monotonic() - began - served
        used = cpu([bookie.server.pid]).total
        resident, most = status_bytes(bookie.server.pid, "VmRSS", "VmHWM")
        said = bookie.server.said()
    finally:
        side.end()
    copied = int(said.rpartition("the repair is done: ")[2].split()[0]) if "the repair is done: " in said else 0
    print(
        f"{written:,} entries of {size_of(SIZE)} on three bookies, one of which has lost its disk: it served again"
        f" after {served:.1f} s, and had copied\n{copied:,} entries {took:.0f} s later: {copied / took:,.0f} a second,"
        f" {size_of(int(copied * SIZE / took))} a second, {used / max(copied, 1) * 1e6:.0f} us of its CPU each\nmemory"
        f" of the bookie: {size_of(resident)}, at most {size_of(most)}\n"
    )
    rows = []
    for operation in ("adds", "reads"):
        before, then = ([span[operation]["p99"] for span in spans] for spans in (normal, meanwhile))
        ratio = statistics.median(then) / statistics.median(before)
        rows.append(
            (
                operation,
                *(
                    f"{value:.2f}"
                    for value in (statistics.median(before), statistics.median(then), max(before), max(then))
                ),
                f"{ratio:.2f}x",
            )
        )
    print(
        table(
            (
                f"p99 in ms, one in flight, by {SPAN:g} s",
                "median before",
                "in the repair",
                "most before",
                "in the repair",
                "of medians",
            ),
            rows,
        )
    )
    return {
        "written": written, "copied": copied, "seconds": took, "served": served, "cpu": used,
        "memory": {"resident": resident, "most": most},
        "normal": normal, "meanwhile": meanwhile,
    }  # fmt: skip


def _fill(side: Side, entries: int) -> int:
    """Write at least this number of entries, in closed ledgers."""
    written = 0
    while written < entries:
        ledger, of_ledger = side.ledger(SIZE, IN_FLIGHT), 0
        while of_ledger < min(OF_A_LEDGER, entries - written):
            of_ledger += int(side.load(ledger, "adds", SIZE, IN_FLIGHT, 0.5)["entries"])
        ledger.close()
        written += of_ledger
    return written


def _use(side: Side, goes_on: Callable[[int], bool]) -> list[Span]:
    """Add to a new ledger, each entry to be confirmed by all three bookies, and read what is in another new one; both
    one by one.
    """
    ledger = side.client.create(ensemble=3, write_quorum=3, ack_quorum=3, digest="CRC32C", in_flight=1)
    other = side.ledger(SIZE, IN_FLIGHT)
    side.load(other, "adds", SIZE, IN_FLIGHT, 0.2)
    other.close()
    reader = side.reader(other.id, SIZE, 1, client=1)
    spans: list[Span] = []
    with ThreadPoolExecutor(2) as threads:
        while goes_on(len(spans)):
            work = {
                "adds": threads.submit(side.load, ledger, "adds", SIZE, 1, SPAN),
                "reads": threads.submit(side.load, reader, "reads", SIZE, 1, SPAN),
            }
            spans.append({operation: each.result() for operation, each in work.items()})
    ledger.close()
    reader.close()
    return spans
