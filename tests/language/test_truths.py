"""A condition must be true or false. Python would accept any other value and hide the author's mistake."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fencepost
from fencepost import (
    Map,
    Message,
    NotAProtocol,
    Protocol,
    ProtocolRaised,
    Record,
    action,
    check,
    model_values,
    network,
    per_key,
    require,
    state,
)
from fencepost.errors import Misbehaved
from fencepost.language.truths import truth


class Pair(Record):
    x: int = 0


class Ping(Message):
    n: int = 0


class Base(Protocol):
    nodes = model_values("n", 2)
    count: int = state(0)
    pair: Pair = state(Pair)
    at: Any = per_key(nodes, 0)
    net: Any = network({Ping: (nodes, nodes)})

    def is_small(self) -> bool:
        return self.count < 5

    @action
    def tick(self) -> None:
        require(self.count < 3)
        self.count += 1


def a_text(self: Any) -> Any:
    return "text"


async def later(self: Any) -> bool:
    return True


MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda self: (self.at[n] > 5 for n in self.nodes), "a generator, which is neither true nor false: put all(...)"),
    (lambda self: map(bool, (0,)), "an iterator (map), which is neither true nor false: put all(...) or any(...)"),
    (lambda self: self.is_small, "is_small itself, which is neither true nor false: call it, is_small(...)"),
    (lambda self: lambda: False, "a lambda, which is neither true nor false: call it"),
    (lambda self: functools.partial(all, ()), "partial itself"),
    (lambda self: (self.count < 0, "it is small"), "a tuple, which is neither true nor false: give a condition alone"),
    (lambda self: [self.count < 0], "a list, which is neither true nor false: give a condition alone, all(...)"),
    (a_text, "a str, which is neither true nor false: say what must be so of it, such as len(...) > 0"),
    (lambda self: {self.count}, "a set, which"),
    (lambda self: Map(), "a map, which"),
    (lambda self: self.pair, "a part of the state, which is neither true nor false: say what must be so of it"),
    (lambda self: self.at, "a part of the state, which"),
    (lambda self: self.net, "a part of the state, which"),
    (lambda self: NotImplemented, "NotImplemented, which is neither true nor false: compare with an operator"),
    (lambda self: ..., "..., which is neither true nor false: write the condition"),
    (later, "a coroutine, which is neither true nor false: write an ordinary method, without async"),
    (lambda self: self.count, "the number 0, which is neither true nor false: compare it, as in n > 0"),
    (lambda self: 1.0, "the number 1.0, which"),
    (lambda self: self.nodes[0], "a ModelValue, which is neither true nor false: compare it, as in x is not None"),
    (lambda self: np.zeros(2), "a ndarray, which"),
]

PROPERTIES = ["invariant", "constraint", "sometimes", "always_eventually", "eventually_always"]


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize(("mistake", "said"), MISTAKES)
def test_what_is_no_condition_is_refused(mistake: Callable[[Any], Any], said: str) -> None:
    error = check(type("P", (Base,), {"fine": fencepost.invariant(mistake)})(), engine="reference").error
    assert str(error).startswith(f"invariant fine returned {said}"), error
    assert error is not None and error.exit_code == 75


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded", "simulate"])
@pytest.mark.parametrize("kind", [*PROPERTIES, "step_invariant", "step_constraint"])
def test_of_every_kind_of_property_on_every_engine(kind: str, engine: str) -> None:
    declare = getattr(fencepost, kind)
    protocol = type("P", (Base,), {"fine": declare(lambda self, *after: (True, "text"))})
    if engine == "simulate" and kind in fencepost.language.declarations.TEMPORAL:
        return  # which the simulator does not judge
    error = check(protocol(), engine=engine).error
    assert str(error).startswith(f"{kind.replace('_', ' ')} fine returned a tuple, which is neither true"), error


def test_of_both_parts_of_a_pair() -> None:
    for pair, said in [
        ((1, True), "as the first of its pair, the number 1"),
        ((True, []), "as the second of its pair,"),
    ]:
        protocol = type("P", (Base,), {"fine": fencepost.leads_to(lambda self, pair=pair: pair)})
        assert f"leads to fine returned, {said}" in str(check(protocol(), engine="reference").error)


@pytest.mark.parametrize("engine", ["reference", "auto", "embedded", "simulate"])
def test_what_an_action_requires_is_a_condition(engine: str) -> None:
    protocol = type("P", (Base,), {"go": action(lambda self: require(n for n in self.nodes))})  # type: ignore[arg-type]
    error = check(protocol(), engine=engine).error
    assert str(error).startswith("action go asked require(...) of a generator, which is neither true nor false"), error
    none = type("P", (Base,), {"go": action(lambda self: require(print()))})  # type: ignore[arg-type]
    assert "asked require(...) of None, which" in str(check(none(), engine="reference").error)


def test_what_a_message_is_received_by_is_a_condition() -> None:
    def go(self: Any) -> None:
        self.net.send(Ping(), *self.nodes)
        self.net.receive(Ping, to=self.nodes[1], where=lambda ping: ping.n)

    error = check(type("P", (Base,), {"go": action(go)})(), engine="reference").error
    assert "action go received by a where=... that returned the number 0, which is neither" in str(error)


def test_what_is_said_of_constants_is_a_condition() -> None:
    assuming = type("P", (Base,), {"small": fencepost.assumption(lambda self: self.is_small)})
    with pytest.raises(ProtocolRaised, match="assumption small returned is_small itself, which is neither"):
        check(assuming())
    judged = fencepost.invariant(when=lambda self: len(self.nodes))(lambda self: True)  # type: ignore[arg-type, return-value]
    with pytest.raises(NotAProtocol, match="invariant small has a when that returned the number 2, which is neither"):
        check(type("P", (Base,), {"small": judged})())
    failing = fencepost.invariant(when=lambda self: self.count > 1)(lambda self: True)
    with pytest.raises(NotAProtocol, match="invariant small has a when that raised FencepostError: count is a state"):
        check(type("P", (Base,), {"small": failing})())
    nodes = Base.nodes
    lossy = type("P", (Base,), {"net": network({Ping: (nodes, nodes)}, lossy=lambda self: self.nodes)})
    with pytest.raises(NotAProtocol, match="state variable net cannot be declared with lossy= a tuple, which"):
        check(lossy)


@pytest.mark.parametrize("given", [True, False, np.bool_(True), np.bool_(False), np.int64(1) < 2])
def test_truth_values_are_true_or_false(given: Any) -> None:
    assert truth(given) is bool(given)


def test_a_look_at_what_was_given_never_fails() -> None:
    class Strange:
        def __bool__(self) -> bool:
            raise ValueError

        def __repr__(self) -> str:
            raise ValueError

    with pytest.raises(Misbehaved, match="returned a Strange, which is neither true nor false: compare it"):
        truth(Strange())
