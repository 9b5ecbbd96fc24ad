"""Auto-recovery as processes: the entries of a killed bookie are copied to others, and everything stays readable."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from ledger.bookie import test_repair
from ledger.bookie.standing_bookies import started
from ledger.bookie.test_decommission import check_copies
from ledger.bookie.test_repair import Killable, entries_of, until_gone
from patience import PATIENCE, eventually

import fencepost
from fencepost.cli import main as cli
from fencepost.errors import HOLDS
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.underreplication import UnderReplication
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.replication import with_replacement

FAST = (
    "zkTimeout=500",
    "openLedgerRereplicationGracePeriod=100",
    "rwRereplicateBackoffMs=50",
    "lockReleaseOfFailedLedgerGracePeriod=100",
)


def bookies(tmp_path: Path, uri: str, *settings: str, count: int = 5) -> AbstractContextManager[list[Killable]]:
    """Serving bookies whose sessions end soon."""
    return test_repair.bookies(tmp_path, uri, "zkTimeout=500", *settings, count=count)


@contextlib.contextmanager
def autorecovery(uri: str, name: str, *settings: str) -> Iterator[subprocess.Popen[str]]:
    """Auto-recovery, running in its own process."""
    words = [word for each in (*FAST, f"bookieId={name}", *settings) for word in ("--set", each)]
    with started("autorecovery", "--metadata", uri, "--verbose", *words) as running:
        assert running.stdout is not None
        said = running.stdout.readline()
        assert f"auto-recovery {name} runs" in said, running.communicate()
        yield running


def ended(running: subprocess.Popen[str]) -> str:
    """Stop a process as an operator does. Returns its log."""
    running.send_signal(signal.SIGTERM)
    _, log = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, log
    return log


@contextlib.asynccontextmanager
async def nodes_of(uri: str) -> AsyncIterator[UnderReplication]:
    async with await MetadataClient.connect(uri) as client:
        yield UnderReplication(client, "test")


def bookies_of(metadata: LedgerMetadata) -> set[str]:
    return {bookie for fragment in metadata.fragments for bookie in fragment.ensemble}


async def until_without(store: LedgerClient, ledger: int, gone: str) -> None:
    async def holds() -> bool:
        return gone not in bookies_of(await store.ledger_metadata(ledger))

    await eventually(holds, f"ledger {ledger} to be without {gone}")


async def until_whole(nodes: UnderReplication) -> None:
    """Wait until nothing is under-replicated and nothing is locked."""

    async def holds() -> bool:
        return not [each async for each in nodes.all()] and not await nodes.client.names_in("underreplication/locks")

    await eventually(holds, "nothing to be under-replicated")


async def written(store: LedgerClient, entries: int, **options: Any) -> Any:
    ledger = await store.create_ledger(**options)
    await ledger.append_many([b"%d" % number for number in range(entries)])
    return ledger


async def ensemble_of(store: LedgerClient, ledger: Any) -> set[str]:
    return bookies_of(await store.ledger_metadata(ledger.id))


async def read(store: LedgerClient, ledger: int, **options: Any) -> list[bytes]:
    async with store.open_ledger(ledger, **options) as reader:
        return [entry.data async for entry in reader.read()]


def several(killables: list[Killable], ids: set[str]) -> list[Killable]:
    return [each for each in killables if each.bookie_id in ids]


async def test_what_was_on_a_bookie_that_is_killed_is_on_others(tmp_path: Path, uri: str) -> None:
    """Closed ledgers of all kinds, one with several fragments, and one that nobody writes to any more; then two others
    are killed."""
    with bookies(tmp_path, uri) as standing, autorecovery(uri, "one") as running:
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            closed = await written(store, 200, write_quorum=3, digest="hmac", password="secret")
            await closed.close()
            striped = await written(store, 300, ensemble=4, write_quorum=3, ack_quorum=2)
            await striped.close()
            empty = await store.create_ledger()
            await empty.close()
            # All three confirm each entry: an owner that waits for one of them would replace it.
            left = await written(store, 50, ensemble=4, write_quorum=3, ack_quorum=3)
            # Of five bookies one at least has entries of all three.
            gone = min(set.intersection(*[await ensemble_of(store, each) for each in (closed, striped, left)]))
            (lost,) = several(standing, {gone})
            lost.kill()
            for each in (closed, striped, empty, left):
                await until_without(store, each.id, gone)
            await until_whole(nodes)
            assert (await store.ledger_metadata(left.id)).status is LedgerStatus.CLOSED
            for each, entries in ((closed, 200), (striped, 300), (left, 50)):
                await check_copies(store, each.id, entries)
            others = [each for each in standing if each.bookie_id != gone]
            for each in others[:2]:
                each.kill()
            assert await read(store, closed.id, password="secret") == [b"%d" % n for n in range(200)]
            assert await read(store, striped.id) == [b"%d" % n for n in range(300)]
            assert await read(store, left.id) == [b"%d" % n for n in range(50)]
        log = ended(running)
        assert "one is the auditor" in log and "is closed by a recovery" in log


@pytest.mark.campaign
async def test_a_writer_goes_on_with_its_open_ledger(tmp_path: Path, uri: str) -> None:
    """The bookie is in its first fragment alone: that is replicated while the ledger is written, which is not closed
    by anybody else."""
    with bookies(tmp_path, uri) as standing, autorecovery(uri, "one", "openLedgerRereplicationGracePeriod=600000"):
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            ledger = await written(store, 100, write_quorum=3)
            gone = (await store.ledger_metadata(ledger.id)).fragments[0].ensemble[1]
            (lost,) = several(standing, {gone})
            lost.kill()
            appended = 100
            while len((await store.ledger_metadata(ledger.id)).fragments) < 2:
                await ledger.append(b"%d" % appended)
                appended += 1
            await until_without(store, ledger.id, gone)
            await until_whole(nodes)
            for _ in range(100):
                await ledger.append(b"%d" % appended)
                appended += 1
            another = (await store.ledger_metadata(ledger.id)).fragments[-1].ensemble[0]
            several(standing, {another})[0].kill()
            for _ in range(100):
                await ledger.append(b"%d" % appended)
                appended += 1
            await ledger.close()
            assert (await store.ledger_metadata(ledger.id)).last_entry == appended - 1
            await until_without(store, ledger.id, another)
            await until_whole(nodes)
            await check_copies(store, ledger.id, appended)
            assert await read(store, ledger.id) == [b"%d" % n for n in range(appended)]


@pytest.mark.campaign
async def test_two_workers_share_the_ledgers_and_one_is_the_auditor(tmp_path: Path, uri: str) -> None:
    with bookies(tmp_path, uri) as standing, autorecovery(uri, "one") as one, autorecovery(uri, "two") as two:
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            ledgers = [await written(store, 200, ensemble=4, write_quorum=3) for _ in range(20)]
            for each in ledgers:
                await each.close()
            gone = standing[0].bookie_id
            standing[0].kill()
            for each in ledgers:
                await until_without(store, each.id, gone)
            await until_whole(nodes)
            assert await nodes.auditor() == "one"
            for each in ledgers:
                await check_copies(store, each.id, 200)
            first = ended(one)
            await eventually(lambda: is_auditor(nodes, "two"), "the other to be the auditor")
            second = ended(two)
        assert "one is the auditor" in first and "two is the auditor" in second


async def is_auditor(nodes: UnderReplication, name: str) -> bool:
    return await nodes.auditor() == name


@pytest.mark.campaign
async def test_a_worker_that_is_killed_is_followed_by_another(tmp_path: Path, uri: str) -> None:
    """It has copied some of the entries. Its lock ends with its session, and the other worker copies all."""
    slow = "replicationRateByBytes=10000"
    with (
        bookies(tmp_path, uri, count=4) as standing,
        autorecovery(uri, "one", slow, "rereplicationEntryBatchSize=10") as one,
    ):
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            ledger = await store.create_ledger(ensemble=3, write_quorum=3)
            bodies = [b"%d" % n * 300 for n in range(500)]
            await ledger.append_many(bodies)
            await ledger.close()
            gone = (await store.ledger_metadata(ledger.id)).fragments[0].ensemble[2]
            several(standing, {gone})[0].kill()
            (target,) = [
                each for each in standing if each.bookie_id not in bookies_of(await store.ledger_metadata(ledger.id))
            ]

            async def has_begun() -> bool:
                code, runs = await entries_of(store, target.bookie_id, ledger.id)
                return bool(runs)

            await eventually(has_begun, "some entries to be copied")
            one.kill()
            one.communicate()
            assert gone in bookies_of(await store.ledger_metadata(ledger.id))
            with autorecovery(uri, "two") as two:
                await until_without(store, ledger.id, gone)
                await until_whole(nodes)
                await check_copies(store, ledger.id, 500)
                assert await read(store, ledger.id) == bodies
                ended(two)


@pytest.mark.campaign
async def test_a_bookie_that_is_back_in_time_is_left_as_it_is(tmp_path: Path, uri: str) -> None:
    with bookies(tmp_path, uri, count=4) as standing, autorecovery(uri, "one", "lostBookieRecoveryDelay=600"):
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            ledger = await written(store, 50, ensemble=4, write_quorum=3)
            await ledger.close()
            before = await store.ledger_metadata(ledger.id)
            await eventually(lambda: is_auditor(nodes, "one"), "the auditor")
            standing[0].kill()
            await until_gone(store, standing[0].bookie_id)
            await asyncio.sleep(0.5)
            assert [each async for each in nodes.all()] == []
            standing[0].start()
            assert await store.ledger_metadata(ledger.id) == before
            # By hand: the bookie is lost again, and somebody who knows that it does not come back says so.
            standing[0].kill()
            await until_gone(store, standing[0].bookie_id)
            delay, _ = await nodes.recovery_delay(0, lambda _: None)
            assert delay == 600
            await nodes.set_recovery_delay(600)

            async def is_published() -> bool:
                return [each.ledger async for each in nodes.all()] == [ledger.id]

            await eventually(is_published, "the ledger to be published, and to go nowhere")


async def test_a_bookie_that_lacks_entries_is_given_them(tmp_path: Path, uri: str) -> None:
    """The metadata claim that it has them. The periodic check finds that it does not."""
    with bookies(tmp_path, uri, count=4) as standing:
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            ledger = await written(store, 90, write_quorum=2)
            await ledger.close()
            found = await store.metadata.read_ledger(ledger.id)
            (lacking,) = {each.bookie_id for each in standing} - bookies_of(found.metadata)
            wrong = with_replacement(found.metadata, 0, found.metadata.fragments[0].ensemble[1], lacking)
            await store.metadata.write_ledger(ledger.id, wrong, found.version)
            assert not await has_copies(store, ledger.id, 90)
            with autorecovery(uri, "one", "auditorPeriodicCheckInterval=1"):
                await eventually(lambda: has_copies(store, ledger.id, 90), "the entries to be there")
                await until_whole(nodes)
                assert await store.ledger_metadata(ledger.id) == wrong
                await eventually(nodes.checked, "the check to be done")


async def has_copies(store: LedgerClient, ledger: int, entries: int) -> bool:
    try:
        await check_copies(store, ledger, entries)
    except (AssertionError, TypeError):
        return False
    return True


@pytest.mark.campaign
async def test_what_is_lost_of_its_znodes_is_published_again(tmp_path: Path, uri: str) -> None:
    """It keeps no file: everything it knows is in the metadata or follows from them."""
    with bookies(tmp_path, uri, count=3) as (first, second, third):
        third.kill()
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            ledger = await written(store, 20, ensemble=2, write_quorum=2, ack_quorum=2)
            await ledger.close()
            first.kill()
            with autorecovery(uri, "one") as running:

                async def is_published() -> bool:
                    return [each async for each in nodes.all()] != []

                await eventually(is_published, "the ledger to be published")
                ended(running)
            host, _, cluster = uri.removeprefix("zk://").partition("/")
            operator = KazooClient(host)
            operator.start(PATIENCE)
            operator.delete(f"/{cluster}/underreplication", recursive=True)
            operator.stop()
            third.start()
            with autorecovery(uri, "two"):
                await until_without(store, ledger.id, first.bookie_id)
                await until_whole(nodes)
            await check_copies(store, ledger.id, 20)
            assert bookies_of(await store.ledger_metadata(ledger.id)) == {second.bookie_id, third.bookie_id}


@pytest.mark.campaign
async def test_a_bookie_does_auto_recovery_beside_its_work(tmp_path: Path, uri: str) -> None:
    beside = ("autoRecoveryDaemonEnabled=true", "openLedgerRereplicationGracePeriod=100")
    with bookies(tmp_path, uri, *beside, count=4) as standing:
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            ledger = await written(store, 50, write_quorum=3)
            await ledger.close()
            auditor = await nodes.auditor()
            assert auditor == standing[0].bookie_id
            gone = (await store.ledger_metadata(ledger.id)).fragments[0].ensemble[0]
            several(standing, {gone})[0].kill()
            await until_without(store, ledger.id, gone)
            await until_whole(nodes)
            await check_copies(store, ledger.id, 50)


@pytest.mark.campaign
async def test_what_can_not_be_repaired_is_told_and_nothing_is_lost(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no bookie to copy to, and later the only copies of some entries are down. While disabled, nothing is
    published.
    """

    def command(*words: str) -> Any:
        assert cli.main([*words, "--metadata", uri, "--json"]) == HOLDS
        return json.loads(capsys.readouterr().out)

    with bookies(tmp_path, uri, count=3) as standing, autorecovery(uri, "one") as running:
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            full = await written(store, 10, write_quorum=3)
            thin = await written(store, 10, ensemble=2, write_quorum=1)
            for each in (full, thin):
                await each.close()
            before = [await store.ledger_metadata(each.id) for each in (full, thin)]
            told = await asyncio.to_thread(command, "autorecovery", "disable")
            assert (told["enabled"], told["under_replicated"]) == (False, 0)
            gone = before[1].fragments[0].ensemble[0]
            several(standing, {gone})[0].kill()
            await until_gone(store, gone)
            await asyncio.sleep(0.5)
            assert [each async for each in nodes.all()] == []
            assert (await asyncio.to_thread(command, "autorecovery", "enable"))["enabled"]

            async def are_published() -> bool:
                return {each.ledger async for each in nodes.all()} == {full.id, thin.id}

            await eventually(are_published, "both to be published")
            listed = await asyncio.to_thread(command, "bookie", "list", "under-replicated")
            assert [(each["ledger"], each["missing"]) for each in listed] == [(full.id, [gone]), (thin.id, [gone])]
            assert all(each["since"] > 1.7e9 for each in listed)
            assert [await store.ledger_metadata(each.id) for each in (full, thin)] == before
            several(standing, {gone})[0].start()
            await until_whole(nodes)
            assert [await store.ledger_metadata(each.id) for each in (full, thin)] == before
            assert (await asyncio.to_thread(command, "autorecovery", "status"))["under_replicated"] == 0
        log = ended(running)
        assert "there is no bookie that could take the place" in log and "cannot be had from any bookie" in log


def test_questions_go_to_the_metadata_service_that_the_variable_names(
    uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_METADATA", uri)
    assert cli.main(["autorecovery", "status"]) != HOLDS
    assert "there is no cluster" in capsys.readouterr().err
    assert cli.main(["autorecovery"]) != HOLDS
    assert "needs a metadata service" in capsys.readouterr().err, "what runs is told where"


def test_complaints_are_one_line(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, problem in (
        (("autorecovery",), "needs a metadata service"),
        (("autorecovery", "status"), "needs the metadata service"),
        (("autorecovery", "--metadata", uri), "there is no cluster"),
        (("autorecovery", "status", "--metadata", uri), "there is no cluster"),
        (("autorecovery", "--set", "lostBookieDelay=1"), "did you mean lostBookieRecoveryDelay?"),
        (("autorecovery", "--set", "lostBookieRecoveryDelay=-1"), "lostBookieRecoveryDelay: expected"),
        (("bookie", "list", "everything", "--metadata", uri), "list under-replicated and list misplaced"),
        (("bookie", "list", "misplaced"), "needs the metadata service"),
        (("bookie", "list", "misplaced", "--metadata", uri), "there is no cluster"),
        (("bookie", "rack", "b", "--metadata", uri), "there is no cluster"),
        (("bookie", "list", "under-replicated"), "needs the metadata service"),
        (("bookie", "list"), "or set FENCEPOST_METADATA"),
        (("bookie", "list", "under-replicated", "--metadata", uri), "there is no cluster"),
    ):
        assert cli.main([*words]) != HOLDS
        said = capsys.readouterr().err
        assert problem in said and said.count("\n") == 1, said


async def test_metrics_are_served(tmp_path: Path, uri: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with bookies(tmp_path, uri, count=1), autorecovery(uri, "one", f"prometheusStatsHttpPort={port}") as running:

        async def is_auditor() -> bool:
            url = f"http://127.0.0.1:{port}/metrics"
            text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
            return "auditor_elected 1.0" in text

        await eventually(is_auditor, "the metric to say that it is elected")
        ended(running)


@pytest.mark.campaign
async def test_one_that_hangs_longer_than_its_session_begins_anew(tmp_path: Path, uri: str) -> None:
    """The auditor is paused and the other takes over. When it continues, it becomes the auditor again after the other
    ends.
    """
    with bookies(tmp_path, uri, count=4) as standing, autorecovery(uri, "one") as one:
        async with await fencepost.connect(uri) as store, nodes_of(uri) as nodes:
            await eventually(lambda: is_auditor(nodes, "one"), "the first to be the auditor")
            with autorecovery(uri, "two") as two:
                one.send_signal(signal.SIGSTOP)
                await eventually(lambda: is_auditor(nodes, "two"), "the second to be the auditor")
                one.send_signal(signal.SIGCONT)

                async def both_stand() -> bool:
                    return len(await nodes.client.names_in("underreplication/auditorelection") or ()) == 2

                await eventually(both_stand, "the first to stand again")
                ended(two)
            await eventually(lambda: is_auditor(nodes, "one"), "the first to be the auditor again")
            ledger = await written(store, 50, write_quorum=3)
            await ledger.close()
            gone = (await store.ledger_metadata(ledger.id)).fragments[0].ensemble[0]
            several(standing, {gone})[0].kill()
            await until_without(store, ledger.id, gone)
            await until_whole(nodes)
            await check_copies(store, ledger.id, 50)
        assert "has expired, and auto-recovery begins anew" in ended(one)
