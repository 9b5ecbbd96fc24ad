"""An operator's work on a bookie's cookies: look at them, fix them, and take a bookie out of the metadata."""

from __future__ import annotations

import asyncio

import msgspec

from fencepost.errors import SystemFailure
from fencepost.store.bookie import cookies
from fencepost.store.bookie.directories import Directories
from fencepost.store.bookie.identity import Identity, identify, stamp_anew
from fencepost.store.bookie.metrics import Metrics
from fencepost.store.bookie.repair import Repair
from fencepost.store.bookie.server import Server
from fencepost.store.bookie.settings import Settings
from fencepost.store.disk.storage import Storage
from fencepost.store.metadata.client import MetadataClient
from fencepost.store.roles.bookie import Bookie
from fencepost.store.rules.boot import Mark, mark_of


class Stake(msgspec.Struct, frozen=True):
    """A bookie in the metadata: the open ledgers with entries on it, the closed ones, and whether the bookie is
    registered.
    """

    open: list[int]
    closed: list[int]
    is_registered: bool


def bookie_of(directories: Directories, settings: Settings) -> str:
    """The id of a bookie by its settings or its cookies. Raises :class:`SystemFailure` if neither says."""
    found = settings.bookie_id or next(
        (each.cookie.bookie_id for each in directories.stamped() if each.cookie is not None), ""
    )
    if not found:
        where = " nor ".join(dict.fromkeys(directories))
        raise SystemFailure(
            f"neither {where} has a cookie that says which bookie this is: set bookieId, as in bookieId=127.0.0.1:3181"
        )
    return found


async def look(client: MetadataClient, directories: Directories, settings: Settings) -> Identity:
    """Compare the cookies of a bookie. Raises :class:`SystemFailure`."""
    return await identify(client, directories, bookie_of(directories, settings))


async def stake_of(client: MetadataClient, bookie_id: str) -> Stake:
    """Look through all metadata for a bookie."""
    opened: list[int] = []
    closed: list[int] = []
    await client.sync()
    async for ledger, metadata in client.all_metadata():
        mark = mark_of(metadata, bookie_id)
        if mark is not Mark.NOTHING:
            (opened if mark is Mark.LIMBO else closed).append(ledger)
    bookies = await client.bookies()
    return Stake(opened, closed, bookie_id in (*bookies.writable, *bookies.read_only))


async def fix(client: MetadataClient, directories: Directories, settings: Settings) -> None:
    """Do what the next start of a bookie would with ``dataIntegrityStampMissingCookies``: mark its ledgers, and then
    stamp its directories. The start that follows copies what is missing.

    Raises :class:`SystemFailure` if the bookie runs, or its cookies can not be fixed.
    """
    found = await look(client, directories, settings)
    if not found.may_be_repaired:
        raise SystemFailure(f"the cookies can not be mended: {found.problem()}")
    failures: list[str] = []
    server = Server(Bookie(limits=settings.of_role()), settings, Metrics(), failures.append)
    storage = await asyncio.to_thread(
        Storage,
        directories.of_storage(settings),
        synced=server.synced,
        failed=server.failed,
        busy=server.busy,
        has_lost_files=True,
    )
    try:
        repair = Repair(server, storage, client, found.own.bookie_id, directories, settings)
        repair.begin()
        server.open(storage)
        await repair.mark_ledgers()
        await stamp_anew(client, directories, found.own.replace(token=cookies.draw_token()))
    finally:
        await server.close()
        await asyncio.to_thread(storage.close)
