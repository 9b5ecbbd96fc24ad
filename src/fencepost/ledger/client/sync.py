"""Ledgers for synchronous code: the same operations and names, but blocking.

One thread runs a loop and all operations on it. Any thread may call them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from fencepost.errors import OptionError
from fencepost.ledger.client.appender import Appender, AppendGroup, Data, Location, copied
from fencepost.ledger.client.client import Opening
from fencepost.ledger.client.driver import FORKED
from fencepost.ledger.client.reader import LedgerReader
from fencepost.ledger.client.writer import LedgerWriter
from fencepost.ledger.errors import ClientFailedError
from fencepost.ledger.rules.metadata import LedgerMetadata

T = TypeVar("T")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
H = TypeVar("H", bound=Any)
W = TypeVar("W", bound=Appender[Any])
P = ParamSpec("P")
Q = ParamSpec("Q")

_AT_ONCE = 256
"""The most items drawn ahead of the caller of an iteration."""

_CHUNK, _CHUNK_SIZE = 1024, 1024 * 1024
"""The entries, and their bytes, that a caller hands over at once."""


class Loop:
    """An event loop in a thread of its own, and calls onto it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="fencepost client", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            if tasks := asyncio.all_tasks(self.loop):  # other threads may wait for them
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result. An interrupt of the caller cancels the coroutine."""
        if not self.is_own() or self.loop.is_closed() or threading.current_thread() is self.thread:
            coroutine.close()
            self._must_be_own()
            raise OptionError(
                "the store is closed" if self.loop.is_closed() else "this would wait for itself: await it"
            )
        return self.result(self.submit(coroutine))

    def result(self, future: Future[T]) -> T:
        """Wait for the result of work started on the loop. An interrupt of the caller cancels the work."""
        try:
            return future.result()
        except CancelledError:
            raise OptionError("the store was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        self._must_be_own()
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def iterate(self, items: AsyncIterator[T], at_once: int = _AT_ONCE) -> Generator[T, None, None]:
        """Iterate over an asynchronous iterator, each item as soon as it is available. At most ``at_once`` items are
        drawn ahead.
        """
        return iter(_Pump(self, items, at_once))

    def is_own(self) -> bool:
        """Whether this process owns the thread. A forked child does not."""
        return self.process == os.getpid()

    def _must_be_own(self) -> None:
        if not self.is_own():
            raise ClientFailedError(FORKED)

    def stop(self) -> None:
        """Stop the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


class _Pump(Generic[T]):
    """Draws items on the loop and hands all available ones to another thread at once."""

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

    def __iter__(self) -> Generator[T, None, None]:
        drawing = self.loop.submit(self._draw())
        try:
            while True:
                with self.changed:
                    while not self.batch and not self.is_over:
                        self.changed.wait()
                    batch, self.batch = self.batch, []
                if not batch:
                    drawing.result()  # or raises the error that ended it
                    return
                self.loop.loop.call_soon_threadsafe(self.has_room.set)
                yield from batch
        finally:
            drawing.cancel()


def _chunks(entries: Iterable[Data]) -> Iterator[list[bytes]]:
    """Entries in chunks limited in number and bytes. If the iterable raises, the entries before the error come
    first.
    """
    drawn, is_over = iter(entries), False
    while not is_over:
        chunk: list[bytes] = []
        size = 0
        try:
            for data in drawn:
                chunk.append(copied(data))
                size += len(chunk[-1])
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


class Waiting(Generic[S_co]):
    """The base of synchronous objects: the asynchronous object, and the loop that runs it."""

    def __init__(self, loop: Loop, of: S_co) -> None:
        self._loop = loop
        self._of = of


class Handle(Waiting[H]):
    """A synchronous object that ``with`` closes, as ``async with`` closes the asynchronous one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self._loop.is_own():  # otherwise the parent process closes it
            self._loop.wait(self._of.__aexit__(kind, error, traceback))


def waits(work: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Waiting[S], P], T]:
    """The blocking version of an asynchronous method."""

    def waiting(self: Waiting[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.wait(work(self._of, *args, **kwargs))

    return _named(waiting, work)


def iterates(
    work: Callable[Concatenate[S, P], AsyncIterator[T]], at_once: int = _AT_ONCE
) -> Callable[Concatenate[Waiting[S], P], Generator[T, None, None]]:
    """The blocking version of a method that gives an asynchronous iterator."""

    def iterating(self: Waiting[S], /, *args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
        return self._loop.iterate(work(self._of, *args, **kwargs), at_once)

    return _named(iterating, work)


def opens(
    work: Callable[Concatenate[S, P], Opening[H]], kind: Callable[[Loop, H], T]
) -> Callable[Concatenate[Waiting[S], P], T]:
    """The blocking version of a method that opens an object. ``kind``: the class of the synchronous object."""

    def opening(self: Waiting[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._loop, self._loop.wait(work(self._of, *args, **kwargs).opened()))

    return _named(opening, work)


def _named(method: Callable[Q, T], of: Callable[..., Any]) -> Callable[Q, T]:
    """Give a method the name and the parameters of another."""
    functools.update_wrapper(method, of)
    method.__doc__ = f"See :meth:`.{of.__qualname__}`."
    return method


class SyncAppender(Handle[W], Generic[W, Location]):
    """Appends to a ledger or a log; see :class:`.Appender`."""

    def append_many(self, entries: Iterable[Data]) -> list[Location]:
        """See :meth:`.Appender.append_many`. The entries are drawn in the caller's thread, as fast as they can be
        sent.
        """
        group: AppendGroup[Location] = self._of.group()
        sending: Future[bool] | None = None
        try:
            for some in _chunks(entries):
                if sending is not None and not self._loop.result(sending):
                    sending = None
                    break
                sending = self._loop.submit(self._of.send_some_of(group, some))
        finally:
            if sending is not None:
                self._loop.result(sending)
        self._loop.wait(group.over())
        return group.places()


class SyncLedgerWriter(SyncAppender[LedgerWriter, int]):
    """A ledger that this client has created; see :class:`LedgerWriter`."""

    def __init__(self, loop: Loop, writer: LedgerWriter) -> None:
        super().__init__(loop, writer)
        self.id = writer.id
        """The ledger."""

    append = waits(LedgerWriter.append)
    force = waits(LedgerWriter.force)
    close = waits(LedgerWriter.close)

    @property
    def metadata(self) -> LedgerMetadata:
        """See :attr:`LedgerWriter.metadata`."""
        return self._of.metadata

    @property
    def last_add_confirmed(self) -> int:
        """See :attr:`LedgerWriter.last_add_confirmed`."""
        return self._of.last_add_confirmed


class SyncLedgerReader(Handle[LedgerReader]):
    """An open ledger for reading; see :class:`LedgerReader`."""

    def __init__(self, loop: Loop, reader: LedgerReader) -> None:
        super().__init__(loop, reader)
        self.id = reader.id
        """The ledger."""

    read = iterates(LedgerReader.read)
    read_batches = iterates(LedgerReader.read_batches, 4)
    read_entry = waits(LedgerReader.read_entry)
    read_last_add_confirmed = waits(LedgerReader.read_last_add_confirmed)
    tail = iterates(LedgerReader.tail)
    close = waits(LedgerReader.close)

    @property
    def metadata(self) -> LedgerMetadata:
        """See :attr:`LedgerReader.metadata`."""
        return self._of.metadata

    @property
    def is_closed(self) -> bool:
        """See :attr:`LedgerReader.is_closed`."""
        return self._of.is_closed

    @property
    def last_add_confirmed(self) -> int:
        """See :attr:`LedgerReader.last_add_confirmed`."""
        return self._of.last_add_confirmed

    def _repr_html_(self) -> str:
        return self._of._repr_html_()
