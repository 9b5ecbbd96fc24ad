"""Values: what equals what, what is refused, and in which order members come."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from fencepost.language.values import ModelValue
from fencepost.tla import order, sets, values
from fencepost.tla.values import (
    BOOLEANS,
    EMPTY,
    EvaluationError,
    Function,
    Interval,
    Sequence,
    Set,
    Value,
    code,
    equal,
    function,
    member,
    record,
    show,
)

B1, B2 = ModelValue("b1"), ModelValue("b2")
TYPED, OTHER = ModelValue("A_x"), ModelValue("B_x")


def in_order(members: Value) -> str:
    return " ".join(map(show, values.members(members)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Set([1, 2, 3]), Interval(1, 3)),
        (Set(), Interval(4, 3)),
        (Set([Set(), Set([1]), Set([2]), Set([1, 2])]), sets.Subsets(Interval(1, 2))),
        (Sequence(["a", "b"]), function({2: "b", 1: "a"})),
        (record(a=1, b=2), function({"b": 2, "a": 1})),
        (EMPTY, function({})),
        (values.function_of(sets.Subsets(Set()), lambda each: 1), function({Set(): 1})),
        (sets.Functions(Interval(1, 1), BOOLEANS), Set([Sequence([True]), Sequence([False])])),
        (sets.Records([("a", BOOLEANS)]), Set([record(a=True), record(a=False)])),
        (sets.Tuples([Interval(1, 2), Set([5])]), Set([Sequence([1, 5]), Sequence([2, 5])])),
    ],
)
def test_equal_values_are_equal_whichever_way_they_were_made(one: Value, other: Value) -> None:
    assert equal(one, other) and equal(other, one)
    assert one == other and hash(one) == hash(other)
    assert code(one) == code(other)
    assert pickle.loads(pickle.dumps(one)) == other


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (Sequence([1]), Sequence([True])), (record(a=0), record(a=False)), (Set([1]), Set([True]))],
)
def test_a_number_is_no_truth(one: Value, other: Value) -> None:
    with pytest.raises(EvaluationError):
        equal(one, other)
    assert code(one) != code(other)
    if not isinstance(one, int):
        assert one != other
        assert function({one: 1}).mapping.get(other) is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "refused",
    [
        lambda: equal(1, "a"),
        lambda: equal(True, 1),
        lambda: equal(Set(), EMPTY),
        lambda: equal(Set([1]), Set(["a"])),
        lambda: equal(Sequence([1]), Sequence(["a"])),
        lambda: equal(record(a=1), Sequence([1])),
        lambda: equal(TYPED, 1),
        lambda: equal(TYPED, OTHER),
        lambda: Set([1, "a"]),
        lambda: Set([1, True]),
        lambda: Set([TYPED, OTHER]),
        lambda: member("a", Set([1])),
        lambda: member(1, 1),
        lambda: member(TYPED, Interval(1, 2)),
        lambda: member("a", sets.NAT),
        lambda: member(B1, sets.Subsets(Set([1]))),
        lambda: in_order(sets.NAT),
        lambda: in_order(Set([Sequence([1]), Sequence(["a"])])),
        lambda: values.apply(Sequence([1]), 2),
        lambda: values.apply(record(a=1), "b"),
        lambda: values.apply(function({5: 1}), True),
        lambda: values.apply(1, 1),
        lambda: values.size(sets.Subsets(Interval(1, 31))),
        lambda: values.updated(1, (1,), lambda old: old),
    ],
)
def test_what_tlc_refuses_is_refused(refused: Callable[[], Value]) -> None:
    with pytest.raises(EvaluationError):
        refused()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (B1, B2),
        (B1, 1),
        (Set(), B1),
        (B1, TYPED),
        (Set([1]), Set(["a", "b"])),
        (record(a=1), record(b="x")),
        (record(a=1), EMPTY),
        (Sequence([1, "a"]), Sequence([2, 5])),
        (function({B1: 1}), function({B2: "a"})),
    ],
)
def test_what_tlc_takes_for_unequal_is_unequal(one: Value, other: Value) -> None:
    assert not equal(one, other)
    assert one != other


def test_members_come_in_the_order_of_tlc() -> None:
    order.use(["b2", "b1", "z", "a"])
    assert in_order(Set([3, -1, 2])) == "-1 2 3"
    assert in_order(Set(["a", "z", "unknown"])) == '"z" "a" "unknown"'
    assert in_order(Set([7, B1, B2])) == "b2 b1 7"
    assert in_order(Set([Set([3]), Set([1, 2]), Set()])) == "{} {3} {1, 2}"
    assert in_order(Set([record(a=2, z=1), record(z=2, a=1)])) == "[z |-> 1, a |-> 2] [z |-> 2, a |-> 1]"
    assert in_order(sets.Subsets(Interval(1, 3))) == "{} {1} {2} {3} {1, 2} {1, 3} {2, 3} {1, 2, 3}"
    assert in_order(sets.Functions(Set(["a", "z"]), Interval(1, 2))).startswith("[z |-> 1, a |-> 1] [z |-> 1, a |-> 2]")
    assert in_order(sets.Records([("a", Interval(1, 2)), ("z", Set([5]))])) == "[z |-> 5, a |-> 1] [z |-> 5, a |-> 2]"


def test_except_changes_one_place_and_nothing_outside_the_domain() -> None:
    nested = record(a=Sequence([1, 2]), b=0)
    assert values.updated(nested, ("a", 2), lambda old: old() + 5) == record(a=Sequence([1, 7]), b=0)
    assert values.updated(nested, ("c",), lambda old: old().never) is nested
    assert values.updated(nested, ("a", 3), lambda old: old().never) is nested


def test_sets_that_are_not_written_out_answer_without_enumeration() -> None:
    assert member(5, sets.union(sets.NAT, Set([-1])))
    assert not member(0, sets.difference(sets.INT, Set([0])))
    assert member(record(a=5), sets.Records([("a", sets.NAT)]))
    assert member(Sequence([1, 2]), sets.Sequences(sets.NAT))
    assert member(Interval(1, 50), sets.filtered(sets.Subsets(sets.NAT), lambda each: values.size(each) == 50))
    assert sets.subset(Interval(1, 3), sets.NAT)
    assert not member(B1, sets.NAT)


def test_a_function_of_an_infinite_domain_is_applied_and_not_written_out() -> None:
    doubled = values.function_of(sets.NAT, lambda each: each * 2)
    assert doubled.apply(21) == 42
    with pytest.raises(EvaluationError, match="not in its domain"):
        doubled.apply(-1)
    with pytest.raises(EvaluationError, match="Nat is infinite"):
        doubled.explicit()


def test_values_are_shown_as_tlc_prints_them() -> None:
    order.use(["a", "b"])
    assert show(Sequence([True, 'say "x"\n', B1])) == '<<TRUE, "say \\"x\\"\\n", b1>>'
    assert show(record(b=1, a=Set())) == "[a |-> {}, b |-> 1]"
    assert show(Function({3: 1, 2: 0})) == "(2 :> 0 @@ 3 :> 1)"
    assert show(Interval(1, 3)) == "1..3"
    assert show(sets.Records([("a", sets.NAT)])) == "[a: Nat]"
