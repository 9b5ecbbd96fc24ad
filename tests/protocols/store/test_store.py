"""The protocol ``store``: the states of its configurations, and the need for each protection."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if, engine_for

from fencepost import Result, SearchOptions, check
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.protections import switches
from fencepost.protocols.store.store import Store

SWITCHES = switches(Store, Protections)

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "protocols" / "store.md"

LARGE = {"default": 7_502_301, "three-bookies": None, "small": 1_065_807, "two-entries": 6_606_965}
"""Configurations of the page that take too long for a test, with their states."""

# Distinct states, depth.
HOLDS: dict[str, tuple[int, int]] = {
    "one-copy": (12_141, 31),
    "lost-answers": (13_663, 30),
    "marks-again": (27_693, 33),
    "at-once": (6_175, 25),
    "overtaken": (42_907, 39),
    "one-of-two": (639, 14),
    "reads-ahead": (59_609, 32),
    "appends-while-changing": (114_372, 24),
    "striped": (884_763, 41),
    "reader": (242_181, 35),
    "reader-of-two-entries": (26_704, 19),
    "crash": (260_221, 33),
}

# States in the shortest counterexample, and distinct states until it is found.
VIOLATED: dict[str, tuple[int, int]] = {
    "fenced-bookies-add": (16, 258_993),
    "one-bookie-fenced": (8, 1_337),
    "reads-without-fencing": (16, 304_757),
    "starts-at-the-lac": (16, 7_119),
    "reads-move-on": (25, 755_395),
    "fragments-at-once": (15, 3_011),
    "hasty-negatives": (16, 16_821),
    "closes-before-writing-back": (16, 297_093),
    "unconditional-updates": (6, 113),
    "confirmations-kept": (11, 12_626),
    "confirmed-out-of-order": (6, 51),
    "lac-runs-ahead": (7, 137),
    "limbo-denies": (19, 259_973),
}

NOT_SHOWN_BY_A_CONFIGURATION = {"recovery_freezes_lac"}
"""It needs three clients and a reader: see ``test_dirty_reads.py``."""


@cache
def result_of(name: str) -> Result:
    """The result of checking a configuration. Each is checked once."""
    states = HOLDS[name][0] if name in HOLDS else VIOLATED[name][1]
    return check(Store.configured(name), engine=engine_for(states))


def test_every_configuration_is_checked() -> None:
    assert set(Store.configurations) == {*LARGE, *HOLDS, *VIOLATED}


@pytest.mark.parametrize("name", campaign_if(lambda name: HOLDS[name][0] > MANY_STATES, HOLDS))
def test_configurations_that_hold(name: str) -> None:
    result = result_of(name).must_hold()
    assert (result.distinct_states, result.depth) == HOLDS[name]


@pytest.mark.parametrize("name", campaign_if(lambda name: VIOLATED[name][1] > MANY_STATES, VIOLATED))
def test_configurations_that_do_not(name: str) -> None:
    expected = Store.configurations[name].expect
    result = result_of(name)
    assert (len(result.must_violate(expected)), result.distinct_states) == VIOLATED[name]


@pytest.mark.parametrize("name", campaign_if(lambda name: VIOLATED[name][1] > MANY_STATES, VIOLATED))
def test_what_is_violated_without_a_protection_holds_with_it(name: str) -> None:
    (switch,) = [constant for constant in Store.configurations[name].constants if constant in SWITCHES]
    protected = Store.configured(name, **{switch: True})
    expected = Store.configurations[name].expect
    assert not check(protected, invariants=[expected], options=SearchOptions(max_depth=VIOLATED[name][0])).violations


def test_every_protection_is_switched_off_somewhere() -> None:
    off = {name for c in Store.configurations.values() for name in c.constants if name in SWITCHES}
    assert off | NOT_SHOWN_BY_A_CONFIGURATION == set(SWITCHES)


def test_switches_are_the_protections_of_the_rules() -> None:
    """All except the one against clients without the key, and those of a bookie's boot."""
    booting = {"boot_fences", "boot_enters_limbo", "cookies_follow_marks", "run_precedes_answers"}
    assert set(SWITCHES) | {"keys_are_checked", *booting} == set(Protections._fields)
    assert Store().protections == Protections()
    assert all(not getattr(Store(**{name: False}).protections, name) for name in SWITCHES)


@pytest.mark.campaign
def test_plain_python_agrees() -> None:
    shallow = SearchOptions(workers=1, max_depth=7)
    given: dict[str, Any] = {"bookies": 2, "ack_quorum": 1, "metadata_answers_lost": True, "mark_answers_lost": True}
    plain, compiled = (check(Store(**given), engine=e, options=shallow) for e in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states
    assert plain.actions == compiled.actions


def test_every_action_is_taken() -> None:
    result = check(Store.configured("one-copy", readers=1, crashes=1, message_loss=True), max_states=400_000)
    assert [a.name for a in result.actions if not a.taken] == []


def test_counts_up_to_symmetry() -> None:
    result = check(Store.configured("marks-again"), symmetry=True).must_hold()
    assert (result.distinct_states, result.depth) == (13_847, 33)


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"send_limit": 0}, "something_is_sent"),
        ({"ack_quorum": 3}, "ack_quorum_within_write_quorum"),
        ({"ensemble_size": 1}, "quorums_fit"),
        ({"bookies": 1}, "enough_bookies_for_an_ensemble"),
        ({"reads_in_flight": 0}, "something_is_read"),
        ({"bookies": "b1,c1"}, "everybody_is_one"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    assert check(Store(**constants)).verdict == broken


def rows_of(page: Path) -> list[list[str]]:
    """The rows of a page's tables, without those about ``booting-store``: its configurations have the same names."""
    before, _, section = page.read_text().partition("## Bookies that boot")
    text = before + section.partition("\n## ")[2]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines]


def test_the_page_of_the_simulator_says_how_many_states_a_check_takes() -> None:
    found = {row[0].strip("`"): row for row in rows_of(DOCS / "run/simulator.md") if len(row) == 5}
    for name, (_, states) in VIOLATED.items():
        (switch,) = [constant for constant in Store.configurations[name].constants if constant in SWITCHES]
        assert found[switch][3:] == [f"{states:,}", f"`{Store.configurations[name].expect}`"]


def test_the_page_has_these_counts_and_every_constant() -> None:
    rows = rows_of(PAGE)
    table = {row[0].strip("`"): row for row in reversed(rows)}  # a table of other protocols' configurations follows
    for name, count in {**LARGE, **{n: c for n, (c, _) in {**HOLDS, **VIOLATED}.items()}}.items():
        if count is not None:
            assert f"{count:,}" in table[name], name
    first = [re.findall(r"`(\w+)`", row[0]) for row in rows]
    assert {name for names in first for name in names} >= set(Store().constants)
