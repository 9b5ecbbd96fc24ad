"""Backups of a metadata service: its whole state at one zxid, in one file, and new quorums that begin with it.

A backup has a head of 4,096 bytes: a line that names the format, one line of JSON that says what it is of, and spaces.
The bytes of a snapshot of the quorum follow (:mod:`fencepost.quorum.files.snapshots`), exactly as a member has them on
disk. The JSON is sealed with a SHA-256 digest of itself, and contains one of the snapshot: every byte is covered.

A backup holds passwords of ledgers and of sessions in plain text.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from fencepost.errors import SystemFailure
from fencepost.files import regular
from fencepost.files.digest import digest, running, sealed
from fencepost.files.folders import TEMPORARY, Lock, OsFiles, private
from fencepost.files.storage import sync_folder
from fencepost.ledger.disk.journal import Damage
from fencepost.metadata import paths
from fencepost.metadata.member import records, restored
from fencepost.metadata.protocol import CloseSession
from fencepost.metadata.tree import Transaction, Tree
from fencepost.quorum.driver.admin import Administrator
from fencepost.quorum.files.directory import Meta, draw_id, restore_replica
from fencepost.quorum.files.snapshots import load_snapshot, name_of, read_snapshot
from fencepost.quorum.identity import Node, ReplicaKey, VoterSet
from fencepost.quorum.log import OffsetAndEpoch, Snapshot

MAGIC = b"fencepost metadata backup 1\n"
HEAD_SIZE = 4096
_KEPT = frozenset({"LOCK", "lost+found"})
"""What an empty directory may contain: the lock of a service, and what file systems make."""


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a backup is of. ``source``: the member that took it. ``offset``, ``epoch``: its place in the quorum's log.
    ``size``, ``snapshot``: the bytes of the snapshot, and their digest. ``taken``: milliseconds since 1970, by the
    clock of who wrote the file. ``digest``: of all other fields.
    """

    cluster: str
    source: str
    offset: int
    epoch: int
    zxid: int
    znodes: int
    ephemerals: int
    sessions: int
    taken: int
    size: int
    snapshot: str
    digest: str = ""

    @property
    def end(self) -> OffsetAndEpoch:
        """The place of the snapshot in the quorum's log."""
        return OffsetAndEpoch(self.offset, self.epoch)


@dataclass(frozen=True)
class Backup:
    """A backup that was read and is whole: its head, the state, and the voters of the old quorum."""

    head: Head
    tree: Tree
    voters: VoterSet


# -- taking ------------------------------------------------------------------------------------------------------------


async def take(administrator: Administrator, path: Path, progress: Callable[[int, int], None]) -> Backup:
    """Write a backup of a serving quorum to a new file, and check it. The file has its name only once it is whole and
    durable.

    It has every change that was acknowledged before this call. Raises :class:`fencepost.errors.SystemFailure`.
    """
    with _new_file(path) as file:
        whole = running()

        def write(data: bytes) -> None:
            file.write(data)
            whole.update(data)

        file.seek(HEAD_SIZE)
        taken = await administrator.take_snapshot(write, progress)
        size = file.tell() - HEAD_SIZE
        file.seek(HEAD_SIZE)
        tree, voters = _state(file.read(), taken.end, f"the snapshot of {taken.source.endpoint}")
        head = Head(
            taken.cluster_id,
            str(taken.source),
            taken.end.offset,
            taken.end.epoch,
            tree.zxid,
            len(tree.nodes),
            _ephemerals(tree),
            len(tree.sessions),
            time.time_ns() // 1_000_000,
            size,
            str(whole.hexdigest()),
        )
        file.seek(0)
        file.write(_encoded(head))
    return Backup(head, tree, voters)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name at the end, unless the block raises. Its temporary name is locked meanwhile, so a
    leftover of an interrupted backup is known as such, and overwritten.
    """
    temporary = Path(f"{path}{TEMPORARY}")
    try:
        if os.path.lexists(path):
            raise SystemFailure(f"{path} exists: name another file, or remove it")
        descriptor = private(str(temporary), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not temporary.exists() or not os.path.samestat(os.fstat(descriptor), os.stat(temporary)):
                raise BlockingIOError  # another process has just completed it
            file.truncate(0)
            try:
                yield file
                file.flush()
                os.fsync(descriptor)
                if os.path.lexists(path):
                    raise SystemFailure(f"{path} exists: another process has made it meanwhile")
                os.rename(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.remove(temporary)
                raise
            sync_folder(path.parent)
    except BlockingIOError:
        raise SystemFailure(f"{path} is being written by another process") from None
    except OSError as error:
        raise SystemFailure(f"{path} cannot be written: {error.strerror or error}") from error


def _encoded(head: Head) -> bytes:
    """The first bytes of a file with this head, whatever its digest is."""
    document = msgspec.to_builtins(head)
    del document["digest"]
    return (MAGIC + sealed(msgspec.json.encode(document)) + b"\n").ljust(HEAD_SIZE - 1) + b"\n"


def _ephemerals(tree: Tree) -> int:
    return sum(map(len, tree.ephemerals.values()))


# -- reading -----------------------------------------------------------------------------------------------------------


def read(path: Path) -> Backup:
    """Read a backup, and check every byte. It takes as much memory as a member.

    Raises :class:`fencepost.errors.SystemFailure`, whose message names what is wrong.
    """
    try:
        data = regular.content(path)
    except OSError as error:
        raise SystemFailure(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return _read(data)
    except Damage as error:
        raise SystemFailure(f"{path} {error}") from error


def _read(data: bytes) -> Backup:
    if not data.startswith(MAGIC[:-2]):
        raise Damage("is no backup of a metadata service: fencepost metadata backup writes those")
    version, _, rest = data[len(MAGIC) - 2 : HEAD_SIZE].partition(b"\n")
    if version != MAGIC[-2:-1]:
        known, found = MAGIC[-2:-1].decode(), version[:8].decode("ascii", "backslashreplace")
        raise Damage(
            f"has the format {found!r}, and this version reads {known}: a later version wrote it, or it is damaged"
        )
    if len(data) < HEAD_SIZE:
        raise Damage(f"is cut off within its head, after {len(data):,} bytes")
    line = rest.partition(b"\n")[0]
    try:
        head = msgspec.json.decode(line, type=Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        head = None
    if head is None or _encoded(head) != data[:HEAD_SIZE]:
        raise Damage("is damaged: its head is not what was written")
    body = data[HEAD_SIZE:]
    if len(body) < head.size:
        raise Damage(f"is cut off: it has {len(data):,} of {HEAD_SIZE + head.size:,} bytes")
    if len(body) > head.size:
        raise Damage(f"is damaged: {len(body) - head.size:,} bytes follow its end")
    try:
        tree, voters = _state(body, head.end, "its snapshot")
    except SystemFailure as error:
        raise Damage(f"is damaged: {error}") from error
    if digest(body) != head.snapshot:
        raise Damage("is damaged: its snapshot has another digest than its head says")
    counts = tree.zxid, len(tree.nodes), _ephemerals(tree), len(tree.sessions)
    if counts != (head.zxid, head.znodes, head.ephemerals, head.sessions):
        raise Damage("is damaged: its snapshot has another state than its head says")
    return Backup(head, tree, voters)


def _state(data: bytes, end: OffsetAndEpoch, what: str) -> tuple[Tree, VoterSet]:
    """The state in a snapshot and the voters. Raises :class:`SystemFailure`, which begins with ``what``."""
    try:
        snapshot, of_machine = read_snapshot(data, end)
        tree, _ = restored(of_machine)
    except Damage as error:
        raise SystemFailure(f"{what} cannot be used: {error}") from error
    for path, node in tree.nodes.items():
        if path != paths.ROOT and paths.parent(path) not in tree.nodes:
            raise SystemFailure(f"{what} has the znode {path} without its parent")
        if node.owner > 0 and node.owner not in tree.sessions:
            raise SystemFailure(f"{what} has the ephemeral znode {path} without its session")
    return tree, snapshot.voters


# -- restoring ---------------------------------------------------------------------------------------------------------


def without_sessions(tree: Tree) -> None:
    """End every session, and delete its ephemeral znodes, each by one more change: their clients are not of this
    quorum.
    """
    for session in sorted(tree.sessions):
        tree.apply(Transaction(tree.zxid + 1, 0, session, (), CloseSession(expired=True)))


def restore(backup: Backup, directories: Sequence[Path], hosts: Mapping[int, str]) -> tuple[list[Node], str]:
    """Make the directories of a new quorum that begins with the state of a backup, without its sessions. ``hosts``: the
    ids and the endpoints of the members, one for each directory, in this order. Returns them as nodes, in this order,
    and the id of the cluster.

    The cluster and all directories get new ids, so members of the old quorum and of this one refuse each other. The log
    goes on at the place of the snapshot. A directory whose restore was interrupted is refused by members. Raises
    :class:`fencepost.errors.SystemFailure`, for a directory that is not empty among others.
    """
    with ExitStack() as exits:
        folders = [_empty_folder(directory, exits) for directory in directories]
        keys = [ReplicaKey(host, draw_id()) for host in hosts]
        nodes = list(map(Node, keys, hosts.values()))
        voters = VoterSet.of(nodes)
        cluster_id, end = draw_id(), backup.head.end
        without_sessions(backup.tree)
        for files, key in zip(folders, keys, strict=True):
            try:
                restore_replica(files, Meta(key, cluster_id), Snapshot(end, voters), records(backup.tree, {}))
                tree = restored(load_snapshot(files, end)[1])[0]
            except (OSError, Damage) as error:
                raise SystemFailure(f"{files.path} cannot be restored to: {error}") from error
            if (tree.zxid, tree.nodes) != (backup.tree.zxid, backup.tree.nodes):
                raise SystemFailure(f"{files.path} cannot be restored to: {name_of(end)} is not what was written")
    return nodes, cluster_id


def _empty_folder(directory: Path, exits: ExitStack) -> OsFiles:
    """A locked directory. It is created if it is missing, and must be empty otherwise."""
    try:
        files = OsFiles(str(directory))
        lock = Lock(str(directory))
        exits.callback(lock.release)
        found = sorted(each.name for each in os.scandir(directory) if each.name not in _KEPT)
    except BlockingIOError as error:
        raise SystemFailure(f"{directory} is in use by another process, or given twice") from error
    except OSError as error:
        raise SystemFailure(f"{directory} cannot be used: {error.strerror or error}") from error
    if found:
        raise SystemFailure(f"{directory} is not empty, it has {found[0]}: restore into new directories")
    return files
