"""``python -m bench.chaos.damage --times 100 --seed S``: files of a bookie and of a metadata service are damaged, and
they are started again.

Each time a copy of their directories is taken, one file in it is damaged, and the process is started on it. Either it
does not start, and says in one line why; or it serves, and never anything wrong: an entry that was acknowledged comes
with its bytes, or it is said that it can not be read, but not that there is none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fencepost
from fencepost.store.cluster import bound
from fencepost.store.cluster.ports import HOST, free_ports
from fencepost.store.disk import journal
from fencepost.store.messages import ReadEntry
from fencepost.store.rules.codes import Code
from fencepost.store.wire.frames import DEFAULT_LIMIT, Frames
from fencepost.store.wire.v3 import decode_response, encode_request

IN_ENTRY_LOGS, IN_JOURNAL = 60, 60
"""Entries that are in an entry log, and entries that are in the journal alone."""

REFUSED = "refused"
SERVED = "served"
NOTHING_LOST = "nothing lost"
"""What became of a start: it did not serve; it served, and some entries could not be read; or all was there."""


class Process:
    """A part that runs until this is closed. ``serves`` is whether it came so far; otherwise ``complaint`` is what it
    said.
    """

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-IS", bound.__file__, str(os.getpid()), sys.executable, "-m", "fencepost", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.serves = self._process.stdout.readline().rstrip().endswith("serves")
        self.complaint = ""
        self.code = 0
        if not self.serves:
            _, self.complaint = self._process.communicate()
            self.code = self._process.returncode

    def end(self, number: signal.Signals) -> None:
        """End it by a signal."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.communicate()


@dataclass(frozen=True)
class Prepared:
    """Directories of a bookie that was killed and of a metadata service that was ended, and the bodies of all
    entries.
    """

    home: Path
    metadata_port: int
    bookie_port: int
    entries: dict[tuple[int, int], bytes]

    @property
    def uri(self) -> str:
        return f"zk://{HOST}:{self.metadata_port}/ledgers"

    def metadata(self, directory: Path) -> Process:
        """A metadata service."""
        return Process("metadata", str(directory), "--port", str(self.metadata_port))

    def bookie(self, directory: Path) -> Process:
        """A bookie."""
        return Process("bookie", str(directory), "--metadata", self.uri, "--port", str(self.bookie_port))

    def copy(self, part: str, to: Path) -> Path:
        """A copy of a directory, in the place of the one before. A bookie's cookie names its directory, so that can
        have only one.
        """
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.home / part, to, symlinks=True)
        return to


def prepared(home: Path) -> Prepared:
    """Write two ledgers: one that the bookie has in an entry log, and one that it has in its journal alone."""
    metadata_port, bookie_port = free_ports([0, 0], {0})
    case = Prepared(home, metadata_port, bookie_port, {})
    metadata = case.metadata(home / "metadata.live")
    bookie = case.bookie(home / "bookie.live")
    assert metadata.serves and bookie.serves, metadata.complaint + bookie.complaint
    ledgers = [asyncio.run(_written(case.uri, IN_ENTRY_LOGS))]
    bookie.end(signal.SIGTERM)
    bookie = case.bookie(home / "bookie.live")
    ledgers.append(asyncio.run(_written(case.uri, IN_JOURNAL)))
    for ledger, count in zip(ledgers, (IN_ENTRY_LOGS, IN_JOURNAL), strict=True):
        for entry_id, (code, body) in enumerate(answers(bookie_port, ledger, count)):
            assert code is Code.OK and body is not None
            case.entries[ledger, entry_id] = body
    _until_proven(home / "bookie.live" / "journal" / "current")
    bookie.end(signal.SIGKILL)
    metadata.end(signal.SIGTERM)
    for part in ("metadata", "bookie"):
        shutil.copytree(home / f"{part}.live", home / part)
    return case


def _until_proven(journals: Path) -> None:
    """Wait until a bookie that rests has proven all of its journal to be durable; before that, damage at its end can
    not be told from a torn write.
    """
    while True:
        newest = max(journals.glob("*.journal"))
        seen = journal.scan(newest.read_bytes(), int(newest.stem))
        if all(group < seen.synced for group, _ in seen.records):
            return
        time.sleep(0.02)


async def _written(uri: str, count: int) -> int:
    async with fencepost.connect(uri) as store, store.create_ledger(ensemble=1) as ledger:
        await ledger.append_many(bytes([n]) * (100 + 37 * n) for n in range(count))
        return int(ledger.id)


def answers(port: int, ledger: int, count: int) -> list[tuple[Code, bytes | None]]:
    """What a bookie answers to the reads of the first so many entries of a ledger."""
    found: dict[int, tuple[Code, bytes | None]] = {}
    frames = Frames(DEFAULT_LIMIT)
    with socket.create_connection((HOST, port), timeout=60) as connection:
        connection.sendall(b"".join(encode_request(entry_id, ReadEntry(ledger, entry_id)) for entry_id in range(count)))
        while len(found) < count:
            data = connection.recv(1 << 16)
            if not data:
                raise ConnectionError(f"the bookie closed the connection after {len(found)} of {count} answers")
            for payload in frames.feed(data):
                entry_id, response = decode_response(payload)
                found[entry_id] = (response.code, response.body)  # type: ignore[union-attr]
    return [found[entry_id] for entry_id in range(count)]


# -- one damage, and what comes of it ---------------------------------------------------------------------------------


def files_of(directory: Path) -> list[Path]:
    """The files of a part that it keeps something in."""
    return sorted(
        path.relative_to(directory)
        for path in directory.rglob("*")
        if path.is_file() and path.name != "LOCK" and path.stat().st_size
    )


def of_bookie(case: Prepared, harm: Callable[[Path], None]) -> tuple[str, str]:
    """Damage the directory of the bookie and start it: what came of it, and what is wrong with that, which should be
    nothing.
    """
    metadata = case.metadata(case.copy("metadata", case.home / "metadata.live"))
    directory = case.copy("bookie", case.home / "bookie.live")
    harm(directory)
    bookie = case.bookie(directory)
    try:
        if not bookie.serves:
            return REFUSED, _refusal(bookie)
        wrong, unreadable = [], 0
        for ledger in {ledger for ledger, _ in case.entries}:
            bodies = {entry_id: body for (of, entry_id), body in case.entries.items() if of == ledger}
            for entry_id, (code, body) in enumerate(answers(case.bookie_port, ledger, len(bodies))):
                if code is Code.IO_ERROR:
                    unreadable += 1
                elif code is not Code.OK:
                    wrong.append(f"entry {entry_id} of ledger {ledger} is answered {code.name}")
                elif body != bodies[entry_id]:
                    wrong.append(f"entry {entry_id} of ledger {ledger} has other bytes")
        return (SERVED if unreadable else NOTHING_LOST), "; ".join(wrong[:3])
    finally:
        bookie.end(signal.SIGKILL)
        metadata.end(signal.SIGKILL)


def of_metadata(case: Prepared, harm: Callable[[Path], None]) -> tuple[str, str]:
    """The same for the directory of the metadata service."""
    directory = case.copy("metadata", case.home / "metadata.live")
    harm(directory)
    metadata = case.metadata(directory)
    try:
        if not metadata.serves:
            return REFUSED, _refusal(metadata)
        there = asyncio.run(_listed(case.uri))
        wanted = {ledger for ledger, _ in case.entries}
        return NOTHING_LOST, "" if there == wanted else f"the ledgers are {sorted(there)}, and were {sorted(wanted)}"
    finally:
        metadata.end(signal.SIGKILL)


async def _listed(uri: str) -> set[int]:
    async with fencepost.connect(uri) as store:
        found = {ledger async for ledger in store.list_ledgers()}
        for ledger in found:
            assert (await store.ledger_metadata(ledger)).last_entry >= 0
        return found


def _refusal(process: Process) -> str:
    """What is wrong with how a part said that it does not start: the last line is the reason, and there is no
    traceback.
    """
    lines = process.complaint.splitlines()
    if process.code != fencepost.SystemFailure.exit_code or not lines or not lines[-1].startswith("fencepost: "):
        return f"it ended with {process.code}: {process.complaint[-500:]}"
    return process.complaint if "Traceback" in process.complaint or "a fault in Fencepost" in process.complaint else ""


def flipped(path: Path, bit: int) -> None:
    """Flip a bit of a file."""
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def any_harm(draw: random.Random, directory: Path, files: list[Path]) -> str:
    """Damage a file in any way; what was done."""
    path = directory / draw.choice(files)
    size, kind = path.stat().st_size, draw.random()
    name = path.relative_to(directory)
    if kind < 0.15:
        path.unlink()
        return f"{name} removed"
    if kind < 0.4:
        at = draw.randrange(size)
        os.truncate(path, at)
        return f"{name} cut at byte {at:,}"
    content = path.read_bytes().rstrip(b"\0")
    at = draw.randrange(max(1, len(content)))  # not in room that was never written
    if kind < 0.8:
        flipped(path, bit := at * 8 + draw.randrange(8))
        return f"{name}, bit {bit:,} flipped"
    with open(path, "r+b") as file:
        file.seek(at // 512 * 512)
        file.write(
            bytes(min(512, size - at // 512 * 512)) if kind < 0.9 else draw.randbytes(min(512, size - at // 512 * 512))
        )
    return f"{name}, sector {at // 512:,} {'lost' if kind < 0.9 else 'overwritten'}"


def main() -> int:
    """Damage files at random, again and again; exit code 1 if anything wrong was served."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos.damage", description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    draw, outcomes, faults = random.Random(given.seed), Counter[str](), 0
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fencepost-damage-") as home:
        case = prepared(Path(home))
        for _ in range(given.times):
            part, start = draw.choice([("bookie", of_bookie), ("bookie", of_bookie), ("metadata", of_metadata)])
            done: list[str] = []
            files = files_of(Path(home) / part)
            came, wrong = start(
                case, lambda directory, files=files, done=done: done.append(any_harm(draw, directory, files))
            )  # type: ignore[misc]
            outcomes[f"{part} {came}"] += 1
            faults += bool(wrong)
            print(f"{'WRONG  ' if wrong else ''}{part} {came:<13} {done[0]}{f': {wrong}' if wrong else ''}", flush=True)
    print(", ".join(f"{count} x {outcome}" for outcome, count in sorted(outcomes.items())), f"   {faults} wrong")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
