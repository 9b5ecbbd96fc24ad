"""The control socket in a cluster's directory, by which other processes talk to the one that runs the cluster. Each
connection has one request and one answer, a line of JSON each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from fencepost.errors import FencepostError, OptionError, SystemFailure
from fencepost.files.storage import reason
from fencepost.ledger.cluster.plan import CONTROL
from fencepost.ledger.cluster.supervisor import ACTIONS, Supervisor

STATUS = "status"
DOWN = "down"


class Request(msgspec.Struct):
    """``status``, ``down``, or an action and the names of its parts."""

    do: str
    parts: list[str] = []


class Answer(msgspec.Struct):
    """The cluster's status, or why the request was refused or failed."""

    status: dict[str, Any] | None = None
    refused: str = ""
    failed: str = ""


@contextlib.contextmanager
def _address(directory: Path) -> Iterator[str]:
    """The path of the socket in a directory. It is short, however deep the directory is."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{CONTROL}"
    finally:
        os.close(opened)


@contextlib.asynccontextmanager
async def listening(supervisor: Supervisor) -> AsyncIterator[None]:
    """Answer requests until the context ends."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):  # the client went away, or sent too long a line
            writer.write(msgspec.json.encode(await _answer(supervisor, await reader.readline())) + b"\n")
            await writer.drain()
        writer.close()

    with _address(supervisor.directory) as address:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)  # left by a process that was killed
        server = await asyncio.start_unix_server(converse, address)
        try:
            yield
        finally:
            server.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(address)


async def _answer(supervisor: Supervisor, line: bytes) -> Answer:
    try:
        request = msgspec.json.decode(line, type=Request)
        if request.do == DOWN:
            supervisor.over.set()
        elif request.do in ACTIONS:
            await supervisor.do(request.do, request.parts)
        elif request.do != STATUS:
            raise OptionError(f"a cluster does not know {request.do}")
    except (msgspec.MsgspecError, OptionError) as error:
        return Answer(refused=str(error))
    except FencepostError as error:
        return Answer(failed=str(error))
    return Answer(status=supervisor.facts())


def ask(directory: Path, do: str, parts: list[str] | None = None) -> dict[str, Any]:
    """Send a request to the process that runs the cluster in a directory, and wait until it is done. Gives the status
    then.

    Raises OptionError if no process runs it or the request is impossible, SystemFailure if the request failed.
    """
    line = b""
    try:
        with _address(directory) as address, socket.socket(socket.AF_UNIX) as connection:
            connection.connect(address)
            connection.sendall(msgspec.json.encode(Request(do, parts or [])) + b"\n")
            while block := connection.recv(1 << 16):
                line += block
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        raise OptionError(f"no cluster runs in {directory}: fencepost cluster up {directory}") from None
    except OSError as error:
        raise SystemFailure(f"the cluster in {directory} cannot be asked: {reason(error)}") from None
    if not line:
        raise SystemFailure(f"the cluster in {directory} ended before it answered")
    answer = msgspec.json.decode(line, type=Answer)
    if answer.refused:
        raise OptionError(answer.refused)
    if answer.status is None:
        raise SystemFailure(answer.failed)
    return answer.status
