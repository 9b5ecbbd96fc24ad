"""A bookie that may have lost entries: its ledgers are in limbo while it serves, until they are whole again (BP-46)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from campaigns import campaign_if
from ledger.bookie.standing_bookies import bookie, started
from patience import PATIENCE, eventually

import fencepost
from fencepost.errors import SystemFailure
from fencepost.ledger import messages as m
from fencepost.ledger.bookie import cookies
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.bookie.repair import Repair
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.rules.boot import CLEAN_END, Run
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import DigestType, LedgerStatus


class NotStartedError(AssertionError):
    """A bookie did not serve: its exit code and its output."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        _, self.said = running.communicate()
        self.status = running.returncode
        super().__init__(f"{self.status}: {self.said}")


class Killable:
    """A bookie in its own process."""

    def __init__(self, directory: Path, uri: str, *settings: str, bookie_id: str = "") -> None:
        of_settings = (word for each in settings for word in ("--set", each))
        self._arguments: tuple[str | Path, ...] = (directory, "--metadata", uri, *of_settings)
        self._exits = contextlib.ExitStack()
        self.bookie_id = bookie_id

    def start(self) -> None:
        port = self.bookie_id.rpartition(":")[2] or "0"
        self._running = self._exits.enter_context(started("bookie", *self._arguments, "--port", port))
        assert self._running.stdout is not None
        said = self._running.stdout.readline()
        if "serves" not in said:
            raise NotStartedError(self._running)
        self.bookie_id = said.split()[1]

    def kill(self) -> None:
        self._running.kill()
        self._running.communicate()

    def end(self) -> subprocess.Popen[str]:
        self._running.send_signal(signal.SIGTERM)
        self._running.communicate(timeout=PATIENCE)
        return self._running

    def close(self) -> None:
        self._exits.close()


@contextlib.contextmanager
def bookies(tmp_path: Path, uri: str, *settings: str, count: int = 3) -> Iterator[list[Killable]]:
    """Serving bookies."""
    several = [Killable(tmp_path / str(number), uri, *settings) for number in range(count)]
    try:
        for each in several:
            each.start()
        yield several
    finally:
        for each in several:
            each.close()


async def code_of(store: LedgerClient, bookie_id: str, request: m.Request) -> Code:
    """The code of a bookie's answer, once there is a connection to it again."""
    response: m.Response = await eventually(lambda: store.ask(bookie_id, request), f"an answer to {request}")
    return response.code


async def entries_of(store: LedgerClient, bookie_id: str, ledger: int) -> Any:
    """The code and the runs of entries in a bookie's list of a ledger."""
    response = await eventually(lambda: store.ask(bookie_id, m.ListEntries(ledger)), f"the entries of ledger {ledger}")
    return response.code, response.runs


async def until_whole(store: LedgerClient, bookie_id: str, ledger: int, runs: Any) -> None:
    async def is_whole() -> bool:
        return bool(await entries_of(store, bookie_id, ledger) == (Code.OK, runs))

    await eventually(is_whole, f"entries {runs} of ledger {ledger}")


async def until_gone(store: LedgerClient, bookie_id: str) -> None:
    """Wait until a bookie's session has ended."""

    async def is_gone() -> bool:
        return bookie_id not in (await store.bookies()).writable

    await eventually(is_gone, "the session of the bookie to end")


WITHOUT_JOURNAL = ("journalWriteData=false", "flushInterval=100000000")


async def test_a_bookie_without_journal_that_is_killed_gets_back_what_it_lost(tmp_path: Path, uri: str) -> None:
    with bookies(tmp_path, uri, *WITHOUT_JOURNAL) as (first, second, third):
        async with await fencepost.connect(uri) as store:
            closed = await store.create_ledger()
            await closed.append_many([b"x"] * 100)
            await closed.close()
            opened = await store.create_ledger()
            await opened.append_many([b"y"] * 50)
            for other in (second, third):
                other_ids = await entries_of(store, other.bookie_id, opened.id)
                assert other_ids == (Code.OK, ((0, 49),))
            first.kill()
            first.start()
            await until_whole(store, first.bookie_id, closed.id, ((0, 99),))
            await until_whole(store, first.bookie_id, opened.id, ((0, 49),))
            metadata = await store.ledger_metadata(opened.id)
            assert (metadata.status, metadata.last_entry) == (LedgerStatus.CLOSED, 49)


@pytest.mark.campaign
async def test_a_bookie_without_journal_keeps_what_a_recovery_wrote_back_before_the_metadata_name_it(
    tmp_path: Path, uri: str
) -> None:
    """It could not know, when it boots, that it has lost something of such a ledger."""
    ledger, key = 77, b"k" * 20
    entries = {
        entry_id: Digests(DigestType.CRC32C, b"").entry_body(Entry(ledger, entry_id, -1, 2, b"zz"))
        for entry_id in (0, 1)
    }
    with bookies(tmp_path, uri, *WITHOUT_JOURNAL) as (first, _, _):
        async with await fencepost.connect(uri) as store:
            for entry_id, body in entries.items():
                add = m.AddEntry(ledger, entry_id, -1, body, key, recovery=entry_id == 1)
                assert await code_of(store, first.bookie_id, add) is Code.OK
            first.kill()
            first.start()
            assert await entries_of(store, first.bookie_id, ledger) == (Code.OK, ((1, 1),))


async def test_a_ledger_in_limbo_says_nothing_of_what_is_missing_and_takes_no_adds(tmp_path: Path, uri: str) -> None:
    """While the other bookies are down, nothing can be repaired, and no entry is reported as missing."""
    with bookies(tmp_path, uri, *WITHOUT_JOURNAL) as (first, second, third):
        async with await fencepost.connect(uri) as store:
            opened = await store.create_ledger()
            await opened.append_many([b"y"] * 50)
            for each in (first, second, third):
                each.kill()
            first.start()
            key = m.ReadEntry(opened.id, 3)
            assert await code_of(store, first.bookie_id, key) is Code.UNKNOWN_LEDGER_STATE
            assert await code_of(store, first.bookie_id, m.ReadLac(opened.id)) is Code.UNKNOWN_LEDGER_STATE
            first.end()
            first.start()  # a clean end changes nothing about what is missing
            assert await code_of(store, first.bookie_id, key) is Code.UNKNOWN_LEDGER_STATE
            assert (await store.ledger_metadata(opened.id)).status is not LedgerStatus.CLOSED


@pytest.mark.campaign
@pytest.mark.parametrize("settings", [("journalWriteData=true",), WITHOUT_JOURNAL])
async def test_a_bookie_that_has_lost_nothing_repairs_nothing(
    tmp_path: Path, uri: str, settings: tuple[str, ...]
) -> None:
    """A clean end has flushed everything; and with the journal, so has no end at all."""
    with bookies(tmp_path, uri, *settings) as several:
        async with await fencepost.connect(uri) as store:
            opened = await store.create_ledger(ack_quorum=3)
            await opened.append_many([b"y"] * 50)
            for number, each in enumerate(several):
                each.kill() if "true" in settings[0] else each.end()
                before = Directories(*(str(tmp_path / str(number) / name) for name in Directories._fields))
                assert before.last_run == (Run(journals_adds=True) if "true" in settings[0] else CLEAN_END)
                each.start()
            for each in several:
                assert await entries_of(store, each.bookie_id, opened.id) == (Code.OK, ((0, 49),))
            assert (await store.ledger_metadata(opened.id)).status is LedgerStatus.OPEN


@pytest.mark.campaign
async def test_the_journal_may_be_switched_on_after_an_unclean_end_without_it(tmp_path: Path, uri: str) -> None:
    with bookies(tmp_path, uri, *WITHOUT_JOURNAL) as (first, second, third):
        async with await fencepost.connect(uri) as store:
            opened = await store.create_ledger()
            await opened.append_many([b"y"] * 50)
            for each in (first, second, third):
                each.kill()
            with contextlib.closing(Killable(tmp_path / "0", uri)) as again:
                again.start()
                assert await code_of(store, again.bookie_id, m.ReadEntry(opened.id, 3)) is Code.UNKNOWN_LEDGER_STATE


@pytest.mark.parametrize("end", ["kill", pytest.param("end", marks=pytest.mark.campaign)])
@pytest.mark.parametrize("lost", ["ledgers", *campaign_if(bool, ["journal", "journal and ledgers", "all files"])])
async def test_a_bookie_that_has_lost_a_directory_repairs_itself_if_it_is_told_to(
    tmp_path: Path, uri: str, lost: str, end: str
) -> None:
    directory = tmp_path / "0"
    directories = Directories(str(directory / "journal"), str(directory / "ledgers"))
    with bookies(tmp_path, uri) as (first, _, _):
        async with await fencepost.connect(uri) as store:
            closed = await store.create_ledger()
            await closed.append_many([b"x"] * 100)
            await closed.close()
            opened = await store.create_ledger()
            await opened.append_many([b"y"] * 50)
            getattr(first, end)()
            for each in directories:
                if lost == "all files":
                    for path in Path(each, cookies.CURRENT).iterdir():
                        if path.name != cookies.VERSION:
                            path.unlink()
                elif Path(each).name in lost:
                    shutil.rmtree(each)
            with pytest.raises(SystemFailure, match="lost"):
                async with bookie(directory, uri, bookiePort=int(first.bookie_id.rpartition(":")[2])):
                    pass
            token = cookies.from_bytes((await store.metadata.read_cookie(first.bookie_id))[0]).token
            with contextlib.closing(
                Killable(directory, uri, "dataIntegrityStampMissingCookies=true", bookie_id=first.bookie_id)
            ) as again:
                again.start()
                assert again.bookie_id == first.bookie_id
                await until_whole(store, first.bookie_id, closed.id, ((0, 99),))
                await until_whole(store, first.bookie_id, opened.id, ((0, 49),))
                await eventually(
                    lambda: not any(each.is_under_repair for each in directories.stamped()), "the end of the repair"
                )
                again.kill()
            in_metadata = cookies.from_bytes((await store.metadata.read_cookie(first.bookie_id))[0])
            assert in_metadata.token != token
            assert [each.cookie for each in directories.stamped()] == [in_metadata, in_metadata]
            first.start()
            await until_whole(store, first.bookie_id, closed.id, ((0, 99),))


async def test_a_directory_that_was_away_during_a_repair_is_known(tmp_path: Path, uri: str) -> None:
    directory = tmp_path / "0"
    with bookies(tmp_path, uri) as (first, _, _):
        first.kill()
        shutil.move(directory / "ledgers", tmp_path / "away")
        with contextlib.closing(
            Killable(directory, uri, "dataIntegrityStampMissingCookies=true", bookie_id=first.bookie_id)
        ) as again:
            again.start()
            again.end()
        shutil.rmtree(directory / "ledgers")
        shutil.move(tmp_path / "away", directory / "ledgers")
        with pytest.raises(SystemFailure, match="of another time"):
            async with bookie(directory, uri):
                pass


async def test_a_repair_without_events_finds_that_the_storage_has_failed() -> None:
    repair = SimpleNamespace(_events=asyncio.Queue(), server=SimpleNamespace(stopped=True))
    with pytest.raises(SystemFailure, match="storage has failed"):
        await asyncio.wait_for(Repair._next_event(repair), PATIENCE)  # type: ignore[arg-type]


@pytest.mark.parametrize("turns", range(4))
async def test_a_repair_that_is_cancelled_while_an_event_comes_ends(turns: int) -> None:
    events: asyncio.Queue[Any] = asyncio.Queue()
    waiting = asyncio.create_task(Repair._next_event(SimpleNamespace(_events=events)))  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    events.put_nowait("an event")
    for _ in range(turns):
        await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
