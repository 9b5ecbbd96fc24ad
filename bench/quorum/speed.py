"""Creates, sets and reads a second of our quorum, of a ZooKeeper ensemble and of etcd, three members each, turn by turn
in one run; or of a single metadata service of ours and of ZooKeeper alone.

All of them sync to disk. Ours and ZooKeeper get the same frames from the same client. It keeps a fixed number of
requests in flight over up to eight connections, spread over the members, the leader first. With etcd, a program built
from its published modules uses its own client, with as many connections and requests.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from bench.quorum.clients import zk
from bench.quorum.processes import Processes
from interop.clusters import FENCEPOST, ZOOKEEPER, metadata_service
from interop.ensembles import Ensemble, mode
from interop.processes import free_port

MEMBERS = 3
CONNECTIONS = 8
"""Of one load, at most."""
_TICK = os.sysconf("SC_CLK_TCK")


_WARM_UP = 4.0
"""Seconds of a load for a server that has just started: Java compiles then."""


@dataclass(frozen=True)
class Load:
    """What is done: changes that create a znode, or set one, with values of ``size`` bytes, or reads; ``in_flight``
    requests are under way.
    """

    in_flight: int
    size: int = 100
    reads: bool = False
    sets: bool = False
    """For etcd there is no difference: it puts a new key."""

    @property
    def connections(self) -> int:
        return min(CONNECTIONS, self.in_flight)

    def __str__(self) -> str:
        what = "reads" if self.reads else "sets" if self.sets else "creates"
        return f"{what} of {self.size:,} B, {self.in_flight} in flight"


LOADS = (
    *(Load(in_flight, size) for size in (100, 1024) for in_flight in (1, 16, 64, 256)),
    *(Load(in_flight, sets=True) for in_flight in (1, 16, 64, 256)),
    *(Load(in_flight, reads=True) for in_flight in (1, 64)),
)


@dataclass(frozen=True)
class Measured:
    """Operations a second, milliseconds of the middle one and of one of a hundred, and microseconds of CPU an
    operation, of servers and of the client.
    """

    rate: float
    p50: float
    p99: float
    server_cpu: float
    client_cpu: float


class Store(Protocol):
    """Three members of something that is measured."""

    name: str

    @property
    def pids(self) -> Sequence[int]:
        """Their processes."""
        ...

    def do(self, load: Load, seconds: float) -> tuple[int, float, float, float, float]:
        """Put a load on it: operations, seconds, p50, p99, and seconds of CPU of the client."""
        ...

    def kill_leader(self) -> Callable[[], None]:
        """``kill -9`` the leader; gives what starts it again."""
        ...

    def change(self) -> bool:
        """Whether a change is acknowledged now, by any member, within a tenth of a second or so."""
        ...

    def stop(self) -> None:
        """End all."""
        ...


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def measure(store: Store, load: Load, seconds: float) -> Measured:
    """One turn of one store."""
    before = sum(map(_cpu, store.pids))
    count, took, p50, p99, client = store.do(load, seconds)
    servers = sum(map(_cpu, store.pids)) - before
    return Measured(count / took, p50, p99, servers / count * 1e6, client / count * 1e6)


# -- ZooKeeper's protocol ---------------------------------------------------------------------------------------------


class _Connection:
    """A connection with a session, and when the requests were sent that wait for their answers."""

    def __init__(self, port: int, number: int) -> None:
        self.client = zk.Client(port)
        self.client.connect(30_000)
        self.socket: socket.socket = self.client.socket
        self.sent: deque[float] = deque()
        self.received = bytearray()
        self.number = number
        self.made = 0


def _frames(connection: _Connection, load: Load, count: int, turn: int) -> bytes:
    """The next requests."""
    if load.reads:
        return struct.pack(">iiii2s?", 15, 5, 4, 2, b"/s", False) * count
    if load.sets:
        request = struct.pack(">iii2si", 5, 5, 2, b"/s", load.size) + b"x" * load.size + struct.pack(">i", -1)
        return (struct.pack(">i", len(request)) + request) * count
    tail = (
        struct.pack(">i", load.size) + b"x" * load.size + struct.pack(">iii5si6si", 1, 31, 5, b"world", 6, b"anyone", 0)
    )
    frames = []
    for made in range(connection.made, connection.made + count):
        path = b"/s/%d-%d-%d" % (turn, connection.number, made)
        frames.append(struct.pack(">iiii", 12 + len(path) + len(tail), 5, 1, len(path)) + path + tail)
    connection.made += count
    return b"".join(frames)


def drive(ports: Sequence[int], load: Load, seconds: float, turn: int) -> tuple[int, float, float, float, float]:
    """Put a load on servers of ZooKeeper's protocol, see :meth:`Store.do`."""
    connections = [_Connection(ports[number % len(ports)], number) for number in range(load.connections)]
    connections[0].client.call([zk.CREATE, ["/s", b"x" * load.size, zk.OPEN, 0]])
    for each in connections:
        each.client.call([zk.SYNC, ["/s"]])
    took: list[float] = []
    with selectors.DefaultSelector() as selector:
        cpu, began = time.process_time(), time.perf_counter()
        end = began + seconds
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
            share = load.in_flight // len(connections)
            connection.sent.extend([time.perf_counter()] * share)
            connection.socket.sendall(_frames(connection, load, share, turn))
        waiting = sum(len(each.sent) for each in connections)
        while waiting:
            for key, _ in selector.select(30):
                connection = key.data
                received = connection.received
                received += connection.socket.recv(1 << 20)
                now, at, answers = time.perf_counter(), 0, 0
                while len(received) - at >= 4:
                    length = int.from_bytes(received[at : at + 4], "big")
                    if len(received) - at - 4 < length:
                        break
                    if received[at + 16 : at + 20] != b"\0\0\0\0":
                        raise RuntimeError(f"an answer is an error: {received[at : at + 20].hex()}")
                    at += 4 + length
                    took.append(now - connection.sent.popleft())
                    answers += 1
                del received[:at]
                waiting -= answers
                if now < end and answers:
                    connection.sent.extend([now] * answers)
                    connection.socket.sendall(_frames(connection, load, answers, turn))
                    waiting += answers
        passed, cpu = time.perf_counter() - began, time.process_time() - cpu
    for connection in connections:
        connection.client.drop()
    took.sort()
    return len(took), passed, 1e3 * took[len(took) // 2], 1e3 * took[int(0.99 * (len(took) - 1))], cpu


def _leader_first(ports: Sequence[int]) -> list[int]:
    return sorted(ports, key=lambda port: mode(port) not in ("leader", "standalone"))


def _changes(port: int, number: int) -> bool:
    """Whether a server of ZooKeeper's protocol acknowledges a change of a new session."""
    try:
        client = zk.Client(port)
        client.socket.settimeout(1.0)
        try:
            client.connect(30_000)
            return bool(client.call([zk.CREATE, [f"/k{number}", b"", zk.OPEN, 0]])[3] == 0)
        finally:
            client.drop()
    except (OSError, zk.Closed):
        return False


class Ours:
    """A quorum of ours."""

    name = "Fencepost"

    def __init__(self, path: Path, count: int = MEMBERS) -> None:
        self.members = Processes(path, count)
        self.members.start()
        self.members.wait_for_leader()
        self.turn = 0

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.members.running.values()]

    def do(self, load: Load, seconds: float) -> tuple[int, float, float, float, float]:
        self.turn += 1
        return drive(_leader_first([*self.members.ports.values()]), load, seconds, self.turn)

    def kill_leader(self) -> Callable[[], None]:
        leader = next(number for number, port in self.members.ports.items() if mode(port) == "leader")
        self.members.kill(leader)
        return lambda: self.members.start(leader)

    def change(self) -> bool:
        self.turn += 1
        return any(_changes(self.members.ports[each], self.turn) for each in self.members.running)

    def stop(self) -> None:
        for member in list(self.members.running):
            self.members.kill(member)


class ZooKeeper:
    """An ensemble of ZooKeeper as it comes, but for the time that it waits before it takes a server for gone, which is
    made as short as ours.
    """

    name = "ZooKeeper"

    def __init__(self, path: Path) -> None:
        self.ensemble = Ensemble(
            path, MEMBERS, {"tickTime": 200, "initLimit": 50, "syncLimit": 5}, heap=512, force_sync=True
        )
        self.ensemble.start()
        self.turn = 0

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.ensemble.servers.values() if each.runs()]

    def do(self, load: Load, seconds: float) -> tuple[int, float, float, float, float]:
        self.turn += 1
        return drive(_leader_first([*self.ensemble.ports.values()]), load, seconds, self.turn)

    def kill_leader(self) -> Callable[[], None]:
        server = self.ensemble.servers[self.ensemble.leader]
        server.kill()

        def again() -> None:
            server.launch()
            server.wait()

        return again

    def change(self) -> bool:
        self.turn += 1
        return any(_changes(port, self.turn) for port in self.ensemble.ports.values())

    def stop(self) -> None:
        self.ensemble.kill()


class Alone:
    """One server that has no others beside it: ours, or ZooKeeper."""

    def __init__(self, path: Path, like: type[Ours] | type[ZooKeeper]) -> None:
        self.name = like.name
        kind = FENCEPOST if like is Ours else ZOOKEEPER
        self.server, where = metadata_service(kind, path / kind, heap=512, short=False)
        self.server.start()
        self.port = int(where.rpartition(":")[2])
        self.turn = 0

    @property
    def pids(self) -> list[int]:
        return [self.server.pid]

    def do(self, load: Load, seconds: float) -> tuple[int, float, float, float, float]:
        self.turn += 1
        return drive([self.port], load, seconds, self.turn)

    def kill_leader(self) -> Callable[[], None]:
        raise NotImplementedError  # nobody would answer until it is back

    def change(self) -> bool:
        self.turn += 1
        return _changes(self.port, self.turn)

    def stop(self) -> None:
        self.server.kill()


class Etcd:
    """Three etcd servers as they come. ``program`` is built from ``bench/quorum/etcd``."""

    name = "etcd"

    def __init__(self, path: Path, program: Path) -> None:
        self.program = program
        self.path = path
        self.clients = [free_port() for _ in range(MEMBERS)]
        self.peers = [free_port() for _ in range(MEMBERS)]
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(MEMBERS):
            self._start(number)
        self._wait()

    def _start(self, number: int) -> None:
        client, peer = f"http://127.0.0.1:{self.clients[number]}", f"http://127.0.0.1:{self.peers[number]}"
        cluster = ",".join(f"m{each}=http://127.0.0.1:{port}" for each, port in enumerate(self.peers))
        with open(self.path / f"etcd-{number}.log", "ab") as log:
            self.running[number] = subprocess.Popen(
                [
                    str(self.program), "serve", "--name", f"m{number}", "--data-dir", str(self.path / f"etcd-{number}"),
                    "--listen-client-urls", client,
                    "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                    peer, "--initial-cluster", cluster,
                    "--log-level", "error",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip

    def _wait(self) -> None:
        end = time.monotonic() + 60
        while not self.change():
            if time.monotonic() > end:
                raise RuntimeError("etcd does not serve")
            time.sleep(0.1)

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.running.values()]

    def do(self, load: Load, seconds: float) -> tuple[int, float, float, float, float]:
        leader = self._leader()
        endpoints = sorted(range(MEMBERS), key=lambda number: number != leader)
        command = [
            str(self.program), "load", "--endpoints", ",".join(f"127.0.0.1:{self.clients[each]}" for each in endpoints),
            "--connections", str(load.connections),
            "--in-flight", str(load.in_flight), "--size", str(load.size), "--seconds", str(seconds),
            *(["--reads"] if load.reads else []),
        ]  # fmt: skip
        before = os.times()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=seconds + 60)
        after = os.times()
        found: dict[str, float] = json.loads(done.stdout)
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return int(found["operations"]), found["seconds"], found["p50"], found["p99"], cpu

    def _ask(self, number: int, what: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """One request to the JSON gateway of a member; None if it is not answered."""
        data = json.dumps(body).encode()
        headers = ("Host: localhost", "Connection: close", f"Content-Length: {len(data)}")
        head = "\r\n".join((f"POST /v3/{what} HTTP/1.1", *headers, "", "")).encode()
        try:
            with socket.create_connection(("127.0.0.1", self.clients[number]), 1.0) as connection:
                connection.settimeout(1.0)
                connection.sendall(head + data)
                said = b""
                while more := connection.recv(1 << 16):
                    said += more
        except OSError:
            return None
        top, _, found = said.partition(b"\r\n\r\n")
        return json.loads(found) if b" 200 " in top.split(b"\r\n")[0] else None

    def _leader(self) -> int:
        for number in self.running:
            status = self._ask(number, "maintenance/status", {})
            if status is not None and status["leader"] == status["header"]["member_id"]:
                return number
        raise RuntimeError("etcd has no leader")

    def kill_leader(self) -> Callable[[], None]:
        leader = self._leader()
        process = self.running.pop(leader)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return lambda: self._start(leader)

    def change(self) -> bool:
        return any(self._ask(number, "kv/put", {"key": "aw==", "value": "dg=="}) for number in self.running)

    def stop(self) -> None:
        for process in self.running.values():
            process.send_signal(signal.SIGKILL)
            process.wait()


# -- the run ----------------------------------------------------------------------------------------------------------


def build_etcd(given: Path | None) -> Path | str:
    """The program, built once into the cache of the user; or why there is none."""
    if given is not None:
        return given if given.exists() else f"{given} is missing"
    program = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "fencepost", "etcd")
    if program.exists():
        return program
    if shutil.which("go") is None:
        return "there is no Go to build it with"
    program.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["go", "build", "-o", str(program), "."], cwd=Path(__file__).parent / "etcd", capture_output=True, text=True
    )
    return program if done.returncode == 0 else f"it cannot be built: {done.stderr.strip().splitlines()[-1]}"


def run(
    path: Path,
    members: int,
    loads: Sequence[Load],
    seconds: float,
    turns: int,
    kills: int,
    etcd: Path | None,
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """All loads, and how long a change takes that is asked for when the leader is killed: by load and store, medians of
    the turns. With one of the ``members``, of a single service of ours and of ZooKeeper alone, which nobody kills,
    and which begin anew, and warm up, with each load.
    """
    found: dict[str, dict[str, Any]] = {}
    program = build_etcd(etcd) if members > 1 else ""
    with ExitStack() as stack:
        stores: list[Store] = []

        def add(store: Store) -> None:
            stores.append(store)
            stack.callback(store.stop)

        if members > 1:
            add(Ours(path))
            add(ZooKeeper(path))
        if isinstance(program, Path):
            add(Etcd(path, program))
        elif program:
            say(f"without etcd: {program}")
        for number, load in enumerate(loads):
            if members == 1:
                stack.close()
                stores.clear()
                add(Alone(path / str(number), Ours))
                add(Alone(path / str(number), ZooKeeper))
                for store in stores:
                    store.do(load, _WARM_UP)
            turns_of: dict[str, list[Measured]] = {each.name: [] for each in stores}
            for turn in range(turns):
                for store in stores[turn % len(stores) :] + stores[: turn % len(stores)]:
                    turns_of[store.name].append(measure(store, load, seconds))
            of_load: dict[str, Any] = {}
            for name, some in turns_of.items():
                of_load[name] = {
                    field: median(getattr(each, field) for each in some) for field in Measured.__dataclass_fields__
                }
            found[str(load)] = of_load
            say(f"{load}")
            for name, values in of_load.items():
                say(
                    f"    {name:<10}{values['rate']:>10,.0f}/s   p50 {values['p50']:>7.2f} ms   p99"
                    f" {values['p99']:>7.2f} ms   CPU of servers {values['server_cpu']:>6.0f} us, of the client"
                    f" {values['client_cpu']:>5.0f} us"
                )
        if kills and members > 1:
            waits = {store.name: [_after_kill(store) for _ in range(kills)] for store in stores}
            found["seconds without a leader"] = waits
            say("seconds from kill -9 of the leader to the next acknowledged change")
            for name, times in waits.items():
                say(
                    f"    {name:<10}{min(times):>6.2f} at least, {median(times):.2f} in the middle,"
                    f" {max(times):.2f} at most"
                )
    return found


def _after_kill(store: Store) -> float:
    again = store.kill_leader()
    began = time.perf_counter()
    while not store.change():
        if time.perf_counter() - began > 60:
            raise RuntimeError(f"{store.name} has no leader after a minute")
        time.sleep(0.01)
    took = time.perf_counter() - began
    again()
    time.sleep(1.0)  # the one that is back catches up
    return took
