"""The members of a quorum: replicas, identified by host and disk, and the voters among them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""An offset, an epoch or a size, as decoders accept it."""
KnownCount: TypeAlias = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
"""As :data:`Count`, or -1 if it is unknown."""


class ReplicaKey(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A replica: the id of its host, and the id of the directory that holds its state.

    ``host_id`` is Kafka's node id, and stays the same. ``directory_id`` is drawn at random for an empty directory (22
    characters of URL-safe base64, as in Kafka) and stored in it. So a host that lost its disk is a different replica,
    which has voted for nobody and acknowledged nothing.
    """

    host_id: Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
    directory_id: Annotated[str, Meta(max_length=64)]

    def __str__(self) -> str:
        return f"{self.host_id}-{self.directory_id}"


class Node(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A replica and its ``endpoint``, ``host:port``."""

    key: ReplicaKey
    endpoint: Annotated[str, Meta(max_length=300)]

    def __str__(self) -> str:
        return f"{self.key}@{self.endpoint}"


def is_endpoint(text: str) -> bool:
    """Return whether a text is ``host:port``, with a valid port to listen on."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65_536


def host_and_port(endpoint: str) -> tuple[str, int]:
    """Split an endpoint into host and port. An IPv6 address is in brackets."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


class VoterSet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The voters of one configuration, in order of host ids, with at most one replica of each host.

    Create one with :meth:`of`, which sorts. An empty set means that the replica knows of no configuration.
    """

    nodes: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        hosts = [node.key.host_id for node in self.nodes]
        if any(one >= other for one, other in pairwise(hosts)):
            raise ValueError(f"voters are one of a host, in the order of hosts: {', '.join(map(str, self.nodes))}")

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> VoterSet:
        """Create a set of voters. Raises ``ValueError`` if two of them have the same host."""
        return cls(tuple(sorted(nodes)))

    def __contains__(self, key: object) -> bool:
        for node in self.nodes:  # twice as fast as any(...), and roles check every message
            if node.key == key:
                return True
        return False

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        """The keys of the voters."""
        return frozenset([node.key for node in self.nodes])

    def node(self, key: ReplicaKey) -> Node | None:
        """The voter with this key, and its endpoint; None if it is no voter."""
        return next((node for node in self.nodes if node.key == key), None)

    def has_host(self, host_id: int) -> bool:
        """Return whether a replica of this host is a voter, with any directory."""
        return any(node.key.host_id == host_id for node in self.nodes)

    def having(self, node: Node) -> VoterSet:
        """Add a voter. Raises ``ValueError`` if a replica of its host is a voter."""
        return VoterSet.of((*self.nodes, node))

    def without(self, key: ReplicaKey) -> VoterSet:
        """Remove a voter."""
        return VoterSet(tuple(node for node in self.nodes if node.key != key))


NO_VOTERS = VoterSet()
