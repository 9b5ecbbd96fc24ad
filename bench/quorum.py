"""``python -m bench.quorum``: a quorum of metadata services whose members are killed, stopped, wiped and replaced while clients work.

Every member is a process, every client is kazoo's. What has to hold: whatever was acknowledged is there at the end, with the version that was told;
values are read and written as if one after another (a version is one write; whoever begins after another has ended sees at least its version);
nobody's ephemerals vanish while its session is there. Printed: how long clients waited after a leader was killed, and how many operations a second.

    python -m bench.quorum [--seconds 60] [--clients 4] [--seed 1] [--members 3]
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

PATIENCE = 600.0


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Processes:
    """Members of a quorum, each a process."""

    def __init__(self, path: Path, count: int, settings: Sequence[str] = ()) -> None:
        self.path = path
        self.settings = settings
        ports = free_ports(2 * count)
        self.endpoints = {1 + number: f"127.0.0.1:{port}" for number, port in enumerate(ports[:count])}
        self.ports = {1 + number: port for number, port in enumerate(ports[count:])}
        self.running: dict[int, subprocess.Popen[str]] = {}

    @property
    def controllers(self) -> str:
        """What a command is given."""
        return ",".join(f"{number}@{endpoint}" for number, endpoint in self.endpoints.items())

    @property
    def addresses(self) -> str:
        """What a client is given."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, *members: int) -> None:
        """Start some, or all, and wait until they serve."""
        members = members or tuple(self.endpoints)
        for member in members:
            command = [sys.executable, "-m", "fencepost", "metadata", str(self.path / str(member)), "--id", str(member)]
            options = ["--port", str(self.ports[member]), "--controllers", self.controllers, *self.settings]
            with open(self.path / f"{member}.log", "ab") as log:
                self.running[member] = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=log, text=True)
        for member in members:
            stdout = self.running[member].stdout
            assert stdout is not None
            line = stdout.readline()
            expected = f"metadata service zk://127.0.0.1:{self.ports[member]} (controller {member}@{self.endpoints[member]}) serves\n"
            assert line == expected, line + (self.path / f"{member}.log").read_text()

    def kill(self, member: int, number: int = signal.SIGKILL) -> int:
        """Have one end; its exit code."""
        process = self.running.pop(member)
        process.send_signal(number)
        process.communicate()
        return process.returncode

    def wipe(self, member: int) -> None:
        """Its disk is lost."""
        shutil.rmtree(self.path / str(member))

    def ask(self, *words: str, timeout: float = 60.0) -> dict[str, Any]:
        """``fencepost quorum``, of any member; raises ``RuntimeError`` if it says no."""
        command = [sys.executable, "-m", "fencepost", "quorum", *words, "--controllers", self.controllers, "--timeout", str(timeout), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def leader(self) -> int:
        """Who leads."""
        return int(self.ask("status")["leader_id"])

    def close(self) -> None:
        """End all."""
        for member in list(self.running):
            self.kill(member)

    def client(self, timeout: float = 20.0) -> Any:
        """A client of all members, which tries again and again."""
        from kazoo.client import KazooClient
        from kazoo.retry import KazooRetry

        retry = KazooRetry(max_tries=-1, delay=0.02, max_delay=0.1)
        client = KazooClient(self.addresses, timeout=timeout, connection_retry=retry, command_retry=retry)
        client.start(PATIENCE)
        return client


class Worker(threading.Thread):
    """One client: it writes and reads some znodes that all share, and creates some of its own."""

    def __init__(self, members: Processes, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.client = members.client()
        self.number = number
        self.random = Random(f"{seed} {number}")
        self.ended = threading.Event()
        self.created: list[str] = []
        self.calls: list[tuple[float, float, str, bool, int, bytes]] = []
        """Begin and end, path, whether it wrote, the version and the value that it wrote or saw."""
        self.last = time.monotonic()
        self.gaps: list[float] = []
        self.expired = 0
        """How often it was told that its session is over, although it had an answer less than 15 seconds before."""
        self.failure = ""

    def run(self) -> None:
        from kazoo.exceptions import (
            ConnectionLoss,
            KazooException,
            NodeExistsError,
            OperationTimeoutError,
            SessionExpiredError,
        )

        client = self.client
        client.ensure_path("/ephemerals")
        mine, session = f"/ephemerals/{self.number}", None
        count = 0
        while not self.ended.is_set():
            count += 1
            path = f"/shared/{self.random.randrange(3)}"
            begin = time.monotonic()
            try:
                dice = self.random.random()
                known = client.client_id
                if known is None:
                    raise ConnectionLoss  # it is not connected
                if session != known[0]:
                    session = known[0]
                    try:
                        client.create(mine, b"", ephemeral=True)
                    except NodeExistsError:
                        stat = client.exists(mine)
                        if stat is None or stat.ephemeralOwner != session:
                            session = None  # the one of the session before is still there
                elif dice < 0.4:
                    value = b"%d %d" % (self.number, count)
                    version = client.set(path, value).version
                    self.calls.append((begin, time.monotonic(), path, True, version, value))
                elif dice < 0.7:
                    client.sync(path)
                    value, stat = client.get(path)
                    self.calls.append((begin, time.monotonic(), path, False, stat.version, value))
                elif dice < 0.95:
                    client.create(f"/own/{self.number}-{count}", b"x" * self.random.randrange(2_000))
                    self.created.append(f"{self.number}-{count}")
                else:
                    client.sync(mine)
                    if client.exists(mine) is None and session == client.client_id[0] and client.connected:
                        self.failure = f"{mine} is gone, and its session {session:#x} is there"
                        return
            except (ConnectionLoss, OperationTimeoutError):
                time.sleep(0.02)
                continue
            except SessionExpiredError:
                self.expired += time.monotonic() < self.last + 15.0
                time.sleep(0.02)
                continue
            except KazooException as error:
                if "losed" not in type(error).__name__:
                    self.failure = f"{type(error).__name__} {error}"
                    return
                time.sleep(0.02)
                continue
            now = time.monotonic()
            self.gaps.append(now - self.last)
            self.last = now


def judge(workers: Sequence[Worker], members: Processes) -> list[str]:
    """What is wrong."""
    wrong = [f"client {each.number}: {each.failure}" for each in workers if each.failure]
    wrong += [f"client {each.number}: its session was over too early" for each in workers if each.expired]
    client = members.client()
    client.sync("/own")
    there = set(client.get_children("/own"))
    for each in workers:
        missing = [name for name in each.created if name not in there]
        if missing:
            wrong.append(f"client {each.number}: {len(missing)} acknowledged znodes are gone, {missing[:3]}")
    calls = sorted(call for each in workers for call in each.calls)
    for path in sorted({call[2] for call in calls}):
        of_path = [call for call in calls if call[2] == path]
        values: dict[int, bytes] = {}
        written: set[int] = set()
        for _, _, _, writes, version, value in of_path:
            if values.setdefault(version, value) != value:
                wrong.append(f"{path} has two values of version {version}: {values[version]!r} and {value!r}")
            if writes and version in written:
                wrong.append(f"{path}: two writes were given version {version}")
            if writes:
                written.add(version)
        ends = sorted((call[1], call[4]) for call in of_path)
        most, place = -1, 0
        for begin, _, _, writes, version, _ in of_path:
            while place < len(ends) and ends[place][0] < begin:
                most = max(most, ends[place][1])
                place += 1
            if version < most or (writes and version == most):
                wrong.append(f"{path}: an operation saw version {version} after version {most} was told")
        final = client.get(path)[1].version
        if final < max(values):
            wrong.append(f"{path} has version {final}, and {max(values)} was told")
    states = []
    for port in members.ports.values():
        from kazoo.client import KazooClient

        each_client = KazooClient(f"127.0.0.1:{port}", timeout=20.0)
        each_client.start(PATIENCE)
        each_client.sync("/")
        states.append((sorted(each_client.get_children("/own")), [each_client.get(f"/shared/{n}")[:2] for n in range(3)]))
        each_client.stop()
        each_client.close()
    if any(state != states[0] for state in states):
        wrong.append("members have different states")
    client.stop()
    client.close()
    return wrong


def campaign(seconds: float, clients: int, seed: int, count: int, path: Path) -> int:
    """Hurt members for a while; the exit code."""
    random = Random(seed)
    settings = path / "settings.toml"
    settings.write_text("snapCount = 2000\n")
    members = Processes(path, count, ["--settings", str(settings), "--verbose"])
    members.start()
    setup = members.client()
    for name in ("/own", "/shared", *(f"/shared/{number}" for number in range(3))):
        setup.create(name, b"")
    setup.stop()
    setup.close()
    workers = [Worker(members, number, seed) for number in range(clients)]
    for each in workers:
        each.start()
    begin = time.monotonic()
    waits: list[float] = []
    done: dict[str, int] = {}
    while time.monotonic() < begin + seconds and not any(each.failure for each in workers):
        time.sleep(1 + 2 * random.random())
        dice = random.random()
        if dice < 0.4:
            what, member = "kill -9 of the leader", members.leader()
            killed = time.monotonic()
            members.kill(member)
            while not any(each.last > killed + 0.1 and not each.client._stopped.is_set() for each in workers):
                time.sleep(0.01)
                if time.monotonic() > killed + 60:
                    break
            waits += [each.last - killed for each in workers if each.last > killed + 0.1][:1]
            members.start(member)
        elif dice < 0.6:
            what, member = "kill -9 of a member", random.choice(list(members.endpoints))
            members.kill(member)
            time.sleep(2 * random.random())
            members.start(member)
        elif dice < 0.8:
            what, member = "a member stops for a while", random.choice(list(members.endpoints))
            members.running[member].send_signal(signal.SIGSTOP)
            time.sleep(3 * random.random())
            members.running[member].send_signal(signal.SIGCONT)
        elif dice < 0.9:
            what, member = "a clean end", random.choice(list(members.endpoints))
            members.kill(member, signal.SIGTERM)
            members.start(member)
        else:
            what, member = "a lost disk", random.choice(list(members.endpoints))
            members.kill(member)
            members.wipe(member)
            members.start(member)
            members.ask("remove", str(member))
            members.ask("add", members.endpoints[member])
        done[what] = done.get(what, 0) + 1
    for each in workers:
        each.ended.set()
    for each in workers:
        each.join(PATIENCE)
    took = time.monotonic() - begin
    operations = sum(len(each.calls) + len(each.created) for each in workers)
    print(f"{operations:,} operations in {took:,.0f} seconds; " + ", ".join(f"{count} times {what}" for what, count in sorted(done.items())))
    if waits:
        print(f"after the leader was killed, clients waited {statistics.median(waits):.2f} s in the middle, {max(waits):.2f} s at most")
    wrong = judge(workers, members)
    for line in wrong:
        print(f"WRONG: {line}")
    for each in workers:
        each.client.stop()
        each.client.close()
    members.close()
    print("nothing is wrong" if not wrong else f"{len(wrong)} things are wrong; seed {seed}, {path}")
    return int(bool(wrong))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.quorum", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--members", type=int, default=3)
    given = parser.parse_args()
    import logging

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    path = Path(tempfile.mkdtemp(prefix="fencepost-quorum-"))
    code = campaign(given.seconds, given.clients, given.seed, given.members, path)
    if not code:
        shutil.rmtree(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
