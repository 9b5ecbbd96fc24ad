"""A real Spark writes logs of real bookies: whole, once and in order. Nothing is left of failed writes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from fencepost import OptionError
from fencepost.log.chain import EARLIEST
from fencepost.spark.ledgers.source import FencepostSource
from fencepost.spark.session import reason


def create(cluster: Any, *names: str) -> None:
    for name in names:
        cluster.store.run(lambda store, name=name: store.log(name).create())


def writing(writer: Any, cluster: Any, log: str, **options: Any) -> Any:
    return writer.format("fencepost").options(metadata=cluster.uri, log=log, **options)


def entries(cluster: Any, name: str) -> list[Any]:
    return [*cluster.store.log(name).read(at=EARLIEST, follow=False)]


def left_over(cluster: Any, *names: str) -> set[int]:
    """Ledgers written for a log that are not in it."""

    async def look(store: Any) -> set[int]:
        chains = [await store.log(name).chain() for name in names]
        chained = {link.ledger for chain in chains for link in chain.links}
        of_logs = {
            ledger
            async for ledger, metadata in store.metadata.all_metadata()
            if dict(metadata.custom_metadata).get("log", b"").decode() in names
        }
        pending = [await store.log(name)._nodes.batch_writers() for name in names]
        assert not any(pending), pending
        return of_logs - chained

    found: set[int] = cluster.store.run(look)
    return found


def test_a_dataframe_is_in_the_log_in_order_and_once(spark: Any, cluster: Any) -> None:
    create(cluster, "sorted")
    rows = (
        spark.range(500)
        .repartition(7)
        .selectExpr("id", "cast(id as string) value", "if(id % 3 = 0, cast(concat('k', id) as binary), null) key")
    )
    ordered = rows.repartitionByRange(4, "id").sortWithinPartitions("id").drop("id")
    for _ in range(2):
        writing(ordered.write, cluster, "sorted", writeId="load-1").mode("append").save()
    found = entries(cluster, "sorted")
    assert [each.data for each in found] == [b"%d" % number for number in range(500)]
    assert [each.key for each in found] == [b"k%d" % number if number % 3 == 0 else None for number in range(500)]
    assert len({each.time for each in found}) == 1 and len({each.position.ledger for each in found}) == 4
    read = spark.read.format("fencepost").options(metadata=cluster.uri, log="sorted").load()
    assert [row.time.timestamp() * 1000 for row in read.select("time").distinct().collect()] == [found[0].time]
    for _ in range(2):  # which have no id, and so are two
        writing(spark.sql("select X'00ff' value").write, cluster, "sorted").mode("append").save()
    writing(spark.range(0).selectExpr("'' value").write, cluster, "sorted").mode("append").save()
    by_hand = cluster.store.log("sorted").batches("by-hand")
    part, other = by_hand.part(3), by_hand.part(4)
    part.append([b"by hand"], [b"key"])
    other.append([b"discarded"])
    other.discard()
    assert by_hand.attach(3, [part.close()]) and by_hand.has(3)
    by_hand.withdraw(3)
    assert [each.data for each in entries(cluster, "sorted")[500:]] == [b"\0\xff", b"\0\xff", b"by hand"]
    assert left_over(cluster, "sorted") == set()


def test_what_fails_leaves_nothing_and_says_why_in_one_line(spark: Any, cluster: Any) -> None:
    create(cluster, "failing")
    rows = spark.range(100, numPartitions=2)

    def said(frame: Any, log: str = "failing", **options: Any) -> str:
        with pytest.raises(PySparkException) as failed:
            writing(frame.write, cluster, log, **options).mode("append").save()
        return reason(failed.value)

    text = rows.selectExpr("cast(id as string) value")
    assert "boom" in said(rows.selectExpr("if(id = 99, raise_error('boom'), cast(id as string)) value"))
    assert said(rows.selectExpr("if(id = 70, null, cast(id as string)) value")).startswith(
        "column value is null in some row"
    )
    assert said(text, log="no-such") == "option log: there is no log no-such: make it, or correct the name"
    with cluster.store.log("failing").writer(name="somebody"):
        assert "which this process does not lead after 0.3 s: somebody does" in said(text, leadTimeout="0.3")
    assert entries(cluster, "failing") == []
    # Spark kills the other tasks of a failed write, perhaps after it was aborted. What they leave is known.
    assert cluster.store.run(lambda store: store.log("failing").batches("any").delete_given_up(1 << 60)) <= 2
    assert left_over(cluster, "failing") == set()


def test_a_log_is_only_appended_to_and_has_data_and_keys() -> None:
    source = FencepostSource({"metadata": "zk://a/l", "log": "orders"})
    data = StructType([StructField("value", StringType())])
    assert source.writer(data, overwrite=False).batch != source.writer(data, overwrite=False).batch, (
        "each is another write"
    )
    with pytest.raises(OptionError, match=r'a log is only appended to: give mode\("append"\)'):
        source.writer(data, overwrite=True)
    with pytest.raises(OptionError, match=r'a log is only appended to: give outputMode\("append"\)'):
        source.streamWriter(data, overwrite=True)
    with pytest.raises(OptionError, match="column id cannot be written to a log"):
        source.streamWriter(data.add("id", "long"), overwrite=False)


@pytest.mark.campaign
def test_a_stream_from_log_to_log_has_each_row_once_and_moves_its_cursor(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    create(cluster, "from", "to")
    checkpoint = tmp_path / "checkpoint"

    def append(first: int) -> None:
        with cluster.store.log("from").writer(ledger_entries=40) as writer:
            writer.append_many([b"%d" % number for number in range(first, first + 100)])

    def run(**options: Any) -> None:
        source = {
            "metadata": cluster.uri,
            "log": "from",
            "cursor": "billing",
            "decoder": "utf8",
            "maxEntriesPerTrigger": 30,
            **options,
        }
        stream = spark.readStream.format("fencepost").options(**source).load()
        doubled = stream.selectExpr("cast(2 * cast(value as int) as string) value")
        writer = writing(doubled.writeStream, cluster, "to", checkpointLocation=str(checkpoint)).queryName("doubling")
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE)

    def doubled() -> list[int]:
        return [int(each.data) for each in entries(cluster, "to")]

    append(0)
    run()
    assert doubled() == [*range(0, 200, 2)]
    cursor = cluster.store.log("from").show().cursors["billing"].before
    assert cursor == entries(cluster, "from")[90].position, (
        "Spark says that a batch is done with when it begins the next one"
    )

    # The last batch was in the log when the driver was killed. Spark did not know that yet, and writes it again.
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    append(100)
    run()
    assert doubled() == [*range(0, 400, 2)]
    assert left_over(cluster, "from", "to") == set()

    # A new query begins at the cursor, and has its own id.
    shutil.rmtree(checkpoint)
    append(200)
    run(startingOffsets="earliest")
    again = doubled()
    assert again[200:] == [*range(again[200], 600, 2)] and 180 <= again[200] < 400
    batch = spark.read.format("fencepost").options(metadata=cluster.uri, log="from", cursor="billing").load()
    before = cluster.store.log("from").show().cursors["billing"].before
    assert batch.count() < 40
    assert cluster.store.log("from").show().cursors["billing"].before == before, "what is no stream moves no cursor"
