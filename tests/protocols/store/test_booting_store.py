"""The protocol ``booting-store``: the states of its configurations, the need for each protection of a boot, its
refinement of `bookkeeper-boot`, and faults in every rule of a boot.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if, campaigns_but_every, engine_for
from protocols.faulty_rules import Rule, always, instead

from fencepost import Protocol, Result, SearchOptions, check
from fencepost.ledger.rules import boot as rules
from fencepost.ledger.rules import cookies, reading, replication
from fencepost.ledger.rules.boot import CLEAN_END, Mark, Step
from fencepost.ledger.rules.codes import Code
from fencepost.ledger.rules.cookies import Boot, Decision
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.ledger.rules.protections import Protections
from fencepost.protocols.protections import switches
from fencepost.protocols.store import booting
from fencepost.protocols.store.booting import BootingStore
from fencepost.protocols.store.store import LOSS

PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "store.md"

SWITCHES = switches(BootingStore, Protections)
GONE = "every_acknowledged_entry_has_a_copy"
STUCK = "a_bookie_that_is_down_can_start"
REFINEMENT = "refines_bookkeeper_boot"

LARGE = {"three-bookies": 5_851_651, "striped": 18_543_850}
"""Configurations of the page that take too long for a test, with their states."""

# Distinct states, depth.
HOLDS: dict[str, tuple[int, int]] = {
    "default": (832_830, 43),
    "small": (57_944, 35),
    "two-crashes": (1_222_640, 42),
    "two-entries": (2_552_185, 49),
    "two-directories": (1_258_890, 43),
    "old-directories": (970_330, 43),
    "note-lost": (90_420, 35),
    "journaling-varies": (3_459_880, 43),
    "with-the-journal": (677_700, 45),
    "cookies-not-stamped": (693_430, 43),
    "one-bookie": (1_360, 23),
    "any-order": (1_382_946, 35),
    "reader": (61_626, 39),
}

# States in the shortest counterexample, and distinct states until it is found.
VIOLATED: dict[str, tuple[int, int]] = {
    "boot-does-not-fence": (21, 80_044),
    "boot-without-limbo": (19, 40_194),
    "cookies-before-marks": (23, 2_291_890),
    "run-noted-late": (20, 343_284),
    "limbo-denies": (19, 39_392),
    "too-many-crashes": (8, 2_195),
}


@cache
def result_of(name: str) -> Result:
    """The result of checking a configuration. Each is checked once."""
    states = HOLDS[name][0] if name in HOLDS else VIOLATED[name][1]
    return check(BootingStore.configured(name), engine=engine_for(states))


def test_every_configuration_is_checked() -> None:
    assert set(BootingStore.configurations) == {*LARGE, *HOLDS, *VIOLATED}


@pytest.mark.parametrize("name", campaign_if(lambda name: HOLDS[name][0] > MANY_STATES, HOLDS))
def test_configurations_that_hold(name: str) -> None:
    result = result_of(name).must_hold()
    assert (result.distinct_states, result.depth) == HOLDS[name]


@pytest.mark.parametrize("name", campaign_if(lambda name: VIOLATED[name][1] > MANY_STATES, VIOLATED))
def test_configurations_that_do_not(name: str) -> None:
    expected = BootingStore.configurations[name].expect
    result = result_of(name)
    assert (len(result.must_violate(expected)), result.distinct_states) == VIOLATED[name]


@pytest.mark.parametrize(
    "name",
    campaign_if(lambda name: VIOLATED[name][1] > MANY_STATES, [n for n in VIOLATED if n != "too-many-crashes"]),
)
def test_what_is_violated_without_a_protection_holds_with_it(name: str) -> None:
    (switch,) = [constant for constant in BootingStore.configurations[name].constants if constant in SWITCHES]
    protected = BootingStore.configured(name, **{switch: True})
    expected = BootingStore.configurations[name].expect
    assert not check(protected, invariants=[expected], options=SearchOptions(max_depth=VIOLATED[name][0])).violations


@pytest.mark.campaign
def test_what_protects_by_which_damage() -> None:
    """As in `bookkeeper-boot`: a fence is lost only with a directory, and early cookies do harm only with a later
    crash.
    """
    check(BootingStore.configured("small", boot_fences=False)).must_hold()
    check(BootingStore(cookies_follow_marks=False)).must_hold()
    check(BootingStore.configured("two-crashes", cookies_follow_marks=False)).must_hold()


def test_switches_are_the_protections_of_the_rules() -> None:
    """All except the one against clients without the key."""
    assert {*SWITCHES, "keys_are_checked"} == set(Protections._fields)
    assert BootingStore().protections == Protections()
    assert all(not getattr(BootingStore(**{name: False}).protections, name) for name in SWITCHES)


@pytest.mark.campaign
def test_plain_python_agrees() -> None:
    shallow = SearchOptions(workers=1, max_depth=3)
    given: dict[str, Any] = {"directories": 2, "old_directories": True, "journal_adds_varies": True}
    plain, compiled = (check(BootingStore(**given), engine=e, options=shallow) for e in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states
    assert plain.actions == compiled.actions


OF_STORE_ALONE = {
    "client_receives_metadata",
    "client_creates_ledger",
    "client_changes_ensemble",
    "client_resends_pending_add_op",
    "client_opens_ledger",
    "client_sends_recovery_read_requests",
    "client_writes_back_entry",
    "recovery_client_changes_ensemble",
    "recovery_client_sends_pending_add_op",
    "reader_gives_up",
}
"""Actions that only `store` can take. Here the ledger exists, its ensemble is fixed, metadata are written at once, and
reads and writes back are part of the steps that cause them.
"""


@pytest.mark.campaign
def test_every_action_is_taken() -> None:
    found = [a for name in ("default", "reader", "note-lost") for a in result_of(name).actions]
    assert {a.name for a in found} - {a.name for a in found if a.taken} == OF_STORE_ALONE


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"clients": "c1,c2"}, "the_owner_is_first"),
        ({"directories": 3}, "a_bookie_has_one_directory_or_two"),
        ({"metadata_lags": True}, "clients_do_one_thing_after_another"),
        ({"ack_quorum": 3}, "ack_quorum_within_write_quorum"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    assert check(BootingStore(**constants)).verdict == broken


# -- refinement of `bookkeeper-boot` -----------------------------------------------------------------------------------

DECLARED: Any = next(one for one in BootingStore.declared("refinement") if one.name == REFINEMENT)

CRASHES: dict[str, Any] = {"directory_loss": False, "clean_shutdown": False}

# A constant of `bookkeeper-boot` at the original's value, constants with which that matters, and the states of the
# shortest behaviour that the original lacks.
ORIGINAL: list[tuple[dict[str, Any], dict[str, Any], int]] = [
    ({"marks_in_steps": False}, CRASHES, 6),
    ({"limbo_tells_last_entry": False}, CRASHES, 13),
    ({"lac_may_be_older": False}, {**CRASHES, "crashes": 0, "send_limit": 2, "connections_in_order": False}, 17),
    ({"mark_tells_of_journaling": False}, {**CRASHES, "journal_adds": True}, 3),
    ({"mark_on_every_disk": True}, {"directories": 2}, 3),
    ({"clean_end_is_marked": False}, {"directory_loss": False, "note_loss": True, "crashes": 0}, 3),
]

NOTED: dict[str, dict[str, Any]] = {
    "mark_tells_of_journaling": {"bookie.marked_journaling": lambda self, b: False},
    "mark_on_every_disk": {"bookie.disk.unclean": lambda self, b, number: self.bookie[b].run != CLEAN_END},
}
"""The parts that the original records differently. Without these mappings the first difference would be there."""


def variant(**changes: Any) -> type[Protocol]:
    """``booting-store`` with other arguments of its refinement."""

    class Variant(BootingStore):
        refines_bookkeeper_boot = dataclasses.replace(DECLARED, **changes)

    return Variant


@pytest.mark.parametrize(
    ("original", "constants", "states"),
    campaign_if(lambda row: row[2] > 16, ORIGINAL),
    ids=[next(iter(row[0])) for row in ORIGINAL],
)
def test_the_original_is_too_narrow(original: dict[str, Any], constants: dict[str, Any], states: int) -> None:
    mapping = {**DECLARED.mapping, **NOTED.get(next(iter(original)), {})}
    narrow = variant(constants={**DECLARED.constants, **original}, mapping=mapping)
    assert len(check(narrow(**constants), invariants=[REFINEMENT]).must_violate(REFINEMENT)) == states


# -- planted faults ----------------------------------------------------------------------------------------------------


def without(step: Step) -> Callable[[Rule], Rule]:
    """A boot without one step."""
    return lambda rule: lambda **given: tuple(each for each in rule(**given) if each is not step)


def served_first(rule: Rule) -> Rule:
    """A boot that serves before anything else."""
    return lambda **given: (Step.SERVE, *(each for each in rule(**given) if each is not Step.SERVE))


def stamped_first(rule: Rule) -> Rule:
    """A boot that stamps cookies before anything else."""
    return lambda **given: tuple(sorted(rule(**given), key=lambda step: step is not Step.STAMP_COOKIES))


def leaves_when_closed(status: LedgerStatus, lacking: int) -> bool:
    return status is LedgerStatus.CLOSED


def leaves_when_whole(status: LedgerStatus, lacking: int) -> bool:
    return not lacking


def marks_none_that_is_closed(metadata: Any, bookie: str, protections: Protections) -> Mark:
    mark = rules.mark_of(metadata, bookie, protections)
    return Mark.NOTHING if mark is Mark.FENCE else mark


def fences_alone(metadata: Any, bookie: str, protections: Protections) -> Mark:
    mark = rules.mark_of(metadata, bookie, protections)
    return Mark.FENCE if mark is Mark.LIMBO else mark


def looks_at_tokens_no_more(own: Any, in_metadata: Any, directories: Any) -> Decision:
    found = cookies.may_boot(own, in_metadata, directories)
    return Decision(Boot.READY) if found.boot is Boot.OTHER_TIME else found


def repairs_what_is_empty(own: Any, in_metadata: Any, directories: Any) -> bool:
    return all(each.is_empty for each in directories if each.cookie is None)


SPAN = replication.span


def ends_early(metadata: Any, fragment: int) -> range:
    return SPAN(metadata, fragment)[:-1]


def opened_first(rule: Rule) -> Rule:
    """A boot that opens the storage before anything else."""
    return lambda **given: tuple(sorted(rule(**given), key=lambda step: step is not Step.OPEN_STORAGE))


NO_END: dict[str, Any] = {"clean_shutdown": False}
JOURNAL: dict[str, Any] = {**NO_END, "directories": 2, "journal_adds": True}
"""Losing the directory of entries also loses its note, which suffices alone. Losing the journal's does not."""
OLD: dict[str, Any] = {**JOURNAL, "old_directories": True}
COPIED: dict[str, Any] = {**NO_END, "bookies": 3, "write_quorum": 3}
TWICE: dict[str, Any] = {**NO_END, "crashes": 2}

# The module of the rule, the rule, the fault, its description, constants that show it, and the property that finds it.
FAULTS: list[tuple[Any, str, Callable[[Rule], Rule], str, dict[str, Any], str]] = [
    (booting, "steps_of_boot", always((Step.NOTE_RUN, Step.SERVE)), "no boot has a phase one", CRASHES, LOSS),
    (booting, "steps_of_boot", without(Step.MARK_LEDGERS), "ledgers are not marked", CRASHES, LOSS),
    (booting, "steps_of_boot", without(Step.BEGIN_REPAIR), "that there is a repair is not noted", TWICE, STUCK),
    (booting, "steps_of_boot", without(Step.NOTE_RUN), "that it runs is not noted", {"directory_loss": False}, LOSS),
    (booting, "steps_of_boot", without(Step.STAMP_COOKIES), "cookies are not replaced", NO_END, REFINEMENT),
    (booting, "steps_of_boot", served_first, "a bookie serves before phase one", CRASHES, LOSS),
    (
        booting,
        "steps_of_boot",
        stamped_first,
        "cookies are replaced before phase one",
        {**JOURNAL, "crashes": 2},
        LOSS,
    ),
    (rules, "may_have_lost_adds", always(False), "a crash is taken for a clean end", CRASHES, LOSS),
    (
        rules,
        "may_have_lost_adds",
        instead(lambda run: run is not None and not (run.ended_cleanly or run.journals_adds)),
        "a note that is missing is taken for one of a clean end",
        CRASHES | {"note_loss": True},
        LOSS,
    ),
    (
        rules,
        "may_have_lost_adds",
        instead(lambda run: run is not None and not run.ended_cleanly and run.journals_adds),
        "the note is read the wrong way",
        CRASHES,
        LOSS,
    ),
    (
        rules,
        "may_have_lost_adds",
        instead(lambda run: run is None or not run.ended_cleanly),
        "what was in the journal may be lost, too",
        CRASHES | {"journal_adds": True},
        REFINEMENT,
    ),
    (booting, "mark_of", instead(marks_none_that_is_closed), "closed ledgers are not fenced", NO_END, LOSS),
    (booting, "mark_of", instead(fences_alone), "no ledger is in limbo", CRASHES, LOSS),
    (booting, "mark_of", always(Mark.NOTHING), "no ledger is marked", CRASHES, LOSS),
    (booting, "mark_of", always(Mark.LIMBO), "closed ledgers are in limbo, too", CRASHES, REFINEMENT),
    (booting, "may_leave_limbo", instead(leaves_when_closed), "limbo ends before entries are copied", TWICE, GONE),
    (
        booting,
        "may_leave_limbo",
        instead(leaves_when_whole),
        "limbo ends before the ledger is recovered",
        CRASHES,
        LOSS,
    ),
    (booting, "may_boot", always(Decision(Boot.READY)), "cookies are not compared", JOURNAL, LOSS),
    (booting, "may_boot", instead(looks_at_tokens_no_more), "any cookie of the bookie will do", OLD, LOSS),
    (booting, "may_repair", instead(repairs_what_is_empty), "a repair that was cut short cannot go on", TWICE, STUCK),
    (
        booting,
        "steps_of_boot",
        opened_first,
        "the storage is opened before it is noted that there is a repair",
        TWICE,
        STUCK,
    ),
    (booting, "belonging", always([]), "nothing is looked for", TWICE, GONE),
    (replication, "span", instead(ends_early), "the last entry is not looked for", TWICE, GONE),
    (
        booting,
        "answer_to_read",
        instead(lambda *, stored, **_: Code.OK if stored else Code.NO_ENTRY),
        "limbo is not asked for",
        CRASHES,
        LOSS,
    ),
]


@pytest.mark.parametrize(
    ("module", "rule", "fault", "what", "constants", "finds"),
    campaigns_but_every(3, FAULTS),
    ids=[f"{f[1]}: {f[3]}" for f in FAULTS],
)
def test_a_planted_fault_is_found(
    module: Any,
    rule: str,
    fault: Callable[[Rule], Rule],
    what: str,
    constants: dict[str, Any],
    finds: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if module is booting:
        owner = next(m for m in (rules, cookies, replication, reading) if hasattr(m, rule))
        assert getattr(booting, rule) is getattr(owner, rule), "the protocol calls the very function of the rules"
    monkeypatch.setattr(module, rule, fault(getattr(module, rule)))
    check(BootingStore(**constants), invariants=[finds], options=SearchOptions(workers=1)).must_violate(finds)


def test_the_page_has_these_counts_and_every_constant() -> None:
    section = PAGE.read_text().partition("## Bookies that boot")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in section.splitlines()
        if line.startswith("| ")
    ]
    table = {row[0].strip("`"): row for row in rows}
    for name, (count, _) in {**{n: (c, 0) for n, c in LARGE.items()}, **HOLDS}.items():
        assert f"{count:,}" in table[name], name
    for name, (states, _) in VIOLATED.items():
        assert str(states) in table[name], name
    first = {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    of_store = {
        name
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert first | of_store >= set(BootingStore().constants)
