"""The session with the metadata service of a simulated process: the one that runs, and what the world wants to know of
it.
"""

from __future__ import annotations

from typing import Any

from fencepost.connections.tls import Tls
from fencepost.ledger.metadata.client import MetadataClient
from fencepost.ledger.metadata.session import ZooKeeperSession


class SimSession(ZooKeeperSession):
    """A session that the world knows of."""

    def has_opened(self, number: int) -> None:
        """See :class:`.ZooKeeperSession`."""
        loop: Any = self._loop
        loop.world.sessions[number] = loop.name

    def has_seen(self, zxid: int) -> None:
        """See :class:`.ZooKeeperSession`."""
        super().has_seen(zxid)
        loop: Any = self._loop
        loop.world.answered_by_metadata(zxid)


class SimMetadataClient(MetadataClient):
    """The metadata service's client in a simulated process."""

    def _new_session(self, tls: Tls | None) -> ZooKeeperSession:
        return SimSession(self.address.servers, self.session_timeout, self)
