"""Recordings of messages between clients and bookies, validated by the protocol ``recorded-store``: correct runs are
accepted, lies are not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from campaigns import campaign_if
from traces.faulty import without_judge
from traces.recorded_runs import LEDGER, record, said, validate

from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation.case import Case, drawn
from fencepost.protocols.store.recorded import RecordedStore
from fencepost.protocols.store.running import RunningStore
from fencepost.traces.validation import registry
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.validate import Validator

BOOKIES = ("b1", "b2", "b3", "b4", "b5")
FIRST = [[0, ["b1", "b2", "b3"]]]


# -- runs of the simulator ---------------------------------------------------------------------------------------------


def of_the_store(seed: int, profile: str) -> Case:
    """A case in which all clients have the key of the ledger and no bookie returns a damaged entry: those cannot be
    distinguished from lies.
    """
    case = drawn(seed, profile)
    return replace(case, faults=tuple(fault for fault in case.faults if fault not in ("impostors", "bit_rot")))


@pytest.mark.parametrize("profile", ["calm", "network", "crashes", "races", "disks", "everything"])
def test_what_is_seen_of_the_store_is_a_behaviour_of_the_protocol(profile: str) -> None:
    steps = 0
    for seed in (1, 2, 3):
        outcome, events = record(of_the_store(seed, profile))
        assert outcome.violation is None
        verdict = validate(events)
        assert verdict.accepted, (seed, said(verdict))
        assert not verdict.skipped
        steps += verdict.steps
    assert steps > 800


def test_every_order_that_the_causes_allow_is_accepted_too() -> None:
    for seed in (1, 2):
        _, events = record(of_the_store(seed, "everything"))
        for shuffle in (1, 2):
            verdict = validate(events, shuffle)
            assert verdict.accepted, (seed, shuffle, said(verdict))


def test_whoever_has_another_key_is_not_covered() -> None:
    for seed in range(1, 20):
        case = drawn(seed, "races")
        if "impostors" in case.faults:
            verdict = validate(record(case)[1])
            if not verdict.covered:
                assert "another key" in verdict.problem
                return
    pytest.fail("no stranger was answered")


# -- recordings made by hand -------------------------------------------------------------------------------------------


class Seen:
    """A recording made event by event. Bookies answer at once, unless the code is None."""

    def __init__(self, new: bool = True) -> None:
        self.events: list[Event] = []
        self.new = new
        self.number = 0
        self.connections = 0
        self.tell(
            "started", None, kind="record", bookies=[{"bookie": bookie} for bookie in BOOKIES], faults=[], seed=None
        )
        for bookie in BOOKIES:
            self.tell("connected", None, bookie=bookie, connection=f"to {bookie}", onward="", process=None)

    def tell(self, action: str, subject: str | None = LEDGER, **parameters: Any) -> None:
        self.events.append(Event("proxy", 1, len(self.events) + 1, action, subject, parameters))

    def metadata(self, version: int, state: str = "OPEN", fragments: Any = FIRST, last: int = -1) -> None:
        sizes = {"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2}
        metadata = {"state": state, "fragments": fragments, "last_entry": last, **sizes}
        self.tell("metadata_seen", version=version, metadata=metadata, new=self.new)

    def ask(self, kind: str, bookie: str, **parameters: Any) -> dict[str, Any]:
        """Record a request. Returns the fields that its response shares."""
        self.number += 1
        same: dict[str, Any] = {
            "kind": kind,
            "bookie": bookie,
            "connection": f"to {bookie}",
            "protocol": 3,
            "number": self.number,
        }
        self.tell("request_passed", **same, **parameters)
        return same | {name: parameters[name] for name in ("recovery", "fence", "entry") if name in parameters}

    def answer(self, same: dict[str, Any], code: str | None = "OK", **parameters: Any) -> None:
        if code is not None:
            self.tell("response_passed", **same, code=code, **parameters)

    def add(
        self,
        entry: int,
        *bookies: str,
        lac: int | None = None,
        code: str | None = "OK",
        recovery: bool = False,
        length: int | None = None,
    ) -> None:
        """Add an entry of ten bytes to some bookies."""
        told = {"lac": entry - 1 if lac is None else lac, "length": length or 10 * (entry + 1), "deferred_sync": False}
        for same in [
            self.ask("add", bookie, entry=entry, recovery=recovery, **told) for bookie in bookies or ("b1", "b2", "b3")
        ]:
            self.answer(same, code)

    def read(
        self,
        entry: int,
        bookie: str,
        code: str = "OK",
        found: int | None = None,
        lac: int | None = None,
        fence: bool = True,
    ) -> None:
        same = self.ask("read", bookie, entry=entry, fence=fence)
        self.shown(same, entry, code, found, lac)

    def shown(
        self, same: dict[str, Any], entry: int, code: str = "OK", found: int | None = None, lac: int | None = None
    ) -> None:
        found = entry if code == "OK" and found is None else found
        there = {"found": found, "lac": None if found is None else found - 1 if lac is None else lac}
        self.answer(same, code, **there, length=None if found is None else 10 * (found + 1), max_lac=None)

    def fence(self, *bookies: str, last: int | None = None, lac: int | None = None) -> None:
        for bookie in bookies or ("b1", "b2", "b3"):
            self.read(-1, bookie, "NO_ENTRY" if last is None else "OK", last, lac)

    def read_lac(self, bookie: str, code: str = "OK", last: int | None = None) -> None:
        told = {"lac": None, "last_entry": last, "last_entry_lac": None if last is None else last - 1}
        self.answer(self.ask("read_lac", bookie), code, **told)

    def started_anew(self, bookie: str) -> None:
        self.connections += 1
        self.tell("connection_ended", None, bookie=bookie, connection=f"to {bookie}", by="bookie", error=None)
        self.tell("connected", None, bookie=bookie, connection=f"to {bookie}", onward="", process=None)


def written(entries: int = 4) -> Seen:
    """A ledger with some entries, which everybody has confirmed."""
    seen = Seen()
    seen.metadata(0)
    for entry in range(entries):
        seen.add(entry)
    return seen


def recovered(entries: int = 4, end: int | None = None, closes: bool = True) -> Seen:
    """The same, recovered from its LAC on."""
    seen, end = written(entries), entries - 1 if end is None else end
    seen.metadata(1, "IN_RECOVERY")
    seen.fence(last=entries - 1)
    seen.read(entries - 1, "b1")
    seen.read(entries, "b2", "NO_ENTRY")
    seen.read(entries, "b3", "NO_ENTRY")
    seen.add(entries - 1, recovery=True)
    if closes:
        seen.metadata(2, "CLOSED", last=end)
    return seen


def refused(seen: Seen) -> str:
    """The complaints about a rejected recording: the steps, and the lines that refuse them."""
    verdict = validate(seen.events)
    assert not verdict.accepted and verdict.covered, verdict.problem or "it is accepted"
    return (
        " ".join(f"{each.step.title} {each.why.reason} {each.why.asked}" for each in verdict.refusals) + verdict.problem
    )


def accepted(seen: Seen) -> bool:
    verdict = validate(seen.events)
    assert verdict.accepted, said(verdict)
    return True


def test_a_ledger_is_written_recovered_and_closed() -> None:
    assert accepted(written())
    assert accepted(recovered())
    assert accepted(recovered(1))


# Each of these is a lie: of a bookie, a client, or a writer of metadata.


def test_a_lac_before_an_ack_quorum_has_confirmed() -> None:
    seen = Seen()
    seen.metadata(0)
    seen.add(0, "b1")
    seen.add(0, "b2", "b3", code=None)
    seen.add(1)
    assert "client_sends_add(b=b1, entry_id=1, lac=0" in refused(seen)
    assert "require(lac <= self.confirmed)" in refused(seen)


def test_an_acknowledgement_that_is_missing() -> None:
    seen = written()
    gone = [event for event in seen.events if event.action == "response_passed" and event.parameters["entry"] == 1][:2]
    seen.events = [
        msgspec.structs.replace(event, seq=number + 1)
        for number, event in enumerate(event for event in seen.events if event not in gone)
    ]
    assert "lac=1" in refused(seen)


def test_a_lac_that_is_told_by_itself_too_early() -> None:
    seen = written()
    seen.answer(seen.ask("write_lac", "b1", lac=4))
    assert "client_tells_lac(b=b1, lac=4" in refused(seen)


def test_a_bookie_tells_a_lac_that_nobody_has_told() -> None:
    seen = written()
    seen.read_lac("b1", last=3)
    assert accepted(seen)
    same = seen.ask("read_lac", "b1")
    seen.answer(same, lac=3, last_entry=None, last_entry_lac=None)
    assert "bookie_tells_lac(b=b1, lac=3)" in refused(seen)


def test_a_fenced_bookie_takes_an_add() -> None:
    seen = recovered()
    seen.add(4, "b1", code="FENCED", lac=3)
    assert accepted(seen)
    seen.started_anew("b2")
    seen.add(4, "b2", lac=3)
    assert "bookie_takes_add(b=b2)" in refused(seen)


def test_an_add_that_was_under_way_when_a_bookie_was_fenced() -> None:
    seen = written()
    under_way = seen.ask("add", "b1", entry=4, recovery=False, lac=3, length=50, deferred_sync=False)
    seen.metadata(1, "IN_RECOVERY")
    seen.fence("b1", last=3)
    seen.answer(under_way)
    assert accepted(seen)


def test_a_bookie_takes_what_it_has_denied_to_a_recovery_whatever_came_first() -> None:
    for read_first in (True, False):
        seen = written()
        add = seen.ask("add", "b1", entry=4, recovery=False, lac=3, length=50, deferred_sync=False)
        seen.metadata(1, "IN_RECOVERY")
        fence = seen.ask("read", "b1", entry=-1, fence=True)
        seen.fence("b2", "b3", last=3)
        read = seen.ask("read", "b1", entry=4, fence=True)
        if read_first:
            seen.shown(read, 4, "NO_ENTRY")
            seen.answer(add)
        else:
            seen.answer(add)
            seen.shown(read, 4, "NO_ENTRY")
        seen.shown(fence, -1, found=3)
        assert "bookie_confirms_add(b=b1, entry_id=4" in refused(seen)


def test_a_bookie_is_fenced_before_any_entry_and_then_takes_one() -> None:
    seen = Seen()
    seen.metadata(0)
    seen.metadata(1, "IN_RECOVERY")
    seen.fence()
    seen.started_anew("b1")
    seen.add(0, "b1")
    assert "bookie_takes_add(b=b1)" in refused(seen)


def test_a_bookie_denies_what_it_has_confirmed() -> None:
    for anew in (False, True):
        seen = written()
        if anew:
            seen.started_anew("b1")
        seen.read(2, "b1", "NO_ENTRY", fence=False)
        assert "bookie_lacks_entry(b=b1, entry_id=2" in refused(seen)


def test_a_bookie_that_is_asked_before_it_has_confirmed() -> None:
    seen = written()
    add = seen.ask("add", "b1", entry=4, recovery=False, lac=3, length=50, deferred_sync=False)
    read = seen.ask("read", "b1", entry=4, fence=False)
    seen.answer(add)
    seen.shown(read, 4, "NO_ENTRY")
    assert accepted(seen)


def test_a_bookie_in_limbo_knows_of_no_lac() -> None:
    seen = written()
    seen.started_anew("b1")
    seen.read(2, "b1", "UNKNOWN_LEDGER_STATE", fence=False)
    assert accepted(seen)
    seen.read_lac("b1", "NO_ENTRY")
    assert "bookie_lacks_everything(b=b1" in refused(seen)


def test_a_bookie_in_limbo_that_shows_the_entry_all_the_same() -> None:
    seen = written()
    seen.started_anew("b1")
    seen.read(2, "b1", "UNKNOWN_LEDGER_STATE", found=2, fence=False)
    assert "bookie_is_in_limbo(b=b1, shows=True)" in refused(seen)


def test_a_bookie_is_in_limbo_that_was_not_started_anew() -> None:
    seen = written()
    seen.read(2, "b1", "UNKNOWN_LEDGER_STATE", fence=False)
    assert "bookie_is_in_limbo(b=b1, shows=False)" in refused(seen)


def test_a_bookie_that_lost_its_disk_may_copy_a_closed_ledger_anew() -> None:
    seen = recovered()
    seen.started_anew("b1")
    seen.read(2, "b1", "NO_ENTRY", fence=False)
    assert accepted(seen)
    seen.read(2, "b2", "NO_ENTRY", fence=False)
    assert "bookie_lacks_entry(b=b2, entry_id=2" in refused(seen)


def test_a_bookie_in_no_fragment_may_have_lost_everything() -> None:
    seen = written()
    seen.metadata(1, fragments=[[0, ["b1", "b2", "b3"]], [3, ["b1", "b2", "b4"]]])
    seen.read(2, "b3", "NO_ENTRY", fence=False)
    assert "bookie_lacks_entry(b=b3" in refused(seen)
    seen = Seen()
    seen.metadata(0)
    seen.add(0, "b3")
    seen.metadata(1, fragments=[[0, ["b1", "b2", "b4"]]])
    seen.read(0, "b3", "NO_ENTRY", fence=False)
    assert accepted(seen)


def test_an_add_is_refused_as_fenced_by_a_bookie_that_nobody_has_fenced() -> None:
    seen = written()
    seen.add(4, "b1", code="FENCED", lac=3)
    assert "bookie_refuses_add(b=b1)" in refused(seen)


def test_a_bookie_that_has_refused_takes_an_add() -> None:
    seen = written()
    seen.metadata(1, "IN_RECOVERY")
    seen.ask("read", "b1", entry=-1, fence=True)
    seen.add(4, "b1", code="FENCED", lac=3)
    assert accepted(seen)
    seen.add(5, "b1", lac=3)
    assert "bookie_takes_add(b=b1)" in refused(seen)


def test_another_entry_than_was_asked_for_or_written() -> None:
    seen = written()
    seen.read(2, "b1", found=3, fence=False)
    assert "require(found == entry_id)" in refused(seen)
    seen = written()
    seen.read(2, "b1", lac=0, fence=False)
    assert "require(Copy(lac, length) in entry.copies" in refused(seen)
    seen = written()
    seen.add(2, "b1", length=99)
    assert "require(entry.written in (None, copy))" in refused(seen)


def test_an_entry_goes_to_a_bookie_that_is_not_in_its_write_set() -> None:
    seen = written()
    seen.add(4, "b4", lac=3)
    assert "client_sends_add(b=b4, entry_id=4" in refused(seen)


def test_a_response_that_nobody_has_asked_for() -> None:
    response: dict[str, Any] = {
        "kind": "add",
        "bookie": "b1",
        "connection": "to b1",
        "protocol": 3,
        "number": 99,
        "entry": 3,
        "recovery": False,
    }
    seen = written()
    seen.answer(response)
    assert "nobody has sent what it receives" in refused(seen)
    seen = written()
    seen.answer(response, unasked=True)
    assert accepted(seen)


# -- metadata and recoveries


@pytest.mark.parametrize("end", [-1, 0, 1, 2, 4])
def test_a_recovery_closes_the_ledger_elsewhere(end: int) -> None:
    assert "status=LedgerStatus.CLOSED" in refused(recovered(end=end))


@pytest.mark.parametrize(("end", "holds"), [(1, False), (2, True), (3, True), (4, False)])
def test_an_owner_closes_the_ledger_at_its_lac(end: int, holds: bool) -> None:
    seen = written()
    seen.metadata(1, "CLOSED", last=end)
    assert accepted(seen) if holds else "status=LedgerStatus.CLOSED" in refused(seen)


def closed_by_the_owner_in_recovery(refused_by: str | None = "b3", end: int = 3) -> Seen:
    """The owner has entry 4 on its way, which one bookie took, when a recovery begins; the owner closes the ledger
    before that.
    """
    seen = written()
    seen.add(4, "b1")
    seen.metadata(1, "IN_RECOVERY")
    seen.fence("b2", "b3", last=3)
    if refused_by is not None:
        seen.add(4, refused_by, code="FENCED")
    seen.metadata(2, "CLOSED", last=end)
    return seen


def test_an_owner_that_is_refused_closes_at_its_lac_while_the_ledger_is_recovered() -> None:
    accepted(closed_by_the_owner_in_recovery())
    assert "require(recovery_read(" in refused(closed_by_the_owner_in_recovery(refused_by=None))
    assert "require(recovery_read(" in refused(closed_by_the_owner_in_recovery(end=4))
    assert "require(self.claimed <= end)" in refused(closed_by_the_owner_in_recovery(end=2))


def test_a_recovery_that_goes_on_then_tells_of_a_lac_beyond_the_end() -> None:
    seen = closed_by_the_owner_in_recovery()
    seen.read(4, "b1")
    seen.add(4, recovery=True)
    accepted(seen)
    seen.read(4, "b1")
    seen.add(5, lac=4, recovery=True)
    refused(seen)


def test_a_recovery_takes_the_word_of_one_bookie() -> None:
    seen = written()
    seen.metadata(1, "IN_RECOVERY")
    seen.fence(last=3)
    seen.read(3, "b1")
    seen.read(4, "b2", "NO_ENTRY")
    seen.add(3, recovery=True)
    seen.metadata(2, "CLOSED", last=3)
    assert "require(recovery_read(" in refused(seen)


def test_a_recovery_closes_before_it_has_written_back() -> None:
    seen = Seen()
    seen.metadata(0)
    seen.add(0)
    seen.add(1, "b1")
    seen.metadata(1, "IN_RECOVERY")
    seen.fence(last=0)
    seen.read(1, "b1")
    seen.read(2, "b2", "NO_ENTRY")
    seen.read(2, "b3", "NO_ENTRY")
    seen.metadata(2, "CLOSED", last=1)
    assert "require(is_stored(entry_id))" in refused(seen)


def test_a_recovery_reads_before_the_owner_is_fenced_off() -> None:
    seen = written()
    seen.metadata(1, "IN_RECOVERY")
    seen.fence("b1", last=3)
    seen.read(4, "b1", "NO_ENTRY")
    assert "client_sends_recovery_read(b=b1, entry_id=4" in refused(seen)


def test_a_recovery_writes_back_what_it_has_not_read() -> None:
    seen = written()
    seen.metadata(1, "IN_RECOVERY")
    seen.fence(last=3)
    seen.add(2, "b1", recovery=True)
    assert "require(entry.read" in refused(seen)


def test_a_recovery_tells_of_its_ensemble_before_it_closes() -> None:
    seen = recovered(closes=False)
    seen.metadata(2, "IN_RECOVERY", fragments=[[0, ["b1", "b2", "b3"]], [3, ["b1", "b2", "b4"]]])
    assert "status=LedgerStatus.IN_RECOVERY" in refused(seen)


CHANGES: dict[str, tuple[Any, bool]] = {
    "from the entry after the LAC": ([[0, ["b1", "b2", "b3"]], [4, ["b1", "b2", "b4"]]], True),
    "from before what is confirmed": ([[0, ["b1", "b2", "b3"]], [1, ["b1", "b2", "b4"]]], True),
    "from after what is confirmed": ([[0, ["b1", "b2", "b3"]], [5, ["b1", "b2", "b4"]]], False),
    "in other places": ([[0, ["b1", "b2", "b3"]], [4, ["b2", "b1", "b4"]]], False),
    "with a bookie twice": ([[0, ["b1", "b2", "b3"]], [4, ["b1", "b2", "b2"]]], False),
    "of all entries": ([[0, ["b1", "b2", "b4"]]], True),
    "two at once": ([[0, ["b1", "b2", "b3"]], [2, ["b1", "b2", "b4"]], [4, ["b1", "b3", "b4"]]], False),
    "without the first fragment": ([[4, ["b1", "b2", "b4"]]], False),
    "of another size": ([[0, ["b1", "b2", "b3"]], [4, ["b1", "b2"]]], False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_ensemble_is_changed(name: str) -> None:
    fragments, holds = CHANGES[name]
    seen = written()
    seen.metadata(1, fragments=fragments)
    assert accepted(seen) if holds else "metadata_written" in refused(seen)


AFTER: dict[str, tuple[str, int]] = {
    "opened again": ("OPEN", -1),
    "recovered again": ("IN_RECOVERY", -1),
    "longer": ("CLOSED", 4),
    "shorter": ("CLOSED", 2),
}


@pytest.mark.parametrize("name", AFTER)
def test_a_closed_ledger_is(name: str) -> None:
    state, last = AFTER[name]
    seen = recovered()
    seen.metadata(3, state, last=last)
    assert "metadata_written" in refused(seen)


def test_copies_of_a_closed_ledger_move_when_they_are_there() -> None:
    for copied in (4, 2):
        seen = recovered()
        for entry in range(copied):
            seen.read(entry, "b1", fence=False)
            seen.add(entry, "b4", recovery=True)
        seen.metadata(3, "CLOSED", [[0, ["b4", "b2", "b3"]]], last=3)
        assert accepted(seen) if copied == 4 else "require(b not in fresh" in refused(seen)


# -- metadata are seen late


def test_metadata_are_moved_forward_where_that_is_needed() -> None:
    changed = [[0, ["b1", "b2", "b3"]], [4, ["b1", "b2", "b4"]]]
    seen = written()
    seen.add(4, "b1", "b2", "b4", lac=3)
    seen.metadata(1, fragments=changed)
    assert accepted(seen)
    # What is read after the version before it was told can have been there; what is written after that cannot.
    seen = Seen()
    seen.add(0)
    seen.metadata(0)
    seen.metadata(1)
    seen.metadata(2, fragments=changed)
    assert "from" not in seen.events[-1].parameters and not validate(seen.events).accepted


def test_versions_that_were_missed() -> None:
    seen = written()
    seen.metadata(2, "IN_RECOVERY", [[0, ["b1", "b2", "b3"]], [2, ["b1", "b2", "b4"]]])
    assert accepted(seen)
    seen.metadata(3, "OPEN", [[0, ["b1", "b2", "b3"]], [2, ["b1", "b2", "b4"]]])
    assert "metadata_written" in refused(seen)


# -- versions that the recorder has missed


def _changed_unseen(state: str, end: int = -1, new: Any = None, entries: int = 1) -> Seen:
    """The owner replaces bookies after entry 3, and adds entries to the new ensemble. Nobody has seen that version."""
    new = new or ["b1", "b2", "b4"]
    seen = written()
    for entry in range(4, 4 + entries):
        seen.add(entry, *new)
    seen.metadata(2, state, [[0, ["b1", "b2", "b3"]], [4, new]], end)
    return seen


def test_entries_are_added_to_the_ensemble_of_a_version_that_was_missed() -> None:
    assert accepted(_changed_unseen("OPEN"))
    assert accepted(_changed_unseen("CLOSED", 4))
    # The LAC counts on bookies that no version before has.
    assert accepted(_changed_unseen("CLOSED", 6, ["b4", "b5", "b3"], 3))
    assert accepted(_changed_unseen("OPEN", -1, ["b4", "b5", "b3"], 3))


def test_a_recovery_fences_the_ensemble_of_a_version_that_was_missed() -> None:
    ensemble = ["b4", "b5", "b3"]
    seen = written()
    seen.add(4, *ensemble)
    seen.fence("b4", "b5", last=4)
    seen.read(4, "b4")
    seen.add(4, *ensemble, recovery=True)
    seen.read(5, "b4", "NO_ENTRY")
    seen.read(5, "b5", "NO_ENTRY")
    seen.metadata(3, "CLOSED", [[0, ["b1", "b2", "b3"]], [4, ensemble]], 4)
    assert accepted(seen)


def test_a_ledger_that_was_first_seen_when_it_was_closed() -> None:
    seen = Seen()
    for entry in range(4):
        seen.add(entry)
    seen.metadata(2, "CLOSED", last=3)
    assert accepted(seen)


def test_what_no_version_that_was_missed_can_explain_is_refused() -> None:
    # A LAC that no ack quorum of any ensemble has confirmed.
    seen = written()
    seen.add(4, "b4")
    seen.add(5, "b4", "b5", lac=4)
    seen.metadata(2, "OPEN", [[0, ["b1", "b2", "b3"]], [4, ["b4", "b5", "b3"]]])
    assert "client_sends_add" in refused(seen)
    # The ledger is closed before a LAC that was told.
    assert "metadata_written" in refused(_changed_unseen("CLOSED", 4, entries=3))
    # No version was missed.
    seen = written()
    seen.add(4, "b4")
    seen.metadata(1, "CLOSED", last=3)
    assert "client_sends_add" in refused(seen)


# -- what is not seen


def test_of_a_ledger_that_was_there_before_less_is_asked() -> None:
    seen = Seen(new=False)
    seen.metadata(3)
    seen.add(7, lac=6)
    seen.read(2, "b1", "NO_ENTRY", fence=False)
    assert accepted(seen)
    seen.read(7, "b1", "NO_ENTRY", fence=False)
    assert "bookie_lacks_entry(b=b1, entry_id=7" in refused(seen)


def test_a_bookie_that_registers_anew_may_be_reached_past_the_recorder() -> None:
    seen = Seen()
    seen.metadata(0)
    seen.add(0, "b1")
    seen.tell("bookie_redirected", None, bookie="b2", **{"from": "", "to": ""})
    seen.add(1, "b1")
    assert accepted(seen)


def test_after_a_ledger_is_deleted_nothing_is_asked_of_bookies() -> None:
    seen = recovered()
    seen.tell("metadata_gone", version=2)
    seen.read(2, "b1", "NO_LEDGER", fence=False)
    assert accepted(seen)


def test_a_long_poll_may_end_after_the_ledger_is_deleted() -> None:
    seen = written()
    same = seen.ask("read", "b1", entry=-1, fence=False, previous_lac=3, wait=50, piggyback=True)
    seen.shown(same, -1, "NO_LEDGER")
    assert accepted(seen)
    seen.shown(seen.ask("read", "b1", entry=-1, fence=False), -1, "NO_LEDGER")
    assert "bookie_lacks_everything" in refused(seen)


NOT_SEEN: dict[str, tuple[Callable[[Seen], None], str]] = {
    "no metadata": (lambda seen: seen.events.__delitem__(1 + len(BOOKIES)), "no metadata"),
    "unreadable": (lambda seen: seen.tell("metadata_unreadable", reason="damaged"), "damaged"),
    "not recorded": (lambda seen: seen.metadata(1, fragments=[[0, ["b1", "b2", "b9"]]]), "b9"),
    "recreated": (lambda seen: seen.metadata(0), "deleted"),
}


@pytest.mark.parametrize("name", NOT_SEEN)
def test_what_is_not_covered(name: str) -> None:
    change, told = NOT_SEEN[name]
    seen = written()
    change(seen)
    verdict = validate(seen.events)
    assert not verdict.covered and told in verdict.problem


# -- which protocol it is


def test_the_trace_says_which_protocol_it_is_held_to() -> None:
    from traces.traced import traced

    validator = Validator(registry.shipped("store"))
    assert validator.validate(LEDGER, recovered().events).replayer.protocol.name == RecordedStore.name  # type: ignore[union-attr]
    _, events = traced(1, "calm")
    both = [*recovered().events, *events]
    for trace in (events, both):
        assert validator.validate(LEDGER, trace).replayer.protocol.name == RunningStore.name  # type: ignore[union-attr]


# -- protections that are switched off


SWITCHED_OFF = (
    "fenced_bookies_refuse",
    "negatives_cover_quorum",
    "write_back_before_close",
    "confirmed_in_order",
)


@pytest.mark.parametrize("protection", [SWITCHED_OFF[0], *campaign_if(bool, SWITCHED_OFF[1:])])
def test_a_store_without_a_protection_is_found_out(protection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_judge(monkeypatch)
    without = ALL.replace(**{protection: False})
    for seed in range(1, 40):
        case = replace(of_the_store(seed, "races"), protections=without)
        if not validate(record(case)[1]).accepted:
            return
    pytest.fail("no seed was rejected")
