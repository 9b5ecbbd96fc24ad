"""A new connection takes the place of the one that has been silent longest."""

from __future__ import annotations

from fencepost.connections.limit import ConnectionLimit


def test_the_connection_that_is_silent_longest_is_evicted() -> None:
    evicted: list[str] = []
    limit = ConnectionLimit[str](2, evicted.append)
    for connection in ("a", "b"):
        limit.admit(connection)
    limit.touch("a")
    limit.admit("c")
    assert (evicted, [*limit]) == (["b"], ["a", "c"])


def test_what_is_gone_takes_no_room_and_does_not_come_back() -> None:
    evicted: list[str] = []
    limit = ConnectionLimit[str](1, evicted.append)
    limit.admit("a")
    limit.remove("a")
    limit.touch("a")
    limit.admit("b")
    assert (evicted, [*limit], len(limit)) == ([], ["b"], 1)
