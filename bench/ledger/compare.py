"""Adds, reads and scans of several sides, turn by turn, beside the limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bench.ledger import limit
from bench.ledger.cells import Cell, median, told
from bench.ledger.sides import THEIRS, Side
from interop.clients import Ledger

SIZES = (100, 1024, 65_536)
IN_FLIGHT = (1, 100, 1000)
OPERATIONS = ("adds", "reads", "scans")
LARGE = 1 << 14
"""Bytes of entries that fill a disk in no time."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured. With one in flight a scan is a read, and is left out. ``limit``: whether the limit is measured
    too.
    """

    sizes: Sequence[int] = SIZES
    in_flight: Sequence[int] = IN_FLIGHT
    operations: Sequence[str] = OPERATIONS
    seconds: float = 4.0
    rounds: int = 3
    limit: bool = True

    @property
    def settings(self) -> dict[str, object]:
        """Of the bookies of every side: those with large entries look for ledgers that were deleted every few seconds,
        so that the disk has room.
        """
        return {"gcWaitTime": 5_000, "logSizeLimit": 256 << 20} if self.removes else {}

    @property
    def removes(self) -> bool:
        """Whether ledgers are deleted as soon as they are measured."""
        return max(self.sizes) >= LARGE


def compare(plan: Plan, sides: Sequence[Side], folder: Path, everything: list[Cell], medians: list[Cell]) -> None:
    """Put all measurements into ``everything``, and their medians into ``medians``, which are printed as they come:
    what was measured is there if one fails. Every side has its turn in each round, in the other order each time. Raises
    :class:`interop.clients.Refused` if a call fails.
    """
    for size in plan.sizes:
        for in_flight in plan.in_flight:
            found: list[Cell] = []
            for turn in range(plan.rounds):
                for side in sides if turn % 2 == 0 else sides[::-1]:
                    found += _turn(plan, side, size, in_flight)
                if plan.limit:
                    wanted = [operation for operation in plan.operations if operation in ("adds", "reads")]
                    found += [limit.measure(each, size, in_flight, plan.seconds / 2, folder) for each in wanted]
            everything += found
            grouped: dict[tuple[str, str], list[Cell]] = {}
            for cell in found:
                grouped.setdefault((cell.operation, cell.side), []).append(cell)
            these = [
                median(cells) for _, cells in sorted(grouped.items(), key=lambda item: OPERATIONS.index(item[0][0]))
            ]
            medians += these
            print(told(these, THEIRS, limit.NAME), end="\n\n", flush=True)


def _turn(plan: Plan, side: Side, size: int, in_flight: int) -> list[Cell]:
    ledger = side.ledger(size, in_flight)
    found: list[Cell] = []
    if "adds" in plan.operations:
        found.append(side.measure(ledger, "adds", size, in_flight, plan.seconds))
    else:
        side.load(ledger, "adds", size, in_flight, plan.seconds)  # there must be something to read
    ledger.close()
    for operation in plan.operations:
        if operation != "adds" and (operation != "scans" or in_flight > 1):
            reader: Ledger = side.reader(ledger.id, size, in_flight)
            found.append(side.measure(reader, operation, size, in_flight, plan.seconds))
            reader.close()
    if plan.removes:
        side.client.call("delete", ledger=ledger.id)
    return found
