"""Callers that append side by side, against confirmations that come in any portions, and callers that give up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.client.appender import OVERHEAD, Appender, Batch
from fencepost.ledger.errors import IllegalOperationError, StoreError

LARGEST = 50
"""The most bytes of an entry."""

KINDS = ("append", "list", "iterator", "some", "stream")


class Written(Appender[int]):
    """An appender that keeps its entries in ``sent``. The first ``confirmed`` of them are confirmed."""

    def __init__(self, in_flight: int, in_flight_bytes: int) -> None:
        driver: Any = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            settings=SimpleNamespace(frame_limit=LARGEST + OVERHEAD),
            must_work=lambda: None,
        )
        super().__init__(driver, in_flight, in_flight_bytes)
        self.sent: list[bytes] = []
        self.confirmed = 0
        self.broken: StoreError | None = None

    def _place(self, ledger: int, entry: int) -> int:
        return entry

    def _refusal(self) -> StoreError | None:
        return self.broken

    def _send(self, batch: Batch, entries: list[bytes]) -> None:
        assert 0 < self._in_flight <= self._in_flight_limit
        self.sent += entries
        unconfirmed = self.sent[self.confirmed :]
        assert sum(map(len, unconfirmed)) <= self._in_flight_bytes <= max(self._in_flight_bytes_limit, LARGEST)
        assert self._in_flight_bytes <= self._in_flight_bytes_limit or len(unconfirmed) == 1

    async def append(self, data: bytes) -> int:
        """Append an entry, as the writer of a ledger does."""
        if not self._try_reserve(len(data)):
            await self._wait_for_room(len(data))
        return await self._put_one(data)

    async def close(self) -> None:
        """Nothing is left to wait for."""

    def confirm(self, count: int) -> None:
        """Confirm the next entries, or all."""
        some = self.sent[self.confirmed : self.confirmed + count]
        if some:
            self._confirm(0, self.confirmed, len(some), sum(map(len, some)))
            self.confirmed += len(some)

    def fail(self, error: StoreError) -> None:
        """Everything in flight fails, and what comes later."""
        self.broken = error
        self._fail_all(error)


async def appended(writer: Written, kind: str, entries: list[bytes]) -> list[int]:
    if kind == "append":
        return [await writer.append(each) for each in entries]
    if kind in ("list", "iterator"):
        return await writer.append_many(entries if kind == "list" else iter(entries))
    if kind == "stream":
        return await writer.append_many(streamed(entries))
    group = writer.group()
    await writer.send_some_of(group, entries)
    await group.over()
    return group.places()


async def streamed(entries: list[bytes]) -> Any:
    for each in entries:
        yield each


def entries_of(caller: int, sizes: list[int]) -> Iterator[bytes]:
    for number, size in enumerate(sizes):
        yield (b"%d.%d;" % (caller, number)).ljust(size, b"x")


async def examined(
    in_flight: int, in_flight_bytes: int, callers: list[tuple[str, list[int]]], steps: list[tuple[str, int]]
) -> None:
    writer = Written(in_flight, in_flight_bytes)
    entries = [[*entries_of(number, sizes)] for number, (_, sizes) in enumerate(callers)]
    tasks = [
        asyncio.ensure_future(appended(writer, kind, some)) for (kind, _), some in zip(callers, entries, strict=True)
    ]
    given_up = set[int]()
    for what, number in steps:
        if what == "confirm":
            writer.confirm(number)
        elif what == "cancel" and number < len(tasks):
            tasks[number].cancel()
            given_up.add(number)
        elif what == "fail" and writer.broken is None:
            writer.fail(StoreError("it failed"))
        await asyncio.sleep(0)
    for _ in range(10 * sum(map(len, entries)) + 20):
        if all(task.done() for task in tasks) and not writer.in_flight:
            break
        if writer.broken is None:
            writer.confirm(len(writer.sent))
        await asyncio.sleep(0)
    assert all(task.done() for task in tasks), f"{len(writer._waiting)} wait, and {writer.in_flight} are in flight"
    assert (writer.in_flight, writer._in_flight_bytes) == (0, 0)
    for number, (task, some) in enumerate(zip(tasks, entries, strict=True)):
        mine = [each for each in writer.sent if each.startswith(b"%d." % number)]
        assert mine == some[: len(mine)]
        if task.cancelled():
            assert number in given_up
        elif task.exception() is None:
            assert [writer.sent[place] for place in task.result()] == some == mine
        else:
            error = task.exception()
            assert isinstance(error, IllegalOperationError) if writer.broken is None else isinstance(error, StoreError)
            assert writer.broken is not None or max(map(len, some)) > LARGEST


@given(
    st.integers(1, 40),
    st.integers(8, 400),
    st.lists(st.tuples(st.sampled_from(KINDS), st.lists(st.integers(0, LARGEST), max_size=60)), max_size=9),
    st.lists(
        st.one_of(st.tuples(st.just("confirm"), st.integers(0, 50)), st.tuples(st.just("cancel"), st.integers(0, 9))),
        max_size=40,
    ),
    st.booleans(),
)
def test_every_caller_gets_its_room_and_gives_it_back(
    in_flight: int,
    in_flight_bytes: int,
    callers: list[tuple[str, list[int]]],
    steps: list[tuple[str, int]],
    fails: bool,
) -> None:
    asyncio.run(examined(in_flight, in_flight_bytes, callers, [*steps, ("fail", 0)] if fails else steps))


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_that_is_too_large_does_not_stop_those_that_wait(kind: str) -> None:
    callers = [("list", [10] * 30), (kind, [10, LARGEST + 1, 10]), (kind, [LARGEST + 1]), ("iterator", [10] * 30)]
    asyncio.run(examined(8, 400, callers, []))
    asyncio.run(examined(16, 60, [*callers, *callers], [("confirm", 3)] * 5))


@pytest.mark.parametrize("kind", KINDS)
def test_what_waits_for_several_gives_them_back_when_its_group_fails(kind: str) -> None:
    callers = [("append", [10]), (kind, [10] * 60), (kind, [10] * 60), ("list", [10] * 60)]
    for confirmed in range(6):
        asyncio.run(examined(16, 400, callers, [("confirm", 0)] * 2 + [("confirm", 1)] * confirmed + [("fail", 0)]))


async def test_callers_go_in_the_order_in_which_they_came() -> None:
    writer = Written(100, 60)
    one = asyncio.ensure_future(writer.append(b"1" * 50))
    large = asyncio.ensure_future(writer.append(b"2" * 50))
    await asyncio.sleep(0)
    small = [asyncio.ensure_future(appended(writer, kind, [b"3"])) for kind in KINDS]
    for _ in range(5):
        await asyncio.sleep(0)
    assert writer.sent == [b"1" * 50] and len(writer._waiting) == 1 + len(KINDS)
    while not all(task.done() for task in small):
        writer.confirm(1)
        await asyncio.sleep(0)
    assert writer.sent == [b"1" * 50, b"2" * 50] + [b"3"] * len(KINDS)
    assert (await one, await large) == (0, 1)


@pytest.mark.parametrize("kind", KINDS)
async def test_all_room_is_used_where_callers_have_few_entries(kind: str) -> None:
    writer = Written(80, 10_000)
    first = asyncio.ensure_future(writer.append_many([b"x"] * 80))
    others = [asyncio.ensure_future(appended(writer, kind, [b"x"])) for _ in range(30)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert (writer.in_flight, len(writer._waiting)) == (80, 30)
    writer.confirm(80)
    for _ in range(200):
        await asyncio.sleep(0)
    assert writer.in_flight == 30
    writer.confirm(30)
    await asyncio.gather(first, *others)
