"""Whose the directories of a bookie are, by their cookies and the one in the metadata, and what stamps them."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.store.bookie import cookies
from fencepost.store.bookie.directories import Directories
from fencepost.store.metadata.client import MetadataClient
from fencepost.store.rules.cookies import Boot, Cookie, Decision, Stamped, has_lost_all, may_boot, may_repair


class Identity(NamedTuple):
    """What was found: the cookie that a bookie should have, the one in the metadata, and its directories."""

    own: Cookie
    in_metadata: Cookie | None
    stamped: list[Stamped]
    decision: Decision
    has_lost_files: bool
    """The cookies are all there, and nothing else is."""

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
    metadata can not be read.
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
    """Stamp the directories of a new bookie, and then the metadata."""
    for directory in dict.fromkeys(directories):
        cookies.stamp(directory, cookie)
    await client.write_cookie(cookie.bookie_id, cookies.to_bytes(cookie))


async def stamp_anew(client: MetadataClient, directories: Directories, cookie: Cookie) -> None:
    """Stamp all directories and the metadata after all ledgers were marked: from now on the bookie counts as one that
    has lost nothing.
    """
    for directory in dict.fromkeys(directories):
        cookies.stamp(directory, cookie, is_first_start=False)
    _, version = await client.read_cookie(cookie.bookie_id)
    await client.write_cookie(cookie.bookie_id, cookies.to_bytes(cookie), version)
