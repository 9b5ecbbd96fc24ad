"""Commands of Fencepost as processes that begin within a tenth of a second: they are forked from one that has imported
what they need.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from fencepost.ledger.cluster.bound import PR_SET_PDEATHSIG

_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(
    [
        __name__,
        "fencepost.cli.main",
        *(f"fencepost.cli.commands.{name}" for name in ("bookie", "check", "cluster", "metadata", "validate")),
        "fencepost.ledger.client.client",
    ]
)


class Overdue(Exception):
    """A step took longer than it may."""


class Part:
    """``fencepost WORDS`` as a process, and what it says, in a file. No wait for it takes longer than ``patience``
    seconds.
    """

    def __init__(self, log: Path, *words: str, patience: float = 30.0) -> None:
        self._log, self._words, self._patience = log, words, patience
        self._complaints = log.with_suffix(".err")
        for path in (log, self._complaints):
            path.write_bytes(b"")
        self._process = _FORKED.Process(target=_become, args=(words, str(log), str(self._complaints)))
        self._process.start()

    @property
    def said(self) -> str:
        """What it has said."""
        return self._log.read_text("utf-8", "replace")

    @property
    def complaints(self) -> str:
        """What it has said on standard error."""
        return self._complaints.read_text("utf-8", "replace")

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.exitcode is not None

    def says(self, words: str) -> bool:
        """Whether it has said something, and goes on; waits for that, or for its end."""
        self._until(lambda: self.is_over() or words in self.said)
        return not self.is_over()

    def serves(self) -> bool:
        """Whether it serves; waits for that, or for its end."""
        return self.says(" serves\n")

    def ended(self) -> int:
        """Its exit code; waits for its end."""
        self._until(self.is_over)
        assert self._process.exitcode is not None
        return self._process.exitcode

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """End it by a signal; its exit code."""
        if not self.is_over() and self._process.pid is not None:
            os.kill(self._process.pid, number)
        return self.ended()

    def _until(self, condition: Callable[[], bool]) -> None:
        over = time.monotonic() + self._patience
        while not condition():
            if time.monotonic() > over:
                what = f"fencepost {self._words[0]} does nothing for {self._patience:g} s"
                raise Overdue(f"{what}: {self.complaints[-500:]}")
            self._process.join(0.005)


def _become(words: tuple[str, ...], *outputs: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for stream, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), stream)
    from fencepost.cli import main as cli

    raise SystemExit(cli.main(list(words)))
