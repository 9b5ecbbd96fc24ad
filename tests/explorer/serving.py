"""A page that is served while a test runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

from patience import PATIENCE

from fencepost import Protocol, SearchOptions
from fencepost.explorer.app import LOOPBACK, Explorer, address, listen, server
from fencepost.explorer.session import Session

LIMITS = SearchOptions(workers=1)


class Page:
    """A page and its address."""

    def __init__(self, explorer: Explorer, port: int) -> None:
        self.explorer = explorer
        self.port = port
        self.address = address(explorer, port)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        """The status and the body of the answer to a request with the cookie of the page. Headers by name, with ``_``
        for ``-``.
        """
        status, body, _ = self.whole(
            method, path, body, **{"cookie": f"fencepost-{self.port}={self.explorer.token}", **headers}
        )
        return status, body

    def whole(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """As :meth:`ask`, without the cookie, and with the headers of the answer."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=PATIENCE)
        given = {"content-type": "application/json", **{n.replace("_", "-"): v for n, v in headers.items()}}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, given)
        answer = connection.getresponse()
        found = answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        return found

    def tell(self, name: str, expected: int = 200, **body: Any) -> dict[str, Any]:
        """The answer to a request of the page, in this session."""
        status, answer = self.ask("POST", f"/api/{name}", {"session": self.explorer.name, **body})
        assert status == expected, answer
        told: dict[str, Any] = json.loads(answer)
        return told


@contextlib.contextmanager
def served(protocol: Protocol) -> Iterator[Page]:
    """Serve a protocol at a free port."""
    explorer = Explorer(Session(protocol), limits=LIMITS)
    bound = listen(0)
    serving = server(explorer, bound)
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield Page(explorer, bound.getsockname()[1])
    finally:
        serving.should_exit = True
        thread.join(PATIENCE)
        bound.close()
        explorer.close()
