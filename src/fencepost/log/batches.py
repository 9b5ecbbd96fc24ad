"""Batches: entries that are in a log all at once or not at all, and once however often they are written.

Each part of a batch is written to ledgers of its own, by any process and many at once, and closed. Then one update of
the list attaches them all, together with the number of the batch. The attaching process is elected and closes the last
ledger, as every leader does. The ledgers of a batch that nobody attaches are found by records that were written before
them, see :class:`.Pending`.
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
"""Milliseconds after which a ledger of a batch that is still not attached may be deleted by any writer of batches."""

PAUSE = 0.2
"""Seconds before what has failed is tried again."""

_WRITER, _NUMBER = "batch-writer", "batch"
"""The keys of the custom metadata of the ledgers of a batch: its writer, and its number."""


class Part(msgspec.Struct, frozen=True):
    """A part of a batch that is written: its ledgers, which are closed, in their order, and how many entries and bytes
    they have.
    """

    ledgers: tuple[int, ...] = ()
    entries: int = 0
    bytes: int = 0


class Batches:
    """The batches of one writer: :meth:`.Log.batches` gives it.

    The numbers of its batches ascend, and a batch that is written again has the number that it had. Of writers that are
    not ``remembered`` the log does not know later what they have attached.
    """

    def __init__(self, store: LedgerClient, nodes: LogNodes, password: bytes, writer: str, remembered: bool) -> None:
        self.writer = checked_name(writer, "a writer of batches")
        self.remembered = remembered
        self._store = store
        self._nodes = nodes
        self._password = password
        self._trace = store.driver.trace
        self._name = store.driver.name_in_trace("batches") if self._trace is not None else ""
        """The name of the attaching process in a trace."""
        self._last_time = 0
        """The time of the last entry of the ledger that was closed last, in milliseconds since 1970."""

    def part(self, number: int, ledger_bytes: int = 1 << 30) -> PartWriter:
        """Write a part of a batch, to another ledger after so many bytes."""
        return PartWriter(self, number, ledger_bytes)

    async def has(self, number: int) -> bool:
        """Whether the log remembers this batch, or a later one of this writer."""
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
        """Put a batch into the log, its parts in this order; False if it is there already, by other parts. Then these
        are deleted.

        The log is led meanwhile, for which it is waited ``wait`` seconds at most, and as long for bookies and the
        metadata service. ``despite_missing``: put it in though ledgers of the log are missing.

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
            if attacher.found is Attaching.SEALED:
                raise LogSealedError(f"the log {self._nodes.name} is sealed: it takes nothing more")
            if attacher.found is Attaching.WITHDRAWN:
                raise IllegalOperationError(
                    f"a batch of {self.writer} for the log {self._nodes.name} was withdrawn before it was in the log:"
                    " write it again"
                )
            is_new = attacher.is_in_log
        with suppress(StoreError):  # what is left over is deleted with the next batch
            await self._delete_superseded()
        return is_new

    @asynccontextmanager
    async def _leading(self, wait: float, name: str) -> AsyncIterator[None]:
        """Be elected, as writers of the log are."""
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
        """Answer the requests of the role until it is over. Raises the error of a request that still fails at the time
        ``end``.
        """
        asked = self._traced(attacher.begin())
        while asked is not None:
            failure: StoreError | None = None
            try:
                if isinstance(asked, CloseLedger) and not despite_missing:
                    await self._must_be_whole(attacher.chain)
                answer = await self._answer(attacher, asked)
            except (LogFullError, MissingLedgerError, NoSuchLogError):
                raise
            except StoreError as error:
                answer, failure = _failed(asked, error), error
            asked = self._traced(attacher.receive(answer))
            if failure is not None:
                if asyncio.get_running_loop().time() > end and not isinstance(failure, BadVersionError):
                    raise failure
                await asyncio.sleep(PAUSE)

    async def _answer(self, attacher: Attacher, asked: Effect) -> Event:
        match asked:
            case ReadChain():
                return ChainRead(asked.txn, Outcome.OK, *await self._nodes.read())
            case CloseLedger():
                return await self._close_last(asked)
            case ReadPending():
                are_trimmed = asked.may_be_trimmed and await self._are_trimmed(asked.ledgers)
                pending = {each.ledger for each in await self._nodes.pending(self.writer) if not each.withdrawn}
                now = max(time.time_ns() // 1_000_000, self._last_time)
                return PendingRead(asked.txn, pending.issuperset(asked.ledgers), now, are_trimmed)
            case WriteChain():
                version = await self._nodes.write(asked.chain, asked.version)
                return ChainWritten(asked.txn, Outcome.OK, version)
        raise AssertionError(asked)

    async def _must_be_whole(self, chain: Chain) -> None:
        """Raises :class:`MissingLedgerError` unless all ledgers of the log are there."""
        missing = await self._nodes.missing(chain)
        if missing:
            raise self._nodes.lost(chain, missing)

    async def _are_trimmed(self, ledgers: Sequence[int]) -> bool:
        """Whether one of these ledgers was in the log, and was trimmed. A trim is recorded first, and the record is
        deleted after the ledgers.
        """
        if not {*ledgers}.isdisjoint([each for _, trimmed in await self._nodes.trims() for each in trimmed]):
            return True
        try:
            for ledger in ledgers:
                await self._store.ledger_metadata(ledger)
        except NoSuchLedgerError:
            return True
        return False

    async def _close_last(self, asked: CloseLedger) -> LedgerClosed:
        """Close the last ledger of the log, and keep the time of its last entry."""
        self._last_time = 0
        try:
            metadata = await self._store.recover_ledger(asked.ledger, password=self._password)
        except NoSuchLedgerError:  # deleted by hand
            return LedgerClosed(asked.txn, Closing.GONE)
        self._last_time = await time_of_last_entry(self._store, asked.ledger, metadata.last_entry, self._password)
        return LedgerClosed(asked.txn, Closing.CLOSED, metadata.last_entry)

    def _traced(self, effects: Sequence[Effect]) -> Effect | None:
        """Write the events of a trace; gives the request among the effects, if there is one."""
        asked = None
        for effect in effects:
            if isinstance(effect, Trace):
                self._nodes.trace(self._trace, effect.action, effect.fields, self._name)
            else:
                asked = effect
        return asked

    # -- what is not attached ------------------------------------------------------------------------------------------

    async def withdraw(self, number: int) -> None:
        """Delete what was written of a batch, unless it is in the log; it cannot be attached any more, even by a
        process that is about to.
        """
        await self._withdraw([each for each in await self._nodes.pending(self.writer) if each.number == number])

    async def _withdraw(self, some: Sequence[Pending]) -> None:
        """Delete these ledgers, unless they are in the log. First the withdrawal is recorded, then a change of the
        list's version voids updates that do not know of it, and then the ledgers are deleted.
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
        """Delete the ledgers that are not in the log, and will not be since their batches are: of tasks that were tried
        twice, and of processes that were killed.
        """
        pending = await self._nodes.pending(self.writer)
        chain, version = await self._nodes.read()
        for number in sorted({each.number for each in pending}):
            over = [each.ledger for each in pending if each.number == number]
            superseded = [each for each in over if rules.never_attached(chain, Batch(self.writer, number), each)]
            if superseded:
                fields = {
                    **seen_fields(chain, version),
                    "ledgers": superseded,
                    "writer": self.writer,
                    "number": number,
                }
                self._nodes.trace(self._trace, "delete_superseded_batch", fields, self._name)
            for ledger in over:
                is_in_log = chain.index(ledger) is not None
                if is_in_log or ledger in superseded or not self.remembered:
                    await self.drop(ledger, is_in_log)

    async def delete_given_up(self, now: int) -> int:
        """Delete the ledgers of batches that nobody has attached for :data:`GIVEN_UP`, of this writer and all others;
        gives how many they are.

        ``now``: in milliseconds since 1970.
        """
        count = 0
        for writer in await self._nodes.batch_writers():
            old = [each for each in await self._nodes.pending(writer) if now - each.since > GIVEN_UP]
            await Batches(self._store, self._nodes, self._password, writer, remembered=True)._withdraw(old)
            count += len(old)
        return count

    # -- ledgers -------------------------------------------------------------------------------------------------------

    async def create_ledger(self, number: int) -> LedgerWriter:
        """Create a ledger for a batch. A record of it is written first, by which it is found if nobody attaches it."""
        options = options_of(self._nodes.name, await self._chain())
        options["custom_metadata"] |= {_WRITER: self.writer.encode(), _NUMBER: b"%d" % number}
        while True:
            ledger = await self._store.metadata.new_ledger_id()
            await self._nodes.create_pending(self.writer, Pending(ledger, number, time.time_ns() // 1_000_000))
            try:
                return await self._store.create_ledger(
                    **options, ledger=ledger, password=self._password, explicit_lac_interval=0
                )
            except (LedgerExistsError, UnauthorizedAccessError):  # somebody has chosen this id by hand
                await self._nodes.delete_pending(self.writer, ledger)

    async def drop(self, ledger: int, is_in_log: bool) -> None:
        """Forget a ledger, and delete it if it is not in the log and was created for a batch of this writer."""
        if not is_in_log:
            with suppress(NoSuchLedgerError):
                metadata = await self._store.ledger_metadata(ledger)
                if dict(metadata.custom_metadata).get(_WRITER) == self.writer.encode():
                    await self._store.metadata.delete_ledger(ledger)
        await self._nodes.delete_pending(self.writer, ledger)

    async def _chain(self) -> Chain:
        return (await self._nodes.read())[0]


def _failed(asked: Effect, error: StoreError) -> Event:
    """The answer to a request of the role that failed."""
    match asked:
        case ReadChain():
            return ChainRead(asked.txn, Outcome.UNKNOWN)
        case CloseLedger():
            return LedgerClosed(asked.txn, Closing.FAILED)
        case ReadPending():
            return PendingRead(asked.txn, None)
        case WriteChain():
            refused = isinstance(error, BadVersionError)  # somebody has trimmed it, or leads in vain
            return ChainWritten(asked.txn, Outcome.BAD_VERSION if refused else Outcome.UNKNOWN)
    raise AssertionError(asked)


class PartWriter:
    """Writes a part of a batch. :meth:`close` gives what there is to attach; :meth:`discard` deletes it."""

    def __init__(self, batches: Batches, number: int, ledger_bytes: int) -> None:
        self._batches = batches
        self._number = number
        self._ledger_bytes = ledger_bytes
        self._ledgers: list[int] = []
        self._ledger: LedgerWriter | None = None
        self._under_way: Any = None
        """The appends before the last ones, which are waited for."""
        self._entries = self._bytes = 0

    async def append(self, data: Iterable[bytes], keys: Sequence[bytes | None] | None = None) -> None:
        """Append entries, with their keys if they have some. What was appended before is confirmed when this
        returns.
        """
        entries = stamped(data if keys is None else [body(*each) for each in zip(data, keys, strict=True)], 0)
        if not entries:
            return
        if self._ledger is not None and self._ledger.length >= self._ledger_bytes:
            await self._close_ledger()
        if self._ledger is None:
            self._ledger = await self._batches.create_ledger(self._number)
            self._ledgers.append(self._ledger.id)
        several = self._ledger.several()
        await self._ledger.send_some_of(several, entries)
        before, self._under_way = self._under_way, several
        if before is not None:
            await before.over()
        self._entries += len(entries)
        self._bytes += sum(map(len, entries))

    async def close(self) -> Part:
        """Wait until all is confirmed, and close the ledgers. Raises as :meth:`.LedgerWriter.append_many`; call
        :meth:`discard` then.
        """
        await self._close_ledger()
        return Part(tuple(self._ledgers), self._entries, self._bytes)

    async def discard(self) -> None:
        """Delete what was written, of which nobody else knows."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            with suppress(StoreError):
                await ledger.close()
        for each in self._ledgers:
            await self._batches.drop(each, is_in_log=False)

    async def _close_ledger(self) -> None:
        """Wait until all is confirmed, and close the ledger."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            await under_way.over()
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            await ledger.close()
