"""``python -m bench.follow``: how soon ``fencepost validate --follow`` reports a violation, beside a busy store.

A cluster of three bookies takes adds of 100 B at a fixed rate, and traces one ledger in ``--share``. The busy ledger is
not among them. Others are: clients add to them ten times a second. Each of these clients is right at first. Then it
takes an entry for acknowledged with one confirmation less than the ack quorum. Printed are the seconds from the first
such acknowledgement to the line that rejects the trace.

    python -m bench.follow [--rate 100000] [--share 1000] [--violations 5] [--patience 0.2] [--engine spark]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import fencepost
from fencepost.ledger.roles import adds

DATA = b"x" * 100
A_SECOND = 100
"""How often the busy client hands over entries."""
PAUSE = 0.1
"""Seconds between two adds to a traced ledger."""
BEFORE = {"auto": 5.0, "spark": 20.0}
"""Seconds until an engine has started and found its speed."""
BETWEEN = 5.0
"""Seconds between two clients that will be wrong."""


async def busy(uri: str, ledger: int, rate: int, traces: str) -> None:
    """Add entries at a rate, and print the rate each second, until the process is ended."""
    async with fencepost.connect(uri, trace=traces) as store:
        writer = await store.create_ledger(ensemble=3, ack_quorum=2, ledger=ledger)
        entries, going = [DATA] * (rate // A_SECOND), set[asyncio.Task[Any]]()
        began = told_at = time.monotonic()
        handed_over, told = 0, -1
        while True:
            for _ in range(int((time.monotonic() - began) * A_SECOND) - handed_over):
                task = asyncio.create_task(writer.append_many(entries))
                going.add(task)
                task.add_done_callback(going.discard)
                handed_over += 1
            now = time.monotonic()
            if now - told_at >= 1:
                print(round((writer.last_add_confirmed - told) / (now - told_at)), flush=True)
                told_at, told = now, writer.last_add_confirmed
            await asyncio.sleep(0.5 / A_SECOND)


async def wrong(uri: str, ledger: int, honest: int, traces: str) -> None:
    """Add entries. After some, take each for acknowledged too early. Prints when each of those was."""
    async with fencepost.connect(uri, trace=traces) as store:
        writer = await store.create_ledger(ensemble=3, ack_quorum=2, ledger=ledger)
        role: Any = adds
        is_committed = role.is_committed
        for entry in range(honest + 20):
            if entry == honest:
                role.is_committed = lambda confirmations, ack_quorum: is_committed(confirmations + 1, ack_quorum)
            await writer.append(DATA)
            if entry >= honest:
                print(json.dumps([entry, time.time()]), flush=True)
            await asyncio.sleep(PAUSE)


def measure(given: argparse.Namespace, folder: Path) -> bool:
    """Measure, and print. Returns whether each violation was reported."""
    cluster, traces = str(folder / "cluster"), folder / "traces"
    traces.mkdir()
    (traces / "_share").write_text(str(given.share))
    up = [sys.executable, "-m", "fencepost", "cluster", "up", cluster, "--detach", "--trace", str(traces)]
    said = subprocess.run(up, capture_output=True, text=True, check=True).stdout
    found = re.search(r"zk://\S+", said)
    assert found is not None, said
    mine = [sys.executable, "-m", "bench.follow", "--traces", str(traces), "--uri", found[0]]
    follow = [sys.executable, "-m", "fencepost", "validate", str(traces), "--follow", "--protocol", "store"]
    follow += ["--patience", str(given.patience), "--engine", given.engine]
    rejected: dict[int, float] = {}
    rates: list[int] = []

    def note_rejected(lines: IO[str]) -> None:
        for line in lines:
            if told := re.match(r"REJECTED  run \S+, subject (\d+):", line):
                rejected[int(told[1])] = time.time()

    def note_rates(lines: IO[str]) -> None:
        rates.extend(map(int, lines))

    try:
        with (
            _ran([*mine, "--busy", "1", "--rate", str(given.rate)], note_rates),
            _ran(follow, note_rejected),
        ):
            time.sleep(BEFORE[given.engine])
            rates.clear()
            seconds = []
            for number in range(1, given.violations + 1):
                ledger = 2 * number * given.share
                one = [*mine, "--wrong", str(ledger), "--honest", str(given.honest)]
                done = subprocess.run(one, capture_output=True, text=True, check=True).stdout
                first = min(at for _, at in map(json.loads, done.splitlines()))
                time.sleep(BETWEEN)
                took = rejected[ledger] - first if ledger in rejected else None
                print(f"ledger {ledger:,}: {'not reported' if took is None else f'{took:.2f} s'}", flush=True)
                seconds.append(took if took is not None else float("inf"))
    finally:
        down = [sys.executable, "-m", "fencepost", "cluster", "down", cluster]
        subprocess.run(down, check=False, capture_output=True)
    print(
        f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), at"
        f" {statistics.median(rates):,.0f} adds a second ({min(rates):,} to {max(rates):,})"
    )
    return float("inf") not in seconds


@contextmanager
def _ran(command: Sequence[str], note: Any) -> Iterator[None]:
    """A process that is ended behind the ``with``. A thread takes its lines."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    thread = threading.Thread(target=note, args=(process.stdout,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        thread.join()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or be one of the clients."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=int, default=100_000)
    parser.add_argument("--share", type=int, default=1_000)
    parser.add_argument("--violations", type=int, default=5)
    parser.add_argument("--honest", type=int, default=20, help="entries that are right at first, by default 20")
    parser.add_argument("--patience", type=float, default=0.2)
    parser.add_argument("--engine", choices=tuple(BEFORE), default="auto")
    for hidden, kind in (("--uri", str), ("--traces", str), ("--busy", int), ("--wrong", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.busy is not None:
        asyncio.run(busy(given.uri, given.busy, given.rate, given.traces))
    elif given.wrong is not None:
        asyncio.run(wrong(given.uri, given.wrong, given.honest, given.traces))
    else:
        with tempfile.TemporaryDirectory() as folder:
            return 0 if measure(given, Path(folder)) else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
