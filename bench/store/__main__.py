"""``python -m bench.store``: adds and reads of ours and of Java's BookKeeper on ZooKeeper, turn by turn on the same machine.

Three bookies, entries on all three of which two confirm, CRC32C, a synced journal; Java's client without its limit of 5,000
operations a second. Each figure is the median of the rounds. Compare figures of one run with one another only.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bench.store.sides import KINDS, Cell, Side
from interop import jars
from interop.clients import Refused
from interop.processes import DidNotStart, clean_up_when_ended

SIZES = {100: "100 B", 1024: "1 KiB", 65_536: "64 KiB"}
IN_FLIGHT = (1, 100, 1000)
OPERATIONS = ("adds", "reads")


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.store", description="Measure the store beside Java's BookKeeper.")
    parser.add_argument("--quick", action="store_true", help="entries of 1 KiB alone, one round of two seconds each")
    parser.add_argument("--size", type=int, action="append", choices=SIZES, help="this size of entries alone; repeatable")
    parser.add_argument("--in-flight", type=int, action="append", metavar="N", help="so many in flight alone; repeatable")
    parser.add_argument("--operation", action="append", choices=OPERATIONS, help="these alone; repeatable")
    parser.add_argument("--side", action="append", choices=KINDS, help="what to compare; by default Fencepost and Java; repeatable")
    parser.add_argument("--seconds", type=float, help="of each measurement (by default 4)")
    parser.add_argument("--rounds", type=int, help="measurements of each figure (by default 3)")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", help="of each side ahead of everything (by default 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file as well")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave data and logs in this new folder")
    given = parser.parse_args()
    given.size = given.size or ([1024] if given.quick else list(SIZES))
    given.in_flight = given.in_flight or list(IN_FLIGHT)
    given.operation = given.operation or list(OPERATIONS)
    given.side = given.side or ["Fencepost", "Java"]
    given.seconds = given.seconds or (2 if given.quick else 4)
    given.rounds = given.rounds or (1 if given.quick else 3)
    given.warm_up = given.warm_up if given.warm_up is not None else (8 if given.quick else 20)
    return given


def median(cells: list[Cell]) -> Cell:
    """One cell with the median of each figure."""
    names = ("seconds", "p50", "p99", "client_cpu", "bookies_cpu")
    rate = statistics.median(cell.rate for cell in cells)
    middle = {name: statistics.median(getattr(cell, name) for cell in cells) for name in names}
    return dataclasses.replace(cells[0], entries=round(rate * middle["seconds"]), **middle)


def head() -> str:
    """The head of the table."""
    return f"{'':<44}{'a second':>10}{'p50 ms':>9}{'p99 ms':>9}{'client us':>11}{'bookies us':>12}{'to Java':>9}"


def row(cell: Cell, java: Cell | None) -> str:
    """A line of the table; the times of CPU are for each entry, those of bookies of all three together."""
    title = f"{cell.operation} of {SIZES[cell.size]}, {cell.in_flight:,} in flight, {cell.side}"
    ratio = f"{cell.rate / java.rate:>8.2f}x" if java is not None and java is not cell else ""
    return f"{title:<44}{cell.rate:>10,.0f}{cell.p50:>9.2f}{cell.p99:>9.2f}{cell.client_cpu:>11.1f}{cell.bookies_cpu:>12.1f}{ratio}"


def measure(given: argparse.Namespace, sides: list[Side]) -> list[Cell]:
    """All measurements, printed as they come; every side has its turn in each round, in the other order each time."""
    everything: list[Cell] = []
    for size in given.size:
        for in_flight in given.in_flight:
            rounds: dict[tuple[str, str], list[Cell]] = {}
            for turn in range(given.rounds):
                for side in sides if turn % 2 == 0 else sides[::-1]:
                    ledger = side.ledger()
                    for operation in OPERATIONS:
                        if operation == "reads":
                            ledger.close()
                            ledger = side.reader(ledger)
                        if operation in given.operation or operation == "adds":  # there must be something to read
                            cell = side.measure(ledger, operation, size, in_flight, given.seconds)
                            if operation in given.operation:
                                rounds.setdefault((operation, side.name), []).append(cell)
            for operation in given.operation:
                medians = {side.name: median(rounds[operation, side.name]) for side in sides}
                for cell in medians.values():
                    print(row(cell, medians.get("Java")), flush=True)
            everything += [cell for cells in rounds.values() for cell in cells]
    return everything


def main() -> int:
    """Measure and print; the exit status."""
    given = arguments()
    clean_up_when_ended()
    try:
        jars.fetch()
    except jars.Unavailable as missing:
        print(f"bench.store: {missing}", file=sys.stderr)
        return 2
    folder = given.keep or Path(tempfile.mkdtemp(prefix="fencepost-bench-"))
    sides = [Side(name, folder / f"side-{number}") for number, name in enumerate(given.side)]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} before the first measurement\n", flush=True)
    try:
        for side in sides:
            side.start()
        for side in sides:
            side.warm_up(given.warm_up)
        print(head(), flush=True)
        cells = measure(given, sides)
        memory = {side.name: side.memory() for side in sides}
    except (DidNotStart, Refused) as failure:
        print(f"bench.store: {failure}", file=sys.stderr)
        return 1
    finally:
        for side in sides:
            side.end()
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    print()
    for name, sizes in memory.items():
        told = ", ".join(f"{part} {size / 2**20:,.0f}" for part, size in sizes.items())
        print(f"MiB of memory, {name}: {told}")
    print(f"\nload {os.getloadavg()[0]:.2f} after the last measurement")
    if given.json is not None:
        measured = [dataclasses.asdict(cell) | {"rate": cell.rate} for cell in cells]
        given.json.write_text(json.dumps({"cells": measured, "memory": memory}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
