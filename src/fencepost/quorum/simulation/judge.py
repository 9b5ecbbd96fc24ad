"""The promises of a quorum, which a run must keep under all faults."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from fencepost.quorum.files.log import ReplicatedLog
from fencepost.quorum.identity import ReplicaKey
from fencepost.quorum.log import Batch, OffsetAndEpoch
from fencepost.quorum.roles.interface import ElectionState


class Violation(Exception):
    """A promise was broken."""

    def __init__(self, promise: str, details: str) -> None:
        super().__init__(f"{promise}: {details}")
        self.promise = promise


@dataclass
class Judge:
    """The record of all that the replicas together have done.

    ``committed``: the batches that any replica took for committed, in order. ``chained``: the hash of the state machine
    from the start, and after each of them.
    """

    leaders: dict[int, ReplicaKey] = field(default_factory=dict)
    votes: dict[tuple[ReplicaKey, int], ReplicaKey] = field(default_factory=dict)
    appended: dict[tuple[int, int], tuple[Batch, int]] = field(default_factory=dict)
    committed: list[Batch] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    proposed: set[bytes] = field(default_factory=set)
    chained: dict[int, bytes] = field(default_factory=lambda: {0: b""})

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the committed records."""
        return (
            OffsetAndEpoch(self.committed[-1].end_offset, self.committed[-1].epoch)
            if self.committed
            else OffsetAndEpoch(0, 0)
        )

    def votes_for(self, key: ReplicaKey, epoch: int, candidate: ReplicaKey, stored: ElectionState) -> None:
        """A replica votes, perhaps for itself: it must have stored the vote, and must not vote for another in that
        epoch.
        """
        first = self.votes.setdefault((key, epoch), candidate)
        if first != candidate:
            raise Violation("one vote an epoch", f"{key} votes for {first} and {candidate} in epoch {epoch}")
        if (stored.epoch, stored.voted) != (epoch, candidate):
            raise Violation("votes are stored first", f"{key} votes for {candidate} in epoch {epoch}, with {stored}")

    def leads(self, key: ReplicaKey, epoch: int, log: ReplicatedLog) -> None:
        """A replica begins an epoch as its leader: no other does, and its log has everything committed before."""
        first = self.leaders.setdefault(epoch, key)
        if first != key:
            raise Violation("one leader an epoch", f"{first} and {key} lead epoch {epoch}")
        end = self.end
        if end.epoch >= epoch or log.start.offset >= end.offset:
            return  # a later leader, unknown to this one, may have committed it
        if log.end.offset < end.offset or log.epoch_ahead_of(end.offset) != end.epoch:
            raise Violation("leaders have what is committed", f"{key} leads epoch {epoch} without {end}")

    def appends(self, key: ReplicaKey, batch: Batch, epoch_ahead: int) -> None:
        """A replica has a batch after a record of an epoch: every replica with this batch must have the same."""
        place = batch.base_offset, batch.epoch
        known = self.appended.setdefault(place, (batch, epoch_ahead))
        if known != (batch, epoch_ahead):
            raise Violation("logs match", f"{key} has {batch} behind epoch {epoch_ahead}; others {known}")

    def applies(self, key: ReplicaKey, offset: int, batch: Batch, state: bytes) -> bytes:
        """A state machine applies a batch at an offset, as committed. Returns its new state."""
        if batch.base_offset != offset:
            raise Violation("commits are in order", f"{key} has applied up to {offset} and goes on with {batch}")
        place = self.ends.get(offset)
        if place is None:
            if offset != self.end.offset:
                raise Violation("commits are in order", f"{key} commits {batch} behind {self.end}")
            self.ends[offset] = len(self.committed)
            self.committed.append(batch)
        elif self.committed[place] != batch:
            raise Violation("what is committed stays", f"{key} commits {batch}; others {self.committed[place]}")
        end = batch.end_offset
        is_known = place is not None and state == self.chained.get(offset)
        state = self.chained[end] if is_known else after(state, batch)
        self.chained.setdefault(end, state)
        self.loads(key, end, state)
        return state

    def loads(self, key: ReplicaKey, offset: int, state: bytes) -> None:
        """A state machine has a state at an offset, perhaps from a snapshot."""
        if self.chained.get(offset) != state:
            raise Violation("state machines are equal", f"that of {key} at {offset}")

    def at_the_end(self) -> None:
        """Everything that was acknowledged is committed once, and only proposed records are."""
        records = [record for batch in self.committed for record in batch.records]
        once = set(records)
        if len(once) != len(records):
            raise Violation("nothing is committed twice", f"{len(records) - len(once)} records")
        if not once <= self.proposed:
            raise Violation("nothing is invented", f"{sorted(once - self.proposed)[:3]}")
        lost = self.acknowledged.keys() - once
        if lost:
            raise Violation("what is acknowledged is committed", f"{sorted(lost)[:3]}")


def after(state: bytes, batch: Batch) -> bytes:
    """The state machine: a hash of all records in order."""
    digest = hashlib.blake2b(state, digest_size=8)
    digest.update(b"%d" % batch.base_offset)
    for record in batch.records:
        digest.update(record)
    return digest.digest()
