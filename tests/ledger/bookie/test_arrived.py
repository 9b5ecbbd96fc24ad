"""Adds that arrived together, as rows: what the role does with them, and what the storage receives."""

from __future__ import annotations

import pytest

from fencepost.ledger.bookie.batches import ArrivedAdds, Batches
from fencepost.ledger.bookie.inbox import Memory
from fencepost.ledger.kernels import bookie as loops
from fencepost.ledger.messages import AddEntry
from fencepost.ledger.wire import v3


def arrived(*requests: AddEntry) -> list[ArrivedAdds]:
    frames = b"".join(v3.encode_request(txn, request) for txn, request in enumerate(requests, 1))
    memory, batches = Memory(len(frames)), Batches(loops)
    memory.view[:] = frames
    loops.parse(memory.array, 0, len(frames), len(frames), v3.VERSION, batches.table)
    return [*batches.adds(memory, 0, len(requests))]


def add(entry_id: int, ledger: int = 1, recovery: bool = False) -> AddEntry:
    body = b"".join(number.to_bytes(8, signed=True) for number in (ledger, entry_id, entry_id - 1, 1)) + b"data"
    return AddEntry(ledger, entry_id, entry_id - 1, body, bytes(20), recovery)


def test_the_last_of_several_adds_of_an_entry_counts() -> None:
    (some,) = arrived(add(3), add(4), add(3))
    (adds,) = some.adds
    assert [adds.last_place(entry_id) for entry_id in (2, 3, 4, 5)] == [-1, 2, 1, -1]


@pytest.mark.parametrize("recovery", [False, True])
def test_the_storage_is_told_that_a_recovery_sent_entries(recovery: bool) -> None:
    """Without their data in the journal it has these alone there."""
    (some,) = arrived(add(3, recovery=recovery), add(4, recovery=recovery))
    assert some.entries(some.adds).recovery is recovery


def test_entries_that_are_not_taken_are_not_stored() -> None:
    (some,) = arrived(add(3), add(7, ledger=2), add(4))
    rows = some.entries(some.adds[:1])
    assert [rows.table[row, :2].tolist() for row in range(len(rows))] == [[1, 3], [1, 4]]
