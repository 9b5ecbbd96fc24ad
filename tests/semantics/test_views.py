"""Views decide which states count as one. A view that only selects parts of the state hides the others. Any other view
is a computed value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fencepost
from fencepost import (
    Message,
    OptionError,
    Protocol,
    ProtocolRaised,
    Record,
    Result,
    Table,
    action,
    initial,
    invariant,
    model_values,
    network,
    one_of,
    per_key,
    require,
    state,
    table,
)
from fencepost.semantics import Stepper


class Part(Record):
    x: int = 0
    y: int = 0

    @property
    def both(self) -> int:
        return self.x and self.y

    @property
    def none_first(self) -> int:
        return self.x if self.y == 0 else 5


class Held(Record):
    what: Any = None
    size: int = 0

    @property
    def room(self) -> int:
        return 9 if self.what is None else self.size


class Ping(Message):
    n: int = 0


class Wide(Protocol):
    """Every combination of values is an initial state, so the view alone decides the number of states."""

    nodes: Any = model_values("n", 2)
    a: Any = state(0)
    b: Any = state(0)
    c: Any = state(None)
    part: Part = state(Part)
    held: Held = state(Held)
    at: Any = per_key(nodes, Part)
    logs: Table[Any, Any] = table()
    net: Any = network({Ping: (nodes, nodes)}, can_be_cut=True)
    queue: Any = network({Ping: (nodes, nodes)}, ordered=True, lossy=True)

    @initial
    def start(self) -> None:
        self.a, self.b, self.c = one_of((0, 1, 2)), one_of((0, 1)), one_of((None, 1))
        self.part.x, self.part.y = one_of([(0, 0), (0, 1), (1, 0)])
        if self.b == 1 and self.c is None:
            self.held.what, self.held.size = one_of([(None, 1), ("x", 0), ("x", 1)])
        self.at[self.nodes[1]].x = one_of((0, 1))
        for key in one_of((("",), ("", "x"))):
            self.logs[key] = 1
        said = one_of(("nothing", "ping", "cut"))
        if said == "ping":
            self.net.send(Ping(1), *self.nodes)
        if said == "cut":
            self.net.cut(*self.nodes)

    @property
    def told(self) -> Any:
        return self.a if "x" in self.logs else self.b

    @action
    def rest(self) -> None: ...


def seen(look: Callable[[Any], Any], base: type[Protocol] = Wide) -> tuple[Result, bool]:
    """The result of a check with this view, and whether the view counts as a selection of slots."""
    viewed = type("Viewed", (base,), {"seen": fencepost.view(look)})
    stepper = Stepper(viewed())
    return fencepost.check(viewed(), engine="reference"), stepper.view is None


SELECTIONS: list[tuple[Callable[[Any], Any], int]] = [
    (lambda s: s.a, 3),
    (lambda s: (s.a, s.b), 6),
    (lambda s: [s.b, (s.c, s.a)], 12),
    (lambda s: s.part, 3),
    (lambda s: s.part.x, 2),
    (lambda s: (s.at, s.a), 6),
    (lambda s: s.at[s.nodes[1]], 2),
    (lambda s: s.at[s.nodes[0]].x, 1),
    (lambda s: (s.at[s.nodes[1]].x, s.part), 6),
    (lambda s: s.net, 3),
    (lambda s: s.logs, 2),
    (lambda s: (s.logs, s.a), 6),
    (lambda s: (s.logs[""], s.b), 2),
    (lambda s: [s.logs, s.at[s.nodes[1]].x, s.part.y], 8),
    (lambda s: (), 1),
]
COMPUTED: list[tuple[Callable[[Any], Any], int]] = [
    (lambda s: s.a % 2, 2),
    (lambda s: (s.a, s.b == 0), 6),
    (lambda s: s.a if s.b == 0 else -1, 4),
    (lambda s: s.c if s.b else s.a, 4),
    (lambda s: s.a if s.c is None else s.b, 3),
    (lambda s: (s.c, s.a if s.c is None else s.b), 5),
    (lambda s: (s.a, s.b)[s.c is None], 3),
    (lambda s: (s.c, (s.a, s.b)[s.c is None]), 5),
    (lambda s: s.a and s.b, 2),
    (lambda s: (s.a, not s.b), 6),
    (lambda s: "x" in s.logs, 2),
    (lambda s: s.logs.get("x"), 2),
    (lambda s: (s.logs, len(s.logs)), 2),
    (lambda s: (s.logs[""], s.told), 3),
    (lambda s: (s.logs[""], "x" in s.logs), 2),
    (lambda s: frozenset({s.a, s.b}), 5),
    (lambda s: {0: "zero"}.get(s.a), 2),
    (lambda s: (s.part.replace(y=0), s.b), 4),
    (lambda s: s.part == Part(0, 1), 2),
    (lambda s: f"{s.a}", 3),
    (lambda s: (s.net, s.a + 0), 9),
    (lambda s: None, 1),
    (lambda s: type(s.a).__name__, 1),
    (lambda s: tuple(s.at[n].x for n in s.nodes), 2),
    (lambda s: s.part.both, 1),
    (lambda s: (s.part.x, s.part.both), 2),
    (lambda s: (s.part.x, s.part.y, s.part.none_first), 3),
    (lambda s: (s.part.y, s.part.none_first), 3),
    (lambda s: s.held.room, 3),
    (lambda s: (s.held.size, s.held.room), 4),
    (lambda s: s.net.in_flight(Ping, *s.nodes), 2),
    (lambda s: (s.a, s.net.in_flight(Ping, *s.nodes)), 6),
    (lambda s: s.net.is_known(Ping(1), *s.nodes), 2),
    (lambda s: s.net.connected(*s.nodes), 2),
    (lambda s: s.queue.in_flight(Ping, *s.nodes), 1),
    (lambda s: s.queue.lost(Ping, *s.nodes), 1),
]  # fmt: skip


@pytest.mark.parametrize(("look", "count"), SELECTIONS)
def test_a_view_that_picks_parts_hides_the_others(look: Callable[[Any], Any], count: int) -> None:
    result, selected = seen(look)
    assert selected
    assert result.complete and result.distinct_states == count


class Ledger(Protocol):
    """A view sees steps that change its table, and not those that change the clock."""

    log: Table[int, int] = table({0: 0})
    held: Part = state(Part)
    clock: int = state(0)

    @action(key=(1, 2))
    def write(self, key: int) -> None:
        require(key not in self.log)
        self.log[key] = self.log[0]

    @action
    def change(self) -> None:
        self.log[0] = (self.log[0] + 1) % 2
        self.held.x = 1 - self.held.x

    @action
    def forget(self) -> None:
        require(2 in self.log)
        del self.log[2]

    @action
    def tick(self) -> None:
        self.clock = (self.clock + 1) % 5


@pytest.mark.parametrize("engine", ["reference", "embedded"])
@pytest.mark.parametrize(
    ("picks", "computes"),
    [
        (lambda s: s.log, lambda s: tuple(s.log.items())),
        (lambda s: (s.log, s.held.x), lambda s: (tuple(s.log.items()), s.held.x + 0)),
        (lambda s: (s.log[0], s.held), lambda s: (s.log[0] + 0, s.held.x, s.held.y)),
    ],
    ids=["table", "table and field", "cell and record"],
)
def test_a_view_that_picks_tables_cells_and_fields_is_free(
    picks: Callable[[Any], Any], computes: Callable[[Any], Any], engine: str
) -> None:
    picking = type("Ledger", (Ledger,), {"seen": fencepost.view(picks)})
    computing = type("Ledger", (Ledger,), {"seen": fencepost.view(computes)})
    one, other = (fencepost.check(protocol(), engine=engine, workers=1) for protocol in (picking, computing))
    assert one.complete and other.complete
    assert (one.distinct_states, one.depth) == (other.distinct_states, other.depth)
    assert one.generated_states == other.generated_states
    if engine == "embedded":
        assert one.evaluations < other.evaluations
    assert Stepper(picking()).view is None and Stepper(computing()).view is not None


@pytest.mark.parametrize(("look", "count"), COMPUTED)
def test_a_view_that_computes_is_a_value_of_its_own(look: Callable[[Any], Any], count: int) -> None:
    result, selected = seen(look)
    assert not selected
    assert result.complete and result.distinct_states == count


def test_a_view_may_have_the_name_of_nothing_and_a_variable_that_of_the_view() -> None:
    class Numbered(Protocol):
        """Much of the literature numbers views."""

        view: int = state(0)
        noise: int = state(0)

        @action
        def change(self) -> None:
            require(self.view < 5)
            self.view += 1

        @action
        def hum(self) -> None:
            self.noise = 1 - self.noise

        @invariant
        def small(self) -> bool:
            return self.view < 5

    result, _ = seen(lambda s: (s.view, 0), Numbered)
    assert result.distinct_states == 6 and result.depth == 6
    assert [s.variables()["view"] for s in result.must_violate("small").states] == [0, 1, 2, 3, 4, 5]


def test_with_a_view_the_first_step_to_reach_a_state_stands_for_it() -> None:
    """Invariants read the state that represents the others. A counterexample is a behaviour of the protocol."""

    class Two(Protocol):
        shown: int = state(0)
        hidden: int = state(0)

        @action
        def one(self) -> None:
            require(self.shown < 2)
            self.shown += 1
            self.hidden = 1

        @action
        def other(self) -> None:
            require(self.shown < 2)
            self.shown += 1
            self.hidden = 2

        @invariant
        def never_two(self) -> bool:
            return self.hidden != 2

        @invariant
        def never_one(self) -> bool:
            return self.hidden != 1

    result, _ = seen(lambda s: s.shown, Two)
    assert result.distinct_states == 2 and [v.name for v in result.violations] == ["never_one"]


@pytest.mark.parametrize(
    ("look", "message"),
    [
        (lambda s: require(s.a < 2), "led to a state in which the view seen asked require"),
        (lambda s: one_of((s.a, 7)), "a property cannot choose"),
        (lambda s: setattr(s, "b", 1), "a property cannot assign to the state"),
        (lambda s: 1 // (s.a - 2), "raised ZeroDivisionError"),
        (lambda s: [s.a, {1}], "is assigned a list, which is mutable; use a tuple"),
    ],
)
def test_a_view_only_looks(look: Callable[[Any], Any], message: str) -> None:
    result, _ = seen(look)
    assert result.error is not None and message in str(result.error), result.error


def test_a_view_that_raises_in_the_initial_state() -> None:
    result, _ = seen(lambda s: 1 // s.a)
    assert isinstance(result.error, ProtocolRaised) and "initial state" in str(result.error)


def test_an_unknown_invariant_is_named() -> None:
    with pytest.raises(OptionError, match="wide has no invariant named smal"):
        fencepost.check(Wide(), engine="reference", invariants=["smal"])
