"""``fencepost.connect``: one call for asynchronous and for synchronous code."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from fencepost.client.client import Client
from fencepost.client.sync import SyncClient
from fencepost.store.client.settings import ClientSettings


class Connecting:
    """A store that is being connected to.

    ``async with`` and ``await`` give a :class:`Client`, whose operations are awaited; ``with`` gives a
    :class:`SyncClient`, whose operations wait by themselves. Both close it at the end, ``await`` leaves that to the
    caller.
    """

    def __init__(self, uri: str, settings: ClientSettings, trace: str | Path | None = None) -> None:
        self.uri = uri
        self.settings = settings
        self.trace = trace
        self._store: Client | None = None
        self._sync_store: SyncClient | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return Client.connect(self.uri, self.settings, self.trace).__await__()

    async def __aenter__(self) -> Client:
        self._store = await self
        return self._store

    async def __aexit__(self, *_: object) -> None:
        assert self._store is not None
        await self._store.close()

    def __enter__(self) -> SyncClient:
        self._sync_store = SyncClient.connect(self.uri, self.settings, self.trace)
        return self._sync_store

    def __exit__(self, *_: object) -> None:
        assert self._sync_store is not None
        self._sync_store.close()


def connect(uri: str, settings: ClientSettings | None = None, *, trace: str | Path | None = None) -> Connecting:
    """Connect to a ledger store by the address of its metadata: ``zk://HOST:PORT[,HOST:PORT]/ledgers``.

        async with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store: ...
        with fencepost.connect("zk://127.0.0.1:2181/ledgers") as store: ...

    ``trace``: a folder for a trace of what this client does.

    Raises :class:`fencepost.TraceError` if there can be no trace, :class:`fencepost.OptionError` for what is no
    address, :class:`MetadataServiceError` if nobody answers there, and :class:`NoClusterError` if there is no cluster.
    """
    return Connecting(uri, settings or ClientSettings(), trace)


def connect_sync(uri: str, settings: ClientSettings | None = None, *, trace: str | Path | None = None) -> SyncClient:
    """Connect for synchronous code, where ``with`` is not at hand: call ``close`` at the end. Raises as
    :func:`connect`.
    """
    return SyncClient.connect(uri, settings or ClientSettings(), trace)
