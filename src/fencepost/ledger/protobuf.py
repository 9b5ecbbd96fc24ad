"""Protobuf messages made at import from tables of field names and numbers, without generated code.

    classes = message_classes(
        "example", {"Ping": {"txn": (1, "required uint64"), "way": (2, "optional Way"), "hops": (3, "repeated Hop")},
        "Hop": {"to": (1, "optional string")}}, {"Way": {"THERE": 1, "BACK": 2}},
    )
    classes["Ping"](txn=7, way=2, hops=[{"to": "b1"}]).SerializeToString()

The messages are proto2: an unset field is not sent, a required field must be set, and fields with unknown numbers are
kept. Types are protobuf's own (``int32``, ``uint64``, ``bool``, ``string``, ``bytes``, ...) or names of messages and
enums in the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields = Mapping[str, tuple[int, str]]
"""The fields of a message by name: number, then ``required``, ``optional`` or ``repeated``, then the type."""

_FIELD = descriptor_pb2.FieldDescriptorProto


def message_classes(
    package: str, messages: Mapping[str, Fields], enums: Mapping[str, Mapping[str, int]] | None = None
) -> dict[str, Any]:
    """The classes of the messages by name. ``package`` keeps the names of one table apart from those of others."""
    enums = enums or {}
    file = descriptor_pb2.FileDescriptorProto(
        name=f"fencepost/{package}.proto", package=f"fencepost.{package}", syntax="proto2"
    )
    for name, values in enums.items():
        file.enum_type.add(name=name, value=[{"name": each, "number": number} for each, number in values.items()])
    for name, fields in messages.items():
        made = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            label, _, type_name = kind.partition(" ")
            field = made.field.add(name=field_name, number=number, label=getattr(_FIELD, f"LABEL_{label.upper()}"))
            if type_name in messages or type_name in enums:
                field.type = _FIELD.TYPE_MESSAGE if type_name in messages else _FIELD.TYPE_ENUM
                field.type_name = f".fencepost.{package}.{type_name}"
            else:
                field.type = getattr(_FIELD, f"TYPE_{type_name.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"fencepost.{package}.{name}"))
        for name in messages
    }
