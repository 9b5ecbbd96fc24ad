"""The loops of a client, compared with their plain twins: the codecs of version 3, and the roles' plain loops."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger.wire.strategies import RESPONSES_OF_3

from fencepost.ledger.client.loops import LARGE, MODULES, AddRows, Blocks, Loops, RowLoops
from fencepost.ledger.client.pipeline import Pipeline
from fencepost.ledger.entries import Digests, Entry
from fencepost.ledger.kernels import client as rows
from fencepost.ledger.messages import AddEntry, AddEntryResponse, ReadEntry, ReadEntryResponse, Response
from fencepost.ledger.roles.adds import PLAIN
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.ensembles import is_in_write_set
from fencepost.ledger.rules.metadata import DigestType
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.wire.frames import WireError, cut
from fencepost.ledger.wire.v3 import decode_response, encode_request, encode_response

LIMIT = 1 << 20
IDS = st.integers(0, (1 << 63) - 1000)
DATA = st.lists(st.binary(max_size=300), min_size=2, max_size=20)


def loaded() -> RowLoops:
    loops = Loops(MODULES)
    loops.load()
    return RowLoops(loops)


@given(
    st.sampled_from(DigestType), IDS, IDS, st.integers(-1, 1 << 40), IDS, DATA, st.booleans(), st.integers(0, 4),
    st.integers(1, 5), st.booleans()
)  # fmt: skip
def test_frames_of_adds_are_those_of_the_codec(
    digest: DigestType, ledger: int, first: int, lac: int, length: int, data: list[bytes], deferred: bool, place: int,
    quorum: int, are_large: bool
) -> None:  # fmt: skip
    if are_large:  # large entries are sent as their own pieces, not copied for each bookie
        data = [each + bytes(LARGE) for each in data]
    digests = Digests(digest, b"password")
    like = AddEntry(ledger, first, lac, b"", b"k" * 20, deferred_sync=deferred)
    length = min(length, (1 << 62))
    batch = loaded().batch(digests, like, length, data)
    assert isinstance(batch, AddRows)
    twin = PLAIN.batch(digests, like, length, data)
    assert [batch[at] for at in range(len(batch))] == [twin[at] for at in range(len(twin))]
    assert [batch.length(at) for at in range(len(batch))] == [twin.length(at) for at in range(len(twin))]
    assert batch.first == twin.first == first and len(batch) == len(twin)
    pipeline = Pipeline(rows)
    pieces, sent = pipeline.adds("owner", batch, place, 5, quorum, 0.0)
    out = b"".join(pieces)
    assert sent == len(out) and (len(pieces) == 1 or are_large)
    asked = [first + at for at in range(len(data)) if is_in_write_set(place, first + at, 5, quorum)]
    assert out == b"".join(
        encode_request(rows.FIRST_TXN + number, twin[entry_id - first]) for number, entry_id in enumerate(asked)
    )
    given_up, size = pipeline.give_up(*pipeline.all()[0])
    assert size == len(out) and [entry_id for _, ids, _ in given_up for entry_id in ids.tolist()] == asked


@given(IDS, st.lists(IDS, min_size=1, max_size=20), st.integers(rows.FIRST_TXN, rows.END_TXN - 100))
def test_frames_of_reads_are_those_of_the_codec(ledger: int, entry_ids: list[int], txn: int) -> None:
    pipeline = Pipeline(rows)
    pipeline.oldest = pipeline.next = txn
    out = bytes(pipeline.reads("owner", ledger, entry_ids, 0.0))
    assert out == b"".join(
        encode_request(number, ReadEntry(ledger, entry_id)) for number, entry_id in enumerate(entry_ids, txn)
    )


def test_owners_that_wait_are_kept_and_rarely_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, looked = Pipeline(rows), 0
    forget = pipeline._forget_owners

    def counted() -> None:
        nonlocal looked
        looked += 1
        forget()

    monkeypatch.setattr(pipeline, "_forget_owners", counted)
    loops, digests = loaded(), Digests(DigestType.CRC32C, b"")

    def add(owner: int) -> None:
        batch = loops.batch(digests, AddEntry(owner, 0, -1, b"", b"k" * 20), 0, [b"one", b"two"])
        assert isinstance(batch, AddRows)
        pipeline.adds(owner, batch, 0, 1, 1, 0.0)

    for owner in range(2000):
        add(owner)
    assert [*pipeline.numbers] == [*range(2000)] and looked < 10
    pipeline.give_up(*pipeline.all()[0])
    for owner in range(2000, 7000):
        add(owner)
        pipeline.give_up(*pipeline.all()[0])
        assert len(pipeline.numbers) == len(pipeline.owners) <= 4096
    assert len(pipeline.numbers) < 256 and looked < 200


Answers = list[tuple[int, Response]]
PLAIN_TXNS = st.integers(0, 1 << 36)
ANSWERS = st.one_of(
    st.tuples(PLAIN_TXNS, RESPONSES_OF_3),
    st.tuples(st.integers(rows.FIRST_TXN, rows.END_TXN - 1), st.builds(AddEntryResponse, IDS, IDS, st.just(Code.OK))),
    st.tuples(
        st.integers(rows.FIRST_TXN, rows.END_TXN - 1),
        st.builds(ReadEntryResponse, IDS, IDS, st.just(Code.OK), st.integers(-1, 1 << 40), st.binary(max_size=60)),
    ),
)


def parsed(data: bytes, room: int = 100) -> tuple[list[tuple[int, object]], int, int]:
    """The responses of the loop, those it leaves to the codec, the offset where it ends, and how it ends."""
    table = np.empty((room, rows.RESPONSE_COLUMNS), np.int64)
    buffer = bytearray(data)
    found: list[tuple[int, object]] = []
    at, how = 0, rows.COMPLETE
    while at < len(data):
        count, at, how = rows.parse(np.frombuffer(buffer, np.uint8), at, len(data), LIMIT, table)
        for row in table[:count].tolist():
            kind, txn, ledger, entry_id, body, size, lac, payload, payload_size = row
            if kind == rows.OTHER:
                found.append(decode_response(data[payload : payload + payload_size]))
            elif kind == rows.ADDED:
                found.append((txn, AddEntryResponse(ledger, entry_id, Code.OK)))
            else:
                found.append((txn, ReadEntryResponse(ledger, entry_id, Code.OK, lac, data[body : body + size])))
        if how != rows.COMPLETE:
            break
    return found, at, how


@given(st.lists(ANSWERS, max_size=12), st.integers(0, 200), st.integers(1, 5))
def test_responses_are_what_the_codec_reads(answers: Answers, missing: int, room: int) -> None:
    stream = b"".join(encode_response(txn, response) for txn, response in answers)
    data = stream[: max(0, len(stream) - missing)]
    payloads, end = cut(bytearray(data), 0, len(data), LIMIT)
    found, at, how = parsed(data, room)
    assert found == [decode_response(payload) for payload in payloads]
    assert at == end and how == (rows.COMPLETE if end == len(data) else rows.PARTIAL)


@settings(max_examples=300)
@given(st.lists(ANSWERS, min_size=1, max_size=3), st.data())
def test_bytes_that_are_changed_are_never_read_otherwise(answers: Answers, data: st.DataObject) -> None:
    stream = bytearray(b"".join(encode_response(txn, response) for txn, response in answers))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))

    def by_codec() -> tuple[list[object], object]:
        payloads, end = cut(stream, 0, len(stream), LIMIT)
        return [decode_response(payload) for payload in payloads], end

    try:
        expected = by_codec()
    except WireError:
        with pytest.raises(WireError):
            found, at, how = parsed(bytes(stream))
            if how == rows.REFUSED:
                raise WireError("refused") from None
    else:
        found, at, _ = parsed(bytes(stream))
        assert (found, at) == expected


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes_are_read_within_their_bounds(data: bytes, room: int) -> None:
    table = np.empty((room, rows.RESPONSE_COLUMNS), np.int64)
    count, at, _ = rows.parse(np.frombuffer(bytearray(data), np.uint8), 0, len(data), 100, table)
    assert 0 <= count <= room and 0 <= at <= len(data)


ENSEMBLES = st.integers(1, 6).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size)))


@given(
    ENSEMBLES,
    st.integers(-1, 1 << 40),
    st.integers(8, 60),
    st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(-3, 70), max_size=40)), max_size=8),
)
def test_entries_are_confirmed_as_one_by_one(
    quorums: tuple[int, int], confirmed: int, pushed: int, answers: list[tuple[int, list[int]]]
) -> None:
    size, write_quorum = quorums
    pending = confirmed, confirmed + pushed
    by_rows, one_by_one = array("q", bytes(8 * 64)), array("q", bytes(8 * 64))
    loops = loaded()
    for place, entries in answers:
        entry_ids = [confirmed + entry for entry in entries]
        loops.confirm(by_rows, np.array(entry_ids, np.int64), place, place % size, pending, quorums)
        PLAIN.confirm(one_by_one, entry_ids, place, place % size, pending, quorums)
        assert by_rows == one_by_one
        for ack_quorum in range(1, write_quorum + 1):
            plain = PLAIN.reached(one_by_one, pending, ack_quorum, False, ALL)
            assert loops.reached(by_rows, pending, ack_quorum, False, ALL) == plain


class Model:
    """A pipeline and its expected state: the subject of each unanswered request."""

    def __init__(self) -> None:
        self.pipeline = Pipeline(rows)
        self.waiting: dict[int, tuple[str, int]] = {}

    def send(self, owner: str, first: int, number: int, is_add: bool) -> None:
        before = self.pipeline.next
        if is_add:
            number = max(number, 2)  # one alone is sent without rows
            like = AddEntry(7, first, -1, b"", b"k" * 20)
            adds = loaded().batch(Digests(DigestType.CRC32C, b""), like, 0, [b"data"] * number)
            assert isinstance(adds, AddRows)
            (frames,), _ = self.pipeline.adds(owner, adds, 0, 1, 1, float(before))
        else:
            frames = self.pipeline.reads(owner, 7, range(first, first + number), float(before))
        assert len(frames) and self.pipeline.next == before + number
        self.waiting.update({before + at: (owner, first + at) for at in range(number)})

    def answer(self, txns: list[int], is_add: bool) -> None:
        stream = b"".join(
            encode_response(
                txn, AddEntryResponse(7, 1, Code.OK) if is_add else ReadEntryResponse(7, 1, Code.OK, body=b"")
            )
            for txn in txns
        )
        data = np.frombuffer(bytearray(stream), np.uint8)
        count, at, how, row, owner, taken, _ = self.pipeline.receive(data, 0, len(data), LIMIT, 0.0)
        assert (count, at, how) == (len(txns), len(stream), rows.COMPLETE) and row
        told = []
        while True:
            told += [(owner, entry_id, txns[at]) for entry_id, at in self.pipeline.answered[:, :taken].T.tolist()]
            if row == count:
                break
            row, owner, taken, _ = self.pipeline.complete(row, count, 0.0)
        expected = [(*self.waiting.pop(txn), txn) for txn in dict.fromkeys(txns) if txn in self.waiting]
        assert told == expected
        reading = {owner for owner, _ in self.waiting.values() if owner.endswith("read")}
        assert {owner for number, owner in self.pipeline.owners.items() if number % 2} == reading

    def give_up(self, before: int | None) -> None:
        stretches = self.pipeline.all() if before is None else self.pipeline.late(float(before), 0.0)
        given_up = [each for stretch in stretches for each in self.pipeline.give_up(*stretch)[0]]
        assert all(owner.endswith("add") == is_add for owner, _, is_add in given_up)
        told = sorted((owner, entry_id) for owner, entry_ids, _ in given_up for entry_id in entry_ids.tolist())
        assert bool(told) == bool(stretches) or before is None
        if before is None:
            assert told == sorted(self.waiting.values())
        gone = [txn for txn, value in self.waiting.items() if value in told]
        assert sorted(self.waiting.pop(txn) for txn in gone) == told
        assert self.pipeline.is_waiting is bool(self.waiting)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_request_is_answered_or_given_up_once(data: st.DataObject) -> None:
    model, entries = Model(), 0
    model.pipeline.ring = model.pipeline.ring[:4].copy()
    for _ in range(data.draw(st.integers(1, 12))):
        what = data.draw(st.sampled_from(["add", "read", "answer", "answer", "late", "all"]))
        if what in ("add", "read"):
            number = data.draw(st.integers(1, 9))
            model.send(data.draw(st.sampled_from(["one", "other"])) + what, entries, number, what == "add")
            entries += number
        elif what == "answer":
            is_add = data.draw(st.booleans())
            ours = [txn for txn, (owner, _) in model.waiting.items() if owner.endswith("add") == is_add]
            txns = (
                data.draw(st.lists(st.sampled_from([*ours, rows.FIRST_TXN, rows.END_TXN - 1]), max_size=20))
                if ours
                else []
            )
            txns = [txn for txn in txns if txn in ours or txn not in model.waiting]
            if txns:
                model.answer(txns, is_add)
        elif what == "late":
            model.give_up(model.pipeline.next - data.draw(st.integers(0, 20)))
        else:
            model.give_up(None)


BODIES = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda ledger, entry_id, data: (ledger, entry_id, data),
        st.integers(6, 7),
        st.integers(0, 3),
        st.binary(max_size=30),
    ),
)


@given(
    st.sampled_from(DigestType),
    st.lists(st.tuples(st.integers(0, 3), BODIES, st.integers(-1, 400)), min_size=1, max_size=10),
)
def test_entries_are_opened_as_one_by_one(
    digest: DigestType, asked: list[tuple[int, bytes | tuple[int, int, bytes], int]]
) -> None:
    digests, damaged = Digests(digest, b"p"), 0
    bodies: list[bytes] = []
    for _, made, damage in asked:
        body = made if isinstance(made, bytes) else digests.entry_body(Entry(made[0], made[1], made[1] - 1, 5, made[2]))
        if 0 <= damage < len(body):
            body = body[:damage] + bytes([body[damage] ^ 1]) + body[damage + 1 :]
            damaged += 1
        bodies.append(body)
    stream = b"".join(encode_response(rows.FIRST_TXN, ReadEntryResponse(7, 1, Code.OK, 3, body)) for body in bodies)
    table = np.empty((len(bodies), rows.RESPONSE_COLUMNS), np.int64)
    data = np.frombuffer(bytearray(stream), np.uint8)
    rows.parse(data, 0, len(data), LIMIT, table)
    which, entry_ids = np.arange(len(bodies)), np.array([entry_id for entry_id, _, _ in asked])
    entries = np.full((4, rows.ENTRY_COLUMNS), -1, np.int64)
    block = np.empty(rows.bytes_of(table, which), np.uint8)
    taken, end, lac = rows.take_entries(
        data, table, which, entry_ids, 7, digests.size, digest.value, 0, block, 0, entries
    )
    opened = [digests.open_entry(body, 7, entry_id) for (entry_id, _, _), body in zip(asked, bodies, strict=True)]
    found = {at: block[start:stop].tobytes() for at, (start, stop, _, _) in enumerate(entries.tolist()) if start >= 0}
    headers = {at: (lac, length) for at, (start, _, lac, length) in enumerate(entries.tolist()) if start >= 0}
    assert taken == len(found) and end == sum(map(len, found.values()))
    assert len(block) == sum(map(len, bodies))
    if digest is not DigestType.HMAC:
        assert [row >= 0 for row in which] == [entry is not None for entry in opened]
        assert found == {entry.entry_id: entry.data for entry in reversed(opened) if entry is not None}
        assert lac == max([3, *(entry.lac for entry in opened if entry)] if taken else [-1])
        assert headers == {entry.entry_id: (entry.lac, entry.length) for entry in reversed(opened) if entry is not None}
    else:
        assert {entry.entry_id for entry in opened if entry is not None} <= {*found}


@given(st.permutations(range(6)), st.lists(st.binary(max_size=9), min_size=6, max_size=6))
def test_entries_are_put_in_order(order: list[int], data: list[bytes]) -> None:
    block = np.frombuffer(bytearray(b"".join(data[at] for at in order)), np.uint8)
    table, at = np.empty((6, rows.ENTRY_COLUMNS), np.int64), 0
    for entry_id in order:
        table[entry_id] = at, at + len(data[entry_id]), -1, -1
        at += len(data[entry_id])
    out, offsets = np.empty(len(block), np.uint8), np.empty(7, np.int64)
    dense = out if rows.in_order(block, table, out, offsets) else block
    assert dense.tobytes() == b"".join(data)
    assert [dense[start:stop].tobytes() for start, stop in zip(offsets, offsets[1:], strict=False)] == data


def test_what_stands_in_a_line_that_moves_is_not_late() -> None:
    model = Model()
    model.send("one", 0, 4, True)
    first = rows.FIRST_TXN
    model.pipeline.deadlines[0] = (first, first + 4, 5.0, 1)
    assert model.pipeline.late(4.9, 4.0) == [] and model.pipeline.late(5.0, 4.0) == [(first, first + 4)]
    model.answer([first + 1], True)
    model.pipeline.reached_at[1] = 5.0
    assert model.pipeline.late(8.9, 4.0) == [(first, first + 1)], "the second has overtaken the first"
    assert model.pipeline.late(9.0, 4.0) == [(first, first + 4)]
    model.answer([first, first + 2, first + 3], True)
    assert model.pipeline.late(9.0, 4.0) == [] and not model.pipeline.deadlines


def test_numbers_begin_anew_when_they_are_used_up_and_nothing_is_without_an_answer() -> None:
    model = Model()
    model.pipeline.oldest = model.pipeline.next = rows.END_TXN - 3
    model.send("one", 0, 2, True)
    assert model.pipeline.is_full(2)
    model.answer([rows.END_TXN - 3, rows.END_TXN - 2], True)
    assert not model.pipeline.is_full(2) and model.pipeline.next == rows.FIRST_TXN
    model.send("one", 2, 2, True)
    model.answer([rows.FIRST_TXN, rows.FIRST_TXN + 1], True)


def test_blocks_are_used_again_when_nobody_refers_to_them() -> None:
    blocks = Blocks(1 << 20)
    small = blocks.take(np, 100)
    assert len(small) == 100 and blocks.room == 1 << 20
    held = [blocks.take(np, 250_000) for _ in range(4)]
    assert len({id(block) for block in held}) == 4 and blocks.room == 0, "four of 256 KiB"
    beyond = blocks.take(np, 250_000)
    assert not any(beyond is block for block in held), "it is not kept"
    view = held[2].data[:10]
    kept = id(held[2]), id(held[3])
    del held[2:]
    assert id(blocks.take(np, 250_000)) == kept[1], "of the third there is a view"
    del view
    again = [blocks.take(np, 250_000) for _ in range(2)]
    assert {id(block) for block in again} == {*kept}
    del again
    larger = blocks.take(np, 500_000)
    assert len(larger) == 1 << 19 and blocks.room == 0, "in the place of two"
