"""How the benchmark of the store evaluates its measurements."""

from __future__ import annotations

import random

import pytest

from bench.ledger.cells import Cell, markdown, median, rows
from bench.ledger.figures import parts_of, quantile, size_of, table, trend
from bench.ledger.soak import verdict
from bench.ledger.stages import Seen, lines_of, stages_of
from bench.ledger.usage import Cpu


def test_quantiles() -> None:
    assert quantile([], 0.5) == 0
    assert quantile([3, 1, 2], 0.5) == 2 and quantile(range(100), 0.99) == 99 and quantile([5], 1.0) == 5


def sawtooth(rise: float, peaks: bool = False) -> list[tuple[float, float]]:
    """An hour of memory that goes up and down between 100 and 150, and rises in all."""
    chance = random.Random(1)
    return [
        (t, 100 + t % 50 + rise * t / 3600 + (500 if peaks and chance.random() < 0.02 else 0))
        for t in range(0, 3600, 3)
    ]


def test_a_sawtooth_is_flat_and_a_few_peaks_do_not_matter() -> None:
    for samples in (sawtooth(0), sawtooth(0, peaks=True)):
        found = trend(samples)
        assert abs(found.rise) < 6 and found.is_flat(0.05, 0)


@pytest.mark.parametrize("rise", [30, 60, 600])
def test_what_grows_is_told(rise: float) -> None:
    found = trend(sawtooth(rise))
    assert found.rise == pytest.approx(rise * 2 / 3, abs=6) and not found.is_flat(0.05, 0)
    assert found.is_flat(0.05, 1000), "too little to matter"


def test_what_grew_at_the_beginning_alone_is_flat() -> None:
    assert trend([(t, min(t, 30)) for t in range(100)]).rise == 0


def test_a_trend_needs_samples() -> None:
    with pytest.raises(ValueError, match="two samples"):
        trend([(0.0, 1.0), (9.0, 1.0)][:1])


def test_rates_of_parts() -> None:
    assert parts_of([(0, 0), (10, 100)], 2) == [10, 10]
    assert parts_of([(0, 0), (5, 100), (10, 100)], 2) == [20, 0]


def test_tables() -> None:
    assert table(("what", "n"), [("a", "1"), ("longer", "1,000")]).splitlines() == [
        "what         n",
        "a            1",
        "longer   1,000",
    ]
    assert [size_of(n) for n in (0, 100, 1024, 1536, 65_536, 3 << 29, 1 << 40)] == [
        "0 B", "100 B", "1 KiB", "1.5 KiB", "64 KiB", "1.5 GiB", "1 TiB",
    ]  # fmt: skip


def cell(side: str, entries: int, operation: str = "adds", **fields: float) -> Cell:
    return Cell(side, operation, 1024, 100, entries, 2.0, 1.0, 9.0, 3.0, 4.0, **fields)


def test_cells_are_compared_with_those_of_their_kind() -> None:
    cells = [
        cell("Fencepost", 600),
        cell("Java", 200),
        cell("the limit", 1200),
        cell("Fencepost", 50, "scans"),
        cell("Java", 100, "scans"),
    ]
    lines = rows(cells, "Java", "the limit")
    assert [(line[0], line[1], line[-2], line[-1]) for line in lines] == [
        ("adds of 1 KiB, 100 in flight, Fencepost", "300", "3.00x", "50%"),
        ("adds of 1 KiB, 100 in flight, Java", "100", "", "17%"),
        ("adds of 1 KiB, 100 in flight, the limit", "600", "", ""),
        ("scans of 1 KiB, 100 in flight, Fencepost", "25", "0.50x", ""),
        ("scans of 1 KiB, 100 in flight, Java", "50", "", ""),
    ]
    page = markdown(cells, "Fencepost", "Java", "the limit").splitlines()
    assert page[2] == "| 1 KiB | 100 | 300 | 100 | 3.0 | 50% | 1.0 / 9.0 | 1.0 / 9.0 | 3.0 / 4.0 | 3.0 / 4.0 |"
    assert len({line.count("|") for line in page if line}) == 1


def test_a_median_is_of_rates() -> None:
    found = median([cell("a", 10), cell("a", 1000), cell("a", 100, client_system=0.5)])
    assert (found.rate, found.entries, found.client_system) == (50, 100, 0)


def test_the_verdict_names_who_grows() -> None:
    flat, grows = trend([(t, 1 << 28) for t in range(9)]), trend([(t, (1 << 28) + (t << 24)) for t in range(9)])
    assert verdict({"a": flat, "b": flat}, 60).startswith("flat")
    assert verdict({"a": flat, "b": grows}, 60) == "growing: b"
    assert verdict({"a": grows}, 1).startswith("not judged")


def test_stages_are_told_by_the_entry() -> None:
    before = Seen({"a": [1_000, 5_000, 1]}, Cpu(1.0, 1.0))
    after = Seen({"a": [401_000, 4_005_000, 5], "b": [600_000, 0, 0], "c": [0, 0, 3]}, Cpu(2.0, 1.5))
    seen = after.since(before)
    assert seen.used == Cpu(1.0, 0.5)
    found = stages_of(seen, 100)
    assert [tuple(stage) for stage in found] == [("b", 6.0, 0.6, 0.0, 0.0), ("a", 4.0, 0.4, 25.0, 1.0)]
    assert [line[:2] for line in lines_of(found, 7.5, seen.used, 1_000_000)] == [
        ("b", "6.000"), ("a", "4.000"), ("all of it", "10.000"), ("  of that in the kernel", "0.500"),
        ("without a watch", "7.500"),
    ]  # fmt: skip
    assert seen.plus(seen).stages["a"] == [800_000, 8_000_000, 8]
