"""Mutants of rules in the simulators that run them, and their traces."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec

from bench.mutants.protocols import Subject

CAMPAIGNS = {
    "store": "fencepost.ledger.simulation.workload",
    "quorum": "fencepost.quorum.simulation.cluster",
    "log": "fencepost.log.simulation.world",
}
CONFORMANCES = {
    "store": ("fencepost.protocols.store.conformance", "StoreConformance"),
    "quorum": ("fencepost.protocols.quorum.conformance", "QuorumConformance"),
    "log": ("fencepost.protocols.log.conformance", "LogConformance"),
}


def simulate(subject: Subject, seeds: range, traced: int) -> Iterator[dict[str, Any]]:
    """Runs, up to the first that breaks a promise, and the events of the first ``traced`` of each profile."""
    campaign = import_module(CAMPAIGNS[subject.simulator]).Campaign
    protections = campaign.__dataclass_fields__["protections"].default
    from fencepost.simulation.trace import SimTrace

    for profile in subject.profiles or ("",):
        one = campaign(seeds, protections, **({"profile": profile} if profile else {}))
        for seed in seeds:
            events: list[Any] = []

            def emit(*event: Any, events: list[Any] = events) -> None:
                events.append(event)

            run = one.simulated(seed, SimTrace(emit) if seed < seeds.start + traced else None)
            kept = msgspec.json.decode(msgspec.json.encode(events)) if not run.promise else []
            yield {
                "run": f"{one.name} seed {seed}",
                "promise": run.promise and f"{run.promise}: {run.what}"[:160],
                "events": kept,
            }
            if run.promise:
                return


def validate(subject: Subject, events: list[Any]) -> str:
    """``accepted``, or why the trace of a run is none of the protocol."""
    from fencepost.traces.validation.conformance import Event
    from fencepost.traces.validation.validate import Validator

    module, name = CONFORMANCES[subject.simulator]
    validator = Validator(getattr(import_module(module), name))
    each = sorted((Event(*event) for event in events), key=lambda event: (event.node, event.incarnation, event.seq))
    for about in {event.subject for event in each if event.subject is not None}:
        # What is about no subject is about all: a connection, a start.
        verdict = validator.validate(about, [event for event in each if event.subject in (about, None)])
        if not verdict.accepted:
            first = next(iter(verdict.refusals), None)
            return verdict.problem or (f"{first.event.action}: {first.why}"[:160] if first else "refused")
    return "accepted"
