"""The objects of offloaded ledgers: where they are, and how they are read.

An object is a folder with the files of :mod:`fencepost.ledger.archive.layout`: the entries in chunks, as bookies store
them, and a manifest, which is written last.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import AsyncGenerator

from fencepost.errors import OptionError, SystemFailure, naming_extra
from fencepost.files.storage import URL, Storage, open_storage
from fencepost.ledger.archive import layout
from fencepost.ledger.archive.layout import Chunk, Manifest
from fencepost.ledger.client.reading import EntryBatch
from fencepost.ledger.entries import Digests
from fencepost.ledger.errors import DigestMismatchError, NoSuchEntryError, NoSuchLedgerError, UnauthorizedAccessError
from fencepost.log import offload_rules
from fencepost.log.metadata import LogNodes

_SECRET = re.compile(r"[a-z][a-z0-9+.-]+://[^/?]*:[^/?]*@")
"""The beginning of a URL with a password."""


def object_store(place: str) -> Storage:
    """The folder of an object store, or a local one, for objects.

    Raises :class:`fencepost.OptionError` for a URL with a password, and for a missing library, and
    :class:`fencepost.SystemFailure` for a URL that cannot be reached.
    """
    if _SECRET.match(place):
        raise OptionError(
            "the URL of the object store has a password, and all who read the log would see it: give the credentials to"
            " the processes, in their environment"
        )
    with naming_extra(place if URL.match(place) else f"the folder {place}", "query"):
        return open_storage(place)


class ObjectReader:
    """Reads an offloaded ledger from its object, as :class:`.LedgerReader` does from bookies. A chunk is in memory at a
    time, 16 MiB or one entry more.
    """

    is_closed = True

    def __init__(self, storage: Storage, manifest: Manifest, password: bytes) -> None:
        self.id = manifest.ledger
        """The ledger."""
        self.metadata = manifest.metadata
        """Its metadata. A chunk takes the place of a fragment, and has no bookies."""
        self._storage = storage
        self._manifest = manifest
        self._digests = Digests(manifest.digests, password)
        self._chunk: tuple[Chunk, EntryBatch] | None = None

    async def close(self) -> None:
        """Stop reading."""
        self._chunk = None

    async def read_last_add_confirmed(self) -> int:
        """The last entry of the ledger; -1 if it is empty."""
        return self._manifest.last_entry

    async def read_entry(self, entry_id: int) -> bytes:
        """The data of one entry. Raises as :meth:`read_batches`."""
        async for batch in self.read_batches(entry_id, entry_id):
            entry: bytes = batch[0]
            return entry
        raise NoSuchEntryError(f"ledger {self.id} has no entry {entry_id}: it ends at {self._manifest.last_entry}")

    async def tail_batches(self, first: int = 0) -> AsyncGenerator[EntryBatch, None]:
        """The entries from ``first`` on. Raises as :meth:`read_batches`."""
        async for batch in self.read_batches(first, self._manifest.last_entry):
            yield batch

    async def read_batches(self, first: int, last: int) -> AsyncGenerator[EntryBatch, None]:
        """The entries from ``first`` to ``last`` inclusive, a batch from each chunk.

        Raises :class:`fencepost.SystemFailure` if the object is damaged, is gone or cannot be reached, and
        :class:`DigestMismatchError` for an entry with a wrong digest.
        """
        for chunk in self._manifest.chunks:
            if first <= chunk.last and chunk.first <= last:
                whole = await self._read(chunk)
                start, stop = max(first, chunk.first) - chunk.first, min(last, chunk.last) + 1 - chunk.first
                assert whole.lacs is not None and whole.lengths is not None
                yield EntryBatch(
                    chunk.first + start,
                    whole.data,
                    whole.offsets[start : stop + 1],
                    whole.lacs[start:stop],
                    whole.lengths[start:stop],
                )

    def length_before(self, entry_id: int) -> int:
        """The bytes of data before an entry. Where no chunk begins, it is estimated: only the manifest is read."""
        overhead = layout.PER_ENTRY + self._digests.size
        before = 0
        for chunk in self._manifest.chunks:
            count = chunk.last + 1 - chunk.first
            length = chunk.size - len(layout.MAGIC) - count * overhead
            if entry_id <= chunk.last:
                return before + length * (entry_id - chunk.first) // count
            before += length
        return before

    async def _read(self, chunk: Chunk) -> EntryBatch:
        if self._chunk is None or self._chunk[0] is not chunk:
            self._chunk = (chunk, await asyncio.to_thread(self._opened, chunk))
        return self._chunk[1]

    def _opened(self, chunk: Chunk) -> EntryBatch:
        """The data of a chunk's entries, whose digests are right."""
        offsets, lacs, lengths, parts = array("q", (0,)), array("q"), array("q"), []
        for entry_id, body in layout.read_chunk(self._storage, chunk):
            entry = self._digests.open_entry(body, self.id, entry_id)
            if entry is None:
                raise DigestMismatchError(f"entry {entry_id} of ledger {self.id} in {self._storage.where()} is damaged")
            parts.append(entry.data)
            offsets.append(offsets[-1] + len(entry.data))
            lacs.append(entry.lac)
            lengths.append(entry.length)
        data = memoryview(b"".join(parts))
        return EntryBatch(chunk.first, data, memoryview(offsets), memoryview(lacs), memoryview(lengths))


async def object_of(nodes: LogNodes, ledger: int, password: bytes) -> ObjectReader | None:
    """Open the object of a ledger that bookies could not give; None if the list of the log does not name one. Raises as
    :func:`open_object`.
    """
    chain, _ = await nodes.read()
    attempt = chain.attempt_of(ledger)
    if offload_rules.is_lost(None, attempt):
        return None
    assert attempt is not None
    return await open_object(nodes, ledger, attempt, password)


async def open_object(nodes: LogNodes, ledger: int, number: int, password: bytes) -> ObjectReader:
    """Open the object that an attempt made of a ledger.

    Raises :class:`NoSuchLedgerError` if the attempt has no record, :class:`UnauthorizedAccessError`, and
    :class:`fencepost.SystemFailure` if the object is damaged, is gone or cannot be reached.
    """
    attempt = await nodes.attempt(ledger, number)
    if attempt is None:
        raise NoSuchLedgerError(f"no object of ledger {ledger} is recorded for the log {nodes.name}")
    storage = object_store(attempt.place)
    manifest = await asyncio.to_thread(manifest_in, storage, ledger)
    if manifest.password not in (None, password):
        raise UnauthorizedAccessError(f"the password is not that of ledger {ledger}")
    return ObjectReader(storage, manifest, password)


def manifest_in(storage: Storage, ledger: int) -> Manifest:
    """The manifest of a ledger's object. Raises :class:`fencepost.SystemFailure`."""
    name = layout.manifest_name(ledger)
    found = layout.load(storage, name, Manifest)
    if found is None:
        raise SystemFailure(f"{storage.where(name)} is missing: ledger {ledger} was offloaded there")
    if found[0].problem or found[0].ledger != ledger:
        raise SystemFailure(f"{storage.where(name)} contradicts itself: {found[0].problem or found[0].ledger}")
    return found[0]
