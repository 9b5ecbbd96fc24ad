"""Kafka's binary format: against bytes of Kafka's own classes, round trips, and malformed bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.quorum.kafka import messages
from fencepost.quorum.kafka.messages import (
    ADD_RAFT_VOTER,
    API_VERSIONS,
    APIS,
    DESCRIBE_CLUSTER,
    DESCRIBE_QUORUM,
    REMOVE_RAFT_VOTER,
    Api,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from fencepost.quorum.kafka.schema import (
    ZERO_UUID,
    Array,
    Field,
    KafkaDecoder,
    Kind,
    Malformed,
    Struct,
    default,
    encode,
)

FROM_KAFKA = json.loads((Path(__file__).parent / "kafka_bytes.json").read_text())
"""Written with Kafka's classes by ``python -m interop.kafka_codec``."""
BY_NAME = {api.name: api for api in APIS.values()}
EVERY = [(api, version) for api in APIS.values() for version in range(api.oldest, api.newest + 1)]


@pytest.mark.parametrize("case", FROM_KAFKA, ids=lambda case: f"{case['api']}{case['of']}-{case['version']}")
def test_bytes_are_those_of_kafka(case: dict[str, Any]) -> None:
    api, version, body, data = BY_NAME[case["api"]], case["version"], case["body"], bytes.fromhex(case["bytes"])
    if case["of"] == "Request":
        assert encode_request(api, version, 7, "who", body) == data
        found = decode_request(data)
        assert (found.api, found.version, found.correlation, found.client, found.body) == (api, version, 7, "who", body)
    else:
        assert encode_response(api, version, 7, body) == data
        assert decode_response(api, version, data) == (7, body)


def test_every_message_of_every_version_is_among_them() -> None:
    assert {(each["api"], each["of"], each["version"]) for each in FROM_KAFKA} == {
        (api.name, of, version) for api, version in EVERY for of in ("Request", "Response")
    }


# -- round trips -------------------------------------------------------------------------------------------------------

NUMBERS = {
    Kind.INT8: st.integers(-128, 127),
    Kind.INT16: st.integers(-(2**15), 2**15 - 1),
    Kind.UINT16: st.integers(0, 2**16 - 1),
    Kind.INT32: st.integers(-(2**31), 2**31 - 1),
    Kind.INT64: st.integers(-(2**63), 2**63 - 1),
    Kind.BOOL: st.booleans(),
    Kind.STRING: st.text(max_size=200),
    Kind.UUID: st.binary(min_size=16, max_size=16).map(
        lambda drawn: base64.urlsafe_b64encode(drawn).decode().rstrip("=")
    ),
}


def values(fields: Struct, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Values of a structure. Fields that the version lacks have their defaults."""

    def of(field: Field) -> st.SearchStrategy[Any]:
        if version < field.since:
            return st.just(default(field))
        if isinstance(field.of, Struct):
            return values(field.of, version)
        if isinstance(field.of, Array):
            return st.lists(of(Field(field.name, field.of.of)), max_size=3)
        return st.none() | NUMBERS[field.of] if field.nullable else NUMBERS[field.of]

    return st.fixed_dictionaries({field.name: of(field) for field in fields})


@given(st.data(), st.sampled_from(EVERY), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=50))
def test_requests_and_answers_come_back_as_they_were(
    data: Any, of: tuple[Api, int], number: int, client: str | None
) -> None:
    api, version = of
    asked = data.draw(values(api.request, version))
    found = decode_request(encode_request(api, version, number, client, asked))
    assert (found.correlation, found.client, found.body, found.is_known) == (number, client, asked, True)
    answer = data.draw(values(api.response, version))
    assert decode_response(api, version, encode_response(api, version, number, answer)) == (number, answer)


@given(st.data(), st.sampled_from(EVERY))
def test_what_is_cut_short_or_too_long_is_malformed(data: Any, of: tuple[Api, int]) -> None:
    api, version = of
    whole = encode_request(api, version, 1, "me", data.draw(values(api.request, version)))
    for end in range(len(whole)):
        with pytest.raises(Malformed):
            decode_request(whole[:end])
    with pytest.raises(Malformed, match="1 bytes too many"):
        decode_request(whole + b"\0")


@given(st.sampled_from(EVERY), st.binary(max_size=300))
def test_any_bytes_are_a_request_or_malformed(of: tuple[Api, int], data: bytes) -> None:
    api, version = of
    head = encode_request(api, version, 1, None, {})[:10]
    for each in (data, head + data):
        try:
            decode_request(each)
        except Malformed:
            continue


# -- single rules ------------------------------------------------------------------------------------------------------

PLAIN = Struct(
    Field("Name", Kind.STRING), Field("Late", Kind.INT8, since=2, default=5), Field("Maybe", Kind.INT16, since=1, tag=3)
)


def test_tagged_fields_are_left_out_at_their_default_and_skipped_if_unknown() -> None:
    assert encode(PLAIN, {"Name": "x"}, 2, True) == b"\x02x\x05\x00"
    assert encode(PLAIN, {"Name": "x", "Maybe": 258}, 1, True) == b"\x02x\x01\x03\x02\x01\x02"
    found = KafkaDecoder(b"\x02x\x05\x03\x01\x01\xff\x03\x02\x01\x02\x09\x00").struct(PLAIN, 2, True)
    assert found == {"Name": "x", "Late": 5, "Maybe": 258}
    assert KafkaDecoder(b"\x00\x01x").struct(PLAIN, 0, False) == {"Name": "x", "Late": 5, "Maybe": 0}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x02x\x05\x02\x03\x02\x00\x01\x03\x02\x00\x01", "the tag 3 after 3"),
        (b"\x02x\x05\x02\x04\x00\x03\x02\x00\x01", "the tag 3 after 4"),
        (b"\x02x\x05\x01\x03\x03\x00\x01\x00", "a field Maybe that is not of 3 bytes"),
        (b"\x02x\x05\x01\x03\x05\x00\x01", "ends in a tagged field of 5 bytes"),
        (b"\x00\x05\x00", "a Name of -1 bytes"),
        (b"\x03\xff\xff\x05\x00", "a Name that is not UTF-8"),
        (b"\x80\x80\x80\x80\x80\x00", "a length of more than 5 bytes"),
        (b"\xff\xff\xff\xff\x0fx", "too early"),
    ],
)
def test_malformed_structures(data: bytes, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        KafkaDecoder(data).struct(PLAIN, 2, True)


def test_a_list_has_no_more_elements_than_there_are_bytes() -> None:
    many = Struct(Field("Each", Array(Struct(Field("On", Kind.BOOL)))))
    with pytest.raises(Malformed, match="has 3 Each in 2 bytes"):
        KafkaDecoder(b"\x04\x00\x00").struct(many, 0, True)
    with pytest.raises(Malformed, match="has -1 Each"):
        KafkaDecoder(b"\x00\x00").struct(many, 0, True)
    with pytest.raises(Malformed, match="2,147,483,647 Each"):
        KafkaDecoder(b"\x7f\xff\xff\xff").struct(many, 0, False)


@pytest.mark.parametrize(
    ("api", "body", "complaint"),
    [
        (ADD_RAFT_VOTER, {"VoterDirectoryId": "short"}, "'short' is no id"),
        (ADD_RAFT_VOTER, {"VoterDirectoryId": "A" * 20 + "!!"}, "is no id"),
        (ADD_RAFT_VOTER, {"Listeners": [{"Port": 65_536}]}, "Port cannot be 65536"),
        (ADD_RAFT_VOTER, {"VoterID": 1}, "there is no field VoterID"),
        (DESCRIBE_CLUSTER, {"EndpointType": None}, "EndpointType cannot be null"),
        (REMOVE_RAFT_VOTER, {"ClusterId": "x" * 32_768}, "a string has at most 32,767 bytes"),
    ],
)
def test_what_can_not_be_written(api: Api, body: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        encode_request(api, api.newest, 1, "me", body)


def test_requests_that_are_not_answered() -> None:
    with pytest.raises(Malformed, match="a request of the number 3, which is not answered here"):
        decode_request(b"\x00\x03\x00\x0c" + bytes(20))
    with pytest.raises(Malformed, match="DescribeQuorum 3, of which the versions 0 to 2 are answered"):
        decode_request(b"\x00\x37\x00\x03" + bytes(20))
    with pytest.raises(Malformed, match="7 bytes, which is less than a header"):
        decode_request(bytes(7))


def test_api_versions_of_a_version_to_come_is_known_for_what_it_is() -> None:
    to_come = API_VERSIONS._replace(
        newest=99, request=Struct(*API_VERSIONS.request, Field("Else", Kind.STRING, since=99))
    )
    found = decode_request(encode_request(to_come, 99, 5, "me", {"Else": "this"}))
    assert (found.api, found.version, found.correlation, found.body, found.is_known) == (API_VERSIONS, 99, 5, {}, False)


def test_the_header_of_an_answer_has_tagged_fields_but_that_of_api_versions() -> None:
    assert encode_response(DESCRIBE_QUORUM, 0, 1, {})[:5] == b"\0\0\0\1\0"
    assert encode_response(API_VERSIONS, 4, 1, {"ErrorCode": 35})[:6] == b"\0\0\0\1\0\x23"
    assert messages.encode_request(API_VERSIONS, 2, 1, None, {}) == b"\0\x12\0\2\0\0\0\1\xff\xff"
    assert ZERO_UUID == base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")
