"""``python -m bench.store.flood``: how many adds one bookie takes on one core, from a generator on another one.

The generator sends frames that are made ahead but for their numbers, up to a window of unanswered ones, and counts answers; it costs a
fraction of what the bookie does. The bookie has no metadata service, and a synced journal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import selectors
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.store.usage import cpu_seconds, resident_bytes
from fencepost.store import messages as m
from fencepost.store.rules.codes import Code
from fencepost.store.wire import v2, v3

FIRST = 1 << 28
"""The first entry id: it has as many bytes on the wire as all that are sent after it."""

AT_ONCE = 512
"""Frames that are made, and sent, at once."""


@dataclass
class Flooded:
    """What came of a flood: answers, in so many seconds, at microseconds of CPU of the generator for each."""

    size: int
    window: int
    answers: int
    seconds: float
    generator_cpu: float
    bookie_cpu: float = 0.0
    """Microseconds for each add; 0 if nobody looked."""

    @property
    def rate(self) -> float:
        """Adds a second."""
        return self.answers / self.seconds


class Frames:
    """Frames of adds of one ledger whose entry ids count on from :data:`FIRST`, with as many bytes of data as asked for."""

    def __init__(self, ledger: int, size: int, codec: Any = v3) -> None:
        self.next = FIRST
        self._codec = codec
        one = np.frombuffer(codec.encode_request(FIRST, self._add(ledger, FIRST, size)), np.uint8)
        other = np.frombuffer(codec.encode_request(FIRST, self._add(ledger, FIRST + 1, size)), np.uint8)
        self.size = len(one)
        self._frames = np.tile(one, (AT_ONCE, 1))
        differs = np.flatnonzero(one != other).tolist()
        lac = differs[-1] - 7
        self._plain = [(slice(lac - 8, lac), 0), (slice(lac, lac + 8), -1)]
        self._varints = [slice(differs[0], differs[0] + 5)] if codec is v3 else []
        if codec is v3:
            at = bytes(one).index(b"\x18", 4) + 1
            self._varints.append(slice(at, at + 5))
        self.answer = codec.encode_response(FIRST, m.AddEntryResponse(ledger, FIRST, Code.OK))

    @staticmethod
    def _add(ledger: int, entry_id: int, size: int) -> m.AddEntry:
        head = b"".join(n.to_bytes(8) for n in (ledger, entry_id, entry_id - 1, size))
        return m.AddEntry(ledger, entry_id, entry_id - 1, head + bytes(4) + b"d" * size, b"k" * 20)

    def some(self) -> bytes:
        """The next frames."""
        ids = np.arange(self.next, self.next + AT_ONCE, dtype=np.int64)
        self.next += AT_ONCE
        for place, more in self._plain:
            self._frames[:, place] = (ids + more).astype(">i8").view(np.uint8).reshape(AT_ONCE, 8)
        if self._varints:
            parts = ids[:, None] >> np.arange(0, 35, 7) & 127
            parts[:, :4] |= 128
            for place in self._varints:
                self._frames[:, place] = parts
        return self._frames.tobytes()


def flood(address: tuple[str, int], ledger: int, size: int, window: int, seconds: float, codec: Any = v3) -> Flooded:
    """Send adds to a bookie for so many seconds, and wait for the answers to all of them. Raises ``AssertionError`` if one is not OK."""
    frames = Frames(ledger, size, codec)
    sent = received = 0
    waiting = memoryview(b"")
    memory = memoryview(bytearray(1 << 20))
    with socket.create_connection(address) as connection, selectors.DefaultSelector() as selector:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
        began, cpu = time.monotonic(), time.process_time()
        end = began + seconds
        per_answer, is_over, first = len(frames.answer), False, True
        while not is_over or received < sent * per_answer:
            may_send = bool(waiting) or (not is_over and (sent + AT_ONCE) * per_answer - received <= window * per_answer)
            selector.modify(connection, selectors.EVENT_READ | (selectors.EVENT_WRITE if may_send else 0))
            for _, ready in selector.select():
                if ready & selectors.EVENT_READ:
                    count = connection.recv_into(memory)
                    assert count, "the bookie has closed the connection"
                    if first and count >= per_answer:
                        assert memory[:per_answer] == frames.answer, bytes(memory[:per_answer])
                        first = False
                    received += count
                if ready & selectors.EVENT_WRITE:
                    if not waiting:
                        waiting = memoryview(frames.some())
                        sent += AT_ONCE
                    waiting = waiting[connection.send(waiting) :]
            is_over = is_over or time.monotonic() >= end
        took = time.monotonic() - began
    assert received == sent * per_answer
    return Flooded(size, window, sent, took, (time.process_time() - cpu) / sent * 1e6)


def serve(folder: str, core: int | None, plain: bool, told: Any, profile: str) -> None:
    """Be a bookie without metadata, in a process of its own, until it is ended."""
    import uvloop

    from fencepost.store.bookie.metrics import Metrics
    from fencepost.store.bookie.server import LOOPS, OF_STORAGE, Server
    from fencepost.store.bookie.settings import Settings
    from fencepost.store.disk.storage import Storage
    from fencepost.store.roles.bookie import Bookie
    from fencepost.store.rows import ready

    if core is not None:
        os.sched_setaffinity(0, {core})

    async def main() -> None:
        os.environ[ready.ENVIRONMENT] = "plain" if plain else "compiled"
        settings = Settings()
        server = Server(Bookie(limits=settings.of_role()), settings, Metrics(), sys.exit)
        ready.begin(LOOPS, server.use)
        storage = Storage(
            settings.of_storage(f"{folder}/journal", f"{folder}/ledgers"),
            synced=server.synced,
            failed=server.failed,
            busy=server.busy,
            compiled=lambda: ready.has(OF_STORAGE),
        )
        server.open(storage)
        bound = socket.create_server(("127.0.0.1", 0))
        await server.listen(bound)
        told.send(bound.getsockname()[1])
        await asyncio.to_thread(told.poll, None)
        await server.close()
        storage.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def main() -> int:
    """Flood a bookie, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.store.flood", description="How many adds one bookie takes on one core.")
    parser.add_argument("--size", type=int, action="append", help="bytes of data of an entry; repeatable (by default 100 and 1024)")
    parser.add_argument("--window", type=int, default=4_000, help="adds without an answer (by default 4000)")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--version-2", action="store_true", help="speak version 2 of the protocol")
    parser.add_argument("--plain", action="store_true", help="a bookie without compiled loops")
    parser.add_argument("--folder", type=Path, help="where the bookie's folder is made")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured to this file as well")
    given = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="flood-", dir=given.folder)
    cores = sorted(os.sched_getaffinity(0))
    here, there = multiprocessing.Pipe()
    bookie = multiprocessing.get_context("spawn").Process(
        target=serve, args=(folder, cores[0] if len(cores) > 1 else None, given.plain, there, "")
    )
    bookie.start()
    assert bookie.pid is not None
    if len(cores) > 1:
        os.sched_setaffinity(0, set(cores[1:]))
    measured = []
    codec = v2 if given.version_2 else v3
    try:
        port = here.recv()
        ledger = 0
        for size in given.size or [100, 1024]:
            for turn in range(-1, given.rounds):
                ledger += 1
                before = cpu_seconds([bookie.pid])
                done = flood(("127.0.0.1", port), ledger, size, given.window, given.seconds if turn >= 0 else 1, codec)
                done.bookie_cpu = (cpu_seconds([bookie.pid]) - before) / done.answers * 1e6
                if turn >= 0:
                    measured.append(done)
                    print(
                        f"{size:>6} B  {done.rate:>9,.0f} adds/s  bookie {done.bookie_cpu:.2f} us  generator {done.generator_cpu:.2f} us  "
                        f"memory {resident_bytes([bookie.pid]) / 2**20:,.0f} MiB",
                        flush=True,
                    )
    finally:
        here.send("end")
        bookie.join()
        shutil.rmtree(folder, ignore_errors=True)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(done) for done in measured], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
