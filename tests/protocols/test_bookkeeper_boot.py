"""The boot sequence of BookKeeper without the journal: the losses it prevents, and the violation without each
protection.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from campaigns import MANY_STATES, THOROUGH, campaign_if, campaigns_but_every
from protocols import results
from protocols.cluster import Behaviour

from fencepost import (
    ModelValue,
    Options,
    Result,
    SearchOptions,
    State,
    action,
    check,
    invariant,
    leads_to,
    step_invariant,
    weak,
)
from fencepost.language.protocol import constants_of
from fencepost.ledger.rules.metadata import LedgerStatus
from fencepost.protocols.bookkeeper.boot import (
    CUT_OFF,
    SERVING,
    BookKeeperBoot,
    Boot,
    Cookie,
    RecoveryPhase,
    WriterStatus,
)

NO_COPY = "every_acknowledged_entry_has_a_copy"
DENIED = "no_acknowledged_entry_is_denied"


# Every named configuration: its states if it holds, or else those of the shortest counterexample.
CONFIGURATIONS: dict[str, int] = {
    "default": 249_860,
    "small": 59_489,
    "one-confirmation": 14_832,
    "fenced-once-more": 55_468,
    "older-lacs": 15_316,
    "two-recoverers": 796_102,
    "three-bookies": 42_002_648,  # takes minutes, so it is checked up to symmetry
    "two-crashes": 1_268_844,
    "two-entries": 1_023_460,
    "striped": 1_635_616,
    "two-disks": 564_776,
    "old-disks": 302_172,
    "clean-end-marked": 1_609_184,
    "journaling-varies": 974_368,
    "as-the-store": 123_516,
    "fences-fail": 333_892,
    "reader": 337_092,
    "reader-in-limbo": 96_228,
    "cookies-not-fixed": 195_972,
    "operator-fixes": 249_860,  # as many as "default": who lets the bookie boot makes no difference
    "operator-deletes": 266_772,
    "operator-deletes-all": 132_047,
    "new-bookie": 20_878,
    "nothing-to-forget": 40_026,
    "not-needed": 133_847,
    "with-the-journal": 67_648,
    "scenario-1": 27,
    "scenario-1-closed-ledger": 21,
    "scenario-2": 19,
    "fences-not-journaled": 14,
    "unclean-shutdown-not-detected": 14,
    "mark-lost": 15,
    "marked-late": 16,
    "journal-turned-on": 14,
    "phase-one-not-awaited": 14,
    "cookies-not-checked": 14,
    "one-cookie-is-enough": 15,
    "any-cookie-will-do": 14,
    "cookie-on-disks-only": 15,
    "taken-for-new": 16,
    "cookies-before-marks": 17,
    "limbo-denies": 15,
    "limbo-in-memory": 17,
    "limbo-left-unrecovered": 16,
    "limbo-left-early": 12,
    "an-ack-quorum-to-recover": 19,
    "an-ack-quorum-to-recover-small": 19,
    "reader-denied": 12,
    "too-many-crashes": 8,
}

LARGE = {"three-bookies"}
FOUND_LATE = {
    "an-ack-quorum-to-recover",
    "cookies-before-marks",
    "journal-turned-on",
    "marked-late",
    "one-cookie-is-enough",
    "scenario-1-closed-ledger",
    "scenario-2",
}
"""Configurations that are violated after many states."""

# The protections whose absence a configuration shows, and the rest of its constants.
WITH_IT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "marked-late": ({"mark_before_serving": True}, {}),
    "mark-lost": ({"clean_end_is_marked": True}, {"mark_loss": True, "disk_loss": False}),
    "unclean-shutdown-not-detected": ({"detect_unclean_shutdown": True}, {}),
    "phase-one-not-awaited": ({"phase_one_before_serving": True}, {}),
    "cookies-not-checked": ({"check_cookies": True}, {}),
    "limbo-denies": ({"limbo_answers_unknown": True}, {}),
    "limbo-in-memory": ({"limbo_in_index": True}, {}),
    "limbo-left-unrecovered": ({"recovery_before_leaving_limbo": True}, {}),
    "journal-turned-on": ({"detect_while_journaling": True}, {"journal_adds_varies": True}),
    "one-cookie-is-enough": ({"check_every_disk": True}, {"disks": 2}),
    "any-cookie-will-do": ({"compare_cookies": True}, {"old_disks": True}),
    "cookie-on-disks-only": ({"cookie_in_metadata": True}, {"phase_one_of_new_bookies": False}),
    "taken-for-new": ({"phase_one_of_new_bookies": True}, {"fix_cookies": False, "operator_deletes_cookies": True}),
    "cookies-before-marks": ({"cookie_after_marks": True}, {"max_crashes": 2}),
    "limbo-left-early": ({"repair_before_leaving_limbo": True}, {"max_crashes": 2}),
    "reader-denied": (
        {"limbo_of_closed_ledgers": True},
        {
            "readers": 1,
            "send_limit": 2,
            "stored_at_first": 1,
            "sends_when": frozenset({"closed"}),
            "max_crashes": 2,
            "crashes_when": frozenset({"closed"}),
            "clean_shutdown": False,
        },
    ),
    "fences-not-journaled": (
        {"journal_fences": True},
        {"journal_adds": True, "detect_unclean_shutdown": False, "fix_cookies": False},
    ),
}

# What is turned off, and the states in the shortest counterexample with two bookies and one crash: by crashes alone; by
# crashes where fences are not journaled; with disks that come back empty. None: it holds.
NEEDED: list[tuple[dict[str, Any], tuple[int | None, int | None, int | None]]] = [
    ({}, (None, None, None)),
    ({"detect_unclean_shutdown": False}, (14, 14, 14)),
    ({"mark_before_serving": False}, (16, 16, 16)),
    ({"phase_one_before_serving": False}, (14, 14, 14)),
    ({"check_cookies": False}, (None, None, 14)),
    ({"phase_one_fences": False}, (None, 15, 17)),
    ({"fence_closed_ledgers": False}, (None, 15, 17)),
    ({"phase_one_sets_limbo": False}, (15, 15, 15)),
    ({"limbo_answers_unknown": False}, (15, 15, 15)),
    ({"limbo_in_index": False}, (17, 17, 17)),
    ({"recovery_before_leaving_limbo": False}, (16, 16, 16)),
]
DAMAGE: list[dict[str, Any]] = [{"disk_loss": False}, {"disk_loss": False, "journal_fences": False}, {}]

result_of = partial(results.result_of, engine="embedded", options=Options(workers=1))


def length(result: Result) -> int | None:
    return len(result.violation.trace or ()) if result.violation else None


def test_every_named_configuration_is_checked() -> None:
    assert set(BookKeeperBoot.configurations) == set(CONFIGURATIONS)


@pytest.mark.parametrize(
    "name",
    campaign_if(
        lambda name: CONFIGURATIONS[name] > MANY_STATES or name in FOUND_LATE,
        [n for n in CONFIGURATIONS if n not in LARGE],
    ),
)
def test_named_configurations(name: str) -> None:
    result = result_of(BookKeeperBoot.configured(name))
    assert result.verdict == BookKeeperBoot.configurations[name].expect
    assert (length(result) or result.distinct_states) == CONFIGURATIONS[name]


@pytest.mark.campaign
@pytest.mark.parametrize("name", WITH_IT)
def test_what_a_configuration_shows_is_missed_is_enough(name: str) -> None:
    """A configuration that lacks one protection holds with it."""
    protection, rest = WITH_IT[name]
    assert configured(name) == BookKeeperBoot(**rest, **dict.fromkeys(protection, False)).constants
    result_of(BookKeeperBoot(**rest, **protection)).must_hold()


def configured(name: str) -> Any:
    return BookKeeperBoot.configured(name).constants


@pytest.mark.parametrize(("off", "lengths"), campaigns_but_every(6, NEEDED))
def test_what_each_protection_is_needed_for(off: dict[str, Any], lengths: tuple[int | None, ...]) -> None:
    for damage, expected in zip(DAMAGE, lengths, strict=True):
        result = result_of(BookKeeperBoot(**off, **damage))
        assert (result.verdict, length(result)) == (CUT_OFF if expected else "holds", expected)


# -- the page ---------------------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "protocols" / "bookkeeper-boot.md").read_text()


def rows(table: str) -> dict[str, list[str]]:
    """The rows of a table of the page, by first cell. ``table`` is the beginning of its header."""
    lines = PAGE[PAGE.index(table) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return {name: rest for name, *rest in cells}


def test_the_page_has_every_configuration_with_its_number() -> None:
    holds, violated = rows("| configuration | | states |"), rows("| configuration | removed |")
    assert {name for name, c in BookKeeperBoot.configurations.items() if c.expect == "holds"} == set(holds)
    assert {name: int(cells[-1].replace(",", "")) for name, cells in {**holds, **violated}.items()} == CONFIGURATIONS


def test_the_page_says_what_each_protection_is_needed_for() -> None:
    said = rows("| removed | crashes |")
    assert said == {",".join(off) or "nothing": [str(found or "holds") for found in lengths] for off, lengths in NEEDED}


def test_the_page_names_every_constant() -> None:
    section = PAGE[PAGE.index("## Constants") : PAGE.index("## What is in the model")]
    assert set(re.findall(r"`(\w+)`", section)) == set(constants_of(BookKeeperBoot))


# -- further checks ---------------------------------------------------------------------------------------------------


@pytest.mark.campaign
def test_counts_up_to_symmetry() -> None:
    three = BookKeeperBoot(bookies=3, clean_shutdown=False)
    assert check(three, symmetry=True).must_hold().distinct_states == 1_358_028


@pytest.mark.skipif(not THOROUGH, reason="a minute")
def test_three_bookies_up_to_symmetry() -> None:
    assert check(BookKeeperBoot.configured("three-bookies"), symmetry=True).must_hold().distinct_states == 7_059_350


@pytest.mark.campaign
def test_counts_in_plain_python() -> None:
    few, shallow = BookKeeperBoot(max_crashes=2), SearchOptions(workers=1, max_depth=6)
    plain, compiled = (check(few, engine=engine, options=shallow) for engine in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states == 1_228


def test_every_action_is_taken() -> None:
    """Actions of an operator and a reader, and failing fences, need configurations that have them. A late mark needs
    that none is set earlier. Phase one fences in its own step only if it is done in steps.
    """
    named = ("default", "as-the-store", "fences-fail", "reader", "operator-fixes", "operator-deletes-all", "not-needed")
    found = [a for name in named for a in result_of(BookKeeperBoot.configured(name)).actions]
    assert {a.name for a in found if a.taken} == {a.name for a in found}
    assert len({a.name for a in found}) == 32


BROADER: dict[str, bool] = {
    "marks_in_steps": True,
    "limbo_tells_last_entry": True,
    "lac_may_be_older": True,
    "mark_tells_of_journaling": True,
    "mark_on_every_disk": False,
}
"""Further behaviour of a real bookie. `booting-store` refines this."""


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("constants", "states"),
    [
        ({"journal_adds_varies": True}, 2_224_716),
        ({"disks": 2}, 842_235),
        ({"send_limit": 2}, 3_527_082),
        ({"connections_in_order": False, "disk_loss": False, "clean_shutdown": False}, 1_047_980),
    ],
    ids=str,
)
def test_it_holds_with_what_a_real_bookie_does_besides(constants: dict[str, Any], states: int) -> None:
    assert result_of(BookKeeperBoot(**constants, **BROADER)).must_hold().distinct_states == states


@pytest.mark.parametrize("ack_quorum", [1, 2])
def test_limbo_cuts_nothing_off_whatever_is_destroyed(ack_quorum: int) -> None:
    reckless = BookKeeperBoot(ack_quorum=ack_quorum, max_crashes=2, copies_at_risk=2)
    check(reckless, invariants=[CUT_OFF], options=Options(workers=1)).must_hold()


def test_a_reader_may_be_denied_what_always_had_a_copy() -> None:
    """By two bookies that crash in turn. The first has been repaired."""
    told = result_of(BookKeeperBoot.configured("reader-denied")).must_violate(DENIED)
    assert all(any(1 in bookie.entries for bookie in at.variables()["bookie"].values()) for at in told.states)
    assert "bookie_copies_entry" in [step.action for step in told.steps]


def test_what_readers_are_told_when_everything_is_destroyed() -> None:
    """They learn that the entry does not exist, unless closed ledgers are in limbo too."""
    reckless = {"readers": 1, "max_crashes": 2, "copies_at_risk": 2, "clean_shutdown": False}
    for off in ({}, {"limbo_of_closed_ledgers": True, "limbo_answers_unknown": False}):
        check(BookKeeperBoot(**reckless, **off), invariants=[DENIED], options=Options(workers=1)).must_violate(DENIED)
    asked_for = BookKeeperBoot(limbo_of_closed_ledgers=True, **reckless)
    check(asked_for, invariants=[DENIED], options=Options(workers=1)).must_hold()


# -- scenarios of BP-46 -----------------------------------------------------------------------------------------------


def counterexample(name: str) -> tuple[list[str], Any]:
    """The titles of the steps of a named configuration's counterexample, and its last state."""
    trace = result_of(BookKeeperBoot.configured(name)).must_violate(BookKeeperBoot.configurations[name].expect)
    return [step.action for step in trace.steps], trace.states[-1].variables()


@pytest.mark.parametrize(("name", "end"), [("scenario-1", 1), ("scenario-1-closed-ledger", 0)])
def test_scenario_1_an_entry_is_taken_after_the_ledger_was_closed(name: str, end: int) -> None:
    actions, last = counterexample(name)
    assert last["meta"].status is LedgerStatus.CLOSED
    assert (last["meta"].last_entry, last["writer"].lac) == (end, end + 1)
    down = "bookie_crashes" if name == "scenario-1" else "bookie_loses_disk"
    assert actions.index("recovery_closes_ledger") < actions.index(down) < actions.index("bookie_stores_entry")
    # Fencing never reached the first bookie. The second is fenced and refuses. The third has forgotten its fence, and
    # has the entry.
    assert sorted(bookie.fenced for bookie in last["bookie"].values()) == [False, False, True]
    assert [end + 1 in bookie.entries for bookie in last["bookie"].values() if not bookie.fenced] == [True, True]


def test_scenario_2_recovery_cuts_off_an_entry_that_is_acknowledged() -> None:
    actions, last = counterexample("scenario-2")
    assert "bookie_crashes" in actions
    forgetful = next(bookie for bookie in last["bookie"].values() if bookie.lost)
    assert forgetful.fenced and not forgetful.limbo and forgetful.entries == frozenset()
    assert (last["meta"].last_entry, last["writer"].lac) == (0, 1)


def test_recovery_by_an_ack_quorum_of_copies_can_wait_for_ever() -> None:
    _, last = counterexample("an-ack-quorum-to-recover")
    recovery = last["recovery"][ModelValue("r1")]
    assert recovery.phase is RecoveryPhase.READING
    assert (recovery.found, recovery.denied, recovery.unknown) == (1, 1, 1)
    # No answer can change: every bookie is fenced, so none stores another entry of the writer.
    assert all(bookie.fenced for bookie in last["bookie"].values())


class AsWritten(Behaviour):
    """A behaviour that takes given steps, with crashes that lose given entries."""

    def crash(self, b: str, loses: frozenset[int], fence: bool | None = None) -> Self:
        wanted = (loses,) if fence is None else (loses, fence)
        outcomes = self.stepper.outcomes(self.roots[f"bookie_crashes(b={b})"], self.state.ids)
        (outcome,) = (outcome for outcome in outcomes if tuple(outcome.labels) == wanted)
        self.state = State(self.stepper.store, self.stepper.apply(self.state.ids, outcome))
        return self


def scenario_1(**constants: Any) -> AsWritten:
    """Steps 4 to 10 of scenario 1 in BP-46. The first entry, E1, is on all bookies when it begins."""
    told = AsWritten(BookKeeperBoot(bookies=3, send_limit=2, stored_at_first=1, **constants))
    told.take("recovery_starts(r=r1)")
    for b in ("b1", "b2"):
        told.take(f"bookie_is_fenced(b={b}, r=r1)", f"recovery_counts_fenced(r=r1, b={b})")
    for b in ("b1", "b2"):
        told.take(f"bookie_answers_read(b={b}, r=r1)", f"recovery_counts_read(r=r1, b={b})")
    for b in ("b1", "b2"):
        told.take(f"bookie_stores_recovered_entry(b={b}, r=r1)", f"recovery_counts_added(r=r1, b={b})")
        told.take(f"bookie_answers_read(b={b}, r=r1)", f"recovery_counts_read(r=r1, b={b})")
    return told.take("recovery_closes_ledger(r=r1)")


def test_scenario_1_as_it_is_written() -> None:
    told = scenario_1(journal_fences=False, phase_one_fences=False).crash("b2", frozenset(), fence=False)
    told.take("bookie_starts(b=b2)", "bookie_marks_ledger(b=b2)", "writer_sends_entry")
    told.take("bookie_refuses_entry(b=b1)", "bookie_stores_entry(b=b2)", "bookie_stores_entry(b=b3)")
    told.take("writer_receives_confirmation(b=b2)")
    assert not told.violated()
    assert told.take("writer_receives_confirmation(b=b3)").violated() == {CUT_OFF}


def test_scenario_1_with_phase_one() -> None:
    told = scenario_1(journal_fences=False).crash("b2", frozenset(), fence=False)
    told.take("bookie_starts(b=b2)", "bookie_marks_ledger(b=b2)", "writer_sends_entry")
    assert not told.enabled("bookie_stores_entry(b=b2)")
    told.take("bookie_refuses_entry(b=b2)")


def scenario_2(**constants: Any) -> AsWritten:
    """Steps 1 to 5 of scenario 2 in BP-46, with the refused change of the ensemble."""
    told = AsWritten(BookKeeperBoot(bookies=3, **constants)).take("writer_sends_entry")
    for b in ("b1", "b3"):
        told.take(f"bookie_stores_entry(b={b})", f"writer_receives_confirmation(b={b})")
    told.take("recovery_starts(r=r1)", "writer_is_refused_another_ensemble").crash("b1", frozenset({1}))
    told.take("bookie_starts(b=b1)", "bookie_marks_ledger(b=b1)")
    for b in ("b1", "b2", "b3"):
        told.take(f"bookie_is_fenced(b={b}, r=r1)", f"recovery_counts_fenced(r=r1, b={b})")
    for b in ("b1", "b2"):
        told.take(f"bookie_answers_read(b={b}, r=r1)", f"recovery_counts_read(r=r1, b={b})")
    return told


def test_scenario_2_as_it_is_written() -> None:
    told = scenario_2(phase_one_sets_limbo=False)
    assert not told.violated()
    assert told.take("recovery_closes_ledger(r=r1)").violated() == {CUT_OFF}


def test_scenario_2_with_limbo() -> None:
    told = scenario_2()
    assert not told.enabled("recovery_closes_ledger(r=r1)")
    told.take("bookie_answers_read(b=b3, r=r1)", "recovery_counts_read(r=r1, b=b3)")
    assert told.state.variables()["recovery"][ModelValue("r1")].lap == 1


# -- promises beyond the invariants -----------------------------------------------------------------------------------


class Watched(BookKeeperBoot):
    """Adds implied properties, and denies states that must be reachable."""

    @step_invariant(b=BookKeeperBoot.bookies)
    def nobody_leaves_limbo_incomplete(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        before, now = self.bookie[b], after.bookie[b]
        if now.boot is Boot.DOWN or now.limbo or not before.limbo or before.boot is Boot.DOWN:
            return True
        return after.meta.status is LedgerStatus.CLOSED and set(range(1, after.meta.last_entry + 1)) <= now.entries

    @step_invariant(b=BookKeeperBoot.bookies)
    def nobody_boots_without_a_cookie(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        return self.bookie[b].disk[1].cookie is Cookie.CURRENT or after.bookie[b].boot is Boot.DOWN

    @invariant(b=BookKeeperBoot.bookies)
    def who_serves_has_set_the_mark(self, b: ModelValue) -> bool:
        return self.bookie[b].boot not in SERVING or all(disk.unclean for disk in self.bookie[b].disk.values())

    @invariant(b=BookKeeperBoot.bookies)
    def who_serves_has_its_cookies(self, b: ModelValue) -> bool:
        me = self.bookie[b]
        return me.boot not in SERVING or all(disk.cookie is Cookie.CURRENT for disk in me.disk.values())

    @invariant(b=BookKeeperBoot.bookies)
    def who_has_lost_something_of_an_open_ledger_is_in_limbo(self, b: ModelValue) -> bool:
        me = self.bookie[b]
        return me.boot not in SERVING or not me.lost or me.limbo or self.meta.status is LedgerStatus.CLOSED

    @step_invariant(b=BookKeeperBoot.bookies)
    def nobody_serves_unfenced_after_a_loss(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        before, now = self.bookie[b], after.bookie[b]
        boots = before.boot not in SERVING and now.boot in SERVING
        return not boots or now.fenced or not (before.is_unclean or before.boot is Boot.STARTING)

    @invariant(entry_id=lambda p: p.entry_ids)
    def no_more_copies_are_lost_than_are_at_risk(self, entry_id: int) -> bool:
        return sum(entry_id in self.bookie[b].lost for b in self.bookies) <= self.copies_at_risk

    @step_invariant(b=BookKeeperBoot.bookies)
    def no_crash_in_phase_one(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        between = self.bookie[b].boot in (Boot.MARKING, Boot.STAMPING, Boot.STARTING)
        return not (between and after.bookie[b].boot is Boot.DOWN)

    @step_invariant(b=BookKeeperBoot.bookies)
    def no_crash_in_phase_two(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        return not (
            self.bookie[b].boot is Boot.UP
            and self.bookie[b].limbo
            and after.crashes > self.crashes
            and after.bookie[b].boot is Boot.DOWN
        )

    @step_invariant(b=BookKeeperBoot.bookies)
    def no_copy_is_lost_again(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        """No copy that phase two made is lost while limbo lasts."""
        repaired = self.bookie[b].limbo and self.meta.status is LedgerStatus.CLOSED and self.bookie[b].entries
        return not (repaired and after.bookie[b].lost)

    @invariant(b=BookKeeperBoot.bookies, peer=BookKeeperBoot.bookies)
    def no_two_in_limbo(self, b: ModelValue, peer: ModelValue) -> bool:
        return b == peer or not (self.bookie[b].limbo and self.bookie[peer].limbo)

    @invariant(r=BookKeeperBoot.recoverers)
    def no_read_is_left_open(self, r: ModelValue) -> bool:
        me = self.recovery[r]
        return me.found + me.denied + me.unknown < len(self.bookies)

    @invariant
    def no_writer_gives_up(self) -> bool:
        return self.writer.status is not WriterStatus.WITHDRAWN


PROMISES = [
    "nobody_leaves_limbo_incomplete",
    "nobody_serves_unfenced_after_a_loss",
    "no_more_copies_are_lost_than_are_at_risk",
    "who_serves_has_set_the_mark",
    "who_serves_has_its_cookies",
    "who_has_lost_something_of_an_open_ledger_is_in_limbo",
]


@pytest.mark.parametrize(
    "constants",
    [{}, *campaign_if(bool, [{"disks": 2, "clean_shutdown": False}, {"max_crashes": 2, "clean_shutdown": False}])],
)
def test_what_is_promised_is_kept(constants: dict[str, Any]) -> None:
    check(Watched(**constants), invariants=PROMISES, options=Options(workers=1)).must_hold()


@pytest.mark.parametrize(
    ("promise", "off"),
    [
        ("nobody_leaves_limbo_incomplete", {"repair_before_leaving_limbo": False}),
        ("nobody_serves_unfenced_after_a_loss", {"phase_one_fences": False}),
        ("who_serves_has_set_the_mark", {"mark_before_serving": False}),
        ("who_serves_has_its_cookies", {"disks": 2, "check_every_disk": False}),
        ("who_serves_has_its_cookies", {"old_disks": True, "compare_cookies": False}),
        ("who_has_lost_something_of_an_open_ledger_is_in_limbo", {"phase_one_before_serving": False}),
        ("who_has_lost_something_of_an_open_ledger_is_in_limbo", {"max_crashes": 2, "cookie_after_marks": False}),
        ("nobody_serves_unfenced_after_a_loss", {"fence_closed_ledgers": False}),
    ],
)
def test_what_is_promised_is_kept_by_a_protection(promise: str, off: dict[str, Any]) -> None:
    check(Watched(**off), invariants=[promise], options=Options(workers=1)).must_violate(promise)


def test_without_a_cookie_a_bookie_boots_only_if_that_is_to_be_fixed() -> None:
    promise = "nobody_boots_without_a_cookie"
    check(Watched.configured("cookies-not-fixed"), invariants=[promise], options=Options(workers=1)).must_hold()
    check(Watched(), invariants=[promise]).must_violate(promise)


@pytest.mark.parametrize(
    "never",
    [
        "no_crash_in_phase_one",
        "no_crash_in_phase_two",
        "no_copy_is_lost_again",
        "no_two_in_limbo",
        "no_read_is_left_open",
        "no_writer_gives_up",
    ],
)
def test_what_can_happen_is_found(never: str) -> None:
    check(Watched.configured("two-crashes"), invariants=[never]).must_violate(never)


# -- the end of limbo -------------------------------------------------------------------------------------------------


class Impatient(BookKeeperBoot):
    """A property that is too strong, and fairness that is too weak."""

    fairness = [weak()]

    @leads_to(b=BookKeeperBoot.bookies)
    def limbo_ends_whatever_crashes(self, b: ModelValue) -> tuple[bool, bool]:
        return self.bookie[b].limbo, not self.bookie[b].limbo


@pytest.mark.parametrize(
    "constants", [{}, *campaign_if(bool, [{"max_crashes": 2}, {"send_limit": 2}, {"bookies": 3, "write_quorum": 2}])]
)
def test_limbo_ends(constants: dict[str, Any]) -> None:
    running = BookKeeperBoot(clean_shutdown=False, **constants)
    check(running, invariants=["limbo_ends"], options=Options(workers=1)).must_hold()


def test_limbo_does_not_end_if_recovery_asks_for_an_ack_quorum() -> None:
    waiting = BookKeeperBoot(copies_to_recover=2, disk_loss=False, clean_shutdown=False)
    stuck = check(waiting, invariants=["limbo_ends"], options=Options(workers=1))
    last: Any = stuck.must_violate("limbo_ends").states[-1].variables()
    assert (last["recovery"][ModelValue("r1")].found, last["recovery"][ModelValue("r1")].unknown) == (1, 1)


def test_limbo_does_not_end_where_bookies_are_shut_down_again_and_again() -> None:
    check(BookKeeperBoot(), invariants=["limbo_ends"], options=Options(workers=1)).must_violate("limbo_ends")


@pytest.mark.campaign
def test_limbo_does_not_end_after_a_power_failure() -> None:
    promise = "limbo_ends_whatever_crashes"
    one, two = (Impatient(clean_shutdown=False, max_crashes=crashes) for crashes in (1, 2))
    check(one, invariants=[promise], options=Options(workers=1)).must_hold()
    check(two, invariants=[promise], options=Options(workers=1)).must_violate(promise)


# -- the need for each invariant: a protocol without one rule ---------------------------------------------------------


class LeavesLimboBeforeRecovery(BookKeeperBoot):
    """Phase two does not wait for the ledger to be recovered."""

    @action(b=BookKeeperBoot.bookies, by="b")
    def bookie_leaves_limbo(self, b: ModelValue) -> None:
        self._serving(b).limbo = False


class ClosesWithoutWritingBack(BookKeeperBoot):
    """Recovery treats one copy as an ack quorum."""

    @action(r=BookKeeperBoot.recoverers, b=BookKeeperBoot.bookies, by="r")
    def recovery_counts_read(self, r: ModelValue, b: ModelValue) -> None:
        super().recovery_counts_read(r, b)
        self.recovery[r].lac = self.recovery[r].lap


class StoresWhatWasNeverSent(BookKeeperBoot):
    """A bookie stores an entry with an id that no entry has."""

    @action(b=BookKeeperBoot.bookies, by="b")
    def bookie_stores_entry(self, b: ModelValue) -> None:
        super().bookie_stores_entry(b)
        self.bookie[b].entries |= {self.send_limit + 1}


@pytest.mark.parametrize(
    ("broken", "violated"),
    [(LeavesLimboBeforeRecovery, CUT_OFF), (ClosesWithoutWritingBack, NO_COPY), (StoresWhatWasNeverSent, "type_ok")],
)
def test_a_rule_left_out_is_found(broken: type[BookKeeperBoot], violated: str) -> None:
    check(broken(), options=Options(workers=1)).must_violate(violated)


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"send_limit": 0}, "something_is_sent"),
        ({"stored_at_first": 1}, "something_is_sent"),
        ({"ack_quorum": 3}, "an_ack_quorum_is_some_of_a_write_quorum"),
        ({"bookies": 3, "write_quorum": 1}, "an_ack_quorum_is_some_of_a_write_quorum"),
        ({"disks": 3}, "a_bookie_has_one_disk_or_two"),
        ({"crashes_when": frozenset({"shut"})}, "things_happen_at_some_status"),
        ({"sends_when": frozenset()}, "things_happen_at_some_status"),
        ({"copies_to_recover": 3}, "an_ack_quorum_is_enough_to_recover"),
        ({"bookies": "b1,writer,b3"}, "nobody_is_taken_for_somebody_else"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    assert check(BookKeeperBoot(**constants)).verdict == broken
