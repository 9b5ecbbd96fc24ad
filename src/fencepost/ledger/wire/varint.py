"""Protobuf varints: seven bits per byte, lowest first, with the highest bit set in all bytes but the last."""

from __future__ import annotations

_TWO = 1 << 14
_LAST = [bytes([n]) if n < 128 else bytes([n & 127 | 128, n >> 7]) for n in range(_TWO)]
"""The encodings of all numbers that take at most two bytes."""
_FIRST = [bytes([n & 127 | 128, n >> 7 | 128]) for n in range(_TWO)]
"""The first two bytes of a longer number, by its lowest 14 bits."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode the number at an offset. Returns it and its end. Raises :class:`IndexError` past the end of the data."""
    number = shift = 0
    while data[at] & 128:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def varint(number: int) -> bytes:
    """Encode a number; a negative one as 64 bits."""
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
