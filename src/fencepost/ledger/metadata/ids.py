"""Ids for new ledgers, from the generators that Java's clients use too. Callers at the same time share requests.

Ids up to 2^31 - 2 are the numbers of sequential nodes in one folder. When these are used up, ids have a high half, the
number of the newest ``HOB`` folder, and their low half comes from sequential nodes there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from fencepost.ledger.metadata import paths

AT_ONCE = 100
"""The most ids in one request."""


class Numbers(Protocol):
    """The metadata client, as far as it is used here."""

    async def names_in(self, below: str) -> list[str] | None:
        """The names of a node's children; None if there is no such node."""

    async def create_node(self, below: str) -> str | None:
        """Create a node and its missing parents. Returns its path; None if it exists."""

    async def numbers(self, folder: str, count: int) -> list[int]:
        """The next numbers of a folder."""


class LedgerIds:
    """Draws ids that no ledger has had."""

    def __init__(self, client: Numbers) -> None:
        self._client = client
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._drawing: asyncio.Task[None] | None = None
        self._high: int | None = None
        """The high half of the next ids; None while it is not known."""

    async def next(self) -> int:
        """An id. One whose answer is lost is skipped."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._drawing is None:
            self._drawing = asyncio.create_task(self._draw())
        return await future

    async def _draw(self) -> None:
        """Draw ids for all who wait. Those who come during a request wait for the next one."""
        try:
            while self._waiting:
                try:
                    ids = await self._some(min(len(self._waiting), AT_ONCE))
                except Exception as error:
                    while self._waiting:
                        _end(self._waiting.popleft(), error)
                else:
                    for each in ids:
                        _end(self._waiting.popleft(), each)
        finally:
            self._drawing = None
            for left in self._waiting:
                left.cancel()

    async def _some(self, count: int) -> list[int]:
        """Up to ``count`` ids, at least one."""
        while True:
            if self._high is None:
                self._high = await self._newest()
            high = self._high
            drawn = await self._client.numbers(_folder(high) if high else paths.ID_GENERATOR, count)
            ids = [high << 32 | number for number in drawn if number < paths.FIRST_LONG_ID]
            if ids:
                return ids
            await self._client.create_node(_folder(high + 1))
            self._high = None

    async def _newest(self) -> int:
        names = await self._client.names_in(paths.LONG_ID_GENERATOR)
        if names is None:
            return 0
        return max((int(name[4:]) for name in names if name.startswith("HOB-") and name[4:].isdecimal()), default=1)


def _folder(high: int) -> str:
    return f"{paths.LONG_ID_GENERATOR}/HOB-{high:010}"


def _end(future: asyncio.Future[int], result: int | Exception) -> None:
    if future.done():  # its caller has given up
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
