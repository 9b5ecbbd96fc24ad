"""Child processes: servers that show when they serve, and that their starter ends."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fencepost.ledger.cluster.ports import is_free

# Below the ports that the system hands out to outgoing connections, one of which might else take the place of a killed
# server.
PORTS = range(22400, 32000)


def clean_up_when_ended() -> None:
    """Have SIGTERM end this process as an exception does, so that the servers that it has started end too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


class DidNotStart(Exception):
    """A server ended or did not serve in time; the text has the end of its log."""


def _all_ports() -> Iterator[int]:
    first = random.randrange(len(PORTS))
    while True:
        yield from (*PORTS[first:], *PORTS[:first])


_ports = _all_ports()


def free_port() -> int:
    """A port of the loopback interface that nobody listens on and that was not given out lately."""
    return next(filter(is_free, _ports))


class Server:
    """A server as a process of its own, which can be killed and started again with the same command line."""

    def __init__(
        self, name: str, command: list[str], log: Path, serves: Callable[[Server], bool], seconds: float = 180
    ) -> None:
        """``serves`` is asked until it is true; the log has standard output and standard error."""
        self.name = name
        self.command = command
        self.log = log
        self._serves = serves
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The number of the process, which runs."""
        assert self._process is not None
        return self._process.pid

    def runs(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and do not wait for it to serve."""
        # The log is ended by a line of its own, so that what an earlier process said is not taken for this one's.
        with open(self.log, "ab") as log:
            self._began = log.tell()
            self._process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait(self) -> None:
        """Return once it serves. Raises :class:`DidNotStart`."""
        assert self._process is not None
        end = time.monotonic() + self._seconds
        while not self._serves(self):
            if self._process.poll() is not None:
                raise DidNotStart(f"{self.name} ended with {self._process.returncode}:\n{self.said()[-2000:]}")
            if time.monotonic() > end:
                raise DidNotStart(f"{self.name} does not serve after {self._seconds:.0f} s:\n{self.said()[-2000:]}")
            time.sleep(0.05)

    def start(self) -> None:
        """Start the process and return once it serves."""
        self.launch()
        self.wait()

    def said(self) -> str:
        """What this process, and none before it, wrote to standard output and standard error."""
        with open(self.log, "rb") as log:
            log.seek(self._began)
            return log.read().decode(errors="replace")

    def kill(self) -> None:
        """End the process as a power cut does."""
        self.signal(signal.SIGKILL)
        self.end()

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def end(self) -> int:
        """Wait until the process has ended, and give its exit status; one that takes over 20 seconds is killed."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        try:
            return process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def freeze(self) -> None:
        """Stop the process where it is, as a machine that hangs."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.signal(signal.SIGCONT)


def stop_all(servers: list[Server]) -> list[int]:
    """Ask servers to end, all at the same time; their exit statuses."""
    for server in servers:
        server.signal(signal.SIGTERM)
    return [server.end() for server in servers]
