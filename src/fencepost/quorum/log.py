"""The replicated log: batches of records, and the index by which a replica decides without reading any of them.

Offsets count records from 0, control records among them, as Kafka's do. A record is known by its offset and its epoch:
no two replicas ever have different records of the same two. The *end offset* is that of the record to come. A log
begins at its *start offset*: what was ahead of it is in the snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import msgspec

from fencepost.quorum.identity import NO_VOTERS, Count, ReplicaKey, VoterSet


class LeaderChange(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """The first record of every epoch: who leads it, who could vote, and who did so for the leader."""

    leader: ReplicaKey
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]


class VotersRecord(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """A configuration: all the voters from here on. A replica goes by it as soon as it has it, committed or not."""

    voters: VoterSet


ControlRecord = LeaderChange | VotersRecord


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records that follow one another, appended at once by the leader of an epoch: of the state machine, which are
    opaque, or one control record."""

    base_offset: Count
    epoch: Count
    records: tuple[bytes, ...] = ()
    control: ControlRecord | None = None

    @property
    def end_offset(self) -> int:
        """The offset of the record after the batch."""
        return self.base_offset + (len(self.records) if self.control is None else 1)

    @property
    def is_sound(self) -> bool:
        """Whether it has records, or a control record and nothing else; and, if these are voters, one at least."""
        if self.control is None:
            return bool(self.records)
        return not self.records and not (isinstance(self.control, VotersRecord) and not self.control.voters.nodes)


class OffsetAndEpoch(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A place in the log: what is ahead of ``offset``, where the last record is of ``epoch``. (0, 0) is the empty
    log."""

    offset: Count
    epoch: Count


class Snapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of the log that a snapshot stands for: all records ahead of ``end.offset``, the last one of
    ``end.epoch``; and the configuration that they leave.

    Its id, by which it is fetched, is ``end``. The one at (0, 0) is empty but for the configuration that a cluster
    begins with, and is never fetched.
    """

    end: OffsetAndEpoch
    voters: VoterSet = NO_VOTERS


EMPTY_SNAPSHOT = Snapshot(OffsetAndEpoch(0, 0))


class LogIndex:
    """The index of a replica's log: its start and end, the start of each epoch (Kafka's epoch cache), and its
    configurations.

    The role owns the index and changes it in the same step in which it has the effects :class:`Append`,
    :class:`Truncate` and the like, so the index is ahead of the files. The driver of a role makes the index from the
    files: with the snapshot and the offset at which the log starts, then :meth:`append` for each batch.
    """

    def __init__(
        self, snapshot: Snapshot = EMPTY_SNAPSHOT, start_offset: int | None = None, start_epoch: int | None = None
    ) -> None:
        """A log without records. It starts at the end of the snapshot; or before it, at ``start_offset``, where
        ``start_epoch`` is the epoch of the record ahead (batches of records that are in the snapshot too may be kept,
        for replicas that are not far behind)."""
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
        """The epoch of the last record; of a log without records, that of the record ahead of it."""
        return self._epochs[-1] if self._epochs else self._start_epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def start(self) -> OffsetAndEpoch:
        """The start of the log: offset, and the epoch of the record ahead of it."""
        return OffsetAndEpoch(self.start_offset, self._start_epoch)

    @property
    def voters(self) -> VoterSet:
        """The configuration that the replica goes by: the last one in the log, or else that of the snapshot."""
        return self._configurations[-1][1] if self._configurations else self.snapshot.voters

    @property
    def voters_offset(self) -> int:
        """The offset of the record with that configuration; -1 if it is the snapshot's, which is committed."""
        return self._configurations[-1][0] if self._configurations else -1

    def epoch_ahead_of(self, offset: int) -> int:
        """The epoch of the record ahead of an offset between start and end of the log."""
        place = bisect_right(self._starts, offset - 1)
        return self._epochs[place - 1] if place else self._start_epoch

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Where the records of an epoch end, or those of the last epoch before it if there are none of it: offset, and
        that epoch.

        Of epochs ahead of the start of the log nothing is known: then it is the start.
        """
        place = bisect_right(self._epochs, epoch)
        if place == 0:
            return self.start
        return OffsetAndEpoch(
            self._starts[place] if place < len(self._starts) else self.end_offset, self._epochs[place - 1]
        )

    def epochs(self) -> Iterator[OffsetAndEpoch]:
        """Each epoch that has records, with the offset of the first, in order."""
        return (OffsetAndEpoch(start, epoch) for start, epoch in zip(self._starts, self._epochs, strict=True))

    def takes(self, batches: Iterable[Batch], epoch: int) -> bool:
        """Whether batches of a leader of ``epoch`` follow this log: each at the end of the one before, of no earlier
        epoch, and with something in it."""
        end, last = self.end_offset, self.last_epoch
        for batch in batches:
            if batch.base_offset != end or not last <= batch.epoch <= epoch or not batch.is_sound:
                return False
            end, last = batch.end_offset, batch.epoch
        return True

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, batch: Batch) -> None:
        """Add a batch. Raises ``ValueError`` if it does not follow, see :meth:`takes`."""
        if not self.takes((batch,), batch.epoch):
            raise ValueError(f"{batch} does not follow {self.end}")
        if not self._epochs or batch.epoch > self._epochs[-1]:
            self._epochs.append(batch.epoch)
            self._starts.append(batch.base_offset)
        # Voters before the end of the snapshot are in its configuration.
        if isinstance(batch.control, VotersRecord) and batch.base_offset >= self.snapshot.end.offset:
            self._configurations.append((batch.base_offset, batch.control.voters))
        self.end_offset = batch.end_offset

    def truncate(self, end_offset: int) -> None:
        """Cut off the records from an offset on; with them go their configurations. Raises ``ValueError`` ahead of the
        start of the log."""
        if not self.start_offset <= end_offset <= self.end_offset:
            raise ValueError(f"cannot truncate the log from {self.start_offset} to {self.end_offset} at {end_offset}")
        self.end_offset = end_offset
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        while self._configurations and self._configurations[-1][0] >= end_offset:
            self._configurations.pop()

    def take_snapshot(self, snapshot: Snapshot) -> None:
        """A snapshot was made of a part of this log. The log stays; see :meth:`delete_before`."""
        self.snapshot = snapshot
        self._configurations = [
            (offset, voters) for offset, voters in self._configurations if offset >= snapshot.end.offset
        ]

    def delete_before(self, offset: int) -> None:
        """Forget the records ahead of an offset, all of which the snapshot has."""
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
        """Begin anew behind a snapshot that was fetched."""
        LogIndex.__init__(self, snapshot)

    def configuration_at(self, offset: int) -> VoterSet:
        """The configuration that the records ahead of an offset leave; of none that a snapshot has is anything
        known."""
        known = [voters for at, voters in self._configurations if at < offset]
        return known[-1] if known else self.snapshot.voters
