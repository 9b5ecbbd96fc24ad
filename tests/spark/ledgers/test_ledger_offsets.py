"""The offsets of a streaming query, and how far one batch goes."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import SystemFailure
from fencepost.spark.ledgers.offsets import Offsets, capped, moved, shares, stop_within

AMOUNTS = st.dictionaries(st.integers(0, 9), st.integers(0, 1000), max_size=6)


@st.composite
def offsets(draw: st.DrawFn) -> Offsets:
    found = draw(AMOUNTS)
    ended = {ledger for ledger in found if draw(st.booleans())}
    return Offsets(
        {key: at for key, at in found.items() if key not in ended},
        {key: at for key, at in found.items() if key in ended},
    )


@given(offsets())
def test_a_checkpoint_gives_back_what_it_was_given_and_equal_offsets_are_equal_text(found: Offsets) -> None:
    text = json.dumps(found.to_json())
    assert Offsets.of_json(json.loads(text)) == found
    turned = Offsets(*(dict(reversed([*each.items()])) for each in (found.ledgers, found.ended)))
    assert json.dumps(turned.to_json()) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    )
)
@pytest.mark.parametrize(
    "around",
    [
        lambda it: it,
        lambda it: {"format": 1, "ledgers": it, "ended": {}},
        lambda it: {"format": 1, "ledgers": {"1": it}, "ended": {}},
    ],
)
def test_other_checkpoints_are_refused_or_make_sense(around: Any, told: Any) -> None:
    told = around(told)
    with suppress(SystemFailure):
        assert all(type(at) is int and at >= 0 for at in Offsets.of_json(told).all().values())


@pytest.mark.parametrize(
    "told", [{}, {"format": 2, "ledgers": {}, "ended": {}}, {"format": 1, "ledgers": {"a": 1}, "ended": {}}]
)
def test_another_checkpoint_is_refused_in_one_line(told: Any) -> None:
    with pytest.raises(SystemFailure, match=r"^the checkpoint has offsets .*begin with another checkpointLocation$"):
        Offsets.of_json(told)


@given(AMOUNTS, st.integers(0, 4000))
def test_shares_are_all_that_the_limit_allows_in_proportion(available: dict[int, int], limit: int) -> None:
    given_ = shares(available, limit)
    total = sum(available.values())
    assert sum(given_.values()) == min(limit, total)
    for each, amount in available.items():
        assert given_[each] <= amount and (total <= limit or abs(given_[each] - amount * limit / total) <= 1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.data())
def test_as_many_entries_as_have_so_many_bytes(sizes: list[int], data: st.DataObject) -> None:
    lengths = [*accumulate(sizes)]
    first, stop = sorted(data.draw(st.tuples(*(st.integers(0, len(sizes)),) * 2)))
    room, asked = data.draw(st.integers(0, 500)), []

    async def length_of(entry: int) -> int:
        asked.append(entry)
        return lengths[entry]

    before = lengths[first - 1] if first else 0
    found = asyncio.run(stop_within(first, stop, room, before, length_of))
    assert found == max(at for at in range(first, stop + 1) if sum(sizes[first:at]) <= room)
    assert len(asked) <= 6 and all(first <= entry < stop for entry in asked)


@given(offsets(), offsets(), st.data())
def test_a_query_moves_on_and_ledgers_end_where_they_are_closed(
    start: Offsets, later: Offsets, data: st.DataObject
) -> None:
    stops = {
        ledger: data.draw(st.integers(start.stop(ledger), max(start.stop(ledger), stop)))
        for ledger, stop in later.all().items()
    }
    after = moved(start, later, stops)
    assert after.all() == dict(sorted({**start.all(), **stops}.items()))
    for ledger in after.ended:
        assert after.stop(ledger) == later.ended.get(ledger) or start.ended.get(ledger) == after.stop(ledger)
    within = capped(later, start)
    assert capped(later, None) is later
    assert within.all() == {ledger: min(stop, later.stop(ledger)) for ledger, stop in start.all().items()}
    assert {*within.ended} <= {*later.ended}
