"""The settings of a ledger client: its limits and timeouts, with defaults."""

from __future__ import annotations

import ssl
from typing import Any, Self

import msgspec

from fencepost.connections.tls import Tls
from fencepost.connections.users import Credentials
from fencepost.ledger.client import arguments
from fencepost.ledger.client_configuration import ClientConfiguration
from fencepost.ledger.rules.placement import POLICY, Policy
from fencepost.ledger.wire.frames import DEFAULT_LIMIT


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in seconds, sizes in bytes.

    ``request_timeout``: a bookie that has not answered by then has failed. A request queued behind others gets this
    long since the last answer. ``connect_timeout``: for a connection to a bookie or to the metadata service.
    ``reconnect_delay``: the delay after a failed connection, doubled each time up to ``reconnect_delay_limit``.
    ``quarantine``: how long new ensembles avoid a bookie that has failed. ``session_timeout``: of the session with the
    metadata service. ``metadata_timeout``: an operation fails if it needs the metadata service and that is unreachable
    for this long.

    ``unanswered_limit``: bytes of unanswered requests to one bookie; a bookie further behind has failed.
    ``frame_limit``: the largest message, a little more than the largest entry. BookKeeper's bookies take 5 MiB by
    default. ``tls``: TLS to bookies, with these files or this context. ``credentials``: the user for authentication
    with bookies.

    ``speculation_delay``: if a bookie has not answered a read by then, the read also goes to another. ``poll_wait``:
    how long a bookie holds a long poll for the next entry. ``recovery_in_flight``: entries that a recovery reads at
    once. ``placement``: the racks, zones and regions that each entry must be in, and which bookies are taken.
    """

    request_timeout: float = 5.0
    connect_timeout: float = 10.0
    reconnect_delay: float = 0.05
    reconnect_delay_limit: float = 2.0
    quarantine: float = 30.0
    session_timeout: float = 10.0
    metadata_timeout: float = 30.0
    unanswered_limit: int = 128 * 1024 * 1024
    frame_limit: int = DEFAULT_LIMIT
    tls: ssl.SSLContext | Tls | None = None
    credentials: Credentials | None = None
    speculation_delay: float = 0.1
    poll_wait: float = 1.0
    recovery_in_flight: int = 64
    placement: Policy = POLICY

    @classmethod
    def of_environment(cls, **changes: Any) -> Self:
        """Settings with the TLS, the placement and the credentials from the environment, see
        :class:`fencepost.ledger.client_configuration.ClientConfiguration` and
        :class:`fencepost.connections.users.Credentials`.
        """
        given = ClientConfiguration.of_environment()
        return cls(**{"tls": given.tls(), "placement": given.placement(), "credentials": Credentials.read(), **changes})

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in ("unanswered_limit", "frame_limit", "recovery_in_flight"):
                arguments.whole(name, value, 1)
            elif name not in ("tls", "credentials", "placement"):
                arguments.seconds(name, value, may_be_none=False)
