"""Garbage collection: entries of ledgers that were deleted from the metadata are forgotten, and their room is given back.

Only the metadata say that a ledger is deleted, and they are asked twice: a ledger is forgotten that the storage had before all ledgers
were listed, that is not among them, and that can not be read by itself either. While the metadata service does not answer, or has
another cluster than it had, nothing is forgotten.
"""

from __future__ import annotations

import asyncio
import logging

from fencepost.store.bookie.server import Server
from fencepost.store.bookie.settings import Settings
from fencepost.store.disk.storage import Storage
from fencepost.store.errors import NoSuchLedgerError, StoreError
from fencepost.store.metadata.client import MetadataClient

_log = logging.getLogger("fencepost.store.bookie")


async def collect(server: Server, storage: Storage, client: MetadataClient, settings: Settings) -> None:
    """Collect garbage every ``gcWaitTime``, until this is cancelled."""
    instance_id = await client.instance_id()
    while True:
        await asyncio.sleep(settings.gc_wait_time / 1000)
        try:
            await collect_once(server, storage, client, instance_id)
        except StoreError as error:
            _log.warning("garbage is not collected now: %s", error)


async def collect_once(server: Server, storage: Storage, client: MetadataClient, instance_id: str) -> list[int]:
    """Forget the ledgers that are deleted, and give room back; gives those ledgers. Raises :class:`StoreError`."""
    stored = await asyncio.to_thread(storage.ledgers)
    listed = {ledger async for ledger in client.ledgers()}
    deleted = [ledger for ledger in stored if ledger not in listed and await _is_deleted(client, ledger)]
    if deleted and await client.instance_id() != instance_id:
        _log.warning("the metadata service has another cluster than before: nothing is forgotten")
        return []
    for ledger in deleted:
        await server.call("forget", ledger)
    if deleted:
        _log.info("forgot %d deleted ledgers", len(deleted))
        server.metrics.add("bookie_gc_DELETED_LEDGER_TOTAL", len(deleted))
    await asyncio.to_thread(storage.collect)
    return deleted


async def _is_deleted(client: MetadataClient, ledger: int) -> bool:
    try:
        await client.read_ledger(ledger)
    except NoSuchLedgerError:
        return True
    return False
