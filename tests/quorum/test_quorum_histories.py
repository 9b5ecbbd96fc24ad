"""What the bench of quorums takes for a linearizable history is what the checker of protocols takes for one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.quorum import histories
from bench.quorum.histories import ANY, BAD_VERSION, DONE, NO_NODE, NODE_EXISTS, Call, contradiction, done

from fencepost.linearizability import History, Linearization, Sequential
from fencepost.spec.values import Set, Value


class OneZnode(Sequential):
    """A znode for the checker of protocols."""

    znode: Value = None

    def do(self, what: str, value: str, version: int) -> Any:
        after, answered = done(self.znode, Call(0, 0, what, value, version))  # type: ignore[arg-type]
        return self.replace(znode=after), answered


def explained(calls: list[Call]) -> bool:
    """What the checker of protocols says, a call at a time. A call without an answer may be done until it ends: it is tried with each answer that it
    could have had, and without it."""
    unknown = next((number for number, call in enumerate(calls) if call.result is None), None)
    if unknown is not None:
        answers = [DONE, NO_NODE, NODE_EXISTS, BAD_VERSION, *range(1, 8)]
        call, others = calls[unknown], calls[:unknown] + calls[unknown + 1 :]
        return explained(others) or any(
            explained([*others, Call(call.begin, call.end, call.what, call.value, call.version, answer)]) for answer in answers
        )
    history = History(linearizations=Set({Linearization(OneZnode())}))
    events = sorted([(call.begin, 0, number) for number, call in enumerate(calls)] + [(call.end, 1, number) for number, call in enumerate(calls)])
    for _, ends, number in events:
        call = calls[number]
        if ends:
            history.respond(number, call.result)
        else:
            history.invoke(number, "do", call.what, call.value, call.version)
    return bool(history.is_linearizable)


@st.composite
def drawn(draw: Any) -> list[Call]:
    """A few calls that overlap, whose answers some order gives, but for one that may be anything."""
    count = draw(st.integers(1, 6))
    times = draw(st.permutations(range(2 * count)))
    znode: Any = None
    calls = []
    for number in range(count):
        begin, end = sorted(times[2 * number : 2 * number + 2])
        what = draw(st.sampled_from(["create", "write", "write", "read", "delete"]))
        call = Call(begin, end, what, f"v{number}" if what in ("create", "write") else "", draw(st.sampled_from([ANY, ANY, 0, 1])))
        znode, result = done(znode, call)
        if draw(st.integers(0, 5)) == 0:
            result = None
        elif draw(st.integers(0, 5)) == 0:
            result = draw(st.sampled_from([DONE, NO_NODE, BAD_VERSION, NODE_EXISTS, 1, 2, ("v0", 0), ("v1", 1)]))
        calls.append(Call(call.begin, call.end, call.what, call.value, call.version, result))
    return calls


@settings(max_examples=400, deadline=None)
@given(drawn())
def test_it_says_what_the_checker_of_protocols_says(calls):
    if sum(call.result is None for call in calls) <= 2:
        known = [call for call in calls if not (call.result is None and call.what == "read")]
        assert (contradiction(calls) == "") == explained(known)


def test_a_write_that_is_lost_is_seen():
    calls = [Call(0, 1, "create", "a", result=DONE), Call(2, 3, "write", "b", result=1), Call(4, 5, "read", result=("a", 0))]
    assert "('a', 0)" in contradiction(calls)


def test_a_write_without_an_answer_is_done_until_its_end_or_never():
    calls = [Call(0, 1, "create", "a", result=DONE), Call(2, 6, "write", "b")]
    assert not contradiction([*calls, Call(3, 4, "read", result=("a", 0)), Call(4.5, 7, "read", result=("b", 1))])
    assert not contradiction([*calls, Call(7, 8, "read", result=("a", 0))])
    assert contradiction([*calls, Call(7, 8, "read", result=("a", 0)), Call(9, 10, "read", result=("b", 1))])


def test_a_write_that_was_done_twice_is_seen():
    calls = [Call(0, 1, "create", "a", result=DONE), Call(2, 3, "write", "b", result=1), Call(4, 5, "write", "c", result=3)]
    assert contradiction(calls)


def test_long_histories_are_searched_in_no_time():
    calls = [Call(0, 1, "create", "", result=DONE)]
    for number in range(1, 5_000):
        calls.append(Call(number + 0.1, number + 1.9, "write", str(number), result=number))
        calls.append(Call(number + 0.2, number + 1.95, "write", "never", version=10_000_000))
    assert not contradiction(calls)


def test_too_many_orders_are_said_to_be(monkeypatch):
    monkeypatch.setattr(histories, "LIMIT", 10)
    calls = [Call(0, 1, "create", "", result=DONE), *(Call(2, 9, "write", str(number)) for number in range(9)), Call(10, 11, "read", result=("x", 5))]
    try:
        contradiction(calls)
    except histories.TooMany as error:
        assert "more than 10 orders" in str(error)
    else:
        raise AssertionError
