"""The disk of a simulated replica: what would be there after a crash, and what is only on its way."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.quorum.log import EMPTY_SNAPSHOT, Batch, LogIndex, OffsetAndEpoch, Snapshot
from fencepost.quorum.roles.interface import Append, DeleteBefore, ElectionState, Truncate

Write = Append | Truncate | DeleteBefore | Snapshot
"""A change of the log; a snapshot is one that it begins anew behind."""


class SimLog:
    """A log of batches, of which the last changes are not durable yet. They become so in their order."""

    def __init__(self, snapshot: Snapshot = EMPTY_SNAPSHOT) -> None:
        self.start = snapshot
        """Behind which it begins."""
        self.batches: list[Batch] = []

    def apply(self, write: Write) -> None:
        """Make a change."""
        if isinstance(write, Snapshot):
            self.start, self.batches = write, []
        elif isinstance(write, Truncate):
            while self.batches and self.batches[-1].end_offset > write.end_offset:
                self.batches.pop()
        elif isinstance(write, DeleteBefore):
            self._delete_before(write.offset)
        else:
            self.batches += write.batches

    @property
    def end_offset(self) -> int:
        """The offset of the record to come."""
        return self.batches[-1].end_offset if self.batches else self.start.end.offset

    def epoch_ahead_of(self, offset: int) -> int:
        """The epoch of the record ahead of an offset."""
        place = self._place(offset - 1)
        return self.batches[place].epoch if 0 <= place < len(self.batches) else self.start.end.epoch

    def read(self, offset: int, most: int | None = None) -> tuple[Batch, ...]:
        """The batches from an offset on, at which one begins."""
        place = self._place(offset) if offset < self.end_offset else len(self.batches)
        return tuple(self.batches[place : None if most is None else place + most])

    def _place(self, offset: int) -> int:
        """The number of the batch that has the record of an offset; -1 if the offset is ahead of all."""
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            if self.batches[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _delete_before(self, offset: int) -> None:
        """Forget the batches that end at an offset or ahead of it."""
        place = 0
        while place < len(self.batches) and self.batches[place].end_offset <= offset:
            place += 1
        if place:
            last = self.batches[place - 1]
            self.start = Snapshot(OffsetAndEpoch(last.end_offset, last.epoch), self.start.voters)
            del self.batches[:place]


class SimDisk:
    """The disk of a replica: election state, log, snapshots. It outlives the process, and is lost with
    :meth:`wipe`.

    ``reading`` is the log as the process reads it; ``durable`` what is left of it if the process ended now, with some
    of ``unsynced`` behind.
    """

    def __init__(self, directory_id: str, snapshot: Snapshot) -> None:
        self.directory_id = directory_id
        self.election = ElectionState()
        self.snapshot = snapshot
        self.snapshot_data = b""
        self.reading = SimLog(snapshot)
        self.durable = SimLog(snapshot)
        self.unsynced: list[Write] = []

    def write(self, write: Write) -> None:
        """Change the log; not yet for good."""
        self.reading.apply(write)
        self.unsynced.append(write)

    def synced(self, count: int) -> None:
        """The first of the changes that are not durable are."""
        for write in self.unsynced[:count]:
            self.durable.apply(write)
        del self.unsynced[:count]

    def stored_end(self) -> OffsetAndEpoch:
        """The end of what is durable of the log as it is read now."""
        offset = self.durable.end_offset
        for write in self.unsynced:
            if isinstance(write, Truncate):
                offset = min(offset, write.end_offset)
            elif isinstance(write, Snapshot):
                offset = write.end.offset
        offset = max(offset, self.reading.start.end.offset)
        return OffsetAndEpoch(offset, self.reading.epoch_ahead_of(offset))

    def keep_snapshot(self, snapshot: Snapshot, data: bytes) -> None:
        """A snapshot is durable, and the one before it not needed any more."""
        self.snapshot, self.snapshot_data = snapshot, data

    def crash(self, surviving: Callable[[int], int]) -> None:
        """Power fails. Of the changes that are not durable the first few survive, by ``surviving`` of how many there
        are."""
        self.synced(surviving(len(self.unsynced)))
        self.unsynced.clear()
        self.reading = SimLog(self.durable.start)
        self.reading.batches = list(self.durable.batches)

    def index(self) -> LogIndex:
        """The index from the files when a process begins; a log that does not reach the snapshot's end is dropped."""
        end = self.snapshot.end
        reaches = self.reading.end_offset >= end.offset and self.reading.epoch_ahead_of(end.offset) == end.epoch
        if not reaches or self.reading.start.end.offset > end.offset:
            self.reading, self.durable = SimLog(self.snapshot), SimLog(self.snapshot)
        start = self.reading.start.end
        log = LogIndex(self.snapshot, start.offset, start.epoch)
        for batch in self.reading.batches:
            log.append(batch)
        return log
