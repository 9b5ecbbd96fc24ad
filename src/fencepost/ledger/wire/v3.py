"""Version 3 of the protocol: protobuf messages with a number, ``txn``, that matches an answer to its request.

A response has two statuses: its own, and one in the part for its operation. Like other clients, :func:`decode_response`
checks the outer one first. There is no batch read in this version: a bookie answers it with EBADREQ, like BookKeeper's.

Adds, reads and their answers are sent once per entry. They are encoded by hand, in a third of the time that protobuf
takes for the same bytes (:func:`encode_request_plainly`, :func:`encode_response_plainly`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from fencepost.ledger import messages as m
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import availability, schema
from fencepost.ledger.wire.frames import RefusedError, WireError, frame
from fencepost.ledger.wire.varint import read_varint, varint

VERSION = 3

READ_ENTRY, ADD_ENTRY, AUTH, WRITE_LAC, READ_LAC, GET_BOOKIE_INFO = 1, 2, 5, 6, 7, 8
START_TLS, FORCE_LEDGER, LIST_ENTRIES = 9, 10, 11

_FENCE_LEDGER, _ENTRY_PIGGYBACK = 1, 2
_RECOVERY_ADD = 1
_DEFERRED_SYNC = 1
_TOTAL_DISK_CAPACITY, _FREE_DISK_SPACE = 1, 2
_HIGH_PRIORITY = 100
"""The priority of recoveries' requests. BookKeeper's bookies accept adds while read-only only with this priority."""
_MILLISECOND = 1000
"""Microseconds per millisecond: the protocol uses milliseconds, this package microseconds."""

_IDS = struct.Struct(">qqq")
"""Ledger, entry id and LAC at the beginning of an entry's body."""
_LENGTH = struct.Struct(">I")
_HEADER_SIZE = 5
"""Bytes of a header before the request number: version 3, the operation, and the tag of the number."""

_CODES = {code.value: code for code in Code}

_parse_request = schema.Request.FromString
_parse_response = schema.Response.FromString


def number_of(code: Code) -> int:
    """The number of a code."""
    return code.value


# -- requests ---------------------------------------------------------------------------------------------------------


def encode_request(txn: int, request: m.Request) -> bytes:
    """The frame of a request. Raises :class:`TypeError` for one that this version does not have."""
    if type(request) is m.WriteLac or (
        type(request) is m.AddEntry and not request.recovery and not request.deferred_sync
    ):
        number, (operation, part) = varint(txn), _part_of_write(request)
        head = b"\x0a%c\x08\x03\x10%c\x18%b" % (_HEADER_SIZE + len(number), operation, number)
        return b"".join((_LENGTH.pack(len(head) + len(part)), head, part))
    if type(request) is m.ReadEntry and not request.fence and request.previous_lac is None:
        number = varint(txn)
        ids = b"\x08%b\x10%b" % (varint(request.ledger), varint(request.entry_id))
        size = 10 + len(number) + len(ids)
        return b"\0\0\0%c\x0a%c\x08\x03\x10\x01\x18%b\xa2\x06%c%b" % (
            size,
            _HEADER_SIZE + len(number),
            number,
            len(ids),
            ids,
        )
    return encode_request_plainly(txn, request)


def _part_of_write(request: m.AddEntry | m.WriteLac) -> tuple[int, bytes]:
    """The operation, and all of a request except its header. It is cached, because the same part goes to several
    bookies in turn.
    """
    global _last_write
    last, operation, part = _last_write
    if request is not last:
        if type(request) is m.AddEntry:
            operation, tag, number = ADD_ENTRY, b"\xaa\x06", request.entry_id
        else:
            operation, tag, number = WRITE_LAC, b"\xba\x06", request.lac
        key, body = request.master_key, request.body
        ids = b"\x08%b\x10%b" % (varint(request.ledger), varint(number))
        start = b"%b\x1a%b%b\x22%b" % (ids, varint(len(key)), key, varint(len(body)))
        part = b"%b%b%b%b" % (tag, varint(len(start) + len(body)), start, body)
        _last_write = request, operation, part
    return operation, part


_last_write: tuple[m.AddEntry | m.WriteLac | None, int, bytes] = None, 0, b""


def encode_request_plainly(txn: int, request: m.Request) -> bytes:
    """Like :func:`encode_request`, entirely with protobuf."""
    operation = _OF_REQUEST.get(type(request))
    if operation is None:
        raise TypeError(f"version 3 has no {type(request).__name__}")
    message = schema.Request()
    header, part = message.header, getattr(message, operation.request.field)
    header.version, header.operation, header.txnId = VERSION, operation.number, txn
    part.SetInParent()
    operation.request.fill(request, header, part)
    return frame(message.SerializeToString())


def decode_request(payload: bytes) -> tuple[int, m.Request]:
    """Decode a request, with its number.

    Raises :class:`RefusedError` if there is an operation to answer, and :class:`WireError` for anything else.
    """
    try:
        message = _parse_request(payload)
    except DecodeError:
        raise WireError(f"a payload of {len(payload):,} bytes is no request of version 3") from None
    header = message.header
    if header.operation == ADD_ENTRY and header.version == VERSION:
        add = _read_add(message.addRequest)
        if add is not None:
            return header.txnId, add
    operation = _OF_NUMBER.get(header.operation)
    if operation is None:
        if not message.HasField("header"):
            raise WireError("a request of version 3 has no header")
        raise _refused(header, Code.BAD_REQUEST, f"operation {header.operation} is not served")
    part = getattr(message, operation.request.field)
    if header.version != VERSION:
        raise _refused(header, Code.BAD_VERSION, f"version {header.version} is not spoken", operation, part)
    request: m.Request | None = operation.request.read(part)
    if request is None:
        kind = operation.request.message.__name__
        raise _refused(header, Code.BAD_REQUEST, f"the {kind} makes no sense", operation, part)
    return header.txnId, request


def decode_add_head(head: bytes) -> tuple[int, int, int] | None:
    """The number, ledger and entry id of the add at the beginning of a payload; None for anything else, and for an add
    of a recovery, whose header has a priority.
    """
    numbers, at = [], 2
    try:
        for tags in (b"\x08\x03\x10\x02\x18", b"\xaa\x06", b"\x08", b"\x10"):
            if not head.startswith(tags, at):
                return None
            number, at = read_varint(head, at + len(tags))
            numbers.append(number)
    except IndexError:
        return None
    txn, _, ledger, entry_id = numbers
    return (txn, ledger, entry_id) if max(txn, ledger) < 1 << 63 and entry_id <= m.LAST_ENTRY else None


def _refused(
    header: Any, code: Code, reason: str, operation: _Operation | None = None, part: Any = None
) -> RefusedError:
    """The error for a request that never reaches the role. The answer repeats the request's operation, number and
    ids.
    """
    response = schema.Response(status=code.value)
    to = response.header
    to.version, to.operation, to.txnId = VERSION, header.operation, header.txnId
    if operation is not None and operation.has_status:
        inner = getattr(response, operation.response.field)
        inner.status = code.value
        for name in operation.ids:
            setattr(inner, name, getattr(part, name))
    return RefusedError(f"a request is refused with {code.name}: {reason}", frame(response.SerializeToString()))


def _fill_add(request: m.AddEntry, header: Any, part: Any) -> None:
    part.ledgerId, part.entryId, part.body = request.ledger, request.entry_id, request.body
    part.masterKey = request.master_key
    if request.deferred_sync:
        part.writeFlags = _DEFERRED_SYNC
    if request.recovery:
        header.priority, part.flag = _HIGH_PRIORITY, _RECOVERY_ADD


def _read_add(part: Any) -> m.AddEntry | None:
    """Decode an add; None if it is invalid. The ids in the body go into the entry log. So an add whose body disagrees
    with the request would be stored as another entry.
    """
    body, key = part.body, part.masterKey
    if len(body) < _IDS.size or not key:
        return None
    ledger, entry_id, lac = _IDS.unpack_from(body)
    if ledger != part.ledgerId or entry_id != part.entryId or ledger < 0 or not 0 <= entry_id <= m.LAST_ENTRY:
        return None
    return m.AddEntry(
        ledger, entry_id, lac, body, key, part.flag == _RECOVERY_ADD, part.writeFlags & _DEFERRED_SYNC == _DEFERRED_SYNC
    )


def _fill_read(request: m.ReadEntry, header: Any, part: Any) -> None:
    part.ledgerId, part.entryId = request.ledger, request.entry_id
    if request.fence:
        part.flag = _FENCE_LEDGER
        if request.master_key is not None:
            part.masterKey = request.master_key
        if request.entry_id != m.NO_ENTRY_YET:
            header.priority = _HIGH_PRIORITY
    elif request.previous_lac is not None:
        part.previousLAC = request.previous_lac
        if request.wait:
            part.timeOut = -(-request.wait // _MILLISECOND)
        if request.piggyback:
            part.flag = _ENTRY_PIGGYBACK


def _read_read(part: Any) -> m.ReadEntry | None:
    ledger, entry_id, flag = part.ledgerId, part.entryId, part.flag
    if ledger < 0 or entry_id < m.NO_ENTRY_YET:
        return None
    if not (ledger and entry_id) and not part.IsInitialized():  # a missing id reads as 0
        return None
    if flag == _FENCE_LEDGER:
        return m.ReadEntry(ledger, entry_id, True, part.masterKey or None)
    if not part.HasField("previousLAC"):
        return m.ReadEntry(ledger, entry_id)
    previous_lac, piggyback = part.previousLAC, flag == _ENTRY_PIGGYBACK
    if (piggyback and entry_id != m.NO_ENTRY_YET) or previous_lac < m.NO_ENTRY_YET:
        return None
    return m.ReadEntry(ledger, entry_id, False, None, previous_lac, max(0, part.timeOut) * _MILLISECOND, piggyback)


def _fill_of_ledger(request: m.Message, header: Any, part: Any) -> None:
    part.ledgerId = request.ledger


def _read_of_ledger(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda part: kind(part.ledgerId) if part.IsInitialized() and part.ledgerId >= 0 else None


def _fill_write_lac(request: m.WriteLac, header: Any, part: Any) -> None:
    part.ledgerId, part.lac, part.masterKey, part.body = request.ledger, request.lac, request.master_key, request.body


def _read_write_lac(part: Any) -> m.WriteLac | None:
    if not part.IsInitialized() or part.ledgerId < 0 or part.lac < m.NO_ENTRY_YET or not part.masterKey:
        return None
    return m.WriteLac(part.ledgerId, part.lac, part.body, part.masterKey)


def _fill_info(request: m.GetBookieInfo, header: Any, part: Any) -> None:
    part.requested = request.total * _TOTAL_DISK_CAPACITY | request.free * _FREE_DISK_SPACE


def _read_info(part: Any) -> m.GetBookieInfo:
    return m.GetBookieInfo(bool(part.requested & _TOTAL_DISK_CAPACITY), bool(part.requested & _FREE_DISK_SPACE))


def _fill_auth(request: m.Auth, header: Any, part: Any) -> None:
    part.authPluginName, part.payload = request.plugin.encode(), request.payload


def _read_auth(part: Any) -> m.Auth | None:
    return m.Auth(part.authPluginName.decode(errors="replace"), part.payload) if part.IsInitialized() else None


# -- responses --------------------------------------------------------------------------------------------------------


def encode_response(txn: int, response: m.Response) -> bytes:
    """The frame of a response. Raises :class:`TypeError` for one that this version does not have."""
    if type(response) in (m.AddEntryResponse, m.WriteLacResponse) and response.code is Code.OK:
        number, inner = varint(txn), b"\x08\0\x10%b" % varint(response.ledger)
        if type(response) is m.AddEntryResponse:
            operation, tag, inner = ADD_ENTRY, 0xAA, b"%b\x18%b" % (inner, varint(response.entry_id))
        else:
            operation, tag = WRITE_LAC, 0xBA
        size = 12 + len(number) + len(inner)
        return b"\0\0\0%c\x0a%c\x08\x03\x10%c\x18%b\x10\0%c\x06%c%b" % (
            size,
            _HEADER_SIZE + len(number),
            operation,
            number,
            tag,
            len(inner),
            inner,
        )
    if type(response) is m.ReadEntryResponse and response.body is not None and response.code is Code.OK:
        number, body = varint(txn), response.body
        ids = b"\x08\0\x10%b\x18%b" % (varint(response.ledger), varint(response.entry_id))
        middle = b"%b\x22%b" % (ids, varint(len(body)))
        end = b"\x28" + varint(response.lac) if response.lac != m.NO_ENTRY_YET else b""
        size = len(middle) + len(body) + len(end)
        head = b"\x0a%c\x08\x03\x10\x01\x18%b\x10\0\xa2\x06%b" % (_HEADER_SIZE + len(number), number, varint(size))
        return b"".join((_LENGTH.pack(len(head) + size), head, middle, body, end))
    return encode_response_plainly(txn, response)


def encode_response_plainly(txn: int, response: m.Response) -> bytes:
    """Like :func:`encode_response`, entirely with protobuf."""
    operation = _OF_RESPONSE.get(type(response))
    if operation is None:
        raise TypeError(f"version 3 has no {type(response).__name__}")
    message = schema.Response(status=response.code.value)
    header = message.header
    header.version, header.operation, header.txnId = VERSION, operation.number, txn
    if operation.has_status or response.code is Code.OK:
        part = getattr(message, operation.response.field)
        part.SetInParent()
        if operation.has_status:
            part.status = response.code.value
        if operation.ids:
            part.ledgerId = response.ledger
            if operation.ids is _LEDGER_AND_ENTRY:
                part.entryId = response.entry_id  # type: ignore[union-attr]
        operation.response.fill(response, part)
    return frame(message.SerializeToString())


def refusal(txn: int, request: m.Request, code: Code) -> bytes:
    """The frame that refuses any request with a code."""
    response = schema.Response(status=code.value)
    header = response.header
    header.version, header.operation, header.txnId = VERSION, _OF_REQUEST[type(request)].number, txn
    return frame(response.SerializeToString())


def decode_response(payload: bytes) -> tuple[int, m.Response]:
    """Decode a response, with the number of its request.

    A response without the part for its operation, such as a refusal, gets ledger and entry id -1. An unknown status
    counts as :attr:`Code.IO_ERROR`: the bookie failed. Raises :class:`WireError`.
    """
    try:
        message = _parse_response(payload)
    except DecodeError:
        raise WireError(f"a payload of {len(payload):,} bytes is no response of version 3") from None
    header = message.header
    if header.operation == ADD_ENTRY and not message.status:
        added = message.addResponse
        if added.entryId and not added.status:  # a missing id reads as 0
            return header.txnId, m.AddEntryResponse(added.ledgerId, added.entryId, Code.OK)
    if header.operation == WRITE_LAC and not message.status:
        written = message.writeLacResponse
        if written.ledgerId and not written.status:  # a missing ledger reads as 0
            return header.txnId, m.WriteLacResponse(written.ledgerId, Code.OK)
    operation = _OF_NUMBER.get(header.operation)
    if operation is None:
        raise WireError(f"a response of version 3 has the operation {header.operation}, which was never asked for")
    side, status = operation.response, message.status
    part, has_part = getattr(message, side.field), message.HasField(side.field)
    if operation.has_status and not status:
        if not has_part:
            raise WireError(f"a response of version 3 has no {side.field}")
        status = part.status
    code = _CODES.get(status, Code.IO_ERROR)
    response: m.Response = side.read(part, code)
    if operation.ids and not has_part:  # only the number identifies its request
        response = side.message(*(-1 for _ in operation.ids), code)
    return header.txnId, response


def _read_add_response(part: Any, code: Code) -> m.AddEntryResponse:
    return m.AddEntryResponse(part.ledgerId, part.entryId, code)


def _fill_read_response(response: m.ReadEntryResponse, part: Any) -> None:
    if response.body is not None:
        part.body = response.body
    if response.lac != m.NO_ENTRY_YET:
        part.maxLAC = response.lac


def _read_read_response(part: Any, code: Code) -> m.ReadEntryResponse:
    """Decode a read's response. BookKeeper's bookies attach a body to some refusals, which is not the entry."""
    lac = part.maxLAC if part.HasField("maxLAC") else m.NO_ENTRY_YET
    body = part.body if code is Code.OK and part.HasField("body") else None
    return m.ReadEntryResponse(part.ledgerId, part.entryId, code, lac, body)


def _read_status_and_ledger(kind: type[Any]) -> Callable[[Any, Code], Any]:
    return lambda part, code: kind(part.ledgerId, code)


def _fill_lac_response(response: m.ReadLacResponse, part: Any) -> None:
    if response.lac_body is not None:
        part.lacBody = response.lac_body
    if response.last_entry is not None:
        part.lastEntryBody = response.last_entry


def _read_lac_response(part: Any, code: Code) -> m.ReadLacResponse:
    if code is not Code.OK:
        return m.ReadLacResponse(part.ledgerId, code)
    lac_body = part.lacBody if part.HasField("lacBody") else None
    return m.ReadLacResponse(
        part.ledgerId, code, lac_body, part.lastEntryBody if part.HasField("lastEntryBody") else None
    )


def _fill_list_response(response: m.ListEntriesResponse, part: Any) -> None:
    if response.code is Code.OK:
        part.availabilityOfEntriesOfLedger = availability.encode(response.runs)


def _read_list_response(part: Any, code: Code) -> m.ListEntriesResponse:
    runs = availability.decode(part.availabilityOfEntriesOfLedger) if code is Code.OK else ()
    return m.ListEntriesResponse(part.ledgerId, code, runs)


def _fill_info_response(response: m.GetBookieInfoResponse, part: Any) -> None:
    if response.total is not None:
        part.totalDiskCapacity = response.total
    if response.free is not None:
        part.freeDiskSpace = response.free


def _read_info_response(part: Any, code: Code) -> m.GetBookieInfoResponse:
    total = part.totalDiskCapacity if part.HasField("totalDiskCapacity") else None
    return m.GetBookieInfoResponse(code, total, part.freeDiskSpace if part.HasField("freeDiskSpace") else None)


def _fill_auth_response(response: m.AuthResponse, part: Any) -> None:
    part.authPluginName, part.payload = response.plugin.encode(), response.payload


def _read_auth_response(part: Any, code: Code) -> m.AuthResponse:
    return m.AuthResponse(code, part.authPluginName.decode(errors="replace"), part.payload)


def _fill_nothing(message: Any, *parts: Any) -> None:
    """For messages without fields besides the ids and the status."""


# -- the operations ---------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    """The request or the response of an operation: the message, its field on the wire, its encoder and its decoder."""

    message: type[Any]
    field: str
    fill: Callable[..., None]
    read: Callable[..., Any]


class _Operation(NamedTuple):
    """How to encode and decode one operation. ``ids``: the fields of the request that a response repeats.

    ``has_status``: whether the response's part has its own status.
    """

    number: int
    request: _Side
    response: _Side
    ids: tuple[str, ...] = ()
    has_status: bool = True


_LEDGER, _LEDGER_AND_ENTRY = ("ledgerId",), ("ledgerId", "entryId")

_OPERATIONS = (
    _Operation(
        ADD_ENTRY,
        _Side(m.AddEntry, "addRequest", _fill_add, _read_add),
        _Side(m.AddEntryResponse, "addResponse", _fill_nothing, _read_add_response),
        _LEDGER_AND_ENTRY,
    ),
    _Operation(
        READ_ENTRY,
        _Side(m.ReadEntry, "readRequest", _fill_read, _read_read),
        _Side(m.ReadEntryResponse, "readResponse", _fill_read_response, _read_read_response),
        _LEDGER_AND_ENTRY,
    ),
    _Operation(
        READ_LAC,
        _Side(m.ReadLac, "readLacRequest", _fill_of_ledger, _read_of_ledger(m.ReadLac)),
        _Side(m.ReadLacResponse, "readLacResponse", _fill_lac_response, _read_lac_response),
        _LEDGER,
    ),
    _Operation(
        WRITE_LAC,
        _Side(m.WriteLac, "writeLacRequest", _fill_write_lac, _read_write_lac),
        _Side(m.WriteLacResponse, "writeLacResponse", _fill_nothing, _read_status_and_ledger(m.WriteLacResponse)),
        _LEDGER,
    ),
    _Operation(
        FORCE_LEDGER,
        _Side(m.ForceLedger, "forceLedgerRequest", _fill_of_ledger, _read_of_ledger(m.ForceLedger)),
        _Side(
            m.ForceLedgerResponse,
            "forceLedgerResponse",
            _fill_nothing,
            _read_status_and_ledger(m.ForceLedgerResponse),
        ),
        _LEDGER,
    ),
    _Operation(
        LIST_ENTRIES,
        _Side(m.ListEntries, "getListOfEntriesOfLedgerRequest", _fill_of_ledger, _read_of_ledger(m.ListEntries)),
        _Side(m.ListEntriesResponse, "getListOfEntriesOfLedgerResponse", _fill_list_response, _read_list_response),
        _LEDGER,
    ),
    _Operation(
        GET_BOOKIE_INFO,
        _Side(m.GetBookieInfo, "getBookieInfoRequest", _fill_info, _read_info),
        _Side(m.GetBookieInfoResponse, "getBookieInfoResponse", _fill_info_response, _read_info_response),
    ),
    _Operation(
        AUTH,
        _Side(m.Auth, "authRequest", _fill_auth, _read_auth),
        _Side(m.AuthResponse, "authResponse", _fill_auth_response, _read_auth_response),
        has_status=False,
    ),
    _Operation(
        START_TLS,
        _Side(m.StartTls, "startTLSRequest", _fill_nothing, lambda part: m.StartTls()),
        _Side(m.StartTlsResponse, "startTLSResponse", _fill_nothing, lambda part, code: m.StartTlsResponse(code)),
        has_status=False,
    ),
)
_OF_NUMBER = {each.number: each for each in _OPERATIONS}
_OF_REQUEST = {each.request.message: each for each in _OPERATIONS}
_OF_RESPONSE = {each.response.message: each for each in _OPERATIONS}
