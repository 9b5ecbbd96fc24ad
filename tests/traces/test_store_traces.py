"""Traces of the store from the simulator: runs under any faults are behaviours of the protocol ``running-store``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from campaigns import campaigns_but_every
from msgspec import structs
from traces.traced import LEDGER, VALIDATOR, run, said, sorted_by_node, traced, validate

from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.workload import simulate
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.protocols.store.running import RunningStore
from fencepost.traces.validation.conformance import Event, NotCovered
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

PROFILES = ("calm", "races", "crashes", "everything")
SEEDS = range(1, 9)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_the_store_does_is_a_behaviour_of_the_protocol(profile: str) -> None:
    steps, skipped, covered = 0, 0, 0
    for seed in SEEDS:
        outcome, events = traced(seed, profile)
        assert outcome.violation is None
        verdict = validate(events)
        if not verdict.covered:
            continue
        assert verdict.accepted, (seed, said(verdict))
        covered, steps, skipped = covered + 1, steps + verdict.steps, skipped + verdict.skipped
    assert covered >= len(SEEDS) // 2
    assert steps > 80 * covered
    # What may be ignored is seldom left out: mostly the protocol takes it.
    assert skipped < steps / 4


def test_repairs_are_behaviours_of_the_protocol() -> None:
    happened: Counter[str] = Counter()
    for seed in range(1, 25):
        outcome, events = traced(seed, "no-journal")
        assert outcome.violation is None
        verdict = validate(events)
        assert verdict.accepted, (seed, said(verdict))
        happened.update(event.action for event in events if event.subject is not None)
    for action in ("bookie_may_lack_entries", "bookie_copies_entry", "bookie_leaves_limbo"):
        assert happened[action] > 10, happened


def from_one_address(events: list[Event]) -> list[Event]:
    """The events as they are where each client has the same address towards all bookies, as far as ports allow."""
    addresses: dict[str, str] = {}
    connected: Counter[tuple[str, int, str]] = Counter()
    for event in events:
        if event.action == "connected":
            whose = event.node, event.incarnation, event.parameters["bookie"]
            addresses[event.parameters["connection"]] = f"{event.node} {event.incarnation} {connected[whose]}"
            connected[whose] += 1
    assert len(addresses) > len({*addresses.values()})
    return [
        structs.replace(event, parameters={**event.parameters, "connection": addresses[event.parameters["connection"]]})
        if "connection" in event.parameters
        else event
        for event in events
    ]


@pytest.mark.parametrize("profile", ["races", "crashes"])
def test_one_address_may_be_connected_to_several_bookies(profile: str) -> None:
    for seed in SEEDS:
        _, events = traced(seed, profile)
        verdict = validate(from_one_address(events))
        assert verdict.accepted, (seed, said(verdict))


def in_order(verdict: Verdict) -> list[tuple[str, int, int]]:
    """The events of the steps that were taken, as they were."""
    return [(event.node, event.incarnation, event.seq) for event, _, _ in verdict.path if event]


@pytest.mark.parametrize(
    "off", [(), ("write_back_before_close",), pytest.param(("fenced_bookies_refuse",), marks=pytest.mark.campaign)]
)
@pytest.mark.parametrize("profile", campaigns_but_every(3, PROFILES))
def test_two_random_orders_that_the_causes_allow_have_the_verdict_of_the_first(
    profile: str, off: tuple[str, ...]
) -> None:
    protections = ALL.replace(**dict.fromkeys(off, False))
    validator = Validator(StoreConformance)
    others = 0
    for seed in SEEDS if not off else range(1, 5):
        _, events = traced(seed, profile, protections)
        first, *shuffled = (validator.validate(LEDGER, events, shuffle) for shuffle in (None, seed, 1_000 + seed))
        for verdict in shuffled:
            same = (verdict.accepted, verdict.covered, verdict.problem) == (
                first.accepted,
                first.covered,
                first.problem,
            )
            assert same, (seed, said(first), said(verdict))
        orders = {tuple(in_order(verdict)) for verdict in (first, *shuffled)}
        others += len(orders) == 3
    assert others > 1, "what is shuffled comes in another order"


@pytest.mark.parametrize("profile", PROFILES)
def test_tracing_changes_nothing(profile: str) -> None:
    for seed in (1, 2, 3):
        case = drawn(seed, profile)
        plain, (told, _) = simulate(case), traced(seed, profile)
        assert (plain.trace_hash, plain.time) == (told.trace_hash, told.time)


def test_a_trace_is_the_same_each_time() -> None:
    assert run(drawn(4, "everything"))[1] == traced(4, "everything")[1]


NO_STEPS = {
    "client_ends": "the client of the protocol does nothing more; there is no action for that",
    "client_gives_up_on_add": (
        "bookies have failed when the ensemble is changed: a failure that is not replaced changes nothing"
    ),
    "recovery_client_gives_up_on_add": "the same in a recovery",
    "client_gives_up_on_force": "a bookie that could not make durable what it has is one that has not answered",
    "client_gives_up_on_fence": "a bookie that could not be fenced is one that has not answered",
    "client_reads_length": "the length of a ledger is not in the protocol",
    "bookie_recovers": "tells which of the steps that were not synced have survived a crash",
}
"""Events of the ledger that are never steps, and why."""

SOMETIMES = {
    "bookie_refuses_add": (
        "an add that is refused for another reason than a fence may as well be lost: it is only ordered"
    ),
    "client_creates_ledger": "the metadata service creates it, if it does: the client only sends that",
    "client_confirms": "held to the state, and not a step",
    "bookie_sends_add_confirmed_response": "was not durable when the bookie crashed",
    "bookie_sends_add_fenced_response": "was not durable when the bookie crashed",
    "bookie_forces_ledger": "was not durable when the bookie crashed",
    "bookie_is_fenced": "was not durable when the bookie crashed, or by nobody whom the trace knows",
    "bookie_sends_fencing_read_lac_response": "says nothing certain, or was not durable",
    "bookie_sends_read_response": "says nothing certain, or was not durable, or is of an entry that was never sent",
    "client_receives_metadata": "of a ledger that was just created",
    "client_opens_ledger": "the ledger is closed, or there is none",
    "bookie_crashes": "was not durable when the bookie crashed again",
    "bookie_leaves_limbo": "was not durable when the bookie crashed again",
    "client_resends_pending_add_op": "there was nothing to send",
    "recovery_client_sends_pending_add_op": "there was nothing to send",
}
"""Events of the ledger that are steps, but for these reasons not always."""


def test_every_event_of_the_ledger_is_a_step_but_for_those_that_are_known() -> None:
    events_of, steps_of = Counter[str](), Counter[str]()
    without = Counter[str]()
    for profile in PROFILES:
        for seed in SEEDS:
            _, events = traced(seed, profile)
            conformance = StoreConformance.__new__(StoreConformance)
            try:
                conformance.__init__(LEDGER, events)  # type: ignore[misc]
                constants = dict(conformance.constants())
            except NotCovered:
                continue
            conformance.bind(VALIDATOR.replayer(constants, StoreConformance).protocol)
            for event in events:
                if event.subject is None:
                    continue
                steps = [step for step in conformance.steps(event) if step.action is not None]
                events_of[event.action] += 1
                steps_of[event.action] += len(steps)
                without[event.action] += not steps
    assert {action for action, count in steps_of.items() if not count} <= {
        *NO_STEPS,
        "bookie_refuses_add",
        "client_creates_ledger",
        "client_confirms",
    }
    assert {action for action, count in without.items() if count} <= {*NO_STEPS, *SOMETIMES}
    assert sum(steps_of.values()) > 0.8 * sum(events_of.values())


def test_entries_with_deferred_sync_are_confirmed_before_they_are_durable_and_forced_later() -> None:
    """Seed 7 has deferred sync."""
    _, events = traced(7, "everything")
    assert any(event.parameters.get("deferred_sync") for event in events)
    verdict = validate(events)
    assert verdict.accepted, said(verdict)


def test_a_bookie_that_a_refused_change_was_to_replace_works_again() -> None:
    """In seed 1790 of everything the owner gives up on one bookie, and then replaces another one alone."""
    verdict = validate(traced(1790, "everything")[1])
    assert verdict.accepted, said(verdict)


def test_an_owner_closes_a_ledger_while_a_change_that_it_has_given_up_may_arrive() -> None:
    """In seed 2485 of everything nobody answers the owner's change, there are too few bookies for another, and the
    owner closes the ledger.
    """
    verdict = validate(traced(2485, "everything")[1])
    assert verdict.accepted, said(verdict)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(6420, id="an answer to a force arrives while the owner closes the ledger"),
        pytest.param(7241, id="a connection ends when answers from it have arrived and are not yet handled"),
        pytest.param(9186, id="an owner fails in the middle of a change, and closes where it was before"),
    ],
)
def test_what_seldom_happens_is_a_behaviour_of_the_protocol(seed: int) -> None:
    case = drawn(seed, "everything")
    verdict = validate(run(replace(case, entries=min(case.entries, 16)))[1])
    assert verdict.accepted, said(verdict)


def test_a_bookie_that_loses_the_record_of_leaving_limbo_is_in_limbo_again() -> None:
    """In seed 30292 of no-journal a bookie leaves limbo durably, and loses its journal afterwards."""
    _, events = traced(30292, "no-journal")
    verdict = validate(events)
    assert verdict.accepted, said(verdict)


@pytest.mark.parametrize("seed", [1192, 650, 2509])
def test_a_ledger_that_was_never_there_needs_no_step(seed: int) -> None:
    """In seed 1192 of everything the ledger is to be created, and is not; in seed 650 somebody looks for it; in seed
    2509 bookies are asked for its entries.
    """
    verdict = validate(traced(seed, "everything")[1])
    assert verdict.accepted and not verdict.steps


def test_a_ledger_that_a_bookie_tells_of_was_there() -> None:
    _, events = traced(1192, "everything")
    told = Event(
        "b1",
        1,
        2,
        "bookie_refuses_add",
        LEDGER,
        {"entries": [[0, 0]], "recovery": False, "position": 0, "connection": "x", "code": "IO_ERROR"},
    )
    verdict = validate([*events, told])
    assert not verdict.accepted


def test_the_lac_of_adds_that_came_together_is_the_highest_of_them() -> None:
    """Bookies tell of adds in one event that were sent in several, with LACs of their own."""
    _, events = traced(5, "calm")
    verdict = validate(events)
    assert verdict.accepted, said(verdict)
    joined, kept = None, list[Event]()
    for event in events:
        if joined is None and kept and event.action == kept[-1].action == "bookie_sends_add_confirmed_response":
            one, other = kept[-1], event
            same = all(one.parameters[name] == other.parameters[name] for name in ("recovery", "connection"))
            if same and one.node == other.node and one.parameters["lac"] < other.parameters["lac"]:
                both = {**other.parameters, "entries": [*one.parameters["entries"], *other.parameters["entries"]]}
                joined = kept[-1] = structs.replace(other, parameters=both)
                continue
        kept.append(event)
    assert joined is not None
    assert validate(kept).accepted
    lower = {**joined.parameters, "lac": joined.parameters["lac"] - 1}
    assert not validate(
        [structs.replace(event, parameters=lower) if event is joined else event for event in kept]
    ).accepted


@pytest.mark.parametrize("copies", [False, True])
def test_an_entry_that_was_copied_since_has_not_outlived_the_crash(copies: bool) -> None:
    """A bookie sends an entry after a crash. It has kept the one that it had added, unless it has copied it since."""
    _, events = traced(1, "calm")
    add = next(event for event in events if event.action == "bookie_sends_add_confirmed_response")
    entry, node, life = add.parameters["entries"][0][0], add.node, add.incarnation
    later = [Event(node, life + 1, 1, "started", None, {"kind": "bookie"})]
    if copies:
        copied = {"entries": [[entry, entry]], "lac": entry, "position": 9}
        later.append(Event(node, life + 1, 2, "bookie_copies_entry", LEDGER, copied))
    sent = {"entries": [[entry, entry]], "fence": False, "code": "OK", "position": 0, "connection": "x"}
    later.append(Event(node, life + 1, 3, "bookie_sends_read_response", LEDGER, sent))
    conformance = StoreConformance(LEDGER, sorted_by_node([*events, *later]))
    assert ((node, entry, life) in conformance.outlived) is not copies


def _copied_before_a_crash(node: str, life: int, entry: int) -> list[Event]:
    copied = {"entries": [[entry, entry]], "lac": entry, "position": 9}
    return [
        Event(node, life, 1, "started", None, {"kind": "bookie"}),
        Event(node, life, 2, "bookie_copies_entry", LEDGER, copied),
    ]


@pytest.mark.parametrize("found", [False, True])
def test_a_copied_entry_that_was_not_synced_counts_if_the_next_life_finds_it(found: bool) -> None:
    _, events = traced(1, "calm")
    node = next(event.node for event in events if event.action == "bookie_sends_add_confirmed_response")
    entries = [[1, 1]] if found else []
    later = [
        *_copied_before_a_crash(node, 2, 1),
        Event(node, 3, 1, "started", None, {"kind": "bookie"}),
        Event(node, 3, 2, "bookie_recovers", LEDGER, {"entries": entries, "fenced": False, "limbo": False}),
    ]
    conformance = StoreConformance(LEDGER, sorted_by_node([*events, *later]))
    conformance.bind(RunningStore(**conformance.constants()))
    assert len(list(conformance.steps(later[1]))) == found


def test_a_copy_changes_nothing_if_the_entry_has_come_meanwhile() -> None:
    _, events = traced(1, "calm")
    add = next(event for event in events if event.action == "bookie_sends_add_confirmed_response")
    entry = add.parameters["entries"][0][0]
    copied = {"entries": [[entry, entry]], "lac": entry, "position": 0}
    copy = Event(add.node, add.incarnation, 1 << 20, "bookie_copies_entry", LEDGER, copied)
    conformance = StoreConformance(LEDGER, sorted_by_node([*events, copy]))
    conformance.bind(RunningStore(**conformance.constants()))
    assert not list(conformance.steps(copy))


def test_what_a_bookie_still_has_is_what_it_copied_last() -> None:
    _, events = traced(1, "calm")
    node = next(event.node for event in events if event.action == "bookie_sends_add_confirmed_response")
    first, again = _copied_before_a_crash(node, 2, 1), _copied_before_a_crash(node, 3, 1)
    lacks = {"mark": "fence", "fenced": True, "limbo": False, "entries": [[1, 1]]}
    last = [
        Event(node, 4, 1, "started", None, {"kind": "bookie"}),
        Event(node, 4, 2, "bookie_may_lack_entries", LEDGER, lacks),
    ]
    conformance = StoreConformance(LEDGER, sorted_by_node([*events, *first, *again, *last]))
    assert [conformance._is_left(each[1], 1) for each in (first, again)] == [False, True]


@pytest.mark.parametrize("limbo", [False, True])
def test_a_bookie_has_left_limbo_if_its_next_life_is_not_in_it(limbo: bool) -> None:
    _, events = traced(1, "calm")
    node = next(event.node for event in events if event.action == "bookie_sends_add_confirmed_response")
    leaves = Event(node, 2, 2, "bookie_leaves_limbo", LEDGER, {"position": 9})
    lacks = {"mark": "fence", "fenced": True, "limbo": limbo, "entries": []}
    later = [
        Event(node, 2, 1, "started", None, {"kind": "bookie"}),
        leaves,
        Event(node, 3, 1, "started", None, {"kind": "bookie"}),
        Event(node, 3, 2, "bookie_may_lack_entries", LEDGER, lacks),
    ]
    conformance = StoreConformance(LEDGER, sorted_by_node([*events, *later]))
    conformance.bind(RunningStore(**conformance.constants()))
    assert len(list(conformance.steps(leaves))) == (not limbo)


@pytest.mark.parametrize("answers", [False, True])
def test_what_a_bookie_still_has_says_nothing_of_earlier_lives_if_it_has_served_in_between(answers: bool) -> None:
    _, events = traced(1, "calm")
    add = next(event for event in events if event.action == "bookie_sends_add_confirmed_response")
    entry, node, life = add.parameters["entries"][0][0], add.node, add.incarnation
    later = [Event(node, life + 1, 1, "started", None, {"kind": "bookie"})]
    if answers:
        sent = {"entries": [[entry, entry]], "fence": False, "code": "NO_ENTRY", "position": 0, "connection": "x"}
        later.append(Event(node, life + 1, 2, "bookie_sends_read_response", LEDGER, sent))
    later.append(Event(node, life + 2, 1, "started", None, {"kind": "bookie"}))
    lacks = {"mark": "limbo", "fenced": False, "limbo": False, "entries": [[entry, entry]]}
    later.append(Event(node, life + 2, 2, "bookie_may_lack_entries", LEDGER, lacks))
    conformance = StoreConformance(LEDGER, sorted_by_node([*events, *later]))
    assert conformance._is_left(add, entry) is not answers


def test_a_trace_without_metadata_is_not_covered() -> None:
    _, events = traced(1, "calm")
    verdict = validate([event for event in events if event.subject is None])
    assert verdict.problem == "no metadata of the ledger are in the trace"


def test_traces_share_one_cache() -> None:
    validator = Validator(StoreConformance)
    case = replace(drawn(1, "calm"), entries=40)
    _, events = run(case)
    assert validator.validate(LEDGER, events).accepted
    (replayer,) = validator.replayers.values()
    evaluations = replayer.evaluations
    assert validator.validate(LEDGER, events).accepted
    assert replayer.evaluations == evaluations


@pytest.mark.parametrize(("behind", "is_before"), [(1, True), (0, False)])
def test_an_entry_that_was_not_found_may_be_added_before_the_answer(behind: int, is_before: bool) -> None:
    _, events = traced(1, "calm")
    at, added = next(
        (at, each) for at, each in enumerate(events)
        if each.action == "bookie_sends_add_confirmed_response" and each.subject == LEDGER
    )  # fmt: skip
    told = {
        "entries": added.parameters["entries"], "code": "NO_ENTRY", "since": added.parameters["position"] - behind,
        "connection": added.parameters["connection"], "position": added.parameters["position"],
    }  # fmt: skip
    answer = structs.replace(added, action="bookie_sends_read_response", parameters=told, actor="late")
    ordered = [*StoreConformance(LEDGER, [*events[: at + 1], answer, *events[at + 1 :]]).in_order()]
    assert (ordered.index(answer) < ordered.index(added)) == is_before
    assert [each for each in ordered if each is not answer] == events
