"""``fencepost bookie recover`` and ``decommission`` copy the entries of a lost bookie to others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from ledger.bookie.test_repair import Killable, bookies, entries_of, until_gone

import fencepost
from fencepost.cli import main as cli
from fencepost.errors import HOLDS, SYSTEM_FAILED
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.replication import belonging_of_fragment
from fencepost.ledger.entries import runs_of
from fencepost.ledger.rules.ensembles import write_set
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.ledger.rules.replication import fragments_on

SOON_GONE = "zkTimeout=500"


async def check_copies(store: LedgerClient, ledger: int, entries: int) -> None:
    """Every bookie of a ledger has at least the entries that belong to it."""
    metadata = await store.ledger_metadata(ledger)
    for place, fragment in enumerate(metadata.fragments):
        ends = [each.first_entry_id for each in metadata.fragments[place + 1 :]] + [entries]
        for bookie in fragment.ensemble:
            wanted = {
                entry_id
                for entry_id in range(fragment.first_entry_id, ends[0])
                if bookie in write_set(entry_id, tuple(fragment.ensemble), metadata.write_quorum)
            }
            _, runs = await entries_of(store, bookie, ledger)
            has = {entry_id for first, last in runs for entry_id in range(first, last + 1)}
            assert wanted <= has, (bookie, runs_of(sorted(wanted - has)))


async def test_a_bookie_is_taken_out_of_the_cluster_and_all_its_entries_are_elsewhere(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> tuple[int, str, str]:
        code = cli.main(["bookie", *words, "--metadata", uri])
        return code, *capsys.readouterr()

    with bookies(tmp_path, uri, SOON_GONE) as (first, second, _):
        async with await fencepost.connect(uri) as store:
            closed = await store.create_ledger(write_quorum=2, digest="hmac", password="secret")
            await closed.append_many([b"x"] * 100)
            await closed.close()
            opened = await store.create_ledger(write_quorum=2)
            await opened.append_many([b"y"] * 50)
            gone = first.bookie_id
            code, _, problem = await asyncio.to_thread(command, "decommission", gone)
            assert (code, "is registered" in problem) == (SYSTEM_FAILED, True)
            first.kill()
            await until_gone(store, gone)
            code, told, _ = await asyncio.to_thread(command, "recover", gone, "--dry-run")
            assert code == HOLDS and "2 ledgers have entries" in told and "of which 1 are not closed" in told
            code, _, problem = await asyncio.to_thread(command, "recover", gone)
            assert (code, "no bookie that could take the place" in problem) == (SYSTEM_FAILED, True)
            fourth = Killable(tmp_path / "3", uri, SOON_GONE)
            fourth.start()
            try:
                code, told, problem = await asyncio.to_thread(command, "decommission", gone)
                assert code == HOLDS and "is out of the cluster" in told, problem
                for ledger, entries in ((closed.id, 100), (opened.id, 50)):
                    metadata = await store.ledger_metadata(ledger)
                    assert (metadata.status, metadata.last_entry) == (LedgerStatus.CLOSED, entries - 1)
                    assert not fragments_on(metadata, gone)
                    await check_copies(store, ledger, entries)
                second.kill()
                async with store.open_ledger(closed.id, password="secret") as reader:
                    assert [entry.data async for entry in reader.read()] == [b"x"] * 100
            finally:
                fourth.close()


@pytest.mark.campaign
async def test_metadata_change_only_when_everything_was_copied(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only copies of some entries are on bookies that are down. The ledger stays as it is."""
    with bookies(tmp_path, uri, SOON_GONE) as (first, second, _):
        async with await fencepost.connect(uri) as store:
            closed = await store.create_ledger(ensemble=2, write_quorum=1)
            await closed.append_many([b"x"] * 10)
            await closed.close()
            before = await store.ledger_metadata(closed.id)
            gone = before.fragments[0].ensemble[0]
            for each in (first, second, _):
                if each.bookie_id == gone:
                    each.kill()
            await until_gone(store, gone)
            code = await asyncio.to_thread(cli.main, ["bookie", "recover", gone, "--metadata", uri])
            assert code == SYSTEM_FAILED
            lost = len(belonging_of_fragment(before, 0, gone))  # 5, if no bookie was slow
            assert f"{lost} entries" in capsys.readouterr().err
            assert await store.ledger_metadata(closed.id) == before
