"""How fast Spark writes a log: rows a second of a batch query and of a stream, beside a client that appends the same
entries, which is this module's own process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fencepost
from bench.ledger.figures import table
from bench.ledger.sides import OURS, Side
from bench.spark_ledgers.sessions import session

PARTITIONS = 2
"""The partitions of a query, one for each task of the session."""

FILES = 4
"""The files that a stream takes, one batch each."""


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured. The first round, in which Spark starts Python, does not count."""
    side = Side(OURS, folder)
    rates: dict[str, list[float]] = {"the client": [], "a batch query": [], "a stream": []}
    try:
        side.start()
        with session(given.conf) as spark:
            rows = spark.range(0, given.entries, 1, PARTITIONS).selectExpr(
                f"cast(rpad(cast(id as string), {given.size}, '.') as binary) value"
            )
            rows.repartition(FILES).write.parquet(str(folder / "rows"))
            for number in range(given.rounds + 1):
                names = [f"{kind}-{number}" for kind in ("client", "batch", "stream")]
                for name in names:
                    with fencepost.connect_sync(side.cluster.uri) as store:
                        store.log(name).create()
                of_client, of_batch, of_stream = names
                took = [
                    _appended(side.cluster.uri, of_client, given),
                    _queried(rows, side.cluster.uri, of_batch),
                    _streamed(spark, side.cluster.uri, of_stream, folder),
                ]
                if number:
                    for rate, seconds in zip(rates.values(), took, strict=True):
                        rate.append(given.entries / seconds)
    finally:
        side.end()
    median = {name: statistics.median(of) for name, of in rates.items()}
    lines = [(name, f"{rate:,.0f}", f"{rate / median['the client']:.2f}") for name, rate in median.items()]
    print(f"{given.entries:,} entries of {given.size} bytes, appended to a log\n")
    print(table(("who appends", "entries a second", "times the client"), lines))
    return {"rates": rates, "entries": given.entries}


def _appended(uri: str, log: str, given: argparse.Namespace) -> float:
    """Seconds that a client takes, in a process of its own."""
    words = [uri, log, str(given.entries), str(given.size)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_ledgers.writes", *words], capture_output=True, text=True, check=True
    )
    return float(json.loads(done.stdout)["seconds"])


def _queried(rows: Any, uri: str, log: str) -> float:
    """Seconds that a batch query takes."""
    began = time.monotonic()
    rows.write.format("fencepost").option("metadata", uri).option("log", log).mode("append").save()
    return time.monotonic() - began


def _streamed(spark: Any, uri: str, log: str, folder: Path) -> float:
    """Seconds that a stream takes, from its start to its end."""
    files = spark.readStream.schema("value binary").option("maxFilesPerTrigger", "1").parquet(str(folder / "rows"))
    checkpoint = str(folder / f"checkpoint-{log}")
    began = time.monotonic()
    sink = files.writeStream.format("fencepost").options(metadata=uri, log=log, checkpointLocation=checkpoint)
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    return time.monotonic() - began


async def append(uri: str, log: str, entries: int, size: int) -> None:
    """Append entries, and print how many seconds that took."""
    data = [str(number).encode().ljust(size, b".") for number in range(entries)]
    async with fencepost.connect(uri) as store, store.log(log).writer() as writer:
        began = time.monotonic()
        await writer.append_many(data)
        print(json.dumps({"seconds": time.monotonic() - began}))


if __name__ == "__main__":
    asyncio.run(append(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
