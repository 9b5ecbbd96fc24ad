"""Who owns a bookie's directories, by their cookies and the one in the metadata. Also stamps cookies, and does an
operator's work with them: fix cookies, and remove a bookie from the metadata.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import msgspec

from fencepost.errors import SystemFailure
from fencepost.ledger.bookie import cookies
from fencepost.ledger.bookie.directories import Directories
from fencepost.ledger.bookie.metrics import Metrics
from fencepost.ledger.bookie.repair import Repair
from fencepost.ledger.bookie.server import Server
from fencepost.ledger.bookie.settings import BookieSettings
from fencepost.ledger.disk.storage import Storage
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.roles.bookie import Bookie
from fencepost.ledger.rules.boot import CLEAN_END, Mark, mark_of
from fencepost.ledger.rules.cookies import Boot, Cookie, Decision, Stamped, has_lost_all, may_boot, may_repair


class Identity(NamedTuple):
    """A bookie's expected cookie, the one in the metadata, its directories, and what follows from them."""

    own: Cookie
    in_metadata: Cookie | None
    stamped: list[Stamped]
    decision: Decision
    has_lost_files: bool
    """Whether all cookies are there and everything else is gone."""

    @property
    def may_be_repaired(self) -> bool:
        """Whether the bookie can start as one that has lost a directory."""
        return may_repair(self.own, self.in_metadata, self.stamped)

    def problem(self) -> str:
        """Why the bookie does not start, and what to do about it, in one line; empty if it starts."""
        if self.decision.boot not in (Boot.READY, Boot.STAMP):
            return cookies.refusal(self.decision, self.own)
        if self.has_lost_files:
            where = " and ".join(dict.fromkeys(each.path for each in self.stamped))
            return (
                f"{where} have the bookie's cookie, and neither journal nor entry logs: they are lost; bring them back,"
                " or set dataIntegrityStampMissingCookies to have what is missing copied from other bookies"
            )
        return ""


async def identify(client: MetadataClient, directories: Directories, bookie_id: str) -> Identity:
    """Compare the cookies of a bookie. Raises :class:`SystemFailure` if one is damaged, and :class:`StoreError` if the
    metadata cannot be read.
    """
    stamped = directories.stamped()
    in_metadata = await cookies.in_metadata(client, bookie_id)
    own = directories.cookie(bookie_id, await client.instance_id(), cookies.token_of(in_metadata, stamped))
    decision = may_boot(own, in_metadata, stamped)
    is_first_start = any(map(cookies.is_first_start, directories))
    has_lost_files = decision.boot is Boot.READY and has_lost_all(
        is_first_start, any(not each.is_empty for each in stamped)
    )
    return Identity(own, in_metadata, stamped, decision, has_lost_files)


async def stamp_first(client: MetadataClient, directories: Directories, cookie: Cookie) -> None:
    """Stamp the directories of a new bookie, then the metadata. Before any cookie, record that nothing is lost."""
    directories.record_run(CLEAN_END)
    for directory in dict.fromkeys(directories):
        cookies.stamp(directory, cookie)
    await client.write_cookie(cookie.bookie_id, cookies.to_bytes(cookie))


async def stamp_anew(client: MetadataClient, directories: Directories, cookie: Cookie) -> None:
    """Restamp all directories and the metadata, after all ledgers were marked. From now on the bookie counts as having
    lost nothing.
    """
    for directory in dict.fromkeys(directories):
        cookies.stamp(directory, cookie, is_first_start=False)
    _, version = await client.read_cookie(cookie.bookie_id)
    await client.write_cookie(cookie.bookie_id, cookies.to_bytes(cookie), version)


class Stake(msgspec.Struct, frozen=True):
    """A bookie in the metadata: the open and the closed ledgers with entries on it, and whether it is registered."""

    open: list[int]
    closed: list[int]
    is_registered: bool


def bookie_of(directories: Directories, settings: BookieSettings) -> str:
    """The id of a bookie from its settings or its cookies. Raises :class:`SystemFailure` if neither has it."""
    found = settings.bookie_id or next(
        (each.cookie.bookie_id for each in directories.stamped() if each.cookie is not None), ""
    )
    if not found:
        where = " nor ".join(dict.fromkeys(directories))
        raise SystemFailure(
            f"neither {where} has a cookie that says which bookie this is: set bookieId, as in bookieId=127.0.0.1:3181"
        )
    return found


async def look(client: MetadataClient, directories: Directories, settings: BookieSettings) -> Identity:
    """Compare the cookies of a bookie. Raises :class:`SystemFailure`."""
    return await identify(client, directories, bookie_of(directories, settings))


async def stake_of(client: MetadataClient, bookie_id: str) -> Stake:
    """Search all metadata for a bookie."""
    opened: list[int] = []
    closed: list[int] = []
    await client.sync()
    async for ledger, metadata in client.all_metadata():
        mark = mark_of(metadata, bookie_id)
        if mark is not Mark.NOTHING:
            (opened if mark is Mark.LIMBO else closed).append(ledger)
    bookies = await client.bookies()
    return Stake(opened, closed, bookie_id in (*bookies.writable, *bookies.read_only))


async def fix(client: MetadataClient, directories: Directories, settings: BookieSettings) -> None:
    """Do what the next start of a bookie with ``dataIntegrityStampMissingCookies`` would do: mark its ledgers, then
    stamp its directories. The next start copies what is missing.

    Raises :class:`SystemFailure` if the bookie is running, or its cookies cannot be fixed.
    """
    found = await look(client, directories, settings)
    if not found.may_be_repaired:
        raise SystemFailure(f"the cookies cannot be fixed: {found.problem()}")
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
        is_flushed = await asyncio.to_thread(storage.close)
    if is_flushed:
        directories.record_run(CLEAN_END, directories.may_lack)
