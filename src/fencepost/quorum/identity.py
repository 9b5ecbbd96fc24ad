"""The members of a quorum: replicas, known by their host and their disk, and the voters among them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class ReplicaKey(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A replica: the id of its host, and that of the directory which holds its state.

    ``host_id`` is Kafka's node id and stays. ``directory_id`` is drawn at random when a directory is empty (Kafka has
    22 characters of URL-safe base64), and kept in it: after its disk was lost, the same host is another replica, which
    has voted for nobody and acknowledged nothing.
    """

    host_id: int
    directory_id: str

    def __str__(self) -> str:
        return f"{self.host_id}-{self.directory_id}"


class Node(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A replica and where it is reached: ``endpoint`` is ``host:port``."""

    key: ReplicaKey
    endpoint: str

    def __str__(self) -> str:
        return f"{self.key}@{self.endpoint}"


def host_and_port(endpoint: str) -> tuple[str, int]:
    """The host and the port of an endpoint, which is ``host:port``; an address of IPv6 is in brackets there."""
    host, _, port = endpoint.rpartition(":")
    return host.strip("[]"), int(port)


class VoterSet(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The voters of one configuration, in the order of their host ids: at most one replica of a host.

    Make one with :meth:`of`, which sorts. An empty one is that of a replica which knows of no configuration.
    """

    nodes: tuple[Node, ...] = ()

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> VoterSet:
        """The voters ``nodes``. Raises ``ValueError`` if two of them are of one host."""
        ordered = tuple(sorted(nodes))
        hosts = [node.key.host_id for node in ordered]
        if len(set(hosts)) < len(hosts):
            raise ValueError(f"two voters of one host: {', '.join(map(str, ordered))}")
        return cls(ordered)

    def __contains__(self, key: object) -> bool:
        return any(node.key == key for node in self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def keys(self) -> frozenset[ReplicaKey]:
        """The voters, without their endpoints."""
        return frozenset(node.key for node in self.nodes)

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
