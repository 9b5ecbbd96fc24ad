"""Members of a quorum, each a process, and the network between them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.quorum.network import Network
from interop.ensembles import mode
from interop.processes import free_port

PATIENCE = 600.0

PROGRAM = ("-m", "fencepost")
"""How a member is started: these are the words before those of the command line."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that the system gives to no outgoing connection while a member does not run."""
    return [free_port() for _ in range(count)]


class Processes:
    """Members of a quorum, by their ids, from 1. With a network, they reach each other through it."""

    def __init__(
        self,
        path: Path,
        count: int,
        settings: Sequence[str] = (),
        network: Network | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.path = path
        self.settings = settings
        self.network = network
        self.program = program
        ports = free_ports(3 * count)
        self.endpoints = {1 + number: f"127.0.0.1:{port}" for number, port in enumerate(ports[:count])}
        self.ports = {1 + number: port for number, port in enumerate(ports[count : 2 * count])}
        self.running: dict[int, subprocess.Popen[str]] = {}
        self.frozen: set[int] = set()
        self._behind = {1 + number: port for number, port in enumerate(ports[2 * count :])}
        if network is not None:
            network.listen(
                {
                    member: (int(self.endpoints[member].rpartition(":")[2]), port)
                    for member, port in self._behind.items()
                }
            )

    def add(self) -> int:
        """Have one more, which is not started yet; its id."""
        member = max(self.endpoints) + 1
        reached, port, behind = free_ports(3)
        self.endpoints[member], self.ports[member], self._behind[member] = f"127.0.0.1:{reached}", port, behind
        if self.network is not None:
            self.network.listen({member: (reached, behind)})
        return member

    @property
    def controllers(self) -> str:
        """What a command is given."""
        return ",".join(f"{number}@{endpoint}" for number, endpoint in self.endpoints.items())

    @property
    def addresses(self) -> str:
        """What a client is given."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def launch(self, member: int) -> None:
        """Start one, and do not wait for it to serve."""
        command = [sys.executable, *self.program, "metadata", str(self.path / str(member)), "--id", str(member)]
        options = ["--port", str(self.ports[member]), "--controllers", self.controllers, *self.settings]
        if self.network is not None:
            options += ["--listen", f"127.0.0.1:{self._behind[member]}"]
        with open(self.path / f"{member}.log", "ab") as log:
            self.running[member] = subprocess.Popen(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "FENCEPOST_BENCH_SLOW": str(self.slow_file(member))},
            )

    def start(self, *members: int) -> None:
        """Start some, or all, and wait until they serve. Raises ``RuntimeError`` if one does not."""
        members = members or tuple(self.endpoints)
        for member in members:
            self.launch(member)
        for member in members:
            stdout = self.running[member].stdout
            assert stdout is not None
            line = stdout.readline()
            if not line.startswith(f"metadata service zk://127.0.0.1:{self.ports[member]} "):
                raise RuntimeError(
                    f"member {member} does not serve: {line}{(self.path / f'{member}.log').read_text()[-2000:]}"
                )

    def kill(self, member: int, number: int = signal.SIGKILL) -> int:
        """Have one end; its exit code."""
        process = self.running.pop(member)
        self.frozen.discard(member)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        process.communicate()
        return process.returncode

    def freeze(self, member: int) -> None:
        """Stop one where it is."""
        self.frozen.add(member)
        self.running[member].send_signal(signal.SIGSTOP)

    def thaw(self, member: int) -> None:
        """Let one go on that was stopped."""
        self.frozen.discard(member)
        self.running[member].send_signal(signal.SIGCONT)

    def wipe(self, member: int) -> None:
        """Its disk is lost."""
        shutil.rmtree(self.path / str(member))

    def slow_file(self, member: int) -> Path:
        """Where the milliseconds stand that each sync of a member's disk takes longer, of programs that look there (see
        :mod:`bench.quorum.planted`)."""
        return self.path / f"{member}.slow"

    def died(self) -> list[int]:
        """Members whose process has ended unexpectedly."""
        return [member for member, process in self.running.items() if process.poll() is not None]

    def ask(self, *words: str, timeout: float = 60.0) -> dict[str, Any]:
        """``fencepost quorum``, of any member; raises ``RuntimeError`` if it says no."""
        command = [
            sys.executable,
            "-m",
            "fencepost",
            "quorum",
            *words,
            "--controllers",
            self.controllers,
            "--timeout",
            str(timeout),
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def leader(self) -> int:
        """Who leads."""
        return int(self.ask("status")["leader_id"])

    def who_leads(self) -> int:
        """Who says that it leads, by a word to the ports of clients, which costs less than a command; 0 if nobody
        does.
        """
        for member in self.running:
            if member not in self.frozen and mode(self.ports[member]) == "leader":
                return member
        return 0

    def wait_for_leader(self, patience: float = 60.0) -> int:
        """Who leads, as soon as somebody does. Raises ``TimeoutError``."""
        end = time.monotonic() + patience
        while not (leader := self.who_leads()):
            if time.monotonic() > end:
                raise TimeoutError(f"nobody leads after {patience:.0f} s")
            time.sleep(0.05)
        return leader

    def close(self) -> None:
        """End all."""
        for member in list(self.running):
            self.kill(member)

    def client(self, timeout: float = 20.0) -> Any:
        """A client of kazoo's of all members, which tries again and again."""
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        retry = KazooRetry(max_tries=-1, delay=0.02, max_delay=0.1)
        client = KazooClient(self.addresses, timeout=timeout, connection_retry=retry, command_retry=retry)
        client.start(PATIENCE)
        return client
