"""The handle of a ledger's writer: it appends entries and closes the ledger."""

from __future__ import annotations

import asyncio
from typing import Any

from fencepost.ledger.client.appender import Appender, Batch, Data, Sink, copied
from fencepost.ledger.client.calls import Calls, error_of
from fencepost.ledger.client.driver import Driver
from fencepost.ledger.client.loops import LOOPS, RowLoops
from fencepost.ledger.errors import LedgerClosedError, StoreError, UnauthorizedAccessError
from fencepost.ledger.messages import NO_ENTRY_YET, ReadEntry
from fencepost.ledger.roles.interface import Confirmed, Error, Result
from fencepost.ledger.roles.writer import Writer, WriterSettings
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import LedgerMetadata, current_ensemble

ASKING = 1.0
"""The most seconds to wait for bookies that are asked about a new ledger."""


class LedgerWriter(Appender[int]):
    """A ledger that this client has created and alone appends to.

    Appends are confirmed in order. At most ``in_flight`` entries and ``in_flight_bytes`` bytes are in flight; beyond
    that, callers wait. Use it as a context manager, or call :meth:`close`. A ledger left open is closed by the next
    client that recovers it.
    """

    def __init__(self, driver: Driver, ledger: int, settings: WriterSettings, in_flight_bytes: int) -> None:
        super().__init__(driver, settings.in_flight_limit, in_flight_bytes)
        self.id = ledger
        """The ledger."""
        self._role = Writer(ledger, settings, loops=RowLoops(LOOPS), traces=driver.trace is not None)
        self._last_confirmed = -1
        """The last entry reported as confirmed."""
        self._confirmed_length = 0
        self._has_failed = False
        """Whether the writer failed before its ledger was closed."""
        closed = LedgerClosedError(f"ledger {ledger} is closed")
        self._calls = Calls(driver, ledger, self._role, self._entries_confirmed, self._not_appended, closed)
        self._calls.on_failure.append(self._failed)

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger's metadata, as this writer last wrote or read them."""
        return self._role.view.known()

    @property
    def last_add_confirmed(self) -> int:
        """The last entry that is confirmed together with all before it; -1 if none is."""
        return self._role.lac

    @property
    def length(self) -> int:
        """Bytes of data appended, confirmed or not."""
        return self._role.length + self._entries_size

    def __repr__(self) -> str:
        return f"<ledger {self.id}, last add confirmed {self.last_add_confirmed}>"

    # -- appending -----------------------------------------------------------------------------------------------------

    async def append(self, data: Data) -> int:
        """Append an entry. Gives its id once it is confirmed: an ack quorum of bookies has it and all entries before
        it.

        Raises :class:`LedgerFencedError`, :class:`NotEnoughBookiesError`, :class:`WriteError` or another
        :class:`StoreError`. The entry may then be in the ledger or not. The same holds if the append is cancelled.
        """
        entry = copied(data)
        if not self._try_reserve(len(entry)):
            await self._wait_for_room(len(entry))
        return await self._put_one(entry)

    def submit(self, data: Data) -> asyncio.Future[int]:
        """Append an entry without waiting for room. The future gives what :meth:`append` gives or raises.

        For callers that limit the entries in flight by other means: all of them are held in memory.
        """
        entry = copied(data)
        if not self._try_reserve(len(entry)):
            self._reserve(len(entry))
        return self._put_one(entry)

    def submit_many(self, entries: list[bytes], sink: Sink) -> None:
        """Append entries, none too large, without waiting for room. ``sink`` receives their outcome, see :class:`Sink`.
        For callers that limit the entries in flight by other means.
        """
        if entries:
            size = sum(map(len, entries))
            self._reserve(size, len(entries))
            self._push()
            self._send_batch(entries, size, sink)

    def _place(self, ledger: int, entry: int) -> int:
        return entry

    def _refusal(self) -> StoreError | None:
        return self._calls.error if self._calls.is_closed else None

    def _send(self, batch: Batch, entries: list[bytes]) -> None:
        batch.token = self._calls.calls + 1  # the role may answer before its call returns
        self._calls.append(entries)

    def _entries_confirmed(self, confirmed: Confirmed) -> None:
        """Entries are confirmed."""
        entry, size = self._last_confirmed + 1, confirmed.length - self._confirmed_length
        self._last_confirmed, self._confirmed_length = confirmed.entry_id, confirmed.length
        self._confirm(self.id, entry, confirmed.entry_id + 1 - entry, size)

    # -- force and close -----------------------------------------------------------------------------------------------

    async def force(self) -> int:
        """Make all confirmed entries durable on every bookie of the ensemble, and confirm them to readers. Gives the
        last add confirmed.

        Needed only for a ledger created with ``deferred_sync``. Raises :class:`WriteError`.
        """
        return int(await self._ask("force"))

    async def close(self) -> int:
        """Wait for the appends in flight and close the ledger. Gives its last entry, -1 if it is empty.

        After :class:`NotEnoughBookiesError` or :class:`WriteError` the ledger is closed at its last add confirmed.
        Raises :class:`LedgerFencedError` if another client recovers the ledger, which then decides the end. It can be
        called again.
        """
        if not self._calls.is_closed or self._has_failed:
            await self._ask("close")
            self._calls.leave()
        return self.last_add_confirmed

    def release(self, error: StoreError | None = None) -> None:
        """Stop writing and leave the ledger open, for another client to adopt or recover. With an ``error``, the
        appends in flight fail with it.
        """
        if error is None:
            self._calls.leave()
        else:
            self._calls.fail(error)

    async def begin(self, operation: str) -> None:
        """``create`` the ledger or ``adopt`` it. :class:`fencepost.ledger.client.client.LedgerClient` calls this
        once.
        """
        try:
            await self._ask(operation)
        except BaseException:
            self._calls.leave()
            raise

    async def known_to(self) -> str | None:
        """A bookie of the new ledger that already knows the ledger's id, if one says so within :data:`ASKING` seconds.

        Bookies are asked for the last entry, because that changes nothing. Asking Java's bookies for the LAC of an
        unknown ledger makes them fail readers that come after its first entry.
        """
        request = ReadEntry(self.id, NO_ENTRY_YET)
        answers = await self._driver.ask_all(current_ensemble(self.metadata), request, ASKING)
        knowing = (Code.OK, Code.NO_ENTRY)
        return next((bookie for bookie, response in answers.items() if response.code in knowing), None)

    async def _ask(self, operation: str) -> Any:
        self._push()
        return await self._calls.ask(operation)

    def _not_appended(self, result: Result) -> None:
        """Entries appended together, or the rest of them, are not confirmed."""
        batch = next(each for each in self._batches if each.token == result.token)
        self._batches.remove(batch)
        is_strange = result.error is Error.UNAUTHORIZED  # the writer's password is the one in the metadata
        self._fail_batch(batch, strange(self.id) if is_strange else error_of(result.error, self.id))

    def _failed(self, error: StoreError) -> None:
        """Fail everything in flight."""
        self._has_failed = True
        self._push()
        self._fail_all(error)


REFUSED = (
    "bookies refuse entries of ledger {ledger}: one is larger than they take (nettyMaxFrameSizeBytes), or they know the"
    " ledger by another key than its writer's"
)


def strange(ledger: int, bookie: str = "", then: str = "create one with another id") -> UnauthorizedAccessError:
    """The error when a bookie knew a new ledger's id before its creation, or when bookies refuse its writer's
    entries.
    """
    return UnauthorizedAccessError(
        f"{f'bookie {bookie} knows ledger {ledger} already' if bookie else REFUSED.format(ledger=ledger)}:"
        " somebody wrote to this id or fenced it before the ledger was created, or had a ledger of this id that was"
        f" deleted; {then}"
    )
