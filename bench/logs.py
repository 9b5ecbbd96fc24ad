"""A log of many ledgers: how long it takes to open, to list, to find a time in, and to trim, and how many entries are
read for that.

``python -m bench.logs [--ledgers 10000] [--entries 1000]``: a cluster of its own, of one metadata service and three
bookies. All ledgers of the log are real ones; those that are looked into have ``--entries`` entries, the others none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from bench.ledger.figures import table
from fencepost.api.client import Client
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.log.chain import EARLIEST, LATEST
from fencepost.log.log import Log

AT_ONCE = 64
"""Ledgers that are made at once."""


@contextmanager
def cluster(folder: Path, bookies: int = 3) -> Iterator[str]:
    """A metadata service and bookies on any free ports, as processes; the address of the metadata."""
    processes: list[subprocess.Popen[str]] = []

    def started(*arguments: str) -> str:
        process = subprocess.Popen(
            [sys.executable, "-m", "fencepost", *arguments], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        processes.append(process)
        assert process.stdout is not None
        return process.stdout.readline()

    async def initialised(uri: str) -> None:
        async with await MetadataClient.connect(uri) as client:
            await client.initialise()

    try:
        uri = started("metadata", str(folder / "metadata"), "--port", "0").split()[2] + "/ledgers"
        asyncio.run(initialised(uri))
        for number in range(bookies):
            started("bookie", str(folder / f"bookie{number}"), "--metadata", uri, "--port", "0")
        yield uri
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait()


async def filled(log: Log, ledgers: int, entries: int) -> None:
    """Make the log: one ledger with entries, many without, and another with entries, as writers that roll over do."""
    await log.create()
    async with log.writer() as writer:
        await writer.append_many(b"%d" % number for number in range(entries))
    made: list[int] = []
    while len(made) < ledgers - 2:
        some = await asyncio.gather(*(log.store.create_ledger() for _ in range(min(AT_ONCE, ledgers - 2 - len(made)))))
        await asyncio.gather(*(each.close() for each in some))
        made += (each.id for each in some)
        if sys.stderr.isatty():
            print(f"\r{len(made):,} of {ledgers:,} ledgers", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    chain, version = await log._nodes.read()
    for number, ledger in enumerate(made):
        chain = chain.appended(ledger, chain.links[0].created + number)
    await log._nodes.write(chain, version)
    async with log.writer() as writer:
        await writer.append_many(b"%d" % number for number in range(entries))


class Counted:
    """How many ledgers are opened, and entries read one by one."""

    def __init__(self) -> None:
        self.opened = self.entries = 0
        read, opened = LedgerReader.read_entry, LedgerClient.open_ledger

        async def read_entry(reader: LedgerReader, entry_id: int) -> bytes:
            self.entries += 1
            return await read(reader, entry_id)

        def open_ledger(store: LedgerClient, *given: object, **options: object) -> object:
            self.opened += 1
            return opened(store, *given, **options)  # type: ignore[arg-type]

        LedgerReader.read_entry = read_entry  # type: ignore[method-assign,assignment]
        LedgerClient.open_ledger = open_ledger  # type: ignore[method-assign,assignment]


async def measured(uri: str, ledgers: int, entries: int) -> list[list[str]]:
    """The rows of the table."""
    rows: list[list[str]] = []
    settings = ClientSettings(metadata_timeout=60.0)

    @asynccontextmanager
    async def timed(what: str) -> AsyncIterator[None]:
        before, began = (counted.opened, counted.entries), time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        rows.append(
            [what, f"{seconds * 1000:,.0f} ms", f"{counted.opened - before[0]:,}", f"{counted.entries - before[1]:,}"]
        )

    async with await Client.connect(uri, settings) as store:
        await filled(store.log("many"), ledgers, entries)
    counted = Counted()
    async with await Client.connect(uri, settings) as store:
        log = store.log("many")
        async with timed("list"):
            assert len((await log.show()).chain.links) == ledgers
        async with timed("find the end"):
            await log.find(LATEST)
        chain = await log.chain()
        last = [entry async for entry in log.reader(at=chain.links[-1].created, follow=False)]
        async with timed(f"find a time among {entries:,} entries of the last ledger"):
            await log.find(last[len(last) // 2].time)
        async with timed("find a time in the middle of the log"):
            await log.find(chain.links[ledgers // 2].created)
        async with timed("read the first entry"):
            async with log.reader(EARLIEST, follow=False) as reader:
                await anext(aiter(reader))
        async with timed("open for writing, close the last ledger, append, and end"):
            async with log.writer() as writer:
                await writer.append(b"one more")
        async with timed(f"trim {ledgers // 2:,} ledgers, and delete them"):
            assert len(await log.trim(keep=ledgers - ledgers // 2 + 1)) == ledgers // 2
        assert len((await log.chain()).links) == ledgers - ledgers // 2 + 1
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledgers", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=1_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as uri:
        rows = asyncio.run(measured(uri, given.ledgers, given.entries))
    print(f"a log of {given.ledgers:,} ledgers")
    print(table(["", "time", "ledgers opened", "entries read one by one"], rows))


if __name__ == "__main__":
    main()
