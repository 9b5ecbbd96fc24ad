"""The programs of a world's clients. They use the library like any client, and report to the judges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

from fencepost.api.client import Client
from fencepost.errors import FencepostError
from fencepost.ledger.autorecovery.process import AutoRecovery
from fencepost.ledger.autorecovery.settings import RecoverySettings
from fencepost.ledger.bookie.metrics import Metrics
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.driver import Driver
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.errors import ClusterExistsError, NoSuchEntryError, NoSuchLedgerError, StoreError
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.log.chain import EARLIEST
from fencepost.log.errors import LogExistsError
from fencepost.log.log import Log
from fencepost.world.case import CLIENTS, PASSWORD
from fencepost.world.environment import Surroundings
from fencepost.world.judge import LedgerJudge, LogHistory
from fencepost.world.session import SimMetadataClient

RECOVERY = RecoverySettings(
    auditor_periodic_bookie_check_interval=5,
    auditor_periodic_check_interval=7,
    open_ledger_rereplication_grace_period=300,
    rereplication_entry_batch_size=4,
    rw_rereplicate_backoff_ms=200,
    lock_release_of_failed_ledger_grace_period=1_000,
)

PAUSE = 0.05
"""Seconds before a failed operation is retried."""


class SimDriver(Driver):
    """A client's driver that reports unexpected errors to the world."""

    judge: LedgerJudge
    failed_by: Callable[[Exception], None]

    def give_up(self, error: Exception) -> None:
        """See :class:`.Driver`."""
        self.failed_by(error)
        super().give_up(error)


class JudgedWriter(LedgerWriter):
    """A writer that reports its appends and confirmations to a judge."""

    _driver: SimDriver

    def _send(self, batch: Any, entries: list[bytes]) -> None:
        for data in entries:
            self._driver.judge.appended(self.id, bytes(data))
        super()._send(batch, entries)

    def _entries_confirmed(self, confirmed: Any) -> None:
        for entry_id in range(self._last_confirmed + 1, confirmed.entry_id + 1):
            self._driver.judge.acknowledged(self.id, entry_id, entry_id)
        super()._entries_confirmed(confirmed)


class JudgedClient(Client):
    """A client whose ledgers are judged."""

    writers = JudgedWriter


Program = Callable[[JudgedClient, Random], Coroutine[Any, Any, None]]
"""What a client does, with its own random numbers. It is repeated, whichever Fencepost error it ends with."""


class Programs:
    """The programs. Each is a coroutine that a process runs, again after a crash."""

    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.connected = 0
        """The number of clients that have connected, for their names in traces."""

    async def connect(self, name: str) -> JudgedClient:
        """Connect a client, however long it takes."""
        world = self.world
        while True:
            metadata = None
            try:
                metadata = await SimMetadataClient.connect(
                    world.uri,
                    session_timeout=CLIENTS.session_timeout,
                    connect_timeout=5.0,
                    operation_timeout=CLIENTS.metadata_timeout,
                )
                await metadata.instance_id()
                self.connected += 1
                trace: Any = world.trace_of(f"{name} {self.connected}", "client")
                driver = SimDriver(metadata, world.plan.clients, trace)
                driver.judge, driver.failed_by = world.judge, lambda error: world.raised(name, error)
                driver._stops.append(metadata.listen(driver._session_changed))
                driver._stops.append(await metadata.watch_bookies(driver._bookies_changed))
                return JudgedClient(driver)
            except StoreError:
                if metadata is not None:
                    await metadata.close()
                await asyncio.sleep(PAUSE)

    def client(self, name: str, does: Program) -> Callable[[], Coroutine[Any, Any, None]]:
        """The program of a client that repeats something until the faults are over, despite failures."""
        starts = 0

        async def program() -> None:
            nonlocal starts
            starts += 1
            random = self.world.plan.stream(f"{name} {starts}")
            async with await self.connect(name) as client:
                while not self.world.has_healed:
                    try:
                        await does(client, random)
                    except FencepostError as error:
                        self.world.happened(name, f"is told: {type(error).__name__}: {error}")
                    await asyncio.sleep(PAUSE * random.random())

        return program

    # -- the start -----------------------------------------------------------------------------------------------------

    async def initialise(self) -> None:
        """Create the cluster and its logs, and start the other clients."""
        world, case = self.world, self.world.plan
        while True:
            try:
                metadata = await SimMetadataClient.connect(world.uri, session_timeout=2.0, connect_timeout=10.0)
                with suppress(ClusterExistsError):
                    await metadata.initialise()
                groups = dict(case.placement.groups)
                for bookie, rack in case.placement.racks:
                    await metadata.set_rack(bookie, rack, groups.get(bookie))
                await metadata.close()
                break
            except StoreError:
                await asyncio.sleep(PAUSE)
        async with await self.connect("operator") as client:
            for history in world.histories:
                while True:
                    try:
                        await Log(client, history.name).create(
                            ensemble=case.ensemble,
                            write_quorum=case.write_quorum,
                            ack_quorum=case.ack_quorum,
                            digest=case.digest,
                        )
                        break
                    except LogExistsError:
                        break
                    except StoreError:
                        await asyncio.sleep(PAUSE)
        world.begin()

    # -- ledgers -------------------------------------------------------------------------------------------------------

    async def own(self, client: JudgedClient, random: Random) -> None:
        """Write a ledger in bursts, and perhaps close it."""
        world, case = self.world, self.world.plan
        ledger = await client.create_ledger(
            ensemble=case.ensemble,
            write_quorum=case.write_quorum,
            ack_quorum=case.ack_quorum,
            digest=case.digest,
            password=PASSWORD,
            in_flight=(1, 3, 100)[int(random.random() * 3)],
            explicit_lac_interval=0.02 if random.random() < 0.5 else 0,
        )
        world.happened("ledgers", f"{ledger.id} is created")
        world.ledgers.append(ledger.id)
        try:
            for burst in range(1 + int(random.random() * 8)):
                count = 1 + int(random.random() ** 2 * 20)
                entries = [b"%d.%d " % (burst, each) * (1 + int(random.random() ** 6 * 100)) for each in range(count)]
                if random.random() < 0.5:
                    await ledger.append_many(entries)
                else:
                    await asyncio.gather(*map(ledger.append, entries))
                await asyncio.sleep(random.random() ** 2 * 0.2)
            if random.random() < 0.6:
                last = await ledger.close()
                world.judge.ended(client_name(client), ledger.id, last)
        finally:
            ledger.release()

    def _some_ledger(self, random: Random) -> int | None:
        """One of the existing ledgers, preferably a recent one."""
        ledgers = self.world.ledgers
        return ledgers[-1 - int(random.random() ** 2 * len(ledgers))] if ledgers else None

    async def recover(self, client: JudgedClient, random: Random) -> None:
        """Recover a ledger, whether its writer lives or not."""
        await asyncio.sleep(random.random() * 0.5)
        ledger = self._some_ledger(random)
        if ledger is not None:
            metadata = await client.recover_ledger(ledger, password=PASSWORD)
            self.world.judge.ended(client_name(client), ledger, metadata.last_entry)

    async def follow(self, client: JudgedClient, random: Random) -> None:
        """Read a ledger while it is written, for a while."""
        await asyncio.sleep(random.random() * 0.2)
        ledger = self._some_ledger(random)
        if ledger is None:
            return
        who, judge = client_name(client), self.world.judge
        async with client.open_ledger(ledger, password=PASSWORD) as reader:
            before = reader.last_add_confirmed
            judge.learnt_lac(who, ledger, await reader.read_last_add_confirmed(), before)
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    async for entry in reader.tail(0):
                        judge.read(who, ledger, entry.id, entry.data)

    # -- logs ----------------------------------------------------------------------------------------------------------

    def write_log(self, name: str, history: LogHistory) -> Program:
        """A program that appends to a log while it leads it."""

        async def write(client: JudgedClient, random: Random) -> None:
            log = Log(client, history.name, PASSWORD)
            entries = (0, 0, 3, 20)[int(random.random() * 4)]
            async with log.writer(ledger_entries=entries, in_flight=20, name=name) as writer:
                own = f"{name}x{len(history.writers)}"
                history.writers.append(own)
                history.leader = name
                self.world.happened(name, f"leads {history.name} as {own}")
                count, appends = 0, list[asyncio.Task[bool]]()
                pause = (0.005, 0.02, 0.1)[int(random.random() * 3)]
                for _ in range(1 + int(random.random() * 60)):
                    some = [f"{own}-{count + each}" for each in range(1 + int(random.random() ** 2 * 8))]
                    count += len(some)
                    appends += (asyncio.create_task(self._append(writer, history, each)) for each in some)
                    if random.random() < 0.2:
                        await asyncio.gather(*appends)
                    await asyncio.sleep(random.random() * pause)
                    if self.world.has_healed or any(each.done() and not each.result() for each in appends):
                        break
                await asyncio.gather(*appends)

        return write

    async def _append(self, writer: Any, history: LogHistory, name: str) -> bool:
        history.appends[name] = frozenset(history.acknowledged)
        try:
            history.acknowledged[name] = await writer.append(name.encode())
        except StoreError as error:
            history.failed[name] = "is not known" not in str(error)
            return False
        return True

    def read_log(self, name: str, history: LogHistory) -> Program:
        """A program that reads a log from its beginning, repeatedly."""

        async def read(client: JudgedClient, random: Random) -> None:
            found = history.readers[f"{name} {len(history.readers)}"] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5 + random.random()):
                    async for entry in Log(client, history.name, PASSWORD).reader(at=EARLIEST):
                        found.append((entry.position, entry.data.decode()))

        return read

    # -- auto-recovery -------------------------------------------------------------------------------------------------

    def replicate(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        """Auto-recovery, as it runs beside a bookie."""

        async def program() -> None:
            while True:
                with suppress(StoreError):
                    async with await self.connect(name) as client:
                        recovery = AutoRecovery(client, name, RECOVERY, Metrics())
                        await recovery.prepare()
                        await recovery.run()
                await asyncio.sleep(PAUSE)

        return program

    # -- the end -------------------------------------------------------------------------------------------------------

    async def audit(self) -> None:
        """Close and read everything, and wait until no ledger is on a bookie that is gone."""
        while not all(user.is_done for user in self.world.users):
            await asyncio.sleep(PAUSE)
        async with await self.connect("audit") as client:
            for history in self.world.histories:
                await self._until_done(lambda history=history: self._write_last(client, history))  # type: ignore[misc]
                await self._until_done(lambda history=history: self._read_log(client, history))  # type: ignore[misc]
            await self._until_done(lambda: self._read_ledgers(client))
            await self._until_done(lambda: self._await_replicas(client))

    async def _until_done(self, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await step()
                return
            except (StoreError, TimeoutError) as error:
                self.world.happened("audit", f"is told: {type(error).__name__}: {error}")
                await asyncio.sleep(PAUSE)

    async def _write_last(self, client: JudgedClient, history: LogHistory) -> None:
        """Append with one more writer, after all faults."""
        async with asyncio.timeout(10.0), Log(client, history.name, PASSWORD).writer(name="audit") as writer:
            own = f"auditx{len(history.writers)}"
            history.writers.append(own)
            for number in range(3):
                if not await self._append(writer, history, f"{own}-{number}"):
                    raise TimeoutError("the last writer cannot append")

    async def _read_log(self, client: JudgedClient, history: LogHistory) -> None:
        found = []
        async for entry in Log(client, history.name, PASSWORD).reader(at=EARLIEST, follow=False):
            found.append((entry.position, entry.data.decode()))
        self.world.judge_log(history, found)

    async def _read_ledgers(self, client: JudgedClient) -> None:
        async for ledger in client.list_ledgers():
            await self._read_ledger(client, ledger)

    async def _read_ledger(self, client: JudgedClient, ledger: int) -> None:
        judge, entry_id = self.world.judge, 0
        with suppress(NoSuchLedgerError):
            password = (await client.ledger_metadata(ledger)).password or b""
            metadata = await client.recover_ledger(ledger, password=password)
            judge.ended("audit", ledger, metadata.last_entry)
            async with client.open_ledger(ledger, password=password) as reader:
                try:
                    for entry_id in range(metadata.last_entry + 1):
                        judge.read("audit", ledger, entry_id, await reader.read_entry(entry_id))
                except NoSuchEntryError:
                    judge.missing("audit", ledger, entry_id)
                    raise

    async def _await_replicas(self, client: JudgedClient) -> None:
        """Wait until no ledger names a bookie that is gone forever."""
        async for ledger, metadata in client.metadata.all_metadata():
            left = _bookies_of(metadata) & self.world.gone
            if left:
                raise TimeoutError(f"ledger {ledger} is still on {', '.join(sorted(left))}")
            if metadata.status is not LedgerStatus.CLOSED:
                raise TimeoutError(f"ledger {ledger} is {metadata.status.value}")


def client_name(client: LedgerClient) -> str:
    """The name of a client's process."""
    loop: Any = client.driver.loop
    return str(loop.name)


def _bookies_of(metadata: LedgerMetadata) -> set[str]:
    return {str(bookie) for fragment in metadata.fragments for bookie in fragment.ensemble}
