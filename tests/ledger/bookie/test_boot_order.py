"""The order of the boot of a bookie that may have lost something. Each step relies on the one before."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from ledger.bookie.serving import add
from ledger.bookie.standing_bookies import bookie

from fencepost.errors import SystemFailure
from fencepost.ledger import messages as m
from fencepost.ledger.bookie import cookies, process
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.bookie.repair import Repair
from fencepost.ledger.bookie.server import Server
from fencepost.ledger.disk.journal_files import JournalFiles
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.roles.bookie import Ledger
from fencepost.ledger.rules.boot import CLEAN_END, Run
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, closed

OPEN, CLOSED, ELSEWHERE = 1, 2, 3


async def test_a_start_that_fails_leaves_a_clean_end_what_it_was(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has begun a file of the journal, and confirmed nothing."""
    directories = Directories(str(tmp_path / "journal"), str(tmp_path / "ledgers"))

    def fails(self: process._Process) -> None:
        raise SystemFailure("the disk is full")

    async with bookie(tmp_path, uri):
        pass
    with monkeypatch.context() as patched, pytest.raises(SystemFailure, match="full"):
        patched.setattr(process._Process, "_begin_run", fails)
        async with bookie(tmp_path, uri):
            pass
    assert directories.last_run == CLEAN_END


async def lose(tmp_path: Path, uri: str) -> tuple[str, int, Directories]:
    """A bookie that had three ledgers and has lost its entries. One of the ledgers has moved to other bookies in the
    meantime. Returns its id, its port and its directories.
    """
    async with bookie(tmp_path, uri) as running, await MetadataClient.connect(uri) as client:
        bookie_id = running.bookie_id
        connection = await running.client()
        for ledger in (OPEN, CLOSED, ELSEWHERE):
            assert (await connection.ask(add(ledger, 0))).code is Code.OK
        ensembles = {OPEN: bookie_id, CLOSED: bookie_id, ELSEWHERE: "another:1"}
        for ledger, each in ensembles.items():
            metadata = LedgerMetadata(1, 1, 1, (Fragment(0, (each,)),))
            await client.create_ledger(ledger, closed(metadata, 0, 4) if ledger == CLOSED else metadata)
    shutil.rmtree(tmp_path / "ledgers")
    return (
        bookie_id,
        int(bookie_id.rpartition(":")[2]),
        Directories(str(tmp_path / "journal"), str(tmp_path / "ledgers")),
    )


async def test_ledgers_are_marked_and_the_run_is_noted_before_anybody_is_served(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[dict[int, Ledger], bool, Run | None, bool]] = []
    listen = Server.listen

    async def listens(self: Server, bound: socket.socket) -> None:
        run_of = Directories(str(tmp_path / "journal"), str(tmp_path / "ledgers")).last_run
        stamped = [cookies.read(str(tmp_path / name)) for name in ("journal", "ledgers")]
        is_whole = all(each.cookie is not None and each.is_under_repair for each in stamped)
        found.append((dict(self.role.ledgers), self.role.synced == self.role.position, run_of, is_whole))
        await listen(self, bound)

    async def never(self: Repair) -> None:
        await asyncio.Event().wait()

    _, port, _ = await lose(tmp_path, uri)
    monkeypatch.setattr(Server, "listen", listens)
    monkeypatch.setattr(Repair, "run", never)  # its recovery would read the ledger with the password of the metadata
    settings: dict[str, Any] = {"bookiePort": port, "dataIntegrityStampMissingCookies": True}
    async with bookie(tmp_path, uri, journalWriteData=False, **settings) as running:
        ((ledgers, is_durable, run_of, is_whole),) = found
        marks = {ledger: (known.fenced, known.limbo) for ledger, known in ledgers.items()}
        assert marks == {OPEN: (True, True), CLOSED: (True, False)}
        assert (is_durable, run_of, is_whole) == (True, Run(journals_adds=False), True)
        connection = await running.client()
        assert (await connection.ask(m.ReadEntry(OPEN, 0))).code is Code.UNKNOWN_LEDGER_STATE
        assert (await connection.ask(add(CLOSED, 1))).code is Code.FENCED
        assert (await connection.ask(add(OPEN, 0, recovery=True))).code is Code.OK
        assert (await connection.ask(m.ReadEntry(OPEN, 0))).code is Code.OK


async def test_marks_of_many_ledgers_share_syncs(tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledgers = range(10, 400)
    syncs: list[int] = []
    sync, mark = JournalFiles.sync, Repair.mark_ledgers

    def counted(self: JournalFiles) -> None:
        syncs.append(1)
        sync(self)

    async def marks(self: Repair) -> None:
        syncs.clear()
        await mark(self)
        syncs[:] = [len(syncs)]

    bookie_id, port, _ = await lose(tmp_path, uri)
    async with await MetadataClient.connect(uri) as client:
        for ledger in ledgers:
            await client.create_ledger(ledger, LedgerMetadata(1, 1, 1, (Fragment(0, (bookie_id,)),)))
    monkeypatch.setattr(JournalFiles, "sync", counted)
    monkeypatch.setattr(Repair, "mark_ledgers", marks)
    settings: dict[str, Any] = {"bookiePort": port, "dataIntegrityStampMissingCookies": True}
    async with bookie(tmp_path, uri, **settings) as running:
        assert syncs[0] < len(ledgers) / 4
        connection = await running.client()
        for ledger in (ledgers[0], ledgers[-1]):
            assert (await connection.ask(m.ReadEntry(ledger, 0))).code is Code.UNKNOWN_LEDGER_STATE


async def test_cookies_are_written_only_after_all_ledgers_are_marked(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in between leaves the bookie as one that has lost a directory."""

    async def fails(self: Repair) -> None:
        raise SystemFailure("the test ends it here")

    bookie_id, port, directories = await lose(tmp_path, uri)
    settings: dict[str, Any] = {"bookiePort": port, "dataIntegrityStampMissingCookies": True}
    async with await MetadataClient.connect(uri) as client:
        before = await cookies.in_metadata(client, bookie_id)
        with monkeypatch.context() as patched, pytest.raises(SystemFailure, match="ends it here"):
            patched.setattr(Repair, "mark_ledgers", fails)
            async with bookie(tmp_path, uri, **settings):
                pass
        assert await cookies.in_metadata(client, bookie_id) == before
        assert cookies.read(directories.ledgers).cookie is None
        assert directories.last_run is None  # it was lost with the directory
        with pytest.raises(SystemFailure, match="lost"):
            async with bookie(tmp_path, uri, bookiePort=port):
                pass
        async with bookie(tmp_path, uri, **settings) as running:
            assert (await (await running.client()).ask(m.ReadEntry(OPEN, 0))).code is Code.UNKNOWN_LEDGER_STATE
        after = await cookies.in_metadata(client, bookie_id)
        assert after is not None and before is not None and after.token != before.token


async def test_a_start_that_was_cut_short_before_anything_was_marked_is_done_again(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in a directory without a cookie that does not say that there is a repair, or the next start would take
    it for another's.
    """
    cuts: list[tuple[object, str]] = [(Repair, "begin"), (Server, "open"), (Repair, "mark_ledgers")]
    _, port, directories = await lose(tmp_path, uri)
    settings: dict[str, Any] = {"bookiePort": port, "dataIntegrityStampMissingCookies": True}
    for where, step in cuts:

        def fails(self: object, *arguments: object) -> None:
            raise SystemFailure("the test ends it here")

        with monkeypatch.context() as patched, pytest.raises(SystemFailure, match="ends it here"):
            patched.setattr(where, step, fails)
            async with bookie(tmp_path, uri, **settings):
                pass
    async with bookie(tmp_path, uri, **settings) as running:
        assert (await (await running.client()).ask(m.ReadEntry(OPEN, 0))).code is Code.UNKNOWN_LEDGER_STATE
        assert all(each.cookie is not None for each in directories.stamped())


async def test_what_no_other_bookie_has_stays_in_limbo_for_good(tmp_path: Path, uri: str) -> None:
    """The only copy of a closed ledger and of an open one is lost. The bookie never says that there were no entries."""
    _, port, directories = await lose(tmp_path, uri)
    settings: dict[str, Any] = {"bookiePort": port, "dataIntegrityStampMissingCookies": True}
    for _ in range(2):
        async with bookie(tmp_path, uri, **settings) as running:
            connection = await running.client()
            assert (await connection.ask(m.ReadEntry(OPEN, 0))).code is Code.UNKNOWN_LEDGER_STATE
            assert all(each.is_under_repair for each in directories.stamped())
