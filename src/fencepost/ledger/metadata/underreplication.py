"""The nodes of auto-recovery, as BookKeeper 4.17 has them: under-replicated ledgers, their locks, the election of the
auditor, and what an operator sets.

``underreplication/ledgers/...`` has a node for each ledger that is to be replicated, with a text of protobuf::

    replica: "10.0.0.1:3181"
    ctime: 1795303699698

Whoever replicates it has an ephemeral lock for the while, and deletes the node if its version is still the one that
was seen under the lock: a ledger that was reported again meanwhile is looked at again.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from google.protobuf import text_format

from fencepost.ledger.errors import UnknownLayoutError
from fencepost.ledger.metadata import paths
from fencepost.ledger.metadata.client import MetadataClient, Session
from fencepost.ledger.protobuf import message_classes
from fencepost.ledger.rules.auditing import VOTE, in_order

Changed = Callable[[str], None]
"""Called with the path of a node that has changed, or may have."""

_CLASSES = message_classes(
    "underreplication",
    {
        "LedgerRereplicationLayoutFormat": {"type": (1, "required string"), "version": (2, "required int32")},
        "UnderreplicatedLedgerFormat": {"replica": (1, "repeated string"), "ctime": (2, "optional int64")},
        "LockDataFormat": {"bookieId": (1, "optional string")},
        "AuditorVoteFormat": {"bookieId": (1, "optional string")},
        "CheckAllLedgersFormat": {"checkAllLedgersCTime": (1, "optional int64")},
    },
)


class UnderReplicated(msgspec.Struct, frozen=True):
    """A ledger that is under-replicated: the bookies that it misses, and since when that is known, in milliseconds
    since 1970."""

    ledger: int
    missing: tuple[str, ...] = ()
    since: int | None = None
    version: int = 0


def to_text(kind: str, **fields: Any) -> bytes:
    """A message in protobuf's text, as BookKeeper writes it."""
    return str(text_format.MessageToString(_CLASSES[kind](**fields))).encode()


def from_text(kind: str, data: bytes) -> Any:
    """The message that a text is. Raises ``ValueError`` if it is none of that kind."""
    try:
        return text_format.Parse(data.decode(), _CLASSES[kind](), allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{data[:80]!r} is no {kind}: {error}") from error


class UnderReplication:
    """The nodes of auto-recovery in one session with the metadata service. ``name``: what locks and votes say about
    who has them.

    All methods raise :class:`MetadataServiceError` as the client does.
    """

    def __init__(self, client: MetadataClient, name: str) -> None:
        self.client = client
        self.name = name
        self.held: set[int] = set()
        """The ledgers that are locked by this session."""
        client.listen(self._session_changed)

    async def prepare(self) -> None:
        """Make the nodes that are always there. Raises :class:`UnknownLayoutError` if they have
        another layout."""
        layout = to_text("LedgerRereplicationLayoutFormat", type="BASIC", version=1)
        if await self.client.create_node(f"{paths.UNDER_REPLICATION}/{paths.LAYOUT}", layout) is None:
            found = await self.client.read_node(f"{paths.UNDER_REPLICATION}/{paths.LAYOUT}")
            with contextlib.suppress(ValueError):
                message = from_text("LedgerRereplicationLayoutFormat", found.data if found is not None else b"")
                if (message.type, message.version) == ("BASIC", 1):
                    found = None
            if found is not None:
                raise UnknownLayoutError(
                    f"under-replicated ledgers are laid out as {found.data!r}, and only BASIC, version 1, is known"
                )
        for folder in (paths.UNDER_REPLICATED, paths.LOCKS, paths.ELECTION):
            await self.client.create_node(folder)

    # -- ledgers -------------------------------------------------------------------------------------------------------

    async def publish(self, ledger: int, missing: frozenset[str], now: int) -> bool:
        """Say that a ledger misses bookies, besides those that it is known to miss already; whether that is news.

        Raises :class:`UnknownLayoutError` if what is known already cannot be read.
        """
        path = paths.under_replicated_path(ledger)
        while True:
            found = await self.read(ledger)
            if found is None:
                data = to_text("UnderreplicatedLedgerFormat", replica=sorted(missing), ctime=now)
                if await self.client.create_node(path, data) is not None:
                    return True
            elif missing <= {*found.missing}:
                return False
            else:
                several = (*found.missing, *sorted(missing.difference(found.missing)))
                data = to_text("UnderreplicatedLedgerFormat", replica=several, ctime=now)
                if await self.client.write_node(path, data, found.version):
                    return True

    async def read(self, ledger: int) -> UnderReplicated | None:
        """The record of an under-replicated ledger; None if it is none. Raises :class:`UnknownLayoutError` if it
        cannot be read."""
        node = await self.client.read_node(paths.under_replicated_path(ledger))
        if node is None:
            return None
        try:
            message = from_text("UnderreplicatedLedgerFormat", node.data)
        except ValueError as error:
            raise UnknownLayoutError(
                f"what is said of the under-replicated ledger {ledger} cannot be read: {error}"
            ) from error
        since = message.ctime if message.HasField("ctime") else None
        return UnderReplicated(ledger, tuple(message.replica), since, node.version)

    async def all(self) -> AsyncIterator[UnderReplicated]:
        """The ledgers that are under-replicated, in order. Some that come or go meanwhile may be among them or not."""
        async for ledger in self._ledgers(paths.UNDER_REPLICATED, sorted, None):
            found = await self.read(ledger)
            if found is not None:
                yield found

    async def worker_of(self, ledger: int) -> str | None:
        """The worker that replicates a ledger now, by its lock; None if there is none."""
        node = await self.client.read_node(paths.lock_path(ledger))
        if node is None:
            return None
        with contextlib.suppress(ValueError):
            return str(from_text("LockDataFormat", node.data).bookieId)
        return "?"

    async def take(self, changed: Changed) -> UnderReplicated | None:
        """Lock a ledger that nobody has locked, any of them; None if there is none, and then ``changed`` is called
        when there may be one.

        Raises :class:`UnknownLayoutError` for one that cannot be read; its lock is kept, so that others are taken
        next.
        """
        locked = {*(await self.client.names_in(paths.LOCKS, changed) or ())}
        async for ledger in self._ledgers(paths.UNDER_REPLICATED, _shuffled, changed):
            if paths.under_replicated_name(ledger) in locked:
                continue
            if await self.client.read_node(paths.under_replicated_path(ledger), changed) is None:
                continue  # somebody is about to publish it, or has ended before its folder was deleted
            if await self._lock(ledger):
                found = await self.read(ledger)
                if found is not None:
                    return found
                await self.release(ledger)
        return None

    async def _ledgers(
        self, folder: str, order: Callable[[list[str]], list[str]], changed: Changed | None
    ) -> AsyncIterator[int]:
        """The ledgers that may be under-replicated, by the paths that their nodes would have: each is alone in its
        folder.
        """
        for name in order(await self.client.names_in(folder, changed) or []):
            path = f"{folder}/{name}"
            ledger = paths.ledger_of_folder(path)
            if ledger is not None:
                yield ledger
            elif len(name) == paths.DIGITS:
                async for ledger in self._ledgers(path, order, changed):
                    yield ledger

    async def _lock(self, ledger: int) -> bool:
        path = paths.lock_path(ledger)
        if ledger in self.held:
            return False
        if await self.client.create_node(path, to_text("LockDataFormat", bookieId=self.name), ephemeral=True) is None:
            node = await self.client.read_node(path)
            if node is None or node.owner != self.client.session_id:  # it is ours if the answer was lost
                return False
        self.held.add(ledger)
        return True

    async def release(self, ledger: int) -> None:
        """End the lock of a ledger, if this session has it."""
        if ledger in self.held:
            await self.client.delete_node(paths.lock_path(ledger))
            self.held.discard(ledger)

    async def replicated(self, done: UnderReplicated) -> bool:
        """A ledger that this session has locked is whole again: say so, unless it was reported anew meanwhile, and end
        the lock; whether it was said."""
        path = paths.under_replicated_path(done.ledger)
        is_gone = await self.client.delete_node(path, done.version)
        if is_gone:
            for _ in range(paths.LEVELS):
                path = path.rpartition("/")[0]
                if not await self.client.delete_node(path):
                    break
        await self.release(done.ledger)
        return is_gone

    def _session_changed(self, session: Session) -> None:
        if session is Session.EXPIRED:
            self.held.clear()

    # -- what an operator sets -----------------------------------------------------------------------------------------

    async def is_enabled(self, changed: Changed | None = None) -> bool:
        """Whether ledgers are to be published and replicated; ``changed`` is called when that changes."""
        return await self.client.read_node(paths.DISABLED, changed) is None

    async def enable(self) -> None:
        """Let ledgers be published and replicated."""
        await self.client.delete_node(paths.DISABLED)

    async def disable(self) -> None:
        """Let nothing be published and nothing be replicated that is not begun, until it is enabled again."""
        await self.client.create_node(paths.DISABLED)

    async def recovery_delay(self, seconds: int, changed: Changed) -> tuple[int, int]:
        """How many seconds a bookie that is lost is waited for, and a number that grows with every time that this is
        set; ``seconds`` if it is not set yet, which it is then. ``changed`` is called when it is set."""
        while (node := await self.client.read_node(paths.RECOVERY_DELAY, changed)) is None:
            await self.client.create_node(paths.RECOVERY_DELAY, b"%d" % seconds)
        with contextlib.suppress(ValueError):
            return int(node.data), node.version
        return seconds, node.version

    async def set_recovery_delay(self, seconds: int) -> None:
        """Set how many seconds a bookie that is lost is waited for."""
        await self._put(paths.RECOVERY_DELAY, b"%d" % seconds)

    async def checked(self) -> int | None:
        """When an auditor has last looked whether bookies have what they should, in milliseconds since 1970; None if
        none has."""
        node = await self.client.read_node(paths.CHECKED)
        if node is not None:
            with contextlib.suppress(Exception):  # protobuf's DecodeError, which has no base of its own
                message = _CLASSES["CheckAllLedgersFormat"].FromString(node.data)
                if message.HasField("checkAllLedgersCTime"):
                    return int(message.checkAllLedgersCTime)
        return None

    async def set_checked(self, now: int) -> None:
        """Say that an auditor has looked whether bookies have what they should."""
        await self._put(paths.CHECKED, _CLASSES["CheckAllLedgersFormat"](checkAllLedgersCTime=now).SerializeToString())

    async def _put(self, path: str, data: bytes) -> None:
        """Write a node, or make it, whichever of the two is possible."""
        while not await self.client.write_node(path, data) and await self.client.create_node(path, data) is None:
            pass

    # -- the election --------------------------------------------------------------------------------------------------

    async def vote(self) -> str:
        """Stand for auditor; gives the name of the vote, which goes with the session. There is no other one of this
        session then: whoever waits for one whose answer was lost would wait for as long as the session lasts.
        """
        data = to_text("AuditorVoteFormat", bookieId=self.name)
        path = await self.client.create_node(f"{paths.ELECTION}/{VOTE}", data, ephemeral=True, sequential=True)
        assert path is not None, "a sequential node has a name that there was not"
        vote = path.rpartition("/")[2]
        for other in in_order(await self.client.names_in(paths.ELECTION) or ()):
            node = await self.client.read_node(f"{paths.ELECTION}/{other}") if other != vote else None
            if node is not None and node.owner == self.client.session_id:
                await self.client.delete_node(f"{paths.ELECTION}/{other}")
        return vote

    async def is_elected(self, vote: str, changed: Changed) -> bool:
        """Whether the one with this vote is the auditor now. If so, ``changed`` is called when the vote may be gone,
        and otherwise when it may have become the auditor. Raises ``ValueError`` if the vote is gone already."""
        while True:
            votes = in_order(await self.client.names_in(paths.ELECTION) or ())
            if vote not in votes:
                raise ValueError(f"the vote {vote} is gone")
            place = votes.index(vote)
            node = await self.client.read_node(f"{paths.ELECTION}/{votes[max(place - 1, 0)]}", changed)
            if node is None:
                continue
            if place == 0:
                await self.client.write_node(paths.ELECTION, to_text("AuditorVoteFormat", bookieId=self.name))
                return True
            return False

    async def withdraw(self, vote: str) -> None:
        """Stand for auditor no more."""
        await self.client.delete_node(f"{paths.ELECTION}/{vote}")

    async def auditor(self) -> str | None:
        """The auditor now; None if there is no candidate."""
        for vote in in_order(await self.client.names_in(paths.ELECTION) or ()):
            node = await self.client.read_node(f"{paths.ELECTION}/{vote}")
            if node is not None:
                with contextlib.suppress(ValueError):
                    return str(from_text("AuditorVoteFormat", node.data).bookieId)
        return None


def _shuffled(names: list[str]) -> list[str]:
    return random.sample(names, len(names))
