"""Booting: the duties of a bookie that may have lost something to its ledgers, and which entries belong to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.ledger.bookie.repair import missing_of
from fencepost.ledger.rules.boot import (
    CLEAN_END,
    Mark,
    Run,
    Step,
    mark_of,
    may_have_lost_adds,
    may_leave_limbo,
    steps_of_boot,
)
from fencepost.ledger.rules.cookies import Cookie, Stamped, may_repair
from fencepost.ledger.rules.ensembles import Fragment, fragment_of, write_set
from fencepost.ledger.rules.metadata import LedgerMetadata, LedgerStatus, closed
from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.rules.replication import belonging, sources

OPEN = LedgerMetadata(3, 2, 2, (Fragment(0, ("a", "b", "c")), Fragment(10, ("a", "d", "c"))))


def test_an_entry_is_had_from_the_others_of_its_write_set() -> None:
    assert sources(OPEN, 0, "a") == ("b",)
    assert sources(OPEN, 10, "d") == ("c",)
    assert sources(OPEN, 0, "e") == ("a", "b")


def test_only_adds_that_were_not_in_the_journal_are_lost_with_a_process() -> None:
    assert not may_have_lost_adds(CLEAN_END)
    assert may_have_lost_adds(None)
    assert not may_have_lost_adds(Run(journals_adds=True))
    assert may_have_lost_adds(Run(journals_adds=False))


@pytest.mark.parametrize(
    ("metadata", "bookie", "mark"),
    [
        (OPEN, "a", Mark.LIMBO),
        (OPEN, "b", Mark.LIMBO),
        (OPEN.replace(status=LedgerStatus.IN_RECOVERY), "d", Mark.LIMBO),
        (closed(OPEN, 12, 0), "b", Mark.FENCE),
        (OPEN, "e", Mark.NOTHING),
        (closed(OPEN, 12, 0), "e", Mark.NOTHING),
    ],
)
def test_every_ledger_that_was_ever_on_the_bookie_is_marked(metadata: LedgerMetadata, bookie: str, mark: Mark) -> None:
    assert mark_of(metadata, bookie) is mark


PHASE_ONE = (Step.BEGIN_REPAIR, Step.OPEN_STORAGE, Step.MARK_LEDGERS)


@pytest.mark.parametrize(
    ("has_lost_directory", "last_run", "steps"),
    [
        (False, CLEAN_END, (Step.OPEN_STORAGE,)),
        (False, Run(journals_adds=True), (Step.OPEN_STORAGE,)),
        (False, Run(journals_adds=False), PHASE_ONE),
        (False, None, PHASE_ONE),
        (True, CLEAN_END, (*PHASE_ONE, Step.STAMP_COOKIES)),
        (True, Run(journals_adds=False), (*PHASE_ONE, Step.STAMP_COOKIES)),
    ],
)
def test_a_bookie_marks_its_ledgers_before_anything_says_that_it_has_lost_nothing(
    has_lost_directory: bool, last_run: Run | None, steps: tuple[Step, ...]
) -> None:
    assert steps_of_boot(has_lost_directory=has_lost_directory, last_run=last_run) == (
        *steps,
        Step.NOTE_RUN,
        Step.SERVE,
    )


def test_orders_and_marks_without_a_protection() -> None:
    early, late = ALL.replace(cookies_follow_marks=False), ALL.replace(run_precedes_answers=False)
    first = steps_of_boot(has_lost_directory=True, last_run=None, protections=early)
    assert first.index(Step.OPEN_STORAGE) < first.index(Step.STAMP_COOKIES) < first.index(Step.MARK_LEDGERS)
    assert steps_of_boot(has_lost_directory=False, last_run=CLEAN_END, protections=late)[-2:] == (
        Step.SERVE,
        Step.NOTE_RUN,
    )
    assert mark_of(OPEN, "a", ALL.replace(boot_enters_limbo=False)) is Mark.FENCE
    assert mark_of(closed(OPEN, 12, 0), "a", ALL.replace(boot_fences=False)) is Mark.NOTHING
    assert mark_of(OPEN, "a", ALL.replace(boot_fences=False)) is Mark.LIMBO


def test_limbo_ends_when_the_end_is_known_and_nothing_is_missing() -> None:
    assert may_leave_limbo(LedgerStatus.CLOSED, 0)
    assert not may_leave_limbo(LedgerStatus.CLOSED, 1)
    assert not may_leave_limbo(LedgerStatus.IN_RECOVERY, 0)


OWN = Cookie(bookie_id="a", journal_directories=("/j",), ledger_directories=("/l",), instance_id="cluster", token="1")


@pytest.mark.parametrize(
    ("in_metadata", "stamped", "may"),
    [
        (OWN, Stamped("/l", None, True), True),
        (OWN, Stamped("/l", None, False), False),
        (OWN, Stamped("/l", None, False, is_under_repair=True), True),
        (OWN, Stamped("/l", OWN.replace(token="0"), False), True),
        (OWN, Stamped("/l", OWN.replace(ledger_directories=("/m",)), False), True),
        (OWN, Stamped("/l", OWN.replace(bookie_id="b"), False), False),
        (OWN, Stamped("/l", OWN.replace(instance_id="other"), False), False),
        (OWN.replace(instance_id="other"), Stamped("/l", None, True), False),
        (None, Stamped("/l", OWN, False), False),
    ],
)
def test_only_the_same_bookie_of_the_same_cluster_repairs_itself(
    in_metadata: Cookie | None, stamped: Stamped, may: bool
) -> None:
    assert may_repair(OWN, in_metadata, [Stamped("/j", OWN, False), stamped]) is may


@given(st.data())
def test_the_entries_that_are_missing_are_those_of_its_write_sets_that_it_has_not(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    quorum = data.draw(st.integers(1, size))
    ensembles = st.permutations("abcdef").map(lambda names: tuple(names[:size]))
    starts = [0, *sorted(data.draw(st.sets(st.integers(1, 30), max_size=3)))]
    fragments = tuple(Fragment(start, data.draw(ensembles)) for start in starts)
    last = data.draw(st.integers(-1, 40))
    metadata = closed(LedgerMetadata(size, quorum, 1, fragments), last, 0)
    stored = data.draw(st.sets(st.integers(0, 45)))
    belong = {
        entry_id
        for entry_id in range(last + 1)
        if "a" in write_set(entry_id, tuple(fragment_of(fragments, entry_id).ensemble), quorum)
    }
    assert sorted(belonging(metadata, "a")) == sorted(belong)
    assert np.array_equal(missing_of(metadata, "a", sorted(stored)), sorted(belong - stored))
