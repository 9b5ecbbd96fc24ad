"""Entries as Pulsar writes them, built here byte by byte from the documented field numbers."""

from __future__ import annotations

import re
import struct
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from fencepost.spark.ledgers.decoders import decoder_of, type_of
from fencepost.spark.ledgers.pulsar import LARGEST, pulsar


def varint(number: int) -> bytes:
    head = bytearray()
    while number > 127:
        head.append(number & 127 | 128)
        number >>= 7
    return bytes([*head, number])


def protobuf(*fields: tuple[int, Any]) -> bytes:
    """A message of fields: numbers as varints, bytes and text with their lengths."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(varint(number << 3 | 2) + varint(len(data)) + data)
    return b"".join(parts)


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def metadata(*more: tuple[int, Any]) -> bytes:
    return protobuf((1, "producer-1"), (2, 41), (3, 1_700_000_000_123), *more)


def entry(metadata: bytes, payload: bytes, checksum: bool = True, broker: bytes | None = None) -> bytes:
    whole = sized(metadata) + payload
    if checksum:
        whole = b"\x0e\x01" + struct.pack(">I", google_crc32c.value(whole)) + whole
    return whole if broker is None else b"\x0e\x02" + sized(broker) + whole


def decoded(*entries: bytes) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = pulsar(pa.array(entries, pa.binary())).to_pylist()
    return found


def at(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def message(payload: bytes | None, **different: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "key": None,
        "properties": [],
        "publish_time": at(1_700_000_000_123),
        "event_time": None,
        "sequence_id": 41,
        "producer": "producer-1",
    }
    return {**plain, "payload": payload, **different}


SINGLE = message(b"hello", key=b"k", properties=[("a", "2"), ("b", "")], event_time=at(5))
FIELDS = (
    (4, protobuf((1, "a"), (2, "1"))),
    (4, protobuf((1, "a"), (2, "2"))),
    (4, protobuf((1, "b"), (2, ""))),
    (6, "k"),
    (12, 5),
    (16, b"schema"),
    (99, 1),
)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("broker", [None, protobuf((1, 1_700_000_000_000), (2, 7))])
def test_a_message_by_itself(checksum: bool, broker: bytes | None) -> None:
    plain = entry(metadata(*FIELDS), b"hello", checksum, broker)
    assert decoded(plain, entry(metadata(), b"")) == [[SINGLE], [message(b"")]]
    assert decoded(entry(metadata((6, "AP8="), (17, 1), (25, 1)), b"")) == [[message(None, key=b"\0\xff")]]
    assert decoded(entry(metadata((6, "k"), (30, 1)), b"x")) == [[message(b"x")]]


BATCH = b"".join(
    (
        sized(protobuf((1, protobuf((1, "p"), (2, "v"))), (2, "k1"), (3, 3), (5, 9), (8, 77))) + b"one",
        sized(protobuf((3, 4), (4, 1))) + b"gone",
        sized(protobuf((3, 0), (9, 1))),
        sized(protobuf((2, "AAE="), (3, 3), (6, 1))) + b"two",
    )
)
OF_BATCH = [
    message(b"one", key=b"k1", properties=[("p", "v")], event_time=at(9), sequence_id=77),
    message(None),
    message(b"two", key=b"\0\1"),
]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_by_every_codec(codec: int) -> None:
    by_arrow = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
    payload = {0: BATCH, 2: zlib.compress(BATCH)}.get(codec) or pa.compress(BATCH, by_arrow[codec], asbytes=True)
    fields = ((8, codec), (9, len(BATCH)), (11, 4))
    assert decoded(entry(metadata(*fields), payload)) == [OF_BATCH]
    if codec:
        for damaged, size in (
            (payload, len(BATCH) - 1),
            (payload, len(BATCH) + 1),
            (payload[:-3], len(BATCH)),
            (b"", len(BATCH)),
        ):
            with pytest.raises(ValueError, match="cannot be decompressed|has not the"):
                decoded(entry(metadata((8, codec), (9, size), (11, 4)), damaged))
        with pytest.raises(ValueError, match="says that it has"):
            decoded(entry(metadata((8, codec), (9, LARGEST + 1)), payload))


def test_a_batch_of_one_is_a_batch_and_markers_have_no_message() -> None:
    one = sized(protobuf((3, 3))) + b"one"
    assert decoded(entry(metadata((11, 1)), one), entry(metadata((20, 10)), b"marker")) == [[message(b"one")], []]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends before the size of the metadata: it is none of Pulsar's"),
        (b"hello, world", "where 1751477356 of metadata should be: it is none of Pulsar's"),
        (sized(b"\xff\xff"), "the metadata of a message cannot be read: the entry is none of Pulsar's"),
        (sized(protobuf((1, "p"))), "the metadata of a message cannot be read"),
        (
            entry(metadata(), b"x")[:-1] + b"y",
            "does not have the checksum that its producer has given it: it is damaged",
        ),
        (b"\x0e\x01\0", "does not have the checksum"),
        (b"\x0e\x02\0\0\1\0", "where 256 of broker entry metadata should be"),
        (entry(metadata((13, protobuf((1, "secret"), (2, b"x")))), b"x"), "a message is encrypted, with key secret"),
        (entry(metadata((27, 3), (29, 0)), b"x"), "a message is in 3 chunks"),
        (entry(metadata((8, 9), (9, 1)), b"x"), "compressed by codec 9 of Pulsar, which is not known here"),
        (
            entry(metadata((11, 2)), sized(protobuf((3, 1))) + b"x"),
            "ends before the size of the metadata of a message of a batch",
        ),
        (
            entry(metadata((11, 1)), sized(protobuf((3, 5))) + b"x"),
            "a message of a batch has 5 bytes, and its entry has 1",
        ),
        (entry(metadata((6, "a"), (17, 1)), b"x"), "the key of a message is not base 64"),
    ],
)
def test_what_can_not_be_read_is_said_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        decoded(data)
    assert "\n" not in str(refused.value)


@given(some.one_of(some.binary(max_size=60), some.binary(max_size=40).map(lambda data: entry(metadata((11, 2)), data))))
def test_any_bytes_are_messages_or_one_clear_error(data: bytes) -> None:
    says = ""
    try:
        decoded(data)
    except ValueError as error:
        says = str(error)
    assert "\n" not in says and len(says) < 250


def test_the_type_is_the_one_that_spark_takes() -> None:
    found = pulsar(pa.array([entry(metadata(*FIELDS), b"hello"), None], pa.binary()))
    kind = from_arrow_type(found.type)
    assert decoder_of("pulsar") is pulsar and kind.simpleString() == type_of("pulsar").replace(" ", "")
    of_spark = to_arrow_schema(StructType([StructField("value", kind)]), timezone="UTC").field(0).type
    assert found.cast(of_spark).to_pylist() == [[SINGLE], None]
