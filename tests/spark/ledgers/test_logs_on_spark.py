"""Logs of real bookies as rows of a real Spark, ledger after ledger."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from pyspark.errors import PySparkException

from fencepost.log.chain import Position
from fencepost.spark.session import reason


def source(reader: Any, cluster: Any, **options: Any) -> Any:
    return reader.format("fencepost").options(metadata=cluster.uri, **options)


def written(cluster: Any, name: str, data: list[bytes], per_ledger: int, **options: Any) -> list[Position]:
    """Write a log with these entries, every third with a key. Returns their positions."""

    async def write(store: Any) -> list[Position]:
        log = store.log(name)
        await log.create()
        async with log.writer(ledger_entries=per_ledger, **options) as writer:
            keys = [b"k%d" % number if number % 3 == 0 else None for number in range(len(data))]
            return [
                await each
                for each in [asyncio.ensure_future(writer.append(*each)) for each in zip(data, keys, strict=True)]
            ]

    positions: list[Position] = cluster.store.run(write)
    return positions


def test_a_batch_of_a_log_has_data_times_and_keys(spark: Any, cluster: Any) -> None:
    data = [b"%d" % number * (number % 5) for number in range(500)]
    before = time.time()
    positions = written(cluster, "orders", data, 120)
    after = time.time()
    rows = source(spark.read, cluster, log="orders", includeBookies=True).load().orderBy("ledger", "entry").collect()
    assert [(row.ledger, row.entry) for row in rows] == [(each.ledger, each.entry) for each in positions]
    assert [bytes(row.value) for row in rows] == data and {row.log for row in rows} == {"orders"}
    assert [row.key and bytes(row.key) for row in rows] == [
        b"k%d" % number if number % 3 == 0 else None for number in range(500)
    ]
    times: list[datetime] = [row.time for row in rows]
    assert times == sorted(times) and before - 1 < times[0].timestamp() <= times[-1].timestamp() < after + 1
    assert all(len(row.bookies) == 3 and row.fragment == 0 for row in rows)
    bounds = {"startingOffsets": str(positions[100]), "endingOffsets": str(positions[300])}
    some = (
        source(spark.read, cluster, log="orders", decoder="utf8", **bounds)
        .schema("ledger bigint, entry bigint, value string")
        .load()
    )
    assert [row.value.encode() for row in some.orderBy("ledger", "entry").collect()] == data[100:300]


def test_what_is_wrong_with_a_query_of_a_log_is_the_last_line_of_the_traceback(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    places = [str(each) for each in written(cluster, "places", [b"x"] * 10, 10)]

    def said(query: Callable[[], object]) -> str:
        with pytest.raises(PySparkException) as failed:
            query()
        traceback, state, rest = str(failed.value).partition(" SQLSTATE: ")
        assert state and (not rest.partition("\n")[2] or "=== Streaming Query ===" in rest)
        kind, _, message = traceback.rstrip().splitlines()[-1].partition(": ")
        assert kind.startswith("fencepost.") and message == reason(failed.value)
        return message

    def batch(log: str, **options: Any) -> str:
        return said(source(spark.read, cluster, log=log, **options).load().collect)

    def stream(**options: Any) -> str:
        rows = source(spark.readStream, cluster, log="places", **options).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return said(lambda: writer.trigger(availableNow=True).start().awaitTermination(PATIENCE))

    assert batch("no-such") == "option log: there is no log no-such: make it, or correct the name"
    nowhere = "option startingOffsets is 99999:0: ledger 99999 is not in log places"
    assert batch("places", startingOffsets="99999:0") == stream(startingOffsets="99999:0") == nowhere
    says = f"option startingOffsets is {places[9]}, behind endingOffsets, {places[3]}: begin where the query ends, or"
    assert batch("places", startingOffsets=places[9], endingOffsets=places[3]) == f"{says} before"


@pytest.mark.campaign
def test_a_stream_of_a_log_goes_on_across_ledgers_trims_and_starts(spark: Any, cluster: Any, tmp_path: Path) -> None:
    told: Counter[bytes] = Counter()
    is_over = threading.Event()

    async def write(store: Any) -> None:
        log = store.log("clicks")
        async with log.writer(ledger_entries=150) as writer:
            number = 0
            while not is_over.is_set():
                data = [b"%d of %d" % (each, number) for each in range(40)]
                await writer.append_many(data)
                told.update(data)
                number += 1
                await asyncio.sleep(0.02)

    async def create(store: Any) -> None:
        await store.log("clicks").create()

    def begun(**trigger: Any) -> Any:
        stream = source(spark.readStream, cluster, log="clicks", maxEntriesPerTrigger=200).load()
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger).start()

    cluster.store.run(create)
    query = begun(availableNow=True)  # of a log without a ledger
    assert query.awaitTermination(PATIENCE)
    writing = threading.Thread(target=cluster.store.run, args=(write,))
    writing.start()
    try:
        for batches in (2, 0):
            query, end = begun(processingTime="0 seconds"), time.monotonic() + PATIENCE
            while sum(each["numInputRows"] > 0 for each in query.recentProgress) < batches:
                assert time.monotonic() < end and query.exception() is None
                time.sleep(0.05)
            query.stop()
            assert all(each["numInputRows"] <= 200 for each in query.recentProgress)
    finally:
        is_over.set()
        writing.join()
    assert begun(availableNow=True).awaitTermination(PATIENCE)

    async def trim(store: Any) -> int:
        log = store.log("clicks")
        last = (await log.chain()).links[-1].ledger
        await log.trim(before=Position(last, 0))
        return len((await log.chain()).links)

    assert cluster.store.run(trim) == 1
    assert begun(availableNow=True).awaitTermination(PATIENCE), "what was trimmed was read"
    rows = spark.read.parquet(str(tmp_path / "rows")).select("ledger", "entry", "value").collect()
    assert Counter(bytes(row.value) for row in rows) == told
    assert len({(row.ledger, row.entry) for row in rows}) == len(rows)


@pytest.mark.campaign
def test_what_was_trimmed_before_it_was_read_is_told(spark: Any, cluster: Any, tmp_path: Path) -> None:
    positions = written(cluster, "trimmed", [b"%d" % number for number in range(100)], 10)

    def rows(checkpoint: str, **options: Any) -> int:
        stream = source(spark.readStream, cluster, log="trimmed", **options).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(PATIENCE)
        return sum(each["numInputRows"] for each in query.recentProgress)

    assert rows("one", maxBytesPerTrigger=900) == 100
    stream = source(
        spark.readStream, cluster, log="trimmed", startingOffsets=str(positions[15]), maxEntriesPerTrigger=1
    ).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "two")).start()
    end = time.monotonic() + PATIENCE
    while not any(each["numInputRows"] for each in query.recentProgress):
        assert time.monotonic() < end
        time.sleep(0.01)
    query.stop()
    read = sum(each["numInputRows"] for each in query.recentProgress)

    async def trim(store: Any) -> None:
        await store.log("trimmed").trim(before=positions[95])

    cluster.store.run(trim)
    assert 15 + read < 90, "the query stands before what is left"
    with pytest.raises(
        PySparkException, match="log trimmed was trimmed behind .* Set option failOnDataLoss to false to go on"
    ):
        rows("two")
    assert rows("two", failOnDataLoss=False) == 10


def counted(query: Any) -> int:
    """The rows of a stream that ends."""
    assert query.awaitTermination(PATIENCE)
    return sum(each["numInputRows"] for each in query.recentProgress)


@pytest.mark.campaign
def test_a_ledger_that_was_deleted_in_the_middle_of_a_log_is_told_or_left_out(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    positions = written(cluster, "holed", [b"%d" % number for number in range(30)], 10)
    hole = positions[10].ledger
    cluster.store.run(lambda store: store.delete_ledger(hole, of_log="holed"))
    gone = (
        f"ledger {hole} of the log holed is missing: the entries from {hole}:0 up to {positions[20].ledger}:0 are gone."
        " Set option failOnDataLoss to false to go on without what is gone"
    )
    kept = {(each.ledger, each.entry) for each in positions if each.ledger != hole}

    def stream(checkpoint: str, **options: Any) -> Any:
        rows = source(spark.readStream, cluster, log="holed", maxEntriesPerTrigger=4, **options).load()
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / f"{checkpoint}-rows"))
        return writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()

    for query in (
        source(spark.read, cluster, log="holed").load().collect,
        lambda: stream("refused").awaitTermination(PATIENCE),
    ):
        with pytest.raises(PySparkException) as failed:
            query()
        assert reason(failed.value) == gone
    rows = source(spark.read, cluster, log="holed", failOnDataLoss=False).load().collect()
    assert {(row.ledger, row.entry) for row in rows} == kept and len(rows) == 20
    # The stream that has failed goes on from its checkpoint.
    for checkpoint in ("refused", "new"):
        assert stream(checkpoint, failOnDataLoss=False).awaitTermination(PATIENCE)
        found = spark.read.parquet(str(tmp_path / f"{checkpoint}-rows")).select("ledger", "entry").collect()
        assert {(row.ledger, row.entry) for row in found} == kept and len(found) == 20


@pytest.mark.campaign
def test_three_queries_at_once_read_many_tiny_ledgers_up_to_the_present(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    data = [b"%d" % number for number in range(300)]
    positions = written(cluster, "tiny", data, 1)
    assert len({each.ledger for each in positions}) == 300
    batch = source(spark.read, cluster, log="tiny").load()
    rows = batch.collect()
    assert sorted(int(row.value) for row in rows) == [*range(300)]
    assert batch.rdd.getNumPartitions() == 1, "many small ledgers are one partition"
    queries = []
    for number, most in enumerate((1_000, 120, 100)):
        stream = source(spark.readStream, cluster, log="tiny", maxEntriesPerTrigger=most).load()
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / str(number)))
        queries.append(writer.trigger(availableNow=True).start())
    assert [counted(query) for query in queries] == [300] * 3
    batches = [[each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] for query in queries]
    assert batches == [[300], [120, 120, 60], [100, 100, 100]]
