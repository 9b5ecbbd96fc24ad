"""Exports closed ledgers: their entries as bookies store them, and their metadata. :mod:`.layout` has the files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from fencepost.errors import SystemFailure
from fencepost.files.digest import digest
from fencepost.files.storage import Storage
from fencepost.ledger.archive import layout
from fencepost.ledger.archive.layout import INDEX, Chunks, Index, Manifest
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.entries import Digests, header
from fencepost.ledger.errors import ReadError, Refusal
from fencepost.ledger.messages import ReadEntry, ReadEntryResponse
from fencepost.ledger.rules.metadata import IMPORTING, LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.replication import sources

CHUNK = 16 << 20
"""The bytes of entries above which a chunk is written."""
AT_ONCE = 64
"""The most entries that are read, or written, at once."""
_AHEAD = 32 << 20
"""The most bytes of entries that wait for an earlier one."""
_ROUNDS = 2
"""How often each bookie is asked for an entry."""

Report = Callable[[int, int], None]
"""Takes how many more entries were done, and their bytes."""


class Moved(NamedTuple):
    """A ledger that was exported or imported, under which number, or that was there already."""

    ledger: int
    number: int
    entries: int
    bytes: int
    was_there: bool


async def export(
    store: LedgerClient,
    ledgers: Sequence[int],
    target: Storage,
    *,
    recover: bool = False,
    report: Report = lambda entries, size: None,
    most: int = CHUNK,
) -> list[Moved]:
    """Export ledgers to a folder, which is empty or has an export of the same cluster. What it has already is kept, so
    an interrupted export goes on. ``recover``: close open ledgers first, which fences their writers off.

    Raises :class:`fencepost.SystemFailure` for the files, and :class:`Refusal` for a ledger that is not closed, before
    any is exported. Raises :class:`ReadError` if an entry has no intact copy now.
    """
    cluster = await store.metadata.instance_id()
    if target.is_remote:
        await asyncio.to_thread(target.create)
    sizes = await asyncio.to_thread(target.sizes)
    if (strange := layout.stranger(sizes)) is not None:
        raise SystemFailure(f"{target.where()} is no folder of exports, it has {strange}: name another one")
    found = await asyncio.to_thread(layout.load, target, INDEX, Index)
    known = {} if found is None else found[0].ledgers
    if found is not None and found[0].cluster != cluster:
        raise SystemFailure(f"{target.where()} has an export of the cluster {found[0].cluster}, and this is {cluster}")
    ledgers = [*dict.fromkeys(ledgers)]
    closed = {ledger: await _closed(store, ledger, recover) for ledger in ledgers}
    moved: list[Moved] = []
    for ledger, metadata in closed.items():
        described = Manifest.of(cluster, ledger, metadata)
        there = await _there(target, described, sizes)
        if there is None:
            chunks = Chunks(target, ledger, most)
            await copy(store, ledger, metadata, chunks, report)
            content = layout.encoded(msgspec.structs.replace(described, chunks=tuple(chunks.written)))
            await asyncio.to_thread(layout.put, target, layout.manifest_name(ledger), content)
            known = {**known, ledger: digest(content)}
        else:
            known = {**known, ledger: there}
        moved.append(Moved(ledger, ledger, metadata.last_entry + 1, metadata.length, there is not None))
    content = layout.encoded(Index(cluster=cluster, ledgers=dict(sorted(known.items()))))
    await asyncio.to_thread(layout.put, target, INDEX, content)
    return moved


async def _closed(store: LedgerClient, ledger: int, recover: bool) -> LedgerMetadata:
    metadata = await store.ledger_metadata(ledger)
    if IMPORTING in dict(metadata.custom_metadata):
        raise Refusal(f"ledger {ledger} is not imported to its end: complete the import, or delete it")
    if metadata.status is LedgerStatus.CLOSED:
        return metadata
    if not recover:
        raise Refusal(
            f"ledger {ledger} is not closed: close it, or give --recover, which fences off a writer that still lives"
        )
    return await store.recover_ledger(ledger, password=metadata.password or b"")


async def _there(target: Storage, described: Manifest, sizes: dict[str, int]) -> str | None:
    """The digest of the manifest, if the folder has this ledger with all its chunks."""
    try:
        found = await asyncio.to_thread(layout.load, target, layout.manifest_name(described.ledger), Manifest)
    except SystemFailure:
        return None  # damaged, and written again
    if found is None:
        return None
    manifest, sealed_as = found
    if msgspec.structs.replace(manifest, chunks=()) != described or manifest.problem:
        return None
    return sealed_as if all(sizes.get(each.name) == each.size for each in manifest.chunks) else None


async def copy(store: LedgerClient, ledger: int, metadata: LedgerMetadata, chunks: Chunks, report: Report) -> None:
    """Read all entries, check their digests, and write them in order. The memory is bounded: entries that come early
    wait for their turn, and above :data:`_AHEAD` bytes their readers wait, except for that of the next one.
    """
    waiting: dict[int, bytes] = {}
    ahead, following, length = 0, 0, 0
    turn = asyncio.Condition()
    left = iter(range(metadata.last_entry + 1))
    bodies = Bodies(store, ledger, metadata)

    async def read_on() -> None:
        nonlocal ahead, following, length
        for entry_id in left:
            body = await bodies.read(entry_id)
            async with turn:
                await turn.wait_for(lambda: entry_id == following or ahead < _AHEAD)  # noqa: B023
                waiting[entry_id] = body
                ahead += len(body)
                while (ready := waiting.pop(following, None)) is not None:
                    ahead -= len(ready)
                    length = header(ready)[3]
                    chunks.add(ready)
                    following += 1
                    report(1, len(ready))
                    if chunks.is_full:
                        await asyncio.to_thread(chunks.flush)
                turn.notify_all()

    await together(read_on() for _ in range(AT_ONCE))
    if length != metadata.length:
        raise ReadError(
            f"the entries of ledger {ledger} have {length:,} bytes of data, and its metadata say {metadata.length:,}"
        )
    await asyncio.to_thread(chunks.flush)


class Bodies:
    """Reads the entries of a closed ledger, each from any bookie of its write set, as they are stored."""

    def __init__(self, store: LedgerClient, ledger: int, metadata: LedgerMetadata) -> None:
        self.store = store
        self.ledger = ledger
        self.metadata = metadata
        self._digests = Digests(metadata.digest_type, metadata.password or b"")

    async def read(self, entry_id: int) -> bytes:
        """The body of an entry, whose digest is right. Raises :class:`ReadError`."""
        for bookie in sources(self.metadata, entry_id, "") * _ROUNDS:
            response = await self.store.ask(bookie, ReadEntry(self.ledger, entry_id))
            body = response.body if isinstance(response, ReadEntryResponse) else None
            if body is not None and self._digests.open_entry(body, self.ledger, entry_id) is not None:
                return body
        raise ReadError(f"entry {entry_id} of ledger {self.ledger} cannot be had from any bookie now")


async def together(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines at once. If one fails, the others are cancelled, and its error is raised."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
