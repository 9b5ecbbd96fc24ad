"""``python -m bench.spark_ledgers.reader URI LEDGER ROUNDS``: does what Spark's Python does for a ledger, and times its
parts.
It reads the partitions of a query one after another as tasks do, makes rows of them, and sends these as a stream of
Arrow to another process over a socket. It prints the nanoseconds of CPU that each part has taken, how many entries were
read, and in how many seconds, all but the first round.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bench.ledger import staged
from bench.ledger.stages import CLIENT
from fencepost.spark.ledgers import columns, planning, reading
from fencepost.spark.ledgers.filters import ANY
from fencepost.spark.ledgers.options import parse

SENT = "sent to Spark's Java"

PARTS: Mapping[str, Sequence[str]] = {
    "requests": (*CLIENT["request frames"], *CLIENT["hand to the transport"]),
    staged.RECEIVE: CLIENT["receive from the kernel"],
    "parse of responses": (*CLIENT["frames into rows"], *CLIENT["which requests they answer"]),
    "digests checked, data into a block": CLIENT["check digests of entries read"],
    "roles and rules": CLIENT["roles and rules"],
    "columns of Arrow": ("fencepost.spark.ledgers.columns:Rows.of",),
}
"""The parts, and the functions that each consists of."""

REST = "event loops, and from thread to thread"

TYPES = {"string": pa.string(), "bigint": pa.int64(), "binary": pa.binary()}


def taken() -> dict[str, int]:
    """Nanoseconds of CPU of each part so far."""
    total: dict[str, int] = {}
    for rest, counters in [*staged.Clock.every]:
        for part, counter in [*counters.items()]:
            name = REST if part in (rest, staged.REST, staged.BEHIND) else part
            total[name] = total.get(name, 0) + counter.cpu
    return total


def drained(connection: socket.socket) -> None:
    """Receive all that comes and forget it, as a process of its own; it ends with the connection."""
    room = bytearray(1 << 20)
    while connection.recv_into(room):
        pass
    os._exit(0)


def main() -> None:
    """Read, and print what was taken."""
    uri, ledger, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    here, there = socket.socketpair()
    if not os.fork():
        here.close()
        drained(there)
    there.close()
    staged.watch_over(PARTS)
    options = parse({"metadata": uri, "ledger": ledger})
    schema = pa.schema([pa.field(name, TYPES[kind]) for name, kind in columns.columns(False, None, None).items()])
    rows = columns.Rows(schema, None, None)
    parts = reading.store_at(uri).run(lambda store: planning.batch(store, options, ANY, ANY))
    write: Any = staged.watched(lambda writer, batch: writer.write_batch(batch), SENT)
    before, began, entries = taken(), time.monotonic(), 0
    with here, here.makefile("wb", 65536) as out:
        for number in range(rounds + 1):
            if number == 1:
                before, began, entries = taken(), time.monotonic(), 0
            for part in parts:
                with pa.RecordBatchStreamWriter(out, schema) as writer:
                    for wanted, metadata, batch in reading.read(options, part):
                        write(writer, rows.of(wanted, metadata, batch))
                        entries += len(batch)
    took = time.monotonic() - began
    after = taken()
    print(
        json.dumps(
            {"entries": entries, "seconds": took, "parts": {part: after[part] - before.get(part, 0) for part in after}}
        ),
        flush=True,
    )
    os._exit(0)  # the loop of the client goes on else


if __name__ == "__main__":
    main()
