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
"""The layout that each scheme demands; None accepts the layout of the cluster."""

_PORT = 2181
"""ZooKeeper's default port."""


class Address(msgspec.Struct, frozen=True):
    """The address of a cluster's metadata: the servers as (host, port), the root path, and the demanded layout, if
    any.
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
    """Parse a URI. Raises :class:`fencepost.OptionError` if it is no such address."""
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
