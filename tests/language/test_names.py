"""Names in a protocol's class: none is dropped silently, and none may hide a name of Fencepost."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

import fencepost
from fencepost import NotAProtocol, Protocol, check, state
from fencepost.language.values import NotAValue


def defined(body: str, **more: Any) -> type[Protocol]:
    """A protocol class with the variable ``n``, the action ``tick``, and this body."""
    text = "n: int = state(0)\n@action\ndef tick(self):\n    self.n = 1 - self.n\n" + textwrap.dedent(body)
    scope = {**vars(fencepost), **more, "__name__": __name__}
    exec("class P(more.get('base', Protocol)):\n" + textwrap.indent(text, "    "), scope | {"more": more}, scope)
    made: type[Protocol] = scope["P"]
    return made


@pytest.mark.parametrize("name", ["constants", "shapes", "declared", "bound_to", "configured", "_shape"])
@pytest.mark.parametrize(
    "declaration",
    ["{} = state(0)", "{} = constant(1)", "@action\ndef {}(self): self.n = 3", "{} = 5", "def {}(self): pass"],
)
def test_a_name_of_fenceposts_own_is_refused_with_the_class(name: str, declaration: str) -> None:
    with pytest.raises(NotAProtocol, match=rf"^{name} cannot be .* of P: Protocol\.{name} is Fencepost's own"):
        defined(declaration.format(name))


@pytest.mark.parametrize("name", ["name", "fairness", "configurations"])
@pytest.mark.parametrize(
    "declaration", ["{} = state(0)", "{} = constant(1)", "@invariant\ndef {}(self): return True", "{} = 5"]
)
def test_a_setting_that_is_none_is_refused_with_the_class(name: str, declaration: str) -> None:
    with pytest.raises(NotAProtocol, match=f"^{name} is a setting of Fencepost's own, .*: it cannot be a"):
        defined(declaration.format(name))


def test_settings_are_still_settings() -> None:
    made = defined("name = 'other'\nfairness = (weak(tick),)\nconfigurations = {'default': configuration()}")
    assert (made.name, len(made.fairness), list(made.configurations)) == ("other", 1, ["default"])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("n = state(1)", "n is declared twice, as a state variable:"),
        ("@action\ndef n(self): self.n = 3", "n is declared twice, as a state variable and then as an action:"),
        ("@action\ndef tick(self): self.n = 3", "tick is declared twice, as an action:"),
        ("@invariant\ndef tick(self): return True", "tick is declared twice, as an action and then as an invariant:"),
        ("n = 3", "n is declared twice, as a state variable and then as something else:"),
        (
            "size = constant(1)\n@step_invariant\ndef size(self, after): return True",
            "as a constant and then as a step invariant:",
        ),
    ],
)
def test_a_name_that_is_declared_twice_is_refused(body: str, said: str) -> None:
    with pytest.raises(NotAProtocol) as refused:
        defined(body)
    assert said in str(refused.value)


class Base(Protocol):
    size: int = fencepost.constant(3)
    count: int = state(0)

    @fencepost.action
    def grow(self) -> None:
        self.count = 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("@action\ndef count(self): self.n = 3", "count is a state variable of Base, which an action of P would hide"),
        ("count = 5", "count is a state variable of Base, which an attribute of P would hide"),
        ("size = 5", "size is a constant of Base, which an attribute of P would hide: write size = constant(...)"),
        ("@invariant\ndef grow(self): return True", "grow is an action of Base, which an invariant of P would hide"),
        ("grow = state(0)", "grow is an action of Base, which a state variable of P would hide"),
    ],
)
def test_a_variant_hides_nothing_of_another_kind(body: str, said: str) -> None:
    with pytest.raises(NotAProtocol) as refused:
        defined(body, base=Base)
    assert said in str(refused.value)


def test_a_variant_may_declare_the_same_kind_anew() -> None:
    made = defined("size = constant(4)\ncount = state(7)\n@action\ndef grow(self): self.count = 8", base=Base)
    assert made().constants == {"size": 4}
    assert check(made()).distinct_states == 4


def test_all_bases_of_a_variant_are_a_part_of_it() -> None:
    class Other(Protocol):
        other: int = state(0)

        @fencepost.action
        def turn(self) -> None:
            self.other = 1 - self.other

    class Both(Base, Other):
        pass

    assert check(Both()).distinct_states == 4


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("'smal'", "configuration c expects 'smal', which is no property of p: did you mean small?"),
        ("'tick'", "expects 'tick', which is no property of p"),
        ("'hold'", "did you mean holds?"),
        ("small", "which is no property of p"),
    ],
)
def test_a_configuration_expects_what_a_check_can_find(expect: str, said: str) -> None:
    with pytest.raises(NotAProtocol) as refused:
        defined(f"@invariant\ndef small(self): return True\nconfigurations = {{'c': configuration(expect={expect})}}")
    assert said in str(refused.value)


def test_a_configuration_may_expect_any_property_a_deadlock_or_nothing_wrong() -> None:
    body = """
        @invariant
        def small(self): return True
        @step_invariant
        def grows(self, after): return True
        @always_eventually
        def back(self): return True
        @assumption
        def odd(self): return True
    """
    names = ["small", "grows", "back", "odd", "holds", "deadlock"]
    made = defined(textwrap.dedent(body) + f"configurations = {{name: configuration(expect=name) for name in {names}}}")
    assert list(made.configurations) == names


def test_fairness_is_of_actions() -> None:
    with pytest.raises(NotAProtocol, match=r"weak\(\.\.\.\) is given 'tick': give it actions"):
        defined("fairness = (weak('tick'),)")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("log = state([])", "state variable log cannot hold a list, which is mutable; use a tuple"),
        ("log = state((1, {}))", "state variable log cannot hold a dict, which is mutable"),
        ("log = per_key(('a',), [])", "state variable log cannot hold a list"),
        ("log = per_key(([],), 0)", "state variable log cannot hold a key that is a list"),
        ("log = table({1: []})", "state variable log cannot hold a list"),
        ("log = network({Entry: ('a', 'b')})", "state variable log cannot hold 'a' as an end of its messages"),
        ("log = per_key(5, 0)", "state variable log is not declared rightly: 'int' object is not iterable"),
        ("log = state(Entry(data=[]))", "state variable log cannot hold a Entry whose field data is a list"),
        (
            "log = state(Server)",
            "state variable log cannot hold a Server whose field inner is a Entry whose field data is a list",
        ),
    ],
)
def test_what_can_not_be_declared_is_told_by_the_name_of_the_variable(body: str, said: str) -> None:
    class Entry(fencepost.Record):
        data: Any = state([])

    class Server(fencepost.Record):
        inner: Entry = state(Entry)

    with pytest.raises((NotAProtocol, NotAValue)) as refused:
        defined(body, Entry=Entry, Server=Server)()
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("self.n = Entry(data=[1])", "n is assigned a Entry whose field data is a list"),
        ("self.n = one_of([[1], 2])", "an option of one_of(...) is a list"),
        ("self.seen[[1]] = 1", "a key of seen is a list"),
        ("self.seen[1] = [1]", "seen.1 is assigned a list"),
        ("self.net.send(Entry(data=[1]), self.ps[0], self.ps[0])", "a Entry whose field data is a list"),
    ],
)
def test_what_an_action_can_not_write_is_told_by_its_place(body: str, said: str) -> None:
    class Entry(fencepost.Message):
        data: Any = ()

    made = defined(
        "seen = table()\nps = model_values('p', 1)\nnet = network({Entry: (ps, ps)})\n@action\ndef go(self):\n   "
        f" {body}\n",
        Entry=Entry,
    )
    assert said in str(check(made()).error)


@pytest.mark.parametrize(
    "kind", ["action", "invariant", "step_invariant", "constraint", "view", "initial", "always_eventually"]
)
@pytest.mark.parametrize("override", ["def x(self): pass", "x = None", "x = property(lambda self: 3)"])
def test_a_variant_declares_anew_what_it_overrides(kind: str, override: str) -> None:
    base = defined(f"@{kind}\ndef x(self): pass")
    with pytest.raises(
        NotAProtocol,
        match=f"^x of P takes the place of an? {kind.replace('_', ' ')} and is none itself: .* with @{kind},",
    ):
        defined(override, base=base)


def test_a_variant_that_mixes_in_what_overrides_is_refused() -> None:
    class Mixed:
        def tick(self) -> None: ...

    with pytest.raises(NotAProtocol, match="^tick of Mixed takes the place of an action and is none itself"):
        type("Both", (Mixed, defined("")), {})
    base = defined("@action(k=(1, 2))\ndef put(self, k): self.n = k")
    with pytest.raises(NotAProtocol, match=r"with @action\(k=\.\.\.\), or"):
        defined("def put(self, k): pass", base=base)


def test_a_variant_that_declares_anew_is_taken() -> None:
    base = defined("")
    assert check(base()).distinct_states == 2
    made = defined("@action\ndef put(self): self.n = 2", base=base)
    assert check(made()).distinct_states == 4
