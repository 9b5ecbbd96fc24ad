"""Runs of entries: arrays and lists give the same runs, and runs give the ids back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.entries import runs_of


@given(
    ids=st.lists(st.integers(0, 20), max_size=12) | st.integers(0, 99).map(lambda n: [*range(7, 7 + n)]),
    strided=st.booleans(),
)
def test_runs_are_the_ids_in_order(ids: list[int], strided: bool) -> None:
    runs = runs_of(ids)
    assert [entry for first, last in runs for entry in range(first, last + 1)] == ids
    table = np.zeros((len(ids), 3 if strided else 1), np.int64)
    table[:, 0] = ids
    of_array = runs_of(table[:, 0])
    assert of_array == runs
    assert all(type(entry) is int for run in of_array for entry in run)
