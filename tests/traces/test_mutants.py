"""Traces with one change, drawn at random. Each is rejected or not covered, or there is a reason why the changed trace
may still be of a behaviour; and no conformance raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from log import test_log_traces as log
from quorum import test_quorum_traces as quorum
from traces import recorded_runs, traced
from traces.mutant_reasons import REASONS, reason
from traces.mutants import HOW, Known, Mutant, mutant

from fencepost.log.simulation.environment import LOG
from fencepost.protocols.store import conformance
from fencepost.quorum.simulation.host import TRACED_AS
from fencepost.traces import RunsFile, read
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator

SOME, MANY = 150, 1_000
"""Changes to the traces of a protocol: usually, and in a campaign."""

FOUND = {"log": 0.8, "quorum": 0.7, "store": 0.6}
"""The least share of changes that are found."""


@cache
def of(protocol: str) -> tuple[Validator, str, Sequence[Sequence[Event]]]:
    """The validator of a protocol, a subject, and traces of simulated runs about it."""
    match protocol:
        case "log":
            return log.VALIDATOR, LOG, [log.traced(seed) for seed in range(12)]
        case "quorum":
            return quorum.VALIDATOR, TRACED_AS, [quorum.traced(seed) for seed in (1, 3, 5)]
        case "store":
            runs = [("everything", 48), ("everything", 15), ("everything", 37), ("races", 3), ("no-journal", 5)]
            return traced.VALIDATOR, traced.LEDGER, [traced.traced(seed, profile)[1] for profile, seed in runs]
        case _:
            seeds = [("everything", 24), ("everything", 37), ("everything", 39), ("no-journal", 1), ("no-journal", 4)]
            runs_of = [recorded_runs.recorded(seed, profile)[1] for profile, seed in seeds]
            return recorded_runs.VALIDATOR, recorded_runs.LEDGER, runs_of


def mutants(protocol: str, trials: int) -> Iterator[tuple[Mutant, Any]]:
    """Changes to the traces of a protocol, with the verdict on each."""
    validator, subject, traces = of(protocol)
    traces = [[*events] for events in traces]
    assert all(validator.validate(subject, events).accepted for events in traces)
    random, known = Random(7), Known(traces)
    while trials:
        drawn = mutant(random, traces, known)
        if drawn is not None:
            trials -= 1
            yield drawn, validator.validate(subject, drawn.events)


def check(protocol: str, trials: int) -> Counter[str]:
    """Assert that each change that is not found has its reason. Returns how many were found, by what was done."""
    found: Counter[str] = Counter()
    for changed, verdict in mutants(protocol, trials):
        assert not verdict.accepted or reason(protocol, changed.what), changed.title
        found[changed.how] += not verdict.accepted
    return found


@pytest.mark.parametrize("protocol", REASONS)
def test_a_change_is_found_unless_there_is_a_reason_why_not(protocol: str) -> None:
    check(protocol, SOME)


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", REASONS)
def test_of_many_changes_each_is_found_unless_there_is_a_reason_why_not(protocol: str) -> None:
    found = check(protocol, MANY)
    assert found.keys() == {*HOW}
    assert found.total() > FOUND[protocol] * MANY, found


def test_no_change_to_a_recording_makes_the_conformance_raise() -> None:
    assert sum(not verdict.accepted for _, verdict in mutants("recorded", 300)) > 150


@pytest.mark.parametrize(
    ("protocol", "action", "step"),
    [
        ("store", "client_receives_add_confirmed_response", "client_receives_add_confirmed_response"),
        ("recorded", "response_passed", "bookie_confirms_add"),
    ],
)
def test_an_answer_of_a_bookie_outside_of_all_ensembles_is_a_step_that_is_refused(
    protocol: str, action: str, step: str
) -> None:
    validator, subject, traces = of(protocol)
    events = [*traces[1]]
    place = next(
        place
        for place, event in enumerate(events)
        if event.action == action and event.parameters.get("kind", "add") == "add"
    )
    answer = events[place]
    events[place] = msgspec.structs.replace(answer, parameters={**answer.parameters, "bookie": "stranger"})
    verdict = validator.validate(subject, events)
    assert verdict.covered and any(step in each.step.title for each in verdict.refusals)


def test_a_ledger_of_too_many_clients_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "MOST_CLIENTS", 2)
    validator, subject, traces = of("store")
    assert "attempts of clients are about the ledger" in validator.validate(subject, traces[0]).problem


def test_a_trace_has_the_events_of_other_subjects_that_its_conformance_heeds(tmp_path: Path) -> None:
    with RunsFile(tmp_path / "runs.parquet") as file:
        for number, subject in enumerate((None, "log/a", "7", "7"), 1):
            file.emit("run", "n", 1, number, "started" if subject is None else f"does {number}", subject, {})
    traces = Traces(read(tmp_path), kind="log/.+", heeds=("does 3",))
    assert traces.names() == [("run", "log/a")]
    assert [event.seq for event in traces.events(("run", "log/a"))] == [1, 2, 3]
