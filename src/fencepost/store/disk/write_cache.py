"""The write cache: entries that are in the journal and not in an entry log yet."""

from __future__ import annotations

from fencepost.store.rows.entries import EntryRows

_OVERHEAD = 100
"""Bytes of memory that an entry takes besides its body, about."""


class WriteCache:
    """Entries in memory, by ledger and id. ``size``: the bytes of memory that they take, about."""

    __slots__ = ("_last", "entries", "size")

    def __init__(self) -> None:
        self.entries: dict[int, dict[int, bytes]] = {}
        self.size = 0
        self._last: dict[int, int] = {}

    def put(self, ledger: int, entry_id: int, body: bytes) -> None:
        """Keep an entry; one with the same id is replaced."""
        entries = self.entries.get(ledger)
        if entries is None:
            entries = self.entries[ledger] = {}
            self._last[ledger] = entry_id
        entries[entry_id] = body
        if entry_id > self._last[ledger]:
            self._last[ledger] = entry_id
        self.size += len(body) + _OVERHEAD

    def put_rows(self, rows: EntryRows) -> None:
        """Keep entries that arrived together, in their order."""
        for row, (ledger, entry_id) in enumerate(rows.table[:, :2].tolist()):
            self.put(ledger, entry_id, rows.body(row))

    def get(self, ledger: int, entry_id: int) -> bytes | None:
        """The body of an entry, None if it is not here."""
        entries = self.entries.get(ledger)
        return None if entries is None else entries.get(entry_id)

    def last(self, ledger: int) -> int | None:
        """The id of the last entry of a ledger, None if none is here."""
        return self._last.get(ledger)

    def drop(self, ledger: int) -> None:
        """Forget the entries of a ledger."""
        if ledger in self.entries:
            del self.entries[ledger], self._last[ledger]
