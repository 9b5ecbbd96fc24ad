"""The nodes of a log in the metadata service, below the root of the cluster.

==========================
====================================================================================================
``logs/NAME``              the list of its ledgers, see :mod:`.chain`; every change is conditional on the node's version
``logs/NAME/leader``       the writer that leads, by an id of its own; ephemeral, so it goes with the writer's session
``logs/NAME/cursors/NAME`` a cursor, see :mod:`.cursors`; conditional too ``logs/NAME/trims/t-...``  ledgers that are to
be deleted once they are not in the list: eight bytes of each id, big endian ``.../pending/WRITER/ID``  a ledger of a
batch that is written and is not in the list yet, see :class:`Pending`: the number of the
                           batch and the time in milliseconds since 1970, eight bytes each, and 1 if the ledger is
                           withdrawn, else 0
==========================
====================================================================================================
"""

from __future__ import annotations

import asyncio
import re
import secrets
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fencepost.errors import OptionError
from fencepost.ledger.errors import BadVersionError
from fencepost.ledger.metadata.client import MetadataClient, Node, Session
from fencepost.log.chain import SENDS, SUBJECT, Chain, bytes_of, chain_of
from fencepost.log.errors import LogExistsError, LogFullError, MissingLedgerError, NoSuchLogError
from fencepost.traces.writer import TraceWriter

LOGS = "logs"
LEADER = "leader"
CURSORS = "cursors"
TRIMS = "trims"
PENDING = "pending"

LARGEST_LIST = 1_000_000
"""Bytes of the list of a log, at most: a metadata service takes 1 MiB by default, and cuts the connection of a client
that sends more.
"""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def checked_name(name: str, what: str = "a log") -> str:
    """The name, if it is one. Raises :class:`OptionError`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"{name!r} is no name of {what}: give up to 200 letters, digits, dots, dashes and underscores, no dot first"
        )
    return name


async def names(client: MetadataClient) -> list[str]:
    """The names of all logs, in order."""
    return sorted(await client.names_in(LOGS) or [])


class Pending(NamedTuple):
    """A ledger of the batch ``number`` of a writer that was noted at a time, in milliseconds since 1970, before it was
    created.

    ``withdrawn``: it is to be deleted, and nobody may attach it.
    """

    ledger: int
    number: int
    since: int
    withdrawn: bool = False


_PENDING = struct.Struct(">qq?")


class LogNodes:
    """The nodes of one log. All coroutines raise :class:`MetadataServiceError` as the client does."""

    def __init__(self, client: MetadataClient, name: str) -> None:
        self.client = client
        self.name = checked_name(name)
        self.path = f"{LOGS}/{name}"

    def trace(self, trace: TraceWriter | None, action: str, fields: dict[str, Any], actor: str = "") -> None:
        """Write to a trace, if there is one, that somebody has done something about the log. Of updates that are sent
        it has the session, too.
        """
        if trace is not None:
            if action in SENDS:
                fields = {**fields, "session": f"{self.client.session_id or 0:x}"}
            trace.emit(action, f"{SUBJECT}{self.name}", fields, actor=actor)

    # -- the list of ledgers -------------------------------------------------------------------------------------------

    async def create(self, chain: Chain) -> None:
        """Make the log. Raises :class:`LogExistsError`."""
        if await self.client.create_node(self.path, bytes_of(chain)) is None:
            raise LogExistsError(f"there is a log {self.name} already")

    async def read(self, watch: Callable[[str], None] | None = None) -> tuple[Chain, int]:
        """The list of ledgers, and its version. ``watch`` is called once, when it has changed or may have.

        Raises :class:`NoSuchLogError`, and :class:`LogFormatError`.
        """
        found = await self.find(watch)
        return chain_of(found.data), found.version

    async def find(self, watch: Callable[[str], None] | None = None) -> Node:
        """The node of the list of ledgers. Raises :class:`NoSuchLogError`."""
        found = await self.client.read_node(self.path, watch)
        if found is None:
            raise NoSuchLogError(f"there is no log {self.name}: make it, or correct the name")
        return found

    async def missing(self, chain: Chain) -> tuple[int, ...]:
        """The ledgers of the list that are not there, in order; those that were trimmed since it was read are none of
        them.
        """
        gone = await self.client.missing(link.ledger for link in chain.links)
        left: set[int] = set()
        if gone:
            with suppress(NoSuchLogError):
                left.update(link.ledger for link in (await self.read())[0].links)
        return tuple(ledger for ledger in gone if ledger in left)

    def lost(self, chain: Chain, missing: Sequence[int], advice: str = "", *options: str) -> MissingLedgerError:
        """The error that says which ledgers are missing, and what is gone with them."""
        are = f"ledger {missing[0]} of the log {self.name} is missing"
        if len(missing) > 1:
            are = f"{len(missing):,} ledgers of the log {self.name} are missing, {missing[0]} first"
        gone = f"{are}: the entries {chain.gaps({*missing})} are gone"
        return MissingLedgerError(f"{gone}; {advice}" if advice else gone, *options)

    async def write(self, chain: Chain, version: int) -> int:
        """Replace the list of ledgers if its version is still this one; gives the next version. Raises
        :class:`BadVersionError`, and :class:`LogFullError`.
        """
        data = bytes_of(chain)
        if len(data) > LARGEST_LIST:
            raise LogFullError(
                f"the list of the log {self.name} would have {len(data):,} bytes, and has room for {LARGEST_LIST:,}:"
                " trim the log"
            )
        return await self._write(self.path, data, version, f"the list of ledgers of the log {self.name}")

    async def delete(self) -> None:
        """Delete all nodes of the log, the list of ledgers last."""
        while not await self.client.delete_node(self.path):  # while somebody makes nodes below it
            for name in await self.client.names_in(self.path) or []:
                await self._delete_all(f"{self.path}/{name}")

    async def _delete_all(self, path: str) -> None:
        """Delete a node with all below it."""
        while not await self.client.delete_node(path):
            for name in await self.client.names_in(path) or []:
                await self._delete_all(f"{path}/{name}")

    async def _write(self, path: str, data: bytes, version: int, what: str) -> int:
        if not await self.client.write_node(path, data, version):
            # It may have been done, by a request whose answer was lost: then these bytes are there under the next
            # version.
            found = await self.client.read_node(path)
            if found is None or found.version != version + 1 or found.data != data:
                raise BadVersionError(f"{what} was changed by somebody else")
        return version + 1

    # -- ledgers that are to be deleted --------------------------------------------------------------------------------

    async def create_trim(self, ledgers: Sequence[int]) -> None:
        """Note ledgers that are to be deleted once they are not in the list any more."""
        await self.client.create_node(
            f"{self.path}/{TRIMS}/t-", struct.pack(f">{len(ledgers)}q", *ledgers), sequential=True
        )

    async def trims(self) -> list[tuple[str, list[int]]]:
        """The records of ledgers that are to be deleted, by their names, in order."""
        found = []
        for name in sorted(await self.client.names_in(f"{self.path}/{TRIMS}") or []):
            node = await self.client.read_node(f"{self.path}/{TRIMS}/{name}")
            if node is not None and len(node.data) % 8 == 0:
                found.append((name, [*struct.unpack(f">{len(node.data) // 8}q", node.data)]))
        return found

    async def delete_trim(self, name: str) -> None:
        """Forget a note."""
        await self.client.delete_node(f"{self.path}/{TRIMS}/{name}")

    # -- ledgers of batches that are written ---------------------------------------------------------------------------

    async def create_pending(self, writer: str, pending: Pending) -> None:
        """Note a ledger of a batch that is about to be created."""
        await self.client.create_node(self._pending(writer, pending.ledger), _PENDING.pack(*pending[1:]))

    async def batch_writers(self) -> list[str]:
        """The writers that have noted ledgers."""
        return sorted(await self.client.names_in(f"{self.path}/{PENDING}") or [])

    async def pending(self, writer: str) -> list[Pending]:
        """The ledgers that a writer has noted."""
        names = await self.client.names_in(f"{self.path}/{PENDING}/{writer}") or []
        found = await asyncio.gather(
            *(self.client.read_node(f"{self.path}/{PENDING}/{writer}/{name}") for name in names)
        )
        return sorted(
            Pending(int(name), *_PENDING.unpack(node.data))
            for name, node in zip(names, found, strict=True)
            if node is not None and name.isdecimal() and len(node.data) == _PENDING.size
        )

    async def withdraw(self, writer: str, pending: Pending) -> None:
        """Say of a ledger that it is to be deleted."""
        await self.client.write_node(
            self._pending(writer, pending.ledger), _PENDING.pack(*pending._replace(withdrawn=True)[1:])
        )

    async def delete_pending(self, writer: str, ledger: int) -> None:
        """Forget a ledger, which is in the list or deleted; and its writer, if that was the last one."""
        await self.client.delete_node(self._pending(writer, ledger))
        await self.client.delete_node(f"{self.path}/{PENDING}/{writer}")

    def _pending(self, writer: str, ledger: int) -> str:
        return f"{self.path}/{PENDING}/{checked_name(writer, 'a writer of batches')}/{ledger}"

    # -- the leader ----------------------------------------------------------------------------------------------------

    async def leader(self, watch: Callable[[str], None] | None = None) -> Node | None:
        """The node of the leader, with its session; None if nobody leads. ``watch`` is called once, when that has
        changed or may have.
        """
        return await self.client.read_node(f"{self.path}/{LEADER}", watch)

    async def stand(self, candidate: str) -> None:
        """Be the leader if nobody is. Ask :meth:`leader` who it is then. Raises :class:`NoSuchLogError`."""
        await self.find()  # so that no node is made for a log that is not there
        await self.client.create_node(f"{self.path}/{LEADER}", candidate.encode(), ephemeral=True)

    async def resign(self, candidate: str) -> None:
        """Be the leader no more, if it is this one."""
        found = await self.leader()
        if found is not None and found.data == candidate.encode() and found.owner == self.client.session_id:
            await self.client.delete_node(f"{self.path}/{LEADER}", found.version)

    # -- cursors -------------------------------------------------------------------------------------------------------

    async def cursors(self) -> list[str]:
        """The names of the log's cursors, in order."""
        return sorted(await self.client.names_in(f"{self.path}/{CURSORS}") or [])

    async def read_cursor(self, cursor: str) -> Node | None:
        """The node of a cursor; None if there is none."""
        return await self.client.read_node(f"{self.path}/{CURSORS}/{checked_name(cursor, 'a cursor')}")

    async def create_cursor(self, cursor: str, data: bytes) -> bool:
        """Make a cursor; whether there was none. Raises :class:`NoSuchLogError`."""
        await self.find()
        path = f"{self.path}/{CURSORS}/{checked_name(cursor, 'a cursor')}"
        return await self.client.create_node(path, data) is not None

    async def write_cursor(self, cursor: str, data: bytes, version: int) -> int:
        """Replace what is kept of a cursor if its version is still this one; gives the next version. Raises
        :class:`BadVersionError`."""
        return await self._write(
            f"{self.path}/{CURSORS}/{cursor}", data, version, f"the cursor {cursor} of the log {self.name}"
        )

    async def delete_cursor(self, cursor: str) -> None:
        """Delete a cursor, if it is there."""
        await self.client.delete_node(f"{self.path}/{CURSORS}/{checked_name(cursor, 'a cursor')}")


class Election:
    """A writer that stands for leader of a log, and is notified whenever it is elected or no more.

    ``changed`` is called with True or False when that has changed. Of a leader whose session is lost it is called with
    False: another may be elected then. A connection that is lost changes nothing yet, since a writer that is fenced can
    do no harm.
    """

    def __init__(self, nodes: LogNodes, name: str, changed: Callable[[bool], None]) -> None:
        self.nodes = nodes
        self.id = f"{name} {secrets.token_hex(8)}"
        """The data of the leader's node: no two writers have the same."""
        self.leader: str | None = None
        """The leader, as far as is known."""
        self.is_elected = False
        self._notify = changed
        self._stop = nodes.client.listen(self._session_changed)

    async def stand(self, watch: Callable[[str], None]) -> bool:
        """Stand if nobody leads; whether this one leads now. ``watch`` is called once, when that has changed or may
        have.
        """
        while True:
            found = await self.nodes.leader(watch)
            if found is not None:
                break
            await self.nodes.stand(self.id)
        self.leader = found.data.decode(errors="replace")
        self._set(self.leader == self.id and found.owner == self.nodes.client.session_id)
        return self.is_elected

    async def resign(self) -> None:
        """Stand no more, and lead no more."""
        self._stop()
        self._stop = lambda: None
        self._set(False)
        await self.nodes.resign(self.id)

    def _session_changed(self, session: Session) -> None:
        if session is Session.EXPIRED:
            self._set(False)

    def _set(self, is_elected: bool) -> None:
        if is_elected != self.is_elected:
            self.is_elected = is_elected
            self._notify(is_elected)
