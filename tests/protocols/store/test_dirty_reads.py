"""A recovery that reports a LAC of its own misleads a reader. Constraints direct the search, as in dirty_read.py for
`bookkeeper`.
"""

from typing import Any

import pytest

from fencepost import ModelValue, SearchOptions, check, constraint
from fencepost.protocols.bookkeeper.current import ReadRequest, ReadResponse
from fencepost.protocols.bookkeeper.ledger import AddEntryRequest, AddEntryResponse, FenceRequest, FenceResponse
from fencepost.protocols.store.running import EntryReadResponse, RunningStore
from fencepost.protocols.store.store import Status, Store

B1, B2 = ModelValue("b1"), ModelValue("b2")
C1, C2, C3 = ModelValue("c1"), ModelValue("c2"), ModelValue("c3")
REQUESTS = (AddEntryRequest, FenceRequest, ReadRequest)
RESPONSES = (AddEntryResponse, FenceResponse, ReadResponse)
LOST = {
    (AddEntryRequest, C1, B2),
    (FenceRequest, C2, B1),
    (ReadRequest, C2, B1),
    (FenceRequest, C3, B2),
    (ReadRequest, C3, B2),
}

ENOUGH: dict[str, Any] = {
    "bookies": 2,
    "clients": 3,
    "readers": 1,
    "send_limit": 2,
    "inflight_limit": 2,
    "metadata_lags": False,
}


class DirtyRead(Store):
    """Client c1 owns the ledger and falls silent. Then c2 recovers it with b2, and c3 with b1."""

    @constraint
    def c1_writes_and_falls_silent(self) -> bool:
        return self.client[C1].status in (None, Status.OPEN) and not self.client[C1].confirmed[1]

    @constraint
    def c2_and_c3_wait_until_b1_has_both_entries(self) -> bool:
        return len(self.bookie[B1].entries) == 2 or all(self.client[c].status is None for c in (C2, C3))

    @constraint
    def some_messages_are_lost_and_no_others(self) -> bool:
        channels: list[Any] = [(kind, c, b) for kind in REQUESTS for c in (C1, C2, C3) for b in (B1, B2)]
        channels += [(kind, b, c) for kind in RESPONSES for c in (C1, C2, C3) for b in (B1, B2)]
        return not any(
            self.network.in_flight(*channel) if channel in LOST else self.network.lost(*channel) for channel in channels
        )


@pytest.mark.parametrize("frozen", [False, True])
def test_recovery_freezes_the_lac_that_it_tells(frozen: bool) -> None:
    result = check(DirtyRead(**ENOUGH, recovery_freezes_lac=frozen), invariants=["no_dirty_reads"])
    assert result.must_hold() if frozen else len(result.must_violate("no_dirty_reads")) == 32


class BeyondTheEnd(RunningStore):
    """The same where no one knows of losses. The LAC of a bookie shows that a reader would be misled."""

    @constraint
    def c1_writes_and_falls_silent(self) -> bool:
        return self.client[C1].status in (None, Status.OPEN) and not self.client[C1].confirmed[1]

    @constraint
    def c2_and_c3_wait_until_b1_has_both_entries(self) -> bool:
        return (self.stored[B1][1] and self.stored[B1][2]) or all(self.client[c].status is None for c in (C2, C3))

    @constraint
    def b2_has_what_c3_has_written_back(self) -> bool:
        return all(not self.stored[B2][entry_id] or entry_id in self.client[C3].written_back for entry_id in (1, 2))

    @constraint
    def c2_hears_of_b2_and_c3_of_b1(self) -> bool:
        return not any(self.network.in_flight(FenceResponse, b, c) for b, c in ((B1, C2), (B2, C3))) and not any(
            self.network.in_flight(EntryReadResponse, b, c, topic=entry_id)
            for b, c in ((B1, C2), (B2, C3))
            for entry_id in self.readable_ids
        )


@pytest.mark.campaign
@pytest.mark.parametrize("frozen", [False, True])
def test_no_bookie_is_told_a_lac_beyond_the_end(frozen: bool) -> None:
    constants = {
        **RunningStore.configurations["both-copies"].constants,
        "clients": 3,
        "versions": 4,
        "send_limit": 2,
        "inflight_limit": 2,
    }
    at_once = {"metadata_lags": False, "metadata_answers_lost": False, "mark_answers_lost": False}
    protocol = BeyondTheEnd(**constants, **at_once, recovery_freezes_lac=frozen)
    result = check(protocol, invariants=["no_lac_beyond_the_end"], options=SearchOptions(max_depth=34))
    assert not result.violations if frozen else len(result.must_violate("no_lac_beyond_the_end")) == 34
