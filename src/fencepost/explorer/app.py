"""The explorer over HTTP: a thin layer between one page and one :class:`~fencepost.explorer.session.Session`.

Only this machine can reach it, and only with its token. The address to open has a random token in its query, and the
response sets it as a cookie. Every request needs one of the two. It must also name the address that was bound, so that
no other host name can be made to point here. If the browser says where a request comes from, it must be this page.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fencepost.behaviours import Trace, to_itf
from fencepost.behaviours.json import behaviour, dumps, loads
from fencepost.behaviours.reading import read, replayed
from fencepost.checker.engines.options import SearchOptions
from fencepost.connections.limit import ConnectionLimit
from fencepost.errors import FencepostError, OptionError
from fencepost.explorer.find import Search, Searcher, searching
from fencepost.explorer.forkserver import ForkServer
from fencepost.explorer.session import Evaluation, Node, Session
from fencepost.explorer.views import about, search_view, view
from fencepost.explorer.watch import Watcher, evaluating
from fencepost.report.diagram import diagram
from fencepost.report.sequence import sequence
from fencepost.report.svg import STYLE, svg

LOOPBACK = "127.0.0.1"
USUAL_PORT = 8413
"""The port to use if it is free, so that yesterday's links work today."""

MAX_CONNECTIONS = 64
"""The most connections: one more takes the place of the one that was silent for the longest time. A browser has 6."""

MAX_BODY = 64 << 20
"""The most bytes of a request, which may contain a behaviour file."""

NUMBER = re.compile("[0-9]{1,18}")
"""The number of a state in an address."""
MOST = 10**18
"""The largest number in a request. One with thousands of digits could not even be printed."""

MAX_WATCHES = 30
MAX_EXPRESSION = 2_000

UNKNOWN = "refused: open the address that fencepost explore printed, with its token"

_HERE = Path(__file__).parent
_STATIC = {
    "/": ("static/index.html", "text/html; charset=utf-8"),
    "/explorer.js": ("static/explorer.js", "text/javascript; charset=utf-8"),
    "/explorer.css": ("static/explorer.css", "text/css; charset=utf-8"),
    "/icon.svg": ("static/icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Explorer:
    """The server of the page: the session, the running search, and the state that the page shows first. ``path`` is as
    in :meth:`Session.follow`; ``@5`` after it selects its state number 5. ``limits``: those of a search.

    Raises :class:`OptionError` if the path leads nowhere.
    """

    def __init__(self, session: Session, path: str = "", limits: SearchOptions | None = None) -> None:
        self.session = session
        self.start = self._follow(path) if path else (session.starts[0], session.starts[0])
        self.limits = limits or SearchOptions()
        self.name = secrets.token_hex(8)  # node numbers of another session are not valid in this one
        self.search: Search | None = None
        self.token = secrets.token_urlsafe(32)
        self.lock = threading.Lock()
        self._forkserver = ForkServer([evaluating(session), searching(session)])
        self._watcher = Watcher(session, self._forkserver, 0)
        self._searcher = Searcher(session, self._forkserver, 1)

    def close(self) -> None:
        """Stop the processes in the background."""
        self._forkserver.close()

    def about(self, _: dict[str, Any]) -> dict[str, Any]:
        """The data that do not change while a page is open, and the search that was running when it was opened."""
        finding = self.search.finding if self.search is not None else None
        return {**about(self.session.protocol), "session": self.name, "search": search_view(finding)}

    def begin(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Where a page begins: at a path, with a file, or where the session begins."""
        tip, at = self.start
        if arguments.get("file") is not None:
            tip = self.session.graft(replayed(read(_text(arguments["file"], MAX_BODY)), self.session.stepper))
            at = tip.line[0]
        elif arguments.get("path"):
            tip, at = self._follow(_text(arguments["path"], MAX_BODY))
        self.session.visit(tip)
        return self._view(arguments, tip, at)

    def _follow(self, text: str) -> tuple[Node, Node]:
        """The node that a path leads to, and the node of its line to show."""
        path, _, place = text.partition("@")
        tip = self.session.follow(path)
        return tip, tip.line[int(place)] if NUMBER.fullmatch(place) and int(place) <= tip.depth else tip

    def look(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Show another state of the line to ``tip``, or of the line walked last through it."""
        at = self._node(arguments, "at")
        tip = self._node(arguments, "tip") if arguments.get("tip") is not None else at.end
        if at not in tip.line:
            raise OptionError("these two states are not on one line")
        self.session.visit(tip)
        return self._view(arguments, tip, at)

    def take(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Take one step. If the same step was taken before, the line continues as it did then."""
        at, move = self._node(arguments, "at"), arguments.get("move")
        if (
            not isinstance(move, list)
            or not move
            or not all(type(number) is int and abs(number) <= MOST for number in move)
        ):
            raise OptionError("a step is a list of numbers")
        node = self.session.take(at, (move[0], tuple(move[1:])))
        return self._view({**arguments, "known": min(_count(arguments, "known"), node.depth)}, node.end, node)

    def find(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Begin a search for a state, from one state or from the start. Only one search runs at a time."""
        if self.search is not None and self.search.finding.running:
            raise OptionError("a search is running already: stop it first")
        start = self._node(arguments, "at") if arguments.get("at") is not None else None
        expression = _text(arguments.get("expression"), MAX_EXPRESSION)
        # report an error in the expression at once
        self._watcher.watch(expression, [start or self.session.starts[0]])
        self.search = self._searcher.search(expression, start, self.limits)
        self.search.wait(0.2)  # most searches end within this time
        return self.found(arguments)

    def found(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The progress of the search and, once it has found a path, the node at the end of the path."""
        finding = self.search.finding if self.search is not None else None
        answer: dict[str, Any] = {"search": search_view(finding)}
        if finding is not None and finding.path is not None:
            number, moves = finding.path
            node = self.session.node(number)
            for move in moves:
                node = self.session.child(node, move)
            answer["node"] = node.number
        return answer

    def stop(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Stop the search."""
        if self.search is not None:
            self.search.stop()
            self.search.wait(0.2)
        return self.found(arguments)

    def saved(self, arguments: dict[str, Any]) -> Trace:
        """The behaviour to a node, to be saved in one of the :data:`FORMS`."""
        return self.session.trace(self._node(arguments, "tip"))

    def _node(self, arguments: dict[str, Any], name: str) -> Node:
        if arguments.get("session") != self.name:
            raise OtherSession("this page belongs to an earlier session")
        return self.session.node(_count(arguments, name))

    def _view(self, arguments: dict[str, Any], tip: Node, at: Node) -> dict[str, Any]:
        watches = arguments.get("watches", [])
        if not isinstance(watches, list) or len(watches) > MAX_WATCHES:
            raise OptionError(f"there can be {MAX_WATCHES} expressions at a time")
        known = min(_count(arguments, "known"), tip.depth + 1)
        texts = [_text(watch, MAX_EXPRESSION) for watch in watches]
        self._watcher.only(texts)
        watched = {text: self._watched(text, tip.line) for text in texts}
        return view(self.session, tip, at, known=known, drawn=str(arguments.get("drawn", "")), watched=watched)

    def _watched(self, text: str, line: list[Node]) -> list[Evaluation] | str:
        try:
            return self._watcher.watch(text, line)
        except FencepostError as error:
            return str(error)


class OtherSession(OptionError):
    """A request of a page that was opened in another session. The page then reloads its path."""


def _json(trace: Trace) -> str:
    return dumps(behaviour(trace), indent=2) + "\n"


FORMS: dict[str, tuple[Callable[[Trace], str], str, str]] = {
    "json": (_json, "application/json", "json"),
    "itf": (lambda trace: to_itf(trace) + "\n", "application/json", "itf.json"),
    "txt": (sequence, "text/plain; charset=utf-8", "txt"),
    "svg": (lambda trace: svg(diagram(trace)), "image/svg+xml", "svg"),
}
"""The formats in which a path can be saved: the function that writes it, its media type, the suffix of the file."""


def _count(arguments: dict[str, Any], name: str) -> int:
    number = arguments.get(name, 0)
    if type(number) is not int or not 0 <= number <= MOST:
        raise OptionError(f"{name} is a number")
    return number


def _text(value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise OptionError("text is needed")
    if len(value) > limit:
        raise OptionError(f"this is longer than {limit:,} characters")
    return value


# -- HTTP -------------------------------------------------------------------------------------------------------------


def address(explorer: Explorer, port: int) -> str:
    """The address at which the page opens. No other address admits a browser."""
    return f"http://{LOOPBACK}:{port}/?token={explorer.token}"


def application(explorer: Explorer, port: int) -> ASGIApp:
    """The page and its API. Answers only requests to ``port`` of this machine that have the explorer's token."""

    def endpoint_of(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            if request.headers.get("content-type", "").partition(";")[0] != "application/json":
                return _failed("requests are JSON", 415)
            body = bytearray()
            async for piece in request.stream():
                body += piece
                if len(body) > MAX_BODY:
                    return _failed(f"this is larger than {MAX_BODY >> 20} MiB", 413)
            return await run_in_threadpool(respond, answer, bytes(body))

        return endpoint

    def respond(answer: Callable[[dict[str, Any]], dict[str, Any]], body: bytes) -> Response:
        try:
            arguments = loads(body or b"{}")
            if not isinstance(arguments, dict):
                raise OptionError("a request is an object")
            with explorer.lock:
                return Response(dumps(answer(arguments)), media_type="application/json")
        except OtherSession as error:
            return _failed(str(error), 409)
        except FencepostError as error:
            return _failed(str(error), 400)
        except Exception as error:
            return _failed(f"a fault in Fencepost: {type(error).__name__}: {error}", 500)

    def saved(request: Request) -> Response:
        form, tip = request.path_params["form"], request.query_params.get("tip", "")
        if form not in FORMS:
            return PlainTextResponse("there is no such file", 404)
        if not NUMBER.fullmatch(tip):
            return PlainTextResponse("tip is a number", 400)
        arguments = {"session": request.query_params.get("session"), "tip": int(tip)}
        try:
            with explorer.lock:
                trace = explorer.saved(arguments)
        except FencepostError as error:
            return PlainTextResponse(str(error), 400)
        write, kind, suffix = FORMS[form]
        text = write(trace)  # takes seconds for a long one; the lock is not held, so the page stays usable
        name = f"{explorer.session.protocol.name}.{suffix}".replace('"', "").replace("/", "-")
        quoted = name.encode("ascii", "replace").decode()
        return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{quoted}"'})

    def file(path: str, kind: str) -> Callable[[Request], Response]:
        def endpoint(_: Request) -> Response:
            return Response((_HERE / path).read_bytes(), media_type=kind)

        return endpoint

    def style(_: Request) -> Response:
        palette = (_HERE.parent / "report" / "palette.css").read_text(encoding="utf-8")
        return Response(palette + STYLE, media_type="text/css; charset=utf-8")

    answers = ("about", "begin", "look", "take", "find", "found", "stop")
    routes = [Route(path, file(*about_it), methods=["GET"]) for path, about_it in _STATIC.items()]
    routes.append(Route("/report.css", style, methods=["GET"]))
    routes.append(Route("/keep/{form}", saved, methods=["GET"]))
    routes += [Route(f"/api/{name}", endpoint_of(getattr(explorer, name)), methods=["POST"]) for name in answers]
    return LocalOnly(Starlette(routes=routes), port, explorer.token)


def _failed(message: str, status: int) -> Response:
    return Response(dumps({"error": message}), status, media_type="application/json")


class LocalOnly:
    """Refuses requests to another address, from another page, or without the token."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app = app
        self.token = token.encode()
        self.cookie = f"fencepost-{port}"  # all ports of a host share one set of cookies
        self.hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
        if port == 80:
            self.hosts |= {LOOPBACK, "localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope)
        refused = self._refused([(n.decode("latin-1"), v.decode("latin-1")) for n, v in scope["headers"]])
        opens = request.url.path == "/" and self._is_token(request.query_params.get("token"))
        if refused is None and not opens and not self._is_token(request.cookies.get(self.cookie)):
            refused = UNKNOWN
        if refused is not None:
            await PlainTextResponse(refused + "\n", 403)(scope, receive, send)
            return
        headers = (
            {**_HEADERS, "set-cookie": f"{self.cookie}={self.token.decode()}; Path=/; HttpOnly; SameSite=Strict"}
            if opens
            else _HEADERS
        )

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(n.encode(), v.encode()) for n, v in headers.items()]
            await send(message)

        await self.app(scope, receive, with_headers)

    def _is_token(self, token: str | None) -> bool:
        return token is not None and secrets.compare_digest(token.encode(), self.token)

    def _refused(self, headers: list[tuple[str, str]]) -> str | None:
        hosts = [value for name, value in headers if name == "host"]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return "refused: this page is for this machine only"
        for name, value in headers:
            if name == "origin" and value != f"http://{hosts[0]}":
                return "refused: another page sent this request"
            if name == "sec-fetch-site" and value not in ("same-origin", "none"):
                # A link from another page may open this page, and nothing else.
                navigates = ("sec-fetch-mode", "navigate") in headers and ("sec-fetch-dest", "document") in headers
                if not navigates:
                    return "refused: another page sent this request"
        return None


# -- serving ----------------------------------------------------------------------------------------------------------


def listen(port: int | None) -> socket.socket:
    """A socket of this machine only: at ``port`` if given, else at the usual one or, if that is taken, any other.

    Raises :class:`OptionError` if ``port`` is given and taken.
    """
    for candidate in (USUAL_PORT, 0) if port is None else (port,):
        # Name the protocol: only then does asyncio disable Nagle's algorithm, which delays every answer by 40 ms.
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((LOOPBACK, candidate))
            bound.listen()  # a browser may connect before the server runs
            return bound
        except OSError as error:
            bound.close()
            if port is not None:
                raise OptionError(f"{{port}} {port} cannot be used: {error.strerror}", "port") from None
    raise OptionError("no port of this machine is free")


def server(explorer: Explorer, bound: socket.socket) -> uvicorn.Server:
    """The server of an explorer at a socket. ``server(...).run(sockets=[bound])`` runs until ``should_exit`` is set or
    Ctrl-C.
    """
    connections: ConnectionLimit[Connection] = ConnectionLimit(MAX_CONNECTIONS, lambda each: each.transport.abort())

    class Connection(H11Protocol):  # which limits the head of a request, as other protocols of uvicorn do not
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connections.admit(self)

        def data_received(self, data: bytes) -> None:
            connections.touch(self)
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self)
            super().connection_lost(exc)

    app = application(explorer, bound.getsockname()[1])
    config = uvicorn.Config(
        app, http=Connection, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    return uvicorn.Server(config)
