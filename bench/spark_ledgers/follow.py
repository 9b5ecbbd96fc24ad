"""A streaming query follows a log that is written at a steady rate: by how much it lags, and where the time of a batch
goes.

The lag of a row begins when the writer learns that the row is confirmed: no reader may see it earlier. It ends when the
batch of the row is committed, and a reader of the sink has the row. The *newest* row of a batch waited least, the
*oldest* most: it arrived when the previous batch had just begun. For the oldest row, the time since its append is
reported too. It includes the writer's wait for its bookies.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import fencepost
from bench.ledger.figures import quantile, table
from bench.ledger.sides import OURS, Side
from bench.ledger.usage import cpu_seconds
from bench.spark_ledgers.sessions import Usage, session

LAG = 2.0
"""Seconds that no row is to lag."""

ENOUGH = 0.95
"""The part of the rate that the writer has to reach for a verdict: one that cannot keep up has entries waiting, and
out of their order.
"""

LOG = "clicks"

PARTS = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Parts of a batch, as Spark's reports of progress have them; ``addBatch`` is the work of the tasks, and their
start.
"""


class Batch(NamedTuple):
    """A batch of the query. ``ended``: the time at which it was committed; ``oldest`` and ``newest``: when these rows
    were confirmed; ``appended``: when the oldest was appended. ``took``: milliseconds by part.
    """

    ended: float
    oldest: float
    newest: float
    appended: float
    rows: int
    took: Mapping[str, float]


def batches_of(progress: Sequence[Mapping[str, Any]], confirmed: Sequence[tuple[float, int]]) -> list[Batch]:
    """The batches that had rows. ``confirmed``: times, and how many entries were confirmed by then."""
    found, read = [], 0
    counts = [count for _, count in confirmed]
    for each in progress:
        if not each["numInputRows"]:
            continue
        began = datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00")).timestamp()
        took, rows = each["durationMs"], each["numInputRows"]
        oldest, newest = (
            confirmed[min(bisect_left(counts, count), len(counts) - 1)][0] for count in (read + 1, read + rows)
        )
        appended = each["observedMetrics"]["seen"]["first"] / 1e6
        found.append(Batch(began + took["triggerExecution"] / 1e3, oldest, newest, appended, rows, took))
        read += rows
    return found


def query(spark: Any, uri: str, folder: Path, trigger: str, **options: Any) -> Any:
    """A query that reads the log as it is written, and throws the rows away."""
    from pyspark.sql import functions

    reader = spark.readStream.format("fencepost").options(metadata=uri, log=LOG, **options)
    rows = reader.schema("time timestamp, value binary").load()
    appended = functions.unix_micros("time")
    rows = rows.observe("seen", functions.min(appended).alias("first"))
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime=trigger).start()


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    side = Side(OURS, folder / "store")
    with session(given.conf) as spark:
        try:
            side.start(clients=0)
            with fencepost.connect(side.cluster.uri) as store:
                store.log(LOG).create()
            words = [side.cluster.uri, LOG, str(given.rate), str(given.warm_up + given.seconds), str(given.size)]
            command = [sys.executable, "-m", "bench.spark_ledgers.writer", *words]
            following = query(spark, side.cluster.uri, given.checkpoint or folder, given.trigger, **given.option)
            try:
                with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writing:
                    assert writing.stdout is not None
                    writing.stdout.readline()
                    time.sleep(given.warm_up)
                    since = time.time()
                    load = os.getloadavg()[0]
                    spark_used, before = Usage(spark), (cpu_seconds([writing.pid]), cpu_seconds(side.bookies))
                    time.sleep(given.seconds - 0.5)
                    of_spark, took = spark_used.since(), time.time() - since
                    used = (cpu_seconds([writing.pid]) - before[0], cpu_seconds(side.bookies) - before[1], *of_spark)
                    written = json.loads(writing.stdout.readline())
                end = time.monotonic() + 60
                while (
                    sum(each["numInputRows"] for each in following.recentProgress) < written["entries"]
                    and time.monotonic() < end
                ):
                    time.sleep(0.1)
                progress = [*following.recentProgress]
            finally:
                following.stop()
        finally:
            side.end()
    return _told(given, batches_of(progress, sorted(written.pop("confirmed"))), written, since, took, used, load)


def _told(
    given: argparse.Namespace,
    batches: Sequence[Batch],
    written: Mapping[str, float],
    since: float,
    took: float,
    used: Sequence[float],
    load: float,
) -> dict[str, Any]:
    counted = [batch for batch in batches if since <= batch.oldest]
    rows = sum(batch.rows for batch in batches)
    print(
        f"{written['entries'] / written['seconds']:,.0f} entries of {given.size} bytes a second appended, of"
        f" {given.rate:,.0f} that were to be; ",
        end="",
    )
    print(f"{rows:,} rows of {written['entries']:,}; load {load:.1f} when it was measured\n")
    if rows != written["entries"]:
        print("ROWS ARE MISSING OR DOUBLED\n")
    lags = {
        "newest row of a batch": [each.ended - each.newest for each in counted],
        "oldest row of a batch": [each.ended - each.oldest for each in counted],
        "oldest, since it was appended": [each.ended - each.appended for each in counted],
    }
    lines = [
        (name, *(f"{quantile(of, share):.2f}" for share in (0.5, 0.9, 0.99)), f"{max(of):.2f}")
        for name, of in lags.items()
    ]
    print(table(("lag in seconds", "median", "90 %", "99 %", "most"), lines), end="\n\n")
    sizes = [each.rows for each in counted]
    parts = {part: [each.took.get(part, 0) for each in counted] for part in (*PARTS, "triggerExecution")}
    lines = [
        (part, f"{statistics.median(of):.0f}", f"{quantile(of, 0.99):.0f}", f"{max(of):.0f}")
        for part, of in parts.items()
    ]
    print(f"{len(counted)} batches of {statistics.median(sizes):,.0f} rows (median)")
    print(table(("milliseconds", "median", "99 %", "most"), lines), end="\n\n")
    names = ("the writer", "three bookies", "Spark's virtual machine", "Spark's Python")
    print(
        table(
            ("cores in use",), [(f"{name:<26}{seconds / took:.2f}",) for name, seconds in zip(names, used, strict=True)]
        ),
        end="\n\n",
    )
    worst = max(lags["oldest row of a batch"])
    verdict = "yes" if worst < LAG else "no"
    if written["entries"] / written["seconds"] < ENOUGH * given.rate:
        verdict = "not known, for the machine was too busy to write as much"
    print(f"every row within {LAG:.0f} s: {verdict} ({worst:.2f} s at most)")
    return {
        "written": written, "rows": rows, "lag": lags, "parts": parts, "sizes": sizes,
        "cores": dict(zip(names, (each / took for each in used), strict=True)),
        "within": verdict,
    }  # fmt: skip
