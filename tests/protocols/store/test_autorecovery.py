"""The protocol ``autorecovery``: the states of its configurations, the need for each protection, and for each rule that
has none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if, engine_for

from fencepost import OptionError, check
from fencepost.ledger.rules import auditing, replication
from fencepost.ledger.rules.placement import Placement, Quorums, Unplaced, chosen, replaced, replacement
from fencepost.protocols.store import autorecovery
from fencepost.protocols.store.autorecovery import AutoRecovery

PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "autorecovery.md"

# Distinct states, depth.
HOLDS = {
    "default": (163_287, 30),
    "small": (8_584, 21),
    "two-processes": (43_260, 22),
    "ends": (38_381, 28),
    "two-entries": (217_518, 38),
    "one-confirms": (140_071, 30),
    "two-ledgers": (126_428, 33),
    "four-bookies": (105_162, 29),
    "two-racks": (74_916, 29),
}

# States in the shortest counterexample.
VIOLATED = {
    "without-locks": 8,
    "unconditional-updates": 7,
    "metadata-first": 14,
    "open-fragments": 13,
    "marks-at-any-version": 13,
    "as-bookkeeper": 13,
    "returns-overlooked": 11,
    "registered-alone": 4,
    "not-enforced": 5,
    "anyone-audits": 5,
}

SWITCHES = [name for name, value in AutoRecovery().constants.items() if value is True and name != "clients_recover"]


def test_every_configuration_is_here() -> None:
    assert set(AutoRecovery.configurations) == HOLDS.keys() | VIOLATED.keys()


@pytest.mark.parametrize("name", campaign_if(lambda name: HOLDS[name][0] > 2 * MANY_STATES, HOLDS))
def test_counts(name: str) -> None:
    result = check(AutoRecovery.configured(name), engine=engine_for(HOLDS[name][0])).must_hold()
    assert (result.distinct_states, result.depth) == HOLDS[name]


@pytest.mark.parametrize("name", VIOLATED)
def test_without_a_protection_its_property_is_violated(name: str) -> None:
    expected = AutoRecovery.configurations[name].expect
    result = check(AutoRecovery.configured(name), engine="embedded")
    assert result.verdict == expected
    assert len(result.must_violate(expected)) == VIOLATED[name]


def test_every_switch_is_off_in_one_configuration_and_alone() -> None:
    off = [
        [switch for switch in SWITCHES if AutoRecovery.configured(name).constants[switch] is False] for name in VIOLATED
    ]
    assert sorted(off) == sorted([switch] for switch in SWITCHES)
    assert all(AutoRecovery.configured(name).constants[switch] for name in HOLDS for switch in SWITCHES)


@pytest.mark.parametrize(
    ("name", "violated"),
    [
        ("metadata-first", "new_bookies_have_the_entries"),
        ("open-fragments", "closed_ledgers_have_what_is_acknowledged"),
    ],
)
def test_the_other_properties_are_needed(name: str, violated: str) -> None:
    check(AutoRecovery.configured(name), engine="embedded", invariants=[violated]).must_violate(violated)


def test_every_action_is_taken() -> None:
    taken: set[str] = set()
    for constants in ({}, {"max_stops": 1, "max_ends": 1}):
        result = check(AutoRecovery(**constants), engine="embedded")
        assert result.unreached == ()
        taken |= {each.name for each in result.actions if each.taken}
    assert taken == {each.name for each in AutoRecovery.declared("action")}


def _lasts(metadata: Any, fragment: int) -> range:
    found = replication.span(metadata, fragment)
    return range(found.start, max(found.start, found.stop - 1))


@pytest.mark.parametrize(
    ("rule", "broken", "violated"),
    [
        # A worker does not see that a bookie is lost.
        ("lost", lambda metadata, registered: frozenset(), "ledgers_of_lost_bookies_are_marked"),
        # It copies all entries but the last.
        ("span", _lasts, "acknowledged_entries_keep_their_copies"),
        # A ledger that is written on a lost bookie counts as whole.
        ("waits_for_end", lambda metadata, gone: False, "ledgers_of_lost_bookies_are_marked"),
        # An auditor gives up bookies before it has published their ledgers.
        ("met", lambda watched, registered: watched, "ledgers_of_lost_bookies_are_marked"),
        ("seen", lambda watched, registered, delay: (auditing.audited(watched), auditing.Due.NOTHING), "unreached"),
        # A mark that is there stays as it is.
        (
            "to_publish",
            lambda published, missing, is_locked: tuple(missing) if published is None else None,
            "ledgers_of_lost_bookies_are_marked",
        ),
        # The youngest vote counts, so that two find themselves elected one after the other.
        ("in_order", lambda votes: sorted(votes, reverse=True), "there_is_one_auditor"),
    ],
)
def test_a_fault_in_a_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, rule: str, broken: Callable[..., Any], violated: str
) -> None:
    monkeypatch.setattr(autorecovery, rule, broken)
    result = check(AutoRecovery(processes=2 if rule == "in_order" else 1), engine="embedded")
    if violated == "unreached":
        assert "a_ledger_is_whole_again" in result.verdict
    else:
        result.must_violate(violated)


def _beside_survivors(
    ensemble: Any, lost: Any, gone: Any, candidates: Any, quorums: Quorums, placement: Placement
) -> Any:
    """The replacement that suits the bookies that are left, though other lost ones may come back."""
    changed = replaced(ensemble, {*gone, lost}, candidates, quorums, placement)
    return changed if isinstance(changed, Unplaced) else changed[ensemble.index(lost)]


@pytest.mark.parametrize(
    ("rule", "broken"),
    [
        ("replacement", _beside_survivors),
        ("replacement", lambda ensemble, lost, gone, candidates, *_: replacement(ensemble, lost, gone, candidates)),
        ("replaced", lambda ensemble, failed, candidates, *_: replaced(ensemble, failed, candidates)),
        ("chosen", lambda candidates, size, *_: chosen(list(candidates)[::2], size)),
    ],
)
def test_a_fault_in_placement_is_found(monkeypatch: pytest.MonkeyPatch, rule: str, broken: Callable[..., Any]) -> None:
    monkeypatch.setattr(autorecovery, rule, broken)
    result = check(AutoRecovery.configured("two-racks"), engine="embedded")
    result.must_violate("entries_are_in_all_racks")


def test_there_must_be_a_bookie_to_copy_to() -> None:
    assert check(AutoRecovery(bookies=2)).verdict == "quorums_fit"
    with pytest.raises(OptionError, match="max_stops"):
        AutoRecovery(max_stops="often")


def test_the_page_has_these_numbers_and_every_constant() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    rows = {cells[0].strip("`"): cells for cells in ([c.strip() for c in line.strip("|").split("|")] for line in lines)}
    assert {name: rows[name][-1] for name in HOLDS} == {name: f"{states:,}" for name, (states, _) in HOLDS.items()}
    assert {name: rows[name][-1] for name in VIOLATED} == {name: str(states) for name, states in VIOLATED.items()}
    assert {name: rows[name][-2].strip("`") for name in VIOLATED} == {
        name: AutoRecovery.configurations[name].expect for name in VIOLATED
    }
    assert AutoRecovery().constants.keys() <= rows.keys()
    assert {each.name for each in (*AutoRecovery.declared("invariant"), *AutoRecovery.declared("step_invariant"))} <= {
        *rows
    }
