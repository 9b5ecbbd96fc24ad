"""A stand-in for ``python -m fencepost``: a metadata service and bookies that only listen.

Files in the directory of a part set its behaviour: ``fails``, ``deaf`` (ignores SIGTERM), ``silent`` (accepts no
connections after it has served). Each part writes what it did to ``../happened``.
"""

from __future__ import annotations

import os
import signal
import socketserver
import sys
import threading
from pathlib import Path


class Answers(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        if self.request.recv(4) == b"ruok":
            self.request.sendall(b"imok")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def happened(home: Path, what: str) -> None:
    with open(home.parent / "happened", "a") as file:
        file.write(f"{what} {home.name}\n")


def main() -> None:
    kind, home, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[sys.argv.index("--port") + 1])
    home.mkdir(exist_ok=True)
    (home / "words").write_text(" ".join(sys.argv))
    if (home / "fails").exists():
        print("something on the way", file=sys.stderr)
        print(f"fencepost: {home} is damaged: put it right", file=sys.stderr)
        sys.exit(153)
    server = Server(("127.0.0.1", port), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: None if (home / "deaf").exists() else over.set())
    happened(home, f"started with {Path(sys.argv[-1]).name}" if "--settings" in sys.argv else "started")
    print(f"{kind} 127.0.0.1:{port} serves", flush=True)
    if (home / "silent").exists():
        server.shutdown()
        server.server_close()
    while not over.wait(0.05):
        pass
    happened(home, "stopped")
    os._exit(0)


main()
