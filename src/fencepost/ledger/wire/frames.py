"""Frames: four bytes of length, big endian and not counting themselves, then the payload, which is one message."""

from __future__ import annotations

import struct

from fencepost.errors import FencepostError

DEFAULT_LIMIT = 5 * 1024 * 1024
"""The default for the largest accepted payload, in bytes (BookKeeper's ``nettyMaxFrameSizeBytes``)."""

_LENGTH = struct.Struct(">i")
LENGTH_SIZE = _LENGTH.size

HEAD_SIZE = 64
"""A prefix of a payload that contains all of an add except the entry, in either version."""


class WireError(FencepostError):
    """The bytes violate the protocol. The rest of the connection cannot be parsed, so it must be closed."""


class RefusedError(WireError):
    """A request that cannot be served but can be answered, with the frame ``answer``. The connection may go on."""

    def __init__(self, message: str, answer: bytes) -> None:
        super().__init__(message)
        self.answer = answer


def frame(payload: bytes) -> bytes:
    """Frame a payload."""
    return _LENGTH.pack(len(payload)) + payload


def length_of(data: bytes | bytearray | memoryview, start: int, stop: int) -> int:
    """The payload length of the frame that begins at ``start``; 0 if the length is incomplete."""
    return int(_LENGTH.unpack_from(data, start)[0]) if stop - start >= LENGTH_SIZE else 0


def cut(data: bytearray, start: int, stop: int, limit: int) -> tuple[list[bytes], int]:
    """The payloads of the complete frames in ``data[start:stop]``, and where the next frame begins.

    Raises :class:`WireError` like :meth:`Frames.feed`, even if complete frames come before the bad one.
    """
    payloads = []
    while stop - start >= LENGTH_SIZE:
        (length,) = _LENGTH.unpack_from(data, start)
        if not 0 < length <= limit:
            raise refused_length(length, limit)
        end = start + LENGTH_SIZE + length
        if end > stop:
            break
        payloads.append(bytes(data[start + LENGTH_SIZE : end]))
        start = end
    return payloads, start


def needed(data: bytes | bytearray | memoryview, start: int, stop: int) -> int:
    """The size of the frame that begins at ``start``, length included, as far as known."""
    return LENGTH_SIZE + length_of(data, start, stop)


def refused_length(length: int, limit: int) -> WireError:
    """The error for a frame whose length is negative, zero or over the limit."""
    return WireError(f"a frame says that it has {length:,} bytes, and from 1 to {limit:,} are taken")


class Frames:
    """Splits the bytes of one connection into payloads. ``limit``: the largest payload, in bytes."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = LENGTH_SIZE
        """The size of the incomplete frame, as far as known. Fewer bytes complete nothing."""

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes. Returns the payloads that are now complete, in order.

        Raises :class:`WireError` for a length that is negative, zero or over the limit, as soon as it has arrived.
        """
        if self._held:
            parts = self._parts
            parts.append(data)
            self._held += len(data)
            if self._held < self._needed:
                # Many small parts would take far more memory than their bytes. So merge them: each is larger than the
                # next.
                while len(parts) > 1 and len(parts[-2]) <= len(parts[-1]):
                    last = parts.pop()
                    parts[-1] += last
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        payloads = []
        start, end = 0, len(data)
        while end - start >= LENGTH_SIZE:
            (length,) = _LENGTH.unpack_from(data, start)
            if not 0 < length <= self.limit:
                raise refused_length(length, self.limit)
            stop = start + LENGTH_SIZE + length
            if stop > end:
                self._needed = LENGTH_SIZE + length
                break
            payloads.append(data[start + LENGTH_SIZE : stop])
            start = stop
        else:
            self._needed = LENGTH_SIZE
        self._held = end - start
        if start < end:
            self._parts.append(data[start:])
        return payloads

    @property
    def held(self) -> int:
        """The bytes of the incomplete frame."""
        return self._held
