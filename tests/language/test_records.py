"""Records and maps over constants: each field and key is a part of the state, read and assigned separately."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any, ClassVar

import pytest
from language.plain import Plain, look, run, ways

from fencepost import (
    FencepostError,
    Map,
    Message,
    ModelValue,
    PerKey,
    Protocol,
    Record,
    Table,
    constant,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    table,
)
from fencepost.language.values import NotAValue, Set


class Status(enum.Enum):
    OPEN = 0
    CLOSED = 1


class Entry(Record):
    id: int
    data: str = ""


class Inner(Record):
    low: int = 0
    high: int = 9

    @property
    def width(self) -> int:
        return self.high - self.low

    def grow(self, by: int) -> None:
        self.high += by

    @staticmethod
    def twice(x: int) -> int:
        return 2 * x

    @classmethod
    def kind(cls) -> str:
        return cls.__name__


class Writer(Record):
    LIMIT: ClassVar[int] = 5
    bare: Inner
    status: Status = Status.OPEN
    inner: Inner = Inner(1, 5)
    entry: Entry | None = None
    acks: PerKey[ModelValue, int] = per_key(lambda p: p.bookies, 0)
    seen: frozenset[int] = frozenset()


class Ledger(Protocol):
    bookies: tuple[ModelValue, ...] = model_values("b", 2)
    first: int = constant(3)
    count: int = state(0)
    writer: Writer = state(Writer)
    other: Inner = state(Inner(7, 8))
    bookie: PerKey[ModelValue, Inner] = per_key(bookies, Inner)
    level: PerKey[ModelValue, PerKey[int, int]] = per_key(bookies, per_key([1, 2], 0))
    computed: PerKey[int, int] = per_key(lambda p: range(p.first), 5)


def fresh(**constants: Any) -> Plain:
    return Plain(Ledger(**constants))


def slots(protocol: Protocol) -> dict[str, Any]:
    return {slot.name: slot.default for name, shape in protocol.shapes.items() for slot in shape.slots((name,))}


def test_a_record_is_a_slot_for_each_leaf() -> None:
    assert slots(Ledger(first=1)) == {
        "count": 0,
        "writer.bare.low": 0,
        "writer.bare.high": 9,
        "writer.status": Status.OPEN,
        "writer.inner.low": 1,
        "writer.inner.high": 5,
        "writer.entry": None,
        "writer.acks.b1": 0,
        "writer.acks.b2": 0,
        "writer.seen": frozenset(),
        "other.low": 7,
        "other.high": 8,
        "bookie.b1.low": 0,
        "bookie.b1.high": 9,
        "bookie.b2.low": 0,
        "bookie.b2.high": 9,
        "level.b1.1": 0,
        "level.b1.2": 0,
        "level.b2.1": 0,
        "level.b2.2": 0,
        "computed.0": 5,
    }


def test_an_assignment_touches_one_slot() -> None:
    b1 = Ledger().bookies[0]
    after = run(fresh(), lambda s: setattr(s.bookie[b1], "low", s.bookie[b1].low + 1))
    assert after.log == [("read", "bookie.b1.low"), ("write", "bookie.b1.low")]
    assert look(after, lambda s: [(b.low, b.high) for b in s.bookie.values()]) == [(1, 9), (0, 9)]


def test_augmented_assignment_of_nested_parts() -> None:
    def body(s: Any) -> None:
        s.count += 2
        s.writer.seen |= {4}
        s.writer.inner.high -= 1
        s.writer.acks[s.bookies[1]] += 3
        s.level[s.bookies[0]][2] = 6

    after = run(fresh(), body)
    assert after.names("write") == ["count", "writer.seen", "writer.inner.high", "writer.acks.b2", "level.b1.2"]
    assert list(after.held.values()) == [2, Set({4}), 4, 3, 6]


def test_a_whole_record_can_be_assigned_from_a_value_and_from_another_part() -> None:
    def body(s: Any) -> None:
        s.writer.inner = Inner(3, 4)
        s.other = s.writer.inner
        s.bookie[s.bookies[0]] = s.other.replace(high=10)

    after = run(fresh(), body)
    assert look(after, lambda s: (s.other.low, s.other.high, s.bookie[s.bookies[0]].high)) == (3, 4, 10)
    # Assignment copies: a change of one does not change the other.
    after = run(after, lambda s: setattr(s.writer.inner, "low", 0))
    assert look(after, lambda s: s.other.low) == 3


def assign_acks(s: Any, acks: Any) -> None:
    s.writer.acks = acks


def test_a_whole_map_can_be_assigned_if_the_keys_are_its_own() -> None:
    b1, b2 = Ledger().bookies
    after = run(fresh(), lambda s: setattr(s.writer, "acks", {b2: 5, b1: 4}))
    assert look(after, lambda s: list(s.writer.acks.items())) == [(b1, 4), (b2, 5)]
    after = run(after, lambda s: setattr(s.writer, "acks", Map({b: n + 1 for b, n in s.writer.acks.items()})))
    assert look(after, lambda s: list(s.writer.acks.values())) == [5, 6]
    for wrong in ({b1: 1}, {b1: 1, b2: 2, ModelValue("b3"): 3}, 7):
        with pytest.raises(NotAValue, match=r"where a map over \{b1, b2\} belongs"):
            run(fresh(), partial(assign_acks, acks=wrong))


def test_records_and_maps_in_the_state_compare_by_value() -> None:
    def question(s: Any) -> list[bool]:
        return [
            s.bookie[s.bookies[0]] == s.bookie[s.bookies[1]],
            s.bookie[s.bookies[0]] == Inner(0, 9),
            Inner(0, 9) == s.bookie[s.bookies[0]],
            s.writer.acks == Map(dict.fromkeys(s.bookies, 0)),
            s.writer.acks == dict.fromkeys(s.bookies, 0),
            s.level[s.bookies[0]] == s.level[s.bookies[1]],
            s.bookie[s.bookies[0]] in {Inner(0, 9)},
            s.writer == s.writer,
        ]

    assert look(fresh(), question) == [True] * 8

    def change(s: Any) -> None:
        s.bookie[s.bookies[0]].low = 1
        s.level[s.bookies[0]][1] = 1

    changed = run(fresh(), change)
    assert look(changed, question) == [False, False, False, True, True, False, False, True]
    both = fresh()
    assert both.state.level == fresh().state.level
    assert (both.state.level != changed.state.level) is True


def test_properties_and_methods_of_a_record_work_in_place() -> None:
    after = run(fresh(), lambda s: s.writer.inner.grow(4))
    assert after.names("write") == ["writer.inner.high"]
    assert look(after, lambda s: s.writer.inner.width) == 8
    assert look(after, lambda s: (s.writer.inner.twice(4), s.writer.inner.kind(), s.writer.LIMIT)) == (8, "Inner", 5)


def test_a_record_as_a_value_is_one_slot_and_is_replaced() -> None:
    after = run(fresh(), lambda s: setattr(s.writer, "entry", Entry(1, "a")))
    assert after.names("write") == ["writer.entry"]
    after = run(after, lambda s: setattr(s.writer, "entry", s.writer.entry.replace(data="b")))
    assert look(after, lambda s: s.writer.entry) == Entry(1, "b")
    with pytest.raises(
        AttributeError, match=r"a Entry is an immutable value: make a changed copy with \.replace\(data=\.\.\.\)"
    ):
        run(after, lambda s: setattr(s.writer.entry, "data", "c"))


def test_a_part_of_the_state_that_is_stored_is_stored_as_a_value() -> None:
    after = run(fresh(), lambda s: setattr(s, "count", (s.writer.inner, frozenset({s.other}))))
    assert after.held[("count",)] == (Inner(1, 5), frozenset({Inner(7, 8)}))
    assert type(after.held[("count",)][0]) is Inner


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (lambda s: s.writer.statsu, AttributeError, "Writer has no field 'statsu'"),
        (lambda s: setattr(s.writer, "statsu", 1), AttributeError, "Writer has no field 'statsu'"),
        (lambda s: setattr(s, "coutn", 1), AttributeError, "coutn is not a state variable of ledger: declare it"),
        (lambda s: setattr(s, "first", 1), AttributeError, "first is a constant"),
        (lambda s: setattr(s, "other", 3), NotAValue, "3 where a Inner belongs"),
        (lambda s: setattr(s, "other", Entry(1)), NotAValue, r"Entry\(id=1, data=''\) where a Inner belongs"),
        (lambda s: s.bookie[ModelValue("b9")], KeyError, r"b9 is not a key of bookie \(b1, b2\)"),
        (lambda s: setattr(s, "count", [1]), NotAValue, "a list, which is mutable; use a tuple"),
        (lambda s: setattr(s.writer, "width", 1), AttributeError, "Writer has no field 'width'"),
    ],
)
def test_mistakes_are_named(body: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(fresh(), body)


def test_a_variable_has_a_value_only_in_a_state() -> None:
    with pytest.raises(
        FencepostError, match="count is a state variable: it has a value only inside an action or a property"
    ):
        _ = Ledger().count
    with pytest.raises(FencepostError, match="count is a state variable: it can be assigned only inside an action"):
        Ledger().count = 1


def test_a_record_in_the_state_needs_an_initial_value_for_every_field() -> None:
    with pytest.raises(FencepostError, match=r"Entry\.id has no default"):
        type("P", (Protocol,), {"entry": state(Entry)})()


def test_a_map_is_walked_in_the_order_of_its_constant() -> None:
    protocol = Ledger(bookies=["z", "a"], first=2)
    plain = Plain(protocol)
    assert look(plain, lambda s: [b.name for b in s.bookie]) == ["z", "a"]
    assert look(plain,
    lambda s: (list(s.computed.items()), len(s.bookie), s.bookies[1] in s.bookie, 7 in s.computed)) == (
        [(0, 5), (1, 5)], 2, True, False,
    )  # fmt: skip


def test_choices_among_parts_of_the_state_are_in_canonical_order() -> None:
    def body(s: Any) -> None:
        b = one_of(s.bookie)
        s.bookie[b].low = one_of({3, 1, 2})
        require(s.bookie[b].low != 2)

    found = [(w.names("write"), next(iter(w.held.values()))) for w in ways(fresh(), body)]
    assert found == [
        ([f"bookie.{b}.low"], low) for b in ("b1", "b2") for low in (1, 3)
    ]  # fmt: skip


class Ping(Message):
    n: int = 0


def test_messages_carry_values_not_parts_of_the_state() -> None:
    class Net(Protocol):
        nodes: tuple[ModelValue, ...] = model_values("n", 2)
        inner: Inner = state(Inner)
        net: Any = network({Ping: (nodes, nodes)})

    after = run(Plain(Net()), lambda s: s.net.send(Ping(s.inner), *s.nodes))
    after = run(after, lambda s: setattr(s.inner, "low", 5))
    assert look(after, lambda s: s.net.in_flight(Ping, *s.nodes)[0].n) == Inner(0, 9)


class Known(Record):
    by: PerKey[ModelValue, int] = per_key(lambda protocol: protocol.nodes, 7)
    seen: Table[str, int] = table({"first": 1})
    rank: int = 0


class Forgetful(Protocol):
    nodes: tuple[ModelValue, ...] = model_values("n", 2)
    known: PerKey[ModelValue, Known] = per_key(nodes, Known)


def test_a_record_made_anew_has_its_maps_as_declared() -> None:
    plain = Plain(Forgetful())
    n1, n2 = plain.protocol.nodes  # type: ignore[attr-defined]

    def learn(s: Any) -> None:
        s.known[n1].by[n2], s.known[n1].rank = 8, 3
        s.known[n1].seen["second"] = 2
        del s.known[n1].seen["first"]

    def forget(s: Any) -> None:
        s.known[n1] = Known(rank=1)

    after = run(run(plain, learn), forget)
    assert look(after, lambda s: (dict(s.known[n1].by), dict(s.known[n1].seen), s.known[n1].rank)) == (
        {n1: 7, n2: 7},
        {"first": 1},
        1,
    )
