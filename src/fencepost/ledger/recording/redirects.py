"""Redirects clients to the proxy, by putting its address into the bookies' registrations.

Clients find a bookie by its id, through its registration (``BookieServiceInfo``). That is a node of the bookie's
session, which anyone may write. The proxy puts its own address there, and keeps the bookie's in a property. It repeats
this whenever the bookie registers again. Ids, cookies and ledger metadata do not change. At the end the bookie's
address is restored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from fencepost.connections import tasks
from fencepost.errors import OptionError
from fencepost.ledger.errors import BadVersionError, MetadataServiceError
from fencepost.ledger.metadata.client import MetadataClient, Registered
from fencepost.ledger.metadata.registration import BOOKIE_RPC, BookieServiceInfo, Endpoint, address_of
from fencepost.ledger.recording.proxy import Bookie
from fencepost.traces import TraceWriter

PROPERTY = "fencepost.record"
"""The property in which the proxy keeps the bookie's own address."""

PAUSE = 1.0
"""Seconds before a failed read or write of a registration is retried."""

_log = logging.getLogger("fencepost.ledger.recording")


class Redirects:
    """The bookies' registrations, which point to the proxy."""

    def __init__(self, client: MetadataClient, trace: TraceWriter, bookies: Mapping[Bookie, tuple[str, int]]) -> None:
        self.client = client
        self.trace = trace
        self.bookies = {bookie.id: (bookie, to) for bookie, to in bookies.items()}
        self._changed = {bookie.id: asyncio.Event() for bookie in bookies}
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Redirect clients to the proxy: now for registered bookies, and for the others once they register."""
        for bookie in self.bookies:
            await self._redirect(bookie)
        self._tasks = [asyncio.create_task(self._keep(bookie)) for bookie in self.bookies]

    async def end(self) -> None:
        """Restore the bookies' addresses, as far as possible."""
        await tasks.cancel(self._tasks)
        await asyncio.gather(*map(self._put_back, self.bookies))

    async def _keep(self, bookie: str) -> None:
        changed = self._changed[bookie]
        while True:
            await changed.wait()
            changed.clear()
            try:
                await self._redirect(bookie)
            except (MetadataServiceError, ValueError) as error:
                _log.warning("clients are not redirected to the proxy of bookie %s, retrying: %s", bookie, error)
                changed.set()
                await asyncio.sleep(PAUSE)

    async def _redirect(self, bookie: str) -> None:
        registered = await self.client.read_registration(bookie, self._has_changed)
        if registered is None:
            return
        to = self.bookies[bookie][1]
        own = address_of(bookie, registered.info)
        if own == to:
            return
        host, port = address_before(registered.info) or own  # a killed proxy may have left its own address
        try:
            await self.client.replace_registration(registered, _with(registered, to, {PROPERTY: f"{host}:{port}"}))
        except BadVersionError:
            self._changed[bookie].set()
            return
        self.trace.emit(
            "bookie_redirected", None, {"bookie": bookie, "from": f"{host}:{port}", "to": f"{to[0]}:{to[1]}"}
        )

    def _has_changed(self, bookie: str) -> None:
        self._changed[bookie].set()

    async def _put_back(self, bookie: str) -> None:
        try:
            async with asyncio.timeout(PAUSE):
                registered = await self.client.read_registration(bookie, lambda bookie: None)
                own = None if registered is None else address_before(registered.info)
                if (
                    registered is not None
                    and own is not None
                    and address_of(bookie, registered.info) == self.bookies[bookie][1]
                ):
                    await self.client.replace_registration(registered, _with(registered, own, {}))
        except (BadVersionError, MetadataServiceError, TimeoutError, ValueError) as error:
            _log.warning(
                "clients are still redirected to the proxy of bookie %s, until the bookie restarts: %s",
                bookie,
                str(error) or "no answer",
            )


def address_before(info: BookieServiceInfo | None) -> tuple[str, int] | None:
    """The bookie's own address in a redirected registration; None if it is not redirected."""
    text = dict(info.properties).get(PROPERTY) if info is not None else None
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    return (host, int(port)) if port.isdecimal() else None


def _with(registered: Registered, address: tuple[str, int], properties: Mapping[str, str]) -> BookieServiceInfo:
    """A registration with another address."""
    info = registered.info or BookieServiceInfo()
    host, port = address
    endpoints = tuple(
        msgspec.structs.replace(endpoint, host=host, port=port) if endpoint.protocol == BOOKIE_RPC else endpoint
        for endpoint in info.endpoints
    )
    kept = {name: value for name, value in info.properties if name != PROPERTY}
    return BookieServiceInfo(
        endpoints or (Endpoint("bookie", host, port),), tuple(sorted({**kept, **properties}.items()))
    )


async def registered_bookies(client: MetadataClient) -> dict[str, tuple[str, int]]:
    """The address that each registered bookie listens on, by id, even where clients are redirected to a proxy."""
    bookies = await client.bookies()
    found = {}
    for bookie in (*bookies.writable, *bookies.read_only):
        try:
            info = await client.bookie_info(bookie)
            found[bookie] = address_before(info) or address_of(bookie, info)
        except ValueError as error:
            raise OptionError(f"the bookie {bookie} cannot be recorded: {error}") from error
    return found
