"""Protobuf's integers as bytes: seven bits in each, the lowest first, and the highest bit set on all but the last."""

from __future__ import annotations

_TWO = 1 << 14
_LAST = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(_TWO)]
"""Numbers that end within two bytes."""
_FIRST = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(_TWO)]
"""The lowest 14 bits of a number that goes on."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, and where it ends. Raises :class:`IndexError` if that is beyond the data."""
    number = shift = 0
    while data[at] & 128:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def varint(number: int) -> bytes:
    """The bytes of a number; of a negative one, those of its 64 bits."""
    if 0 <= number < _TWO:
        return _LAST[number]
    if 0 < number < 1 << 28:
        return _FIRST[number & _TWO - 1] + _LAST[number >> 14]
    number &= (1 << 64) - 1
    parts = []
    while number >= _TWO:
        parts.append(_FIRST[number & _TWO - 1])
        number >>= 14
    return b"".join([*parts, _LAST[number]])
