"""Health and metrics over HTTP: ``GET /live``, ``GET /ready`` and ``GET /metrics``, and nothing else.

It runs in a thread with a loop of its own, so that it answers while the part's loop is stuck. What it says is evaluated
on the part's loop. Clients cannot hold up the part: a request has one connection, :data:`LARGEST` bytes and
:data:`PATIENCE` seconds, there are :data:`MOST_AT_ONCE` at a time, and however many come, the part's loop is asked once
in :data:`FRESH` seconds.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import logging
import re
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from fencepost.errors import SystemFailure
from fencepost.monitoring.metrics import Metrics

MOST_AT_ONCE = 32
"""Connections at a time. One more replaces the oldest."""

LARGEST = 8 << 10
"""Bytes of the largest request."""

PATIENCE = 10.0
"""Seconds from the start of a connection to its end, whatever its client does."""

TURNS_WITHIN = 5.0
"""Seconds that the part's loop may take to turn. Then it counts as stuck."""

FRESH = 0.1
"""Seconds that an answer is given again, instead of asking the part's loop."""

_TEXT = "text/plain; charset=utf-8"
_OF_METRICS = "text/plain; version=0.0.4; charset=utf-8"

_STATUS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

_HOST = re.compile(rb"(?im)^host:[ \t]*(.*?)[ \t]*\r$")

_logger = logging.getLogger(__name__)


class Answers:
    """What a part says. ``why_not_ready``: one line why it does not serve, or "" if it does. Both are evaluated on the
    running loop, which is the part's.
    """

    def __init__(self, metrics: Metrics, why_not_ready: Callable[[], str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._say: dict[str, Callable[[], tuple[int, str]]] = {
            "/live": lambda: (200, "the loop turns\n"),
            "/ready": self._ready,
            "/metrics": lambda: (200, metrics.text()),
        }
        self._why_not_ready = why_not_ready
        self._asked: dict[str, tuple[float, asyncio.Task[tuple[int, str]]]] = {}
        metrics.gauges["fencepost_ready"] = lambda: not why_not_ready()

    def _ready(self) -> tuple[int, str]:
        reason = self._why_not_ready()
        return (503, f"{reason}\n") if reason else (200, "ready\n")

    async def to(self, method: str, path: str) -> tuple[int, str]:
        """The status and the body of the answer to a request. Called on the loop of HTTP."""
        if path not in self._say:
            return 404, f"there are only {', '.join(self._say)}\n"
        if method != "GET":
            return 405, "only GET is answered\n"
        now = asyncio.get_running_loop().time()
        since, asked = self._asked.get(path, (0.0, None))
        if asked is None or (asked.done() and now - since >= FRESH):
            asked = asyncio.create_task(self._ask(path))
            self._asked[path] = now, asked
        return await asyncio.shield(asked)

    async def _ask(self, path: str) -> tuple[int, str]:
        """Ask the part's loop."""
        answer: concurrent.futures.Future[tuple[int, str]] = concurrent.futures.Future()

        def say() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(self._say[path]())
            except Exception as error:
                _logger.exception("%s cannot be answered", path)
                answer.set_result((500, f"a fault in Fencepost: {type(error).__name__}: {error}\n"))

        try:
            self._loop.call_soon_threadsafe(say)
            return await asyncio.wait_for(asyncio.wrap_future(answer), TURNS_WITHIN)
        except TimeoutError:
            return 503, f"the loop has not turned for {TURNS_WITHIN:.0f} s\n"
        except RuntimeError:
            return 503, "the loop has ended\n"


class HttpServer:
    """The server of one part, in its own thread."""

    def __init__(self, answers: Answers, address: str, port: int) -> None:
        """Listen. ``port``: 0 takes any free one. Raises :class:`fencepost.errors.SystemFailure` if the address is not
        available.
        """
        self.port = 0
        self._answers = answers
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}
        self._over = asyncio.Event()
        begun: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(address, port, begun)), name="http", daemon=True
        )
        self._thread.start()
        try:
            begun.result()
        except OSError as error:
            raise SystemFailure(
                f"health and metrics cannot be served on {address}:{port}: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        """Stop, and end the connections."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self, address: str, port: int, begun: concurrent.futures.Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            server = await asyncio.start_server(self._connected, address, port, limit=LARGEST)
        except (OSError, OverflowError) as error:
            begun.set_exception(error)
            return
        self.port = server.sockets[0].getsockname()[1]
        self._is_local = all(ipaddress.ip_address(each.getsockname()[0]).is_loopback for each in server.sockets)
        begun.set_result(None)
        await self._over.wait()
        server.close()
        tasks = [task for task in self._connections.values() if task is not None]
        for each in list(self._connections):
            each.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MOST_AT_ONCE:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.transport.abort()
        self._connections[writer] = asyncio.current_task()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._answer(reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # it left, or was too slow
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        allow = kind = ""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            status, body = 431, f"a request has at most {LARGEST} bytes\n"
        else:
            words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
            if len(words) != 3 or not words[2].startswith("HTTP/1."):
                status, body = 400, "this is no request of HTTP/1.1\n"
            elif self._is_local and not all(map(_is_local, _HOST.findall(head))):
                status, body = 421, "this port is for this machine only: ask localhost\n"
            else:
                path = words[1].partition("?")[0]
                status, body = await self._answers.to(words[0], path)
                allow = "Allow: GET\r\n" if status == 405 else ""
                kind = _OF_METRICS if (path, status) == ("/metrics", 200) else ""
        data = body.encode(errors="backslashreplace")
        writer.transport.set_write_buffer_limits(0)
        writer.write(
            f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: {kind or _TEXT}\r\nContent-Length: {len(data)}\r\n"
            f"{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        with contextlib.suppress(OSError):
            while await reader.read(LARGEST):  # reading what is left: a reset could take the answer from the client
                pass


def _is_local(host: bytes) -> bool:
    """Whether what a request gives as its host is an address, or localhost. The owner of any other name can make it
    lead here, so that pages of his can read what browsers of this machine get.
    """
    try:
        name = urlsplit(f"//{host.decode('latin-1')}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def serve(
    metrics: Metrics, why_not_ready: Callable[[], str], address: str, port: int
) -> contextlib.AbstractContextManager[HttpServer | None]:
    """Serve health and metrics of the part on the running loop. ``port``: 0 serves nothing. Raises
    :class:`fencepost.errors.SystemFailure`.
    """
    if not port:
        return contextlib.nullcontext()
    return contextlib.closing(HttpServer(Answers(metrics, why_not_ready), address, port))
