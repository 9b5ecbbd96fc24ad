"""One process of a cluster: start it, read its output, send signals, and notice its end."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fencepost.errors import SystemFailure
from fencepost.files.folders import make_folder, private
from fencepost.ledger.cluster import bound, four_letter_words
from fencepost.ledger.cluster.identity import Identity, identity, is_paused, memory
from fencepost.ledger.cluster.ports import HOST

SERVES = " serves"
"""How the line ends that a part prints once it serves."""

COMPLAINT = "fencepost: "
"""How the line begins with the error that ends a part."""

LOG_LIMIT = 16 << 20
"""The size in bytes above which a log is moved aside when its part starts again."""

TAIL = 64 << 10
"""The bytes at the end of a log that are searched for its last lines."""

PAUSE_TAKES = 0.005
"""Seconds between two checks whether a signal has stopped or continued a process."""


class State(enum.StrEnum):
    """The state of a part."""

    DOWN = "down"
    STARTING = "starting"
    SERVES = "serves"
    READ_ONLY = "read-only"
    """A bookie that serves, but takes entries only from recoveries."""
    UNREGISTERED = "unregistered"
    """A bookie that answers but is not registered in the metadata service, so clients do not find it."""
    PAUSED = "paused"
    SILENT = "silent"
    """The process runs but does not answer on its port."""
    STOPPING = "stopping"


class Part:
    """A part of a cluster. ``changed`` is called with it whenever its state changes."""

    def __init__(
        self, name: str, port: int, command: Sequence[str], log: Path, changed: Callable[[Part], None]
    ) -> None:
        self.name = name
        self.address = f"{HOST}:{port}"
        self.port = port
        self.command = list(command)
        self.log = log
        self.state = State.DOWN
        self.reason = ""
        """Why it is down, if that is of interest."""
        self.since = 0.0
        """When it was last started, in seconds since the epoch."""
        self.identity: Identity | None = None
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._is_starting = False
        """Whether the process is being created."""
        self._descriptor = -1
        self._overdue = ""
        """Why it is killed, if it did not stop in time."""
        self._lived: asyncio.Task[None] | None = None
        self._serves = asyncio.Event()

    @property
    def title(self) -> str:
        """The name of the part in messages."""
        return self.name if not self.name.isdigit() else f"bookie {self.name}"

    @property
    def is_down(self) -> bool:
        """Whether there is no process, and none being created."""
        return self._process is None and not self._is_starting

    def facts(self) -> dict[str, Any]:
        """The state of the part, for JSON. ``memory`` is in bytes, ``since`` in seconds since the epoch."""
        pid = self.identity.pid if self.identity is not None and not self.is_down else None
        return {
            "name": self.name,
            "address": self.address,
            "state": str(self.state),
            "reason": self.reason,
            "pid": pid,
            "since": self.since if pid else None,
            "memory": memory(pid) if pid else 0,
            "log": str(self.log),
        }

    # -- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process. It exists on return, and serves some time later. Raises SystemFailure if it cannot be
        started.
        """
        self._is_starting = True
        try:
            make_folder(self.log.parent)
            if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
                self.log.rename(self.log.with_suffix(".old.log"))
            with open(self.log, "ab", opener=private) as log:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-IS", bound.__file__, str(os.getpid()), *self.command),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    # Only the process that runs the cluster gets Ctrl-C. It ends its parts in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise SystemFailure(f"{self.title} cannot be started: {error.strerror}") from None
        finally:
            self._is_starting = False
        self._process, self.reason, self.since = process, "", time.time()
        self._overdue = ""
        self.identity = identity(process.pid)
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            self._descriptor = os.pidfd_open(process.pid)
        self._serves.clear()
        self._lived = asyncio.create_task(self._live(process))
        self._now(State.STARTING)

    async def _live(self, process: asyncio.subprocess.Process) -> None:
        """Read the output of the process until it ends."""
        assert process.stdout is not None
        async for line in process.stdout:
            with open(self.log, "ab", opener=private) as log:
                log.write(line)
            if _said(line.decode(errors="replace").rstrip()).endswith(SERVES) and self.state is State.STARTING:
                self._serves.set()
                self._now(State.SERVES)
        code = await process.wait()
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._process, self.identity, self._descriptor = None, None, -1
        self.reason = self._why(code, wanted=self.state is State.STOPPING)
        self._now(State.DOWN)

    def _why(self, code: int, wanted: bool) -> str:
        if code < 0:
            return self._overdue or f"ended by {signal.Signals(-code).name}"
        if code == 0:
            return "stopped" if wanted else "ended by itself"
        return f"exit code {code}: {last_words(self.log)}"

    async def serving(self) -> None:
        """Wait until the part serves. Raises SystemFailure with its last log line if it ends first."""
        assert self._lived is not None
        serves = asyncio.create_task(self._serves.wait())
        await asyncio.wait({serves, self._lived}, return_when=asyncio.FIRST_COMPLETED)
        serves.cancel()
        if not self._serves.is_set():
            raise SystemFailure(f"{self.title} ended before it served: {self.reason} (all of it is in {self.log})")

    async def ended(self) -> None:
        """Wait until there is no process."""
        if self._lived is not None:
            await asyncio.shield(self._lived)

    async def stop(self, patience: float) -> None:
        """Stop the process cleanly and wait for its end. A paused one is resumed to do so. After ``patience`` seconds
        it is killed.
        """
        if self.signal(signal.SIGTERM):
            self.signal(signal.SIGCONT)
            self._now(State.STOPPING)
        try:
            async with asyncio.timeout(patience):
                await self.ended()
        except TimeoutError:
            self._overdue = f"killed, since it did not end within {patience:.0f} s"
            self.kill()
            await self.ended()

    def kill(self) -> None:
        """Kill the process at once, as a power failure would."""
        self.signal(signal.SIGKILL)

    async def pause(self) -> None:
        """Pause the process. It keeps its memory and its connections, and does nothing."""
        if await self._signalled(signal.SIGSTOP, paused=True):
            self._now(State.PAUSED)

    async def resume(self) -> None:
        """Resume a paused process."""
        if await self._signalled(signal.SIGCONT, paused=False):
            self._now(State.SERVES if self._serves.is_set() else State.STARTING)

    async def _signalled(self, number: signal.Signals, paused: bool) -> bool:
        """Send a signal and wait until it takes effect. Gives whether the process still exists."""
        self.signal(number)
        while self._process is not None and is_paused(self._process.pid) != paused:
            await asyncio.sleep(PAUSE_TAKES)
        return self._process is not None

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the process. Gives whether there was one."""
        if self._process is None:
            return False
        # asyncio's own send_signal may reap the process, and its exit code would be lost.
        if self._descriptor >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)
        return True

    # -- its health ---------------------------------------------------------------------------------------------------

    async def look(self, patience: float, seen: State = State.SERVES) -> None:
        """Check the part: whether it was paused or resumed from outside, and whether its port answers within
        ``patience`` seconds.

        ``seen``: its state if it answers, by what the metadata service knows.
        """
        if self._process is None or self.state in (State.STARTING, State.STOPPING):
            return
        process = self._process
        if is_paused(process.pid):
            self._now(State.PAUSED)
            return
        answers = await self._answers(patience)
        if self._process is process and self.state not in (State.STOPPING, State.DOWN):
            self._now(State.PAUSED if is_paused(process.pid) else seen if answers else State.SILENT)

    async def _answers(self, patience: float) -> bool:
        if not self.name.isdigit():
            return await four_letter_words.ask(self.port, "ruok", patience) == "imok"
        return await four_letter_words.ask(self.port, "", patience) is not None

    def _now(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            self._changed(self)


def last_words(log: Path) -> str:
    """The line of a log that best explains why its process ended: its last error message, or otherwise its last
    line.
    """
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - TAIL))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "it has no log"
    if not lines:
        return "it said nothing"
    said = [_said(line) for line in lines]
    complaint = next((line for line in reversed(said) if line.startswith(COMPLAINT)), said[-1])
    return complaint.removeprefix(COMPLAINT).strip()


def _said(line: str) -> str:
    """What a line of a log says, which may be JSON."""
    if line.startswith("{"):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            document = json.loads(line)
            is_complaint = (document["level"], document["logger"]) == ("ERROR", COMPLAINT.removesuffix(": "))
            return f"{COMPLAINT if is_complaint else ''}{document['message']}"
    return line
