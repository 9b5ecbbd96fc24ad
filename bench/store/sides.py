"""What is compared: a client, three bookies and a metadata service of one kind, or with pieces swapped."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

from bench.store.usage import cpu_seconds, resident_bytes
from interop.clients import Client, ClientProcess, Ledger
from interop.clusters import FENCEPOST, JAVA, ZOOKEEPER, Cluster, java_uri

BOOKIES = 3
HEAP = 512
"""MiB of heap of each Java virtual machine, and as much outside of it."""

KINDS = {
    "Fencepost": (FENCEPOST, FENCEPOST, FENCEPOST),
    "Java": (JAVA, JAVA, ZOOKEEPER),
    "Fencepost client, Java bookies": (FENCEPOST, JAVA, ZOOKEEPER),
    "Java client, Fencepost bookies": (JAVA, FENCEPOST, FENCEPOST),
}
"""Client, bookies and metadata service of what can be compared."""


@dataclasses.dataclass
class Cell:
    """What was measured of one side for one size of entries and one number in flight."""

    side: str
    operation: str
    size: int
    in_flight: int
    entries: int
    seconds: float
    p50: float
    """Milliseconds."""
    p99: float
    client_cpu: float
    """Microseconds of CPU for each entry."""
    bookies_cpu: float

    @property
    def rate(self) -> float:
        """Entries a second."""
        return self.entries / self.seconds


class Side:
    """One of the sides, started and connected."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._client_kind, bookies, metadata = KINDS[name]
        self._folder = folder
        self._cluster = Cluster(bookies, metadata, folder, heap=HEAP, short=False)
        self._process: ClientProcess | None = None
        self._client: Client | None = None

    def start(self) -> None:
        """Start all processes."""
        self._cluster.service.start()
        initialiser = ClientProcess(self._cluster.kinds[0], self._folder / "initialise.log")
        try:
            if self._cluster.kinds[0] == FENCEPOST:
                initialiser.call("initialise", uri=self._cluster.uri)
            else:
                words = {"uri": java_uri(self._cluster.uri), "folder": str(self._folder), "words": ["initnewcluster"]}
                initialiser.call("shell", **words)
        finally:
            initialiser.end()
        self._cluster.add_bookies(BOOKIES)
        self._process = ClientProcess(self._client_kind, self._folder / "client.log", heap=HEAP, short=False)
        self._client = Client(self._process, self._cluster.uri)

    def end(self) -> None:
        """End all processes."""
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                self._process.end()
        self._cluster.end()

    @property
    def _bookies(self) -> list[int]:
        return [bookie.server.pid for bookie in self._cluster.bookies]

    def warm_up(self, seconds: float) -> None:
        """Add and read entries for a while, so that a just-in-time compiler has seen what is to come."""
        ledger = self.ledger()
        for size in (100, 1024):
            for in_flight in (1000, 1):
                ledger.call("load_writes", size=size, in_flight=in_flight, seconds=seconds / 8)
        ledger.close()
        reader = self.reader(ledger)
        for in_flight in (1000, 1):
            reader.call("load_reads", in_flight=in_flight, seconds=seconds / 4)

    def ledger(self) -> Ledger:
        """A new ledger on the three bookies, of which two confirm an entry."""
        assert self._client is not None
        return self._client.create(ensemble=3, write_quorum=3, ack_quorum=2, digest="CRC32C")

    def reader(self, ledger: Ledger) -> Ledger:
        """The same ledger, open for reading."""
        assert self._client is not None
        return self._client.open(ledger.id, recover=False)

    def measure(self, ledger: Ledger, operation: str, size: int, in_flight: int, seconds: float) -> Cell:
        """Adds or reads for so many seconds, after a fifth of that unmeasured."""
        assert self._process is not None
        arguments: dict[str, Any] = {"in_flight": in_flight} | ({"size": size} if operation == "adds" else {})
        verb = "load_writes" if operation == "adds" else "load_reads"
        ledger.call(verb, seconds=seconds / 5, **arguments)
        before = cpu_seconds([self._process.pid]), cpu_seconds(self._bookies)
        done = ledger.call(verb, seconds=seconds, **arguments)
        after = cpu_seconds([self._process.pid]), cpu_seconds(self._bookies)
        client, bookies = ((then - now) * 1e6 / done["entries"] for now, then in zip(before, after, strict=True))
        return Cell(self.name, operation, size, in_flight, done["entries"], done["seconds"], done["p50"], done["p99"], client, bookies)

    def memory(self) -> dict[str, int]:
        """Resident bytes of the client, of one bookie on average, and of the metadata service."""
        assert self._process is not None
        return {
            "client": resident_bytes([self._process.pid]),
            "bookie": resident_bytes(self._bookies) // BOOKIES,
            "metadata service": resident_bytes([self._cluster.service.pid]),
        }
