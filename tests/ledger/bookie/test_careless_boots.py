"""Why each protection of a bookie's boot exists. Bookies run as processes and are killed. Without the protection,
acknowledged entries are lost, and the trace shows the wrong step. The bookies that lose something are never more than
an ack quorum leaves out.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ledger.bookie.standing_bookies import started
from patience import PATIENCE

import fencepost
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.errors import StoreError
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.traces import read
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

CARELESS = Path(__file__).with_name("careless_bookie.py")
ENTRIES = 20


class Process:
    """A bookie process without its adds in the journal, and perhaps without a protection."""

    def __init__(self, directory: Path, uri: str, traces: Path, without: str, number: int) -> None:
        program = [str(CARELESS), without] if without else ["-m", "fencepost"]
        settings = {
            "journalWriteData": "false", "flushInterval": 100_000_000, "traceDirectory": traces,
            "bookieId": f"bookie-{number}",
            "dataIntegrityStampMissingCookies": "true", "zkTimeout": 4_000,
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self.directory = directory
        self.command = [sys.executable, *program, "bookie", str(directory), "--metadata", uri, "--port", "0", *words]
        self.start()

    def start(self) -> str:
        self.running = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.running.stdout is not None
        return self.running.stdout.readline()

    def kill(self) -> None:
        self.running.kill()
        self.running.communicate()


async def closed_at(store: LedgerClient, ledger: int, seconds: float) -> int | None:
    """Recover a ledger within ``seconds``. Returns its number of entries, or None if it cannot be closed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with contextlib.suppress(StoreError):
                    return (await store.recover_ledger(ledger)).last_entry + 1
                await asyncio.sleep(0.1)
    return None


async def acknowledged_and_left(tmp_path: Path, without: str) -> tuple[int, int | None, Verdict]:
    """Returns how many entries were acknowledged, how many are in the closed ledger, and the verdict on the trace.

    Two of three bookies confirm the entries. The third is paused and then killed with the messages it received. One of
    the two is killed too, and loses its memory. Both restart, and the ledger is recovered while the bookie with all
    entries is paused.
    """
    traces = tmp_path / "traces"
    with contextlib.ExitStack() as exits:
        service = exits.enter_context(started("metadata", tmp_path / "metadata", "--port", "0", "--trace", traces))
        assert service.stdout is not None
        uri = f"{service.stdout.readline().split()[2]}/ledgers"
        bookies = []
        for number in (1, 2, 3):
            bookies.append(Process(tmp_path / str(number), uri, traces, without, number))
            exits.callback(bookies[-1].kill)
        async with await fencepost.connect(uri, trace=traces) as store:
            ledger = await store.create_ledger(ack_quorum=2)
            bookies[2].running.send_signal(signal.SIGSTOP)
            count = len(await ledger.append_many([b"x"] * ENTRIES))
            for each in bookies[1:]:
                each.kill()
            bookies[0].running.send_signal(signal.SIGSTOP)  # it has all entries, and is slow to say so
            for each in bookies[1:]:
                each.start()
            left = await closed_at(store, ledger.id, PATIENCE if without else 2)
        exits.close()
        found = Traces(read(traces, check=False), subjects=[str(ledger.id)])
        (name,) = found.names()
        return count, left, Validator(StoreConformance).validate(str(ledger.id), found.events(name))


@pytest.mark.campaign
def test_nothing_is_lost_with_all_protections(tmp_path: Path) -> None:
    count, left, verdict = asyncio.run(acknowledged_and_left(tmp_path, ""))
    assert count == ENTRIES and left is None  # bookies in limbo let nobody close the ledger
    assert verdict.accepted, verdict.problem or verdict.refusals


@pytest.mark.parametrize(
    ("without", "told"),
    [
        ("boot_enters_limbo", "bookie_may_lack_entries"),
        pytest.param("run_precedes_answers", "bookie_", marks=pytest.mark.campaign),
    ],
)
def test_without_a_protection_acknowledged_entries_are_lost_and_the_trace_tells_where(
    tmp_path: Path, without: str, told: str
) -> None:
    count, left, verdict = asyncio.run(acknowledged_and_left(tmp_path, without))
    assert count == ENTRIES and left is not None and left < ENTRIES
    assert not verdict.accepted and verdict.covered
    assert told in (verdict.problem or " ".join(each.event.action for each in verdict.refusals))
