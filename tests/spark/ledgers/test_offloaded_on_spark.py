"""A real Spark reads offloaded ledgers from an S3 server and from a folder, while no bookie runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from object_stores import ObjectStore
from patience import PATIENCE
from pyspark.errors import PySparkException
from spark.ledgers.clusters import in_a_thread

from fencepost.log.chain import Position

ENTRIES = [b"%d" % number * (1 + number % 50) for number in range(3_000)]
PER_LEDGER = 600
AT_ONCE = timedelta(0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    """Three bookies that a test can end, and a store."""
    with in_a_thread(tmp_path / "cluster") as made:
        yield made


@pytest.fixture(autouse=True)
def _keys_for_tasks(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that runs already does not see this process's environment: it gives tasks its own setting."""
    from s3_server import KEYS

    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)


def end_bookies(cluster: Any) -> None:
    for each in cluster.bookies:
        asyncio.run_coroutine_threadsafe(each.end(), cluster.loop).result(PATIENCE)


def written(cluster: Any) -> list[Position]:
    async def write(store: Any) -> list[Position]:
        log = store.log("orders")
        await log.create()
        async with log.writer(ledger_entries=PER_LEDGER) as writer:
            places: list[Position] = await writer.append_many(ENTRIES)
            return places

    places: list[Position] = cluster.store.run(write)
    return places


def offloaded(cluster: Any, objects: ObjectStore, keep: int, grace: timedelta) -> None:
    cluster.store.run(lambda store: store.log("orders").offload(objects.to, keep=keep, grace=grace))


def read(reader: Any, cluster: Any, **options: Any) -> Any:
    return reader.format("fencepost").options(metadata=cluster.uri, log="orders", **options)


@pytest.mark.parametrize(("objects", "grace"), [("s3", AT_ONCE), ("folder", timedelta(hours=1))], indirect=["objects"])
def test_a_batch_query_reads_objects_while_no_bookie_runs(
    spark: Any, cluster: Any, objects: ObjectStore, grace: timedelta
) -> None:
    places = written(cluster)
    ends = {"endingOffsets": f"{places[-1].ledger}:0", "maxBytesPerPartition": 200_000}
    before = read(spark.read, cluster, **ends).load().orderBy("ledger", "entry").collect()
    offloaded(cluster, objects, 1, grace)
    end_bookies(cluster)
    query = read(spark.read, cluster, **ends, includeBookies=True).load().orderBy("ledger", "entry")
    rows = query.drop("bookies", "fragment").collect()
    assert rows == before and [bytes(row.value) for row in rows] == ENTRIES[: 4 * PER_LEDGER]
    assert query.where("bookies is not null").count() == 0
    (damaged, *_) = (path for path in objects.paths() if path.endswith(".entries"))
    objects.write(damaged, objects.read(damaged)[:-1])
    with pytest.raises(PySparkException) as failed:
        read(spark.read, cluster, **ends).load().collect()
    assert "SystemFailure" in str(failed.value)
    assert f"{os.path.basename(damaged)} is damaged: it has" in str(failed.value)


@pytest.mark.parametrize("objects", ["s3"], indirect=True)
def test_a_stream_goes_on_from_bookies_to_objects_and_back(
    spark: Any, cluster: Any, objects: ObjectStore, tmp_path: Path
) -> None:
    """Ledgers leave the bookies between two runs of a query, and between two batches of a run."""
    places = written(cluster)
    found: dict[int, list[tuple[int, int, bytes]]] = {}

    def keep(batch: Any, number: int) -> None:
        found[number] = [(row.ledger, row.entry, bytes(row.value)) for row in batch.collect()]
        if number == 3:
            offloaded(cluster, objects, 1, AT_ONCE)

    def run() -> None:
        reading = read(spark.readStream, cluster, maxEntriesPerTrigger=500).load()
        writing = reading.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE)

    offloaded(cluster, objects, 4, AT_ONCE)
    run()
    rows = [row for number in sorted(found) for row in sorted(found[number])]
    assert rows == [(at.ledger, at.entry, data) for at, data in zip(places, ENTRIES, strict=True)]
    assert len(found) == 6
    found.clear()
    cluster.store.run(_append)
    offloaded(cluster, objects, 1, AT_ONCE)
    run()
    assert [data for number in sorted(found) for _, _, data in sorted(found[number])] == [b"more"] * 3


async def _append(store: Any) -> None:
    async with store.log("orders").writer(ledger_entries=2) as writer:
        await writer.append_many([b"more"] * 3)
