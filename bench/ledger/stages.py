"""Where each microsecond goes: the stages of our client and of our bookies, each with its CPU for an entry.

The functions of a stage are wrapped while the programs run under full load (:mod:`bench.ledger.staged`). That costs
about a microsecond a call, and one call handles all entries that arrive together. The table also reports that number of
entries, and the cost of an entry without the wrappers. A thread's clock is its CPU time, so waiting for a disk or for
others is free. The table reports how long a sync took.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.ledger.figures import size_of, table
from bench.ledger.sides import OURS, Side
from bench.ledger.usage import Cpu

CLIENT: Mapping[str, Sequence[str]] = {
    "receive from the kernel": (
        "fencepost.ledger.client.connection:_Link.get_buffer",
        "fencepost.ledger.client.connection:_Link.buffer_updated",
    ),
    "frames into rows": (
        "fencepost.ledger.kernels.client:receive",
        "fencepost.ledger.wire.frames:Frames.feed",
        "fencepost.ledger.wire.v3:decode_response",
    ),
    "which requests they answer": ("fencepost.ledger.kernels.client:complete",),
    "digests and bodies": ("fencepost.ledger.kernels.client:add_parts", "fencepost.ledger.entries:Digests.entry_body"),
    "request frames": (
        "fencepost.ledger.kernels.client:add_frames",
        "fencepost.ledger.kernels.client:read_frames",
        "fencepost.ledger.wire.v3:encode_request",
    ),
    "check digests of entries read": (
        "fencepost.ledger.kernels.client:take_entries",
        "fencepost.ledger.kernels.client:find_entries",
        "fencepost.ledger.kernels.client:in_order",
        "fencepost.ledger.entries:Digests.open_entry",
    ),
    "acknowledgements": ("fencepost.ledger.kernels.client:confirm", "fencepost.ledger.kernels.client:reached"),
    "roles and rules": ("fencepost.ledger.roles.writer:Writer.receive", "fencepost.ledger.roles.reader:Reader.receive"),
    "hand to the transport": ("fencepost.ledger.client.connection:_Link.write",),
}
BOOKIE: Mapping[str, Sequence[str]] = {
    "receive from the kernel": (
        "fencepost.ledger.bookie.server:Connection.get_buffer",
        "fencepost.ledger.bookie.server:Connection.buffer_updated",
    ),
    "frames into rows": (
        "fencepost.ledger.kernels.bookie:parse",
        "fencepost.ledger.wire.frames:Frames.feed",
        "fencepost.ledger.wire.v3:decode_request",
        "fencepost.ledger.wire.v2:decode_request",
    ),
    "by ledger": (
        "fencepost.ledger.kernels.bookie:stretch",
        "fencepost.ledger.kernels.bookie:group",
        "fencepost.ledger.kernels.bookie:ids",
        "fencepost.ledger.kernels.bookie:look_over",
    ),
    "roles and rules": ("fencepost.ledger.roles.bookie:Bookie.receive",),
    "journal records": (
        "fencepost.ledger.kernels.bookie:lay_out",
        "fencepost.ledger.disk.records:encode",
        "fencepost.ledger.disk.journal:framed",
    ),
    "hand to the storage": ("fencepost.ledger.disk.storage:Storage.take",),
    "write cache": (
        "fencepost.ledger.disk.write_cache:WriteCache.put",
        "fencepost.ledger.disk.write_cache:WriteCache.put_rows",
    ),
    "journal groups": ("fencepost.ledger.disk.journal:Writer.group", "fencepost.ledger.disk.journal:Writer.gathered"),
    "checksums": ("fencepost.files.checksum:crc32c",),
    "write": ("fencepost.files.folders:OsFile.append",),
    "sync": ("fencepost.files.folders:OsFile.sync",),
    "answer frames": (
        "fencepost.ledger.kernels.bookie:answer_adds",
        "fencepost.ledger.kernels.bookie:answer_reads",
        "fencepost.ledger.wire.v3:encode_response",
        "fencepost.ledger.wire.v2:encode_response",
    ),
    "look-ups": (
        "fencepost.ledger.disk.storage:Storage.look_up_now",
        "fencepost.ledger.disk.storage:Storage.rows_now",
        "fencepost.ledger.disk.storage:Storage.look_up",
        "fencepost.ledger.disk.storage:Storage.read_rows",
    ),
    "checkpoints": ("fencepost.ledger.disk.storage:Storage._flush",),
    "the driver: accounts and flow": (
        "fencepost.ledger.bookie.server:Server.take",
        "fencepost.ledger.bookie.server:Server._synced",
        "fencepost.ledger.bookie.server:Server._flush",
    ),
}
"""Stages and their functions, the compiled loops and their plain twins. What there is not is left out."""
STAGES = {"client": CLIENT, "bookie": BOOKIE}

CASES = (("adds", 100, 1000), ("adds", 1024, 1000), ("reads", 1024, 1000), ("scans", 1024, 1000))


class Seen(NamedTuple):
    """Counters of one program: nanoseconds of CPU and of time, and calls, of each stage; and what the system
    counted.
    """

    stages: dict[str, list[int]]
    used: Cpu

    @classmethod
    def of(cls, path: Path) -> Seen:
        """Ask the program at a socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        told = json.loads(data)
        return cls(told["stages"], Cpu(*told["cpu"]))

    def since(self, before: Seen) -> Seen:
        """What was added since then."""
        nothing = [0, 0, 0]
        stages = {
            stage: [now - then for now, then in zip(counters, before.stages.get(stage, nothing), strict=True)]
            for stage, counters in self.stages.items()
        }
        return Seen(stages, self.used.since(before.used))

    def plus(self, other: Seen) -> Seen:
        """Both together."""
        nothing = [0, 0, 0]
        names = dict.fromkeys((*self.stages, *other.stages))
        stages = {
            name: [a + b for a, b in zip(self.stages.get(name, nothing), other.stages.get(name, nothing), strict=True)]
            for name in names
        }
        return Seen(stages, Cpu(self.used.user + other.used.user, self.used.system + other.used.system))


class Stage(NamedTuple):
    """What a stage takes of an entry."""

    name: str
    cpu: float
    """Microseconds of CPU."""
    share: float
    entries: float
    """How many there are in a call; 0 if it has no calls."""
    wall: float
    """Milliseconds of a call."""


def stages_of(seen: Seen, entries: int) -> list[Stage]:
    """Those that took anything, the longest first."""
    total = sum(counters[0] for counters in seen.stages.values()) or 1
    found = [
        Stage(
            name,
            cpu / 1e3 / entries,
            cpu / total,
            entries / calls if calls else 0.0,
            wall / 1e6 / calls if calls else 0.0,
        )
        for name, (cpu, wall, calls) in seen.stages.items()
        if cpu
    ]
    return sorted(found, key=lambda stage: -stage.cpu)


def lines_of(stages: Sequence[Stage], unwatched: float, used: Cpu, entries: int) -> list[tuple[str, ...]]:
    """The lines of a table of stages."""
    rows: list[tuple[str, ...]] = [
        (
            stage.name,
            f"{stage.cpu:.3f}",
            f"{stage.share:.0%}",
            f"{stage.entries:,.1f}" if stage.entries else "",
            f"{stage.wall:.3f}" if stage.entries else "",
        )
        for stage in stages
    ]
    rows.append(("all of it", f"{sum(stage.cpu for stage in stages):.3f}", "", "", ""))
    rows.append(("  of that in the kernel", f"{used.system * 1e6 / entries:.3f}", "", "", ""))
    rows.append(("without a watch", f"{unwatched:.3f}", "", "", ""))
    return rows


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    folder.mkdir(parents=True, exist_ok=True)
    client_socket, bookie_socket = folder / "client", folder / "bookie"
    launch = (sys.executable, "-m", "bench.ledger.staged")
    programs = (
        (*launch, "client", str(client_socket), "exam"),
        (*launch, "bookie", str(bookie_socket), "bookie"),
    )
    plain, watched = (
        Side(OURS, folder / "plain", given.setting),
        Side(OURS, folder / "watched", given.setting, programs),
    )
    found = []
    try:
        for side in (plain, watched):
            side.start()
            side.settle(given.warm_up / 2)
        sockets = [client_socket, *(Path(f"{bookie_socket}.{pid}") for pid in watched.bookies)]
        for operation, size, in_flight in CASES:
            cells, ledgers = {}, {}
            for side in (plain, watched):
                ledger = side.ledger(size, in_flight)
                if operation != "adds":
                    side.load(ledger, "adds", size, in_flight, given.seconds)
                    ledger.close()
                    ledger = side.reader(ledger.id, size, in_flight)
                ledgers[side.name, side is watched] = ledger
                if side is plain:
                    cells["plain"] = side.measure(ledger, operation, size, in_flight, given.seconds)
            watched.load(ledger, operation, size, in_flight, given.seconds / 5)
            before = [Seen.of(path) for path in sockets]
            done = watched.load(ledger, operation, size, in_flight, given.seconds)
            client, *bookies = (Seen.of(path).since(then) for path, then in zip(sockets, before, strict=True))
            entries = done["entries"]
            together = bookies[0]
            for other in bookies[1:]:
                together = together.plus(other)
            rates = f"{entries / done['seconds']:,.0f} a second; {cells['plain'].rate:,.0f} without a watch"
            for title, seen, unwatched, share in (
                ("the client", client, cells["plain"].client_cpu, 1),
                ("all bookies", together, cells["plain"].bookies_cpu, len(bookies)),
            ):
                # Calls of all bookies are of their own shares of the entries: each has all that are added, and a third
                # of what is read.
                count = entries * (share if operation == "adds" else 1)
                stages = stages_of(seen, count)
                if operation == "adds" and share > 1:
                    stages = [stage._replace(cpu=stage.cpu * share) for stage in stages]
                print(f"{operation} of {size_of(size)}, {in_flight:,} in flight, {title}: {rates}\n")
                head = ("us of CPU an entry", "us", "share", "entries a call", "ms a call")
                print(table(head, lines_of(stages, unwatched, seen.used, entries)), end="\n\n", flush=True)
                found.append(
                    {
                        "operation": operation, "size": size, "in_flight": in_flight, "part": title,
                        "unwatched": unwatched,
                        "kernel": seen.used.system * 1e6 / entries, "stages": [stage._asdict() for stage in stages],
                    }
                )  # fmt: skip
    finally:
        for side in (plain, watched):
            side.end()
    return {"tables": found}
