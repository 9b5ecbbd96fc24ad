"""The handle of a log: it creates, writes, reads, trims and seals it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from fencepost.errors import OptionError
from fencepost.ledger.archive.exporting import Report
from fencepost.ledger.client import arguments
from fencepost.ledger.client.client import LedgerClient, Opening, writer_settings
from fencepost.ledger.errors import BadVersionError, IllegalOperationError, NoSuchLedgerError
from fencepost.ledger.rules.metadata import DigestType
from fencepost.log import rules
from fencepost.log.batches import Batches
from fencepost.log.chain import EARLIEST, ID, Chain, End, Position, seen_fields
from fencepost.log.cursors import Acknowledged, Cursor, acknowledged_of, bytes_of
from fencepost.log.errors import LogExistsError
from fencepost.log.ledgers import DIGEST, NUMBERS, options_of
from fencepost.log.metadata import LogNodes
from fencepost.log.offload import Offloaded, Offloads, clock
from fencepost.log.reader import At, LogReader, OnTrimmed, milliseconds
from fencepost.log.roles.leader import LeaderSettings
from fencepost.log.writer import LogWriter

_log = logging.getLogger("fencepost.log")

AT_ONCE = 64
"""The most ledgers that are deleted at the same time."""

MOST_DELETIONS = 100
"""How often what other processes write to a log is deleted, while the log is."""

GRACE = timedelta(hours=1)
"""How long bookies keep a ledger after it was offloaded."""


class LogView(msgspec.Struct, frozen=True):
    """The state of a log as the metadata service has it. No ledger is read for it.

    ``chain``: its ledgers with their times, the number of trimmed ones, and whether it is sealed. ``leader``: the name
    of the writer that leads. ``cursors``: how far each has read. ``unremoved``: trimmed ledgers that are still to be
    deleted. ``missing``: ledgers of the chain that were deleted, not by a trim: their entries are lost.
    """

    name: str
    chain: Chain
    leader: str | None
    cursors: dict[str, Acknowledged]
    unremoved: tuple[int, ...]
    missing: tuple[int, ...] = ()


class Log:
    """A log by its name; :meth:`.Client.log` returns it. The log need not exist before :meth:`create`, or before it is
    read or written.

    ``password``: of its ledgers, as given when the log was created.
    """

    def __init__(self, store: LedgerClient, name: str, password: bytes | str = b"") -> None:
        self.store = store
        """The store that it is in."""
        self._nodes = LogNodes(store.metadata, name)
        self._password = arguments.password(password)

    @property
    def name(self) -> str:
        """Its name."""
        return self._nodes.name

    def __repr__(self) -> str:
        return f"<log {self.name}>"

    async def create(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        digest: DigestType | str = DigestType.CRC32C,
    ) -> None:
        """Create the log, without a ledger yet. The options apply to all its ledgers; see
        :meth:`.LedgerClient.create_ledger`.

        Raises :class:`LogExistsError`, and :class:`fencepost.OptionError`.
        """
        settings = writer_settings(ensemble, write_quorum, ack_quorum, digest, b"", None)
        numbers = (settings.ensemble_size, settings.write_quorum, settings.ack_quorum)
        kept = {name: b"%d" % number for name, number in zip(NUMBERS, numbers, strict=True)}
        kept |= {DIGEST: settings.digest_type.name.lower().encode(), ID: secrets.token_bytes(16)}
        await self._nodes.create(Chain(settings=tuple(sorted(kept.items()))))

    def writer(
        self,
        *,
        ledger_entries: int = 0,
        ledger_bytes: int = 1 << 30,
        ledger_seconds: float = 3600.0,
        in_flight: int = 10_000,
        in_flight_bytes: int = 64 * 1024 * 1024,
        name: str | None = None,
        wait: float | None = None,
        despite_missing: bool = False,
    ) -> Opening[LogWriter]:
        """Write to the log once this writer is elected: ``async with log.writer() as writer``. Only one writer leads at
        a time.

        A new ledger begins when the current one has ``ledger_entries`` entries or ``ledger_bytes`` bytes, or is
        ``ledger_seconds`` old and not empty; 0 disables a limit. ``in_flight`` and ``in_flight_bytes``: the most
        entries and bytes that are not confirmed; above them, an append waits. ``name``: the name that others see while
        this writer leads; host and process by default. ``wait``: seconds to wait for a ledger to write to: first to be
        elected, and later for bookies, if there are too few for the next ledger; without a limit by default.
        ``despite_missing``: write even if ledgers of the log are missing, and only log a warning.

        Raises :class:`NoSuchLogError`, :class:`LogSealedError`, :class:`MissingLedgerError`, and after ``wait``
        :class:`NotLeaderError`, or the reason why it has no ledger, such as :class:`NotEnoughBookiesError`.
        """
        limits = rules.Limits(
            arguments.whole("ledger_entries", ledger_entries, 0),
            arguments.whole("ledger_bytes", ledger_bytes, 0),
            int(arguments.seconds("ledger_seconds", ledger_seconds) * 1_000_000),
        )
        patience = None if wait is None else int(arguments.seconds("wait", wait) * 1_000_000)
        settings = LeaderSettings(
            limits,
            arguments.whole("in_flight", in_flight, 1),
            arguments.whole("in_flight_bytes", in_flight_bytes, 1),
            patience=patience,
        )

        async def opened() -> LogWriter:
            writer = await self._writer(settings, despite_missing)
            await writer.begin(name, wait)
            return writer

        return Opening(opened)

    async def _writer(self, settings: LeaderSettings, despite_missing: bool) -> LogWriter:
        new = options_of(self.name, await self.chain())
        new["in_flight"], new["in_flight_bytes"] = settings.most_appends, settings.most_bytes
        return LogWriter(self.store, self._nodes, settings, new, self._password, despite_missing)

    def batches(self, writer: str, *, remembered: bool = True) -> Batches:
        """Write entries in whole batches with ascending numbers. A batch is in the log once, even if it is written
        again.

        ``writer``: a name that no other writer of batches has. ``remembered``: see :class:`.Batches`. Raises
        :class:`fencepost.OptionError` for an invalid name.
        """
        return Batches(self.store, self._nodes, self._password, writer, remembered)

    def reader(
        self,
        at: At = EARLIEST,
        *,
        follow: bool = True,
        on_trimmed: OnTrimmed | str = OnTrimmed.RAISE,
        prefetch: int = 1000,
        prefetch_bytes: int = 16 * 1024 * 1024,
    ) -> LogReader:
        """Read the log: ``async for entry in log.reader(at=EARLIEST)``.

        ``at``: a position, :data:`EARLIEST`, :data:`LATEST`, or a time, as a datetime with a time zone or in
        milliseconds since 1970. A time begins with the first entry that was appended then or later. ``follow``: wait
        for new entries; otherwise the reader ends at the end of the log. ``on_trimmed``: at a position that was trimmed
        or whose ledger is missing, ``raise`` a :class:`LogTrimmedError` or :class:`MissingLedgerError`, or ``skip`` to
        the next existing entry. ``prefetch`` and ``prefetch_bytes``: entries and bytes to request ahead.
        """
        if not isinstance(at, Position | End):
            at = milliseconds(at)
        try:
            chosen = OnTrimmed(on_trimmed)
        except ValueError:
            raise OptionError(f"on_trimmed is {on_trimmed!r}: give raise or skip") from None
        arguments.whole("prefetch", prefetch, 1)
        arguments.whole("prefetch_bytes", prefetch_bytes, 1)
        return LogReader(self.store, self._nodes, self._password, at, follow, chosen, prefetch, prefetch_bytes)

    # -- cursors -------------------------------------------------------------------------------------------------------

    def cursor(self, name: str, *, at: At = EARLIEST) -> Opening[Cursor]:
        """Open a cursor by its name: ``cursor = await log.cursor("billing")``. If there is none, it is created at
        ``at``.

        Raises :class:`NoSuchLogError`, and :class:`LogFormatError` if the stored cursor cannot be read.
        """

        async def opened() -> Cursor:
            cursor = Cursor(self.store, self._nodes, name, self.reader)
            if await self._nodes.read_cursor(name) is None:
                await self._nodes.create_cursor(name, bytes_of(Acknowledged(await self.find(at))))
            await cursor.load()
            return cursor

        return Opening(opened)

    async def find(self, at: At) -> Position:
        """The position at which a reader with this ``at`` begins; 0:0 while the log has no ledger."""
        async with self.reader(at, follow=False) as reader:
            await reader.locate()
            return reader.position or Position(0, 0)

    async def delete_cursor(self, name: str) -> None:
        """Delete a cursor, if it exists."""
        await self._nodes.delete_cursor(name)

    # -- the chain -----------------------------------------------------------------------------------------------------

    async def chain(self) -> Chain:
        """The ledgers of the log. Raises :class:`NoSuchLogError`."""
        return (await self._nodes.read())[0]

    async def show(self) -> LogView:
        """The state of the log, without reading a ledger. Raises :class:`NoSuchLogError`."""
        chain = await self.chain()
        leader = await self._nodes.leader()
        cursors = await self._cursors()
        unremoved = [
            ledger for _, ledgers in await self._nodes.trims() for ledger in ledgers if chain.index(ledger) is None
        ]
        called = None if leader is None else leader.data.decode(errors="replace").rpartition(" ")[0]
        return LogView(self.name, chain, called, cursors, tuple(unremoved), await self._nodes.missing(chain))

    async def trim(
        self,
        *,
        before: Position | datetime | int | None = None,
        keep: int | timedelta | None = None,
        keep_unread: bool = False,
    ) -> tuple[int, ...]:
        """Delete the oldest ledgers permanently. Returns those that were removed from the log.

        ``before``: remove ledgers that end before a position, or before a time as a datetime or in milliseconds since
        1970. ``keep``: remove all but this number of the newest ledgers, or what is older than a timedelta.
        ``keep_unread``: keep ledgers that a cursor has not read to the end; by default cursors are ignored. The last
        ledger is never deleted, and no ledger is read. A warning reports ledgers that are missing in the rest. The
        chain is changed first, then the ledgers are deleted; the next trim deletes any that are left over.

        Raises :class:`NoSuchLogError`, and :class:`fencepost.OptionError`.
        """
        before, keep = _bounds(before, keep)
        gone: tuple[int, ...] = ()
        while True:
            chain, version = await self._nodes.read()
            count = _oldest(chain, before, keep)
            if keep_unread and count:
                cursors = (await self._cursors()).values()
                count = min(count, rules.trimmable_of_read(chain, [each.before.ledger for each in cursors]))
            trimmed = chain.without_first(count)
            gone = tuple(link.ledger for link in chain.links[: len(chain.links) - len(trimmed.links)])
            if not gone:
                break
            await self._nodes.create_trim(gone)
            if await self._replace(chain, trimmed, version):
                break
        await self._remove_trimmed()
        await Offloads(self.store, self._nodes).remove_orphans()
        left = await self.chain()
        missing = await self._nodes.missing(left)
        if missing:
            _log.warning("%s", self._nodes.lost(left, missing))
        return gone

    async def _replace(self, chain: Chain, trimmed: Chain, version: int) -> bool:
        """Replace the chain by one without its oldest ledgers. Returns False if it was changed meanwhile: read it
        again.
        """
        trace, name = self.store.driver.trace, ""
        if trace is not None:
            name = self.store.driver.name_in_trace("trim")
        self._nodes.trace(
            trace, "sends_trim", {**seen_fields(chain, version), "trims": trimmed.trimmed - chain.trimmed}, name
        )
        try:
            made = await self._nodes.write(trimmed, version)
        except BadVersionError:
            self._nodes.trace(trace, "trim_bad_version", {}, name)
            return False
        self._nodes.trace(trace, "trim", {"version": made}, name)
        return True

    async def _remove_trimmed(self) -> None:
        """Delete ledgers that were trimmed, now or by a process that did not finish."""
        chain = await self.chain()
        for name, ledgers in await self._nodes.trims():
            if any(chain.index(ledger) is not None for ledger in ledgers):
                continue  # another trim is in progress, or did not finish
            await self._delete_ledgers(ledgers)
            await self._nodes.delete_trim(name)

    async def _delete_ledgers(self, ledgers: Iterable[int]) -> set[int]:
        """Delete ledgers, :data:`AT_ONCE` at a time. Some may not exist; return those that did."""
        free, deleted = asyncio.Semaphore(AT_ONCE), set[int]()

        async def delete(ledger: int) -> None:
            async with free:
                with suppress(NoSuchLedgerError):
                    await self.store.metadata.delete_ledger(ledger)
                    deleted.add(ledger)

        await asyncio.gather(*map(delete, ledgers))
        return deleted

    async def offload(
        self,
        to: str,
        *,
        before: Position | datetime | int | None = None,
        keep: int | timedelta | None = None,
        grace: timedelta = GRACE,
        report: Report = lambda entries, size: None,
    ) -> Offloaded:
        """Move the oldest ledgers to an object store. Readers find them there.

        ``to``: a folder as a URL of PyArrow, such as ``s3://bucket/folder``, or a local one that all readers reach.
        ``before`` and ``keep``: which ledgers, as for :meth:`trim`; without them, all but the last one. ``grace``: how
        long bookies keep a ledger that is offloaded. An offload deletes what earlier ones have left there. ``report``:
        called with how many more entries were copied, and their bytes.

        The list names an object after it was read back. An interrupted offload loses nothing: the next one goes on, and
        removes objects that the list does not name. Several at once may copy a ledger twice, and the list names one.

        Raises :class:`NoSuchLogError`, :class:`MissingLedgerError`, :class:`fencepost.OptionError`,
        :class:`fencepost.SystemFailure` for the object store, and :class:`ReadError` if an entry has no intact copy
        now.
        """
        if before is None and keep is None:
            keep = 1
        before, keep = _bounds(before, keep)
        offloads = Offloads(self.store, self._nodes)
        chain = await self.chain()
        oldest = [link.ledger for link in chain.links[: _oldest(chain, before, keep)]]
        copied = await offloads.copy_all(oldest, to, report)
        deleted = await offloads.ledgers_to_delete(clock() - int(grace.total_seconds() * 1000))
        await self._delete_ledgers(deleted)
        removed = await offloads.remove_orphans(to)
        metadata = copied.values()
        return Offloaded(
            tuple(copied),
            sum(each.last_entry + 1 for each in metadata),
            sum(each.length for each in metadata),
            tuple(deleted),
            removed,
        )

    async def _cursors(self) -> dict[str, Acknowledged]:
        """The acknowledged entries of each cursor."""
        nodes = {name: await self._nodes.read_cursor(name) for name in await self._nodes.cursors()}
        return {name: acknowledged_of(node.data) for name, node in nodes.items() if node is not None}

    async def delete(self) -> int:
        """Delete the log permanently, with its ledgers and cursors. Returns how many of its ledgers were deleted, from
        bookies or an object store.

        The log is sealed first, so that nobody appends to it and its chain stays the same. Then the ledgers are
        deleted, and the chain last. An interrupted delete leaves a sealed log, and the next delete finishes it.
        Readers, and writers that wait, get an error.

        Raises :class:`NoSuchLogError`, the error that keeps the last ledger from being closed, and
        :class:`LogExistsError` if other processes go on writing batches or offloading.
        """
        await self.seal()
        chain, trims = await self.chain(), await self._nodes.trims()
        deleted = await self._delete_ledgers(
            {*(link.ledger for link in chain.links), *(each for _, some in trims for each in some)}
        )
        deleted |= await self._delete_recorded(chain) & {each.ledger for each in chain.offloads}
        self._nodes.trace(self.store.driver.trace, "log_deleted", {})
        is_readable = True
        for _ in range(MOST_DELETIONS):
            if await self._nodes.delete(chain, despite_records=not is_readable):
                return len(deleted)
            is_readable = bool(await self._delete_recorded(chain))
        raise LogExistsError(
            f"the log {self.name} still has records of ledgers or objects, deleted {MOST_DELETIONS} times and there"
            " again: end the processes that write batches to it or offload it, and delete it again"
        )

    async def _delete_recorded(self, chain: Chain) -> set[int]:
        """Delete ledgers of batches that are not attached, and objects, each before its record. Returns the ledgers.

        Raises :class:`NoSuchLogError` if the log with this chain is gone, though there may be another one of its name.
        """
        writers = await self._nodes.batch_writers()
        pending = [(writer, each) for writer in writers for each in await self._nodes.pending(writer)]
        await self._nodes.must_still_be(chain)  # so these are of this log
        for writer, each in pending:
            with suppress(NoSuchLedgerError, IllegalOperationError):  # not created, or created by another process
                await self.store.delete_ledger(each.ledger, of_log=self.name)
            await self._nodes.delete_pending(writer, each.ledger)
        removed = await Offloads(self.store, self._nodes).remove_all(chain)
        return removed | {each.ledger for _, each in pending}

    async def seal(self) -> None:
        """End the log: its last ledger is closed, and nothing can be appended. A leading writer learns of it by an
        error.

        Raises :class:`NoSuchLogError`.
        """
        writer = await self._writer(LeaderSettings(), despite_missing=True)
        await writer.seal_unelected()


def _bounds(
    before: Position | datetime | int | None, keep: int | timedelta | None
) -> tuple[Position | int | None, int | None]:
    """Which ledgers are meant: those before a position or a time in milliseconds since 1970, or all but a number of the
    newest. Raises :class:`fencepost.OptionError`.
    """
    if (before is None) == (keep is None):
        raise OptionError("give before or keep, one of them")
    if isinstance(keep, timedelta):
        return milliseconds(datetime.now().astimezone() - keep), None
    if keep is not None:
        return None, arguments.whole("keep", keep, 1)
    return before if before is None or isinstance(before, Position) else milliseconds(before), None


def _oldest(chain: Chain, before: Position | int | None, keep: int | None) -> int:
    """How many of the oldest ledgers are meant, see :func:`_bounds`."""
    if keep is not None:
        return rules.trimmable_but(chain, keep)
    if isinstance(before, Position):
        return rules.trimmable_before_ledger(chain, before.ledger)
    assert before is not None
    return rules.trimmable_before_time(chain, before)
