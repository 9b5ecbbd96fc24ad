"""Encodes a whole state as the records of a snapshot, and decodes it.

The first record has the format and the counters. The next ones hold sessions and znodes, a few hundred each. The last
one has their numbers; without it the snapshot is incomplete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fencepost.ledger.disk.journal import Damage
from fencepost.metadata.acl import ACLs
from fencepost.metadata.tree import Node, Session, Tree

FORMATS = 1, 2
"""Format 2 has znodes with a TTL, and is written only if there are any."""
_CHUNK = 400


class Head(msgspec.Struct, frozen=True, array_like=True, tag="head"):
    """The first record."""

    format: int
    zxid: int
    last_session: int


class Sessions(msgspec.Struct, frozen=True, array_like=True, tag="sessions"):
    sessions: list[tuple[int, Session]]


class Nodes(msgspec.Struct, frozen=True, array_like=True, tag="nodes"):
    """Paths and znodes, in the order of their creation."""

    nodes: list[tuple[str, Node]]


class Tail(msgspec.Struct, frozen=True, array_like=True, tag="tail"):
    """The last record: the number of sessions and znodes."""

    sessions: int
    nodes: int


_decoder = msgspec.msgpack.Decoder(Head | Sessions | Nodes | Tail)
_encode = msgspec.msgpack.Encoder().encode


def records(tree: Tree) -> Iterator[list[bytes]]:
    """Yield the records of a snapshot in groups. It has the state at the first step, even if changes are applied
    meanwhile.
    """
    sessions, nodes = list(tree.sessions.items()), list(tree.nodes.items())
    yield [_encode(Head(FORMATS[bool(tree.ttls)], tree.zxid, tree.last_session))]
    for first in range(0, len(sessions), _CHUNK):
        yield [_encode(Sessions(sessions[first : first + _CHUNK]))]
    for first in range(0, len(nodes), _CHUNK):
        yield [_encode(Nodes(nodes[first : first + _CHUNK]))]
    yield [_encode(Tail(len(sessions), len(nodes)))]


def read(of_tree: Sequence[bytes], name: str) -> Tree:
    """Decode the state of :func:`records`. Raises :class:`fencepost.ledger.disk.journal.Damage`, which names the
    snapshot.
    """
    try:
        decoded = [_decoder.decode(record) for record in of_tree]
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damage(f"{name} has an invalid record: {error}") from error
    if len(decoded) < 2 or not isinstance(decoded[0], Head) or not isinstance(decoded[-1], Tail):
        raise Damage(f"{name} is not whole")
    head, tail = decoded[0], decoded[-1]
    if head.format not in FORMATS:
        raise Damage(f"{name} has the format {head.format}, and this version reads {max(FORMATS)} and less")
    sessions = dict(each for record in decoded if isinstance(record, Sessions) for each in record.sessions)
    nodes = [each for record in decoded if isinstance(record, Nodes) for each in record.nodes]
    if (len(sessions), len(nodes)) != (tail.sessions, tail.nodes):
        raise Damage(f"{name} has {len(nodes):,} znodes of {tail.nodes:,}")
    return Tree.restored(head.zxid, head.last_session, sessions, _shared(nodes))


def _shared(nodes: list[tuple[str, Node]]) -> Iterator[tuple[str, Node]]:
    """The znodes, with equal ACLs as one shared object."""
    acls: dict[ACLs, ACLs] = {}
    for path, node in nodes:
        acl = acls.setdefault(node.acl, node.acl)
        yield path, node if acl is node.acl else msgspec.structs.replace(node, acl=acl)
