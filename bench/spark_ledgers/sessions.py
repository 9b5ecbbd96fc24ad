"""A session of Spark as a user has one, and what its processes use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.ledger.usage import cpu_seconds

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}
"""What a measurement needs; all else is as Spark has it."""


@contextmanager
def session(conf: Mapping[str, str], master: str = "local[2]") -> Iterator[Any]:
    """A session there, with these settings besides."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("bench.spark_ledgers")
    for name, value in {**SETTINGS, **conf}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class Usage:
    """Seconds of CPU of Spark's virtual machine, and of the Python that it has started, since this was made."""

    def __init__(self, spark: Any) -> None:
        self.machine = int(spark._jvm.java.lang.ProcessHandle.current().pid())
        self.before = self._now()

    def _now(self) -> tuple[float, float]:
        return cpu_seconds([self.machine]), sum(_seconds(pid) for pid in below(self.machine))

    def since(self) -> tuple[float, float]:
        """Of the virtual machine, and of all Python below it."""
        machine, python = self._now()
        return machine - self.before[0], python - self.before[1]


def below(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has ended
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return found


def _seconds(pid: int) -> float:
    try:
        return cpu_seconds([pid])
    except OSError:
        return 0.0
