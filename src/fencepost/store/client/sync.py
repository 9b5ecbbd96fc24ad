"""The client for synchronous code: the same operations by the same names, which wait by themselves.

One thread runs a loop, and all operations on it; any thread may call them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from fencepost.errors import OptionError
from fencepost.store.client.reader import LedgerReader
from fencepost.store.client.reading import EntryBatch, LedgerEntry
from fencepost.store.client.settings import ClientSettings
from fencepost.store.client.store import Store
from fencepost.store.client.writer import Data, LedgerWriter, copied
from fencepost.store.messages import NO_ENTRY_YET
from fencepost.store.metadata.client import Bookies
from fencepost.store.rules.metadata import DigestType, LedgerMetadata

if TYPE_CHECKING:
    from fencepost.log.sync import SyncLog

T = TypeVar("T")

_AT_ONCE = 256
"""Items of an iteration that are drawn ahead of the caller, at most."""

_CHUNK, _CHUNK_SIZE = 1024, 1024 * 1024
"""Entries, and bytes of them, that a caller hands over at once."""


class Loop:
    """A thread with a loop, and the way onto it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="fencepost client", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            if tasks := asyncio.all_tasks(self.loop):  # for which other threads may wait
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, and wait for it. Whoever is interrupted meanwhile cancels it."""
        if self.loop.is_closed() or threading.current_thread() is self.thread:
            coroutine.close()
            raise OptionError(
                "the store is closed" if self.loop.is_closed() else "this would wait for itself: await it"
            )
        return self.result(self.submit(coroutine))

    def result(self, future: Future[T]) -> T:
        """What comes of what was begun on the loop. Whoever is interrupted meanwhile cancels it."""
        try:
            return future.result()
        except CancelledError:
            raise OptionError("the store was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def iterate(self, items: AsyncIterator[T], at_once: int = _AT_ONCE) -> Iterator[T]:
        """The items of an asynchronous iteration, each as soon as it is there; ``at_once`` of them are drawn ahead at
        most.
        """
        return iter(_Pump(self, items, at_once))

    def stop(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


class _Pump(Generic[T]):
    """Draws items on the loop, and hands them to another thread: all that are there at once."""

    def __init__(self, loop: Loop, items: AsyncIterator[T], at_once: int) -> None:
        self.at_once = at_once
        self.loop = loop
        self.items = items
        self.changed = threading.Condition()
        self.batch: list[T] = []
        self.is_over = False
        self.has_room = asyncio.Event()

    async def _draw(self) -> None:
        try:
            async for item in self.items:
                self.has_room.clear()
                with self.changed:
                    self.batch.append(item)
                    is_full = len(self.batch) >= self.at_once
                    self.changed.notify()
                if is_full:
                    await self.has_room.wait()
        finally:
            with self.changed:
                self.is_over = True
                self.changed.notify()
            close = getattr(self.items, "aclose", None)
            if close is not None:
                await close()

    def __iter__(self) -> Iterator[T]:
        drawing = self.loop.submit(self._draw())
        try:
            while True:
                with self.changed:
                    while not self.batch and not self.is_over:
                        self.changed.wait()
                    batch, self.batch = self.batch, []
                if not batch:
                    drawing.result()  # or the error that has ended it
                    return
                self.loop.loop.call_soon_threadsafe(self.has_room.set)
                yield from batch
        finally:
            drawing.cancel()


def _chunks(entries: Iterable[Data]) -> Iterator[list[bytes]]:
    """Entries, some at once: not too many, and not too many bytes. An error of whoever gives them comes after those
    before it.
    """
    drawn, is_over = iter(entries), False
    while not is_over:
        chunk: list[bytes] = []
        size = 0
        try:
            for data in drawn:
                chunk.append(data if type(data) is bytes else copied(data))
                size += len(data)
                if len(chunk) >= _CHUNK or size >= _CHUNK_SIZE:
                    break
            else:
                is_over = True
        except BaseException:
            if chunk:
                yield chunk
            raise
        if chunk:
            yield chunk


class SyncLedgerWriter:
    """A ledger that this client has created; see :class:`LedgerWriter`."""

    def __init__(self, loop: Loop, writer: LedgerWriter) -> None:
        self._loop = loop
        self._writer = writer
        self.id = writer.id
        """The ledger."""

    @property
    def metadata(self) -> LedgerMetadata:
        """See :attr:`LedgerWriter.metadata`."""
        return self._writer.metadata

    @property
    def last_add_confirmed(self) -> int:
        """See :attr:`LedgerWriter.last_add_confirmed`."""
        return self._writer.last_add_confirmed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._loop.wait(self._writer.__aexit__(kind, error, traceback))

    def append(self, data: Data) -> int:
        """See :meth:`LedgerWriter.append`."""
        return self._loop.wait(self._writer.append(data))

    def append_many(self, entries: Iterable[Data]) -> list[int]:
        """See :meth:`LedgerWriter.append_many`. The entries are drawn in the thread of the caller, as they can be
        sent.
        """
        several, sending = self._writer.several(), None
        try:
            for some in _chunks(entries):
                if sending is not None and not self._loop.result(sending):
                    sending = None
                    break
                sending = self._loop.submit(self._writer.send_some_of(several, some))
        finally:
            if sending is not None:
                self._loop.result(sending)
        return self._loop.wait(several.ids())

    def force(self) -> int:
        """See :meth:`LedgerWriter.force`."""
        return self._loop.wait(self._writer.force())

    def close(self) -> int:
        """See :meth:`LedgerWriter.close`."""
        return self._loop.wait(self._writer.close())


class SyncLedgerReader:
    """A ledger that is read; see :class:`LedgerReader`."""

    def __init__(self, loop: Loop, reader: LedgerReader) -> None:
        self._loop = loop
        self._reader = reader
        self.id = reader.id
        """The ledger."""

    @property
    def metadata(self) -> LedgerMetadata:
        """See :attr:`LedgerReader.metadata`."""
        return self._reader.metadata

    @property
    def is_closed(self) -> bool:
        """See :attr:`LedgerReader.is_closed`."""
        return self._reader.is_closed

    @property
    def last_add_confirmed(self) -> int:
        """See :attr:`LedgerReader.last_add_confirmed`."""
        return self._reader.last_add_confirmed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, first: int = 0, last: int | None = None) -> Iterator[LedgerEntry]:
        """See :meth:`LedgerReader.read`."""
        return self._loop.iterate(self._reader.read(first, last))

    def read_batches(self, first: int = 0, last: int | None = None) -> Iterator[EntryBatch]:
        """See :meth:`LedgerReader.read_batches`."""
        return self._loop.iterate(self._reader.read_batches(first, last), 4)

    def read_entry(self, entry_id: int) -> bytes:
        """See :meth:`LedgerReader.read_entry`."""
        return self._loop.wait(self._reader.read_entry(entry_id))

    def read_last_add_confirmed(self) -> int:
        """See :meth:`LedgerReader.read_last_add_confirmed`."""
        return self._loop.wait(self._reader.read_last_add_confirmed())

    def tail(self, first: int = 0) -> Iterator[LedgerEntry]:
        """See :meth:`LedgerReader.tail`."""
        return self._loop.iterate(self._reader.tail(first))

    def close(self) -> None:
        """See :meth:`LedgerReader.close`."""
        self._loop.wait(self._reader.close())


class SyncStore:
    """A cluster as one client sees it; see :class:`Store`."""

    def __init__(self, loop: Loop, store: Store) -> None:
        self._loop = loop
        self._store = store

    @classmethod
    def connect(cls, uri: str, settings: ClientSettings, trace: str | Path | None = None) -> Self:
        """See :func:`fencepost.connect_sync`."""
        loop = Loop()
        try:
            return cls(loop, loop.wait(Store.connect(uri, settings, trace)))
        except BaseException:
            loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`Store.close`. It can be called again."""
        if not self._loop.loop.is_closed():
            try:
                self._loop.wait(self._store.close())
            finally:
                self._loop.stop()

    def run(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """What comes of a coroutine function that is given the :class:`Store`: several operations that need not wait
        for one another.
        """
        return self._loop.wait(work(self._store))

    def iterate(self, work: Callable[[Store], AsyncIterator[T]], ahead: int = 4) -> Iterator[T]:
        """The items of an asynchronous iteration over the :class:`Store`, each as soon as it is there; so many are
        drawn ahead at most.
        """
        return self._loop.iterate(work(self._store), ahead)

    def create_ledger(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        digest: DigestType | str = DigestType.CRC32C,
        password: bytes | str = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger: int | None = None,
        deferred_sync: bool = False,
        explicit_lac_interval: float = 0.1,
        in_flight: int = 1000,
        in_flight_bytes: int = 64 * 1024 * 1024,
    ) -> SyncLedgerWriter:
        """See :meth:`Store.create_ledger`."""
        opening = self._store.create_ledger(
            ensemble=ensemble,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            digest=digest,
            password=password,
            custom_metadata=custom_metadata,
            ledger=ledger,
            deferred_sync=deferred_sync,
            explicit_lac_interval=explicit_lac_interval,
            in_flight=in_flight,
            in_flight_bytes=in_flight_bytes,
        )
        return SyncLedgerWriter(self._loop, self._loop.wait(opening.opened()))

    def reserve_ledger(
        self,
        *,
        ensemble: int = 3,
        write_quorum: int | None = None,
        ack_quorum: int | None = None,
        digest: DigestType | str = DigestType.CRC32C,
        password: bytes | str = b"",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger: int | None = None,
    ) -> int:
        """See :meth:`Store.reserve_ledger`."""
        return self._loop.wait(
            self._store.reserve_ledger(
                ensemble=ensemble,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                digest=digest,
                password=password,
                custom_metadata=custom_metadata,
                ledger=ledger,
            )
        )

    def adopt_ledger(
        self,
        ledger: int,
        *,
        password: bytes | str = b"",
        explicit_lac_interval: float = 0.1,
        in_flight: int = 1000,
        in_flight_bytes: int = 64 * 1024 * 1024,
    ) -> SyncLedgerWriter:
        """See :meth:`Store.adopt_ledger`."""
        opening = self._store.adopt_ledger(
            ledger,
            password=password,
            explicit_lac_interval=explicit_lac_interval,
            in_flight=in_flight,
            in_flight_bytes=in_flight_bytes,
        )
        return SyncLedgerWriter(self._loop, self._loop.wait(opening.opened()))

    def open_ledger(
        self,
        ledger: int,
        *,
        recover: bool = False,
        password: bytes | str = b"",
        digest: DigestType | str | None = None,
        prefetch: int = 1000,
        prefetch_bytes: int = 16 * 1024 * 1024,
        confirmed: int = NO_ENTRY_YET,
    ) -> SyncLedgerReader:
        """See :meth:`Store.open_ledger`."""
        opening = self._store.open_ledger(
            ledger,
            recover=recover,
            password=password,
            digest=digest,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            confirmed=confirmed,
        )
        return SyncLedgerReader(self._loop, self._loop.wait(opening.opened()))

    def recover_ledger(self, ledger: int, *, password: bytes | str = b"") -> LedgerMetadata:
        """See :meth:`Store.recover_ledger`."""
        return self._loop.wait(self._store.recover_ledger(ledger, password=password))

    def list_ledgers(self) -> Iterator[int]:
        """See :meth:`Store.list_ledgers`."""
        return self._loop.iterate(self._store.list_ledgers())

    def ledger_metadata(self, ledger: int) -> LedgerMetadata:
        """See :meth:`Store.ledger_metadata`."""
        return self._loop.wait(self._store.ledger_metadata(ledger))

    def delete_ledger(self, ledger: int) -> None:
        """See :meth:`Store.delete_ledger`."""
        self._loop.wait(self._store.delete_ledger(ledger))

    def log(self, name: str, *, password: bytes | str = b"") -> SyncLog:
        """See :meth:`Store.log`."""
        from fencepost.log.sync import SyncLog  # which is built on this

        return SyncLog(self._loop, self._store.log(name, password=password))

    def bookies(self) -> Bookies:
        """See :meth:`Store.bookies`."""
        return self._loop.wait(self._store.bookies())
