"""The limit: what the loopback and the disk allow with the bytes of the store's own messages, and no store.

A client sends frames as large as those of real requests to three servers, which write and sync what came and answer as
many bytes as bookies do. All of them handle large buffers, never an entry.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ledger.cells import Cell
from fencepost.ledger.messages import AddEntry, AddEntryResponse, ReadEntry, ReadEntryResponse
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire.v3 import encode_request, encode_response

NAME = "the limit"
BOOKIES = 3
ACK_QUORUM = 2
OVERHEAD = 36
"""Bytes of an entry besides its data, with CRC32C."""
TYPICAL = 1 << 20
"""The id of a typical entry, and the number of a typical request."""


def messages(operation: str, size: int) -> tuple[int, int]:
    """The bytes of a request and of its answer, as they are on the wire."""
    body = bytes(OVERHEAD + size)
    if operation == "adds":
        request = encode_request(TYPICAL, AddEntry(1, TYPICAL, TYPICAL, body, bytes(20)))
        return len(request), len(encode_response(TYPICAL, AddEntryResponse(1, TYPICAL, Code.OK)))
    request = encode_request(TYPICAL, ReadEntry(1, TYPICAL))
    return len(request), len(encode_response(TYPICAL, ReadEntryResponse(1, TYPICAL, Code.OK, body=body, lac=TYPICAL)))


class Echo:
    """A process of :mod:`bench.ledger.echo`."""

    def __init__(self, *words: object) -> None:
        command = [sys.executable, "-m", "bench.ledger.echo", *map(str, words)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def line(self) -> Any:
        """The next line that it prints."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        if not said:
            raise RuntimeError(f"{' '.join(map(str, self.process.args))} has ended")  # type: ignore[arg-type]
        return json.loads(said)


@contextlib.contextmanager
def echoes() -> Iterator[list[Echo]]:
    """A list of processes, which are ended in the end."""
    started: list[Echo] = []
    try:
        yield started
    finally:
        for echo in started:
            echo.process.kill()
            echo.process.wait()


def measure(operation: str, size: int, in_flight: int, seconds: float, folder: Path) -> Cell:
    """Adds or reads a second that are possible. The files of adds are in ``folder``."""
    request, answer = messages(operation, size)
    is_add = operation == "adds"
    folder.mkdir(parents=True, exist_ok=True)
    with echoes() as started:
        for number in range(BOOKIES):
            started.append(Echo("serve", folder / f"limit-{number}" if is_add else "-", request, answer))
        ports = [server.line() for server in started]
        started.append(Echo("ask", request, answer, in_flight, seconds, ACK_QUORUM if is_add else 0, *ports))
        asked = started[-1].line()
        servers = sum(server.line()["cpu"] for server in started[:BOOKIES])
    entries = asked["entries"]
    return Cell(
        NAME, operation, size, in_flight, entries, asked["seconds"], asked["p50"], asked["p99"],
        asked["cpu"] * 1e6 / entries, servers * 1e6 / entries,
    )  # fmt: skip


def copy(size: int) -> dict[str, float]:
    """Copy ``size`` bytes from one process to another over loopback: bytes a second, and the CPU seconds of both."""
    with echoes() as started:
        started.append(Echo("give", size))
        started.append(Echo("take", size, started[0].line()))
        taken = started[1].line()
        return {"rate": size / taken["seconds"], "taker": taken["cpu"], "giver": started[0].line()["cpu"]}
