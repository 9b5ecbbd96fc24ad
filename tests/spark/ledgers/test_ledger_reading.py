"""The work of executors and the driver, without Spark: entries become rows. Missing ones are reported or left out."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.client.standins import Cluster
from pyspark.sql.pandas.types import to_arrow_schema

from fencepost import OptionError
from fencepost.ledger import errors
from fencepost.ledger.client.reading import EntryBatch
from fencepost.ledger.rules.ensembles import Fragment, write_set
from fencepost.ledger.rules.metadata import LedgerMetadata
from fencepost.log.entries import framed
from fencepost.spark.ledgers import reading
from fencepost.spark.ledgers.columns import Rows, columns
from fencepost.spark.ledgers.filters import ANY, Wanted
from fencepost.spark.ledgers.offsets import Offsets
from fencepost.spark.ledgers.options import parse
from fencepost.spark.ledgers.parts import Range
from fencepost.spark.ledgers.planning import Ledgers, batch
from fencepost.spark.ledgers.reading import batches

ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.field("element", pa.string())),
}


def batch_of(first: int, entries: list[bytes]) -> EntryBatch:
    offsets = array("q", accumulate(map(len, entries), initial=0))
    lacs, lengths = (
        array("q", [at - 1 for at in range(len(entries))]),
        array("q", [7 * at for at in range(len(entries))]),
    )
    return EntryBatch(first, memoryview(b"".join(entries)), memoryview(offsets), memoryview(lacs), memoryview(lengths))


@given(
    st.lists(
        st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=5), st.integers(0, 1 << 41)),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 30),
    st.sampled_from([(1, 1), (3, 3), (3, 2), (5, 3)]),
    st.booleans(),
    st.sampled_from([0, 1 << 40]),
)
def test_a_batch_of_entries_becomes_the_rows_that_they_are_one_by_one(
    entries: Any, first: int, sizes: tuple[int, int], is_log: bool, created: int
) -> None:
    ensemble = tuple(f"b{number}:1" for number in range(sizes[0]))
    metadata = LedgerMetadata(
        sizes[0],
        sizes[1],
        sizes[1],
        (Fragment(0, ("x:1",) * sizes[0]), Fragment(first, ensemble)) if first else (Fragment(0, ensemble),),
    )
    log = "orders" if is_log else None
    schema = pa.schema([pa.field(name, ARROW[kind]) for name, kind in columns(True, None, log).items()])
    whole = [framed(data, time, key) if is_log else data for data, key, time in entries]
    rows = Rows(schema, None, log).of(Range(8, 0, first, first, created), metadata, batch_of(first, whole))
    rows.validate(full=True)
    assert rows.schema.equals(schema)
    found = rows.drop_columns(["time"]).to_pylist() if is_log else rows.to_pylist()
    for at, (row, (data, key, _)) in enumerate(zip(found, entries, strict=True)):
        bookies = [*write_set(first + at, ensemble, sizes[1])]
        expected = {
            "log": log,
            "ledger": 8,
            "entry": first + at,
            "lac": at - 1,
            "length": 7 * at,
            "value": data,
            "bookies": bookies,
            "fragment": first,
        }
        assert row == {**expected, **({"key": key} if is_log else {})}
    if is_log:
        assert rows.column("time").cast(pa.int64()).to_pylist() == [1000 * max(time, created) for _, _, time in entries]


def test_a_decoder_gives_a_value_for_each_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(values: Any) -> Any:
        return pa.array(["one"])

    def fails(values: Any) -> Any:
        raise ValueError("no JSON")

    monkeypatch.setitem(sys.modules, "own", SimpleNamespace(one=one, fails=fails, listed=lambda values: [1]))
    metadata = LedgerMetadata(1, 1, 1, (Fragment(0, ("b:1",)),))
    schema = pa.schema([("value", pa.string())])
    assert Rows(schema, "own:one", None).of(Range(1, 0, 0, 0), metadata, batch_of(0, [b"x"])).to_pylist() == [
        {"value": "one"}
    ]
    for name, said in (
        ("own:one", "gave 1 values for 2 entries"),
        ("own:listed", "gave list for 2"),
        ("own:fails", "failed for .*: no JSON"),
    ):
        with pytest.raises(ValueError, match=f"option decoder: {name} {said}"):
            Rows(schema, name, None).of(Range(1, 0, 0, 0), metadata, batch_of(0, [b"x", b"y"]))


def test_a_schema_of_spark_is_the_one_that_rows_have() -> None:
    from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType, TimestampType

    types = {
        "string": StringType(),
        "bigint": LongType(),
        "binary": BinaryType(),
        "timestamp": TimestampType(),
        "array<string>": ArrayType(StringType()),
    }
    schema = StructType([StructField(name, types[kind]) for name, kind in columns(True, None, "log").items()])
    assert {field.name: field.type for field in to_arrow_schema(schema, timezone="UTC")} == {
        name: ARROW[kind] for name, kind in columns(True, None, "log").items()
    }


DATA = [b"%d" % number * (number % 7) for number in range(300)]


def options(**given_: Any) -> Any:
    return parse({"metadata": "zk://a/l", **{name: str(value) for name, value in given_.items()}})


async def written(store: Any, **settings: Any) -> int:
    async with store.create_ledger(**settings) as ledger:
        await ledger.append_many(DATA)
        number: int = ledger.id
        return number


async def read(store: Any, part: Any, **given_: Any) -> list[tuple[int, int, bytes]]:
    found = []
    async for each, _, entries in batches(store, options(**given_), part):
        found += [(each.ledger, entry, data) for entry, data in enumerate(entries, entries.first)]
    return found


async def test_what_is_gone_is_told_or_left_out() -> None:
    async with Cluster(3) as cluster:
        store = await cluster.connect()
        one, two, three = [await written(store) for _ in range(3)]
        for bookie in cluster.bookies.values():
            for entry in (0, 41, 42, 299):
                del bookie.entries[one, entry]
            bookie.entries[one, 77] = bookie.entries[one, 77][:-1] + b"!"
        await store.delete_ledger(two)
        part = [Range(one, 0, 0, 99), Range(one, 0, 200, 299), Range(two, 0, 0, 299), Range(three, 0, 5, 6)]
        with pytest.raises(
            errors.NoSuchEntryError, match=r"does not have the entry.*\. Set option failOnDataLoss to false"
        ):
            await read(store, part, ledger=one)
        with pytest.raises(errors.NoSuchLedgerError, match=rf"there is no ledger {two}\. Set option failOnDataLoss"):
            await read(store, part[2:], ledger=two)
        gone = {0, 41, 42, 77, 299}
        kept = [(one, entry, DATA[entry]) for entry in (*range(100), *range(200, 300)) if entry not in gone]
        assert await read(store, part, ledger=one, failOnDataLoss=False) == [
            *kept,
            (three, 5, DATA[5]),
            (three, 6, DATA[6]),
        ]


async def test_bookies_that_are_asked_for_too_much_are_asked_again_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WAITS", (0.01, 0.02, 0.02))
    async with Cluster(3) as cluster:
        store = await cluster.connect()
        ledger = await written(store)
        ahead: list[int] = []
        opened = store.open_ledger
        refuses: Callable[[int], bool] = lambda entry_id: len(ahead) < 3  # noqa: E731
        for bookie in cluster.bookies.values():
            bookie.refuses_reads = lambda request: refuses(request.entry_id)

        def opens(*which: Any, **how: Any) -> Any:
            ahead.append(how["prefetch"])
            return opened(*which, **how)

        monkeypatch.setattr(store, "open_ledger", opens)
        everything = [(ledger, entry, data) for entry, data in enumerate(DATA)]
        assert await read(store, [Range(ledger, 0, 0, 299)], ledger=ledger) == everything
        assert ahead == [9000, 4500, 2250], (
            "fewer than BookKeeper's bookies bear of one reader, and then half as many each time"
        )
        ahead.clear()
        refuses = lambda entry_id: entry_id >= 30 * len(ahead)  # noqa: E731
        assert await read(store, [Range(ledger, 0, 0, 299)], ledger=ledger) == everything, (
            "as long as it goes on, it is tried on"
        )
        refuses = lambda entry_id: True  # noqa: E731
        with pytest.raises(errors.ReadError, match="too few bookies"):
            await read(store, [Range(ledger, 0, 0, 299)], ledger=ledger)


async def test_the_driver_plans_what_is_confirmed_and_wanted() -> None:
    async with Cluster(3) as cluster:
        store = await cluster.connect()
        closed = await written(store)
        opened = await store.create_ledger(explicit_lac_interval=0)
        await opened.append_many(DATA[:40])
        await opened.append_many(DATA[40:50])
        empty = await store.create_ledger()
        await empty.close()

        async def entries(which: Wanted = ANY, of: Wanted = ANY, **given_: Any) -> dict[int, list[int]]:
            found: dict[int, list[int]] = {}
            for part in await batch(store, options(**given_), which, of):
                for each in part:
                    found.setdefault(each.ledger, []).extend(range(each.first, each.last + 1))
            return found

        found = await entries(ledgers="0-")
        confirmed = found[opened.id][-1]
        assert found == {closed: [*range(300)], opened.id: [*range(confirmed + 1)]} and confirmed < 49, (
            "not what only its writer knows"
        )
        assert await entries(ledger=closed, endingOffsets=f'{{"{closed}": 7}}') == {closed: [*range(7)]}
        assert await entries(ledgers="0-", startingOffsets="latest") == {}
        assert await entries(Wanted(among=frozenset([closed])), Wanted(298), ledgers="0-") == {closed: [298, 299]}
        same = dict.fromkeys(("startingOffsets", "endingOffsets"), f'{{"{closed}": 7}}')
        assert await entries(ANY, ANY, ledgers="0-", **same, failOnDataLoss=False) == {
            opened.id: [*range(confirmed + 1)]
        }
        says = f"option startingOffsets is entry 8 of ledger {closed}, behind endingOffsets, entry 7: begin where the"
        with pytest.raises(OptionError, match=says):
            await entries(ANY, ANY, ledgers="0-", **{**same, "startingOffsets": f'{{"{closed}": 8}}'})
        for name, text in (("startingOffsets", 301), ("endingOffsets", 301)):
            with pytest.raises(
                OptionError,
                match=f"option {name} has entry 301 of ledger {closed}, of which the entries before 300 can be read",
            ):
                await entries(ANY, ANY, **{"ledger": closed, name: f'{{"{closed}": {text}}}'})


@pytest.mark.parametrize("max_bytes", [1, 50, 333, 10**6])
async def test_batches_of_a_stream_have_as_many_bytes_as_they_may(max_bytes: int) -> None:
    async with Cluster(3) as cluster:
        store = await cluster.connect()
        looked_at = Ledgers(store, options(ledgers="0-"))
        several = [await written(store) for _ in range(2)]
        available = await looked_at.available(several)
        assert available == Offsets({}, dict.fromkeys(several, 300))
        stands, batches_ = Offsets(), 0
        while stands != available:
            after = await looked_at.limited(stands, available, None, max_bytes)
            counts = {ledger: after.stop(ledger) - stands.stop(ledger) for ledger in several}
            size = sum(sum(map(len, DATA[stands.stop(ledger) : after.stop(ledger)])) for ledger in several)
            assert sum(counts.values()) > 0 and (size <= max_bytes or sum(count > 0 for count in counts.values()) == 1)
            if size > max_bytes:
                assert [
                    len(DATA[stands.stop(ledger) :][: counts[ledger]][-1]) for ledger in several if counts[ledger]
                ] != [0]
            stands, batches_ = after, batches_ + 1
            if max_bytes < 50 and batches_ > 10:
                break
        assert max_bytes < 10**6 or batches_ == 1
        await looked_at.close()
