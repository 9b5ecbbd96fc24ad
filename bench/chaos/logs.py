"""A log of the campaign: who appends to it, who follows it, and what must be true of it in the end.

Each time that a writer begins, it draws a number, and counts its entries from 0. So an entry says which must be before
it, and nobody need keep what was written.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterator
from typing import Any

import fencepost
from bench.chaos.payload import nonce_of, number_of, payload
from fencepost.log.chain import EARLIEST, LATEST
from fencepost.log.errors import LogExistsError, NoSuchLogError

NAME = "chaos"
PASSWORD = b"chaos"

ENTRIES = (50, 2_000)
"""How many entries a writer appends before it leaves, at the least and at the most."""

LEDGER_ENTRIES = 1_000
"""After which the log goes on in another ledger."""

IN_FLIGHT = 100
WAIT = 20.0
"""Seconds that a writer waits to lead."""

NOTED = 200
"""Entries after which a follower notes how far it is."""

WHOLE = 0.1
"""The share of followers that begin at the beginning."""

PAUSE = 0.5


async def append(client: Any) -> None:
    """Lead, append some entries, noting what is acknowledged, and leave."""
    nonce, wanted = client.random.getrandbits(62), client.random.randint(*ENTRIES)
    log = client.store.log(NAME, password=PASSWORD)
    try:
        await log.create()
    except LogExistsError:
        pass
    async with log.writer(wait=WAIT, ledger_entries=LEDGER_ENTRIES, name=f"{nonce}") as writer:
        waiting: collections.deque[asyncio.Task[Any]] = collections.deque()
        begun = asyncio.get_running_loop().time()
        given = acknowledged = 0
        try:
            while acknowledged < wanted and not client.over.is_set():
                allowed = int((asyncio.get_running_loop().time() - begun) * client.rate) + 1
                while given < min(wanted, allowed) and len(waiting) < IN_FLIGHT:
                    waiting.append(asyncio.create_task(writer.append(payload(0, given, nonce))))
                    given += 1
                if not waiting:
                    await asyncio.sleep(1 / client.rate)
                    continue
                position = await waiting.popleft()
                acknowledged += 1
                while waiting and waiting[0].done():
                    position = await waiting.popleft()
                    acknowledged += 1
                client.facts.note("appended", nonce=nonce, last=acknowledged - 1, position=str(position))
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
    await client.pause(PAUSE)


async def follow(client: Any) -> None:
    """Follow the log for a while, from its beginning or, mostly, from its end."""
    log = client.store.log(NAME, password=PASSWORD)
    until = asyncio.get_running_loop().time() + client.random.expovariate(1 / 20)
    is_whole = client.random.random() < WHOLE
    order, count = Order(is_whole), 0
    first = last = None
    try:
        async with log.reader(EARLIEST if is_whole else LATEST) as reader:
            entries = aiter(reader)
            while not client.over.is_set():
                async with asyncio.timeout(max(0.0, until - asyncio.get_running_loop().time())):
                    entry = await anext(entries)
                if what := order.fault(entry.data, str(entry.position)):
                    client.facts.note("wrong", what=what)
                first, last, count = first or entry.position, entry.position, count + 1
                if count % NOTED == 0:
                    client.facts.note("followed", first=str(first), last=str(last), count=count)
    except TimeoutError:
        pass
    except NoSuchLogError:
        await client.pause(PAUSE)
    if last is not None:
        client.facts.note("followed", first=str(first), last=str(last), count=count)


class Order:
    """The entries of a log in their order, those of each writer counted from 0. ``is_whole``: from the beginning of the
    log on.
    """

    def __init__(self, is_whole: bool = True) -> None:
        self._next: dict[int, int] = {}
        self._is_whole = is_whole

    def fault(self, data: bytes, position: str) -> str:
        """What is wrong with the next entry; nothing if it may come next."""
        nonce = nonce_of(data)
        if nonce is None:
            return f"entry {position} of the log has no writer"
        found = number_of(data)
        wanted = self._next.get(nonce, 0 if self._is_whole else found)
        self._next[nonce] = found + 1
        if found != wanted:
            return f"entry {position} of the log is number {found} of its writer where {wanted} is next"
        if data != payload(0, found, nonce):
            return f"entry {position} of the log has other bytes than were written"
        return ""


class KnownLog:
    """What clients learned about the log."""

    def __init__(self) -> None:
        self.appended: dict[int, tuple[int, str]] = {}
        """The last entry of each writer that was acknowledged, and its position."""
        self.followed: dict[tuple[str, str], int] = {}
        """How many entries followers were given from one position to another."""

    def hear(self, fact: dict[str, Any]) -> int:
        """Take in a fact. Returns how many more entries were acknowledged, or read."""
        if fact["fact"] == "appended":
            before, _ = self.appended.get(fact["nonce"], (-1, ""))
            self.appended[fact["nonce"]] = fact["last"], fact["position"]
            return int(fact["last"]) - before
        self.followed[fact["first"], fact["last"]] = fact["count"]
        return 0

    async def judge(self, store: Any) -> list[str]:
        """The faults of the whole log, read once."""
        if not self.appended:
            return []
        order, faults, places, at = Order(), list[str](), dict[str, int](), dict[str, tuple[int | None, int]]()
        try:
            async with store.log(NAME, password=PASSWORD).reader(follow=False) as reader:
                async for entry in reader:
                    position = str(entry.position)
                    places[position] = len(places) + 1
                    at[position] = nonce_of(entry.data), number_of(entry.data)
                    faults += [what for what in [order.fault(entry.data, position)] if what]
        except fencepost.FencepostError as error:
            return [f"the log cannot be read when all is well: {type(error).__name__}: {error}"]
        return [*faults, *self._lost(at), *self._torn(places)]

    def _lost(self, at: dict[str, tuple[int | None, int]]) -> Iterator[str]:
        for nonce, (last, position) in self.appended.items():
            if at.get(position) != (nonce, last):
                yield f"LOST: entry {last} of a writer of the log was acknowledged at {position}, and is not there"

    def _torn(self, places: dict[str, int]) -> Iterator[str]:
        for (first, last), count in self.followed.items():
            if first not in places or last not in places:
                yield f"a follower of the log was given entries {first} and {last}, and one of them is not there"
            elif (there := places[last] - places[first] + 1) != count:
                yield f"a follower of the log was given {count} entries from {first} to {last}, and it has {there}"
