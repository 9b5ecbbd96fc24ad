"""The boot sequence of BookKeeper without the journal: what it protects from, and what breaks without each protection."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from fencepost import ModelValue, Options, Result, action, check, invariant, leads_to, step_invariant, weak
from fencepost.protocols.bookkeeper.boot import CUT_OFF, BookKeeperBoot, Boot, RecoveryPhase, WriterStatus
from fencepost.store.rules.metadata import LedgerStatus

THOROUGH = bool(os.environ.get("FENCEPOST_THOROUGH"))

NO_COPY = "every_acknowledged_entry_has_a_copy"

# Every named configuration: how many states it has if it holds, how many the shortest counterexample has if it does not.
CONFIGURATIONS: dict[str, int] = {
    "default": 3_826_083,
    "small": 41_856,
    "two-crashes": 217_434,
    "two-entries": 197_839,
    "cookies-not-fixed": 41_856,  # as many as "small": a bookie with a new cookie looks like one that lost everything in a crash
    "with-the-journal": 19_448,
    "scenario-1": 18,
    "scenario-1-closed-ledger": 18,
    "scenario-2": 18,
    "unclean-shutdown-not-detected": 14,
    "cookies-not-checked": 14,
    "limbo-denies": 14,
    "limbo-in-memory": 16,
    "limbo-left-early": 11,
    "an-ack-quorum-to-recover": 18,
    "too-many-crashes": 8,
}

# What is turned off, and the states in the shortest counterexample with two bookies and one crash: by crashes alone; by crashes
# where fences are not journaled; with disks that come back empty. None: it holds.
NEEDED: list[tuple[dict[str, Any], tuple[int | None, int | None, int | None]]] = [
    ({}, (None, None, None)),
    ({"detect_unclean_shutdown": False}, (14, 14, 14)),
    ({"check_cookies": False}, (None, None, 14)),
    ({"phase_one_fences": False}, (None, 14, 14)),
    ({"fence_closed_ledgers": False}, (None, 14, 14)),
    ({"phase_one_sets_limbo": False}, (14, 14, 14)),
    ({"limbo_answers_unknown": False}, (14, 14, 14)),
    ({"limbo_in_index": False}, (16, 16, 16)),
]
DAMAGE: list[dict[str, Any]] = [{"disk_loss": False}, {"disk_loss": False, "journal_fences": False}, {}]

RESULTS: dict[str, Result] = {}


def result_of(protocol: BookKeeperBoot) -> Result:
    """What a check of ``protocol`` says; each is checked once, however many tests ask."""
    if repr(protocol) not in RESULTS:
        RESULTS[repr(protocol)] = check(protocol, engine="embedded", options=Options(workers=1))
    return RESULTS[repr(protocol)]


def length(result: Result) -> int | None:
    return len(result.violation.trace or ()) if result.violation else None


def test_every_named_configuration_is_checked() -> None:
    assert set(BookKeeperBoot.configurations) == set(CONFIGURATIONS)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_named_configurations(name: str) -> None:
    result = result_of(BookKeeperBoot.configured(name))
    assert result.verdict == BookKeeperBoot.configurations[name].expect
    assert (length(result) or result.distinct_states) == CONFIGURATIONS[name]


@pytest.mark.parametrize(("off", "lengths"), NEEDED)
def test_what_each_protection_is_needed_for(off: dict[str, Any], lengths: tuple[int | None, ...]) -> None:
    for damage, expected in zip(DAMAGE, lengths, strict=True):
        result = result_of(BookKeeperBoot(bookies=2, **off, **damage))
        assert (result.verdict, length(result)) == (CUT_OFF if expected else "holds", expected)


# -- the page says what is so -----------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs" / "protocols" / "bookkeeper-boot.md").read_text()


def rows(table: str) -> dict[str, list[str]]:
    """The cells of the rows of a table of the page by their first cell; ``table`` is how its first row begins."""
    lines = PAGE[PAGE.index(table) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return {name: rest for name, *rest in cells}


def test_the_page_has_every_configuration_with_its_number() -> None:
    holds, violated = rows("| configuration | | states |"), rows("| configuration | taken away |")
    assert {name for name, c in BookKeeperBoot.configurations.items() if c.expect == "holds"} == set(holds)
    assert {name: int(cells[-1].replace(",", "")) for name, cells in {**holds, **violated}.items()} == CONFIGURATIONS


def test_the_page_says_what_each_protection_is_needed_for() -> None:
    said = rows("| taken away | crashes |")
    assert said == {",".join(off) or "nothing": [str(found or "holds") for found in lengths] for off, lengths in NEEDED}


def test_the_page_names_every_constant() -> None:
    section = PAGE[PAGE.index("## Constants") : PAGE.index("## What is in the model")]
    assert set(re.findall(r"`(\w+)`", section)) == set(BookKeeperBoot._declared_constants)


# -- and otherwise ----------------------------------------------------------------------------------------------------


def test_counts_up_to_symmetry() -> None:
    assert check(BookKeeperBoot(), symmetry=True).must_hold().distinct_states == 647_510


def test_counts_in_plain_python() -> None:
    few, shallow = BookKeeperBoot(bookies=2, max_crashes=2), Options(workers=1, max_depth=6)
    plain, compiled = (check(few, engine=engine, options=shallow) for engine in ("reference", "embedded"))
    assert plain.distinct_states == compiled.distinct_states == 635


def test_every_action_is_taken() -> None:
    result = result_of(BookKeeperBoot.configured("two-crashes"))
    assert len(result.actions) == 20
    assert [a.name for a in result.actions if not a.taken] == []


@pytest.mark.parametrize("ack_quorum", [1, 2])
def test_limbo_cuts_nothing_off_whatever_is_destroyed(ack_quorum: int) -> None:
    reckless = BookKeeperBoot(bookies=2, ack_quorum=ack_quorum, max_crashes=2, copies_at_risk=2)
    check(reckless, invariants=[CUT_OFF], options=Options(workers=1)).must_hold()


# -- the stories that BP-46 tells -------------------------------------------------------------------------------------


def story(name: str) -> tuple[list[str], Any]:
    """The titles of the steps of a named configuration's counterexample, and its last state."""
    trace = result_of(BookKeeperBoot.configured(name)).must_violate(BookKeeperBoot.configurations[name].expect)
    return [step.action for step in trace.steps], trace.states[-1].variables()


@pytest.mark.parametrize("name", ["scenario-1", "scenario-1-closed-ledger"])
def test_scenario_1_an_entry_is_taken_after_the_ledger_was_closed(name: str) -> None:
    _, last = story(name)
    assert last["meta"].status is LedgerStatus.CLOSED
    assert (last["meta"].last_entry, last["writer"].lac) == (0, 1)
    # A bookie that was fenced before it went down is not, and has the entry.
    down = next(b for b in last["bookie"] if last["bookie"][b].boot is not Boot.DONE)
    assert not last["bookie"][down].fenced and last["bookie"][down].entries == {1}


def test_scenario_1_is_found_by_a_crash_or_by_an_empty_disk() -> None:
    assert "bookie_crashes" in story("scenario-1")[0]
    actions, _ = story("scenario-1-closed-ledger")
    assert "bookie_loses_disk" in actions
    assert actions.index("recovery_closes_ledger") < actions.index("bookie_boots")


def test_scenario_2_recovery_cuts_off_an_acknowledged_entry() -> None:
    actions, last = story("scenario-2")
    assert "bookie_crashes" in actions
    forgetful = next(bookie for bookie in last["bookie"].values() if bookie.lost)
    assert forgetful.fenced and not forgetful.limbo and forgetful.entries == frozenset()
    assert (last["meta"].last_entry, last["writer"].lac) == (0, 1)


def test_recovery_by_an_ack_quorum_of_copies_can_wait_for_ever() -> None:
    _, last = story("an-ack-quorum-to-recover")
    recovery = last["recovery"][ModelValue("r1")]
    assert recovery.phase is RecoveryPhase.READING
    assert (recovery.found, recovery.denied, recovery.unknown) == (1, 1, 1)
    # Nobody changes its mind: every bookie is fenced, so no entry comes from the writer any more.
    assert all(bookie.fenced for bookie in last["bookie"].values())


# -- what the model promises beyond its invariants --------------------------------------------------------------------


class Watched(BookKeeperBoot):
    """The same, with promises that are implied, and with what must be reachable denied."""

    @step_invariant(b=BookKeeperBoot.bookies)
    def nobody_leaves_limbo_incomplete(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        before, now = self.bookie[b], after.bookie[b]
        if now.boot is Boot.DOWN or now.limbo or not before.limbo or before.boot is Boot.DOWN:
            return True
        return after.meta.status is LedgerStatus.CLOSED and set(range(1, after.meta.last_entry + 1)) <= now.entries

    @step_invariant(b=BookKeeperBoot.bookies)
    def nobody_boots_without_a_cookie(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        return self.bookie[b].cookie or after.bookie[b].boot is Boot.DOWN

    @step_invariant(b=BookKeeperBoot.bookies)
    def nobody_serves_unfenced_after_a_loss(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        before, now = self.bookie[b], after.bookie[b]
        boots = before.boot is Boot.DOWN and now.boot is not Boot.DOWN
        return not boots or now.fenced or (before.cookie and not before.unclean)

    @invariant(entry_id=lambda p: p.entry_ids)
    def no_more_copies_are_lost_than_are_at_risk(self, entry_id: int) -> bool:
        return sum(entry_id in self.bookie[b].lost for b in self.bookies) <= self.copies_at_risk

    @step_invariant(b=BookKeeperBoot.bookies)
    def no_crash_in_phase_two(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        return not (
            self.bookie[b].boot is Boot.PHASE_TWO
            and self.bookie[b].limbo
            and after.crashes > self.crashes
            and after.bookie[b].boot is Boot.DOWN
        )

    @step_invariant(b=BookKeeperBoot.bookies)
    def no_copy_is_lost_again(self, after: "BookKeeperBoot", b: ModelValue) -> bool:
        """A copy that phase two has made is in no danger while limbo lasts."""
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
]


def test_what_is_promised_is_kept() -> None:
    check(Watched.configured("two-crashes"), invariants=PROMISES, options=Options(workers=1)).must_hold()


@pytest.mark.parametrize(
    ("promise", "off"),
    [
        ("nobody_leaves_limbo_incomplete", {"repair_before_leaving_limbo": False}),
        ("nobody_serves_unfenced_after_a_loss", {"phase_one_fences": False}),
        ("nobody_serves_unfenced_after_a_loss", {"fence_closed_ledgers": False}),
    ],
)
def test_what_is_promised_is_kept_by_a_protection(promise: str, off: dict[str, Any]) -> None:
    check(Watched(bookies=2, **off), invariants=[promise], options=Options(workers=1)).must_violate(promise)


def test_without_a_cookie_a_bookie_boots_only_if_that_is_to_be_fixed() -> None:
    promise = "nobody_boots_without_a_cookie"
    check(Watched.configured("cookies-not-fixed"), invariants=[promise], options=Options(workers=1)).must_hold()
    check(Watched.configured("small"), invariants=[promise]).must_violate(promise)


@pytest.mark.parametrize(
    "never",
    ["no_crash_in_phase_two", "no_copy_is_lost_again", "no_two_in_limbo", "no_read_is_left_open", "no_writer_gives_up"],
)
def test_what_can_happen_is_found(never: str) -> None:
    check(Watched.configured("two-crashes"), invariants=[never]).must_violate(never)


# -- limbo ends -------------------------------------------------------------------------------------------------------


class Impatient(BookKeeperBoot):
    """What would be too much to ask, and a fairness that is too little."""

    fairness = (weak(),)

    @leads_to(b=BookKeeperBoot.bookies)
    def limbo_ends_whatever_crashes(self, b: ModelValue) -> tuple[bool, bool]:
        return self.bookie[b].limbo, not self.bookie[b].limbo


@pytest.mark.parametrize("name", ["small", "two-crashes", "two-entries", "cookies-not-fixed", *["default"] * THOROUGH])
def test_limbo_ends(name: str) -> None:
    check(BookKeeperBoot.configured(name), invariants=["limbo_ends"], options=Options(workers=1)).must_hold()


def test_limbo_does_not_end_if_recovery_asks_for_an_ack_quorum() -> None:
    stuck = check(BookKeeperBoot(bookies=2, copies_to_recover=2), invariants=["limbo_ends"], options=Options(workers=1))
    last: Any = stuck.must_violate("limbo_ends").states[-1].variables()
    assert (last["recovery"][ModelValue("r1")].found, last["recovery"][ModelValue("r1")].unknown) == (1, 1)


def test_limbo_does_not_end_for_who_is_shut_down_again_and_again() -> None:
    """Unless what it does while it is up is strongly fair."""
    check(Impatient(bookies=2), invariants=["limbo_ends"], options=Options(workers=1)).must_violate("limbo_ends")
    weakly = Impatient(bookies=2, clean_shutdown=False)
    check(weakly, invariants=["limbo_ends"], options=Options(workers=1)).must_hold()


def test_limbo_does_not_end_after_a_power_failure() -> None:
    promise = "limbo_ends_whatever_crashes"
    one, two = (Impatient(bookies=2, clean_shutdown=False, max_crashes=crashes) for crashes in (1, 2))
    check(one, invariants=[promise], options=Options(workers=1)).must_hold()
    check(two, invariants=[promise], options=Options(workers=1)).must_violate(promise)


# -- what the invariants are there for: a protocol with one rule left out ---------------------------------------------


class LeavesLimboBeforeRecovery(BookKeeperBoot):
    """Phase two does not wait for the ledger to be recovered."""

    @action(b=BookKeeperBoot.bookies, by="b")
    def bookie_completes_boot(self, b: ModelValue) -> None:
        self._serving(b).boot = Boot.DONE
        self.bookie[b].limbo = False


class ClosesWithoutWritingBack(BookKeeperBoot):
    """Recovery takes one copy for as good as an ack quorum."""

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
    check(broken(bookies=2), options=Options(workers=1)).must_violate(violated)


@pytest.mark.parametrize(
    ("constants", "broken"),
    [
        ({"send_limit": 0}, "something_is_sent"),
        ({"ack_quorum": 4}, "an_ack_quorum_is_some_of_the_bookies"),
        ({"copies_to_recover": 3}, "an_ack_quorum_is_enough_to_recover"),
        ({"bookies": "b1,writer,b3"}, "nobody_is_taken_for_somebody_else"),
    ],
)
def test_constants_that_make_no_sense_are_refused(constants: dict[str, Any], broken: str) -> None:
    assert check(BookKeeperBoot(**constants)).verdict == broken
