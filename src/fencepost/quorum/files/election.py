"""The epoch and the vote of a replica: the file ``quorum-state``, replaced atomically.

It is one line of JSON with the names of Kafka's file, and a CRC32C of everything else in it.
"""

from __future__ import annotations

import msgspec

from fencepost.files.checksum import crc32c
from fencepost.files.folders import Files, replace
from fencepost.ledger.disk.journal import Damage
from fencepost.quorum.identity import Node, ReplicaKey
from fencepost.quorum.roles.interface import ElectionState

STATE = "quorum-state"


class _Stored(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    leader_epoch: int
    voted_id: int
    voted_directory_id: str
    leader_id: int
    leader_directory_id: str
    leader_endpoint: str
    checksum: int = 0


def store_election(files: Files, election: ElectionState) -> None:
    """Store an election state. It is durable when this returns. Raises ``OSError``."""
    voted = election.voted or _NOBODY
    leader = election.leader or Node(_NOBODY, "")
    stored = _Stored(election.epoch, *_fields(voted), *_fields(leader.key), leader.endpoint)
    line = msgspec.json.encode(msgspec.structs.replace(stored, checksum=_checksum(stored)))
    replace(files, STATE, line + b"\n")


def read_election(files: Files) -> ElectionState:
    """The last stored state. Raises :class:`Damage` if it is missing or damaged."""
    if STATE not in files.names():
        raise Damage(f"{STATE} is missing: it has the vote of this replica")
    data = files.open(STATE).read(0, files.size(STATE))
    try:
        stored = msgspec.json.decode(data, type=_Stored)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damage(f"{STATE} cannot be read: {error}") from error
    if stored.checksum != _checksum(stored):
        raise Damage(f"{STATE} is not what was written")
    voted = ReplicaKey(stored.voted_id, stored.voted_directory_id)
    leader = ReplicaKey(stored.leader_id, stored.leader_directory_id)
    return ElectionState(
        stored.leader_epoch,
        None if voted == _NOBODY else voted,
        None if leader == _NOBODY else Node(leader, stored.leader_endpoint),
    )


_NOBODY = ReplicaKey(-1, "")


def _fields(key: ReplicaKey) -> tuple[int, str]:
    return key.host_id, key.directory_id


def _checksum(stored: _Stored) -> int:
    return crc32c(msgspec.json.encode(msgspec.structs.replace(stored, checksum=0)))
