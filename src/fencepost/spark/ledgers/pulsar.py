"""The decoder ``pulsar``: messages of Apache Pulsar, whose brokers keep a topic in ledgers of BookKeeper.

The format of an entry is that of Pulsar's ``Commands`` and `its specification
<https://pulsar.apache.org/docs/developing-binary-protocol/>`_:

==========================  =======================================================================================
bytes                       what
==========================  =======================================================================================
2, 4, size                  0x0e02, a size, and a ``BrokerEntryMetadata``, if brokers add one
2, 4                        0x0e01, and the CRC32C of all that follows, if the producer has sent one
4, size                     a size, and a ``MessageMetadata``
the rest                    the payload, which may be compressed
==========================  =======================================================================================

The payload is one message, or a batch of ``num_messages_in_batch`` messages. Each message of a batch has a size of four
bytes, a ``SingleMessageMetadata``, and ``payload_size`` bytes. All numbers are big endian.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Any

import pyarrow as pa

from fencepost.ledger.protobuf import message_classes

BROKER, CHECKSUM = b"\x0e\x02", b"\x0e\x01"
"""The magic numbers of the optional parts of an entry."""

LARGEST = 1 << 28
"""The most bytes of a decompressed payload. A broker's largest message is 5 MiB by default."""

_KEY_VALUE = {"key": (1, "required string"), "value": (2, "required string")}

_MESSAGES = message_classes(
    "pulsar",
    {
        "KeyValue": _KEY_VALUE,
        "EncryptionKeys": {"key": (1, "required string")},
        "MessageMetadata": {
            "producer_name": (1, "required string"),
            "sequence_id": (2, "required uint64"),
            "publish_time": (3, "required uint64"),
            "properties": (4, "repeated KeyValue"),
            "partition_key": (6, "optional string"),
            "compression": (8, "optional int32"),
            "uncompressed_size": (9, "optional uint32"),
            "num_messages_in_batch": (11, "optional int32"),
            "event_time": (12, "optional uint64"),
            "encryption_keys": (13, "repeated EncryptionKeys"),
            "partition_key_b64_encoded": (17, "optional bool"),
            "marker_type": (20, "optional int32"),
            "null_value": (25, "optional bool"),
            "num_chunks_from_msg": (27, "optional int32"),
            "null_partition_key": (30, "optional bool"),
        },
        "SingleMessageMetadata": {
            "properties": (1, "repeated KeyValue"),
            "partition_key": (2, "optional string"),
            "payload_size": (3, "required int32"),
            "compacted_out": (4, "optional bool"),
            "event_time": (5, "optional uint64"),
            "partition_key_b64_encoded": (6, "optional bool"),
            "sequence_id": (8, "optional uint64"),
            "null_value": (9, "optional bool"),
            "null_partition_key": (10, "optional bool"),
        },
    },
)
_Metadata, _Single = _MESSAGES["MessageMetadata"], _MESSAGES["SingleMessageMetadata"]

NONE, ZLIB = 0, 2
CODECS = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
"""Arrow's codecs by Pulsar's numbers."""

_SIZE = struct.Struct(">I")


def pulsar(values: Any) -> Any:
    """The messages of entries, as an array for each entry: its single message, or those of its batch. Markers of
    brokers have none.

    Raises :class:`ValueError` for an entry that is damaged or not Pulsar's, and for payloads that are encrypted, chunks
    of a larger message, or compressed by an unknown codec.
    """
    timestamp = pa.timestamp("us", tz="UTC")
    message = {
        "key": pa.binary(),
        "properties": pa.map_(pa.string(), pa.string()),
        "publish_time": timestamp,
        "event_time": timestamp,
        "sequence_id": pa.int64(),
        "producer": pa.string(),
        "payload": pa.binary(),
    }
    kind = pa.list_(pa.field("element", pa.struct(list(message.items()))))
    return pa.array([None if each is None else _messages(each) for each in values.to_pylist()], kind)


pulsar.type = (  # type: ignore[attr-defined]
    "array<struct<key: binary, properties: map<string, string>, publish_time: timestamp, event_time: timestamp,"
    " sequence_id: bigint, producer: string, payload: binary>>"
)


def _messages(entry: bytes) -> list[dict[str, Any]]:
    """The messages of an entry."""
    at = 0
    if entry[:2] == BROKER:
        at = 6 + _size(entry, 2, "broker entry metadata")
    if entry[at : at + 2] == CHECKSUM:
        _check(entry, at + 2)
        at += 6
    size = _size(entry, at, "metadata")
    metadata = _parsed(_Metadata, entry[at + 4 : at + 4 + size], "metadata of a message")
    if metadata.HasField("marker_type"):
        return []
    if metadata.encryption_keys:
        raise ValueError(
            f"a message is encrypted, with key {metadata.encryption_keys[0].key}: only producers and consumers that"
            " have it can read it"
        )
    if metadata.num_chunks_from_msg > 1:
        raise ValueError(
            f"a message is in {metadata.num_chunks_from_msg} chunks, each in an entry of its own: only whole messages"
            " are read"
        )
    payload = _decompressed(entry[at + 4 + size :], metadata.compression, metadata.uncompressed_size)
    if not metadata.HasField("num_messages_in_batch"):
        return [_message(metadata, metadata, payload)]
    return _batch(metadata, payload)


def _batch(metadata: Any, payload: bytes) -> list[dict[str, Any]]:
    """The messages of a batch, without those that were compacted out."""
    messages, at = [], 0
    for _ in range(metadata.num_messages_in_batch):
        size = _size(payload, at, "metadata of a message of a batch")
        single = _parsed(_Single, payload[at + 4 : at + 4 + size], "metadata of a message of a batch")
        begin = at + 4 + size
        at = begin + single.payload_size
        if single.payload_size < 0 or at > len(payload):
            raise ValueError(
                f"a message of a batch has {single.payload_size} bytes, and its entry has {len(payload) - begin}"
            )
        if not single.compacted_out:
            messages.append(_message(metadata, single, payload[begin:at]))
    return messages


def _message(metadata: Any, single: Any, payload: bytes) -> dict[str, Any]:
    """A message. ``single`` has its own metadata, in a batch or not."""
    return {
        "key": _key(single),
        "properties": [*{each.key: each.value for each in single.properties}.items()],
        "publish_time": metadata.publish_time * 1000,
        "event_time": single.event_time * 1000 if single.event_time else None,
        "sequence_id": single.sequence_id if single.HasField("sequence_id") else metadata.sequence_id,
        "producer": metadata.producer_name,
        "payload": None if single.null_value else payload,
    }


def _key(single: Any) -> bytes | None:
    if single.null_partition_key or not single.HasField("partition_key"):
        return None
    if not single.partition_key_b64_encoded:
        return bytes(single.partition_key.encode())
    try:
        return base64.b64decode(single.partition_key)
    except binascii.Error:
        raise ValueError(f"the key of a message is not base 64, as it says: {single.partition_key[:40]!r}") from None


def _size(data: bytes, at: int, what: str) -> int:
    """Decode a size of four bytes, and check that so much data follows."""
    if at + 4 > len(data):
        raise ValueError(f"an entry ends before the size of the {what}: it is none of Pulsar's")
    size: int = _SIZE.unpack_from(data, at)[0]
    if at + 4 + size > len(data):
        raise ValueError(
            f"an entry has {len(data) - at - 4} bytes where {size} of {what} should be: it is none of Pulsar's"
        )
    return size


def _check(entry: bytes, at: int) -> None:
    """Raise unless the checksum at an offset is that of everything after it."""
    import google_crc32c

    if at + 4 > len(entry) or _SIZE.unpack_from(entry, at)[0] != google_crc32c.value(entry[at + 4 :]):
        raise ValueError("an entry does not have the checksum that its producer has given it: it is damaged")


def _parsed(kind: Any, data: bytes, what: str) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message = kind.FromString(data)
        if message.IsInitialized():
            return message
    except DecodeError:
        pass
    raise ValueError(f"the {what} cannot be read: the entry is none of Pulsar's")


def _decompressed(payload: bytes, codec: int, size: int) -> bytes:
    if codec == NONE:
        return payload
    if codec != ZLIB and codec not in CODECS:
        raise ValueError(f"a message is compressed by codec {codec} of Pulsar, which is not known here")
    if size > LARGEST:
        raise ValueError(
            f"a message says that it has {size:,} bytes when it is not compressed, and {LARGEST:,} are read at most"
        )
    try:
        if codec == ZLIB:
            stream = zlib.decompressobj()
            data = stream.decompress(payload, size + 1)
            is_all = stream.eof and len(data) == size
        else:
            data = pa.decompress(payload, size, CODECS[codec], asbytes=True)
            is_all = size == 0 or not _fits(payload, size - 1, CODECS[codec])
    except _DAMAGED as error:
        raise ValueError(f"a message cannot be decompressed by codec {codec} of Pulsar: {error}") from None
    if not is_all:
        raise ValueError(f"a message has not the {size} bytes that it should have when it is not compressed")
    return bytes(data)


_DAMAGED = (OSError, ValueError, zlib.error)


def _fits(payload: bytes, size: int, codec: str) -> bool:
    """Return whether a payload decompresses to at most ``size`` bytes. Arrow fills a shorter payload with garbage, so
    the size must be known.
    """
    try:
        pa.decompress(payload, size, codec, asbytes=True)
    except _DAMAGED:
        return False
    return True
