"""Faults inside the client: no caller waits forever."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ledger.client.standins import Cluster
from ledger.processes import cluster as processes
from log.standing_logs import SETTINGS, standing
from patience import PATIENCE

import fencepost
from fencepost.api.client import Client
from fencepost.ledger import errors
from fencepost.ledger.client.calls import Calls
from fencepost.ledger.client.connection import Connection
from fencepost.ledger.client.driver import Actor, Driver
from fencepost.ledger.client.reading import Reading, Readings
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.roles.reader import Reader
from fencepost.ledger.roles.recoverer import Recoverer
from fencepost.ledger.roles.writer import Writer
from fencepost.log.metadata import Election, LogNodes
from fencepost.log.roles.leader import Leader
from fencepost.log.writer import LogWriter

SOON = 60.0
"""Seconds after which a caller counts as waiting forever, on a slow machine too."""

OF_LEDGERS: list[tuple[type, str]] = [
    (Writer, "receive"),
    (Reader, "receive"),
    (Recoverer, "receive"),
    (Actor, "_send"),
    (Actor, "_operate"),
    (Calls, "_result"),
    (LedgerWriter, "_entries_confirmed"),
    (LedgerWriter, "_confirm"),
    (LedgerWriter, "_push"),
    (LedgerWriter, "_failed"),
    (Connection, "received"),
    (Connection, "send"),
    (Connection, "_flush"),
    (Connection, "_connect"),
    (Connection, "_sweep"),
    (Driver, "address_of"),
    (Driver, "set_timer"),
    (Driver, "disconnected"),
    (Readings, "_report"),
    (Readings, "_report_answers"),
    (Readings, "_send"),
    (Readings, "_over"),
    (Reading, "entries_read"),
]

OF_LOGS: list[tuple[type, str]] = [
    (Leader, "receive"),
    (LogWriter, "_read_chain"),
    (LogWriter, "_write_chain"),
    (LogWriter, "_create_ledger"),
    (LogWriter, "_write"),
    (LogWriter, "_acknowledged"),
    (LogWriter, "_confirm"),
    (Election, "stand"),
    (LogNodes, "write"),
]


@pytest.fixture(autouse=True, scope="module")
def _no_garbage_is_left() -> Iterator[None]:
    """Tasks that ended with a planted fault log it when they are collected. While a later test parses Python, CPython
    3.11 would raise ``SystemError`` for that.
    """
    yield
    gc.collect()


def plant(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, before: int) -> None:
    """Make a function raise after a number of calls, whenever they come."""
    real, called = getattr(owner, name), itertools.count(1)

    def raise_or_not() -> None:
        if next(called) > before:
            raise ZeroDivisionError(f"planted in {owner.__name__}.{name}")

    # of the same module, as what is in a traceback says whose fault it is
    made: dict[str, Any] = {"__name__": owner.__module__, "real": real, "raise_or_not": raise_or_not}
    exec("def planted(*given, **options):\n    raise_or_not()\n    return real(*given, **options)", made)
    monkeypatch.setattr(owner, name, made["planted"])


async def outcome(work: Awaitable[Any]) -> Exception | None:
    """The outcome, within the time limit."""
    try:
        await asyncio.wait_for(work, SOON)
    except TimeoutError:
        raise AssertionError("somebody waits for ever") from None
    except (errors.StoreError, ZeroDivisionError) as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("owner", "name"), OF_LEDGERS)
async def test_a_fault_in_the_client_reaches_all_who_wait(
    cluster: Cluster, owner: type, name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(store: Any, known: int) -> None:
        async with store.create_ledger() as ledger:
            await asyncio.gather(*(ledger.append(b"x") for _ in range(20)))
            await ledger.append_many([b"y"] * 50)
        async with store.open_ledger(known) as reader:
            assert len([entry async for entry in reader.read()]) == 20
            await reader.read_entry(3)
        await store.recover_ledger(known)

    other = await cluster.connect()
    async with other.create_ledger() as ledger:
        await ledger.append_many([b"z"] * 20)
    store = await cluster.connect(request_timeout=0.5)
    with monkeypatch.context() as planting:
        plant(planting, owner, name, random.Random(f"{owner}{name}{seed}").randrange(12) * seed)
        await asyncio.gather(*(outcome(use(store, ledger.id)) for _ in range(3)))
    if store.driver.failure is not None:
        for later in (store.create_ledger().opened(), store.list_ledgers().__anext__(), store.bookies()):
            with pytest.raises(errors.ClientFailedError, match="planted in.*; connect anew"):
                await later


async def test_a_fault_in_the_writer_of_a_log_reaches_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(log: Any) -> None:
        async with log.writer(ledger_entries=3, wait=5) as writer:
            await asyncio.gather(*(writer.append(b"x") for _ in range(10)))

    async with standing(tmp_path) as cluster:
        first = await cluster.connect()
        for owner, name in OF_LOGS:
            log = first.log(name)
            await log.create()
            store = await cluster.connect()
            with monkeypatch.context() as planting:
                plant(planting, owner, name, 0)
                assert await outcome(use(store.log(log.name))) is not None, (owner, name)


async def test_an_entry_that_bookies_do_not_take_ends_its_writer(tmp_path: Path) -> None:
    async with standing(tmp_path, bookies=2) as cluster:
        settings = msgspec.structs.replace(SETTINGS, frame_limit=7 << 20)
        async with await Client.connect(cluster.uri, settings) as store:
            ledger = await store.create_ledger(ensemble=2)
            assert await ledger.append(b"one") == 0
            with pytest.raises(errors.UnauthorizedAccessError, match="larger than they take .nettyMaxFrameSizeBytes."):
                await ledger.append(bytes(6 << 20))
            assert len(ledger.metadata.fragments) == 1, "no bookie has failed"


def test_a_client_does_not_survive_a_fork(tmp_path: Path) -> None:
    with processes(tmp_path) as (uri, _), fencepost.connect(uri) as store, store.create_ledger() as ledger:
        ledger.append(b"one")
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            said = []
            for work in (lambda: ledger.append(b"two"), store.bookies, lambda: [*store.list_ledgers()]):
                try:
                    work()
                except errors.ClientFailedError as error:
                    said.append(str(error))
            store.close()
            os.write(writing, "\n".join(said).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read().splitlines()
        os.waitpid(child, 0)
        assert len(said) == 3 and {*said} == {
            "this client belongs to the process from which this one was forked: connect anew after a fork"
        }
        assert ledger.append(b"two") == 1


async def test_an_asynchronous_client_does_not_survive_a_fork_either(cluster: Cluster) -> None:
    store = await cluster.connect()
    async with store.create_ledger() as ledger:
        store.driver._process += 1  # as if it were the parent's
        for work in (ledger.append(b"x"), ledger.append_many([b"x"]), store.bookies()):
            with pytest.raises(errors.ClientFailedError, match="connect anew after a fork"):
                await asyncio.wait_for(work, PATIENCE)
        store.driver._process -= 1
        assert await ledger.append(b"x") == 0
