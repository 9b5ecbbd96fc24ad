"""Imports ledgers from an export, under their numbers or under new ones.

An import writes the metadata first, in recovery and marked (:data:`IMPORTING`), so that nobody may write to the ledger,
and no bookie takes it for a deleted one. Then it puts each entry on all bookies of its write set, as repairs do, so
that writing an entry again changes nothing. One conditional write at last closes the ledger and removes the mark:
before that, nothing takes it for whole. An import that was interrupted begins this ledger again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from fencepost.errors import OptionError, SystemFailure
from fencepost.files.storage import Storage
from fencepost.ledger.archive import layout
from fencepost.ledger.archive.exporting import AT_ONCE, Bodies, Moved, Report, together
from fencepost.ledger.archive.layout import INDEX, Chunk, Index, Manifest
from fencepost.ledger.client.client import LedgerClient, too_few
from fencepost.ledger.entries import Digests, Entry, master_key
from fencepost.ledger.errors import (
    BadVersionError,
    LedgerExistsError,
    NoSuchLedgerError,
    NotEnoughBookiesError,
    Refusal,
    WriteError,
)
from fencepost.ledger.messages import NO_ENTRY_YET, AddEntry, AddEntryResponse, ReadEntry
from fencepost.ledger.metadata.client import LedgerInService
from fencepost.ledger.metadata.racks import placement_of
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import Fragment, with_ensemble, write_set
from fencepost.ledger.rules.metadata import IMPORTING, LedgerMetadata, LedgerStatus, closed, current_ensemble
from fencepost.ledger.rules.placement import Placement, Quorums, Unplaced, chosen, replaced


def ledgers_in(source: Storage, wanted: Collection[int] = ()) -> dict[int, tuple[Manifest, str]]:
    """The ledgers of a complete export, or those ``wanted``, with the digests of their manifests. Their chunks exist,
    with the sizes that they should have.

    Raises :class:`fencepost.SystemFailure`, which names what is wrong, and :class:`fencepost.OptionError` for a ledger
    that it does not have.
    """
    found = layout.load(source, INDEX, Index)
    if found is None:
        raise SystemFailure(f"{source.where()} has no complete export: {INDEX} is missing; export to its end first")
    index, sizes = found[0], source.sizes()
    if missing := sorted({*wanted} - index.ledgers.keys()):
        raise OptionError(f"{source.where()} does not have ledger {missing[0]}")
    manifests = {}
    for ledger, digest in index.ledgers.items():
        if wanted and ledger not in wanted:
            continue
        name = layout.manifest_name(ledger)
        where, of_ledger = f"{source.where(name)}", layout.load(source, name, Manifest)
        if of_ledger is None:
            raise SystemFailure(f"{where} is missing")
        manifest, own = of_ledger
        if own != digest or (manifest.ledger, manifest.cluster) != (ledger, index.cluster):
            raise SystemFailure(f"{where} is of another export than {INDEX}")
        if manifest.problem:
            raise SystemFailure(f"{where} contradicts itself: {manifest.problem}")
        for chunk in manifest.chunks:
            if sizes.get(chunk.name) != chunk.size:
                says = (
                    f"has {sizes[chunk.name]:,} bytes, and {chunk.size:,}" if chunk.name in sizes else "is missing, and"
                )
                raise SystemFailure(f"{source.where(chunk.name)} {says} were written")
        manifests[ledger] = of_ledger
    return manifests


async def import_all(
    store: LedgerClient,
    source: Storage,
    ledgers: Mapping[int, tuple[Manifest, str]],
    numbers: Mapping[int, int],
    *,
    report: Report = lambda entries, size: None,
    done: Callable[[Moved], None] = lambda moved: None,
) -> None:
    """Import ledgers of :func:`ledgers_in`, each under its number in ``numbers``, or else its own. A ledger that is
    there already, with the same entries, is left as it is. ``done``: called after each ledger.

    Raises :class:`fencepost.SystemFailure` for a damaged file, :class:`LedgerExistsError` if there is another ledger of
    this number, :class:`NotEnoughBookiesError`, and :class:`Refusal` if bookies know the number of a deleted ledger.
    """
    for ledger, (manifest, digest) in ledgers.items():
        importing = _Import(store, source, manifest, digest, numbers.get(ledger, ledger), report)
        was_there = await importing.run()
        done(Moved(ledger, importing.number, manifest.last_entry + 1, manifest.length, was_there))


class _Import:
    """The import of one ledger."""

    def __init__(
        self, store: LedgerClient, source: Storage, manifest: Manifest, digest: str, number: int, report: Report
    ) -> None:
        self.store = store
        self.source = source
        self.manifest = manifest
        self.mark = (IMPORTING, digest.encode())
        self.number = number
        self.report = report
        self.metadata = LedgerMetadata(
            manifest.ensemble_size,
            manifest.write_quorum,
            manifest.ack_quorum,
            (),
            LedgerStatus.IN_RECOVERY,
            digest_type=manifest.digests,
            password=manifest.password,
            custom_metadata=tuple(sorted((*manifest.custom_metadata, self.mark))),
            creation_token=random.SystemRandom().getrandbits(63),
            creation_time=manifest.creation_time,
            format_version=manifest.format_version,
        )
        self.version = -1
        self._digests = Digests(manifest.digests, manifest.password or b"")
        self._key = master_key(manifest.password or b"")
        self._failed: set[str] = set()

    async def run(self) -> bool:
        """Import the ledger. Returns whether it was there already."""
        found = await self._found()
        if found is not None and self.manifest.describes(found.metadata):
            await self._compare(found.metadata)
            return True
        if found is not None and self.mark not in found.metadata.custom_metadata:
            half = IMPORTING in dict(found.metadata.custom_metadata)
            raise LedgerExistsError(
                f"ledger {self.number} exists, and is {'half of another import' if half else 'another one'}:"
                " delete it, or import under new numbers (--new-ids)"
            )
        await self._begin(found)
        try:
            for chunk in self.manifest.chunks:
                await self._put_chunk(chunk)
            custom = tuple(each for each in self.metadata.custom_metadata if each != self.mark)
            whole = closed(self.metadata, self.manifest.last_entry, self.manifest.length)
            await self._write(whole.replace(custom_metadata=custom))
        except BadVersionError:
            raise Refusal(
                f"ledger {self.number} was changed by somebody else while it was imported: run the import again"
            ) from None
        return False

    async def _found(self) -> LedgerInService | None:
        try:
            return await self.store.metadata.read_ledger(self.number)
        except NoSuchLedgerError:
            return None

    async def _begin(self, found: LedgerInService | None) -> None:
        """Write the metadata of a ledger without entries."""
        before = () if found is None else current_ensemble(found.metadata)
        writable, read_only, placement = await self._available()
        preferred = [*(each for each in before if each in writable), *(each for each in writable if each not in before)]
        ensemble = chosen(preferred, self.manifest.ensemble_size, self._quorums, placement)
        if isinstance(ensemble, Unplaced):
            raise self._too_few(len(writable), read_only, ensemble)
        self.metadata = self.metadata.replace(fragments=(Fragment(0, ensemble),))
        if found is not None:
            self.version = found.version
            await self._write(self.metadata)
            return
        await self._refuse_known(ensemble)
        self.version = await self.store.metadata.create_ledger(self.number, self.metadata)

    async def _write(self, metadata: LedgerMetadata) -> None:
        self.version = await self.store.metadata.write_ledger(self.number, metadata, self.version)
        self.metadata = metadata

    async def _available(self) -> tuple[list[str], int, Placement]:
        """The bookies that take entries, in random order; how many others are read-only; and where to place them."""
        bookies = await self.store.bookies()
        writable = [each for each in bookies.writable if each not in self._failed]
        placement = placement_of(bookies.placement(self.store.policy), self.metadata.custom_metadata)
        return self.store.driver.mixed(writable), len(bookies.read_only), placement

    @property
    def _quorums(self) -> Quorums:
        return self.manifest.write_quorum, self.manifest.ack_quorum

    def _too_few(self, there: int, read_only: int, why: Unplaced) -> NotEnoughBookiesError:
        size, policy = self.manifest.ensemble_size, self.store.policy
        return too_few(self.number, size, there, read_only, policy, why, "bring bookies back")

    async def _refuse_known(self, bookies: Iterable[str]) -> None:
        """Raise :class:`Refusal` if a bookie has a deleted ledger of this number: its entries could be taken for the
        imported ones, or these be collected with it.
        """
        asked = tuple(bookies)
        answers = await asyncio.gather(*(self.store.ask(each, ReadEntry(self.number, NO_ENTRY_YET)) for each in asked))
        for bookie, answer in zip(asked, answers, strict=True):
            if answer is not None and answer.code in (Code.OK, Code.NO_ENTRY):
                raise Refusal(
                    f"bookie {bookie} still has a deleted ledger {self.number}: import under new numbers (--new-ids),"
                    " or wait until it is collected (gcWaitTime)"
                )

    # -- entries -------------------------------------------------------------------------------------------------------

    async def _put_chunk(self, chunk: Chunk) -> None:
        """Put the entries of a chunk on their bookies. If some fail, others take their places from this chunk on."""
        while True:
            ensemble, failed = current_ensemble(self.metadata), set[str]()
            entries = await asyncio.to_thread(layout.read_chunk, self.source, chunk)

            async def put_on(
                entries: Iterable[tuple[int, bytes]] = entries,
                ensemble: tuple[str, ...] = ensemble,
                failed: set[str] = failed,
            ) -> None:
                for entry_id, body in entries:
                    await self._put(entry_id, self._body(entry_id, body), ensemble, failed)
                    if failed:
                        return

            await together(put_on() for _ in range(AT_ONCE))
            if not failed:
                self.report(chunk.last - chunk.first + 1, chunk.size)
                return
            self._failed |= failed
            writable, read_only, placement = await self._available()
            others = replaced(ensemble, failed, writable, self._quorums, placement)
            if isinstance(others, Unplaced):
                raise self._too_few(len(writable), read_only, others)
            fragments = with_ensemble(self.metadata.fragments, others, chunk.first)
            await self._write(self.metadata.replace(fragments=fragments))

    def _entry(self, entry_id: int, body: bytes) -> Entry:
        entry = self._digests.open_entry(body, self.manifest.ledger, entry_id)
        if entry is None:
            raise SystemFailure(
                f"{self.source.where()} has another entry than {entry_id} of ledger {self.manifest.ledger}, or its"
                " digest is wrong"
            )
        return entry

    def _body(self, entry_id: int, body: bytes) -> AddEntry:
        """The request to store an entry: the body as it was, or for a new number with another header and digest."""
        entry = self._entry(entry_id, body)
        if self.number != entry.ledger:
            body = self._digests.entry_body(Entry(self.number, entry_id, entry.lac, entry.length, entry.data))
        return AddEntry(self.number, entry_id, entry.lac, body, self._key, recovery=True)

    async def _put(self, entry_id: int, request: AddEntry, ensemble: tuple[str, ...], failed: set[str]) -> None:
        bookies = write_set(entry_id, ensemble, self.manifest.write_quorum)
        answers = await asyncio.gather(*(self.store.ask(bookie, request) for bookie in bookies))
        for bookie, answer in zip(bookies, answers, strict=True):
            if isinstance(answer, AddEntryResponse) and answer.code is Code.UNAUTHORIZED:
                raise WriteError(f"bookie {bookie} knows ledger {self.number} by another password")
            if not isinstance(answer, AddEntryResponse) or answer.code is not Code.OK:
                failed.add(bookie)

    async def _compare(self, metadata: LedgerMetadata) -> None:
        """Compare a closed ledger with the export. Raises :class:`LedgerExistsError` if an entry differs."""
        bodies, own = Bodies(self.store, self.number, metadata), len(self._digests.digest(0, 0, 0, 0, b"")) + 32

        async def same(entry_id: int, body: bytes) -> None:
            entry = self._entry(entry_id, body)
            if (await bodies.read(entry_id))[own:] != entry.data:
                raise LedgerExistsError(
                    f"ledger {self.number} exists, and its entry {entry_id} is another: import under new numbers"
                    " (--new-ids)"
                )

        for chunk in self.manifest.chunks:
            entries = await asyncio.to_thread(layout.read_chunk, self.source, chunk)
            while some := [*islice(entries, AT_ONCE)]:
                await together(same(*each) for each in some)
                self.report(len(some), sum(len(body) for _, body in some))


# -- new numbers -------------------------------------------------------------------------------------------------------


async def new_numbers(
    store: LedgerClient, ledgers: Mapping[int, tuple[Manifest, str]], folder: Storage, name: str
) -> dict[int, int]:
    """A new number for each ledger, kept in a file: an interrupted import goes on under the same ones.

    Raises :class:`fencepost.SystemFailure` if the file is of another import.
    """
    cluster = await store.metadata.instance_id()
    exported = {str(ledger): digest for ledger, (_, digest) in ledgers.items()}
    content = folder.load(name)
    kept: dict[str, Any] = {"cluster": cluster, "ledgers": {}, "exported": {}}
    if content is not None:
        try:
            kept = msgspec.json.decode(content, type=dict[str, Any])
            if kept["cluster"] != cluster:
                raise SystemFailure(
                    f"{folder.where(name)} is of imports into the cluster {kept['cluster']}, not {cluster}"
                )
            if any(kept["exported"].get(ledger, digest) != digest for ledger, digest in exported.items()):
                raise SystemFailure(f"{folder.where(name)} is of imports from another export")
            {int(old): int(new) for old, new in kept["ledgers"].items()}
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise SystemFailure(f"{folder.where(name)} is no file of new numbers: {error}") from error
    for ledger in ledgers:
        if str(ledger) not in kept["ledgers"]:
            kept["ledgers"][str(ledger)] = await _free_number(store)
    kept["exported"] |= exported
    layout.put(folder, name, msgspec.json.format(msgspec.json.encode(kept)) + b"\n")
    return {ledger: int(kept["ledgers"][str(ledger)]) for ledger in ledgers}


async def _free_number(store: LedgerClient) -> int:
    """The next number of no ledger. Imported ones and those whose creators chose a number may be ahead."""
    while True:
        number = await store.metadata.new_ledger_id()
        if await store.metadata.missing((number,)):
            return number
