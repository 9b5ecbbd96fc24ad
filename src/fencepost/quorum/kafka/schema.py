"""Kafka's binary format: encoding and decoding of structures whose fields depend on the version.

A structure is described as data. Values are plain: integers, booleans, strings, lists, and a ``dict`` for a structure.
The format is that of Kafka's *protocol guide*, with big-endian integers. In *flexible* versions a length is a varint of
the length plus one, and every structure ends with its tagged fields; unknown ones are skipped (KIP-482).
"""

from __future__ import annotations

import base64
import binascii
import enum
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

Value = Mapping[str, Any]
"""A structure: values by field name. Missing fields have their defaults."""


class Malformed(Exception):
    """Bytes do not have the expected format."""


class Kind(enum.Enum):
    """The type of a field that is neither a structure nor a list."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    INT64 = "q"
    UUID = "16s"
    """16 bytes; the value is their 22 characters of URL-safe base64."""
    STRING = ""
    """UTF-8, or None where the field may be null."""


class Field(NamedTuple):
    """A field of a structure. ``since``: the first version that has it. ``tag``: its number if it is a tagged field."""

    name: str
    of: Kind | Struct | Array
    since: int = 0
    nullable: bool = False
    default: Any = ...
    tag: int | None = None


class Struct(tuple[Field, ...]):
    """A structure: fields in encoding order."""

    def __new__(cls, *fields: Field) -> Struct:
        return super().__new__(cls, fields)


class Array(NamedTuple):
    """A list of one type."""

    of: Kind | Struct


ZERO_UUID = "A" * 22

_NUMBERS: dict[Kind, struct.Struct] = {
    kind: struct.Struct(">" + kind.value) for kind in Kind if kind not in (Kind.UUID, Kind.STRING)
}
_DEFAULTS: dict[Kind, Any] = {Kind.BOOL: False, Kind.UUID: ZERO_UUID, Kind.STRING: ""}


def default(field: Field) -> Any:
    """The default value of a field."""
    if field.default is not ...:
        return field.default
    if isinstance(field.of, Kind):
        return _DEFAULTS.get(field.of, 0)
    return [] if isinstance(field.of, Array) else {each.name: default(each) for each in field.of}


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(fields: Struct, value: Value, version: int, flexible: bool) -> bytes:
    """Encode a structure. Raises ``ValueError`` for a value that its field cannot hold, and for an unknown field."""
    out = bytearray()
    _write_struct(out, fields, value, version, flexible)
    return bytes(out)


def _write_struct(out: bytearray, fields: Struct, value: Value, version: int, flexible: bool) -> None:
    unknown = value.keys() - {field.name for field in fields}
    if unknown:
        raise ValueError(f"there is no field {', '.join(sorted(unknown))}")
    tagged = []
    for field in fields:
        if version < field.since:
            continue
        value_of_field = value.get(field.name, default(field))
        if field.tag is None:
            _write(out, field, value_of_field, version, flexible)
        elif value_of_field != default(field):
            each = bytearray()
            _write(each, field, value_of_field, version, flexible)
            tagged.append((field.tag, each))
    if flexible:
        _write_length(out, len(tagged))
        for tag, each in sorted(tagged):
            _write_length(out, tag)
            _write_length(out, len(each))
            out += each


def _write(out: bytearray, field: Field, value: Any, version: int, flexible: bool) -> None:
    of = field.of
    if value is None and not field.nullable:
        raise ValueError(f"{field.name} cannot be null")
    if isinstance(of, Struct):
        _write_struct(out, of, value, version, flexible)
    elif isinstance(of, Array):
        if flexible:
            _write_length(out, len(value) + 1)
        else:
            out += struct.pack(">i", len(value))
        for each in value:
            _write(out, Field(field.name, of.of), each, version, flexible)
    elif of is Kind.STRING:
        _write_string(out, value, flexible)
    elif of is Kind.UUID:
        out += _uuid(value)
    else:
        try:
            out += _NUMBERS[of].pack(value)
        except struct.error as error:
            raise ValueError(f"{field.name} cannot be {value!r}: {error}") from error


def _write_string(out: bytearray, value: str | None, flexible: bool) -> None:
    data = b"" if value is None else value.encode()
    if len(data) > 0x7FFF:
        raise ValueError(f"a string has at most 32,767 bytes, and not {len(data):,}")
    if flexible:
        _write_length(out, 0 if value is None else len(data) + 1)
    else:
        out += struct.pack(">h", -1 if value is None else len(data))
    out += data


def _write_length(out: bytearray, length: int) -> None:
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)


def _uuid(text: str) -> bytes:
    try:
        decoded = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is no id: {error}") from error
    if len(decoded) != 16:
        raise ValueError(f"{text!r} is no id, which is 16 bytes")
    return decoded


# -- reading -----------------------------------------------------------------------------------------------------------


class KafkaDecoder:
    """Decodes values in sequence. Methods raise :class:`Malformed`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of remaining bytes."""
        return len(self._data) - self._at

    def struct(self, fields: Struct, version: int, flexible: bool) -> dict[str, Any]:
        """Decode a structure, with all fields. Fields that the version does not have get their defaults."""
        values = {field.name: default(field) for field in fields if version < field.since or field.tag is not None}
        for field in fields:
            if version >= field.since and field.tag is None:
                values[field.name] = self._value(field, version, flexible)
        if flexible:
            tags = {field.tag: field for field in fields if version >= field.since}
            self._tagged(tags, values, version)
        return values

    def end(self) -> None:
        """Check that nothing is left."""
        if self.left:
            raise Malformed(f"has {self.left:,} bytes too many")

    def _tagged(self, tags: Mapping[int | None, Field], values: dict[str, Any], version: int) -> None:
        last = -1
        for _ in range(self._length()):
            tag, size = self._length(), self._length()
            if tag <= last:
                raise Malformed(f"has the tag {tag} after {last}")
            last, end = tag, self.left - size
            if end < 0:
                raise Malformed(f"ends in a tagged field of {size:,} bytes")
            if tag in tags:  # never None, since the field is tagged
                values[tags[tag].name] = self._value(tags[tag], version, True)
                if self.left != end:
                    raise Malformed(f"has a field {tags[tag].name} that is not of {size:,} bytes")
            else:
                self._take(size)

    def _value(self, field: Field, version: int, flexible: bool) -> Any:
        of = field.of
        if isinstance(of, Struct):
            return self.struct(of, version, flexible)
        if isinstance(of, Array):
            count = self._length() - 1 if flexible else self._number(Kind.INT32)
            if not 0 <= count <= self.left:  # each takes at least a byte
                raise Malformed(f"has {count:,} {field.name} in {self.left:,} bytes")
            each = Field(field.name, of.of)
            return [self._value(each, version, flexible) for _ in range(count)]
        if of is Kind.STRING:
            length = self._length() - 1 if flexible else self._number(Kind.INT16)
            if length < 0:
                if length == -1 and field.nullable:
                    return None
                raise Malformed(f"has a {field.name} of {length} bytes")
            try:
                return self._take(length).decode()
            except UnicodeDecodeError as error:
                raise Malformed(f"has a {field.name} that is not UTF-8") from error
        if of is Kind.UUID:
            return base64.urlsafe_b64encode(self._take(16)).decode().rstrip("=")
        return self._number(of)

    def _number(self, of: Kind) -> Any:
        packed = _NUMBERS[of]
        (value,) = packed.unpack(self._take(packed.size))
        return value

    def _length(self) -> int:
        length = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return length
        raise Malformed("has a length of more than 5 bytes")

    def _take(self, size: int) -> bytes:
        if size > self.left:
            raise Malformed(f"ends {size - self.left:,} bytes too early")
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken
