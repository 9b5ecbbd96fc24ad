"""Offloading holds with all protections, and each protection is needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from campaigns import MANY_STATES, campaign_if, engine_for

from fencepost import ModelValue, SearchOptions, action, check, invariant
from fencepost.log import offload_rules as rules
from fencepost.log.offload_rules import Noted, Protections
from fencepost.protocols.log.offload import (
    CLEAN,
    Deletion,
    Following,
    LogOffload,
    Node,
    Object,
    Reader,
    Reading,
    Sweep,
)

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "log-offload.md"

HOLD = {
    "default": 597_139,
    "small": 3_654,
    "damaged-objects": 64_521,
    "deletion": 1_373_556,
    "two-deleters": 1_461_478,
    "deletion-and-writer": 3_187_491,
}
"""The configurations that hold, and their numbers of states."""

BROKEN = {name: each for name, each in LogOffload.configurations.items() if each.expect != "holds"}

LOST = "what_is_not_trimmed_is_readable"


@pytest.mark.parametrize("name", campaign_if(lambda name: HOLD[name] > MANY_STATES, HOLD))
def test_what_holds(name: str) -> None:
    result = check(LogOffload.configured(name), engine=engine_for(HOLD[name])).must_hold()
    assert result.distinct_states == HOLD[name]


def test_in_plain_python() -> None:
    assert check(LogOffload.configured("small"), engine="reference").must_hold().distinct_states == HOLD["small"]


@cache
def holds(constants: tuple[tuple[str, Any], ...]) -> bool:
    """Whether the protocol holds with these constants."""
    return check(LogOffload(**dict(constants)), options=SearchOptions(workers=1)).verdict == "holds"


@pytest.mark.parametrize("name", BROKEN)
def test_every_protection_is_needed(name: str) -> None:
    result = check(LogOffload.configured(name), options=SearchOptions(workers=1))
    assert result.must_violate(BROKEN[name].expect)
    off = [each for each in BROKEN[name].constants if each in Protections._fields]
    assert len(off) == 1
    back = {key: value for key, value in BROKEN[name].constants.items() if key not in off}
    assert BROKEN[name].constants[off[0]] is False
    if back.get("max_crashes") == 0:
        assert holds(tuple(sorted(back.items())))


def test_every_protection_is_taken_away_once() -> None:
    off = [key for each in BROKEN.values() for key, value in each.constants.items() if key in Protections._fields]
    assert sorted(off) == sorted(Protections._fields)


MOVING = [name for name, each in BROKEN.items() if "deleters" not in each.constants and name != "reader-looks-once"]


@pytest.mark.parametrize("name", MOVING)
def test_without_it_an_entry_that_is_not_trimmed_cannot_be_read(name: str) -> None:
    protocol = LogOffload.configured(name)
    check(protocol, invariants=[LOST], options=SearchOptions(workers=1)).must_violate(LOST)


def test_a_log_that_is_not_sealed_leaves_the_ledger_that_its_writer_adds() -> None:
    protocol = LogOffload.configured("deleted-unsealed")
    last: Any = check(protocol, invariants=[CLEAN], options=SearchOptions(workers=1)).must_violate(CLEAN).states[-1]
    assert last.variables()["following"] is Following.LISTED


# -- progress ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "constants",
    [
        {"offloaders": 1, "attempts": 1},
        {"offloaders": 1},
        *campaign_if(bool, [{"max_crashes": 0}]),
    ],
)
def test_orphans_end(constants: dict[str, Any]) -> None:
    check(LogOffload(**constants), invariants=["orphans_end"], options=SearchOptions(workers=1)).must_hold()


@pytest.mark.parametrize("constants", [{"max_crashes": 2}, {"may_append": True}, *campaign_if(bool, [{"attempts": 2}])])
@pytest.mark.parametrize("promise", ["deletions_end", "orphans_end"])
def test_a_deletion_that_is_run_again_ends_and_so_do_orphans(promise: str, constants: dict[str, Any]) -> None:
    protocol = LogOffload(**{"offloaders": 1, "attempts": 1, "deleters": 1, **constants})
    check(protocol, invariants=[promise], options=SearchOptions(workers=1)).must_hold()


def test_orphans_without_a_record_stay_unless_somebody_looks_for_them() -> None:
    careless = LogOffload(offloaders=1, attempts=1, max_crashes=0, strays_are_looked_for=False)
    last: Any = check(careless, invariants=["orphans_end"]).must_violate("orphans_end").states[-1].variables()
    assert last["objects"][1] is not Object.NONE and last["records"][1] is Noted.NOT


# -- what can happen --------------------------------------------------------------------------------------------------


def test_every_action_is_taken() -> None:
    taken = {
        each.name
        for protocol in (
            LogOffload(max_damages=1, offloaders=1),
            LogOffload(offloaders=1, attempts=1, deleters=1, may_append=True),
        )
        for each in check(protocol).actions
        if each.taken
    }
    every = {each.name for each in LogOffload.declared("action")}
    assert every - taken == {"offloader_notes", "trim_removes_object_first"}


class Watched(LogOffload):
    """Denies states that must be reachable."""

    @invariant
    def no_reader_reads_an_object(self) -> bool:
        return self.reader != Reader(Reading.DONE, 1)

    @invariant
    def no_ledger_is_in_the_object_store_alone(self) -> bool:
        return self.is_on_bookies or not self.is_in_log

    @invariant
    def no_named_object_is_withdrawn(self) -> bool:
        return self.named == 0 or self.records[self.named] is Noted.BEGUN

    @invariant
    def no_second_attempt_is_named(self) -> bool:
        return self.named != 2

    @invariant
    def no_log_is_deleted(self) -> bool:
        return self.node is not Node.DELETED

    @invariant
    def no_stray_outlives_a_deletion(self) -> bool:
        return self.node is not Node.DELETED or self.objects[1] is Object.NONE or self._is_written(1)

    @invariant
    def no_deletion_finds_a_late_record(self) -> bool:
        return not any(
            self.deleter[d].step is Deletion.RECORDS and self.records[2] is Noted.BEGUN and self.named == 2
            for d in self.deleters
        )


@pytest.mark.parametrize(
    "never",
    [
        "no_reader_reads_an_object",
        "no_ledger_is_in_the_object_store_alone",
        "no_named_object_is_withdrawn",
        "no_second_attempt_is_named",
    ],
)
def test_what_can_happen_is_found(never: str) -> None:
    check(Watched(max_crashes=0), invariants=[never], options=SearchOptions(workers=1)).must_violate(never)


@pytest.mark.parametrize(
    "never", ["no_log_is_deleted", "no_stray_outlives_a_deletion", "no_deletion_finds_a_late_record"]
)
def test_what_can_happen_with_a_deletion_is_found(never: str) -> None:
    check(Watched(offloaders=1, deleters=1), invariants=[never], options=SearchOptions(workers=1)).must_violate(never)


# -- the need for each invariant: a protocol without one rule ---------------------------------------------------------


class ForgetsTheRecord(LogOffload):
    """The remover forgets the record of an object that it keeps."""

    @action
    def sweeper_raises_version(self) -> None:
        super().sweeper_raises_version()
        if self.sweeper.step is Sweep.IDLE:
            self.records[self.named] = Noted.NOT


class LeavesStrays(LogOffload):
    """A deletion does not look for strays."""

    @action(d=LogOffload.deleters)
    def deleter_removes_strays(self, d: ModelValue) -> None:
        me = self._deleting(d, Deletion.STRAYS)
        me.objects = frozenset()
        me.step = Deletion.OBJECTS


class CountsBadly(LogOffload):
    """An attempt has a number that no attempt has."""

    @action(o=LogOffload.offloaders)
    def offloader_begins(self, o: ModelValue) -> None:
        super().offloader_begins(o)
        self.begun += 2


@pytest.mark.parametrize(
    ("broken", "violated"), [(ForgetsTheRecord, "what_the_list_names_is_recorded"), (CountsBadly, "type_ok")]
)
def test_a_rule_left_out_is_found(broken: type[LogOffload], violated: str) -> None:
    result = check(broken(max_crashes=0), invariants=[violated], options=SearchOptions(workers=1))
    result.must_violate(violated)


def test_a_deletion_that_leaves_strays_is_found() -> None:
    result = check(LeavesStrays(offloaders=1, deleters=1), invariants=[CLEAN], options=SearchOptions(workers=1))
    result.must_violate(CLEAN)


def test_without_an_attempt_nothing_is_checked() -> None:
    assert check(LogOffload(attempts=0)).verdict == "somebody_can_begin"


# -- the rules --------------------------------------------------------------------------------------------------------


def test_the_list_names_an_object_only_once_and_only_of_an_attempt_that_is_not_withdrawn() -> None:
    named = [
        (is_in_log, other, record)
        for is_in_log in (True, False)
        for other in (None, 7)
        for record in Noted
        if rules.may_name(is_in_log, other, record)
    ]
    assert named == [(True, None, Noted.BEGUN)]


def test_an_object_is_superseded_by_a_trim_or_by_another_object() -> None:
    assert [rules.is_superseded(True, named, 7) for named in (None, 7, 8)] == [False, False, True]
    assert all(rules.is_superseded(False, named, 7) for named in (None, 7, 8))


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_has_every_constant_and_configuration() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    rows = {row[0].strip("` "): [each.strip() for each in row[1:]] for row in (x.strip("|").split("|") for x in lines)}
    for name, states in HOLD.items():
        assert rows[name][-1] == f"{states:,}"
    for name, each in BROKEN.items():
        assert rows[name][-1] == f"`{each.expect}`"
        assert rows[name][0].strip("`") in each.constants
    assert set(LogOffload().constants) <= set(rows)
    assert {each.name for each in LogOffload.declared("invariant")} <= set(rows)
