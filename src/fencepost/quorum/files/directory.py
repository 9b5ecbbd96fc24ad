"""The folder of a replica: its owner, and its contents when a process starts.

``meta.properties`` has the fields of Kafka's file of this name, ``cluster.id``, ``node.id`` and ``directory.id``, and a
CRC32C of the lines before it. It is written once, before anything else. Before a replica belongs to a cluster, it has
no ``cluster.id``, and the folder has no other file.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fencepost.files.checksum import crc32c
from fencepost.files.folders import Files, remove_temporary, replace
from fencepost.ledger.disk.journal import Damage
from fencepost.ledger.disk.journal_files import journals_in
from fencepost.quorum.files.election import STATE, read_election, store_election
from fencepost.quorum.files.log import ReplicatedLog
from fencepost.quorum.files.snapshots import load_snapshot, remove_fetched, snapshots_in, write_snapshot
from fencepost.quorum.identity import ReplicaKey
from fencepost.quorum.log import EMPTY_SNAPSHOT, LogIndex, OffsetAndEpoch, Snapshot
from fencepost.quorum.roles.interface import ElectionState

_logger = logging.getLogger(__name__)

META = "meta.properties"
_RESERVED = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"})
"""Ids with a special meaning in Kafka."""


@dataclass(frozen=True)
class Meta:
    """The owner of a folder. ``cluster_id`` is empty while the replica belongs to no cluster."""

    key: ReplicaKey
    cluster_id: str = ""


@dataclass
class Contents:
    """Everything that a replica starts with. ``state`` is the records of the snapshot."""

    meta: Meta
    election: ElectionState
    index: LogIndex
    log: ReplicatedLog
    snapshot: Snapshot
    state: list[bytes]


def draw_id() -> str:
    """Draw an id as Kafka does: 16 random bytes as 22 characters of URL-safe base64, without a leading dash."""
    while True:
        drawn = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if drawn not in _RESERVED and not drawn.startswith("-"):
            return drawn


def read_meta(files: Files) -> Meta | None:
    """The owner of a folder; None if it has none. Raises :class:`Damage`."""
    if META not in files.names():
        if STATE in files.names() or journals_in(files) or snapshots_in(files):
            raise Damage(f"{META} is missing: it has the owner of the folder")
        return None
    data = files.open(META).read(0, files.size(META))
    *lines, checksum = data.decode("ascii", "replace").split("\n")[:-1] or [""]
    if "".join(line + "\n" for line in [*lines, _sealed(lines)]).encode() != data:
        raise Damage(f"{META} is not what was written: {checksum or 'it is empty'}")
    values = dict(line.partition("=")[::2] for line in lines)
    if values.get("version") != "1" or not values.get("node.id", "").isdecimal() or not values.get("directory.id"):
        raise Damage(f"{META} is of a version that this one does not know")
    return Meta(ReplicaKey(int(values["node.id"]), values["directory.id"]), values.get("cluster.id", ""))


def write_meta(files: Files, meta: Meta) -> None:
    """Write the owner of the folder durably."""
    lines = ["version=1", f"node.id={meta.key.host_id}", f"directory.id={meta.key.directory_id}"]
    if meta.cluster_id:
        lines.insert(1, f"cluster.id={meta.cluster_id}")
    replace(files, META, "".join(line + "\n" for line in [*lines, _sealed(lines)]).encode())


def _sealed(lines: Sequence[str]) -> str:
    return f"crc32c={crc32c(''.join(line + chr(10) for line in lines).encode()):08x}"


def join_cluster(
    files: Files,
    meta: Meta,
    snapshot: Snapshot = EMPTY_SNAPSHOT,
    unit: int = 1 << 16,
) -> None:
    """Create the files of a new replica of ``meta.cluster_id``, with its first snapshot.

    ``meta.properties`` is written last, when all else is durable. An interrupted attempt is repeated from the start.
    """
    remove_temporary(files)
    for name in files.names():
        if name not in (META, "LOCK"):
            files.remove(name)
    for _ in write_snapshot(files, snapshot, ()):
        pass
    ReplicatedLog.create(files, snapshot.end, unit=unit)
    store_election(files, ElectionState(snapshot.end.epoch))
    write_meta(files, meta)


def restore_replica(files: Files, meta: Meta, snapshot: Snapshot, state: Iterable[Sequence[bytes]]) -> None:
    """Create the files of a replica of a new cluster in an empty folder, from a snapshot with these records.

    ``quorum-state`` comes first and ``meta.properties`` last: :func:`read_meta` refuses a folder where this was
    interrupted, so that no replica starts empty there.
    """
    store_election(files, ElectionState(snapshot.end.epoch))
    for _ in write_snapshot(files, snapshot, state):
        pass
    ReplicatedLog.create(files, snapshot.end, unit=1 << 16)
    write_meta(files, meta)


def open_replica(files: Files, meta: Meta, unit: int = 1 << 16, **limits: int) -> Contents:
    """Read the contents of a replica's folder. Raises :class:`Damage` if something durable is missing."""
    remove_temporary(files)
    remove_fetched(files)
    election = read_election(files)
    log = ReplicatedLog.open(files, unit, **limits)
    snapshot, state = _newest(files, log)
    last = max(log.end.epoch, snapshot.end.epoch)
    if last > election.epoch:
        raise Damage(f"{STATE} is an older copy: it is of epoch {election.epoch}, and records are of epoch {last}")
    if not _reaches(log, snapshot.end):
        # A crash came before the snapshot's content was stored, or before the log restarted at its end.
        log.reset(snapshot.end)
        log.write(log.take())
        log.written()
    return Contents(meta, election, log.index(snapshot), log, snapshot, state)


def _newest(files: Files, log: ReplicatedLog) -> tuple[Snapshot, list[bytes]]:
    damage = None
    for end in reversed(snapshots_in(files)):
        if damage is not None and not log.start.offset <= end.offset <= log.end.offset:
            break
        try:
            snapshot = load_snapshot(files, end)
        except Damage as error:
            damage = damage or error
            _logger.warning("%s; an older one and the log are tried", error)
            continue
        if log.start.offset > end.offset:
            raise Damage(f"records from {end.offset:,} to {log.start.offset:,} are missing between snapshot and log")
        return snapshot
    raise damage or Damage("the snapshot is missing")


def _reaches(log: ReplicatedLog, end: OffsetAndEpoch) -> bool:
    if not log.start.offset <= end.offset <= log.end.offset:
        return False
    return log.epoch_ahead_of(end.offset) == end.epoch
