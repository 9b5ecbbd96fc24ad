"""Passes every message of a run through the codecs of real servers and clients, so that the bytes decide what arrives.

Version 3 loses nothing. So a run is the same, event for event, without protobuf, where messages pass unencoded. Version
2 consists of fixed structures and is always available. It loses one thing: the LAC that comes with an entry.
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
    """Encodes the messages of one connection. ``version_2``: use that version for the messages it can express, and
    version 3 for the others, as if over a second connection. Batch reads always use version 2.
    """

    def __init__(self, version_2: bool) -> None:
        self.version_2 = version_2
        self._asked_in_2: set[int] = set()

    def codec_of(self, request: Request) -> Any:
        """The codec of a request; None if it passes unencoded."""
        return v2 if (self.version_2 and v2.speaks(request)) or type(request) is BatchRead else v3

    def request(self, txn: int, request: Request) -> Request:
        """The request as it arrives."""
        codec = self.codec_of(request)
        if codec is v2:
            self._asked_in_2.add(txn)
        if codec is None:
            return request
        arrived: Request = codec.decode_request(codec.encode_request(txn, request)[LENGTH_SIZE:])[1]
        return arrived

    def response(self, txn: int, response: Response) -> Response:
        """The response as it arrives, in the version of its request."""
        codec = v2 if txn in self._asked_in_2 else v3
        if codec is None:
            return response
        arrived: Response = codec.decode_response(codec.encode_response(txn, response)[LENGTH_SIZE:])[1]
        return arrived
