"""Values that look alike stay different: classes of one name, 1 and True. Every engine distinguishes them, or says why
it cannot.
"""

from __future__ import annotations

import enum
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import (
    Map,
    Message,
    ModelValue,
    NotAProtocol,
    Protocol,
    Record,
    action,
    invariant,
    network,
    one_of,
    per_key,
    require,
    state,
    table,
)
from fencepost.behaviours import to_itf
from fencepost.behaviours.json import behaviour, dumps
from fencepost.behaviours.path import path_of
from fencepost.behaviours.reading import read, replayed
from fencepost.language.decoding import decode
from fencepost.language.values import NotAValue, encode, order_key
from fencepost.semantics import Stepper
from fencepost.semantics.state import ValueTable

ENGINES = ("reference", "embedded")
A, B = ModelValue("a"), ModelValue("b")


class Bookie:
    class State(enum.Enum):
        OPEN = 1

    class Entry(Record):
        id: int

    class Add(Message):
        id: int


class Client:
    class State(enum.Enum):
        OPEN = 1

    class Entry(Record):
        id: int

    class Add(Message):
        id: int


class Namesakes(Protocol):
    """Values of two enums of one name, and of two records of one name: five states. The invariant is false in two."""

    held: object = state(None)

    @action
    def hold(self) -> None:
        require(self.held is None)
        self.held = one_of((Bookie.State.OPEN, Client.State.OPEN, Bookie.Entry(1), Client.Entry(1)))

    @invariant
    def only_of_bookies(self) -> bool:
        return self.held not in (Client.State.OPEN, Client.Entry(1))


class Zeros(Protocol):
    """Two zeros, in every place for a value. Each step turns one into the other."""

    zero: float = state(0.0)
    pair: object = state((1, 0.0))
    seen: frozenset[float] = state(frozenset({0.0}))
    entry: object = state(Bookie.Entry(0.0))  # type: ignore[arg-type]
    named: Any = state(Map({"a": 0.0}))

    @action(which=range(5))
    def turn(self, which: int) -> None:
        match which:
            case 0:
                self.zero = -self.zero
            case 1:
                self.pair = (1, -self.pair[1])  # type: ignore[index]
            case 2:
                self.seen = frozenset(-one for one in self.seen)
            case 3:
                self.entry = Bookie.Entry(-self.entry.id)  # type: ignore[attr-defined]
            case 4:
                self.named = self.named.set("a", -self.named["a"])

    @invariant
    def some_zero_is_positive(self) -> bool:
        zeros = (self.zero, self.pair[1], *self.seen, self.entry.id, self.named["a"])  # type: ignore[index, attr-defined]
        return any(str(one) == "0.0" for one in zeros)


class NamesakesOnTheWay(Protocol):
    """Two kinds of messages with one name, sent or not: four states. Both are in flight in one, not the initial one."""

    net = network({Bookie.Add: (A, B), Client.Add: (A, B)})

    @action(kind=(True, False))
    def send(self, kind: bool) -> None:
        message = Bookie.Add(1) if kind else Client.Add(1)
        require(not self.net.in_flight(type(message), A, B))
        self.net.send(message, A, B)

    @invariant
    def never_both(self) -> bool:
        return not (self.net.in_flight(Bookie.Add, A, B) and self.net.in_flight(Client.Add, A, B))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("checking", [False, True])
def test_classes_of_one_name_are_told_apart(engine: str, checking: bool) -> None:
    result = fencepost.check(Namesakes(), engine=engine, checking=checking, keep_going=True)
    assert result.distinct_states == 5
    assert result.verdict == "only_of_bookies"


@pytest.mark.parametrize("engine", ENGINES)
def test_kinds_of_messages_of_one_name_do_not_cancel(engine: str) -> None:
    result = fencepost.check(NamesakesOnTheWay(), engine=engine, keep_going=True)
    assert result.distinct_states == 4
    trace = result.must_violate("never_both")
    assert len(trace.steps[-1].state.variables()["net"]) == 2


def _module(name: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    text = (
        "import enum, fencepost\nclass State(enum.Enum):\n    OPEN = 1\nclass Entry(fencepost.Record):\n    id: int\n"
    )
    exec(text, module.__dict__)
    return module


def test_classes_of_two_modules_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = _module("one", monkeypatch), _module("other", monkeypatch)
    makers: list[Callable[[Any], object]] = [lambda module: module.State.OPEN, lambda module: module.Entry(1)]
    for made in makers:
        assert encode(made(one)) != encode(made(other))
        assert order_key(made(one)) != order_key(made(other))


@pytest.mark.parametrize(
    "value",
    [Bookie.State.OPEN, Client.Entry(3), 1 << 20_000, -(1 << 20_000), "\ud800", 1 << 63, -(1 << 63)],
    ids=map(str, range(7)),
)
def test_what_is_encoded_is_decoded(value: object) -> None:
    from fencepost.checker.engines.checkpoint import names_of

    assert decode(encode(value), names_of(ValueTable(Namesakes()))) == value


def test_a_combination_of_flags_is_decoded() -> None:
    from fencepost.checker.engines.checkpoint import names_of

    named = names_of(ValueTable(Namesakes()))
    for flags in (Rights(0), Rights.READ, Rights.READ | Rights.WRITE):
        assert decode(encode(flags), named) is flags


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


def _made_twice() -> Any:
    class Status(enum.Enum):
        OPEN = 1

    return Status


class OneNameTwice(Protocol):
    kinds = (_made_twice(), _made_twice())
    held: object = state(None)

    @action(number=(0, 1))
    def hold(self, number: int) -> None:
        self.held = self.kinds[number].OPEN


@pytest.mark.parametrize("engine", ENGINES)
def test_classes_that_no_name_tells_apart_are_refused(engine: str) -> None:
    result = fencepost.check(OneNameTwice(), engine=engine)
    assert result.verdict == "raised"
    assert "Status cannot be told apart by name: give one of them a name of its own" in str(result.error)


class Numbered(Message):
    number: object


class ByTopic(Message):
    topic = "number"
    number: object


class NumbersOnTheWay(Protocol):
    kind: Any = Numbered
    net = network({Numbered: (A, B), ByTopic: (A, B)})

    @action(number=(1, 2))
    def send(self, number: int) -> None:
        message = self.kind(True if number == 2 else 1)
        require(not self.net.is_known(message, A, B))
        self.net.send(message, A, B)


class TopicsOnTheWay(NumbersOnTheWay):
    kind = ByTopic

    @invariant
    def each_on_its_topic(self) -> bool:
        return all(type(m.number) is type(n) for n in (1, True) for m in self.net.in_flight(ByTopic, A, B, topic=n))


@pytest.mark.parametrize("engine", ENGINES)
def test_messages_that_python_takes_for_equal_are_two(engine: str) -> None:
    assert Numbered(1) != Numbered(True)
    assert fencepost.check(NumbersOnTheWay(), engine=engine).must_hold().distinct_states == 4


@pytest.mark.parametrize("engine", ENGINES)
def test_topics_that_python_takes_for_equal_are_two(engine: str) -> None:
    assert fencepost.check(TopicsOnTheWay(), engine=engine).must_hold().distinct_states == 4


class Keyed(Protocol):
    held = table({1: "one"})

    @action
    def write(self) -> None:
        assert True not in self.held
        self.held[True] = "yes"


@pytest.mark.parametrize("engine", ENGINES)
def test_keys_of_a_table_that_python_takes_for_equal_are_refused(engine: str) -> None:
    result = fencepost.check(Keyed(), engine=engine)
    assert result.verdict == "raised"
    assert "True and 1 are two values, but one key of held: Python takes them for equal" in str(result.error)


def test_keys_of_a_map_that_python_takes_for_equal_are_refused() -> None:
    class Declared(Protocol):
        held = per_key((0, 1, True), 0)

    with pytest.raises((NotAProtocol, TypeError), match="True and 1 are two values, but one key of per_key"):
        Declared()


def test_a_checkpoint_keeps_keys_that_read_the_same_apart(tmp_path: Path) -> None:
    class ReadTheSame(Protocol):
        held = table({})

        @action(key=(1, "1"))
        def write(self, key: object) -> None:
            self.held[key] = (self.held.get(key) or 0) + 1
            require(self.held[key] < 6)

    whole = fencepost.check(ReadTheSame(), engine="embedded")
    fencepost.check(ReadTheSame(), engine="embedded", max_depth=4, checkpoint=tmp_path)
    resumed = fencepost.check(ReadTheSame(), engine="embedded", resume=tmp_path)
    assert (
        (resumed.distinct_states, resumed.generated_states)
        == (whole.distinct_states, whole.generated_states)
        == (36, 61)
    )


class Counted(Record):
    """A record with its own check, which does not call the check of its base class."""

    number: int = 0

    def __post_init__(self) -> None:
        assert self.number >= 0


class CountsInPlace(Protocol):
    held: Any = state((Counted(),))

    @action
    def count(self) -> None:
        counted = self.held[0]
        counted.number += 1
        self.held = (counted,)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_value_of_a_state_is_not_changed_in_place(engine: str) -> None:
    result = fencepost.check(CountsInPlace(), engine=engine)
    assert result.verdict == "raised"
    assert "a Counted is an immutable value: make a changed copy with .replace(number=...)" in str(result.error)


class KeyedByOne(Protocol):
    held = per_key((1, 2), 0)

    @action
    def write(self) -> None:
        assert True not in self.held
        self.held[True] = 1


class AssignedByTrue(Protocol):
    held = per_key((1, 2), 0)

    @action
    def write(self) -> None:
        self.held = {True: 1, 2: 2}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_python_takes_for_a_key_of_a_map_is_none(engine: str) -> None:
    assert "True is not a key of held (1, 2)" in str(fencepost.check(KeyedByOne(), engine=engine).error)
    assert "where a map over {1, 2} belongs" in str(fencepost.check(AssignedByTrue(), engine=engine).error)


class AssignedAsAWhole(Protocol):
    held = table({1: "one"})

    @action
    def write(self) -> None:
        self.held = one_of((Map({True: "yes"}), Map({1: "one"})))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_is_assigned_keys_that_python_takes_for_equal_to_its_own(engine: str) -> None:
    assert fencepost.check(AssignedAsAWhole(), engine=engine).must_hold().distinct_states == 2


@pytest.mark.parametrize("name", ["__eq__", "__hash__"])
def test_a_record_has_no_equality_of_its_own(name: str) -> None:
    with pytest.raises(NotAValue, match=f"record Vote defines {name}, but records are equal by class and content"):
        type("Vote", (Record,), {"__annotations__": {"by": int}, name: lambda self, *others: 1})


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
def test_the_two_zeros_are_two_values(engine: str) -> None:
    result = fencepost.check(Zeros(), engine=engine, keep_going=True)
    assert (result.distinct_states, result.generated_states, result.depth) == (32, 1 + 32 * 5, 6)
    trace = result.must_violate("some_zero_is_positive")
    assert [repr(value) for value in trace.states[-1].variables().values()] == [
        "-0.0", "(1, -0.0)", "{-0.0}", "Entry(id=-0.0)", "{'a': -0.0}",
    ]  # fmt: skip
    written = dumps(behaviour(trace)["trace"][-1]["state"])
    assert written == '{"zero":-0.0,"pair":[1,-0.0],"seen":[-0.0],"entry":{"id":-0.0},"named":{"a":-0.0}}'
    again = replayed(read(dumps(behaviour(trace))), Stepper(Zeros()))
    assert [step.title for step in again.steps] == [step.title for step in trace.steps]
    assert path_of(again) == path_of(trace)
    assert {"#unserializable": "-0.0"} in [state["zero"] for state in json.loads(to_itf(trace))["states"]]
    assert [str(change[2]) for change in trace.steps[0].changes] == ["-0.0"]


def test_a_key_is_one_zero_only() -> None:
    class Keyed(Protocol):
        held: Any = table({0.0: 1})

        @action
        def put(self) -> None:
            self.held[-0.0] = 2

    error = fencepost.check(Keyed(), engine="reference").error
    assert "-0.0 and 0.0 are two values, but one key of held: Python takes them for equal" in str(error)
