"""The ledger client: ``async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store``, or ``with`` in
synchronous code.
"""

from fencepost.store.client.connecting import Connecting, connect, connect_sync
from fencepost.store.client.reader import LedgerReader
from fencepost.store.client.reading import EntryBatch, LedgerEntry
from fencepost.store.client.settings import ClientSettings
from fencepost.store.client.store import Store
from fencepost.store.client.sync import SyncLedgerReader, SyncLedgerWriter, SyncStore
from fencepost.store.client.writer import LedgerWriter
from fencepost.store.rules.metadata import DigestType, LedgerMetadata, LedgerStatus

__all__ = [
    "ClientSettings",
    "Connecting",
    "DigestType",
    "EntryBatch",
    "LedgerEntry",
    "LedgerMetadata",
    "LedgerReader",
    "LedgerStatus",
    "LedgerWriter",
    "Store",
    "SyncLedgerReader",
    "SyncLedgerWriter",
    "SyncStore",
    "connect",
    "connect_sync",
]
