"""``kill -9`` at each write of an offload and of a log's deletion, and object stores that fail: nothing is lost, no
half object is taken for a whole one, and no object is left that is not found again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from log import dying
from log.standing_logs import Standing, contents, standing
from log.test_log_offload import named
from object_stores import ObjectStore

from fencepost.errors import FencepostError, SystemFailure
from fencepost.files.storage import Storage, open_storage
from fencepost.ledger.archive import exporting
from fencepost.ledger.errors import BadVersionError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.log import offload
from fencepost.log.chain import Chain
from fencepost.log.errors import NoSuchLogError
from fencepost.log.log import Log
from fencepost.log.metadata import Attempt, LogNodes, names
from fencepost.log.offload import ABANDONED, orphans
from fencepost.protocols.log.offload import LogOffload, Node, Object
from fencepost.semantics import Stepper
from fencepost.semantics.state import State

if TYPE_CHECKING:
    from s3_server import S3Server

AT_ONCE = timedelta(0)
ENTRIES = [b"entry %d" % number for number in range(8)]

LOCAL = (("folder", False), ("folder", True))
REMOTE = tuple(pytest.param("s3", half, marks=pytest.mark.campaign) for half in (False, True))
"""Object stores, and whether a process is killed within a write rather than before it."""


async def filled(cluster: Standing, name: str) -> Log:
    """A log of four ledgers."""
    log = await cluster.new_log(name)
    async with log.writer(ledger_entries=2) as writer:
        await writer.append_many(ENTRIES)
    return log


class Dying:
    """Runs commands that kill themselves."""

    def __init__(self, process: asyncio.subprocess.Process, uri: str) -> None:
        self._process = process
        self._uri = uri

    async def dies(self, at: int, half: bool, *command: str) -> bool:
        """Run ``fencepost log`` with this command. Returns whether it reached its death."""
        asked = {
            "at": at,
            "half": half,
            "command": ["log", *command],
            "environment": {
                "FENCEPOST_METADATA": self._uri,
                **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
            },
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        status = int(await self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL), status
        return status != 0


@asynccontextmanager
async def dying_commands(cluster: Standing) -> AsyncIterator[Dying]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        dying.__file__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None and await process.stdout.readline() == b"ready\n"
        yield Dying(process, cluster.uri)
    finally:
        process.kill()
        await process.wait()


async def settled(log: Log, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day later, the next offload leaves only objects that the list names."""
    with monkeypatch.context() as patch:
        later = offload.clock() + 2 * ABANDONED
        patch.setattr(offload, "clock", lambda: later)
        await log.offload(objects.to, keep=2, grace=AT_ONCE)
    chain = await log.chain()
    assert objects.objects() == named(chain) and len(chain.offloads) == 2
    assert {each.name for each in await log._nodes.attempts()} == named(chain)
    assert await orphans(log.store.metadata, objects.to) == []
    assert await contents(log) == ENTRIES


@pytest.mark.parametrize(("objects", "half"), [*LOCAL, ("s3", True), REMOTE[0]], indirect=["objects"])
async def test_an_offload_that_is_killed_loses_nothing(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    async with dying_commands(cluster) as commands:
        for at in itertools.count():
            log = await filled(cluster, f"log{at}")
            was_killed = await commands.dies(
                at, half, "offload", log.name, "--to", objects.to, "--keep", "2", "--grace", "0.001"
            )
            assert await contents(log) == ENTRIES, at
            chain = await log.chain()
            assert named(chain) <= objects.objects()
            await log.offload(objects.to, keep=2, grace=AT_ONCE)
            assert await contents(log) == ENTRIES, at
            await settled(log, objects, monkeypatch)
            await log.delete()
            assert objects.objects() == set()
            if not was_killed:
                break
        assert at >= 10  # five writes for each of two ledgers


@pytest.mark.parametrize(("objects", "half"), [*LOCAL, *REMOTE], indirect=["objects"])
async def test_a_deletion_of_a_log_that_is_killed_leaves_no_object(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    """The log has objects that its list names, one of an offload that was killed, and one without a record."""
    async with dying_commands(cluster) as commands:
        for at in itertools.count():
            log = await filled(cluster, "log")
            await log.offload(objects.to, keep=3, grace=AT_ONCE)
            assert await commands.dies(4, False, "offload", log.name, "--to", objects.to, "--keep", "2")
            chain = await log.chain()
            ledger = chain.links[1].ledger
            (known,) = objects.objects() - named(chain)
            assert known.startswith(f"{ledger}-")
            (path, *_) = objects.paths()
            objects.write(f"{path.rsplit('/', 2)[0]}/{ledger}-1/file", b"x")
            was_killed = await commands.dies(at, half, "delete", log.name, "--yes")
            with suppress(NoSuchLogError):
                await log.delete()
            assert objects.objects() == set(), at
            assert await orphans(log.store.metadata, objects.to) == []
            assert [each async for each in log.store.list_ledgers()] == []
            if not was_killed:
                break
        assert at >= 12


async def test_an_offload_that_a_deletion_overtakes_leaves_nothing(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is deleted before some access of the offload to it; first, before the manifest is written. At last, the
    deletion has read the records before the offload writes its own.
    """
    copy = exporting.copy

    async def nothing(*_: Any) -> set[int]:
        return set()

    for at, sees_it in [*((each, True) for each in range(8)), (4, False)]:
        log = await filled(cluster, "log")
        other = (await cluster.connect()).log("log")
        left = at - 1

        def overtaken(real: Any, log: Log = log, other: Log = other) -> Any:
            async def planted(self: LogNodes, *arguments: Any) -> Any:
                nonlocal left
                if self.client is log.store.metadata:
                    left -= 1
                    if left == -1:
                        await other.delete()
                return await real(self, *arguments)

            return planted

        async def copied(*arguments: Any, other: Log = other) -> None:
            await copy(*arguments)
            await other.delete()

        with monkeypatch.context() as patch:
            for name in ("create_attempt", "attempt", "read", "write"):
                patch.setattr(LogNodes, name, overtaken(getattr(LogNodes, name)))
            if not at:
                patch.setattr(offload, "copy", copied)
            if not sees_it:
                patch.setattr(offload.Offloads, "remove_all", nothing)
            with pytest.raises((NoSuchLogError, BadVersionError, SystemFailure)):
                await log.offload(objects.to, keep=3, grace=AT_ONCE)
        assert objects.objects() == set() and await orphans(log.store.metadata, objects.to) == [], at
        assert await names(log.store.metadata) == [], at


async def test_an_offload_that_overtakes_a_deletion_leaves_nothing(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offload writes its object after the deletion has removed what there was of it, and before the record goes."""
    copy, delete_attempt, write = exporting.copy, LogNodes.delete_attempt, LogNodes.write
    log = await filled(cluster, "log")
    other = (await cluster.connect()).log("log")
    has_begun, is_removed, is_updating, is_forgotten, is_named, is_over = (asyncio.Event() for _ in range(6))

    async def reached(event: asyncio.Event) -> None:
        """Wait for the offload to come there, or to end."""
        waiting = asyncio.ensure_future(event.wait())
        await asyncio.wait((waiting, offloading), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def copied(*arguments: Any) -> None:
        has_begun.set()
        await is_removed.wait()
        await copy(*arguments)

    async def forgetting(self: LogNodes, attempt: Attempt) -> None:
        if self.client is other.store.metadata:
            is_removed.set()
            await reached(is_updating)
        await delete_attempt(self, attempt)
        if self.client is other.store.metadata:
            is_forgotten.set()
            await reached(is_named)

    async def writing(self: LogNodes, chain: Any, version: int) -> int:
        if self.client is other.store.metadata:
            return await write(self, chain, version)
        is_updating.set()
        await is_forgotten.wait()
        made = await write(self, chain, version)
        is_named.set()
        await is_over.wait()
        return made

    monkeypatch.setattr(offload, "copy", copied)
    monkeypatch.setattr(LogNodes, "delete_attempt", forgetting)
    monkeypatch.setattr(LogNodes, "write", writing)
    offloading = asyncio.ensure_future(log.offload(objects.to, keep=3))
    await has_begun.wait()
    await other.delete()
    is_over.set()
    with suppress(FencepostError):
        await offloading
    assert objects.objects() == set() and await orphans(log.store.metadata, objects.to) == []
    assert await names(log.store.metadata) == []


async def test_what_is_recorded_during_a_deletion_goes_with_it(
    cluster: Standing, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offload and a writer of batches have recorded what they made, and are killed, before the log's node goes. So
    is one whose record nobody can read.
    """
    delete = LogNodes.delete
    log = await filled(cluster, "log")
    later = iter([True])

    async def planted(nodes: LogNodes, chain: Chain, **options: Any) -> bool:
        if next(later, False):
            ledger = await log.batches("nightly").create_ledger(1)
            await ledger.close()
            cluster_id = await log.store.metadata.instance_id()
            place = open_storage(objects.to).below(f"{cluster_id}/log/7-1").place
            await nodes.create_attempt(Attempt(7, 1, place, 0))
            objects.write(f"{cluster_id}/log/7-1/file", b"x")
            await log.store.metadata.create_node("logs/log/pending/nightly/unreadable", b"x")
        return await delete(nodes, chain, **options)

    monkeypatch.setattr(LogNodes, "delete", planted)
    assert await log.delete() == 4
    assert objects.objects() == set()
    assert [each async for each in log.store.list_ledgers()] == []
    assert await names(log.store.metadata) == []


async def test_a_deletion_takes_the_steps_of_its_protocol(
    tmp_path: Path, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offloader has begun, and a stray is left. What the deletion asks of the services, in its order, is a behaviour
    of the protocol.
    """
    steps: list[str] = []

    def told(owner: Any, name: str, step: Callable[..., str | None]) -> None:
        real = getattr(owner, name)

        def tell(*arguments: Any) -> None:
            if (taken := step(*arguments)) is not None:
                steps.append(taken)

        async def told_async(*arguments: Any, **options: Any) -> Any:
            tell(*arguments)
            return await real(*arguments, **options)

        def told_plainly(*arguments: Any) -> Any:
            tell(*arguments)
            return real(*arguments)

        monkeypatch.setattr(owner, name, told_async if asyncio.iscoroutinefunction(real) else told_plainly)

    def reads(*_: Any) -> str | None:  # others belong to the next write
        return "deleter_reads_list" if steps[-1:] == ["deleter_seals"] else None

    def reads_records(*_: Any) -> str:
        return "deleter_removes_strays" if steps[-1] == "deleter_lists_objects" else "deleter_reads_records"

    def removes(storage: Storage) -> str | None:
        is_stray = storage.place.partition("?")[0].endswith("-9")
        return None if is_stray else "deleter_removes_object"

    def writes(_: Any, chain: Any, __: int) -> str:
        assert chain.sealed
        return "deleter_seals"

    async with standing(tmp_path) as cluster:
        log = await cluster.new_log("log")
        store = log.store
        async with log.writer() as writer:
            await writer.append(b"one")
        (link,) = (await log.chain()).links
        cluster_id = await store.metadata.instance_id()
        for number in (1, 9):
            objects.write(f"{cluster_id}/log/{link.ledger}-{number}/file", b"x")
        place = open_storage(objects.to).below(f"{cluster_id}/log/{link.ledger}-1").place
        await log._nodes.create_attempt(Attempt(link.ledger, 1, place, 0))
        folder = type(open_storage(objects.to))
        told(LogNodes, "write", writes)
        told(LogNodes, "read", reads)
        told(LogNodes, "trims", lambda *_: "deleter_reads_trims")
        told(MetadataClient, "delete_ledger", lambda *_: "deleter_deletes_ledger")
        told(LogNodes, "attempts", reads_records)
        told(LogNodes, "withdraw_attempt", lambda *_: "deleter_withdraws")
        told(folder, "names", lambda *_: "deleter_lists_objects")
        told(folder, "delete", removes)
        told(LogNodes, "delete_attempt", lambda *_: "deleter_removes_record")
        told(LogNodes, "delete", lambda *_: "deleter_deletes_node")
        await log.delete()
    assert steps.count("deleter_removes_strays") == 1 and len(steps) == 11
    for each, following in (
        ("deleter_deletes_ledger", "deleter_reads_records"),
        ("deleter_removes_object", "deleter_deletes_node"),
    ):
        steps.insert(steps.index(following), each)  # the protocol finds that there is none left
    last = taken([*BEFORE_DELETION, *steps])
    assert last and all(each["node"] is Node.DELETED and {*each["objects"].values()} == {Object.NONE} for each in last)


BEFORE_DELETION = (
    *("offloader_begins", "offloader_records", "sweeper_withdraws", "sweeper_raises_version", "sweeper_removes_object"),
    *("offloader_writes", "offloader_crashes", "sweeper_removes_record"),  # a stray
    *("offloader_begins", "offloader_records", "offloader_writes"),
)


def taken(actions: Iterable[str]) -> list[Any]:
    """The variables of the states of the protocol to which these actions lead, in this order."""
    stepper = Stepper(LogOffload(offloaders=1, deleters=1))
    states = {each.ids for each in stepper.initial_states()}
    for action in actions:
        roots = [root for root in stepper.of_kind("action") if root.name == action]
        states = {
            stepper.apply(ids, outcome) for ids in states for root in roots for outcome in stepper.outcomes(root, ids)
        }
        assert states, action
    return [State(stepper.store, ids).variables() for ids in states]


async def test_orphans_are_found_and_nothing_else(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster, "kept")
    await log.offload(objects.to, keep=2, grace=AT_ONCE)
    (folder,) = {path.rsplit("/", 3)[0] for path in objects.paths()}
    for stray in ("deleted/7-1", "kept/7-1", "kept/notes", ".notes/7-1"):
        objects.write(f"{folder}/{stray}/file", b"x")
    objects.write("another-cluster/kept/7-1/file", b"x")
    await log._nodes.create_attempt(Attempt(9, 9, open_storage(objects.to).below(f"{folder}/kept/9-9").place, 0))
    objects.write(f"{folder}/kept/9-9/file", b"x")
    before = objects.paths()
    assert await orphans(log.store.metadata, objects.to) == ["deleted/7-1", "kept/7-1"]
    assert objects.paths() == before
    assert await orphans(log.store.metadata, objects.to, remove=True) == ["deleted/7-1", "kept/7-1"]
    gone = {f"{folder}/deleted/7-1/file", f"{folder}/kept/7-1/file"}
    assert objects.paths() == [path for path in before if path not in gone]
    assert await contents(log) == ENTRIES


async def test_bookies_keep_a_ledger_whose_object_is_gone(cluster: Standing, objects: ObjectStore) -> None:
    log = await filled(cluster, "log")
    await log.offload(objects.to, keep=2)
    chunk = next(path for path in objects.paths() if path.endswith(".entries"))
    whole = objects.read(chunk)
    ledger = int(chunk.split("/")[-2].partition("-")[0])
    for damaged in (whole[:-1], None):
        objects.put(chunk, damaged)
        with pytest.raises(SystemFailure, match=rf"were written\. The bookies keep ledger {ledger}: bring the"):
            await log.offload(objects.to, keep=2, grace=AT_ONCE)
        assert await contents(log) == ENTRIES
    objects.write(chunk, whole)
    assert len((await log.offload(objects.to, keep=2, grace=AT_ONCE)).deleted) == 2
    assert await contents(log) == ENTRIES


@pytest.mark.parametrize(("kind", "after"), [("error", 1), ("kill", 1)])
async def test_an_object_store_that_fails_during_an_upload_loses_nothing(
    cluster: Standing, s3: S3Server, monkeypatch: pytest.MonkeyPatch, kind: str, after: int
) -> None:
    await failing(cluster, s3, monkeypatch, kind, after)


@pytest.mark.campaign
@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("kind", ["error", "cut", "kill"])
async def test_an_object_store_that_fails_anywhere_loses_nothing(
    cluster: Standing, s3: S3Server, monkeypatch: pytest.MonkeyPatch, kind: str, after: int
) -> None:
    await failing(cluster, s3, monkeypatch, kind, after)


async def failing(cluster: Standing, s3: S3Server, monkeypatch: pytest.MonkeyPatch, kind: str, after: int) -> None:
    objects = ObjectStore(s3.url(f"{cluster.folder.name}-{kind}-{after}"))
    log = await filled(cluster, "log")
    s3.fail(kind, after)
    with suppress(SystemFailure):  # enough changes may have been made before
        await log.offload(objects.to, keep=2)
    if kind == "kill":
        s3.wait()
        s3.start()
    s3.work()
    assert await contents(log) == ENTRIES
    is_empty = kind == "kill"  # the server's memory is gone, with what the list names
    if not is_empty:
        assert named(await log.chain()) <= objects.objects()
    if is_empty and (await log.chain()).offloads:
        with pytest.raises(SystemFailure, match="The bookies keep ledger"):
            await log.offload(objects.to, keep=2, grace=AT_ONCE)
    else:
        await settled(log, objects, monkeypatch)
    assert await contents(log) == ENTRIES
