"""Events about all subjects: each trace of a run gets those that verdicts depend on, and is judged as with all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec import structs
from traces.traced import LEDGER, traced

from fencepost.protocols.store.conformance import StoreConformance
from fencepost.traces import TraceEvent
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator

OTHER = "8"


def rows(seed: int) -> list[TraceEvent]:
    """The events of a run of two ledgers that had the same life."""
    found = [
        structs.replace(event, subject=subject)
        for event in traced(seed, "crashes")[1]
        for subject in ((None,) if event.subject is None else (LEDGER, OTHER))
    ]
    return [_row(structs.replace(event, seq=seq)) for seq, event in enumerate(found, 1)]


def _row(event: Event) -> TraceEvent:
    return TraceEvent(
        "run", event.node, event.incarnation, event.seq, event.actor, event.action, event.subject,
        json.dumps(event.parameters), None,
    )  # fmt: skip


def test_each_trace_gets_the_last_of_the_durable_positions_and_has_the_verdict_of_all() -> None:
    validator = Validator(StoreConformance)
    left_out = 0
    for seed in range(1, 9):
        some = rows(seed)
        whole, short = Traces(some), Traces(some, still_needed=StoreConformance.still_needed)
        for name in whole.names():
            one, other = (validator.validate(name[1], traces.events(name)) for traces in (whole, short))
            assert (one.accepted, one.covered, one.steps) == (other.accepted, other.covered, other.steps), (seed, name)
        left_out += len(whole.rows(("run", LEDGER))) - len(short.rows(("run", LEDGER)))
    assert left_out > 100


def test_what_is_needed_is_asked_once_for_a_run() -> None:
    asked = []

    def still_needed(events: Sequence[Event]) -> Iterable[Event]:
        asked.append(len(events))
        return events[:1]

    some = rows(1)
    traces = Traces(some, still_needed=still_needed)
    shared = [each for each in some if each.subject is None]
    for name in traces.names():
        assert [each for each in traces.rows(name) if each.subject is None] == shared[:1]
    assert asked == [len(shared)]


def test_where_an_event_about_all_cannot_be_read_each_trace_has_them_all() -> None:
    some = [*rows(1), TraceEvent("run", "b9", 1, 1, "", "started", None, "no JSON", None)]
    traces = Traces(some, still_needed=StoreConformance.still_needed)
    assert len(traces.rows(("run", LEDGER))) == sum(each.subject in (None, LEDGER) for each in some)
