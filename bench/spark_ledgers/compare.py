"""Ledgers of BookKeeper and of Fencepost, read by the same Spark turn by turn: whether the contents are what was
written, and how fast they come.

BookKeeper's are written by its Java client to its own bookies, with ZooKeeper, and some of them by our client.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import zlib
from pathlib import Path
from typing import Any

from bench.ledger.figures import table
from bench.ledger.sides import OURS, THEIRS, Side
from bench.ledger.usage import cpu_seconds
from bench.spark_ledgers.sessions import Usage, session
from interop.clients import Client, ClientProcess, Ledger
from interop.clusters import FENCEPOST

DISTINCT = 20_000
"""Entries of the ledgers whose contents are compared."""

CHECKSUM = "sum(cast(crc32(value) as decimal(38, 0)) * (entry + 1))"
"""What differs if an entry differs, is another one's, or is there twice."""


def checksum(bodies: list[bytes]) -> int:
    """The same in Python."""
    return sum(zlib.crc32(body) * (entry + 1) for entry, body in enumerate(bodies))


def distinct(count: int, seed: int) -> list[bytes]:
    """Entries of random bytes and sizes, some of them empty."""
    chance = random.Random(seed)
    return [chance.randbytes(chance.choice((0, 1, 30, 100, 100, 300))) for _ in range(count)]


def written(client: Client, bodies: list[bytes]) -> int:
    """The id of a closed ledger with these entries."""
    ledger = client.create(ensemble=3, write_quorum=2, ack_quorum=2, digest="CRC32C")
    for first in range(0, len(bodies), 2000):
        ledger.append(*bodies[first : first + 2000])
    ledger.close()
    return ledger.id


def large(side: Side, size: int, entries: int) -> tuple[int, int]:
    """Write a ledger of at least ``entries`` entries of ``size`` bytes, and close it. Returns its id and length."""
    ledger: Ledger = side.ledger(size, 1000)
    count = 0
    while count < entries:
        count += int(side.load(ledger, "adds", size, 1000, 2.0)["entries"])
    last = ledger.call("lac") + 1
    ledger.close()
    return ledger.id, last


def frame(reader: Any, side: Side, ledger: int, **options: Any) -> Any:
    """A ledger of a side as rows."""
    return reader.format("fencepost").options(metadata=side.cluster.uri, ledger=ledger, **options)


def streamed(rows: Any, folder: Path, sink: str, **options: str) -> tuple[int, float]:
    """Read a stream to its end: how many rows, in how many seconds of batches."""
    writer = rows.writeStream.format(sink).options(
        checkpointLocation=str(folder / f"checkpoint-{time.monotonic_ns()}"), **options
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    done = [each for each in query.recentProgress if each["numInputRows"]]
    return (
        sum(each["numInputRows"] for each in done),
        sum(each["durationMs"]["triggerExecution"] for each in done) / 1e3,
    )


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured. Raises :class:`AssertionError` if contents differ."""
    folder.mkdir(parents=True)
    sides = [Side(OURS, folder / "ours"), Side(THEIRS, folder / "theirs", heap=given.heap)]
    guest = None
    try:
        for side in sides:
            side.start()
        contents = [(side, "its own client", side.client) for side in sides]
        guest = ClientProcess(FENCEPOST, folder / "guest.log")
        contents.append((sides[1], "Fencepost's client", Client(guest, sides[1].cluster.uri)))
        bodies = distinct(DISTINCT, 1)
        small = [(side, by, written(client, bodies)) for side, by, client in contents]
        ledgers = {side.name: large(side, given.size, given.entries) for side in sides}
        with session(given.conf) as spark:
            _compare_contents(spark, folder, bodies, small)
            rates = _rates(spark, folder, given, sides, ledgers)
    finally:
        if guest is not None:
            guest.end()
        for side in sides:
            side.end()
    lines = []
    for name in ledgers:
        of = {what: [each[name] for each in found] for what, found in rates.items()}
        medians = {what: statistics.median(values) for what, values in of.items()}
        lines.append(
            (
                name,
                f"{ledgers[name][1]:,}",
                *(f"{value:,.0f}" if value > 1000 else f"{value:.2f}" for value in medians.values()),
            )
        )
    print(table(("bookies of", "entries", *rates), lines))
    return {"rates": rates, "entries": {name: count for name, (_, count) in ledgers.items()}}


def _compare_contents(spark: Any, folder: Path, bodies: list[bytes], small: list[tuple[Side, str, int]]) -> None:
    expected = (len(bodies), checksum(bodies))
    for number, (side, by, ledger) in enumerate(small):
        rows = frame(spark.read, side, ledger).schema("entry bigint, value binary").load()
        found = rows.selectExpr("count(*)", CHECKSUM).first()
        stream = (
            frame(spark.readStream, side, ledger, maxEntriesPerTrigger=7000).schema("entry bigint, value binary").load()
        )
        path = str(folder / f"rows-{number}")
        streamed(stream, folder, "parquet", path=path)
        of_stream = spark.read.parquet(path).selectExpr("count(*)", CHECKSUM).first()
        for what, each in (("batch", found), ("stream", of_stream)):
            if (each[0], int(each[1])) != expected:
                raise AssertionError(
                    f"{what} of {side.name}, written by {by}: {each[0]:,} rows, checksum {each[1]}; expected {expected}"
                )
        print(
            f"bookies of {side.name}, written by {by}: {len(bodies):,} rows in a batch and in a stream, checksum"
            f" {found[1]}, as written"
        )
    print(flush=True)


def _rates(
    spark: Any, folder: Path, given: argparse.Namespace, sides: list[Side], ledgers: dict[str, tuple[int, int]]
) -> dict[str, list[dict[str, float]]]:
    """Entries a second, and microseconds of CPU an entry, of each round by side; the first round, which starts Python,
    is left out.
    """
    names = ("batch, a second", "stream, a second", "bookies us", "Spark's Java us", "Spark's Python us")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(given.rounds + 1):
        figures: dict[str, dict[str, float]] = {name: {} for name in names}
        for side in sides:
            ledger, count = ledgers[side.name]
            rows = frame(spark.read, side, ledger).load()
            used, before, began = Usage(spark), cpu_seconds(side.bookies), time.monotonic()
            rows.write.format("noop").mode("overwrite").save()
            took = time.monotonic() - began
            cpu = (cpu_seconds(side.bookies) - before, *used.since())
            read, seconds = streamed(frame(spark.readStream, side, ledger).load(), folder, "noop")
            if read != count or rows.count() != count:
                raise AssertionError(f"{side.name}: {read:,} rows of a stream, of {count:,}")
            of = (count / took, read / seconds, *(each * 1e6 / count for each in cpu))
            for name, value in zip(names, of, strict=True):
                figures[name][side.name] = value
        if number:
            for name in names:
                found[name].append(figures[name])
    return found
