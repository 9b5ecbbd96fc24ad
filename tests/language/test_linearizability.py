"""Histories against a checker by definition, which tries every order of every choice of calls."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from campaigns import campaign_if
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost import ModelValue, Protocol, action, check, invariant, model_values, require
from fencepost.errors import Misbehaved
from fencepost.language.linearizability import (
    History,
    Linearization,
    Log,
    Queue,
    Register,
    Sequential,
    _closed,
    history,
)
from fencepost.language.loading import load

CLIENTS = [ModelValue(name, n) for n, name in enumerate("abc")]
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "quorum_register.py"

Event = tuple[Any, ...]
"""``(client, operation, arguments)`` when a call begins, ``(client, result)`` when it ends."""


# -- the definition ---------------------------------------------------------------------------------------------------


def register(calls: Sequence[tuple[str, tuple[Any, ...]]]) -> tuple[Any, list[Any]]:
    """A register's content after sequential calls, and the result of each."""
    value: Any = None
    returned: list[Any] = []
    for operation, arguments in calls:
        returned.append(value if operation == "read" else None)
        value = value if operation == "read" else arguments[0]
    return value, returned


def queue(calls: Sequence[tuple[str, tuple[Any, ...]]]) -> tuple[Any, list[Any]]:
    items: list[Any] = []
    returned = []
    for operation, arguments in calls:
        if operation == "enqueue":
            items.append(arguments[0])
        returned.append((items.pop(0) if items else None) if operation == "dequeue" else None)
    return tuple(items), returned


def log(calls: Sequence[tuple[str, tuple[Any, ...]]]) -> tuple[Any, list[Any]]:
    entries: list[Any] = []
    returned: list[Any] = []
    for operation, arguments in calls:
        if operation == "append":
            entries.append(arguments[0])
            returned.append(len(entries) - 1)
        elif operation == "size":
            returned.append(len(entries))
        else:
            returned.append(dict(enumerate(entries)).get(arguments[0]))
    return tuple(entries), returned


def explained(events: Sequence[Event], run: Any) -> set[Any]:
    """Every explanation of a history: the content of the object, and the results of pending calls."""
    calls: list[dict[str, Any]] = []
    for time, event in enumerate(events):
        if len(event) == 3:
            calls.append({"client": event[0], "call": event[1:], "begin": time, "end": None})
        else:
            mine = next(c for c in calls if c["client"] == event[0] and c["end"] is None)
            mine |= {"end": time, "result": event[1]}
    ended, going_on = [c for c in calls if c["end"] is not None], [c for c in calls if c["end"] is None]
    found = set()
    for size in range(len(going_on) + 1):
        for some in itertools.combinations(going_on, size):
            for order in itertools.permutations([*ended, *some]):
                late = (
                    b["end"] is not None and b["end"] < a["begin"] for n, a in enumerate(order) for b in order[n + 1 :]
                )
                if any(late):
                    continue
                content, returned = run([c["call"] for c in order])
                if all(c["end"] is None or same(c["result"], r) for c, r in zip(order, returned, strict=True)):
                    results = frozenset(
                        (c["client"], r) for c, r in zip(order, returned, strict=True) if c["end"] is None
                    )
                    found.add((content, results))
    return found


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


# -- random histories -------------------------------------------------------------------------------------------------

OBJECTS: dict[str, tuple[Sequential, Any, list[tuple[str, tuple[Any, ...]]], list[Any]]] = {
    "register": (Register(), register, [("read", ()), ("read", ()), ("write", (1,)), ("write", (2,))], [None, 1, 2]),
    "queue": (Queue(), queue, [("enqueue", (1,)), ("enqueue", (2,)), ("dequeue", ()), ("dequeue", ())], [None, 1, 2]),
    "log": (Log(), log, [("append", (7,)), ("append", (8,)), ("read", (0,)), ("size", ())], [None, 0, 1, 2, 7, 8]),
}


@st.composite
def events(draw: Any, of: str, most: int = 5) -> list[Event]:
    """A history of at most ``most`` calls. Most results could come from a linearizable object."""
    first, _, operations, results = OBJECTS[of]
    kept = begun(first)
    found: list[Event] = []
    calls = 0
    for _ in range(draw(st.integers(0, 2 * most))):
        client = draw(st.sampled_from(CLIENTS))
        if client not in kept.calls:
            calls += 1
            if calls > most:
                break
            operation, arguments = draw(st.sampled_from(operations))
            found.append((client, operation, arguments))
        else:
            closed = _closed(kept.linearizations, kept.calls)
            likely = [p.results[client] for p in closed if client in p.results]
            found.append((client, draw(st.sampled_from([*likely, *likely, *results]))))
        tell(kept, found[-1])
    return found


def begun(first: Sequential) -> Any:
    """A history outside a state. Its methods work on any object with the parts of one."""
    return SimpleNamespace(calls={}, linearizations={Linearization(first)})


def tell(kept: Any, event: Event) -> None:
    if len(event) == 3:
        History.invoke(kept, event[0], event[1], *event[2])
    else:
        History.respond(kept, *event)


def content(object: Sequential) -> Any:
    return getattr(object, object._fields[0])


@pytest.mark.parametrize("of", OBJECTS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_kept_is_what_can_be_explained(of: str, data: st.DataObject) -> None:
    first, run, _, _ = OBJECTS[of]
    told = data.draw(events(of))
    kept = begun(first)
    for number, event in enumerate(told):
        tell(kept, event)
        expected = explained(told[: number + 1], run)
        assert bool(kept.linearizations) is bool(expected)
        closed = _closed(kept.linearizations, kept.calls)
        assert {(content(p.object), frozenset(p.results.items())) for p in closed} == expected
        assert len(closed) == len(expected)


@pytest.mark.parametrize("of", OBJECTS)
@settings(max_examples=40)
@given(data=st.data())
def test_nothing_is_kept_that_follows_from_the_rest(of: str, data: st.DataObject) -> None:
    kept = begun(OBJECTS[of][0])
    for event in data.draw(events(of, most=8)):
        tell(kept, event)
    for one in kept.linearizations:
        others = [p for p in kept.linearizations if p != one]
        assert one not in _closed(others, kept.calls)


# -- known histories --------------------------------------------------------------------------------------------------


def linearizable(first: Sequential, *told: Event) -> bool:
    kept = begun(first)
    for event in told:
        tell(kept, event)
    return bool(History.is_linearizable.fget(kept))  # type: ignore[attr-defined]


A, B, C = CLIENTS


def test_figure_one_of_herlihy_and_wing() -> None:
    """Four histories of a queue."""
    overlapping = [(A, "enqueue", ("x",)), (B, "enqueue", ("y",)), (B, None), (A, None)]
    assert linearizable(Queue(), *overlapping, (B, "dequeue", ()), (A, "dequeue", ()), (B, "x"), (A, "y"))
    assert linearizable(Queue(), *overlapping, (B, "dequeue", ()), (A, "dequeue", ()), (B, "y"), (A, "x"))
    in_turn = [(A, "enqueue", ("x",)), (A, None), (B, "enqueue", ("y",)), (B, None)]
    assert not linearizable(Queue(), *in_turn, (A, "dequeue", ()), (A, "y"))
    assert linearizable(Queue(), (A, "enqueue", ("x",)), (B, "dequeue", ()), (B, "x"), (A, None))
    assert not linearizable(Queue(), *in_turn, (A, "dequeue", ()), (B, "dequeue", ()), (A, "x"), (B, "x"))


def test_a_call_that_never_ends_may_take_effect_at_any_time() -> None:
    write = (C, "write", (1,))
    reads = [((A, "read", ()), (A, seen)) for seen in (None, None, 1, 1)]
    assert linearizable(Register(), write, *itertools.chain(*reads))
    assert not linearizable(Register(), write, *itertools.chain(*reads), (A, "read", ()), (A, None))


def test_one_is_not_true() -> None:
    assert not linearizable(Register(1), (A, "read", ()), (A, True))


class Mutex(Sequential):
    """A lock. A client that acquires it while it is held waits."""

    holder: Any = None

    def acquire(self, who: Any) -> tuple[Mutex, None] | None:
        return (self.replace(holder=who), None) if self.holder is None else None

    def release(self) -> tuple[Mutex, None]:
        return self.replace(holder=None), None


def test_an_operation_may_wait() -> None:
    held = [(A, "acquire", ("a",)), (A, None), (B, "acquire", ("b",))]
    assert not linearizable(Mutex(), *held, (B, None))
    assert linearizable(Mutex(), *held, (A, "release", ()), (B, None), (A, None))


def test_misuse_is_told() -> None:
    for told, says in (
        ([(A, "read", ()), (A, "read", ())], "begins a call of a, whose read has not ended"),
        ([(A, None)], "ends a call of a, which has begun none"),
        ([(A, "push", (1,))], "calls push, which is no operation of a Register: it has read, write"),
        ([(A, "replace", ())], "calls replace, which is no operation of a Register: it has read, write"),
    ):
        with pytest.raises(Misbehaved, match=says):
            linearizable(Register(), *told)


# -- in a protocol ----------------------------------------------------------------------------------------------------


class Racing(Protocol):
    """Two clients increment a number. Each reads it, and later writes it plus one."""

    clients: Any = model_values("c", 2, symmetric=True)
    tally: History = history(Register(0))

    @action(c=clients)
    def reads(self, c: ModelValue) -> None:
        require(c not in self.tally.calls)
        self.tally.invoke(c, "read")

    @action(c=clients)
    def has_read(self, c: ModelValue) -> None:
        require(c in self.tally.calls)
        self.tally.respond(c, 0)

    @invariant
    def linearizable(self) -> bool:
        return self.tally.is_linearizable


WAYS: list[dict[str, Any]] = [
    {"engine": "reference"},
    {"engine": "auto"},
    {"engine": "embedded", "workers": 2},
    {"engine": "embedded", "checking": True},
    {"engine": "embedded", "symmetry": True},
    {"engine": "simulate", "seed": 1, "walks": 100_000},
]


@pytest.mark.parametrize(
    "way", campaign_if(lambda way: "checking" in way, WAYS), ids=lambda way: "-".join(map(str, way.values()))
)
def test_a_quorum_without_writing_back_is_not_linearizable(way: dict[str, Any]) -> None:
    protocol = load(str(EXAMPLE))
    trace = check(protocol(write_back=False, readers=1), **way).must_violate("linearizable")
    assert (len(trace) == 11 or way["engine"] == "simulate") and trace.states[-1].variables()[
        "history"
    ].linearizations == frozenset()


def test_a_quorum_that_writes_back_is_linearizable() -> None:
    protocol = load(str(EXAMPLE))
    whole = check(protocol(), engine="embedded").must_hold()
    assert check(protocol(), engine="embedded", symmetry=True).must_hold().distinct_states < whole.distinct_states / 5


def test_histories_with_one_future_are_one_state() -> None:
    """The number of past reads does not count. Only pending reads are kept."""
    assert check(Racing(), engine="reference").must_hold().distinct_states == 4


def test_misuse_in_an_action_names_the_action() -> None:
    class Twice(Racing):
        @action(c=Racing.clients)
        def reads(self, c: ModelValue) -> None:
            self.tally.invoke(c, "read")

    result = check(Twice(), engine="reference")
    said = r"action reads\(c=(c\d)\) begins a call of \1, whose read has not ended"
    assert result.verdict == "raised" and re.search(said, str(result.error))


def test_a_history_comes_back_from_a_checkpoint(tmp_path: Path) -> None:
    protocol = load(str(EXAMPLE))
    check(protocol(readers=1), engine="embedded", max_depth=5, checkpoint=tmp_path / "saved")
    resumed = check(protocol(readers=1), engine="embedded", resume=tmp_path / "saved").must_hold()
    assert resumed.distinct_states == check(protocol(readers=1), engine="auto").must_hold().distinct_states
