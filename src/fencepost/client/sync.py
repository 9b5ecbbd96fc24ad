"""The client for synchronous code: the same operations by the same names, which wait by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from fencepost.client.client import Client
from fencepost.log.sync import SyncLog
from fencepost.store.client.settings import ClientSettings
from fencepost.store.client.sync import Loop, SyncLedgerReader, SyncLedgerWriter
from fencepost.store.messages import NO_ENTRY_YET
from fencepost.store.metadata.client import Bookies
from fencepost.store.rules.metadata import DigestType, LedgerMetadata

T = TypeVar("T")


class SyncClient:
    """A cluster as one client sees it; see :class:`.Client`."""

    def __init__(self, loop: Loop, store: Client) -> None:
        self._loop = loop
        self._store = store

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
                self._loop.wait(self._store.close())
            finally:
                self._loop.stop()

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine function on the :class:`.Client`, and give its result: several operations that need not wait
        for one another.
        """
        return self._loop.wait(work(self._store))

    def iterate(self, work: Callable[[Client], AsyncIterator[T]], ahead: int = 4) -> Iterator[T]:
        """The items of an asynchronous iteration over the :class:`.Client`, each as soon as it is there; so many are
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
        """See :meth:`.Store.create_ledger`."""
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
        """See :meth:`.Store.reserve_ledger`."""
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
        """See :meth:`.Store.adopt_ledger`."""
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
        """See :meth:`.Store.open_ledger`."""
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
        """See :meth:`.Store.recover_ledger`."""
        return self._loop.wait(self._store.recover_ledger(ledger, password=password))

    def list_ledgers(self) -> Iterator[int]:
        """See :meth:`.Store.list_ledgers`."""
        return self._loop.iterate(self._store.list_ledgers())

    def ledger_metadata(self, ledger: int) -> LedgerMetadata:
        """See :meth:`.Store.ledger_metadata`."""
        return self._loop.wait(self._store.ledger_metadata(ledger))

    def delete_ledger(self, ledger: int) -> None:
        """See :meth:`.Store.delete_ledger`."""
        self._loop.wait(self._store.delete_ledger(ledger))

    def log(self, name: str, *, password: bytes | str = b"") -> SyncLog:
        """See :meth:`.Client.log`."""
        return SyncLog(self._loop, self._store.log(name, password=password))

    def bookies(self) -> Bookies:
        """See :meth:`.Store.bookies`."""
        return self._loop.wait(self._store.bookies())
