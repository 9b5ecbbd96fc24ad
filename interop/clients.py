"""A client in a process of its own that carries out operations: Fencepost's, or the Java client, by the same protocol.

A request and its answer are JSON objects of one line each on standard input and standard output; ``interop/exam.py``
and ``interop/java/exam`` list the operations.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from interop import jars
from interop.clusters import FENCEPOST, JAVA, java_uri

CLIENTS = (FENCEPOST, JAVA)
PROGRAM = (sys.executable, "-m", "interop.exam")
"""How our client is started."""
PATIENCE = 120
"""Seconds after which an operation counts as stuck."""


class Refused(Exception):
    """The client raised an exception; ``error`` is its name as BookKeeper has it."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}" if message else error)
        self.error = error


class AskedProcess:
    """A process that runs requested operations, many at the same time."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._pending: dict[int, Future[Any]] = {}
        self._number = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def begin(self, operation: str, **arguments: Any) -> Future[Any]:
        """Ask for an operation and do not wait; the future has its result or raises :class:`Refused`."""
        answer: Future[Any] = Future()
        assert self._process.stdin is not None
        with self._lock:
            self._number += 1
            self._pending[self._number] = answer
            self._process.stdin.write(json.dumps({"id": self._number, "do": operation, **arguments}) + "\n")
            self._process.stdin.flush()
        return answer

    def call(self, operation: str, **arguments: Any) -> Any:
        """Ask for an operation and wait for its result."""
        try:
            return self.begin(operation, **arguments).result(PATIENCE)
        except TimeoutError:
            raise Refused("Stuck", f"{operation} has no answer after {PATIENCE} s") from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._pending.pop(answer["id"])
            if "error" in answer:
                future.set_exception(Refused(answer["error"], answer.get("message", "")))
            else:
                future.set_result(answer.get("result"))
        for future in self._pending.values():
            future.set_exception(Refused("Ended", "the process of the client has ended"))

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()


class ClientProcess(AskedProcess):
    """The process of a client of one kind."""

    def __init__(
        self,
        kind: str,
        log: Path,
        heap: int = 256,
        short: bool = True,
        program: Sequence[str] = PROGRAM,
        racks: bool = False,
    ) -> None:
        """``heap`` and ``short``: see :func:`interop.jars.java`; ``racks``: :func:`interop.jars.class_path`.
        ``program``: what our client is started by.
        """
        self.kind = kind
        path = jars.class_path("exam", racks=racks)
        java = jars.java("-cp", path, "-Dinterop.log=WARN", "interop.Exam", heap=heap, short=short)
        super().__init__(program if kind == FENCEPOST else java, log)


class Client:
    """One connection to a cluster by a :class:`ClientProcess`."""

    def __init__(self, process: ClientProcess, uri: str, **settings: Any) -> None:
        """``settings`` are the client's own, by BookKeeper's names."""
        self.kind = process.kind
        self._process = process
        if process.kind == JAVA:
            uri = java_uri(uri)
        self.number: int = process.call("connect", uri=uri, settings=settings)

    def call(self, operation: str, **arguments: Any) -> Any:
        """An operation on this connection."""
        return self._process.call(operation, client=self.number, **arguments)

    def begin(self, operation: str, **arguments: Any) -> Future[Any]:
        """An operation on this connection, without waiting for it."""
        return self._process.begin(operation, client=self.number, **arguments)

    def create(self, **arguments: Any) -> Ledger:
        """A new ledger, by default on three bookies with quorums of three and two."""
        return Ledger(self._process, **self.call("create", **arguments))

    def open(self, ledger: int, **arguments: Any) -> Ledger:
        """An open ledger; with ``recover``, which is the default, nothing more is written to it."""
        return Ledger(self._process, **self.call("open", ledger=ledger, **arguments))

    def metadata(self, ledger: int) -> dict[str, Any]:
        """The metadata of a ledger."""
        found: dict[str, Any] = self.call("metadata", ledger=ledger)
        return found

    def close(self) -> None:
        """End the connection, if the process is still there."""
        with contextlib.suppress(Refused, OSError):
            self.call("disconnect")


class Ledger:
    """A ledger that a client has open."""

    def __init__(self, process: ClientProcess, handle: int, ledger: int) -> None:
        self._process = process
        self._handle = handle
        self.id = ledger

    def call(self, operation: str, **arguments: Any) -> Any:
        """An operation on this ledger."""
        return self._process.call(operation, handle=self._handle, **arguments)

    def begin(self, operation: str, **arguments: Any) -> Future[Any]:
        """An operation on this ledger, without waiting for it."""
        return self._process.begin(operation, handle=self._handle, **arguments)

    def append(self, *entries: bytes) -> list[int]:
        """Append entries, all in flight at once; their ids."""
        ids: list[int] = self.call("append", entries=encoded(entries))
        return ids

    def read(self, first: int, last: int, operation: str = "read", **arguments: Any) -> list[bytes]:
        """The entries from ``first`` to ``last``; their ids and lengths are checked to follow on one another."""
        return decoded(self.call(operation, first=first, last=last, **arguments), first)

    def close(self) -> None:
        """Close the ledger."""
        self.call("close")


def encoded(entries: tuple[bytes, ...]) -> list[str]:
    """Entries as they are sent to the process of a client."""
    return [base64.b64encode(entry).decode() for entry in entries]


def decoded(entries: list[tuple[int, Any, str]], first: int) -> list[bytes]:
    """The entries of an answer. Checks that ids count up from ``first`` and that lengths, where present, add up."""
    bodies = [base64.b64decode(body) for _, _, body in entries]
    ids = [entry_id for entry_id, _, _ in entries]
    if ids != list(range(first, first + len(ids))):
        raise AssertionError(f"entries {ids} instead of those from {first} on")
    for (_, before, _), (entry_id, length, _), body in zip(entries, entries[1:], bodies[1:], strict=False):
        if length is not None and length != before + len(body):
            raise AssertionError(f"the length up to entry {entry_id} is {length} instead of {before + len(body)}")
    return bodies
