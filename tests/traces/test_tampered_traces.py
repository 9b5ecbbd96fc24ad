"""Traces of the store with changes. Each change is found, or there is a reason why the changed trace may still be of a
behaviour.

Every event of a few traces is removed, duplicated, swapped with the next one of its node, altered in each of its
fields, and made the end of its node's trace. Changes that are still accepted must be in one of the tables below, which
say why.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from traces.tampering import Tampered, tampered
from traces.traced import traced, validate

TRACES = (("everything", 48), ("everything", 15), ("everything", 37))
"""Small ones, with limbo, ensembles that change, two recoveries, an impostor, and a bookie that is sent entries
again.
"""

LOST = "a message may be lost: it makes no difference unless somebody counts on it later, and then that is refused"
IGNORED = "what it tells is of no consequence: the protocol has nothing of the kind"
AGAIN = "it may be done again, and what it did the first time stays"
UNHEARD = "what came of a write may have been heard in the answer or by a read"
SAME = "it comes to the same: as many are in an ensemble as in a write set, or nothing is sent to those that are named"
EITHER = "another bookie has answered alike, and which of them is heard does not matter there"
UNCERTAIN = "the answer says nothing certain, or the entry was never written: it is only ordered"
CARRIED = (
    "an entry that is sent anew carries the LAC that it carried before, and the protocol one that is at least as high"
)
TOLD = "the LAC that a bookie tells is that of some entry; which one, and whether there is one, is not in the protocol"
SHOWN = "an entry that a bookie shows after a crash has survived it, whether the bookie says so or not"
PART = "of a run of answers some are lost"
LESS = "a reader may be told less, or later, as long as it does nothing that takes more"
MORE = "a reader may be told a higher LAC, if there is one by then"
UNWRITTEN = "the metadata service never had what was to be written, and a bookie that was to be replaced may work again"
END = "nothing after it is needed by anybody else"

REMOVED: dict[str, tuple[str, ...]] = {
    LOST: (
        "bookie_sends_add_confirmed_response",
        "bookie_sends_add_fenced_response",
        "bookie_sends_fencing_read_lac_response",
        "bookie_sends_read_response",
        "client_receives_add_confirmed_response",
        "client_receives_add_fenced_response",
        "client_receives_metadata",
        "client_sends_recovery_read_requests",
    ),
    IGNORED: (
        "bookie_refuses_add",
        "client_confirms",
        "client_ends",
        "client_gives_up_on_add",
        "client_gives_up_on_fence",
        "client_gives_up_on_read",
        "client_opens_ledger",
        "recovery_client_gives_up_on_add",
    ),
    AGAIN: ("bookie_crashes",),
    SHOWN: ("bookie_recovers",),
    LESS: (
        "reader_finds_end",
        "reader_learns_lac",
        "reader_reads_metadata",
        "reader_receives_entry",
        "reader_receives_no_entry",
    ),
}
DOUBLED: dict[str, tuple[str, ...]] = {
    IGNORED: (
        "bookie_recovers",
        "bookie_refuses_add",
        "client_confirms",
        "client_creates_ledger",
        "client_ends",
        "client_gives_up_on_add",
        "client_gives_up_on_fence",
        "client_gives_up_on_read",
        "recovery_client_gives_up_on_add",
    ),
    UNCERTAIN: ("bookie_sends_read_response",),
    AGAIN: (
        "bookie_crashes",
        "client_changes_ensemble",
        "client_opens_ledger",
        "client_receives_metadata",
        "client_starts_recovery",
        "reader_finds_end",
        "reader_reads_metadata",
        "recovery_client_closes_ledger",
    ),
}
CUT: dict[str, tuple[str, ...]] = {
    END: (
        "bookie_crashes",
        "bookie_recovers",
        "bookie_refuses_add",
        "bookie_sends_add_confirmed_response",
        "client_gives_up_on_add",
        "client_changes_ensemble",
        "bookie_sends_add_fenced_response",
        "bookie_sends_read_response",
        "client_ends",
        "client_opens_ledger",
        "client_receives_add_confirmed_response",
        "client_receives_add_fenced_response",
        "client_receives_metadata",
        "reader_finds_end",
        "reader_learns_lac",
        "reader_reads_metadata",
        "reader_receives_entry",
        "reader_receives_no_entry",
    )
}
ALTERED = {
    IGNORED: (
        ("bookie_refuses_add", "*"),
        ("client_gives_up_on_add", "*"),
        ("client_gives_up_on_fence", "*"),
        ("client_gives_up_on_read", "*"),
        ("recovery_client_gives_up_on_add", "*"),
        ("client_opens_ledger", "written (False)"),
    ),
    SHOWN: (("bookie_recovers", "*"),),
    LESS: (
        ("reader_finds_end", "entry (later)"),
        ("reader_learns_lac", "lac (lower)"),
        ("reader_receives_entry", "entries (fewer)"),
    ),
    MORE: (("reader_learns_lac", "lac (higher)"),),
    UNWRITTEN: (("client_changes_ensemble", "metadata (ensemble)"),),
    CARRIED: (
        ("bookie_sends_add_confirmed_response", "lac (higher)"),
        ("bookie_sends_add_confirmed_response", "lac (lower)"),
    ),
    TOLD: (
        ("bookie_sends_fencing_read_lac_response", "code (OK)"),
        ("bookie_sends_fencing_read_lac_response", "entry (later)"),
        ("bookie_sends_fencing_read_lac_response", "lac (lower)"),
        ("client_receives_fencing_read_lac_response", "lac (lower)"),
    ),
    UNCERTAIN: (
        ("bookie_sends_read_response", "code (NO_ENTRY)"),
        ("bookie_sends_read_response", "entries (later)"),
        ("bookie_sends_read_response", "entries (more)"),
        ("bookie_sends_read_response", "fence (False)"),
        ("bookie_sends_read_response", "fence (True)"),
    ),
    UNHEARD: (("client_receives_metadata", "written (False)"), ("client_receives_metadata", "written (True)")),
    EITHER: (
        ("client_receives_add_confirmed_response", "bookie"),
        ("client_receives_recovery_read_response", "bookie"),
    ),
    PART: (
        ("bookie_sends_add_fenced_response", "entries (fewer)"),
        ("client_receives_add_fenced_response", "entries (fewer)"),
        ("client_sends_add_entry_requests", "entries (more)"),
    ),
    SAME: (
        ("client_resends_pending_add_op", "before (another)"),
        ("client_resends_pending_add_op", "before (order)"),
        ("client_sends_recovery_read_requests", "bookies (order)"),
        ("recovery_client_sends_pending_add_op", "before (order)"),
    ),
}

NEVER_SWAPPED = {
    ("client_creates_ledger", "client_receives_metadata"),
    ("client_opens_ledger", "client_starts_recovery"),
    ("client_starts_recovery", "client_receives_metadata"),
    ("client_receives_metadata", "client_receives_fencing_read_lac_response"),
    ("client_receives_fencing_read_lac_response", "client_sends_recovery_read_requests"),
    ("client_sends_recovery_read_requests", "client_sends_recovery_read_requests"),
    ("client_receives_recovery_read_response", "client_writes_back_entry"),
    ("client_receives_add_confirmed_response", "client_confirms"),
    ("recovery_client_receives_add_confirmed_response", "recovery_client_closes_ledger"),
    ("recovery_client_closes_ledger", "client_receives_metadata"),
    ("client_changes_ensemble", "client_receives_metadata"),
    ("recovery_client_changes_ensemble", "recovery_client_sends_pending_add_op"),
    ("metadata_written", "metadata_written"),
    ("bookie_is_fenced", "bookie_sends_fencing_read_lac_response"),
    ("bookie_sends_add_confirmed_response", "bookie_is_fenced"),
}
"""The second follows from the first, or would be refused before it. All others may be independent of one another."""


def reason(change: Tampered) -> str | None:
    """Why a change need not be found, if there is a reason."""
    action = change.event.action
    if change.how == "swapped":
        return None if (action, change.field) in NEVER_SWAPPED else "neither follows from the other"
    if change.how == "altered":
        return next((why for why, known in ALTERED.items() if {(action, change.field), (action, "*")} & {*known}), None)
    tables: dict[str, dict[str, tuple[str, ...]]] = {"removed": REMOVED, "doubled": DOUBLED, "cut": CUT}
    return next((why for why, known in tables[change.how].items() if action in known), None)


@dataclass(frozen=True)
class Tried:
    """A change, whether the trace was still accepted, and why it may be."""

    trace: str
    what: tuple[str, str, str]
    where: str
    accepted: bool
    why: str | None


pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def tried() -> list[Tried]:
    """All changes to all traces."""
    found = []
    for profile, seed in TRACES:
        _, events = traced(seed, profile)
        assert validate(events).accepted
        for change in tampered(events):
            where = f"{change.event.node} {change.event.incarnation} {change.event.seq}"
            accepted = validate(change.events).accepted
            found.append(Tried(f"{profile} {seed}", change.what, where, accepted, reason(change)))
    return found


def test_a_change_is_found_unless_there_is_a_reason_why_not(tried: list[Tried]) -> None:
    assert not [change for change in tried if change.accepted and change.why is None]


def test_most_changes_are_found(tried: list[Tried]) -> None:
    made = Counter(change.what[0] for change in tried)
    found = Counter(change.what[0] for change in tried if not change.accepted)
    assert sum(made.values()) > 2_000
    for how, least in {"removed": 0.4, "doubled": 0.5, "altered": 0.6, "cut": 0.6}.items():
        assert found[how] > least * made[how], (how, found, made)


def test_every_reason_is_needed(tried: list[Tried]) -> None:
    """A change that is found today does not stay in the tables."""
    needed = {change.what for change in tried if change.accepted}
    for how, table in (("removed", REMOVED), ("doubled", DOUBLED), ("cut", CUT)):
        for actions in table.values():
            assert {action for action in actions if (how, action, "") not in needed} == set()
    listed = [each for known in ALTERED.values() for each in known]
    idle = [(a, f) for a, f in listed if not any(how == "altered" and a == b and f in ("*", g) for how, b, g in needed)]
    assert not idle
