"""The nodes of auto-recovery, as in BookKeeper 4.17: under-replicated ledgers, their locks, the election of the
auditor, and the operator's settings.

Each ledger to replicate has a node under ``underreplication/ledgers/...``, with protobuf text::

    replica: "10.0.0.1:3181"
    ctime: 1795303699698

Its replicator holds an ephemeral lock meanwhile. It deletes the node only if the version is still the one that it read
under the lock. So a ledger that was reported again meanwhile is examined again.
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
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.session import Session
from fencepost.ledger.protobuf import message_classes
from fencepost.ledger.rules.auditing import VOTE, in_order, to_publish

Changed = Callable[[str], None]
"""A callback with the path of a node that has changed or may have changed."""

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
    """An under-replicated ledger: its missing bookies, and since when this has been known, in milliseconds since
    1970.
    """

    ledger: int
    missing: tuple[str, ...] = ()
    since: int | None = None
    version: int = 0


def to_text(kind: str, **fields: Any) -> bytes:
    """Encode a message as protobuf text, as BookKeeper does."""
    return str(text_format.MessageToString(_CLASSES[kind](**fields))).encode()


def from_text(kind: str, data: bytes) -> Any:
    """Decode protobuf text. Raises ``ValueError`` if it is no message of this kind."""
    try:
        return text_format.Parse(data.decode(), _CLASSES[kind](), allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{data[:80]!r} is no {kind}: {error}") from error


class UnderReplication:
    """The nodes of auto-recovery, in one session with the metadata service. ``name``: the name of this process in locks
    and votes.

    All methods raise :class:`MetadataServiceError` like the client.
    """

    def __init__(self, client: MetadataClient, name: str) -> None:
        self.client = client
        self.name = name
        self.held: set[int] = set()
        """The ledgers locked by this session."""
        client.listen(self._session_changed)

    async def prepare(self) -> None:
        """Create the permanent nodes. Raises :class:`UnknownLayoutError` if they exist in another layout."""
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
        """Publish that a ledger misses these bookies, in addition to those already published. Returns whether that is
        new.

        Raises :class:`UnknownLayoutError` if the existing record cannot be read.
        """
        path = paths.under_replicated_path(ledger)
        while True:
            # In this order: a worker that locks it later looks at the bookies after this loss.
            is_locked = await self.client.read_node(paths.lock_path(ledger)) is not None
            found = await self.read(ledger)
            several = to_publish(None if found is None else found.missing, missing, is_locked)
            if several is None:
                return False
            is_new = found is None or several != found.missing
            since = now if is_new or found is None else found.since
            data = to_text("UnderreplicatedLedgerFormat", replica=several, ctime=since)
            if found is None:
                if await self.client.create_node(path, data) is not None:
                    return True
            elif await self.client.write_node(path, data, found.version):
                return is_new

    async def read(self, ledger: int) -> UnderReplicated | None:
        """The record of an under-replicated ledger; None if it has none. Raises :class:`UnknownLayoutError` if it
        cannot be read.
        """
        node = await self.client.read_node(paths.under_replicated_path(ledger))
        if node is None:
            return None
        try:
            message = from_text("UnderreplicatedLedgerFormat", node.data)
        except ValueError as error:
            raise UnknownLayoutError(
                f"the record of the under-replicated ledger {ledger} cannot be read: {error}"
            ) from error
        since = message.ctime if message.HasField("ctime") else None
        return UnderReplicated(ledger, tuple(message.replica), since, node.version)

    async def all(self) -> AsyncIterator[UnderReplicated]:
        """The under-replicated ledgers, in order. Those that change meanwhile may or may not be included."""
        async for ledger in self._ledgers(paths.UNDER_REPLICATED, sorted, None):
            found = await self.read(ledger)
            if found is not None:
                yield found

    async def worker_of(self, ledger: int) -> str | None:
        """The holder of a ledger's lock, which replicates it; None if there is none."""
        node = await self.client.read_node(paths.lock_path(ledger))
        if node is None:
            return None
        with contextlib.suppress(ValueError):
            return str(from_text("LockDataFormat", node.data).bookieId)
        return "?"

    async def take(self, changed: Changed) -> UnderReplicated | None:
        """Lock any ledger that is not locked yet. Returns None if there is none, and then calls ``changed`` when there
        may be one.

        Raises :class:`UnknownLayoutError` for a ledger whose record cannot be read. It stays locked, so that the next
        call takes another.
        """
        locked = {*(await self.client.names_in(paths.LOCKS, changed) or ())}
        async for ledger in self._ledgers(paths.UNDER_REPLICATED, _shuffled, changed):
            if paths.under_replicated_name(ledger) in locked:
                continue
            if await self.client.read_node(paths.under_replicated_path(ledger), changed) is None:
                continue  # about to be published, or already replicated and its folder not deleted yet
            if await self._lock(ledger):
                found = await self.read(ledger)
                if found is not None:
                    return found
                await self.release(ledger)
        return None

    async def _ledgers(
        self, folder: str, order: Callable[[list[str]], list[str]], changed: Changed | None
    ) -> AsyncIterator[int]:
        """The ledgers that may be under-replicated, by their folders: each is alone in its folder."""
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
            if node is None or node.owner != self.client.session_id:  # ours if the answer was lost
                return False
        self.held.add(ledger)
        return True

    async def release(self, ledger: int) -> None:
        """Unlock a ledger, if this session holds the lock."""
        if ledger in self.held:
            await self.client.delete_node(paths.lock_path(ledger))
            self.held.discard(ledger)

    async def replicated(self, done: UnderReplicated) -> bool:
        """Delete the record of a locked ledger that is fully replicated again, unless it was reported anew meanwhile,
        and unlock it. Returns whether it was deleted.
        """
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

    # -- the operator's settings ---------------------------------------------------------------------------------------

    async def is_enabled(self, changed: Changed | None = None) -> bool:
        """Whether auto-recovery is enabled; ``changed`` is called when that changes."""
        return await self.client.read_node(paths.DISABLED, changed) is None

    async def enable(self) -> None:
        """Enable publishing and replicating of ledgers."""
        await self.client.delete_node(paths.DISABLED)

    async def disable(self) -> None:
        """Disable publishing, and replicating beyond what is in progress."""
        await self.client.create_node(paths.DISABLED)

    async def recovery_delay(self, seconds: int, changed: Changed) -> tuple[int, int]:
        """The grace period for a lost bookie in seconds, and the version of this setting, which grows with each change.
        If it is not set, it is set to ``seconds``. ``changed`` is called when it is set again.
        """
        while (node := await self.client.read_node(paths.RECOVERY_DELAY, changed)) is None:
            await self.client.create_node(paths.RECOVERY_DELAY, b"%d" % seconds)
        with contextlib.suppress(ValueError):
            return int(node.data), node.version
        return seconds, node.version

    async def set_recovery_delay(self, seconds: int) -> None:
        """Set the grace period for a lost bookie, in seconds."""
        await self._put(paths.RECOVERY_DELAY, b"%d" % seconds)

    async def checked(self) -> int | None:
        """When an auditor last checked all ledgers, in milliseconds since 1970; None if never."""
        node = await self.client.read_node(paths.CHECKED)
        if node is not None:
            with contextlib.suppress(Exception):  # protobuf's DecodeError is a direct subclass of Exception
                message = _CLASSES["CheckAllLedgersFormat"].FromString(node.data)
                if message.HasField("checkAllLedgersCTime"):
                    return int(message.checkAllLedgersCTime)
        return None

    async def set_checked(self, now: int) -> None:
        """Record that an auditor has checked all ledgers."""
        await self._put(paths.CHECKED, _CLASSES["CheckAllLedgersFormat"](checkAllLedgersCTime=now).SerializeToString())

    async def _put(self, path: str, data: bytes) -> None:
        """Write a node, creating it if necessary."""
        while not await self.client.write_node(path, data) and await self.client.create_node(path, data) is None:
            pass

    # -- the election --------------------------------------------------------------------------------------------------

    async def vote(self) -> str:
        """Stand for election as auditor. Returns the name of the vote, an ephemeral node. Any other vote of this
        session is deleted: its answer was lost, and waiting for it would last as long as the session.
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
        """Whether the owner of this vote is the auditor. If so, ``changed`` is called when the vote may be gone;
        otherwise, when it may have become the auditor. Raises ``ValueError`` if the vote is gone.
        """
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
        """Withdraw from the election."""
        await self.client.delete_node(f"{paths.ELECTION}/{vote}")

    async def auditor(self) -> str | None:
        """The current auditor; None if there is no candidate."""
        for vote in in_order(await self.client.names_in(paths.ELECTION) or ()):
            node = await self.client.read_node(f"{paths.ELECTION}/{vote}")
            if node is not None:
                with contextlib.suppress(ValueError):
                    return str(from_text("AuditorVoteFormat", node.data).bookieId)
        return None


def _shuffled(names: list[str]) -> list[str]:
    return random.sample(names, len(names))
