"""Actions with very many ways through their choices: as many as allowed, one more, and no repeated work for each."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import pytest
from checker.engines.compare import by_embedded, by_reference, disagreement

import fencepost
from fencepost import Protocol, action, constant, one_of, per_key, require, state
from fencepost.language import context
from fencepost.language.context import MAX_WAYS
from fencepost.language.values import canonical
from fencepost.semantics import Stepper, repeats


class Wide(Protocol):
    """One choice whose every option reads on, so each has its own branch in a trie."""

    options: int = constant(10)
    chosen: bool = state(False)
    parity: int = state(0)

    @action
    def choose(self) -> None:
        require(not self.chosen)
        option = one_of(range(self.options))
        self.parity = (self.parity + option) % 2
        self.chosen = True


class Nested(Protocol):
    """Two choices. The second is made only where a part of the state allows it."""

    outer: int = constant(4)
    inner: int = constant(3)
    mode: int = state(-1)
    on: Any = per_key(lambda p: range(p.outer), False)
    odd: int = state(0)

    @action(k=lambda p: range(p.outer))
    def switch(self, k: int) -> None:
        require(self.mode == -1)
        self.on[k] = True
        self.mode = k

    @action
    def switch_all(self) -> None:
        require(self.mode == -1)
        for k in range(self.outer):
            self.on[k] = True
        self.mode = self.outer

    @action
    def choose(self) -> None:
        require(self.mode >= 0)
        k = one_of(range(self.outer))
        if self.on[k]:
            self.odd = (one_of(range(self.inner)) + self.odd) % 2


def agree(protocol: Protocol, **options: Any) -> dict[str, Any]:
    expected = by_reference(protocol, **options)
    found = disagreement(expected, by_embedded(protocol, **options))
    assert found is None, found
    return expected


@pytest.mark.campaign
def test_as_many_options_as_are_allowed_are_explored() -> None:
    assert agree(Wide(options=1_000))["taken"]["choose"] == 1_000
    answer = by_embedded(Wide(options=MAX_WAYS))
    assert answer["complete"] and answer["distinct"] == 3 and answer["taken"]["choose"] == MAX_WAYS


def test_one_option_more_is_an_error_that_names_the_action_and_the_bound() -> None:
    for engine in ("reference", "embedded"):
        result = fencepost.check(Wide(options=MAX_WAYS + 1), engine=engine, workers=1)
        assert str(result.error) == f"action choose: a choice has more than {MAX_WAYS:,} options: is it infinite?"


def test_ways_that_were_learned_one_by_one_are_counted_together() -> None:
    # States with one switch on reveal every branch. With all switches on there are too many at once.
    result = fencepost.check(Nested(outer=8, inner=MAX_WAYS // 8 + 1), engine="embedded", workers=1)
    assert str(result.error) == f"action choose has more than {MAX_WAYS:,} ways through its choices: is one infinite?"


def test_ways_through_nested_choices_have_room_where_states_are_expanded() -> None:
    assert agree(Nested(outer=30, inner=40), workers=2)["complete"]


class Switches(Protocol):
    """Each option reads a part of the state of its own, and those that are on make a second choice."""

    switches: int = constant(6)
    on: Any = per_key(lambda p: range(p.switches), 0)

    @action
    def turn(self) -> None:
        switch = one_of(range(self.switches))
        require(self.on[switch] < 3)
        if self.on[switch]:
            self.on[switch] = one_of([0, self.on[switch] + 1])
        else:
            self.on[switch] = 1


def test_only_ways_that_were_not_recorded_are_evaluated() -> None:
    agree(Switches(switches=4), workers=2)
    result = fencepost.check(Switches(), engine="embedded", deadlock=False, workers=1)
    assert result.distinct_states == 4**6
    # A switch that is off has one way, one at 1 or 2 has two, one at 3 has none. All are off at first.
    assert result.evaluations == 1 + 6 * (1 + 2 + 2 + 1)


def test_a_set_is_put_in_order_once_for_all_ways_that_choose_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ordered: list[int] = []

    def counted(items: Collection[Any]) -> list[Any]:
        ordered.append(len(items))
        return canonical(items)

    monkeypatch.setattr(context, "canonical", counted)
    monkeypatch.setattr(repeats, "FIRST", 0)  # else each evaluation here is repeated

    class Sets(Protocol):
        picked: tuple[int, ...] = state(())

        @action
        def pick(self) -> None:
            first = one_of({1, 2, 3})
            self.picked = (first, one_of(frozenset(range(10 * first))))

    stepper = Stepper(Sets())
    (root,) = stepper.roots
    outcomes = stepper.outcomes(root, stepper.initial_states()[0].ids)
    assert [o.labels for o in outcomes] == [(a, b) for a in (1, 2, 3) for b in range(10 * a)]
    assert ordered == [3, 10, 20, 30]


def test_infinite_and_enormous_choices_are_refused() -> None:
    for options in (itertools.count(), range(10**30), set(range(MAX_WAYS + 1)), [0] * (MAX_WAYS + 1)):

        class Endless(Protocol):
            x: int = state(0)

            @action
            def pick(self, options: Any = options) -> None:
                self.x = one_of(options)

        result = fencepost.check(Endless(), engine="reference")
        assert str(result.error) == f"action pick: a choice has more than {MAX_WAYS:,} options: is it infinite?"


def test_a_choice_may_come_after_thousands_of_reads() -> None:
    class Late(Protocol):
        parts: Any = per_key(range(3_000), 0)
        chosen: int = state(0)

        @action
        def choose(self) -> None:
            self.chosen = one_of(range(sum(self.parts[k] for k in self.parts) + 3))

    assert agree(Late())["distinct"] == 3


def test_more_residual_tries_than_their_index_first_has_room_for() -> None:
    class Readers(Protocol):
        x: int = state(0)

        @action
        def pick(self) -> None:
            require(self.x == 0)
            self.x = one_of(range(1, 10_000))

        @action(n=range(10))
        def read(self, n: int) -> None:
            require(self.x < 0)
            self.x = n

    result = fencepost.check(Readers(), engine="embedded", workers=1, max_depth=2)
    assert result.distinct_states == 10_000
