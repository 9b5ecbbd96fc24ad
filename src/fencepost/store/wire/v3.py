"""Version 3 of the protocol: protobuf messages that carry a number, ``txn``, by which an answer is known.

The status of a response stands in it and once more in the part that its operation has; a client looks at the outer one, then at the inner
one, and so does :func:`decode_response`. There is no batch read in this version: a bookie answers it with EBADREQ, as BookKeeper's does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from fencepost.store import messages as m
from fencepost.store.rules.codes import Code
from fencepost.store.wire import availability, schema
from fencepost.store.wire.frames import RefusedError, WireError, frame

VERSION = 3

READ_ENTRY, ADD_ENTRY, AUTH, WRITE_LAC, READ_LAC, GET_BOOKIE_INFO = 1, 2, 5, 6, 7, 8
START_TLS, FORCE_LEDGER, LIST_ENTRIES = 9, 10, 11

_FENCE_LEDGER, _ENTRY_PIGGYBACK = 1, 2
_RECOVERY_ADD = 1
_DEFERRED_SYNC = 1
_TOTAL_DISK_CAPACITY, _FREE_DISK_SPACE = 1, 2
_HIGH_PRIORITY = 100
"""What recoveries ask goes ahead of others, and a bookie of BookKeeper that is read-only takes an add only so."""

_IDS = struct.Struct(">qqq")
"""Ledger, entry id and LAC at the beginning of the body of an entry."""

_CODES = {code.value: code for code in Code}


# -- requests ---------------------------------------------------------------------------------------------------------


def encode_request(txn: int, request: m.Request) -> bytes:
    """The frame of a request. Raises :class:`TypeError` for one that this version does not have."""
    operation = _OF_REQUEST.get(type(request))
    if operation is None:
        raise TypeError(f"version 3 has no {type(request).__name__}")
    message = schema.Request()
    header = message.header
    header.version, header.operation, header.txnId = VERSION, operation.number, txn
    part = getattr(message, operation.request_field)
    part.SetInParent()
    operation.fill_request(request, header, part)
    return frame(message.SerializeToString())


def decode_request(payload: bytes) -> tuple[int, m.Request]:
    """The number of a request, and the request.

    Raises :class:`RefusedError` where there is at least an operation and a number to answer, and :class:`WireError` for anything else.
    """
    try:
        message = schema.Request.FromString(payload)
    except DecodeError:
        raise WireError(f"a payload of {len(payload):,} bytes is no request of version 3") from None
    header = message.header
    if not header.IsInitialized():
        raise WireError("a request of version 3 has no operation or number")
    txn = header.txnId
    operation = _OF_NUMBER.get(header.operation)
    if operation is None:
        raise _refused(header, Code.BAD_REQUEST, f"operation {header.operation} is not served")
    part = getattr(message, operation.request_field)
    if header.version != VERSION:
        raise _refused(header, Code.BAD_VERSION, f"version {header.version} is not spoken", operation, part)
    if not message.HasField(operation.request_field) or not part.IsInitialized():
        raise _refused(header, Code.BAD_REQUEST, f"{operation.request_field} is missing or not complete")
    request = operation.read_request(part)
    if request is None:
        raise _refused(header, Code.BAD_REQUEST, f"{operation.request_field} makes no sense", operation, part)
    return txn, request


def _refused(header: Any, code: Code, reason: str, operation: _Operation | None = None, part: Any = None) -> RefusedError:
    """The error for a request that is answered without having been asked of the bookie. The answer has what the request says of itself."""
    response = schema.Response()
    to = response.header
    to.version, to.operation, to.txnId = VERSION, header.operation, header.txnId
    response.status = code.value
    if operation is not None and operation.number not in (START_TLS, AUTH):
        inner = getattr(response, operation.response_field)
        inner.status = code.value
        for name in ("ledgerId", "entryId"):
            if name in operation.echoed:
                setattr(inner, name, getattr(part, name))
    return RefusedError(f"a request is refused with {code.name}: {reason}", frame(response.SerializeToString()))


def _fill_add(request: m.AddEntry, header: Any, part: Any) -> None:
    part.ledgerId, part.entryId, part.masterKey, part.body = (
        request.ledger,
        request.entry_id,
        request.master_key,
        request.body,
    )
    if request.deferred_sync:
        part.writeFlags = _DEFERRED_SYNC
    if request.recovery:
        header.priority, part.flag = _HIGH_PRIORITY, _RECOVERY_ADD


def _read_add(part: Any) -> m.AddEntry | None:
    ledger, entry_id, body = part.ledgerId, part.entryId, part.body
    if ledger < 0 or entry_id < 0 or len(body) < _IDS.size:
        return None
    in_body = _IDS.unpack_from(body)
    if in_body[0] != ledger or in_body[1] != entry_id:
        return None
    return m.AddEntry(
        ledger,
        entry_id,
        in_body[2],
        body,
        part.masterKey,
        part.flag == _RECOVERY_ADD,
        bool(part.writeFlags & _DEFERRED_SYNC),
    )


def _fill_read(request: m.ReadEntry, header: Any, part: Any) -> None:
    part.ledgerId, part.entryId = request.ledger, request.entry_id
    if request.master_key is not None:
        part.masterKey = request.master_key
    if request.fence:
        part.flag = _FENCE_LEDGER
        if request.entry_id != m.NO_ENTRY_YET:
            header.priority = _HIGH_PRIORITY
    elif request.previous_lac is not None:
        part.previousLAC = request.previous_lac
        if request.wait:
            part.timeOut = -(-request.wait // 1000)
        if request.piggyback:
            part.flag = _ENTRY_PIGGYBACK


def _read_read(part: Any) -> m.ReadEntry | None:
    ledger, entry_id, flag = part.ledgerId, part.entryId, part.flag
    if ledger < 0 or entry_id < m.NO_ENTRY_YET:
        return None
    if flag == _FENCE_LEDGER:
        return m.ReadEntry(ledger, entry_id, True, part.masterKey if part.HasField("masterKey") else None)
    if not part.HasField("previousLAC"):
        return m.ReadEntry(ledger, entry_id)
    piggyback = flag == _ENTRY_PIGGYBACK
    if (piggyback and entry_id != m.NO_ENTRY_YET) or part.previousLAC < m.NO_ENTRY_YET:
        return None
    wait = max(0, part.timeOut) * 1000
    return m.ReadEntry(ledger, entry_id, False, None, part.previousLAC, wait, piggyback)


def _fill_of_ledger(request: m.Message, header: Any, part: Any) -> None:
    part.ledgerId = request.ledger


def _fill_write_lac(request: m.WriteLac, header: Any, part: Any) -> None:
    part.ledgerId, part.lac, part.masterKey, part.body = request.ledger, request.lac, request.master_key, request.body


def _read_write_lac(part: Any) -> m.WriteLac | None:
    if part.ledgerId < 0 or part.lac < m.NO_ENTRY_YET:
        return None
    return m.WriteLac(part.ledgerId, part.lac, part.body, part.masterKey)


def _read_of_ledger(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda part: kind(part.ledgerId) if part.ledgerId >= 0 else None


def _fill_info(request: m.GetBookieInfo, header: Any, part: Any) -> None:
    part.requested = request.total * _TOTAL_DISK_CAPACITY | request.free * _FREE_DISK_SPACE


def _read_info(part: Any) -> m.GetBookieInfo:
    return m.GetBookieInfo(bool(part.requested & _TOTAL_DISK_CAPACITY), bool(part.requested & _FREE_DISK_SPACE))


def _fill_auth(request: m.Auth, header: Any, part: Any) -> None:
    part.authPluginName, part.payload = request.plugin.encode(), request.payload


def _read_auth(part: Any) -> m.Auth:
    return m.Auth(part.authPluginName.decode(errors="replace"), part.payload)


# -- responses --------------------------------------------------------------------------------------------------------


def encode_response(txn: int, response: m.Response) -> bytes:
    """The frame of a response. Raises :class:`TypeError` for one that this version does not have."""
    operation = _OF_RESPONSE.get(type(response))
    if operation is None:
        raise TypeError(f"version 3 has no {type(response).__name__}")
    message = schema.Response()
    header = message.header
    header.version, header.operation, header.txnId = VERSION, operation.number, txn
    message.status = response.code.value
    if operation.number not in (START_TLS, AUTH) or response.code is Code.OK:
        part = getattr(message, operation.response_field)
        part.SetInParent()
        operation.fill_response(response, part)
    return frame(message.SerializeToString())


def decode_response(payload: bytes) -> tuple[int, m.Response]:
    """The number of the request that is answered, and the response.

    A response without the part that belongs to its operation, as to a request that was refused, has the ledger and entry id -1. A status
    that is not known here counts as :attr:`Code.IO_ERROR`: the bookie failed. Raises :class:`WireError`.
    """
    try:
        message = schema.Response.FromString(payload)
    except DecodeError:
        raise WireError(f"a payload of {len(payload):,} bytes is no response of version 3") from None
    header = message.header
    operation = _OF_NUMBER.get(header.operation)
    if operation is None or not header.IsInitialized() or not message.HasField("status"):
        raise WireError("a response of version 3 has no operation, number or status")
    part = getattr(message, operation.response_field)
    inside = message.HasField(operation.response_field)
    if inside and not part.IsInitialized():
        raise WireError(f"{operation.response_field} is not complete")
    status = message.status
    if not status and operation.has_status:
        status = part.status if inside else Code.BAD_REQUEST.value
    return header.txnId, operation.read_response(part, _CODES.get(status, Code.IO_ERROR), inside)


def _fill_add_response(response: m.AddEntryResponse, part: Any) -> None:
    part.status, part.ledgerId, part.entryId = response.code.value, response.ledger, response.entry_id


def _read_add_response(part: Any, code: Code, inside: bool) -> m.AddEntryResponse:
    return m.AddEntryResponse(part.ledgerId, part.entryId, code) if inside else m.AddEntryResponse(-1, -1, code)


def _fill_read_response(response: m.ReadEntryResponse, part: Any) -> None:
    part.status, part.ledgerId, part.entryId = response.code.value, response.ledger, response.entry_id
    if response.body is not None:
        part.body = response.body
    if response.lac != m.NO_ENTRY_YET:
        part.maxLAC = response.lac


def _read_read_response(part: Any, code: Code, inside: bool) -> m.ReadEntryResponse:
    if not inside:
        return m.ReadEntryResponse(-1, m.NO_ENTRY_YET, code)
    lac = part.maxLAC if part.HasField("maxLAC") else m.NO_ENTRY_YET
    body = part.body if code is Code.OK and part.HasField("body") else None
    return m.ReadEntryResponse(part.ledgerId, part.entryId, code, max(lac, m.NO_ENTRY_YET), body)


def _fill_status_and_ledger(response: Any, part: Any) -> None:
    part.status, part.ledgerId = response.code.value, response.ledger


def _read_status_and_ledger(kind: type[Any]) -> Callable[[Any, Code, bool], Any]:
    return lambda part, code, inside: kind(part.ledgerId if inside else -1, code)


def _fill_lac_response(response: m.ReadLacResponse, part: Any) -> None:
    part.status, part.ledgerId = response.code.value, response.ledger
    if response.lac_body is not None:
        part.lacBody = response.lac_body
    if response.last_entry is not None:
        part.lastEntryBody = response.last_entry


def _read_lac_response(part: Any, code: Code, inside: bool) -> m.ReadLacResponse:
    if code is not Code.OK:
        return m.ReadLacResponse(part.ledgerId if inside else -1, code)
    lac_body = part.lacBody if part.HasField("lacBody") else None
    return m.ReadLacResponse(part.ledgerId, code, lac_body, part.lastEntryBody if part.HasField("lastEntryBody") else None)


def _fill_info_response(response: m.GetBookieInfoResponse, part: Any) -> None:
    part.status = response.code.value
    if response.total is not None:
        part.totalDiskCapacity = response.total
    if response.free is not None:
        part.freeDiskSpace = response.free


def _read_info_response(part: Any, code: Code, inside: bool) -> m.GetBookieInfoResponse:
    total = part.totalDiskCapacity if part.HasField("totalDiskCapacity") else None
    return m.GetBookieInfoResponse(code, total, part.freeDiskSpace if part.HasField("freeDiskSpace") else None)


def _fill_list_response(response: m.ListEntriesResponse, part: Any) -> None:
    part.status, part.ledgerId = response.code.value, response.ledger
    if response.code is Code.OK:
        part.availabilityOfEntriesOfLedger = availability.encode(response.runs)


def _read_list_response(part: Any, code: Code, inside: bool) -> m.ListEntriesResponse:
    if code is not Code.OK:
        return m.ListEntriesResponse(part.ledgerId if inside else -1, code)
    return m.ListEntriesResponse(part.ledgerId, code, availability.decode(part.availabilityOfEntriesOfLedger))


def _fill_auth_response(response: m.AuthResponse, part: Any) -> None:
    part.authPluginName, part.payload = response.plugin.encode(), response.payload


def _read_auth_response(part: Any, code: Code, inside: bool) -> m.AuthResponse:
    return m.AuthResponse(code, part.authPluginName.decode(errors="replace"), part.payload)


def _fill_nothing(response: Any, *rest: Any) -> None:
    """A message without fields."""


# -- the operations ---------------------------------------------------------------------------------------------------


class _Operation(NamedTuple):
    """How one operation is written and read. ``echoed``: the fields of the request that a refusal repeats."""

    number: int
    request: type[Any]
    request_field: str
    fill_request: Callable[[Any, Any, Any], None]
    read_request: Callable[[Any], Any]
    response: type[Any]
    response_field: str
    fill_response: Callable[[Any, Any], None]
    read_response: Callable[[Any, Code, bool], Any]
    echoed: tuple[str, ...] = ("ledgerId",)
    has_status: bool = True


_ENTRY = ("ledgerId", "entryId")

# fmt: off
_OPERATIONS = (
    _Operation(ADD_ENTRY, m.AddEntry, "addRequest", _fill_add, _read_add,
               m.AddEntryResponse, "addResponse", _fill_add_response, _read_add_response, _ENTRY),
    _Operation(READ_ENTRY, m.ReadEntry, "readRequest", _fill_read, _read_read,
               m.ReadEntryResponse, "readResponse", _fill_read_response, _read_read_response, _ENTRY),
    _Operation(READ_LAC, m.ReadLac, "readLacRequest", _fill_of_ledger, _read_of_ledger(m.ReadLac),
               m.ReadLacResponse, "readLacResponse", _fill_lac_response, _read_lac_response),
    _Operation(WRITE_LAC, m.WriteLac, "writeLacRequest", _fill_write_lac, _read_write_lac,
               m.WriteLacResponse, "writeLacResponse", _fill_status_and_ledger, _read_status_and_ledger(m.WriteLacResponse)),
    _Operation(FORCE_LEDGER, m.ForceLedger, "forceLedgerRequest", _fill_of_ledger, _read_of_ledger(m.ForceLedger),
               m.ForceLedgerResponse, "forceLedgerResponse", _fill_status_and_ledger,
               _read_status_and_ledger(m.ForceLedgerResponse)),
    _Operation(LIST_ENTRIES, m.ListEntries, "getListOfEntriesOfLedgerRequest", _fill_of_ledger, _read_of_ledger(m.ListEntries),
               m.ListEntriesResponse, "getListOfEntriesOfLedgerResponse", _fill_list_response, _read_list_response),
    _Operation(GET_BOOKIE_INFO, m.GetBookieInfo, "getBookieInfoRequest", _fill_info, _read_info,
               m.GetBookieInfoResponse, "getBookieInfoResponse", _fill_info_response, _read_info_response, ()),
    _Operation(AUTH, m.Auth, "authRequest", _fill_auth, _read_auth,
               m.AuthResponse, "authResponse", _fill_auth_response, _read_auth_response, (), False),
    _Operation(START_TLS, m.StartTls, "startTLSRequest", _fill_nothing, lambda part: m.StartTls(),
               m.StartTlsResponse, "startTLSResponse", _fill_nothing, lambda part, code, inside: m.StartTlsResponse(code), (), False),
)
# fmt: on
_OF_NUMBER = {operation.number: operation for operation in _OPERATIONS}
_OF_REQUEST = {operation.request: operation for operation in _OPERATIONS}
_OF_RESPONSE = {operation.response: operation for operation in _OPERATIONS}
