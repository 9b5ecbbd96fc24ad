"""What a message says, for a trace: its kind, its ledger, and what of its fields the protocol is about.

Bodies of entries are looked at as far as their headers go; data, master keys and credentials stay out of the trace.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fencepost.store import messages as m
from fencepost.store.wire import is_version_2, v2, v3

RUNS_TOLD = 1_000
"""Runs of entries in the answer to a list of entries that a trace has at the most."""

_ENTRY = struct.Struct(">qqqq")
_LAC = struct.Struct(">qq")

ADD, READ, BATCH_READ, READ_LAC, WRITE_LAC = "add", "read", "batch_read", "read_lac", "write_lac"
FORCE, LIST_ENTRIES, BOOKIE_INFO, AUTH, START_TLS = "force", "list_entries", "bookie_info", "auth", "start_tls"
KINDS = (ADD, READ, BATCH_READ, READ_LAC, WRITE_LAC, FORCE, LIST_ENTRIES, BOOKIE_INFO, AUTH, START_TLS)
"""The kinds of messages; a request and its response are of one kind."""

Key = tuple[Any, ...]


class Told(NamedTuple):
    """What a message says.

    ``protocol``: its version, 3 or 2. ``number``: the one by which version 3, and batch reads of version 2, know a
    response; None otherwise. ``key``: what a request has in common with its response, and with no other request of the
    connection that is under way, but those of version 2 for the same entry. ``flags``: what of a request its response
    is told with. ``size``: bytes of the payload.
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


def request_of(payload: bytes) -> Told:
    """What a request says. Raises :class:`WireError` for what is none, or makes no sense."""
    codec: Any = v2 if is_version_2(payload) else v3
    txn, request = codec.decode_request(payload)
    kind, tell = _REQUESTS[type(request)]
    flags = {name: getattr(request, name) for name in ("recovery", "fence") if hasattr(request, name)}
    return _told(codec, kind, txn, request, None, tell(request), flags, len(payload))


def response_of(payload: bytes) -> Told:
    """What a response says. Raises :class:`WireError` for what is none. Without ledger or entry, only its key tells
    what it is about.
    """
    codec: Any = v2 if is_version_2(payload) else v3
    txn, response = codec.decode_response(payload)
    kind, tell = _RESPONSES[type(response)]
    return _told(codec, kind, txn, response, response.code.name, tell(response), {}, len(payload))


def _told(
    codec: Any,
    kind: str,
    txn: int,
    message: Any,
    code: str | None,
    fields: dict[str, Any],
    flags: dict[str, bool],
    size: int,
) -> Told:
    ledger: int | None = message.ledger if message.ledger >= 0 else None
    entry: int | None = getattr(message, "entry_id", None)
    number = txn if codec is v3 or kind == BATCH_READ else None
    key = (kind, ledger, entry) if number is None else (kind, number)
    return Told(kind, codec.VERSION, number, ledger, entry, code, fields, key, flags, size)


def header_of(body: bytes | None) -> dict[str, int | None]:
    """Id, LAC and length in the header of an entry; None where there is none, or it is too short for one."""
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


def _of_batch(request: m.BatchRead) -> dict[str, Any]:
    return {"fence": request.fence, "max_count": request.max_count, "max_size": request.max_size}


def _of_read_response(response: m.ReadEntryResponse) -> dict[str, Any]:
    max_lac = None if response.lac == m.NO_ENTRY_YET else response.lac
    return {**header_of(response.body), "max_lac": max_lac}


def _of_batch_response(response: m.BatchReadResponse) -> dict[str, Any]:
    headers = [header_of(body) for body in response.bodies]
    found = [header["found"] for header in headers if header["found"] is not None]
    return {"entries": _runs(found), "lac": headers[-1]["lac"] if headers else None}


def _runs(entries: Sequence[int]) -> list[list[int]]:
    """As they came, one after another."""
    runs: list[list[int]] = []
    for entry in entries:
        if runs and entry == runs[-1][1] + 1:
            runs[-1][1] = entry
        else:
            runs.append([entry, entry])
    return runs


def _of_lac_response(response: m.ReadLacResponse) -> dict[str, Any]:
    told = response.lac_body
    last = header_of(response.last_entry)
    lac = _LAC.unpack_from(told)[1] if told is not None and len(told) >= _LAC.size else None
    return {"lac": lac, "last_entry": last["found"], "last_entry_lac": last["lac"]}


def _of_list(response: m.ListEntriesResponse) -> dict[str, Any]:
    return {"entries": [[*run] for run in response.runs[:RUNS_TOLD]], "runs": len(response.runs)}


def _of_info(response: m.GetBookieInfoResponse) -> dict[str, Any]:
    return {"total": response.total, "free": response.free}


def _of_auth(message: m.Auth | m.AuthResponse) -> dict[str, Any]:
    return {"plugin": message.plugin}


def _nothing(message: Any) -> dict[str, Any]:
    return {}


_Tell = Callable[[Any], dict[str, Any]]

_REQUESTS: dict[type[Any], tuple[str, _Tell]] = {
    m.AddEntry: (ADD, _of_add),
    m.ReadEntry: (READ, _of_read),
    m.BatchRead: (BATCH_READ, _of_batch),
    m.ReadLac: (READ_LAC, _nothing),
    m.WriteLac: (WRITE_LAC, lambda request: {"lac": request.lac}),
    m.ForceLedger: (FORCE, _nothing),
    m.ListEntries: (LIST_ENTRIES, _nothing),
    m.GetBookieInfo: (BOOKIE_INFO, _nothing),
    m.Auth: (AUTH, _of_auth),
    m.StartTls: (START_TLS, _nothing),
}
_RESPONSES: dict[type[Any], tuple[str, _Tell]] = {
    m.AddEntryResponse: (ADD, _nothing),
    m.ReadEntryResponse: (READ, _of_read_response),
    m.BatchReadResponse: (BATCH_READ, _of_batch_response),
    m.ReadLacResponse: (READ_LAC, _of_lac_response),
    m.WriteLacResponse: (WRITE_LAC, _nothing),
    m.ForceLedgerResponse: (FORCE, _nothing),
    m.ListEntriesResponse: (LIST_ENTRIES, _of_list),
    m.GetBookieInfoResponse: (BOOKIE_INFO, _of_info),
    m.AuthResponse: (AUTH, _of_auth),
    m.StartTlsResponse: (START_TLS, _nothing),
}
