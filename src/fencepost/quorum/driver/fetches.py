"""When replicas fetched, by the leader's clock. A role reads no clock, so its driver records these times."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from fencepost.quorum.identity import ReplicaKey
from fencepost.quorum.messages import DescribeQuorumResponse, Fetch, ReplicaProgress


def _now() -> int:
    return time.time_ns() // 1_000_000


class FetchTimes:
    """The times of fetches in one epoch, in milliseconds since 1970: each replica's last fetch, and when it had last
    caught up. Kafka: ``LeaderState.ReplicaState``.
    """

    def __init__(self, now: Callable[[], int] = _now) -> None:
        self._now = now
        self._epoch = -1
        self._known: dict[ReplicaKey, tuple[int, int, int]] = {}
        """For each replica: the time of its last fetch, the end of the leader's log then, and when it had caught up."""

    def record(self, fetch: Fetch, end_offset: int) -> None:
        """A replica fetches from the leader of the fetch's epoch, whose log ends at ``end_offset``."""
        if fetch.epoch != self._epoch:
            self._epoch = fetch.epoch
            self._known.clear()
        now = self._now()
        fetched_at, end_before, caught_up_at = self._known.get(fetch.replica, (-1, -1, -1))
        if fetch.log_end.offset >= end_offset:
            caught_up_at = now
        elif 0 < end_before <= fetch.log_end.offset:
            caught_up_at = max(caught_up_at, fetched_at)
        self._known[fetch.replica] = now, end_offset, caught_up_at

    def with_times(self, response: DescribeQuorumResponse) -> DescribeQuorumResponse:
        """Fill in the times of each replica in the leader's description of the quorum."""

        def timed(each: ReplicaProgress) -> ReplicaProgress:
            if each.key == response.source:
                fetched_at = caught_up_at = self._now()
            elif response.epoch == self._epoch:
                fetched_at, _, caught_up_at = self._known.get(each.key, (-1, -1, -1))
            else:
                return each
            return msgspec.structs.replace(each, fetched_at=fetched_at, caught_up_at=caught_up_at)

        return msgspec.structs.replace(
            response, voters=tuple(map(timed, response.voters)), observers=tuple(map(timed, response.observers))
        )
