"""BookKeeper's wire protocol: frames, and the messages of :mod:`fencepost.ledger.messages` as bytes, in versions 3 and
2.

Every message travels in a frame (:mod:`~fencepost.ledger.wire.frames`). :func:`is_version_2` tells from a payload in
which version it is; :mod:`~fencepost.ledger.wire.v3` and :mod:`~fencepost.ledger.wire.v2` have the same functions.
Version 3 needs the extra ``store``. From BookKeeper's ``BookieProtoEncoding``, ``BookieProtocol`` and
``BookkeeperProtocol.proto``.
"""

from __future__ import annotations


def is_version_2(payload: bytes) -> bool:
    """Whether a payload, or the beginning of one, is in version 2, by its first byte: one in version 3 begins with the
    tag of its header.

    A client may begin in version 3, to ask for TLS, and go on in version 2; never the other way round: a connection
    stays in version 2.
    """
    return payload[:1] != b"\x0a"
