"""Traces of simulated leaders are behaviours of the protocol of logs. Those of leaders with a fault are not, and the
reported step is the wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache

import msgspec
import pytest
from campaigns import campaign_if
from traces.tampering import renumbered
from traces.traced import recording, said, sorted_by_node

from fencepost import SearchOptions, check
from fencepost.log.rules import ALL, Protections
from fencepost.log.simulation.environment import LOG, Broken
from fencepost.log.simulation.world import World
from fencepost.protocols.log.conformance import LogConformance
from fencepost.protocols.log.running import RunningLog
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

VALIDATOR = Validator(LogConformance)
SEEDS = 150

FAULTS: list[tuple[str, int, str, str]] = [
    (
        "last_ledger_is_closed",
        0,
        "get_last_ledger",
        "is CLOSE_LAST_LEDGER then, and the trace says PENDING_CREATE_LEDGER",
    ),
    ("closing_fences", 3, "acknowledge_entry", "require(not ledger.fenced or ledger.status"),
    ("chain_precedes_entries", 0, "write_entry", "require(may_write("),
    ("updates_are_conditional", 0, "append_ledger", "require(takes_update("),
    ("rivals_prevail", 0, "look_up_chain", "is WAITING then, and the trace says PENDING_APPEND_LEDGER"),
    (
        "unanswered_is_looked_up",
        1,
        "append_ledger_unanswered",
        "is LOOK_UP_CHAIN then, and the trace says HAS_OPEN_LEDGER",
    ),
    ("last_entry_decides", 17, "close_own_ledger", "confirmed is 1 then, and the trace says 0"),
    ("seal_is_final", 4, "get_last_ledger", "is GET_MD_FOR_CLOSING then, and the trace says CLOSE_LAST_LEDGER"),
    ("batches_are_remembered", 3, "look_up_batch", "version is -1 then, and the trace says 7"),
    ("batches_are_whole", 1, "sends_batch", "the last of these ledgers is another one"),
    ("withdrawals_are_noticed", 21, "look_up_batch", "version is -1 then, and the trace says 4"),
]
"""The protection that is off, a seed, the reported step, and why it cannot be taken."""


@cache
def traced(seed: int, protections: Protections = ALL, patience: int | None = None) -> tuple[Event, ...]:
    """The trace of a world, after writing and reading it. It ends where a promise is broken."""
    trace, events = recording()
    world = World(seed, protections, trace)
    world.settings = msgspec.structs.replace(world.settings, patience=patience)
    with suppress(Broken, ValueError):
        world.run()
    return tuple(sorted_by_node(events))


def validated(events: Sequence[Event], shuffle: int | None = None) -> Verdict:
    return VALIDATOR.validate(LOG, events, shuffle)


@pytest.mark.parametrize(
    "seeds", [range(SEEDS // 3), *campaign_if(bool, [range(SEEDS // 3, SEEDS)])], ids=["some", "others"]
)
def test_traces_of_leaders_are_accepted(seeds: range) -> None:
    taken: set[str] = set()
    for seed in seeds:
        verdict = validated(traced(seed))
        assert verdict.accepted, (seed, said(verdict))
        taken |= {event.action for event in traced(seed)}
    assert taken >= {
        "append_ledger_bad_version",
        "append_ledger_unanswered",
        "close_own_ledger_bad_version",
        "ledger_fenced",
        "look_up_chain",
        "seal",
        "trim",
    }
    assert taken >= {
        "attach_batch",
        "attach_batch_bad_version",
        "attach_batch_unanswered",
        "delete_withdrawn_batch",
        "delete_superseded_batch",
    }


def test_another_order_that_causes_allow_is_accepted_too() -> None:
    for seed in range(40):
        verdict = validated(traced(seed), shuffle=seed)
        assert verdict.accepted, (seed, said(verdict))


def test_a_leader_that_has_no_ledger_for_too_long_steps_down_as_the_protocol_allows() -> None:
    gave_up = 0
    for seed in range(10):
        events = traced(seed, patience=20_000)
        gave_up += sum(event.parameters.get("reason") == "no ledger" for event in events)
        verdict = validated(events)
        assert verdict.accepted, (seed, said(verdict))
    assert gave_up > 10


@pytest.mark.parametrize(("name", "seed", "step", "why"), FAULTS, ids=[row[0] for row in FAULTS])
def test_a_protection_that_is_switched_off_is_told(name: str, seed: int, step: str, why: str) -> None:
    verdict = validated(traced(seed, Protections(**{name: False})))
    assert not verdict.accepted and verdict.covered
    assert any((each.step.action or each.event.action) == step and why in str(each.why) for each in verdict.refusals), (
        said(verdict)
    )


def test_every_protection_is_accounted_for() -> None:
    assert {name for name, *_ in FAULTS} == {*Protections._fields}


def without(events: Sequence[Event], action: str) -> list[Event]:
    """Events without the last one of an action."""
    last = max(place for place, event in enumerate(events) if event.action == action)
    return [event for place, event in enumerate(events) if place != last]


def goes_on_after(events: Sequence[Event], action: str) -> bool:
    """Whether a node does something after the last event of an action."""
    last = max((place for place, event in enumerate(events) if event.action == action), default=-1)
    return (
        0 <= last < len(events) - 1
        and events[last + 1].node == events[last].node
        and events[last + 1].action != "abdicate"
    )


@pytest.mark.parametrize(
    "action", ["become_leader", "create_ledger", "append_ledger_bad_version", "look_up_chain", "look_up_batch"]
)
def test_a_trace_that_lacks_an_event_is_rejected(action: str) -> None:
    events = next(traced(seed) for seed in range(SEEDS) if goes_on_after(traced(seed), action))
    assert not validated(without(events, action)).accepted


def changed(event: Event, **parameters: object) -> Event:
    return msgspec.structs.replace(event, parameters={**event.parameters, **parameters})


def test_a_trace_that_was_altered_is_rejected() -> None:
    for place, event in enumerate(traced(5)):
        told = event.parameters
        wrong = None
        if event.action == "append_ledger":
            wrong = changed(event, version=told["version"] + 1)
        elif event.action == "close_own_ledger" and told["acknowledged"]:
            wrong = changed(event, acknowledged=told["acknowledged"] - 1)
        elif event.action == "get_last_ledger" and told["status"] == "close last ledger":
            wrong = changed(event, status="pending create ledger")
        if wrong is not None:
            assert not validated([*traced(5)[:place], wrong, *traced(5)[place + 1 :]]).accepted, wrong


WRONG: list[tuple[str, str, int, str]] = [
    ("write_entry", "entry", 1, "the next entry of the ledger is"),
    ("write_entry", "entry", -1, "the next entry of the ledger is"),
    ("write_entry", "ledger", 1, "the ledger of this writer is"),
    ("acknowledge_entry", "ledger", -1, "the ledger of this writer is"),
    ("close_own_ledger", "last_entry", 1, "entries of the ledger were written"),
    ("close_own_ledger", "acknowledged", 1, "entries of the ledger were written"),
    ("close_last_ledger", "ledger", 1, ".ledger is"),
    ("fence_last_ledger", "ledger", -1, ".ledger is"),
    ("append_ledger", "ledger", 1, "is of ledger"),
    ("sends_update", "ledger", 1, ".ledger is"),
    ("sends_update", "version", 1, ".version is"),
    ("sends_update", "version", -1, ".version is"),
    ("sends_trim", "length", 1, "chain.links is"),
    ("get_last_ledger", "length", -1, "chain.links is"),
    ("get_last_ledger", "last", 1, "chain.links is"),
    ("look_up_chain", "trimmed", 1, "chain.trimmed is"),
    ("look_up_chain", "ledger", 1, ".ledger is"),
    ("sends_batch", "version", 1, ".version is"),
    ("metadata_written", "version", -1, "the version before it is"),
]
"""An action, one of its fields, what is added to it, and why that is refused. Some such changes are refused for another
reason: the next step does not fit.
"""


@pytest.mark.parametrize(("action", "field", "more", "why"), WRONG)
def test_a_field_that_is_wrong_by_one_is_refused(action: str, field: str, more: int, why: str) -> None:
    reasons = []
    for seed in range(12):
        for place, event in enumerate(traced(seed)):
            if event.action == action and event.parameters[field] is not None:
                wrong = changed(event, **{field: event.parameters[field] + more})
                verdict = validated([*traced(seed)[:place], wrong, *traced(seed)[place + 1 :]])
                reasons += [] if verdict.accepted else [said(verdict)]
    assert any(f"{action} [" in reason and why in reason for reason in reasons), reasons[:3]


def test_an_entry_that_is_told_twice_is_refused() -> None:
    for place, event in enumerate(traced(5)):
        if event.action in ("write_entry", "acknowledge_entry", "append_ledger", "close_own_ledger", "sends_update"):
            verdict = validated(renumbered([*traced(5)[: place + 1], *traced(5)[place:]]))
            assert not verdict.accepted and verdict.covered, event


def confirming(events: Sequence[Event], late: int | None = None) -> list[Event]:
    """Events, and those of the same processes about their ledgers, each of which was confirmed before that is
    acknowledged; ``late``: but the one acknowledged at this place, right after.
    """
    found = []
    for place, event in enumerate(events):
        number, told = event.parameters.get("ledger"), event.action
        if told == "create_ledger":
            found.append(msgspec.structs.replace(event, action="client_creates_ledger", subject=str(number)))
        confirms = msgspec.structs.replace(
            event, action="client_confirms", subject=str(number), parameters={"lac": event.parameters.get("entry")}
        )
        if told == "acknowledge_entry":
            found += [event, confirms] if place == late else [confirms, event]
        else:
            found.append(event)
    return renumbered(found)


def test_an_entry_is_not_acknowledged_before_its_ledger_has_confirmed_it() -> None:
    events = traced(5)
    assert validated(confirming(events)).accepted, said(validated(confirming(events)))
    places = [place for place, event in enumerate(events) if event.action == "acknowledge_entry"]
    for place in places:
        verdict = validated(confirming(events, place))
        assert not verdict.accepted and "the ledger was confirmed up to entry" in said(verdict)
    assert len(places) > 10


def strangers(events: Sequence[Event], *nodes: str) -> list[Event]:
    """Events without those of some nodes, given by the beginnings of their names."""
    return [event for event in events if not event.node.startswith(nodes)]


def test_batches_of_those_who_do_not_trace_are_seen_by_what_they_have_attached() -> None:
    attached = 0
    for seed in range(SEEDS):
        events = traced(seed)
        attached += any(event.action == "attach_batch" for event in events)
        for rest in (strangers(events, "b"), strangers(events, "b", "metadata")):
            verdict = validated(rest)
            assert verdict.accepted, (seed, said(verdict))
    assert attached > 20


def test_a_seal_or_a_trim_by_somebody_who_does_not_tell_is_not_covered() -> None:
    """A trace without the events of the operator. A reader that continues after a trim has seen what is missing."""
    for seed in range(SEEDS):
        verdict = validated(strangers(traced(seed), "operator"))
        if not verdict.accepted:
            break
    assert not verdict.covered and "by somebody of whom the trace does not tell" in verdict.problem


def test_a_batch_that_is_said_to_be_there_and_is_not_is_rejected() -> None:
    """The log is empty, but the trace says that a batch is in it."""
    looks = (event for seed in range(SEEDS) for event in traced(seed) if event.action == "look_up_batch")
    look = next(event for event in looks if event.parameters["version"] == 0 and event.parameters["found"] == "attach")
    seed = next(seed for seed in range(SEEDS) if look in traced(seed))
    before = [event for event in traced(seed) if event.node == look.node and event.seq < look.seq]
    assert validated([*before, look]).accepted
    verdict = validated([*before, changed(look, found="there")])
    assert not verdict.accepted and any(each.event.action == "look_up_batch" for each in verdict.refusals), said(
        verdict
    )


def test_a_log_that_is_older_than_its_trace_is_followed_from_there() -> None:
    """The trace begins with the writer that read the chain last. Earlier writers left no events."""
    whole = traced(5)
    last = max(event.parameters["version"] for event in whole if event.action == "get_last_ledger")
    reader = next(
        event.node for event in whole if event.action == "get_last_ledger" and event.parameters["version"] == last
    )
    seq = min(
        e.seq for e in whole if e.node == reader and e.action == "get_last_ledger" and e.parameters["version"] == last
    )
    rest = [event for event in whole if event.node == reader and event.seq >= seq - 1]
    assert last > 2 and rest[0].action == "become_leader"
    assert validated(rest).accepted, said(validated(rest))


def test_a_log_that_was_made_and_never_written_is_untouched() -> None:
    assert validated([Event("metadata", 1, 2, "metadata_written", LOG, {"version": 0, "session": "1"})]).accepted


@pytest.mark.campaign
def test_the_protocol_that_traces_are_held_to_keeps_what_it_promises() -> None:
    """Up to a level: a wrong count of what was trimmed shows deepest, at the 14th; and past it are four times as many
    states as before.
    """
    assert check(RunningLog, options=SearchOptions(max_depth=20)).verdict == "not complete"
    assert check(RunningLog, configuration="batches").holds
    for protection, violated in (
        ("remembered", "the_batch_is_in_the_log_once_and_whole"),
        ("whole", "the_batch_is_in_the_log_once_and_whole"),
    ):
        result = check(RunningLog, configuration="batches", constants={f"batches_are_{protection}": False})
        assert result.violation is not None and result.violation.name == violated
    result = check(RunningLog, configuration="batches", constants={"withdrawals_are_noticed": False})
    assert result.violation is not None and result.violation.name in (
        "ledgers_of_the_log_are_there",
        "only_the_last_ledger_is_open",
    )
    result = check(RunningLog, configuration="not-fenced")
    assert result.violation is not None and result.violation.name == "acknowledged_entries_are_in_the_log"
