"""The inverse of :func:`fencepost.language.values.encode`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from fencepost.language.values import Map, Set, Value


def decode(code: bytes, named: Callable[[str, str], Any]) -> Value:
    """The value that :func:`encode` encoded as these bytes. ``named(kind, name)`` looks up a model value (``m``), an
    enum member (``e``, ``module:Class.MEMBER``) or a record class (``r``, ``module:Class``). It also decodes a foreign
    value (``w``, its content with a character for each byte). Raises ValueError if the bytes encode no value.
    """
    value, end = _decode(code, 0, named)
    if end != len(code):
        raise ValueError("trailing bytes")
    return value


_CLOSED_BY = {b"(": b")", b"{": b"}", b"[": b"]", b"r": b"."}


def _decode(code: bytes, at: int, named: Callable[[str, str], Any]) -> tuple[Value, int]:
    tag, at = code[at : at + 1], at + 1
    if tag in b"NTF" and tag:
        return {b"N": None, b"T": True, b"F": False}[tag], at
    if tag in b"ix" and tag:
        end = code.index(b";", at)
        return int(code[at:end], 10 if tag == b"i" else 16), end + 1
    if tag == b"f":
        return struct.unpack("<d", code[at : at + 8])[0], at + 8
    record: Any = None
    if tag in b"smebrw" and tag:
        colon = code.index(b":", at)
        end = colon + 1 + int(code[at:colon])
        raw = code[colon + 1 : end]
        if tag == b"b":
            return raw, end
        if tag == b"w":
            return named("w", raw.decode("latin-1")), end
        text = raw.decode("utf-8", "surrogatepass")
        if tag == b"s":
            return text, end
        record = named(tag.decode(), text)
        if tag != b"r":
            return record, end
        at = end
    if tag not in _CLOSED_BY:
        raise ValueError(f"no value begins with {tag!r}")
    parts: list[Value] = []
    while code[at : at + 1] != _CLOSED_BY[tag]:
        part, at = _decode(code, at, named)
        parts.append(part)
    if tag == b"(":
        return tuple(parts), at + 1
    if tag == b"{":
        return Set(parts), at + 1
    if tag == b"[":
        return Map(zip(parts[::2], parts[1::2], strict=True)), at + 1
    return record(*parts), at + 1
