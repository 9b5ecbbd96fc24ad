"""The tools of the server, as clients see them. Which files they may name is decided here."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError
from pydantic import Field

from fencepost.cli.mcp.bounded import Bounds, work
from fencepost.errors import FencepostError
from fencepost.language import loading
from fencepost.version import VERSION

INSTRUCTIONS = """\
Fencepost checks distributed protocols written in Python (fencepost.Protocol) or TLA+.
Write a protocol to a file, check it, and read the verdict in the first line: HOLDS, VIOLATED, DEADLOCK, RAISED,
NOT COMPLETE. A counterexample ends with a path: give it to explain to look at the state after any of its steps.
"""

LONGEST = 4 << 20
"""The most bytes of a message. Reading a much longer one would take longer than a client waits."""

AProtocol = Annotated[str, Field(description="FILE.py, FILE.py:Class, FILE.tla, or a shipped name")]
AConfig = Annotated[str | None, Field(description="one of its configurations; for FILE.tla a .cfg file")]
Constants = Annotated[dict[str, str | int | bool], Field(description="constants to set, by name")]


class Server(MCPServer[Any]):
    """The official server, with a limit on what it reads."""

    async def run_stdio_async(self) -> None:
        """Serve a client on standard input and output until the input ends. A line that is too long is answered with an
        error.
        """
        error = ErrorData(code=INVALID_REQUEST, message=f"a message has at most {LONGEST >> 20} MiB")
        refusal = SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error))
        lines = _Lines(sys.stdin.buffer)
        async with stdio_server(stdin=lines) as (messages, answers):  # type: ignore[arg-type]
            lines.refuse = lambda: answers.send(refusal)
            served = self._lowlevel_server
            await served.run(messages, answers, served.create_initialization_options())


class _Lines:
    """The lines of a stream, without those that are too long. ``refuse`` is called for each of these, which is not held
    in memory.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.refuse: Callable[[], Awaitable[None]]

    async def __aiter__(self) -> AsyncIterator[str]:
        read = anyio.to_thread.run_sync
        while line := await read(self._stream.readline, LONGEST + 1):
            if len(line) <= LONGEST:
                yield line.decode(errors="replace")
                continue
            while line and not line.endswith(b"\n"):
                line = await read(self._stream.readline, LONGEST)
            await self.refuse()


def server(root: Path, bounds: Bounds) -> Server:
    """The server for the files below ``root``."""
    made = Server("fencepost", instructions=INSTRUCTIONS, version=VERSION, log_level="WARNING")
    one_at_a_time = anyio.Semaphore(1)

    async def ask(tool: str, **asked: Any) -> str:
        try:
            async with one_at_a_time:
                found = await work({"tool": tool, **asked}, root, bounds)
        except FencepostError as error:
            raise ToolError(str(error)) from None
        if "error" in found:
            raise ToolError(found["error"])
        return found["text"]

    def of_protocol(protocol: str, config: str | None, constants: dict[str, Any]) -> dict[str, Any]:
        is_tla = protocol.endswith(loading.SPECIFICATION)
        chosen = within(root, config) if config is not None and is_tla else config
        found = protocol if protocol in loading.SHIPPED else source(root, protocol)
        return {"protocol": found, "config": chosen, "constants": constants}

    @made.tool(structured_output=False)
    async def check(
        protocol: AProtocol,
        config: AConfig = None,
        constants: Constants = {},  # noqa: B006
        invariants: Annotated[list[str], Field(description="check only these properties; by default all")] = [],  # noqa: B006
        deadlock: Annotated[bool | None, Field(description="look for states without a next one")] = None,
    ) -> str:
        """Explore every state of a protocol. Answers with the verdict, the shortest counterexample, and counts."""
        given = of_protocol(protocol, config, constants)
        return await ask("check", **given, invariants=invariants, deadlock=deadlock)

    @made.tool(structured_output=False)
    async def witness(
        protocol: AProtocol,
        where: Annotated[
            str, Field(description="a Python expression of the state: len(done) == 2 (TLA+ for FILE.tla)")
        ],
        config: AConfig = None,
        constants: Constants = {},  # noqa: B006
    ) -> str:
        """Find the shortest behaviour to a state in which an expression is true, or say that there is none."""
        return await ask("witness", **of_protocol(protocol, config, constants), where=where)

    @made.tool(structured_output=False)
    async def explain(
        protocol: AProtocol,
        path: Annotated[
            str, Field(description="a path of check or witness; without it, what the protocol declares")
        ] = "",
        step: Annotated[
            int | None, Field(description="the number of a step, 0 for the start; by default the last")
        ] = None,
        config: AConfig = None,
        constants: Constants = {},  # noqa: B006
    ) -> str:
        """Explain a protocol, or a step of a behaviour: the state, what is violated there, which actions can happen
        next, and which line refuses each of the others.
        """
        return await ask("explain", **of_protocol(protocol, config, constants), path=path, step=step)

    @made.tool(structured_output=False)
    async def validate(
        traces: Annotated[list[str], Field(description="files and folders of traces or records")],
        conformance: Annotated[
            str | None, Field(description="FILE.py or FILE.py:NAME: which event is which step")
        ] = None,
        protocol: Annotated[str | None, Field(description="instead, a shipped protocol; with it, FILE.tla")] = None,
    ) -> str:
        """Say whether traces of a running system are behaviours of a protocol, and where the first is not."""
        found = [within(root, path) for path in traces]
        chosen = (
            protocol if protocol is None or not protocol.endswith(loading.SPECIFICATION) else within(root, protocol)
        )
        conforms = None if conformance is None else source(root, conformance)
        return await ask("validate", traces=found, conformance=conforms, protocol=chosen)

    @made.tool(structured_output=False)
    async def drive(
        protocol: AProtocol,
        system: Annotated[str, Field(description="FILE.py:Class: a method for each action, and observe()")],
        config: AConfig = None,
        constants: Constants = {},  # noqa: B006
    ) -> str:
        """Drive a system in Python along every transition of its protocol, and show the first difference."""
        return await ask("drive", **of_protocol(protocol, config, constants), system=source(root, system))

    return made


def within(root: Path, given: str) -> str:
    """A file or a folder by its path below ``root``. Raises :class:`ToolError` for any other, also one that a link
    leads to.
    """
    try:
        whole = (root / given).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ToolError(f"{given!r} is no path: {error}") from None
    if not whole.is_relative_to(root):
        raise ToolError(f"{given} is outside of {root}, where this server was started: it names nothing else")
    inside = str(whole.relative_to(root))
    return f"./{inside}" if inside.startswith("-") else inside  # which is no option


def source(root: Path, given: str) -> str:
    """``FILE.py``, ``FILE.py:Class`` or ``FILE.tla`` by its path below ``root``. Raises as :func:`within`."""
    if given.endswith(loading.SPECIFICATION):
        return within(root, given)
    path, colon, name = loading.split(given)
    return within(root, path) + colon + name
