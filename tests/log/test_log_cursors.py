"""Cursors: acknowledged entries as a value, compared with a set of positions, and how they are stored."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.standing_logs import Standing

from fencepost.log.chain import LATEST, Chain, Link, Position
from fencepost.log.cursors import Acknowledged, acknowledged_of, bytes_of, in_chain, with_all_to, with_one
from fencepost.log.errors import CursorFullError, LogFormatError, LogTrimmedError, NoSuchCursorError

LEDGERS = (7, 3, 9, 4)
CHAIN = Chain(tuple(Link(ledger, 0) for ledger in LEDGERS))
ENTRIES = 8
ALL = [Position(ledger, entry) for ledger in LEDGERS for entry in range(ENTRIES)]
STEPS = st.lists(st.tuples(st.sampled_from(["one", "all", "trim"]), st.sampled_from(ALL)), max_size=30)


@given(STEPS)
def test_what_is_acknowledged_is_what_a_set_says(steps: list[tuple[str, Position]]) -> None:
    known, chain, plain = Acknowledged(ALL[0]), CHAIN, set[Position]()
    for kind, position in steps:
        if kind == "trim":
            chain = chain.without_first(chain.index(position.ledger) or 0)
            known = in_chain(known, chain)
        elif kind == "one":
            known = with_one(known, position, chain)
            plain.add(position)
        else:
            known = with_all_to(known, position, chain)
            plain |= {*ALL[: ALL.index(position) + 1]}
        known = acknowledged_of(bytes_of(known))
        before = chain.place(known.before)
        assert before is not None
        for each in ALL:
            place = chain.place(each)
            if place is not None:
                assert (place < before or known.has(each)) == (each in plain or place < before), (each, known)
                assert place >= before or each in plain or CHAIN.place(each) != place
        for runs in known.runs.values():
            assert runs and all(first <= last for first, last in runs)
            assert all(one[1] + 1 < other[0] for one, other in pairwise(runs))
        assert all(first > known.before.entry for first, _ in known.runs.get(known.before.ledger, ()))


@given(st.binary(max_size=40))
def test_foreign_bytes_are_refused_or_a_cursor(data: bytes) -> None:
    try:
        known = acknowledged_of(data)
    except LogFormatError:
        return
    assert acknowledged_of(bytes_of(known)) == known


def test_ranges_are_kept_compactly() -> None:
    known = Acknowledged(Position(1000, 0), {1000: tuple((10 * each, 10 * each + 3) for each in range(1, 10_001))})
    assert len(bytes_of(known)) < 30_000 and acknowledged_of(bytes_of(known)) == known


async def test_a_cursor_keeps_what_is_acknowledged_for_all_who_use_it(cluster: Standing) -> None:
    log, other = (await cluster.connect()).log("orders"), (await cluster.connect()).log("orders")
    await log.create()
    cursor = await log.cursor("billing")
    late = await log.cursor("late", at=LATEST)
    async with log.writer(ledger_entries=10) as writer:
        positions = await writer.append_many(b"%d" % number for number in range(35))
    assert [int(entry.data) async for entry in late.read(follow=False)] == [*range(35)], (
        "there was no ledger to be at the end of"
    )
    async with other.cursor("billing") as same:
        await asyncio.gather(*(cursor.acknowledge(positions[number]) for number in (3, 4, 12, 14, 34)))
        await asyncio.gather(same.acknowledge(positions[0], positions[1]), cursor.acknowledge(positions[5]))
        await same.acknowledge(positions[20])
    left = [number for number in range(35) if number not in (0, 1, 3, 4, 5, 12, 14, 20, 34)]
    async with log.cursor("billing") as again:
        assert [int(entry.data) async for entry in again.read(follow=False)] == left
        assert again.position == positions[2]
        assert again.acknowledged[positions[0].ledger] == ((3, 5),)
        assert (
            again.is_acknowledged(positions[0])
            and not again.is_acknowledged(positions[2])
            and again.is_acknowledged(positions[12])
        )
        await again.acknowledge_up_to(positions[13])
        assert again.position == Position(positions[10].ledger, 5), "what was acknowledged by itself is taken along"
        await again.acknowledge_up_to(positions[2])
        assert again.position == Position(positions[10].ledger, 5)
        await again.acknowledge(*(positions[number] for number in range(15, 20)))
        assert again.position == Position(positions[20].ledger, 1), "it goes on over the end of a ledger"
        assert (await log.show()).cursors["billing"] == Acknowledged(again.position, again.acknowledged)
        await again.move(positions[2])
        assert [int(entry.data) async for entry in again.read(follow=False)] == [*range(2, 35)]
        with pytest.raises(LogTrimmedError, match="a cursor cannot be there"):
            await again.move(Position(999, 0))
        await log.trim(keep=2)
        with pytest.raises(LogTrimmedError):
            _ = [entry async for entry in again.read(follow=False)]
        assert [int(entry.data) async for entry in again.read(follow=False, on_trimmed="skip")] == [*range(20, 35)]
        await again.acknowledge(positions[3])
        again.limit = 2
        await again.acknowledge(positions[22])
        await again.acknowledge(positions[24])
        with pytest.raises(CursorFullError, match="would have 3 runs of entries"):
            await again.acknowledge(positions[26])
        await again.acknowledge(positions[23])
        assert again.acknowledged == {positions[22].ledger: ((2, 4),)}
        await log.delete_cursor("billing")
        with pytest.raises(NoSuchCursorError, match="has no cursor billing"):
            await again.acknowledge(positions[30])
    assert [*(await log.show()).cursors] == ["late"]
