"""Tables, maps whose keys appear on write, against a dictionary."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from language.plain import Plain, look, run

from fencepost import Map, ModelValue, Protocol, Record, Table, canonical, state, table
from fencepost.language.values import NotAValue


class Entry(Record):
    data: int = 0


class Store(Protocol):
    logs: Table[Any, Any] = table()
    other: Table[Any, Any] = table({"a": None, 3: (1,)})
    count: int = state(0)


KEYS = ("keys", "a", 1, None, (), (1, "a"), frozenset({1}), ModelValue("b1"), "1", Entry(1), "")
VALUES = (None, 0, False, (), "x", Entry(2), frozenset({1}))

operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.sampled_from(VALUES)),
        st.tuples(st.just("del"), st.sampled_from(KEYS)),
        st.tuples(st.just("replace"), st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=4)),
    ),
    max_size=12,
)


def called(plain: Plain, name: str, method: str, *arguments: Any) -> Plain:
    """Call a method of a table."""
    return run(plain, lambda s: getattr(getattr(s, name), method)(*arguments))


@given(operations, st.booleans())
def test_a_table_is_a_dictionary(script: list[tuple[Any, ...]], has_initial: bool) -> None:
    name = "other" if has_initial else "logs"
    model: dict[Any, Any] = {"a": None, 3: (1,)} if has_initial else {}
    plain = Plain(Store())
    for step in script:
        if step[0] == "set":
            plain = called(plain, name, "__setitem__", step[1], step[2])
            model[step[1]] = step[2]
        elif step[0] == "replace":
            new = step[1]
            plain = run(plain, lambda s: setattr(s, name, new))
            model = dict(step[1])
        elif step[1] in model:
            plain = called(plain, name, "__delitem__", step[1])
            del model[step[1]]
        else:
            with pytest.raises(KeyError, match=f"is not in {name}"):
                called(plain, name, "__delitem__", step[1])
        held = look(plain, lambda s: getattr(s, name))
        assert list(held) == canonical(model)
        assert list(held.items()) == [(k, model[k]) for k in canonical(model)]
        assert list(held.values()) == [model[k] for k in canonical(model)]
        assert len(held) == len(model)
        assert held == Map(model) and held == model
        for key in KEYS:
            assert (key in held) == (key in model)
            assert held.get(key, "absent") == model.get(key, "absent")
            if key in model:
                assert held[key] == model[key]
            else:
                with pytest.raises(KeyError, match=f"is not in {name}"):
                    held[key]
    # One value per slot: equal contents are equal states, whatever the history.
    assert Plain(Store(), plain.held).state.logs == plain.state.logs


def test_keys_that_are_one_to_python_are_one_key() -> None:
    after = run(Plain(Store()), lambda s: (s.logs.__setitem__(1, "a"), s.logs.__setitem__(True, "b")))
    assert look(after, lambda s: list(s.logs.items())) == [(1, "b")]


def test_only_the_key_and_the_keys_are_touched() -> None:
    plain = run(Plain(Store()), lambda s: s.logs.__setitem__(1, "a"))
    assert plain.names("write") == ["logs.keys", "logs.1"]
    again = run(plain, lambda s: s.logs.__setitem__(1, "b"))
    assert again.names("write") == ["logs.1"] and set(again.names("read")) == {"logs.1"}
    asked = run(again, lambda s: (1 in s.logs, s.logs[1], s.logs.get(2)))
    assert set(asked.names("read")) == {"logs.1", "logs.2"}


def test_a_table_that_lost_its_keys_is_an_empty_one() -> None:
    plain = run(Plain(Store()), lambda s: s.logs.__setitem__(1, "a"))
    plain = run(plain, lambda s: s.logs.__delitem__(1))
    slots = {slot.path: slot.default for slot in Store().shapes["logs"].slots(("logs",))}
    assert {path: held for path, held in plain.held.items() if held != slots.get(path, ())} == {}


def test_values_are_values() -> None:
    with pytest.raises(NotAValue, match="a list, which is mutable"):
        run(Plain(Store()), lambda s: s.logs.__setitem__(1, [2]))
    with pytest.raises(NotAValue, match="a list, which is mutable"):
        run(Plain(Store()), lambda s: s.logs.__setitem__([2], 1))
    plain = run(Plain(Store()), lambda s: s.logs.__setitem__(1, Entry(1)))
    with pytest.raises(
        AttributeError, match=r"a Entry is an immutable value: make a changed copy with \.replace\(data=\.\.\.\)"
    ):
        run(plain, lambda s: setattr(s.logs[1], "data", 2))
    plain = run(plain, lambda s: s.logs.__setitem__(1, s.logs[1].replace(data=2)))
    assert look(plain, lambda s: s.logs[1]) == Entry(2)


def test_a_table_can_be_assigned_from_another() -> None:
    plain = run(Plain(Store()), lambda s: setattr(s, "logs", s.other))
    assert look(plain, lambda s: dict(s.logs)) == {"a": None, 3: (1,)}
    plain = run(plain, lambda s: setattr(s, "logs", s.logs))
    assert look(plain, lambda s: dict(s.logs)) == {"a": None, 3: (1,)}
