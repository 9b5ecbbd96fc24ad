"""A soak: writes and reads at full speed for a long time, and checks whether the memory of any process keeps growing.

One client writes ledger after ledger. Another one reads each complete ledger and deletes it. Bookies look for deleted
ledgers every few seconds, so garbage collection runs all the time and the disk holds little.
"""

from __future__ import annotations

import argparse
import dataclasses
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.ledger.figures import Trend, parts_of, quantile, size_of, table, trend
from bench.ledger.sides import OURS, Side
from bench.ledger.usage import cpu, status_bytes
from interop.clients import Ledger

SPAN = 10.0
"""Seconds for which a ledger is written."""
IN_FLIGHT = 1000
SETTINGS = {"gcWaitTime": 5_000, "logSizeLimit": 256 << 20}
PARTS = 10
"""The rate is reported for each of this number of equal parts of the time."""
SHARE = 0.05
LEAST = 8 << 20
"""Memory that rises by no more than this share, or by so few bytes, is flat."""
SHORTEST = 5.0
"""Minutes below which nothing is said."""


@dataclasses.dataclass
class Samples:
    """What was seen over time: seconds since the beginning, and a value each."""

    memory: dict[str, list[tuple[float, float]]] = dataclasses.field(default_factory=dict)
    """Resident bytes of each process."""
    anonymous: dict[str, list[tuple[float, float]]] = dataclasses.field(default_factory=dict)
    """Those of them that are of no file."""
    written: list[tuple[float, float]] = dataclasses.field(default_factory=lambda: [(0.0, 0.0)])
    """Entries so far."""
    read: list[tuple[float, float]] = dataclasses.field(default_factory=lambda: [(0.0, 0.0)])
    p99: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    """Milliseconds of an append."""


def verdict(trends: dict[str, Trend], minutes: float) -> str:
    """Whether memory is flat, in a line."""
    if minutes < SHORTEST:
        return f"not judged: caches fill for minutes, soak for {SHORTEST:g} at least"
    growing = [name for name, each in trends.items() if not each.is_flat(SHARE, LEAST)]
    return f"growing: {', '.join(growing)}" if growing else "flat: no process takes more and more memory"


def rates(samples: Sequence[tuple[float, float]]) -> list[float]:
    """Entries a second in each part of the time."""
    return parts_of(samples, PARTS) if len(samples) > 1 else []


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    side = Side(OURS, folder, SETTINGS | given.setting)
    samples, over = Samples(), threading.Event()
    done: deque[tuple[Ledger, int]] = deque()
    failures: list[BaseException] = []
    try:
        side.start(clients=2)
        side.settle(given.warm_up / 2)
        threads = [
            threading.Thread(target=_guarded, args=(work, side, given, samples, done, over, failures), daemon=True)
            for work in (_write, _read)
        ]
        began = time.monotonic()
        names = {
            "writer": side.processes[0].pid,
            "reader": side.processes[1].pid,
            "metadata service": side.cluster.service.pid,
        }
        names |= {f"bookie {number}": pid for number, pid in enumerate(side.bookies, 1)}
        before = {name: cpu([pid]) for name, pid in names.items()}
        for thread in threads:
            thread.start()
        every = max(0.2, given.soak * 60 / 2000)
        told = 0.0
        while (now := time.monotonic() - began) < given.soak * 60 and not failures:
            for name, pid in names.items():
                resident, anonymous = status_bytes(pid, "VmRSS", "RssAnon")
                samples.memory.setdefault(name, []).append((now, resident))
                samples.anonymous.setdefault(name, []).append((now, anonymous))
            if now - told >= 60:
                told = now
                sizes = ", ".join(f"{name} {size_of(int(each[-1][1]))}" for name, each in samples.memory.items())
                print(f"after {now / 60:.0f} min: {samples.written[-1][1]:,.0f} entries; {sizes}", flush=True)
            time.sleep(every)
        over.set()
        used = {name: cpu([pid]).since(before[name]).total for name, pid in names.items()}
        for thread in threads:
            thread.join(60)
    finally:
        over.set()
        side.end()
    if failures:
        raise failures[0]
    return _report(given, samples, used)


def _guarded(
    work: Any, side: Side, given: argparse.Namespace, samples: Samples, done: Any, over: Any, failures: Any
) -> None:
    try:
        work(side, given, samples, done, over, time.monotonic())
    except BaseException as failure:
        if not over.is_set():
            failures.append(failure)


def _write(
    side: Side, given: argparse.Namespace, samples: Samples, done: Any, over: threading.Event, began: float
) -> None:
    """Write ledger after ledger."""
    entries, span = 0.0, min(SPAN, given.soak * 60 / 20)
    while not over.is_set():
        ledger = side.ledger(given.soak_size, IN_FLIGHT)
        part = side.load(ledger, "adds", given.soak_size, IN_FLIGHT, span)
        ledger.close()
        entries += part["entries"]
        now = time.monotonic() - began
        samples.written.append((now, entries))
        samples.p99.append((now, part["p99"]))
        done.append((ledger, span))


def _read(
    side: Side, given: argparse.Namespace, samples: Samples, done: Any, over: threading.Event, began: float
) -> None:
    """Read what was written, in order and one by one, the newest ledger first; delete those that are older."""
    entries = 0.0
    while not over.is_set():
        if not done:
            time.sleep(0.1)
            continue
        ledger, span = done[-1]
        while len(done) > 1:
            side.client.call("delete", ledger=done.popleft()[0].id)
        for operation, in_flight in (("scans", 256), ("reads", 16)):
            reader = side.reader(ledger.id, given.soak_size, in_flight, client=1)
            entries += side.load(reader, operation, given.soak_size, in_flight, span / 4)["entries"]
            reader.close()
            samples.read.append((time.monotonic() - began, entries))


def _report(given: argparse.Namespace, samples: Samples, used: dict[str, float]) -> dict[str, Any]:
    written, read = rates(samples.written), rates(samples.read)
    parts = [
        quantile((value for time, value in samples.p99 if low <= time / samples.p99[-1][0] * PARTS <= low + 1), 0.5)
        for low in range(PARTS)
    ]
    print(
        table(
            ("part of the time", *(f"{number}/{PARTS}" for number in range(1, PARTS + 1))),
            [
                ("adds a second", *(f"{rate:,.0f}" for rate in written)),
                ("p99 of them, ms", *(f"{value:.1f}" for value in parts)),
                ("reads a second", *(f"{rate:,.0f}" for rate in read)),
            ],
        )
    )
    print()
    trends = {name: trend(values) for name, values in samples.memory.items()}
    own = {name: trend(values) for name, values in samples.anonymous.items()}
    print(
        table(
            ("memory, last two thirds of the time", "median", "rise", "of no file", "rise", "cores"),
            [
                (
                    name,
                    size_of(int(each.median)),
                    f"{each.rise / 2**20:+.1f} MiB",
                    size_of(int(own[name].median)),
                    f"{own[name].rise / 2**20:+.1f} MiB",
                    f"{used[name] / (given.soak * 60):.2f}",
                )
                for name, each in trends.items()
            ],
        )
    )
    said = verdict(trends, given.soak)
    print(f"\nmemory is {said}", flush=True)
    return {
        "minutes": given.soak, "size": given.soak_size, "samples": dataclasses.asdict(samples), "rates": written,
        "reads": read, "p99": parts,
        "memory": {name: each._asdict() for name, each in trends.items()}, "verdict": said,
        "anonymous": {name: each._asdict() for name, each in own.items()}, "cpu": used,
    }  # fmt: skip
