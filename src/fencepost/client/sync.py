"""The client for synchronous code: the same operations by the same names, which wait by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from fencepost.client.client import Client
from fencepost.log.sync import SyncLog
from fencepost.store.client.settings import ClientSettings
from fencepost.store.client.sync import Loop, SyncLedgerReader, SyncLedgerWriter, Waiting, iterates, opens, waits

T = TypeVar("T")


class SyncClient(Waiting[Client]):
    """A cluster as one client sees it; see :class:`.Client`."""

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
        except BaseException:
            loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See :meth:`.Store.close`. It can be called again."""
        if not self._loop.loop.is_closed():
            try:
                self._loop.wait(self._of.close())
            finally:
                self._loop.stop()

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function on the :class:`.Client`, and give its result: several operations that need not wait
        for one another.
        """
        return self._loop.wait(work(self._of))

    def iterate(self, work: Callable[[Client], AsyncIterator[T]], ahead: int = 4) -> Iterator[T]:
        """The items of an asynchronous iteration over the :class:`.Client`, each as soon as it is there; so many are
        drawn ahead at most.
        """
        return self._loop.iterate(work(self._of), ahead)

    def log(self, name: str, *, password: bytes | str = b"") -> SyncLog:
        """See :meth:`.Client.log`."""
        return SyncLog(self._loop, self._of.log(name, password=password))
