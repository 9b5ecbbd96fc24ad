"""The quorum bench's check of linearizability agrees with the definition."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.quorum import histories
from bench.quorum.histories import ANY, BAD_VERSION, DONE, NO_NODE, NODE_EXISTS, Call, contradiction, done


def explained(calls: list[Call]) -> bool:
    """Whether a valid order exists, by the definition: try every order of every choice of calls."""
    known = [call for call in calls if call.result is not None]
    unknown = [call for call in calls if call.result is None and call.what != "read"]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            if any(fits(order) for order in itertools.permutations([*known, *chosen])):
                return True
    return False


def fits(order: tuple[Call, ...]) -> bool:
    """Whether calls in this order give their answers, and no call comes before one that had ended when it began."""
    if any(later.end < call.begin for number, call in enumerate(order) for later in order[number + 1 :]):
        return False
    znode = None
    for call in order:
        znode, answered = done(znode, call)
        if call.result is not None and answered != call.result:
            return False
    return True


@st.composite
def drawn(draw: Any) -> list[Call]:
    """A few overlapping calls. Their answers follow from some order, except that any may be missing or arbitrary."""
    count = draw(st.integers(1, 6))
    times = draw(st.permutations(range(2 * count)))
    znode: Any = None
    calls = []
    for number in range(count):
        begin, end = sorted(times[2 * number : 2 * number + 2])
        what = draw(st.sampled_from(["create", "write", "write", "read", "delete"]))
        call = Call(
            begin,
            end,
            what,
            f"v{number}" if what in ("create", "write") else "",
            draw(st.sampled_from([ANY, ANY, 0, 1])),
        )
        znode, result = done(znode, call)
        if draw(st.integers(0, 5)) == 0:
            result = None
        elif draw(st.integers(0, 5)) == 0:
            result = draw(st.sampled_from([DONE, NO_NODE, BAD_VERSION, NODE_EXISTS, 1, 2, ("v0", 0), ("v1", 1)]))
        calls.append(Call(call.begin, call.end, call.what, call.value, call.version, result))
    return calls


@settings(max_examples=400, deadline=None)
@given(drawn())
def test_it_says_what_the_definition_says(calls: list[Call]) -> None:
    assert (contradiction(calls) == "") == explained(calls)


def test_a_write_that_is_lost_is_seen() -> None:
    calls = [
        Call(0, 1, "create", "a", result=DONE),
        Call(2, 3, "write", "b", result=1),
        Call(4, 5, "read", result=("a", 0)),
    ]
    assert "('a', 0)" in contradiction(calls)


def test_a_write_without_an_answer_is_done_until_its_end_or_never() -> None:
    calls = [Call(0, 1, "create", "a", result=DONE), Call(2, 6, "write", "b")]
    assert not contradiction([*calls, Call(3, 4, "read", result=("a", 0)), Call(4.5, 7, "read", result=("b", 1))])
    assert not contradiction([*calls, Call(7, 8, "read", result=("a", 0))])
    assert contradiction([*calls, Call(7, 8, "read", result=("a", 0)), Call(9, 10, "read", result=("b", 1))])


def test_a_write_that_was_done_twice_is_seen() -> None:
    calls = [
        Call(0, 1, "create", "a", result=DONE),
        Call(2, 3, "write", "b", result=1),
        Call(4, 5, "write", "c", result=3),
    ]
    assert contradiction(calls)


def test_long_histories_are_searched_in_no_time() -> None:
    calls = [Call(0, 1, "create", "", result=DONE)]
    for number in range(1, 5_000):
        calls.append(Call(number + 0.1, number + 1.9, "write", str(number), result=number))
        calls.append(Call(number + 0.2, number + 1.95, "write", "never", version=10_000_000))
    assert not contradiction(calls)


def test_too_many_orders_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "LIMIT", 10)
    calls = [
        Call(0, 1, "create", "", result=DONE),
        *(Call(2, 9, "write", str(number)) for number in range(9)),
        Call(10, 11, "read", result=("x", 5)),
    ]
    with pytest.raises(histories.TooMany, match="more than 10 orders"):
        contradiction(calls)


@pytest.mark.parametrize(
    ("znode", "call", "after", "answered"),
    [
        (None, ("create", "a", ANY), ("a", 0), DONE),
        (("b", 3), ("create", "a", ANY), ("b", 3), NODE_EXISTS),
        (("b", 3), ("write", "a", ANY), ("a", 4), 4),
        (("b", 3), ("write", "a", 3), ("a", 4), 4),
        (("b", 3), ("write", "a", 2), ("b", 3), BAD_VERSION),
        (None, ("write", "a", 2), None, NO_NODE),
        (("b", 3), ("delete", "", 3), None, DONE),
        (("b", 3), ("delete", "", 4), ("b", 3), BAD_VERSION),
        (None, ("delete", "", ANY), None, NO_NODE),
        (("b", 3), ("read", "", ANY), ("b", 3), ("b", 3)),
        (None, ("read", "", ANY), None, NO_NODE),
    ],
)
def test_a_znode_alone_does_what_zookeepers_do(
    znode: Any, call: tuple[str, str, int], after: Any, answered: Any
) -> None:
    assert done(znode, Call(0, 1, *call)) == (after, answered)
