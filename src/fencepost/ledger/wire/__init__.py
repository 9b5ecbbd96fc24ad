"""BookKeeper's wire protocol: frames, and the messages of :mod:`fencepost.ledger.messages` in versions 3 and 2.

Every message travels in a frame (:mod:`~fencepost.ledger.wire.frames`). :func:`is_version_2` detects the version of a
payload. :mod:`~fencepost.ledger.wire.v3` and :mod:`~fencepost.ledger.wire.v2` have the same functions. Version 3 needs
the extra ``store``. From BookKeeper's ``BookieProtoEncoding``, ``BookieProtocol`` and ``BookkeeperProtocol.proto``.
"""

from __future__ import annotations


def is_version_2(payload: bytes) -> bool:
    """Whether a payload, or its beginning, is in version 2. Its first byte decides: in version 3 it is the tag of the
    header.

    A client may begin in version 3, to ask for TLS, and then change to version 2, but never back.
    """
    return payload[:1] != b"\x0a"
