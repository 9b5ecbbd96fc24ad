"""Traces of counters: what is accepted, what waits, what is left out, and the report on a trace that no behaviour
explains.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces.counters import CountersConformance, Told, happened

from fencepost import FencepostError, ModelValue, Protocol, ProtocolRaised, constant
from fencepost.traces import reading
from fencepost.traces.validation import registry
from fencepost.traces.validation.conformance import Event
from fencepost.traces.validation.steps import Has, Step
from fencepost.traces.validation.traces import Traces
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

N1, N2 = ModelValue("n1"), ModelValue("n2")


def validate(*told: Any, shuffle: int | None = None) -> Verdict:
    return Validator(CountersConformance).validate("it", happened(*told), shuffle)


def titles(verdict: Verdict) -> list[str]:
    return [step.title for _, step, _ in verdict.path]


def test_a_behaviour_is_accepted_and_its_steps_are_told() -> None:
    verdict = validate(
        ("a", "tells", {"to": "b"}),
        ("b", "hears", {"from": "a", "heard": 1}),
        ("b", "writes", {"version": 1}),
        ("a", "reads", {"version": 1}),
    )
    assert (verdict.accepted, verdict.events, verdict.steps, verdict.taken, verdict.skipped) == (True, 4, 4, 4, 0)
    assert titles(verdict) == ["tells(n=n1, m=n2)", "hears(n=n2, m=n1)", "writes(n=n2)", "reads(n=n1)"]
    assert [taken.labels for _, _, taken in verdict.path][1][0].count == 1
    assert verdict.path[0][2].events[0].passed == (Told(1),)
    assert not verdict.refusals
    assert not verdict.problem


def test_steps_are_taken_in_the_order_of_their_causes_whatever_the_order_of_nodes() -> None:
    verdict = validate(
        ("a", "hears", {"from": "b"}),
        ("b", "reads", {"version": 1}),
        ("b", "tells", {"to": "a"}),
        ("c", "tells", {"to": "a"}),
        ("c", "writes", {"version": 1}),
    )
    assert verdict.accepted
    assert titles(verdict) == [
        "tells(n=n3, m=n1)",
        "writes(n=n3)",
        "reads(n=n2)",
        "tells(n=n2, m=n1)",
        "hears(n=n1, m=n2)",
    ]


def test_a_step_that_is_refused_waits_for_others() -> None:
    # Nothing orders the write of b after the tells of a, from which it has its count.
    verdict = validate(
        ("b", "hears", {"from": "a", "heard": 1}),
        ("a", "tells", {"to": "c"}),
        ("a", "falls_back", {"to_count": 0}),
        ("a", "tells", {"to": "b"}),
    )
    assert verdict.accepted
    assert titles(verdict)[-1] == "hears(n=n2, m=n1)"


def test_another_order_that_the_causes_allow() -> None:
    told = [(node, "tells", {"to": "a"}) for node in "bcdefg"]
    paths = {tuple(titles(validate(*told, shuffle=shuffle))) for shuffle in range(5)}
    assert len(paths) > 1
    assert all(validate(*told, shuffle=shuffle).accepted for shuffle in range(5))
    assert titles(validate(*told, shuffle=3)) == titles(validate(*told, shuffle=3))


def test_a_step_that_can_not_be_taken_is_told_with_the_line_that_refused_it() -> None:
    verdict = validate(("a", "tells", {"to": "b"}), ("b", "writes", {"version": 1}), ("b", "reads", {"version": 1}))
    assert (verdict.accepted, verdict.taken, verdict.steps) == (False, 1, 3)
    (refusal,) = verdict.refusals
    assert (refusal.event.node, refusal.event.seq, refusal.step.title) == ("b", 1, "writes(n=n2)")
    assert refusal.why.asked == "require(self.count[n] > self.register.count)"


def test_all_that_could_have_come_next_is_told() -> None:
    verdict = validate(("a", "writes", {"version": 1}), ("b", "hears", {"from": "a"}), ("c", "tells", {"to": "a"}))
    assert [(refusal.event.node, refusal.event.action) for refusal in verdict.refusals] == [
        ("a", "writes"),
        ("b", "hears"),
    ]
    assert verdict.taken == 1


def test_what_must_hold_after_a_step() -> None:
    assert validate(("a", "tells", {"to": "b", "count": 1}), ("a", "tells", {"to": "b", "count": 2})).accepted
    verdict = validate(("a", "tells", {"to": "b", "count": 1}), ("a", "tells", {"to": "b", "count": 3}))
    assert (verdict.accepted, verdict.taken) == (False, 1)
    assert str(verdict.refusals[0].why) == "count.n1 is 2 then, and the trace says 3"


def test_a_step_that_differs_is_not_taken() -> None:
    verdict = validate(("a", "tells", {"to": "b", "count": 3}), ("b", "hears", {"from": "a"}))
    assert verdict.row == [0] * len(verdict.row)


def test_an_event_without_a_step_is_held_to_the_state() -> None:
    assert validate(("a", "tells", {"to": "b"}), ("a", "has", {"count": 1})).accepted
    verdict = validate(("a", "tells", {"to": "b"}), ("a", "has", {"count": 2}))
    assert not verdict.accepted
    assert (verdict.refusals[0].step.title, str(verdict.refusals[0].why)) == (
        "no step",
        "count.n1 is 1 then, and the trace says 2",
    )


def test_an_event_without_a_step_counts_as_none() -> None:
    verdict = validate(("a", "tells", {"to": "b"}), ("a", "has", {"count": 1}), ("b", "sleeps"))
    assert (verdict.events, verdict.steps, verdict.taken) == (3, 1, 1)


def test_what_a_step_must_tell() -> None:
    assert validate(("a", "tells", {"to": "b", "told": 1})).accepted
    verdict = validate(("a", "tells", {"to": "b", "told": 2}))
    assert not verdict.accepted
    assert "the protocol sends Told(count=1" in str(verdict.refusals[0].why)
    assert str(verdict.refusals[0].why).endswith("and the trace says count=2")


def test_to_whom_a_step_must_send() -> None:
    sends = Step("tells", (("n", N1), ("m", N2)), to=frozenset({N2}))
    assert _as_told(sends).accepted
    verdict = _as_told(msgspec.structs.replace(sends, to=frozenset({N1, N2})))
    assert str(verdict.refusals[0].why) == "the protocol sends to {n2}, and the trace says to {n1, n2}"


def test_what_must_hold_before_a_step() -> None:
    tells = Step("tells", (("n", N1), ("m", N2)), before=((("count", N1), 0),), after=((("count", N1), 1),))
    assert _as_told(tells).accepted
    verdict = _as_told(tells, tells)
    assert (verdict.taken, str(verdict.refusals[0].why)) == (1, "count.n1 is 1 before, and the trace says 0")


def test_a_set_that_has_something() -> None:
    assert Has(1).matches(frozenset({1, 2}))
    assert not Has(3).matches(frozenset({1, 2}))
    assert not Has(3).matches(3)
    assert not Has(1).matches(frozenset({True}))
    verdict = _as_told(Step("tells", (("n", N1), ("m", N2)), after=((("count", N1), Has(1)),)))
    assert str(verdict.refusals[0].why) == "count.n1 is 1 then, and the trace says it has 1"


def test_constants_that_python_takes_for_equal_are_constants_of_two_protocols() -> None:
    class Limited(Protocol):
        limit: float = constant(1.0)

    validator = Validator(type("Any", (CountersConformance,), {"protocol": Limited}))
    zeros = [validator.replayer({"limit": limit}, validator.conformance) for limit in (0.0, -0.0, 0.0)]
    assert zeros[0] is zeros[2] is not zeros[1]


def _as_told(*steps: Step) -> Verdict:
    """What comes of one event that is these steps."""

    class Told(CountersConformance):
        def steps(self, event: Event) -> Any:
            return steps

    return Validator(Told).validate("it", happened(("a", "acts")))


def test_what_was_received_must_have_been_sent() -> None:
    verdict = validate(
        ("a", "tells", {"to": "b"}), ("b", "hears", {"from": "a"}), ("b", "hears", {"from": "a", "ignores": True})
    )
    assert (verdict.accepted, verdict.taken) == (False, 2)
    assert str(verdict.refusals[0].why) == "nobody has sent what it receives, or not so often"


def test_a_step_that_may_have_been_ignored_is_left_out_when_nothing_else_can_be_taken() -> None:
    verdict = validate(
        ("a", "hears", {"from": "b", "heard": 7, "ignores": True}),
        ("a", "tells", {"to": "b"}),
        ("b", "tells", {"to": "a"}),
    )
    assert (verdict.accepted, verdict.steps, verdict.taken, verdict.skipped) == (True, 3, 2, 1)


def test_a_step_that_may_have_been_ignored_is_taken_if_it_can_be() -> None:
    verdict = validate(("a", "hears", {"from": "b", "ignores": True}), ("b", "tells", {"to": "a"}))
    assert (verdict.accepted, verdict.taken, verdict.skipped) == (True, 2, 0)


def test_no_more_is_left_out_than_has_to_be() -> None:
    verdict = validate(
        ("a", "hears", {"from": "b", "heard": 2, "ignores": True}),
        ("a", "hears", {"from": "b", "heard": 9, "ignores": True}),
        ("b", "tells", {"to": "a"}),
        ("b", "tells", {"to": "a"}),
    )
    assert (verdict.accepted, verdict.taken, verdict.skipped) == (True, 3, 1)


def test_a_circle_is_told() -> None:
    verdict = validate(
        ("a", "hears", {"from": "b"}),
        ("a", "tells", {"to": "b"}),
        ("b", "hears", {"from": "a"}),
        ("b", "tells", {"to": "a"}),
    )
    assert not verdict.accepted
    assert verdict.problem.startswith("what happened cannot be ordered, each of these comes before the next")
    assert all(told in verdict.problem for told in ("a 1 hears", "a 2 tells", "b 1 hears", "b 2 tells"))


def test_two_runs_of_one_name_are_taken_for_what_they_may_be(tmp_path: Path) -> None:
    conformance = registry.resolve("docs/examples/clicks_conformance.py")
    for _ in range(2):
        subprocess.run([sys.executable, "docs/examples/clicks.py", tmp_path], check=True)
    traces = Traces(reading.read(tmp_path))
    (name,) = traces.names()
    verdict = Validator(conformance).validate("clicks", traces.events(name))
    assert "Node ann was started 2 times: if these are runs of their own, give each another run name" in verdict.problem


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("yield Step(event.action", 'yield Step("reds"', "lost-update has no action reds: did you mean reads?"),
        ('("counter",), event', '("countr",), event', "lost-update has no part countr in its state"),
        ('(("c", c),)', '(("d", c),)', "action reads has the parameters c, and the conformance gives d"),
        ('(("c", c),)', "()", "action reads has the parameters c, and the conformance gives none"),
    ],
)
def test_a_step_that_is_none_of_the_protocol_is_named_with_its_event(
    tmp_path: Path, right: str, wrong: str, says: str
) -> None:
    folder = Path("docs/examples")
    text = (folder / "clicks_conformance.py").read_text()
    assert right in text
    (tmp_path / "wrong_conformance.py").write_text(text.replace(right, wrong))
    (tmp_path / "lost_update.py").write_text((folder / "lost_update.py").read_text())
    subprocess.run([sys.executable, folder / "clicks.py", tmp_path / "traces"], check=True)
    traces = Traces(reading.read(tmp_path / "traces"))
    validator = Validator(registry.resolve(str(tmp_path / "wrong_conformance.py")))
    with pytest.raises(ProtocolRaised) as raised:
        validator.validate("clicks", traces.events(traces.names()[0]))
    assert str(raised.value).startswith(says)
    assert re.search(r"; the step was \w+\(.*for event \d \(\w+\) of node (ann|bob)$", str(raised.value))


def test_an_empty_trace_is_not_accepted() -> None:
    verdict = Validator(CountersConformance).validate("it", [])
    assert (verdict.accepted, verdict.problem) == (False, "the trace is empty")


def test_a_trace_of_which_nothing_is_a_step_is_not_accepted() -> None:
    verdict = validate(("a", "sleeps"), ("b", "sleeps"))
    assert (verdict.accepted, verdict.problem) == (False, "no event of the trace is a step of the protocol")


def test_a_trace_of_which_nothing_is_an_action_is_not_accepted() -> None:
    verdict = validate(("a", "has", {"count": 0}))
    assert (verdict.accepted, verdict.problem) == (False, "no event of the trace is a step of the protocol")


def test_a_trace_that_is_not_covered_is_not_accepted() -> None:
    verdict = validate(("stranger", "tells", {"to": "b"}))
    assert (verdict.accepted, verdict.problem) == (False, "there is a stranger")


def test_a_choice_that_a_conformance_leaves_open_is_told() -> None:
    trace = happened(("a", "tells", {"to": "b"}), ("a", "tells", {"to": "b"}), ("a", "falls_back"))
    verdict = Validator(_Undecided).validate("it", trace)
    assert (verdict.accepted, verdict.taken) == (False, 2)
    assert "does not say which of 2 options" in str(verdict.refusals[0].why)


def test_a_mistake_in_a_conformance_is_raised() -> None:
    with pytest.raises(FencepostError, match="counters has no action sleeps"):
        _as_told(Step("sleeps"))


class _Undecided(CountersConformance):
    def steps(self, event: Event) -> Any:
        if event.action == "falls_back":
            return [Step("falls_back", (("n", self.n[event.node]),))]
        return super().steps(event)


def test_traces_with_the_same_constants_share_a_cache() -> None:
    validator = Validator(CountersConformance)
    trace = happened(("a", "tells", {"to": "b"}), ("b", "hears", {"from": "a"}))
    for _ in range(3):
        assert validator.validate("it", trace).accepted
    (replayer,) = validator.replayers.values()
    assert (replayer.evaluations, replayer.cache_hits) == (2, 4)
    assert validator.validate("it", happened(*((node, "tells", {"to": "a"}) for node in "bcde"))).accepted
    assert len(validator.replayers) == 2


def test_what_was_not_asked_for_the_longest_is_forgotten_first() -> None:
    validator = Validator(CountersConformance)
    validator.cache_limit = 9
    two, three, four = ([(node, "tells", {"to": "a"}) for node in nodes] for nodes in ("b", "bc", "bcd"))
    for told in (three, four, two, three):
        assert validator.validate("it", happened(*told)).accepted
    assert [replayer.evaluations for replayer in validator.replayers.values()] == [3, 1, 2]
    validator.cache_limit = 3
    assert validator.validate("it", happened(*three)).accepted
    assert [replayer.evaluations for replayer in validator.replayers.values()] == [1, 2]


# -- traces that are drawn --------------------------------------------------------------------------------------------


def a_run(choices: list[int], nodes: int = 3) -> list[Event]:
    """A trace of a plain implementation of counters, which knows nothing of the protocol."""
    names = "abc"[:nodes]
    count, seen = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    register = [0, 0]
    on_the_way: dict[tuple[str, str], list[int]] = {}
    told: list[Any] = []
    for choice in choices:
        what, n, m = choice % 5, names[choice // 5 % nodes], names[choice // 15 % nodes]
        if what == 0 and n != m:
            count[n] += 1
            on_the_way.setdefault((n, m), []).append(count[n])
            told.append((n, "tells", {"to": m, "count": count[n]}))
        elif what == 1 and on_the_way.get((m, n)):
            heard = on_the_way[m, n].pop(0)
            count[n] = max(count[n], heard)
            told.append((n, "hears", {"from": m, "heard": heard, "count": count[n]}))
        elif what == 2 and count[n]:
            count[n] = choice // 45 % count[n]
            told.append((n, "falls_back", {"to_count": count[n], "count": count[n]}))
        elif what == 3 and seen[n] < register[1]:
            seen[n] = register[1]
            told.append((n, "reads", {"version": seen[n]}))
        elif what == 4 and seen[n] == register[1] and count[n] > register[0]:
            register = [count[n], register[1] + 1]
            seen[n] = register[1]
            told.append((n, "writes", {"version": seen[n]}))
    return happened(*told)


VALIDATOR = Validator(CountersConformance)
RUNS = st.lists(st.integers(0, 5 * 9 * 3 - 1), min_size=1, max_size=60).map(a_run).filter(bool)


@given(RUNS, st.none() | st.integers(0, 9))
def test_what_happened_is_accepted_in_every_order_that_its_causes_allow(
    trace: list[Event], shuffle: int | None
) -> None:
    verdict = VALIDATOR.validate("it", trace, shuffle)
    assert verdict.accepted, (verdict.problem, verdict.refusals)
    places = {(event.node, event.seq): place for place, (event, _, _) in enumerate(verdict.path) if event}
    for (node, seq), place in places.items():
        assert places.get((node, seq - 1), -1) < place


@given(RUNS, st.data())
def test_a_count_that_is_wrong_is_found(trace: list[Event], data: st.DataObject) -> None:
    counts = [place for place, event in enumerate(trace) if "count" in event.parameters]
    if not counts:
        return
    place = data.draw(st.sampled_from(counts))
    event = trace[place]
    wrong = Event(
        event.node, 1, event.seq, event.action, "it", {**event.parameters, "count": event.parameters["count"] + 1}
    )
    verdict = VALIDATOR.validate("it", [*trace[:place], wrong, *trace[place + 1 :]])
    assert not verdict.accepted
    assert wrong in [refusal.event for refusal in verdict.refusals] or verdict.problem


def test_it_knows_nothing_of_the_store() -> None:
    import subprocess
    import sys

    program = (
        "import sys, fencepost.traces.validation.validate; print([name for name in sys.modules if"
        " name.startswith(('fencepost.ledger', 'fencepost.protocols', 'pyspark'))])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
