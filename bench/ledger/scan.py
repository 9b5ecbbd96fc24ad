"""A scan: one client reads a large ledger in order, beside a copy of as many bytes over loopback."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.ledger import limit
from bench.ledger.figures import size_of, table
from bench.ledger.sides import OURS, Side

SIZES = (1024, 65_536)
AHEAD = 1000
"""Entries that the reader prefetches."""
AHEAD_BYTES = 32 << 20
"""The most bytes that it prefetches."""


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    side = Side(OURS, folder, given.setting)
    wanted = int(given.gib * 2**30)
    found, lines = [], []
    try:
        side.start()
        side.settle(given.warm_up / 2)
        for size in SIZES:
            ledger, written = side.ledger(size, 1000), 0
            while written < wanted:
                written += side.load(ledger, "adds", size, 1000 if size < 65_536 else 200, 2.0)["entries"] * size
            ledger.close()
            ahead = min(AHEAD, AHEAD_BYTES // size)
            reader = side.reader(ledger.id, size, ahead)
            side.load(reader, "scans", size, ahead, given.seconds / 4)
            before = side.used()
            done = side.load(reader, "scans", size, ahead, max(given.seconds, 2 * wanted / 2**30))
            client, bookies = (now.since(then) for now, then in zip(side.used(), before, strict=True))
            copied = limit.copy(wanted)
            rate = done["bytes"] / done["seconds"]
            gib = done["bytes"] / 2**30
            found.append(
                {
                    "size": size, "ledger": written, "ahead": ahead, "bytes": done["bytes"], "seconds": done["seconds"],
                    "rate": rate,
                    "client_cpu": client.total / gib, "bookies_cpu": bookies.total / gib, "copy": copied["rate"],
                    "copy_cpu": (copied["taker"] + copied["giver"]) / (wanted / 2**30),
                }
            )  # fmt: skip
            lines.append(
                (
                    f"{size_of(size)}, a ledger of {size_of(written)}",
                    f"{rate / 1e9:.2f} GB",
                    f"{done['entries'] / done['seconds']:,.0f}",
                    f"{client.total / gib:.2f}",
                    f"{bookies.total / gib:.2f}",
                    f"{copied['rate'] / 1e9:.2f} GB",
                    f"{found[-1]['copy_cpu']:.2f}",
                    f"{rate / copied['rate']:.0%}",
                )
            )
    finally:
        side.end()
    head = ("entries of", "a second", "entries", "client s/GiB", "bookies s/GiB", "a copy", "its s/GiB", "of that")
    print(table(head, lines), flush=True)
    return {"scans": found}
