"""The frames on connections between replicas: four bytes of length, a byte for the version, and MessagePack.

The first frame of a connection is :class:`Hello`, answered by :class:`Welcome`. Then the side that opened it sends
requests, and the other side answers in any order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from fencepost.quorum.identity import NO_VOTERS, Node, ReplicaKey, VoterSet
from fencepost.quorum.messages import Answer, Asked

VERSION = 1
_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """Bytes are not a frame, or the frame is too large."""


class _Frame(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A message."""


class Hello(_Frame, frozen=True, gc=False):
    """The first frame: the replica that opens the connection, and its cluster. Both are None for an administrator, or
    for a replica without a cluster that wants to learn about the other.
    """

    cluster_id: str | None = None
    replica: ReplicaKey | None = None


class Welcome(_Frame, frozen=True, gc=False):
    """The answer of the listening replica. ``cluster_id`` is empty if it has none yet; ``error`` says why it closes the
    connection.
    """

    node: Node
    cluster_id: str = ""
    voters: VoterSet = NO_VOTERS
    error: str = ""


class Ask(_Frame, frozen=True, gc=False):
    """A request of the quorum."""

    number: int
    request: Asked


class Answered(_Frame, frozen=True, gc=False):
    """The response to the request with this number."""

    number: int
    response: Answer


class Call(_Frame, frozen=True, gc=False):
    """A request of the state machine. Number 0 expects no answer."""

    number: int
    data: bytes


class Returned(_Frame, frozen=True, gc=False):
    """The result of a call, or the ``error``."""

    number: int
    data: bytes = b""
    error: str = ""


Frame = Hello | Welcome | Ask | Answered | Call | Returned

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Encode a frame."""
    body = _encode(frame)
    return _LENGTH.pack(len(body) + 1) + bytes([VERSION]) + body


class FrameReader:
    """Splits received bytes into frames of at most ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._input = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with this data. Raises :class:`FrameError`."""
        buffer = self._input
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if not 2 <= length <= self.limit:
                    raise FrameError(f"announced a frame of {length:,} bytes, and the limit is {self.limit:,}")
                end = at + _LENGTH.size + length
                if end > len(buffer):
                    break
                version = buffer[at + _LENGTH.size]
                if version != VERSION:
                    raise FrameError(f"speaks version {version}, and this one speaks {VERSION}")
                body = bytes(buffer[at + _LENGTH.size + 1 : end])
                at = end
                try:
                    frame = _decoder.decode(body)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise FrameError(f"sent an invalid frame: {error}") from error
                yield frame
        finally:
            del buffer[:at]
