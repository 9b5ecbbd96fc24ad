"""The nodes of a log in the metadata service, below the root of the cluster.

==========================  ===============================================================================
``logs/NAME``               the chain, see :mod:`.chain`; every change is conditional on the node's version
``logs/NAME/id-ID``         the log's own id, in hexadecimal. Every change of the chain and of cursors is conditional on
                            it: a log that is made under the name of a deleted one has the same versions again
``logs/NAME/leader``        the id of the writer that leads; ephemeral, so it goes with the writer's session
``logs/NAME/cursors/NAME``  a cursor, see :mod:`.cursors`; changes are conditional too
``logs/NAME/trims/t-...``   ledgers to delete once they are not in the chain: the ids, eight bytes each, big endian
``.../pending/WRITER/ID``   a ledger of a batch that is not in the chain yet, see :class:`Pending`: the number of the
                            batch and the time in milliseconds since 1970, eight bytes each, and 1 if the ledger is
                            withdrawn, else 0
``.../objects/LEDGER-N``    attempt N to offload a ledger, see :class:`Attempt`: the time in milliseconds since 1970,
                            eight bytes, 1 if it is withdrawn, else 0, and the place of the object in UTF-8
==========================  ===============================================================================
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
from fencepost.ledger.metadata.client import MetadataClient, Node
from fencepost.ledger.metadata.session import Session
from fencepost.log.chain import SENDS, SUBJECT, Chain, bytes_of, chain_of
from fencepost.log.errors import LogExistsError, LogFullError, MissingLedgerError, NoSuchLogError
from fencepost.traces.writer import TraceWriter

LOGS = "logs"
ID = "id"
LEADER = "leader"
CURSORS = "cursors"
TRIMS = "trims"
PENDING = "pending"
OBJECTS = "objects"

LARGEST_LIST = 1_000_000
"""The most bytes of a chain. A metadata service takes 1 MiB by default, and closes the connection of a client that
sends more.
"""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")


def checked_name(name: str, what: str = "a log") -> str:
    """Return the name if it is valid. Raises :class:`OptionError`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"{name!r} is no name of {what}: give up to 200 letters, digits, dots, dashes and underscores, no dot first"
        )
    return name


async def names(client: MetadataClient) -> list[str]:
    """The names of all logs, sorted."""
    return sorted(await client.names_in(LOGS) or [])


class Pending(NamedTuple):
    """The record of a ledger of batch ``number`` of a writer. It is written before the ledger is created.

    ``since``: when it was written, in milliseconds since 1970. ``withdrawn``: the ledger is about to be deleted, and
    must not be attached.
    """

    ledger: int
    number: int
    since: int
    withdrawn: bool = False


_PENDING = struct.Struct(">qq?")


class Attempt(NamedTuple):
    """The record of attempt ``number`` to offload a ledger. It is written before the object, and deleted after it.

    ``place``: the folder of the object, as a path or a URL. ``since``: when the record was written, in milliseconds
    since 1970. ``withdrawn``: the object is about to be removed, and must not get into the list.
    """

    ledger: int
    number: int
    place: str
    since: int
    withdrawn: bool = False

    @property
    def name(self) -> str:
        """The name of its node, and of its object."""
        return f"{self.ledger}-{self.number}"


_ATTEMPT = struct.Struct(">q?")


def _on_bookies(chain: Chain) -> list[int]:
    """The ledgers of the chain that only bookies have."""
    offloaded = {each.ledger for each in chain.offloads}
    return [link.ledger for link in chain.links if link.ledger not in offloaded]


class LogNodes:
    """The nodes of one log. All coroutines raise :class:`MetadataServiceError` as the client does."""

    def __init__(self, client: MetadataClient, name: str) -> None:
        self.client = client
        self.name = checked_name(name)
        self.path = f"{LOGS}/{name}"

    def trace(self, trace: TraceWriter | None, action: str, fields: dict[str, Any], actor: str = "") -> None:
        """Write an event about the log to a trace, if there is one. Events that send an update also carry the
        session.
        """
        if trace is not None:
            if action in SENDS:
                fields = {**fields, "session": f"{self.client.session_id or 0:x}"}
            trace.emit(action, f"{SUBJECT}{self.name}", fields, actor=actor)

    # -- the chain -----------------------------------------------------------------------------------------------------

    async def create(self, chain: Chain) -> None:
        """Create the log. Raises :class:`LogExistsError`."""
        data, own = bytes_of(chain), self._own(chain)
        if not await self.client.create_nodes([(self.path, data), *([(own, b"")] if own else [])]):
            node = await self.client.read_node(self.path)
            if node is None or not own or node.data != data:  # else an earlier request did it, with its answer lost
                raise LogExistsError(f"there is a log {self.name} already")

    def _own(self, chain: Chain) -> str:
        """The node with the log's id; "" if it has none, as earlier logs."""
        return f"{self.path}/{ID}-{chain.id.hex()}" if chain.id else ""

    async def read(self, watch: Callable[[str], None] | None = None) -> tuple[Chain, int]:
        """Read the chain and its version. ``watch`` is called once, when the chain has changed or may have.

        Raises :class:`NoSuchLogError`, and :class:`LogFormatError`.
        """
        node = await self.find(watch)
        return chain_of(node.data), node.version

    async def must_still_be(self, chain: Chain) -> Chain:
        """The chain as it is now. Raises :class:`NoSuchLogError` if the log with ``chain`` is gone, though there may be
        another one of its name.
        """
        now, _ = await self.read()
        if now.id != chain.id:
            raise self._is_unknown()
        return now

    async def find(self, watch: Callable[[str], None] | None = None) -> Node:
        """Read the node of the chain. Raises :class:`NoSuchLogError`."""
        node = await self.client.read_node(self.path, watch)
        if node is None:
            raise self._is_unknown()
        return node

    def _is_unknown(self) -> NoSuchLogError:
        return NoSuchLogError(f"there is no log {self.name}: make it, or correct the name")

    async def _create(self, below: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False) -> bool:
        """Create a node of the log; return False if it exists. Raises :class:`NoSuchLogError`, and creates nothing for
        a log that does not exist.
        """
        try:
            made = await self.client.create_node(
                f"{self.path}/{below}", data, inside=self.path, ephemeral=ephemeral, sequential=sequential
            )
        except LookupError:
            raise self._is_unknown() from None
        return made is not None

    async def missing(self, chain: Chain) -> tuple[int, ...]:
        """The ledgers of the chain that do not exist, in order, except those that are offloaded, and those that were
        trimmed since it was read.
        """
        gone = await self.client.missing(_on_bookies(chain))
        left: set[int] = set()
        if gone:
            with suppress(NoSuchLogError):
                left.update(_on_bookies((await self.read())[0]))
        return tuple(ledger for ledger in gone if ledger in left)

    def lost(self, chain: Chain, missing: Sequence[int], advice: str = "", *options: str) -> MissingLedgerError:
        """The error that lists the missing ledgers and the lost positions."""
        are = f"ledger {missing[0]} of the log {self.name} is missing"
        if len(missing) > 1:
            are = f"{len(missing):,} ledgers of the log {self.name} are missing, {missing[0]} first"
        gone = f"{are}: the entries {chain.gaps({*missing})} are gone"
        return MissingLedgerError(f"{gone}; {advice}" if advice else gone, *options)

    async def write(self, chain: Chain, version: int) -> int:
        """Replace the chain if it still has this version. Returns the next version.

        Raises :class:`BadVersionError`, and :class:`LogFullError`.
        """
        data = bytes_of(chain)
        if len(data) > LARGEST_LIST:
            raise LogFullError(
                f"the list of the log {self.name} would have {len(data):,} bytes, and has room for {LARGEST_LIST:,}:"
                " trim the log"
            )
        return await self._write(self.path, data, version, chain, f"the list of ledgers of the log {self.name}")

    async def delete(self, chain: Chain, *, despite_records: bool = False) -> bool:
        """Delete all nodes of the log with this chain, the chain last. Returns False if there are records of objects or
        of ledgers of batches: somebody may create them meanwhile, and what they tell of goes first.
        ``despite_records``: delete them.
        """
        own = self._own(chain)
        last = (own, self.path) if own else (self.path,)
        while not await self.client.delete_nodes(*last):
            for name in await self.client.names_in(self.path) or []:
                path = f"{self.path}/{name}"
                if path == own:
                    continue
                if despite_records or name not in (OBJECTS, PENDING):
                    await self._delete_all(path, own)
                elif not await self.client.delete_nodes(path, beside=own):
                    return False
        return True

    async def _delete_all(self, path: str, own: str) -> None:
        """Delete a node and all below it."""
        while not await self.client.delete_nodes(path, beside=own):
            for name in await self.client.names_in(path) or []:
                await self._delete_all(f"{path}/{name}", own)

    async def _write(self, path: str, data: bytes, version: int, chain: Chain, what: str) -> int:
        if not await self.client.write_node(path, data, version, beside=self._own(chain)):
            # An earlier request may have done it, with its answer lost: then the next version has these bytes.
            node = await self.client.read_node(path)
            if node is None or node.version != version + 1 or node.data != data:
                raise BadVersionError(f"{what} was changed by somebody else")
        return version + 1

    # -- trimmed ledgers -----------------------------------------------------------------------------------------------

    async def create_trim(self, ledgers: Sequence[int]) -> None:
        """Record ledgers to delete once they are not in the chain any more. Raises :class:`NoSuchLogError`."""
        await self._create(f"{TRIMS}/t-", struct.pack(f">{len(ledgers)}q", *ledgers), sequential=True)

    async def trims(self) -> list[tuple[str, list[int]]]:
        """The records of ledgers to delete: names and ledgers, in order of the names."""
        records = []
        for name in sorted(await self.client.names_in(f"{self.path}/{TRIMS}") or []):
            node = await self.client.read_node(f"{self.path}/{TRIMS}/{name}")
            if node is not None and len(node.data) % 8 == 0:
                records.append((name, [*struct.unpack(f">{len(node.data) // 8}q", node.data)]))
        return records

    async def delete_trim(self, name: str) -> None:
        """Delete a record."""
        await self.client.delete_node(f"{self.path}/{TRIMS}/{name}")

    # -- ledgers of batches --------------------------------------------------------------------------------------------

    async def create_pending(self, writer: str, pending: Pending) -> None:
        """Record a ledger of a batch that is about to be created. Raises :class:`NoSuchLogError`."""
        await self._create(self._pending(writer, pending.ledger), _PENDING.pack(*pending[1:]))

    async def batch_writers(self) -> list[str]:
        """The writers that have records of ledgers."""
        return sorted(await self.client.names_in(f"{self.path}/{PENDING}") or [])

    async def pending(self, writer: str) -> list[Pending]:
        """The records of a writer's ledgers."""
        names = await self.client.names_in(f"{self.path}/{PENDING}/{writer}") or []
        nodes = await asyncio.gather(
            *(self.client.read_node(f"{self.path}/{PENDING}/{writer}/{name}") for name in names)
        )
        return sorted(
            Pending(int(name), *_PENDING.unpack(node.data))
            for name, node in zip(names, nodes, strict=True)
            if node is not None and name.isdecimal() and len(node.data) == _PENDING.size
        )

    async def withdraw(self, writer: str, pending: Pending) -> None:
        """Mark a ledger as about to be deleted."""
        await self.client.write_node(
            f"{self.path}/{self._pending(writer, pending.ledger)}",
            _PENDING.pack(*pending._replace(withdrawn=True)[1:]),
        )

    async def delete_pending(self, writer: str, ledger: int) -> None:
        """Delete the record of a ledger that is in the chain or deleted, and the writer's node if that was its last."""
        await self.client.delete_node(f"{self.path}/{self._pending(writer, ledger)}")
        await self.client.delete_node(f"{self.path}/{PENDING}/{writer}")

    def _pending(self, writer: str, ledger: int) -> str:
        return f"{PENDING}/{checked_name(writer, 'a writer of batches')}/{ledger}"

    # -- offloaded ledgers ---------------------------------------------------------------------------------------------

    async def create_attempt(self, attempt: Attempt) -> bool:
        """Record an object that is about to be written; return False if there is such a record. Raises
        :class:`NoSuchLogError`.
        """
        data = _ATTEMPT.pack(attempt.since, attempt.withdrawn) + attempt.place.encode()
        return await self._create(f"{OBJECTS}/{attempt.name}", data)

    async def attempts(self) -> list[Attempt]:
        """The records of all attempts."""
        named = [name.split("-") for name in await self.client.names_in(f"{self.path}/{OBJECTS}") or []]
        found = await asyncio.gather(*(self.attempt(int(ledger), int(number)) for ledger, number in named))
        return sorted(each for each in found if each is not None)

    async def attempt(self, ledger: int, number: int) -> Attempt | None:
        """The record of an attempt, if there is one."""
        node = await self.client.read_node(f"{self.path}/{OBJECTS}/{ledger}-{number}")
        if node is None:
            return None
        since, withdrawn = _ATTEMPT.unpack_from(node.data)
        return Attempt(ledger, number, node.data[_ATTEMPT.size :].decode(), since, withdrawn)

    async def withdraw_attempt(self, attempt: Attempt) -> None:
        """Mark an object as about to be removed."""
        data = _ATTEMPT.pack(attempt.since, True) + attempt.place.encode()
        await self.client.write_node(f"{self.path}/{OBJECTS}/{attempt.name}", data)

    async def delete_attempt(self, attempt: Attempt) -> None:
        """Delete the record of an object that is removed."""
        await self.client.delete_node(f"{self.path}/{OBJECTS}/{attempt.name}")

    # -- the leader ----------------------------------------------------------------------------------------------------

    async def leader(self, watch: Callable[[str], None] | None = None) -> Node | None:
        """The leader's node, with its session; None if nobody leads. ``watch`` is called once, when the leader has
        changed or may have.
        """
        return await self.client.read_node(f"{self.path}/{LEADER}", watch)

    async def stand(self, candidate: str) -> None:
        """Become the leader if nobody is; :meth:`leader` reads who it is. Raises :class:`NoSuchLogError`."""
        await self._create(LEADER, candidate.encode(), ephemeral=True)

    async def resign(self, candidate: str) -> None:
        """Delete the leader's node, if it is this candidate's."""
        node = await self.leader()
        if node is not None and node.data == candidate.encode() and node.owner == self.client.session_id:
            await self.client.delete_node(f"{self.path}/{LEADER}", node.version)

    # -- cursors -------------------------------------------------------------------------------------------------------

    async def cursors(self) -> list[str]:
        """The names of the log's cursors, sorted."""
        return sorted(await self.client.names_in(f"{self.path}/{CURSORS}") or [])

    async def read_cursor(self, cursor: str) -> Node | None:
        """Read the node of a cursor; None if there is none."""
        return await self.client.read_node(f"{self.path}/{CURSORS}/{checked_name(cursor, 'a cursor')}")

    async def create_cursor(self, cursor: str, data: bytes) -> bool:
        """Create a cursor; return False if it exists. Raises :class:`NoSuchLogError`."""
        return await self._create(f"{CURSORS}/{checked_name(cursor, 'a cursor')}", data)

    async def write_cursor(self, cursor: str, data: bytes, version: int, chain: Chain) -> int:
        """Replace a cursor of the log with this chain, if it still has this version. Returns the next version.

        Raises :class:`BadVersionError`.
        """
        return await self._write(
            f"{self.path}/{CURSORS}/{cursor}", data, version, chain, f"the cursor {cursor} of the log {self.name}"
        )

    async def delete_cursor(self, cursor: str) -> None:
        """Delete a cursor, if it exists."""
        await self.client.delete_node(f"{self.path}/{CURSORS}/{checked_name(cursor, 'a cursor')}")


class Election:
    """A writer's candidacy for leader of a log.

    ``changed`` is called with True when the writer is elected, and with False when it is not any more. The loss of the
    session counts as the latter, since another writer may be elected then. The loss of a connection does not: a writer
    that was fenced can do no harm.
    """

    def __init__(self, nodes: LogNodes, name: str, changed: Callable[[bool], None]) -> None:
        self.nodes = nodes
        self.id = f"{name} {secrets.token_hex(8)}"
        """The data of the leader's node, unique to this writer."""
        self.leader: str | None = None
        """The leader, as far as is known."""
        self.is_elected = False
        self._notify = changed
        self._stop = nodes.client.listen(self._session_changed)

    async def stand(self, watch: Callable[[str], None]) -> bool:
        """Stand for leader if nobody leads; return whether this writer leads now. ``watch`` is called once, when the
        leader has changed or may have.
        """
        while True:
            node = await self.nodes.leader(watch)
            if node is not None:
                break
            await self.nodes.stand(self.id)
        self.leader = node.data.decode(errors="replace")
        self._set(self.leader == self.id and node.owner == self.nodes.client.session_id)
        return self.is_elected

    async def resign(self) -> None:
        """Stop standing, and give up the lead."""
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
