"""The ledger client, on which :mod:`fencepost.client` rests."""

from fencepost.store.client.reader import LedgerReader
from fencepost.store.client.reading import EntryBatch, LedgerEntry
from fencepost.store.client.settings import ClientSettings
from fencepost.store.client.store import Store
from fencepost.store.client.sync import SyncLedgerReader, SyncLedgerWriter
from fencepost.store.client.writer import LedgerWriter
from fencepost.store.rules.metadata import DigestType, LedgerMetadata, LedgerStatus

__all__ = [
    "ClientSettings",
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
]
