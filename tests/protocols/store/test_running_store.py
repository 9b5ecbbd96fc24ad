"""The running store within small bounds: its properties hold, and need each protection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from campaigns import campaign_if, engine_for

from fencepost import ModelValue, Options, check, sometimes
from fencepost.ledger.rules.boot import Mark
from fencepost.ledger.rules.codes import Verdict
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.protections import switches
from fencepost.protocols.store import running
from fencepost.protocols.store.running import RunningStore
from fencepost.protocols.store.store import LOSS, Status

# Distinct states up to symmetry, depth.
EXPLORED: dict[str, tuple[int, int]] = {
    "two-copies-crash": (408_673, 36),
    "both-copies-crash": (1_657_703, 35),
    "two-failures": (977_085, 39),
    "two-entries-recovered": (1_420_891, 47),
    "two-recoveries": (1_684_348, 62),
}
LARGE = {"both-copies", "deferred-sync-recovered", "one-copy", "reader", "two-copies", "two-entries"}
HOLDS = sorted(name for name, each in RunningStore.configurations.items() if each.expect == "holds")
VIOLATED = sorted(name for name, each in RunningStore.configurations.items() if each.expect != "holds")
FOUND_LATE = {
    "fragments-at-once",
    "hasty-negatives",
    "limbo-denies",
    "reads-move-on",
    "reads-without-fencing",
    "starts-at-the-lac",
}
PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "store.md"


@pytest.mark.parametrize("name", campaign_if(lambda name: name in EXPLORED or name in LARGE, HOLDS))
def test_it_holds(name: str) -> None:
    engine = engine_for(EXPLORED.get(name, (0, 0))[0])
    result = check(RunningStore.configured(name), engine=engine, symmetry=True).must_hold()
    assert result.distinct_states > 100 and result.complete
    assert (result.distinct_states, result.depth) == EXPLORED.get(name, (result.distinct_states, result.depth))


def test_the_page_says_how_much_is_explored() -> None:
    page = PAGE.read_text()
    for name, (states, depth) in EXPLORED.items():
        assert f"| `{name}` | {RunningStore.configurations[name].doc} | {states:,} | {depth} |" in page


@pytest.mark.parametrize("name", campaign_if(lambda name: name in FOUND_LATE, VIOLATED))
def test_without_a_protection_it_does_not(name: str) -> None:
    check(RunningStore.configured(name), symmetry=True).must_violate(RunningStore.configurations[name].expect)


DEFERRED = {"write_quorum": 2, "ack_quorum": 1, "versions": 1, "deferred_sync": True, "power_losses": 1}
"""Two copies. One is confirmed before it is durable, and then lost."""


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("is_forced", lambda forced, ensemble: any(b in forced for b in ensemble)),
        ("outlives_connection", lambda pushed, forced, deferred_sync: True),
        ("lac_of_owner", lambda confirmed, forced, deferred_sync: confirmed),
    ],
)
def test_without_a_rule_of_deferred_sync_it_does_not(
    rule: str, wrong: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, rule, wrong)
    check(RunningStore(**DEFERRED), options=Options(workers=1)).must_violate("all_acked_entries_are_readable")


@pytest.mark.parametrize(
    ("rule", "wrong", "violated"),
    [
        ("is_readable", lambda entry_id, lac, end: entry_id <= lac + 1, "nobody_has_read_what_is_cut_off"),
        (
            "ordinary_read",
            lambda found, negative, failed, write_set: Verdict.NEGATIVE if negative else Verdict.WAITING,
            "readers_find_what_is_committed",
        ),
    ],
)
def test_without_a_rule_of_readers_it_does_not(
    rule: str, wrong: Callable[..., object], violated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, rule, wrong)
    constants = {"write_quorum": 2, "ack_quorum": 1, "versions": 2, "failures": 0, "followers": 1}
    check(RunningStore(**constants), options=Options(workers=1)).must_violate(violated)


@pytest.mark.parametrize(
    ("rule", "wrong", "violated"),
    [
        ("may_leave_limbo", lambda status, lacking: True, LOSS),
        ("mark_of", lambda metadata, bookie, protections: Mark.NOTHING, "reads_begin_when_the_owner_is_fenced_off"),
        ("mark_of", lambda metadata, bookie, protections: Mark.FENCE, LOSS),
    ],
)
def test_without_a_rule_of_repair_it_does_not(
    rule: str, wrong: Callable[..., object], violated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, rule, wrong)
    constants = {"write_quorum": 2, "ack_quorum": 2, "clients": 2, "failures": 0, "versions": 3, "crashes": 1}
    check(RunningStore(**constants), symmetry=True).must_violate(violated)


def test_every_protection_is_needed_but_one() -> None:
    """The exception is that recovery reports the LAC that it began with. Only readers notice that, and there are none
    here: see test_dirty_reads.
    """
    off = {
        switch
        for name in VIOLATED
        for switch in switches(RunningStore, Protections)
        if RunningStore.configurations[name].constants.get(switch) is False
    }
    assert {*switches(RunningStore, Protections)} - off == {"recovery_freezes_lac"}


def test_a_recovery_marks_again_that_has_read_and_marked_at_once() -> None:
    class MarksAgain(RunningStore):
        @sometimes
        def it_goes_on(self) -> bool:
            client = self.client[ModelValue("c2")]
            return client.status is Status.IN_RECOVERY and client.version == 3

    constants = RunningStore.configurations["one-bookie"].constants
    assert check(MarksAgain(**constants, metadata_lags=False, failures=0), options=Options(workers=1)).must_hold()
