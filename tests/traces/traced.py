"""Traces of the store from the simulator, and operations on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from fencepost.ledger.rules.protections import ALL, Protections
from fencepost.ledger.simulation.case import Case, drawn
from fencepost.ledger.simulation.cluster import Outcome
from fencepost.ledger.simulation.workload import simulate
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.simulation.trace import SimTrace
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

LEDGER = "7"

VALIDATOR = Validator(StoreConformance)
"""One validator for all traces, which share its cache."""


def sorted_by_node(events: Sequence[Event]) -> list[Event]:
    """Events as a reader of a trace gets them: node by node, each in its own order."""
    return sorted(events, key=lambda event: (event.node, event.incarnation, event.seq))


def recording() -> tuple[SimTrace, list[Event]]:
    """A trace of a simulation, and the events in it as they are after writing and reading."""
    events: list[Event] = []

    def emit(node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Any) -> None:
        events.append(
            Event(node, incarnation, seq, action, subject, msgspec.json.decode(msgspec.json.encode(parameters)))
        )

    return SimTrace(emit), events


def run(case: Case) -> tuple[Outcome, list[Event]]:
    """Run a case. Returns its outcome, and its trace after writing and reading it."""
    trace, events = recording()
    outcome = simulate(case, trace=trace)
    return outcome, sorted_by_node(events)


@cache
def traced(seed: int, profile: str, protections: Protections = ALL) -> tuple[Outcome, list[Event]]:
    """The outcome of a seed, and its trace. Shared: do not change it."""
    return run(drawn(seed, profile, protections))


def validate(events: Sequence[Event], shuffle: int | None = None) -> Verdict:
    """Validate a trace of the store against the protocol."""
    return VALIDATOR.validate(LEDGER, events, shuffle)


def said(verdict: Verdict) -> str:
    """The complaints about a trace that is not accepted."""
    return verdict.problem or "; ".join(
        f"{each.event.node} {each.event.seq} {each.event.action} [{each.step.title}]: {each.why}"
        for each in verdict.refusals
    )
