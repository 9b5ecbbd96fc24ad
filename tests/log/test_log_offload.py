"""Ledgers of a log move to an object store: real bookies, real files, several offloaders, and an end at every write."""

from __future__ import annotations

import asyncio
import itertools
import posixpath
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from log.standing_logs import Standing, contents
from msgspec import structs
from object_stores import ObjectStore

from fencepost.errors import OptionError, SystemFailure
from fencepost.files.digest import digest
from fencepost.files.storage import Remote, Storage, open_storage
from fencepost.ledger.archive import layout
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.errors import BadVersionError, DigestMismatchError, ReadError, UnauthorizedAccessError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.log import offload
from fencepost.log.chain import Position
from fencepost.log.errors import LogTrimmedError, MissingLedgerError
from fencepost.log.log import Log
from fencepost.log.metadata import Attempt, LogNodes
from fencepost.log.objects import manifest_in
from fencepost.log.offload import ABANDONED, Offloads

AT_ONCE = timedelta(0)
ENTRIES = [b"entry %d" % number for number in range(10)]


class Cut(BaseException):
    """The process ends here."""


async def filled(cluster: Standing, name: str = "moved", password: bytes = b"", **more: Any) -> Log:
    """A log of ten entries in five ledgers."""
    log = (await cluster.connect()).log(name, password=password)
    await log.create(**more)
    async with log.writer(ledger_entries=2) as writer:
        for entry in ENTRIES:
            await writer.append(entry)
    return log


async def on_bookies(log: Log) -> list[int]:
    return [ledger async for ledger in log.store.list_ledgers()]


def named(chain: Any) -> set[str]:
    return {f"{each.ledger}-{each.attempt}" for each in chain.offloads}


async def test_a_log_is_read_from_bookies_and_objects_alike(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    to = objects.to
    ledgers = [link.ledger for link in (await log.chain()).links]
    before = [(entry.position, entry.data, entry.time) async for entry in log.reader(follow=False)]
    done = await log.offload(to, keep=2, grace=timedelta(hours=1))
    assert (done.ledgers, done.entries, done.deleted, done.removed) == (tuple(ledgers[:3]), 6, (), 0)
    assert await on_bookies(log) == ledgers, "bookies keep them for a while"
    done = await log.offload(to, keep=2, grace=AT_ONCE)
    assert (done.ledgers, done.deleted) == ((), tuple(ledgers[:3]))
    assert await on_bookies(log) == ledgers[3:]
    after = [(entry.position, entry.data, entry.time) async for entry in log.reader(follow=False)]
    assert after == before
    for position, data, time in before:
        assert await anext(aiter(log.reader(position, follow=False)))
        found = await log.find(time)
        assert before.index((position, data, time)) >= [each[0] for each in before].index(found)
    view = await log.show()
    assert view.missing == () and [each.ledger for each in view.chain.offloads] == ledgers[:3]
    assert objects.objects() == named(view.chain)
    async with log.writer() as writer:
        await writer.append(b"more")
    assert await contents(log) == [*ENTRIES, b"more"]
    assert (await log.chain()).offloads == view.chain.offloads, "a writer's updates keep them"


async def test_bytes_before_the_first_wanted_entry_of_a_chunk_are_skipped(
    cluster: Standing, objects: ObjectStore
) -> None:
    log = await filled(cluster)
    ledger = (await log.chain()).links[0].ledger
    await log.offload(objects.to, grace=AT_ONCE)
    assert await contents(log, at=Position(ledger, 1)) == ENTRIES[1:]
    packed = [batch.frames.packed() async for batch in log.reader(Position(ledger, 1), follow=False).read_batches()]
    assert b"".join(bytes(data) for data, _ in packed) == b"".join(ENTRIES[1:])


async def test_a_ledger_of_many_chunks_is_copied(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offload, "CHUNK", 1)
    log = await filled(cluster)
    await log.offload(objects.to, grace=AT_ONCE)
    assert len([path for path in objects.paths() if path.endswith(".entries")]) == 8
    assert await contents(log) == ENTRIES


# -- readers ----------------------------------------------------------------------------------------------------------


async def test_a_reader_goes_on_when_its_ledgers_move(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    for taken in range(1, 8):
        reader = log.reader(follow=False)
        entries = aiter(reader)
        found = [(await anext(entries)).data for _ in range(taken)]
        await log.offload(objects.to, keep=max(1, 5 - taken), grace=AT_ONCE)
        found += [entry.data async for entry in entries]
        assert found == ENTRIES, taken


async def test_a_reader_that_has_an_old_list_reads_it_again(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(cluster)
    time = [entry.time async for entry in log.reader(follow=False)][3]
    old = (await log.chain(), 0)
    read = LogNodes.read
    await log.offload(objects.to, keep=1, grace=AT_ONCE)
    for at in (None, time):
        stale = [old]

        async def reads(self: LogNodes, watch: Any = None, stale: list[Any] = stale) -> Any:
            return stale.pop() if stale else await read(self, watch)

        with monkeypatch.context() as patch:
            patch.setattr(LogNodes, "read", reads)
            found = await contents(log) if at is None else await contents(log, at=at)
        assert found == ENTRIES[len(ENTRIES) - len(found) :] and found[-7:] == ENTRIES[3:]


async def test_a_reader_reads_from_the_object_what_bookies_cannot_give_now(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(self: LedgerReader, first: int = 0) -> Any:
        raise ReadError("no bookie answers")
        yield

    log = await filled(cluster)
    await log.offload(objects.to, keep=1)
    monkeypatch.setattr(LedgerReader, "tail_batches", failing)
    entries = aiter(log.reader())
    assert [(await anext(entries)).data for _ in range(8)] == ENTRIES[:8]
    with pytest.raises(ReadError, match="no bookie answers"):
        await anext(entries)


async def test_what_is_wrong_with_an_object_is_said(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    await log.offload(objects.to, grace=AT_ONCE)
    first = f"{(await log.chain()).links[0].ledger}-"
    chunk, manifest = (path for path in objects.paths() if path.split("/")[-2].startswith(first))
    whole = objects.read(chunk)
    objects.write(chunk, whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(SystemFailure, match=r"entries is damaged: it is not what was written"):
        await contents(log)
    objects.write(chunk, whole[:-1])
    with pytest.raises(SystemFailure, match=r"entries is damaged: it has [\d]+ bytes, and [\d]+ were written"):
        await contents(log)
    objects.remove(chunk)
    with pytest.raises(SystemFailure, match=r"entries is missing"):
        await contents(log)
    objects.remove(manifest)
    with pytest.raises(SystemFailure, match="is missing: ledger . was offloaded there"):
        await contents(log)


async def test_the_digest_of_each_entry_is_checked(cluster: Standing, objects: ObjectStore) -> None:
    """A chunk that agrees with its manifest may have been made of a wrong entry."""
    log = await filled(cluster)
    await log.offload(objects.to, grace=AT_ONCE)
    ledger = (await log.chain()).links[0].ledger
    (path,) = (path for path in objects.paths() if f"/{ledger}-" in path and path.endswith(".entries"))
    storage = open_storage(objects.to).below(path.rpartition("/")[0])
    manifest = manifest_in(storage, ledger)
    (chunk,) = manifest.chunks
    whole = objects.read(path)
    wrong = whole[:-1] + bytes([whole[-1] ^ 1])
    objects.write(path, wrong)
    agreeing = structs.replace(chunk, digest=digest(wrong))
    forged = structs.replace(manifest, chunks=(agreeing,))
    layout.put(storage, layout.manifest_name(ledger), layout.encoded(forged))
    with pytest.raises(DigestMismatchError, match=rf"entry 1 of ledger {ledger} in .* is damaged"):
        await contents(log)


async def test_the_password_is_asked_for(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster, password=b"secret", digest="hmac")
    await log.offload(objects.to, grace=AT_ONCE)
    assert await contents(log) == ENTRIES
    with pytest.raises(UnauthorizedAccessError, match="the password is not that of ledger"):
        await contents(log.store.log("moved", password=b"other"))  # type: ignore[attr-defined]


# -- trims and deletions ----------------------------------------------------------------------------------------------


async def test_trims_and_deletions_remove_objects(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    ledgers = [link.ledger for link in (await log.chain()).links]
    await log.offload(objects.to, keep=2, grace=AT_ONCE)
    assert await log.trim(keep=3) == tuple(ledgers[:2])
    chain = await log.chain()
    assert [each.ledger for each in chain.offloads] == ledgers[2:3]
    assert objects.objects() == named(chain)
    assert await contents(log) == ENTRIES[4:]
    with pytest.raises(LogTrimmedError):
        await contents(log, at=Position(ledgers[0], 0))
    assert await log.delete() == 3, "the object store alone had one of them"
    assert objects.objects() == set() and await on_bookies(log) == []


async def test_a_missing_ledger_is_reported_and_not_taken_for_offloaded(
    cluster: Standing, objects: ObjectStore
) -> None:
    log = await filled(cluster)
    ledgers = [link.ledger for link in (await log.chain()).links]
    await log.store.metadata.delete_ledger(ledgers[1])
    with pytest.raises(MissingLedgerError, match="trim the log past it, and offload again"):
        await log.offload(objects.to, grace=AT_ONCE)
    chain = await log.chain()
    assert [each.ledger for each in chain.offloads] == ledgers[:1]
    assert (await log.show()).missing == (ledgers[1],)


# -- several at once, and ends before their time ----------------------------------------------------------------------


async def test_several_at_once_offload_each_ledger_once(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    others = [(await cluster.connect()).log("moved") for _ in range(2)]
    done = await asyncio.gather(*(each.offload(objects.to, grace=AT_ONCE) for each in [log, *others]))
    chain = await log.chain()
    assert sorted(ledger for each in done for ledger in each.ledgers) == [each.ledger for each in chain.links[:-1]]
    assert len(chain.offloads) == 4 and await contents(log) == ENTRIES
    await log.offload(objects.to, grace=AT_ONCE)
    assert objects.objects() == named(await log.chain())
    assert {each.name for each in await LogNodes(log.store.metadata, "moved").attempts()} == named(chain)


def cutting(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """End the process before the write number ``after``, of any kind. Returns the list of the writes."""
    done: list[str] = []

    def step(kind: str) -> None:
        if len(done) == after:
            raise Cut
        done.append(kind)

    def planted(owner: Any, name: str) -> None:
        real = getattr(owner, name)
        if asyncio.iscoroutinefunction(real):

            async def cut_async(*args: Any, **more: Any) -> Any:
                step(name)
                return await real(*args, **more)

            monkeypatch.setattr(owner, name, cut_async)
            return

        def cut(*args: Any, **more: Any) -> Any:
            step(name)
            return real(*args, **more)

        monkeypatch.setattr(owner, name, cut)

    for name in ("create_node", "write_node", "delete_node", "delete_nodes", "delete_ledger"):
        planted(MetadataClient, name)
    planted(layout, "put")
    for name in ("create", "delete"):
        for kind in (Storage, Remote):
            planted(kind, name)
    return done


@pytest.mark.parametrize("what", ["offload", "trim"])
async def test_an_end_before_any_write_loses_nothing(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    kinds = set[str]()
    for number in itertools.count():
        name, place = f"log{number}", ObjectStore(open_storage(objects.to).below(str(number)).place)
        log = await filled(cluster, name)

        async def act(log: Log = log, place: ObjectStore = place) -> None:
            if what == "offload":
                await log.offload(place.to, keep=3, grace=AT_ONCE)
            else:
                await log.trim(keep=3)

        if what != "offload":
            await log.offload(place.to, keep=3, grace=AT_ONCE)
        with monkeypatch.context() as patch:
            done = cutting(patch, number)
            try:
                await act()
            except Cut:
                was_cut = True
            else:
                was_cut = False
        kinds.update(done)
        if what == "offload":
            assert await contents(log) == ENTRIES, done
        else:
            chain = await log.chain()
            assert await contents(log) == ENTRIES[2 * (5 - len(chain.links)) :], done
        if not was_cut:
            break
        await act()
        chain = await log.chain()
        assert await contents(log) == ENTRIES[0 if what == "offload" else 4 :]
        assert len(chain.offloads) == (2 if what == "offload" else 0)
        if what == "offload":
            await log.offload(place.to, keep=3, grace=AT_ONCE)
        assert place.objects() == named(chain)
        assert {each.name for each in await LogNodes(log.store.metadata, name).attempts()} == named(chain)
        await log.delete()
    assert number > 8
    if what == "offload":
        assert kinds == {"create_node", "write_node", "delete_ledger", "put", "create"}


async def test_objects_of_offloaders_that_ended_are_removed(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(cluster)
    nodes = LogNodes(log.store.metadata, "moved")
    with monkeypatch.context() as patch:
        patch.setattr(LogNodes, "write", _cut)
        with pytest.raises(Cut):
            await log.offload(objects.to)
    (orphan,) = await nodes.attempts()
    await log.trim(keep=5)
    assert objects.objects() == {orphan.name}, "its offloader may still be at work"
    now = orphan.since + ABANDONED
    monkeypatch.setattr(offload, "clock", lambda: now)
    await log.trim(keep=5)
    assert objects.objects() == {orphan.name}
    now += 1
    await log.trim(keep=5)
    assert objects.objects() == set() and await nodes.attempts() == []
    assert await contents(log) == ENTRIES


async def _cut(*_: Any) -> int:
    raise Cut


async def test_an_object_without_a_record_is_removed_and_nothing_else(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    await log.offload(objects.to, keep=3)
    kept = objects.objects()
    (folder,) = {path.rsplit("/", 2)[0] for path in objects.paths()}
    for stray in (f"{folder}/9-9", f"{folder}/notes", f"{folder}/../another/9-9"):
        objects.write(posixpath.normpath(f"{stray}/file"), b"x")
    assert (await log.offload(objects.to, keep=3)).removed == 1
    assert objects.objects() == {*kept, "notes", "9-9"} and f"{folder}/9-9/file" not in objects.paths()


async def test_a_withdrawn_offloader_gives_up(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its update is under way when somebody else withdraws its object."""
    log = await filled(cluster)
    other = (await cluster.connect()).log("moved")
    write, monitor = LogNodes.write, list[Attempt]()

    async def slow(self: LogNodes, chain: Any, version: int) -> int:
        if self.client is log.store.metadata and not monitor:
            nodes = LogNodes(other.store.metadata, "moved")
            monitor.extend(await nodes.attempts())
            assert await Offloads(other.store, nodes)._withdraw(monitor[0])
        return await write(self, chain, version)

    monkeypatch.setattr(LogNodes, "write", slow)
    done = await log.offload(objects.to, keep=3, grace=AT_ONCE)
    assert len(done.ledgers) == 1 and monitor[0].ledger not in done.ledgers
    assert monitor[0].name not in objects.objects() and await contents(log) == ENTRIES


async def test_a_withdrawal_that_comes_too_late_keeps_the_object(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    await log.offload(objects.to, keep=4, grace=AT_ONCE)
    nodes = LogNodes(log.store.metadata, "moved")
    (attempt,) = await nodes.attempts()
    assert not await Offloads(log.store, nodes)._withdraw(attempt)
    assert await contents(log) == ENTRIES
    await log.trim(keep=4)
    assert objects.objects() == set()


async def test_an_update_that_is_refused_is_tried_again(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(cluster)
    write, refused = LogNodes.write, [BadVersionError("changed")]

    async def refusing(self: LogNodes, chain: Any, version: int) -> int:
        if refused:
            raise refused.pop()
        return await write(self, chain, version)

    monkeypatch.setattr(LogNodes, "write", refusing)
    assert len((await log.offload(objects.to, keep=4)).ledgers) == 1


async def test_an_object_that_is_not_what_was_written_never_gets_into_the_list(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = layout.put

    def damages(storage: Storage, name: str, content: bytes) -> None:
        put(storage, name, content[:-1] + bytes([content[-1] ^ 1]) if name.endswith(".entries") else content)

    log = await filled(cluster)
    monkeypatch.setattr(layout, "put", damages)
    with pytest.raises(SystemFailure, match=r"\.entries is not what was written"):
        await log.offload(objects.to, grace=AT_ONCE)
    assert (await log.chain()).offloads == () and objects.objects() == set()
    assert await contents(log) == ENTRIES


# -- options ----------------------------------------------------------------------------------------------------------


async def test_a_password_in_the_url_is_refused(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster)
    with pytest.raises(OptionError, match="the URL of the object store has a password"):
        await log.offload("s3://key:secret@bucket/folder")
    wrongs: list[dict[str, Any]] = [{"before": 3, "keep": 1}, {"keep": 0}]
    for wrong in wrongs:
        with pytest.raises(OptionError):
            await log.offload(objects.to, **wrong)
    assert await log.offload(objects.to, keep=timedelta(hours=1)) == offload.Offloaded((), 0, 0, (), 0)


def test_options_of_a_url_stay_at_its_end(tmp_path: Path) -> None:
    place = "s3://bucket/folder?endpoint_override=127.0.0.1:9000&region=here&scheme=http"
    below = open_storage(place).below("a/b")
    assert below.place == "s3://bucket/folder/a/b?endpoint_override=127.0.0.1:9000&region=here&scheme=http"
    assert isinstance(below, Remote) and below.root == "bucket/folder/a/b"
    assert open_storage(tmp_path).below("a").place == str(tmp_path / "a")


async def test_an_offloader_whose_record_is_withdrawn_gives_up(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who withdrew it ended before it raised the version of the list."""
    log = await filled(cluster)
    create = LogNodes.create_attempt

    async def withdrawn(self: LogNodes, attempt: Attempt) -> bool:
        return await create(self, attempt._replace(withdrawn=True))

    monkeypatch.setattr(LogNodes, "create_attempt", withdrawn)
    assert (await log.offload(objects.to)).ledgers == ()
    assert (await log.chain()).offloads == () and objects.objects() == set()


async def test_an_object_that_is_begun_during_the_look_for_strays_stays(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await filled(cluster)
    attempts, begun = LogNodes.attempts, set[str]()
    await log.offload(objects.to, keep=4)
    (folder,) = {path.rsplit("/", 2)[0] for path in objects.paths()}

    async def then_begins(self: LogNodes) -> list[Attempt]:
        found = await attempts(self)
        name = f"9-{len(begun)}"
        await self.create_attempt(Attempt(9, len(begun), open_storage(objects.to).below(f"{folder}/{name}").place, 0))
        objects.write(f"{folder}/{name}/file", b"x")
        begun.add(name)
        return found

    monkeypatch.setattr(LogNodes, "attempts", then_begins)
    await Offloads(log.store, LogNodes(log.store.metadata, "moved")).remove_orphans(objects.to)
    assert len(begun) > 1 and begun <= objects.objects()
