"""Queries of offloaded ledgers, from a folder and from an S3 server: the driver's part and the executors', without
Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from log.standing_logs import Standing, standing
from object_stores import ObjectStore

from fencepost.errors import SystemFailure
from fencepost.ledger.archive import layout
from fencepost.ledger.client.connection import _Link
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.errors import NoSuchEntryError, NoSuchLedgerError, UnauthorizedAccessError
from fencepost.log import objects as in_objects
from fencepost.log import offload
from fencepost.log.chain import Position
from fencepost.log.log import Log
from fencepost.spark.ledgers import reading
from fencepost.spark.ledgers.filters import ANY
from fencepost.spark.ledgers.logs import Log as LogQuery
from fencepost.spark.ledgers.logs import LogOffset, batch
from fencepost.spark.ledgers.options import ReadOptions, parse
from fencepost.spark.ledgers.parts import Range

AT_ONCE = timedelta(0)
ENTRIES = [b"entry %d" % number * (1 + number % 4) for number in range(40)]
PER_LEDGER = 8


async def filled(made: Standing, password: bytes = b"") -> tuple[Log, list[Position]]:
    """A log of five ledgers."""
    log = (await made.connect()).log("orders", password=password)
    await log.create()
    async with log.writer(ledger_entries=PER_LEDGER) as writer:
        return log, await writer.append_many(ENTRIES)


def options(made: Standing, **more: Any) -> ReadOptions:
    return parse({"metadata": made.uri, "log": "orders", **more})


async def planned(log: Log, query: ReadOptions) -> list[tuple[Range, ...]]:
    return await batch(log.store, query, ANY, ANY)


async def rows(log: Log, query: ReadOptions, parts: Sequence[Sequence[Range]]) -> list[tuple[Any, ...]]:
    """What executors read: ledger, entry, LAC, length and framed data of each entry."""
    found = []
    for part in parts:
        async for each, metadata, entries in reading.batches(log.store, query, part):
            assert metadata.last_entry == PER_LEDGER - 1
            assert entries.lacs is not None and entries.lengths is not None
            found += [
                (each.ledger, entry, lac, length, data)
                for entry, lac, length, data in zip(entries.ids, entries.lacs, entries.lengths, entries, strict=True)
            ]
    return found


async def test_rows_are_those_of_the_bookies(
    made: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "CHUNK", 150)  # some chunks in each ledger
    log, places = await filled(made)
    after = []
    some = {"startingOffsets": str(places[11]), "endingOffsets": str(places[30])}
    for bounds in ({}, {"maxBytesPerPartition": "200"}, {"maxBytesPerPartition": "200", **some}):
        query = options(made, **bounds)
        before = await rows(log, query, await planned(log, query))
        wanted = [(each.ledger, each.entry) for each in (places[11:30] if len(bounds) > 1 else places)]
        assert [each[:2] for each in before] == wanted
        after.append((query, before))
    await log.offload(objects.to, keep=1, grace=AT_ONCE)
    for query, before in after:
        assert await rows(log, query, await planned(log, query)) == before


async def test_no_entry_goes_through_the_driver_and_bookies_are_not_asked(
    made: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, places = await filled(made)
    query = options(made, endingOffsets=f"{places[-1].ledger}:0")
    await log.offload(objects.to, keep=1, grace=AT_ONCE)
    store = await made.connect()
    with monkeypatch.context() as patch:
        for owner, name in ((layout, "read_chunk"), (_Link, "buffer_updated")):
            patch.setattr(owner, name, _never)
        parts = await batch(store, query, ANY, ANY)
    with monkeypatch.context() as patch:
        patch.setattr(_Link, "buffer_updated", _never)
        found = [len(entries) for part in parts async for _, _, entries in reading.batches(store, query, part)]
    assert sum(found) == 4 * PER_LEDGER


def _never(*_: object) -> None:
    raise AssertionError("this is not asked")


@pytest.mark.parametrize("fail", ["true", "false"])
async def test_ledgers_that_leave_the_bookies_during_a_query_are_found_in_their_objects(
    made: Standing, objects: ObjectStore, fail: str
) -> None:
    """Once they are not among the ledgers any more, and once no bookie answers."""
    log, places = await filled(made)
    query = options(made, failOnDataLoss=fail, endingOffsets=f"{places[-1].ledger}:0")
    parts = await planned(log, query)
    before = await rows(log, query, parts)
    await log.offload(objects.to, keep=3, grace=AT_ONCE)
    assert await rows(log, query, parts) == before
    await log.offload(objects.to, keep=1)  # bookies should have two of these ledgers
    assert len(await log.store.metadata.missing([*{each.ledger for each in places}])) == 2
    for each in made.bookies:
        await each.end()
    assert await rows(log, query, parts) == before


@pytest.mark.parametrize("fail", ["true", "false"])
async def test_entries_that_bookies_lack_come_from_the_object(
    made: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """Bookies lose a ledger while it is read."""
    log, places = await filled(made)
    query = options(made, failOnDataLoss=fail)
    parts = await planned(log, query)
    before = await rows(log, query, parts)
    await log.offload(objects.to, keep=1)
    read = LedgerReader.read_batches

    async def loses(self: LedgerReader, first: int, last: int) -> Any:
        if self.id == places[-1].ledger:
            async for each in read(self, first, last):
                yield each
            return
        async for each in read(self, first, first):
            yield each
        raise NoSuchEntryError("no bookie has it")

    monkeypatch.setattr(LedgerReader, "read_batches", loses)
    assert await rows(log, query, parts) == before


async def test_what_is_wrong_with_an_object_is_said(made: Standing, objects: ObjectStore) -> None:
    log, places = await filled(made)
    await log.offload(objects.to, grace=AT_ONCE)
    query = options(made, failOnDataLoss="false")  # damage is never skipped
    parts = await planned(log, query)
    first = f"{places[0].ledger}-"
    chunk, manifest = (path for path in objects.paths() if path.split("/")[-2].startswith(first))
    whole, described = objects.read(chunk), objects.read(manifest)

    async def says(what: str) -> None:
        with pytest.raises(SystemFailure, match=what) as failed:
            await rows(log, query, parts)
        assert "endpoint_override" not in str(failed.value)

    for changed in range(0, len(whole), 7):
        objects.write(chunk, whole[:changed] + bytes([whole[changed] ^ 1]) + whole[changed + 1 :])
        await says(r"ledger-\d+-\d+\.entries is damaged: it is not what was written")
    objects.write(chunk, whole[:-1])
    await says(rf"entries is damaged: it has {len(whole) - 1} bytes, and {len(whole)} were written")
    objects.remove(chunk)
    await says(r"entries is missing")
    objects.write(chunk, whole)
    objects.write(manifest, described[:40] + bytes([described[40] ^ 1]) + described[41:])
    await says(r"json is damaged: it is not what was written")
    objects.remove(manifest)
    await says(rf"json is missing: ledger {places[0].ledger} was offloaded there")
    with pytest.raises(SystemFailure, match="is missing"):
        await planned(log, query)
    objects.write(manifest, described)
    assert len(await rows(log, query, parts)) == len(ENTRIES)


async def test_a_trimmed_ledger_is_gone_and_another_password_is_refused(made: Standing, objects: ObjectStore) -> None:
    log, places = await filled(made, password=b"secret")
    query = options(made, password="secret")
    await log.offload(objects.to, keep=2, grace=AT_ONCE)
    parts = await planned(log, query)
    with pytest.raises(UnauthorizedAccessError, match="the password is not that of ledger"):
        await planned(log, options(made))
    await log.trim(keep=3)
    with pytest.raises(NoSuchLedgerError, match="Set option failOnDataLoss to false"):
        await rows(log, query, parts)
    left = await rows(log, options(made, password="secret", failOnDataLoss="false"), parts)
    assert [each[0] for each in left] == [each.ledger for each in places[16:]]


@pytest.mark.parametrize("most", [1, 37, 100, 250, 10_000])
async def test_batches_of_a_stream_are_limited_by_what_the_manifest_says(
    made: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """The lengths within a chunk are estimated; with a chunk for each entry they are exact."""
    monkeypatch.setattr(offload, "CHUNK", 1)

    async def ends(log: Log, query: ReadOptions, **limits: int | None) -> list[LogOffset]:
        of = LogQuery(log.store, query)
        offsets = [await of.start()]
        while (after := await of.after(offsets[-1], None, limits.get("entries"), limits.get("bytes"))) != offsets[-1]:
            offsets.append(after)
        await of.ledgers.close()
        return offsets

    log, places = await filled(made)
    query = options(made)
    by_entries, by_bytes = await ends(log, query, entries=most), await ends(log, query, bytes=most)
    await log.offload(objects.to, grace=AT_ONCE)
    monkeypatch.setattr(layout, "read_chunk", _never)
    assert await ends(log, query, entries=most) == by_entries
    assert await ends(log, query, bytes=most) == by_bytes


async def test_lengths_are_estimated_between_the_beginnings_of_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 120, 1 << 24):
        monkeypatch.setattr(offload, "CHUNK", size)
        async with standing(tmp_path / f"cluster{size}") as made:
            log, places = await filled(made)
            await log.offload(str(tmp_path / f"objects{size}"), grace=AT_ONCE)
            for ledger in {each.ledger for each in places[: 4 * PER_LEDGER]}:
                opened = await in_objects.object_of(log._nodes, ledger, b"")
                assert opened is not None
                found = [opened.length_before(entry) for entry in range(PER_LEDGER + 1)]
                assert found == sorted(found) and found[0] == 0 and found[-1] == opened.metadata.length
                starts = [each.first_entry_id for each in opened.metadata.fragments]
                entries = {
                    entry: length
                    async for each in opened.read_batches(0, PER_LEDGER - 1)
                    for entry, length in zip(each.ids, each.lengths or (), strict=True)
                }
                assert [found[each] for each in starts[1:]] == [entries[each - 1] for each in starts[1:]]
