"""Version 2 of the protocol: fixed headers, and no number of a request except in batch reads.

An answer is known by its operation, ledger and entry id (:func:`key_of`). The codes are those of version 3 less 400, except that
there is none for a ledger in an unknown state that every client survives: BookKeeper's own throws at 107 and closes the connection. A bookie here
says EIO instead, which every client takes as this one takes 107, as no word on whether the entry was ever there; 107 is understood.
"""

from __future__ import annotations

import struct
from typing import Any

from fencepost.store import messages as m
from fencepost.store.rules.codes import Code
from fencepost.store.wire.frames import RefusedError, WireError

VERSION = 2

ADD_ENTRY, READ_ENTRY, AUTH, BATCH_READ = 1, 2, 3, 7
_FENCE, _RECOVERY_ADD, _HIGH_PRIORITY = 1, 2, 4
KEY_SIZE = 20
"""Bytes of a master key, which has no length of its own on the wire."""

_HEADER = struct.Struct(">BBH")
_ADD = struct.Struct(f">iBBH{KEY_SIZE}s")
_IDS = struct.Struct(">qqq")
_READ = struct.Struct(">iBBHqq")
_BATCH_READ = struct.Struct(">iBBHqqqiq")
_ANSWER = struct.Struct(">iBBHiqq")
_BATCH_ANSWER = struct.Struct(">iBBHiqqq")
_LENGTH = struct.Struct(">i")
_FRAME = _LENGTH.size

_NUMBERS = {code: code.value - 400 if code.value > 500 else code.value % 400 for code in Code} | {
    Code.NO_LEDGER: 1,
    Code.NO_ENTRY: 2,
    Code.BAD_REQUEST: 100,
    Code.UNKNOWN_LEDGER_STATE: 101,
}
_CODES = {number: code for code, number in _NUMBERS.items() if code is not Code.UNKNOWN_LEDGER_STATE} | {
    107: Code.UNKNOWN_LEDGER_STATE
}

REQUESTS = frozenset({m.AddEntry, m.ReadEntry, m.BatchRead, m.Auth})
"""The requests that there are in this version."""


def speaks(request: m.Request) -> bool:
    """Whether a request can be made in this version: it has no long polls and no deferred sync."""
    if type(request) is m.ReadEntry:
        return request.previous_lac is None
    if type(request) is m.AddEntry:
        return not request.deferred_sync
    return type(request) in REQUESTS


def key_of(txn: int, message: m.Request | m.Response) -> tuple[int, ...]:
    """By which a request and its response are known to belong together: the operation, the ledger and entry id; in batch reads ``txn``."""
    if isinstance(message, m.AddEntry | m.AddEntryResponse):
        return ADD_ENTRY, message.ledger, message.entry_id
    if isinstance(message, m.ReadEntry | m.ReadEntryResponse):
        return READ_ENTRY, message.ledger, message.entry_id
    return (BATCH_READ, txn) if isinstance(message, m.BatchRead | m.BatchReadResponse) else (AUTH,)


# -- requests ---------------------------------------------------------------------------------------------------------


def encode_request(txn: int, request: m.Request) -> bytes:
    """The frame of a request. Raises :class:`TypeError` for one that this version does not have (:func:`speaks`)."""
    if not speaks(request):
        raise TypeError(f"version 2 has no such {type(request).__name__}")
    if type(request) is m.AddEntry:
        flags = _RECOVERY_ADD | _HIGH_PRIORITY if request.recovery else 0
        size = _ADD.size - _FRAME + len(request.body)
        return _ADD.pack(size, VERSION, ADD_ENTRY, flags, request.master_key) + request.body
    if type(request) is m.ReadEntry:
        key, flags = _fencing(request)
        size = _READ.size - _FRAME + len(key)
        return _READ.pack(size, VERSION, READ_ENTRY, flags, request.ledger, request.entry_id) + key
    if type(request) is m.BatchRead:
        key, flags = _fencing(request)
        size = _BATCH_READ.size - _FRAME + len(key)
        count, most = request.max_count, request.max_size
        head = _BATCH_READ.pack(size, VERSION, BATCH_READ, flags, request.ledger, request.entry_id, txn, count, most)
        return head + key
    assert type(request) is m.Auth
    return _auth(request)


def _fencing(request: m.ReadEntry | m.BatchRead) -> tuple[bytes, int]:
    if not request.fence:
        return b"", 0
    return request.master_key or b"", _FENCE if request.entry_id == m.NO_ENTRY_YET else _FENCE | _HIGH_PRIORITY


def decode_request(payload: bytes) -> tuple[int, m.Request]:
    """The number of a request, which is 0 except in batch reads, and the request.

    Raises :class:`RefusedError` where there is a ledger and an entry to answer about, and :class:`WireError` for anything else.
    """
    size = len(payload)
    if size < _HEADER.size:
        raise WireError(f"a payload of {size} bytes is no request of version 2")
    version, operation, flags = _HEADER.unpack_from(payload)
    if operation == ADD_ENTRY and size >= _HEADER.size + KEY_SIZE + _IDS.size:
        body = payload[_HEADER.size + KEY_SIZE :]
        ledger, entry_id, lac = _IDS.unpack_from(body)
        if version != VERSION or ledger < 0 or entry_id < 0:
            raise _refused(version, operation, ledger, entry_id)
        key = payload[_HEADER.size : _HEADER.size + KEY_SIZE]
        return 0, m.AddEntry(ledger, entry_id, lac, body, key, bool(flags & _RECOVERY_ADD))
    if operation == READ_ENTRY and size >= _READ.size - _FRAME:
        ledger, entry_id = _READ.unpack_from(b"\0\0\0\0" + payload[: _READ.size - _FRAME])[-2:]
        if version != VERSION or ledger < 0 or entry_id < m.NO_ENTRY_YET:
            raise _refused(version, operation, ledger, entry_id)
        fence = bool(flags & _FENCE)
        return 0, m.ReadEntry(ledger, entry_id, fence, payload[_READ.size - _FRAME :] or None if fence else None)
    if operation == BATCH_READ and size >= _BATCH_READ.size - _FRAME:
        fields = _BATCH_READ.unpack_from(b"\0\0\0\0" + payload[: _BATCH_READ.size - _FRAME])
        ledger, entry_id, txn, count, most = fields[-5:]
        if version != VERSION or ledger < 0 or entry_id < 0:
            raise _refused(version, operation, ledger, entry_id, txn)
        fence = bool(flags & _FENCE)
        key_or_none = payload[_BATCH_READ.size - _FRAME :] or None if fence else None
        return txn, m.BatchRead(ledger, entry_id, count, most, fence, key_or_none)
    if operation == AUTH and version == VERSION:
        return 0, m.Auth(*_read_auth(payload))
    raise WireError(f"operation {operation} of version {version} in {size:,} bytes is not served")


def _refused(version: int, operation: int, ledger: int, entry_id: int, txn: int = 0) -> RefusedError:
    code = Code.BAD_REQUEST if version == VERSION else Code.BAD_VERSION
    head = (operation, 0, _NUMBERS[code], ledger, entry_id)
    if operation == BATCH_READ:
        answer = _BATCH_ANSWER.pack(_BATCH_ANSWER.size - _FRAME, VERSION, *head, txn)
    else:
        answer = _ANSWER.pack(_ANSWER.size - _FRAME, VERSION, *head)
    return RefusedError(f"a request of version {version} for entry {entry_id} of ledger {ledger} is refused with {code.name}", answer)


# -- responses --------------------------------------------------------------------------------------------------------


def encode_response(txn: int, response: m.Response) -> bytes:
    """The frame of a response. Raises :class:`TypeError` for one that this version does not have."""
    if type(response) is m.AddEntryResponse:
        return _ANSWER.pack(
            _ANSWER.size - _FRAME, VERSION, ADD_ENTRY, 0, _NUMBERS[response.code], response.ledger, response.entry_id
        )
    if type(response) is m.ReadEntryResponse:
        body = response.body or b""
        size, number = _ANSWER.size - _FRAME + len(body), _NUMBERS[response.code]
        return _ANSWER.pack(size, VERSION, READ_ENTRY, 0, number, response.ledger, response.entry_id) + body
    if type(response) is m.BatchReadResponse:
        parts = [part for body in response.bodies for part in (_LENGTH.pack(len(body)), body)]
        size, number = _BATCH_ANSWER.size - _FRAME + sum(map(len, parts)), _NUMBERS[response.code]
        head = _BATCH_ANSWER.pack(size, VERSION, BATCH_READ, 0, number, response.ledger, response.entry_id, txn)
        return b"".join([head, *parts])
    if type(response) is m.AuthResponse:
        return _auth(response)
    raise TypeError(f"version 2 has no {type(response).__name__}")


def decode_response(payload: bytes) -> tuple[int, m.Response]:
    """The number of the request that is answered, which is 0 except in batch reads, and the response. Raises :class:`WireError`.

    A code that is not known here counts as :attr:`Code.IO_ERROR`: the bookie failed.
    """
    size = len(payload)
    if size < _HEADER.size:
        raise WireError(f"a payload of {size} bytes is no response of version 2")
    version, operation, _ = _HEADER.unpack_from(payload)
    if version == VERSION and operation == AUTH:
        return 0, m.AuthResponse(Code.OK, *_read_auth(payload))
    if version != VERSION or size < _ANSWER.size - _FRAME:
        raise WireError(f"operation {operation} of version {version} in {size:,} bytes is no response of version 2")
    number, ledger, entry_id = _ANSWER.unpack_from(b"\0\0\0\0" + payload[: _ANSWER.size - _FRAME])[-3:]
    code = _CODES.get(number, Code.IO_ERROR)
    if operation == ADD_ENTRY:
        return 0, m.AddEntryResponse(ledger, entry_id, code)
    if operation == READ_ENTRY:
        body = payload[_ANSWER.size - _FRAME :] if code is Code.OK else None
        return 0, m.ReadEntryResponse(ledger, entry_id, code, m.NO_ENTRY_YET, body)
    if operation == BATCH_READ and size >= _BATCH_ANSWER.size - _FRAME:
        start = _BATCH_ANSWER.size - _FRAME
        (txn,) = struct.unpack_from(">q", payload, start - 8)
        return txn, m.BatchReadResponse(ledger, entry_id, code, _bodies(payload, start))
    raise WireError(f"operation {operation} in {size:,} bytes is no response of version 2")


def _bodies(payload: bytes, start: int) -> tuple[bytes, ...]:
    bodies = []
    while start < len(payload):
        end = start + _LENGTH.size
        length = _LENGTH.unpack_from(payload, start)[0] if end <= len(payload) else -1
        if length < 0 or end + length > len(payload):
            raise WireError("a batch of entries ends in the middle of one")
        bodies.append(payload[end : end + length])
        start = end + length
    return tuple(bodies)


# -- authentication, whose message is the one of version 3 ------------------------------------------------------------


def _auth(message: m.Auth | m.AuthResponse) -> bytes:
    from fencepost.store.wire import schema

    part: bytes = schema.AuthMessage(authPluginName=message.plugin.encode(), payload=message.payload).SerializeToString()
    return _LENGTH.pack(_HEADER.size + len(part)) + _HEADER.pack(VERSION, AUTH, 0) + part


def _read_auth(payload: bytes) -> tuple[str, bytes]:
    from google.protobuf.message import DecodeError

    from fencepost.store.wire import schema

    try:
        part: Any = schema.AuthMessage.FromString(payload[_HEADER.size :])
    except DecodeError:
        raise WireError("an authentication has no message of one") from None
    return part.authPluginName.decode(errors="replace"), part.payload
