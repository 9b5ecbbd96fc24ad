"""Ledgers of real bookies as rows of a real Spark: in a batch, and in streams that stop and start again."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, until
from pyspark.errors import PySparkException
from spark.ledgers.clusters import in_a_thread

import fencepost
import fencepost.spark
from fencepost.ledger.rules.ensembles import write_set
from fencepost.spark.session import reason

FILTERS = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Four bookies, and a store."""
    with in_a_thread(tmp_path_factory.mktemp("cluster"), 4) as made:
        yield made


def source(reader: Any, cluster: Any, **options: Any) -> Any:
    return reader.format("fencepost").options(metadata=cluster.uri, **options)


def test_a_batch_has_every_column_of_every_entry(spark: Any, cluster: Any) -> None:
    data = [b"%d" % number * (number % 9) for number in range(3000)]
    with cluster.store.create_ledger(ensemble=3, write_quorum=2, ack_quorum=2) as first:
        first.append_many(data[:1500])
        gone = first.metadata.fragments[0].ensemble[0]
        ended = next(each for each in cluster.bookies if each.bookie_id == gone)
        asyncio.run_coroutine_threadsafe(ended.end(), cluster.loop).result()
        first.append_many(data[1500:])
    second = cluster.store.create_ledger(password="secret")
    second.append_many(data[:100])
    metadata = cluster.store.ledger_metadata(first.id)
    assert len(metadata.fragments) > 1, "the bookie that is gone was replaced, and what it had is read from others"

    options = {"ledger": first.id, "includeBookies": True, "maxBytesPerPartition": 70_000}
    # Sorted here: Spark would compile a sort, and read everything twice.
    rows = sorted(source(spark.read, cluster, **options).load().collect(), key=lambda row: row.entry)
    length, lac = 0, -1
    for entry, (row, expected) in enumerate(zip(rows, data, strict=True)):
        length, lac = length + len(expected), max(lac, row.lac)
        fragment = max(
            (each for each in metadata.fragments if each.first_entry_id <= entry), key=lambda each: each.first_entry_id
        )
        bookies = [*write_set(entry, tuple(fragment.ensemble), 2)]
        assert row.asDict() == {
            "log": None, "ledger": first.id, "entry": entry, "lac": lac, "length": length, "value": bytearray(expected),
            "bookies": bookies, "fragment": fragment.first_entry_id,
        }  # fmt: skip
        assert -1 <= row.lac < entry

    opened = (
        source(spark.read, cluster, ledger=second.id, password="secret", decoder="utf8")
        .schema("value string, entry bigint")
        .load()
    )
    assert opened.columns == ["value", "entry"] and opened.count() == 100, (
        "what is confirmed of a ledger that is written"
    )
    assert {row.entry: row.value.encode() for row in opened.collect()} == dict(enumerate(data[:100]))
    second.append_many(data[100:110])
    assert second.close() == 109, "nobody has fenced it"
    own = source(
        spark.read, cluster, ledger=second.id, password="secret", decoder="pyarrow.compute:binary_reverse"
    ).load()
    late = sorted(own.where("entry >= 98").collect(), key=lambda row: row.entry)
    assert [row.value for row in late] == [each[::-1] for each in data[98:110]]

    offsets = {"startingOffsets": json.dumps({first.id: 10}), "endingOffsets": json.dumps({first.id: 40})}
    some = source(spark.read, cluster, ledgers=f"{first.id}-{first.id}", **offsets)
    expected_ids = [(first.id, entry) for entry in (12, 13)]
    for setting, pushed in (("true", True), ("true", False), ("false", True)):
        spark.conf.set(FILTERS, setting)
        chosen = some.option("filterPushdown", pushed).load()
        chosen = chosen.where(f"ledger = {first.id} and entry > 11 and entry in (5, 12, 13) and entry < 5000")
        assert sorted((row.ledger, row.entry) for row in chosen.collect()) == expected_ids
        plan = chosen._jdf.queryExecution().optimizedPlan().toString()
        assert ("entry#" in plan.partition("RelationV2")[0], "5000" in plan) == (True, setting == "false" or not pushed)
    spark.conf.set(FILTERS, "true")
    again = some.option("filterPushdown", False).load()
    assert again.where("ledger = 99999").count() == 0 and sorted(row.entry for row in again.collect()) == [
        *range(10, 40)
    ]
    spark.conf.unset(FILTERS)


@pytest.mark.campaign
def test_a_stream_that_is_stopped_and_started_again_has_every_row_once(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    written: Counter[tuple[int, bytes]] = Counter()
    ledgers = [cluster.store.create_ledger(explicit_lac_interval=0.01) for _ in range(2)]
    is_over = threading.Event()

    def write() -> None:
        """Write some batches ahead of the stream, and then slowly, since all that is written is also read."""
        number = 0
        while not is_over.is_set():
            ledger = ledgers[number % 2]
            data = [b"%d of %d" % (each, number) for each in range(37)]
            ledger.append_many(data)
            written.update((ledger.id, each) for each in data)
            number += 1
            if number == 20:
                ledgers[0].close()
                ledgers[0] = cluster.store.create_ledger(explicit_lac_interval=0.01)
            is_over.wait(0.02 if number < 40 else 0.5)

    def begun(**trigger: Any) -> Any:
        stream = source(
            spark.readStream, cluster, ledgers=f"{ledgers[0].id if not written else first}-", maxEntriesPerTrigger=300
        ).load()
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger).start()

    first = ledgers[0].id
    writing = threading.Thread(target=write)
    writing.start()
    try:
        for batches in (1, 0):  # stopped between batches and in the midst of one
            query = begun(processingTime="0 seconds")
            until(
                lambda: (
                    query.lastProgress is not None
                    and sum(each["numInputRows"] > 0 for each in query.recentProgress) >= batches
                ),
                "batches",
            )
            query.stop()
            assert all(each["numInputRows"] <= 300 for each in query.recentProgress)
    finally:
        is_over.set()
        writing.join()
    for ledger in ledgers:
        ledger.close()
    query = begun(availableNow=True)
    assert query.awaitTermination(PATIENCE)
    rows = spark.read.parquet(str(tmp_path / "rows")).select("ledger", "entry", "value").collect()
    assert Counter((row.ledger, bytes(row.value)) for row in rows) == written
    assert len({(row.ledger, row.entry) for row in rows}) == len(rows)


@pytest.mark.campaign
def test_a_stream_reads_as_many_bytes_at_once_as_it_may_and_ends_with_what_there_was(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    with cluster.store.create_ledger() as ledger:
        ledger.append_many([b"x" * (900 if number == 50 else 10) for number in range(100)])

    def rows_of_batches(**options: Any) -> list[int]:
        stream = source(spark.readStream, cluster, ledger=ledger.id, **options).load()
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / str(len(options))))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE)
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    assert rows_of_batches(maxBytesPerTrigger=300, startingOffsets=json.dumps({ledger.id: 20})) == [30, 1, 30, 19]
    assert rows_of_batches(
        maxBytesPerTrigger=300, maxEntriesPerTrigger=20, startingOffsets=json.dumps({ledger.id: 45})
    ) == [5, 1, 20, 20, 9]
    assert rows_of_batches(startingOffsets="latest") == []


def test_a_session_can_be_told_of_the_format_though_it_finds_it(spark: Any, cluster: Any) -> None:
    import pyspark_fencepost

    with cluster.store.create_ledger() as ledger:
        ledger.append(b"one")
    assert vars(pyspark_fencepost)["DefaultSource"].name() == "fencepost"
    fencepost.spark.register(spark.newSession())
    fencepost.spark.register(spark)
    assert len(source(spark.read, cluster, ledger=ledger.id).load().collect()) == 1


def test_what_goes_wrong_is_said_in_one_line_that_names_the_option(spark: Any, cluster: Any) -> None:
    with cluster.store.create_ledger() as kept:
        kept.append(b"kept")
    with cluster.store.create_ledger() as ledger:
        ledger.append(b"deleted")
    cluster.store.delete_ledger(ledger.id)

    def said(**options: Any) -> str:
        with pytest.raises(PySparkException) as failed:
            source(spark.read, cluster, **options).load().collect()
        return reason(failed.value)

    assert (
        said()
        == "give one of the options ledger, ledgers and log: an id, ids and ranges of ids as 3,7,10-20,30-, or a name"
    )
    assert "option maxEntriesPerTrigger is for streams" in said(ledger=kept.id, maxEntriesPerTrigger=5)
    beyond = f"option endingOffsets has entry 5 of ledger {kept.id}, of which the entries before 1 can be read"
    assert said(ledger=kept.id, endingOffsets=json.dumps({kept.id: 5})) == beyond
    both = f"{kept.id},{ledger.id}"
    assert (
        said(ledgers=both)
        == f"there is no ledger {ledger.id}. Set option failOnDataLoss to false to go on without what is gone"
    )
    assert [row.value for row in source(spark.read, cluster, ledgers=both, failOnDataLoss=False).load().collect()] == [
        b"kept"
    ]
    assert said(ledger=kept.id, password="other") == f"the password is not that of ledger {kept.id}"
