"""The repair of a bookie that may have lost entries: carries out the effects of its role
(:mod:`fencepost.ledger.roles.repair`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fencepost.errors import SystemFailure
from fencepost.ledger.bookie import cookies
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.bookie.server import Server
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.client.client import LedgerClient
from fencepost.ledger.client.replication import Copied, Copier, Pace, belonging_of_fragment
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.entries import runs_of
from fencepost.ledger.errors import NoSuchLedgerError, StoreError
from fencepost.ledger.messages import AddEntry
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.roles import repair as roles
from fencepost.ledger.roles.interface import Call, Effect, Error, Event, Result, SetTimer, TimerFired, Trace
from fencepost.ledger.roles.requests import AddRequests
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.replication import fragments_on

PAGE = 100
"""The number of ledgers whose metadata are read at once."""

_log = logging.getLogger("fencepost.ledger.bookie")


@dataclass
class Progress(Copied):
    """How far a repair is. ``ledgers``: those still to check in this round. ``lacking``: entries that could not be read
    in this round.
    """

    ledgers: int = 0


class Repair:
    """The repair of one bookie. It runs one phase at a time."""

    def __init__(
        self,
        server: Server,
        storage: Storage,
        client: MetadataClient,
        bookie_id: str,
        directories: Directories,
        settings: BookieSettings,
    ) -> None:
        self.server = server
        self.storage = storage
        self.client = client
        self.bookie_id = bookie_id
        self.directories = directories
        self.settings = settings
        self.progress = Progress()
        self.role = roles.Repair(bookie_id, server.role, traces=server.role.traces)
        self._pace = Pace(settings.replication_rate_by_bytes)
        self._store: LedgerClient | None = None
        self._events: asyncio.Queue[Event | BaseException] = asyncio.Queue()
        self._pages: AsyncIterator[roles.LedgersListed] | None = None
        self._tasks: set[asyncio.Task[Event]] = set()
        self._handlers: dict[type[Effect], Callable[[Any], None]] = {
            roles.ListLedgers: lambda effect: self._begin(self._list(effect)),
            roles.AskBookie: self._ask,
            roles.RecoverLedger: lambda effect: self._begin(self._recover(effect)),
            roles.CopyEntries: lambda effect: self._begin(self._copy(effect)),
            SetTimer: lambda effect: self._begin(_later(effect)),
            Trace: self._trace_effect,
        }

    @property
    def limbo(self) -> int:
        """The number of ledgers in limbo."""
        return sum(ledger.limbo for ledger in self.server.role.ledgers.values())

    # -- phase one ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Record in all directories that a repair is running, before it does anything. Raises
        :class:`SystemFailure`.
        """
        for directory in dict.fromkeys(self.directories):
            cookies.begin_repair(directory)

    async def mark_ledgers(self) -> None:
        """Phase one. Its marks are durable on return. It may be repeated at any time. The bookie must not serve before
        it.

        Raises :class:`StoreError` if the metadata cannot be read, and :class:`SystemFailure` if the disk fails.
        """
        limbo, fenced = (await self._drive("mark ledgers")).value
        await asyncio.to_thread(self.storage.checkpoint, always=True)
        _log.warning("entries may be missing: %d ledgers are in limbo, and %d closed ones are fenced", limbo, fenced)

    # -- phase two ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Phase two: repeats until nothing is missing, while other bookies or the metadata service may be
        unreachable.
        """
        settings = ClientSettings.of_environment(session_timeout=self.settings.zk_timeout / 1000)
        while True:
            try:
                uri, trace = self.settings.metadata_service_uri, self.settings.trace_directory or None
                async with await LedgerClient.connect(uri, settings, trace) as self._store:
                    await self._drive("repair")
                break
            except StoreError as error:
                _log.warning("the repair waits: %s", error)
                await asyncio.sleep(roles.PAUSE / 1_000_000)
        await asyncio.to_thread(self.storage.checkpoint)
        run = self.directories.last_run
        if run is not None:
            self.directories.record_run(run)
        for directory in dict.fromkeys(self.directories):
            cookies.end_repair(directory)
        _log.warning(
            "the repair is done: %d entries of %d bytes were copied", self.progress.entries, self.progress.bytes
        )

    # -- what the role wants ------------------------------------------------------------------------------------------

    async def _drive(self, operation: str) -> Result:
        """Call the role and carry out its effects until it gives a result. Raises errors for which the role has no
        event.
        """
        try:
            event: Event | BaseException = Call(0, operation)
            while True:
                if isinstance(event, BaseException):
                    raise event
                for effect in self.role.receive(event, 0):
                    if isinstance(effect, Result):
                        return effect
                    self._handlers[type(effect)](effect)
                self.progress.ledgers = self.role.left
                event = await self._next_event()
        finally:
            self.progress.ledgers = self.role.left
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._events, self._pages = asyncio.Queue(), None

    async def _next_event(self) -> Event | BaseException:
        while self._events.empty():
            # wait_for of Python 3.11 loses a cancellation that comes together with an event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    return await self._events.get()
            if self.server.stopped:
                raise SystemFailure("the bookie's storage has failed while its ledgers were repaired")
        return self._events.get_nowait()

    def _begin(self, work: Any) -> None:
        """Start a task whose result is an event."""
        task: asyncio.Task[Event] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Event]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._events.put_nowait(task.exception() or task.result())

    def _ask(self, effect: roles.AskBookie) -> None:
        events, done = self._events, roles.Done(effect.token)
        self.server.call(effect.operation, *effect.arguments).add_done_callback(lambda _: events.put_nowait(done))

    def _trace_effect(self, effect: Trace) -> None:
        if effect.action == roles.MAY_LACK and effect.ledger is not None:
            stored = runs_of(self.storage.entries_of(effect.ledger))
            effect = Trace(effect.action, effect.ledger, {**effect.fields, "entries": stored})
        self.server.trace_effect(effect)

    async def _list(self, effect: roles.ListLedgers) -> roles.LedgersListed:
        if effect.anew or self._pages is None:
            self.progress.lacking = 0
            await self.client.sync()
            self._pages = self._all_pages()
        return await anext(self._pages)

    async def _all_pages(self) -> AsyncIterator[roles.LedgersListed]:
        page: list[tuple[int, LedgerMetadata]] = []
        async for found in self.client.all_metadata(PAGE):
            page.append(found)
            if len(page) == PAGE:
                yield roles.LedgersListed(page, False)
                page = []
        yield roles.LedgersListed(page, True)

    async def _recover(self, effect: roles.RecoverLedger) -> roles.LedgerRecovered:
        assert self._store is not None
        ledger = effect.ledger
        try:
            metadata = await self._store.ledger_metadata(ledger)
            if metadata.status is not LedgerStatus.CLOSED:
                metadata = await self._store.recover_ledger(ledger, password=metadata.password or b"")
            return roles.LedgerRecovered(ledger, metadata)
        except NoSuchLedgerError:
            return roles.LedgerRecovered(ledger, None, Error.NO_LEDGER)
        except StoreError as error:
            _log.warning("ledger %d is not repaired yet: %s", ledger, error)
            return roles.LedgerRecovered(ledger, None, Error.RECOVERY_FAILED)

    async def _copy(self, effect: roles.CopyEntries) -> roles.EntriesCopied:
        assert self._store is not None
        ledger, metadata = effect.ledger, effect.metadata
        missing = missing_of(metadata, self.bookie_id, await asyncio.to_thread(self.storage.entries_of, ledger))
        copier = Copier(self._store, ledger, metadata, self._pace, self.progress)
        lacking = await copier.copy(missing, self.bookie_id, partial(self._store_entry, ledger))
        if lacking:
            _log.error("ledger %d lacks %d entries that no other bookie gives now", ledger, lacking)
        return roles.EntriesCopied(ledger, lacking)

    async def _store_entry(self, ledger: int, entry_id: int, lac: int, body: bytes) -> None:
        """Store an entry. Done once it is as durable as the bookie makes entries."""
        await self.server.call("store entries", AddRequests(((0, AddEntry(ledger, entry_id, lac, body, b"")),)))


async def _later(timer: SetTimer) -> TimerFired:
    await asyncio.sleep(timer.delay / 1_000_000)
    return TimerFired(timer.key)


def missing_of(metadata: LedgerMetadata, bookie: str, stored: Iterable[int]) -> NDArray[np.int64]:
    """The entries of a closed ledger that belong to a bookie and that it has not stored, in order."""
    belong = [belonging_of_fragment(metadata, fragment, bookie) for fragment in fragments_on(metadata, bookie)]
    return np.setdiff1d(np.concatenate(belong) if belong else np.empty(0, np.int64), np.fromiter(stored, np.int64))
