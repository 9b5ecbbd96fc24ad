"""The encoders that servers and clients use, which every message of a run passes through: what arrives is what the
bytes say.

In version 3 nothing is lost on the way, so a run is the same, event for event, where protobuf is not installed and
messages pass as they are. Version 2 is fixed structures, which are always there, and it does lose something: the LAC
that comes with an entry.
"""

from __future__ import annotations

from typing import Any

from fencepost.ledger.messages import BatchRead, Request, Response
from fencepost.ledger.wire import v2
from fencepost.ledger.wire.frames import LENGTH_SIZE

v3: Any
try:
    from fencepost.ledger.wire import v3
except ModuleNotFoundError:
    v3 = None


VERSION_2 = 0.2
"""The share of runs whose clients speak version 2."""


class Wire:
    """The messages of one connection on their way. ``version_2``: those that there are in version 2 are
    sent in that, and the others in version 3, as if over a second connection. Batch reads are in version 2 alone.
    """

    def __init__(self, version_2: bool) -> None:
        self.version_2 = version_2
        self._asked_in_2: set[int] = set()

    def codec_of(self, request: Request) -> Any:
        """What a request is encoded by; None where it passes as it is."""
        return v2 if (self.version_2 and v2.speaks(request)) or type(request) is BatchRead else v3

    def request(self, txn: int, request: Request) -> Request:
        """The request that arrives."""
        codec = self.codec_of(request)
        if codec is v2:
            self._asked_in_2.add(txn)
        if codec is None:
            return request
        arrived: Request = codec.decode_request(codec.encode_request(txn, request)[LENGTH_SIZE:])[1]
        return arrived

    def response(self, txn: int, response: Response) -> Response:
        """The response that arrives, which is in the version of its request."""
        codec = v2 if txn in self._asked_in_2 else v3
        if codec is None:
            return response
        arrived: Response = codec.decode_response(codec.encode_response(txn, response)[LENGTH_SIZE:])[1]
        return arrived
