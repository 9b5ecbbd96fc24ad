"""Infinite domains, keys and routes are refused in one line."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

import fencepost
from fencepost import Message, NotAProtocol, Protocol, action, invariant, network, per_key, state, subsets, table
from fencepost.language.values import MAX_MEMBERS

ENDLESS = f"has more than {MAX_MEMBERS:,} members: is it infinite?"


class Ping(Message):
    n: int = 0


class Counting(Protocol):
    x: int = state(0)


def act(protocol: Any, n: Any, m: Any = None) -> None:
    protocol.x = 0


def holds(protocol: Any, n: Any) -> bool:
    return True


def declared(**attributes: Any) -> type[Protocol]:
    return type("Declared", (Counting,), attributes)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"act": action(n=itertools.count())(act)}, f"the domain of parameter n of action act {ENDLESS}"),
        ({"act": action(n=lambda p: itertools.count())(act)}, f"the domain of parameter n of action act {ENDLESS}"),
        ({"fine": invariant(n=range(10**12))(holds)}, f"the domain of parameter n of invariant fine {ENDLESS}"),
        ({"act": action(n=range(300), m=range(300))(act)}, "action act has 90,000 bindings of its parameters"),
        ({"act": action(n=lambda p: subsets(range(60)))(act)}, r"subsets(...) of 60 members would be more than 65,536"),
        ({"act": action(n=lambda p: subsets(itertools.count(), 1))(act)}, f"what subsets(...) is asked of {ENDLESS}"),
    ],
)
def test_endless_domains_are_refused(attributes: dict[str, Any], message: str) -> None:
    for engine in ("reference", "embedded"):
        with pytest.raises(NotAProtocol) as caught:
            fencepost.check(declared(**attributes)(), engine=engine)
        assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (lambda: per_key(itertools.count(), 0), f"the set of keys of a per_key(...) {ENDLESS}"),
        (lambda: per_key(lambda p: itertools.count(), 0), f"the set of keys of a per_key(...) {ENDLESS}"),
        (lambda: table(cast(Any, ((n, n) for n in itertools.count()))), f"what a table(...) begins with {ENDLESS}"),
        (lambda: network({Ping: (lambda p: itertools.count(), ())}), f"one end of a route of a network(...) {ENDLESS}"),
    ],
)
def test_endless_keys_and_routes_are_refused(variable: Callable[[], Any], message: str) -> None:
    with pytest.raises(NotAProtocol) as caught:
        declared(many=variable())()
    assert str(caught.value) == message


def test_subsets_up_to_the_bound() -> None:
    assert len(subsets(range(16))) == MAX_MEMBERS and len(subsets(range(300), 2)) == 44_850
    with pytest.raises(NotAProtocol):
        subsets(range(17))
