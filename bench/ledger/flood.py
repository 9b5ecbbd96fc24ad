"""One bookie alone: a process on one core sends it adds as fast as it answers, and the bookie has another core.

The adds are frames that are made ahead by the block: only numbers change from one to the next. The bookie does all that
it does for a client, and syncs its journal. Each answer is compared with the one that is expected. (Digests are not
right: bookies do not look at them.)
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.ledger.figures import size_of, table
from bench.ledger.sides import OURS, Side
from bench.ledger.usage import cpu, pin, status_bytes
from fencepost.ledger.messages import AddEntry, AddEntryResponse
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v2, v3
from interop.clients import Refused

CONNECTIONS = 4
WINDOW = 2_000
BLOCK = 16_384
"""Frames that are made at once for a connection."""
FIRST = 1 << 21
"""Numbers from here up to :data:`LAST` have four bytes as variable integers: all frames are equally long."""
LAST = 1 << 28
LEDGER = 0x0765_4321
"""The ledger of the first connection; the others have the next."""
HEADER = 32
"""Bytes of an entry that are four numbers."""


class Frames:
    """Adds to one ledger, and what is answered to them: ``size`` bytes each, ``answer_size`` bytes each. ``codec``: of
    version 2 or 3.
    """

    def __init__(self, ledger: int, data: int, codec: Any = v3) -> None:
        self.data = data
        txn, entry_id = 0x0123_4567, 0x0654_3210
        body = b"".join(number.to_bytes(8, "big") for number in (ledger, entry_id, entry_id - 1, data)) + bytes(
            4 + data
        )
        request = codec.encode_request(txn, AddEntry(ledger, entry_id, entry_id - 1, body, bytes(20)))
        self.size = len(request)
        self._body = request.index(body)
        self._numbers = [request.index(_varint(number)) for number in (txn, entry_id)] if codec is v3 else []
        self.block = np.tile(np.frombuffer(request, np.uint8), (BLOCK, 1))
        answer = codec.encode_response(txn, AddEntryResponse(ledger, entry_id, Code.OK))
        self.answer_size = len(answer)
        told = [_varint(txn), _varint(entry_id)] if codec is v3 else [entry_id.to_bytes(8, "big")]
        changing = {answer.index(number) + byte for number in told for byte in range(len(number))}
        self._fixed = np.array([at for at in range(len(answer)) if at not in changing])
        self._expected = np.frombuffer(answer, np.uint8)[self._fixed]

    def number_from(self, first: int) -> None:
        """Give the frames of the block their numbers, from ``first`` on."""
        numbers = np.arange(first, first + BLOCK, dtype=np.int64)
        for byte in range(4):
            value = (numbers >> 7 * byte & 0x7F | (0x80 if byte < 3 else 0)).astype(np.uint8)
            for place in self._numbers:
                self.block[:, place + byte] = value
        for place, values in ((8, numbers), (16, numbers - 1), (24, (numbers - FIRST + 1) * self.data)):
            column = np.ndarray((BLOCK,), ">i8", self.block, self._body + place, (self.size,))
            column[:] = values

    def check(self, answers: NDArray[np.uint8]) -> None:
        """Raise if one of the answers is another than that the entry was added."""
        if not (answers.reshape(-1, self.answer_size)[:, self._fixed] == self._expected).all():
            raise SystemExit("an add was not answered as it should be")


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80, number >> 21])


class Link:
    """A connection with at most ``window`` adds in flight."""

    def __init__(self, port: int, ledger: int, data: int, window: int, codec: Any) -> None:
        self.frames = Frames(ledger, data, codec)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.window = window
        self.answered = 0
        self._sent = 0  # bytes
        self._next = FIRST
        self._at = len(self.frames.block) * self.frames.size  # where in the block
        self._buffer = np.empty(1 << 20, np.uint8)
        self._held = 0

    def send(self) -> bool:
        """Send what may be sent; whether more would have been, had the connection taken it."""
        frames = self.frames
        whole = frames.block.size
        may = (self.answered + self.window) * frames.size
        if may - self._sent < self.window // 4 * frames.size and self._sent % frames.size == 0:
            return False
        while self._sent < may:
            if self._at == whole:
                if self._next + BLOCK > LAST:
                    raise SystemExit("there are no more numbers: measure for a shorter time")
                frames.number_from(self._next)
                self._next += BLOCK
                self._at = 0
            stop = min(whole, self._at + may - self._sent)
            try:
                count = self.socket.send(frames.block.data.cast("B")[self._at : stop])
            except BlockingIOError:
                return True
            self._at += count
            self._sent += count
        return False

    def receive(self) -> None:
        """Take the answers that are there."""
        count = self.socket.recv_into(self._buffer.data[self._held :])
        if not count:
            raise SystemExit("the bookie has closed a connection")
        self._held += count
        whole = self._held // self.frames.answer_size * self.frames.answer_size
        self.frames.check(self._buffer[:whole])
        self.answered += whole // self.frames.answer_size
        rest = self._held - whole
        self._buffer[:rest] = self._buffer[whole : self._held].copy()
        self._held = rest


def generate(port: int, data: int, connections: int, window: int, spans: list[float], codec: Any = v3) -> None:
    """Send adds for several spans of time, one after another; at the end of each, print how many were answered in it,
    and in which time.
    """
    links = [Link(port, LEDGER + number, data, window, codec) for number in range(connections)]
    poll = select.epoll()
    by_number = {link.socket.fileno(): link for link in links}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    blocked: set[int] = set()
    for span in spans:
        began, began_cpu, before = time.perf_counter(), time.process_time(), sum(link.answered for link in links)
        end = began + span
        while time.perf_counter() < end:
            for number, link in by_number.items():
                if link.send() != (number in blocked):
                    blocked ^= {number}
                    poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if number in blocked else 0))
            for number, events in poll.poll(0.1):
                if events & select.EPOLLIN:
                    by_number[number].receive()
        answered, took = sum(link.answered for link in links) - before, time.perf_counter() - began
        print(json.dumps({"adds": answered, "seconds": took, "cpu": time.process_time() - began_cpu}), flush=True)


def run(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure, print and give what was measured."""
    found = [_flooded(given, folder / str(size), size) for size in given.flood_size]
    where = "one core" if found[0]["pinned"] else "any core"
    print(f"a bookie on {where}; {given.connections} connections with {given.window:,} adds in flight each\n")
    head = ("adds of", "a second", "bookie us", "of kernel", "its core busy", "generator us", "memory", "at most")
    lines = [
        (
            size_of(each["size"]),
            f"{each['rate']:,.0f}",
            f"{each['bookie_user'] + each['bookie_system']:.2f}",
            f"{each['bookie_system']:.2f}",
            f"{each['busy']:.0%}",
            f"{each['generator_cpu']:.2f}",
            size_of(each["resident"]),
            size_of(each["most"]),
        )
        for each in found
    ]
    print(table(head, lines), flush=True)
    return found


def _flooded(given: argparse.Namespace, folder: Path, size: int) -> dict[str, Any]:
    """What a bookie took of adds of one size."""
    cores = sorted(os.sched_getaffinity(0))
    is_pinned = len(cores) > 1
    side = Side(OURS, folder, given.setting)
    rounds = [given.seconds] * max(3, given.rounds)
    measured: list[dict[str, float]] = []
    try:
        side.start(bookies=1, clients=0)
        bookie = side.bookies[0]
        if is_pinned:
            pin(bookie, cores[0])
        version = 2 if given.version_2 else 3
        words = (version, side.cluster.bookies[0].port, size, given.connections, given.window, given.seconds, *rounds)
        command = [sys.executable, "-m", "bench.ledger.flood", *map(str, words)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            if is_pinned:
                pin(process.pid, cores[1])
            assert process.stdout is not None
            before = cpu([bookie])
            for line in process.stdout:
                now = cpu([bookie])
                used, before = now.since(before), now
                part = json.loads(line)
                measured.append(
                    part | {"rate": part["adds"] / part["seconds"], "user": used.user, "system": used.system}
                )
        finally:
            process.kill()
            process.wait()
        resident, most = status_bytes(bookie, "VmRSS", "VmHWM")
    finally:
        side.end()
    if len(measured) != len(rounds) + 1:
        raise Refused("Flood", "the generator has ended early")
    del measured[0]  # the warm-up
    adds = sum(part["adds"] for part in measured)
    return {
        "size": size, "connections": given.connections, "window": given.window, "version": version, "pinned": is_pinned,
        "rate": statistics.median(part["rate"] for part in measured), "rounds": measured,
        "bookie_user": sum(part["user"] for part in measured) / adds * 1e6,
        "bookie_system": sum(part["system"] for part in measured) / adds * 1e6,
        "generator_cpu": sum(part["cpu"] for part in measured) / adds * 1e6,
        "busy": sum(part["user"] + part["system"] for part in measured) / sum(part["seconds"] for part in measured),
        "resident": resident, "most": most,
    }  # fmt: skip


if __name__ == "__main__":
    version, port, data, connections, window, *spans = sys.argv[1:]
    codec = v2 if version == "2" else v3
    generate(int(port), int(data), int(connections), int(window), [float(span) for span in spans], codec=codec)
