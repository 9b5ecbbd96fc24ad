"""A client process of the campaign: ``python -m bench.chaos.client ROLE --name NAME --metadata URI --facts DIR --seed
N``.

It does what its role says until SIGTERM, and writes down what it knows. What the store may answer while it is hurt is
no fault: the client tries again. What the store must never answer is written down as ``wrong``.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import random
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import fencepost
from bench.chaos import logs
from bench.chaos.facts import Facts, Tail
from bench.chaos.payload import fault, payload
from fencepost.ledger import errors
from fencepost.log.errors import LogTrimmedError

PASSWORD = b"chaos"
DIGESTS = ("crc32c", "crc32", "hmac")

SHAPES = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (4, 3, 2), (2, 2, 2))
"""Ensembles, write quorums and ack quorums of ledgers. All tolerate that one bookie is gone."""

IN_FLIGHT = 100
ENTRIES = (50, 4_000)
"""How many entries a ledger gets, at the least and at the most."""

PAUSE = 0.2
"""Seconds before something that failed is tried again."""

READ_AT_ONCE = 500
TAILED_NOTED = 200
"""Entries after which a tailing reader notes how far it is."""

LATEST = 4
"""Half of the time, a reader chooses one of this number of newest ledgers."""

WRONG = (
    errors.NoSuchLedgerError,
    errors.NoSuchEntryError,
    errors.DigestMismatchError,
    errors.UnauthorizedAccessError,
    LogTrimmedError,
)
"""Errors that no client may get: every requested ledger and entry exists, and nobody trims."""


class Client:
    """One client. ``over`` is set when it is to end."""

    def __init__(self, store: Any, facts: Facts, directory: Path, seed: int, rate: int) -> None:
        self.store = store
        self.facts = facts
        self.random = random.Random(seed)
        self.rate = rate
        self.over = asyncio.Event()
        self._tail = Tail(directory)
        self._ledgers: dict[int, dict[str, Any]] = {}

    async def run(self, role: str) -> None:
        """Play a role until the end."""
        turns: dict[str, Callable[[], Awaitable[None]]] = {
            "writer": self.write,
            "reader": self.read,
            "tailer": self.tail,
            "recoverer": self.recover,
            "logger": lambda: logs.append(self),
            "follower": lambda: logs.follow(self),
        }
        turn = turns[role]
        while not self.over.is_set():
            try:
                await turn()
            except WRONG as error:
                self.facts.note("wrong", what=f"{role}: {type(error).__name__}: {error}")
            except errors.StoreError as error:
                self.facts.note("failed", error=type(error).__name__)
                await self.pause(PAUSE)

    async def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end."""
        try:
            async with asyncio.timeout(seconds):
                await self.over.wait()
        except TimeoutError:
            pass

    def ledger(self) -> dict[str, Any] | None:
        """One of the ledgers that were created, as its writer noted it; a late one half of the time."""
        for fact in self._tail.new():
            if fact["fact"] == "created":
                self._ledgers[fact["ledger"]] = fact
        known = list(self._ledgers.values())
        if not known:
            return None
        return self.random.choice(known[-LATEST:] if self.random.random() < 0.5 else known)

    def check(self, created: dict[str, Any], entry_id: int, data: bytes) -> None:
        """Note if an entry is not what was written."""
        if what := fault(data, created["ledger"], entry_id, created["nonce"]):
            self.facts.note("wrong", what=what)

    async def open(self, created: dict[str, Any], recover: bool) -> Any:
        """A reader of a ledger."""
        return await self.store.open_ledger(
            created["ledger"], recover=recover, digest=created["digest"], password=PASSWORD
        )

    # -- roles --------------------------------------------------------------------------------------------------------

    async def write(self) -> None:
        """Fill a ledger and close it, noting what is acknowledged; sometimes leave it open, for others to recover."""
        nonce, digest, shape = self.random.getrandbits(62), self.random.choice(DIGESTS), self.random.choice(SHAPES)
        ensemble, write_quorum, ack_quorum = shape
        ledger = await self.store.create_ledger(
            ensemble=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum, digest=digest, password=PASSWORD
        )
        self.facts.note("created", ledger=ledger.id, nonce=nonce, digest=digest, shape=shape)
        wanted = self.random.randint(*ENTRIES)
        waiting: collections.deque[asyncio.Task[int]] = collections.deque()
        begun = asyncio.get_running_loop().time()
        given = acknowledged = 0
        try:
            while acknowledged < wanted and not self.over.is_set():
                allowed = int((asyncio.get_running_loop().time() - begun) * self.rate) + 1
                while given < min(wanted, allowed) and len(waiting) < IN_FLIGHT:
                    waiting.append(asyncio.create_task(ledger.append(payload(ledger.id, given, nonce))))
                    given += 1
                if not waiting:
                    await asyncio.sleep(1 / self.rate)
                    continue
                await waiting[0]
                while waiting and waiting[0].done():
                    entry_id = await waiting.popleft()
                    if entry_id != acknowledged:
                        self.facts.note(
                            "wrong", what=f"append {acknowledged} of ledger {ledger.id} was given entry {entry_id}"
                        )
                    acknowledged += 1
                self.facts.note("acknowledged", ledger=ledger.id, last=acknowledged - 1)
            if self.random.random() < 0.8 and not self.over.is_set():
                await ledger.close()
                self.facts.note("closed", ledger=ledger.id, last=acknowledged - 1)
        finally:
            for append in waiting:
                append.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def read(self) -> None:
        """Read what is confirmed of a ledger, or some of it."""
        created = self.ledger()
        if created is None:
            return await self.pause(PAUSE)
        reader = await self.open(created, recover=False)
        try:
            last = await reader.read_last_add_confirmed()
            if last >= 0:
                first = self.random.randint(0, last)
                expected = first
                async for entry in reader.read(first, min(last, first + READ_AT_ONCE)):
                    if entry.id != expected:
                        self.facts.note(
                            "wrong", what=f"read entry {entry.id} of ledger {reader.id} where {expected} is next"
                        )
                    expected = entry.id + 1
                    self.check(created, entry.id, entry.data)
                self.facts.note("read", ledger=reader.id, last=last, entries=expected - first)
        finally:
            await reader.close()
        return await self.pause(PAUSE / 4)

    async def tail(self) -> None:
        """Follow a ledger to its end."""
        created = self.ledger()
        if created is None:
            return await self.pause(PAUSE)
        reader = await self.open(created, recover=False)
        last = -1
        try:
            over = asyncio.create_task(self.over.wait())
            entries = aiter(reader.tail())
            while not self.over.is_set():
                following = asyncio.ensure_future(anext(entries, None))
                await asyncio.wait({following, over}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                    break
                entry = following.result()
                if entry is None:
                    self.facts.note("ended", ledger=reader.id, last=last)
                    break
                if entry.id != last + 1:
                    self.facts.note("wrong", what=f"tail gave entry {entry.id} of ledger {reader.id} after {last}")
                last = entry.id
                self.check(created, last, entry.data)
                if last % TAILED_NOTED == 0:
                    self.facts.note("read", ledger=reader.id, last=last, entries=TAILED_NOTED)
            over.cancel()
        finally:
            await reader.close()

    async def recover(self) -> None:
        """Recover a ledger, which may be one that its writer lives for, and two at once."""
        await self.pause(self.random.expovariate(1 / 3))
        created = self.ledger()
        if created is None or self.over.is_set():
            return
        readers = await asyncio.gather(
            *(self.open(created, recover=True) for _ in range(self.random.choice((1, 1, 2)))), return_exceptions=True
        )
        for reader in readers:
            if isinstance(reader, BaseException):
                if not isinstance(reader, errors.StoreError) or isinstance(reader, WRONG):
                    raise reader
                self.facts.note("failed", error=type(reader).__name__)
            else:
                self.facts.note("recovered", ledger=reader.id, last=reader.last_add_confirmed)
                await reader.close()


async def main() -> None:
    """Connect, again and again until it succeeds, and play the role."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role")
    parser.add_argument("--name", required=True)
    parser.add_argument("--metadata", required=True)
    parser.add_argument("--facts", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--trace")
    given = parser.parse_args()
    facts = Facts(given.facts / f"{given.name}.facts")
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    while not over.is_set():
        try:
            async with fencepost.connect(given.metadata, trace=given.trace) as store:
                client = Client(store, facts, given.facts, given.seed, given.rate)
                client.over = over
                await client.run(given.role)
        except errors.StoreError as error:
            facts.note("failed", error=type(error).__name__)
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
