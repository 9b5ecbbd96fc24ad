"""Replay of steps against a protocol: answers from the cache equal those of Python."""

from __future__ import annotations

import gc
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces.counters import Counters, Told

from fencepost import (
    FencepostError,
    ModelValue,
    NotAProtocol,
    PerKey,
    Protocol,
    Record,
    action,
    constant,
    initial,
    one_of,
    per_key,
    require,
    state,
)
from fencepost.semantics.state import State, ValueTable
from fencepost.traces.validation.replay import Open, Refused, Replayer, Taken
from fencepost.traces.validation.steps import ANY, Like, like

N1, N2 = ModelValue("n1"), ModelValue("n2")
TELLS = ("tells", (("n", N1), ("m", N2)), ())
HEARS = ("hears", (("n", N2), ("m", N1)), (like(count=1),))


def do(replayer: Replayer, row: list[int], step: tuple[Any, ...]) -> Taken:
    taken = replayer.step(row, *step)
    assert isinstance(taken, Taken), taken
    replayer.apply(row, taken.writes)
    return taken


def state_of(replayer: Replayer, row: list[int]) -> dict[str, Any]:
    return {slot.name: value for slot, value in State(replayer.store, row).touched()}


def test_a_step_changes_the_state_and_tells_what_it_sent() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    taken = do(replayer, row, TELLS)
    assert state_of(replayer, row)["count.n1"] == 1
    assert [(event.kind, event.source, event.dest, event.passed) for event in taken.events] == [
        ("send", N1, N2, (Told(1),))
    ]
    taken = do(replayer, row, HEARS)
    assert replayer.value(row, ("count", N2)) == 1
    assert [event.kind for event in taken.events] == ["receive"]


def test_asking_for_a_step_leaves_the_state_as_it_is() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    replayer.step(row, *TELLS)
    assert state_of(replayer, row) == {}


def test_what_was_written_can_be_written_back() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    do(replayer, row, TELLS)
    before = state_of(replayer, row)
    taken = replayer.step(row, *HEARS)
    assert isinstance(taken, Taken)
    kept = replayer.apply(row, taken.writes)
    assert state_of(replayer, row) != before
    replayer.apply(row, tuple(kept))
    assert state_of(replayer, row) == before


def test_the_second_time_no_python_is_run() -> None:
    replayer = Replayer(Counters())
    for evaluations, cache_hits in ((2, 0), (2, 2), (2, 4)):
        row = replayer.initial()
        do(replayer, row, TELLS)
        do(replayer, row, HEARS)
        assert (replayer.evaluations, replayer.cache_hits) == (evaluations, cache_hits)


class Keeps(Protocol):
    """Keeps what it is given, or what is picked."""

    kept: Any = state(None)

    @action(value=(0,))
    def keeps(self, value: Any) -> None:
        self.kept = value

    @action
    def picks(self) -> None:
        self.kept = one_of([1, True, 1.0, 0.0, -0.0, (1,), (True,), (0.0,), (-0.0,)])


@pytest.mark.parametrize("equal", [(1, True, 1.0), (0.0, -0.0), ((1,), (True,)), ((0.0,), (-0.0,))])
def test_what_python_takes_for_equal_is_cached_as_what_it_is(equal: tuple[Any, ...]) -> None:
    replayer = Replayer(Keeps())
    for evaluations in (2 * len(equal), 2 * len(equal)):
        for value in equal:
            for step in (("keeps", (("value", value),), ()), ("picks", (), (value,))):
                row = replayer.initial()
                do(replayer, row, step)
                assert repr(replayer.value(row, ("kept",))) == repr(value)
        assert replayer.evaluations == evaluations
    assert replayer.cache_hits == 2 * len(equal)


def test_a_record_is_picked_by_fields_of_their_own_types() -> None:
    class Item(Record):
        id: Any = 0

    class Picks(Protocol):
        kept: Any = state(None)

        @action
        def picks(self) -> None:
            self.kept = one_of([Item(1), Item(True)])

    replayer = Replayer(Picks())
    for value in (1, True, 1, True):
        assert do(replayer, replayer.initial(), ("picks", (), (like(id=value),))).labels[0].id is value


def test_a_refusal_is_cached_too() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    first, second = (replayer.step(row, "writes", (("n", N1),), ()) for _ in range(2))
    assert first == second
    assert isinstance(first, Refused)
    assert (replayer.evaluations, replayer.cache_hits) == (1, 1)


def test_a_refusal_names_the_file_the_line_and_its_text() -> None:
    replayer = Replayer(Counters())
    refused = replayer.step(replayer.initial(), "writes", (("n", N1),), ())
    assert isinstance(refused, Refused)
    assert refused.reason == "is not enabled"
    assert refused.asked == "require(self.count[n] > self.register.count)"
    file, line = refused.where.rsplit(":", 1)
    assert file.endswith("counters.py")
    with open(file) as text:
        assert refused.asked in text.read().splitlines()[int(line) - 1]
    assert str(refused) == f"is not enabled at {refused.where}: {refused.asked}"


def test_a_refusal_within_the_package_is_named_by_its_place_there() -> None:
    from fencepost.protocols.store.store import Store

    replayer = Replayer(Store())
    c1 = ModelValue("c1")
    refused = replayer.step(replayer.initial(), "client_opens_ledger", (("c", c1),), ())
    assert isinstance(refused, Refused)
    assert re.fullmatch(r"fencepost/protocols/store/store\.py:\d+", refused.where)
    assert refused.asked == "require(self.meta.metadata is not None)"


def test_a_choice_is_taken_as_it_is_picked() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    for _ in range(3):
        do(replayer, row, TELLS)
    taken = do(replayer, row, ("falls_back", (("n", N1),), (1,)))
    assert (taken.labels, replayer.value(row, ("count", N1))) == ((1,), 1)


def test_a_record_is_picked_by_some_of_its_fields() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    for _ in range(3):
        do(replayer, row, TELLS)
    do(replayer, row, ("hears", (("n", N2), ("m", N1)), (like(count=2),)))
    assert replayer.value(row, ("count", N2)) == 2


def test_nothing_to_pick_is_a_refusal_that_names_what_there_was() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    do(replayer, row, TELLS)
    refused = replayer.step(row, "hears", (("n", N2), ("m", N1)), (like(count=2, why="it counts"),))
    assert isinstance(refused, Refused)
    assert refused.reason.startswith("there is no count=2 and why='it counts' among Told(count=1, ")
    assert "self.network.receive" in refused.asked


class Far(Protocol):
    """Its steps may go to very many places."""

    place: int = state(0)

    @action
    def goes(self) -> None:
        self.place = one_of(range(1 << 62))

    @action(to=range(10_001))
    def jumps(self, to: int) -> None:
        self.place = to


def test_what_is_left_open_has_a_limit() -> None:
    replayer = Replayer(Far())
    row = replayer.initial()
    refused = replayer.step(row, "goes", (), (ANY,))
    assert isinstance(refused, Refused)
    assert refused.reason.endswith("options is left open, and at most 10,000 are tried")
    with pytest.raises(
        FencepostError, match="jumps has 10,001 values of the parameters that are left open, and at most"
    ):
        replayer.step(row, "jumps", (("to", ANY),), ())


def test_of_a_choice_among_very_many_some_are_named() -> None:
    replayer = Replayer(Far())
    row = replayer.initial()
    refused = replayer.step(row, "goes", (), (-1,))
    assert isinstance(refused, Refused)
    assert refused.reason == "there is no -1 among 0, 1, 2, 3, 4, and 4,611,686,018,427,387,899 more"
    assert do(replayer, row, ("goes", (), (1 << 61,))).labels == (1 << 61,)


def test_no_such_action() -> None:
    replayer = Replayer(Counters())
    with pytest.raises(FencepostError, match="counters has no action sleeps"):
        replayer.step(replayer.initial(), "sleeps", (), ())


def test_a_choice_that_is_left_open() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    for _ in range(7):
        do(replayer, row, TELLS)
    refused = replayer.step(row, "falls_back", (("n", N1),), ())
    assert isinstance(refused, Refused)
    assert refused.reason == "the conformance does not say which of 7 options to pick: 0, 1, 2, 3, 4, and 2 more"
    assert refused.asked == "self.count[n] = one_of(range(self.count[n]))"


def test_a_choice_with_one_option_may_be_left_open() -> None:
    replayer = Replayer(Counters())
    row = replayer.initial()
    do(replayer, row, TELLS)
    do(replayer, row, ("falls_back", (("n", N1),), ()))
    assert replayer.value(row, ("count", N1)) == 0


def test_a_pick_that_nobody_asks_for_is_a_refusal() -> None:
    replayer = Replayer(Counters())
    refused = replayer.step(replayer.initial(), "tells", (("n", N1), ("m", N2)), (3,))
    assert isinstance(refused, Refused)
    assert refused.reason == "tells offers no choice here and ends, and the trace picks 3"
    assert refused.where == "tests/traces/counters.py:55"
    assert refused.asked == "self.network.send(Told(self.count[n]), n, m)"


def test_like_looks_into_records_and_nowhere_else() -> None:
    class Inner(Record):
        id: int = 1

    class Outer(Record):
        entry: Inner = Inner()
        code: str = "OK"

    assert like(entry__id=1, code="OK").matches(Outer())
    assert not like(entry__id=2).matches(Outer())
    assert not like(entry__id=1).matches(Outer(Inner(2)))
    assert not like(entry__name=1).matches(Outer())
    assert not like(code__length=2).matches(Outer())
    assert Like(()).matches(7)
    assert str(like(code="OK", entry__id=1)) == "code='OK' and entry.id=1"


class Begun(Protocol):
    """It begins elsewhere than its declarations say."""

    name = "begun"
    most: int = constant(3)
    left: int = state(0)

    @initial
    def full(self) -> None:
        self.left = self.most

    @action
    def takes(self) -> None:
        require(self.left > 0)
        self.left -= 1


class Nowhere(Begun):
    """It cannot begin."""

    @initial
    def full(self) -> None:
        require(False)


class OutOfTune(Protocol):
    """An action that looks at more than the state."""

    name = "out-of-tune"
    one: int = state(0)
    other: int = state(0)
    turn = 0

    @action
    def changes(self) -> None:
        OutOfTune.turn += 1
        if OutOfTune.turn % 2:
            require(self.one == 5)
        require(self.other == 5)

    @action
    def moves(self) -> None:
        self.one = one_of((1, 2))


def test_it_begins_as_the_protocol_says() -> None:
    replayer = Replayer(Begun(most=2))
    row = replayer.initial()
    do(replayer, row, ("takes", (), ()))
    do(replayer, row, ("takes", (), ()))
    refused = replayer.step(row, "takes", (), ())
    assert isinstance(refused, Refused)
    assert refused.asked == "require(self.left > 0)"


def test_a_protocol_that_can_not_begin() -> None:
    with pytest.raises(
        FencepostError, match=r"the initial state is not to be had: is not enabled at .*require\(False\)"
    ):
        Replayer(Nowhere()).initial()


def test_an_action_that_looks_at_more_than_the_state_is_found() -> None:
    replayer = Replayer(OutOfTune())
    row = replayer.initial()
    replayer.step(row, "changes", (), ())
    moved = replayer.step(row, "moves", (), (1,))
    assert isinstance(moved, Taken)
    replayer.apply(row, moved.writes)
    with pytest.raises(FencepostError, match="not deterministic"):
        replayer.step(row, "changes", (), ())


class Stubborn(Protocol):
    """An action that goes on where it is not enabled."""

    left: int = state(1)

    @action
    def takes(self) -> None:
        with suppress(BaseException):
            require(self.left > 0)
        self.left -= 1


def test_a_condition_that_fails_refuses_the_step_even_if_the_action_goes_on() -> None:
    replayer = Replayer(Stubborn())
    replayer.remembers = False
    row = replayer.initial()
    do(replayer, row, ("takes", (), ()))
    assert replayer.step(row, "takes", (), ()) == Refused("is not enabled")
    row = replayer.initial()
    do(replayer, row, ("takes", (), ()))


class Chooser(Protocol):
    """An action that goes on where its choice cannot be taken."""

    taken: int = state(0)

    @action
    def takes(self) -> None:
        taken = 9
        with suppress(BaseException):
            taken = one_of((1, 2))
        self.taken = taken


def test_a_choice_that_cannot_be_taken_ends_the_step_even_if_the_action_goes_on() -> None:
    replayer = Replayer(Chooser())
    replayer.remembers = False
    row = replayer.initial()
    unsaid = replayer.step(row, "takes", (), ())
    assert isinstance(unsaid, Refused) and "does not say which of 2 options" in unsaid.reason
    assert unsaid.asked == "taken = one_of((1, 2))"
    other = replayer.step(row, "takes", (), (3,))
    assert isinstance(other, Refused) and other.reason == "there is no 3 among 1, 2"
    opened = replayer.step(row, "takes", (), (ANY,))
    assert isinstance(opened, Open) and opened.ways == (("takes", (), (1,)), ("takes", (), (2,)))
    do(replayer, row, ("takes", (), (2,)))
    assert replayer.value(row, ("taken",)) == 2


class Twice(Protocol):
    """An action that goes on to a second choice where its first one cannot be taken."""

    @action
    def takes(self) -> None:
        with suppress(BaseException):
            one_of((1, 2))
        one_of((3, 4))


def test_a_step_ends_at_the_first_choice_that_cannot_be_taken() -> None:
    replayer = Replayer(Twice())
    replayer.remembers = False
    row = replayer.initial()
    assert replayer.step(row, "takes", (), (ANY, 5)) == Open((("takes", (), (1, 5)), ("takes", (), (2, 5))))
    found = replayer.step(row, "takes", (), (5, 3))
    assert isinstance(found, Refused) and found.reason == "there is no 5 among 1, 2"


@pytest.mark.parametrize("picks", [(), (3,), (ANY,)])
def test_a_step_that_ends_at_a_choice_leaves_nothing_to_collect(picks: tuple[Any, ...]) -> None:
    """``validate`` collects garbage rarely."""
    replayer = Replayer(Chooser())
    replayer.remembers = False
    row = replayer.initial()
    replayer.step(row, "takes", (), picks)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            replayer.step(row, "takes", (), picks)
        assert gc.collect() < 100
    finally:
        gc.enable()


class Numbers(Protocol):
    """Keys that are numbers."""

    counts: PerKey[int, int] = per_key((1, 2), 0)

    @action(key=(1,))
    def counts_at(self, key: int) -> None:
        self.counts[1] += self.counts[1] + self.counts[key] + 1


def test_a_key_that_only_equals_another_is_none() -> None:
    replayer = Replayer(Numbers())
    row = replayer.initial()
    for counted in (1, 4):
        do(replayer, row, ("counts_at", (("key", 1),), ()))
        assert replayer.value(row, ("counts", 1)) == counted
        with pytest.raises(FencepostError, match="True is not a key of counts"):
            replayer.step(row, "counts_at", (("key", True),), ())


def test_a_part_of_a_state_that_there_is_not() -> None:
    replayer = Replayer(Counters())
    with pytest.raises(KeyError):
        replayer.value(replayer.initial(), ("counts", N1))


# -- the twin ---------------------------------------------------------------------------------------------------------


class Plain(Replayer):
    """Runs Python for every step."""

    def step(self, row: list[int], *step: Any) -> Taken | Refused | Open:
        self._tries.clear()
        return super().step(row, *step)


NODES = st.sampled_from((N1, N2))
STEPS = st.one_of(
    st.tuples(st.just("tells"), st.tuples(st.tuples(st.just("n"), NODES), st.tuples(st.just("m"), NODES)), st.just(())),
    st.tuples(
        st.just("hears"),
        st.tuples(st.tuples(st.just("n"), NODES), st.tuples(st.just("m"), NODES)),
        st.tuples(st.integers(1, 4).map(lambda count: like(count=count))),
    ),
    st.tuples(st.just("falls_back"), st.tuples(st.tuples(st.just("n"), NODES)), st.tuples(st.integers(0, 3))),
    st.tuples(st.sampled_from(("reads", "writes")), st.tuples(st.tuples(st.just("n"), NODES)), st.just(())),
)
WALKED = Replayer(Counters())
"""One for all examples, which share its cache."""


@given(st.lists(STEPS, max_size=25))
def test_what_is_walked_is_what_python_says(steps: list[Any]) -> None:
    plain = Plain(Counters())
    row, plain_row = WALKED.initial(), plain.initial()
    for step in steps:
        cache_hits, run = WALKED.step(row, *step), plain.step(plain_row, *step)
        assert type(cache_hits) is type(run)
        if isinstance(cache_hits, Taken) and isinstance(run, Taken):
            assert (cache_hits.labels, cache_hits.events) == (run.labels, run.events)
            WALKED.apply(row, cache_hits.writes)
            plain.apply(plain_row, run.writes)
        else:
            assert cache_hits == run
        assert state_of(WALKED, row) == state_of(plain, plain_row)
    assert plain.cache_hits == 0


class Long(Protocol):
    """More parts of the state, and more options, than anybody could explore."""

    size: int = constant(1_000_000)
    before: int = state(0)
    done: PerKey[int, bool] = per_key(lambda protocol: range(protocol.size), False)
    after: int = state(0)

    @action()
    def does(self) -> None:
        number = one_of(range(self.size))
        require(not self.done[number])
        self.after = number
        self.done[number] = True
        self.before = number


def test_a_protocol_is_followed_that_is_too_large_to_explore() -> None:
    replayer = Replayer(Long())
    row = replayer.initial()
    assert replayer.value(row, ("done", 999_999)) is False
    before = State(replayer.store, row)
    do(replayer, row, ("does", (), (999_999,)))
    assert replayer.value(row, ("done", 999_999)) is True
    changes = replayer.in_order(State(replayer.store, row).changes(before))
    assert [slot.name for slot, _, _ in changes] == ["before", "done.999999", "after"]
    with pytest.raises(KeyError):
        replayer.value(row, ("done", True))
    with pytest.raises(NotAProtocol, match="more than 65,536 members"):
        ValueTable(Long())


def test_the_cache_is_cleared_within_a_trace() -> None:
    replayer = Replayer(Long(), cache_limit=3)
    row = replayer.initial()
    for number in (*range(5), *range(5)):
        assert isinstance(replayer.step(row, "does", (), (number,)), Taken)
    assert replayer.evaluations == 10


def test_a_cache_that_answers_nothing_is_cleared_and_one_that_answers_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.traces.validation.replay.MANY", 20)
    for again, is_kept in ((0, False), (2, False), (3, True)):
        replayer = Replayer(Long())
        row = replayer.initial()
        for number in (*range(10), *range(again), *range(10, 20)):  # the last one may clear what the others left
            replayer.step(row, "does", (), (number,))
        assert replayer.evaluations == 20
        replayer.step(row, "does", (), (5,))
        assert (replayer.evaluations == 20) is is_kept, again


def test_slots_with_one_default_share_their_values_and_others_do_not() -> None:
    replayer = Replayer(Keeps())
    row = replayer.initial()
    do(replayer, row, ("keeps", (("value", 7),), ()))
    assert replayer.value(row, ("kept",)) == 7

    class Two(Protocol):
        one: Any = state(0)
        other: Any = state(False)
        more: Any = per_key((N1, N2), 0)

        @action(node=(N1, N2))
        def sets(self, node: ModelValue) -> None:
            self.one, self.other, self.more[node] = 5, True, 5

    replayer = Replayer(Two())
    row = replayer.initial()
    do(replayer, row, ("sets", (("node", N1),), ()))
    assert [replayer.value(row, path) for path in (("one",), ("other",), ("more", N1), ("more", N2))] == [5, True, 5, 0]
    assert len({id(values) for values in replayer.store.values}) == 2
