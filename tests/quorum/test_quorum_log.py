"""The index of a log, against a plain log that keeps every record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quorum.replicas import key, node, voters

from fencepost.quorum.identity import NO_VOTERS, VoterSet
from fencepost.quorum.log import Batch, LogIndex, OffsetAndEpoch, Snapshot, VotersRecord


class PlainLog:
    """A log as the list of its records from offset 0: their epochs, and configurations if any."""

    def __init__(self, first: VoterSet) -> None:
        self.records: list[tuple[int, VoterSet | None]] = []
        self.first = first
        self.start = 0

    def epoch_ahead_of(self, offset: int) -> int:
        return self.records[offset - 1][0] if offset else 0

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        ends = [offset for offset, (one, _) in enumerate(self.records, 1) if one <= epoch and offset >= self.start]
        offset = max([self.start, *ends])
        return OffsetAndEpoch(offset, self.epoch_ahead_of(offset))

    def voters(self, before: int) -> VoterSet:
        return next((one for _, one in reversed(self.records[:before]) if one is not None), self.first)


@given(st.data())
def test_the_index_says_what_the_records_say(data: st.DataObject) -> None:
    first = voters(1, 2, 3)
    plain, index = PlainLog(first), LogIndex(Snapshot(OffsetAndEpoch(0, 0), first))
    epoch = 1
    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["append", "append", "configure", "truncate", "snapshot", "delete", "epoch"])):
            case "append":
                count = data.draw(st.integers(1, 3))
                index.append(Batch(index.end_offset, epoch, (b"",) * count))
                plain.records += [(epoch, None)] * count
            case "configure":
                changed = voters(*data.draw(st.sets(st.integers(1, 5), min_size=1)))
                index.append(Batch(index.end_offset, epoch, control=VotersRecord(changed)))
                plain.records.append((epoch, changed))
            case "truncate":
                offset = data.draw(st.integers(index.snapshot.end.offset, index.end_offset))
                index.truncate(offset)
                del plain.records[offset:]
            case "snapshot" if index.end_offset > index.snapshot.end.offset:
                offset = data.draw(st.integers(index.snapshot.end.offset, index.end_offset))
                assert index.configuration_at(offset) == plain.voters(offset)
                end = OffsetAndEpoch(offset, index.epoch_ahead_of(offset))
                index.take_snapshot(Snapshot(end, plain.voters(offset)))
            case "delete":
                offset = data.draw(st.integers(index.start_offset, index.snapshot.end.offset))
                index.delete_before(offset)
                plain.start = offset
            case "epoch":
                epoch += data.draw(st.integers(1, 2))
        assert index.end == OffsetAndEpoch(len(plain.records), plain.epoch_ahead_of(len(plain.records)))
        assert index.voters == plain.voters(len(plain.records))
        for offset in range(plain.start, len(plain.records) + 1):
            assert index.epoch_ahead_of(offset) == plain.epoch_ahead_of(offset)
        for asked in range(plain.epoch_ahead_of(plain.start), epoch + 2):
            assert index.end_of_epoch(asked) == plain.end_of_epoch(asked)
        epochs = [plain.records[offset][0] for offset in range(plain.start, len(plain.records))]
        assert [place.epoch for place in index.epochs()] == sorted(set(epochs))
        again = LogIndex(index.snapshot, index.start_offset, index.start.epoch)
        for offset in range(plain.start, len(plain.records)):
            one, configured = plain.records[offset]
            control = None if configured is None else VotersRecord(configured)
            again.append(Batch(offset, one, () if control else (b"",), control))
        assert (again.end, again.voters, list(again.epochs())) == (index.end, index.voters, list(index.epochs()))


def test_what_does_not_follow_is_refused() -> None:
    index = LogIndex()
    index.append(Batch(0, 3, (b"",)))
    for batch in (Batch(0, 3, (b"",)), Batch(2, 3, (b"",)), Batch(1, 2, (b"",)), Batch(1, 3)):
        with pytest.raises(ValueError, match="does not follow"):
            index.append(batch)
    with pytest.raises(ValueError, match="cannot truncate"):
        index.truncate(2)
    with pytest.raises(ValueError, match="cannot start"):
        index.delete_before(1)


def test_a_fetched_snapshot_is_the_beginning_of_a_new_log() -> None:
    index = LogIndex()
    index.append(Batch(0, 3, control=VotersRecord(voters(1))))
    index.reset(Snapshot(OffsetAndEpoch(7, 4), voters(1, 2)))
    assert (index.start, index.end, index.voters, index.voters_offset) == (
        OffsetAndEpoch(7, 4),
        OffsetAndEpoch(7, 4),
        voters(1, 2),
        -1,
    )


def test_voters_are_known_by_host_and_directory() -> None:
    three = voters(3, 1, 2)
    assert [node.key.host_id for node in three.nodes] == [1, 2, 3]
    assert key(1) in three
    assert key(1, "another") not in three
    assert three.has_host(1)
    assert three.without(key(1, "another")) == three
    assert three.without(key(1)) == voters(2, 3)
    assert three.node(key(4)) is None
    assert NO_VOTERS.having(node(4)) == voters(4)
    with pytest.raises(ValueError, match="voters are one of a host"):
        three.having(node(1, "another"))
