"""The writer of a log: carries out the effects of its role, which makes the decisions; see :mod:`.roles.leader`."""

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

_RELEASE_AFTER = 1024
"""The number of finished entries after which their memory is released."""


class LogWriter(Appender[Position]):
    """Writes to a log while it leads. One of a log's writers is elected, and the others wait.

    Appends are confirmed in order, with many under way at once; above the limits, an append waits. When the current
    ledger is large or old enough, or its bookies fail, the writer goes on with another, and callers do not notice.
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
        """The number of confirmed entries."""
        self._store = store
        self._nodes = nodes
        self._new_ledger = new_ledger
        self._password = password
        self._despite_missing = despite_missing
        self._loop = self._driver.loop
        # The callers' limits exclude headers, and the role's include them.
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
        """The ledgers that this writer has created and not closed."""
        self._time = 0
        """The latest known time of an entry in the log, in milliseconds since 1970."""
        self._unacknowledged: list[bytes] = []
        """Entries that are not acknowledged, in order, with some finished ones before them."""
        self._over = 0
        """How many entries of the list are finished: acknowledged or failed."""
        self._first = 0
        """The number of the list's first entry."""
        self._leading = asyncio.Event()
        self._ended: asyncio.Future[role.Reason] = self._loop.create_future()
        self._reason: role.Reason | None = None
        """Why it stopped leading, if it did."""
        self._trouble: errors.StoreError | None = None
        """The last failure to get a ledger to write to, unless that step succeeded since."""
        self._error: errors.StoreError | None = None
        self._driver.must_work()
        self._driver.dependents[self._give_up] = None
        self._election: Election | None = None
        self._standing: asyncio.Task[None] | None = None

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether it leads, as far as it knows. Another writer may lead already; then appends of this one are not
        confirmed.
        """
        return self._leading.is_set()

    @property
    def ledger(self) -> int | None:
        """The ledger that it writes to; None if there is none now."""
        return self._role.ledger

    def __repr__(self) -> str:
        return f"<writer of the log {self._nodes.name}, {'leads' if self.is_leader else 'does not lead'}>"

    # -- leading -------------------------------------------------------------------------------------------------------

    async def lead(self, wait: float | None = None) -> None:
        """Wait until this writer leads, for at most ``wait`` seconds if that is not None.

        Raises :class:`NotLeaderError` when the time is over, or the reason why it has no ledger to write to, such as
        :class:`NotEnoughBookiesError`; :class:`LogSealedError`, and :class:`NoSuchLogError`.
        """
        end = None if wait is None else self._loop.time() + wait
        while not self._leading.is_set():  # it may lead for a moment only
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
        """Stand for leader, and wait to be elected."""
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
        """Stop standing, and release everything."""
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
        """Append an entry. Returns its position once an ack quorum of bookies has it and all entries before it.

        Raises :class:`NotLeaderError` if another writer leads or may; the message says whether the entry may still be
        in the log. Raises :class:`LogSealedError`, and :class:`IllegalOperationError` for an entry that is too large.
        If the writer has a ``wait``, raises also the reason why there was no ledger for that long, such as
        :class:`NotEnoughBookiesError`. If an append is cancelled while it waits, its entry may be in the log or not.
        """
        entry = body(copied(data), None if key is None else copied(key))
        if not self._try_reserve(len(entry)):
            await self._wait_for_room(len(entry))
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
        """Begin another ledger once the appends under way are confirmed. Does nothing if this one is empty."""
        self._push()
        self._deliver(role.RollOver())

    async def seal(self) -> None:
        """End the log after the appends so far: nobody can append to it any more. The writer is closed then.

        Raises :class:`NotLeaderError` if it does not lead, or loses the lead before the log is sealed.
        """
        self._push()
        self._driver.must_work()
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        self._deliver(role.Seal())
        await self._wait_for_end(role.Reason.SEALED)

    async def seal_unelected(self) -> None:
        """End the log without an election. A leading writer learns of it by an error. Raises as :meth:`seal`."""
        self._deliver(role.Seal())
        self._deliver(role.Elected())
        await self._wait_for_end(role.Reason.SEALED)

    async def close(self) -> None:
        """Wait for the appends under way, close the ledger, and let another writer lead. It can be called again."""
        self._push()
        if not self._ended.done():
            self._deliver(role.Close())
        try:
            await asyncio.shield(self._ended)
        finally:
            await self._leave()

    async def _wait_for_end(self, reason: role.Reason) -> None:
        """Wait until the writer has ended. Raises unless it ended for this reason."""
        try:
            ended_by = await asyncio.shield(self._ended)
        finally:
            await self._leave()
        if ended_by is not reason:
            raise self._why(ended_by)

    def _end(self, reason: role.Reason) -> None:
        """End the writer: all appends under way fail."""
        self._leading.clear()
        self._driver.dependents.pop(self._give_up, None)
        if not self._ended.done():
            self._ended.set_result(reason)
        self._unacknowledged, self._over = [], 0
        self._fail_all(self._why(reason, is_known=False))
        self._push()

    def _why(self, reason: role.Reason | None, is_known: bool = True) -> errors.StoreError:
        """The error of a failed append. ``is_known``: the entry is certainly not in the log."""
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

    # -- events and effects of the role --------------------------------------------------------------------------------

    def _deliver(self, event: Any) -> None:
        """Give the role an event, and carry out all effects before the next event."""
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
        except errors.StoreError as error:  # a later version wrote the chain
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
        """End the writer because of an error that it cannot recover from."""
        self._error = self._error or error
        self._end(role.Reason.CLOSED)

    # -- ledgers -------------------------------------------------------------------------------------------------------

    def _now(self) -> int:
        """The time in milliseconds since 1970, but never before that of an entry in the log."""
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
            if not effect.is_own:  # the writer is about to lead
                missing = await self._nodes.missing(self._role.chain)
                if missing and not self._despite_missing:
                    advice = "trim the log behind them, or append to it anyway with {despite_missing}"
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
                self._time = max(self._time, last_time)  # times never go back, even if this clock is behind
            answer = role.LedgerClosed(effect.txn, role.Closing.CLOSED, metadata.last_entry)
        except errors.NoSuchLedgerError:
            answer = role.LedgerClosed(effect.txn, role.Closing.GONE)
        except errors.UnauthorizedAccessError as error:  # a later attempt has the same password
            self._give_up(error)
            return
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
        """Release the handle of a ledger of this writer."""
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

    # -- outcomes of appends -------------------------------------------------------------------------------------------

    def _acknowledged(self, effect: role.Acknowledged) -> None:
        self.confirmed += effect.count
        size = self._finish(effect.count)
        self._confirm(effect.position.ledger, effect.position.entry, effect.count, size)

    def _failed(self, effect: role.Failed) -> None:
        self._fail(effect.count, self._finish(effect.count), self._why(effect.reason, effect.is_known))

    def _finish(self, count: int) -> int:
        """Mark the next ``count`` entries as finished, and return their size in bytes, without headers."""
        some = self._unacknowledged[self._over : self._over + count]
        self._over += count
        if self._over >= _RELEASE_AFTER:
            del self._unacknowledged[: self._over]
            self._first += self._over
            self._over = 0
        return sum(map(len, some)) - HEADER * count


class _Written:
    """Reports to the role the outcome of entries that were submitted to a ledger."""

    __slots__ = ("ledger", "writer")

    def __init__(self, writer: LogWriter, ledger: int) -> None:
        self.writer = writer
        self.ledger = ledger

    def confirm(self, ledger: int, first: int, number: int) -> None:
        """Entries are confirmed."""
        self.writer._deliver(role.Confirmed(ledger, first + number - 1))

    def fail(self, error: errors.StoreError, number: int) -> None:
        """The ledger takes no more entries."""
        is_fenced = isinstance(error, errors.LedgerFencedError | errors.LedgerClosedError)
        event = role.WriteFailed(self.ledger, Failure.FENCED if is_fenced else Failure.TROUBLE)
        # The handle that reports this must not be closed meanwhile.
        self.writer._loop.call_soon(self.writer._deliver, event)
