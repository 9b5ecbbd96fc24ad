"""The bytes that BookKeeper's client (4.17.3, in both versions) and bookies exchanged.

``recorded.txt`` has payloads in hexadecimal. A line beginning with > is a request, < a response, # a description. The
last sections have requests that no client of BookKeeper makes, and the answers of its bookies.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.ledger import messages as m
from fencepost.ledger.entries import Digests, master_key
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.metadata import DigestType
from fencepost.ledger.wire import is_version_2, v2, v3
from fencepost.ledger.wire.frames import LENGTH_SIZE, RefusedError, WireError

LINES = (Path(__file__).parent / "recorded.txt").read_text().splitlines()

OTHERS_WERE_MADE_BY_HAND = "v3 unknown ledger"


def sections() -> dict[str, list[tuple[str, bytes]]]:
    found: dict[str, list[tuple[str, bytes]]] = {}
    for line in LINES:
        if line.startswith("#"):
            here = found[line[2:]] = []
        else:
            here.append((line[0], bytes.fromhex(line[2:])))
    return found


SECTIONS = sections()
OF_CLIENTS = list(SECTIONS)[: list(SECTIONS).index(OTHERS_WERE_MADE_BY_HAND)]


@pytest.mark.parametrize("section", OF_CLIENTS)
def test_what_was_said_is_understood_and_said_again_in_the_same_bytes(section: str) -> None:
    for way, payload in SECTIONS[section]:
        version = v2 if is_version_2(payload) else v3
        if way == ">":
            txn, request = version.decode_request(payload)
            assert version.encode_request(txn, request)[LENGTH_SIZE:] == payload
        else:
            txn, response = version.decode_response(payload)
            assert version.encode_response(txn, response)[LENGTH_SIZE:] == payload


def test_all_kinds_of_messages_were_recorded() -> None:
    kinds = set()
    for section in OF_CLIENTS:
        for way, payload in SECTIONS[section]:
            version = v2 if is_version_2(payload) else v3
            decode = version.decode_request if way == ">" else version.decode_response
            kinds.add((version.VERSION, type(decode(payload)[1])))
    in_both = {(2, m.AddEntry), (2, m.ReadEntry), (3, m.AddEntry), (3, m.ReadEntry)}
    assert (
        in_both | {(2, m.BatchRead), (3, m.ReadLac), (3, m.WriteLac), (3, m.ForceLedger), (3, m.GetBookieInfo)} <= kinds
    )


def test_the_entries_are_opened_and_made_again() -> None:
    digests = Digests(DigestType.CRC32C, b"pw")
    opened = 0
    for section in ("v3 write", "v2 write"):
        for way, payload in SECTIONS[section]:
            if way == ">":
                version = v2 if is_version_2(payload) else v3
                _, add = version.decode_request(payload)
                assert isinstance(add, m.AddEntry) and add.master_key == master_key(b"pw")
                entry = digests.open_entry(add.body, add.ledger, add.entry_id)
                assert entry is not None and entry.lac == add.lac and digests.entry_body(entry) == add.body
                opened += 1
    assert opened >= 8


@pytest.mark.parametrize(
    "section", ["v3 auth and unknown operations", "v3 wrong version", "v3 polls that make no sense", "v2 errors"]
)
def test_what_is_refused_here_is_answered_there_in_the_same_bytes(section: str) -> None:
    said = SECTIONS[section]
    answers = [
        (refusal(payload), answer)
        for (way, payload), (way_back, answer) in zip(said, said[1:], strict=False)
        if (way, way_back) == (">", "<") and payload[:2] != b"\x01\x02"  # BookKeeper serves reads of version 1
    ]
    refused = [(ours, theirs) for ours, theirs in answers if ours]
    assert refused and all(ours == theirs for ours, theirs in refused)


def refusal(payload: bytes) -> bytes:
    """The answer to a refused request, as a payload. Nothing for an accepted one."""
    try:
        (v2 if is_version_2(payload) else v3).decode_request(payload)
    except RefusedError as refused:
        return refused.answer[LENGTH_SIZE:]
    return b""


def test_an_operation_of_version_2_that_there_is_not_ends_the_connection_here_and_there() -> None:
    *_, (way, last) = SECTIONS["v2 errors"]
    assert way == ">"
    with pytest.raises(WireError, match="operation 9 of version 2"):
        v2.decode_request(last)


def test_a_fencing_read_without_a_key_is_one() -> None:
    requests = [payload for way, payload in SECTIONS["v3 wrong key and fence"] if way == ">"]
    assert v3.decode_request(requests[-1]) == (11, m.ReadEntry(900, 0, True, None))
    answers = [v3.decode_response(payload)[1].code for way, payload in SECTIONS["v3 wrong key and fence"] if way == "<"]
    assert answers == [Code.OK, Code.UNAUTHORIZED, Code.UNAUTHORIZED, Code.OK, Code.FENCED, Code.OK, Code.UNAUTHORIZED]
