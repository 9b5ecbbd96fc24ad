"""A bookie from start to end with a metadata service: cookies, registration, read-only mode, garbage, and a failing
disk.
"""

from __future__ import annotations

import asyncio
import errno
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faulty_files import FaultyFiles
from ledger.bookie.serving import add, entry
from ledger.bookie.standing_bookies import bookie, started
from ledger.metadata.test_metadata_client import end_session

from fencepost.cli import main as cli
from fencepost.errors import SystemFailure
from fencepost.files.folders import OsFiles
from fencepost.ledger import messages as m
from fencepost.ledger.bookie import process
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.errors import NoSuchCookieError
from fencepost.ledger.kernels import ready
from fencepost.ledger.metadata.client import Bookies, MetadataClient
from fencepost.ledger.metadata.registration import BookieServiceInfo, Endpoint
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata


async def registered(client: MetadataClient) -> Bookies:
    return await client.bookies()


# -- start and end ----------------------------------------------------------------------------------------------------


async def test_a_bookie_makes_its_cluster_registers_and_comes_back_with_what_it_had(tmp_path: Path, uri: str) -> None:
    async with await MetadataClient.connect(uri) as client:
        async with bookie(tmp_path, uri) as first:
            connection = await first.client()
            assert (await connection.ask(add(1, 0))).code is Code.OK
            assert await registered(client) == Bookies((first.bookie_id,), ())
            host, port = first.bookie_id.split(":")
            info = await client.bookie_info(first.bookie_id)
            assert info == BookieServiceInfo((Endpoint("bookie", host, int(port)),))
        assert await registered(client) == Bookies((), ())
        async with bookie(tmp_path, uri) as second:
            assert second.bookie_id == first.bookie_id
            connection = await second.client()
            assert (await connection.ask(m.ReadEntry(1, 0))).body == entry(1, 0)


async def test_a_bookie_with_loops_has_what_it_confirmed_and_one_without_them_too(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either writes what the other one reads."""
    for turn, loops in enumerate(("compiled", "plain", "compiled")):
        monkeypatch.setenv(ready.ENVIRONMENT, loops)
        async with bookie(tmp_path, uri) as running:
            connection = await running.client()
            ids = range(100 * turn, 100 * turn + 100)
            connection.send(*(add(1, entry_id) for entry_id in ids))
            assert {(await connection.receive())[1].code for _ in ids} == {Code.OK}
            ids = range(100 * turn + 100)
            connection.send(*(m.ReadEntry(1, entry_id) for entry_id in ids))
            answers = [(await connection.receive())[1] for _ in ids]
            assert {answer.entry_id: answer.body for answer in answers} == {
                entry_id: entry(1, entry_id) for entry_id in ids
            }


async def test_a_bookie_that_was_killed_registers_at_once(tmp_path: Path, uri: str) -> None:
    async with await MetadataClient.connect(uri) as client:
        async with bookie(tmp_path, uri) as first:
            pass
        earlier = await MetadataClient.connect(uri, session_timeout=40)
        await earlier.register_bookie(first.bookie_id, BookieServiceInfo())
        async with asyncio.timeout(20):
            async with bookie(tmp_path, uri) as second:
                info = await client.bookie_info(second.bookie_id)
                assert info is not None and info.endpoints
                await earlier.close()
                assert (await registered(client)).writable == (second.bookie_id,)


async def test_a_directory_of_another_bookie_or_cluster_or_none_is_refused(tmp_path: Path, uri: str) -> None:
    async def refused(directory: Path, uri: str, **settings: Any) -> str:
        with pytest.raises(SystemFailure) as raised:
            async with bookie(directory, uri, **settings):
                pass
        assert "\n" not in str(raised.value)
        return str(raised.value)

    async def refused_by_any(directory: Path, uri: str) -> str:
        with pytest.raises(Exception, match="there is no cluster") as raised:
            async with bookie(directory, uri, bookieId="a"):
                pass
        return str(raised.value)

    async with bookie(tmp_path / "a", uri, bookieId="a"):
        pass
    async with bookie(tmp_path / "b", f"{uri}-other", bookieId="a"):
        pass
    assert "is of the bookie a, and this one is b" in await refused(tmp_path / "a", uri, bookieId="b")
    assert "is of the cluster" in await refused(tmp_path / "b", uri, bookieId="a")
    (tmp_path / "a").rename(tmp_path / "not mounted")
    assert "has been here before" in await refused(tmp_path / "a", uri, bookieId="a")
    (tmp_path / "not mounted").rename(tmp_path / "a")
    moved = {"ledgerDirectories": [str(tmp_path / "elsewhere")]}
    assert "give those that it had" in await refused(tmp_path / "a", uri, bookieId="a", **moved)
    (tmp_path / "foreign" / "journal" / "current").mkdir(parents=True)
    (tmp_path / "foreign" / "journal" / "current" / "notes.txt").write_text("mine")
    assert "is not empty and has no cookie" in await refused(tmp_path / "foreign", uri, bookieId="c")
    async with await MetadataClient.connect(uri) as client:
        await client.delete_cookie("a")
        assert "it was removed from the cluster" in await refused(tmp_path / "a", uri, bookieId="a")
        with pytest.raises(NoSuchCookieError):
            await client.read_cookie("a")
    assert "there is no cluster" in await refused_by_any(tmp_path / "a", f"{uri}-none")


async def test_a_bookie_whose_cookies_alone_are_left_is_refused(tmp_path: Path, uri: str) -> None:
    async with bookie(tmp_path / "b", uri):
        pass
    currents = [tmp_path / "b" / name / "current" for name in ("journal", "ledgers")]
    for file in (file for current in currents for file in current.iterdir()):
        if file.is_file() and file.name != "VERSION":
            file.unlink()
    with pytest.raises(SystemFailure, match="neither journal nor entry logs: they are lost"):
        async with bookie(tmp_path / "b", uri):
            pass


async def test_a_first_start_that_was_cut_short_is_done_again(tmp_path: Path, uri: str) -> None:
    def cut_short(*_: Any, **__: Any) -> Any:
        raise SystemFailure("no storage yet")

    with pytest.raises(SystemFailure, match="no storage yet"):
        async with bookie(tmp_path / "b", uri, storage_of=cut_short):
            pass
    async with bookie(tmp_path / "b", uri):
        pass


async def test_two_bookies_never_have_one_directory(tmp_path: Path, uri: str) -> None:
    async def first_client(first: Any) -> Any:
        async with await MetadataClient.connect(uri) as client:
            info = await client.bookie_info("a")
            assert info is not None
            first.bookie_id = f"127.0.0.1:{info.endpoints[0].port}"
        return await first.client()

    async with bookie(tmp_path, uri, bookieId="a") as first:
        with pytest.raises(SystemFailure, match="in use by another bookie"):
            async with bookie(tmp_path, uri, bookieId="a"):
                pass
        connection = await first_client(first)
        assert (await connection.ask(add(1, 0))).code is Code.OK


# -- registration -----------------------------------------------------------------------------------------------------


async def test_a_bookie_without_a_session_serves_on_and_registers_anew(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[MetadataClient] = []
    connect = MetadataClient.connect

    async def kept(*arguments: Any, **options: Any) -> MetadataClient:
        clients.append(await connect(*arguments, **options))
        return clients[-1]

    monkeypatch.setattr(MetadataClient, "connect", kept)
    async with await connect(uri) as watching, bookie(tmp_path, uri) as running:
        connection = await running.client()
        before = clients[0].session_id
        await asyncio.to_thread(end_session, clients[0])
        assert (await connection.ask(add(1, 0))).code is Code.OK

        async def is_back() -> bool:
            return clients[0].session_id != before and (await registered(watching)).writable == (running.bookie_id,)

        while not await is_back():
            await asyncio.sleep(0.01)
        assert (await connection.ask(add(1, 1))).code is Code.OK


class Storages:
    """Makes the storage of bookies, and keeps it."""

    def __init__(self) -> None:
        self.made: list[Storage] = []

    def make(self, *arguments: Any, **options: Any) -> Storage:
        self.made.append(Storage(*arguments, **options))
        return self.made[-1]


async def test_a_bookie_without_room_is_read_only_until_there_is_some(tmp_path: Path, uri: str) -> None:
    storages = Storages()
    async with await MetadataClient.connect(uri) as client, bookie(tmp_path, uri, storages.make) as running:
        connection = await running.client()
        assert (await connection.ask(add(1, 0))).code is Code.OK
        await asyncio.to_thread(storages.made[0].full, True)
        while await registered(client) != Bookies((), (running.bookie_id,)):
            await asyncio.sleep(0.01)
        assert (await connection.ask(add(1, 1))).code is Code.READ_ONLY
        assert (await connection.ask(add(1, 1, recovery=True))).code is Code.OK
        assert (await connection.ask(m.ReadEntry(1, 0))).code is Code.OK
        await asyncio.to_thread(storages.made[0].full, False)
        while await registered(client) != Bookies((running.bookie_id,), ()):
            await asyncio.sleep(0.01)
        assert (await connection.ask(add(1, 2))).code is Code.OK


async def test_a_bookie_whose_disk_is_fuller_than_it_may_be_is_read_only(tmp_path: Path, uri: str) -> None:
    full: dict[str, Any] = {"diskUsageThreshold": 1e-9, "diskUsageWarnThreshold": 1e-9, "diskUsageLwmThreshold": 1e-9}
    async with await MetadataClient.connect(uri) as client, bookie(tmp_path, uri, **full) as running:
        while await registered(client) != Bookies((), (running.bookie_id,)):
            await asyncio.sleep(0.01)
        assert (await (await running.client()).ask(add(1, 0))).code is Code.READ_ONLY


async def test_a_bookie_without_room_ends_if_it_may_not_be_read_only(tmp_path: Path, uri: str) -> None:
    storages = Storages()
    with pytest.raises(SystemFailure, match="the disk is full, and readOnlyModeEnabled is false"):
        async with bookie(tmp_path, uri, storages.make, readOnlyModeEnabled=False) as running:
            await asyncio.to_thread(storages.made[0].full, True)
            await running.running


async def test_a_bookie_can_be_read_only_from_the_start(tmp_path: Path, uri: str) -> None:
    async with await MetadataClient.connect(uri) as client, bookie(tmp_path, uri, forceReadOnlyBookie=True) as running:
        assert await registered(client) == Bookies((), (running.bookie_id,))
        assert (await (await running.client()).ask(add(1, 0))).code is Code.READ_ONLY


# -- garbage ----------------------------------------------------------------------------------------------------------


async def test_a_ledger_that_is_deleted_is_forgotten_and_no_other(tmp_path: Path, uri: str) -> None:
    async with await MetadataClient.connect(uri) as client, bookie(tmp_path, uri, gcWaitTime=20) as running:
        metadata = LedgerMetadata(1, 1, 1, (Fragment(0, (running.bookie_id,)),))
        connection = await running.client()
        for ledger in (1, 2):
            await client.create_ledger(ledger, metadata)
            assert (await connection.ask(add(ledger, 0))).code is Code.OK
        await client.delete_ledger(1)
        while (await connection.ask(m.ReadEntry(1, 0))).code is not Code.NO_LEDGER:
            await asyncio.sleep(0.01)
        assert (await connection.ask(m.ReadEntry(2, 0))).code is Code.OK


# -- a disk that fails ------------------------------------------------------------------------------------------------


async def test_a_sync_that_fails_stops_the_bookie_and_nothing_confirmed_is_lost(tmp_path: Path, uri: str) -> None:
    confirmed: list[int] = []

    def fault(operation: str, name: str) -> OSError | None:
        return OSError(errno.EIO, "Input/output error") if operation == "sync" and len(confirmed) > 200 else None

    def storage_of(settings: Any, **options: Any) -> Storage:
        return Storage(settings, journal_files=FaultyFiles(OsFiles(settings.journal_directory), fault), **options)

    with pytest.raises(SystemFailure, match="the bookie has stopped, and confirms nothing more: .*Input/output error"):
        async with bookie(tmp_path, uri, storage_of) as running:
            connection = await running.client()
            connection.send(*(add(1, entry_id) for entry_id in range(1_000)))
            for count in range(1_000):
                try:
                    _, response = await connection.receive()
                except EOFError:
                    break
                assert response.code is Code.OK
                confirmed.append(response.entry_id)
                if count == 200:
                    connection.send(*(add(1, entry_id) for entry_id in range(1_000, 2_000)))
            await running.running
    assert 200 < len(confirmed) <= 1_000
    async with bookie(tmp_path, uri) as again:
        connection = await again.client()
        for entry_id in confirmed:
            assert (await connection.ask(m.ReadEntry(1, entry_id))).body == entry(1, entry_id)


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_the_command_says_that_it_serves_and_ends_cleanly_by_a_signal(tmp_path: Path, uri: str, number: int) -> None:
    with started("bookie", tmp_path, "--metadata", uri, "--port", "0") as running:
        assert running.stdout is not None
        said = running.stdout.readline()
        assert said.startswith("bookie 127.0.0.1:") and said.endswith(" serves\n")
        running.send_signal(number)
        said, complaints = running.communicate()
        assert (running.returncode, said) == (0, "")
        assert "is new" in complaints and "Traceback" not in complaints


async def test_a_bookie_that_runs_is_inspected_and_damage_is_told(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with bookie(tmp_path, uri) as running:
        connection = await running.client()
        for entry_id in range(3):
            assert (await connection.ask(add(7, entry_id))).code is Code.OK
        assert await asyncio.to_thread(cli.main, ["bookie", "inspect", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert f"bookie {running.bookie_id} of the cluster" in told
        assert "ledger 7: 3 entries from 0 to 2, 3 of them in the journal alone, LAC 1" in told
    assert cli.main(["bookie", "inspect", str(tmp_path), "--verify", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["problems"], document["verified"], document["ledgers"][0]["in_journal"]) == ([], 3, 0)
    (log,) = (tmp_path / "ledgers" / "current").glob("*.log")
    log.write_bytes(log.read_bytes().replace(b"data", b"rats", 1))
    assert cli.main(["bookie", "inspect", str(tmp_path), "--verify"]) == 153
    assert capsys.readouterr().err
    assert cli.main(["bookie", "inspect", str(tmp_path / "nothing")]) == 153
    assert "is no directory of a bookie: no cookie is in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ((), 151, "the following arguments are required: DIR"),
        (
            ("inspect",),
            151,
            "fencepost bookie inspect takes one directory; a bookie in ./inspect is run by fencepost bookie ./inspect",
        ),
        (
            ("rack",),
            151,
            "fencepost bookie rack takes one bookie; a bookie in ./rack is run by fencepost bookie ./rack",
        ),
        (
            ("inspct", "DIR"),
            151,
            "inspct is not a verb (inspect, cookie, recover, decommission, safe-to-stop, rack, list), and a bookie has",
        ),
        (("DIR",), 151, "a bookie needs a metadata service: give --metadata"),
        (("DIR", "--metadata", "nothing", "--port", "0"), 151, "nothing"),
        (("DIR", "--metadata", "zk://127.0.0.1:1/ledgers", "--set", "bookiePrt=1"), 151, "did you mean bookiePort?"),
        (
            ("DIR", "--metadata", "zk://127.0.0.1:1/ledgers", "--settings", "none.toml"),
            151,
            "none.toml cannot be read",
        ),
        (
            ("DIR", "--settings", "/dev/zero"),
            151,
            "settings /dev/zero cannot be read: it has more than 1,048,576 bytes",
        ),
        (("",), 151, "the name is empty"),
        (("a,b", "--metadata", "zk://127.0.0.1:1/ledgers"), 151, "names in UTF-8, and no commas or tabs"),
        (("a\tb", "--metadata", "zk://127.0.0.1:1/ledgers"), 151, "names in UTF-8, and no commas or tabs"),
        (("a\udcff", "--metadata", "zk://127.0.0.1:1/ledgers"), 151, "names in UTF-8, and no commas or tabs"),
        (("DIR", "--set=--"), 151, "--"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(tmp_path) if each == "DIR" else each for each in arguments]
    assert cli.main(["bookie", *given]) == code
    said, complaints = capsys.readouterr()
    assert (said, complaints.count("\n")) == ("", 1)
    assert complaint in complaints


def test_a_bookie_has_the_c_library_keep_some_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda option, value: kept.append((option, value)))
    monkeypatch.setattr("ctypes.CDLL", lambda name: library)
    process._keep_memory(5_000_000)
    process._keep_memory(1e12)
    assert kept == [(-1, 5_000_000), (-3, 32 << 20), (-1, (1 << 31) - 1), (-3, 32 << 20)]
    del library.mallopt
    process._keep_memory(5_000_000)
    assert len(kept) == 4
