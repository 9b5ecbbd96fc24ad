"""Refinement: every engine's verdict against brute force, reports of violations, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checker.engines.compare import answer, disagreement
from checker.engines.random_refinements import Pair, pairs, seeded, shortest
from hypothesis import given, settings

from fencepost import (
    EmbeddedOptions,
    FencepostError,
    Message,
    ModelValue,
    Network,
    PerKey,
    Protocol,
    Record,
    SearchOptions,
    SimulationOptions,
    Table,
    action,
    assumption,
    check,
    constant,
    initial,
    model_values,
    network,
    one_of,
    per_key,
    refines,
    require,
    state,
    step_invariant,
    table,
    view,
)
from fencepost.checker.compiler.snapshot import restore, snapshot
from fencepost.checker.compiler.tables import Tables
from fencepost.checker.engines import embedded, interpreted, reference, simulate
from fencepost.checker.engines.interface import Exploration
from fencepost.checker.engines.search import Search
from fencepost.checker.engines.workspace import Workspace
from fencepost.explorer.session import Session
from fencepost.protocols.bookkeeper.current import BookKeeper, Client, LedgerOnBookie
from fencepost.report.html import html
from fencepost.report.json import to_json
from fencepost.semantics import Stepper

CAP = 300
"""Brute force gives up after this number of states."""

ENGINES: dict[str, Callable[[Stepper], Any]] = {
    "reference": lambda stepper: reference.explore(stepper, SearchOptions(workers=1)),
    "interpreted": lambda stepper: interpreted.explore(stepper, SearchOptions(workers=1)),
    "embedded": lambda stepper: embedded.explore(stepper, EmbeddedOptions(workers=1)),
    "two workers": lambda stepper: embedded.explore(stepper, EmbeddedOptions(workers=2)),
}


def agrees(pair: Pair) -> int | None:
    """Check every engine against brute force. Gives the number of states in the shortest behaviour that is not one of
    the other protocol.
    """
    length, _ = shortest(pair.build(), CAP)
    if length == -1:
        return None
    told: dict[str, Any] = {}
    for name, explore in ENGINES.items():
        stepper = Stepper(pair.build())
        told[name] = answer(stepper, explore(stepper))
        assert told[name]["raised"] is None and told[name]["failure"] is None, f"{name}: {told[name]}"
        found = told[name]["found"]
        assert (len(found[0][3]) + 1 if found else None) == length, f"{name}: {found}, and brute force {length}"
        assert disagreement(told["reference"], told[name]) is None, name
    return length


@settings(max_examples=12, deadline=None)
@given(pairs())
def test_every_engine_agrees_with_brute_force(pair: Pair) -> None:
    agrees(pair)


@pytest.mark.campaign
def test_every_engine_agrees_with_brute_force_on_many_kinds() -> None:
    lengths = [agrees(seeded(seed)) for seed in range(20)]
    assert lengths.count(None) > 5 and lengths.count(1) > 1 and sum(n is not None and n > 1 for n in lengths) > 2


def test_random_walks_find_what_brute_force_does() -> None:
    met = 0
    for seed in range(24):
        pair = seeded(seed)
        length, _ = shortest(pair.build(), CAP)
        stepper = Stepper(pair.build())
        explored = simulate.explore(stepper, SimulationOptions(workers=1, walks=200, depth=12, seed=seed))
        assert explored.failure is None and explored.raised is None
        assert length == -1 or bool(explored.found) == (length is not None), repr(pair)
        for found in explored.found:
            met += 1
            row, others = found.initial.ids, []
            for number, choices in found.path:
                outcome = stepper.outcome(stepper.roots[number], row, choices)
                assert outcome is not None
                others = [row, stepper.apply(row, outcome)]
                row = others[1]
            (judge,) = stepper.of_kind("refinement")
            assert stepper.outcomes(judge, *(others or [row]))
    assert met > 5


# -- by hand ----------------------------------------------------------------------------------------------------------


class Counters(Protocol):
    """Two counters; ``together`` says whether one step moves both."""

    together: bool = constant(True)
    left: int = state(0)
    right: int = state(0)

    @action
    def move(self) -> None:
        require(self.left < 3)
        self.left += 1
        if self.together:
            self.right += 1


def test_one_variable_is_two_of_the_other_protocol() -> None:
    class One(Protocol):
        counter: int = state(0)

        @action
        def move(self) -> None:
            require(self.counter < 3)
            self.counter += 1

        both: Any = refines(Counters, {"left": "counter", "right": "counter"}, constants={"together": True})
        only_one: Any = refines(Counters, {"left": "counter", "right": "counter"}, constants={"together": False})

    for result in everywhere(One, keep_going=True):
        assert [violation.name for violation in result.violations] == ["only_one"]


class Counter(Protocol):
    """Counts to a limit."""

    limit: int = constant(9)
    value: int = state(0)

    @action
    def count(self) -> None:
        require(self.value < self.limit)
        self.value += 1

    @assumption
    def it_counts(self) -> bool:
        return self.limit > 0


class Digits(Protocol):
    """A counter of two digits."""

    most: int = constant(99)
    first: int = constant(0)
    jumps: bool = constant(False)
    tens: int = state(0)
    ones: int = state(0)
    other: bool = state(False)

    @initial
    def begin(self) -> None:
        self.ones = self.first

    @action
    def count(self) -> None:
        require(10 * self.tens + self.ones < 99)
        if self.ones < 9:
            self.ones += 1
        else:
            self.ones = 0
            self.tens += 2 if self.jumps else 1

    @action
    def turn(self) -> None:
        self.other = not self.other

    as_counter: Any = refines(Counter, {"value": lambda self: 10 * self.tens + self.ones}, constants={"limit": most})


def everywhere(protocol: Callable[[], Protocol], **options: Any) -> list[Any]:
    """The results of all engines."""
    engines = ("reference", "auto", "embedded")
    return [check(protocol(), engine=engine, options=SearchOptions(workers=1, **options)) for engine in engines]


def test_what_holds_holds() -> None:
    for result in everywhere(Digits):
        assert result.must_hold().distinct_states == 200


def test_a_limit_of_the_other_protocol_is_met() -> None:
    for result in everywhere(lambda: Digits(most=14)):
        assert len(result.must_violate("as_counter")) == 16
        assert result.exit_code == 12 and result.violation.kind == "refinement"
        told = " ".join(str(result).split())
        assert "The last step is no step of counter. Under as_counter it changes value 14 → 15" in told
        assert "count does just this, but is refused: require(self.value < self.limit) (test_refinement.py:" in told


def test_the_nearest_action_that_does_something_else_is_told() -> None:
    told = " ".join(str(check(Digits(jumps=True))).split())
    assert "it changes value 9 → 20" in told and "count does something else: value 9 → 10" in told


def test_an_initial_state_that_is_none_of_the_other_protocol() -> None:
    for result in everywhere(lambda: Digits(first=3)):
        assert len(result.must_violate("as_counter")) == 1
        told = " ".join(str(result).split())
        assert (
            "This is no initial state of counter. Under as_counter it differs from the nearest one value 0 → 3" in told
        )
    walked = check(Digits(first=3), engine="simulate", seed=1)
    assert len(walked.must_violate("as_counter")) == 1


def test_json_and_the_page_tell_it() -> None:
    result = check(Digits(most=14))
    told = json.loads(to_json(result))["violation"]
    assert told["kind"] == "refinement" and told["refinement"]["changes"] == [
        {"part": "value", "before": 14, "after": 15}
    ]
    (near,) = told["refinement"]["nearest"]
    assert (
        near["action"] == "count"
        and near["same"]
        and near["refused"][0]["source"] == "require(self.value < self.limit)"
    )
    page = html(result)
    assert "no step of counter" in page and "does just this, but is refused" in page


def test_the_explorer_judges_it() -> None:
    session = Session(Digits(first=3))
    (judged,) = session.judge(session.starts[0])
    assert (judged.name, judged.kind, judged.holds) == ("as_counter", "refinement", False)


def test_it_is_selected_by_name() -> None:
    class Both(Digits):
        @step_invariant
        def grows(self, after: Both) -> bool:
            return bool(after.tens >= self.tens)

    assert check(Both(most=14), invariants=["grows"]).holds
    assert check(Both(most=14), invariants=["as_counter"]).verdict == "as_counter"
    off = type("Off", (Digits,), {"as_counter": refines(Counter, {"value": lambda self: -1}, when=lambda p: False)})
    assert check(off()).holds


def test_a_simulation_and_a_limit_on_depth_judge_it() -> None:
    assert check(Digits(most=14), engine="simulate", seed=3, walks=400, depth=60).verdict == "as_counter"
    assert check(Digits(most=14), engine="embedded", max_depth=16).verdict == "as_counter"
    assert check(Digits(most=14), engine="embedded", max_depth=15).verdict == "not complete"


def test_checking_mode_runs_it_twice() -> None:
    assert check(Digits(most=3), engine="embedded", checking=True).verdict == "as_counter"
    result = check(Looking(), engine="embedded", checking=True)
    assert result.error is not None and "hidden" not in str(result.error) and "CALLS" in str(result.error)


CALLS = [0]


class Looking(Digits):
    """Its mapping counts its calls outside the state."""

    def counted(self) -> int:
        CALLS[0] += 1
        return 10 * self.tens + self.ones

    as_counter: Any = refines(Counter, {"value": lambda self: self.counted()}, constants={"limit": 99})


def test_a_resumed_search_goes_on_judging_it(tmp_path: Path) -> None:
    first = check(Digits(most=40), engine="embedded", max_depth=20, checkpoint=tmp_path / "saved", checkpoint_every=0)
    assert first.verdict == "not complete"
    resumed = check(Digits(most=40), engine="embedded", resume=tmp_path / "saved")
    assert len(resumed.must_violate("as_counter")) == 42


def test_several_refinements_are_judged_each_by_itself() -> None:
    class Twice(Digits):
        as_tens: Any = refines(Counter, {"value": "tens"})
        as_few: Any = refines(Counter, {"value": lambda self: self.tens}, constants={"limit": 5})

    for result in everywhere(Twice, keep_going=True):
        assert [v.name for v in result.violations] == ["as_few"]


class Viewed(Digits):
    """A computed view is no part of the mapped state."""

    @view
    def seen(self) -> Any:
        return 10 * self.tens + self.ones


def test_with_a_view_the_explored_steps_are_judged() -> None:
    for result in everywhere(Viewed):
        assert result.must_hold().distinct_states == 100
    assert {len(r.must_violate("as_counter")) for r in everywhere(lambda: Viewed(most=14))} == {16}


# -- reads of computed parts ------------------------------------------------------------------------------------------


class Late(Protocol):
    """The mapping reads ``later`` only at the end, after it changed in many states that were judged before."""

    fault: bool = constant(False)
    clock: int = state(0)
    value: int = state(0)
    later: int = state(0)

    @action
    def count(self) -> None:
        require(self.value < 3)
        self.value += 1
        if self.clock == 4:
            self.later = self.value

    @action
    def passes(self) -> None:
        require(self.clock < 4)
        self.clock += 1
        if self.clock == 4:
            self.later = self.value

    @action
    def stirs(self) -> None:
        require(self.clock < 4 or self.fault)
        self.later = (self.later + 1) % 3

    as_counter: Any = refines(
        Counter, {"value": lambda self: self.later if self.clock == 4 else self.value}, constants={"limit": 3}
    )


def explored_with_tables(stepper: Stepper, workers: int) -> tuple[Exploration, Tables]:
    search = Search(stepper, SearchOptions(workers=workers))
    executor = embedded.Embedded(Workspace(search))
    try:
        return search.run(executor), executor.workspace.tables
    finally:
        executor.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_that_reads_more_and_more(workers: int) -> None:
    stepper = Stepper(Late())
    explored, tables = explored_with_tables(stepper, workers)
    assert explored.complete and not explored.found
    assert tables.older[: int(tables.tries[0])].any(), "no outcome became another change"
    expected = len(check(Late(fault=True), engine="reference").must_violate("as_counter"))
    assert len(check(Late(fault=True), engine="embedded", workers=workers).must_violate("as_counter")) == expected


def test_what_was_decided_is_kept_with_the_tables() -> None:
    one, other = Stepper(Late(fault=True)), Stepper(Late(fault=False))
    kept = snapshot(explored_with_tables(one, 1)[1])
    restore(Tables(other), json.loads(json.dumps(kept, default=list)) | {"arrays": kept["arrays"]})
    assert one.changes.known == other.changes.known and one.changes.read == other.changes.read
    decided = [stepper.refinements["as_counter"].decided for stepper in (one, other)]
    assert decided[0] == decided[1]
    assert any(what is None for _, what in decided[0]) and any(what for _, what in decided[0])


# -- cost -------------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"bookies": 2, "write_quorum": 2, "ack_quorum": 1, "message_loss": False}


class ByName(BookKeeper):
    as_itself: Any = refines(BookKeeper)


class Computed(BookKeeper):
    as_itself: Any = refines(
        BookKeeper,
        {
            **{
                f"client.{f}": lambda self, c, f=f: getattr(self.client[c], f)
                for f in Client._fields
                if f not in ("confirmed", "curr_fragment")
            },
            "client.confirmed": lambda self, c, e: self.client[c].confirmed[e],
            "bookie": lambda self, b: LedgerOnBookie(
                self.bookie[b].entries, self.bookie[b].fenced, self.bookie[b].lac, self.bookie[b].lac_of_last
            ),
        },
    )


def test_python_is_called_little_more_often() -> None:
    plain = check(BookKeeper(**SMALL), engine="embedded").must_hold()
    for kind, most in ((ByName, 1.5), (Computed, 2.0)):
        refined = check(kind(**SMALL), engine="embedded").must_hold()
        assert refined.distinct_states == plain.distinct_states
        assert refined.evaluations < most * plain.evaluations < refined.distinct_states / 4


# -- planted faults ---------------------------------------------------------------------------------------------------


class Lock(Protocol):
    clients: tuple[ModelValue, ...] = model_values("c", 2)
    held: PerKey[ModelValue, bool] = per_key(clients, False)

    @action(c=clients)
    def acquire(self, c: ModelValue) -> None:
        require(not any(self.held[other] for other in self.clients))
        self.held[c] = True

    @action(c=clients)
    def release(self, c: ModelValue) -> None:
        require(self.held[c])
        self.held[c] = False


class Ask(Message):
    pass


class Grant(Message):
    pass


class GiveBack(Message):
    pass


SERVER = ModelValue("server")


class Service(Protocol):
    """A lock built on messages, with places for faults."""

    fault: str = constant("")
    clients: tuple[ModelValue, ...] = model_values("c", 2)
    granted: bool = state(False)
    at_work: PerKey[ModelValue, bool] = per_key(clients, False)
    network: Network = network({Ask: (clients, SERVER), Grant: (SERVER, clients), GiveBack: (clients, SERVER)})

    @action(c=clients)
    def asks(self, c: ModelValue) -> None:
        require(not self.at_work[c])
        self.network.send(Ask(), c, SERVER)
        if self.fault == "does not wait":
            self.at_work[c] = True

    @action(c=clients)
    def grants(self, c: ModelValue) -> None:
        require(not self.granted or self.fault == "grants twice")
        self.network.reply(self.network.receive(Ask, to=SERVER, source=c), Grant())
        self.granted = True

    @action(c=clients)
    def begins(self, c: ModelValue) -> None:
        self.network.receive(Grant, to=c)
        self.at_work[c] = True
        if self.fault == "wakes all":
            for other in self.clients:
                self.at_work[other] = True

    @action(c=clients)
    def ends(self, c: ModelValue) -> None:
        require(self.at_work[c])
        if self.fault != "goes on":
            self.at_work[c] = False
        self.network.send(GiveBack(), c, SERVER)

    @action(c=clients)
    def has_it_back(self, c: ModelValue) -> None:
        self.network.receive(GiveBack, to=SERVER, source=c)
        self.granted = False
        if self.fault == "hands over":
            self.at_work[one_of(self.clients)] = True

    as_lock: Any = refines(Lock, {"held": "at_work"})


FAULTS = {"": None, "does not wait": 3, "grants twice": 7, "wakes all": 4, "goes on": 9, "hands over": 9}


@pytest.mark.parametrize(("fault", "length"), FAULTS.items())
def test_a_planted_fault_is_found(fault: str, length: int | None) -> None:
    found = [None if r.holds else len(r.must_violate("as_lock")) for r in everywhere(lambda: Service(fault=fault))]
    assert found == [length] * 3


# -- refusals ---------------------------------------------------------------------------------------------------------


class Place(Record):
    row: int = 0
    column: int = 0


class Board(Protocol):
    keys: tuple[ModelValue, ...] = model_values("k", 2)
    size: int = constant(3)
    place: Place = state(Place)
    of: PerKey[ModelValue, int] = per_key(keys, 0)
    cells: Table[int, int] = table()
    net: int = state(0)

    @assumption
    def it_is_large_enough(self) -> bool:
        return self.size > 1 + 0 // (7 - self.size)

    @action
    def moves(self) -> None:
        require(self.place.row < self.size)
        self.place.row += 1


def board(mapping: dict[str, Any], **constants: Any) -> type[Protocol]:
    """A protocol with one variable. ``mapping`` changes its complete mapping of the others."""
    whole = {
        "place.row": lambda self: self.at,
        "place.column": lambda self: 0,
        "of": lambda self, k: 0,
        "cells": lambda self: {},
        "net": lambda self: 0,
    }

    class Mine(Protocol):
        at: int = state(0)
        both: Place = state(Place)
        few: PerKey[int, int] = per_key((1, 2), 0)
        as_board: Any = refines(
            Board, {k: v for k, v in {**whole, **mapping}.items() if v is not None}, constants=constants
        )

        @action
        def moves(self) -> None:
            require(self.at < 3)
            self.at += 1

    return Mine


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a variable without a mapping": (
        {"of": None},
        {},
        "does not say what of of board is, and mine has no of: map it, {'of': a function of the state}",
    ),
    "a name that is none": ({"colour": lambda self: 0}, {}, "maps colour, which is no part of a state of board"),
    "a field that is none": (
        {"place.colum": lambda self: 0},
        {},
        "maps place.colum, which is no part of a state of board: did you mean place.column?",
    ),
    "a variable that is none here": (
        {"place.row": "att"},
        {},
        "maps place.row to att, and mine has no variable att: did you mean at?",
    ),
    "a variable of another kind": (
        {"cells": "at"},
        {},
        "takes at for cells of board, and the one is one value, the other a table",
    ),
    "other keys": ({"of": "few"}, {}, "k1 is no key of few of mine"),
    "a value": ({"net": 3}, {}, "maps net by 3: give it a function of the state, or the name of a variable here"),
    "a dictionary for what is no network": ({"net": {Ask: None}}, {}, "maps net by a dictionary, and it is one value"),
    "a constant of another type": ({}, {"size": "large"}, "constant size is a whole number, not 'large'"),
    "a constant that is none": ({}, {"sizes": 3}, "board has no constant named sizes: did you mean size?"),
    "a constant that raises": ({}, {"size": lambda p: p.nothing}, "has no constant size for board: AttributeError"),
    "an assumption that raises": (
        {},
        {"size": 7},
        "cannot tell whether it_is_large_enough of board holds: ZeroDivisionError",
    ),
    "an assumption that is false": (
        {},
        {"size": 1},
        "with its constants, assumption it_is_large_enough of board is false",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_does_not_fit_is_one_clear_line(why: str) -> None:
    mapping, constants, said = REFUSED[why]
    with pytest.raises(FencepostError) as raised:
        check(board(mapping, **constants)())
    assert said in str(raised.value) and "as_board" in str(raised.value)
    assert "\n" not in str(raised.value) and raised.value.exit_code in (150, 151)


def _requires(self: Any) -> Any:
    require(self.at < 2)
    return self.at


RAISED: dict[str, tuple[dict[str, Any], str]] = {
    "it raises": ({"place.row": lambda self: 1 // (2 - self.at)}, "ZeroDivisionError"),
    "no value": ({"place.row": lambda self: [self.at]}, "comes to no place.row of board: place.row comes to a list"),
    "no such key": (
        {"place": lambda self: self.both, "place.row": None, "place.column": None, "of": lambda self, k: self.few[k]},
        "KeyError",
    ),
    "another record": (
        {"place": lambda self: 7, "place.row": None, "place.column": None},
        "comes to no place of board: 7 where a Place belongs",
    ),
    "it assigns": ({"place.row": lambda self: setattr(self, "at", 1)}, "a property cannot assign to the state"),
    "it chooses": ({"place.row": lambda self: one_of((1, 2))}, "a property cannot choose"),
    "it requires": (
        {"place.row": _requires},
        "asked require(...), which only an action can",
    ),
}


@pytest.mark.parametrize("why", RAISED)
def test_a_mapping_that_misbehaves_is_told_by_every_engine(why: str) -> None:
    mapping, said = RAISED[why]
    for result in everywhere(board(mapping)):
        assert result.verdict == "raised" and result.exit_code == 75
        assert said in str(result.error) and "as_board" in str(result.error) and "\n" not in str(result.error)


def test_what_is_given_to_refines_is_a_protocol() -> None:
    with pytest.raises(FencepostError, match="give it the class of the other protocol"):
        refines(Counter())  # type: ignore[arg-type]


# -- messages ---------------------------------------------------------------------------------------------------------


class Note(Message):
    text: int


class Letter(Message):
    text: int
    stamp: int


class Card(Message):
    text: int


def posts(kinds: dict[type, Any], mine: dict[str, Any], other: dict[str, Any], mapping: Any) -> type[Protocol]:
    """A protocol that sends these kinds of messages, and one that sends notes."""

    class Other(Protocol):
        ends: tuple[ModelValue, ...] = model_values("e", 2)
        net: Network = network({Note: (ends, ends)}, **other)

        @action(e=ends)
        def sends(self, e: ModelValue) -> None:
            self.net.send(Note(one_of((1, 2))), e, self.ends[0])

        @action(e=ends)
        def receives(self, e: ModelValue) -> None:
            self.net.receive(Note, to=e)

    class Mine(Protocol):
        ends: tuple[ModelValue, ...] = model_values("e", 2)
        net: Network = network(dict.fromkeys(kinds, (ends, ends)), **mine)
        as_notes: Any = refines(Other, {"net": mapping})

        @action(e=ends, kind=tuple(range(len(kinds))))
        def posts(self, e: ModelValue, kind: int) -> None:
            self.net.send(list(kinds.values())[kind](one_of((1, 2))), e, self.ends[0])

        @action(e=ends)
        def receives(self, e: ModelValue) -> None:
            self.net.receive(list(kinds)[one_of(range(len(kinds)))], to=e)

    return Mine


LETTER: dict[type, Any] = {Letter: lambda text: Letter(text, 7)}
BOTH = {**LETTER, Card: Card}
THERE: Any = (Note, lambda m: Note(m.text))
BACK: Any = (Note, lambda m: Note(m.text), lambda m: Letter(m.text, 7))


@pytest.mark.parametrize(
    ("kinds", "mine", "other", "mapping", "said"),
    [
        (LETTER, {}, {}, {Letter: THERE}, None),
        (LETTER, {"lossy": True, "once": True}, {"lossy": True, "once": True}, {Letter: THERE}, None),
        (LETTER, {"remember": True}, {"remember": True}, {Letter: BACK}, None),
        (BOTH, {}, {}, {Letter: THERE, Card: None}, None),
        (BOTH, {}, {}, {Letter: [THERE], Card: None}, None),
        (LETTER, {}, {}, {Letter: (Note, lambda m: Note(m.text + 1))}, "as_notes"),
        (LETTER, {"lossy": True}, {}, {Letter: THERE}, "of the two networks one is lossy"),
        (
            LETTER,
            {"remember": True},
            {"remember": True},
            {Letter: THERE},
            "remembers messages: give a function back too",
        ),
        (LETTER, {}, {}, {Letter: Note}, "maps Letter to Note, which has other fields"),
        (LETTER, {}, {}, {Letter: Card}, "maps Letter to Card, which"),
        (LETTER, {}, {}, {Letter: 3}, "maps Letter to 3: give it a kind of message"),
        (BOTH, {}, {}, {Letter: THERE}, "does not say what Card is in net"),
        (BOTH, {"ordered": True}, {"ordered": True}, {Letter: THERE, Card: Note}, "which is ordered"),
        (LETTER, {}, {}, {Letter: (Note, lambda m: m)}, "which is no Note"),
    ],
)
def test_messages_are_mapped_one_by_one(
    kinds: dict[type, Any], mine: dict[str, Any], other: dict[str, Any], mapping: Any, said: str | None
) -> None:
    protocol = posts(kinds, mine, other, mapping)
    refused = ""
    results = []
    try:
        results = everywhere(protocol, max_states=2_000)
    except FencepostError as error:
        refused = str(error)
    assert not refused or (said is not None and said in refused), refused
    for result in results:
        wrong = " ".join([*(violation.name for violation in result.violations), str(result.error or "")]).strip()
        assert said in wrong if said else not wrong, result
