"""Dividing the work of a query, and what its conditions leave of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource

from fencepost.spark.ledgers.filters import ANY, take
from fencepost.spark.ledgers.parts import OPENING, OVERHEAD, Span, parts, ranges


@st.composite
def spans(draw: st.DrawFn, ledger: int = 0) -> Span:
    fragments = [0, *draw(st.lists(st.integers(1, 300), unique=True, max_size=4).map(sorted))]
    first, stop = sorted(draw(st.tuples(st.integers(0, 400), st.integers(0, 400))))
    return Span(ledger, first, stop, fragments, draw(st.integers(0, 200)))


@given(spans(), st.integers(1, 20_000))
def test_ranges_have_every_entry_once_each_in_one_fragment_and_not_too_many(span: Span, most: int) -> None:
    found = ranges(span, most)
    assert [entry for each in found for entry in range(each.first, each.last + 1)] == [*range(span.first, span.stop)]
    bounds = [*pairwise(span.fragments), (span.fragments[-1], 1 << 62)]
    for each in found:
        assert any(each.fragment == first <= each.first and each.last < stop for first, stop in bounds)
        count = each.last - each.first + 1
        assert count == 1 or count * (span.mean + OVERHEAD) <= most


@given(st.lists(spans(), max_size=6), st.integers(1, 3 * OPENING))
def test_parts_have_all_ranges_in_order_small_ones_together(several: list[Span], most: int) -> None:
    found = parts(several, most)
    assert [each for part in found for each in part] == [each for span in several for each in ranges(span, most)]
    assert all(found)
    for part in found:
        assert len(part) == 1 or len(part) * OPENING <= most


def test_many_small_ledgers_are_few_parts_and_a_large_one_is_several() -> None:
    small = [Span(ledger, 0, 10, (0,), 100) for ledger in range(10_000)]
    assert len(parts(small, 64 << 20)) < 20
    assert len(parts([Span(1, 0, 10_000_000, (0,), 100)], 64 << 20)) == 25


VALUES = st.integers(-2, 12)
KINDS = {
    datasource.EqualTo: lambda value, of: of == value,
    datasource.EqualNullSafe: lambda value, of: of == value,
    datasource.GreaterThan: lambda value, of: of > value,
    datasource.GreaterThanOrEqual: lambda value, of: of >= value,
    datasource.LessThan: lambda value, of: of < value,
    datasource.LessThanOrEqual: lambda value, of: of <= value,
}


Holds = Callable[[dict[str, int]], bool]


@st.composite
def conditions(draw: st.DrawFn) -> tuple[Any, Holds]:
    """A condition of Spark, and a function that evaluates it."""
    column = draw(st.sampled_from(["ledger", "entry", "length"]))
    kind = draw(st.sampled_from([*KINDS, datasource.In, datasource.IsNotNull, datasource.Not, "text"]))
    value = draw(VALUES)
    if kind is datasource.In:
        values = tuple(draw(st.lists(VALUES, max_size=4)))
        return datasource.In((column,), values), lambda row: row[column] in values
    if kind is datasource.IsNotNull:
        return datasource.IsNotNull((column,)), lambda row: True
    if kind is datasource.Not:
        return datasource.Not(datasource.EqualTo((column,), value)), lambda row: row[column] != value
    if kind == "text":
        return datasource.EqualTo((column,), "x"), lambda row: False
    return kind((column,), value), lambda row: KINDS[kind](value, row[column])


@given(st.lists(conditions(), max_size=5))
def test_conditions_leave_what_they_allow_and_say_whether_that_is_all(several: list[tuple[Any, Holds]]) -> None:
    ledgers, entries, rest = ANY, ANY, []
    for condition, holds in several:
        ledgers, entries, is_all = take(condition, ledgers, entries)
        if not is_all:
            rest.append(holds)
    rows = [{"ledger": ledger, "entry": entry, "length": entry} for ledger in range(12) for entry in range(12)]
    read = []
    for ledger in filter(ledgers.has, range(12)):
        first, stop = entries.within(0, 12)
        read += [row for row in rows if row["ledger"] == ledger and first <= row["entry"] < stop]
    assert [row for row in read if all(holds(row) for holds in rest)] == [
        row for row in rows if all(holds(row) for _, holds in several)
    ]
