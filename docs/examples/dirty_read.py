"""A directed search in the BookKeeper protocol: how a reader can read an entry that the closed ledger lacks."""

from fencepost import ModelValue, configuration, constraint
from fencepost.protocols.bookkeeper.current import BookKeeper, ClientStatus, ReadRequest, ReadResponse
from fencepost.protocols.bookkeeper.ledger import AddEntryRequest, AddEntryResponse, FenceRequest, FenceResponse

B1, B2 = ModelValue("b1"), ModelValue("b2")
C1, C2, C3 = ModelValue("c1"), ModelValue("c2"), ModelValue("c3")

LOST = {
    (AddEntryRequest, C1, B2),
    (FenceRequest, C2, B1),
    (ReadRequest, C2, B1),
    (FenceRequest, C3, B2),
    (ReadRequest, C3, B2),
}

REQUESTS = (AddEntryRequest, FenceRequest, ReadRequest)
RESPONSES = (AddEntryResponse, FenceResponse, ReadResponse)

ENOUGH = {
    "bookies": 2,
    "clients": 3,
    "readers": 1,
    "write_quorum": 2,
    "ack_quorum": 2,
    "send_limit": 2,
    "inflight_limit": 2,
}


class DirtyRead(BookKeeper):
    """Client c1 owns the ledger and falls silent, c2 and c3 recover it: c2 with the help of b2, c3 with that of b1."""

    configurations = {
        "today": configuration(**ENOUGH, expect="no_dirty_reads"),
        "frozen": configuration(**ENOUGH, recovery_freezes_lac=True),
    }

    @constraint
    def c1_writes_and_falls_silent(self) -> bool:
        return self.client[C1].status in (None, ClientStatus.OPEN) and not self.client[C1].confirmed[1]

    @constraint
    def c2_and_c3_wait_until_b1_has_both_entries(self) -> bool:
        return len(self.bookie[B1].entries) == 2 or all(self.client[c].status is None for c in (C2, C3))

    @constraint
    def some_messages_are_lost_and_no_others(self) -> bool:
        channels = [(kind, c, b) for kind in REQUESTS for c in (C1, C2, C3) for b in (B1, B2)]
        channels += [(kind, b, c) for kind in RESPONSES for c in (C1, C2, C3) for b in (B1, B2)]
        return not any(
            self.network.in_flight(*channel) if channel in LOST else self.network.lost(*channel) for channel in channels
        )
