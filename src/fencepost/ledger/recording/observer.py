"""Decodes messages for a trace: their kind, ledger and protocol fields.

Only the header of an entry's body is read. Data, master keys and credentials stay out of the trace.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencepost.ledger import messages as m
from fencepost.ledger.wire import is_version_2, v2, v3

MOST_RUNS = 1_000
"""The most runs of a list of entries that a trace records."""

_ENTRY = struct.Struct(">qqqq")
_LAC = struct.Struct(">qq")

ADD, READ, BATCH_READ, READ_LAC, WRITE_LAC = "add", "read", "batch_read", "read_lac", "write_lac"
FORCE, LIST_ENTRIES, BOOKIE_INFO, AUTH, START_TLS = "force", "list_entries", "bookie_info", "auth", "start_tls"
KINDS = (ADD, READ, BATCH_READ, READ_LAC, WRITE_LAC, FORCE, LIST_ENTRIES, BOOKIE_INFO, AUTH, START_TLS)
"""The kinds of messages. A request and its response have the same kind."""

Key = tuple[Any, ...]
_FieldsOf = Callable[[Any], dict[str, Any]]
_Kinds = dict[type[Any], tuple[str, _FieldsOf]]


class ObservedMessage(NamedTuple):
    """A message for the trace.

    ``protocol``: version 3 or 2. ``number``: the transaction id that matches a response to its request in version 3 and
    in batch reads of version 2; None otherwise. ``key``: equal for a request and its response, and different for all
    other requests in flight on the connection, except those of version 2 for the same entry. ``flags``: flags of a
    request that are also recorded with its response. ``size``: bytes of the payload.
    """

    kind: str
    protocol: int
    number: int | None
    ledger: int | None
    entry: int | None
    code: str | None
    fields: dict[str, Any]
    key: Key
    flags: dict[str, bool]
    size: int


def request_of(payload: bytes) -> ObservedMessage:
    """Decode a request. Raises :class:`WireError` if it is invalid."""
    codec: Any = v2 if is_version_2(payload) else v3
    txn, request = codec.decode_request(payload)
    return _observed(codec, txn, request, _REQUESTS, len(payload))


def response_of(payload: bytes) -> ObservedMessage:
    """Decode a response. Raises :class:`WireError` if it is invalid. A response without ledger or entry is matched to
    its request by the key alone.
    """
    codec: Any = v2 if is_version_2(payload) else v3
    txn, response = codec.decode_response(payload)
    return _observed(codec, txn, response, _RESPONSES, len(payload))


def _observed(codec: Any, txn: int, message: Any, kinds: _Kinds, size: int) -> ObservedMessage:
    kind, fields_of = kinds[type(message)]
    ledger: int | None = message.ledger if message.ledger >= 0 else None
    entry: int | None = getattr(message, "entry_id", None)
    code: str | None = None if kinds is _REQUESTS else message.code.name
    flags = {name: getattr(message, name) for name in ("recovery", "fence") if hasattr(message, name)}
    number = txn if codec is v3 or kind == BATCH_READ else None
    key = (kind, ledger, entry) if number is None else (kind, number)
    return ObservedMessage(kind, codec.VERSION, number, ledger, entry, code, fields_of(message), key, flags, size)


def header_of(body: bytes | None) -> dict[str, int | None]:
    """The id, LAC and length in an entry's header; None if there is no complete header."""
    if body is None or len(body) < _ENTRY.size:
        return {"found": None, "lac": None, "length": None}
    _, entry, lac, length = _ENTRY.unpack_from(body)
    return {"found": entry, "lac": lac, "length": length}


def _of_add(request: m.AddEntry) -> dict[str, Any]:
    length = header_of(request.body)["length"]
    return {"recovery": request.recovery, "lac": request.lac, "length": length, "deferred_sync": request.deferred_sync}


def _of_read(request: m.ReadEntry) -> dict[str, Any]:
    if request.previous_lac is None:
        return {"fence": request.fence}
    return {
        "fence": False,
        "previous_lac": request.previous_lac,
        "wait": request.wait // 1_000,
        "piggyback": request.piggyback,
    }


def _of_read_response(response: m.ReadEntryResponse) -> dict[str, Any]:
    max_lac = None if response.lac == m.NO_ENTRY_YET else response.lac
    return {**header_of(response.body), "max_lac": max_lac}


def _of_batch_response(response: m.BatchReadResponse) -> dict[str, Any]:
    headers = [header_of(body) for body in response.bodies]
    found = [header["found"] for header in headers if header["found"] is not None]
    return {"entries": _runs(found), "lac": headers[-1]["lac"] if headers else None}


def _runs(entries: Sequence[int]) -> list[list[int]]:
    """Entries as runs, in order of arrival."""
    runs: list[list[int]] = []
    for entry in entries:
        if runs and entry == runs[-1][1] + 1:
            runs[-1][1] = entry
        else:
            runs.append([entry, entry])
    return runs


def _of_lac_response(response: m.ReadLacResponse) -> dict[str, Any]:
    body = response.lac_body
    last = header_of(response.last_entry)
    lac = _LAC.unpack_from(body)[1] if body is not None and len(body) >= _LAC.size else None
    return {"lac": lac, "last_entry": last["found"], "last_entry_lac": last["lac"]}


def _of_list(response: m.ListEntriesResponse) -> dict[str, Any]:
    return {"entries": [[*run] for run in response.runs[:MOST_RUNS]], "runs": len(response.runs)}


def _fields(*names: str) -> _FieldsOf:
    return lambda message: {name: getattr(message, name) for name in names}


_REQUESTS: _Kinds = {
    m.AddEntry: (ADD, _of_add),
    m.ReadEntry: (READ, _of_read),
    m.BatchRead: (BATCH_READ, _fields("fence", "max_count", "max_size")),
    m.ReadLac: (READ_LAC, _fields()),
    m.WriteLac: (WRITE_LAC, _fields("lac")),
    m.ForceLedger: (FORCE, _fields()),
    m.ListEntries: (LIST_ENTRIES, _fields()),
    m.GetBookieInfo: (BOOKIE_INFO, _fields()),
    m.Auth: (AUTH, _fields("plugin")),
    m.StartTls: (START_TLS, _fields()),
}
_RESPONSES: _Kinds = {
    m.AddEntryResponse: (ADD, _fields()),
    m.ReadEntryResponse: (READ, _of_read_response),
    m.BatchReadResponse: (BATCH_READ, _of_batch_response),
    m.ReadLacResponse: (READ_LAC, _of_lac_response),
    m.WriteLacResponse: (WRITE_LAC, _fields()),
    m.ForceLedgerResponse: (FORCE, _fields()),
    m.ListEntriesResponse: (LIST_ENTRIES, _of_list),
    m.GetBookieInfoResponse: (BOOKIE_INFO, _fields("total", "free")),
    m.AuthResponse: (AUTH, _fields("plugin")),
    m.StartTlsResponse: (START_TLS, _fields()),
}
