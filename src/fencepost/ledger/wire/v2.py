"""Version 2 of the protocol: fixed headers, with request numbers only in batch reads.

An answer is matched by operation, ledger and entry id (:func:`key_of`). The codes are those of version 3 minus 400. The
exception is the code for a ledger in an unknown state: on 107, BookKeeper's own client throws and closes the
connection. So a bookie here answers EIO. Every client treats that like 507 in version 3: it does not say whether the
entry ever existed. Code 107 is still understood.
"""

from __future__ import annotations

import struct
from typing import Any

from fencepost.ledger import messages as m
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire.frames import RefusedError, WireError, frame

VERSION = 2

ADD_ENTRY, READ_ENTRY, AUTH, BATCH_READ = 1, 2, 3, 7
_FENCE, _RECOVERY_ADD, _HIGH_PRIORITY = 1, 2, 4
KEY_SIZE = 20
"""Bytes of a master key, which has no length field."""

# Each begins with version, operation and flags.
_HEADER = struct.Struct(">BBH")
_READ = struct.Struct(">BBHqq")
_BATCH_READ = struct.Struct(">BBHqqqiq")
_ANSWER = struct.Struct(">BBHiqq")
_BATCH_ANSWER = struct.Struct(">BBHiqqq")

# Adds and their answers are sent per entry: these include the length of the frame.
_LENGTH = struct.Struct(">i")
_ADD_FRAME = struct.Struct(f">iBBH{KEY_SIZE}s")
_ANSWER_FRAME = struct.Struct(">iBBHiqq")

_ADD_SIZE = _HEADER.size + KEY_SIZE
"""Bytes of an add before the entry's body."""
_IDS = struct.Struct(">qqq")
"""Ledger, entry id and LAC at the beginning of an entry's body."""

_NUMBERS = {code: code.value - 400 for code in Code} | {
    Code.OK: 0,
    Code.NO_LEDGER: 1,
    Code.NO_ENTRY: 2,
    Code.BAD_REQUEST: 100,
    Code.UNKNOWN_LEDGER_STATE: 101,
}
_CODES = {number: code for code, number in _NUMBERS.items() if code is not Code.UNKNOWN_LEDGER_STATE} | {
    107: Code.UNKNOWN_LEDGER_STATE
}


def speaks(request: m.Request) -> bool:
    """Whether this version can express a request: adds, reads, batch reads and authentication, without deferred sync
    and long polls.
    """
    if type(request) is m.AddEntry:
        return not request.deferred_sync and len(request.master_key) == KEY_SIZE
    if type(request) is m.ReadEntry:
        return request.previous_lac is None
    return type(request) is m.BatchRead or type(request) is m.Auth


def key_of(txn: int, message: m.Request | m.Response) -> tuple[int, ...]:
    """The key that matches a response to its request: the operation, ledger and entry id; in batch reads, ``txn``."""
    if isinstance(message, m.AddEntry | m.AddEntryResponse):
        return ADD_ENTRY, message.ledger, message.entry_id
    if isinstance(message, m.ReadEntry | m.ReadEntryResponse):
        return READ_ENTRY, message.ledger, message.entry_id
    return (BATCH_READ, txn) if isinstance(message, m.BatchRead | m.BatchReadResponse) else (AUTH,)


def number_of(code: Code) -> int:
    """The number of a code."""
    return _NUMBERS[code]


# -- requests ---------------------------------------------------------------------------------------------------------


def encode_request(txn: int, request: m.Request) -> bytes:
    """The frame of a request. Raises :class:`TypeError` for one that this version cannot express (:func:`speaks`)."""
    if not speaks(request):
        raise TypeError(f"version 2 has no such {type(request).__name__}")
    if type(request) is m.AddEntry:
        flags = _RECOVERY_ADD | _HIGH_PRIORITY if request.recovery else 0
        body = request.body
        return _ADD_FRAME.pack(_ADD_SIZE + len(body), VERSION, ADD_ENTRY, flags, request.master_key) + body
    if type(request) is m.ReadEntry:
        flags, key = _fencing(request)
        return frame(_READ.pack(VERSION, READ_ENTRY, flags, request.ledger, request.entry_id) + key)
    if type(request) is m.BatchRead:
        flags, key = _fencing(request)
        limits = (request.max_count, request.max_size)
        return frame(_BATCH_READ.pack(VERSION, BATCH_READ, flags, request.ledger, request.entry_id, txn, *limits) + key)
    assert type(request) is m.Auth
    return _auth(request)


def _fencing(request: m.ReadEntry | m.BatchRead) -> tuple[int, bytes]:
    if not request.fence:
        return 0, b""
    return _FENCE if request.entry_id == m.NO_ENTRY_YET else _FENCE | _HIGH_PRIORITY, request.master_key or b""


def decode_request(payload: bytes) -> tuple[int, m.Request]:
    """Decode a request, with its number, which is 0 except in batch reads.

    Raises :class:`RefusedError` if there is a ledger and an entry to answer for, and :class:`WireError` for anything
    else.
    """
    size = len(payload)
    if size < _HEADER.size:
        raise WireError(f"a payload of {size} bytes is no request of version 2")
    version, operation, flags = _HEADER.unpack_from(payload)
    if operation == ADD_ENTRY and size >= _ADD_SIZE + _IDS.size:
        ledger, entry_id, lac = _IDS.unpack_from(payload, _ADD_SIZE)
        if version != VERSION or ledger < 0 or not 0 <= entry_id <= m.LAST_ENTRY:
            raise _refused(version, operation, ledger, entry_id)
        key, recovery = payload[_HEADER.size : _ADD_SIZE], bool(flags & _RECOVERY_ADD)
        return 0, m.AddEntry(ledger, entry_id, lac, payload[_ADD_SIZE:], key, recovery)
    if operation == READ_ENTRY and size >= _READ.size:
        _, _, _, ledger, entry_id = _READ.unpack_from(payload)
        if version != VERSION or ledger < 0 or entry_id < m.NO_ENTRY_YET:
            raise _refused(version, operation, ledger, entry_id)
        if not flags & _FENCE:
            return 0, m.ReadEntry(ledger, entry_id)
        return 0, m.ReadEntry(ledger, entry_id, True, payload[_READ.size :] or None)
    if operation == BATCH_READ and size >= _BATCH_READ.size:
        _, _, _, ledger, entry_id, txn, max_count, max_size = _BATCH_READ.unpack_from(payload)
        if version != VERSION or ledger < 0 or not 0 <= entry_id <= m.LAST_ENTRY:
            raise _refused(version, operation, ledger, entry_id, txn)
        fence = bool(flags & _FENCE)
        key_or_none = payload[_BATCH_READ.size :] or None if fence else None
        return txn, m.BatchRead(ledger, entry_id, max_count, max_size, fence, key_or_none)
    if operation == AUTH and version == VERSION:
        return 0, m.Auth(*_read_auth(payload))
    raise WireError(f"operation {operation} of version {version} in {size:,} bytes is not served")


def decode_add_head(head: bytes) -> tuple[int, int, int] | None:
    """The number, ledger and entry id of the add at the beginning of a payload; None for anything else, and for an add
    of a recovery.
    """
    version, operation, flags = _HEADER.unpack_from(head)
    ledger, entry_id, _ = _IDS.unpack_from(head, _ADD_SIZE)
    is_add = version == VERSION and operation == ADD_ENTRY and not flags & _RECOVERY_ADD
    return (0, ledger, entry_id) if is_add and ledger >= 0 and 0 <= entry_id <= m.LAST_ENTRY else None


def _refused(version: int, operation: int, ledger: int, entry_id: int, txn: int | None = None) -> RefusedError:
    """The error for a request that never reaches the role. The answer has the version of the request."""
    code = Code.BAD_REQUEST if version == VERSION else Code.BAD_VERSION
    answer = _ANSWER.pack(version, operation, 0, _NUMBERS[code], ledger, entry_id)
    if txn is not None:
        answer = _BATCH_ANSWER.pack(version, operation, 0, _NUMBERS[code], ledger, entry_id, txn)
    return RefusedError(
        f"a request of version {version} for entry {entry_id} of ledger {ledger} is refused with {code.name}",
        frame(answer),
    )


# -- responses --------------------------------------------------------------------------------------------------------


def encode_response(txn: int, response: m.Response) -> bytes:
    """The frame of a response. Raises :class:`TypeError` for one that this version does not have."""
    if type(response) is m.AddEntryResponse:
        number = _NUMBERS[response.code]
        return _ANSWER_FRAME.pack(_ANSWER.size, VERSION, ADD_ENTRY, 0, number, response.ledger, response.entry_id)
    if type(response) is m.ReadEntryResponse:
        number, body = _NUMBERS[response.code], response.body or b""
        size = _ANSWER.size + len(body)
        return _ANSWER_FRAME.pack(size, VERSION, READ_ENTRY, 0, number, response.ledger, response.entry_id) + body
    if type(response) is m.BatchReadResponse:
        number = _NUMBERS[response.code]
        head = _BATCH_ANSWER.pack(VERSION, BATCH_READ, 0, number, response.ledger, response.entry_id, txn)
        parts = [head, *(part for body in response.bodies for part in (_LENGTH.pack(len(body)), body))]
        return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))
    if type(response) is m.AuthResponse:
        return _auth(response)
    raise TypeError(f"version 2 has no {type(response).__name__}")


def refusal(txn: int, request: m.Request, code: Code) -> bytes:
    """The frame that refuses any request with a code."""
    if isinstance(request, m.BatchRead):
        return encode_response(txn, m.BatchReadResponse(request.ledger, request.entry_id, code))
    if isinstance(request, m.ReadEntry):
        return encode_response(txn, m.ReadEntryResponse(request.ledger, request.entry_id, code))
    ids = (request.ledger, request.entry_id) if isinstance(request, m.AddEntry) else (-1, m.NO_ENTRY_YET)
    return encode_response(txn, m.AddEntryResponse(*ids, code))


def decode_response(payload: bytes) -> tuple[int, m.Response]:
    """Decode a response, with the number of its request, which is 0 except in batch reads. Raises :class:`WireError`.

    An unknown code counts as :attr:`Code.IO_ERROR`: the bookie failed.
    """
    size = len(payload)
    if size < _HEADER.size:
        raise WireError(f"a payload of {size} bytes is no response of version 2")
    version, operation, _ = _HEADER.unpack_from(payload)
    if version == VERSION and operation == AUTH:
        return 0, m.AuthResponse(Code.OK, *_read_auth(payload))
    if size < _ANSWER.size:
        raise WireError(f"operation {operation} of version {version} in {size:,} bytes is no response of version 2")
    _, _, _, number, ledger, entry_id = _ANSWER.unpack_from(payload)
    code = _CODES.get(number, Code.IO_ERROR)
    if version != VERSION and code is not Code.BAD_VERSION:
        raise WireError(f"operation {operation} is answered in version {version}, and was asked for in version 2")
    if operation == ADD_ENTRY:
        return 0, m.AddEntryResponse(ledger, entry_id, code)
    if operation == READ_ENTRY:
        body = payload[_ANSWER.size :] if code is Code.OK else None
        return 0, m.ReadEntryResponse(ledger, entry_id, code, m.NO_ENTRY_YET, body)
    if operation == BATCH_READ and size >= _BATCH_ANSWER.size:
        txn = _BATCH_ANSWER.unpack_from(payload)[-1]
        bodies = _bodies(payload, _BATCH_ANSWER.size) if code is Code.OK else ()
        return txn, m.BatchReadResponse(ledger, entry_id, code, bodies)
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


# -- authentication, with the message of version 3 --------------------------------------------------------------------


def _auth(message: m.Auth | m.AuthResponse) -> bytes:
    from fencepost.ledger.wire import schema

    part: bytes = schema.AuthMessage(
        authPluginName=message.plugin.encode(), payload=message.payload
    ).SerializeToString()
    return frame(_HEADER.pack(VERSION, AUTH, 0) + part)


def _read_auth(payload: bytes) -> tuple[str, bytes]:
    from google.protobuf.message import DecodeError

    from fencepost.ledger.wire import schema

    try:
        part: Any = schema.AuthMessage.FromString(payload[_HEADER.size :])
    except DecodeError:
        raise WireError("the message of an authentication is malformed") from None
    return part.authPluginName.decode(errors="replace"), part.payload
