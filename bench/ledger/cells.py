"""What was measured of adds and reads, and how it is shown."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping

from bench.ledger.figures import size_of, table


@dataclasses.dataclass
class Cell:
    """What was measured of one side for one operation, one size of entries and one number in flight."""

    side: str
    operation: str
    size: int
    in_flight: int
    entries: int
    seconds: float
    p50: float
    """Milliseconds, as are those of ``p99``, of an entry that is added or read; 0 in a scan."""
    p99: float
    client_cpu: float
    """Microseconds of CPU for each entry."""
    bookies_cpu: float
    """Those of all three bookies together."""
    client_system: float = 0.0
    """The part of them that the kernel used."""
    bookies_system: float = 0.0

    @property
    def rate(self) -> float:
        """Entries a second."""
        return self.entries / self.seconds

    @property
    def what(self) -> tuple[str, int, int]:
        """What was measured: the same key for every side."""
        return self.operation, self.size, self.in_flight


_MEASURED = ("seconds", "p50", "p99", "client_cpu", "bookies_cpu", "client_system", "bookies_system")


def median(cells: list[Cell]) -> Cell:
    """One cell with the median of each figure."""
    rate = statistics.median(cell.rate for cell in cells)
    middle = {name: statistics.median(getattr(cell, name) for cell in cells) for name in _MEASURED}
    return dataclasses.replace(cells[0], entries=round(rate * middle["seconds"]), **middle)


HEAD = ("", "a second", "p50 ms", "p99 ms", "client us", "of kernel", "bookies us", "of kernel", "to Java", "of limit")


def rows(cells: Iterable[Cell], java: str, limit: str) -> list[tuple[str, ...]]:
    """The lines of a table of cells: with the rate of each to that of ``java``, and as a share of that of ``limit``, of
    the same kind.
    """
    cells = list(cells)
    rates = {(cell.side, *cell.what): cell.rate for cell in cells}
    found: list[tuple[str, ...]] = []
    for cell in cells:
        theirs, most = rates.get((java, *cell.what)), rates.get((limit, *cell.what))
        found.append(
            (
                f"{cell.operation} of {size_of(cell.size)}, {cell.in_flight:,} in flight, {cell.side}",
                f"{cell.rate:,.0f}",
                f"{cell.p50:,.2f}" if cell.p50 else "",
                f"{cell.p99:,.2f}" if cell.p99 else "",
                f"{cell.client_cpu:,.1f}",
                f"{cell.client_system:,.1f}" if cell.client_system else "",
                f"{cell.bookies_cpu:,.1f}",
                f"{cell.bookies_system:,.1f}" if cell.bookies_system else "",
                f"{cell.rate / theirs:,.2f}x" if theirs and cell.side not in (java, limit) else "",
                _share(cell.rate / most) if most and cell.side != limit else "",
            )
        )
    return found


def markdown(cells: Iterable[Cell], ours: str, java: str, limit: str) -> str:
    """Tables for a page, one for each operation: ours and Java's side by side."""
    by_what: dict[tuple[str, int, int], dict[str, Cell]] = {}
    for cell in cells:
        by_what.setdefault(cell.what, {})[cell.side] = cell
    lines: list[str] = []
    for operation in dict.fromkeys(what[0] for what in by_what):
        lines += [
            f"| {operation} | in flight | a second, ours | Java's | ours to Java's | of the limit "
            "| p50 / p99 ms, ours | Java's | CPU us an entry, client / bookies, ours | Java's |",
            "|---" * 10 + "|",
        ]
        before = 0
        for (_, size, in_flight), sides in ((what, sides) for what, sides in by_what.items() if what[0] == operation):
            own, theirs, most = sides.get(ours), sides.get(java), sides.get(limit)
            lines.append(_line("" if size == before else size_of(size), in_flight, own, theirs, most))
            before = size
        lines.append("")
    return "\n".join(lines)


def _line(size: str, in_flight: int, own: Cell | None, theirs: Cell | None, most: Cell | None) -> str:
    def latencies(cell: Cell | None) -> str:
        return f"{cell.p50:,.1f} / {cell.p99:,.1f}" if cell and cell.p99 else ""

    def used(cell: Cell | None) -> str:
        return f"{cell.client_cpu:,.1f} / {cell.bookies_cpu:,.1f}" if cell else ""

    words = (
        size,
        f"{in_flight:,}",
        f"{own.rate:,.0f}" if own else "",
        f"{theirs.rate:,.0f}" if theirs else "",
        f"{own.rate / theirs.rate:.1f}" if own and theirs else "",
        _share(own.rate / most.rate) if own and most else "",
        latencies(own),
        latencies(theirs),
        used(own),
        used(theirs),
    )
    return f"| {' | '.join(words)} |"


def _share(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def told(cells: Iterable[Cell], java: str, limit: str) -> str:
    """All cells as a table in plain text."""
    return table(HEAD, rows(cells, java, limit))


def as_json(cell: Cell) -> Mapping[str, object]:
    """What is written to a file of a cell."""
    return dataclasses.asdict(cell) | {"rate": cell.rate}
