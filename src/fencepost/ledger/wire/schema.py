"""The protobuf messages of version 3, built on import from a table of names and numbers.

Names, numbers and types are those of BookKeeper's ``BookkeeperProtocol.proto``, with two differences. Enumerations are
integers, so that a message with an unknown operation or status can still be answered. Strings are bytes, so that any
content is accepted.
"""

from __future__ import annotations

from typing import Any

from fencepost.ledger.protobuf import message_classes

_STATUS_AND_LEDGER = {"status": (1, "required int32"), "ledgerId": (2, "required int64")}
_LEDGER = {"ledgerId": (1, "required int64")}
_AUTH = {"authPluginName": (1, "required bytes"), "payload": (2, "required bytes")}

MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "BKPacketHeader": {
        "version": (1, "required int32"),
        "operation": (2, "required int32"),
        "txnId": (3, "required uint64"),
        "priority": (4, "optional uint32"),
    },
    "ReadRequest": {
        "ledgerId": (1, "required int64"),
        "entryId": (2, "required int64"),
        "masterKey": (3, "optional bytes"),
        "previousLAC": (4, "optional int64"),
        "timeOut": (5, "optional int64"),
        "flag": (100, "optional int32"),
    },
    "AddRequest": {
        "ledgerId": (1, "required int64"),
        "entryId": (2, "required int64"),
        "masterKey": (3, "required bytes"),
        "body": (4, "required bytes"),
        "writeFlags": (5, "optional int32"),
        "flag": (100, "optional int32"),
    },
    "AuthMessage": _AUTH,
    "WriteLacRequest": {
        "ledgerId": (1, "required int64"),
        "lac": (2, "required int64"),
        "masterKey": (3, "required bytes"),
        "body": (4, "required bytes"),
    },
    "ReadLacRequest": _LEDGER,
    "GetBookieInfoRequest": {"requested": (1, "optional int64")},
    "StartTLSRequest": {},
    "ForceLedgerRequest": _LEDGER,
    "GetListOfEntriesOfLedgerRequest": _LEDGER,
    "ReadResponse": {
        **_STATUS_AND_LEDGER,
        "entryId": (3, "required int64"),
        "body": (4, "optional bytes"),
        "maxLAC": (5, "optional int64"),
        "lacUpdateTimestamp": (6, "optional int64"),
    },
    "AddResponse": {**_STATUS_AND_LEDGER, "entryId": (3, "required int64")},
    "WriteLacResponse": _STATUS_AND_LEDGER,
    "ReadLacResponse": {
        **_STATUS_AND_LEDGER,
        "lacBody": (3, "optional bytes"),
        "lastEntryBody": (4, "optional bytes"),
    },
    "GetBookieInfoResponse": {
        "status": (1, "required int32"),
        "totalDiskCapacity": (2, "optional int64"),
        "freeDiskSpace": (3, "optional int64"),
    },
    "StartTLSResponse": {},
    "ForceLedgerResponse": _STATUS_AND_LEDGER,
    "GetListOfEntriesOfLedgerResponse": {
        **_STATUS_AND_LEDGER,
        "availabilityOfEntriesOfLedger": (3, "optional bytes"),
    },
    "Request": {
        "header": (1, "required BKPacketHeader"),
        "readRequest": (100, "optional ReadRequest"),
        "addRequest": (101, "optional AddRequest"),
        "authRequest": (102, "optional AuthMessage"),
        "writeLacRequest": (103, "optional WriteLacRequest"),
        "readLacRequest": (104, "optional ReadLacRequest"),
        "getBookieInfoRequest": (105, "optional GetBookieInfoRequest"),
        "startTLSRequest": (106, "optional StartTLSRequest"),
        "forceLedgerRequest": (107, "optional ForceLedgerRequest"),
        "getListOfEntriesOfLedgerRequest": (108, "optional GetListOfEntriesOfLedgerRequest"),
    },
    "Response": {
        "header": (1, "required BKPacketHeader"),
        "status": (2, "required int32"),
        "readResponse": (100, "optional ReadResponse"),
        "addResponse": (101, "optional AddResponse"),
        "authResponse": (102, "optional AuthMessage"),
        "writeLacResponse": (103, "optional WriteLacResponse"),
        "readLacResponse": (104, "optional ReadLacResponse"),
        "getBookieInfoResponse": (105, "optional GetBookieInfoResponse"),
        "startTLSResponse": (106, "optional StartTLSResponse"),
        "forceLedgerResponse": (107, "optional ForceLedgerResponse"),
        "getListOfEntriesOfLedgerResponse": (108, "optional GetListOfEntriesOfLedgerResponse"),
    },
}
"""Every message: its fields, each with its number, label and type."""

_CLASSES = message_classes("wire", MESSAGES)
Request: Any = _CLASSES["Request"]
Response: Any = _CLASSES["Response"]
AuthMessage: Any = _CLASSES["AuthMessage"]
