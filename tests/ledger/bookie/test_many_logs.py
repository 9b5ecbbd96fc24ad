"""A bookie may have more entry logs than open files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ledger.processes import SOURCE
from patience import PATIENCE

TESTS = Path(__file__).parents[2]

BOOKIE = """
import asyncio, gc, resource, sys
from pathlib import Path

import msgspec
from ledger.bookie.serving import add, entry, serving

from fencepost.ledger import messages as m
from fencepost.ledger.disk.entry_logs import OPEN_LOGS
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.disk.workers import run_work
from fencepost.ledger.rules.codes import Code

LOGS, FILES, FOLDER = 250, OPEN_LOGS + 60, Path(sys.argv[1])


def storage(settings, **more):
    return Storage(msgspec.structs.replace(settings, log_size_limit=1), **more)


async def main():
    async with serving(FOLDER, storage_of=storage) as served:
        client = await served.client()
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
        for number in range(LOGS):
            assert (await client.ask(add(1, number))).code is Code.OK
            await asyncio.to_thread(served.server.storage.checkpoint)
        await reads(served)
    assert len([*(FOLDER / "ledgers").glob("*.log")]) >= LOGS
    async with serving(FOLDER, storage_of=storage) as served:
        await reads(served)
        collected = await asyncio.to_thread(run_work, served.server.storage.collecting(1.0))
        assert len(collected.removed) >= LOGS - 1, collected
        await reads(served)


async def reads(served):
    for number in (*range(LOGS), *range(0, LOGS, 7)):
        client = await served.client()
        assert (await client.ask(m.ReadEntry(1, number))).body == entry(1, number)
        await client.close()
    client = await served.client()
    client.send(*(m.ReadEntry(1, number) for number in range(LOGS)))
    found = [(await client.receive())[1] for _ in range(LOGS)]
    assert {each.entry_id: each.body for each in found} == {number: entry(1, number) for number in range(LOGS)}
    await client.close()


gc.disable()  # a bookie that was closed has closed its files
asyncio.run(main())
"""


def test_a_bookie_with_more_entry_logs_than_open_files_goes_on(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", BOOKIE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": f"{SOURCE}:{TESTS}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
