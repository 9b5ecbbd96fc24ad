"""Ledgers that one client creates for another: of several that want to be the owner, one becomes it."""

from __future__ import annotations

from typing import Any

from traces.traced import LEDGER, said, sorted_by_node, validate

from fencepost.traces.validation.conformance import Event

OPEN: dict[str, Any] = {
    "state": "OPEN",
    "fragments": [[0, ["b1"]]],
    "last_entry": -1,
    "ensemble_size": 1,
    "write_quorum": 1,
    "ack_quorum": 1,
}
KINDS = {
    "metadata": "metadata",
    "metadata-1": "metadata",
    "metadata-2": "metadata",
    "metadata-3": "metadata",
    "b1": "bookie",
}


def told(*events: tuple[str, str, dict[str, Any]]) -> list[Event]:
    """A trace: each node starts, and then takes the given steps."""
    numbers: dict[str, int] = {}
    found: list[Event] = []
    for node, action, parameters in events:
        if node not in numbers:
            numbers[node] = 1
            found.append(Event(node, 1, 1, "started", None, {"kind": KINDS.get(node, "client")}))
        numbers[node] += 1
        subject = None if action in ("connected", "journal_synced") else LEDGER
        found.append(Event(node, 1, numbers[node], action, subject, parameters))
    return sorted_by_node(found)


def reads(version: int, written: bool) -> dict[str, Any]:
    return {"version": version, "metadata": OPEN, "written": written}


CREATED = (
    ("c1", "client_creates_ledger", {"version": -1, "metadata": OPEN}),
    ("metadata", "metadata_written", {"version": 0, "metadata": OPEN, "client": "c1"}),
    ("c1", "client_receives_metadata", reads(0, True)),
)
ADOPTED = (
    ("c2", "client_adopts_ledger", {"version": 0, "metadata": OPEN}),
    ("metadata", "metadata_written", {"version": 1, "metadata": OPEN, "client": "c2"}),
    ("c2", "client_receives_metadata", reads(1, True)),
)
ADD = {"entries": [[0, 0]], "lac": -1, "recovery": False, "position": 1, "connection": "c2>b1"}


def written_by(client: str) -> tuple[tuple[str, str, dict[str, Any]], ...]:
    add = {**ADD, "connection": f"{client}>b1"}
    return (
        (client, "connected", {"bookie": "b1", "connection": f"{client}>b1"}),
        (client, "client_sends_add_entry_requests", {"entries": [[0, 0]], "lac": -1, "ensemble": ["b1"]}),
        ("b1", "bookie_sends_add_confirmed_response", add),
        ("b1", "journal_synced", {"position": 1}),
        (client, "client_receives_add_confirmed_response", {"bookie": "b1", "entries": [[0, 0]]}),
        (client, "client_confirms", {"lac": 0}),
    )


def test_whoever_adopts_a_ledger_writes_it() -> None:
    verdict = validate(told(*CREATED, *ADOPTED, *written_by("c2")))
    assert verdict.accepted, said(verdict)


def test_a_quorum_of_metadata_services_tells_each_change_several_times() -> None:
    """Every member does, and once more after a start, and a member may lack some."""
    zxids = {0: 7, 1: 9}
    events = []
    for node, action, parameters in (*CREATED, *ADOPTED, *written_by("c2")):
        if node != "metadata":
            events.append((node, action, parameters))
            continue
        change = {**parameters, "zxid": zxids[parameters["version"]], "path": "/ledgers/00/0000/L0007"}
        members = ("metadata-1", "metadata-3", "metadata-3") if parameters["version"] else ("metadata-2", "metadata-3")
        events += [(member, action, change) for member in members]
    verdict = validate(told(*events))
    assert verdict.accepted, said(verdict)
    other = [
        (node, action, {**parameters, "path": f"/{place}"}) for place, (node, action, parameters) in enumerate(events)
    ]
    assert not validate(told(*other)).accepted, "another path is another change"


def test_whoever_has_created_it_for_another_does_not_write_it() -> None:
    verdict = validate(told(*CREATED, *ADOPTED, *written_by("c1")))
    assert not verdict.accepted
    assert "client_adopts_ledger" in said(verdict)


def test_of_two_who_want_it_one_gets_it() -> None:
    late = (
        ("c3", "client_adopts_ledger", {"version": 0, "metadata": OPEN}),
        ("c3", "client_receives_metadata", reads(1, False)),
        ("c3", "client_ends", {"error": "LedgerExistException"}),
    )
    verdict = validate(told(*CREATED, *ADOPTED, *late, *written_by("c2")))
    assert verdict.accepted, said(verdict)
    verdict = validate(told(*CREATED, *ADOPTED, *late[:2], *written_by("c3")))
    assert not verdict.accepted
    assert "client_sends_add_entry_requests" in said(verdict)


def test_an_answer_that_is_lost_is_read() -> None:
    unheard = (*ADOPTED[:2], ("c2", "client_receives_metadata", reads(1, False)))
    verdict = validate(told(*CREATED, *unheard, *written_by("c2")))
    assert verdict.accepted, said(verdict)


def test_nobody_adopts_a_ledger_that_has_entries() -> None:
    verdict = validate(told(*CREATED, *written_by("c1"), *ADOPTED))
    assert not verdict.accepted
    assert "client_adopts_ledger" in said(verdict)
