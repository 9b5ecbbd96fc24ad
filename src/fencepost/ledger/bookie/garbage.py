"""Garbage collection: entries of ledgers that were deleted from the metadata are forgotten, and their room is given
back.

Only the metadata say that a ledger is deleted, and they are asked twice: a ledger is forgotten that the storage had
before all ledgers were listed, that is not among them, and that cannot be read by itself either. Between both the
server that answers has to catch up with its quorum, or it would not know of ledgers that are new. While the metadata
service does not answer, or has another cluster than it had, nothing is forgotten.
"""

from __future__ import annotations

import asyncio
import logging

from fencepost.ledger.bookie.server import Server
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.errors import NoSuchLedgerError, StoreError
from fencepost.ledger.metadata.client import MetadataClient

_log = logging.getLogger("fencepost.ledger.bookie")


async def collect(server: Server, storage: Storage, client: MetadataClient, settings: BookieSettings) -> None:
    """Forget deleted ledgers and give room back every ``gcWaitTime``, until this is cancelled."""
    instance_id = await client.instance_id()
    while True:
        await asyncio.sleep(settings.gc_wait_time / 1000)
        try:
            await forget_deleted(server, storage, client, instance_id)
        except StoreError as error:
            _log.warning("the ledgers cannot be listed, and none is forgotten now: %s", error)
        await give_room_back(server, storage)


async def forget_deleted(server: Server, storage: Storage, client: MetadataClient, instance_id: str) -> list[int]:
    """Forget the ledgers that are deleted; gives them. Raises :class:`StoreError` if the metadata service does not
    tell.
    """
    stored = await asyncio.to_thread(storage.ledgers)
    await client.sync()
    listed = {ledger async for ledger in client.ledgers()}
    deleted = [ledger for ledger in stored if ledger not in listed and await _is_deleted(client, ledger)]
    if not deleted:
        return []
    if await client.instance_id() != instance_id:
        _log.warning("the metadata service has another cluster than before: nothing is forgotten")
        return []
    for ledger in deleted:
        await server.call("forget", ledger)
    _log.info("forgot %d deleted ledgers", len(deleted))
    server.metrics.add("bookie_gc_DELETED_LEDGER_TOTAL", len(deleted))
    return deleted


async def give_room_back(server: Server, storage: Storage) -> None:
    """Remove and compact entry logs, as far as it is time to. Raises :class:`fencepost.SystemFailure` if the storage
    cannot go on.
    """
    since = server.loop.time()
    collected = await asyncio.to_thread(storage.collect)
    server.metrics.took("bookie_gc_COMPACT_RUNTIME", server.loop.time() - since)
    server.metrics.add("bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES", collected.bytes_removed - collected.bytes_copied)
    if collected.removed:
        _log.info(
            "removed %d entry logs of %d bytes, and copied %d",
            len(collected.removed),
            collected.bytes_removed,
            collected.bytes_copied,
        )
    if collected.damaged:
        _log.error("entry logs %s are damaged, and left as they are", ", ".join(map(str, collected.damaged)))


async def _is_deleted(client: MetadataClient, ledger: int) -> bool:
    try:
        await client.read_ledger(ledger)
    except NoSuchLedgerError:
        return True
    return False
