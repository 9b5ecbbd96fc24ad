"""Has clients come to the proxy instead of to the bookies: it stands in the registrations of the bookies as their
address.

Clients find a bookie by its id, in what it has registered with (``BookieServiceInfo``). That is a node of the bookie's
session, which anybody may write to: the proxy puts its own address there, keeps the bookie's in a property beside it,
and does so again when the bookie has registered anew. Ids, cookies and the metadata of ledgers stay as they are. At the
end the bookie's own address is put back.
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
"""The property of a registration in which the proxy keeps the bookie's own address."""

PAUSE = 1.0
"""Seconds after which a registration that could not be read or written is tried again."""

_log = logging.getLogger("fencepost.ledger.recording")


class Redirects:
    """The registrations of bookies, which say the proxy's address. ``to``: that address, by the bookie's id."""

    def __init__(self, client: MetadataClient, trace: TraceWriter, bookies: Mapping[Bookie, tuple[str, int]]) -> None:
        self.client = client
        self.trace = trace
        self.bookies = {bookie.id: (bookie, to) for bookie, to in bookies.items()}
        self._changed = {bookie.id: asyncio.Event() for bookie in bookies}
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Have clients come to the proxy from now on: to every bookie that is registered, and to the others once they
        are.
        """
        for bookie in self.bookies:
            await self._redirect(bookie)
        self._tasks = [asyncio.create_task(self._keep(bookie)) for bookie in self.bookies]

    async def end(self) -> None:
        """Put back the addresses of the bookies, as far as that is possible."""
        await tasks.end(self._tasks)
        await asyncio.gather(*map(self._put_back, self.bookies))

    async def _keep(self, bookie: str) -> None:
        changed = self._changed[bookie]
        while True:
            await changed.wait()
            changed.clear()
            try:
                await self._redirect(bookie)
            except (MetadataServiceError, ValueError) as error:
                _log.warning("clients are not led to the proxy of bookie %s, which is tried again: %s", bookie, error)
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
        host, port = address_before(registered.info) or own  # a proxy that was killed may have left its own
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
                "clients are still led to the proxy of bookie %s, until the bookie is started again: %s",
                bookie,
                str(error) or "no answer",
            )


def address_before(info: BookieServiceInfo | None) -> tuple[str, int] | None:
    """The address that a registration had before a proxy took its place; None if none has."""
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
    """The address that every registered bookie listens on, by its id; whether clients are redirected to a proxy or
    not."""
    bookies = await client.bookies()
    found = {}
    for bookie in (*bookies.writable, *bookies.read_only):
        try:
            info = await client.bookie_info(bookie)
            found[bookie] = address_before(info) or address_of(bookie, info)
        except ValueError as error:
            raise OptionError(f"the bookie {bookie} cannot be recorded: {error}") from error
    return found
