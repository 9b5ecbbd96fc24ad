"""``python -m bench.spark_ledgers.queries follow|finish URI LOG DIR``: two queries of one log, into files and by
``foreachBatch``.

``follow`` prints a line with each batch, with the numbers of the Python processes that read; ``finish`` reads what
there is, and prints what the two sinks have then: rows, different places in the log, and the sum of the numbers that
entries begin with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.spark_ledgers.sessions import below, session

COUNTED = (
    "count(*)",
    "count(distinct ledger, entry)",
    "sum(cast(conv(hex(substring(value, 1, 8)), 16, 10) as bigint))",
)


def begun(spark: Any, uri: str, log: str, folder: Path, **trigger: Any) -> list[Any]:
    """The two queries."""

    def write(batch: Any, number: int) -> None:  # what is written twice under one number is there once
        batch.write.mode("overwrite").parquet(str(folder / "by-batch" / f"batch={number}"))

    def rows(name: str) -> Any:
        reader = spark.readStream.format("fencepost").options(metadata=uri, log=log, maxEntriesPerTrigger=50_000)
        chosen = reader.schema("ledger bigint, entry bigint, value binary").load()
        return chosen.writeStream.option("checkpointLocation", str(folder / f"checkpoint-{name}")).trigger(**trigger)

    return [
        rows("files").format("parquet").option("path", str(folder / "files")).start(),
        rows("by-batch").foreachBatch(write).start(),
    ]


def main() -> None:
    """Do what the command line says."""
    what, uri, log, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
    with session({}, "local[2, 4]") as spark:
        if what == "follow":
            machine = int(spark._jvm.java.lang.ProcessHandle.current().pid())
            queries, seen = begun(spark, uri, log, folder, processingTime="0 seconds"), [-1, -1]
            while all(query.isActive for query in queries):
                queries[0].awaitTermination(0.2)
                now = [-1 if query.lastProgress is None else query.lastProgress["batchId"] for query in queries]
                if now != seen:
                    seen = now
                    readers = [pid for pid in below(machine) if b"pyspark.worker" in _command(pid)]
                    print(json.dumps({"batches": now, "readers": readers}), flush=True)
            raise next(error for error in (query.exception() for query in queries) if error)
        for query in begun(spark, uri, log, folder, availableNow=True):
            query.awaitTermination()
        found = {
            name: spark.read.parquet(str(folder / name)).selectExpr(*COUNTED).first() for name in ("files", "by-batch")
        }
        print(json.dumps({name: [*map(int, row)] for name, row in found.items()}))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
