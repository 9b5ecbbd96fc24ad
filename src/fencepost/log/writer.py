"""The writer of a log: carries out what its role wants, which decides; see :mod:`.roles.leader`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from fencepost.ledger import errors
from fencepost.ledger.client.appender import Appender, Batch, Data, copied
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.roles.interface import Outcome, SetTimer, Trace
from fencepost.ledger.rules.metadata import end_of
from fencepost.log.chain import Position
from fencepost.log.entries import HEADER, body, stamped
from fencepost.log.errors import LogFullError, LogSealedError, NoSuchLogError, NotLeaderError
from fencepost.log.ledgers import time_of_last_entry
from fencepost.log.metadata import Election, LogNodes
from fencepost.log.roles import leader as role
from fencepost.log.rules import Failure

if TYPE_CHECKING:
    from fencepost.ledger.client.client import LedgerClient

_log = logging.getLogger("fencepost.log")

_AT_ONCE = 1024
"""Entries that are over before they are let go."""


class LogWriter(Appender[Position]):
    """Writes to a log while it leads: of all writers of a log one is elected, and the others wait.

    Appends are confirmed in their order, many under way at once; a caller that appends more than may be waits. When the
    ledger that is written to is large or old enough, or its bookies fail, another follows, and callers notice nothing.
    """

    def __init__(
        self,
        store: LedgerClient,
        nodes: LogNodes,
        settings: role.LeaderSettings,
        new_ledger: dict[str, Any],
        password: bytes,
        despite_missing: bool,
    ) -> None:
        super().__init__(store.driver, settings.most_appends, settings.most_bytes)
        self._largest -= HEADER
        self.confirmed = 0
        """Entries that were confirmed."""
        self._store = store
        self._nodes = nodes
        self._new_ledger = new_ledger
        self._password = password
        self._despite_missing = despite_missing
        self._loop = self._driver.loop
        # callers' limits are of what they give, and the role counts the headers, too
        of_role = msgspec.structs.replace(settings, most_bytes=settings.most_bytes + settings.most_appends * HEADER)
        self._role = role.Leader(of_role, traces=self._driver.trace is not None)
        self._traced = self._driver.name_in_trace("log writer") if self._driver.trace is not None else ""
        """The name of this writer in a trace."""
        self._events: deque[Any] = deque()
        self._is_delivering = False
        self._carry: dict[type[Any], Callable[[Any], Any]] = {
            role.ReadChain: lambda effect: self._driver.spawn(self._read_chain(effect)),
            role.WriteChain: lambda effect: self._driver.spawn(self._write_chain(effect)),
            role.CreateLedger: lambda effect: self._driver.spawn(self._create_ledger(effect)),
            role.CloseLedger: lambda effect: self._driver.spawn(self._close_ledger(effect)),
            role.DeleteLedger: lambda effect: self._driver.spawn(self._delete_ledger(effect)),
            role.Abandon: self._abandon,
            role.Write: self._write,
            role.Acknowledged: self._acknowledged,
            role.Failed: self._failed,
            role.Leads: self._leads,
            role.SteppedDown: self._stepped_down,
            role.Waits: self._waits,
            SetTimer: lambda timer: self._driver.set_timer(timer, self._deliver),
            Trace: self._trace,
        }
        self._ledgers: dict[int, LedgerWriter] = {}
        """The ledgers that this writer has created and has not closed."""
        self._time = 0
        """The latest time that anything in the log is known to have, in milliseconds since 1970."""
        self._unacknowledged: list[bytes] = []
        """The entries that are not acknowledged, in their order, after those that are over."""
        self._over = 0
        """How many of these are over: acknowledged, or failed."""
        self._first = 0
        """The number of the first of them."""
        self._leading = asyncio.Event()
        self._ended: asyncio.Future[role.Reason] = self._loop.create_future()
        self._reason: role.Reason | None = None
        """Why it leads no more, if it did."""
        self._trouble: errors.StoreError | None = None
        """The last failure on the way to a ledger to write to, unless the step was done since."""
        self._error: errors.StoreError | None = None
        self._driver.must_work()
        self._driver.dependents[self._give_up] = None
        self._election: Election | None = None
        self._standing: asyncio.Task[None] | None = None

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows. Another may lead already; then nothing that this one appends is
        confirmed.
        """
        return self._leading.is_set()

    @property
    def ledger(self) -> int | None:
        """The ledger that it writes to, if there is one now."""
        return self._role.ledger

    def __repr__(self) -> str:
        return f"<writer of the log {self._nodes.name}, {'leads' if self.is_leader else 'does not lead'}>"

    # -- being leader --------------------------------------------------------------------------------------------------

    async def lead(self, wait: float | None = None) -> None:
        """Wait until this writer leads, so many seconds at most if that is given.

        Raises :class:`NotLeaderError` when that time is over, or what keeps it from having a ledger to write to, such
        as :class:`NotEnoughBookiesError`; :class:`LogSealedError`, and :class:`NoSuchLogError`.
        """
        end = None if wait is None else self._loop.time() + wait
        while not self._leading.is_set():  # which it may be for a moment only
            if self._ended.done():
                raise self._why(self._ended.result())
            left = None if end is None else end - self._loop.time()
            if left is not None and left <= 0:
                raise self._leads_not(wait)
            leading = asyncio.ensure_future(self._leading.wait())
            try:
                await asyncio.wait((leading, self._ended), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                leading.cancel()

    def _leads_not(self, wait: float | None) -> errors.StoreError:
        if self._role.is_elected and self._trouble is not None:
            return self._why(role.Reason.NO_LEDGER)
        leads = "" if self._election is None or self._election.leader is None else f": {self._election.leader} does"
        return NotLeaderError(f"this writer does not lead the log {self._nodes.name} after {wait or 0:g} s{leads}")

    async def begin(self, name: str | None, wait: float | None) -> None:
        """Stand for leader, and wait until it is this one."""
        await self._nodes.find()
        self._election = Election(self._nodes, name or f"{socket.gethostname()}:{os.getpid()}", self._elected)
        self._stand()
        try:
            await self.lead(wait)
        except BaseException:
            await self._leave()
            raise

    def _stand(self) -> None:
        self._standing = self._driver.spawn(self._stands())

    async def _stands(self) -> None:
        """Stand for leader whenever nobody leads."""
        assert self._election is not None
        while True:
            changed = asyncio.Event()
            try:
                await self._election.stand(lambda _, changed=changed: changed.set())  # type: ignore[misc]
            except NoSuchLogError:
                self._end(role.Reason.NO_LOG)
                return
            except errors.StoreError:
                await asyncio.sleep(1)
                continue
            await changed.wait()

    def _elected(self, is_elected: bool) -> None:
        self._deliver(role.Elected() if is_elected else role.NotElected())

    async def _leave(self) -> None:
        """Be no candidate any more, and do nothing more."""
        self._end(role.Reason.CLOSED)
        if self._standing is not None:
            self._standing.cancel()
        for ledger in [*self._ledgers.values()]:
            self._forget(ledger.id)
        if self._election is not None:
            with contextlib.suppress(errors.MetadataServiceError):
                await self._election.resign()

    # -- appending -----------------------------------------------------------------------------------------------------

    async def append(self, data: Data, key: bytes | None = None) -> Position:
        """Append an entry; where it is, once it is confirmed: an ack quorum of bookies has it, and all entries before
        it.

        Raises :class:`NotLeaderError` if another writer leads or may, which says whether the entry may be in the log
        all the same, :class:`LogSealedError`, and :class:`IllegalOperationError` for an entry that is too large; where
        the writer was given a time to ``wait``, also what kept it for so long from having a ledger to write to, such as
        :class:`NotEnoughBookiesError`. An append that is cancelled while it waits may be in the log or not.
        """
        entry = body(copied(data), None if key is None else copied(key))
        if not self._enters(len(entry)):
            await self._room(len(entry))
        return await self._put_one(entry)

    def _place(self, ledger: int, entry: int) -> Position:
        return Position(ledger, entry)

    def _send(self, batch: Batch, entries: list[bytes]) -> None:
        made = stamped(entries, self._now())
        self._unacknowledged += made
        self._deliver(role.Append([*map(len, made)]))

    def _refusal(self) -> errors.StoreError | None:
        if self._leading.is_set() and self._role.last_wish is None:
            return None
        return self._why(self._ended.result() if self._ended.done() else self._role.last_wish or self._reason)

    # -- ending --------------------------------------------------------------------------------------------------------

    async def roll_over(self) -> None:
        """Have another ledger follow once what is under way is confirmed. Nothing happens if nothing was written to
        this one.
        """
        self._push()
        self._deliver(role.RollOver())

    async def seal(self) -> None:
        """End the log behind what was appended: it takes nothing more, from anybody. The writer is closed then.

        Raises :class:`NotLeaderError` if it does not lead, or not before that is done.
        """
        self._push()
        self._driver.must_work()
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        self._deliver(role.Seal())
        await self._over_by(role.Reason.SEALED)

    async def seal_unelected(self) -> None:
        """End the log without being elected first: a writer that leads finds out. Raises as :meth:`seal`."""
        self._deliver(role.Seal())
        self._deliver(role.Elected())
        await self._over_by(role.Reason.SEALED)

    async def close(self) -> None:
        """Wait for the appends that are under way, close the ledger, and let another writer lead. It can be called
        again.
        """
        self._push()
        if not self._ended.done():
            self._deliver(role.Close())
        try:
            await asyncio.shield(self._ended)
        finally:
            await self._leave()

    async def _over_by(self, reason: role.Reason) -> None:
        """Wait until the writer has ended, for this reason or another."""
        try:
            found = await asyncio.shield(self._ended)
        finally:
            await self._leave()
        if found is not reason:
            raise self._why(found)

    def _end(self, reason: role.Reason) -> None:
        """End the writer: all appends under way fail."""
        self._leading.clear()
        self._driver.dependents.pop(self._give_up, None)
        if not self._ended.done():
            self._ended.set_result(reason)
        self._unacknowledged, self._over = [], 0
        self._give_all_back(self._why(reason, is_known=False))
        self._push()

    def _why(self, reason: role.Reason | None, is_known: bool = True) -> errors.StoreError:
        """Why an append fails. ``is_known``: it is certain that it is not in the log."""
        name = self._nodes.name
        rest = "" if is_known else "; whether the entry is in the log is not known: read the end of the log to know"
        if self._error is not None:
            return self._error
        if reason is role.Reason.SEALED:
            return LogSealedError(f"the log {name} is sealed: it takes nothing more{rest}")
        if reason is role.Reason.NO_LOG:
            return NoSuchLogError(f"there is no log {name} any more{rest}")
        if reason is role.Reason.CLOSED:
            return errors.IllegalOperationError(f"the writer of the log {name} is closed{rest}")
        if reason is role.Reason.NOT_ELECTED:
            return NotLeaderError(
                f"this writer does not lead the log {name} any more: its session with the metadata service ended{rest}"
            )
        if reason is role.Reason.NO_LEDGER and self._trouble is not None:
            return type(self._trouble)(f"the log {name} has no ledger to write to: {self._trouble}{rest}")
        return NotLeaderError(f"another writer leads the log {name} now, or has led it{rest}")

    # -- events of the role, and what it wants -------------------------------------------------------------------------

    def _deliver(self, event: Any) -> None:
        """Give the role an event, and do what it wants, all of it before the next event."""
        self._events.append(event)
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._events:
                event = self._events.popleft()
                if self._ended.done():
                    if type(event) is role.LedgerCreated and event.ledger is not None:
                        self._driver.spawn(self._delete_ledger(role.DeleteLedger(event.ledger)))
                    continue
                for effect in self._role.receive(event, int(self._loop.time() * 1_000_000)):
                    self._carry[type(effect)](effect)
        except Exception as error:
            self._driver.give_up(error)
        finally:
            self._is_delivering = False

    def _trace(self, effect: Trace) -> None:
        self._nodes.trace(self._driver.trace, effect.action, effect.fields, self._traced)

    def _leads(self, effect: role.Leads) -> None:
        self._reason = self._trouble = None
        self._leading.set()

    def _stepped_down(self, effect: role.SteppedDown) -> None:
        self._reason = effect.reason
        if effect.reason is not role.Reason.NO_LEDGER:
            self._trouble = None
        self._leading.clear()
        self._push()
        if self._role.ended is not None:
            self._end(self._role.ended)

    def _waits(self, effect: role.Waits) -> None:
        name, seconds = self._nodes.name, effect.time // 1_000_000
        _log.warning("the log %s has no ledger to write to for %d s, and tries again: %s", name, seconds, self._trouble)

    # -- the chain -----------------------------------------------------------------------------------------------------

    async def _read_chain(self, effect: role.ReadChain) -> None:
        try:
            answer = role.ChainRead(effect.txn, Outcome.OK, *await self._nodes.read())
        except NoSuchLogError:
            answer = role.ChainRead(effect.txn, Outcome.NO_LEDGER)
        except errors.MetadataServiceError as error:
            self._trouble = error
            answer = role.ChainRead(effect.txn, Outcome.UNKNOWN)
        except errors.StoreError as error:  # the list cannot be read by this version
            self._give_up(error)
            return
        self._deliver(answer)

    async def _write_chain(self, effect: role.WriteChain) -> None:
        try:
            version = await self._nodes.write(effect.chain, effect.version)
            answer = role.ChainWritten(effect.txn, Outcome.OK, version)
        except errors.BadVersionError:
            answer = role.ChainWritten(effect.txn, Outcome.BAD_VERSION)
        except LogFullError as error:
            self._give_up(error)
            return
        except (errors.OutcomeUnknownError, errors.MetadataServiceError):
            answer = role.ChainWritten(effect.txn, Outcome.UNKNOWN)
        self._deliver(answer)

    def _give_up(self, error: errors.StoreError) -> None:
        """The writer cannot go on at all."""
        self._error = self._error or error
        self._end(role.Reason.CLOSED)

    # -- ledgers -------------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        """The time in milliseconds since 1970, but never before what is in the log already."""
        self._time = max(self._time, time.time_ns() // 1_000_000)
        return self._time

    async def _create_ledger(self, effect: role.CreateLedger) -> None:
        try:
            ledger = await self._store.create_ledger(**self._new_ledger, password=self._password)
        except errors.StoreError as error:
            self._trouble = error
            self._deliver(role.LedgerCreated(effect.txn, None))
            return
        self._ledgers[ledger.id] = ledger
        self._deliver(role.LedgerCreated(effect.txn, ledger.id, self._now()))

    async def _close_ledger(self, effect: role.CloseLedger) -> None:
        own = self._ledgers.get(effect.ledger) if effect.is_own else None
        try:
            if not effect.is_own:  # it is about to lead
                missing = await self._nodes.missing(self._role.chain)
                if missing and not self._despite_missing:
                    advice = "trim the log behind them, or append to it all the same with {despite_missing}"
                    self._give_up(self._nodes.lost(self._role.chain, missing, advice, "despite_missing"))
                    return
                if missing:
                    _log.warning("%s", self._nodes.lost(self._role.chain, missing))
            if own is not None:
                with contextlib.suppress(errors.StoreError):
                    last = await own.close()
                    self._forget(effect.ledger)
                    self._deliver(role.LedgerClosed(effect.txn, role.Closing.CLOSED, last))
                    return
                metadata = await self._store.ledger_metadata(effect.ledger)
                if metadata.status is not metadata.status.OPEN:
                    self._deliver(role.LedgerClosed(effect.txn, role.Closing.BY_ANOTHER, end_of(metadata)))
                    return
            metadata = await self._store.recover_ledger(effect.ledger, password=self._password)
            self._forget(effect.ledger)
            if not effect.is_own:
                last_time = await time_of_last_entry(self._store, effect.ledger, metadata.last_entry, self._password)
                self._time = max(self._time, last_time)  # no later entry is earlier, even if this clock is behind
            answer = role.LedgerClosed(effect.txn, role.Closing.CLOSED, metadata.last_entry)
        except errors.NoSuchLedgerError:
            answer = role.LedgerClosed(effect.txn, role.Closing.GONE)
        except errors.StoreError as error:
            self._trouble = error
            answer = role.LedgerClosed(effect.txn, role.Closing.FAILED)
        self._deliver(answer)

    async def _delete_ledger(self, effect: role.DeleteLedger) -> None:
        with contextlib.suppress(errors.StoreError):
            await self._store.metadata.delete_ledger(effect.ledger)

    def _abandon(self, effect: role.Abandon) -> None:
        self._forget(effect.ledger)

    def _forget(self, ledger: int) -> None:
        """Do nothing more with a ledger of this writer's."""
        known = self._ledgers.pop(ledger, None)
        if known is not None:
            known.release(errors.LedgerClosedError(f"ledger {ledger} is left to others"))

    def _write(self, effect: role.Write) -> None:
        start = effect.first - self._first
        entries = self._unacknowledged[start : start + effect.count]
        ledger = self._ledgers.get(effect.ledger)
        if ledger is None:
            self._deliver(role.WriteFailed(effect.ledger, Failure.TROUBLE))
        else:
            ledger.submit_many(entries, _Written(self, effect.ledger))

    # -- those who append ----------------------------------------------------------------------------------------------

    def _acknowledged(self, effect: role.Acknowledged) -> None:
        self.confirmed += effect.count
        size = self._are_over(effect.count)
        self._confirm(effect.position.ledger, effect.position.entry, effect.count, size)

    def _failed(self, effect: role.Failed) -> None:
        self._fail(effect.count, self._are_over(effect.count), self._why(effect.reason, effect.is_known))

    def _are_over(self, count: int) -> int:
        """The next so many entries are over; the bytes that callers gave for them."""
        some = self._unacknowledged[self._over : self._over + count]
        self._over += count
        if self._over >= _AT_ONCE:
            del self._unacknowledged[: self._over]
            self._first += self._over
            self._over = 0
        return sum(map(len, some)) - HEADER * count


class _Written:
    """Gives the role the outcome of entries that were given to a ledger."""

    __slots__ = ("ledger", "writer")

    def __init__(self, writer: LogWriter, ledger: int) -> None:
        self.writer = writer
        self.ledger = ledger

    def confirm(self, ledger: int, first: int, number: int) -> None:
        """Entries are confirmed."""
        self.writer._deliver(role.Confirmed(ledger, first + number - 1))

    def fail(self, error: errors.StoreError, number: int) -> None:
        """The ledger takes nothing more."""
        is_fenced = isinstance(error, errors.LedgerFencedError | errors.LedgerClosedError)
        event = role.WriteFailed(self.ledger, Failure.FENCED if is_fenced else Failure.TROUBLE)
        # the handle that tells of it is not to be closed meanwhile
        self.writer._loop.call_soon(self.writer._deliver, event)
