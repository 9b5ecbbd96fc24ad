"""Changes in words, and values over several lines."""

from __future__ import annotations

import enum
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import Map, Message, ModelValue, Protocol, Record, constant, model_values, table
from fencepost.behaviours.formatting import briefly, change_text, channel_lines, lines, wrap
from fencepost.language.network import Channel
from fencepost.language.values import Set, Value, constant_text, freeze, show

B1, B2 = ModelValue("b1", 0), ModelValue("b2", 1)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Entry(Record):
    id: int
    data: str


class Add(Message):
    entry: Entry
    lac: int


class Ping(Message):
    pass


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (0, 1, "0 → 1"),
        (None, 0, "None → 0"),
        (Colour.RED, Colour.BLUE, "RED → BLUE"),
        (Set(), Set({B1}), "added b1"),
        (Set({1, 2, 3}), Set({2, 4}), "added 4, removed 1, 3"),
        ((), (3,), "appended 3"),
        ((1, 2), (1, 2, 3, 4), "appended 3, 4"),
        ((1, 2, 3), (2, 3), "removed from the front 1"),
        ((11, 12, 13), (11, 12), "removed from the end 13"),
        ((11, 12, 13), (11, 99, 13), "[1] 12 → 99"),
        ((1, 2), (3,), "⟨1, 2⟩ → ⟨3⟩"),
        (Map({B1: 1}), Map({B1: 2, B2: 0}), "[b1] 1 → 2, [b2] added 0"),
        (Map({B1: 1, B2: 5}), Map({B1: 1}), "[b2] removed"),
        (Entry(1, "x"), Entry(1, "y"), "data 'x' → 'y'"),
        (Entry(1, "x"), None, "Entry(id=1, data='x') → None"),
        (Map({B1: Set({1})}), Map({B1: Set({1, 2})}), "[b1] added 2"),
    ],
)
def test_a_change_in_words(old: Value, new: Value, told: str) -> None:
    assert change_text(old, new) == told


def values() -> st.SearchStrategy[Value]:
    plain = (
        st.none()
        | st.booleans()
        | st.integers(-99, 99)
        | st.sampled_from([B1, B2, Colour.RED])
        | st.text("ab _", max_size=5)
    )
    nested = st.recursive(
        plain,
        lambda inner: (
            st.lists(inner, max_size=4).map(tuple)
            | st.lists(inner, max_size=4).map(frozenset)
            | st.dictionaries(inner, inner, max_size=3).map(Map)
            | st.builds(Add, st.builds(Entry, st.integers(0, 9), st.text("ab", max_size=3)), st.integers(0, 9))
        ),
        max_leaves=20,
    )
    return nested.map(freeze)


@given(values(), st.integers(10, 80))
def test_lines_say_what_show_says(value: Value, width: int) -> None:
    """The oracle is the one-line form: over several lines, a value is the same text with other blanks."""

    def bare(text: str) -> str:
        return re.sub(r"\s", "", text)

    laid_out = lines(value, width)
    assert bare("".join(laid_out)) == bare(show(value))
    if len(show(value)) <= width:
        assert laid_out == [show(value)]


def test_lines_indent_what_is_inside() -> None:
    value = Map({B1: Set({Entry(1, "x"), Entry(2, "y")}), B2: Set()})
    assert lines(value, 30) == [
        "{",
        "  b1: {",
        "    Entry(id=1, data='x'),",
        "    Entry(id=2, data='y')",
        "  },",
        "  b2: {}",
        "}",
    ]


@given(values(), values())
def test_a_change_is_told_whenever_there_is_one(old: Value, new: Value) -> None:
    if old != new:
        assert change_text(old, new)


@pytest.mark.parametrize(
    ("limit", "cut", "brief"),
    [
        (80, True, "Add(entry=Entry(id=1, data='a=b'), lac=0)"),
        (40, True, "Add(entry=Entry(1, 'a=b'), lac=0)"),
        (30, True, "Add(Entry(1, 'a=b'), 0)"),
        (10, True, "Add(Entry…"),
        (10, False, "Add(entry=Entry(1, 'a=b'), lac=0)"),
    ],
)
def test_a_message_is_shortened_from_the_inside(limit: int, cut: bool, brief: str) -> None:
    assert briefly(show(Add(Entry(1, "a=b"), 0)), limit, cut) == brief


def test_what_a_channel_holds() -> None:
    assert channel_lines(Channel()) == []
    assert channel_lines(Channel(in_flight=(Ping(), Ping()))) == [("in flight", ["Ping", "Ping"])]
    busy = Channel(in_flight=Map({Ping(): 2, Add(Entry(1, ""), 0): 1}), processed=Set({Ping()}), lost=Set({Ping()}))
    assert channel_lines(busy) == [
        ("in flight", ["Add(entry=Entry(id=1, data=''), lac=0)", "Ping ×2"]),
        ("lost", ["Ping"]),
        ("processed", ["Ping"]),
    ]


@given(st.text("ab c_d", max_size=60), st.integers(8, 30))
def test_wrapping_keeps_words_and_width(text: str, width: int) -> None:
    wrapped = wrap(text, width)
    assert all(len(line) <= width for line in wrapped)
    assert "".join(wrapped).replace(" ", "") == text.replace(" ", "")


class Configurable(Protocol):
    bookies: tuple[ModelValue, ...] = model_values("b", 3)
    colour: Colour = constant(Colour.RED)
    fast: bool = constant(False)
    limit: int = constant(7)
    sizes: frozenset[int] = constant(frozenset({1, 2}))
    order: tuple[int, ...] = constant((2, 1))
    log = table()


def test_constants_are_told_as_the_command_line_takes_them() -> None:
    """Printed constants can be given back: they parse to the same values."""
    given = Configurable(bookies="x,y", colour="blue", fast="true", limit="3", sizes="{4}", order="(9, 8, 7)")
    again = Configurable(**{name: constant_text(value) for name, value in given.constants.items()})
    assert again.constants == given.constants
    assert constant_text(given.constants["bookies"]) == "x,y"
