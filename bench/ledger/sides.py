"""What is compared: a client, three bookies and a metadata service of one kind, or with pieces swapped."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.ledger.cells import Cell
from bench.ledger.usage import Cpu, cpu, status_bytes
from interop import clients, clusters
from interop.clients import Client, ClientProcess, Ledger, Refused
from interop.clusters import FENCEPOST, JAVA, ZOOKEEPER, Cluster, java_uri

T = TypeVar("T")

BOOKIES = 3
HEAP = 1024
"""MiB of heap of each Java virtual machine, and as much outside of it. BookKeeper's own scripts give a bookie a heap of
1 GiB.
"""

OURS = "Fencepost"
TRACED = "Fencepost, traced"
OTHER = "Fencepost, other checkout"
THEIRS = "Java"
UNJOURNALED = "{}, entries not in the journal"
LAC_ALONE = "{}, LAC also alone"
LAC_INTERVAL = 100
"""Milliseconds until the LAC is sent alone, where it is. Our client's default; Java's client sends none by default."""
KINDS = {
    OURS: (FENCEPOST, FENCEPOST, FENCEPOST),
    TRACED: (FENCEPOST, FENCEPOST, FENCEPOST),
    OTHER: (FENCEPOST, FENCEPOST, FENCEPOST),
    UNJOURNALED.format(OURS): (FENCEPOST, FENCEPOST, FENCEPOST),
    THEIRS: (JAVA, JAVA, ZOOKEEPER),
    UNJOURNALED.format(THEIRS): (JAVA, JAVA, ZOOKEEPER),
    LAC_ALONE.format(OURS): (FENCEPOST, FENCEPOST, FENCEPOST),
    LAC_ALONE.format(THEIRS): (JAVA, JAVA, ZOOKEEPER),
    "Fencepost client, Java bookies": (FENCEPOST, JAVA, ZOOKEEPER),
    "Java client, Fencepost bookies": (JAVA, FENCEPOST, FENCEPOST),
}
"""Client, bookies and metadata service of what can be compared."""

TRIES = 3
"""How often a warm-up is tried before the measurement is given up."""

VERBS = {"adds": "load_writes", "reads": "load_reads", "scans": "load_scans"}
NONE: Mapping[str, object] = {}


def programs_of(checkout: Path) -> tuple[Sequence[str], Sequence[str]]:
    """What our client and our bookies of a checkout are started by, with this environment's packages."""
    path = f"PYTHONPATH={checkout / 'src'}:{checkout}"
    return ("env", path, *clients.PROGRAM), ("env", path, *clusters.PROGRAM)


class Side:
    """One of the sides, started and connected.

    ``settings``: of its bookies. ``programs``: what our client and our bookies are started by.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: Mapping[str, object] = NONE,
        programs: tuple[Sequence[str], Sequence[str]] = (clients.PROGRAM, clusters.PROGRAM),
        heap: int = HEAP,
    ) -> None:
        self.name = name
        self._client_kind, bookies, metadata = KINDS[name]
        self._folder = folder
        self._heap = heap
        self._program = programs[0]
        self._client_settings: dict[str, Any] = {}
        if name == TRACED:
            traces = str(folder / "traces")
            settings, self._client_settings = {**settings, "traceDirectory": traces}, {"trace": traces}
        if name in (UNJOURNALED.format(OURS), UNJOURNALED.format(THEIRS)):
            settings = {**settings, "journalWriteData": "false"}
        if name in (LAC_ALONE.format(OURS), LAC_ALONE.format(THEIRS)):
            self._client_settings = {"explicitLacInterval": LAC_INTERVAL}
        self.cluster = Cluster(bookies, metadata, folder, heap, short=False, settings=settings, program=programs[1])
        self.processes: list[ClientProcess] = []
        self.clients: list[Client] = []

    # -- start and end ------------------------------------------------------------------------------------------------

    def start(self, bookies: int = BOOKIES, clients: int = 1) -> None:
        """Start all processes."""
        self.cluster.service.start()
        initialiser = ClientProcess(self.cluster.kinds[0], self._folder / "initialise.log")
        try:
            if self.cluster.kinds[0] == FENCEPOST:
                initialiser.call("initialise", uri=self.cluster.uri)
            else:
                words = {"uri": java_uri(self.cluster.uri), "folder": str(self._folder), "words": ["initnewcluster"]}
                initialiser.call("shell", **words)
        finally:
            initialiser.end()
        self.cluster.add_bookies(bookies)
        for number in range(clients):
            log = self._folder / f"client-{number + 1}.log"
            self.processes.append(ClientProcess(self._client_kind, log, self._heap, short=False, program=self._program))
            self.clients.append(Client(self.processes[-1], self.cluster.uri, **self._client_settings))

    def end(self) -> None:
        """End all processes."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.end()
        self.cluster.end()

    @property
    def bookies(self) -> list[int]:
        """The numbers of the bookies' processes."""
        return [bookie.server.pid for bookie in self.cluster.bookies]

    @property
    def client(self) -> Client:
        """The first client."""
        return self.clients[0]

    # -- ledgers ------------------------------------------------------------------------------------------------------

    def ledger(self, size: int, in_flight: int, client: int = 0) -> Ledger:
        """A new ledger on three bookies with an ack quorum of two, and at most ``in_flight`` entries of ``size`` bytes
        outstanding.
        """
        room = max(64 << 20, size * in_flight)
        return self.clients[client].create(
            ensemble=3, write_quorum=3, ack_quorum=2, digest="CRC32C", in_flight=in_flight, in_flight_bytes=room
        )

    def reader(self, ledger: int, size: int, in_flight: int, client: int = 0) -> Ledger:
        """Open a ledger for reading, with a prefetch of ``in_flight`` entries of ``size`` bytes."""
        room = max(16 << 20, size * in_flight)
        return self.clients[client].open(ledger, recover=False, prefetch=in_flight, prefetch_bytes=room)

    # -- measurements -------------------------------------------------------------------------------------------------

    def load(self, ledger: Ledger, operation: str, size: int, in_flight: int, seconds: float) -> dict[str, Any]:
        """Add, read or scan for ``seconds``."""
        arguments = {"in_flight": in_flight} | ({"size": size} if operation == "adds" else {})
        done: dict[str, Any] = ledger.call(VERBS[operation], seconds=seconds, **arguments)
        return done

    def used(self) -> tuple[Cpu, Cpu]:
        """The CPU that the first client and all bookies have used."""
        return cpu([self.processes[0].pid]), cpu(self.bookies)

    def measure(self, ledger: Ledger, operation: str, size: int, in_flight: int, seconds: float) -> Cell:
        """Measure adds, reads or scans for ``seconds``, after a warm-up of a fifth of that time."""
        self.load(ledger, operation, size, in_flight, seconds / 5)
        before = self.used()
        done = self.load(ledger, operation, size, in_flight, seconds)
        client, bookies = (now.since(then) for now, then in zip(self.used(), before, strict=True))
        entries = done["entries"]
        times = (part * 1e6 / entries for part in (client.total, bookies.total, client.system, bookies.system))
        return Cell(self.name, operation, size, in_flight, entries, done["seconds"], done["p50"], done["p99"], *times)

    def settle(self, seconds: float) -> tuple[Ledger, float, float]:
        """Add entries until that gets no faster: just-in-time compilers have seen by then what is to come, and loops
        are loaded.

        That is in six rounds of a sixth of ``seconds`` each, and in others, up to thirty in all, as long as one of the
        last three was faster by a twentieth than all before. Gives the ledger, for how many seconds that was, and the
        adds a second in the last round. What fails is tried again: see :meth:`_again`.
        """
        return self._again(lambda: self._settle(seconds))

    def _settle(self, seconds: float) -> tuple[Ledger, float, float]:
        ledger, rates = self.ledger(1024, 1000), [0.0]
        while len(rates) <= 6 or (len(rates) <= 30 and max(rates[-3:]) > 1.05 * max(rates[:-3])):
            done = self.load(ledger, "adds", 1024, 1000, seconds / 6)
            rates.append(done["entries"] / done["seconds"])
        ledger.close()
        return ledger, seconds / 6 * (len(rates) - 1), rates[-1]

    def warm_up(self, seconds: float) -> tuple[float, float]:
        """Add entries as :meth:`settle` does, and add and read entries of all kinds; gives for how many seconds, and
        the adds a second. What fails is tried again: see :meth:`_again`.
        """
        return self._again(lambda: self._warm_up(seconds))

    def _warm_up(self, seconds: float) -> tuple[float, float]:
        ledger, took, rate = self._settle(seconds)
        for size, in_flight in ((100, 1000), (100, 1), (65_536, 100)):
            other = self.ledger(size, in_flight)
            self.load(other, "adds", size, in_flight, seconds / 8)
            other.close()
        for operation, in_flight in (("reads", 1000), ("reads", 1), ("scans", 1000)):
            self.load(self.reader(ledger.id, 1024, in_flight), operation, 1024, in_flight, seconds / 6)
        return took, rate

    def _again(self, work: Callable[[], T]) -> T:
        """The result of a part of the warm-up, which is begun anew with new ledgers, and said so, if the client refuses
        it: a virtual machine that still compiles may miss the times of its own client. Raises
        :class:`interop.clients.Refused` if it fails every time.
        """
        for _ in range(TRIES - 1):
            try:
                return work()
            except Refused as refused:
                print(f"{self.name}: the warm-up failed and is tried again: {refused}", flush=True)
        return work()

    def memory(self) -> dict[str, dict[str, int]]:
        """Bytes of memory of the client, of the bookies on average, and of the metadata service: resident, and the most
        that ever were.
        """
        parts = {
            "client": [self.processes[0].pid],
            "bookie": self.bookies,
            "metadata service": [self.cluster.service.pid],
        }
        found = {}
        for part, pids in parts.items():
            sizes = [status_bytes(pid, "VmRSS", "VmHWM") for pid in pids]
            now, most = (sum(column) // len(pids) for column in zip(*sizes, strict=True))
            found[part] = {"resident": now, "most": most}
        return found
