"""Validation of traces that leave steps, parameters and choices out."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

import pytest
import traces.buffers
from hypothesis import given, settings
from hypothesis import strategies as st
from traces.buffers import Buffers, BuffersConformance, conformance, happened

from fencepost import (
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    action,
    constant,
    initial,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.errors import ProtocolRaised
from fencepost.semantics import State, Stepper
from fencepost.semantics.state import ValueTable
from fencepost.traces.validation import ANY, Conformance, Event, Step, like
from fencepost.traces.validation.conformance import _is_unseen
from fencepost.traces.validation.search import FOR_EACH
from fencepost.traces.validation.validate import Validator
from fencepost.traces.validation.verdict import Verdict

ALL = ("puts", "takes", "asks", "message_is_lost", "server_crashes", "server_restarts")


Told = tuple[str, dict[str, Any]]


def verdict(*told: Told, unsaid: Iterable[str] = BuffersConformance.unsaid) -> Verdict:
    return Validator(conformance(*unsaid)).validate("it", happened(*told))


def path(found: Verdict) -> list[str]:
    return [f"{'' if event else '+'}{step.title}" for event, step, _ in found.path]


# -- what is left out -------------------------------------------------------------------------------------------------


def test_a_hidden_step_is_found_where_it_matters() -> None:
    found = verdict(
        ("puts", {"w": "w1", "put": 1}), ("puts", {"w": "w1", "put": 3}), ("takes", {"w": "w1"}),
        ("asks", {"w": "w2", "seen": 3}),
    )  # fmt: skip
    assert found.accepted
    assert path(found) == ["puts(w=w1)", "puts(w=w1)", "+message_is_lost(w=w1)", "takes(w=w1)", "asks(w=w2)"]
    assert (found.taken, found.hidden, found.steps) == (4, 1, 4)


def test_some_in_a_row() -> None:
    seen: list[Told] = [("puts", {"w": "w1", "put": 3}), ("takes", {"w": "w1"}), ("asks", {"w": "w1", "seen": 0})]
    found = verdict(*seen)
    assert path(found) == ["puts(w=w1)", "takes(w=w1)", "+server_crashes()", "+server_restarts()", "asks(w=w1)"]
    assert not verdict(*seen, unsaid=["server_crashes"]).accepted
    assert not verdict(*seen, unsaid=[]).accepted


def test_more_in_a_row_than_are_tried() -> None:
    asked = ("asks", {"w": "w1", "seen": 3})
    assert verdict(asked, unsaid=["puts", "takes"]).accepted
    four = ("asks", {"w": "w1", "seen": 5})
    assert FOR_EACH == 3
    assert not verdict(four, unsaid=["puts", "takes"]).accepted  # 3, 1 and 1: two steps each


def test_what_was_put_is_found_by_what_was_seen_later() -> None:
    found = verdict(
        ("puts", {"w": "w1", "put": None}), ("puts", {"w": "w1", "put": None}), ("takes", {"w": "w1"}),
        ("takes", {"w": "w1"}), ("asks", {"w": "w1", "seen": 4}),
        unsaid=[],
    )  # fmt: skip
    assert found.accepted
    assert [step.picks for _, step, _ in found.path][:2] == [(1,), (3,)]
    assert not verdict(("puts", {"w": "w1", "put": None}), ("takes", {"w": "w2"}), unsaid=[]).accepted


def test_who_acted_is_found() -> None:
    found = verdict(
        ("puts", {"w": "w2", "put": 1}), ("takes", {"w": "somebody"}), ("asks", {"w": "w1", "seen": 1}), unsaid=[]
    )
    assert path(found) == ["puts(w=w2)", "takes(w=w2)", "asks(w=w1)"]


def test_what_a_trace_tells_itself_is_not_hidden_by_default() -> None:
    class Usual(BuffersConformance):
        hidden = Conformance.hidden

    def hidden(*told: Told) -> list[str]:
        return path(Validator(Usual).validate("it", happened(*told)))

    lost: list[Told] = [("puts", {"w": "w1", "put": 1}), ("puts", {"w": "w1", "put": 3}), ("takes", {"w": "w1"})]
    assert hidden(*lost, ("asks", {"w": "w1", "seen": 3}))[2] == "+message_is_lost(w=w1)"
    told: list[Told] = [*lost, ("asks", {"w": "w1", "seen": 3}), ("message_is_lost", {"w": "w2"})]
    assert not Validator(Usual).validate("it", happened(*told)).accepted


@pytest.mark.parametrize(
    "action",
    ["lose", "LoseMessage", "message_is_lost", "server_crashes", "Crash", "TimeOut", "times_out", "RPCTimeout"],
)
def test_names_of_what_systems_do_not_report(action: str) -> None:
    assert _is_unseen(action)


@pytest.mark.parametrize("action", ["close", "Closed", "time", "out", "reads", "Timeless", "dropped_by"])
def test_other_names(action: str) -> None:
    assert not _is_unseen(action)


def test_what_was_done_is_found() -> None:
    class Anything(BuffersConformance):
        def steps(self, event: Event) -> Iterable[Step]:
            yield Step(ANY, after=((("total",), event.parameters["total"]),))

    found = Validator(Anything).validate("it", happened(("", {"total": 0}), ("", {"total": 3})))
    assert path(found) == ["puts(w=w1)", "takes(w=w1)"]


class Dice(Protocol):
    """A number that nobody knows at first."""

    name = "dice"
    number: int = state(0)

    @initial
    def rolls(self) -> None:
        self.number = one_of(range(1, 7))

    @action
    def turns(self) -> None:
        self.number = 7 - self.number


class DiceConformance(BuffersConformance):
    """An event tells the number."""

    protocol = Dice
    unsaid = ()

    def bind(self, protocol: Protocol) -> None:
        """There is nothing to bind."""

    def steps(self, event: Event) -> Iterable[Step]:
        yield Step("turns", after=((("number",), event.parameters["number"]),))


def test_each_initial_state_is_tried() -> None:
    found = Validator(DiceConformance).validate("it", happened(("", {"number": 3}), ("", {"number": 4})))
    assert found.accepted
    assert found.replayer is not None
    assert found.replayer.value(found.start, ("number",)) == 4
    found = Validator(DiceConformance).validate("it", happened(("", {"number": 3}), ("", {"number": 5})))
    assert (found.accepted, found.taken, len(found.fronts)) == (False, 1, 1)
    found = Validator(DiceConformance).validate("it", happened(("", {"number": 9})))
    assert [front.refusals[0].why.reason for front in found.fronts] == [
        f"number is {number} then, and the trace says 9" for number in (6, 5, 4, 3, 2, 1)
    ]


def test_what_was_before_anything_was_open_is_not_taken_back() -> None:
    said: list[Told] = [("puts", {"w": "w1", "put": 1}), ("takes", {"w": "w1"}), ("asks", {"w": "w1", "seen": 1})]
    found = verdict(*said, ("puts", {"w": "w2", "put": None}), ("asks", {"w": "w2", "seen": 4}), unsaid=[])
    assert (found.accepted, found.taken, len(found.fronts)) == (False, 4, 2)
    for front in found.fronts:
        row = list(front.start)
        for _, _, taken in front.path:
            found.replayer.apply(row, taken.writes)  # type: ignore[union-attr]
        assert row == front.row
    assert verdict(
        *said, ("puts", {"w": "w2", "put": None}), ("takes", {"w": "w2"}), ("asks", {"w": "w2", "seen": 4}), unsaid=[]
    ).accepted


# -- what is said when nothing fits -----------------------------------------------------------------------------------


def test_each_front_is_explained() -> None:
    found = verdict(
        ("puts", {"w": "w1", "put": None}), ("takes", {"w": "w1"}), ("asks", {"w": "w1", "seen": 2}), unsaid=[]
    )
    assert [[r.why.reason for r in front.refusals] for front in found.fronts] == [
        [f"seen.w1 is {number} then, and the trace says 2"] for number in (1, 3)
    ]
    assert found.refusals == found.fronts[0].refusals
    assert found.taken == 2


def test_only_so_many_steps_are_tried() -> None:
    validator = Validator(conformance("puts", "takes", "message_is_lost"), most_tried=100)
    found = validator.validate("it", happened(("asks", {"w": "w1", "seen": 100})))
    assert (found.accepted, found.undecided, found.covered) == (False, True, True)
    assert found.problem.startswith("100 steps were tried in vain")
    assert [r.why.reason for r in found.refusals] == ["seen.w1 is 0 then, and the trace says 100"]


def test_a_hidden_step_that_is_none_is_raised() -> None:
    with pytest.raises(ProtocolRaised, match="buffers has no action put"):
        verdict(("takes", {"w": "w1"}), unsaid=["put"])

    class Typo(BuffersConformance):
        def hidden(self, protocol: Protocol) -> Iterable[Step]:
            return [Step("takes", (("writer", 1),))]

    with pytest.raises(ProtocolRaised, match="action takes has the parameters w, and the conformance gives w, writer"):
        Validator(Typo).validate("it", happened(("takes", {"w": "w1"})))


# -- losses -----------------------------------------------------------------------------------------------------------


class Ping(Message):
    """A ping."""


class Pings(Protocol):
    """Nodes ping each other over a network that loses messages."""

    name = "pings"
    nodes: tuple[ModelValue, ...] = model_values("n", 2)
    heard: PerKey[ModelValue, int] = per_key(nodes, 0)
    network: Network = network({Ping: (nodes, nodes)}, lossy=True)

    @action(n=nodes, m=nodes)
    def pings(self, n: ModelValue, m: ModelValue) -> None:
        self.network.send(Ping(), n, m)

    @action(n=nodes, m=nodes)
    def hears(self, n: ModelValue, m: ModelValue) -> None:
        self.network.receive(Ping, source=m, to=n)
        self.heard[n] += 1

    @action(n=nodes, m=nodes)
    def gives_up(self, n: ModelValue, m: ModelValue) -> None:
        require(len(self.network.lost(Ping, n, m)) > 0)
        self.network.forget_lost(Ping, n, m)


class PingsConformance(Conformance):
    """Events have the names of actions."""

    name = "pings"
    protocol = Pings

    def constants(self) -> dict[str, Any]:
        return {}

    def bind(self, protocol: Protocol) -> None:
        assert isinstance(protocol, Pings)
        self.n = {str(node): node for node in protocol.nodes}

    def steps(self, event: Event) -> Iterable[Step]:
        yield Step(event.action, (("n", self.n[event.node]), ("m", self.n[event.parameters["to"]])))


@pytest.mark.parametrize("last", ["hears", "gives_up", "nothing"])
def test_whether_a_message_is_lost_need_not_be_said(last: str) -> None:
    events = [Event("n1", 1, 1, "pings", "it", {"to": "n2"})]
    if last == "hears":
        events.append(Event("n2", 1, 1, "hears", "it", {"to": "n1"}))
    if last == "gives_up":
        events.append(Event("n1", 1, 2, "gives_up", "it", {"to": "n2"}))
    assert Validator(PingsConformance).validate("it", events).accepted
    if last != "nothing":
        both = [
            *events,
            Event("n1", 1, 3, "gives_up", "it", {"to": "n2"}),
            Event("n2", 1, 2, "hears", "it", {"to": "n1"}),
        ]
        assert not Validator(PingsConformance).validate("it", both).accepted


class Rung(Message):
    """A ring of a bell."""

    number: int
    loud: bool


class Bells(Protocol):
    """A node rings at others, over a network that loses messages."""

    name = "bells"
    nodes: tuple[ModelValue, ...] = model_values("n", 2)
    numbers: range = range(30)
    lossy: bool = constant(True)
    ordered: bool = constant(False)
    timeouts: bool = constant(True)
    heard: PerKey[ModelValue, int] = per_key(nodes, 0)
    network: Network = network({Rung: (nodes, nodes)}, lossy=lossy, ordered=ordered, timeouts=timeouts)

    @action(n=nodes, m=nodes, number=numbers)
    def rings(self, n: ModelValue, m: ModelValue, number: int) -> None:
        self.network.send(Rung(number, one_of((False, True))), n, m)

    @action(n=nodes)
    def hears(self, n: ModelValue) -> None:
        rung = self.network.receive(Rung, to=n).message
        self.heard[n] += 2 if rung.loud else 1

    @action(n=nodes, m=nodes)
    def finds_nothing(self, n: ModelValue, m: ModelValue) -> None:
        require(not self.network.in_flight(Rung, m, n))

    @action(n=nodes, m=nodes, number=numbers)
    def misses(self, n: ModelValue, m: ModelValue, number: int) -> None:
        require(not self.network.is_known(Rung(number, True), m, n))


class BellsConformance(Conformance):
    """What is heard is said by its number alone."""

    name = "bells"
    protocol = Bells

    def bind(self, protocol: Protocol) -> None:
        assert isinstance(protocol, Bells)
        self.n = {str(node): node for node in protocol.nodes}

    def steps(self, event: Event) -> Iterable[Step]:
        n, said = self.n[event.node], event.parameters
        if event.action == "rings":
            to = self.n["n1" if event.node == "n2" else "n2"]
            yield Step("rings", (("n", n), ("m", to), ("number", said["number"])), picks=(said["loud"],), sends=("it",))
        elif event.action == "hears":
            picks = (self.n["n1"], *([like(number=said["number"])] if "number" in said else []))
            yield Step("hears", (("n", n),), picks, receives="it", after=((("heard", n), said["heard"]),))
        elif event.action == "misses":
            yield Step("misses", (("n", self.n["n2"]), ("m", n), ("number", said["number"])))
        else:
            yield Step("finds_nothing", (("n", self.n["n2"]), ("m", n)))


def rung(*told: tuple[bool, int]) -> list[Event]:
    """Rings of ``n1``: each whether it is loud, and its number."""
    return [
        Event("n1", 1, seq, "rings", "it", {"loud": loud, "number": number})
        for seq, (loud, number) in enumerate(told, 1)
    ]


class LosslessConformance(BellsConformance):
    """Nothing is lost."""

    def constants(self) -> dict[str, Any]:
        return {"lossy": False}


class OrderedConformance(BellsConformance):
    """What was sent first is heard first."""

    def constants(self) -> dict[str, Any]:
        return {"ordered": True}


def bells(events: list[Event], of: type[Conformance] = BellsConformance, **parameters: Any) -> Verdict:
    """What ``n2`` hears after the events, or that ``n1`` finds nothing in flight after them."""
    last = (
        Event("n2", 1, 1, "hears", "it", parameters)
        if parameters
        else Event("n1", 1, len(events) + 1, "finds", "it", {})
    )
    return Validator(of).validate("it", [*events, last])


@pytest.mark.parametrize("heard", [1, 2])
def test_where_several_options_match_a_pick_each_is_tried(heard: int) -> None:
    both = rung((False, 7), (True, 7))
    assert bells(both, LosslessConformance, number=7, heard=heard).accepted
    assert not bells(both, LosslessConformance, number=7, heard=3).accepted


def test_losses_that_cannot_help_are_not_tried() -> None:
    found = bells(rung(*[(False, number) for number in range(30)]), number=7, heard=2)
    assert (found.accepted, found.undecided) == (False, False)
    assert found.problem == ""


def test_losses_are_tried_where_a_step_looks_at_what_is_in_flight() -> None:
    assert bells(rung((False, 7), (True, 8))).accepted


@pytest.mark.parametrize("timeouts", [True, False])
@pytest.mark.parametrize("lossy", [True, False])
def test_losses_are_tried_where_a_step_asks_whether_a_message_is_known(timeouts: bool, lossy: bool) -> None:
    """It is in flight as long as none is tried, so nothing else looks. With timeouts, what is lost is known too."""

    class Asking(BellsConformance):
        def constants(self) -> dict[str, Any]:
            return {"timeouts": timeouts, "lossy": lossy}

    events = [*rung((True, 7)), Event("n1", 1, 2, "misses", "it", {"number": 7})]
    found = Validator(Asking).validate("it", events)
    assert (found.accepted, found.undecided) == (lossy and not timeouts, False)


def test_losses_are_tried_where_a_message_waits_behind_another() -> None:
    assert bells(rung((False, 7), (True, 8)), OrderedConformance, number=8, heard=2).accepted


def test_losses_are_tried_where_they_leave_one_option() -> None:
    assert bells(rung((False, 7), (True, 8)), heard=1).accepted
    assert bells(rung((False, 7), (True, 8)), heard=2).accepted


# -- against a plain twin ---------------------------------------------------------------------------------------------


class Twin:
    """All states that the protocol can be in after each event, with up to ``most`` hidden steps before each."""

    def __init__(self, protocol: type[Protocol] = Buffers) -> None:
        self.stepper = Stepper(protocol(), invariants=["none"])
        self.roots = self.stepper.of_kind("action")
        self.known: dict[Any, list[tuple[Any, ...]]] = {}

    def initial(self) -> tuple[Any, ...]:
        (state,) = self.stepper.initial_states()
        return state.ids

    def after(self, ids: tuple[Any, ...], root: Any) -> list[tuple[Any, ...]]:
        key = ids, root.index
        if key not in self.known:
            self.known[key] = [self.stepper.apply(ids, each) for each in self.stepper.outcomes(root, ids)]
        return self.known[key]

    def steps(self, ids: tuple[Any, ...], event: Event) -> Iterable[tuple[Any, ...]]:
        told = event.parameters
        for root in self.roots:
            who = {str(value) for value in root.parameters.values()}
            if root.name != event.action or ("w" in told and told["w"] != "somebody" and told["w"] not in who):
                continue
            for after in self.after(ids, root):
                if told.get("put") and self.of_writer(after, "box")[told["w"]][-1] != told["put"]:
                    continue
                if "seen" in told and self.of_writer(after, "seen")[told["w"]] != told["seen"]:
                    continue
                yield after

    def accepts(self, events: list[Event], unsaid: Iterable[str], most: int) -> bool:
        """Whether the trace can be followed with at most ``most`` hidden steps in all."""
        hidden = [root for root in self.roots if root.name in unsaid]
        fewest = {self.initial(): 0}
        for event in events:
            edge = list(fewest)
            while edge:
                longer = {
                    after: fewest[ids] + 1
                    for ids in sorted(edge, key=fewest.__getitem__, reverse=True)  # the smallest stays
                    if fewest[ids] < most
                    for root in hidden
                    for after in self.after(ids, root)
                }
                edge = [after for after, used in longer.items() if used < fewest.get(after, most + 1)]
                fewest |= {after: longer[after] for after in edge}
            followed: dict[tuple[Any, ...], int] = {}
            for ids, used in fewest.items():
                for after in self.steps(ids, event):
                    followed[after] = min(used, followed.get(after, used))
            fewest = followed
        return bool(fewest)

    def walk(self, chance: Random, length: int) -> list[Told]:
        """The events of a behaviour."""
        ids, told = self.initial(), list[Told]()
        for _ in range(length):
            root, after = chance.choice([(root, after) for root in self.roots for after in self.after(ids, root)])
            parameters: dict[str, Any] = {name: str(value) for name, value in root.parameters.items()}
            if root.name == "puts":
                (new,) = (self.of_writer(after, "box")[parameters["w"]] or (None,))[-1:]
                parameters["put"] = new
            if root.name == "asks":
                parameters["seen"] = self.of_writer(after, "seen")[parameters["w"]]
            told.append((root.name, parameters))
            ids = after
        return told

    def of_writer(self, ids: tuple[Any, ...], variable: str) -> dict[str, Any]:
        return _of_writer(self.stepper.store, ids, variable)


@cache
def _of_writer(store: ValueTable, ids: tuple[Any, ...], variable: str) -> dict[str, Any]:
    return {str(writer): held for writer, held in State(store, ids).variables()[variable].items()}


TWIN = Twin()


@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_it_finds_what_a_plain_search_finds(chance: Random) -> None:
    unsaid = chance.sample(ALL, chance.randrange(1, 4))
    events = [(name, dict(told)) for name, told in TWIN.walk(chance, chance.randrange(2, 14)) if name not in unsaid]
    for name, told in events:
        if chance.random() < 0.3 and name == "puts":
            told["put"] = None
        if chance.random() < 0.2 and name == "takes":
            told["w"] = "somebody"
        if chance.random() < 0.1 and "seen" in told:
            told["seen"] += chance.choice((-1, 1))
    trace = happened(*events)
    if not trace:
        return
    found = Validator(conformance(*unsaid)).validate("it", trace)
    assert not found.undecided
    if found.accepted:
        assert TWIN.accepts(trace, unsaid, 3 * len(trace))
        row = found.replayer.initial() if found.replayer else []
        for _, _, taken in found.path:
            found.replayer.apply(row, taken.writes)  # type: ignore[union-attr]
        assert found.replayer.store.normal(row) == found.replayer.store.normal(found.row)  # type: ignore[union-attr]
    else:
        assert not TWIN.accepts(trace, unsaid, FOR_EACH)
        assert found.refusals
        assert found.taken < found.steps


# -- planted faults ---------------------------------------------------------------------------------------------------

PUT, ADD, TAKE, SEE = (
    "self.box[w] = (*self.box[w], one_of((1, 3)))",
    "self.total += self.box[w][0]",
    "self.box[w] = self.box[w][1:]",
    "self.seen[w] = self.total",
)
OTHER = "next(each for each in self.writers if each != w)"
FAULTS = {
    "puts": {
        "too many": ("require(len(self.box[w]) < MOST)", "require(len(self.box[w]) <= MOST)"),
        "any number of them": ("require(len(self.box[w]) < MOST)", "require(len(self.box[w]) < 9)"),
        "in front": (PUT, "self.box[w] = (one_of((1, 3)), *self.box[w])"),
        "and one more": (PUT, "self.box[w] = (*self.box[w], 1, one_of((1, 3)))"),
        "another number": (PUT, "self.box[w] = (*self.box[w], one_of((1, 2, 3)))"),
        "and adds it up": (PUT, f"{PUT}; self.total += 1"),
        "into the other box": (PUT, f"self.box[{OTHER}] = (3,); {PUT}"),
    },
    "takes": {
        "up to six": ("< 6", "< 7"),
        "up to nine": ("< 6", "< 10"),
        "the last": (ADD, "self.total += self.box[w][-1]"),
        "one more": (ADD, "self.total += self.box[w][0] + 1"),
        "twice": (ADD, "self.total += 2 * self.box[w][0]"),
        "a one": (ADD, "self.total += 1"),
        "all of them": (ADD, "self.total += sum(self.box[w])"),
        "off the sum": (ADD, "self.total -= self.box[w][0]"),
        "and keeps it": (TAKE, "pass"),
        "and drops the last": (TAKE, "self.box[w] = self.box[w][:-1]"),
        "and gives it to the other": (TAKE, f"self.box[{OTHER}] = self.box[w]; {TAKE}"),
    },
    "asks": {
        "while it is down": ("require(self.up)", "self.total = 0 if self.up else 4"),
        "one more": (SEE, "self.seen[w] = self.total + 1"),
        "one less": (SEE, "self.seen[w] = self.total - 1"),
        "the highest": (SEE, "self.seen[w] = max(self.seen[w], self.total)"),
        "for the other": (SEE, f"self.seen[{OTHER}] = self.total"),
        "with what is in the box": (SEE, "self.seen[w] = self.total + len(self.box[w])"),
        "and adds one": (SEE, f"{SEE}; self.total += 1"),
    },
    "message_is_lost": {
        "and comes twice": (TAKE, "self.box[w] = (self.box[w][0], *self.box[w])[:MOST]"),
        "and is another": (TAKE, "self.box[w] = (4 - self.box[w][0], *self.box[w][1:])"),
        "and counts": (TAKE, f"{TAKE}; self.total += 1"),
    },
    "server_crashes": {"with a one": ("self.total = 0", "self.total = 1")},
    "server_restarts": {"with a two": ("self.up = True", "self.up = True; self.total = 2")},
}
"""Faults by the action that has them: what they replace, and by what. None
looks like a loss or a crash, which are hidden.
"""


def planted(action: str, before: str, after: str) -> type[Protocol]:
    """The protocol with a fault in one action."""
    begin, head, rest = inspect.getsource(Buffers).partition(f"def {action}(")
    body, end, others = rest.partition("@action")
    assert before in body
    source = "".join((begin, head, body.replace(before, after), end, others))
    made = {**vars(traces.buffers)}
    exec(source, made)
    faulty: type[Protocol] = made["Buffers"]
    return faulty


@pytest.mark.parametrize(("action", "fault"), [(action, fault) for action, some in FAULTS.items() for fault in some])
def test_a_planted_fault_is_rejected_though_steps_are_hidden(action: str, fault: str) -> None:
    faulty, hidden = Twin(planted(action, *FAULTS[action][fault])), BuffersConformance.unsaid
    for seed in range(400):
        trace = happened(*[each for each in faulty.walk(Random(seed), 16) if each[0] not in hidden])
        found = Validator(conformance(*hidden)).validate("it", trace)
        assert not found.undecided
        if trace and not found.accepted:
            assert not TWIN.accepts(trace, hidden, FOR_EACH)
            return
    pytest.fail("no trace of it is rejected")
