"""The replicated log: batches of records, and an index that lets a replica decide without reading them.

Offsets count all records from 0, control records included, as in Kafka. Offset and epoch identify a record: no two
replicas ever have different records with the same pair. The *end offset* is that of the next record. A log begins at
its *start offset*; earlier records are in the snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from fencepost.quorum.identity import NO_VOTERS, Count, ReplicaKey, VoterSet


class LeaderChange(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The first record of every epoch: its leader, who could vote, and who voted for the leader."""

    leader: ReplicaKey
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class VotersRecord(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A configuration: all voters from here on. A replica uses it as soon as it has it, even before it is committed."""

    voters: VoterSet


ControlRecord = LeaderChange | VotersRecord


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive records that the leader of an epoch appended at once: either opaque records of the state machine, or
    one control record.
    """

    base_offset: Count
    epoch: Count
    records: tuple[bytes, ...] = ()
    control: ControlRecord | None = None

    @property
    def end_offset(self) -> int:
        """The offset after the last record of the batch."""
        return self.base_offset + (len(self.records) if self.control is None else 1)

    @property
    def is_sound(self) -> bool:
        """Whether it has records, or only a control record. A configuration must have a voter."""
        if self.control is None:
            return bool(self.records)
        return not self.records and not (isinstance(self.control, VotersRecord) and not self.control.voters.nodes)


class OffsetAndEpoch(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A place in the log: the offset of the next record, and the epoch of the last record before it. (0, 0) is the
    empty log.
    """

    offset: Count
    epoch: Count


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of the log that a snapshot replaces: all records before ``end.offset``, the last of them of
    ``end.epoch``; and the configuration at that place.

    ``end`` is the id for fetches. The snapshot at (0, 0) has only the first configuration of a cluster, and is never
    fetched.
    """

    end: OffsetAndEpoch
    voters: VoterSet = NO_VOTERS


EMPTY_SNAPSHOT = Snapshot(OffsetAndEpoch(0, 0))


class LogIndex:
    """The index of a replica's log: its start and end, the start of each epoch (Kafka's epoch cache), and its
    configurations.

    The role owns the index. It changes the index in the same step in which it returns effects such as :class:`Append`
    or :class:`Truncate`, so the index is ahead of the files. At a start the driver builds it from the files: with the
    snapshot and the start offset, and then :meth:`append` for each batch.
    """

    def __init__(
        self, snapshot: Snapshot = EMPTY_SNAPSHOT, start_offset: int | None = None, start_epoch: int | None = None
    ) -> None:
        """An index without records. It starts at the end of the snapshot, or earlier.

        An earlier start is ``start_offset``, with ``start_epoch`` as the epoch of the record before it. The log may
        keep batches that are in the snapshot too, for replicas that are not far behind.
        """
        self.snapshot = snapshot
        self.start_offset = snapshot.end.offset if start_offset is None else start_offset
        self._start_epoch = snapshot.end.epoch if start_epoch is None else start_epoch
        self.end_offset = self.start_offset
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._configurations: list[tuple[int, VoterSet]] = []

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record; without records, that of the last record before the start."""
        return self._epochs[-1] if self._epochs else self._start_epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def start(self) -> OffsetAndEpoch:
        """The start of the log: its offset, and the epoch of the record before it."""
        return OffsetAndEpoch(self.start_offset, self._start_epoch)

    @property
    def voters(self) -> VoterSet:
        """The configuration in use: the last one in the log, or else that of the snapshot."""
        return self._configurations[-1][1] if self._configurations else self.snapshot.voters

    @property
    def voters_offset(self) -> int:
        """The offset of that configuration's record; -1 if it is in the snapshot, and so committed."""
        return self._configurations[-1][0] if self._configurations else -1

    def epoch_ahead_of(self, offset: int) -> int:
        """The epoch of the record before an offset. The offset must be between start and end of the log."""
        place = bisect_right(self._starts, offset - 1)
        return self._epochs[place - 1] if place else self._start_epoch

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The end of the last epoch that has records and is not after ``epoch``: its end offset, and that epoch.

        Nothing is known of epochs before the start of the log; the result is the start then.
        """
        place = bisect_right(self._epochs, epoch)
        if place == 0:
            return self.start
        return OffsetAndEpoch(
            self._starts[place] if place < len(self._starts) else self.end_offset, self._epochs[place - 1]
        )

    def epochs(self) -> Iterator[OffsetAndEpoch]:
        """Each epoch that has records, with the offset of its first record, in order."""
        return (OffsetAndEpoch(start, epoch) for start, epoch in zip(self._starts, self._epochs, strict=True))

    def takes(self, batches: Iterable[Batch], epoch: int) -> bool:
        """Return whether batches from a leader of ``epoch`` can be appended: each begins at the end of the previous
        one, its epoch is no earlier, and it is not empty.
        """
        end, last = self.end_offset, self.last_epoch
        for batch in batches:
            if batch.base_offset != end or not last <= batch.epoch <= epoch or not batch.is_sound:
                return False
            end, last = batch.end_offset, batch.epoch
        return True

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> None:
        """Append a batch. Raises ``ValueError`` if it does not follow, see :meth:`takes`."""
        if not self.takes((batch,), batch.epoch):
            raise ValueError(f"{batch} does not follow {self.end}")
        if not self._epochs or batch.epoch > self._epochs[-1]:
            self._epochs.append(batch.epoch)
            self._starts.append(batch.base_offset)
        # The snapshot's configuration includes voters from before its end.
        if isinstance(batch.control, VotersRecord) and batch.base_offset >= self.snapshot.end.offset:
            self._configurations.append((batch.base_offset, batch.control.voters))
        self.end_offset = batch.end_offset

    def truncate(self, end_offset: int) -> None:
        """Remove the records from an offset on, and their configurations. Raises ``ValueError`` before the start of the
        log.
        """
        if not self.start_offset <= end_offset <= self.end_offset:
            raise ValueError(f"cannot truncate the log from {self.start_offset} to {self.end_offset} at {end_offset}")
        self.end_offset = end_offset
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        while self._configurations and self._configurations[-1][0] >= end_offset:
            self._configurations.pop()

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """Record a new snapshot of a part of this log. The log stays; see :meth:`delete_before`."""
        self.snapshot = snapshot
        self._configurations = [
            (offset, voters) for offset, voters in self._configurations if offset >= snapshot.end.offset
        ]

    def delete_before(self, offset: int) -> None:
        """Remove the records before an offset. The snapshot must have all of them."""
        if not self.start_offset <= offset <= min(self.snapshot.end.offset, self.end_offset):
            raise ValueError(
                f"cannot start at {offset} the log {self.start_offset} to {self.end_offset} with {self.snapshot.end}"
            )
        self._start_epoch = self.epoch_ahead_of(offset)
        place = bisect_right(self._starts, offset)
        if place and (place == len(self._starts) or self._starts[place] > offset) and offset < self.end_offset:
            place -= 1
            self._starts[place] = offset
        del self._starts[:place], self._epochs[:place]
        self.start_offset = offset

    def reset(self, snapshot: Snapshot) -> None:
        """Start again at the end of a fetched snapshot."""
        LogIndex.__init__(self, snapshot)

    def configuration_at(self, offset: int) -> VoterSet:
        """The configuration at an offset. Configurations before the snapshot's end are unknown."""
        known = [voters for at, voters in self._configurations if at < offset]
        return known[-1] if known else self.snapshot.voters
