"""A bookie on a small real file system that a fast writer or another program fills. It becomes read-only and still
serves readers, loses nothing that was acknowledged, starts on the full disk, and becomes writable again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from ledger.bookie.standing_bookies import started
from patience import PATIENCE, eventually

import fencepost
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.errors import StoreError

MIB = 1 << 20
SETTINGS = {
    "bookieId": "small", "journalPreAllocSizeMB": 1, "dbStorage_writeCacheMaxSizeMb": 4,
    "diskCheckInterval": 100, "flushInterval": 500,
    "logSizeLimit": 2 * MIB, "gcWaitTime": 500, "minorCompactionInterval": 1, "majorCompactionInterval": 1,
    "diskUsageThreshold": 0.8, "diskUsageLwmThreshold": 0.75, "diskUsageWarnThreshold": 0.7,
}  # fmt: skip
"""A fifth of the disk is free when it counts as full, so that the reserves have room."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


class Program:
    """Another program, which takes all free room."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "other"

    def fill(self) -> None:
        with open(self.path, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                for size in (MIB, 4096):
                    with contextlib.suppress(OSError):
                        while file.write(bytes(size)) == size:
                            pass
                if not free(self.path.parent):
                    return

    def end(self) -> None:
        self.path.unlink()


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def bookie(folder: Path, uri: str, **more: object) -> Iterator[subprocess.Popen[str]]:
    words = [word for name, value in {**SETTINGS, **more}.items() for word in ("--set", f"{name}={value}")]
    with started("bookie", folder / "bookie", "--metadata", uri, "--port", "0", *words) as running:
        assert running.stdout is not None
        assert "serves" in running.stdout.readline(), running.communicate()
        yield running


async def is_writable(store: LedgerClient) -> bool:
    with contextlib.suppress(StoreError):
        async with store.create_ledger(ensemble=1) as ledger:
            return await ledger.append(b"again") == 0
    return False


class Entries:
    """The acknowledged entries: the hash of each entry of each ledger."""

    def __init__(self) -> None:
        self.hashes: dict[int, list[bytes]] = {}

    async def write_until_refused(self, store: LedgerClient, most: int) -> int:
        """Fill ledgers until the bookie takes no more, or with ``most`` bytes. Returns how many entries were
        acknowledged.
        """
        written = 0
        with contextlib.suppress(StoreError):
            while written < most:
                ledger = await store.create_ledger(ensemble=1)
                hashes = self.hashes.setdefault(ledger.id, [])
                for _ in range(40):
                    data = [os.urandom(4096) for _ in range(16)]
                    await asyncio.gather(*(self._append(ledger, each, hashes) for each in data))
                    written += sum(map(len, data))
                await ledger.close()
        return written

    async def _append(self, ledger: fencepost.LedgerWriter, data: bytes, hashes: list[bytes]) -> None:
        entry_id = await ledger.append(data)
        assert entry_id == len(hashes), "entries are acknowledged in order"
        hashes.append(sha256(data).digest())

    async def all_are_there(self, store: LedgerClient) -> None:
        """Read all entries. A ledger that its writer could not close is closed first, by fencing it."""
        for number, hashes in self.hashes.items():
            last = (await store.recover_ledger(number)).last_entry
            assert last is not None and last >= len(hashes) - 1
            async with store.open_ledger(number) as reader:
                found = (
                    [sha256(entry.data).digest() async for entry in reader.read(0, len(hashes) - 1)] if hashes else []
                )
            assert found == hashes


@pytest.mark.campaign
async def test_another_program_fills_the_disk(disk: Path, uri: str) -> None:
    entries, other = Entries(), Program(disk)
    async with contextlib.AsyncExitStack() as exits:
        with bookie(disk, uri) as running:
            store = await exits.enter_async_context(await fencepost.connect(uri))
            await entries.write_until_refused(store, 8 * MIB)
            open_ledger = await store.create_ledger(ensemble=1)
            await open_ledger.append(b"before")
            other.fill()
            with pytest.raises(StoreError):
                while True:
                    await open_ledger.append(bytes(64 * 1024))
            assert running.poll() is None
            await entries.all_are_there(store)
            assert (await store.recover_ledger(open_ledger.id)).last_entry is not None, "a fence has room"
            running.kill()
        for _ in range(8):
            with bookie(disk, uri) as running:  # it starts, and serves
                other.fill()
                await entries.all_are_there(store)
                assert not await is_writable(store)
                running.kill()
        with bookie(disk, uri) as running:
            await entries.all_are_there(store)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0, running.communicate()
        with bookie(disk, uri) as running:
            assert not await is_writable(store)
            other.end()
            await eventually(lambda: is_writable(store), "the bookie takes adds again")
            await entries.all_are_there(store)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0, running.communicate()


@pytest.mark.campaign
@pytest.mark.parametrize("journals_adds", [True, False])
async def test_a_fast_writer_fills_the_disk(disk: Path, uri: str, journals_adds: bool) -> None:
    """The disk fills before anybody checks its room. Only a failed write reveals it."""
    more = {"diskCheckInterval": 3_000, "journalWriteData": str(journals_adds).lower()}
    entries = Entries()
    async with contextlib.AsyncExitStack() as exits:
        with bookie(disk, uri, **more) as running:
            store = await exits.enter_async_context(await fencepost.connect(uri))
            assert 20 * MIB < await entries.write_until_refused(store, 100 * MIB) < 100 * MIB
            await entries.all_are_there(store)
            assert running.poll() is None and not await is_writable(store)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0, running.communicate()
        with bookie(disk, uri, **more) as running:
            await entries.all_are_there(store)
            for number in [*entries.hashes][::2]:
                await store.delete_ledger(number)
                del entries.hashes[number]
            await eventually(lambda: is_writable(store), "room, as what was deleted is removed")
            await entries.all_are_there(store)
            assert running.poll() is None
