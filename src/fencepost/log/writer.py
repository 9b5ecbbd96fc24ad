"""The writer of a log: carries out what its role wants, which decides; see :mod:`.roles.leader`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Self

from fencepost.log import chain as chains
from fencepost.log.chain import Position
from fencepost.log.entries import HEADER, framed
from fencepost.log.errors import LogFullError, LogSealedError, NoSuchLogError, NotLeaderError
from fencepost.log.ledgers import time_of_last_entry
from fencepost.log.metadata import Election, LogNodes
from fencepost.log.roles import leader as role
from fencepost.log.rules import Failure
from fencepost.store import errors
from fencepost.store.client.writer import OVERHEAD, Data, LedgerWriter, Together, copied
from fencepost.store.roles.interface import Outcome, SetTimer, Trace
from fencepost.store.rules.metadata import end_of

if TYPE_CHECKING:
    from fencepost.store.client.store import Store

_log = logging.getLogger("fencepost.log")

_AT_ONCE, _AT_ONCE_SIZE = 1024, 1024 * 1024
"""Entries, and bytes of them, that are taken at once from a caller that appends many."""
_KEY = 5
"""Bytes that say how long a key is, at most."""

Item = bytes | tuple[bytes, bytes]
"""The data of an entry, or its key and its data."""


class LogWriter:
    """Writes to a log while it leads: of all writers of a log one is elected, and the others wait.

    Appends are confirmed in their order, many under way at once; a caller that appends more than may be waits. When the
    ledger that is written to is large or old enough, or its bookies fail, another follows, and callers notice nothing.
    """

    def __init__(
        self,
        store: Store,
        nodes: LogNodes,
        settings: role.LeaderSettings,
        new_ledger: dict[str, Any],
        password: bytes,
        despite_missing: bool,
    ) -> None:
        self.confirmed = 0
        """Entries that were confirmed."""
        self._store = store
        self._nodes = nodes
        self._new_ledger = new_ledger
        self._password = password
        self._despite_missing = despite_missing
        self._driver = store.driver
        self._loop = self._driver.loop
        self._role = role.Leader(settings, traces=self._driver.trace is not None)
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
        self._items: list[Item] = []
        """The items that are appended and not acknowledged, in their order, after those that are over."""
        self._over = 0
        """How many of the items are acknowledged or have failed."""
        self._first = 0
        """The number of the first of the items."""
        self._sinks: deque[tuple[_Sink, int]] = deque()
        """The sinks of those items' outcomes, with the number of items of each, in their order."""
        self._batch: list[tuple[Item, int, _Sink]] = []
        """The items that were appended in this turn of the loop, and that the role does not have yet."""
        self._held = self._held_size = 0
        """Entries and bytes for which there is room, and which the role does not have yet."""
        self._is_pushing = False
        self._waiting: deque[tuple[asyncio.Future[None], int, int]] = deque()
        """Those who wait for room, with the bytes and the number of their entries."""
        self._largest = self._driver.settings.frame_limit - OVERHEAD
        self._leading = asyncio.Event()
        self._ended: asyncio.Future[role.Reason] = self._loop.create_future()
        self._reason: role.Reason | None = None
        """Why it leads no more, if it did."""
        self._trouble: errors.StoreError | None = None
        """The last failure on the way to a ledger to write to, unless the step was done since."""
        self._error: errors.StoreError | None = None
        self._driver.must_work()
        self._driver.dependents.add(self._give_up)
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

    @property
    def in_flight(self) -> int:
        """Entries that are not confirmed yet."""
        return self._role.unacknowledged + len(self._batch)

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
        await self._nodes.read()
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
        item: Item = copied(data) if key is None else (copied(key), copied(data))
        size = self._size_of(item)
        await self._room(size, 1)
        future: asyncio.Future[Position] = self._loop.create_future()
        self._put(item, size, future)
        return await future

    async def append_many(self, entries: Iterable[Data] | AsyncIterable[Data]) -> list[Position]:
        """Append entries one after another, many under way at once; where they are, once all are confirmed.

        Raises as :meth:`append`, at the first that fails.
        """
        many = _Many(self._loop)
        if isinstance(entries, AsyncIterable):
            async for data in entries:
                if not await self._send_one(many, copied(data)):
                    break
        else:
            drawn = map(copied, entries)
            goes_on = True
            while goes_on:
                some: list[Item] = []
                try:
                    some.extend(islice(drawn, _AT_ONCE))
                finally:  # what came before an error is sent
                    goes_on = await self._send(many, some) and bool(some)
        return await many.positions()

    async def _send_one(self, many: _Many, item: Item) -> bool:
        """Append one of many entries once there is room for it, unless an earlier one has failed."""
        size = self._size_of(item)
        await self._room(size, 1)
        if many.error is not None:
            self._held, self._held_size = self._held - 1, self._held_size - size
            self._let_in()
            return False
        many.missing += 1
        self._put(item, size, many)
        return True

    async def _send(self, many: _Many, items: list[Item]) -> bool:
        """Append some of many entries as there is room for them, unless an earlier one has failed."""
        sizes = [*map(self._size_of, items)]
        at, settings = 0, self._role.settings
        while at < len(items):
            stop, size = at + 1, sizes[at]
            most, most_size = min(_AT_ONCE, settings.most_appends), min(_AT_ONCE_SIZE, settings.most_bytes)
            while stop < len(items) and stop - at < most and size + sizes[stop] <= most_size:
                size += sizes[stop]
                stop += 1
            if many.error is None:
                await self._room(size, stop - at)
                self._held, self._held_size = self._held - (stop - at), self._held_size - size
            if many.error is not None:
                return False
            self._push()
            many.missing += stop - at
            self._give(items[at:stop], sizes[at:stop], [(many, stop - at)])
            at = stop
        return many.error is None

    def _size_of(self, item: Item) -> int:
        size = HEADER + (len(item) if isinstance(item, bytes) else len(item[0]) + _KEY + len(item[1]))
        if size > self._largest:
            raise errors.IllegalOperationError(
                f"an entry of {size:,} bytes is too large: at most {self._largest:,} are taken, header and key among"
                " them"
            )
        return size

    @property
    def _takes(self) -> bool:
        """Whether appends are taken."""
        return self._leading.is_set() and self._role.last_wish is None

    def _require_leader(self) -> None:
        self._driver.must_work()
        if not self._takes:
            raise self._refusal()

    def _refusal(self) -> errors.StoreError:
        """Why nothing is taken."""
        return self._why(self._ended.result() if self._ended.done() else self._role.last_wish or self._reason)

    def _put(self, item: Item, size: int, sink: _Sink) -> None:
        """Append an entry for which there is room: at once if there is nothing to wait for, else with those that come
        in this turn of the loop.
        """
        self._batch.append((item, size, sink))
        if not self._role.unacknowledged and len(self._batch) == 1:
            self._push()
        elif not self._is_pushing:
            self._is_pushing = True
            self._loop.call_soon(self._push)

    def _push(self) -> None:
        """Give the role what has been appended one by one."""
        self._is_pushing = False
        batch, self._batch = self._batch, []
        if not batch:
            return
        items, sizes, sinks = zip(*batch, strict=True)
        self._held, self._held_size = self._held - len(items), self._held_size - sum(sizes)
        counted = [(sink, len([*same])) for sink, same in groupby(sinks)]
        if self._takes:
            self._give(items, sizes, counted)
        else:
            for sink, count in counted:
                _fail(sink, self._refusal(), count)

    def _give(self, items: Iterable[Item], sizes: Any, sinks: Iterable[tuple[_Sink, int]]) -> None:
        self._items += items
        self._sinks += sinks
        self._deliver(role.Append(sizes))

    async def _room(self, size: int, count: int) -> None:
        """Have room for entries, after those who wait for it already. Raises if none is taken."""
        self._require_leader()
        if self._waiting or not self._role.has_room(self._held_size + size, self._held + count):
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((turn, size, count))
            try:
                await turn
                self._require_leader()
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._held, self._held_size = self._held - count, self._held_size - size
                self._let_in()
                raise
        else:
            self._held, self._held_size = self._held + count, self._held_size + size

    def _let_in(self) -> None:
        """Let appends go on that wait for room, as far as there is some; all of them once the writer takes no more."""
        while self._waiting:
            turn, size, count = self._waiting[0]
            if not turn.done():
                if self._takes and not self._role.has_room(self._held_size + size, self._held + count):
                    return
                self._held, self._held_size = self._held + count, self._held_size + size
                turn.set_result(None)
            self._waiting.popleft()

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
        self._require_leader()
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self.close()
        else:
            with contextlib.suppress(errors.StoreError):  # the error that is under way says more
                await self.close()

    def _end(self, reason: role.Reason) -> None:
        """End the writer: all appends under way fail."""
        self._leading.clear()
        self._driver.dependents.discard(self._give_up)
        if not self._ended.done():
            self._ended.set_result(reason)
        sinks, self._sinks = self._sinks, deque()
        self._items, self._over = [], 0
        error = self._why(reason, is_known=False)
        for sink, count in sinks:
            _fail(sink, error, count)
        self._push()
        self._let_in()

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
        self._let_in()
        if self._role.ended is not None:
            self._end(self._role.ended)

    def _waits(self, effect: role.Waits) -> None:
        name, seconds = self._nodes.name, effect.time // 1_000_000
        _log.warning("the log %s has no ledger to write to for %d s, and tries again: %s", name, seconds, self._trouble)

    # -- the chain -----------------------------------------------------------------------------------------------------

    async def _read_chain(self, effect: role.ReadChain) -> None:
        try:
            found = await self._nodes.read()
            answer = role.ChainRead(effect.txn, Outcome.OK, chains.chain_of(found.data), found.version)
        except NoSuchLogError:
            answer = role.ChainRead(effect.txn, Outcome.NO_LEDGER)
        except errors.MetadataServiceError as error:
            self._trouble = error
            answer = role.ChainRead(effect.txn, Outcome.UNKNOWN)
        except errors.StoreError as error:  # the list can not be read by this version
            self._give_up(error)
            return
        self._deliver(answer)

    async def _write_chain(self, effect: role.WriteChain) -> None:
        try:
            version = await self._nodes.write(chains.bytes_of(effect.chain), effect.version)
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
        """The writer can not go on at all."""
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
                await self._learn_time(effect.ledger, metadata.last_entry)
            answer = role.LedgerClosed(effect.txn, role.Closing.CLOSED, metadata.last_entry)
        except errors.NoSuchLedgerError:
            answer = role.LedgerClosed(effect.txn, role.Closing.GONE)
        except errors.StoreError as error:
            self._trouble = error
            answer = role.LedgerClosed(effect.txn, role.Closing.FAILED)
        self._deliver(answer)

    async def _learn_time(self, ledger: int, last: int) -> None:
        """Learn the time of the last entry of a ledger: later entries have no earlier time, even if this clock is
        behind.
        """
        self._time = max(self._time, await time_of_last_entry(self._store, ledger, last, self._password))

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
        items = self._items[start : start + effect.count]
        now = self._now()
        header = framed(b"", now)
        entries = [header + each if isinstance(each, bytes) else framed(each[1], now, each[0]) for each in items]
        ledger = self._ledgers.get(effect.ledger)
        if ledger is None:
            self._deliver(role.WriteFailed(effect.ledger, Failure.TROUBLE))
        else:
            ledger.submit_many(entries, _Written(self, effect.ledger))

    # -- those who append ----------------------------------------------------------------------------------------------

    def _acknowledged(self, effect: role.Acknowledged) -> None:
        ledger, entry = effect.position.ledger, effect.position.entry
        self.confirmed += effect.count
        for sink, count in self._next_sinks(effect.count):
            if isinstance(sink, asyncio.Future):
                if not sink.done():
                    sink.set_result(Position(ledger, entry))
            else:
                sink.confirm(ledger, entry, count)
            entry += count
        self._let_in()

    def _failed(self, effect: role.Failed) -> None:
        error = self._why(effect.reason, effect.is_known)
        for sink, count in self._next_sinks(effect.count):
            _fail(sink, error, count)

    def _next_sinks(self, count: int) -> Iterable[tuple[_Sink, int]]:
        """The sinks of the next so many items, which are over."""
        self._over += count
        if self._over >= _AT_ONCE:
            del self._items[: self._over]
            self._first += self._over
            self._over = 0
        while count and self._sinks:
            sink, number = self._sinks[0]
            some = min(count, number)
            if some == number:
                self._sinks.popleft()
            else:
                self._sinks[0] = sink, number - some
            count -= some
            yield sink, some


class _Written:
    """Gives the role the outcome of entries that were given to a ledger."""

    __slots__ = ("ledger", "writer")

    def __init__(self, writer: LogWriter, ledger: int) -> None:
        self.writer = writer
        self.ledger = ledger

    def confirm(self, first: int, number: int) -> None:
        """Entries are confirmed."""
        self.writer._deliver(role.Confirmed(self.ledger, first + number - 1))

    def fail(self, error: errors.StoreError, number: int) -> None:
        """The ledger takes nothing more."""
        is_fenced = isinstance(error, errors.LedgerFencedError | errors.LedgerClosedError)
        event = role.WriteFailed(self.ledger, Failure.FENCED if is_fenced else Failure.TROUBLE)
        # the handle that tells of it is not to be closed meanwhile
        self.writer._loop.call_soon(self.writer._deliver, event)


class _Many(Together):
    """Appends that are waited for together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.confirmed: list[tuple[int, range]] = []

    def confirm(self, ledger: int, first: int, number: int) -> None:
        """The next so many are there."""
        if self.confirmed and self.confirmed[-1][0] == ledger and self.confirmed[-1][1].stop == first:
            self.confirmed[-1] = ledger, range(self.confirmed[-1][1].start, first + number)
        else:
            self.confirmed.append((ledger, range(first, first + number)))
        self._fewer(number)

    async def positions(self) -> list[Position]:
        """Where they are, once nothing is missing."""
        await self._all_over()
        return [Position(ledger, entry) for ledger, entries in self.confirmed for entry in entries]


_Sink = asyncio.Future[Position] | _Many


def _fail(sink: _Sink, error: errors.StoreError, count: int) -> None:
    if isinstance(sink, _Many):
        sink.fail(error, count)
    elif not sink.done():
        sink.set_exception(error)
