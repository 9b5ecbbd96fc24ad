"""Every message is encoded to bytes and decoded to the same message. Other bytes are refused, with no other error."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger.wire.strategies import (
    ADDS,
    BYTES,
    KEYS,
    LACS,
    PLAIN_READS,
    READ_RESPONSES,
    REQUESTS_OF_2,
    REQUESTS_OF_3,
    RESPONSES_OF_2,
    RESPONSES_OF_3,
    TXNS,
)

from fencepost.ledger import messages as m
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import is_version_2, schema, v2, v3
from fencepost.ledger.wire.frames import HEAD_SIZE, LENGTH_SIZE, Frames, RefusedError, WireError
from fencepost.ledger.wire.varint import varint

VERSIONS = pytest.mark.parametrize("version", [v2, v3])


def payload(frame: bytes) -> bytes:
    (only,) = Frames(2**30).feed(frame)
    return only


# -- there and back ---------------------------------------------------------------------------------------------------


@given(TXNS, REQUESTS_OF_3)
def test_a_request_of_version_3_comes_back(txn: int, request: m.Request) -> None:
    sent = payload(v3.encode_request(txn, request))
    if isinstance(request, m.ReadEntry) and not request.fence:
        assert request.master_key is None
    assert v3.decode_request(sent) == (txn, request) and not is_version_2(sent)


@given(TXNS, REQUESTS_OF_2)
def test_a_request_of_version_2_comes_back(txn: int, request: m.Request) -> None:
    assert v2.speaks(request)
    sent = payload(v2.encode_request(txn, request))
    got, arrived = v2.decode_request(sent)
    assert arrived == request and got == (txn if isinstance(request, m.BatchRead) else 0) and is_version_2(sent)


@given(TXNS, RESPONSES_OF_3)
def test_a_response_of_version_3_comes_back(txn: int, response: m.Response) -> None:
    assert v3.decode_response(payload(v3.encode_response(txn, response))) == (txn, response)


@given(TXNS, RESPONSES_OF_2)
def test_a_response_of_version_2_comes_back(txn: int, response: m.Response) -> None:
    got, arrived = v2.decode_response(payload(v2.encode_response(txn, response)))
    assert arrived == response and got == (txn if isinstance(response, m.BatchReadResponse) else 0)


@given(TXNS, ADDS | PLAIN_READS | st.builds(m.WriteLac, TXNS, LACS, BYTES, KEYS))
def test_the_hot_requests_have_the_bytes_that_protobuf_gives_them(txn: int, request: m.Request) -> None:
    assert v3.encode_request(txn, request) == v3.encode_request_plainly(txn, request)


@given(
    TXNS,
    st.builds(m.AddEntryResponse, TXNS, TXNS, st.sampled_from(Code))
    | st.builds(m.WriteLacResponse, TXNS, st.sampled_from((Code.OK, Code.FENCED)))
    | READ_RESPONSES,
)
def test_the_hot_responses_have_the_bytes_that_protobuf_gives_them(txn: int, response: m.Response) -> None:
    assert v3.encode_response(txn, response) == v3.encode_response_plainly(txn, response)


@given(st.integers(-(2**63), 2**64 - 1))
def test_a_varint_is_protobufs(number: int) -> None:
    field = {"requested": number} if number < 2**63 else {}
    if field:
        made = schema.Request(getBookieInfoRequest=field).getBookieInfoRequest.SerializeToString()
        assert made == b"\x08" + varint(number)
    else:
        assert schema.Request(header={"txnId": number}).header.SerializePartialToString() == b"\x18" + varint(number)


def test_what_a_version_has_no_words_for_is_not_sent_in_it() -> None:
    add = m.AddEntry(1, 2, 1, bytes(24), bytes(20), deferred_sync=True)
    for request in (add, m.ReadEntry(1, -1, previous_lac=2), m.ReadLac(1), m.StartTls()):
        assert not v2.speaks(request)
        with pytest.raises(TypeError, match=f"version 2 has no such {type(request).__name__}"):
            v2.encode_request(1, request)
    with pytest.raises(TypeError, match="version 2 has no ReadLacResponse"):
        v2.encode_response(1, m.ReadLacResponse(1, Code.OK))
    with pytest.raises(TypeError, match="version 3 has no BatchRead"):
        v3.encode_request(1, m.BatchRead(1, 2))
    with pytest.raises(TypeError, match="version 3 has no BatchReadResponse"):
        v3.encode_response(1, m.BatchReadResponse(1, 2, Code.OK))


@given(TXNS, ADDS, st.integers(-1, 63))
def test_the_head_of_an_add_says_what_it_is_about_unless_it_is_a_recoverys(
    txn: int, add: m.AddEntry, damage: int
) -> None:
    for version in (v3, v2) if v2.speaks(add) else (v3,):
        head = (payload(version.encode_request(txn, add)) + bytes(HEAD_SIZE))[:HEAD_SIZE]
        about = (0 if version is v2 else txn, add.ledger, add.entry_id)
        assert version.decode_add_head(head) == (None if add.recovery else about)
        damaged = bytearray(head)
        damaged[damage] ^= 0x80
        version.decode_add_head(bytes(damaged))  # raises nothing


@given(KEYS, st.sampled_from([m.AddEntry(1, 2, 1, bytes(24), b""), m.ReadEntry(1, 2), m.BatchRead(1, 2)]))
def test_an_answer_of_version_2_is_known_by_what_it_is_about(key: bytes, request: m.Request) -> None:
    answers: dict[type[Any], m.Response] = {
        m.AddEntry: m.AddEntryResponse(1, 2, Code.OK),
        m.ReadEntry: m.ReadEntryResponse(1, 2, Code.NO_ENTRY),
        m.BatchRead: m.BatchReadResponse(1, 2, Code.OK),
    }
    keys = {v2.key_of(txn, answer) for txn in (7, 8) for answer in answers.values()}
    assert v2.key_of(7, request) == v2.key_of(7, answers[type(request)])
    assert len(keys) == 4  # batch reads alone have numbers


# -- what is refused --------------------------------------------------------------------------------------------------


def refused(version: ModuleType, frame: bytes) -> tuple[int, m.Response]:
    """The answer to a request that is refused."""
    with pytest.raises(RefusedError) as caught:
        version.decode_request(payload(frame))
    answer: tuple[int, m.Response] = version.decode_response(payload(caught.value.answer))
    return answer


def raw_request(operation: int, version: int = 3, **parts: Any) -> bytes:
    """A request of version 3. Any of its fields may be wrong."""
    header = {"version": version, "operation": operation, "txnId": 5}
    data: bytes = schema.Request(header=header, **parts).SerializePartialToString()
    return len(data).to_bytes(4, "big") + data


def test_an_unknown_operation_of_version_3_is_answered() -> None:
    for operation in (3, 4, 12, 99):
        with pytest.raises(RefusedError, match=f"BAD_REQUEST: operation {operation} is not served") as caught:
            v3.decode_request(payload(raw_request(operation)))
        response = schema.Response.FromString(payload(caught.value.answer))
        assert (response.header.operation, response.header.txnId, response.status) == (operation, 5, 404)


def test_another_version_is_answered_with_the_ids_of_the_request() -> None:
    add = {"ledgerId": 7, "entryId": 8, "masterKey": bytes(20), "body": struct.pack(">qqq", 7, 8, 7)}
    assert refused(v3, raw_request(v3.ADD_ENTRY, version=2, addRequest=add)) == (
        5,
        m.AddEntryResponse(7, 8, Code.BAD_VERSION),
    )
    old = bytearray(v2.encode_request(0, m.ReadEntry(7, 8)))
    old[LENGTH_SIZE] = 1
    assert refused(v2, bytes(old)) == (0, m.ReadEntryResponse(7, 8, Code.BAD_VERSION))
    old = bytearray(v2.encode_request(9, m.BatchRead(7, 8)))
    old[LENGTH_SIZE] = 3
    assert refused(v2, bytes(old)) == (9, m.BatchReadResponse(7, 8, Code.BAD_VERSION))


BODY = struct.pack(">qqq", 7, 8, 7)
KEY = bytes(20)


@pytest.mark.parametrize(
    ("operation", "parts"),
    [
        (v3.ADD_ENTRY, {}),
        (v3.ADD_ENTRY, {"addRequest": {"ledgerId": 7, "entryId": 8, "masterKey": KEY}}),
        (v3.ADD_ENTRY, {"addRequest": {"ledgerId": 7, "entryId": 8, "body": BODY}}),
        (v3.ADD_ENTRY, {"addRequest": {"ledgerId": 7, "entryId": 9, "masterKey": KEY, "body": BODY}}),
        (v3.ADD_ENTRY, {"addRequest": {"ledgerId": 6, "entryId": 8, "masterKey": KEY, "body": BODY}}),
        (
            v3.ADD_ENTRY,
            {"addRequest": {"ledgerId": -1, "entryId": 8, "masterKey": KEY, "body": struct.pack(">qqq", -1, 8, 7)}},
        ),
        (
            v3.ADD_ENTRY,
            {
                "addRequest": {
                    "ledgerId": 7,
                    "entryId": -4096,
                    "masterKey": KEY,
                    "body": struct.pack(">qqq", 7, -4096, 7),
                }
            },
        ),
        (v3.ADD_ENTRY, {"addRequest": {"ledgerId": 7, "entryId": 8, "masterKey": KEY, "body": BODY[:23]}}),
        (v3.READ_ENTRY, {}),
        (v3.READ_ENTRY, {"readRequest": {"ledgerId": 7}}),
        (v3.READ_ENTRY, {"readRequest": {"ledgerId": -7, "entryId": 1}}),
        (v3.READ_ENTRY, {"readRequest": {"ledgerId": 7, "entryId": -2}}),
        (v3.READ_ENTRY, {"readRequest": {"ledgerId": 7, "entryId": 3, "previousLAC": 2, "flag": 2}}),
        (v3.READ_ENTRY, {"readRequest": {"ledgerId": 7, "entryId": -1, "previousLAC": -2, "flag": 2}}),
        (v3.READ_LAC, {}),
        (v3.READ_LAC, {"readLacRequest": {"ledgerId": -1}}),
        (v3.WRITE_LAC, {"writeLacRequest": {"ledgerId": 7, "lac": 3, "body": b""}}),
        (v3.WRITE_LAC, {"writeLacRequest": {"ledgerId": 7, "lac": -3, "masterKey": KEY, "body": b""}}),
        (v3.FORCE_LEDGER, {}),
        (v3.LIST_ENTRIES, {"getListOfEntriesOfLedgerRequest": {}}),
        (v3.AUTH, {}),
    ],
)
def test_a_request_of_version_3_that_makes_no_sense_is_answered(operation: int, parts: Any) -> None:
    txn, answer = refused(v3, raw_request(operation, **parts))
    assert (txn, answer.code) == (5, Code.BAD_REQUEST)


def test_a_request_of_version_2_that_makes_no_sense_is_answered() -> None:
    negative = v2.encode_request(0, m.AddEntry(1, -5, 1, struct.pack(">qqq", 1, -5, 1), KEY))
    assert refused(v2, negative) == (0, m.AddEntryResponse(1, -5, Code.BAD_REQUEST))
    assert refused(v2, v2.encode_request(0, m.ReadEntry(1, -2))) == (0, m.ReadEntryResponse(1, -2, Code.BAD_REQUEST))
    assert refused(v2, v2.encode_request(6, m.BatchRead(-1, 2))) == (6, m.BatchReadResponse(-1, 2, Code.BAD_REQUEST))


def test_a_ledger_in_an_unknown_state_is_a_failed_bookie_in_version_2() -> None:
    for sent in (
        m.AddEntryResponse(1, 2, Code.UNKNOWN_LEDGER_STATE),
        m.ReadEntryResponse(1, 2, Code.UNKNOWN_LEDGER_STATE),
    ):
        _, arrived = v2.decode_response(payload(v2.encode_response(0, sent)))
        assert arrived.code is Code.IO_ERROR


def test_a_ledger_in_an_unknown_state_is_understood_in_version_2() -> None:
    answer = struct.pack(">BBHiqq", 2, v2.READ_ENTRY, 0, 107, 1, 2)
    assert v2.decode_response(answer) == (0, m.ReadEntryResponse(1, 2, Code.UNKNOWN_LEDGER_STATE))


def test_a_body_that_comes_with_a_refusal_is_no_entry() -> None:
    header = {"version": 3, "operation": v3.READ_ENTRY, "txnId": 5}
    part = {"status": 507, "ledgerId": 1, "entryId": 2, "body": b"something"}
    response = schema.Response(header=header, status=507, readResponse=part)
    assert v3.decode_response(response.SerializeToString()) == (5, m.ReadEntryResponse(1, 2, Code.UNKNOWN_LEDGER_STATE))
    assert v2.decode_response(struct.pack(">BBHiqq", 2, v2.READ_ENTRY, 0, 2, 1, 2) + b"some") == (
        0,
        m.ReadEntryResponse(1, 2, Code.NO_ENTRY),
    )


def test_the_inner_status_counts_where_the_outer_one_is_ok() -> None:
    header = {"version": 3, "operation": v3.ADD_ENTRY, "txnId": 5}
    part = {"status": 504, "ledgerId": 1, "entryId": 2}
    for outer in (0, 504):
        response = schema.Response(header=header, status=outer, addResponse=part).SerializeToString()
        assert v3.decode_response(response) == (5, m.AddEntryResponse(1, 2, Code.FENCED))
    unknown = schema.Response(header=header, status=599, addResponse=part).SerializeToString()
    assert v3.decode_response(unknown) == (5, m.AddEntryResponse(1, 2, Code.IO_ERROR))
    bare = schema.Response(header=header, status=404).SerializeToString()
    assert v3.decode_response(bare) == (5, m.AddEntryResponse(-1, -1, Code.BAD_REQUEST))
    with pytest.raises(WireError, match="no addResponse"):
        v3.decode_response(schema.Response(header=header, status=0).SerializeToString())


# -- hostile bytes ----------------------------------------------------------------------------------------------------


def taken(version: ModuleType, data: bytes) -> None:
    """Bytes decode to a message or raise :class:`WireError`. The answer to a refused request is a frame."""
    for decode in (version.decode_request, version.decode_response):
        answers = []
        try:
            decode(data)
        except RefusedError as refusal:
            answers.append(refusal.answer)
        except WireError:
            continue
        for answer in answers:
            assert payload(answer)


@VERSIONS
@given(data=st.binary(max_size=80))
def test_any_bytes_are_a_message_or_a_wire_error(version: ModuleType, data: bytes) -> None:
    taken(version, data)
    taken(version, bytes([2, data[0] % 9 if data else 1, 0, 0]) + data)
    taken(version, b"\x0a\x06\x08\x03\x10" + data)


@VERSIONS
@given(data=st.data())
@settings(max_examples=200)
def test_a_damaged_message_is_a_message_or_a_wire_error(version: ModuleType, data: st.DataObject) -> None:
    requests, responses = (REQUESTS_OF_2, RESPONSES_OF_2) if version is v2 else (REQUESTS_OF_3, RESPONSES_OF_3)
    if data.draw(st.booleans()):
        frame = version.encode_request(3, data.draw(requests))
    else:
        frame = version.encode_response(3, data.draw(responses))
    damaged = bytearray(payload(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, min(len(damaged), 120) - 1))] = data.draw(st.integers(0, 255))
    taken(version, bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
    taken(version, bytes(damaged))
