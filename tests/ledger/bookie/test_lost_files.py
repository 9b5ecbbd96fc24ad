"""A lost or truncated file of a bookie or a metadata service never claims that all is well."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger.bookie.test_repair import WITHOUT_JOURNAL, Killable, NotStartedError, code_of, entries_of, until_whole

import fencepost
from fencepost.ledger import messages as m
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.rules.boot import CLEAN_END
from fencepost.ledger.rules.codes import Code

Damage = Callable[[Path], object]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


DAMAGES: tuple[Damage, ...] = (Path.unlink, empty, cut_off, changed)


@pytest.mark.campaign
async def test_without_a_record_of_a_clean_end_a_bookie_denies_nothing(tmp_path: Path, uri: str) -> None:
    """It was killed while its adds were in memory alone. Only the missing record says so."""
    running = tmp_path / "ledgers" / "current" / "RUNNING"
    directories = Directories(str(tmp_path / "journal"), str(tmp_path / "ledgers"))
    one_copy: dict[str, Any] = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1}
    with contextlib.closing(Killable(tmp_path, uri, *WITHOUT_JOURNAL)) as bookie:
        bookie.start()
        async with await fencepost.connect(uri) as store:
            bookie.end()
            of_a_clean_end = running.read_bytes()
            bookie.start()
            damages: tuple[Damage, ...] = (*DAMAGES, lambda path: path.write_bytes(of_a_clean_end))
            for damage in damages:
                ledger = await store.create_ledger(**one_copy)
                await ledger.append_many([b"x"] * 5)
                bookie.kill()
                damage(running)
                assert directories.last_run is None
                bookie.start()
                assert await code_of(store, bookie.bookie_id, m.ReadEntry(ledger.id, 1)) is Code.UNKNOWN_LEDGER_STATE
            whole = await store.create_ledger(**one_copy)
            await whole.append_many([b"x"] * 5)
            bookie.end()
            assert directories.last_run == CLEAN_END
            bookie.start()
            assert await entries_of(store, bookie.bookie_id, whole.id) == (Code.OK, ((0, 4),))


async def test_a_repair_goes_on_although_its_marks_are_lost(tmp_path: Path, uri: str) -> None:
    """That entries may be missing is recorded beside how the bookie runs, too, also when it has ended cleanly."""
    with contextlib.ExitStack() as exits:
        first, second = (Killable(tmp_path / name, uri, *WITHOUT_JOURNAL) for name in "ab")
        for each in (first, second):
            exits.callback(each.close)
            each.start()
        async with await fencepost.connect(uri) as store:
            ledger = await store.create_ledger(ensemble=2, write_quorum=2, ack_quorum=2)
            await ledger.append_many([b"x"] * 5)
            await ledger.close()
            first.kill()
            second.end()
            first.start()
            first.end()
            for mark in (tmp_path / "a").glob("*/current/REPAIR"):
                mark.unlink()
            second.start()
            first.start()
            await until_whole(store, first.bookie_id, ledger.id, ((0, 4),))


@pytest.mark.parametrize("is_checkpointed", [False, pytest.param(True, marks=pytest.mark.campaign)])
async def test_a_bookie_without_one_of_its_files_denies_nothing(
    tmp_path: Path, uri: str, is_checkpointed: bool
) -> None:
    """It was killed with all adds in its journal. It has them, or says that it does not know, or does not start."""
    directory, whole = tmp_path / "bookie", tmp_path / "whole"
    one_copy: dict[str, Any] = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1}
    refused: list[tuple[str, NotStartedError]] = []
    with contextlib.closing(Killable(directory, uri, "flushInterval=100000000")) as bookie:
        bookie.start()
        async with await fencepost.connect(uri) as store:
            ledgers: list[LedgerWriter] = []
            for _ in range(1 + is_checkpointed):
                if ledgers:
                    bookie.end()
                    bookie.start()
                ledgers.append(await store.create_ledger(**one_copy))
                await ledgers[-1].append_many([b"x"] * 5)
            bookie.kill()
            shutil.copytree(directory, whole)
            names = [each.relative_to(whole) for each in sorted(whole.rglob("*")) if each.is_file()]
            kinds = DAMAGES[::2] if is_checkpointed else DAMAGES[:2]
            for name in names if is_checkpointed else [each for each in names if each.suffix == ".journal"]:
                for damage in kinds:
                    shutil.rmtree(directory)
                    shutil.copytree(whole, directory)
                    damage(directory / name)
                    with contextlib.closing(Killable(directory, uri, bookie_id=bookie.bookie_id)) as again:
                        try:
                            again.start()
                        except NotStartedError as error:
                            refused.append((name.suffix or name.name, error))
                            continue
                        for ledger in ledgers:
                            code = await code_of(store, bookie.bookie_id, m.ReadEntry(ledger.id, 1))
                            assert code in (Code.OK, Code.UNKNOWN_LEDGER_STATE), (name, damage)
    assert all(error.status == 153 and len(error.said.strip().splitlines()) == 1 for _, error in refused), refused
    kept_out = {name for name, _ in refused}
    assert ".journal" in kept_out and (not is_checkpointed or "VERSION" in kept_out)
