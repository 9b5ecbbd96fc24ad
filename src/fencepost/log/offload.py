"""Offloads closed ledgers of a log to an object store, and removes objects that the list of the log does not name.

The steps are those of the protocol `log-offload`, and :mod:`.offload_rules` makes the decisions. An object is in the
folder ``CLUSTER/LOG/LEDGER-NUMBER`` of the object store; the number is that of the attempt.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fencepost.errors import FencepostError, OptionError, SystemFailure
from fencepost.files.storage import Storage, reason, sync_folder
from fencepost.ledger.archive import layout
from fencepost.ledger.archive.exporting import CHUNK, Report, copy
from fencepost.ledger.archive.layout import Chunks, Manifest
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.errors import BadVersionError, NoSuchLedgerError, ReadError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.log import offload_rules as rules
from fencepost.log.chain import Chain
from fencepost.log.errors import LogFormatError, LogFullError, NoSuchLogError
from fencepost.log.metadata import Attempt, LogNodes
from fencepost.log.objects import manifest_in, object_store

ABANDONED = 24 * 3600 * 1000
"""Milliseconds after which an attempt that the list does not name is withdrawn."""

_OBJECT = re.compile(r"\d+-\d+")


class Offloaded(msgspec.Struct, frozen=True):
    """What an offload did: the ledgers that it copied, their entries and bytes of data, the ledgers that it deleted
    from the bookies, and the number of objects that it removed, since the list does not name them.
    """

    ledgers: tuple[int, ...]
    entries: int
    bytes: int
    deleted: tuple[int, ...]
    removed: int


class Offloads:
    """The offloaded ledgers of a log."""

    def __init__(self, store: LedgerClient, nodes: LogNodes) -> None:
        self._store = store
        self._nodes = nodes

    async def copy_all(self, ledgers: Sequence[int], to: str, report: Report) -> dict[int, LedgerMetadata]:
        """Copy ledgers to an object store, one after the other, unless the list names objects of them by then. Returns
        the metadata of those whose objects the list names now.

        Raises :class:`MissingLedgerError`, :class:`ReadError` if an entry has no intact copy now, and
        :class:`fencepost.SystemFailure` for the object store.
        """
        target = object_store(to)
        done = {}
        for ledger in ledgers:
            metadata = await self._metadata(ledger)
            if metadata is not None and await self._copy(ledger, metadata, target, report):
                done[ledger] = metadata
        return done

    async def _metadata(self, ledger: int) -> LedgerMetadata | None:
        """The metadata of a ledger; None if there is nothing to copy."""
        chain, _ = await self._nodes.read()
        if not rules.may_name(chain.index(ledger) is not None, chain.attempt_of(ledger), rules.Noted.BEGUN):
            return None
        try:
            metadata = await self._store.ledger_metadata(ledger)
        except NoSuchLedgerError:
            chain, _ = await self._nodes.read()
            if chain.index(ledger) is None or chain.attempt_of(ledger) is not None:
                return None
            raise self._nodes.lost(chain, [ledger], "trim the log past it, and offload again") from None
        if metadata.status is not LedgerStatus.CLOSED:
            raise LogFormatError(
                f"ledger {ledger} of the log {self._nodes.name} is open, though another follows it in the list: its"
                " writer broke the protocol of logs"
            )
        return metadata

    async def _copy(self, ledger: int, metadata: LedgerMetadata, target: Storage, report: Report) -> bool:
        """Copy one ledger. Returns whether the list names its object."""
        cluster = await self._store.metadata.instance_id()
        attempt = await self._begin(ledger, target.below(f"{cluster}/{self._nodes.name}"))
        try:
            storage = object_store(attempt.place)
            await asyncio.to_thread(_create, storage)
            chunks = Chunks(storage, ledger, CHUNK)
            await copy(self._store, ledger, metadata, chunks, report)
            written = msgspec.structs.replace(Manifest.of(cluster, ledger, metadata), chunks=tuple(chunks.written))
            await asyncio.to_thread(layout.put, storage, layout.manifest_name(ledger), layout.encoded(written))
            await asyncio.to_thread(_verify, storage, written)
            is_named = await self._name(attempt)
        except (SystemFailure, ReadError, LogFullError, NoSuchLogError):  # after other errors the list may name it
            is_wanted = await self._may_name(attempt)  # its object may have been removed while it was written
            with suppress(FencepostError):  # a later offload removes it
                await self._remove(attempt)
            if is_wanted:
                raise
            return False
        if not is_named:
            await self._remove(attempt)
        return is_named

    async def _begin(self, ledger: int, folder: Storage) -> Attempt:
        """Record an attempt with a new number."""
        while True:
            number = secrets.randbits(32)
            attempt = Attempt(ledger, number, folder.below(f"{ledger}-{number}").place, clock())
            if await self._nodes.create_attempt(attempt):
                return attempt

    async def _name(self, attempt: Attempt) -> bool:
        """Make the list name an object. Returns whether it does."""
        while True:
            chain, version = await self._nodes.read()
            named = chain.attempt_of(attempt.ledger)
            if named == attempt.number:  # an update without an answer succeeded
                return True
            if not rules.may_name(chain.index(attempt.ledger) is not None, named, await self._noted(attempt)):
                return False
            with suppress(BadVersionError):
                await self._nodes.write(chain.offloaded(attempt.ledger, attempt.number, clock()), version)
                return True

    async def _may_name(self, attempt: Attempt) -> bool:
        """Whether the list may name an object, as far as is known."""
        try:
            chain, _ = await self._nodes.read()
        except NoSuchLogError:
            return False
        is_in_log, named = chain.index(attempt.ledger) is not None, chain.attempt_of(attempt.ledger)
        return rules.may_name(is_in_log, named, await self._noted(attempt))

    async def _noted(self, attempt: Attempt) -> rules.Noted:
        record = await self._nodes.attempt(attempt.ledger, attempt.number)
        if record is None:
            return rules.Noted.NOT
        return rules.Noted.WITHDRAWN if record.withdrawn else rules.Noted.BEGUN

    # -- deleting ------------------------------------------------------------------------------------------------------

    async def ledgers_to_delete(self, before: int) -> list[int]:
        """The ledgers that bookies still have, though they have been offloaded since ``before`` or earlier."""
        chain, _ = await self._nodes.read()
        old = [each.ledger for each in chain.offloads if each.since <= before]
        gone = {*await self._store.metadata.missing(old)}
        left = [each for each in old if each not in gone and rules.may_delete_ledger(chain.attempt_of(each))]
        for each in left:
            await self._look_at(each, chain)
        return left

    async def _look_at(self, ledger: int, chain: Chain) -> None:
        """Raise :class:`fencepost.SystemFailure` if the object of a ledger is not there with all its bytes."""
        number = chain.attempt_of(ledger)
        assert number is not None
        attempt = await self._nodes.attempt(ledger, number)
        if attempt is None:  # the ledger was trimmed
            return
        try:
            await asyncio.to_thread(_measure, object_store(attempt.place), ledger)
        except SystemFailure as error:
            raise SystemFailure(f"{error}. The bookies keep ledger {ledger}: bring the object back") from None

    async def remove_orphans(self, to: str | None = None) -> int:
        """Remove objects that the list does not name and will not name: of trimmed ledgers, of attempts that others
        preceded, and of those that ended before their time. Returns their number. ``to``: look in this object store for
        objects of this log without a record, too.
        """
        attempts = await self._nodes.attempts()
        chain, _ = await self._nodes.read()
        count = 0
        for each in attempts:
            named = chain.attempt_of(each.ledger)
            if rules.is_superseded(chain.index(each.ledger) is not None, named, each.number):
                await self._remove(each)
                count += 1
            elif named is None and clock() - each.since > ABANDONED:
                count += await self._withdraw(each)
        if to is not None:
            folder = object_store(to).below(f"{await self._store.metadata.instance_id()}/{self._nodes.name}")
            count += await self._remove_strays(folder)
        return count

    async def _remove_strays(self, folder: Storage) -> int:
        found = await strays(folder, self._nodes)
        for name in found:
            await asyncio.to_thread(folder.below(name).delete)
        return len(found)

    async def _withdraw(self, attempt: Attempt) -> bool:
        """Remove the object of an attempt, unless the list names it by now. Its process may still be at work."""
        await self._nodes.withdraw_attempt(attempt)
        while True:
            chain, version = await self._nodes.read()
            with suppress(BadVersionError):
                await self._nodes.write(chain, version)
                break
        if not rules.may_remove_withdrawn(chain.attempt_of(attempt.ledger), attempt.number):
            return False
        await self._remove(attempt)
        return True

    async def remove_all(self, chain: Chain) -> set[int]:
        """Remove all objects of the log with this chain, which is being deleted. Returns the ledgers that have records
        of objects.

        An object that the list does not name may be under way. It is withdrawn first: else its process could write it
        after it was removed, and leave it there, since the list names it. Raises :class:`NoSuchLogError` if another
        process deletes the log meanwhile.
        """
        attempts = await self._nodes.attempts()
        if attempts:
            chain = await self._nodes.must_still_be(chain)  # so these are of this log
            for each in attempts:
                if chain.attempt_of(each.ledger) != each.number:
                    await self._nodes.withdraw_attempt(each)
        for folder in {_folder_of(each) for each in attempts}:
            await self._remove_strays(object_store(folder))
        for each in attempts:
            await self._remove(each)
        return {each.ledger for each in attempts}

    async def _remove(self, attempt: Attempt) -> None:
        """Remove an object, and then its record."""
        await asyncio.to_thread(object_store(attempt.place).delete)
        await self._nodes.delete_attempt(attempt)


async def strays(folder: Storage, nodes: LogNodes) -> list[str]:
    """The names of objects without a record in the folder of a log, in order. There may be no such log any more. Raises
    :class:`fencepost.SystemFailure`.
    """
    names = await asyncio.to_thread(folder.names)  # before the records are read
    kept = {each.name for each in await nodes.attempts()}
    return sorted(name for name in names if name not in kept and _OBJECT.fullmatch(name))


async def orphans(client: MetadataClient, to: str, remove: bool = False) -> list[str]:
    """The objects of this cluster in an object store that no log has a record of, each as ``LOG/LEDGER-NUMBER``: what a
    log left that was deleted while an offloader was at work, and strays of logs that exist. ``remove``: remove them.

    Raises :class:`fencepost.OptionError`, and :class:`fencepost.SystemFailure` for the object store.
    """
    folder = object_store(to).below(await client.instance_id())
    found = []
    for log in sorted(await asyncio.to_thread(folder.names)):
        with suppress(OptionError):  # a folder whose name is none of a log is not ours
            nodes = LogNodes(client, log)
            for name in await strays(folder.below(log), nodes):
                if remove:
                    await asyncio.to_thread(folder.below(f"{log}/{name}").delete)
                found.append(f"{log}/{name}")
    return found


def _folder_of(attempt: Attempt) -> str:
    """The folder of the log that an attempt's object is in."""
    place, mark, options = attempt.place.partition("?")
    return f"{place.removesuffix(f'/{attempt.name}')}{mark}{options}"


def clock() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _create(storage: Storage) -> None:
    """Create the folder of an object. A local one is durable, with all above it that were created for it."""
    storage.create()
    if not storage.is_remote:
        for folder in Path(storage.place).parents[:4]:
            try:
                sync_folder(folder)
            except OSError as error:
                raise SystemFailure(f"{folder} cannot be synced: {reason(error)}") from None


def _measure(storage: Storage, ledger: int) -> None:
    """Raise :class:`fencepost.SystemFailure` if an object lacks its manifest, or bytes of a chunk."""
    sizes = storage.sizes()
    for chunk in manifest_in(storage, ledger).chunks:
        if sizes.get(chunk.name) != chunk.size:
            raise SystemFailure(
                f"{storage.where(chunk.name)} has {sizes.get(chunk.name, 0):,} bytes, and {chunk.size:,} were written"
            )


def _verify(storage: Storage, written: Manifest) -> None:
    """Read an object back. Raises :class:`fencepost.SystemFailure` if it is not what was written."""
    if manifest_in(storage, written.ledger) != written:
        raise SystemFailure(f"{storage.where()} has another manifest than was written")
    for chunk in written.chunks:
        if storage.digest(chunk.name) != chunk.digest:
            raise SystemFailure(f"{storage.where(chunk.name)} is not what was written")
