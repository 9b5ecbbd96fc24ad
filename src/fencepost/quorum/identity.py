"""The members of a quorum: replicas, known by their host and their disk, and the voters among them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""An offset, an epoch or a size, as decoders take it."""
KnownCount: TypeAlias = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
"""As :data:`Count`; -1 if it is not known."""


class ReplicaKey(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A replica: the id of its host, and that of the directory which holds its state.

    ``host_id`` is Kafka's node id and stays. ``directory_id`` is drawn at random when a directory is empty (Kafka has
    22 characters of URL-safe base64), and kept in it: after its disk was lost, the same host is another replica, which
    has voted for nobody and acknowledged nothing.
    """

    host_id: Annotated[int, Meta(ge=-1, le=(1 << 31) - 1)]
    directory_id: Annotated[str, Meta(max_length=64)]

    def __str__(self) -> str:
        return f"{self.host_id}-{self.directory_id}"


class Node(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A replica and where it is reached: ``endpoint`` is ``host:port``."""

    key: ReplicaKey
    endpoint: Annotated[str, Meta(max_length=300)]

    def __str__(self) -> str:
        return f"{self.key}@{self.endpoint}"


def is_endpoint(text: str) -> bool:
    """Whether a text is ``host:port``, with a port that somebody can listen at."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65_536


def host_and_port(endpoint: str) -> tuple[str, int]:
    """The host and the port of an endpoint, which is ``host:port``; an address of IPv6 is in brackets there."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


class VoterSet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The voters of one configuration, in the order of their host ids: at most one replica of a host.

    Make one with :meth:`of`, which sorts. An empty one is that of a replica which knows of no configuration.
    """

    nodes: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        hosts = [node.key.host_id for node in self.nodes]
        if any(one >= other for one, other in pairwise(hosts)):
            raise ValueError(f"voters are one of a host, in the order of hosts: {', '.join(map(str, self.nodes))}")

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> VoterSet:
        """The voters ``nodes``. Raises ``ValueError`` if two of them are of one host."""
        return cls(tuple(sorted(nodes)))

    def __contains__(self, key: object) -> bool:
        for node in self.nodes:  # a loop takes half the time of any(...), and roles ask at every message
            if node.key == key:
                return True
        return False

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        """The voters, without their endpoints."""
        return frozenset([node.key for node in self.nodes])

    def node(self, key: ReplicaKey) -> Node | None:
        """A voter with its endpoint; None if it is no voter."""
        return next((node for node in self.nodes if node.key == key), None)

    def has_host(self, host_id: int) -> bool:
        """Whether a replica of this host is a voter, with whatever directory."""
        return any(node.key.host_id == host_id for node in self.nodes)

    def having(self, node: Node) -> VoterSet:
        """These voters and one more. Raises ``ValueError`` if a replica of its host is a voter."""
        return VoterSet.of((*self.nodes, node))

    def without(self, key: ReplicaKey) -> VoterSet:
        """These voters but one."""
        return VoterSet(tuple(node for node in self.nodes if node.key != key))


NO_VOTERS = VoterSet()
