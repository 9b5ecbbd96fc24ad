"""ZooKeeper's error codes, and the exception that carries one to the code that answers the request."""

from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The outcome of a request, with ZooKeeper's numbers (``KeeperException.Code``)."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    """In a failed multi: an operation after the one that failed."""
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    UNKNOWN_SESSION = -12
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    """The session has moved to another connection."""
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123
    """Voters are changed by other means: ``fencepost quorum``, and Kafka's tool."""
    SASL_REQUIRED = -124
    """The client must authenticate by SASL before any other request."""
    QUOTA_EXCEEDED = -125
    """A limit of this service is reached: on znodes, their bytes, or watches."""


class Refusal(Exception):
    """The request is refused, and nothing was changed."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code
