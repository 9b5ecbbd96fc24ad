"""Protobuf varint fields, for the loops of bookies and clients. Callable from compiled code only."""

from __future__ import annotations

import numpy as np

from fencepost.files.loops import inner


@inner
def varint(data, at, stop):
    """Decode a varint of up to 63 bits. Returns the number and the end offset, -1 if it is malformed."""
    value, shift = np.int64(0), np.int64(0)
    while at < stop and shift < 63:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    return value, np.int64(-1)


@inner
def read_number(data, at, stop, tag):
    """Decode a varint field with this tag. Returns the number and the end offset, -1 if it is another field."""
    if at < 0 or at >= stop or data[at] != tag:
        return np.int64(0), np.int64(-1)
    return varint(data, at + 1, stop)


@inner
def put_varint(out, at, value):
    """Encode a non-negative number; returns the end offset."""
    while value > 127:
        out[at] = (value & 127) | 128
        at += 1
        value >>= 7
    out[at] = value
    return at + 1
