"""``python -m bench.chaos.hostile --frames 10000 --seed S``: strangers send frames to every port of a running set.

There are three members of a quorum and a bookie, each a process. Each kind of port (bookies', clients' of the metadata
service, members', Kafka's, metrics') gets this number of frames. They are requests of every kind with arbitrary fields.
Some are damaged, some arrive in pieces, and some connections stay open. Others must not suffer: every process keeps
running, an honest client is answered in time, and memory stays within bounds.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec

from bench.quorum.processes import Processes, free_ports
from fencepost.ledger import messages as m
from fencepost.ledger.cluster.identity import memory
from fencepost.ledger.wire import v2, v3
from fencepost.quorum.driver import frames as between
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.kafka import messages as kafka
from fencepost.quorum.kafka.schema import Array, Kind, Struct

HOST = "127.0.0.1"
ANSWER = 30.0
"""Seconds in which an honest client is answered: long enough for members to elect another leader."""
MEMORY = 512 << 20
"""Bytes of a process that strangers may make it occupy."""
STAYING = 200
"""Connections to a port that stay, at the most."""


class Frames(Protocol):
    """Makes what is sent to the ports of a kind."""

    def __call__(self, draw: random.Random, first: bool) -> bytes:
        """A frame; the first of a connection opens it."""


# -- values -----------------------------------------------------------------------------------------------------------

NUMBERS = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 3, 4, 5, 100, (1 << 31) - 1, 1 << 31, (1 << 63) - 1)
TEXTS = ("", "a", "/", "..", "\0", "é" * 40, "x" * 5_000, "127.0.0.1:1", "host:99999", "::", "[", "A" * 22)


def number(draw: random.Random, bits: int = 64) -> int:
    """A number that fits, mostly one near an edge."""
    found = draw.choice(NUMBERS) if draw.random() < 0.8 else draw.randrange(-50, 50)
    limit = 1 << (bits - 1)
    return min(max(found, -limit), limit - 1)


def value(draw: random.Random, kind: Any, known: dict[type, list[Any]]) -> Any:
    """A value of a type of a field; ``known`` has values that honest messages have."""
    if kind in known and draw.random() < 0.7:
        return draw.choice(known[kind])
    if kind is int:
        return number(draw)
    if kind is str:
        return draw.choice(TEXTS)
    if kind is bytes:
        return draw.randbytes(draw.choice((0, 1, 20, 3_000)))
    if kind is bool:
        return draw.random() < 0.5
    if isinstance(kind, (types.UnionType,)) or typing.get_origin(kind) is typing.Union:
        return value(draw, draw.choice(typing.get_args(kind)), known)
    if kind is type(None):
        return None
    if typing.get_origin(kind) is tuple:
        return tuple(value(draw, typing.get_args(kind)[0], known) for _ in range(draw.choice((0, 0, 1, 2, 5))))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        fields = {name: value(draw, hints[name], known) for name in kind.__struct_fields__}
        try:
            return kind(**fields)
        except ValueError:  # not all of its fields fit together
            return value(draw, kind, known)
    return draw.choice(list(kind))  # an enumeration


def damaged(draw: random.Random, data: bytes) -> bytes:
    """The bytes as they are, or with some of them changed, cut off or added."""
    if draw.random() < 0.85 or not data:
        return data
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 4))):
        found[draw.randrange(len(found))] = draw.randrange(256)
    if draw.random() < 0.2:
        del found[draw.randrange(len(found)) :]
    return bytes(found) + (draw.randbytes(9) if draw.random() < 0.1 else b"")


# -- frames of each port ----------------------------------------------------------------------------------------------


def to_bookie(draw: random.Random, first: bool) -> bytes:
    """A request to a bookie, of version 2 or 3 of its protocol: of ledgers that there are not, or not yet."""
    key, entry = draw.choice((b"k" * 20, b"", bytes(20), b"x" * 3_000)), number(draw)
    anywhere = draw.choice((draw.randrange(200), number(draw)))
    body = draw.randbytes(draw.choice((0, 8, 60, 2_000)))
    add = m.AddEntry(anywhere, entry, number(draw), body, key, draw.random() < 0.3, draw.random() < 0.1)
    kinds: list[m.Request] = [
        add,
        m.ReadEntry(anywhere, entry, draw.random() < 0.5, key),
        m.ReadEntry(anywhere, -1, previous_lac=number(draw), wait=number(draw)),
        m.ReadLac(anywhere),
        m.WriteLac(anywhere, entry, draw.randbytes(40), key),
        m.ForceLedger(anywhere),
        m.ListEntries(anywhere),
        m.GetBookieInfo(),
        m.Auth(draw.choice(TEXTS), draw.randbytes(50)),
        m.StartTls(),
    ]
    of_2: list[m.Request] = [add, kinds[1], m.BatchRead(anywhere, entry, number(draw, 32), number(draw)), kinds[-2]]
    codec, choices = (v3, kinds) if draw.random() < 0.6 else (v2, of_2)
    try:
        return damaged(draw, codec.encode_request(draw.randrange(1 << 20), draw.choice(choices)))
    except (ValueError, TypeError, struct.error, OverflowError):  # more than the version can say
        return draw.randbytes(40)


CONNECT = struct.pack(">iiqiqi16sb", 45, 0, 0, 10_000, 0, 16, bytes(16), 0)
WORDS = (
    "conf cons crst dirs dump envi gtmk hash isro lead mntr orst reqs ruok srst srvr stat stmk wchc wchp wchs"
).split()


def to_clients(draw: random.Random, first: bool) -> bytes:
    """A request of ZooKeeper's protocol, or one of its four-letter words, after a session was asked for."""
    if first and draw.random() < 0.2:
        return draw.choice(WORDS).encode()
    kind = draw.choice((*range(-1, 23), *range(99, 110), -11, 1_000, -(1 << 31)))
    path = draw.choice((b"/", b"/strange", b"/strange/a", b"", b"/..", b"/\0", b"/" + b"x" * 5_000, b"/zookeeper/x"))
    arguments = struct.pack(">i", draw.choice((len(path), len(path), -1, number(draw, 32)))) + path
    for _ in range(draw.randrange(5)):
        arguments += draw.choice(
            (struct.pack(">i", number(draw, 32)), struct.pack(">q", number(draw)), b"\1", b"\0\0\0\1\0\0\0\x1f")
        )
    body = struct.pack(">ii", draw.randrange(-10, 1_000), kind) + arguments
    return (CONNECT if first and draw.random() < 0.9 else b"") + damaged(draw, struct.pack(">i", len(body)) + body)


def to_members(ports: Set) -> Frames:
    """Frames between replicas, after a stranger has said that it is one of them."""

    def frame(draw: random.Random, first: bool) -> bytes:
        if first and draw.random() < 0.95:
            known = between.Hello(ports.cluster, draw.choice(ports.known[ReplicaKey]))
            return between.encode(draw.choice((between.Hello(), known)))
        kind = draw.choice((between.Call, between.Answered, between.Hello)) if draw.random() < 0.1 else between.Ask
        return damaged(draw, between.encode(value(draw, kind, ports.known)))

    return frame


def to_kafka(draw: random.Random, first: bool) -> bytes:
    """A request of Kafka's protocol."""
    api = draw.choice(list(kafka.APIS.values()))
    version = draw.randint(api.oldest, api.newest)
    body = _struct(draw, api.request, version)
    try:
        data = kafka.encode_request(api, version, number(draw, 32), draw.choice(TEXTS), body)
    except ValueError:
        data = draw.randbytes(30)
    return damaged(draw, struct.pack(">i", len(data)) + data)


def _struct(draw: random.Random, fields: Struct, version: int) -> dict[str, Any]:
    return {field.name: _field(draw, field.of, version) for field in fields if version >= field.since}


_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}


def _field(draw: random.Random, kind: Any, version: int) -> Any:
    if isinstance(kind, Array):
        return [_field(draw, kind.of, version) for _ in range(draw.choice((0, 1, 1, 3)))]
    if kind is Kind.STRING:
        return draw.choice(TEXTS)
    if kind is Kind.UUID:
        return "A" * 22
    if kind is Kind.BOOL:
        return draw.random() < 0.5
    if kind is Kind.UINT16:
        return draw.choice((0, 1, 65_535))
    return number(draw, _BITS[kind]) if kind in _BITS else _struct(draw, kind, version)


def to_metrics(draw: random.Random, first: bool) -> bytes:
    """A request of HTTP."""
    path = draw.choice(("/", "/metrics", "/" + "x" * 9_000, "/%00", "/../../etc/passwd", "*", ""))
    head = f"{draw.choice(('GET', 'POST', 'HEAD', 'X' * 500))} {path} HTTP/1.{draw.choice('019')}\r\n"
    lines = f"Host: x\r\nContent-Length: {draw.choice(NUMBERS)}\r\n" * draw.choice((0, 1, 90))
    return damaged(draw, (head + lines + "\r\n").encode())


# -- the set ----------------------------------------------------------------------------------------------------------


class Members(Processes):
    """Members of a quorum that answer Kafka's tools, too."""

    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path, count)
        self.kafka = dict(zip(self.endpoints, free_ports(count), strict=True))

    def launch(self, member: int) -> None:
        """Start one."""
        self.settings = ("--kafka-port", str(self.kafka[member]))
        super().launch(member)


class Set:
    """Three members of a quorum and a bookie, with an honest client."""

    def __init__(self, home: Path) -> None:
        self.members = Members(home, 3)
        self.members.start()
        self.bookie_port, self.metrics_port = free_ports(2)
        self._log = home / "bookie.log"
        uri = f"zk://{self.members.addresses}/ledgers"
        self._command = [sys.executable, "-m", "fencepost", "ledger", "append", "--metadata", uri]
        self._command += ["--ensemble", "1", "--write-quorum", "1", "--ack-quorum", "1"]
        bookie = [sys.executable, "-m", "fencepost", "bookie", str(home / "bookie"), "--metadata", uri]
        bookie += ["--port", str(self.bookie_port), "--set", f"prometheusStatsHttpPort={self.metrics_port}"]
        with open(self._log, "ab") as log:
            self.bookie = subprocess.Popen(bookie, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.bookie.stdout is not None and self.bookie.stdout.readline().rstrip().endswith("serves")
        self.learn()

    def processes(self) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
        """All of them: name, process, and where it logs."""
        yield "the bookie", self.bookie, self._log
        for member, process in self.members.running.items():
            yield f"member {member}", process, self.members.path / f"{member}.log"

    def learn(self) -> None:
        """See what an honest message of a replica has in it now."""
        status = self.members.ask("status")
        replicas = (*status["voters"], *status["observers"])
        keys = [ReplicaKey(each["id"], each["directory_id"]) for each in replicas]
        nodes = [Node(key, each["endpoint"]) for key, each in zip(keys, replicas, strict=True)]
        epoch = status["leader_epoch"]
        self.known: dict[type, list[Any]] = {
            ReplicaKey: keys,
            Node: nodes,
            int: [epoch - 1, epoch, epoch, epoch + 1, 0, 1],
        }
        self.cluster = status["cluster_id"]

    def honest(self) -> float:
        """Write to a new ledger as an honest client does; the seconds that it took. Raises ``RuntimeError``."""
        began = time.monotonic()
        done = subprocess.run(
            self._command, input="honest\n", capture_output=True, text=True, timeout=4 * ANSWER, check=False
        )
        took = time.monotonic() - began
        if done.returncode or took > ANSWER:
            raise RuntimeError(
                f"an honest client: exit code {done.returncode} after {took:.1f} s: {done.stderr[-300:]}"
            )
        return took

    def wrong(self) -> str:
        """What has become of a process that should not; empty if nothing has."""
        for name, process, log in self.processes():
            said = log.read_text(errors="replace")
            if process.poll() is not None:
                return f"{name} ended with {process.returncode}: {said[-3_000:].splitlines()[-1][:300]}"
            if (size := memory(process.pid)) > MEMORY:
                return f"{name} occupies {size >> 20:,} MiB"
            if "Traceback" in said:
                return f"{name} logged a traceback: {said[said.index('Traceback') :][:1500]}"
        return ""

    def close(self) -> None:
        """End all."""
        self.bookie.send_signal(signal.SIGKILL)
        self.bookie.communicate()
        self.members.close()


def attack(port: int, make: Frames, draw: random.Random, count: int, staying: list[socket.socket]) -> None:
    """Send ``count`` frames to a port, a few over each connection."""
    while count > 0:
        some = min(count, draw.choice((2, 2, 5, 20)))
        count -= some
        with contextlib.suppress(OSError):
            connection = socket.create_connection((HOST, port), timeout=10)
            connection.settimeout(0.2)
            data = b"".join(make(draw, first=place == 0) for place in range(some))
            at = 0
            while at < len(data):
                size = draw.choice((len(data), len(data), 7, 1_000))
                connection.sendall(data[at : at + size])
                at += size
            fate = draw.random()
            if fate < 0.6:
                with contextlib.suppress(OSError):
                    connection.recv(1 << 16)
            if fate < 0.1 and len(staying) < STAYING:
                staying.append(connection)
                continue
            connection.close()


def main() -> int:
    """Send frames; exit code 1 if anything came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos.hostile", description=__doc__)
    parser.add_argument("--frames", type=int, default=10_000, help="to each kind of port")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--only", help="one kind of port: bookie, clients, members, kafka, metrics")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    draw, faults = random.Random(given.seed), 0
    with tempfile.TemporaryDirectory(prefix="fencepost-hostile-") as home:
        ports = Set(Path(home))
        try:
            all_of = list(ports.members.ports.values()), list(ports.members.kafka.values())
            endpoints = [int(each.rpartition(":")[2]) for each in ports.members.endpoints.values()]
            kinds: dict[str, tuple[list[int], Frames]] = {
                "bookie": ([ports.bookie_port], to_bookie),
                "clients": (all_of[0], to_clients),
                "members": (endpoints, to_members(ports)),
                "kafka": (all_of[1], to_kafka),
                "metrics": ([ports.metrics_port], to_metrics),
            }
            for name, (listening, make) in kinds.items():
                if given.only in (None, name):
                    faults += _told(name, ports, listening, make, draw, given.frames)
        finally:
            ports.close()
    print(f"{faults} wrong")
    return 1 if faults else 0


def _told(name: str, ports: Set, listening: list[int], make: Frames, draw: random.Random, frames: int) -> int:
    """Attack the ports of a kind, in rounds, and tell how it went; 1 if anything came of it."""
    began, slowest, sent = time.monotonic(), 0.0, 0
    staying: list[socket.socket] = []
    try:
        while sent < frames:
            some = min(1_000, frames - sent)
            attack(draw.choice(listening), make, draw, some, staying)
            sent += some
            if wrong := ports.wrong():
                raise RuntimeError(wrong)
            slowest = max(slowest, ports.honest())
            ports.learn()
        largest = max(memory(process.pid) for _, process, _ in ports.processes())
        print(
            f"{name:<8} {sent:>7,} frames in {time.monotonic() - began:,.0f} s; the slowest honest client"
            f" {slowest:.1f} s; the largest process {largest >> 20:,} MiB",
            flush=True,
        )
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"WRONG    {name} after {sent:,} frames: {error}", flush=True)
        return 1
    finally:
        for each in staying:
            each.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
