"""Frames: four bytes of length, big endian and not counting themselves, and the payload, which is one message."""

from __future__ import annotations

import struct

from fencepost.errors import FencepostError

DEFAULT_LIMIT = 5 * 1024 * 1024
"""The largest payload that is taken, in bytes, unless it is set otherwise (BookKeeper's ``nettyMaxFrameSizeBytes``)."""

_LENGTH = struct.Struct(">i")
LENGTH_SIZE = _LENGTH.size

HEAD_SIZE = 64
"""Bytes at the beginning of a payload in which all of an add is but its entry, in either version."""


class WireError(FencepostError):
    """The bytes are not the protocol's. Nothing that follows them on the connection can be understood: it is to be
    closed.
    """


class RefusedError(WireError):
    """A request that cannot be served, and can be answered: ``answer`` is the frame to send. The connection may go
    on.
    """

    def __init__(self, message: str, answer: bytes) -> None:
        super().__init__(message)
        self.answer = answer


def frame(payload: bytes) -> bytes:
    """The frame of a payload."""
    return _LENGTH.pack(len(payload)) + payload


def length_of(data: bytes | bytearray | memoryview, start: int, stop: int) -> int:
    """The length of the payload of the frame that begins at ``start``, as it says; 0 if that is not there yet."""
    return int(_LENGTH.unpack_from(data, start)[0]) if stop - start >= LENGTH_SIZE else 0


def cut(data: bytearray, start: int, stop: int, limit: int) -> tuple[list[bytes], int]:
    """The payloads of the frames of ``data[start:stop]`` that are complete, and where the next frame begins.

    Raises :class:`WireError` as :meth:`Frames.feed`, also if a frame is refused that comes after others.
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
    """The bytes that the frame takes that begins at ``start``, as far as that is known, its length included."""
    return LENGTH_SIZE + length_of(data, start, stop)


def refused_length(length: int, limit: int) -> WireError:
    """The error for a frame whose length is negative, zero or over the limit."""
    return WireError(f"a frame says that it has {length:,} bytes, and from 1 to {limit:,} are taken")


class Frames:
    """Cuts the bytes that arrive on one connection into the payloads of frames. ``limit``: the largest payload, in
    bytes.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = LENGTH_SIZE
        """Bytes from the beginning of the frame that is not complete, without which nothing can be done."""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they came; the payloads of the frames that are complete now, in order.

        Raises :class:`WireError` for a length that is negative, zero or over the limit, as soon as the length is there.
        """
        if self._held:
            parts = self._parts
            parts.append(data)
            self._held += len(data)
            if self._held < self._needed:
                # Many small parts would take far more memory than their bytes: each is larger than the one after it.
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
        """The bytes of a frame that is not complete."""
        return self._held

    @property
    def is_between(self) -> bool:
        """Whether nothing of a frame is there that is not complete."""
        return not self._held
