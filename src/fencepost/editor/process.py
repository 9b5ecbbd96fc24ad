"""A running check, as its owner sees it: events arrive, limits are kept, and it can be ended at any time."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fencepost.editor.worker import Request

Event = dict[str, Any]

TICK = 0.1
"""Seconds between two looks at the limits."""

SPARE = 60.0
"""Seconds by which a check may exceed its limit, which it keeps itself, before it is killed: it may be compiling."""

LONGEST = 64 << 20
"""The most bytes of an event."""


class Job:
    """A worker (:mod:`fencepost.editor.worker`) with a request.

    ``heard`` is called with each of its events, in another thread, and at last with ``ended``, whose ``why`` is ""
    unless the worker was killed or died. No event follows a call of :meth:`end`.
    """

    def __init__(self, request: Request, heard: Callable[[Event], None]) -> None:
        self._heard = heard
        self._request = request
        self._why = ""
        self._lock = threading.RLock()
        self._is_wanted = True
        self._is_idle = False
        self._is_done = False
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fencepost.editor.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what the author's Python prints is not for an editor
            start_new_session=True,  # Ctrl-C is for this process, which then ends the other one
        )
        self.send(dataclasses.asdict(request))
        self._over = threading.Event()
        for each in (self._listen, self._watch):
            threading.Thread(target=each, daemon=True, name=f"fencepost {each.__name__}").start()

    def send(self, line: Event) -> None:
        """Send a line to the worker, which may be gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()

    def end(self) -> None:
        """End the worker and all that it started. Returns when it is gone."""
        with self._lock:
            self._is_wanted = False
        self._kill()
        self._process.wait()

    def _kill(self) -> None:
        if sys.platform == "win32":  # which has no groups of processes: what the author's Python started goes on
            self._process.terminate()
            return
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _tell(self, event: Event) -> None:
        with self._lock:
            if self._is_wanted:
                self._heard(event)

    def _listen(self) -> None:
        out = self._process.stdout
        assert out is not None
        with contextlib.suppress(OSError, ValueError):
            while line := out.readline(LONGEST):
                self._began = time.monotonic()
                event = json.loads(line)
                self._is_idle = event["event"] in ("ready", "answer")
                self._is_done = self._is_done or self._is_idle or event["event"] in ("failed", "fault")
                self._tell(event)
        self._kill()  # what it started, too
        code = self._process.wait()
        self._over.set()
        died = f"was killed by {signal.Signals(-code).name}" if code < 0 else "was ended by the author's Python"
        why = self._why or ("" if self._is_done and code >= 0 else f"the process of the check {died}")
        self._tell({"event": "ended", "why": why})

    def _watch(self) -> None:
        limit = 1.2 * self._request.seconds + SPARE
        while not self._over.wait(TICK):
            if not self._is_idle and time.monotonic() - self._began > limit:
                self._why = f"the check did not end within {limit:g} s"
            elif self._memory() > 1.2 * self._request.memory + (1 << 28):
                self._why = f"the check took more than {self._request.memory >> 20:,} MiB of memory"
            else:
                continue
            self._kill()
            return

    def _memory(self) -> int:
        """The bytes that the worker occupies; 0 where the system does not say, as only Linux does."""
        try:
            with open(f"/proc/{self._process.pid}/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0
