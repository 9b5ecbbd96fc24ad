"""Writers that lose their lead, their ledgers and the answers of the metadata service at any moment: acknowledged
entries are there, once.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from campaigns import campaign_if
from log.standing_logs import standing

from fencepost.ledger import errors
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.log.chain import Chain, Position
from fencepost.log.errors import NotLeaderError
from fencepost.log.log import Log
from fencepost.log.metadata import LogNodes
from fencepost.log.roles.leader import Leader, LeaderSettings
from fencepost.log.rules import ALL, Protections
from fencepost.log.writer import LogWriter
from fencepost.protocols.log.conformance import LogConformance
from fencepost.traces import read
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator


class Unheard:
    """Entries that reach their bookies without anybody learning it. They may be in the ledger when it is closed."""

    def confirm(self, ledger: int, first: int, number: int) -> None:
        pass

    def fail(self, error: errors.StoreError, number: int) -> None:
        pass


class Storm:
    """Two writers that append numbers, and injected faults."""

    def __init__(self, logs: list[Log], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs = logs
        self.random = random.Random(seed)
        self.acknowledged: dict[int, Position] = {}
        self.absent: set[int] = set()
        """The entries that were reported as not being in the log."""
        self.order: dict[str, list[int]] = {}
        self.next = 0
        self.is_over = False
        self.losses = 0
        """The number of answers to changes of the list that will be lost."""
        self.failures = 0
        """The number of ledgers that will fail."""
        self.failed: set[int] = set()
        submit, write = LedgerWriter.submit_many, LogNodes.write

        def submit_many(ledger: LedgerWriter, entries: list[bytes], told: Any) -> None:
            if self.failures and ledger.id not in self.failed:
                self.failures -= 1
                self.failed.add(ledger.id)
                some = self.random.randrange(len(entries) + 1)
            else:
                some = 0 if ledger.id in self.failed else len(entries)
            submit(ledger, entries[:some], Unheard() if ledger.id in self.failed else told)
            if ledger.id in self.failed:
                asyncio.get_running_loop().call_soon(told.fail, errors.WriteError("planted"), len(entries))

        async def written(nodes: LogNodes, chain: Chain, version: int) -> int:
            lost = self.losses > 0
            self.losses -= lost
            if lost and self.random.random() < 0.5:  # the request is lost
                raise errors.OutcomeUnknownError("planted")
            made = await write(nodes, chain, version)
            if lost:
                raise errors.OutcomeUnknownError("planted")
            return made

        monkeypatch.setattr(LedgerWriter, "submit_many", submit_many)
        monkeypatch.setattr(LogNodes, "write", written)

    async def append(self, writer: LogWriter, numbers: list[int]) -> None:
        try:
            if len(numbers) == 1:
                positions = [await writer.append(b"%d" % numbers[0])]
            else:
                positions = await writer.append_many(b"%d" % number for number in numbers)
        except NotLeaderError as error:
            if "not known" not in str(error) and len(numbers) == 1:
                self.absent.add(numbers[0])
            return
        self.acknowledged |= dict(zip(numbers, positions, strict=True))

    async def write(self, log: Log, name: str) -> None:
        """Append while leading, and stand again when that ends."""
        async with log.writer(name=name, ledger_entries=self.random.choice((0, 3, 20))) as writer:
            appends: set[asyncio.Task[None]] = set()
            while not self.is_over:
                leading = asyncio.create_task(writer.lead())
                while not leading.done() and not self.is_over:
                    await asyncio.sleep(0.005)
                if self.is_over:
                    leading.cancel()
                    break
                count = self.random.choice((1, 1, 1, 8))
                numbers = [*range(self.next, self.next + count)]
                self.next += count
                self.order.setdefault(name, []).extend(numbers)
                appends.add(asyncio.create_task(self.append(writer, numbers)))
                await asyncio.sleep(self.random.choice((0, 0, 0, 0.005)))
            await asyncio.gather(*appends)

    async def trouble(self) -> None:
        """Depose leaders, fence their ledgers, make ledgers fail and lose answers."""
        log = self.logs[-1]
        for _ in range(25):
            await asyncio.sleep(self.random.choice((0, 0.01, 0.05)))
            match self.random.randrange(5):
                case 0:
                    await log.store.metadata.delete_node(f"logs/{log.name}/leader")
                case 1:
                    chain = await log.chain()
                    if chain.last is not None:
                        await log.store.recover_ledger(chain.last)
                case 2:
                    self.failures += 1
                case 3:
                    self.losses += 1
                case 4:
                    await log.trim(keep=1000)
        self.is_over = True


@pytest.mark.parametrize("seed", campaign_if(lambda seed: seed < 2, range(4)))
async def test_what_is_acknowledged_is_there_once_and_in_order(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with standing(tmp_path) as cluster:
        logs = [(await cluster.connect(tmp_path / "traces")).log("storm") for _ in range(3)]
        await logs[0].create()
        storm = Storm(logs, seed, monkeypatch)
        followed: list[tuple[Position, int]] = []

        async def follow() -> None:
            async for entry in logs[2].reader():
                followed.append((entry.position, int(entry.data)))

        following = asyncio.create_task(follow())
        await asyncio.gather(storm.write(logs[0], "one"), storm.write(logs[1], "two"), storm.trouble())
        monkeypatch.undo()
        await logs[2].seal()
        for link in (await logs[2].chain()).links:  # a reader would wait for the end of one that is open
            assert (await logs[2].store.ledger_metadata(link.ledger)).status is LedgerStatus.CLOSED, (
                f"ledger {link.ledger} is open"
            )
        await following
        there = [(entry.position, int(entry.data), entry.time) async for entry in logs[2].reader(follow=False)]
        assert [(position, number) for position, number, _ in there] == followed, (
            "a reader who followed has seen just that"
        )
        numbers = [number for _, number, _ in there]
        assert len({*numbers}) == len(numbers), "nothing is there twice"
        assert (
            dict(zip(numbers, (position for position, _, _ in there), strict=True)).items()
            >= storm.acknowledged.items()
        )
        assert not storm.absent & {*numbers}, "an append that is said to be not in the log is not"
        for name, appended in storm.order.items():
            mine = [number for number in numbers if number in {*appended}]
            assert mine == [number for number in appended if number in {*mine}], f"{name} has appended in another order"
        times = [time for _, _, time in there]
        assert times == sorted(times) and len(storm.acknowledged) > 0
        links = (await logs[2].chain()).links
        ledgers = [ledger async for ledger in logs[2].store.list_ledgers()]
        assert {link.ledger for link in links} <= {*ledgers}
    traces = Traces(read(tmp_path / "traces"), kind=LogConformance.subjects, heeds=LogConformance.heeds)
    (trace,) = traces.names()
    verdict = Validator(LogConformance).validate(trace[1], traces.events(trace))
    assert verdict.accepted and verdict.steps > 0, verdict.problem or verdict.refusals


@pytest.mark.parametrize("name", ["last_ledger_is_closed", "last_entry_decides"])
async def test_a_storm_tells_a_protection_that_is_off(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first fault makes readers wait. The second is noticed only when bookies have entries that no writer knows to
    be stored.
    """
    begin = Leader.__init__

    def unprotected(
        leader: Leader, settings: LeaderSettings, protections: Protections = ALL, traces: bool = False
    ) -> None:
        begin(leader, settings, protections.replace(**{name: False}), traces)

    monkeypatch.setattr(Leader, "__init__", unprotected)
    with pytest.raises(AssertionError, match="is open|there twice|the trace says|accepted=False"):
        for seed in range(3):
            with monkeypatch.context() as each:
                await test_what_is_acknowledged_is_there_once_and_in_order(tmp_path / str(seed), seed, each)
