"""What must be true in the end, of what clients were told while it went on."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fencepost
from bench.chaos.client import PASSWORD
from bench.chaos.logs import KnownLog
from bench.chaos.payload import fault
from fencepost.ledger.rules.metadata import LedgerStatus

PATIENCE = 60.0
"""Seconds until what one client wrote is seen by all."""


@dataclass
class Known:
    """What clients learned about a ledger."""

    nonce: int
    digest: str
    acknowledged: int = -1
    """The last entry that was acknowledged, or that a reader was given."""
    ends: set[int] = field(default_factory=set)
    """Where it ends, by those who closed or recovered it or read to its end."""


class Judge:
    """Takes in the facts, and judges in the end."""

    def __init__(self) -> None:
        self.ledgers: dict[int, Known] = {}
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.log = KnownLog()
        self._early: dict[int, list[dict[str, Any]]] = defaultdict(list)

    def hear(self, facts: Iterable[dict[str, Any]]) -> None:
        """Take in what clients wrote down since the last time."""
        for fact in facts:
            kind = fact["fact"]
            self.counts[kind] += 1
            if kind == "wrong":
                self.faults.append(f"{fact['by']}: {fact['what']}")
            elif kind == "failed":
                self.failures[fact["error"]] += 1
            elif kind == "created":
                if fact["ledger"] in self.ledgers:
                    self.faults.append(f"ledger {fact['ledger']} was created twice")
                self.ledgers[fact["ledger"]] = Known(fact["nonce"], fact["digest"])
                for early in self._early.pop(fact["ledger"], ()):  # its reader's file comes before its writer's
                    self._of_ledger(early)
            elif kind in ("appended", "followed"):
                self.counts["entries of the log"] += self.log.hear(fact)
            elif fact["ledger"] in self.ledgers:
                self._of_ledger(fact)
            else:
                self._early[fact["ledger"]].append(fact)

    def _of_ledger(self, fact: dict[str, Any]) -> None:
        known = self.ledgers[fact["ledger"]]
        if fact["fact"] == "acknowledged":
            self.counts["entries acknowledged"] += max(0, fact["last"] - known.acknowledged)
        if fact["fact"] == "read":
            self.counts["entries read"] += fact["entries"]
        known.acknowledged = max(known.acknowledged, fact["last"])
        if fact["fact"] in ("closed", "recovered", "ended"):
            known.ends.add(fact["last"])

    async def judge(self, uri: str, told: Any, trace: Path | None = None) -> None:
        """Recover every ledger, and read all of it, and the log, twice, by two clients. ``told(ledgers, entries)`` is
        called as it goes on. ``trace``: a folder for the traces of these.
        """
        read = 0
        async with fencepost.connect(uri, trace=trace) as one, fencepost.connect(uri, trace=trace) as other:
            there = {ledger async for ledger in one.list_ledgers()}
            for ledger in sorted(set(self.ledgers) - there):
                self.faults.append(f"ledger {ledger} was created, and is not there")
            for number, (ledger, known) in enumerate(sorted(self.ledgers.items()), 1):
                if ledger in there:
                    await self._judge(one, other, ledger, known)
                    read += known.acknowledged + 1
                told(number, read)
            for store in (one, other):
                self.faults += await self.log.judge(store)

    async def _judge(self, one: Any, other: Any, ledger: int, known: Known) -> None:
        try:
            recovered = await one.open_ledger(ledger, recover=True, digest=known.digest, password=PASSWORD)
            async with asyncio.timeout(PATIENCE):  # its member of the quorum may be behind
                while (await other.ledger_metadata(ledger)).status is not LedgerStatus.CLOSED:
                    await asyncio.sleep(0.02)
            read = await other.open_ledger(ledger, recover=False, digest=known.digest, password=PASSWORD)
            readers = [recovered, read]
            await asyncio.gather(*(self._read(reader, known) for reader in readers))
        except TimeoutError:
            self.faults.append(f"ledger {ledger} was recovered, and is open for another client {PATIENCE:g} s later")
            return
        except fencepost.FencepostError as error:
            self.faults.append(f"ledger {ledger} cannot be read when all is well: {type(error).__name__}: {error}")
            return
        ends = [reader.last_add_confirmed for reader in readers]
        if known.acknowledged > ends[0]:
            self.faults.append(
                f"LOST: ledger {ledger} ends at entry {ends[0]}, and entries up to {known.acknowledged} were"
                " acknowledged or read"
            )
        if len({*ends, *known.ends}) > 1:
            self.faults.append(
                f"ledger {ledger} ends at {ends[0]} for one, and at {sorted({*ends, *known.ends} - {ends[0]})} for"
                " others"
            )

    async def _read(self, reader: Any, known: Known) -> None:
        """Read all of a ledger."""
        last, expected = reader.last_add_confirmed, 0
        if last >= 0:
            async for entry in reader.read(0, last):
                if entry.id != expected:
                    self.faults.append(f"ledger {reader.id} gives entry {entry.id} where {expected} is next")
                if what := fault(entry.data, reader.id, entry.id, known.nonce):
                    self.faults.append(what)
                expected = entry.id + 1
        if expected != last + 1:
            self.faults.append(f"ledger {reader.id} gives {expected} entries of {last + 1}")
        await reader.close()


async def is_usable(uri: str, patience: float, trace: Path | None = None) -> str:
    """Check that a cluster stores and returns an entry within ``patience`` seconds. Returns why not, or nothing."""
    error: Exception | None = None
    try:
        async with asyncio.timeout(patience):
            while True:
                try:
                    async with fencepost.connect(uri, trace=trace) as store:
                        ledger = await store.create_ledger(
                            ensemble=3, write_quorum=3, ack_quorum=2, digest="crc32c", password=PASSWORD
                        )
                        await ledger.append(b"well again")
                        await ledger.close()
                        return ""
                except fencepost.FencepostError as failed:
                    error = failed
                    await asyncio.sleep(0.2)
    except TimeoutError:
        return f"the cluster took no entry within {patience:.0f} s of all being well: {error}"
