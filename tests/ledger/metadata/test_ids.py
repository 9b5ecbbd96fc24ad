"""Ids for new ledgers: each is drawn once, and callers at the same time share requests."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from fencepost.ledger.metadata import paths
from fencepost.ledger.metadata.ids import AT_ONCE, LedgerIds


class Generators:
    """The folders of a metadata service, with the number that each has next."""

    def __init__(self, **folders: int) -> None:
        self.folders = {paths.ID_GENERATOR: count(0)} | {
            f"{paths.LONG_ID_GENERATOR}/{name}": count(number) for name, number in folders.items()
        }
        self.asked: list[int] = []
        self.error: Exception | None = None

    async def names_in(self, below: str) -> list[str] | None:
        await asyncio.sleep(0)
        names = [path.rpartition("/")[2] for path in self.folders if path.startswith(f"{below}/")]
        return names or None

    async def create_node(self, below: str) -> str | None:
        return below if self.folders.setdefault(below, count(0)) else None

    async def numbers(self, folder: str, count: int) -> list[int]:
        self.asked.append(count)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return [next(self.folders[folder]) for _ in range(count)]


async def test_callers_at_the_same_time_share_requests() -> None:
    service = Generators()
    ids = LedgerIds(service)
    assert await ids.next() == 0
    drawn = await asyncio.gather(*(ids.next() for _ in range(2 * AT_ONCE + 5)))
    assert drawn == [*range(1, 2 * AT_ONCE + 6)]
    assert service.asked == [1, AT_ONCE, AT_ONCE, 5]


async def test_one_generator_follows_another_when_its_numbers_are_used_up() -> None:
    service = Generators()
    service.folders[paths.ID_GENERATOR] = count(paths.FIRST_LONG_ID - 2)
    ids = LedgerIds(service)
    first = [paths.FIRST_LONG_ID - 2, paths.FIRST_LONG_ID - 1]
    assert await asyncio.gather(*(ids.next() for _ in range(4))) == [*first, 1 << 32, 1 << 32 | 1]
    service.folders[f"{paths.LONG_ID_GENERATOR}/HOB-{1:010}"] = count(paths.FIRST_LONG_ID)
    assert await ids.next() == 2 << 32
    assert await LedgerIds(service).next() == 2 << 32 | 1
    assert await LedgerIds(Generators(**{f"HOB-{7:010}": 3, f"HOB-{2:010}": 0, "other": 0})).next() == 7 << 32 | 3


async def test_an_error_ends_all_who_wait_and_nobody_after_them() -> None:
    service = Generators()
    ids = LedgerIds(service)
    service.error = OSError("no answer")
    ended = await asyncio.gather(*(ids.next() for _ in range(3)), return_exceptions=True)
    assert ended == [service.error] * 3
    service.error = None
    given_up = asyncio.create_task(ids.next())
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert await ids.next() == 1, "the id of a caller that has given up is skipped"
