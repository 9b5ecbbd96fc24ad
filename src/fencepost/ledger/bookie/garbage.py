"""Garbage collection: deletes the entries of ledgers that are deleted from the metadata, and reclaims their space.

Only the metadata show that a ledger is deleted, and they are checked twice. A ledger is forgotten if the storage had it
before all ledgers were listed, it is not in the list, and reading it directly fails too. Before the list is read, the
answering server catches up with its quorum, or it might not know new ledgers. Nothing is forgotten while the metadata
service does not answer, or belongs to another cluster than before.
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
    """Forget deleted ledgers and reclaim space every ``gcWaitTime``, until cancelled."""
    instance_id = await client.instance_id()
    while True:
        await asyncio.sleep(settings.gc_wait_time / 1000)
        try:
            await forget_deleted(server, storage, client, instance_id)
        except StoreError as error:
            _log.warning("the ledgers cannot be listed, and none is forgotten now: %s", error)
        await reclaim_space(server, storage)


async def forget_deleted(server: Server, storage: Storage, client: MetadataClient, instance_id: str) -> list[int]:
    """Forget the deleted ledgers. Gives their ids. Raises :class:`StoreError` if the metadata service does not
    answer.
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


async def reclaim_space(server: Server, storage: Storage) -> None:
    """Remove and compact entry logs that are due. Raises :class:`fencepost.SystemFailure` if the storage cannot
    continue.
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
