"""Starts Fencepost's commands in copies of itself, which costs a tenth of a new interpreter: BookKeeper's own tests
start hundreds.

Each line of standard input is a JSON object: ``words``, the command line after ``fencepost``, and ``log``, a file that
standard output and standard error are appended to. The answer is the number of the process. All are killed when
standard input ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
from typing import NoReturn

# The commands import this late. Imported here, it is shared by all copies.
from fencepost.cli import main as cli


def _become(words: list[str], log: str) -> NoReturn:
    """Be the command from now on."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(to, 1)
    os.dup2(to, 2)
    status = 1
    try:
        status = cli.main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Serve until standard input ends."""
    gc.freeze()
    running: set[int] = set()

    def reap(*_: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                running.discard(ended)

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request["words"], request["log"])
        running.add(pid)
        print(pid, flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
