"""Values against a plain twin: nested tuples, compared as TLC's rules say."""

from __future__ import annotations

import pickle
from functools import cmp_to_key
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fencepost.tla import order, sets
from fencepost.tla.values import Set, Value, code, compare, equal, function, settled, total_key

Plain = Any
"""``("int", 1)``, ``("str", "a")``, ``("set", members)`` or ``("fun", pairs)``, with members and pairs in order."""

NAMES = ["c", "a", "b"]


def plain_set(members: list[Plain]) -> Plain:
    return ("set", in_order(members))


def plain_function(pairs: list[tuple[Plain, Plain]]) -> Plain:
    by_argument: dict[str, tuple[Plain, Plain]] = {repr(argument): (argument, value) for argument, value in pairs}
    return ("fun", sorted(by_argument.values(), key=lambda pair: BY_ORDER(pair[0])))


def in_order(members: list[Plain]) -> list[Plain]:
    once = {repr(each): each for each in members}
    return sorted(once.values(), key=BY_ORDER)


def compared(one: Plain, other: Plain) -> int:
    (kind, ours), (_, theirs) = one, other
    if kind == "int":
        return int(ours - theirs)
    if kind == "str":
        return NAMES.index(ours) - NAMES.index(theirs)
    if len(ours) != len(theirs):
        return len(ours) - len(theirs)
    if kind == "set":
        return first(zip(ours, theirs, strict=True))
    arguments = first((a[0], b[0]) for a, b in zip(ours, theirs, strict=True))
    return arguments or first((a[1], b[1]) for a, b in zip(ours, theirs, strict=True))


def first(pairs: Any) -> int:
    return next((result for one, other in pairs if (result := compared(one, other))), 0)


BY_ORDER = cmp_to_key(compared)


def made(plain: Plain) -> Value:
    kind, content = plain
    if kind == "set":
        return Set([made(each) for each in content])
    if kind == "fun":
        return function({made(argument): made(value) for argument, value in content})
    return content


NUMBERS = st.integers(-2, 4).map(lambda each: ("int", each))
TEXTS = st.sampled_from(NAMES).map(lambda each: ("str", each))


def sets_of(members: st.SearchStrategy[Plain]) -> st.SearchStrategy[Plain]:
    return st.lists(members, max_size=4).map(plain_set)


def functions_of(arguments: st.SearchStrategy[Plain], results: st.SearchStrategy[Plain]) -> st.SearchStrategy[Plain]:
    return st.lists(st.tuples(arguments, results), max_size=4).map(plain_function)


ONE_KIND = st.sampled_from(
    [
        NUMBERS,
        TEXTS,
        sets_of(NUMBERS),
        sets_of(sets_of(TEXTS)),
        functions_of(NUMBERS, TEXTS),
        functions_of(TEXTS, sets_of(NUMBERS)),
        functions_of(sets_of(NUMBERS), NUMBERS),
        sets_of(functions_of(TEXTS, NUMBERS)),
    ]
)
PAIRS = ONE_KIND.flatmap(lambda kind: st.tuples(kind, kind))
LISTS = ONE_KIND.flatmap(lambda kind: st.lists(kind, max_size=6))


@given(PAIRS)
def test_equality_order_and_bytes_are_those_of_the_twin(pair: tuple[Plain, Plain]) -> None:
    order.use(NAMES)
    one, other = map(made, pair)
    expected = compared(*pair)
    assert compare(one, other) == (expected > 0) - (expected < 0)
    assert equal(one, other) == (one == other) == (code(one) == code(other)) == (expected == 0)
    assert (total_key(one) < total_key(other)) == (expected < 0)
    if one == other:
        assert hash(one) == hash(other)


@given(LISTS)
def test_a_set_has_its_members_in_the_order_of_the_twin(plain: list[Plain]) -> None:
    order.use(NAMES)
    members = Set([made(each) for each in plain])
    assert list(members.members()) == [made(each) for each in in_order(plain)]
    assert members.size() == len(in_order(plain))


@given(LISTS)
def test_a_value_is_the_same_after_a_journey(plain: list[Plain]) -> None:
    value = Set([made(each) for each in plain])
    back = pickle.loads(pickle.dumps(value))
    assert back == value
    assert code(back) == code(value)
    assert settled(value) is value


@given(ONE_KIND.flatmap(lambda kind: st.tuples(st.lists(kind, max_size=5), st.lists(kind, max_size=5))))
def test_the_algebra_of_sets_is_that_of_python(pair: tuple[list[Plain], list[Plain]]) -> None:
    one, other = (Set([made(each) for each in plain]) for plain in pair)
    ours, theirs = one.items, other.items
    assert sets.union(one, other) == Set(ours | theirs)
    assert sets.intersection(one, other) == Set(ours & theirs)
    assert sets.difference(one, other) == Set(ours - theirs)
    assert sets.subset(one, other) == (ours <= theirs)
    assert sets.big_union(Set([one, other])) == Set(ours | theirs)


@given(st.lists(NUMBERS, max_size=4), st.lists(NUMBERS, max_size=3))
def test_sets_that_are_not_written_out_agree_with_those_that_are(one: list[Plain], other: list[Plain]) -> None:
    left, right = Set([made(each) for each in one]), Set([made(each) for each in other])
    lazy = [
        sets.Subsets(left),
        sets.Functions(right, left),
        sets.Tuples([left, right]),
        sets.Records([("b", left), ("c", right)]),
        sets.union(sets.Subsets(left), Set([right])),
        sets.difference(sets.Subsets(left), sets.Subsets(right)),
        sets.intersection(sets.Subsets(left), sets.Subsets(right)),
        sets.filtered(sets.Subsets(left), lambda each: each.size() > 1),
    ]
    for each in lazy:
        written = Set(list(each.members()))
        assert list(written.members()) == list(each.members())
        assert each.size() == written.size()
        assert each == written and equal(written, each) and code(each) == code(written)
        assert all(map(each.has, written.members()))
        assert each.is_empty() == (not written.size())
