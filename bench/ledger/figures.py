"""What is made of measurements: medians, quantiles, trends, and tables to print."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which such a share of the values is; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


class Trend(NamedTuple):
    """How something goes over time: its median, and by how much it rises from the first to the last sample that
    counts.
    """

    median: float
    rise: float

    def is_flat(self, share: float, least: float) -> bool:
        """Whether it rises by no more than a share of its median, or by so little that it does not matter."""
        return self.rise <= max(share * self.median, least)


POINTS = 200
"""Samples that a trend is taken from; of more, the means of as many equal parts are taken."""


def trend(samples: Sequence[tuple[float, float]]) -> Trend:
    """The trend of (time, value) over the last two thirds of the time: the median of the slopes between any two, which
    a few peaks do not move.

    Raises ``ValueError`` if there are fewer than two samples in that time.
    """
    first, last = samples[0][0], samples[-1][0]
    counted = [sample for sample in samples if sample[0] >= first + (last - first) / 3]
    if len(counted) < 2:
        raise ValueError("a trend needs two samples at least")
    if len(counted) > POINTS:
        size = math.ceil(len(counted) / POINTS)
        parts = [counted[start : start + size] for start in range(0, len(counted), size)]
        counted = [
            (statistics.fmean(time for time, _ in part), statistics.fmean(value for _, value in part)) for part in parts
        ]
    slopes = [
        (value - before) / (time - since)
        for number, (since, before) in enumerate(counted)
        for time, value in counted[number + 1 :]
        if time > since
    ]
    span = counted[-1][0] - counted[0][0]
    return Trend(statistics.median(value for _, value in counted), statistics.median(slopes) * span if slopes else 0.0)


def parts_of(samples: Sequence[tuple[float, float]], parts: int) -> list[float]:
    """The growth per second of a counter in each of ``parts`` equal parts of the time. Samples are (time, value)."""
    first, last = samples[0][0], samples[-1][0]
    edges = [first + (last - first) * number / parts for number in range(parts + 1)]
    values = [_at(samples, edge) for edge in edges]
    width = (last - first) / parts
    return [(after - before) / width for before, after in itertools.pairwise(values)] if width else []


def _at(samples: Sequence[tuple[float, float]], time: float) -> float:
    """The value at a time, on the straight line between the samples around it."""
    before = samples[0]
    for sample in samples:
        if sample[0] >= time:
            span = sample[0] - before[0]
            return before[1] + (sample[1] - before[1]) * ((time - before[0]) / span if span else 0.0)
        before = sample
    return before[1]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in plain text: the first column to the left, all others to the right."""
    cells = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        first, *others = (
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("   ".join((first, *others)).rstrip())
    return "\n".join(lines)


def size_of(number: int) -> str:
    """A number of bytes as it is said: 100 B, 1 KiB, 2.5 GiB."""
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value == round(value) or value >= 100 else f"{value:.1f} {unit}"
