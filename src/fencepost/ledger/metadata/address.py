"""The address of a cluster's metadata: ``zk://HOST:PORT[,HOST:PORT]/ledgers``, or BookKeeper's
``zk+hierarchical://HOST:PORT;HOST:PORT/ledgers``.
"""

from __future__ import annotations

import msgspec

from fencepost.errors import OptionError

_SCHEMES = {
    "zk": None,
    "zk+null": None,
    "zk+hierarchical": "HierarchicalLedgerManagerFactory",
    "zk+longhierarchical": "LongHierarchicalLedgerManagerFactory",
}
"""The layouts that schemes ask for; None: whichever the cluster has."""

_PORT = 2181
"""ZooKeeper's port, where none is given."""


class Address(msgspec.Struct, frozen=True):
    """Where metadata are: the servers as (host, port), the path of the cluster's root, and the layout that is asked
    for, if any.
    """

    servers: tuple[tuple[str, int], ...]
    root: str
    layout: str | None = None

    @property
    def hosts(self) -> str:
        """The servers as ``HOST:PORT,HOST:PORT``."""
        return ",".join(f"{host}:{port}" for host, port in self.servers)

    def __str__(self) -> str:
        return f"zk://{self.hosts}{self.root}"


def parse(uri: str) -> Address:
    """The address that a URI is. Raises :class:`fencepost.OptionError` if it is none."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise OptionError(f"{uri!r} is no address of a metadata service: give one like zk://127.0.0.1:2181/ledgers")
    hosts, _, path = rest.partition("/")
    root = "/" + path.strip("/")
    if root == "/" or "//" in root:
        raise OptionError(f"{uri!r} does not say where the ledgers are: end it with a path, /ledgers by default")
    servers = tuple(_server(uri, each) for each in hosts.replace(";", ",").split(","))
    return Address(servers, root, _SCHEMES[scheme])


def _server(uri: str, text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":") if ":" in text and not text.endswith("]") else (text, "", "")
    if not host or (colon and not (port.isdecimal() and 0 < int(port) < 65_536)):
        raise OptionError(f"{uri!r}: {text!r} is no HOST:PORT")
    return host, int(port) if colon else _PORT
