"""The loops of a bookie, compared with the codecs message by message: the same rows, records and answers."""

from __future__ import annotations

import itertools
import random
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.wire.strategies import ADDS, CODES, IDS, KEYS, REQUESTS_OF_2, REQUESTS_OF_3, TXNS

from fencepost.ledger import messages as m
from fencepost.ledger.disk.journal import framed
from fencepost.ledger.disk.records import encode
from fencepost.ledger.kernels import bookie as loops
from fencepost.ledger.kernels.bookie import ADD, OTHER, READ
from fencepost.ledger.records import EntryAdded
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.wire import v2, v3
from fencepost.ledger.wire.frames import Frames, RefusedError, WireError

LIMIT = 30_000
ROOM = 64
SEED = -(3**39)

VERSIONS = pytest.mark.parametrize("version", [v2, v3])
REQUESTS = {v2: REQUESTS_OF_2, v3: REQUESTS_OF_3}


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data), np.uint8)


def parsed(data: bytes, version: ModuleType, limit: int = LIMIT) -> tuple[np.ndarray, int, int]:
    table = np.full((ROOM, loops.COLUMNS), -7, np.int64)
    count, at, how = loops.parse(array(data), 0, len(data), limit, version.VERSION, table)
    return table[:count], at, how


def payload_of(data: bytes, row: np.ndarray) -> bytes:
    return data[row[loops.FRAME] : row[loops.FRAME] + row[loops.FRAME_SIZE]]


def request_of(data: bytes, row: np.ndarray) -> tuple[int, m.Request]:
    """The request of a row whose kind is not OTHER."""
    kind, txn, ledger, entry_id, lac, flags, body, size, key, key_size = row[: loops.FRAME].tolist()
    if kind == READ:
        return txn, m.ReadEntry(ledger, entry_id)
    recovery, deferred = bool(flags & loops.RECOVERY), bool(flags & loops.DEFERRED_SYNC)
    return txn, m.AddEntry(
        ledger, entry_id, lac, data[body : body + size], data[key : key + key_size], recovery, deferred
    )


def check(data: bytes, version: ModuleType) -> np.ndarray:
    """Compare the rows of a buffer with the requests that the codec decodes."""
    rows, at, how = parsed(data, version)
    frames = Frames(LIMIT)
    if how == loops.REFUSED:
        with pytest.raises(WireError, match="a frame says"):
            Frames(LIMIT).feed(data[at:])
    payloads = frames.feed(data[:at])
    assert frames.held == 0
    if how == loops.PARTIAL:
        assert frames.feed(data[at:]) == []
    assert [payload_of(data, row) for row in rows] == payloads
    for row, payload in zip(rows, payloads, strict=True):
        if row[loops.KIND] != OTHER:
            assert version.decode_request(payload) == request_of(data, row)
    return rows


@VERSIONS
@given(data=st.data())
def test_rows_are_what_the_codec_reads(version: ModuleType, data: st.DataObject) -> None:
    requests = data.draw(st.lists(st.tuples(TXNS, REQUESTS[version]), max_size=8))
    stream = b"".join(version.encode_request(*each) for each in requests)
    rows = check(stream[: data.draw(st.integers(0, len(stream)))], version)
    for row, (_, request) in zip(rows, requests, strict=False):
        is_read = (
            type(request) is m.ReadEntry
            and not request.fence
            and request.previous_lac is None
            and request.entry_id >= 0
        )
        wanted = ADD if type(request) is m.AddEntry and request.entry_id <= m.LAST_ENTRY else READ if is_read else OTHER
        assert row[loops.KIND] == wanted


@VERSIONS
@given(data=st.data())
def test_damaged_requests_are_never_taken_for_others(version: ModuleType, data: st.DataObject) -> None:
    requests = data.draw(st.lists(st.tuples(TXNS, ADDS | REQUESTS[version]), min_size=1, max_size=3))
    stream = bytearray(
        b"".join(version.encode_request(*each) for each in requests if version is v3 or v2.speaks(each[1]))
    )
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=4)):
        if place < len(stream):
            stream[place] = byte
    check(bytes(stream), version)


@VERSIONS
def test_every_byte_of_an_add_may_be_another_one(version: ModuleType) -> None:
    frame = version.encode_request(
        300, m.AddEntry(7, 5, 4, (7).to_bytes(8) + (5).to_bytes(8) + (4).to_bytes(8) + b"data", b"k" * 20)
    )
    for place in range(len(frame)):
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0xFF, frame[place] ^ 1, frame[place] + 1 & 0xFF):
            check(frame[:place] + bytes([byte]) + frame[place + 1 :] + frame, version)


@VERSIONS
@given(st.binary(max_size=100))
def test_any_bytes_may_come(version: ModuleType, data: bytes) -> None:
    check(data, version)
    payload = data[:90]
    frame = len(payload).to_bytes(4) + payload
    if payload:
        (row,) = check(frame, version)
        if row[loops.KIND] == OTHER:
            try:
                version.decode_request(payload)
            except (RefusedError, WireError):
                pass


def test_a_table_without_room_takes_the_rest_later() -> None:
    frame = v3.encode_request(1, m.ReadEntry(1, 1))
    rows, at, how = parsed(frame * (ROOM + 2), v3)
    assert (len(rows), at, how) == (ROOM, ROOM * len(frame), loops.COMPLETE)


@pytest.mark.parametrize("size", [-1, 0, LIMIT + 1, 2**31 - 1])
def test_a_length_out_of_range_is_refused_after_what_came_before(size: int) -> None:
    frame = v3.encode_request(1, m.ReadEntry(1, 1))
    data = frame + size.to_bytes(4, signed=True)
    rows, at, how = parsed(data, v3)
    assert (len(rows), at, how) == (1, len(frame), loops.REFUSED)
    assert parsed(frame + (LIMIT).to_bytes(4), v3)[2] == loops.PARTIAL


def grouped(adds: list[m.AddEntry]) -> tuple[bytes, np.ndarray, np.ndarray, np.ndarray]:
    """A buffer with adds, its rows, and their groups and order."""
    data = b"".join(v3.encode_request(txn, each) for txn, each in enumerate(adds))
    table = np.zeros((len(adds), loops.COLUMNS), np.int64)
    assert loops.parse(array(data), 0, len(data), 1 << 20, 3, table)[0] == len(adds)
    slots = np.full(256, -1)
    groups, places, order = (
        np.zeros((len(adds), loops.GROUP_COLUMNS), np.int64),
        np.zeros(len(adds), np.int64),
        np.zeros(len(adds), np.int64),
    )
    count, stop = loops.group(array(data), table, 0, len(adds), SEED, slots, groups, places, order)
    assert (slots == -1).all()
    return data, table, groups[:count], order[:stop]


FEW = st.builds(
    lambda ledger, entry_id, lac, rest, key, recovery, deferred: m.AddEntry(
        ledger,
        entry_id,
        lac,
        b"".join(n.to_bytes(8, signed=True) for n in (ledger, entry_id, lac)) + rest,
        key,
        recovery,
        deferred,
    ),
    st.sampled_from([0, 1, 2, 64, 1 << 40, (1 << 63) - 1]),
    st.integers(0, 9),
    st.integers(-1, 9),
    st.binary(max_size=9),
    st.sampled_from([b"a" * 20] * 7 + [b"b" * 20, b"a" * 19]),
    st.sampled_from([False] * 7 + [True]),
    st.sampled_from([False] * 7 + [True]),
)


@given(st.lists(FEW, min_size=1, max_size=40))
def test_groups_are_adds_of_one_ledger_key_and_flags_in_their_order(adds: list[m.AddEntry]) -> None:
    expected: dict[tuple[int, bytes, bool, bool], list[int]] = {}
    for place, add in enumerate(adds):
        if any(
            key[0] == add.ledger and key[1:] != (add.master_key, add.recovery, add.deferred_sync) for key in expected
        ):
            break
        expected.setdefault((add.ledger, add.master_key, add.recovery, add.deferred_sync), []).append(place)
    data, table, groups, order = grouped(adds)
    assert len(groups) == len(expected) and len(order) == sum(map(len, expected.values()))
    for group, ((ledger, key, recovery, deferred), members) in zip(groups.tolist(), expected.items(), strict=True):
        of_ledger, flags, at, size, lac, low, high, start, stop, total = group
        assert order[start:stop].tolist() == members
        assert (of_ledger, data[at : at + size]) == (ledger, key)
        assert flags == recovery * loops.RECOVERY + deferred * loops.DEFERRED_SYNC
        ids = [adds[n].entry_id for n in members]
        assert (lac, low, high) == (max(adds[n].lac for n in members), min(ids), max(ids))
        assert total == sum(len(adds[n].body) for n in members)
    numbers = np.zeros((len(order), 3), np.int64)
    loops.ids(table, order, numbers)
    assert numbers.tolist() == [[n, adds[n].entry_id, adds[n].ledger] for n in order.tolist()]


def test_many_ledgers_at_once() -> None:
    drawn = random.Random(7)
    ledgers = [drawn.randrange(1 << 62) for _ in range(100)]
    adds = [m.AddEntry(n, 0, -1, n.to_bytes(8) + bytes(8) + b"\xff" * 8, b"k" * 20) for n in ledgers]
    _, _, groups, order = grouped(adds)
    assert groups[:, loops.GROUP_LEDGER].tolist() == ledgers and order.tolist() == list(range(100))


@given(st.lists(FEW, min_size=1, max_size=20), st.randoms())
def test_entries_are_laid_out_as_the_journal_has_them(adds: list[m.AddEntry], drawn: random.Random) -> None:
    data, table, _, order = grouped(adds)
    some = order[: drawn.randint(1, len(order))]
    taken = [adds[n] for n in some.tolist()]
    rows = loops.lay_out(
        array(data), table, some, sum(len(add.body) for add in taken), any(add.recovery for add in taken)
    )
    assert rows.recovery is any(add.recovery for add in taken)
    assert rows.data.tobytes() == framed(
        encode(EntryAdded(add.ledger, add.entry_id, add.lac, add.body)) for add in taken
    )
    assert rows.table[:, :3].tolist() == [[add.ledger, add.entry_id, add.lac] for add in taken]
    assert [rows.body(n) for n in range(len(rows))] == [add.body for add in taken]


@VERSIONS
@given(IDS, st.lists(st.tuples(TXNS, IDS), max_size=5), CODES)
def test_answers_to_adds_are_those_of_the_codec(
    version: ModuleType, ledger: int, requests: list[tuple[int, int]], code: Code
) -> None:
    out = np.zeros(10 + loops.ANSWER * len(requests), np.uint8)
    number = v2._NUMBERS[code] if version is v2 else code.value
    numbers = np.array([(*each, ledger) for each in requests], np.int64).reshape(-1, 3)
    end = loops.answer_adds(out, 10, numbers, ledger, number, version.VERSION)
    expected = [version.encode_response(txn, m.AddEntryResponse(ledger, entry_id, code)) for txn, entry_id in requests]
    assert out[10:end].tobytes() == b"".join(expected)


def test_loops_take_no_other_types_and_so_are_never_compiled_again() -> None:
    with pytest.raises(TypeError):
        loops.stretch(np.zeros((1, 1), np.int32), 0, 1)


@given(KEYS)
def test_a_key_is_compared_as_a_whole(key: bytes) -> None:
    adds = [m.AddEntry(1, 0, -1, bytes(7) + b"\1" + bytes(16), each) for each in (key, key[:-1] + bytes([key[-1] ^ 1]))]
    assert len(grouped(adds)[3]) == 1 and len(grouped(adds[:1] * 2)[3]) == 2


@VERSIONS
@given(
    st.lists(st.tuples(TXNS, IDS, IDS, st.binary(max_size=300)), min_size=1, max_size=6),
    CODES,
    st.one_of(st.just(-1), IDS),
    st.randoms(),
)
def test_answers_to_reads_are_those_of_the_codec(
    version: ModuleType, reads: list[tuple[int, int, int, bytes]], code: Code, lac: int, drawn: random.Random
) -> None:
    bodies = [array(body) for *_, body in reads]
    found = np.array(
        [[0, entry_id, body.ctypes.data, len(body)] for (_, entry_id, _, _), body in zip(reads, bodies, strict=True)],
        np.int64,
    )
    places = [place for place in range(len(reads)) if drawn.random() < 0.8]
    out = np.zeros(loops.ANSWER * len(reads) + sum(map(len, bodies)), np.uint8)
    requests = np.array([each[:3] for each in reads], np.int64)
    which, number = np.array(places, np.int64), version.number_of(code)
    end = loops.answer_reads(out, 0, requests, which, found, number, lac, version.VERSION, np.empty(0, np.int64))
    expected = []
    for place in places:
        txn, entry_id, ledger, body = reads[place]
        response = m.ReadEntryResponse(ledger, entry_id, code, lac, body if code is Code.OK else None)
        expected.append(version.encode_response(txn, response))
    assert out[:end].tobytes() == b"".join(expected)
    if code is Code.OK and places:
        cuts = np.empty(len(places), np.int64)
        end = loops.answer_reads(out, 0, requests, which, found, number, lac, version.VERSION, cuts)
        starts = [0, *cuts.tolist(), end]
        parts = [out[start:stop].tobytes() for start, stop in itertools.pairwise(starts)]
        sent = [part + reads[place][3] for part, place in zip(parts, places, strict=False)]
        assert b"".join([*sent, parts[-1]]) == b"".join(expected)
