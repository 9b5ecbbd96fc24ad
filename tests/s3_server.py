"""An S3 server for tests: moto's, in a process of its own, which loses everything when it ends.

``PUT /-/faults`` tells it what to do once it has served some more requests that change something: answer with errors
to all others, cut one connection, or kill itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from patience import until
from werkzeug.serving import make_server

BUCKET = "archive"
KEYS = {"AWS_ACCESS_KEY_ID": "fencepost", "AWS_SECRET_ACCESS_KEY": "secret"}
CHANGES = ("PUT", "POST", "DELETE")


class Faults:
    """Moto's application, with the faults that were asked for."""

    def __init__(self, application: Any) -> None:
        self.application = application
        self.kind = ""
        self.left = -1
        """The changes before the fault; negative: never."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/-/faults":
            asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            self.kind, self.left = asked["kind"], asked["after"]
            start_response("200 OK", [("Content-Length", "0")])
            return []
        if environ["REQUEST_METHOD"] in CHANGES and self.left >= 0:
            self.left -= 1
            if self.left < 0:
                self.left = 0 if self.kind == "error" else -1
                return self._fail(environ, start_response)
        return self.application(environ, start_response)  # type: ignore[no-any-return]

    def _fail(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "cut":
            environ["wsgi.input"].read(1)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start_response("500 Internal Server Error", [("Content-Length", "0")])
        return []


class S3Server:
    """A running server, and what a client needs to know."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.start()

    def start(self) -> None:
        """Start it, at its port if it had one, with an empty bucket."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), *sys.path))},
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        with urlopen(Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT"), timeout=60):
            pass

    def url(self, folder: str) -> str:
        """A folder in it, as a URL of PyArrow."""
        return f"s3://{BUCKET}/{folder}?endpoint_override=127.0.0.1:{self.port}&scheme=http&region=us-east-1"

    def fail(self, kind: str = "error", after: int = 0) -> None:
        """Answer with errors from that change on (``error``), or ``cut`` its connection, or ``kill`` the server."""
        content = json.dumps({"kind": kind, "after": after}).encode()
        with urlopen(Request(f"http://127.0.0.1:{self.port}/-/faults", content, method="PUT"), timeout=60):
            pass

    def work(self) -> None:
        """No faults any more."""
        self.fail(after=-1)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    def wait(self) -> None:
        """Wait until it has killed itself."""
        until(lambda: not self.is_running, "the end of the server")
        self._process.communicate()


def _serve(port: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    application = Faults(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", port, application, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
