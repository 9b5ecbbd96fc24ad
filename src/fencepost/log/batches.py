"""Batches: entries that enter a log all at once or not at all, and once even if the batch is written again.

Any number of processes write the parts of a batch, each to its own ledgers, and close them. One update of the chain
then attaches all parts and records the number of the batch. The attaching process is elected and closes the last ledger
first, as every leader does. A record is written before each ledger is created, so that the ledgers of an abandoned
batch can be found: see :class:`.Pending`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.errors import (
    BadVersionError,
    IllegalOperationError,
    LedgerExistsError,
    MetadataServiceError,
    NoSuchLedgerError,
    StoreError,
    UnauthorizedAccessError,
)
from fencepost.ledger.roles.interface import Effect, Event, Outcome, Trace
from fencepost.log import rules
from fencepost.log.chain import Batch, Chain, seen_fields
from fencepost.log.entries import body, stamped
from fencepost.log.errors import LogFullError, LogSealedError, MissingLedgerError, NoSuchLogError, NotLeaderError
from fencepost.log.ledgers import options_of, time_of_last_entry
from fencepost.log.metadata import Election, LogNodes, Pending, checked_name
from fencepost.log.roles.attacher import Attacher, PendingRead, ReadPending
from fencepost.log.roles.leader import (
    ChainRead,
    ChainWritten,
    CloseLedger,
    Closing,
    LedgerClosed,
    ReadChain,
    WriteChain,
)
from fencepost.log.rules import Attaching

GIVEN_UP = 7 * 24 * 3600 * 1000
"""Milliseconds after which any writer of batches may delete a ledger that was never attached."""

PAUSE = 0.2
"""Seconds before a failed step is retried."""

_WRITER, _NUMBER = "batch-writer", "batch"
"""Keys in the custom metadata of a batch's ledgers: the writer, and the number of the batch."""


class Part(msgspec.Struct, frozen=True):
    """A written part of a batch: its closed ledgers in order, and how many entries and bytes they hold."""

    ledgers: tuple[int, ...] = ()
    entries: int = 0
    bytes: int = 0


class Batches:
    """The batches of one writer. :meth:`.Log.batches` returns it.

    Batch numbers ascend; a batch that is written again keeps its number. The log does not record what a writer attached
    unless the writer is ``remembered``.
    """

    def __init__(self, store: LedgerClient, nodes: LogNodes, password: bytes, writer: str, remembered: bool) -> None:
        self.writer = checked_name(writer, "a writer of batches")
        self.remembered = remembered
        self._store = store
        self._nodes = nodes
        self._password = password
        self._trace = store.driver.trace
        self._name = store.driver.name_in_trace("batches") if self._trace is not None else ""
        """The name of this process in a trace."""
        self._last_time = 0
        """The time of the last entry of the ledger that was closed last, in milliseconds since 1970."""

    def part(self, number: int, ledger_bytes: int = 1 << 30) -> PartWriter:
        """Write a part of a batch. A new ledger begins after ``ledger_bytes`` bytes."""
        return PartWriter(self, number, ledger_bytes)

    async def has(self, number: int) -> bool:
        """Return whether the log remembers this batch, or a later one of this writer."""
        return (await self._chain()).last_batch(self.writer) >= number

    # -- attaching -----------------------------------------------------------------------------------------------------

    async def attach(
        self,
        number: int,
        parts: Sequence[Part],
        *,
        wait: float = 60.0,
        name: str | None = None,
        despite_missing: bool = False,
    ) -> bool:
        """Attach a batch to the log, its parts in this order.

        Returns False if other ledgers of this batch are in the log already; the given ones are then deleted. Attaching
        takes the lead of the log. ``wait`` is the number of seconds to wait for it, and again for bookies and the
        metadata service. ``despite_missing`` attaches the batch even if ledgers of the log are missing.

        Raises :class:`NotLeaderError`, :class:`LogSealedError`, :class:`LogFullError`, :class:`NoSuchLogError`,
        :class:`MissingLedgerError`, and :class:`IllegalOperationError` if the batch was withdrawn meanwhile.
        """
        ledgers = tuple(ledger for part in parts for ledger in part.ledgers)
        is_new = bool(ledgers)
        if ledgers:
            attacher = Attacher(
                Batch(self.writer, number) if self.remembered else None, ledgers, traces=self._trace is not None
            )
            end = asyncio.get_running_loop().time() + wait
            async with self._leading(wait, name or f"{socket.gethostname()}:{os.getpid()}"):
                try:
                    await self._run(attacher, end, despite_missing)
                finally:
                    self._traced(attacher.give_up())
            if attacher.outcome is Attaching.SEALED:
                raise LogSealedError(f"the log {self._nodes.name} is sealed: it takes nothing more")
            if attacher.outcome is Attaching.WITHDRAWN:
                raise IllegalOperationError(
                    f"a batch of {self.writer} for the log {self._nodes.name} was withdrawn before it was in the log:"
                    " write it again"
                )
            is_new = attacher.is_in_log
        with suppress(StoreError):  # the next batch deletes what is left
            await self._delete_superseded()
        return is_new

    @asynccontextmanager
    async def _leading(self, wait: float, name: str) -> AsyncIterator[None]:
        """Be elected, as writers of the log are, for the length of the context."""
        election = Election(self._nodes, name, lambda _: None)
        try:
            try:
                async with asyncio.timeout(wait):
                    changed = asyncio.Event()
                    while not await election.stand(lambda _: changed.set()):
                        await changed.wait()
                        changed.clear()
            except TimeoutError:
                leads = "" if election.leader is None else f": {election.leader.rpartition(' ')[0]} does"
                raise NotLeaderError(
                    f"the batch cannot be put into the log {self._nodes.name}, which this process does not lead after"
                    f" {wait:g} s{leads}"
                ) from None
            yield
        finally:
            with suppress(MetadataServiceError):
                await election.resign()

    async def _run(self, attacher: Attacher, end: float, despite_missing: bool) -> None:
        """Answer the role's requests until it ends. Raises the error of a request that still fails at the time
        ``end``.
        """
        request = self._traced(attacher.begin())
        while request is not None:
            failure: StoreError | None = None
            try:
                if isinstance(request, CloseLedger) and not despite_missing:
                    await self._must_be_whole(attacher.chain)
                answer = await self._answer(attacher, request)
            except (LogFullError, MissingLedgerError, NoSuchLogError, UnauthorizedAccessError):
                raise
            except StoreError as error:
                answer, failure = _failed(request, error), error
            request = self._traced(attacher.receive(answer))
            if failure is not None:
                if asyncio.get_running_loop().time() > end and not isinstance(failure, BadVersionError):
                    raise failure
                await asyncio.sleep(PAUSE)

    async def _answer(self, attacher: Attacher, request: Effect) -> Event:
        match request:
            case ReadChain():
                return ChainRead(request.txn, Outcome.OK, *await self._nodes.read())
            case CloseLedger():
                return await self._close_last(request)
            case ReadPending():
                are_trimmed = request.may_be_trimmed and await self._are_trimmed(request.ledgers)
                pending = {each.ledger for each in await self._nodes.pending(self.writer) if not each.withdrawn}
                now = max(time.time_ns() // 1_000_000, self._last_time)
                return PendingRead(request.txn, pending.issuperset(request.ledgers), now, are_trimmed)
            case WriteChain():
                version = await self._nodes.write(request.chain, request.version)
                return ChainWritten(request.txn, Outcome.OK, version)
        raise AssertionError(request)

    async def _must_be_whole(self, chain: Chain) -> None:
        """Raise :class:`MissingLedgerError` unless all ledgers of the log exist."""
        missing = await self._nodes.missing(chain)
        if missing:
            raise self._nodes.lost(chain, missing)

    async def _are_trimmed(self, ledgers: Sequence[int]) -> bool:
        """Return whether one of these ledgers was in the log and was trimmed.

        A trim writes its record before it deletes the ledgers, and deletes the record after them.
        """
        if not {*ledgers}.isdisjoint([each for _, trimmed in await self._nodes.trims() for each in trimmed]):
            return True
        try:
            for ledger in ledgers:
                await self._store.ledger_metadata(ledger)
        except NoSuchLedgerError:
            return True
        return False

    async def _close_last(self, request: CloseLedger) -> LedgerClosed:
        """Close the last ledger of the log, and store the time of its last entry."""
        self._last_time = 0
        try:
            metadata = await self._store.recover_ledger(request.ledger, password=self._password)
        except NoSuchLedgerError:  # deleted by hand
            return LedgerClosed(request.txn, Closing.GONE)
        self._last_time = await time_of_last_entry(self._store, request.ledger, metadata.last_entry, self._password)
        return LedgerClosed(request.txn, Closing.CLOSED, metadata.last_entry)

    def _traced(self, effects: Sequence[Effect]) -> Effect | None:
        """Write the trace events among the effects, and return the request, if there is one."""
        request = None
        for effect in effects:
            if isinstance(effect, Trace):
                self._nodes.trace(self._trace, effect.action, effect.fields, self._name)
            else:
                request = effect
        return request

    # -- batches that are not attached ---------------------------------------------------------------------------------

    async def withdraw(self, number: int) -> None:
        """Delete what was written of a batch, unless it is in the log.

        Afterwards nobody can attach it, even a process that has begun to.
        """
        await self._withdraw([each for each in await self._nodes.pending(self.writer) if each.number == number])

    async def _withdraw(self, some: Sequence[Pending]) -> None:
        """Delete these ledgers, unless they are in the log.

        The withdrawal is recorded first. Then a write of the unchanged chain raises its version, so that updates made
        without seeing the withdrawal are refused. Only then are the ledgers deleted.
        """
        if not some:
            return
        for each in some:
            await self._nodes.withdraw(self.writer, each)
        ledgers = [each.ledger for each in some]
        self._nodes.trace(self._trace, "withdraw_batch", {"ledgers": ledgers}, self._name)
        while True:
            chain, version = await self._nodes.read()
            with suppress(BadVersionError):
                made = await self._nodes.write(chain, version)
                break
        fields = {**seen_fields(chain, version), "ledgers": ledgers, "made": made}
        self._nodes.trace(self._trace, "delete_withdrawn_batch", fields, self._name)
        for each in some:
            await self.drop(each.ledger, is_in_log=chain.index(each.ledger) is not None)

    async def _delete_superseded(self) -> None:
        """Delete ledgers that will never be in the log, since other ledgers of their batch are. Retried tasks and
        killed processes leave such ledgers.
        """
        pending = await self._nodes.pending(self.writer)
        chain, version = await self._nodes.read()
        for number in sorted({each.number for each in pending}):
            leftover = [each.ledger for each in pending if each.number == number]
            superseded = [each for each in leftover if rules.never_attached(chain, Batch(self.writer, number), each)]
            if superseded:
                fields = {
                    **seen_fields(chain, version),
                    "ledgers": superseded,
                    "writer": self.writer,
                    "number": number,
                }
                self._nodes.trace(self._trace, "delete_superseded_batch", fields, self._name)
            for ledger in leftover:
                is_in_log = chain.index(ledger) is not None
                if is_in_log or ledger in superseded or not self.remembered:
                    await self.drop(ledger, is_in_log)

    async def delete_given_up(self, now: int) -> int:
        """Delete ledgers of batches that nobody attached for :data:`GIVEN_UP`, of all writers; return their number.

        ``now`` is in milliseconds since 1970.
        """
        count = 0
        for writer in await self._nodes.batch_writers():
            old = [each for each in await self._nodes.pending(writer) if now - each.since > GIVEN_UP]
            await Batches(self._store, self._nodes, self._password, writer, remembered=True)._withdraw(old)
            count += len(old)
        return count

    # -- ledgers -------------------------------------------------------------------------------------------------------

    async def create_ledger(self, number: int) -> LedgerWriter:
        """Create a ledger for a batch. A record is written first, so that the ledger can be found if nobody attaches
        it.
        """
        options = options_of(self._nodes.name, await self._chain())
        options["custom_metadata"] |= {_WRITER: self.writer.encode(), _NUMBER: b"%d" % number}
        while True:
            ledger = await self._store.metadata.new_ledger_id()
            await self._nodes.create_pending(self.writer, Pending(ledger, number, time.time_ns() // 1_000_000))
            try:
                return await self._store.create_ledger(
                    **options, ledger=ledger, password=self._password, explicit_lac_interval=0
                )
            except (LedgerExistsError, UnauthorizedAccessError):  # somebody chose this id by hand
                await self._nodes.delete_pending(self.writer, ledger)

    async def drop(self, ledger: int, is_in_log: bool) -> None:
        """Delete the record of a ledger. Delete the ledger too, if it is not in the log and was created for a batch of
        this writer.
        """
        if not is_in_log:
            with suppress(NoSuchLedgerError):
                metadata = await self._store.ledger_metadata(ledger)
                if dict(metadata.custom_metadata).get(_WRITER) == self.writer.encode():
                    await self._store.metadata.delete_ledger(ledger)
        await self._nodes.delete_pending(self.writer, ledger)

    async def _chain(self) -> Chain:
        return (await self._nodes.read())[0]


def _failed(request: Effect, error: StoreError) -> Event:
    """Return the answer to a request of the role that failed."""
    match request:
        case ReadChain():
            return ChainRead(request.txn, Outcome.UNKNOWN)
        case CloseLedger():
            return LedgerClosed(request.txn, Closing.FAILED)
        case ReadPending():
            return PendingRead(request.txn, None)
        case WriteChain():
            refused = isinstance(error, BadVersionError)  # somebody trimmed the log, or leads in vain
            return ChainWritten(request.txn, Outcome.BAD_VERSION if refused else Outcome.UNKNOWN)
    raise AssertionError(request)


class PartWriter:
    """Writes a part of a batch. :meth:`close` returns the part to attach; :meth:`discard` deletes it."""

    def __init__(self, batches: Batches, number: int, ledger_bytes: int) -> None:
        self._batches = batches
        self._number = number
        self._ledger_bytes = ledger_bytes
        self._ledgers: list[int] = []
        self._ledger: LedgerWriter | None = None
        self._under_way: Any = None
        """The appends that :meth:`append` waits for next time."""
        self._entries = self._bytes = 0

    async def append(self, data: Iterable[bytes], keys: Sequence[bytes | None] | None = None) -> None:
        """Append entries, with their keys if there are any. Returns once the entries of the previous call are
        confirmed.
        """
        entries = stamped(data if keys is None else [body(*each) for each in zip(data, keys, strict=True)], 0)
        if not entries:
            return
        if self._ledger is not None and self._ledger.length >= self._ledger_bytes:
            await self._close_ledger()
        if self._ledger is None:
            self._ledger = await self._batches.create_ledger(self._number)
            self._ledgers.append(self._ledger.id)
        group = self._ledger.group()
        await self._ledger.send_some_of(group, entries)
        before, self._under_way = self._under_way, group
        if before is not None:
            await before.over()
        self._entries += len(entries)
        self._bytes += sum(map(len, entries))

    async def close(self) -> Part:
        """Wait until all entries are confirmed, and close the ledgers. Raises as :meth:`.LedgerWriter.append_many`;
        call :meth:`discard` then.
        """
        await self._close_ledger()
        return Part(tuple(self._ledgers), self._entries, self._bytes)

    async def discard(self) -> None:
        """Delete the ledgers of this part."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            with suppress(StoreError):
                await ledger.close()
        for each in self._ledgers:
            await self._batches.drop(each, is_in_log=False)

    async def _close_ledger(self) -> None:
        """Wait until all entries are confirmed, and close the ledger."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            await under_way.over()
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            await ledger.close()
