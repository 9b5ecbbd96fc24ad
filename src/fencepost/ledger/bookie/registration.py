"""Keeps a bookie registered for clients, as writable or as read-only.

A bookie that has lost its session keeps serving. Its connected clients lose nothing, and the fence of a recovery still
reaches it. It registers again as soon as it has a new session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fencepost.ledger.bookie.server import Server
from fencepost.ledger.errors import MetadataServiceError, StoreError
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.registration import BookieServiceInfo
from fencepost.ledger.metadata.session import Session

PAUSE = 1.0
"""Seconds until a failed registration is retried."""

UP, READ_ONLY, UNREGISTERED = 1, 0, -1

_log = logging.getLogger("fencepost.ledger.bookie")


class Registration:
    """One bookie's registration. Threads of the storage call :meth:`full`. ``on_stop``: called if the bookie must not
    continue.
    """

    def __init__(
        self,
        client: MetadataClient,
        bookie_id: str,
        info: BookieServiceInfo,
        server: Server,
        on_stop: Callable[[str], None],
    ) -> None:
        self.client = client
        self.bookie_id = bookie_id
        self.info = info
        self.server = server
        self.on_stop = on_stop
        self.is_full = False
        self.always_read_only = False
        """Whether the bookie is read-only, however much space it has."""
        self.read_only = False
        self.status = UNREGISTERED
        """As in BookKeeper's metric: 1 registered, 0 registered as read-only, -1 not registered."""
        self._changed = asyncio.Event()
        self._end_listening = client.listen(self._session_changed)

    def full(self, is_full: bool) -> None:
        """The disks are full, or have space again."""
        self.server.loop.call_soon_threadsafe(self._full, is_full)

    async def begin(self, read_only: bool) -> None:
        """Register for the first time. ``read_only``: permanently. The directories are locked and the cookies match, so
        an earlier registration belongs to a dead process.
        """
        self.always_read_only = read_only
        await self._register()

    async def keep(self) -> None:
        """Register again whenever needed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._register()
            except StoreError as error:
                _log.warning("bookie %s cannot be registered, which is tried again: %s", self.bookie_id, error)
                self._changed.set()
                await asyncio.sleep(PAUSE)

    async def end(self) -> None:
        """Remove the registration, so that clients go elsewhere at once."""
        self._end_listening()
        self.status = UNREGISTERED
        try:
            async with asyncio.timeout(PAUSE):
                await self.client.unregister_bookie(self.bookie_id)
        except (MetadataServiceError, TimeoutError) as error:
            _log.warning(
                "the registration of bookie %s ends with its session: %s", self.bookie_id, str(error) or "no answer"
            )

    async def _register(self) -> None:
        read_only = self.always_read_only or self.is_full
        if read_only and not self.always_read_only and not self.server.settings.read_only_mode_enabled:
            self.on_stop("the disk is full, and readOnlyModeEnabled is false")
            return
        if read_only != self.read_only:
            await self.server.call("read only", read_only)
            self.read_only = read_only
            _log.warning("bookie %s %s", self.bookie_id, "is read-only" if read_only else "takes adds again")
        await self.client.register_bookie(self.bookie_id, self.info, read_only=read_only, replace=True)
        self.status = READ_ONLY if read_only else UP

    def _full(self, is_full: bool) -> None:
        self.is_full = is_full
        self._changed.set()

    def _session_changed(self, session: Session) -> None:
        if session is Session.EXPIRED:
            self.status = UNREGISTERED
            _log.warning("bookie %s has lost its session with the metadata service, and serves on", self.bookie_id)
        elif session is Session.CONNECTED and self.status == UNREGISTERED:
            self._changed.set()
