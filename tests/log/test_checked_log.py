"""The protocol ``log``: the number of states of its configurations, why each protection exists, its equivalence to
`ledger-chaining`, the liveness of a stable leader, and faults in rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if, campaigns_but_every, engine_for
from protocols.faulty_rules import Rule, always, instead

from fencepost import Options, Protocol, Result, SearchOptions, check
from fencepost.log import rules
from fencepost.log.rules import Attaching, Protections, Status, Update
from fencepost.protocols.log import log
from fencepost.protocols.log.log import Log

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "log.md"

BATCHES: dict[str, Any] = {"most_attempts": 2, "entries": 0, "next_ledger_limit": 6, "clients": 1}
"""Constants with which one client writes a batch twice."""

REFINEMENT = "refines_ledger_chaining"
STABLE = "stable_leader_accepts_writes"

# Distinct states, depth.
HOLDS: dict[str, tuple[int, int]] = {
    "default": (148_938, 40),
    "three-clients": (1_832_775, 42),
    "three-entries": (396_706, 42),
    "one-client": (17_521, 34),
    "lost-answers": (49_186, 38),
    "late-updates": (231_926, 41),
    "trims": (108_764, 39),
    "trimmed-behind": (164_526, 47),
    "seals": (395_056, 44),
    "seals-unanswered": (25_800, 40),
    "all-at-once": (333_892, 43),
    "batches": (1_110_704, 54),
    "unanswered-batches": (1_342, 19),
    "late-batches": (4_887, 26),
}

# States in the shortest counterexample, distinct states explored until it is found.
VIOLATED: dict[str, tuple[int, int]] = {
    "last-ledger-left-open": (10, 401),
    "not-fenced": (12, 1_475),
    "written-before-chained": (5, 20),
    "unconditional-updates": (11, 807),
    "rivals-ignored": (12, 1_507),
    "taken-for-done": (6, 38),
    "all-written-again": (9, 214),
    "appended-after-the-seal": (7, 91),
    "batch-forgotten": (11, 7_065),
    "batch-in-parts": (6, 143),
    "withdrawal-overlooked": (8, 549),
}


@cache
def result_of(name: str) -> Result:
    """The result of checking a configuration. Each is checked once for all tests."""
    engine = engine_for(HOLDS.get(name, (0, 0))[0])
    return check(Log.configured(name), engine=engine, options=Options(workers=1))


def test_every_configuration_is_checked() -> None:
    assert set(Log.configurations) == {*HOLDS, *VIOLATED}


@pytest.mark.parametrize("name", campaign_if(lambda name: HOLDS[name][0] > MANY_STATES / 2, HOLDS))
def test_configurations_that_hold(name: str) -> None:
    result = result_of(name).must_hold()
    assert (result.distinct_states, result.depth) == HOLDS[name]


@pytest.mark.parametrize("name", VIOLATED)
def test_configurations_that_do_not(name: str) -> None:
    expected = Log.configurations[name].expect
    result = result_of(name)
    assert (len(result.must_violate(expected)), result.distinct_states) == VIOLATED[name]


@pytest.mark.parametrize("name", VIOLATED)
def test_what_is_violated_without_a_protection_holds_with_it(name: str) -> None:
    (switch,) = [constant for constant in Log.configurations[name].constants if constant in Protections._fields]
    protected = Log.configured(name, **{switch: True})
    assert not check(protected, options=SearchOptions(workers=1, max_depth=VIOLATED[name][0])).violations


def test_switches_are_the_protections_of_the_rules() -> None:
    assert Log().protections == Protections()
    assert all(not getattr(Log(**{name: False}).protections, name) for name in Protections._fields)
    constants = {constant for name in VIOLATED for constant in Log.configurations[name].constants}
    assert constants >= set(Protections._fields)


def test_plain_python_agrees() -> None:
    shallow = SearchOptions(workers=1, max_depth=9)
    given: dict[str, Any] = {"lost_answers": True, "trims": True, "sealing": True}
    plain, compiled = (check(Log(**given), engine=e, options=shallow) for e in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states
    assert plain.actions == compiled.actions


@pytest.mark.campaign
def test_every_action_is_taken() -> None:
    taken = {
        action.name
        for name in ("all-at-once", "late-updates", "batches", "late-batches")
        for action in result_of(name).actions
        if action.taken
    }
    assert taken == {action.name for action in Log.declared("action")}


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"next_ledger_limit": 1}, "there_is_a_ledger_to_create"),
        ({"late_updates": True}, "late_updates_are_not_answered"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    assert check(Log(**constants)).verdict == broken


# -- what must happen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", [{}, *campaign_if(bool, [{"trims": True}, {"sealing": True}, {"entries": 1}])], ids=str
)
def test_with_a_stable_leader_the_log_accepts_writes(given: dict[str, Any]) -> None:
    protocol = Log(**{"entries": 0, **given})
    check(protocol, invariants=[STABLE], options=Options(workers=1)).must_hold()


# The action that is not fair, and the number of states of the shortest behaviour that halts because of it; None if
# none does.
UNFAIR: dict[str, int | None] = {
    "become_leader": 0,
    "get_last_ledger": 1,
    "fence_last_ledger": 8,
    "close_last_ledger": 9,
    "last_ledger_already_closed": 9,
    "create_ledger": 2,
    "append_ledger": 3,
    "append_ledger_bad_version": 9,
    "look_up_chain": 10,
    "ledger_fenced": 9,
    "close_own_ledger_bad_version": None,
    "abdicate": None,
}


def test_the_table_of_what_must_be_fair_is_complete() -> None:
    assert {(name,) for name in UNFAIR} == {demand.actions for demand in Log.fairness}


@pytest.mark.parametrize("unfair", campaigns_but_every(3, UNFAIR))
def test_what_has_to_be_fair(unfair: str) -> None:
    class Unfair(Log):
        fairness = [demand for demand in Log.fairness if demand.actions != (unfair,)]

    result = check(Unfair(entries=0), invariants=[STABLE], options=Options(workers=1))
    if UNFAIR[unfair] is None:
        result.must_hold()
    else:
        trace = result.must_violate(STABLE)
        assert trace.loop == len(trace.steps) == UNFAIR[unfair]


def test_an_answer_that_is_lost_for_ever_keeps_a_leader_from_writing() -> None:
    protocol = Log(entries=0, lost_answers=True)
    check(protocol, invariants=[STABLE], options=Options(workers=1)).must_violate(STABLE)


# -- it is `ledger-chaining` -------------------------------------------------------------------------------------------

DECLARED: Any = next(one for one in Log.declared("refinement") if one.name == REFINEMENT)

# A constant of `ledger-chaining` as it is in the original, and the states of the shortest behaviour that the original
# does not have.
ORIGINAL = {"closed_by_another_will_do": 10, "closes_unwritten_ledgers": 6}


@pytest.mark.parametrize("name", ORIGINAL)
def test_the_original_is_too_narrow(name: str) -> None:
    class Narrow(Log):
        refines_ledger_chaining = dataclasses.replace(DECLARED, constants={**DECLARED.constants, name: False})

    narrow: Protocol = Narrow()
    found = check(narrow, invariants=[REFINEMENT], options=Options(workers=1)).must_violate(REFINEMENT)
    assert len(found) == ORIGINAL[name]


@pytest.mark.parametrize("given", [{"sealing": True}, {"lost_answers": True, "late_updates": True}, BATCHES], ids=str)
def test_what_ledger_chaining_has_no_step_for(given: dict[str, Any]) -> None:
    """A client that wants to seal, and has no ledger, finds a rival's ledger. An update is done for a client that has
    continued meanwhile.
    """
    assert not Log(**given).is_published
    check(Log(**given), invariants=[REFINEMENT], options=Options(workers=1)).must_violate(REFINEMENT)


# -- planted faults ----------------------------------------------------------------------------------------------------


def unsealed(rule: Rule) -> Rule:
    return lambda chain, *args, **kwargs: rule(chain.replace(sealed=False), *args, **kwargs)


def by_versions(seen: Any, ledger: Any, found: Any, protections: Protections) -> Update:
    """A refusal is always a rival."""
    return Update.DONE if found.last == ledger else Update.LOST


OPEN_OR_PENDING = (Status.PENDING_APPEND_LEDGER, Status.HAS_OPEN_LEDGER)

# The rule, the fault, its description, the constants that show it, and the check that finds it.
FAULTS: list[tuple[str, Callable[[Rule], Rule], str, dict[str, Any], str]] = [
    (
        "after_reading",
        always(Status.PENDING_CREATE_LEDGER),
        "the last ledger is not closed",
        {},
        "only_the_last_ledger_is_open",
    ),
    ("after_reading", unsealed, "the seal is not looked at", {"sealing": True}, "a_sealed_log_is_closed"),
    ("after_closing", always(Status.GET_MD_FOR_CLOSING), "the chain is read for ever", {"entries": 0}, STABLE),
    ("fences", always(False), "nobody is fenced", {}, "acknowledged_entries_are_in_the_log"),
    ("takes_update", always(True), "updates are not conditional", {}, "acknowledged_entries_are_in_the_log"),
    ("takes_update", always(False), "no update is taken", {"entries": 0}, STABLE),
    ("after_update", always(Update.DONE), "a refused update counts as done", {}, "what_is_written_is_in_the_chain"),
    ("after_update", always(Update.TRY_AGAIN), "a rival is passed over", {}, "only_the_last_ledger_is_open"),
    (
        "after_update",
        instead(by_versions),
        "a trim is taken for a rival",
        {"trims": True, "next_ledger_limit": 5},
        REFINEMENT,
    ),
    ("after_update", unsealed, "a ledger follows the seal", {"sealing": True}, REFINEMENT),
    (
        "may_write",
        instead(lambda status, _: status in OPEN_OR_PENDING),
        "written before it is chained",
        {},
        "acknowledged_entries_are_in_the_log",
    ),
    (
        "takes_unanswered_for_done",
        always(True),
        "no answer is a good answer",
        {"lost_answers": True},
        "acknowledged_entries_are_in_the_log",
    ),
    (
        "appended_by",
        instead(lambda end, written, acknowledged, _: acknowledged),
        "written twice",
        {},
        "the_log_is_in_order",
    ),
    (
        "appended_by",
        instead(lambda end, written, acknowledged, _: written),
        "not written again",
        {},
        "acknowledged_entries_are_in_the_log",
    ),
    (
        "appended_by",
        instead(lambda end, written, acknowledged, _: max(end, acknowledged)),
        "one too few",
        {},
        "the_log_is_in_order",
    ),
    (
        "before_attaching",
        always(Attaching.ATTACH),
        "a batch is attached again",
        BATCHES,
        "the_batch_is_in_the_log_once_and_whole",
    ),
    (
        "before_attaching",
        instead(lambda chain, batch, ledgers, are_pending, _: rules.before_attaching(chain, batch, ledgers, True)),
        "a batch is attached that is withdrawn",
        BATCHES,
        "ledgers_of_the_log_are_there",
    ),
    (
        "with_batch",
        instead(lambda chain, batch, *args: rules.with_batch(chain, None, *args)),
        "a batch is not remembered",
        BATCHES,
        "the_batch_is_in_the_log_once_and_whole",
    ),
    (
        "with_batch",
        instead(lambda chain, batch, ledgers, *args: rules.with_batch(chain, batch, ledgers[::-1], *args)),
        "the parts of a batch are out of order",
        BATCHES,
        "the_batch_is_in_the_log_once_and_whole",
    ),
    ("never_attached", always(True), "deleted before the batch is there", BATCHES, "ledgers_of_the_log_are_there"),
]


@pytest.mark.parametrize(
    ("rule", "fault", "what", "constants", "finds"), FAULTS, ids=[f"{f[0]}: {f[2]}" for f in FAULTS]
)
def test_a_planted_fault_is_found(
    rule: str,
    fault: Callable[[Rule], Rule],
    what: str,
    constants: dict[str, Any],
    finds: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert getattr(log, rule) is getattr(rules, rule), "the protocol calls the very function of the rules"
    monkeypatch.setattr(log, rule, fault(getattr(log, rule)))
    check(Log(**constants), invariants=[finds], options=Options(workers=1)).must_violate(finds)


def rows(section: str) -> dict[str, list[str]]:
    """The rows of the tables of a section of the page, by their first cell."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    return {row[0].strip("`"): row for row in cells}


def test_the_page_has_these_counts_and_every_constant() -> None:
    holds = rows("Check it")
    assert {name: row[-2:] for name, row in holds.items()} == {
        name: [f"{states:,}", str(depth)] for name, (states, depth) in HOLDS.items()
    }
    violated = rows("What each protection is there for")
    assert {name: row[-1] for name, row in violated.items()} == {
        name: str(states) for name, (states, _) in VIOLATED.items()
    }
    for name, row in violated.items():
        configuration = Log.configurations[name]
        assert row[1].strip("`") in configuration.constants and row[-2].strip("`") == configuration.expect
    fair = rows("With a stable leader, the log accepts writes")
    assert {name: row[1] for name, row in fair.items()} == {
        name: "holds" if steps is None else str(steps) for name, steps in UNFAIR.items()
    }
    assert {name: row[-1] for name, row in rows("It is `ledger-chaining`").items()} == {
        name: str(states) for name, states in ORIGINAL.items()
    }
    assert {*rows("Constants"), *Protections._fields} == set(Log().constants)
