"""Jute, the encoding of ZooKeeper's records: big-endian numbers, and length-prefixed strings, buffers and vectors."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

INT = struct.Struct(">i")
NULL = INT.pack(-1)
"""The length of a null string, buffer or vector."""
_int32, _int64 = INT.unpack_from, struct.Struct(">q").unpack_from


class JuteError(Exception):
    """Bytes are not a record of the expected kind."""


class JuteDecoder:
    """Decodes the values of records in sequence. Every method raises :class:`JuteError` if there is no such value.

    As in ZooKeeper, bytes after a record are ignored, and invalid UTF-8 is read as U+FFFD.
    """

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def int32(self) -> int:
        at = self.at
        self.at = at + 4
        if self.at > len(self.data):
            raise JuteError("the record ends within a number")
        (value,) = _int32(self.data, at)
        return value  # type: ignore[no-any-return]

    def int64(self) -> int:
        at = self.at
        self.at = at + 8
        if self.at > len(self.data):
            raise JuteError("the record ends within a number")
        (value,) = _int64(self.data, at)
        return value  # type: ignore[no-any-return]

    def boolean(self) -> bool:
        if self.at >= len(self.data):
            raise JuteError("the record ends before a truth value")
        self.at += 1
        return self.data[self.at - 1] != 0

    def buffer(self) -> bytes | None:
        length = self.int32()
        if length < 0:
            if length == -1:
                return None
            raise JuteError(f"a length is negative: {length}")
        end = self.at + length
        if end > len(self.data):
            raise JuteError(f"{length:,} bytes are said to follow, and {len(self.data) - self.at:,} do")
        value = self.data[self.at : end]
        self.at = end
        return value

    def optional_string(self) -> str | None:
        value = self.buffer()
        return None if value is None else str(value, "utf-8", "replace")

    def string(self) -> str:
        value = self.buffer()
        if value is None:
            raise JuteError("a string is null")
        return str(value, "utf-8", "replace")

    def vector(self, element: Callable[[], T]) -> tuple[T, ...] | None:
        length = self.int32()
        if length == -1:
            return None
        # An element takes at least a byte, so a false length fails at the end of the record.
        return tuple([element() for _ in range(length)])

    def strings(self) -> tuple[str, ...]:
        value = self.vector(self.string)
        if value is None:
            raise JuteError("a vector is null")
        return value


def buffer(value: bytes | None) -> bytes:
    return NULL if value is None else INT.pack(len(value)) + value


def string(value: str | None) -> bytes:
    return NULL if value is None else buffer(value.encode("utf-8", "replace"))


def vector(elements: Iterable[bytes]) -> bytes:
    encoded = list(elements)
    return INT.pack(len(encoded)) + b"".join(encoded)
