"""Where the time of reading goes: microseconds of CPU that each part takes of an entry.

A query of Spark is measured by process. What Spark's Python does is measured once more in a process that does the same
without Spark (:mod:`bench.spark_ledgers.reader`), whose functions are wrapped: a thread's CPU time is charged to the
innermost part that it is in.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.ledger.figures import table
from bench.ledger.sides import OURS, Side
from bench.ledger.usage import cpu
from bench.spark_ledgers.compare import frame, large
from bench.spark_ledgers.reader import PARTS, REST, SENT
from bench.spark_ledgers.sessions import Usage, session

READS: Mapping[str, tuple[str | None, dict[str, str]]] = {
    "all columns": (None, {}),
    "all columns, in partitions of a quarter of the size": (None, {"maxBytesPerPartition": str(16 << 20)}),
    '.schema("value binary")': ("value binary", {}),
    '.schema("entry bigint")': ("entry bigint", {}),
}
"""What is read of a ledger: a schema of its own, and options."""


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure, print and give what was measured."""
    side = Side(OURS, folder)
    try:
        side.start()
        ledger, count = large(side, given.size, given.entries)
        rounds, rates = [], {name: [0.0] * 0 for name in READS}
        with session(given.conf) as spark:
            for number in range(given.rounds + 1):
                for name, (schema, options) in READS.items():
                    reader = frame(spark.read, side, ledger, **options)
                    rows = (reader if schema is None else reader.schema(schema)).load()
                    used, before, began = Usage(spark), cpu(side.bookies), time.monotonic()
                    rows.write.format("noop").mode("overwrite").save()
                    took, bookies = time.monotonic() - began, cpu(side.bookies).since(before)
                    java, python = used.since()
                    if number:  # the first query starts Python
                        rates[name].append(count / took)
                    if number and name == next(iter(READS)):
                        rounds.append(
                            [each * 1e6 / count for each in (took, bookies.user, bookies.system, java, python)]
                        )
        words = [side.cluster.uri, str(ledger), str(given.rounds)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.spark_ledgers.reader", *words], capture_output=True, text=True, check=True
        )
    finally:
        side.end()
    twin = json.loads(done.stdout.splitlines()[-1])
    parts = {part: nanoseconds / 1e3 / twin["entries"] for part, nanoseconds in twin["parts"].items()}
    took, user, system, java, python = (statistics.median(each) for each in zip(*rounds, strict=True))
    lines = [
        ("bookies, three together: programs", f"{user:.3f}"),
        ("bookies, three together: kernel", f"{system:.3f}"),
        ("Spark's Python", f"{python:.3f}"),
        ("Spark's Java", f"{java:.3f}"),
        ("all", f"{user + system + python + java:.3f}"),
    ]
    print(
        table(
            ("what is read", "entries a second"),
            [(name, f"{statistics.median(of):,.0f}") for name, of in rates.items()],
        ),
        end="\n\n",
    )
    print(f"a query of {count:,} entries of {given.size} bytes, {1e6 / took:,.0f} entries a second\n")
    print(table(("us of CPU an entry", "us"), lines), end="\n\n")
    lines = [(part, f"{parts.get(part, 0.0):.3f}") for part in (*PARTS, SENT, REST)]
    print(f"what Spark's Python does, without Spark: {twin['entries'] / twin['seconds']:,.0f} entries a second\n")
    print(table(("us of CPU an entry", "us"), [*lines, ("all", f"{sum(parts.values()):.3f}")]))
    return {"rates": rates, "query": rounds, "parts": parts, "entries": count}
