"""The client of the metadata service, with a service that is killed and restarted, and sessions that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from ledger.processes import Process
from patience import eventually

from fencepost.ledger import errors
from fencepost.ledger.metadata.client import Bookies, MetadataClient
from fencepost.ledger.metadata.registration import BookieServiceInfo, Endpoint
from fencepost.ledger.metadata.session import Session
from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, marked_in_recovery

METADATA = LedgerMetadata(1, 1, 1, (Fragment(0, ("b:1",)),), creation_token=5)
INFO = BookieServiceInfo((Endpoint("bookie", "127.0.0.1", 3181),))


@asynccontextmanager
async def connected(uri: str, session_timeout: float = 4.0) -> AsyncIterator[MetadataClient]:
    async with await MetadataClient.connect(uri, session_timeout=session_timeout) as client:
        yield client


async def test_a_cluster_is_made_once(service: str) -> None:
    async with connected(f"{service}/made/here") as client:
        assert not await client.is_initialised()
        for missing in (client.instance_id(), client.bookies(), client.create_ledger(1, METADATA)):
            with pytest.raises(errors.NoClusterError, match="there is no cluster at zk://"):
                await missing
        instance = await client.initialise()
        assert await client.instance_id() == instance and await client.is_initialised()
        with pytest.raises(errors.ClusterExistsError):
            await client.initialise()
        data, _ = await client._retry(client._zookeeper.get, "/made/here/LAYOUT")
        assert data == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"


async def test_another_layout_is_refused_in_one_line(service: str) -> None:
    async with connected(f"{service}/flat") as client:
        await client.initialise()
        layout = b"2\norg.apache.bookkeeper.meta.FlatLedgerManagerFactory:1"
        await client._retry(client._zookeeper.set, "/flat/LAYOUT", layout)
    with pytest.raises(errors.UnknownLayoutError, match="laid out by .FlatLedgerManagerFactory., and only"):
        await MetadataClient.connect(f"{service}/flat")
    async with connected(f"{service.replace('zk:', 'zk+longhierarchical:')}/long") as client:
        await client.initialise()
        await client.create_ledger(7, METADATA)
        assert await client._retry(client._zookeeper.exists, "/long/000/0000/0000/0000/L0007")
        assert [ledger async for ledger in client.ledgers()] == [7]
    with pytest.raises(errors.UnknownLayoutError, match="LongHierarchicalLedgerManagerFactory, not by Hier"):
        await MetadataClient.connect(f"{service.replace('zk:', 'zk+hierarchical:')}/long")


async def test_what_the_service_refuses_is_told_without_kazoo(service: str) -> None:
    async with connected(f"{service}/refused") as client:
        await client.initialise()
        await client.create_node("here", ephemeral=True)
        with pytest.raises(errors.MetadataServiceError, match="refused /refused/here/below: NoChildren") as it:
            await client.create_node("here/below")
        assert it.value.__suppress_context__ and it.value.__cause__ is None


async def test_ledgers_are_created_replaced_on_their_version_listed_and_deleted(service: str) -> None:
    async with connected(f"{service}/a") as client:
        await client.initialise()
        ids = [await client.new_ledger_id() for _ in range(3)]
        assert ids == sorted(set(ids))
        while await client.names_in("idgen"):  # their nodes go, sooner or later
            await asyncio.sleep(0.01)
        large = [10**9, 2**31 - 2, 2**31 - 1, 2**62]
        for ledger in (*ids, *large):
            assert await client.create_ledger(ledger, METADATA) == 0
        with pytest.raises(errors.LedgerExistsError):
            await client.create_ledger(ids[0], METADATA)
        assert [ledger async for ledger in client.ledgers()] == [*ids, *large]
        seen = await client.read_ledger(ids[1])
        assert seen.metadata == METADATA and seen.version == 0 and seen.created > 10**12
        assert await client.write_ledger(ids[1], marked_in_recovery(METADATA), 0) == 1
        with pytest.raises(errors.BadVersionError):
            await client.write_ledger(ids[1], METADATA, 0)
        with pytest.raises(errors.BadVersionError):
            await client.delete_ledger(ids[1], 0)
        await client.delete_ledger(ids[1], 1)
        await client.delete_ledger(2**62)
        for gone in (client.read_ledger(ids[1]), client.write_ledger(ids[1], METADATA, 1), client.delete_ledger(2**62)):
            with pytest.raises(errors.NoSuchLedgerError):
                await gone
        with pytest.raises(errors.NoSuchLedgerError):
            await client.read_ledger(-5)
        assert [ledger async for ledger in client.ledgers()] == [ids[0], ids[2], *large[:3]]
        assert await client._retry(client._zookeeper.exists, "/a/461") is None, "empty folders go too"


async def test_ids_go_on_beyond_31_bits(service: str) -> None:
    async with connected(f"{service}/ids") as client:
        await client.initialise()
        await client._make_path("/ids/idgen-long/HOB-0000000003")
        assert [await client.new_ledger_id() for _ in range(2)] == [3 << 32, 3 << 32 | 1]


async def test_metadata_that_are_foreign_are_said_so(service: str) -> None:
    async with connected(f"{service}/foreign") as client:
        await client.initialise()
        await client.create_ledger(1, METADATA)
        await client._retry(client._zookeeper.set, "/foreign/00/0000/L0001", b"nonsense")
        with pytest.raises(errors.UnknownLayoutError, match="the metadata of ledger 1 are damaged or foreign"):
            await client.read_ledger(1)


async def test_a_watch_tells_once_of_a_change_and_of_a_deletion(service: str) -> None:
    async with connected(f"{service}/w") as client, connected(f"{service}/w") as other:
        await client.initialise()
        changes: list[int] = []
        await client.create_ledger(1, METADATA)
        note = changes.append
        await client.read_ledger(1, note)
        await client.read_ledger(1, note)
        await other.write_ledger(1, METADATA, 0)
        await other.write_ledger(1, METADATA, 1)
        await eventually(lambda: changes, "a change")
        await client.read_ledger(1)
        assert changes == [1], "one watch, one notice"
        await client.read_ledger(1, note)
        await other.delete_ledger(1)
        await eventually(lambda: changes == [1, 1], "the deletion")


async def test_bookies_register_for_the_life_of_their_session(service: str) -> None:
    uri = f"{service}/r"
    async with connected(uri) as client:
        await client.initialise()
        seen: list[Bookies] = []
        stop = await client.watch_bookies(seen.append)
        async with connected(uri) as bookie:
            await bookie.register_bookie("b:1", INFO)
            await bookie.register_bookie("b:1", INFO)
            await eventually(lambda: seen[-1] == Bookies(("b:1",)), "the bookie")
            assert await client.bookie_info("b:1") == INFO
            assert await client.bookie_info("b:2") is None
            await bookie.register_bookie("b:1", INFO, read_only=True)
            await eventually(lambda: seen[-1] == Bookies((), ("b:1",)), "a bookie that is read-only")
            assert await client.bookie_info("b:1") == INFO and await client.bookies() == seen[-1]
            await bookie.unregister_bookie("b:1")
            await eventually(lambda: seen[-1] == Bookies(), "no bookie")
            await bookie.register_bookie("b:1", INFO)
            async with connected(uri) as second, connected(uri) as third:
                taking = asyncio.create_task(second.register_bookie("b:1", INFO))
                await asyncio.sleep(0.1)
                assert not taking.done(), "a registration of another is waited for"
                await bookie.close()
                await taking
                await third.register_bookie("b:1", INFO, replace=True)
                assert await client.bookies() == Bookies(("b:1",))
        await eventually(lambda: seen[-1] == Bookies(), "the end of the session")
        stop()


async def test_a_registration_that_does_not_end_is_told(service: str) -> None:
    async with connected(f"{service}/twice") as client, connected(f"{service}/twice", 0.2) as other:
        await client.initialise()
        await client.register_bookie("b:1", INFO)
        with pytest.raises(errors.BookieExistsError, match="another process is registered as the bookie b:1"):
            await other.register_bookie("b:1", INFO)


async def test_a_service_that_answers_late_leaves_time_to_replace_a_registration(service: str) -> None:
    async with connected(f"{service}/late") as client, connected(f"{service}/late", 0.2) as other:
        await client.initialise()
        await client.register_bookie("b:1", INFO)
        ask = other._retry

        async def retry_late(operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            if operation.__name__ == "create_async":
                # the service is down for longer than the session of the other would have lasted
                await asyncio.sleep(0.5)
            return await ask(operation, *arguments, **options)

        other._retry = retry_late  # type: ignore[method-assign]
        await other.register_bookie("b:1", INFO, replace=True)
        await client.register_bookie("b:1", INFO, replace=True)


async def test_cookies_have_versions(service: str) -> None:
    async with connected(f"{service}/c") as client:
        await client.initialise()
        for missing in (client.read_cookie("b:1"), client.write_cookie("b:1", b"x", 0), client.delete_cookie("b:1")):
            with pytest.raises(errors.NoSuchCookieError):
                await missing
        assert await client.write_cookie("b:1", b"x") == 0
        with pytest.raises(errors.CookieExistsError):
            await client.write_cookie("b:1", b"y")
        assert await client.write_cookie("b:1", b"y", 0) == 1
        for late in (client.write_cookie("b:1", b"z", 0), client.delete_cookie("b:1", 0)):
            with pytest.raises(errors.BadVersionError):
                await late
        assert await client.read_cookie("b:1") == (b"y", 1)
        await client.delete_cookie("b:1", 1)


async def test_a_session_that_expires_is_followed_by_another(service: str) -> None:
    async with connected(f"{service}/x") as client:
        await client.initialise()
        sessions: list[Session] = []
        client.listen(sessions.append)
        changes: list[int] = []
        await client.create_ledger(1, METADATA)
        await client.read_ledger(1, changes.append)
        await client.register_bookie("b:1", INFO)
        seen: list[Bookies] = []
        await client.watch_bookies(seen.append)
        before = client.session_id
        await client.loop.run_in_executor(None, end_session, client)
        await eventually(lambda: Session.EXPIRED in sessions, "the end of the session")
        await eventually(lambda: client.session is Session.CONNECTED, "the next session")
        assert client.session_id != before
        assert changes == [1], "a watch that is lost says that there may be a change"
        await eventually(lambda: seen[-1] == Bookies(), "the end of the registration")
        await client.register_bookie("b:1", INFO)
        await eventually(lambda: seen[-1] == Bookies(("b:1",)), "the bookies, which are watched on")


def end_session(client: MetadataClient) -> None:
    """End a session by closing it over another connection, as if it had expired."""
    twin = KazooClient(hosts=client.address.hosts, client_id=client._zookeeper.client_id)
    twin.start()
    twin.stop()
    twin.close()


async def test_a_service_that_is_killed_and_started_anew_is_waited_for(tmp_path: Path) -> None:
    process = Process(tmp_path, "metadata", str(tmp_path / "m"), "--port", "0")
    uri = process.told.split()[2]
    try:
        async with connected(f"{uri}/k") as client:
            await client.initialise()
            await client.create_ledger(1, METADATA)
            changes: list[int] = []
            await client.read_ledger(1, changes.append)
            process.kill()
            await eventually(lambda: client.session is not Session.CONNECTED, "the loss of the connection")
            await eventually(lambda: changes == [1], "the loss of the watch")
            client.operation_timeout = 0.2
            with pytest.raises(errors.OutcomeUnknownError, match="whether ledger 2 was changed is not known"):
                await client.create_ledger(2, METADATA)
            client.operation_timeout = 200.0
            reading = asyncio.create_task(client.read_ledger(1))
            arguments = (tmp_path, "metadata", str(tmp_path / "m"), "--port", uri.rpartition(":")[2])
            process = await client.loop.run_in_executor(None, Process, *arguments)
            assert (await reading).metadata == METADATA, "a question is asked until it is answered"
    finally:
        process.end()


async def test_a_service_that_is_not_there_is_said_so() -> None:
    with pytest.raises(errors.MetadataServiceError, match=r"no metadata service answers at 127\.0\.0\.1:1 within"):
        await MetadataClient.connect("zk://127.0.0.1:1/ledgers", connect_timeout=0.3)
