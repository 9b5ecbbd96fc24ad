"""Lists of entries in the format of BookKeeper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.wire.strategies import RUNS

from fencepost.ledger.wire import availability
from fencepost.ledger.wire.availability import Runs
from fencepost.ledger.wire.frames import WireError


@given(RUNS)
def test_runs_come_back(runs: Runs) -> None:
    assert availability.decode(availability.encode(runs)) == runs


def test_the_form() -> None:
    """Every third entry of a ledger, and a run of its own: two groups of 24 bytes after 64 bytes of header."""
    runs = ((1, 1), (4, 4), (7, 7), (20, 24))
    expected = "00000000 00000002" + "00" * 56
    expected += "0000000000000001 0000000000000007 00000001 00000003"
    expected += "0000000000000014 0000000000000014 00000005 00000000"
    assert availability.encode(runs) == bytes.fromhex(expected.replace(" ", ""))


def test_a_run_that_is_too_long_for_the_form_is_cut() -> None:
    run = (0, 2**33)
    assert availability.decode(availability.encode([run])) == (run,)


@given(st.binary(max_size=150))
def test_any_bytes_are_runs_or_a_wire_error(data: bytes) -> None:
    for groups in (data, b"\0\0\0\0\0\0\0\x01" + bytes(56) + data):
        try:
            runs = availability.decode(groups)
        except WireError:
            continue
        assert all(first <= last for first, last in runs)


@pytest.mark.parametrize(
    "groups",
    [
        "0000000000000001 0000000000000007 00000001 00000000",
        "0000000000000001 0000000000000007 00000001 00000004",
        "0000000000000007 0000000000000001 00000001 00000006",
        "ffffffffffffffff 0000000000000001 00000001 00000002",
        "0000000000000001 0000000000000001 00000000 00000000",
        "0000000000000001 0000000000000007 00000004 00000003",
        "0000000000000000 7fffffffffffff00 00000001 00000100",
    ],
)
def test_groups_that_make_no_sense(groups: str) -> None:
    with pytest.raises(WireError, match="list of entries"):
        availability.decode(b"\0\0\0\0\0\0\0\x01" + bytes(56) + bytes.fromhex(groups.replace(" ", "")))
