"""Validating traces while they are written: late events, and what is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from campaigns import campaign_if
from traces.counting import CountingConformance

from fencepost.ledger.rules.protections import ALL
from fencepost.ledger.simulation.case import drawn
from fencepost.ledger.simulation.workload import simulate
from fencepost.protocols.store.conformance import StoreConformance
from fencepost.simulation.trace import SimTrace
from fencepost.traces import TraceError, TraceWriter
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.outcome import Outcome
from fencepost.traces.validation.tail import Tail
from fencepost.traces.validation.traces import in_order
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.watch import Limits, Watch, WatchState

LIMITS = Limits(patience=5, idle=20, most=1_000)


def event(node: str, seq: int, action: str, value: int | None, subject: str | None = "7") -> Event:
    return Event(node, 1, seq, action, subject, {} if value is None else {"value": value})


def end(node: str, seq: int) -> Event:
    return event(node, seq, "ended", None, None)


def watching(limits: Limits = LIMITS) -> Watch:
    return Watch(Validator(CountingConformance), "r", limits)


def verdicts(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    return [(outcome.subject, outcome.verdict) for outcome in outcomes]


def test_a_step_waits_for_its_cause_and_no_longer_than_that() -> None:
    watch = watching()
    watch.feed([event("b", 1, "reads", 1), event("b", 2, "writes", 2)], 0)
    assert watch.look(0) == [] == watch.look(4.9)
    watch.feed([event("a", 1, "writes", 1)], 4.9)
    assert watch.look(4.9) == [] == watch.look(10)
    watch.feed([event("a", 2, "writes", 3)], 10)
    assert watch.look(10) == [] == watch.look(14)
    [outcome] = watch.look(15)
    assert (outcome.verdict, outcome.taken, outcome.refusals[0].step) == ("rejected", 3, "writes(w=w1)")
    assert watch.look(100) == [] and not watch.is_waiting


@pytest.mark.parametrize(
    ("patience", "events", "seconds"), [(0.3, 100, 0.3), (0.3, 3_000, 0.6), (0.3, 9_000, 1.0), (5.0, 100, 1.0)]
)
def test_what_is_added_is_looked_at_soon_if_the_trace_is_short(patience: float, events: int, seconds: float) -> None:
    watch = watching(Limits(patience=patience, idle=20, most=10_000))
    watch.feed((event("a", number, "writes", number) for number in range(1, events)), 0)
    assert watch.look(0) == []
    watch.feed([event("a", events, "writes", events + 1)], 0)
    assert watch.look(seconds - 0.001) == [] and not watch.state.subjects["7"].failing
    assert watch.look(seconds + 0.001) == [] and watch.state.subjects["7"].failing
    assert verdicts(watch.look(seconds + patience + 0.002)) == [("7", "rejected")]


def test_a_trace_is_accepted_once_all_of_its_nodes_have_ended() -> None:
    watch = watching()
    watch.feed([event("a", 1, "writes", 1), event("b", 1, "reads", 1), end("b", 2)], 0)
    assert watch.look(0) == []
    watch.feed([end("a", 2)], 1)
    assert verdicts(watch.look(1)) == [("7", "accepted")]
    watch.feed([event("a", 3, "writes", 1)], 2)
    assert not watch.is_waiting, "its verdict was told"


def test_a_node_may_end_its_part_in_one_subject() -> None:
    watch = watching()
    watch.feed([event("a", 1, "writes", 1), event("b", 1, "reads", 1), event("a", 2, "ended", None)], 0)
    assert watch.look(0) == []
    watch.feed([event("b", 2, "ended", None)], 1)
    assert verdicts(watch.look(1)) == [("7", "accepted")]


@pytest.mark.parametrize("comes_late", [False, True])
@pytest.mark.parametrize("subject", [None, "7"])
def test_a_node_that_ended_and_came_back_has_not_ended(subject: str | None, comes_late: bool) -> None:
    watch = watching()
    first = [event("a", 1, "writes", 1), Event("a", 1, 2, "ended", subject, {})]
    second = Event("a", 2, 1, "writes", "7", {"value": 2})
    watch.feed([second, *first] if comes_late else [*first, second], 0)
    assert watch.look(0) == []
    watch.feed([Event("a", 2, 2, "ended", subject, {})], 1)
    assert verdicts(watch.look(1)) == [("7", "accepted")]


def test_a_trace_that_is_silent_is_let_go_of() -> None:
    watch = watching()
    watch.feed([event("a", 1, "writes", 1)], 0)
    assert watch.look(0) == [] == watch.look(19)
    assert verdicts(watch.look(20)) == [("7", "not finished")]


def test_the_longest_trace_is_let_go_of_when_memory_is_full() -> None:
    watch = watching(Limits(most=10))
    watch.feed([event("a", n, "writes", n, "long") for n in range(1, 8)], 0)
    watch.feed([event("a", n, "writes", n - 7, "short") for n in range(8, 11)], 0)
    assert watch.look(0) == []
    watch.feed([event("a", 11, "writes", 4, "short")], 1)
    assert verdicts(watch.look(1)) == [("long", "not finished")]
    assert verdicts(watch.finish(2)) == [("short", "not finished")]


def test_what_is_remembered_can_be_stored() -> None:
    watch = watching()
    watch.feed([event("b", 1, "reads", 1), event("a", 1, "started", None, None)], 0)
    assert watch.look(0) == []
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(watch.state), type=WatchState)
    assert state == watch.state
    assert verdicts(Watch(watch.validator, "r", LIMITS, state).look(5)) == [("7", "rejected")]


def store_events(seed: int, without: str | None = None) -> list[Event]:
    """The events of a run in the order in which they happened."""
    found: list[Event] = []

    def emit(
        node: str, incarnation: int, seq: int, action: str, subject: str | None, parameters: Mapping[str, Any]
    ) -> None:
        found.append(Event(node, incarnation, seq, action, subject, parameters))

    simulate(drawn(seed, "races", ALL if without is None else ALL.replace(**{without: False})), trace=SimTrace(emit))
    return found


@pytest.mark.parametrize("seed", campaign_if(lambda seed: seed > 2, range(1, 7)))
def test_runs_of_the_store_have_the_same_verdict_however_late_events_come(seed: int) -> None:
    for without in (None, "write_back_before_close"):
        events = store_events(seed, without)
        whole = Validator(StoreConformance).validate("7", in_order(events))
        expected = "accepted" if whole.accepted else "rejected" if whole.covered else "not covered"
        chance = Random(seed)
        delays = {each.node: chance.random() * 4 for each in events}
        arrivals = sorted((number / 20 + delays[each.node], number, each) for number, each in enumerate(events))
        watch = Watch(Validator(StoreConformance), "r", Limits(patience=5, idle=10))
        found: list[Outcome] = []
        now = 0.0
        while arrivals or watch.is_waiting:
            now += 1.0
            some = [each for at, _, each in arrivals if at <= now]
            arrivals = arrivals[len(some) :]
            watch.feed(some, now)
            found += watch.look(now)
        assert [outcome.verdict for outcome in found] in (
            [expected],
            ["not finished"] if expected == "accepted" else [expected],
        )


def test_the_cache_is_cleared_at_its_limit() -> None:
    validator = Validator(CountingConformance)
    validator.cache_limit = 4
    events = [event("a", n, "writes", n) for n in range(1, 6)]
    assert validator.validate("7", events).accepted
    [before] = validator.replayers.values()
    assert validator.validate("7", events).accepted
    [after] = validator.replayers.values()
    assert after is not before and (before.evaluations, after.cache_hits) == (5, 0)


# -- reading what is added --------------------------------------------------------------------------------------------


def test_what_is_added_to_a_folder_is_read_once(tmp_path: Path) -> None:
    tail = Tail([str(tmp_path)])
    with TraceWriter(tmp_path, node="a", run="r") as writer:
        assert [each.action for each in tail.poll()] == ["started"]
        writer.emit("writes", "7", {"value": 1})
        writer.emit("writes", "7", {"value": 2})
        assert [each.seq for each in tail.poll()] == [2, 3]
        assert tail.poll() == []
        writer.emit("writes", "7", {"value": 3})
    assert [each.seq for each in tail.poll()] == [4, 5]
    assert tail.poll() == []


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    tail = Tail([str(tmp_path)])
    with TraceWriter(tmp_path, node="a", run="r") as writer:
        writer.emit("writes", "7", {"value": 1})
        assert len(tail.poll()) == 2
        [spool] = (tmp_path / "_spool").glob("*.spool")
        with spool.open("r+b") as file:
            file.seek(spool.read_bytes().index(b"started"))
            file.write(b"S")
        writer.emit("writes", "7", {"value": 2})
        writer.emit("writes", "7", {"value": 3})
        assert [each.seq for each in tail.poll()] == [3, 4]
        with pytest.raises(TraceError, match=r"is damaged at byte \d+: the checksum of a frame is wrong"):
            Tail([str(tmp_path)]).poll()


def test_a_flipped_bit_in_what_was_added_is_told(tmp_path: Path) -> None:
    tail = Tail([str(tmp_path)])
    with TraceWriter(tmp_path, node="a", run="r") as writer:
        assert len(tail.poll()) == 1
        writer.emit("writes", "7", {"value": 1})
        writer.emit("writes", "7", {"value": 2})
        [spool] = (tmp_path / "_spool").glob("*.spool")
        place = spool.read_bytes().index(b"writes")
        with spool.open("r+b") as file:
            file.seek(place)
            file.write(b"v")
        with pytest.raises(TraceError, match=r"is damaged at byte \d\d+: the checksum of a frame is wrong"):
            tail.poll()


def test_a_gap_is_told(tmp_path: Path) -> None:
    from fencepost.traces import RunsFile

    with RunsFile(tmp_path / "t.parquet") as file:
        file.emit("r", "a", 1, 1, "started")
        file.emit("r", "a", 1, 3, "writes")
    with pytest.raises(TraceError, match="events 2 to 2 are missing"):
        Tail([str(tmp_path)]).poll()


def test_a_ledger_of_a_service_that_tells_of_versions_alone_is_over() -> None:
    """A real metadata service writes no trace of its nodes. The client that closed a ledger or found it closed does."""
    written = Event("metadata", 1, 2, "metadata_written", "7", {"version": 1})
    assert not StoreConformance.is_over([written])
    for state, metadata in ((False, None), (False, {"state": "OPEN"}), (True, {"state": "CLOSED"})):
        seen = Event("c", 1, 5, "client_receives_metadata", "7", {"version": 1, "metadata": metadata, "written": True})
        assert StoreConformance.is_over([written, seen]) is state
    offered = Event("c", 1, 4, "client_closes_ledger", "7", {"version": 0, "metadata": {"state": "CLOSED"}})
    assert not StoreConformance.is_over([written, offered]), "it may be refused"
