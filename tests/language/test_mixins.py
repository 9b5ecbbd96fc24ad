"""A protocol declares what Python finds in its class, from plain bases, decorators and assignments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost import (
    NotAProtocol,
    Protocol,
    action,
    check,
    constant,
    invariant,
    model_values,
    require,
    sometimes,
    state,
)
from fencepost.language.protocol import constants_of, variables_of
from fencepost.language.source import source_digest
from fencepost.report import describe


class Bounded:
    """A plain class with a declaration of each kind."""

    top: int = constant(3)
    who = model_values("w", 2)
    seen: bool = state(False)
    count: int

    @invariant
    def small(self) -> bool:
        """It stays small."""
        return self.count < self.top

    @action(w=who)
    def see(self, w: Any) -> None:
        self.seen = True


def counter(*bases: type) -> Any:
    class Counter(*bases, Protocol):  # type: ignore[misc]
        count: int = state(0)

        @action
        def tick(self) -> None:
            require(self.count < 9)
            self.count += 1

    return Counter


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded", "simulate"])
def test_what_a_plain_base_declares_is_checked(engine: str) -> None:
    result = check(counter(Bounded)(), engine=engine)
    assert (result.verdict, result.violations[0].kind) == ("small", "invariant")
    assert [count.name for count in result.actions] == ["see", "tick"]
    assert check(counter(Bounded)(top=20, who=1), engine="reference").distinct_states == 20


def test_constants_of_plain_bases_come_last() -> None:
    class Counter(Bounded, Protocol):
        step: int = constant(1)

    assert [*constants_of(Counter)] == ["step", "top", "who"]


def test_show_names_what_a_plain_base_declares() -> None:
    shown = describe.description(counter(Bounded))
    for line in ("  top = 3", "  seen: bool = False", "  see(w of who)   by w", "  small", "      It stays small."):
        assert line in shown.splitlines()


def test_a_plain_base_that_varies_a_protocol_is_found_first() -> None:
    class Leaping:
        count: int

        @action
        def tick(self) -> None:
            require(self.count < 9)
            self.count += 3

    class Variant(Leaping, counter()):  # type: ignore[misc]
        pass

    assert check(Variant(), engine="reference").distinct_states == 4


def test_of_two_bases_the_one_that_python_finds_counts() -> None:
    base = counter()

    class One(base):  # type: ignore[misc, valid-type]
        pass

    class Other(base):  # type: ignore[misc, valid-type]
        @action
        def tick(self) -> None:
            require(self.count < 2)
            self.count += 1

    class Both(One, Other):
        pass

    assert Both.tick is Other.tick
    assert check(Both(), engine="reference").distinct_states == 3


def test_a_decorator_of_the_class_adds_to_the_protocol() -> None:
    def never_five(cls: Any) -> Any:
        cls.never_five = invariant(lambda self: self.count != 5)
        return cls

    assert check(never_five(counter())(), engine="reference").must_violate("never_five").steps


def test_an_assignment_replaces_what_the_body_declared() -> None:
    made = counter()

    def leap(self: Any) -> None:
        require(self.count < 9)
        self.count += 3

    made.tick = action(leap)
    made.extra = state(False)
    made.limit = constant(7)
    made.reaches = sometimes(lambda self: self.count > self.limit)
    assert check(made(), engine="reference").must_hold().distinct_states == 4
    assert list(variables_of(made)) == ["count", "extra"]
    assert made(limit=8).constants == {"limit": 8}
    del made.reaches
    assert check(made(), engine="reference").witnesses == []


def test_an_assignment_to_a_plain_base_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counter(Bounded)
    monkeypatch.setattr(Bounded, "small", invariant(lambda self: self.count < 7))
    assert len(check(made(), engine="reference").must_violate("small").steps) == 7


def test_a_property_that_is_assigned_after_the_protocol_was_made_is_checked() -> None:
    made = counter()
    ready = made()
    made.never_five = invariant(lambda self: self.count != 5)
    check(ready, engine="reference").must_violate("never_five")


def test_a_variable_that_is_assigned_after_the_protocol_was_made_is_refused() -> None:
    made = counter()
    ready = made()
    made.count = state(5)
    with pytest.raises(NotAProtocol, match=r"since Counter\(\) was made: make it anew"):
        check(ready)
    assert check(made(), engine="reference").distinct_states == 5


def test_an_assignment_of_another_kind_is_refused() -> None:
    made = counter(Bounded)
    for name, value, said in [
        ("tick", lambda self: None, "tick of Counter takes the place of an action and is none itself"),
        (
            "tick",
            invariant(lambda self: True),
            "tick is an action of Counter, which an invariant of Counter would hide",
        ),
        ("small", 5, "small of Counter takes the place of an invariant"),
        ("top", 5, "top is a constant of Counter, which an attribute of Counter would hide: write top = constant"),
        ("count", 5, "count is a state variable of Counter"),
    ]:
        with pytest.raises(NotAProtocol) as refused:
            setattr(made, name, value)
        assert said in str(refused.value)


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def logging(*arguments: Any) -> Any:
        return function(*arguments)

    return logging


def bare(function: Any) -> Any:
    return lambda *arguments: function(*arguments)


@pytest.mark.parametrize("around", [logged, bare, staticmethod, classmethod, property, functools.cached_property])
@pytest.mark.parametrize("base", [(), (Protocol,)])
def test_a_declaration_inside_another_decorator_is_refused(
    around: Callable[[Any], Any], base: tuple[type, ...]
) -> None:
    def small(self: Any) -> bool:
        return bool(self.count < 5)

    with pytest.raises(NotAProtocol, match="small of Base is an invariant inside another decorator, by which it would"):
        counter(type("Base", base, {"small": around(invariant(small))}))


def test_a_declaration_under_a_second_name_is_refused() -> None:
    made = counter()
    made.again = made.tick
    with pytest.raises(NotAProtocol, match="again of Counter is an action that is named tick already: declare another"):
        made()


def test_a_plain_base_hides_nothing_of_fenceposts_own() -> None:
    with pytest.raises(NotAProtocol, match=r"^declared cannot be an attribute of Base: Protocol\.declared is"):
        counter(type("Base", (), {"declared": 5}))


def test_a_plain_attribute_of_a_base_hides_no_declaration() -> None:
    with pytest.raises(NotAProtocol, match="tick of Base takes the place of an action and is none itself"):
        type("Variant", (type("Base", (), {"tick": lambda self: None}), counter()), {})


def test_what_was_put_on_a_class_is_a_part_of_its_source(tmp_path: Path) -> None:
    made = counter()
    before = source_digest(made())
    made.never_five = invariant(lambda self: self.count != 5)
    assert source_digest(made()) != before
