"""A metadata service and bookies, each either Fencepost's or the real one, as processes on loopback."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from interop import jars
from interop.certificates import Certificates
from interop.processes import Server, free_port

FENCEPOST = "fencepost"
JAVA = "java"
ZOOKEEPER = "zookeeper"

PROGRAM = (sys.executable, "-m", "fencepost")
"""How our commands are started."""
NONE: Mapping[str, object] = {}

MIXED = "mixed"
"""Bookies of both kinds, one after another."""

BOOKIES = (FENCEPOST, JAVA)
QUORUM = "quorum"
"""A metadata service of three members of ours."""
METADATA = (FENCEPOST, ZOOKEEPER)

# A read of an entry that nobody has, in version 2 of the protocol: any answer to it shows that a bookie serves.
PROBE = struct.pack(">IIqq", 20, 2 << 24 | 2 << 16, 1 << 40, 0)

SECONDS = 60
"""That a command of ours may take."""

TICK = 500
"""Milliseconds by which a session may outlive its timeout. A bookie of BookKeeper that is started again waits for the
session of the one that was killed, for a timeout and no longer, and one that waits in vain neither serves nor ends.
"""


class Group:
    """Servers that are started and killed together."""

    def __init__(self, servers: Sequence[Server], where: Sequence[str]) -> None:
        """``where``: HOST:PORT of each, for clients."""
        self.servers = servers
        self.where = where

    @property
    def pid(self) -> int:
        """The number of the process of the first one."""
        return self.servers[0].pid

    def runs(self) -> bool:
        """Whether all run."""
        return all(server.runs() for server in self.servers)

    def start(self) -> None:
        """Start all, and return once they serve."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait()

    def kill(self) -> None:
        """End all as a power cut does."""
        for server in self.servers:
            server.kill()


def quorum(folder: Path, count: int = 3) -> tuple[Group, str]:
    """Members of a quorum that have not started yet, and where clients find them, as HOST:PORT,..."""
    ports = {number: (free_port(), free_port()) for number in range(1, 1 + count)}
    controllers = ",".join(f"{number}@127.0.0.1:{port}" for number, (port, _) in ports.items())
    settings = folder / "metadata.toml"
    settings.write_text(f"tickTime = {TICK}\n")
    servers = []
    for number, (_, port) in ports.items():
        words = [
            "metadata",
            str(folder / str(number)),
            "--id",
            str(number),
            "--port",
            str(port),
            "--controllers",
            controllers,
        ]
        command = [sys.executable, "-m", "fencepost", *words, "--settings", str(settings)]
        servers.append(
            Server(f"member {number}", command, folder / f"{number}.log", lambda server: " serves" in server.said())
        )
    where = [f"127.0.0.1:{port}" for _, port in ports.values()]
    return Group(servers, where), ",".join(where)


def metadata_service(
    kind: str, folder: Path, heap: int = 256, short: bool = True, secured: Certificates | None = None
) -> tuple[Server | Group, str]:
    """A metadata service that has not started yet, and where clients find it, as HOST:PORT,... ``secured``: for one
    node of ours.
    """
    folder.mkdir(parents=True)
    if kind == QUORUM:
        return quorum(folder)
    port = free_port()
    where = f"127.0.0.1:{port}"
    log = folder / "log"
    if kind == FENCEPOST:
        settings = folder / "metadata.toml"
        own = {"clientPort": port} if secured is None else secured.of_metadata(port)
        lines = [f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in {"tickTime": TICK, **own}.items()]
        settings.write_text("".join(lines))
        words = ["metadata", str(folder / "data"), "--settings", str(settings)]
        command = [sys.executable, "-m", "fencepost", *words]
        return Server("our metadata service", command, log, lambda server: " serves" in server.said()), where
    settings = folder / "zoo.cfg"
    settings.write_text(
        f"tickTime={TICK}\ndataDir={folder}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        "4lw.commands.whitelist=*\nmaxClientCnxns=200\n"
    )
    main = ["-cp", jars.class_path(), "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)]
    return (
        Server("ZooKeeper", jars.java(*main, heap=heap, short=short), log, lambda _: _answer(port, b"ruok") == b"imok"),
        where,
    )


def _answer(port: int, question: bytes, host: str = "127.0.0.1") -> bytes:
    """The first four bytes that a server answers; none if it does not serve yet. Its port may be open long before."""
    try:
        with socket.create_connection((host, port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(question)
            return connection.recv(4)
    except OSError:
        return b""


JAVA_SETTINGS = """
allowLoopback=true
listeningInterface=lo
advertisedAddress={host}
ledgerStorageClass=org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage
dbStorage_writeCacheMaxSizeMb={cache}
dbStorage_readAheadCacheMaxSizeMb={cache}
dbStorage_rocksDB_blockCacheSize=16777216
journalPreAllocSizeMB=16
entryLogSizeLimit=268435456
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
diskUsageLwmThreshold=0.97
minUsableSizeForIndexFileCreation=0
minUsableSizeForEntryLogCreation=0
isForceGCAllowWhenNoSpace=true
allowStorageExpansion=true
httpServerEnabled=false
statsProviderClass=org.apache.bookkeeper.stats.NullStatsProvider
zkTimeout=6000
"""


class Bookie:
    """A bookie that can be killed, stopped and started again with the same port and folder."""

    def __init__(
        self,
        kind: str,
        folder: Path,
        metadata: str,
        heap: int = 256,
        short: bool = True,
        settings: Mapping[str, object] = NONE,
        program: Sequence[str] = PROGRAM,
        host: str = "127.0.0.1",
    ) -> None:
        """``metadata`` is the address of the metadata service, as ``zk://HOST:PORT/ledgers``; ``host``: where it
        listens; for the rest see :class:`Cluster`.
        """
        folder.mkdir(parents=True)
        self.kind = kind
        self.folder = folder
        self.port = free_port()
        self.id = f"{host}:{self.port}"
        if kind == FENCEPOST:
            words = ["bookie", str(folder / "data"), "--metadata", metadata, "--port", str(self.port)]
            for name, value in ({"zkTimeout": 6000, "listeningInterface": host} | dict(settings)).items():
                words += ["--set", f"{name}={value}"]
            command = [*program, *words]
            self.server = Server(
                f"our bookie {self.id}", command, folder / "log", lambda server: " serves" in server.said()
            )
            return
        file = folder / "bk_server.conf"
        file.write_text(
            f"metadataServiceUri={java_uri(metadata)}\nbookiePort={self.port}\njournalDirectories={folder}/journal\n"
            f"ledgerDirectories={folder}/ledgers\nindexDirectories={folder}/index\n"
            + JAVA_SETTINGS.format(cache=16 if short else 128, host=host)
            + "".join(f"{name}={value}\n" for name, value in settings.items())
        )
        main = ["-cp", jars.class_path(), "org.apache.bookkeeper.server.Main", "--conf", str(file)]
        command = jars.java(*main, heap=heap, short=short)
        self.server = Server(
            f"Java bookie {self.id}", command, folder / "log", lambda _: _answer(self.port, PROBE, host) != b""
        )


def recorder(metadata: str, folder: Path, faults: Sequence[str]) -> Server:
    """A proxy before all bookies that are registered, which has not started yet, and writes its trace to a folder."""
    command = [*PROGRAM, "record", "--metadata", metadata, "--trace", str(folder)]
    for fault in faults:
        command += ["--fault", fault]
    return Server("the recorder", command, folder.with_suffix(".log"), lambda server: "records to" in server.said())


def java_uri(metadata: str) -> str:
    """The address of the metadata service as BookKeeper's settings have it, which name the layout of ledgers too, and
    have semicolons, as commas separate values.
    """
    return metadata.replace("zk://", "zk+hierarchical://", 1).replace(",", ";")


class Cluster:
    """A metadata service and bookies that serve, until :meth:`end`."""

    def __init__(
        self,
        bookies: str,
        metadata: str,
        folder: Path,
        heap: int = 256,
        short: bool = True,
        settings: Mapping[str, object] = NONE,
        program: Sequence[str] = PROGRAM,
        apart: bool = False,
        secured: Certificates | None = None,
    ) -> None:
        """The kinds of bookies and of the metadata service; nothing is started yet. ``heap`` and ``short``: see
        :func:`jars.java`. ``apart``: each bookie has a loopback address of its own, as Pulsar's class knows the racks
        of hosts, not of ports. ``secured``: nobody speaks without TLS, where all are ours and the metadata service is
        one node.

        ``settings``: of bookies, by their names, besides those that all have here. ``program``: what our bookies are
        started by.
        """
        self.kinds = bookies, metadata
        self.folder = folder
        self._heap = heap
        self._short = short
        self._settings = settings if secured is None else {**settings, **secured.of_bookies()}
        self._program = program if secured is None else (*secured.of_our_clients(), *program)
        self._apart = apart
        self.service, where = metadata_service(metadata, folder / "metadata", heap, short, secured)
        self.uri = f"zk://{where}/ledgers"
        self.bookies: list[Bookie] = []

    def add_bookies(self, count: int) -> None:
        """Start ``count`` more bookies at the same time, and return once all of them serve."""
        first = len(self.bookies)
        for number in range(first, first + count):
            kind = BOOKIES[number % 2] if self.kinds[0] == MIXED else self.kinds[0]
            self.bookies.append(
                Bookie(
                    kind,
                    self.folder / f"bookie-{number + 1}",
                    self.uri,
                    self._heap,
                    self._short,
                    self._settings,
                    self._program,
                    f"127.0.0.{number + 2}" if self._apart else "127.0.0.1",
                )
            )
            self.bookies[-1].server.launch()
        for bookie in self.bookies[first:]:
            bookie.server.wait()

    def bookie(self, bookie_id: str) -> Bookie:
        """The bookie of this id."""
        return next(bookie for bookie in self.bookies if bookie.id == bookie_id)

    def rack(self, bookie_id: str, *words: str) -> str:
        """Set the rack of a bookie, remove it, or show it; what our command prints."""
        command = [*PROGRAM, "bookie", "rack", bookie_id, *words, "--metadata", self.uri]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout.strip()

    def restart(self, bookies: Sequence[Bookie]) -> None:
        """Start bookies again that were ended, at the same time."""
        for bookie in bookies:
            bookie.server.launch()
        for bookie in bookies:
            bookie.server.wait()

    def heal(self) -> None:
        """Start whatever does not run."""
        if not self.service.runs():
            self.service.start()
        self.restart([bookie for bookie in self.bookies if not bookie.server.runs()])

    def end(self) -> None:
        """Kill all that was started."""
        for bookie in self.bookies:
            bookie.server.kill()
        self.service.kill()
