"""Values: which objects are allowed, their order, and their encodings, which are unique and equal everywhere."""

from __future__ import annotations

import collections
import enum
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

import fencepost
from fencepost import Map, ModelValue, Record, canonical, subsets
from fencepost.language.values import NotAValue, Set, encode, freeze, order_key, show
from fencepost.text.plain import decimal, whole_number


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = "1"


class Level(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Word(str, enum.Enum):
    A = "a"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Pair(Record):
    x: Any = 0
    y: Any = 0


class Riap(Record):
    x: Any = 0
    y: Any = 0


class Point(collections.namedtuple("Point", "x y")):
    pass


B1, B2 = ModelValue("b1", 0), ModelValue("b2", 1)


def tag(value: Any) -> Any:
    """The identity of a value: its type and content."""
    if isinstance(value, (Set, frozenset)):
        return ("set", frozenset(map(tag, frozenset.__iter__(value))))
    if isinstance(value, tuple):
        return ("tuple", *map(tag, value))
    if isinstance(value, Record):
        return ("record", type(value), *(tag(getattr(value, n)) for n in value._fields))
    if isinstance(value, Mapping):
        return ("map", frozenset((tag(k), tag(v)) for k, v in value.items()))
    return (type(value), repr(value) if isinstance(value, float) else value)


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, 2.0]),
    st.text(alphabet="a1:;().{}[]sTé\0", max_size=4),
    st.binary(max_size=3),
    st.sampled_from([*Colour, *Level, *Word, B1, B2]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.dictionaries(inner, inner, max_size=3).map(Map),
        st.builds(Pair, inner, inner),
        st.builds(Riap, inner, inner),
    ),
    max_leaves=6,
)

ALIKE: list[Any] = [
    None, True, False, 1, 0, 1.0, 0.0, -0.0, "1", "", "True", b"1", b"", (), (1, ), (True, ), (1.0, ), ("1", ), ((), ),
    (0.0, ), (-0.0, ),
    (1, 1), ((1, ), 1),
    (1, (1, )), frozenset(), frozenset({1}), frozenset({True}), frozenset({frozenset()}), Map(), Map({1: 1}),
    Map({1: True}),
    Map({True: 1}), frozenset({(1, 1)}), Pair(), Pair(0, False), Riap(), Colour.RED, Colour.BLUE, Level.HIGH, Level.LOW,
    Word.A,
    "a", "Colour.RED", B1, "b1", ("b1", ), ("a", "b"), ("ab", ), ("a", "", "b"), ("a1:b", ), ("s1:a", ), 10, -10, 2**64,
    -(2**64),
    float("inf"), float("-inf"), 1e300, ("asb", ), ("bi1;", ), ("b", 1), ("a)", "b"), ("a", ")b"), b"asb", ("xi1;", 1),
    ("x", 1, 1),
]  # fmt: skip


def test_values_that_look_alike_have_different_bytes_and_places() -> None:
    for one, other in itertools.combinations(ALIKE, 2):
        assert encode(one) != encode(other), (one, other)
        assert order_key(one) != order_key(other), (one, other)


@given(values, values)
def test_bytes_and_places_are_equal_exactly_when_values_are(one: Any, other: Any) -> None:
    assert (encode(one) == encode(other)) == (tag(one) == tag(other))
    assert (order_key(one) == order_key(other)) == (tag(one) == tag(other))


@given(values)
def test_a_frozen_value_is_the_same_value(value: Any) -> None:
    frozen = freeze(value)
    assert tag(frozen) == tag(value)
    assert encode(frozen) == encode(value)
    assert tag(freeze(frozen)) == tag(value)
    assert hash(frozen) == hash(value)
    assert tag(pickle.loads(pickle.dumps(frozen))) == tag(value)


@given(st.lists(values, max_size=6), st.randoms(use_true_random=False))
def test_any_two_values_can_be_ordered_whatever_order_they_come_in(items: list[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)
    assert [tag(v) for v in canonical(shuffled)] == [tag(v) for v in canonical(items)]


def test_canonical_order_is_by_kind_and_then_natural() -> None:
    ordered = [
        None, False, True, -2, 3, 10, -0.5, 2.0, "", "a", "b", Colour.RED, Colour.GREEN, Colour.BLUE, B1, B2, (), (9, ),
        (0, 0),
        frozenset(), frozenset({5}), frozenset({1, 2}), Pair(0, 1), Pair(1, 0), Riap(0, 0), Map(), Map({1: 1}), b"",
        b"a",
    ]  # fmt: skip
    assert [tag(v) for v in canonical(reversed(ordered))] == [tag(v) for v in ordered]


def test_enum_members_and_model_values_are_in_the_order_of_their_declaration() -> None:
    assert canonical({Colour.BLUE, Colour.GREEN, Colour.RED}) == [Colour.RED, Colour.GREEN, Colour.BLUE]
    zoe, adam = ModelValue("zoe", 0), ModelValue("adam", 1)
    assert canonical({adam, zoe}) == [zoe, adam]


def test_combined_flags_are_values() -> None:
    both = Rights.READ | Rights.WRITE
    assert canonical([both, Rights.WRITE, Rights(0), Rights.READ]) == [Rights(0), Rights.READ, Rights.WRITE, both]
    assert len({encode(v) for v in (both, Rights(0), Rights.READ, Rights.WRITE)}) == 4
    assert show(both) and show(Rights(0))


@pytest.mark.parametrize(
    ("given_value", "message"),
    [
        ([1], "a list, which is mutable; use a tuple"),
        ({1}, "a set, which is mutable; use a frozenset"),
        ({1: 2}, "a dict, which is mutable; use a fencepost.Map"),
        (collections.defaultdict(int), "a dict, which is mutable; use a fencepost.Map"),
        (bytearray(b"x"), "a bytearray, which is mutable; use bytes"),
        ((1, [2]), "a list, which is mutable; use a tuple"),
        (((), (1, {2})), "a set, which is mutable; use a frozenset"),
        (frozenset({(1, frozenset({2.5, float("nan")}))}), "NaN, which is not a value: it does not equal itself"),
        (float("nan"), "NaN, which is not a value: it does not equal itself"),
        (Pair([1], 0), "a Pair whose field x is a list, which is mutable; use a tuple"),
        (Map({1: [2]}), "a list, which is mutable; use a tuple"),
        ((n for n in "ab"), "a generator, which Fencepost does not know; declare a fencepost.Record or an enum"),
        (object(), "a object, which Fencepost does not know; declare a fencepost.Record or an enum"),
        (Point(1, 2), "a named tuple (Point); declare a fencepost.Record"),
        (lambda: 1, "a function, which Fencepost does not know; declare a fencepost.Record or an enum"),
        (1j, "a complex, which Fencepost does not know; declare a fencepost.Record or an enum"),
        (type("Odd", (), {"__hash__": None})(), "a Odd, which is unhashable"),
    ],
)
def test_what_is_not_a_value_is_refused_with_advice(given_value: Any, message: str) -> None:
    with pytest.raises(NotAValue) as raised:
        freeze(given_value)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s | {9}, lambda s: frozenset({9}) | s, lambda s: s & frozenset("ab"), lambda s: frozenset("abz") & s,
        lambda s: s - {"a"}, lambda s: frozenset("az") - s, lambda s: s ^ {"a", "z"}, lambda s: frozenset("az") ^ s,
        lambda s: s.union("z", "y"), lambda s: s.intersection("ab"), lambda s: s.difference("a"),
        lambda s: s.symmetric_difference("az"), lambda s: freeze(frozenset(s)), lambda s: s,
    ],
)  # fmt: skip
def test_whatever_comes_of_a_set_is_walked_in_canonical_order(make: Callable[[Any], Any]) -> None:
    mine, plain = make(Set("abcdefgh")), make(frozenset("abcdefgh"))
    assert type(mine) is Set
    assert mine == plain
    assert list(mine) == canonical(plain)


def test_a_set_and_something_else_is_an_error_of_python() -> None:
    with pytest.raises(TypeError, match=r"unsupported operand"):
        Set("a") | ["b"]  # type: ignore[operator]


def test_maps() -> None:
    one = Map({"b": 1, "a": 2})
    assert list(one.items()) == [("a", 2), ("b", 1)]
    assert one == Map([("a", 2), ("b", 1)])
    assert hash(one) == hash(Map([("a", 2), ("b", 1)]))
    assert one == {"a": 2, "b": 1} and {"a": 2, "b": 1} == one
    assert one != Map({"a": 2}) and one != {"a": 2} and one != 1
    assert one.set("c", 3) == {"a": 2, "b": 1, "c": 3} and "c" not in one
    assert one.without("a") == {"b": 1} and one.without("z") == one
    assert one | {"a": 0} == {"a": 0, "b": 1}
    with pytest.raises(TypeError):
        one["a"] = 3  # type: ignore[index]
    assert show(one) == "{'a': 2, 'b': 1}"


def test_what_is_put_into_a_map_becomes_a_value_too() -> None:
    one = freeze(Map({"a": 1}))
    assert type(freeze(one.set("b", frozenset({2})))["b"]) is Set
    assert type(freeze(one.set("b", 2).set("c", frozenset({3})).without("a"))["c"]) is Set
    with pytest.raises(NotAValue, match="a list, which is mutable"):
        freeze(one.set("b", [2]))
    pair = Pair(frozenset({1}), 2)
    assert [type(key.x) for key in freeze(one.set(pair, 1)) if isinstance(key, Pair)] == [Set]


def test_model_values_are_equal_by_name_and_immutable() -> None:
    assert ModelValue("b1") == B1 != B2
    assert B1 != "b1"
    assert hash(ModelValue("b1")) == hash(B1)
    assert B1 < B2
    changes: list[Callable[[], None]] = [lambda: setattr(B1, "name", "x"), lambda: delattr(B1, "name")]
    for change in changes:
        with pytest.raises(AttributeError, match="model value b1 is immutable"):
            change()


def test_records_are_immutable_and_compare_by_content() -> None:
    pair = Pair(1, (2,))
    assert pair == Pair(1, (2,)) and hash(pair) == hash(Pair(1, (2,)))
    assert pair != Pair(1, (3,)) and pair != Riap(1, (2,)) and pair != (1, (2,))
    assert pair.replace(y=3) == Pair(1, 3) and pair == Pair(1, (2,))
    with pytest.raises(
        AttributeError, match=r"a Pair is an immutable value: make a changed copy with \.replace\(x=\.\.\.\)"
    ):
        pair.x = 2
    with pytest.raises(AttributeError, match=r"a Pair is an immutable value: its field x cannot be deleted"):
        del pair.x
    with pytest.raises(TypeError, match="z"):
        pair.replace(z=1)
    assert show(pair) == "Pair(x=1, y=⟨2⟩)" == repr(pair)


@given(st.integers(0, 6_000), st.integers(-(10**30), 10**30))
def test_numbers_of_any_length_are_written_and_read(digits: int, more: int) -> None:
    number = (10**digits + more) * (-1 if more % 3 == 0 else 1)
    text = decimal(number)
    assert whole_number(text) == number
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert text == str(number)
    finally:
        sys.set_int_max_str_digits(limit)
    length = len(text.lstrip("-"))
    if length <= 100:
        assert show(number) == text
    else:
        assert show(number) == f"{text[: 20 + (number < 0)]}…{text[-20:]} ({length:,} digits)"


@pytest.mark.parametrize(
    "text", ["", "x", "1" * 5_000 + "x", "-" * 5_000, "1" * 5_000 + "_1", "+" + "²" * 700, "1.5", "1" * 700 + "\n"]
)
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal|not a whole number"):
        whole_number(text)


def test_nothing_that_is_shown_does_anything_to_a_terminal() -> None:
    odd = "\x1b[31m\n\u202e\ud800\x00é"
    member = enum.Enum("Odd", {odd: 1})[odd]  # type: ignore[index]
    for value in (
        odd,
        odd.encode("utf-8", "surrogatepass"),
        ModelValue(odd),
        member,
        (odd,),
        Map({odd: odd}),
        frozenset({odd}),
    ):
        assert show(value).isprintable()
    assert show(ModelValue(odd)) == "\\x1b[31m\\n\\u202e\\ud800\\x00é"
    assert fencepost.language.context.slot_name((odd, ModelValue(odd), "a")).isprintable()


def test_subsets_are_smallest_first_in_canonical_order() -> None:
    assert [show(s) for s in subsets({B2, B1})] == ["{}", "{b1}", "{b2}", "{b1, b2}"]
    assert [show(s) for s in subsets("cab", 2)] == ["{'a', 'b'}", "{'a', 'c'}", "{'b', 'c'}"]
    assert subsets("ab", 3) == [] and subsets("ab", 0) == [frozenset()]


SCRIPT = """
import enum
from fencepost import *
from fencepost.language.values import encode, Set
from fencepost.semantics import Stepper
from fencepost.checker.engines import reference
from fencepost.checker.engines.options import SearchOptions

class Status(enum.Enum):
    OPEN = "open"
    SHUT = "shut"

class Ping(Message):
    text: str
    status: Status = Status.OPEN

class P(Protocol):
    nodes: tuple[ModelValue, ...] = model_values("n", 3)
    words: frozenset[str] = constant(frozenset({"one", "two", "three"}))
    seen: PerKey = per_key(nodes, frozenset())
    log: Table = table()
    net: Network = network({Ping: (nodes, nodes)}, lossy=True, once=True, remember=True)

    @initial
    def start(self):
        self.seen[self.nodes[0]] = one_of([frozenset(self.words), frozenset({Status.SHUT})])

    @action(n=nodes)
    def send(self, n):
        self.net.send(Ping(one_of(self.words), one_of(set(Status))), n, one_of(set(self.nodes) - {n}))

    @action(n=nodes)
    def receive(self, n):
        got = self.net.receive(Ping, to=n).message
        self.seen[n] |= {got.text, got.status}
        self.log[got.text] = tuple(self.seen[n])

stepper = Stepper(P())
result = reference.explore(stepper, SearchOptions(max_depth=2))
for slot, held in zip(stepper.store.slots, stepper.store.values):
    print(slot.name, held, [hex(h) for h in stepper.store.hashes[stepper.store.slot(slot)]])
print(result.distinct, result.generated, result.new)
for start in stepper.initial_states():
    for root in stepper.of_kind("action"):
        for outcome in stepper.outcomes(root, start.ids):
            print(root.title, outcome)
print([encode(v) for v in (Status.OPEN, Set({"a", "b", None}), Map({"x": 1, "y": frozenset("pqr")}), Ping("a"))])
"""


def test_everything_is_the_same_in_every_process_whatever_the_hash_seed() -> None:
    source = str(Path(fencepost.__file__).parents[1])
    outputs = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": source}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        assert len(run.stdout) > 2_000
        outputs.add(run.stdout)
    assert len(outputs) == 1
