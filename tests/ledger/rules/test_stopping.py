"""What ledgers lose if a bookie stops, as a table and compared with all ack quorums that there are."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.rules.ensembles import Fragment
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus
from fencepost.ledger.rules.replication import Risk, risks

NAMES = "abcdef"
SOME = st.frozensets(st.sampled_from(NAMES))


@st.composite
def ledgers(draw: st.DrawFn) -> LedgerMetadata:
    """A ledger of up to three fragments, with any quorums and in any status. Some of its fragments may be empty."""
    size = draw(st.integers(1, 4))
    write_quorum = draw(st.integers(1, size))
    ack_quorum = draw(st.integers(1, write_quorum))
    firsts = sorted(draw(st.sets(st.integers(1, 9), max_size=2)))
    ensembles = [tuple(draw(st.permutations(NAMES))[:size]) for _ in range(len(firsts) + 1)]
    status = draw(st.sampled_from(LedgerStatus))
    last = draw(st.integers(max(firsts, default=0) - 1, 12)) if status is LedgerStatus.CLOSED else -1
    fragments = tuple(map(Fragment, (0, *firsts), ensembles))
    return LedgerMetadata(size, write_quorum, ack_quorum, fragments, status, last)


def slowly(
    metadata: LedgerMetadata, bookie: str, serving: frozenset[str], writable: frozenset[str]
) -> list[tuple[int, Risk]]:
    """An entry may be on the bookies of any ack quorum of its write set, and on no other."""
    found: list[tuple[int, Risk]] = []
    size, write_quorum = metadata.ensemble_size, metadata.write_quorum
    for place, fragment in enumerate(metadata.fragments):
        if bookie not in fragment.ensemble:
            continue
        is_last = place + 1 == len(metadata.fragments)
        if is_last and metadata.status is LedgerStatus.CLOSED and metadata.last_entry < fragment.first_entry_id:
            continue
        sets = [{fragment.ensemble[(first + n) % size] for n in range(write_quorum)} for first in range(size)]
        serves = serving - {bookie}
        if any(not serves & {*quorum} for each in sets for quorum in combinations(sorted(each), metadata.ack_quorum)):
            found.append((place, Risk.UNREADABLE))
        elif is_last and metadata.status is not LedgerStatus.CLOSED:
            confirms = all(
                any({*quorum} <= serves for quorum in combinations(sorted(each), metadata.ack_quorum)) for each in sets
            )
            others = (writable - {bookie}) - {*fragment.ensemble}
            if not confirms and len(others) < len({*fragment.ensemble} - serves):
                found.append((place, Risk.UNWRITABLE))
    return found


@given(ledgers(), st.sampled_from(NAMES), SOME, SOME)
def test_as_all_ack_quorums_say(
    metadata: LedgerMetadata, bookie: str, serving: frozenset[str], writable: frozenset[str]
) -> None:
    writable &= serving
    assert risks(metadata, bookie, serving, writable) == slowly(metadata, bookie, serving, writable)


@given(ledgers(), st.sampled_from(NAMES), SOME, st.sampled_from(NAMES))
def test_one_more_that_serves_is_no_risk(
    metadata: LedgerMetadata, bookie: str, serving: frozenset[str], more: str
) -> None:
    before = risks(metadata, bookie, serving, serving)
    after = risks(metadata, bookie, serving | {more}, serving | {more})
    assert {place for place, _ in after} <= {place for place, _ in before}
    assert risks(metadata, bookie, serving | {bookie}, serving) == risks(metadata, bookie, serving - {bookie}, serving)


@pytest.mark.parametrize(
    ("quorums", "status", "last", "serving", "writable", "risk"),
    [
        ((3, 3, 2), LedgerStatus.CLOSED, 9, "abc", "abc", None),
        ((3, 3, 2), LedgerStatus.CLOSED, 9, "ab", "ab", Risk.UNREADABLE),
        ((3, 3, 2), LedgerStatus.CLOSED, -1, "a", "a", None),  # it has no entries
        ((3, 3, 2), LedgerStatus.OPEN, -1, "abc", "abc", None),
        ((3, 3, 2), LedgerStatus.OPEN, -1, "abd", "abd", Risk.UNREADABLE),
        ((3, 3, 3), LedgerStatus.OPEN, -1, "abc", "abc", Risk.UNWRITABLE),
        ((3, 3, 3), LedgerStatus.OPEN, -1, "abcd", "abc", Risk.UNWRITABLE),
        ((3, 3, 3), LedgerStatus.OPEN, -1, "abcd", "abcd", None),
        ((3, 3, 3), LedgerStatus.IN_RECOVERY, -1, "abc", "abc", Risk.UNWRITABLE),
        ((3, 3, 3), LedgerStatus.CLOSED, 9, "ab", "ab", None),
        ((3, 2, 2), LedgerStatus.CLOSED, 9, "abc", "abc", None),
        ((3, 2, 2), LedgerStatus.CLOSED, 9, "ab", "ab", Risk.UNREADABLE),
        ((3, 3, 1), LedgerStatus.CLOSED, 9, "abc", "abc", Risk.UNREADABLE),  # it may be on this one alone
    ],
)
def test_a_ledger_on_abc_without_a(
    quorums: tuple[int, int, int], status: LedgerStatus, last: int, serving: str, writable: str, risk: Risk | None
) -> None:
    metadata = LedgerMetadata(*quorums, (Fragment(0, ("a", "b", "c")),), status, last)
    assert risks(metadata, "a", serving, writable) == ([] if risk is None else [(0, risk)])
    assert risks(metadata, "d", serving, writable) == []
