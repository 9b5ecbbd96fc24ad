"""The comparison of a quorum with a ZooKeeper ensemble ignores only what must differ."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.quorum.comparison import Pairs, _plain

EPOCH = 1 << 32


def test_zxids_are_the_same_if_they_are_in_the_same_order() -> None:
    pairs = Pairs()
    assert pairs.same(10, EPOCH + 3) and pairs.same(12, 2 * EPOCH + 1) and pairs.same(11, EPOCH + 4)
    assert pairs.same(10, EPOCH + 3)
    assert not pairs.same(10, EPOCH + 4), "10 has another partner"
    assert not pairs.same(9, EPOCH + 4), "the partner of 11"
    assert not pairs.same(9, EPOCH + 5), "earlier than 10, with a later partner"
    assert not pairs.same(13, EPOCH + 5), "later than 12, with an earlier partner"
    assert pairs.same(0, 0) and pairs.same(-1, -1) and not pairs.same(0, EPOCH)
    assert pairs.same(12, 3 * EPOCH, state=True) and not pairs.same(12, 3 * EPOCH)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), max_size=8))
def test_what_is_taken_for_the_same_is_in_the_same_order(asked: list[tuple[int, int]]) -> None:
    pairs = Pairs()
    taken = {each for each in asked if pairs.same(*each)}
    for one in taken:
        for other in taken:
            assert (one[0] < other[0]) == (one[1] < other[1])


@pytest.mark.parametrize(
    ("ours", "theirs", "are_equal"),
    [
        (
            [["reply", 7, 5, 0, ["/a", {"czxid": 5, "version": 1}]]],
            [["reply", 9, EPOCH, 0, ["/a", {"czxid": EPOCH + 1, "version": 1}]]],
            True,
        ),
        (
            [["reply", 7, 5, 0, ["/a", {"czxid": 5, "version": 1}]]],
            [["reply", 9, EPOCH, 0, ["/a", {"czxid": EPOCH + 1, "version": 2}]]],
            False,
        ),
        ([["reply", 7, 5, -101, None]], [["reply", 7, EPOCH, 0, None]], False),
        ([["event", 1, "/a", 5]], [["event", 1, "/a", EPOCH + 1]], True),
        ([["event", 1, "/a", 5]], [["event", 2, "/a", EPOCH + 1]], False),
        ([["event", 1, "/a", 5]], [], False),
        ([["event", 1, "/a", 5]], [["event", 1, "/a", 0]], False),
        ([{"mzxid": 5, "owner": 1}], [{"mzxid": EPOCH + 1}], False),
    ],
)
def test_answers_are_equal_but_for_zxids_and_numbers_of_requests(
    ours: list[Any], theirs: list[Any], are_equal: bool
) -> None:
    assert Pairs().equal(ours, theirs) is are_equal


def test_a_step_has_nothing_that_an_ensemble_does_not_answer() -> None:
    bad = [
        14,
        [
            [1, ["/a", b"", None, 0]],
            [2, ["/a", -1]],
            [99, ["/a", False]],
            [1, ["/a", b"", [], 7]],
            [5, ["/a", None, -1]],
        ],
    ]
    step = ["calls", 1, [[5, []], [4, ["/zookeeper/config", True]], bad, [22, [[4, ["/zookeeper/config", False]]]]]]
    assert _plain(step) == [
        "calls",
        1,
        [
            [11, []],
            [4, ["/zookeeper/quota", True]],
            [14, [[2, ["/a", -1]], [5, ["/a", None, -1]]]],
            [22, [[4, ["/zookeeper/quota", False]]]],
        ],
    ]
    assert _plain(["close", 1]) == ["close", 1]
