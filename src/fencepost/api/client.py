"""The client of a cluster: ``async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store``, or ``with`` in
synchronous code. It is built on the ledgers of :mod:`fencepost.ledger.client` and the logs of :mod:`fencepost.log`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from fencepost.errors import FencepostError
from fencepost.ledger.client.client import LedgerClient, Opening
from fencepost.ledger.client.settings import ClientSettings
from fencepost.ledger.client.sync import Loop, SyncLedgerReader, SyncLedgerWriter, Waiting, iterates, opens, waits
from fencepost.log.log import Log
from fencepost.log.sync import SyncLog

T = TypeVar("T")


class Client(LedgerClient):
    """A client of a cluster: its bookies and its metadata service. :func:`fencepost.connect` makes one."""

    def log(self, name: str, *, password: bytes | str = b"") -> Log:
        """A log by name, see :class:`.log.Log`: a sequence of ledgers with one writer at a time. It need not exist yet.

        ``password``: the password of its ledgers, if it was created with one. Raises :class:`fencepost.OptionError` for
        an invalid name.
        """
        return Log(self, name, password)


class SyncClient(Waiting[Client]):
    """A client for synchronous code: the operations of :class:`.Client` by the same names, which block."""

    create_ledger = opens(Client.create_ledger, SyncLedgerWriter)
    reserve_ledger = waits(Client.reserve_ledger)
    adopt_ledger = opens(Client.adopt_ledger, SyncLedgerWriter)
    open_ledger = opens(Client.open_ledger, SyncLedgerReader)
    recover_ledger = waits(Client.recover_ledger)
    list_ledgers = iterates(Client.list_ledgers)
    ledger_metadata = waits(Client.ledger_metadata)
    delete_ledger = waits(Client.delete_ledger)
    bookies = waits(Client.bookies)

    @classmethod
    def connect(cls, uri: str, settings: ClientSettings, trace: str | Path | None = None) -> Self:
        """See :func:`fencepost.connect_sync`."""
        loop = Loop()
        try:
            return cls(loop, loop.wait(Client.connect(uri, settings, trace)))
        except FencepostError as error:
            loop.stop()
            raise error.with_traceback(None) from None  # the client's internal frames do not help the caller
        except BaseException:
            loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`.LedgerClient.close`. May be called again."""
        if self._loop.is_own() and not self._loop.loop.is_closed():
            try:
                self._loop.wait(self._of.close())
            finally:
                self._loop.stop()

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function on the :class:`.Client` and return its result, for operations that run
        concurrently.
        """
        return self._loop.wait(work(self._of))

    def iterate(self, work: Callable[[Client], AsyncIterator[T]], ahead: int = 4) -> Iterator[T]:
        """The items of an asynchronous iterator on the :class:`.Client`. At most ``ahead`` items are fetched ahead."""
        return self._loop.iterate(work(self._of), ahead)

    def log(self, name: str, *, password: bytes | str = b"") -> SyncLog:
        """See :meth:`.Client.log`."""
        return SyncLog(self._loop, self._of.log(name, password=password))


class Connecting(Opening[Client]):
    """A pending connection to a store.

    ``async with`` and ``await`` return a :class:`Client`, whose operations are awaited. ``with`` returns a
    :class:`SyncClient`, whose operations block. Both ``with`` forms close the client at the end; after ``await`` the
    caller closes it.
    """

    def __init__(self, uri: str, settings: ClientSettings, trace: str | Path | None = None) -> None:
        super().__init__(partial(Client.connect, uri, settings, trace))
        self._connect_sync = partial(SyncClient.connect, uri, settings, trace)
        self._sync_store: SyncClient | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name}: nothing is connected yet: write with fencepost.connect(...) as store, or store ="
            " fencepost.connect_sync(...); asynchronous code writes async with, or store = await fencepost.connect(...)"
        )

    def __enter__(self) -> SyncClient:
        self._sync_store = self._connect_sync()
        return self._sync_store

    def __exit__(self, *_: object) -> None:
        assert self._sync_store is not None
        self._sync_store.close()


def connect(uri: str, settings: ClientSettings | None = None, *, trace: str | Path | None = None) -> Connecting:
    """Connect to a ledger store by the URI of its metadata: ``zk://HOST:PORT[,HOST:PORT]/ledgers``.

        async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store: ...
        with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store: ...

    ``trace``: a folder for a trace of this client's operations.

    Raises :class:`fencepost.TraceError` if the trace cannot be written, :class:`fencepost.OptionError` for an invalid
    URI, :class:`MetadataServiceError` if the metadata service does not answer, and :class:`NoClusterError` if there is
    no cluster.
    """
    return Connecting(uri, settings or ClientSettings.of_environment(), trace)


def connect_sync(uri: str, settings: ClientSettings | None = None, *, trace: str | Path | None = None) -> SyncClient:
    """Connect from synchronous code without ``with``: call ``close`` at the end. Raises as :func:`connect`."""
    return SyncClient.connect(uri, settings or ClientSettings.of_environment(), trace)
