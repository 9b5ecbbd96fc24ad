"""Long traces: the replay lets go of what it has done, and its verdicts and reports are those of a replay that keeps
all.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from traces.traced import LEDGER, traced

from fencepost import Message, Protocol, action, model_values, network
from fencepost.language.context import Slot
from fencepost.language.fields import Shape
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.report.validation import explaining
from fencepost.traces import TraceEvent, packed
from fencepost.traces.packed import Packed
from fencepost.traces.validation import replay, search
from fencepost.traces.validation import traces as grouped
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.outcome import judged
from fencepost.traces.validation.replay import Replayer
from fencepost.traces.validation.search import Search
from fencepost.traces.validation.steps import Step
from fencepost.traces.validation.traces import Traces, events_of, in_order
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict


def let_go_early(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Traces are long from 40 steps on, and forget at every occasion."""
    monkeypatch.setattr(replay, "MANY", 40)
    monkeypatch.setattr(Packed.__init__, "__defaults__", ((), 2, 40))
    monkeypatch.setattr(packed, "BLOCK", 7)
    monkeypatch.setattr(search, "MANY", 0)
    monkeypatch.setattr(search, "GROWTH", 0)
    monkeypatch.setattr(search, "LAST", last)
    monkeypatch.setattr(replay, "RARE", 0)


def rows_of(events: Sequence[Event]) -> list[TraceEvent]:
    return [
        TraceEvent(
            "run", each.node, each.incarnation, each.seq, each.actor, each.action, each.subject,
            json.dumps(each.parameters), None,
        )
        for each in events
    ]  # fmt: skip


def some_traces() -> list[list[Event]]:
    """Traces of the simulator, and each with an event left out."""
    found = []
    for seed, profile in ((1, "calm"), (2, "everything"), (3, "races"), (4, "no-journal"), (5, "crashes")):
        _, events = traced(seed, profile)
        of_ledger = [place for place, event in enumerate(events) if event.subject is not None]
        without = Random(seed).choice(of_ledger[len(of_ledger) // 2 :])
        found += [events, [*events[:without], *events[without + 1 :]]]
    return found


def told(verdict: Verdict, path: Sequence[Any], start: Sequence[int]) -> list[Any]:
    """A path, without the numbers of slots and values."""
    assert verdict.replayer is not None
    store, row = verdict.replayer.store, list(start)
    found: list[Any] = []
    for event, step, taken in path:
        verdict.replayer.apply(row, taken.writes)
        writes = [(store.slots[slot].name, store.values[slot][number]) for slot, number in taken.writes]
        found.append((event and event.place, step, writes, taken.labels, taken.events))
    return [found, *(held(verdict, each) for each in (row, verdict.row))]


def held(verdict: Verdict, row: Sequence[int]) -> dict[str, Any]:
    """What is not at its default."""
    assert verdict.replayer is not None
    store = verdict.replayer.store
    return {store.slots[slot].name: store.values[slot][number] for slot, number in enumerate(row) if number}


@pytest.mark.parametrize("last", [3, 30])
def test_verdicts_reports_and_paths_are_those_of_a_replay_that_keeps_all(
    monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    every = some_traces()

    began: list[bool] = []

    def judged_all() -> tuple[list[Any], list[Verdict]]:
        verdicts: list[Verdict] = []

        def note(verdict: Verdict) -> None:
            verdicts.append(verdict)
            began.append(verdict.retake is not None)

        outcomes = [
            judged(
                Validator(StoreConformance), "run", LEDGER, lambda events=events: events,  # type: ignore[misc]
                None, explaining(12, 100), note,
            )
            for events in every
        ]  # fmt: skip
        return outcomes, verdicts

    outcomes, verdicts = judged_all()
    paths = [told(each, each.path, each.start) for each in verdicts]
    assert {outcome.accepted for outcome in outcomes} == {True, False}
    let_go_early(monkeypatch, last)
    others, long = judged_all()
    assert others == outcomes
    assert any(outcome.story for outcome in others)
    assert not any(began[: len(every)])
    assert sum(began) > len(every) // 2
    for verdict in [each for each in long if each.retake is not None]:  # no report has asked for its path
        assert len(verdict.last) <= 2 * last + 1
        end = told(verdict, verdict.last, verdict.base)
        whole = told(verdict, verdict.path, verdict.start)
        assert (end[0], end[1:]) == (whole[0][-len(end[0]) :], whole[1:])
    assert [told(each, each.path, each.start) for each in long] == paths


def test_what_is_back_at_its_default_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    _, events = traced(1, "calm")
    kept = Validator(StoreConformance).validate(LEDGER, events).replayer
    let_go_early(monkeypatch, 3)
    validator = Validator(StoreConformance)
    verdict = validator.validate(LEDGER, events)
    assert kept is not None and verdict.replayer is not None
    assert verdict.accepted and verdict.replayer.size < kept.size / 2
    (shared,) = validator.replayers.values()
    assert shared is not verdict.replayer
    assert not shared.store.slots or shared.store is not verdict.replayer.store


def test_earlier_verdicts_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    _, events = traced(1, "calm")
    validator = Validator(StoreConformance)
    before = validator.validate(LEDGER, events)
    path = told(before, before.path, before.start)
    let_go_early(monkeypatch, 3)
    for replayer in validator.replayers.values():
        replayer._tries.clear()
    after = validator.validate(LEDGER, events)
    assert after.replayer is not before.replayer
    assert after.retake is not None
    assert told(before, before.path, before.start) == path
    assert told(after, after.path, after.start) == path


def test_a_search_that_may_turn_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go_early(monkeypatch, 3)
    monkeypatch.setattr(StoreConformance, "hidden", lambda self, protocol: [Step("bookie_loses_power")])
    _, events = traced(1, "calm")
    verdict = Validator(StoreConformance).validate(LEDGER, events)
    assert verdict.accepted and verdict.retake is None


def test_the_conformance_is_let_go_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[StoreConformance]] = []
    seen = []

    class Watched(StoreConformance):
        def __init__(self, subject: str, events: Sequence[Event]) -> None:
            super().__init__(subject, events)
            made.append(weakref.ref(self))

    run = Search.run

    def watched(self: Search) -> None:
        gc.collect()
        seen.append([each() for each in made])
        run(self)

    monkeypatch.setattr(Search, "run", watched)
    _, events = traced(1, "calm")
    assert Validator(Watched).validate(LEDGER, events).accepted
    assert seen == [[None]]


def test_rows_are_let_go_when_they_are_taken() -> None:
    _, events = traced(1, "calm")
    rows = rows_of(events)
    traces, name = Traces(rows), ("run", LEDGER)
    wanted = traces.events(name)
    assert wanted == in_order(events)
    assert events_of(traces.take(name)) == wanted
    assert [each for each in traces.rows(name) if each.subject is not None] == []


@pytest.mark.parametrize("has_bytes", [True, False])
@pytest.mark.parametrize("mixed", [False, True])
def test_packed_events_are_those_of_the_rows(monkeypatch: pytest.MonkeyPatch, mixed: bool, has_bytes: bool) -> None:
    for module, limit in ((packed, "BLOCK"), (grouped, "BLOCK"), (grouped, "SHORT")):
        monkeypatch.setattr(module, limit, 7)
    _, events = traced(2, "everything")
    if not has_bytes:
        events = [replace(event, actor="\ud800") for event in events]
    rows = rows_of(events)
    if mixed:
        Random(1).shuffle(rows)
    found, name = Traces(rows), ("run", LEDGER)
    taken = found.take(name)
    some = events_of(taken)
    assert isinstance(some, Packed) and [*some] == in_order(events) == [some[place] for place in range(len(some))]
    assert [*taken] == []


class Told(Message):
    """A number, on a topic of its own."""

    topic = "number"
    number: int


class Telling(Protocol):
    """Counts what is in flight by looking at the network as a whole."""

    nodes = model_values("n", 2)
    net = network({Told: (nodes, nodes)})

    @action
    def tells(self) -> None:
        self.net.send(Told(len(str(self.net))), *self.nodes)


def test_a_network_keeps_the_channels_that_are_in_use() -> None:
    replayer = Replayer(Telling())
    row = replayer.initial()
    for _ in range(3):
        taken = replayer.step(row, "tells", (), ())
        assert isinstance(taken, replay.Taken)
        replayer.apply(row, taken.writes)
        before = replayer.step(row, "tells", (), ())
        (row,), _ = replayer.forget([row], [])
        after = replayer.step(row, "tells", (), ())
        assert isinstance(before, replay.Taken) and isinstance(after, replay.Taken)
        assert before.events == after.events


def test_a_replayer_apart_keeps_the_channels_of_the_other_one() -> None:
    replayer = Replayer(Telling())
    replayer.remembers = False
    row = replayer.initial()
    for _ in range(3):
        taken = replayer.step(row, "tells", (), ())
        assert isinstance(taken, replay.Taken)
        replayer.apply(row, taken.writes)
        before = replayer.step(row, "tells", (), ())
        apart = replayer.apart()
        for _ in range(2):
            apart.forget([apart.initial()], [])
        after = replayer.step(row, "tells", (), ())
        assert isinstance(before, replay.Taken) and isinstance(after, replay.Taken)
        assert before.events == after.events


def test_shapes_make_forgotten_slots_again() -> None:
    protocol = StoreConformance.protocol(bookies=3, clients=1)

    def slots(shape: Shape, name: str) -> list[Slot]:
        return list(shape.slots((name,)))

    for name, shape in protocol.shapes.items():
        if name in ("bookie", "meta", "crashed", "gave_up"):
            before = slots(shape, name)
            assert [id(each) for each in before] == [id(each) for each in slots(shape, name)]
            shape.forget(())
            again = slots(shape, name)
            assert again == before
            assert not {id(each) for each in before} & {id(each) for each in again}
